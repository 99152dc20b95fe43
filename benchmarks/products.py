"""Experiment 24: the products of nine models, forward and backward, against cuBLAS.

``python benchmarks/products.py`` measures the products of the linear layers of nine models. For
each layer, it measures the forward product, the gradient of its input and the gradient of its
weight, in the layouts that PyTorch passes. `auto`, cuBLAS in float32 and cuBLAS in TF32 alternate,
with few samples each and a cold cache. Each result is compared with float64.

It writes JSON with every sample, and prints geometric means by model and the slowest products.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from _results import facts, measuring, output_argument, parsed, redraw, summary, write

from sgemm_kernels import Results
from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table
from sgemm_kernels.cli.product_tables import AUTO, CUBLAS, PASSES, of_products, ratios_of
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.measurement import TF32
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.shapes import Case, size_text

WAYS = (CUBLAS, AUTO, TF32)
SECONDS = 210.0
WORST = 10
FORWARD, OF_INPUT, OF_WEIGHT = PASSES


@dataclass(frozen=True)
class Layer:
    """Linear layers of a model that have the same sizes."""

    model: str
    layer: str
    tokens: int
    inputs: int
    outputs: int

    def cases(self) -> dict[str, Case]:
        """Each pass's product. A weight is outputs x inputs in memory; all tensors are row-major.

        forward: X @ W.T; gradient of the input: G @ W; gradient of the weight: G.T @ X.
        """
        return {
            FORWARD: ((self.tokens, self.outputs, self.inputs), "NT"),
            OF_INPUT: ((self.tokens, self.inputs, self.outputs), "NN"),
            OF_WEIGHT: ((self.outputs, self.inputs, self.tokens), "TN"),
        }


MODELS: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {
    "BERT base": (
        16 * 384,
        {"q, k, v, output": (768, 768), "up": (768, 3072), "down": (3072, 768)},
    ),
    "Llama, width 2048": (
        1024,
        {"q, output": (2048, 2048), "k, v": (2048, 512), "gate, up": (2048, 8192),
         "down": (8192, 2048)},
    ),
    "T5 encoder": (
        16 * 512,
        {"q, k, v, output": (768, 768), "up": (768, 3072), "down": (3072, 768)},
    ),
    "Swin-B, stage 1": (
        32 * 56**2,
        {"qkv": (128, 384), "output": (128, 128), "up": (128, 512)},
    ),
    "Swin-B, stage 3": (
        32 * 14**2,
        {"qkv": (512, 1536), "output": (512, 512), "up": (512, 2048)},
    ),
    "Mixer-B, channels": (64 * 196, {"up": (768, 3072), "down": (3072, 768)}),
    "Mixer-B, tokens": (64 * 768, {"up": (196, 384), "down": (384, 196)}),
    "DeiT3-B": (
        64 * 197,
        {"qkv": (768, 2304), "output": (768, 768), "up": (768, 3072), "down": (3072, 768)},
    ),
    "Wav2Vec2": (
        8 * 249,
        {"q, k, v, output": (768, 768), "up": (768, 3072), "down": (3072, 768)},
    ),
    "GPT-2": (
        8 * 512,
        {"qkv": (768, 2304), "output": (768, 768), "up": (768, 3072), "down": (3072, 768)},
    ),
    "MLP": (4096, {"first": (1024, 4096), "second": (4096, 4096), "third": (4096, 256)}),
}  # fmt: skip
"""Tokens of a batch, and inputs and outputs of each layer. Swin's `down` has the sizes of `up`. The
batches: 16 texts of 384 tokens (BERT), a text of 1024 (Llama), 16 of 512 (T5), 32 pictures (Swin),
64 (Mixer, DeiT3), 8 recordings of 5 seconds (Wav2Vec2), 8 texts of 512 (GPT-2)."""


def layers() -> list[Layer]:
    """All layers, in the order of MODELS."""
    return [
        Layer(model, name, tokens, *sizes)
        for model, (tokens, found) in MODELS.items()
        for name, sizes in found.items()
    ]


def rows_of(layer: Layer, step: str, results: Results) -> list[dict[str, Any]]:
    """A row for each way to compute one product. A wrong result has no samples."""
    rows = []
    for row in results.rows:
        timed = summary(list(row.samples_s)) if len(row.samples_s) > 1 else {}
        rows.append(
            {
                **asdict(layer),
                "pass": step,
                "M": row.M,
                "N": row.N,
                "K": row.K,
                "layout": row.layout,
                "way": row.variant,
                "relative_error": row.error.relative,
                "worst_share": row.error.worst_share,
                "right": row.error.right,
                "unmet": list(row.unmet),
                **timed,
            }
        )
    return rows


def measured(device: str, seconds: float, missing: dict[str, str]) -> list[dict[str, Any]]:
    """Rows of all products within the time limit. A product that fails, or does not fit into
    memory, is left out. `missing` gets the reason, which is printed, too."""
    end = time.monotonic() + seconds
    products = [(layer, *each) for layer in layers() for each in layer.cases().items()]
    rows: list[dict[str, Any]] = []
    with progress(len(products)) as advance:
        for layer, step, (shape, layout) in products:
            if time.monotonic() >= end:
                missing["the last products"] = "time is over"
                break
            try:
                rows += rows_of(layer, step, measure_briefly(WAYS, shape, layout, device=device))
            except (MemoryError, RuntimeError) as error:  # DeviceError is a RuntimeError
                missing[f"{size_text(shape, layout)} of {layer.model}, {layer.layer}"] = str(error)
            advance(size_text(shape, layout))
    for name, reason in missing.items():
        print(f"{name}: left out: {reason}", file=sys.stderr)
    if not rows:
        raise MemoryError("no product was measured")
    return rows


def worst(rows: Sequence[Mapping[str, Any]]) -> str:
    """The slowest products of `auto`, relative to cuBLAS."""
    found = sorted(ratios_of(rows, AUTO), key=lambda pair: pair[1])[:WORST]
    lines = [
        (row["model"], row["layer"], row["pass"],
         size_text((row["M"], row["N"], row["K"]), row["layout"]), f"{ratio:.2f}")
        for row, ratio in found
    ]  # fmt: skip
    return table(("slowest of auto", "layer", "pass", "M x N x K", "/ cuBLAS"), lines)


def picture(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Picture:
    """For each model a mark for each product: `auto` in a colour for each pass, TF32 hollow."""
    names = list(dict.fromkeys(row["model"] for row in rows))
    mean = statistics.geometric_mean([ratio for _, ratio in ratios_of(rows, AUTO)] or [math.nan])
    title = f"Products of nine models: auto is {mean:.1f} times as fast as cuBLAS in float32"
    note = f"geometric mean; hollow: cuBLAS in TF32; {head['device']}"
    with drawing(title, note, height=1.5 + 0.45 * len(names)) as (figure, theme):
        axes = figure.subplots()
        for way in (TF32, AUTO):
            for index, (step, colour) in enumerate(zip(PASSES, SERIES, strict=False)):
                own = [
                    (ratio, names.index(row["model"]) + (index - 1) / 5)
                    for row, ratio in ratios_of(rows, way)
                    if row["pass"] == step
                ]
                if own:
                    axes.plot(
                        *zip(*own, strict=True),
                        "o",
                        color=colour,
                        markersize=6,
                        markerfacecolor=colour if way == AUTO else "none",
                        label=step if way == AUTO else None,
                    )
        axes.axvline(1, color=theme.ink, linewidth=1.5)
        axes.set_yticks(range(len(names)), names)
        axes.set(xscale="log", ylim=(len(names) - 0.5, -0.5), xlabel="times as fast as cuBLAS")
        axes.grid(visible=False, axis="y")
        ticks(axes, "x", (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8))
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.15), fontsize=9, ncols=3)
    return figure


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong or missing, 2 if measuring
    failed."""
    parser = output_argument((__doc__ or "").splitlines()[0], "products.json.gz")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="maximum total time (default: %(default)s)"
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    missing: dict[str, str] = {}
    with measuring(parser):
        gpu = find_gpu("products of models are measured")
        rows = measured(gpu.name, arguments.seconds, missing)
    head = {
        **facts(gpu),
        "missing": missing,
        "protocol": "CUDA events, cold cache, round-robin; contiguous operands, uniform [-1, 1)",
    }
    print(f"{gpu.model}\n\n{table(*of_products(rows))}\n\n{worst(rows)}")
    write(arguments.output, "products", head, rows, picture)
    return 1 if missing or not all(row["right"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
