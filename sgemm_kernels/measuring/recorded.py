"""The GPU results that the package includes."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from .results import Results
from .shapes import Shape
from .sources import OLDER, is_older

FOLDERS = ("h200", "h100-80gb-hbm3")
"""The GPUs' folders. Documents and lessons show the first one that has a result."""

SIZE = 4096
"""M = N = K in the pages of `explain`: large enough to fill a GPU, with profiler counters."""

_SHAPE: Shape = (SIZE, SIZE, SIZE)


@dataclass(frozen=True, slots=True)
class Record:
    """The results for one GPU at this size."""

    device: str
    """The vendor's name for it."""
    folder: str
    """The folder of its files, as ``recorded_file`` takes it."""
    date: str
    """Time of the measurement, to the second, since several GPUs may be measured on one day."""
    csrc_hash: str
    """Hash of the sources that were timed."""
    age: str
    """A note in brackets if they are older than this clone's; else empty."""
    counted: tuple[str, str, str] | None
    """Date, csrc hash and age of the counters; None without them."""
    ffma_gflops: float
    """Speed of a kernel with only multiply-adds in the same run."""
    copy_bytes_per_s: float
    """Speed of a copy in the GPU's memory in the same run, read plus written."""
    clock_hz: float
    """The highest clock at which a shape was sampled."""
    seconds: Mapping[str, float]
    """Median kernel time, by variant."""
    unmet: frozenset[str]
    """The variants whose sampling ended before its criteria were met."""
    counters: Mapping[str, Mapping[str, float]]
    """The profiler's counters by variant, with the names of benchmarks/traffic.py. Includes the
    clock and power of the kernel run back to back, ``clock_mhz`` and ``power_w``, if they were
    read."""


def recorded_file(name: str) -> Path:
    """Finds a result file that the package includes.

    Parameters
    ----------
    name
        The GPU's folder and the file, such as ``"h200/ladder.json"``. A file alone is that of the
        GPU that this package's pages show.

    Returns
    -------
    pathlib.Path
        The file. ``Results.from_json`` reads ladder.json; benchmarks/README.md explains the others.

    Raises
    ------
    ValueError
        If there is no such file. The message lists all files.
    """
    files = {
        f"{folder.name}/{file.name}": Path(str(file))
        for folder in _folders()
        for file in folder.iterdir()
        if file.name.endswith(".json")
    }
    if "/" not in name:
        name = next((each for folder in FOLDERS if (each := f"{folder}/{name}") in files), name)
    if name not in files:
        raise ValueError(f"no recorded result {name!r}: use one of {', '.join(sorted(files))}")
    return files[name]


def _folders() -> list[Traversable]:
    found = resources.files("sgemm_kernels.recorded").iterdir()
    return [folder for folder in found if folder.is_dir()]


@functools.cache
def records() -> tuple[Record, ...]:
    """One for each GPU whose results suffice for a prediction; the newest last."""
    found = [_read(each) for each in _folders() if each.joinpath("ladder.json").is_file()]
    return tuple(sorted((record for record in found if record), key=lambda record: record.date))


def record_of(names: Sequence[str]) -> Record:
    """The record with times for most of these variants; among equals, that of the GPU that
    documents and lessons show first, and then the newest."""

    def known(record: Record) -> tuple[int, bool, str]:
        count = sum(name in record.seconds for name in names)
        return count, record.folder == FOLDERS[0], record.date

    return max(records(), key=known)


def _read(folder: Traversable) -> Record | None:
    with resources.as_file(folder.joinpath("ladder.json")) as path:
        results = Results.from_json(path)
    run = results.run
    clock_hz = results.clock_hz
    if run.ffma_gflops is None or run.copy_bytes_per_s is None or clock_hz is None:
        return None
    rows = [row for row in results.rows if row.case == (_SHAPE, "NN")]
    traffic = _traffic(folder.joinpath("traffic.json"))
    return Record(
        run.device,
        folder.name,
        run.date,
        run.csrc_hash,
        _age(run.sources_hash),
        (traffic["date"], traffic["csrc_hash"], _age(traffic["sources_hash"], "traffic"))
        if traffic
        else None,
        run.ffma_gflops,
        run.copy_bytes_per_s,
        clock_hz,
        {row.variant: row.median_s for row in rows if row.median_s is not None},
        frozenset(row.variant for row in rows if row.unmet),
        _counters(traffic.get("rows", [])),
    )


def _age(sources_hash: str | None, experiment: str = "") -> str:
    return f" ({OLDER})" if is_older(sources_hash, experiment) else ""


def _traffic(file: Traversable) -> dict[str, Any]:
    """What benchmarks/traffic.py wrote; empty without the file."""
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def _counters(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    at_size = [row for row in rows if (row["M"], row["N"], row["K"]) == _SHAPE]
    alone = ("clock_mhz", "power_w")
    return {
        row["variant"]: row["gpu"] | {name: row[name] for name in alone if row.get(name)}
        for row in at_size
        if row["gpu"]
    }
