"""Compiles a custom kernel for a GPU to find mistakes. NVRTC needs no GPU."""

import re
from typing import Any

from .compiler import CompileError, NoCompilerError, Source
from .diagnosis import Finding
from .nvrtc import BeyondNvrtcError, compile_log

_CAPABILITY = 90
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_STATIC_MOST = 48 * 1024
"""Bytes of static shared memory per block on every GPU."""
_MOST = 227 * 1024
"""Bytes of shared memory per block on compute capability 9.0."""


def findings(own: Any) -> list[Finding]:
    """Runs in a child process. Finds what NVRTC refuses, and register spills; nothing without
    NVRTC, or if the file has several kernels."""
    source: Source = own.made_of
    try:
        log = compile_log(source, own.symbol, _CAPABILITY)
    except (NoCompilerError, BeyondNvrtcError):
        return []
    except CompileError as error:
        place = re.search(rf"(?<!\w){re.escape(source.file)}[:(](\d+)", str(error))
        line = None if place is None else int(place[1])
        return [Finding("does not compile", str(error), file=source.file, line=line)]
    spilled = max((max(map(int, found)) for found in _SPILLS.findall(log)), default=0)
    if spilled == 0:
        return []
    registers = max(map(int, _REGISTERS.findall(log)), default=0)
    text = f"{spilled} bytes do not fit in the {registers} registers of a thread and are in local "
    text += "memory instead (sm_90): use fewer variables per thread, or a smaller block"
    return [Finding("register spills", text, harmless=True)]


def too_much_shared(static_bytes: int, all_bytes: int, source: Source) -> list[Finding]:
    """Whether no GPU has so much shared memory for a block."""
    kernels = [text.count("__global__") for text in (source.text, *source.included.values())]
    if sum(kernels) > 1:  # each has a part of the arrays
        static_bytes = 0
    if static_bytes > _STATIC_MOST:
        text = f"static shared arrays of {static_bytes} bytes: a GPU allows {_STATIC_MOST} per "
        text += "block; dynamic shared memory may be larger"
    elif all_bytes > _MOST:
        text = f"{all_bytes} bytes of shared memory per block: an H100 has {_MOST}, older GPUs less"
    else:
        return []
    found = re.search(r"__shared__" if static_bytes > _STATIC_MOST else r"KernelSpec", source.text)
    line = None if found is None else source.text.count("\n", 0, found.start()) + 1
    return [Finding("too much shared memory", text, file=source.file, line=line)]
