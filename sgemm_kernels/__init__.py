"""Single-precision matrix products, computed by any kernel of an optimization ladder.

>>> import numpy as np, sgemm_kernels
>>> A = np.ones((3, 2), np.float32)
>>> B = np.ones((2, 4), np.float32)
>>> sgemm_kernels.run('tile2d', A, B, device='cpu').sum()
np.float32(24.0)

``run`` computes ``alpha * A @ B + beta * C`` with the kernel that you name, on a GPU or on the CPU.
``variants`` lists the kernels, ``devices`` the devices, and ``build_info`` the build settings.
``memory`` reports the pinned memory that holds results, and ``empty`` allocates arrays in it.
``run_many`` computes products of different shapes in one call. ``gram`` multiplies matrices by
their own transposes. ``prepare`` prepares a matrix B for many products.
``measure`` checks and times kernels, and ``judge`` compares two such runs. ``trace`` counts and
draws a kernel's memory accesses, line by line; ``explain`` writes a page about its bottleneck.
``kernel`` compiles a custom kernel, which you can pass instead of a variant's name. ``learn`` shows
levels to learn from. ``prove`` lets ``auto`` use a GPU's tensor cores. ``get_include`` and
``get_library_dir`` locate the C library. ``python -m sgemm_kernels info`` checks this machine.
"""

from importlib import import_module
from os import environ
from typing import TYPE_CHECKING
from warnings import warn

from ._catalog import BuildInfo, Device, Variant, build_info, devices, variants
from ._core import (
    DeviceArray,
    DeviceError,
    Error,
    OutOfMemoryError,
    PreparedMatrix,
    UnsupportedVariantError,
    _read_kept_proofs,
    empty,
    gram,
    prepare,
    run,
    run_many,
)
from ._cores import check_asked
from ._library import get_include, get_library_dir
from ._memory import Memory, memory
from ._plans import use_kept
from ._version import __version__ as __version__

__all__ = [
    "Access",
    "BuildInfo",
    "Candidate",
    "CompileError",
    "Device",
    "DeviceArray",
    "DeviceError",
    "Diagnosis",
    "Error",
    "Explanation",
    "Finding",
    "Kernel",
    "Measurement",
    "Memory",
    "NoCompilerError",
    "OutOfMemoryError",
    "PreparedMatrix",
    "Proof",
    "Results",
    "Trace",
    "Tuning",
    "UnsupportedVariantError",
    "Variant",
    "Verdict",
    "build_info",
    "devices",
    "empty",
    "explain",
    "get_include",
    "get_library_dir",
    "gram",
    "judge",
    "kernel",
    "learn",
    "measure",
    "memory",
    "prepare",
    "prove",
    "recorded_file",
    "run",
    "run_many",
    "source",
    "trace",
    "tune",
    "variants",
]

check_asked()
use_kept()
_read_kept_proofs()
del check_asked, use_kept, _read_kept_proofs

if TYPE_CHECKING:
    from .custom.compiler import CompileError, NoCompilerError
    from .custom.diagnosis import Diagnosis, Finding
    from .custom.kernel import Kernel
    from .custom.load import kernel, source
    from .custom.tuning import tune
    from .custom.tuning_result import Candidate, Tuning
    from .explaining.accesses import Access
    from .explaining.pages import Explanation, explain
    from .explaining.trace import Trace, trace
    from .learning.course import learn
    from .measuring.compare import Verdict, judge
    from .measuring.measure import measure
    from .measuring.measurement import Measurement
    from .measuring.recorded import recorded_file
    from .measuring.results import Results
    from .proving.proof import Proof
    from .proving.prove import prove

# Imported on first use, so that `import sgemm_kernels` stays fast. IPython looks up
# load_ipython_extension for %load_ext.
_LATER = {
    "Access": "explaining.accesses",
    "Candidate": "custom.tuning_result",
    "CompileError": "custom.compiler",
    "Diagnosis": "custom.diagnosis",
    "Explanation": "explaining.pages",
    "Finding": "custom.diagnosis",
    "Kernel": "custom.kernel",
    "Measurement": "measuring.measurement",
    "NoCompilerError": "custom.compiler",
    "Proof": "proving.proof",
    "Results": "measuring.results",
    "Trace": "explaining.trace",
    "Tuning": "custom.tuning_result",
    "Verdict": "measuring.compare",
    "explain": "explaining.pages",
    "judge": "measuring.compare",
    "kernel": "custom.load",
    "learn": "learning.course",
    "load_ipython_extension": "cli.notebook",
    "measure": "measuring.measure",
    "prove": "proving.prove",
    "recorded_file": "measuring.recorded",
    "source": "custom.load",
    "trace": "explaining.trace",
    "tune": "custom.tuning",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f".{_LATER[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})


def _enable_torch(variant: str) -> None:
    try:
        import_module(".torch", __name__).enable(variant)
    except (ImportError, OSError, ValueError, Error) as error:
        warn(
            f"SGEMM_KERNELS_TORCH={variant} has no effect, and PyTorch multiplies as before: "
            f"{error}",
            RuntimeWarning,
            stacklevel=3,
        )


if environ.get("SGEMM_KERNELS_TORCH", "0") not in ("", "0"):
    _enable_torch(environ["SGEMM_KERNELS_TORCH"])
del environ
