"""Products of PyTorch's tensors with this package's kernels. Needs PyTorch 2.10 or newer.

>>> import sgemm_kernels.torch, torch
>>> a, b = torch.ones(3, 2), torch.ones(2, 4)
>>> torch.ops.sgemm_kernels.mm(a, b).sum()
tensor(24.)
>>> with sgemm_kernels.torch.enable():  # torch.mm, nn.Linear, einsum, compiled models ...
...     c = a @ b

Importing this module registers the operators ``sgemm_kernels::mm``, ``addmm``, ``bmm`` and
``baddbmm``, each with an ``out`` overload. They have the arguments of ``torch.mm`` and so on, and
the keyword ``variant``, a kernel's name. They multiply float32, float16 and bfloat16 tensors on a
GPU, and CPU tensors on the CPU device, and return float32. They support autograd, ``torch.func``,
``torch.compile``, ``torch.export`` and CUDA graphs.

``gram(input)`` multiplies each matrix by its own transpose, as ``input @ input.mT`` does. With the
variants ``auto`` and ``simt`` it computes half of the results, and is exactly symmetric.

``enable`` makes PyTorch's own float32 products on GPUs use the kernels. ``disable`` restores
PyTorch. ``stats`` counts the calls.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch

from . import _core, _cublas
from . import _torch_gram as _torch_gram  # registers the operator
from . import _torch_operators as _torch_operators  # registers the operators
from ._catalog import variants
from ._torch_grouped import Grouped, Settings

with contextlib.suppress(ImportError):  # DTensor's interface for rules is experimental
    from . import _torch_sharding as _torch_sharding  # registers the rules of DTensor

__all__ = ["disable", "enable", "stats"]

# ------------------------------------------------------------------ the dispatch override

_WITH_SCALARS = ("addmm", "addmm.out", "addmm_", "baddbmm", "baddbmm.out", "baddbmm_")
_WITH_OUT_DTYPE = tuple(
    f"{name}.{overload}"
    for name in ("mm", "bmm", "addmm", "baddbmm")
    for overload in ("dtype", "dtype_out")
    if overload in getattr(torch.ops.aten, name).overloads()
)

_lock = threading.RLock()
_enabled: Settings | None = None
_overrides: torch.library.Library | None = None
_typed_overrides: torch.library.Library | None = None  # of the products with out_dtype


class Enabled:
    """What ``enable`` returns: a context manager that restores the former state."""

    def __init__(self, former: Settings | None) -> None:
        self._former = former

    def __enter__(self) -> Enabled:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._former is None:
            disable()
        else:
            dispatch_override(*self._former)


def enable(variant: str = "auto", min_flops: float = 0.0, *, out_dtype: bool = False) -> Enabled:
    """Make PyTorch's float32 products on GPUs use the kernels of this package.

    The calls of ``aten::mm``, ``addmm``, ``bmm`` and ``baddbmm``, of their ``out`` and in-place
    forms, and of ``torch.nn.functional.grouped_mm`` in this process use the kernels. So do
    ``torch.matmul``, ``nn.Linear``, ``einsum``, backward passes and compiled models, which call
    these. Every other call runs as before: with another dtype or device, an empty or sparse tensor,
    or while TF32 is allowed.

    Parameters
    ----------
    variant : str
        A kernel's name from ``sgemm_kernels.variants()``.
    min_flops : float
        Products with fewer operations, ``2 * M * N * K``, stay with PyTorch. Those of a batch are
        added up.
    out_dtype : bool
        Also take over the products of two float16 or two bfloat16 tensors with
        ``out_dtype=torch.float32``, such as ``torch.mm(x, w, out_dtype=torch.float32)``. Their
        results are then as exact as those of float32 tensors with the same values. PyTorch computes
        no gradients of them; ``torch.ops.sgemm_kernels.mm`` does.

    Returns
    -------
    Enabled
        A context manager. ``with enable():`` restores the former state at its end. Without
        ``with``, the products use the kernels until ``disable()``.

    Raises
    ------
    ValueError
        There is no such variant.
    UnsupportedVariantError
        The variant needs a library that is not installed.
    DeviceError
        This build of PyTorch or of sgemm_kernels cannot use the GPUs of this machine.
    """
    if torch.cuda.is_available():
        problem = _core._cuda_problem()
        if problem is not None:
            raise _core.DeviceError(problem)
    with _lock:
        former = _enabled
        dispatch_override("CUDA", variant, float(min_flops), bool(out_dtype))
        return Enabled(former)


def dispatch_override(key: str, variant: str, min_flops: float, out_dtype: bool = False) -> None:
    """Does the work of ``enable`` for a dispatch key of PyTorch: tests use ``"CPU"``."""
    global _enabled, _overrides, _typed_overrides
    names = [known.name for known in variants()]
    if variant not in names:
        raise ValueError(f"there is no variant {variant!r}: the variants are {', '.join(names)}")
    if variant == _core._REFERENCE and key == "CUDA":
        _cublas.load()
    with _lock:
        if _enabled is not None and _enabled.key != key:
            disable()
        reduced = None if _precision_is_readable() else _precision_is_reduced
        try:
            # First, because the overrides read these settings.
            with _warning_once():
                _hear_the_warning()
                _core._torch_start(key, variant, min_flops, reduced)
            if _overrides is None:
                _overrides = _override_from_python(key)
            if out_dtype and _typed_overrides is None:
                _typed_overrides = _overrides_of(_WITH_OUT_DTYPE, key)
            elif not out_dtype and _typed_overrides is not None:
                _typed_overrides._destroy()
                _typed_overrides = None
        except BaseException:
            disable()
            raise
        _enabled = Settings(key, variant, min_flops, out_dtype)


_Kernel = Callable[..., Any]


def _replace(
    library: torch.library.Library, name: str, key: str, kernel_for: Callable[[_Kernel], _Kernel]
) -> None:
    """Replaces a kernel of PyTorch by the one that ``kernel_for`` makes of it."""
    key_set = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    original = torch.library.get_kernel(f"aten::{name}", key)
    kernel = kernel_for(functools.partial(original.call_boxed, key_set))
    options = {}
    if "allow_override" in inspect.signature(library.impl).parameters:
        options["allow_override"] = True
    with warnings.catch_warnings():
        # PyTorch warns at the first replaced kernel of a process.
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        library.impl(name, kernel, key, **options)


@contextlib.contextmanager
def _warning_once() -> Iterator[None]:
    """PyTorch warns of the first replaced kernel only, even after set_warn_always(True)."""
    always = torch.is_warn_always_enabled()
    torch.set_warn_always(False)
    try:
        yield
    finally:
        torch.set_warn_always(always)


@functools.cache
def _hear_the_warning() -> None:
    """Replaces a kernel by itself. Some releases of PyTorch write their warning to stderr if C
    replaces the first kernel of a process."""
    library = torch.library.Library("aten", "IMPL")
    _replace(library, "mm", "CPU", lambda original: original)
    library._destroy()


def _taken(name: str, original: _Kernel) -> _Kernel:
    kernel: _Kernel = _core._torch_kernel(name, original, torch.empty(0, dtype=torch.float32))
    return kernel


def _overrides_of(names: Sequence[str], key: str) -> torch.library.Library:
    """Takes over operators whose arguments PyTorch's stable C ABI cannot pass.

    Their kernels are C functions too, but PyTorch calls them through Python.
    """
    library = torch.library.Library("aten", "IMPL")
    for name in names:
        _replace(library, name, key, functools.partial(_taken, name))
    return library


def _override_from_python(key: str) -> torch.library.Library:
    library = _overrides_of(_WITH_SCALARS, key)
    _replace(library, "_grouped_mm", key, _grouped.replacing)
    return library


def disable() -> None:
    """Restore PyTorch's own products. Does nothing if ``enable`` was not called.

    Call it while no other thread multiplies.
    """
    global _enabled, _overrides, _typed_overrides
    with _lock:
        _core._torch_stop()
        for overrides in (_overrides, _typed_overrides):
            if overrides is not None:
                overrides._destroy()
        _enabled = _overrides = _typed_overrides = None


def stats(reset: bool = False) -> dict[str, dict[str, int]]:
    """Count the calls of PyTorch's products since the start, or since the last reset.

    Parameters
    ----------
    reset : bool
        Also set all counts to zero.

    Returns
    -------
    dict
        For each operator that was called while ``enable`` was in force, the number of calls that
        used a kernel of this package, ``"taken"``, and of those left to PyTorch for each reason:
        ``"dtype"``, ``"device"`` (tensors on several devices), ``"layout"`` (no strides),
        ``"shape"`` (an error, or ``out`` is resized), ``"empty"``, ``"small"`` (fewer operations
        than ``min_flops``), ``"tf32"`` (TF32 or another precision below float32 is allowed),
        ``"scalar"`` (``alpha`` or ``beta`` is complex), ``"unsupported"`` (the variant does not run
        on that GPU), ``"failed"`` (``last_failure`` says why). ``"raised"`` counts failures that
        may have changed an operand, so that the call raised an exception.
    """
    counts, _ = _core._torch_stats(reset)
    counts["_grouped_mm"] = _grouped.counts(reset)
    seen = {
        name: {reason: count for reason, count in reasons.items() if count}
        for name, reasons in counts.items()
    }
    return {name: reasons for name, reasons in seen.items() if reasons}


def last_failure() -> str:
    """Return why a kernel of this package last refused or failed a call that PyTorch then did.

    A second line is about ``grouped_mm``."""
    return "\n".join(filter(None, (_core._torch_stats(False)[1], _grouped.last_failure)))


# ------------------------------------------------------------------ PyTorch's precision

# The numbers of PyTorch's C++ enumerations: of a precision, and of a backend and its operation.
_PRECISIONS = ("none", "ieee", "tf32")
_SETTINGS: tuple[tuple[Any, int, int], ...] = (
    (torch.backends, 0, 0),
    (torch.backends.cudnn, 1, 0),
    (torch.backends.cudnn.conv, 1, 1),
    (torch.backends.cudnn.rnn, 1, 2),
    (torch.backends.cuda.matmul, 1, 3),
)


def _precision_is_reduced() -> bool:
    """Whether the user lets float32 products on GPUs round their operands to fewer bits."""
    return torch.backends.cuda.matmul.fp32_precision not in ("none", "ieee")


def _precision_is_readable() -> bool:
    """Whether C can read the precision without Python: it gives the numbers that belong to the
    names of PyTorch's settings."""
    for module, backend, operation in _SETTINGS:
        number = _core._torch_precision(backend, operation)
        name = module.fp32_precision
        if number is None or name not in _PRECISIONS or _PRECISIONS.index(name) != number:
            return False
    return True


_grouped = Grouped(lambda: _enabled, _precision_is_reduced)
