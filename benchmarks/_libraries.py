"""The other libraries' float32 products that experiments measure beside this package's."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Iterator

from sgemm_kernels import measure, variants
from sgemm_kernels._style import SERIES, Look
from sgemm_kernels.measuring.competitors import Competitor
from sgemm_kernels.measuring.measurement import TF32

COMPETITORS = {
    "Triton tf32x3": ("_triton_product", "torch triton", {"precision": "tf32x3"}),
    "Triton bf16x6": ("_triton_product", "torch triton", {"precision": "bf16x6"}),
    "CUTLASS SIMT": ("_cutlass_product", "nvidia-cutlass", {"kernel": "simt"}),
    "CUTLASS 3xTF32": ("_cutlass_product", "nvidia-cutlass", {"kernel": "three_tf32"}),
}
"""Names, each with the module that defines `product`, its packages, and its arguments."""

LOOKS = {
    name: Look(colour, marker, line)
    for name, colour, marker, line in (
        ("cublas", SERIES[5], "s", "--"),
        ("cublas-tf32", SERIES[5], "v", ":"),
        ("Triton tf32x3", SERIES[1], "D", "-."),
        ("Triton bf16x6", SERIES[1], "^", "--"),
        ("CUTLASS SIMT", SERIES[0], "p", "--"),
        ("CUTLASS 3xTF32", SERIES[0], "P", ":"),
        ("JAX float32", SERIES[3], "1", "--"),
        ("JAX TF32 X3", SERIES[3], "2", ":"),
        ("JAX BF16 X6", SERIES[3], "3", "-."),
        ("JAX BF16 X9", SERIES[3], "4", ":"),
    )
}
"""Line styles, with a colour for each project."""


def libraries(device: str) -> Iterator[tuple[str, str | Competitor | None]]:
    """Each library as `measure` takes it. If it cannot run here, prints why and yields None."""
    missing = next(v.unavailable for v in variants() if v.name == "cublas")
    for name in ("cublas", TF32):
        yield name, left_out(name, missing) if missing else name
    for name, (module, packages, how) in COMPETITORS.items():
        try:
            product = importlib.import_module(module).product
            competitor = functools.partial(product, **how)
            measure((name, competitor), 256, device=device, seconds=0.01, whole_calls=False)
        except ImportError as error:
            yield name, left_out(name, f"{error}: pip install {packages}")
        except Exception as error:  # any error of a compiler
            yield name, left_out(name, str(error).strip().partition("\n")[0])
        else:
            yield name, competitor


def left_out(name: str, why: str) -> None:
    print(f"{name} is left out: {why}", file=sys.stderr)
