"""Tables of benchmarks/symmetric.py: A @ A.mT against the product with a copy, and cuBLAS."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text
from ..measuring.results_file import facts_of, read_json
from .speed_tables import NOTHING_MEASURED
from .targets import Target

CUBLAS, AUTO, GRAM, AUTO_COPY = "torch.matmul", "auto", "auto, gram", "auto, a copy"
SIMT, SIMT_COPY = "simt", "simt, a copy"
NEWTON_SCHULZ = "Newton-Schulz"
GOALS = ("4096 x 1024", "4096 x 8192", "8192 x 1024", "8192 x 8192")
_SAME = 0.98
"""Medians of the same kernel differ by up to 2 %."""
_RATIOS = {
    "over a copy": (AUTO, AUTO_COPY),
    "gram over a copy": (GRAM, AUTO_COPY),
    "over cuBLAS": (AUTO, CUBLAS),
    "simt over a copy": (SIMT, SIMT_COPY),
}
"""The columns: the speed of one way over another's."""

Rows = Sequence[Mapping[str, Any]]
Table = tuple[list[str], list[list[str]]]


def ratios_of(rows: Rows, way: str, to: str) -> dict[str, float]:
    """The speed of a way over another's, by case. Wrong or failed products have none."""
    medians = {(row["way"], row["case"]): row["median_ns"] for row in rows if row.get("median_ns")}
    return {
        case: medians[to, case] / median
        for (found, case), median in medians.items()
        if found == way and (to, case) in medians
    }


def _milliseconds(rows: Rows, case: str, way: str) -> float:
    medians = {(row["case"], row["way"]): row.get("median_ns") for row in rows}
    if not (median := medians[case, way]):
        raise KeyError(case)
    return float(median) / 1e6


def _goal(case: str) -> Target:
    return Target(
        f"{case}: speed of auto over a copy",
        lambda rows: ratios_of(rows, AUTO, AUTO_COPY)[case],
        1.7,
        at_least=True,
    )


def symmetric_targets(rows: Rows) -> Table:
    """What symmetric products aim at, beside what was found."""
    targets = (
        *map(_goal, GOALS),
        Target("auto over a copy: slowest",
               lambda rows: min(ratios_of(rows, AUTO, AUTO_COPY).values()), _SAME, at_least=True),
        Target("simt over a copy: slowest",
               lambda rows: min(ratios_of(rows, SIMT, SIMT_COPY).values()), _SAME, at_least=True),
        Target(f"{NEWTON_SCHULZ} at 4096, five steps, ms",
               lambda rows: _milliseconds(rows, NEWTON_SCHULZ, AUTO), 11),
    )  # fmt: skip
    return ["figure", "target", "measured", ""], [target.line(rows) for target in targets]


def by_case(rows: Rows) -> Table:
    """A line for each case: the time of `auto`, and the speeds of one way over another's."""
    columns = [ratios_of(rows, *ways) for ways in _RATIOS.values()]
    times = {row["case"]: row["median_ns"] for row in rows
             if row["way"] == AUTO and row.get("median_ns")}  # fmt: skip
    lines = [
        [case, f"{times[case] / 1e3:.1f}" if case in times else "-",
         *(f"{ratios[case]:.2f}" if case in ratios else "-" for ratios in columns)]
        for case in dict.fromkeys(row["case"] for row in rows)
    ]  # fmt: skip
    return ["rows x columns of A", "auto, us", *_RATIOS], lines


def tables(rows: Rows) -> tuple[Table, ...]:
    """All tables."""
    return symmetric_targets(rows), by_case(rows)


def symmetric(results: Path) -> str:
    """The tables of a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    parts = [markdown(*each) for each in tables(document["rows"])]
    return "\n\n".join([*parts, f"{markdown_text(facts_of(document))}."])
