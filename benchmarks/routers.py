"""Experiment 22: products of mixture-of-experts routers, and squares, against cuBLAS.

``python benchmarks/routers.py`` measures M tokens x N experts x K hidden for the sizes of real
models, with a column-major B (the weights of a linear layer), and squares. These shapes have few
columns: reading A takes a large share of the time, and few tiles fill a GPU.

`simt`, `waves`, `fused`, `auto`, `auto` with a B that was prepared before, cuBLAS in float32 and in
TF32, and the other libraries alternate, with few samples each and a cold cache. It writes JSON with
every sample, and prints the times, the ratios to cuBLAS and their geometric means.

With PyTorch, the same products follow with a bfloat16 A, and then with a bfloat16 B, too: `auto`
beside what PyTorch and Triton offer for float32 results. Their times are compared with cuBLAS's of
float32 operands, and their errors with the exact product of the bfloat16 values.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import itertools
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _libraries import LOOKS, left_out, libraries
from _results import joined, measuring, output_argument, parsed, redraw, write_comparison

from sgemm_kernels import Device, Error, Results, prepare, run
from sgemm_kernels._style import SERIES, Picture, drawing, ticks
from sgemm_kernels._table import table
from sgemm_kernels.cli.speed_tables import by_tokens, named, sampled
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.competitors import Competitor, Measured
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.measurement import TF32
from sgemm_kernels.measuring.operands import DATA, Data, Float32, operand_sets
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.shapes import Case, size_text

OURS = ("simt", "waves", "fused", "auto")
PREPARED = "auto, prepared B"
TOKENS = (512, 2048, 8192, 65536)
EXPERTS = (64, 128, 256, 384, 896)
HIDDEN = (2048, 7168)
SQUARES = (1024, 2048, 4096, 8192)
MIXED, BOTH = "bf16 x fp32", "bf16 x bf16"
SECONDS = 1200.0
DEFAULT_STREAM = 1
"""CUDA's handle for the default stream, in which competitors are timed."""


def routers() -> list[Case]:
    """M tokens by N experts; B holds the router's weights, N x K in memory."""
    return [((M, N, K), "NT") for M, K, N in itertools.product(TOKENS, HIDDEN, EXPERTS)]


def squares() -> list[Case]:
    """Row-major squares."""
    return [((n, n, n), "NN") for n in SQUARES]


def with_prepared(copies: int) -> Competitor:
    """`auto` with prepared copies of the B of the first call, in turn, so that none is cached."""
    made: list[Any] = []
    place = itertools.count()

    def product(A: Any, B: Any, out: Any) -> None:
        if not made:
            made.extend(prepare(B) for _ in range(copies))
        run("auto", A, made[next(place) % copies], out=out, stream=DEFAULT_STREAM)

    return product


# ------------------------------------------------------------------ bfloat16


def rounded(values: Float32) -> Float32:
    """The values with the bits that bfloat16 has."""
    kept: Float32 = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    return kept


def data(kind: str) -> Data:
    """Uniform operands with the values of bfloat16: of A, or of both."""
    words, make = DATA["uniform"]

    def made(*arguments: Any) -> tuple[Float32, Float32]:
        A, B = make(*arguments)
        return rounded(A), B if kind == MIXED else rounded(B)

    return f"{words}, {kind}", made


def with_bfloat16(kind: str, copies: int, product: Callable[..., object]) -> Competitor:
    """A product of bfloat16 copies of the first call's A, and of its B, in turn, so that none is
    cached."""
    made: list[Any] = []
    place = itertools.count()

    def of_copies(A: Any, B: Any, out: Any) -> None:
        torch = importlib.import_module("torch")
        if not made:
            a, b = (torch.as_tensor(X, device="cuda") for X in (A, B))
            of_b = b.dtype if kind == MIXED else torch.bfloat16
            made.extend((a.bfloat16(), b.to(of_b, copy=True)) for _ in range(copies))
        product(*made[next(place) % copies], torch.as_tensor(out, device="cuda"))

    return of_copies


@functools.cache
def products() -> dict[str, dict[str, Callable[..., object]]]:
    """The ways to multiply such tensors into a float32 tensor. None without PyTorch."""
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("sgemm_kernels.torch")
    except ImportError as error:
        left_out("bfloat16", f"{error}: pip install 'torch>=2.10'")
        return {}
    ours = torch.ops.sgemm_kernels.mm.out
    found: dict[str, dict[str, Callable[..., object]]] = {
        kind: {
            "auto": lambda a, b, out: ours(a, b, out=out),
            "float() @ float()": lambda a, b, out: torch.mm(a.float(), b.float(), out=out),
        }
        for kind in (MIXED, BOTH)
    }
    found[BOTH]["mm(out_dtype)"] = lambda a, b, out: torch.mm(
        a, b, out_dtype=torch.float32, out=out
    )
    try:
        by_triton = importlib.import_module("_triton_product").product
    except ImportError as error:
        left_out("Triton", f"{error}: pip install triton")
    else:
        found[MIXED]["Triton tf32x3"] = functools.partial(by_triton, precision="tf32x3")
        found[BOTH]["Triton"] = functools.partial(by_triton, precision="ieee")
    return found


def measured_in_bfloat16(of_float32: Results, gpu: Device) -> list[Results]:
    """Rows for the same product as others, whose times are compared with cuBLAS's."""
    ((shape, layout),) = of_float32.cases
    times = {row.variant: row.median_s for row in of_float32.rows}
    copies = operand_sets(shape, 2 * (gpu.l2_bytes or 0))  # of half the size
    found = []
    for kind, ways in products().items():
        named_ways: list[Measured] = [
            (f"{kind}: {name}", with_bfloat16(kind, copies, product))
            for name, product in ways.items()
        ]
        part = measure_briefly(named_ways, shape, layout, device=gpu.name, data=data(kind))
        rows = (dataclasses.replace(row, cublas_median_s=times["cublas"]) for row in part.rows)
        found.append(Results(of_float32.run, tuple(rows)))
    return found


# ------------------------------------------------------------------ all ways


def measured(gpu: Device, seconds: float) -> Results:
    """Rows of all cases within the time limit, the smallest operands first."""
    others = list(libraries(gpu.name))
    if "cublas" not in others:
        raise Error("routers are compared with cuBLAS, which is missing")
    end = time.monotonic() + seconds
    cases = sorted([*routers(), *squares()], key=lambda case: case[0][0] * case[0][2])
    found: list[Results] = []
    with progress(len(cases)) as advance:
        for shape, layout in cases:
            if time.monotonic() >= end:
                print("time is over: the last products are left out", file=sys.stderr)
                break
            copies = operand_sets(shape, gpu.l2_bytes or 0)
            ways = [*OURS, (PREPARED, with_prepared(copies)), *others]
            try:
                part = measure_briefly(ways, shape, layout, device=gpu.name)
                found += [part, *measured_in_bfloat16(part, gpu)]
            except Exception as error:  # any error of a library
                print(f"{size_text(shape, layout)} is left out: {error}", file=sys.stderr)
            advance(size_text(shape, layout))
    if not found:
        raise Error("no product was measured")
    return joined(found, interrupted=len(found) < len(cases))


def rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """For each case cuBLAS's time, and the speed of each other way relative to it."""
    others = [name for name in results.variants if name != "cublas"]
    labels = [named(results, name) for name in others]
    own = {(row.variant, row.case): row for row in results.rows}
    lines = []
    for case in results.cases:
        time_us = f"{(own['cublas', case].median_s or 0) * 1e6:.0f}"
        ratios = [results.ratios(own.get((name, case)))[0] for name in others]
        lines.append([size_text(*case), time_us, *ratios])
    return ["size", "cublas, us", *labels], lines


def picture(results: Results) -> Picture:
    """The speed over cuBLAS's of each way to multiply float32 operands with float32's accuracy: a
    panel for each number of tokens, and for squares. The marks of a product are beside each
    other."""
    title = "Speed over cuBLAS's: routers, and squares"
    note = f"M tokens, N experts, B column-major; {sampled(results)}\n{results.run.describe()}"
    looks = dict(zip(OURS, SERIES, strict=False))
    timed = {row.variant for row in results.rows if row.vs_cublas is not None}
    names = [
        name
        for name in results.variants
        if name in timed - {"cublas", TF32} and not name.startswith((MIXED, BOTH))
    ]
    with drawing(title, note, height=13) as (figure, theme):
        panels = figure.subplots(len(TOKENS) + 1)
        for axes, M in zip(panels, [*TOKENS, None], strict=True):
            cases = [
                case
                for case in results.cases
                if (len(set(case[0])) == 1 if M is None else case[0][0] == M and case[1] == "NT")
            ]
            for index, name in enumerate(names):
                by_case = {row.case: row.vs_cublas for row in results.rows if row.variant == name}
                places = [i + (index - (len(names) - 1) / 2) / 14 for i in range(len(cases))]
                colour = looks.get(
                    name, looks["auto"] if name == PREPARED else LOOKS["cublas"].colour
                )
                axes.plot(
                    places,
                    [by_case.get(case) or math.nan for case in cases],
                    marker=LOOKS[name].marker if name in LOOKS else "o",
                    markersize=5,
                    linestyle="",
                    color=colour,
                    markerfacecolor=colour if name in OURS else "none",
                    label=name,
                )
            labels = [str(s[0]) if M is None else f"{s[1]}\n{s[2]}" for s, _ in cases]
            axes.set_xticks(range(len(cases)), labels)
            axes.grid(visible=False, axis="x")
            axes.axhline(1, color=theme.ink, linewidth=1.5)
            axes.set(yscale="log", ylabel="times as fast",
                     title="squares" if M is None else f"{M} tokens (experts, hidden)")  # fmt: skip
            low, high = axes.get_ylim()
            marks = (0.05, 0.1, 0.2, 0.5, 1, 2, 4)
            ticks(axes, "y", [mark for mark in marks if low < mark < high])
        panels[-1].legend(loc="upper left", bbox_to_anchor=(0, -0.25), fontsize=9, ncols=5)
    return figure


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "routers.json.gz")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="maximum total time (default: %(default)s)"
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    with measuring(parser):
        results = measured(find_gpu("routers are measured"), arguments.seconds)
    write_comparison(arguments.output, results, picture)
    print(f"{results.run.describe()}\n")
    print(table(*rows(results)))
    print(f"\n{table(*by_tokens(results))}")
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
