"""A rung as one CUDA file: its kernel, the headers that it includes, and a ``main``."""

import posixpath
import re
from importlib import resources

from .._catalog import Variant, kernel_place
from .._launches import launches
from .preprocessor import pruned

DEFINED = {
    "__CUDACC__": True,
    "__cplusplus": True,
    "__GNUC__": True,
    "CUDART_VERSION": True,
    "__CUDACC_RTC__": False,
    "__AMDGCN_WAVEFRONT_SIZE": False,
    "SGEMM_TRACED": False,
    "SGEMM_CUDA": False,
    "SGEMM_FUSED": False,
    "SGEMM_FUSED_TOO": False,
    "SGEMM_HIP": False,
    "SGEMM_DEFERRED_ASYNC": False,
    "SGEMM_CUSTOM": False,
    "SGEMM_SANITIZED": False,
}
"""Whether a macro is defined when nvcc compiles the file. Conditions on other macros stay."""

_UNUSED = "base/gpu.h"
"""A header that status.h includes for other files; no rung uses it."""

_OF_MAIN = ("algorithm", "dlfcn.h", "math.h", "random", "stdarg.h", "stdio.h", "stdlib.h", "vector")
_NO_WARNING = "\n#pragma nv_diag_suppress 177 // no rung uses every helper of the headers\n"
_INCLUDE = re.compile(r'^#include (?:"(.+?)"|<(.+?)>).*\n', re.MULTILINE)
_GUARD = re.compile(r"^#ifndef (\w+)\n#define \1\n(.*)^#endif[^\n]*\n\Z", re.MULTILINE | re.DOTALL)
_HEAD = re.compile(r"(?://.*\n)+")


def standalone_source(rung: Variant) -> str:
    """The text of the file. Its first lines say how to compile it."""
    sections: dict[str, str] = {}
    system = set(_OF_MAIN)
    launch = launches().get(rung.name)
    assert rung.file is not None
    _add(kernel_place(rung.file), sections, system)
    *headers, (file, kernel) = sections.items()
    head = _HEAD.match(kernel)
    assert head is not None
    major, minor = rung.min_compute_capability
    template = _read("custom/standalone_main.cu.in")
    values = {"NAME": rung.name, "CAPABILITY": f"{major}{minor}"}
    if launch is not None:
        values["GRID"], values["BLOCK"] = launch["grid"], launch["block"].strip("()")
        values["SHARED"] = launch.get("dynamic_shared", "0")
    for word, value in values.items():
        template = template.replace(f"@{word}@", value)
    main = pruned(
        template,
        {
            "PLAIN": launch is not None,
            "DYNAMIC": launch is not None and "dynamic_shared" in launch,
            "FALLS_BACK_FOR_SHORT_SUMS": "gemm/tensor_cores/error_check.h" in sections,
            "ARCHITECTURE_SPECIFIC": rung.architecture_specific,
        },
    )
    text = [
        f"{_usage(rung)}//\n{head[0]}",
        "".join(f"#include <{name}>\n" for name in sorted(system)),
        "" if launch else _NO_WARNING,
        *(_title(f"csrc/{name}") + header for name, header in headers),
        _title(f"csrc/{file}") + kernel[head.end() :],
        _title("the check and the timing") + main,
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text))


def _usage(rung: Variant) -> str:
    """The head comment: how to compile and run the file."""
    name = rung.name
    major, minor = rung.min_compute_capability
    only = rung.architecture_specific
    number = f"{major}{minor}a"
    arch = f"-gencode arch=compute_{number},code=sm_{number}" if only else "-arch=native"
    return f"""\
// {name}: {rung.summary}.
// C = A @ B in single precision; checked against a CPU loop, and timed beside cuBLAS.
//
//     nvcc -O3 {arch} {name}.cu -o {name} && ./{name} 4096
//
// Other sizes: ./{name} M N K. The exit status is 1 if a result is wrong.
// GPUs: compute capability {major}.{minor} {"and no other" if only else "or newer"}.
// cuBLAS is opened at run time, if it is installed; -lcublas is not needed.
// If nvcc rejects designated initializers, add -std=c++20.
// Written by: sgemm-kernels export {name}
"""


def _title(text: str) -> str:
    return f"// {'-' * 66} {text}\n\n"


def _add(name: str, sections: dict[str, str], system: set[str]) -> None:
    """Adds the pruned text of a file of csrc to ``sections``, after the files that it includes.
    Adds the system headers to ``system``."""
    text = pruned(_GUARD.sub(r"\2", _read(name)), DEFINED)
    for ours, other in _INCLUDE.findall(text):
        if other:
            system.add(other)
            continue
        header = posixpath.normpath(f"{posixpath.dirname(name)}/{ours}")
        if header not in sections and header != _UNUSED:
            _add(header, sections, system)
    sections[name] = _INCLUDE.sub("", text)


def _read(name: str) -> str:
    csrc = resources.files("sgemm_kernels") / "csrc"
    return csrc.joinpath(name).read_text(encoding="utf-8")
