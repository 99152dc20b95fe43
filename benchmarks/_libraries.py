"""The other libraries' float32 products that experiments measure beside this package's."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import _cublas_product

from sgemm_kernels import measure, variants
from sgemm_kernels._style import SERIES, Look
from sgemm_kernels.measuring.competitors import Measured
from sgemm_kernels.measuring.measurement import TF32

LAYOUTS = ("NN", "NT", "TN")
"""Those of experiments: a layer's forward product and gradients."""
EMULATION = "cuBLAS BF16x9"
COMPETITORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    EMULATION: ("_cublas_product", "nvidia-cublas", {"mode": "BF16x9"}),
    "Triton tf32x3": ("_triton_product", "torch triton", {"precision": "tf32x3"}),
    "Triton bf16x6": ("_triton_product", "torch triton", {"precision": "bf16x6"}),
    "CUTLASS SIMT": ("_cutlass_product", "nvidia-cutlass", {"kernel": "Simt"}),
    "CUTLASS 3xTF32": ("_cutlass_product", "nvidia-cutlass", {"kernel": "ThreeTf32"}),
    "GEMMul8 INT8": ("_gemmul8_product", "cuda-pathfinder", {"numbers": "int8"}),
    "GEMMul8 FP8": ("_gemmul8_product", "cuda-pathfinder", {"numbers": "fp8"}),
}
"""Names, each with the module that defines `product`, its packages, and its arguments."""

JAX = {
    "JAX float32": None,
    "JAX TF32 X3": "TF32_TF32_F32_X3",
    "JAX BF16 X6": "BF16_BF16_F32_X6",
    "JAX BF16 X9": "BF16_BF16_F32_X9",
    "JAX BF16 X9, no Triton": "BF16_BF16_F32_X9, no Triton",
}
"""Names, each with JAX's algorithm."""

LOOKS = {
    name: Look(colour, marker, line)
    for name, colour, marker, line in (
        ("cublas", SERIES[5], "s", "--"),
        ("cublas-tf32", SERIES[5], "v", ":"),
        ("Triton tf32x3", SERIES[1], "D", "-."),
        ("Triton bf16x6", SERIES[1], "^", "--"),
        ("CUTLASS SIMT", SERIES[0], "p", "--"),
        ("CUTLASS 3xTF32", SERIES[0], "P", ":"),
        (EMULATION, SERIES[5], "X", "-."),
        ("GEMMul8 INT8", SERIES[4], "<", "--"),
        ("GEMMul8 FP8", SERIES[4], ">", ":"),
        ("JAX float32", SERIES[3], "1", "--"),
        ("JAX TF32 X3", SERIES[3], "2", ":"),
        ("JAX BF16 X6", SERIES[3], "3", "-."),
        ("JAX BF16 X9", SERIES[3], "4", ":"),
        ("JAX BF16 X9, no Triton", SERIES[3], "+", "--"),
    )
}
"""Line styles, with a colour for each project."""


def libraries(device: str, layouts: Sequence[str] = LAYOUTS) -> Iterator[Measured]:
    """The libraries that can multiply in these layouts here, as `measure` takes them. Prints why
    the others cannot. The name of cuBLAS's emulation ends in (float32) if cuBLAS computes it in
    float32 on this GPU."""
    missing = next(v.unavailable for v in variants() if v.name == "cublas")
    for name in ("cublas", TF32):
        if missing:
            left_out(name, missing)
        else:
            yield name
    for name, (module, packages, how) in COMPETITORS.items():
        try:
            product = importlib.import_module(module).product
            competitor = (name, functools.partial(product, **how))
            measure(
                competitor, 256, layouts=layouts, device=device, seconds=0.01, whole_calls=False
            )
            if name == EMULATION and not _cublas_product.emulates():
                competitor = (f"{name} (float32)", competitor[1])
        except ImportError as error:
            left_out(name, f"{error}: pip install {packages}")
        except Exception as error:  # any error of a compiler
            left_out(name, str(error).strip().partition("\n")[0])
        else:
            yield competitor


def left_out(name: str, why: str) -> None:
    print(f"{name} is left out: {why}", file=sys.stderr)
