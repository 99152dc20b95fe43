"""Shared by the experiments: quartiles, result files and their pictures."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sgemm_kernels import Device, Error, build_info, devices
from sgemm_kernels._style import Picture
from sgemm_kernels.measuring.results import Results
from sgemm_kernels.measuring.results_file import (
    experiment_with,
    file_is_older,
    origin,
    read_json,
    write_json,
)
from sgemm_kernels.measuring.sources import OLDER, sources_hash

SCHEMA = 1
RESULTS = Path(__file__).parent / "results"
CLONE = Path(__file__).resolve().parent.parent
"""The package may be a build elsewhere, which lacks most sources."""


def summary(samples_s: list[float]) -> dict[str, Any]:
    """The samples with their median and interquartile range, in seconds. Needs two or more."""
    low, middle, high = statistics.quantiles(samples_s, n=4, method="inclusive")  # NumPy's way too
    return {"samples_s": samples_s, "median_s": middle, "iqr_s": high - low}


def joined(parts: Sequence[Results], interrupted: bool = False) -> Results:
    """Consecutive calls of `measure` as one run, with the facts of the last."""
    run = parts[-1].run
    return Results(
        run,
        tuple(dataclasses.replace(row, run=run) for part in parts for row in part.rows),
        interrupted or any(part.interrupted for part in parts),
    )


def folder() -> Path:
    """The folder of this machine's results: benchmarks/results/h200 for an NVIDIA H200."""
    gpu = next((found for found in devices() if found.usable), None)
    model = gpu.model if gpu and gpu.kind == "cuda" else "cpu"
    return RESULTS / "-".join(model.lower().removeprefix("nvidia ").split())


def stem(path: Path) -> str:
    """The name without endings: `auto` of auto.json.gz."""
    return path.name.partition(".")[0]


def output_argument(description: str, name: str) -> argparse.ArgumentParser:
    """A parser with the option -o: where the JSON goes. The default is NAME in the GPU's folder,
    with the ending .json unless NAME has one."""
    file = name if "." in name else f"{name}.json"
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "-o",
        dest="output",
        metavar="JSON",
        type=Path,
        default=folder() / file,
        help="the file to write; pictures go beside it, as SVG (default: %(default)s)",
    )
    return parser


def parsed(
    parser: argparse.ArgumentParser, redraw_file: Callable[[Path], None]
) -> argparse.Namespace:
    """The arguments. With --draw, draws the pictures of the file of -o again and exits."""
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing: draw the existing file again"
    )
    arguments = parser.parse_args()
    if arguments.draw:
        redraw_file(arguments.output)
        parser.exit()
    return arguments


@contextlib.contextmanager
def measuring(parser: argparse.ArgumentParser, *others: type[Exception]) -> Iterator[None]:
    """Ends the script with the status 2 if measuring fails, and prints why. ``others``: errors of a
    library that the script measures."""
    try:
        yield
    except (Error, ImportError, MemoryError, OSError, *others) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


def facts(device: Device) -> dict[str, Any]:
    """The facts of a device and of the build that begin a result file."""
    build = build_info()
    return {
        "device": device.model,
        "driver": device.driver,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
    }


def write(
    path: Path,
    experiment: str,
    head: dict[str, Any],
    rows: list[dict[str, Any]],
    picture: Callable[..., Picture] | None = None,
) -> None:
    """Writes the result file and, beside it, pictures of it. NaN and infinity become null."""
    document = {
        "schema": SCHEMA,
        "experiment": experiment,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **head,
        "sources_hash": sources_hash(experiment, CLONE),
        "rows": _plain(rows),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, document)
    print(f"\n{path}")
    if picture is not None:
        draw(path, picture, document, document["rows"])


def write_results(path: Path, results: Results) -> None:
    """Writes results of `measure`, with the hash of their sources."""
    path.parent.mkdir(parents=True, exist_ok=True)
    experiment = experiment_with(row.variant for row in results.rows)
    run = dataclasses.replace(results.run, sources_hash=sources_hash(experiment, CLONE))
    dataclasses.replace(results, run=run).to_json(path)


def write_comparison(path: Path, results: Results, picture: Callable[..., Picture]) -> None:
    """Writes results of `measure`, and beside them pictures of them."""
    write_results(path, results)
    print(f"\n{path}")
    draw(path, picture, results)


def draw(
    path: Path,
    picture: Callable[..., Picture],
    *found: Any,
    kind: str = "",
    beside: Sequence[Path] = (),
) -> None:
    """Writes a picture of the results in `path` beside that file.

    The metadata contain the digests of that file and of the files in `beside`, which the picture
    also shows, and a note if one of them is of older sources.
    """
    drawn = picture(*found)
    if any(map(file_is_older, (path, *beside))):
        drawn.add_note(OLDER)
    name = "-".join(filter(None, (stem(path), kind)))
    drawn.save(path.with_name(f"{name}.svg"), origin=origin(path, *beside))


def redraw(path: Path, picture: Callable[..., Picture], beside: Sequence[Path] = ()) -> None:
    """Draws the results of a file again."""
    document = read_json(path)
    found = [Results.from_json(path)] if "run" in document else [document, document["rows"]]
    draw(path, picture, *found, beside=beside)


def _plain(value: Any) -> Any:
    """Rounds figures to seven digits. NaN and infinity (errors of wrong results) become None."""
    match value:
        case float():
            return float(f"{value:.7g}") if math.isfinite(value) else None
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value
