"""The operands of a measurement: values, layout, and how many sets exceed the L2 cache."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .measurement import NORMAL, UNIFORM
from .shapes import Shape

MOST_SETS = 1000
"""Sets of operands for cold times: more take longer to copy to a GPU than to sample. Operands so
small that these do not exceed twice the L2 come from that cache."""

Float32 = NDArray[np.float32]

Data = tuple[str, Callable[[np.random.Generator, Shape], tuple[Float32, Float32]]]
"""What operands are: in words, for the protocol, and f(rng, (M, N, K)), which makes A and B."""


def of_shape(made: Any, shape: Shape) -> tuple[Float32, Float32]:
    """What `data` made; raises ValueError where it is not what was asked for."""
    M, N, K = shape
    A, B = made
    for name, matrix, wanted in (("A", A, (M, K)), ("B", B, (K, N))):
        found = getattr(matrix, "shape", None), str(getattr(matrix, "dtype", type(matrix).__name__))
        if found != (wanted, "float32"):
            raise ValueError(
                f"data made {name} of shape {found[0]} and type {found[1]}, where one of shape "
                f"{wanted} and type float32 was asked for"
            )
    return A, B


def read_only(matrix: Float32) -> Float32:
    """So that no competitor changes what others multiply."""
    view = matrix.view()
    view.flags.writeable = False
    return view


def operand_sets(shape: Shape, l2_bytes: int) -> int:
    """How many sets of operands and result, float32, together exceed twice the L2 cache; MOST_SETS
    at most."""
    M, N, K = shape
    return min(1 + 2 * l2_bytes // (4 * (M * K + K * N + M * N)), MOST_SETS)


def laid_out(operands: tuple[Float32, Float32], layout: str) -> tuple[Float32, Float32]:
    """The same values by rows or by columns, as the layout says."""
    A, B = (
        np.asarray(values, order="F" if letter == "T" else "C")
        for values, letter in zip(operands, layout, strict=True)
    )
    return A, B


def _uniform(rng: np.random.Generator, *shape: int) -> Float32:
    """Random float32 values in [-1, 1), made without a float64 copy."""
    values = rng.random(shape, np.float32)
    values *= 2
    values -= 1
    return values


def _normal(rng: np.random.Generator, *shape: int) -> Float32:
    return rng.standard_normal(shape, np.float32)


def _pair(
    of: Callable[..., Float32],
) -> Callable[[np.random.Generator, Shape], tuple[Float32, Float32]]:
    """Makes A and B of what makes one matrix."""
    return lambda rng, shape: (of(rng, shape[0], shape[2]), of(rng, shape[2], shape[1]))


DATA: dict[str, Data] = {
    "uniform": (UNIFORM, _pair(_uniform)),
    "normal": (NORMAL, _pair(_normal)),
}
"""By the name that ``measure`` takes."""
