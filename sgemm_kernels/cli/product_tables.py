"""The table of benchmarks/products.py: products of models against cuBLAS, by model."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text
from ..measuring.measurement import TF32
from ..measuring.results_file import facts_of, read_json
from .speed_tables import NOTHING_MEASURED

CUBLAS, AUTO = "cublas", "auto"
PASSES = ("forward", "gradient of the input", "gradient of the weight")
_PRODUCT = ("model", "layer", "pass")

Row = Mapping[str, Any]


def ratios_of(rows: Sequence[Row], way: str, to: str = CUBLAS) -> list[tuple[Row, float]]:
    """The rows of a way, each with its speed relative to another way's. Products that one of them
    computed wrongly are left out."""
    medians = {
        (row["way"], *(row[name] for name in _PRODUCT)): row["median_s"]
        for row in rows
        if "median_s" in row
    }
    found = []
    for row in rows:
        other = medians.get((to, *(row[name] for name in _PRODUCT)))
        if row["way"] == way and "median_s" in row and other is not None:
            found.append((row, other / row["median_s"]))
    return found


def _mean(ratios: Iterable[float]) -> str:
    known = list(ratios)
    return f"{statistics.geometric_mean(known):.2f}" if known else "-"


def of_products(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Speeds of `auto`, as a table's header and lines: a line for each model and one for all, with
    geometric means over its products."""
    speeds, tf32 = ratios_of(rows, AUTO), ratios_of(rows, AUTO, TF32)
    exact = {
        tuple(row[name] for name in _PRODUCT): row["relative_error"]
        for row in rows
        if row["way"] == CUBLAS
    }
    lines = []
    for model in [*dict.fromkeys(row["model"] for row in rows), None]:
        own = [(row, ratio) for row, ratio in speeds if model in (None, row["model"])]
        errors = [
            row["relative_error"] / exact[tuple(row[name] for name in _PRODUCT)] for row, _ in own
        ]
        lines.append(
            [
                f"all {len(own)}" if model is None else model,
                *(_mean(ratio for row, ratio in own if row["pass"] == step) for step in PASSES),
                _mean(ratio for _, ratio in own),
                f"{min(ratio for _, ratio in own):.2f}" if own else "-",
                _mean(ratio for row, ratio in tf32 if model in (None, row["model"])),
                _mean(errors),
            ]
        )
    header = ["times cuBLAS's speed", *PASSES, "all", "slowest"]
    return [*header, "times TF32's speed", "times cuBLAS's error"], lines


def products(results: Path) -> str:
    """The table of ``of_products`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    missing = document.get("missing", {})
    parts = [markdown(*of_products(document["rows"]))]
    parts += [markdown_text(f"{name}: left out: {reason}") for name, reason in missing.items()]
    return "\n\n".join([*parts, f"{markdown_text(facts_of(document))}."])
