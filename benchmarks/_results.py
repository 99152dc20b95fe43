"""What the experiments share: quartiles, the head of a result file, and the files themselves."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sgemm_kernels import devices
from sgemm_kernels._style import Picture
from sgemm_kernels.measuring.results import Results
from sgemm_kernels.measuring.results_file import dump

SCHEMA = 1
RESULTS = Path(__file__).parent / "results"


def summary(samples_s: list[float]) -> dict[str, Any]:
    """The samples with their median and interquartile range, in seconds. Needs two or more."""
    low, middle, high = statistics.quantiles(samples_s, n=4, method="inclusive")  # NumPy's way too
    return {"samples_s": samples_s, "median_s": middle, "iqr_s": high - low}


def joined(parts: Sequence[Results], interrupted: bool = False) -> Results:
    """Several calls of `measure` one after the other, as one run: the last."""
    run = parts[-1].run
    return Results(
        run,
        tuple(dataclasses.replace(row, run=run) for part in parts for row in part.rows),
        interrupted or any(part.interrupted for part in parts),
    )


def folder() -> Path:
    """Where the results of this machine are: benchmarks/results/h200 of an NVIDIA H200."""
    gpu = next((found for found in devices() if found.usable), None)
    model = gpu.model if gpu and gpu.kind == "cuda" else "cpu"
    return RESULTS / "-".join(model.lower().removeprefix("nvidia ").split())


def output_argument(description: str, name: str) -> argparse.ArgumentParser:
    """A parser that knows where the JSON goes, by default NAME.json in the GPU's folder."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "-o",
        dest="output",
        metavar="JSON",
        type=Path,
        default=folder() / f"{name}.json",
        help="the file to write; pictures go beside it, as SVG (default: %(default)s)",
    )
    return parser


def parsed(
    parser: argparse.ArgumentParser, redraw_file: Callable[[Path], None]
) -> argparse.Namespace:
    """The arguments; with --draw the file that -o names is drawn anew, and the program ends."""
    parser.add_argument(
        "--draw", action="store_true", help="measure nothing: draw the file that is there anew"
    )
    arguments = parser.parse_args()
    if arguments.draw:
        redraw_file(arguments.output)
        parser.exit()
    return arguments


def write(
    path: Path,
    experiment: str,
    head: dict[str, Any],
    rows: list[dict[str, Any]],
    picture: Callable[..., Picture] | None = None,
) -> None:
    """Writes the result file and, beside it, pictures of it. No number becomes null."""
    document = {
        "schema": SCHEMA,
        "experiment": experiment,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **head,
        "rows": [{name: _plain(value) for name, value in row.items()} for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(document) + "\n", encoding="utf-8")
    print(f"\n{path}")
    if picture is not None:
        draw(path, picture, document, document["rows"])


def write_comparison(path: Path, results: Results, picture: Callable[..., Picture]) -> None:
    """Writes results of `measure`, and beside them pictures of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results.to_json(path)
    print(f"\n{path}")
    draw(path, picture, results)


def draw(path: Path, picture: Callable[..., Picture], *found: Any) -> None:
    """Writes a picture of what was found, light and dark, beside its file."""
    for paper in ("light", "dark"):
        name = path.with_name(f"{path.stem}-{paper}.svg")
        picture(*found, dark=paper == "dark").save(name)


def redraw(path: Path, picture: Callable[..., Picture]) -> None:
    """Draws the results of a file anew."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if "run" in document:
        draw(path, picture, Results.from_json(path))
    else:
        draw(path, picture, document, document["rows"])


def _plain(value: Any) -> Any:
    """A wrong result's error may be infinite or no number, which JSON cannot say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
