"""The interface of a custom kernel, for modules that ``custom.kernel`` imports."""

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar

from ._catalog import Variant

_P = ParamSpec("_P")
_R = TypeVar("_R")


class ChildProcess(Protocol):
    """The process that a kernel runs in until ``sanitize`` has passed."""

    def call(self, function: Callable[_P, _R], *args: _P.args, **keywords: _P.kwargs) -> _R:
        """Calls the function there, and returns what it returns."""


class CustomKernel(Protocol):
    """A kernel that ``sgemm_kernels.kernel`` made. ``custom.kernel.Kernel`` implements it."""

    @property
    def name(self) -> str:
        """What tables and errors call it."""

    @property
    def file(self) -> str:
        """The name of its file."""

    @property
    def source(self) -> str:
        """The text of its file."""

    @property
    def variant(self) -> Variant:
        """Its entry, as the catalog has one of each rung."""

    @property
    def child(self) -> ChildProcess:
        """Its process."""

    @property
    def in_this_process(self) -> bool:
        """Whether it may be launched in this process."""

    def launchable(self, device: str | None) -> Any:
        """What the extension launches on that device."""

    def countable(self) -> Any:
        """What the extension runs to count accesses."""

    def lines_of(self, file: str) -> list[str]:
        """The lines of its file, or of one that it includes."""

    def __sgemm_run__(self, A: Any, B: Any, **keywords: Any) -> Any:
        """``run`` of this kernel."""
