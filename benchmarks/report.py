"""Writes the README's table of the ladder from the files in benchmarks/results/.

python benchmarks/report.py

No figure in the table is typed by hand: change the catalog or measure again (ladder.py), and run
this. The table has a row for every variant of the catalog, and columns for every results file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sgemm_kernels import variants

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
RESULTS = ROOT / "benchmarks/results"
BEGIN = "<!-- The ladder, written by benchmarks/report.py: -->\n"
END = "<!-- end of the ladder -->\n"
SIZE = 4096
COLUMNS = ("TFLOP/s", "of cuBLAS", "worst error / bound")


def cells(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """A variant's entries under COLUMNS; rows are its measurements, of any size."""
    at_size = [row for row in rows if (row["m"], row["n"], row["k"]) == (SIZE,) * 3]
    if not at_size:
        return ("-",) * len(COLUMNS)
    (row,) = at_size
    speed = f"{row['gflops'] / 1e3:.2f}" if "gflops" in row else "wrong"
    share = f"{row['vs_cublas']:.2f}" if "vs_cublas" in row else "-"
    return speed, share, f"{max(r['worst_share_of_bound'] for r in rows):.4f}"


def origin(path: Path, result: dict[str, Any]) -> str:
    """The line below the table that says where a results file's columns come from."""
    return (
        f"{path.stem}: {result['device']}, driver for CUDA {result['driver']}, "
        f"toolkit {result['cuda_toolkit']}, {result['date'][:10]}, csrc `{result['csrc_hash']}`; "
        f"{result['protocol']} ([all samples]({path.relative_to(path.parents[2]).as_posix()}))."
    )


def ladder(results: dict[Path, dict[str, Any]]) -> str:
    """The table, and below it a line for each results file."""
    header = ["rung", "idea", *(f"{path.stem}: {name}" for path in results for name in COLUMNS)]
    lines = [header, ["---", "---", *["---:"] * (len(header) - 2)]]
    for variant in variants():
        name = f"`{variant.name}`"
        if variant.file is not None:
            name = f"[{name}](csrc/kernels/{variant.file})"
        line = [name, variant.summary]
        for result in results.values():
            line += cells([row for row in result["rows"] if row["variant"] == variant.name])
        lines.append(line)
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return table + "".join(f"\n{origin(path, result)}\n" for path, result in results.items())


def updated(readme: str, results: Path = RESULTS) -> str:
    """The text of the README with its table made anew from the JSON files in a folder."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the README needs the lines {BEGIN.strip()!r} and {END.strip()!r}")
    found = {path: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    return f"{before}{begin}\n{ladder(found)}\n{end}{after}"


if __name__ == "__main__":
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
