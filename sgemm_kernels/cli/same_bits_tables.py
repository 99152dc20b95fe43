"""Tables of benchmarks/same_bits.py: the speed of `invariant`, and whose bits depend on rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text
from ..measuring.results_file import facts_of, read_json
from .speed_tables import NOTHING_MEASURED
from .targets import Target

CUBLAS, INVARIANT, AUTO = "torch.mm", "invariant", "auto"

Rows = Sequence[Mapping[str, Any]]
Table = tuple[list[str], list[list[str]]]


def ratios_of(rows: Rows, to: str) -> dict[tuple[str, int], float]:
    """The speed of `invariant` over another way's, by case and number of rows. Wrong or failed
    products have none."""
    medians = {
        (row["way"], row["case"], row["M"]): row["median_ns"]
        for row in rows
        if row.get("median_ns")
    }
    return {
        (case, M): medians[to, case, M] / median
        for (way, case, M), median in medians.items()
        if way == INVARIANT and (to, case, M) in medians
    }


def _slowest(rows: Rows, to: str, *, fewest: int, most: int = 2**31, large: bool = True) -> float:
    """The lowest ratio with a number of rows in this range, and N and K from 2048 on or not."""
    own = [row for row in rows if fewest <= row["M"] <= most
           and (min(row["N"], row["K"]) >= 2048) == large]  # fmt: skip
    return min(ratios_of(own, to).values())


def bits_targets(rows: Rows) -> Table:
    """What `invariant` aims at, beside what was found."""
    targets = (
        Target("speed over auto, from 2048 rows, N and K: slowest",
               lambda rows: _slowest(rows, AUTO, fewest=2048), 0.85, at_least=True),
        Target("speed over auto, from 2048 rows, a smaller N or K: slowest",
               lambda rows: _slowest(rows, AUTO, fewest=2048, large=False), 0.6, at_least=True),
        Target("speed over cuBLAS at 8192 cubed: slower layout",
               lambda rows: min(ratio for (case, M), ratio in ratios_of(rows, CUBLAS).items()
                                if case.startswith("8192 x 8192") and M == 8192),
               3.5, at_least=True),
        Target("speed over cuBLAS, 1 to 64 rows, N and K from 2048: slowest",
               lambda rows: _slowest(rows, CUBLAS, fewest=1, most=64), 0.8, at_least=True),
    )  # fmt: skip
    return ["figure", "target", "measured", ""], [target.line(rows) for target in targets]


def by_rows(rows: Rows, to: str) -> Table:
    """The speed of `invariant` over another way's: a line for each B, a column for each number of
    rows."""
    ratios = ratios_of(rows, to)
    counts = sorted({row["M"] for row in rows})
    lines = [
        [case, *(f"{ratios[case, M]:.2f}" if (case, M) in ratios else "-" for M in counts)]
        for case in dict.fromkeys(row["case"] for row in rows)
    ]
    name = "cuBLAS" if to == CUBLAS else to
    return [f"N x K, times {name}'s speed", *map(str, counts)], lines


def of_bits(rows: Rows) -> Table:
    """In how many products with fewer rows the results have the bits of the largest product."""
    most = max(row["M"] for row in rows)
    lines = []
    for way in dict.fromkeys(row["way"] for row in rows):
        equal = [row["equal_bits"] for row in rows
                 if row["way"] == way and row["M"] < most and "equal_bits" in row]  # fmt: skip
        lines.append([way, f"{sum(equal)} of {len(equal)}"])
    return ["", f"same bits as with {most} rows"], lines


def tables(rows: Rows) -> tuple[Table, ...]:
    """All tables."""
    return bits_targets(rows), by_rows(rows, CUBLAS), by_rows(rows, AUTO), of_bits(rows)


def same_bits(results: Path) -> str:
    """The tables of a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    parts = [markdown(*each) for each in tables(document["rows"])]
    return "\n\n".join([*parts, f"{markdown_text(facts_of(document))}."])
