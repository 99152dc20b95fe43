"""What the experiments share: quartiles, the head of a result file, and the files themselves."""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from sgemm_kernels.results import Comparison, dump

SCHEMA = 1
RESULTS = Path(__file__).parent / "results"


def summary(samples_s: list[float]) -> dict[str, Any]:
    """The samples with their median and interquartile range, in seconds. Needs two or more."""
    low, middle, high = statistics.quantiles(samples_s, n=4, method="inclusive")  # NumPy's way too
    return {"samples_s": samples_s, "median_s": middle, "iqr_s": high - low}


def output_argument(description: str, name: str) -> argparse.ArgumentParser:
    """A parser that knows where the JSON goes, by default benchmarks/results/NAME.json."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "-o",
        dest="output",
        metavar="JSON",
        type=Path,
        default=RESULTS / f"{name}.json",
        help="the file to write; the picture goes beside it, as SVG (default: %(default)s)",
    )
    return parser


def write(
    path: Path,
    experiment: str,
    head: dict[str, Any],
    rows: list[dict[str, Any]],
    figure: Figure | None = None,
) -> None:
    """Writes the result file and, beside it, the picture of it. No number becomes null."""
    document = {
        "schema": SCHEMA,
        "experiment": experiment,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **head,
        "rows": [{name: _plain(value) for name, value in row.items()} for row in rows],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dump(document) + "\n", encoding="utf-8")
    draw(path, experiment, figure)


def write_comparison(path: Path, experiment: str, results: Comparison, figure: Figure) -> None:
    """Writes results of `compare`, and beside them the picture of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results.to_json(path)
    draw(path, experiment, figure)


def draw(path: Path, experiment: str, figure: Figure | None) -> None:
    """Writes the picture beside a result file, and says where both are."""
    if figure is None:
        print(f"\n{path}")
        return
    # No date and no random names: the same numbers make the same file.
    with mpl.rc_context({"svg.hashsalt": experiment, "svg.fonttype": "none"}):
        figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    print(f"\n{path} and {path.with_suffix('.svg').name}")


def _plain(value: Any) -> Any:
    """A wrong result's error may be infinite or no number, which JSON cannot say."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
