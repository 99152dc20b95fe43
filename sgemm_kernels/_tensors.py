"""Tensors of PyTorch that run() cannot use, with the call that works instead, and the versions of
those that it writes. The extension calls these functions (csrc/frontends/python/tensors.c)."""

import sys
from collections.abc import Callable
from typing import Any

_OPERATORS = (
    "import sgemm_kernels.torch, and call torch.ops.sgemm_kernels.mm, addmm, bmm or baddbmm"
)
_NEVER_CONVERTS = "but run() takes {types} and never converts silently"
_FACTORS = ("A", "B")
"""The arguments that may have elements of 16 bits."""


def count_write(out: Any) -> None:
    """Tells autograd that ``out`` is about to change."""
    torch = sys.modules.get("torch")
    # PyTorch keeps no version of tensors that were made in inference mode.
    if torch is not None and isinstance(out, torch.Tensor) and not out.is_inference():
        torch.autograd.graph.increment_version(out)


def refuse(name: str, tensor: Any) -> None:
    """Raises the error that says why run() cannot use a tensor. Does nothing for other objects, and
    for tensors that it knows nothing against."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(tensor, torch.Tensor):
        return
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise TypeError(
            f"{name} is a tensor inside of torch.vmap or another transformation of torch.func, and "
            f"run() cannot read its values: {_OPERATORS}"
        )
    if _has_no_values(torch, tensor):
        raise TypeError(
            f"{name}, of type {type(tensor).__name__} on device {tensor.device}, has no values: "
            f"pass a tensor that has some, or {_OPERATORS}"
        )
    found = [
        fault
        for fault in _FAULTS
        if fault[0](torch, tensor)
        and not (fault is _OTHER_DTYPE and _is_16bit(torch, name, tensor))
    ]
    if not found:
        _refuse_memory(name, tensor)
        return
    _, error, text, _ = found[0]
    advice = name
    for *_, step in found:
        advice = step.format(advice)
    in_place = all(step in _VIEWS for *_, step in found)
    way = f"pass {advice}" if name != "out" or in_place else "omit out"
    types = "float32, float16 and bfloat16," if name in _FACTORS else "only float32"
    reason = text.format(dtype=tensor.dtype, type=type(tensor).__name__, types=types)
    raise error(f"{name} {reason}: {way}")


def _is_16bit(torch: Any, name: str, tensor: Any) -> bool:
    return name in _FACTORS and tensor.dtype in (torch.float16, torch.bfloat16)


def _refuse_memory(name: str, tensor: Any) -> None:
    try:
        is_readable = tensor.numel() == 0 or tensor.data_ptr() != 0
    except RuntimeError:
        is_readable = False
    if not is_readable:
        raise TypeError(
            f"{name} has type {type(tensor).__name__}, whose memory run() cannot read: pass a "
            "torch.Tensor with its values"
        )


def _has_no_values(torch: Any, tensor: Any) -> bool:
    fake = sys.modules.get("torch._subclasses.fake_tensor")
    is_fake = fake is not None and isinstance(tensor, fake.FakeTensor)
    return bool(tensor.is_meta or is_fake or torch._is_functional_tensor(tensor))


def _has_tangent(torch: Any, tensor: Any) -> bool:
    return torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None


def _is_without_strides(torch: Any, tensor: Any) -> bool:
    return bool(tensor.layout != torch.strided and not tensor.is_nested)


_DETACH = "{}.detach()"
_PRIMAL = "torch.autograd.forward_ad.unpack_dual({}).primal"
_VIEWS = (_DETACH, _PRIMAL)
"""The steps that give the same memory."""

_OTHER_DTYPE = (
    lambda torch, x: not x.is_quantized and x.dtype not in (torch.float32, torch.complex64),
    TypeError,
    f"has dtype {{dtype}}, {_NEVER_CONVERTS}",
    "{}.float()",
)

# What may be wrong, in the order in which a tensor is made usable: the test, the error, how the
# message goes on after the name, and the step that mends it.
_FAULTS: tuple[tuple[Callable[[Any, Any], bool], type[Exception], str, str], ...] = (
    (
        lambda torch, x: x.is_nested,
        TypeError,
        "is a nested tensor, but run() takes matrices and batches of one shape",
        "torch.nested.to_padded_tensor({}, 0)",
    ),
    (
        _is_without_strides,
        TypeError,
        "is not dense (its layout is not torch.strided)",
        "{}.to_dense()",
    ),
    (
        lambda torch, x: x.is_quantized,
        TypeError,
        f"is quantized, {_NEVER_CONVERTS}",
        "{}.dequantize()",
    ),
    (
        lambda torch, x: x._is_zerotensor(),
        ValueError,
        "is a tensor of zeros without memory",
        "{}.clone()",
    ),
    (
        lambda torch, x: hasattr(x, "to_local"),
        TypeError,
        "has type {type}, which has parts on several devices",
        "{}.to_local()",
    ),
    (
        lambda torch, x: x.dtype.is_complex,
        TypeError,
        f"has dtype {{dtype}}, {_NEVER_CONVERTS}",
        "{}.real",
    ),
    _OTHER_DTYPE,
    (
        lambda torch, x: x.requires_grad,
        ValueError,
        "requires a gradient, but run() computes none",
        _DETACH,
    ),
    (
        _has_tangent,
        ValueError,
        "has a tangent, but run() computes none",
        _PRIMAL,
    ),
    (
        lambda torch, x: not x.is_complex() and x.is_neg(),
        ValueError,
        "is a view of negated values (is_neg())",
        "{}.resolve_neg()",
    ),
)
