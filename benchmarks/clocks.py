"""Experiment 17: the cycles of a product and its clock, depending on the work before it.

``python benchmarks/clocks.py`` computes products of 16384 cubed with the rungs that are fast there,
alternating as in the ladder, and each after a pause. Before and after a product a short kernel
reads the cycle counter and the time on each multiprocessor, so both belong to this product alone.
The cycles show the work of a rung; the clock shows the power limit. It writes JSON with every
sample, and prints the medians and their ranges. It draws no picture.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

from _results import facts, measuring, output_argument, write

from sgemm_kernels import run, variants
from sgemm_kernels._table import table
from sgemm_kernels.cli.experiment_tables import CLOCKS
from sgemm_kernels.measuring.devices import find_gpu

SIZE = 16384
ROUNDS = 4
PAUSE_S = 0.5
NAMES = ("prefetch", "warptile", "async", "raster", "splitk", "streamk", "tma", "mma", "wgmma",
         "waves", "simt", "auto", "cublas")  # fmt: skip
MOST_MULTIPROCESSORS = 1024
READ = r"""
extern "C" __global__ void read(long long (*of_multiprocessor)[2])
{
    unsigned number;
    long long cycles, nanoseconds;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(number));
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    of_multiprocessor[number][0] = cycles;
    of_multiprocessor[number][1] = nanoseconds;
}
"""


class Clocked:
    """A square product on a GPU, whose operands are uniform in [-1, 1]."""

    def __init__(self, n: int, device: int) -> None:
        import cupy

        cupy.cuda.Device(device).use()
        self.cupy = cupy
        self.A, self.B = (cupy.random.random((n, n), cupy.float32) * 2 - 1 for _ in "AB")
        self.C = cupy.empty((n, n), cupy.float32)
        self.read = cupy.RawKernel(READ, "read")
        self.blocks = 8 * cupy.cuda.Device(device).attributes["MultiProcessorCount"]

    def sample(self, name: str) -> tuple[float, float]:
        """The cycles and the seconds of one product: the medians over the multiprocessors."""
        marks = self.cupy.zeros((2, MOST_MULTIPROCESSORS, 2), self.cupy.int64)
        self.read((self.blocks,), (1,), (marks[0],))
        run(name, self.A, self.B, out=self.C)
        self.read((self.blocks,), (1,), (marks[1],))
        before, after = marks.get()
        seen = (before[:, 1] > 0) & (after[:, 1] > 0)
        cycles, nanoseconds = ((after - before)[seen]).T
        return statistics.median(map(float, cycles)), statistics.median(
            map(float, nanoseconds)
        ) / 1e9


def samples(product: Clocked, names: list[str], rounds: int) -> Iterator[tuple[str, str, Any]]:
    """For each product: alternating or after a pause, the name, and its cycles and seconds."""
    for name in names:
        product.sample(name)  # the first product includes preparations
    for order, pause in (("round-robin", 0.0), ("after a pause", PAUSE_S)):
        for _ in range(rounds):
            for name in names:
                time.sleep(pause)
                yield order, name, product.sample(name)


def main() -> int:
    """Measures, writes and prints. Returns 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "clocks")
    parser.add_argument("--size", type=int, default=SIZE, help="default: %(default)s")
    arguments = parser.parse_args()
    with measuring(parser):
        gpu = find_gpu("clocks are read")
        usable = {variant.name for variant in variants() if variant.unavailable is None}
        names = [name for name in NAMES if name in usable]
        found: dict[tuple[str, str], list[Any]] = {}
        product = Clocked(arguments.size, int(gpu.name.partition(":")[2]))
        for order, name, sample in samples(product, names, ROUNDS):
            found.setdefault((name, order), []).append(sample)
    rows: list[dict[str, Any]] = []
    for (name, order), own in found.items():
        cycles, seconds = map(list, zip(*own, strict=True))
        rows.append({"variant": name, "n": arguments.size, "order": order} |
                    {"cycles": cycles, "samples_s": seconds})  # fmt: skip
    head = {
        **facts(gpu),
        "protocol": f"the GPU's counters, uniform [-1, 1]; a pause is {PAUSE_S} s",
    }
    print(table(("", "", *CLOCKS),
                [(row["variant"], row["order"], *(tell(row) for tell in CLOCKS.values()))
                 for row in rows]))  # fmt: skip
    write(arguments.output, "clocks", head, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
