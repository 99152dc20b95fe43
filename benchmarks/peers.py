"""Experiment 12: error against speed, of this package and of what else multiplies float32 matrices.

``python benchmarks/peers.py`` measures `simt` and `auto`, cuBLAS in float32 and in TF32, and, where
PyTorch and Triton are installed, Triton's products by tensor cores at float32's accuracy. All are
checked and timed by turns, by the rules of `measure`. It says what it leaves out, and why.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Iterator

from _results import output_argument, parsed, redraw, write_comparison

from sgemm_kernels import Error, Results, measure, variants
from sgemm_kernels._style import (
    LINE,
    Look,
    Picture,
    annotate,
    drawing,
    in_points,
    label_of,
    look,
    spread,
)
from sgemm_kernels._table import table
from sgemm_kernels.measuring import Competitor, find_gpu

SIZES = (1024, 2048, 4096, 8192)
SECONDS = 2.0
OURS = ("simt", "auto")
TRITON = {"Triton tf32x3": "tf32x3", "Triton bf16x6": "bf16x6"}
LOOKS = {
    "cublas": Look("#7a838e", "s", "--"),
    "cublas-tf32": Look("#7a838e", "v", ":"),
    "Triton tf32x3": Look("#7a838e", "D", "-."),
    "Triton bf16x6": Look("#7a838e", "^", "-."),
}
"""Of libraries, which no colour parts from each other."""


def called(name: str) -> str:
    return "cuBLAS TF32" if name == "cublas-tf32" else label_of(name)


def libraries(device: str) -> Iterator[tuple[str, str | Competitor | None]]:
    """What can be measured here: what `measure` takes; None, and it was said, where it cannot."""
    missing = next(v.unavailable for v in variants() if v.name == "cublas")
    for name in ("cublas", "cublas-tf32"):
        yield name, said(name, missing) if missing else name
    try:
        product = importlib.import_module("_triton_product").product
    except ImportError as error:
        for name in TRITON:
            yield name, said(name, f"{error}: pip install torch triton")
        return
    for name, precision in TRITON.items():
        competitor = functools.partial(product, precision=precision)
        try:
            measure((name, competitor), 256, device=device, seconds=0.01, whole_calls=False)
        except Exception as error:  # whatever a compiler says of what it does not know
            yield name, said(name, str(error).strip().partition("\n")[0])
        else:
            yield name, competitor


def said(name: str, why: str) -> None:
    print(f"{name} is left out: {why}", file=sys.stderr)


def lines(results: Results) -> str:
    """A line for each way, with its error and its TFLOP/s at each size."""
    header = ("TFLOP/s, error", *(str(shape[0]) for shape in results.shapes))
    body = []
    for name in results.variants:
        found = (results.find(name, shape) for shape in results.shapes)
        cells = (
            f"{row.gflops / 1e3:.3g}, {row.error.relative:.1e}" if row and row.gflops else "-"
            for row in found
        )
        body.append((called(name), *cells))
    return table(header, body)


def picture(results: Results, *, dark: bool = False) -> Picture:
    """Error across, speed up: a line for each way from the smallest size to the largest."""
    title = "As exact as float32, at what speed? Up and to the left is better"
    sizes = ", ".join(str(shape[0]) for shape in results.shapes)
    note = f"M = N = K = {sizes}, from the small mark on\n{results.run.describe()}"
    with drawing(title, note, dark=dark) as (figure, _):
        axes = figure.subplots()
        ends: list[tuple[str, tuple[float, float], str]] = []
        for name in results.variants:
            found = (results.find(name, shape) for shape in results.shapes)
            rows = [row for row in found if row and row.gflops]
            if not rows:
                continue
            errors = [row.error.relative for row in rows]
            speeds = [(row.gflops or math.nan) / 1e3 for row in rows]
            style = LOOKS.get(name, look(name))
            axes.plot(errors, speeds, label=called(name), **style.line())
            axes.plot(errors[:1], speeds[:1], **style.line() | {"markersize": 3})
            ends.append((called(name), (errors[-1], speeds[-1]), style.colour))
        axes.set(xscale="log", xlabel="relative error (Frobenius norms, to float64)")
        axes.set(ylabel="TFLOP/s", ylim=(0, None))
        axes.margins(x=0.25)
        ends.sort(key=lambda end: end[1][1])
        heights = [y for _, y in in_points(axes, [place for _, place, _ in ends])]
        for (text, place, colour), y, moved in zip(
            ends, heights, spread(heights, LINE), strict=True
        ):
            annotate(axes, text, place, (14, moved - y), colour, line=abs(moved - y) > 1)
    return figure


def main() -> int:
    """Measures, writes and prints; returns 1 if a result was wrong, 2 if it cannot be done."""
    parser = output_argument(__doc__.splitlines()[0], "peers")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    try:
        gpu = find_gpu("peers are measured")
        found = dict(libraries(gpu.name))
        names = [*OURS, *(f if isinstance(f, str) else (n, f) for n, f in found.items() if f)]
        chosen = {"device": gpu.name, "seconds": SECONDS, "whole_calls": False}
        results = measure(names, list(SIZES), **chosen)
    except (Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print(f"{results.run.describe()}\n\n{lines(results)}")
    write_comparison(arguments.output, results, picture)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
