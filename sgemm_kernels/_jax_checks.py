"""The checks of the arguments of `sgemm_kernels.jax`."""

import functools
from collections.abc import Sequence
from typing import Any, TypeAlias

from jax import numpy as jnp

from . import _core, _cublas
from ._catalog import variants

_Shape: TypeAlias = Sequence[int]

_DTYPES = (jnp.float32, jnp.float16, jnp.bfloat16)


def check_variant(variant: object) -> None:
    if not isinstance(variant, str):
        raise TypeError(
            f"variant must be a str, not {type(variant).__name__}: pass a name, such as 'auto'"
        )
    if variant not in _names():
        raise ValueError(f"there is no variant {variant!r}: the variants are {', '.join(_names())}")
    if variant == _core._REFERENCE:
        _cublas.load()


@functools.cache
def _names() -> list[str]:
    return [each.name for each in variants()]


def check_operand(name: str, operand: Any) -> None:
    dtype, shape = getattr(operand, "dtype", None), getattr(operand, "shape", None)
    if dtype is None or shape is None:
        raise TypeError(
            f"{name} must be an array, not {type(operand).__name__}: pass "
            f"jax.numpy.asarray({name}, jax.numpy.float32)"
        )
    if type(getattr(operand, "aval", None)).__name__ == "AbstractRef":
        raise TypeError(f"{name} is a jax.Ref, whose value can change: pass {name}[...]")
    if not isinstance(dtype, jnp.dtype):
        raise TypeError(
            f"{name} has dtype {dtype}, which is none of NumPy's: pass "
            f"jax.numpy.asarray({name}, jax.numpy.float32)"
        )
    if dtype not in _DTYPES:
        raise TypeError(
            f"{name} has dtype {dtype}, but a product takes only float32, float16 and bfloat16, "
            f"and never converts silently: pass {name}{_conversion(dtype)}"
        )
    if not shape:
        raise ValueError(
            f"{name} has no dimensions, but a product needs at least 1: pass {name}.reshape(1, 1) "
            f"for a matrix, or multiply by {name} with *"
        )


def _conversion(dtype: Any) -> str:
    """What makes an operand of an array."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return ".real.astype('float32')"
    # bfloat16 has all values of an 8-bit float.
    short = jnp.issubdtype(dtype, jnp.floating) and jnp.dtype(dtype).itemsize == 1
    return ".astype('bfloat16')" if short else ".astype('float32')"


def check_matrices(name: str, shape: _Shape) -> None:
    """Raises ValueError if an array has fewer than two dimensions."""
    if len(shape) < 2:
        raise ValueError(
            f"{name} is {tuple(shape)}, but gram() takes matrices of shape (..., M, K): pass "
            f"{name}.reshape(1, -1) for a row, or {name}.reshape(-1, 1) for a column"
        )


def check_shapes(a: _Shape, b: _Shape) -> None:
    """Raises ValueError if K differs or the batches cannot be broadcast."""
    depth_axis = max(len(b) - 2, 0)
    if a[-1] != b[depth_axis]:
        words = [
            "elements" if len(shape) == 1 else word for shape, word in ((a, "columns"), (b, "rows"))
        ]
        raise ValueError(
            f"A is {a} and B is {b}: A's {a[-1]} {words[0]} must match B's {b[depth_axis]} "
            f"{words[1]}: {_remedy(a, b)}"
        )
    try:
        jnp.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise ValueError(
            f"A is {a} and B is {b}: the dimensions before the last two cannot be broadcast "
            "together: pass arrays in which each of them is equal or 1"
        ) from None


def _remedy(a: _Shape, b: _Shape) -> str:
    """What to pass in place of operands whose K differs."""
    if 1 in (len(a), len(b)):
        return "pass arrays with the same K"
    if a[-1] == b[-1]:
        return "pass B.T" if len(b) == 2 else "pass B.mT"
    if a[-2] == b[-2]:
        return "pass A.T" if len(a) == 2 else "pass A.mT"
    return "pass arrays with A.shape[-1] == B.shape[-2]"
