"""Products of PyTorch's tensors with this package's kernels. Needs PyTorch 2.10 or newer.

>>> import sgemm_kernels.torch, torch
>>> a, b = torch.ones(3, 2), torch.ones(2, 4)
>>> torch.ops.sgemm_kernels.mm(a, b).sum()
tensor(24.)
>>> with sgemm_kernels.torch.enable():  # torch.mm, nn.Linear, einsum, compiled models ...
...     c = a @ b

Importing this module registers the operators ``sgemm_kernels::mm``, ``addmm``, ``bmm`` and
``baddbmm``, each with an ``out`` overload. They have the arguments of ``torch.mm`` and so on, and
the keyword ``variant``, a kernel's name. They multiply float32 tensors on a GPU, and CPU tensors on
the CPU device, and support autograd, ``torch.compile``, ``torch.export``, ``torch.vmap`` and CUDA
graphs.

``enable`` makes PyTorch's own float32 products on GPUs use the kernels. ``disable`` restores
PyTorch. ``stats`` counts the calls.
"""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from types import TracebackType
from typing import Any

import torch

from . import _core, _cublas
from ._catalog import variants

__all__ = ["disable", "enable", "stats"]

# ------------------------------------------------------------------ operators

_PRODUCT = "(Tensor input, Tensor mat2, *, str variant='auto'"
_SUM = "(Tensor input, Tensor {0}1, Tensor {0}2, *, float beta=1, float alpha=1, str variant='auto'"
_ARGUMENTS = {
    "mm": _PRODUCT,
    "bmm": _PRODUCT,
    "addmm": _SUM.format("mat"),
    "baddbmm": _SUM.format("batch"),
}
# The kernels read any strides, so a compiler need not copy operands.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)

# These keep their registrations as long as they exist.
_library = torch.library.Library("sgemm_kernels", "FRAGMENT")
_ops = torch.ops.sgemm_kernels


def _register() -> None:
    """Defines the operators and adds the kernels, which are C functions."""
    try:
        _core._torch_open()
    except _core.Error as error:
        raise ImportError(
            f"sgemm_kernels.torch needs PyTorch 2.10 or newer, found {torch.__version__} "
            f"({error}): pip install 'torch>=2.10'"
        ) from None
    for name, arguments in _ARGUMENTS.items():
        _library.define(f"{name}{arguments}) -> Tensor", tags=_TAGS)
        # torch.compile supports operators that change an argument only if they do not return it.
        _library.define(f"{name}.out{arguments}, Tensor(a!) out) -> ()", tags=_TAGS)
    _core._torch_register()


_register()


def _shape(name: str, tensors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """The result's shape, after the checks that the kernels make."""
    *added, first, second = tensors
    dims = 3 if name.endswith("bmm") else 2
    shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
    torch._check(
        all(tensor.dtype == torch.float32 for tensor in tensors),
        lambda: f"sgemm_kernels::{name}: the tensors must be float32",
    )
    torch._check(
        first.dim() == second.dim() == dims,
        lambda: f"sgemm_kernels::{name}: shapes {shapes} do not have {dims} dimensions",
    )
    torch._check(
        first.shape[-1] == second.shape[-2] and first.shape[:-2] == second.shape[:-2],
        lambda: f"sgemm_kernels::{name}: shapes {shapes} cannot be multiplied",
    )
    shape = (*first.shape[:-1], second.shape[-1])
    for tensor in added:
        tensor.expand(shape)  # raises if it does not fit
    return shape


def _register_fake(name: str) -> None:
    """Tells compilers the shape of results."""

    def fake(*tensors: torch.Tensor, **_: object) -> torch.Tensor:
        return tensors[-1].new_empty(_shape(name, tensors))

    def fake_out(*tensors: torch.Tensor, out: torch.Tensor, **_: object) -> None:
        shape = _shape(name, (*tensors, out)[:-1])
        torch._check(
            out.dtype == torch.float32 and tuple(out.shape) == shape,
            lambda: f"sgemm_kernels::{name}.out: out must be float32 of shape {shape}",
        )

    torch.library.register_fake(f"sgemm_kernels::{name}", fake, lib=_library)
    torch.library.register_fake(f"sgemm_kernels::{name}.out", fake_out, lib=_library)


def _register_autograd(name: str) -> None:
    """The gradients of the matrices are products with a transposed operand, read in place."""
    product = _ops.bmm.default if name.endswith("bmm") else _ops.mm.default

    def setup_context(
        ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: object
    ) -> None:
        *added, a, b = inputs
        needs = ctx.needs_input_grad
        ctx.save_for_backward(
            a if needs[len(added) + 1] else None, b if needs[len(added)] else None
        )
        ctx.shapes = [tensor.shape for tensor in added]
        ctx.beta = keyword_only_inputs.get("beta", 1)
        ctx.alpha = keyword_only_inputs.get("alpha", 1)
        ctx.variant = keyword_only_inputs["variant"]

    def scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
        return tensor if factor == 1 else tensor * factor

    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        of_added = [
            scaled(gradient, ctx.beta).sum_to_size(shape) if ctx.needs_input_grad[0] else None
            for shape in ctx.shapes
        ]
        of_a = of_b = None
        if b is not None:
            of_a = scaled(product(gradient, b.mT, variant=ctx.variant), ctx.alpha)
        if a is not None:
            of_b = scaled(product(a.mT, gradient, variant=ctx.variant), ctx.alpha)
        return (*of_added, of_a, of_b)

    torch.library.register_autograd(
        f"sgemm_kernels::{name}", backward, setup_context=setup_context, lib=_library
    )


def _register_vmap(name: str) -> None:
    """A batch of products is one stack of products."""
    dims = 3 if name.endswith("bmm") else 2
    stacked = _ops.bmm.default if name in ("mm", "bmm") else _ops.baddbmm.default

    def vmap(
        info: Any, in_dims: tuple[int | None, ...], *tensors: torch.Tensor, **keywords: Any
    ) -> tuple[torch.Tensor, int]:
        batch = info.batch_size
        moved = []
        for tensor, at in zip(tensors, in_dims, strict=True):
            front = tensor.unsqueeze(0) if at is None else tensor.movedim(at, 0)
            while front.dim() < dims + 1:  # `input`, which is broadcast, may have fewer
                front = front.unsqueeze(1)
            front = front.expand(batch, *front.shape[1:])
            moved.append(front)
        if dims == 2:
            return stacked(*moved, **keywords), 0
        stack = moved[-1].shape[1]
        joined = [tensor.expand(batch, stack, *tensor.shape[2:]).flatten(0, 1) for tensor in moved]
        return stacked(*joined, **keywords).unflatten(0, (batch, stack)), 0

    torch.library.register_vmap(f"sgemm_kernels::{name}", vmap, lib=_library)


for _name in _ARGUMENTS:
    _register_fake(_name)
    _register_autograd(_name)
    _register_vmap(_name)

# ------------------------------------------------------------------ the takeover

_WITH_SCALARS = ("addmm", "addmm.out", "addmm_", "baddbmm", "baddbmm.out", "baddbmm_")

_lock = threading.RLock()
_enabled: tuple[str, str, float] | None = None  # the arguments of take_over
_overrides: torch.library.Library | None = None


class Enabled:
    """What ``enable`` returns: a context manager that restores the former state."""

    def __init__(self, former: tuple[str, str, float] | None) -> None:
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
            take_over(*self._former)


def enable(variant: str = "auto", min_flops: float = 0.0) -> Enabled:
    """Make PyTorch's float32 products on GPUs use the kernels of this package.

    The calls of ``aten::mm``, ``addmm``, ``bmm`` and ``baddbmm``, and of their ``out`` and in-place
    forms, in this process use the kernels. So do ``torch.matmul``, ``nn.Linear``, ``einsum``,
    backward passes and compiled models, which call these. Every other call runs as before: with
    another dtype or device, an empty or sparse tensor, or while TF32 is allowed.

    Parameters
    ----------
    variant : str
        A kernel's name from ``sgemm_kernels.variants()``.
    min_flops : float
        Products with fewer operations, ``2 * M * N * K``, stay with PyTorch. Those of a batch are
        added up.

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
        take_over("CUDA", variant, float(min_flops))
        return Enabled(former)


def take_over(key: str, variant: str, min_flops: float) -> None:
    """Does the work of ``enable`` for a dispatch key of PyTorch: tests use ``"CPU"``."""
    global _enabled, _overrides
    names = [known.name for known in variants()]
    if variant not in names:
        raise ValueError(f"there is no variant {variant!r}: the variants are {', '.join(names)}")
    if variant == _core._REFERENCE and key == "CUDA":
        _cublas.load()
    with _lock:
        if _enabled is not None and _enabled[0] != key:
            disable()
        reduced = None if _precision_is_readable() else _precision_is_reduced
        try:
            # First, because the overrides read these settings.
            _core._torch_start(key, variant, min_flops, reduced)
            if _overrides is None:
                _overrides = _override_products_with_scalars(key)
        except BaseException:
            disable()
            raise
        _enabled = (key, variant, min_flops)


def _override_products_with_scalars(key: str) -> torch.library.Library:
    """Takes over the operators whose scalar arguments PyTorch's stable C ABI cannot pass.

    The new kernels are C functions too, but PyTorch calls them through Python.
    """
    key_set = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
    library = torch.library.Library("aten", "IMPL")
    options = {}
    if "allow_override" in inspect.signature(library.impl).parameters:
        options["allow_override"] = True
    with warnings.catch_warnings():
        # PyTorch warns at the first replaced kernel of a process.
        warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
        for name in _WITH_SCALARS:
            original = torch.library.get_kernel(f"aten::{name}", key)
            fallback = functools.partial(original.call_boxed, key_set)
            kernel = _core._torch_kernel(name, fallback, torch.empty(0))
            library.impl(name, kernel, key, **options)
    return library


def disable() -> None:
    """Restore PyTorch's own products. Does nothing if ``enable`` was not called.

    Call it while no other thread multiplies.
    """
    global _enabled, _overrides
    with _lock:
        _core._torch_stop()
        if _overrides is not None:
            _overrides._destroy()
        _enabled = _overrides = None


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
    seen = {
        name: {reason: count for reason, count in reasons.items() if count}
        for name, reasons in counts.items()
    }
    return {name: reasons for name, reasons in seen.items() if reasons}


def last_failure() -> str:
    """Return why a kernel of this package last refused or failed a call that PyTorch then did."""
    return _core._torch_stats(False)[1]


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
