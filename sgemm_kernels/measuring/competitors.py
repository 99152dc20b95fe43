"""Custom kernels and competitors, which `measure` accepts as well as names of variants."""

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
    """A matrix on a GPU, which other libraries take as it lies."""

    __slots__ = ("__cuda_array_interface__",)

    def __init__(self, interface: dict[str, Any]) -> None:
        self.__cuda_array_interface__ = interface


def launch_of(competitor: Competitor) -> Callable[..., object]:
    """The competitor as the extension calls it."""
    return lambda *interfaces: competitor(*map(OnGPU, interfaces))


def contenders_of(names: Any) -> dict[str, Any]:
    """The names, each with its callable if it is a competitor's, or with the kernel if it is one of
    a user's own."""
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
                    raise ValueError(f"a competitor needs a name of its own, not {name!r}")
                found[name] = f
            case _ if hasattr(entry, "__sgemm_run__"):
                if found.setdefault(entry.name, entry) is not entry:
                    raise ValueError(
                        f"two are called {entry.name!r}: pass kernel(..., name=) another name"
                    )
            case _:
                raise TypeError(
                    "what is measured is the name of a variant, a kernel of your own, or a pair "
                    f"(name, f) of a competitor, not {entry!r}"
                )
    return found
