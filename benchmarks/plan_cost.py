"""Experiment 10: the time to choose a plan that is not cached, on the CPU.

``python benchmarks/plan_cost.py``, or ``make plan-cost``, compiles plan_cost.c with
csrc/gemm/plan/plan.c as the package is compiled, and times the choice for each shape and layout of
the suite of `auto.py`, and for the developing suite of `random_shapes.py`. A shape's time is the
best of several repetitions: the others were disturbed. It needs no GPU.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from _results import output_argument, write
from _shapes import suite as drawn
from auto import LAYOUTS, suite

from sgemm_kernels import build_info, devices
from sgemm_kernels._table import table
from sgemm_kernels.measuring.shapes import Case, size_text

SOURCE = Path(__file__).with_suffix(".c")
PLAN = [
    Path(__file__).parent.parent / "csrc/gemm/plan" / name
    for name in ("plan.c", "plan_cache.c", "plan_constants.c", "small_batch_plan.c")
]
FLAGS = ["-std=c11", "-O2", "-fno-math-errno", "-Wall", "-Wextra", "-Werror"]


def cases() -> dict[str, list[Case]]:
    """Shapes and layouts, by kind."""
    chosen = {
        kind: [(shape, layout) for shape in shapes for layout in LAYOUTS]
        for kind, shapes in suite().items()
    }
    return chosen | {"random": drawn("developing")}


def measure() -> list[dict[str, Any]]:
    """A row for each shape and layout. Raises SystemExit with the compiler's message."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "plan_cost"
        compiler = os.environ.get("CC", "cc").split()
        compiled = subprocess.run(
            [*compiler, *FLAGS, SOURCE, *PLAN, "-lm", "-o", program],
            capture_output=True,
            text=True,
            check=False,
        )
        if compiled.returncode != 0:
            raise SystemExit(compiled.stderr)
        words = [
            str(word)
            for kind in cases().values()
            for shape, layout in kind
            for word in (*shape, layout)
        ]
        timed = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = [json.loads(line) for line in timed.stdout.splitlines()]
    return [row | {"best_ns": min(row["nanoseconds"])} for row in rows]


def lines(rows: list[dict[str, Any]]) -> str:
    """The median and the worst of each kind of shapes, and of all."""
    best = {((row["M"], row["N"], row["K"]), row["layout"]): row["best_ns"] for row in rows}
    body = []
    for kind, own in (cases() | {"all": list(best)}).items():
        worst = max(own, key=lambda case: best[case])
        middle = statistics.median(best[case] for case in own)
        body.append((kind, f"{middle:.0f}", f"{best[worst]:.0f}", size_text(*worst)))
    return table(("nanoseconds a call", "median", "worst", "at"), body)


def main() -> None:
    arguments = output_argument(__doc__.splitlines()[0], "plan_cost").parse_args()
    rows = measure()
    (cpu,) = (device for device in devices() if device.kind == "cpu")
    head = {
        "device": cpu.model,
        "csrc_hash": build_info().csrc_hash,
        "protocol": f"the best of {len(rows[0]['nanoseconds'])} repetitions of many calls each, "
        f"by the host's clock; cc {' '.join(FLAGS[:2])}",
    }
    print(f"{cpu.model}\n\n{lines(rows)}")
    write(arguments.output, "plan_cost", head, rows)


if __name__ == "__main__":
    main()
