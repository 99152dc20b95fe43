"""``torch.nn.functional.grouped_mm`` in float32, for ``sgemm_kernels.torch.enable``: all groups are
one call of ``run_many``, and the ends of the groups are copied to the host once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch

from . import _core

# By the dimensions of the operands: the axis of each operand, and of the result, along which the
# groups follow each other. None: a stack with one matrix for each group.
_AXES: dict[tuple[int, int], tuple[int | None, int | None, int | None]] = {
    (2, 3): (0, None, 0),
    (3, 2): (None, 1, 1),
    (2, 2): (1, 0, None),
    (3, 3): (None, None, None),
}


class Settings(NamedTuple):
    """What ``enable`` takes over: the products at a dispatch key, and with which kernel."""

    key: str
    variant: str
    min_flops: float
    out_dtype: bool


class _Call(NamedTuple):
    """The arguments of ``aten::_grouped_mm``."""

    a: torch.Tensor
    b: torch.Tensor
    offs: torch.Tensor | None = None
    bias: torch.Tensor | None = None
    out_dtype: torch.dtype | None = None

    @property
    def dims(self) -> tuple[int, int]:
        return self.a.dim(), self.b.dim()


class Grouped:
    """Takes over ``aten::_grouped_mm`` and counts its calls. C counts other operators' calls."""

    def __init__(
        self,
        settings: Callable[[], Settings | None],
        precision_is_reduced: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._precision_is_reduced = precision_is_reduced
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self.last_failure = ""

    def counts(self, reset: bool) -> dict[str, int]:
        with self._lock:
            counts = dict(self._counts)
            if reset:
                self._counts.clear()
        return counts

    def replacing(self, original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """The kernel that replaces PyTorch's, which does what this package does not."""

        def grouped_mm(*args: object, **keywords: object) -> torch.Tensor:
            settings = self._settings()
            if settings is None:  # another thread is in enable() or disable()
                return original(*args, **keywords)
            call = _Call(*args, **keywords)
            call = call._replace(a=call.a.detach(), b=call.b.detach())
            outcome = self._reason_to_leave(call, settings.min_flops)
            result = None
            if outcome is None:
                result, outcome = self._multiply(settings.variant, call)
            with self._lock:
                self._counts[outcome] += 1
            return original(*args, **keywords) if result is None else result

        return grouped_mm

    def _reason_to_leave(self, call: _Call, min_flops: float) -> str | None:
        """Why PyTorch does the call, in a word of ``stats``; None if this package does it."""
        tensors = [call.a, call.b] + ([] if call.offs is None else [call.offs])
        if {call.a.dtype, call.b.dtype, call.out_dtype or torch.float32} != {torch.float32}:
            return "dtype"
        if len({tensor.device for tensor in tensors}) > 1:
            return "device"
        if not _fits(call):
            return "shape"
        flops = _flops(call)
        if flops == 0:
            return "empty"
        if flops < min_flops:
            return "small"
        return "tf32" if self._precision_is_reduced() else None

    def _multiply(self, variant: str, call: _Call) -> tuple[torch.Tensor | None, str]:
        """The result, and the outcome to count. No result: PyTorch does the call."""
        try:
            result = _product(variant, call)
        except (_core.Error, MemoryError, RuntimeError, ValueError) as error:
            self.last_failure = str(error)
            unsupported = isinstance(error, _core.UnsupportedVariantError)
            return None, "unsupported" if unsupported else "failed"
        return result, "shape" if result is None else "taken"


def _fits(call: _Call) -> bool:
    """Whether PyTorch accepts the shapes and strides. It raises an error for others."""
    a, b, offs = call.a, call.b, call.offs
    if call.dims not in _AXES or call.bias is not None or a.shape[-1] != b.shape[-2]:
        return False
    groups = {len(operand) for operand in (a, b) if operand.dim() == 3}
    if offs is not None:
        if offs.dim() != 1 or offs.dtype != torch.int32:
            return False
        groups.add(len(offs))
    takes_offs = call.dims != (3, 3)
    return (
        (offs is not None) == takes_offs
        and len(groups) == 1
        and all(map(_has_rows_of_16_bytes, (a, b)))
    )


def _has_rows_of_16_bytes(matrix: torch.Tensor) -> bool:
    """Whether the matrix is row-major or transposed, with rows at multiples of 16 bytes."""
    (rows, cols), (by_row, by_col) = matrix.shape[-2:], matrix.stride()[-2:]
    transposed: bool = by_row == 1 and by_col >= max(1, rows)
    if transposed:
        aligned: bool = by_col % 4 == 0
    else:
        aligned = by_col == 1 and by_row >= max(1, cols) and by_row % 4 == 0
    return aligned


def _flops(call: _Call) -> float:
    a, b = call.a, call.b
    terms: int = a.shape[1] * b.numel() if call.dims == (3, 2) else a.numel() * b.shape[-1]
    return 2.0 * terms


def _product(variant: str, call: _Call) -> torch.Tensor | None:
    """The result; None if the groups are not in order or end outside the operand."""
    out = _new_result(call)
    device = str(out.device)
    if call.offs is None:
        _core.run(variant, call.a, call.b, out=out, device=device)
        return out
    axes = _AXES[call.dims]
    grouped = call.a if axes[0] is not None else call.b
    total = grouped.shape[axes[0] if axes[0] is not None else axes[1] or 0]
    sizes = [end - start for start, end in pairwise([0, *call.offs.tolist(), total])]
    if min(sizes) < 0:
        return None
    a, b, results = (
        list(operand.unbind() if axis is None else operand.split(sizes, axis)[:-1])
        for operand, axis in zip((call.a, call.b, out), axes, strict=True)
    )
    _core.run_many(variant, a, b, out=results, device=device)
    return out


def _new_result(call: _Call) -> torch.Tensor:
    """An uninitialized result. As PyTorch's, its rows begin at multiples of 16 bytes."""
    rows, cols = call.a.shape[-2], call.b.shape[-1]
    by_row = -(-cols // 4) * 4
    if call.dims[0] != call.dims[1]:
        return call.a.new_empty_strided((rows, cols), (by_row, 1))
    groups = len(call.a) if call.offs is None else len(call.offs)
    return call.a.new_empty_strided((groups, rows, cols), (rows * by_row, by_row, 1))
