"""The interface of a custom kernel, for modules that cannot import ``custom.kernel``."""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from ._catalog import Variant

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChildProcess(Protocol):
    """The process that runs a kernel until it passes ``sanitize``."""

    def call(self, function: Callable[_P, _R], *args: _P.args, **keywords: _P.kwargs) -> _R:
        """Calls the function in that process and returns its result."""


class CustomKernel(Protocol):
    """A kernel that ``sgemm_kernels.kernel`` made. ``custom.kernel.Kernel`` implements it."""

    @property
    def name(self) -> str:
        """The name in tables and errors."""

    @property
    def file(self) -> str:
        """The name of its file."""

    @property
    def source(self) -> str:
        """The text of its file."""

    @property
    def variant(self) -> Variant:
        """Its catalog entry, like that of a rung."""

    @property
    def child(self) -> ChildProcess:
        """The process that runs it."""

    @property
    def in_this_process(self) -> bool:
        """True if it may run in this process."""

    def launchable(self, device: str | None) -> Any:
        """The object that the extension launches on this device."""

    def countable(self) -> Any:
        """The object that the extension runs to count accesses."""

    def lines_of(self, file: str) -> list[str]:
        """The lines of its file or of an included file."""

    def __sgemm_run__(self, A: Any, B: Any, **keywords: Any) -> Any:
        """Implements ``run`` for this kernel."""
