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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import _cublas_product
import _grades
import numpy as np
from _libraries import JAX, left_out, libraries
from _results import output_argument, parsed, write

from sgemm_kernels import Device, build_info, run
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


def graded(xp: Any, multiply: Multiply, extent: Extent) -> dict[str, Any]:
    """The grade of a way, and what the tests found."""
    errors: list[float] = []
    zeros, small = True, True
    found: list[tuple[str, int, dict[str, float]]] = []
    for n in extent.sizes:
        for name, make in _grades.TESTS.items():
            A, B = map(xp.asarray, make(np.random.default_rng((SEED, n)), n))
            value, terms = _grades.exact(xp, A, B)
            C = multiply(A, B)
            error = xp.abs(C.astype(xp.float64) - value)
            found.append((name, n, _grades.shares(xp, A, B, error, terms)))
            if name == _grades.UNIFORM:
                errors.append(_grades.units(xp, error, terms))
            if name == _grades.ZEROS:
                zeros = zeros and _grades.zeros_are_exact(C, terms)
            if name == _grades.GRADED:
                small = small and _grades.keeps_small_elements(xp, error, value)
    of_a = max(found, key=lambda each: each[2]["A"])
    return {
        "grade": _grades.grade([each for _, _, each in found]),
        **{f"share_{name}": max(each[name] for _, _, each in found) for name in _grades.GRADES},
        "at": of_a[0],
        "n": of_a[1],
        "sizes": list(extent.sizes),
        "errors": errors,
        "slope": _grades.slope(extent.sizes, errors),
        "zeros_exact": zeros,
        "small_kept": small,
    }


def worst(xp: Any, multiply: Multiply, extent: Extent) -> dict[str, Any]:
    """The worst error of the hard products, in units of the bound, and the seed that makes it."""
    least: tuple[float, str, int] = (-1.0, "", 0)
    n = extent.hard_size
    for kind, (name, make) in enumerate(_grades.HARD.items()):
        for seed in range(extent.seeds):
            A, B = map(xp.asarray, make(np.random.default_rng((SEED, kind, seed)), n))
            value, terms = _grades.exact(xp, A, B)
            share = _grades.share_of_bound(xp, multiply(A, B), value, terms, n)
            least = max(least, (share, name, seed))
    share, name, seed = least
    return {
        "worst_share": share,
        "worst_at": name,
        "worst_seed": seed,
        "products": extent.products,
    }


def in_batches(xp: Any, multiply: Multiply) -> Multiply:
    """The same product by a batch of small ones."""
    return lambda A, B: _grades.together(multiply(*_grades.apart(xp, A, B)))


def measured(device: Device, extent: Extent) -> list[dict[str, Any]]:
    """A row for each way. One that fails is left out, with a message."""
    xp = arrays_of(device)
    found = dict(ways(device, xp))
    asked: list[tuple[str, Multiply]] = [*found.items()]
    asked += [(f"{name}, batches", in_batches(xp, found[name])) for name in BATCHED]
    rows = []
    with progress(len(asked)) as advance:
        for name, multiply in asked:
            try:
                row = {"way": name, **({} if name not in found else graded(xp, multiply, extent))}
                rows.append(row | worst(xp, multiply, extent))
            except Exception as error:  # any error of a library
                left_out(name, str(error).strip().partition("\n")[0])
            advance(name)
    return rows


def facts(device: Device) -> dict[str, Any]:
    build = build_info()
    return {
        "device": device.model,
        "driver": device.driver,
        "cuda_toolkit": build.cuda_toolkit,
        "csrc_hash": build.csrc_hash,
        "seed": SEED,
        "protocol": "every element against float64; operands by seed: benchmarks/_grades.py",
    }


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
    write(options.output, "grades", facts(device), rows)


if __name__ == "__main__":
    main()
