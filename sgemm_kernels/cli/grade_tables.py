"""The table of benchmarks/grades.py: a grade and the worst error of each way to multiply."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text
from ..measuring.results_file import facts_of, read_json
from .speed_tables import NOTHING_MEASURED


def _share(value: float | None) -> str:
    """A figure, or infinity, which JSON has as null."""
    return "infinite" if value is None else f"{value:.2g}"


def _graded(row: Mapping[str, Any]) -> list[str]:
    """The findings of the tests. Batches compute only the hard products."""
    if "grade" not in row:
        return ["-"] * 5
    slope = row["slope"]
    return [
        row["grade"] or "none",
        _share(row["share_A"]),
        "-" if slope is None else f"{slope:.2f}",
        *("yes" if row[name] else "no" for name in ("zeros_exact", "small_kept")),
    ]


def of_grades(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """A header and a line for each way."""
    header = ["", "grade", "error / bound of A", "growth", "exact zeros", "small elements"]
    lines = [
        [row["way"], *_graded(row), _share(row["worst_share"]), row["worst_at"]] for row in rows
    ]
    count = f"{max(row['products'] for row in rows):,}"
    return [*header, f"worst of {count} hard products", "with"], lines


def grades(results: Path) -> str:
    """The table of ``of_grades`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    facts = markdown_text(facts_of(document))
    return f"{markdown(*of_grades(document['rows']), words=1)}\n\n{facts}, seed {document['seed']}."
