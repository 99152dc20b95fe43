"""Experiment 1: each rung against cuBLAS and against the rung before, on this machine's GPU.

python benchmarks/ladder.py [-o JSON] [--sizes 1024 4096] [--seconds 5]
python benchmarks/ladder.py [-o JSON] --draw

Writes the JSON and, beside it, pictures of speed and of speed-up. With --draw it measures nothing
and draws the existing file again. Two references run beside the ladder: cuBLAS in
TF32, and cuBLAS in its default mode (`_cublas_product.py`), which is in tables only.

All sizes take about two minutes on an H100. The naive rung, which takes 18 s for a product at
16384, is left out there.
"""

import dataclasses
import sys
from functools import partial
from pathlib import Path

import _cublas_product
from _results import draw, measuring, output_argument, parsed, write_results

from sgemm_kernels import Results, measure
from sgemm_kernels.measuring.competitors import Measured
from sgemm_kernels.measuring.devices import find_gpu, runnable
from sgemm_kernels.measuring.plotting import plot

SIZES = (128, 256, 512, 1024, 2048, 4096, 8192, (16384, 4096, 4096))
LARGEST = 16384
PEAKS = Path(__file__).with_name("peaks.cu")


def pictures(output: Path, results: Results) -> None:
    """Those of speed and of speed-up, beside the file. cuBLAS's default mode would hide the line of
    its pedantic one."""
    rows = tuple(row for row in results.rows if row.variant != _cublas_product.NAME)
    results = dataclasses.replace(results, rows=rows)
    for kind in ("speed", "speedup"):
        draw(output, partial(plot, kind=kind), results, kind=kind)


def main() -> int:
    """Measures, writes and prints. Returns 1 if a result was wrong, 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "ladder")
    parser.add_argument(
        "--sizes", type=int, nargs="+", help="N of square matrices alone, of all rungs"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="maximum sampling time per size, after three samples of each",
    )
    options = parsed(parser, lambda path: pictures(path, Results.from_json(path)))
    output: Path = options.output
    with measuring(parser):
        gpu = find_gpu("the ladder is measured")
        names: list[Measured] = [*runnable(gpu, tf32=True)]
        if "cublas" in names:
            names.append((_cublas_product.NAME, _cublas_product.product))
        chosen = {"device": gpu.name, "seconds": options.seconds, "ffma_probe": PEAKS}
        results = measure(names, options.sizes or SIZES, **chosen)
        if not options.sizes:
            rest = measure([name for name in names if name != "naive"], [LARGEST], **chosen)
            rows, readings = results.rows + rest.rows, results.readings + rest.readings
            results = dataclasses.replace(results, rows=rows, readings=readings)
    write_results(output, results)
    pictures(output, results)
    print(results)
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
