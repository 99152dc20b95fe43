"""Single-precision matrix products, by every kernel of one ladder.

>>> import numpy as np, sgemm_kernels
>>> A = np.ones((3, 2), np.float32)
>>> B = np.ones((2, 4), np.float32)
>>> sgemm_kernels.run('tile2d', A, B, device='cpu').sum()
np.float32(24.0)

``run`` computes ``alpha * A @ B + beta * C`` with the kernel that you name, on a GPU or on the
CPU; ``variants`` lists the kernels, ``devices`` the machines that can serve, and ``build_info``
says how this package was compiled. ``python -m sgemm_kernels info`` examines the machine.
"""

from ._catalog import BuildInfo, Device, Variant, build_info, devices, variants
from ._core import DeviceError, Error, OutOfMemoryError, UnsupportedVariantError, run

__version__ = "0.1.0"

__all__ = [
    "BuildInfo",
    "Device",
    "DeviceError",
    "Error",
    "OutOfMemoryError",
    "UnsupportedVariantError",
    "Variant",
    "build_info",
    "devices",
    "run",
    "variants",
]
