"""Custom kernels and competitors, which `measure` accepts in addition to variants."""

from collections.abc import Callable, Iterable
from typing import Any

from .._catalog import variants
from .._custom_kernel import CustomKernel
from .measurement import TF32

Competitor = Callable[[Any, Any, Any], object]
"""f(A, B, out) writes the product A @ B to out."""

Measured = str | CustomKernel | tuple[str, Competitor]
"""A variant's name, a custom kernel, or a competitor with its name."""


class OnGPU:
    """A matrix on a GPU that other libraries import without a copy."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def launch_of(competitor: Competitor) -> Callable[..., object]:
    """The competitor as a function that the extension calls."""
    return lambda *interfaces: competitor(*map(OnGPU, interfaces))


def contenders_of(names: Any) -> dict[str, Any]:
    """Maps each name to its competitor's callable, its custom kernel, or None for a variant."""
    pair = isinstance(names, tuple) and len(names) == 2 and callable(names[1])
    one = pair or isinstance(names, str) or not isinstance(names, Iterable)
    several: Any = [names] if one else names
    known = {*(variant.name for variant in variants()), TF32}
    found: dict[str, Any] = {}
    for entry in several:
        match entry:
            case str():
                found.setdefault(entry, None)
            case (str() as name, f) if callable(f):
                if name in known or name in found:
                    raise ValueError(f"the name {name!r} is already in use: choose another")
                found[name] = f
            case _ if hasattr(entry, "__sgemm_run__"):
                if found.setdefault(entry.name, entry) is not entry:
                    raise ValueError(
                        f"two kernels are called {entry.name!r}: rename one with kernel(..., name=)"
                    )
            case _:
                raise TypeError(
                    f"cannot measure {entry!r}: pass a variant's name, a custom kernel, or a pair "
                    "(name, f) for a competitor"
                )
    return found
