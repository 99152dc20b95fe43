"""Renews the committed results of this machine's GPU, in parts of at most 8 minutes.

``make evidence`` runs it with the package in build/lib. It goes through the parts, the most
important first. After an interruption it goes on with the part that it was at.

make evidence LIST=1         the parts, their minutes, and which are of older sources; needs no GPU
make evidence STALE=1        only the parts that are of older sources than this clone's, or missing
make evidence PART=calls     this part alone
make evidence MINUTES=8      only what fits into these minutes; a part that takes longer is stopped
make evidence ARCHIVE=a.tgz  packs the files that this call changed
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from _results import CLONE, RESULTS, folder

from sgemm_kernels import devices
from sgemm_kernels._table import table
from sgemm_kernels.measuring.recorded import FOLDERS
from sgemm_kernels.measuring.results_file import experiment_of, read_json
from sgemm_kernels.measuring.sources import sources_hash

HERE = Path(__file__).resolve().parent
WORK = CLONE / "build" / "evidence"
LONGEST_MIN = 8.0


@dataclass(frozen=True)
class Part:
    """Some result files, and the commands that write them."""

    name: str
    minutes: float
    """What its commands took on an H200, rounded up."""
    commands: tuple[tuple[str, ...], ...]
    """Each: a script, the file that it is given, and options."""
    written: tuple[str, ...] = ()
    """The files that the commands write; by default those that they are given."""
    gpus: int = 1

    @property
    def files(self) -> tuple[str, ...]:
        """The result files in the GPU's folder."""
        return self.written or tuple(file for _, file, *_ in self.commands)


def _part(name: str, minutes: float, file: str = "", *, gpus: int = 1) -> Part:
    return Part(name, minutes, ((f"{name}.py", file or f"{name}.json"),), gpus=gpus)


_SPREAD = tuple(
    ("ladder.py", f"ladder-{run}.json", "--sizes", "512", "1024", "2048", "4096")
    for run in (1, 2, 3)
)
PARTS = (
    _part("ladder", 3.5),
    _part("models", 2.5),
    _part("calls", 2),
    _part("programs", 3),
    _part("clocks", 1),
    _part("recomputing", 1.5),
    _part("accuracy", 0.5),
    _part("grades", 2),
    _part("traffic", 7),
    _part("batched", 1.5),
    _part("grouped", 0.5),
    _part("same_bits", 0.5, "same_bits.json.gz"),
    _part("symmetric", 0.5, "symmetric.json.gz"),
    _part("routers", 7.5, "routers.json.gz"),
    _part("random_shapes", 1, "random_shapes.json.gz"),
    _part("products", 1.5, "products.json.gz"),
    _part("host_cost", 2.5),
    _part("layouts", 2, "layouts.json.gz"),
    _part("tile_size", 1),
    _part("work_per_thread", 1),
    _part("auto", 2.5, "auto.json.gz"),
    Part("spread", 1.5, _SPREAD),
    Part("peers", 4.5, (("peers.py", "peers.json", "--data", "uniform"),)),
    Part(
        "peers_normal",
        3,
        (("peers.py", "peers.json", "--data", "normal"),),
        ("peers-normal.json",),
    ),
    Part(
        "peers_products",
        1,
        (("peers.py", "peers.json", "--cases", "models", "routers"),),
        ("peers-models.json", "peers-routers.json"),
    ),
    _part("ablations", 3),
    _part("ablations_fp16_pairs", 1),
    Part(
        "tuning", 6, (("tuning.py", "tuning.json"),), ("tuning-tile2d.json", "tuning-warptile.json")
    ),
    _part("all_gpus", 1.5, gpus=2),
)
"""The most important first."""


def is_stale(part: Part, results: Path) -> bool:
    """True if a file of the part is missing or of other sources than this clone's."""
    for file in part.files:
        if not (results / file).is_file():
            return True
        document = read_json(results / file)
        recorded = document.get("run", document).get("sources_hash")
        if recorded != sources_hash(experiment_of(document), CLONE):
            return True
    return False


class Progress:
    """The parts that are finished, in a file; for calls without STALE=1."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.finished: list[str] = json.loads(file.read_text()) if file.is_file() else []

    def add(self, part: Part) -> None:
        """Notes that a part is finished."""
        self.finished.append(part.name)
        self._file.write_text(json.dumps(self.finished))

    def forget(self) -> None:
        """Lets the next call begin again."""
        self._file.unlink(missing_ok=True)


def run_part(part: Part, results: Path, limit_s: float) -> str | None:
    """Runs the commands of a part, with their output in a log. Returns what went wrong, or None."""
    end = time.monotonic() + limit_s
    log = WORK / f"{part.name}.log"
    with log.open("w") as output:
        for script, file, *options in part.commands:
            process = subprocess.Popen(
                [sys.executable, HERE / script, "-o", results / file, *options],
                cwd=WORK,  # holds no package of that name
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(max(end - time.monotonic(), 0))
            except BaseException as error:  # the limit, or an interruption
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    return f"stopped after {limit_s / 60:.1f} minutes; {log} has its output"
                raise
            if status:
                last = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
                return f"{script} ended with status {status}:\n{last}"
    return None


def contents(results: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in results.glob("*") if path.is_file()}


def pack(archive: Path, results: Path, before: dict[Path, bytes]) -> None:
    """Writes the files that changed to an archive, with their paths in the clone."""
    with tarfile.open(archive, "w:gz") as packed:
        for path, data in sorted(contents(results).items()):
            if data != before.get(path):
                packed.add(path, path.relative_to(RESULTS.parent.parent))


def renew(
    parts: Sequence[Part],
    results: Path,
    *,
    minutes: float | None,
    archive: Path | None,
    progress: Progress | None,
) -> bool:
    """Runs parts until the minutes are over. Returns False if one failed. Without a budget, all
    parts run. The archive is written after each part."""
    begin = time.monotonic()
    before = contents(results)
    right, whole = True, True
    for part in parts:
        left = LONGEST_MIN
        if minutes is not None:
            left = min(left, minutes - (time.monotonic() - begin) / 60)
        if minutes is not None and part.minutes > left:
            print(f"{part.name}: left for the next call, takes {part.minutes:g} minutes")
            whole = False
            continue
        start = time.monotonic()
        problem = run_part(part, results, 60 * left)
        took = (time.monotonic() - start) / 60
        print(f"{part.name}: {problem or f'renewed in {took:.1f} minutes'}", flush=True)
        right = right and problem is None
        if progress is not None and problem is None:
            progress.add(part)
        if archive is not None:
            pack(archive, results, before)
    if progress is not None and right and whole:
        progress.forget()
    return right


def listed(results: Path) -> str:
    """The table of all parts."""
    lines = [
        (part.name, f"{part.minutes:g}", str(part.gpus), "yes" if is_stale(part, results) else "-")
        for part in PARTS
    ]
    return table(("part", "minutes", "GPUs", "stale"), lines)


def chosen(part: str | None, stale: bool, results: Path, done: Sequence[str]) -> list[Part]:
    """The parts to run on this machine."""
    if part is not None:
        return [each for each in PARTS if each.name == part]
    gpus = sum(device.usable and device.kind == "cuda" for device in devices())
    here = [each for each in PARTS if each.gpus <= gpus]
    if stale:
        return [each for each in here if is_stale(each, results)]
    return [each for each in here if each.name not in done or is_stale(each, results)]


def main() -> int:
    """Renews or lists. Returns 1 if a part failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="list the parts, run none")
    parser.add_argument("--stale", action="store_true", help="only what is of older sources")
    parser.add_argument("--part", choices=[part.name for part in PARTS], help="this part alone")
    parser.add_argument("--minutes", type=float, help="only what fits into these minutes")
    parser.add_argument("--archive", type=Path, help="where to pack the changed files, as .tar.gz")
    options = parser.parse_args()
    if options.list:
        print(f"{FOLDERS[0]}\n\n{listed(RESULTS / FOLDERS[0])}")
        return 0
    results = folder()
    if results.name == "cpu":
        parser.error("results are of a GPU, and this machine has no usable one")
    for place in (results, WORK):
        place.mkdir(parents=True, exist_ok=True)
    progress = Progress(WORK / "finished.json")
    parts = chosen(options.part, options.stale, results, progress.finished)
    if not parts:
        print("nothing to renew")
    whole = not (options.part or options.stale)
    right = renew(
        parts,
        results,
        minutes=options.minutes,
        archive=options.archive,
        progress=progress if whole else None,
    )
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
