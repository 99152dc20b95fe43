"""Adds tables of all calls and shared arrays to the assembly of a traced build.

The access trace counts a kernel's memory accesses by source line. The compiler inserts a call at
each access. The function has its return address, but only the compiler can map that to a line.
So the kernels are compiled to assembly with line directives, and this module adds two tables. One
maps the return address of every call to its file and line. The other has the address, the size and
the name of every shared array.
"""

from __future__ import annotations

import re
from collections.abc import Collection

NAME_BYTES = 24  # OPERAND_BYTES in csrc/emulator/access_trace/access_trace.h

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+.*?([^"/]+)"(?!.*")')  # a number, folders, the name
_LINE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
# A loop without a statement, after which the compiler has removed everything: its label, its jump.
_EMPTY_LOOP = re.compile(r"^((\.L\w+):\n(?:\t\..*\n)*)\t(jmp|b)\t\2$", re.MULTILINE)
_STEP = "__sanitizer_cov_trace_pc"
_CALL = re.compile(r"\s*(call|callq|bl|blr)\s")
# A variable of a function, as C++ names it: _ZZ, the function, E, the name's length, the name.
_ARRAY = re.compile(r"\s*\.size\s+(_ZZ[\w$]*E\d+([^\W\d][\w$]*)),\s*(\d+)")

# A variable of the file, and the section or the directive that reserves its memory.
_SECTION = re.compile(r"\s*(?:\.section\s+(\.[\w.]+)|\.(data|bss|text))\b")
_READ_ONLY = (".rodata", ".data.rel.ro")
"""Sections with a function's tables of constants, which are no shared arrays."""
_COMMON = re.compile(r"\s*\.comm\s+([A-Za-z_]\w*),(\d+)(,\d+)?$")
_SIZE = re.compile(r"\s*\.size\s+([A-Za-z_]\w*),\s*(\d+)")
_CONTENT = re.compile(
    r"\s*\.(?:zero|skip|byte|value|short|hword|word|long|quad|xword|string|ascii)"
)
_NOT_OF_FILE = ("_ZZ", "_ZGV", "_ZTI", "_ZTS", "_ZTV")
"""How names begin of variables of a function, and of the compiler's own."""


def _plain_name(symbol: str) -> str:
    """The last part of a name that C++ mangles."""
    rest, name = symbol.removeprefix("_ZN").removeprefix("_Z"), symbol
    while part := re.match(r"L?(\d+)", rest):
        end = part.end() + int(part[1])
        name, rest = rest[part.end() : end], rest[end:]
    return name


def _with_device_arrays(assembly: str, apart: int) -> str:
    """The assembly with a table of the file's own variables, and unused bytes after each."""
    lines, arrays = [], []
    section = size = ""
    in_array = False
    for text in assembly.splitlines():
        if in_array and not _CONTENT.match(text):
            lines.append(f"\t.zero {apart}")
            in_array = False
        if found := _SECTION.match(text):
            section = found[1] or f".{found[2]}"
        elif (found := _SIZE.match(text)) and section in (".data", ".bss"):
            size = found[2]
        elif (found := _COMMON.match(text)) and not found[1].startswith(_NOT_OF_FILE):
            arrays.append((found[1], found[2]))
            text = f"\t.comm\t{found[1]},{int(found[2]) + apart}{found[3] or ''}"
        elif section in (".data", ".bss") and size and re.fullmatch(r"[A-Za-z_]\w*:", text):
            in_array = not text.startswith(_NOT_OF_FILE)
            if in_array:
                arrays.append((text[:-1], size))
            size = ""
        lines.append(text)
    lines.append('\t.section sgemm_device_arrays,"a"')
    for symbol, bytes_ in arrays:
        lines += _entry(symbol, bytes_, _plain_name(symbol))
    return "\n".join(lines) + "\n"


def _entry(symbol: str, size: str, name: str) -> list[str]:
    """An entry of a table of arrays. The name is cut between characters."""
    short = name.encode()[: NAME_BYTES - 1].decode(errors="ignore")
    return [
        f"\t.long {symbol} - ., {size}",
        f'\t.ascii "{short}"',
        f"\t.zero {NAME_BYTES - len(short.encode())}",
    ]


def annotate(assembly: str, apart: int = 0, own: Collection[str] = ()) -> str:
    """The assembly with the two tables that csrc/emulator/access_trace/access_trace.cpp reads.

    ``apart`` unused bytes are added after each shared array; then a third table has the variables
    of the file itself (``__device__``), and a fourth one, for each call, the line in the files
    ``own`` where code of another file was inlined; 0 if it is none.
    """
    if _STEP in assembly:  # every basic block calls it, but the compiler leaves out empty ones
        calls_step = {"jmp": f"call\t{_STEP}@PLT", "b": f"bl\t{_STEP}"}
        assembly = _EMPTY_LOOP.sub(
            lambda loop: f"{loop[1]}\t{calls_step[loop[3]]}\n\t{loop[3]}\t{loop[2]}", assembly
        )
    if apart:
        assembly = _with_device_arrays(assembly, apart)
    lines = []
    arrays = []
    files = {0: ""}
    section = ""
    file = line = calls = behind = 0
    own_line = 0  # since the function began
    for text in assembly.splitlines():
        if mark := _LINE.match(text):
            if int(mark[2]):  # 0: code without a line
                file, line = map(int, mark.groups())
                own_line = line if files[file] in own else own_line
        elif text == "\t.cfi_startproc":
            own_line = line if files[file] in own else 0
        elif name := _FILE.match(text):
            files[int(name[1])] = name[2]
        elif found := _SECTION.match(text):
            section = found[1] or f".{found[2]}"
        elif (array := _ARRAY.match(text)) and not section.startswith(_READ_ONLY):
            arrays.append(array.groups())
        if not _CALL.match(text):
            lines.append(text)
            if apart and arrays and text == f"{arrays[-1][0]}:":
                behind = len(lines) + 1  # after its contents, which are one line
            if len(lines) == behind:
                lines.append(f"\t.zero {apart}")
            continue
        calls += 1
        lines += [
            # Counts the compiler's own copies too.
            re.sub(r"\bmemcpy\b", "traced_memcpy", text),
            f".Lsgemm_call{calls}:",
            # ?: if the linker drops one of two equal functions, it also drops these entries
            '\t.pushsection sgemm_call_sites,"a?"',
            f"\t.long .Lsgemm_call{calls} - ., .Lsgemm_file{file} - ., {line}",
            "\t.popsection",
        ]
        if apart:
            lines += [f'\t.pushsection sgemm_own_lines,"a?"\n\t.long {own_line}\n\t.popsection']
    lines.append("\t.section .rodata")
    for number, path in files.items():
        lines += [f".Lsgemm_file{number}:", f'\t.asciz "{path}"']
    lines.append('\t.section sgemm_shared_arrays,"a"')
    for symbol, name_of_array, size in arrays:
        lines += _entry(symbol, size, name_of_array)
    return "\n".join(lines) + "\n"
