"""Float32 matrix products on NVIDIA GPUs and on the CPU, as operators of PyTorch.

``mm``, ``addmm``, ``bmm`` and ``baddbmm`` have the arguments of PyTorch's own and the keyword
``variant``, a kernel's name. They support autograd, ``torch.func`` and ``torch.compile``.
"""

from ._torch_operators import _ops

__all__ = ["addmm", "baddbmm", "bmm", "mm"]

addmm, baddbmm, bmm, mm = _ops.addmm, _ops.baddbmm, _ops.bmm, _ops.mm
