"""Experiment 8: `auto` against cuBLAS over a suite of shapes, row-major.

python benchmarks/auto.py [-o benchmarks/results/auto.json] [--seconds 0.3]

The suite is in shapes.json: squares, skinny, deep and flat products. Writes JSON with every sample
and prints a line for each shape, then the geometric mean and the worst. About two minutes on an
H100.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from sgemm_kernels import DeviceError, Error, _core, compare
from sgemm_kernels.measuring import find_device

SUITE = Path(__file__).with_name("shapes.json")
OUTPUT = Path(__file__).parent / "results" / "auto.json"


def main() -> int:
    """Measures, writes and prints; returns 1 if a result was wrong, 2 if it cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", dest="output", metavar="JSON", type=Path, default=OUTPUT)
    parser.add_argument("--seconds", type=float, default=0.3, help="most time to sample, per shape")
    options = parser.parse_args()
    suite: dict[str, list[tuple[int, int, int]]] = json.loads(SUITE.read_text(encoding="utf-8"))
    shapes = [tuple(shape) for kind in suite.values() for shape in kind]
    try:
        gpu = find_device(None)
        if gpu.kind == "cpu":
            raise DeviceError(f"the suite is measured on a GPU: {_core._cuda_problem()}")
        names = ["cublas", "auto"]
        results = compare(names, shapes, device=gpu.name, seconds=options.seconds)
    except (Error, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    results.to_json(options.output)
    rows = [row for row in results.rows if row.variant == "auto"]
    ratios = {row.shape: row.vs_cublas for row in rows if row.vs_cublas is not None}
    for (M, N, K), ratio in ratios.items():
        print(f"{M:>6} x {N:>6} x {K:>7}  {ratio:.2f}")
    worst = min(ratios, key=lambda shape: ratios[shape])
    mean = statistics.geometric_mean(ratios.values())
    print(f"\ngeometric mean {mean:.3f}, worst {ratios[worst]:.2f} at {worst}")
    return 0 if all(row.error.right for row in results.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
