"""The table of programs under ``sgemm-kernels preload``: benchmarks/programs.py."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text, one_line
from ..measuring.results_file import read_json, with_age
from .speed_tables import NOTHING_MEASURED

SAME_WORK = {"loop_run": "loop", "loop_pinned": "loop", "loop_empty": "loop"}
"""Programs of benchmarks/programs.py that import this package, and the same with NumPy alone."""


def of_programs(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Times of unchanged programs, from the rows of benchmarks/programs.py. Returns a table's
    header and lines: one line per program and way, with its speed relative to the own BLAS. If the
    own BLAS computed everything under preload, a difference would be chance, and is not shown."""
    lines = []
    own: dict[str, float] = {}
    for row in rows:
        words = [row["program"], row["way"]]
        if "failed" in row:
            lines.append([*words, "-", "-", "-", row["failed"]])
            continue
        later = min(row["seconds"][1:])
        speed = own.setdefault(SAME_WORK.get(row["program"], row["program"]), later) / later
        calls = "-"
        if "computed" in row:
            calls = f"{row['computed']} of {row['computed'] + row['passed_on']}"
        shown = "-" if row.get("computed") == 0 else f"{speed:.2f}x"
        figures = f"{row['seconds'][0]:.3f}", f"{later:.3f}", shown
        lines.append([*words, *figures, calls])
    return ["program", "way", "first, s", "later, s", "speed", "calls computed here"], lines


def programs(results: Path) -> str:
    """The table of ``of_programs`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    facts = f"{document['device']}, {document['cores']} cores, NumPy {document['numpy']}, csrc "
    facts += f"{document['csrc_hash']}, {document['date'][:10]}"
    told = with_age(one_line(facts), document)
    table = markdown(*of_programs(document["rows"]), words=2)
    return "\n\n".join([table, f"{markdown_text(told)}."])
