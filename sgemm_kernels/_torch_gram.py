"""The operator ``sgemm_kernels::gram``: matrices multiplied by their own transposes."""

from __future__ import annotations

from typing import Any

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.utils.flop_counter import register_flop_formula

from . import _torch_operators as _torch_operators  # registers the operators that this one calls

_NAME = "sgemm_kernels::gram"
_library = torch.library.Library("sgemm_kernels", "FRAGMENT")
_library.define(
    "gram(Tensor input, *, str variant='auto') -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout),
)
_ops = torch.ops.sgemm_kernels


def _product(a: torch.Tensor, b: torch.Tensor, variant: str) -> torch.Tensor:
    """Multiplies matrices, or batches of them with any leading dimensions."""
    if a.dim() == 2:
        matrix: torch.Tensor = _ops.mm.default(a, b, variant=variant)
        return matrix
    batch = a.shape[:-2]
    stacks = (each.reshape(-1, *each.shape[-2:]) for each in (a, b))
    stack: torch.Tensor = _ops.bmm.default(*stacks, variant=variant)
    return stack.reshape(*batch, *stack.shape[-2:])


def _gram(input: torch.Tensor, *, variant: str = "auto") -> torch.Tensor:
    _check(input)
    matrices = input if input.dim() == 2 else input.reshape(-1, *input.shape[-2:])
    result = _product(matrices, matrices.mT, variant)  # a view: the kernel sees one matrix
    return result.reshape(*input.shape[:-1], input.shape[-2])


def _check(input: torch.Tensor) -> None:
    torch._check(
        input.dim() >= 2,
        lambda: (
            f"{_NAME}: input has shape {tuple(input.shape)}, but needs two dimensions or more: "
            "pass input.reshape(1, -1) for a row, or input.reshape(-1, 1) for a column"
        ),
    )
    allowed = _torch_operators.FACTORS
    if input.dtype not in allowed:
        found = str(input.dtype).removeprefix("torch.")
        raise TypeError(
            f"{_NAME}: input is {found} but must be float32, float16 or bfloat16: "
            "pass input.float()"
        )


def _fake(input: torch.Tensor, **_: object) -> torch.Tensor:
    _check(input)
    return input.new_empty((*input.shape[:-1], input.shape[-2]), dtype=torch.float32)


class _Differentiable(_SingleLevelFunction):  # type: ignore[misc]  # PyTorch gives it no type
    """The gradient is one product. The dispatcher has chosen the level of torch.func already."""

    @staticmethod
    def forward(variant: str, input: torch.Tensor) -> torch.Tensor:
        # Below this level's autograd, but an outer level may record the product.
        with (
            torch.enable_grad(),
            forward_ad._set_fwd_grad_enabled(True),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            result: torch.Tensor = _ops.gram.default(input, variant=variant)
            return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        del output
        ctx.variant, input = inputs
        ctx.save_for_backward(input)
        ctx.save_for_forward(input)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (input,) = ctx.saved_tensors
        return None, _product(gradient + gradient.mT, input, ctx.variant).to(input.dtype)

    @staticmethod
    def jvp(ctx: Any, _: None, tangent: torch.Tensor) -> torch.Tensor:
        (saved,) = ctx.saved_tensors
        input = forward_ad.unpack_dual(saved, level=0).primal
        with forward_ad._set_fwd_grad_enabled(True):  # an outer level may need its own tangents
            half = _product(tangent, input.mT, ctx.variant)
            return half + half.mT


def _differentiable(input: torch.Tensor, *, variant: str = "auto") -> torch.Tensor:
    if _torch_operators.in_forward_mode() or (torch.is_grad_enabled() and input.requires_grad):
        with enable_single_level_autograd_function():
            result: torch.Tensor = _Differentiable.apply(variant, input)
        return result
    return _Differentiable.forward(variant, input)


def _vmap(
    info: Any, in_dims: tuple[int | None, ...], input: torch.Tensor, **keywords: Any
) -> tuple[torch.Tensor, int]:
    del info
    (axis,) = in_dims
    return _ops.gram.default(input.movedim(axis or 0, 0), **keywords), 0


def _flops(shape: Any, *_: Any, **__: Any) -> int:
    *batch, rows, depth = shape
    count: int = 2 * rows * rows * depth
    for length in batch:
        count *= length
    return count


_library.impl("gram", _gram, "CompositeExplicitAutograd")
torch.library.register_fake(_NAME, _fake, lib=_library)
_library.impl("gram", _differentiable, "Autograd")
torch.library.register_vmap(_NAME, _vmap, lib=_library)
register_flop_formula(_ops.gram)(_flops)
