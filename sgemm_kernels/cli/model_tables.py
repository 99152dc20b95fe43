"""Tables and sentences of benchmarks/models.py: models in PyTorch."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text
from ..measuring.results_file import facts_of, read_json
from ..measuring.sources import OLDER, is_older
from .speed_tables import NOTHING_MEASURED

FLOAT32, TF32, OURS = "PyTorch float32", "PyTorch TF32", "enable()"
"""The ways in which benchmarks/models.py computes."""


def of_models(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Times and errors, from the rows of benchmarks/models.py. Returns a table's header and lines:
    one line per model, and one for the geometric means."""
    own = {(row["model"], row["way"]): row for row in rows if "model" in row}
    names = list(dict.fromkeys(model for model, _ in own))
    others = [way for way in (OURS, TF32) if any(found == way for _, found in own)]
    speeds: dict[str, list[float]] = {way: [1 / own[name, way]["over_float32"] for name in names]
                                      for way in others}  # fmt: skip
    lines = []
    for index, name in enumerate(names):
        products = own.get((name, OURS), {}).get("products")
        taken = "-"
        if products:
            taken = f"{products['taken']} of {products['taken'] + sum(products['passed'].values())}"
        lines.append(
            [name, f"{1e3 * own[name, FLOAT32]['median_s']:.3f}"]
            + [f"{speeds[way][index]:.2f}x" for way in others]
            + [f"{own[name, way]['relative_error']:.1e}" for way in (FLOAT32, *others)]
            + [taken]
        )
    if names:
        means = (f"{statistics.geometric_mean(speeds[way]):.2f}x" for way in others)
        lines.append(["geometric mean", "", *means, *([""] * (len(others) + 2))])
    header = ["model", f"{FLOAT32}, ms", *others]
    return [*header, *(f"error: {way}" for way in (FLOAT32, *others)), "products taken"], lines


def _consequences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each model whose errors have an effect with a name."""
    own: dict[str, list[str]] = {}
    for row in rows:
        if row.get("consequence"):
            own.setdefault(row["model"], []).append(f"{row['way']}: {row['consequence']}")
    return [f"{name}: {'; '.join(words)}." for name, words in own.items()]


def _training(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence on the losses of the training runs, if there are any."""
    first = [row for row in rows if "difference" in row]
    away = [f"{row['way']}: {max(map(abs, row['difference'])):.1e}" for row in first]
    curves = [row["losses"] for row in rows if "losses" in row and row["way"] == FLOAT32]
    if len(curves) < 2:
        return []
    spread = max(max(losses) - min(losses) for losses in zip(*curves, strict=True))
    return [
        f"Training: the largest difference of a loss from float64 in {len(curves[0])} steps is "
        f"{', '.join(away)}. Between {len(curves)} seeds, the losses in float32 differ by up to "
        f"{spread:.1e}."
    ]


def mean_sentence(document: Mapping[str, Any]) -> str:
    """A sentence with the geometric means over all models, and the slowest and the fastest one."""
    own = {(row["model"], row["way"]): row for row in document["rows"] if "model" in row}
    names = list(dict.fromkeys(model for model, _ in own))
    ours, tf32 = ([1 / own[name, way]["over_float32"] for name in names] for way in (OURS, TF32))
    errors = [own[n, OURS]["relative_error"] / own[n, FLOAT32]["relative_error"] for n in names]
    return (
        f"Over {len(names)} models in PyTorch on an {document['device']}, `enable()` is "
        f"{statistics.geometric_mean(ours):.2f} times as fast as PyTorch's float32 "
        f"({min(ours):.2f} to {max(ours):.2f}; TF32: {statistics.geometric_mean(tf32):.2f}), with "
        f"{statistics.geometric_mean(errors):.2f} times its error (at most {max(errors):.1f})."
    )


def average(results: Path) -> str:
    """The sentence of ``mean_sentence`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    age = f" This was {OLDER}." if is_older(document.get("sources_hash"), "models") else ""
    return mean_sentence(document) + age


def models(results: Path) -> str:
    """The table of ``of_models`` for a file, and the differences of the training losses."""
    if not results.exists():
        return NOTHING_MEASURED
    document = read_json(results)
    rows = document["rows"]
    parts = [markdown(*of_models(rows)), *_consequences(rows), *_training(rows)]
    failed = document.get("failed", {})
    parts += [markdown_text(f"{name} failed: {error}") for name, error in failed.items()]
    return "\n\n".join([*parts, f"{markdown_text(facts_of(document))}."])
