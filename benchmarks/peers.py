"""Experiment 12: error against speed, of this package and of other float32 products.

``python benchmarks/peers.py`` measures `simt` and `auto`, cuBLAS in float32, in TF32 and in its
emulation of float32, and, if they are there, Triton's tensor-core products with float32's accuracy,
CUTLASS's products on CUDA cores and by 3xTF32, and GEMMul8's from integers. All are checked and
alternate, by the rules of `measure`. JAX's products follow, timed in another way, which their rows
state. At the largest size, the energy of a product is measured too, except for JAX and TF32.
Operands are uniform, and then standard normal, in a second file. Missing peers are reported with
the reason. ``make peers`` fetches CUTLASS and GEMMul8.

``--cases models routers`` measures a dozen products of models and six of routers instead, without
JAX, briefly, and writes a file for each.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from _energy import energies
from _libraries import JAX, LOOKS, left_out, libraries
from _results import (
    joined,
    measuring,
    output_argument,
    parsed,
    redraw,
    write_comparison,
    write_results,
)

from sgemm_kernels import Device, Error, Measurement, Results, measure
from sgemm_kernels._style import (
    Picture,
    drawing,
    label_of,
    look,
    mark_unmet,
    ticks,
)
from sgemm_kernels._table import table
from sgemm_kernels.cli.speed_tables import beside_peers, named, over_cublas
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.competitors import Competitor, Measured
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.measurement import TF32, UNMET
from sgemm_kernels.measuring.operands import DATA
from sgemm_kernels.measuring.progress import progress
from sgemm_kernels.measuring.sampling import unmet_of
from sgemm_kernels.measuring.shapes import Case, size_text
from sgemm_kernels.measuring.truth import Truth

SIZES = (1024, 2048, 4096, 8192)
HEIGHT = 6.5
"""The picture's height in inches."""
SPEEDS = (10, 20, 50, 100, 200, 400, 800)
"""Ticks, in TFLOP/s."""
SECONDS = 2.0
OURS = ("simt", "auto")
LAYERS = {
    "BERT base": "up",
    "Llama, width 2048": "q, output",
    "Swin-B, stage 3": "up",
    "GPT-2": "qkv",
}
"""A layer of four of the models of experiment 24: forward, and both gradients."""
TOKENS = (512, 8192)
EXPERTS_AND_HIDDEN = ((64, 2048), (128, 2048), (256, 7168))
BEYOND_FLOAT32 = "larger than rounding in float32 explains, u sqrt(K) with u = 2**-24"


def of_models() -> list[Case]:
    """The products of LAYERS."""
    products = importlib.import_module("products")
    chosen = [each for each in products.layers() if LAYERS.get(each.model) == each.layer]
    return [case for layer in chosen for case in layer.cases().values()]


def of_routers() -> list[Case]:
    """M tokens by N experts; B holds the router's weights, N x K in memory."""
    return [((M, N, K), "NT") for M in TOKENS for N, K in EXPERTS_AND_HIDDEN]


CASES = {"models": of_models, "routers": of_routers}
"""Products other than squares."""


def briefly(names: Sequence[Measured], cases: Sequence[Case], gpu: Device) -> Results:
    """Rows of products that are not squares. A product that a library refuses is left out."""
    found: list[Results] = []
    with progress(len(cases)) as advance:
        for shape, layout in cases:
            try:
                found.append(measure_briefly(names, shape, layout, device=gpu.name))
            except Exception as error:  # any error of a library
                left_out(size_text(shape, layout), str(error).strip().partition("\n")[0])
            advance(size_text(shape, layout))
    if not found:
        raise Error("no product was measured")
    return joined(found, interrupted=len(found) < len(cases))


def by_jax(results: Results, data: str) -> Iterator[Measurement]:
    """Rows of JAX's algorithms at the sizes of these results; none without JAX and a GPU."""
    try:
        products = importlib.import_module("_jax_product")
        products.needs_gpu()
    except (ImportError, RuntimeError) as error:
        left_out("JAX", str(error).strip().partition("\n")[0])
        return
    _, make = DATA[data]
    for shape in results.shapes:
        rng = np.random.default_rng(shape)
        A, B = make(rng, shape)
        truth = Truth(A, B, (), rng)
        for name, algorithm in JAX.items():
            try:
                error = truth.accuracy_of(products.once(algorithm, A, B))
                taken = tuple(products.samples(algorithm, A, B)) if error.right else ()
                unmet = unmet_of(taken, statistics.median(taken)) if taken else ()
            except Exception as problem:  # any error of XLA
                left_out(f"{name} at {shape[0]}", str(problem).strip().partition("\n")[0])
                continue
            yield Measurement(
                results.run,
                name,
                *shape,
                error,
                samples_s=taken,
                unmet=unmet,
                timed_by=products.TIMED_BY,
            )


def with_energies(
    results: Results, names: Sequence[str | tuple[str, Competitor]], device: str
) -> Results:
    """Adds the energy of a product at the largest size to the rows of right results."""
    last = results.shapes[-1]
    right = {row.variant for row in results.rows if row.shape == last and row.error.right}
    ways = {n: None for n in names if isinstance(n, str)} | dict(
        n for n in names if not isinstance(n, str)
    )
    _, make = DATA["uniform"]
    A, B = make(np.random.default_rng(last), last)
    chosen = {name: way for name, way in ways.items() if name in right and name != TF32}
    found = dict(energies(chosen, A, B, device))
    rows = (
        dataclasses.replace(row, energy_j=found.get(row.variant)) if row.shape == last else row
        for row in results.rows
    )
    return dataclasses.replace(results, rows=tuple(rows))


def answer(results: Results) -> str:
    """The picture's title, with figures if `auto` and cuBLAS were both measured."""
    found = {row.variant: row for row in results.rows if row.shape == results.shapes[-1]}
    ours, theirs = found.get("auto"), found.get("cublas")
    if not (ours and theirs and ours.vs_cublas):
        return "Error against speed of float32 products"
    error = ours.error.relative / theirs.error.relative
    speed = f"{ours.vs_cublas:.1f} times as fast{UNMET if ours.unmet or theirs.unmet else ''}"
    return f"auto beside cuBLAS at {ours.M}: {speed}, {error:.2g} times the error"


def picture(results: Results) -> Picture:
    """Speed over error: a line for each library from the smallest size to the largest. The legend
    begins with the fastest one."""
    first, last = results.shapes[0][0], results.shapes[-1][0]
    note = f"M = N = K, from {first} (the small mark) to {last}; {results.run.protocol.data}\n"
    ways = {row.timed_by for row in results.rows if row.timed_by}
    note += "".join(f"JAX: by {way}\n" for way in ways)
    if any(row.less_than_float32 for row in results.rows):
        note += f"labels have an error if it is {BEYOND_FLOAT32}\n"
    note += results.run.describe()
    with drawing(answer(results), note, height=HEIGHT) as (figure, theme):
        axes = figure.subplots()
        lines = []
        unmet: list[tuple[float, float]] = []
        for name in results.variants:
            found = (results.find(name, shape) for shape in results.shapes)
            rows = [row for row in found if row and row.gflops]
            if not rows:
                continue
            errors = [row.error.relative for row in rows]
            speeds = [(row.gflops or math.nan) / 1e3 for row in rows]
            style = LOOKS.get(name, look(name))
            lines += axes.plot(errors, speeds, label=label_of(named(results, name)), **style.line())
            axes.plot(errors[:1], speeds[:1], **style.line() | {"markersize": 3})
            points = zip(errors, speeds, strict=True)
            unmet += [point for point, row in zip(points, rows, strict=True) if row.unmet]
            if name == "cublas":
                axes.axvspan(0, max(errors), color=theme.good, alpha=0.1, linewidth=0)
                axes.annotate(
                    "no larger error than cuBLAS in float32\n↖ up and to the left is better",
                    (0, 1),
                    (8, -8),
                    xycoords="axes fraction",
                    textcoords="offset points",
                    va="top",
                    color=theme.good,
                )
        axes.set(xscale="log", xlabel="relative Frobenius error against float64")
        axes.set(yscale="log", ylabel="TFLOP/s")
        axes.margins(x=0.25, y=0.15)
        low, high = axes.get_ylim()
        ticks(axes, "y", [mark for mark in SPEEDS if low < mark < high])
        lines.sort(key=lambda line: -line.get_ydata()[-1])
        figure.legend(handles=lines, loc="outside right center", fontsize=9, handlelength=3)
        mark_unmet(axes, unmet, theme)
    return figure


def of_squares(names: Sequence[Measured], data: str, sizes: Sequence[int], gpu: Device) -> Results:
    """Rows of squares of one kind of operands. Uniform ones have energies, too."""
    results = measure(
        names, list(sizes), data=data, device=gpu.name, seconds=SECONDS, whole_calls=False
    )
    if data == "uniform":
        results = with_energies(results, names, gpu.name)
    return dataclasses.replace(results, rows=(*results.rows, *by_jax(results, data)))


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "peers")
    parser.add_argument(
        "--data",
        nargs="+",
        choices=DATA,
        default=list(DATA),
        help="kinds of operands of squares (default: all). Each kind except uniform has its own "
        "file, whose name ends in the kind",
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="default: %(default)s")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=CASES,
        help="these products instead of squares; a file for each, whose name ends in the kind",
    )
    arguments = parsed(parser, lambda path: redraw(path, picture))
    right = True
    with measuring(parser):
        gpu = find_gpu("peers are measured")
        names: list[Measured] = [*OURS, *libraries(gpu.name)]
        for kind in arguments.cases or arguments.data:
            if kind in CASES:
                results = briefly(names, CASES[kind](), gpu)
                header = [f"{kind}: times cublas's", "speed, error"]
                lines = [[*line] for line in over_cublas(results).items()]
                write_results(file_of(arguments.output, kind), results)
            else:
                results = of_squares(names, kind, arguments.sizes, gpu)
                header, lines = beside_peers(results)
                write_comparison(file_of(arguments.output, kind), results, picture)
            ours = (row.error.right for row in results.rows if row.variant not in JAX)
            right = right and all(ours)
            print(f"{results.run.describe()}, {results.run.protocol.data}\n")
            print(table(header, lines))
    return 0 if right else 1


def file_of(path: Path, kind: str) -> Path:
    return path if kind == "uniform" else path.with_stem(f"{path.stem}-{kind}")


if __name__ == "__main__":
    sys.exit(main())
