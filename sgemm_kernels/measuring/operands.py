"""The operands of a measurement: values, layout, and number of sets."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .measurement import NORMAL, UNIFORM
from .shapes import Shape

MOST_SETS = 1000
"""Maximum number of operand sets for cold times. Copying more to a GPU takes longer than sampling.
If this many sets of tiny operands fit in twice the L2 cache, their times are not cold."""

Float32 = NDArray[np.float32]

Data = tuple[str, Callable[[np.random.Generator, Shape], tuple[Float32, Float32]]]
"""A description for the protocol, and f(rng, shape), which makes A and B."""


def of_shape(made: Any, shape: Shape) -> tuple[Float32, Float32]:
    """The operands that `data` made. Raises ValueError if their shape or dtype is wrong."""
    A, B = made
    for name, matrix, wanted in zip("AB", (A, B), _shapes_of_operands(shape), strict=True):
        found = getattr(matrix, "shape", None), str(getattr(matrix, "dtype", type(matrix).__name__))
        if found != (wanted, "float32"):
            raise ValueError(
                f"data made {name} with shape {found[0]} and dtype {found[1]}, but shape "
                f"{wanted} and dtype float32 are needed"
            )
    return A, B


def _shapes_of_operands(shape: Shape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of A and B."""
    *batch, M, N, K = shape
    return (*batch, M, K), (*batch, K, N)


def read_only(matrix: Float32) -> Float32:
    """A read-only view, so that no competitor can change the operands of the other variants."""
    view = matrix.view()
    view.flags.writeable = False
    return view


def operand_sets(shape: Shape, l2_bytes: int) -> int:
    """The smallest number of float32 operand sets (including results) that together exceed twice
    the L2 cache, but at most MOST_SETS."""
    *batch, M, N, K = shape
    elements = math.prod(batch) * (M * K + K * N + M * N)
    return min(1 + 2 * l2_bytes // (4 * elements), MOST_SETS)


def laid_out(operands: tuple[Float32, Float32], layout: str) -> tuple[Float32, Float32]:
    """The same values in row-major or column-major order, by the layout. The matrices of a batch
    follow one another."""
    A, B = (
        np.ascontiguousarray(values.mT).mT if letter == "T" else np.ascontiguousarray(values)
        for values, letter in zip(operands, layout, strict=True)
    )
    return A, B


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    """Random float32 values in [-1, 1), made without a float64 copy."""
    values = rng.random(shape, np.float32)
    values *= 2
    values -= 1
    return values


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Float32:
    return rng.standard_normal(shape, np.float32)


def _pair(
    of: Callable[..., Float32],
) -> Callable[[np.random.Generator, Shape], tuple[Float32, Float32]]:
    """Makes a function that returns A and B from one that returns a single operand."""

    def pair(rng: np.random.Generator, shape: Shape) -> tuple[Float32, Float32]:
        of_A, of_B = _shapes_of_operands(shape)
        return of(rng, of_A), of(rng, of_B)

    return pair


DATA: dict[str, Data] = {
    "uniform": (UNIFORM, _pair(_uniform)),
    "normal": (NORMAL, _pair(_normal)),
}
"""Operands by their name for ``measure``."""
