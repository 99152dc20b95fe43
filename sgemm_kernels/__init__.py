"""Single-precision matrix products, by every kernel of one ladder.

>>> import numpy as np, sgemm_kernels
>>> A = np.ones((3, 2), np.float32)
>>> B = np.ones((2, 4), np.float32)
>>> sgemm_kernels.run('tile2d', A, B, device='cpu').sum()
np.float32(24.0)

``run`` computes ``alpha * A @ B + beta * C`` with the kernel that you name, on a GPU or on the
CPU; ``variants`` lists the kernels, ``devices`` the machines that can serve, and ``build_info``
says how this package was compiled. ``memory`` shows the memory that results live in, and ``empty``
gives arrays in it. ``measure`` times kernels, each checked before, and ``judge`` says of two such
runs what became faster or slower; ``trace`` counts what a kernel asks of memory, line by line, and
draws it; ``explain`` says on a page what limits it. ``kernel`` compiles one of your own, which then
stands wherever a variant's name does.
``python -m sgemm_kernels info`` examines the machine.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ._catalog import BuildInfo, Device, Variant, build_info, devices, variants
from ._core import (
    DeviceArray,
    DeviceError,
    Error,
    OutOfMemoryError,
    UnsupportedVariantError,
    empty,
    run,
)
from ._cores import set_cores
from ._memory import Memory, memory, set_first_limit
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
    "judge",
    "kernel",
    "measure",
    "memory",
    "recorded_file",
    "run",
    "source",
    "trace",
    "tune",
    "variants",
]

set_first_limit()
set_cores()
use_kept()
del set_first_limit, set_cores, use_kept

if TYPE_CHECKING:
    from .custom.compiler import CompileError, NoCompilerError
    from .custom.diagnosis import Diagnosis, Finding
    from .custom.kernel import Kernel, kernel, source
    from .custom.tuning import tune
    from .custom.tuning_result import Candidate, Tuning
    from .explaining.accesses import Access
    from .explaining.pages import Explanation, explain
    from .explaining.trace import Trace, trace
    from .measuring.compare import Verdict, judge
    from .measuring.measure import measure
    from .measuring.measurement import Measurement
    from .measuring.recorded import recorded_file
    from .measuring.results import Results

# What only those need who measure or trace is imported when it is first asked for, and what IPython
# calls for %load_ext when it does.
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
    "Results": "measuring.results",
    "Trace": "explaining.trace",
    "Tuning": "custom.tuning_result",
    "Verdict": "measuring.compare",
    "explain": "explaining.pages",
    "judge": "measuring.compare",
    "kernel": "custom.kernel",
    "load_ipython_extension": "cli.notebook",
    "measure": "measuring.measure",
    "recorded_file": "measuring.recorded",
    "source": "custom.kernel",
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
