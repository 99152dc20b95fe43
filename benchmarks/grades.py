"""Experiment 25: a grade of the accuracy of each way to multiply, and its worst error.

``python benchmarks/grades.py`` applies the tests of Demmel et al. (`_grades.py`) to every variant
and to the other libraries that are installed, at 16 to 1024, and then multiplies a million pairs of
operands that are chosen to be hard: 16 x 1024 by 1024 x 16, with seeds. Every result is compared
with float64. It measures no times. `auto` and `simt` compute the million products also as batches.

``--quick`` asks less, for a look or without a GPU.
"""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import _cublas_product
import _grades
import numpy as np
from _libraries import JAX, left_out, libraries
from _results import facts, output_argument, parsed, write

from sgemm_kernels import Device, run
from sgemm_kernels._table import table
from sgemm_kernels.cli.grade_tables import of_grades
from sgemm_kernels.measuring.devices import find_device, runnable
from sgemm_kernels.measuring.measurement import TF32
from sgemm_kernels.measuring.progress import progress

SEED = 20260101
BATCHED = ("auto", "simt")


@dataclass(frozen=True)
class Extent:
    """How much is asked."""

    sizes: tuple[int, ...]
    hard_size: int
    seeds: int
    """Of each kind of hard operands."""

    @property
    def products(self) -> int:
        """The number of hard products."""
        return self.seeds * len(_grades.HARD) * (self.hard_size // _grades.TILE) ** 2


WHOLE = Extent((16, 32, 64, 128, 256, 512, 1024), 1024, 25)
QUICK = Extent((16, 256), 256, 1)
ON_CPU = Extent((16, 32), 32, 1)
"""What --quick asks of the CPU device."""

Multiply = Callable[[Any, Any], Any]
"""The product of two arrays of the device's array module."""


# ------------------------------------------------------------------ ways


def arrays_of(device: Device) -> Any:
    """The module with the device's arrays."""
    return np if device.kind == "cpu" else importlib.import_module("cupy")


def _into(xp: Any, product: Callable[..., object]) -> Multiply:
    """A product that writes to its third argument."""

    def multiply(A: Any, B: Any) -> Any:
        out = xp.full((*A.shape[:-1], B.shape[-1]), xp.nan, xp.float32)
        product(A, B, out)
        return out

    return multiply


def _variant(name: str, device: Device) -> Callable[..., object]:
    where: Any = {"device": "cpu"} if device.kind == "cpu" else {}
    return lambda A, B, out: run(name, A, B, out=out, **where)


def _by_jax(xp: Any) -> Iterator[tuple[str, Multiply]]:
    try:
        jax = importlib.import_module("_jax_product")
        jax.needs_gpu()
    except (ImportError, RuntimeError) as error:
        left_out("JAX", str(error).strip().partition("\n")[0])
        return
    for name, algorithm in JAX.items():

        def multiply(A: Any, B: Any, algorithm: str | None = algorithm) -> Any:
            return xp.asarray(jax.once(algorithm, xp.asnumpy(A), xp.asnumpy(B)))

        yield name, multiply


def ways(device: Device, xp: Any) -> Iterator[tuple[str, Multiply]]:
    """All that can multiply here, with names."""
    for name in runnable(device):
        yield name, _into(xp, _variant(name, device))
    if device.kind == "cpu":
        yield "numpy", lambda A, B: A @ B
        return
    for found in libraries(device.name, ["NN"]):
        if found == TF32:
            yield TF32, _into(xp, functools.partial(_cublas_product.product, mode="TF32"))
        elif isinstance(found, tuple):
            yield found[0], _into(xp, found[1])
    yield from _by_jax(xp)


# ------------------------------------------------------------------ tests


def results(asked: dict[str, Multiply], A: Any, B: Any) -> Iterator[tuple[str, Any]]:
    """The product by each way. One that fails is left out from now on, with a message."""
    for name, multiply in list(asked.items()):
        try:
            yield name, multiply(A, B)
        except Exception as error:  # any error of a library
            left_out(name, str(error).strip().partition("\n")[0])
            del asked[name]


def graded(xp: Any, asked: dict[str, Multiply], extent: Extent) -> dict[str, dict[str, Any]]:
    """For each way its grade, and the other findings of the tests."""
    found: dict[str, list[tuple[dict[str, float], str, int]]] = {name: [] for name in asked}
    errors: dict[str, list[float]] = {name: [] for name in asked}
    zeros, small = dict.fromkeys(asked, True), dict.fromkeys(asked, True)
    for n in extent.sizes:
        for test, make in _grades.TESTS.items():
            A, B = map(xp.asarray, make(np.random.default_rng((SEED, n)), n))
            value, terms = _grades.exact(xp, A, B)
            for name, C in results(asked, A, B):
                error = xp.abs(_grades.widened(xp, C) - value)
                found[name].append((_grades.shares(xp, A, B, error, terms), test, n))
                if test == _grades.UNIFORM:
                    errors[name].append(_grades.units(xp, error, terms))
                if test == _grades.ZEROS:
                    zeros[name] &= _grades.zeros_are_exact(C, terms)
                if test == _grades.GRADED:
                    small[name] &= _grades.keeps_small_elements(xp, error, value)
    rows = {}
    for name in asked:
        shares = [each for each, _, _ in found[name]]
        _, test, n = max(found[name], key=lambda each: each[0]["A"])
        rows[name] = {
            "grade": _grades.grade(shares),
            **{f"share_{of}": max(each[of] for each in shares) for of in _grades.GRADES},
            "at": test,
            "n": n,
            "sizes": list(extent.sizes),
            "errors": errors[name],
            "slope": _grades.slope(extent.sizes, errors[name]),
            "zeros_exact": zeros[name],
            "small_kept": small[name],
        }
    return rows


def worst(xp: Any, asked: dict[str, Multiply], extent: Extent) -> dict[str, dict[str, Any]]:
    """For each way the worst error of the hard products, in units of the bound, and the kind and
    the seed that cause it."""
    largest = dict.fromkeys(asked, (-1.0, "", 0))
    n = extent.hard_size
    with progress(len(_grades.HARD)) as advance:
        for index, (kind, make) in enumerate(_grades.HARD.items()):
            for seed in range(extent.seeds):
                A, B = map(xp.asarray, make(np.random.default_rng((SEED, index, seed)), n))
                value, terms = _grades.exact(xp, A, B)
                for name, C in results(asked, A, B):
                    share = _grades.share_of_bound(xp, C, value, terms, n)
                    largest[name] = max(largest[name], (share, kind, seed))
            advance(kind)
    return {
        name: {
            "worst_share": largest[name][0],
            "worst_at": largest[name][1],
            "worst_seed": largest[name][2],
            "products": extent.products,
        }
        for name in asked
    }


def told(what: str, begin: float) -> None:
    print(f"{what}: done after {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)


def in_batches(xp: Any, multiply: Multiply) -> Multiply:
    """The same product by a batch of small ones."""
    return lambda A, B: _grades.together(multiply(*_grades.apart(xp, A, B)))


def measured(device: Device, extent: Extent) -> list[dict[str, Any]]:
    """A row for each way. Batches compute only the hard products."""
    xp = arrays_of(device)
    begin = time.monotonic()
    asked = dict(ways(device, xp))
    told("libraries", begin)
    tests = graded(xp, asked, extent)
    told("tests", begin)
    batches = {f"{name}, batches": in_batches(xp, asked[name]) for name in BATCHED if name in asked}
    return [
        {"way": name, **tests.get(name, {}), **row}
        for name, row in worst(xp, asked | batches, extent).items()
    ]


def main() -> None:
    parser = output_argument((__doc__ or "").splitlines()[0], "grades")
    parser.add_argument("--device", help="cpu, cuda or cuda:N; by default the first usable GPU")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and hard products")
    options = parsed(parser, lambda path: parser.error(f"{path} has no picture"))
    device = find_device(options.device)
    extent = WHOLE
    if options.quick:
        extent = ON_CPU if device.kind == "cpu" else QUICK
    rows = measured(device, extent)
    print(f"{device.model}\n\n{table(*of_grades(rows))}")
    head = {
        **facts(device),
        "seed": SEED,
        "protocol": "every element against float64; operands by seed: benchmarks/_grades.py",
    }
    write(options.output, "grades", head, rows)


if __name__ == "__main__":
    main()
