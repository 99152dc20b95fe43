"""The operators ``mm``, ``addmm``, ``bmm`` and ``baddbmm`` of ``torch.ops.sgemm_kernels``: their
schemas, and what PyTorch's compilers, gradients and batches do with them.

Their kernels for tensors are C functions (csrc/frontends/torch/operators.c). release/hf_kernel.py
copies this file into a package of another name, so it imports nothing but PyTorch and ``_core``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction
from torch.utils.flop_counter import flop_registry

from . import _core

_PRODUCT = "(Tensor input, Tensor mat2, *, str variant='auto'"
_SUM = "(Tensor input, Tensor {0}1, Tensor {0}2, *, float beta=1, float alpha=1, str variant='auto'"
_ARGUMENTS = {
    "mm": _PRODUCT,
    "bmm": _PRODUCT,
    "addmm": _SUM.format("mat"),
    "baddbmm": _SUM.format("batch"),
}
_TENSORS = {
    "mm": ("input", "mat2"),
    "bmm": ("input", "mat2"),
    "addmm": ("input", "mat1", "mat2"),
    "baddbmm": ("input", "batch1", "batch2"),
}
FACTORS = (torch.float32, torch.float16, torch.bfloat16)
"""The dtypes of the two operands that are multiplied. Added tensors and results are float32."""
# The kernels read any strides, so a compiler need not copy operands.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)

_NAMESPACE = __name__.rpartition(".")[0]
"""The package's name."""

# These keep their registrations as long as they exist.
_library = torch.library.Library(_NAMESPACE, "FRAGMENT")
_ops = getattr(torch.ops, _NAMESPACE)


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

# ------------------------------------------------------------------ dtypes


def _refuse_dtypes(name: str, tensors: tuple[torch.Tensor, ...]) -> None:
    """Raises TypeError for a tensor of another dtype than a product takes."""
    added = len(tensors) - 2
    for index, (which, tensor) in enumerate(zip(_TENSORS[name], tensors, strict=True)):
        dtype, is_factor = tensor.dtype, index >= added
        if dtype not in (FACTORS if is_factor else FACTORS[:1]):
            words = "float32, float16 or bfloat16" if is_factor else "float32"
            convert = "real.float()" if dtype.is_complex else "float()"
            if is_factor and dtype.is_floating_point and dtype.itemsize == 1:
                convert = "bfloat16()"  # which has all values of 8 bits
            found = str(dtype).removeprefix("torch.")
            raise TypeError(
                f"sgemm_kernels::{name}: {which} is {found} but must be {words}: "
                f"pass {which}.{convert}"
            ) from None


# ------------------------------------------------------------------ compilers


def _shape(name: str, tensors: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """The result's shape, after the checks that the kernels make."""
    *added, first, second = tensors
    dims = 3 if name.endswith("bmm") else 2
    shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
    _refuse_dtypes(name, tensors)
    _check_devices(name, tensors)
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


def _check_devices(name: str, tensors: tuple[torch.Tensor, ...]) -> None:
    devices = [str(tensor.device) for tensor in tensors]
    torch._check(
        len(set(devices)) == 1,
        lambda: (
            f"sgemm_kernels::{name}: the tensors are on different devices, {', '.join(devices)}: "
            "move them to one with their to()"
        ),
    )


def _register_fake(name: str) -> None:
    """Tells compilers the shape of results."""

    def fake(*tensors: torch.Tensor, **_: object) -> torch.Tensor:
        return tensors[-1].new_empty(_shape(name, tensors), dtype=torch.float32)

    def fake_out(*tensors: torch.Tensor, out: torch.Tensor, **_: object) -> None:
        shape = _shape(name, tensors)
        _check_devices(name, (*tensors, out))
        torch._check(
            out.dtype == torch.float32 and tuple(out.shape) == shape,
            lambda: f"sgemm_kernels::{name}.out: out must be float32 of shape {shape}",
        )

    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=_library)
    torch.library.register_fake(f"{_NAMESPACE}::{name}.out", fake_out, lib=_library)


# ------------------------------------------------------------------ gradients


class _Options(NamedTuple):
    """The arguments of an operator that are no tensors."""

    name: str
    beta: float
    alpha: float
    variant: str

    def call(self, *tensors: torch.Tensor) -> torch.Tensor:
        scalars = {"beta": self.beta, "alpha": self.alpha} if len(tensors) == 3 else {}
        try:
            result: torch.Tensor = getattr(_ops, self.name).default(
                *tensors, variant=self.variant, **scalars
            )
        except RuntimeError:  # PyTorch's C interface can raise no other
            _refuse_dtypes(self.name, tensors)
            raise
        return result

    def product(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """``alpha * a @ b``, which is part of a gradient or a tangent."""
        product = _ops.bmm.default if self.name.endswith("bmm") else _ops.mm.default
        return _scaled(product(a, b, variant=self.variant), self.alpha)


def _scaled(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    return tensor if factor == 1 else tensor * factor


class _Differentiable(_SingleLevelFunction):  # type: ignore[misc]  # PyTorch gives it no type
    """The gradients of the matrices are products with a transposed operand, read in place, and then
    get the dtype of the matrix. The tangent of a product is the sum of two products.

    The dispatcher has chosen the level of torch.func's transformations already."""

    @staticmethod
    def forward(options: _Options, *tensors: torch.Tensor) -> torch.Tensor:
        # Below this level's autograd, but an outer level may record the product.
        with (
            torch.enable_grad(),
            forward_ad._set_fwd_grad_enabled(True),
            torch._C._AutoDispatchBelowAutograd(),
        ):
            return options.call(*tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        options, *added, a, b = inputs
        *_, of_a, of_b = ctx.needs_input_grad
        ctx.save_for_backward(a if of_b else None, b if of_a else None)
        if in_forward_mode():
            ctx.save_for_forward(a, b)
        ctx.options = options
        ctx.shapes = [tensor.shape for tensor in added]
        ctx.shape = output.shape
        ctx.dtypes = a.dtype, b.dtype

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        a, b = ctx.saved_tensors
        options: _Options = ctx.options
        of_added = [
            _scaled(gradient, options.beta).sum_to_size(shape) if ctx.needs_input_grad[1] else None
            for shape in ctx.shapes
        ]
        of_a = None if b is None else options.product(gradient, b.mT).to(ctx.dtypes[0])
        of_b = None if a is None else options.product(a.mT, gradient).to(ctx.dtypes[1])
        return (None, *of_added, of_a, of_b)

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> torch.Tensor:
        a, b = (forward_ad.unpack_dual(tensor, level=0).primal for tensor in ctx.saved_tensors)
        options: _Options = ctx.options
        *of_added, of_a, of_b = tangents
        with forward_ad._set_fwd_grad_enabled(True):  # an outer level may need its own tangents
            parts = [
                (tangent * options.beta).expand(ctx.shape)
                for tangent in of_added
                if tangent is not None
            ]
            if of_a is not None:
                parts.append(options.product(of_a, b))
            if of_b is not None:
                parts.append(options.product(a, of_b))
            first, *others = parts
            return sum(others, start=first.contiguous())


def in_forward_mode() -> bool:
    """Whether tensors may have tangents. PyTorch's compilers enter dual levels and transformations
    without telling forward_ad; they trace with a dispatch mode."""
    return bool(
        forward_ad._current_level >= 0
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0
    )


def _register_autograd(name: str) -> None:
    def differentiable(
        *tensors: torch.Tensor,
        beta: float = 1,
        alpha: float = 1,
        variant: str = "auto",
    ) -> torch.Tensor:
        options = _Options(name, beta, alpha, variant)
        if in_forward_mode() or (torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors)):
            with enable_single_level_autograd_function():
                result: torch.Tensor = _Differentiable.apply(options, *tensors)
            return result
        return _Differentiable.forward(options, *tensors)

    _library.impl(name, differentiable, "Autograd")
    _register_autograd_of_out(name)


def _refuse_lost_derivative(tensors: tuple[torch.Tensor, ...], out: torch.Tensor) -> str | None:
    """Why a call with ``out`` would lose a gradient or a tangent."""
    if out.is_inference() and not torch.is_inference_mode_enabled():
        return "out is a tensor of inference mode: pass out.clone()"
    if torch.is_grad_enabled() and out.requires_grad:
        return (
            "out requires grad, but a call with out computes no gradient: call the operator "
            "without out, or within torch.no_grad()"
        )
    if torch.is_grad_enabled() and torch._C._any_requires_grad(*tensors):
        return (
            "an operand requires grad, but a call with out computes no gradient: call the "
            "operator without out, or within torch.no_grad()"
        )
    if in_forward_mode() and any(map(_has_tangent, (*tensors, out))):
        return "a tensor has a tangent, but a call with out computes none: call it without out"
    return None


def _has_tangent(tensor: torch.Tensor) -> bool:
    return forward_ad.unpack_dual(tensor, level=0).tangent is not None


def _register_autograd_of_out(name: str) -> None:
    operator = getattr(_ops, name).out

    def undifferentiable(
        keys: torch._C.DispatchKeySet, *tensors: torch.Tensor, out: torch.Tensor, **keywords: Any
    ) -> None:
        reason = _refuse_lost_derivative(tensors, out)
        if reason is not None:
            raise RuntimeError(f"sgemm_kernels::{name}.out: {reason}")
        with torch._C._AutoDispatchBelowAutograd():
            try:
                operator.redispatch(
                    keys & torch._C._after_autograd_keyset, *tensors, out=out, **keywords
                )
            except RuntimeError:
                _refuse_dtypes(name, tensors)
                raise

    _library.impl(f"{name}.out", undifferentiable, "Autograd", with_keyset=True)


# ------------------------------------------------------------------ views of negated values


def _register_negative(name: str) -> None:
    """An ``out`` that is a view of negated values, such as the imaginary part of a conjugate, is
    computed in other memory. PyTorch's own rule expects that operators return their ``out``."""
    operator = getattr(_ops, name).out

    def negative(*tensors: torch.Tensor, out: torch.Tensor, **keywords: Any) -> None:
        target = out.new_empty(out.shape) if out.is_neg() else out
        operator(*(tensor.resolve_neg() for tensor in tensors), out=target, **keywords)
        if target is not out:
            out.copy_(target)

    _library.impl(f"{name}.out", negative, "Negative")


# ------------------------------------------------------------------ batches


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

    torch.library.register_vmap(f"{_NAMESPACE}::{name}", vmap, lib=_library)


# ------------------------------------------------------------------ operations


def _register_count(name: str) -> None:
    """PyTorch's FlopCounterMode counts the operator as PyTorch's own."""
    flop_registry[getattr(_ops, name)] = flop_registry[getattr(torch.ops.aten, name)]


for _name in _ARGUMENTS:
    _register_fake(_name)
    _register_autograd(_name)
    _register_negative(_name)
    _register_vmap(_name)
    _register_count(_name)
