"""Compiles a custom kernel for a GPU to find mistakes. NVRTC needs no GPU."""

import re
from typing import Any

from . import plain_text
from .cases import falls_back
from .compiler import CompileError, NoCompilerError, Source
from .diagnosis import Finding
from .expressions import constants_of
from .host_code import host_uses
from .nvrtc import BeyondNvrtcError, compile_log
from .plain import static_bytes
from .reachable import only_for

_CAPABILITY = 90
_FUNCTION = re.compile(
    r"Function properties for (\S+)\n"
    r".*?(\d+) bytes spill stores, (\d+) bytes spill loads(?:\n.*Used (\d+) registers)?"
)
_TUNABLE = re.compile(r"\bTUNABLE\(\s*\w+\s*,((?:[^()]|\([^()]*\))*)\)")
_STATIC_MOST = 48 * 1024
"""Bytes of static shared memory per block on every GPU."""
_MOST = 227 * 1024
"""Bytes of shared memory per block on compute capability 9.0."""


def findings(own: Any) -> list[Finding]:
    """Runs in a child process. Finds host code in device code, what NVRTC refuses, and register
    spills of each kernel. The last two need NVRTC, and that it has all headers."""
    source: Source = own.made_of
    text, plain = source.whole(), source.plain
    uses = host_uses(text if plain is None else only_for(text, plain.call), source.file)
    if uses:
        return [Finding("does not compile", use.text, use.file, use.line) for use in uses]
    try:
        log = compile_log(source, own.symbol, _CAPABILITY, own.variant.architecture_specific)
    except (NoCompilerError, BeyondNvrtcError):
        return []
    except CompileError as error:
        place = re.search(rf"(?<!\w){re.escape(source.file)}[:(](\d+)", str(error))
        line = None if place is None else int(place[1])
        return [Finding("does not compile", str(error), file=source.file, line=line)]
    return spills(log)


def spills(log: str) -> list[Finding]:
    """A finding for each function with register spills. Of a template, its worst instance."""
    worst: dict[str, tuple[int, str]] = {}
    for mangled, stores, loads, registers in _FUNCTION.findall(log):
        name, spilled = plain_name(mangled), max(int(stores), int(loads))
        worst[name] = max(worst.get(name, (0, "")), (spilled, registers))
    found = []
    for name, (spilled, registers) in worst.items():
        if spilled > 0:
            used = f" (a thread has {registers})" if registers else ""
            text = f"{name}: {spilled} bytes do not fit in registers{used} and are in local memory "
            text += "instead (sm_90): use fewer variables per thread, or a smaller block"
            found.append(Finding("register spills", text, harmless=True))
    return found


def plain_name(mangled: str) -> str:
    """A function's name without namespaces, template arguments and parameters: each part of the
    mangled name follows its length."""
    nested = mangled.startswith("_ZN")
    rest = mangled[3 if nested else 2 :] if mangled.startswith("_Z") else ""
    name = mangled
    while length := re.match(r"L?(\d+)", rest):
        end = length.end() + int(length[1])
        name, rest = rest[length.end() : end], rest[end:] if nested else ""
    return name


def _most_static(source: Source) -> int:
    """The bytes of static shared arrays in the function that has most of them, as far as their
    declarations tell."""
    plain = source.plain
    if plain is not None:
        return plain.static_bytes
    text = _TUNABLE.sub(r"(\1)", plain_text.masked(source.text))
    names = constants_of(text, source.defines)
    functions = plain_text.functions(source.text)
    return max(static_bytes(function.body, names) for function in functions)


def too_much_shared(static: int, all_bytes: int, source: Source) -> list[Finding]:
    """Whether no GPU has so much shared memory for a block.

    ``static`` are those of all kernels of the file.
    """
    code = plain_text.code_of(source.text)
    if falls_back(source):
        static = 0
    elif len(plain_text.functions(source.text)) > 1:
        static = _most_static(source)
    if static > _STATIC_MOST:
        text = f"static shared arrays of {static} bytes: a GPU allows {_STATIC_MOST} per "
        text += "block; dynamic shared memory may be larger"
    elif all_bytes > _MOST:
        text = f"{all_bytes} bytes of shared memory per block: an H100 has {_MOST}, older GPUs less"
    else:
        return []
    found = re.search(r"__shared__" if static > _STATIC_MOST else r"KernelSpec", code)
    line = None if found is None else code.count("\n", 0, found.start()) + 1
    return [Finding("too much shared memory", text, file=source.file, line=line)]
