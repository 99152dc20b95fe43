"""Adds tables of all calls and shared arrays to the assembly of a counting build.

csrc/count/ counts a kernel's memory accesses by source line. The compiler inserts a function call
at each access. The function has its return address, but only the compiler can map that to a line.
So the kernels are compiled to assembly with line directives, and this module adds two tables. One
maps the return address of every call to its file and line. The other has the address, the size and
the name of every shared array.
"""

from __future__ import annotations

import re

NAME_BYTES = 24  # OPERAND_BYTES in csrc/count/count.h

_FILE = re.compile(r'\s*\.file\s+(\d+)\s+.*?([^"/]+)"(?!.*")')  # a number, folders, the name
_LINE = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)")
_CALL = re.compile(r"\s*(call|callq|bl|blr)\s")
# A variable of a function, as C++ names it: _ZZ, the function, E, the name's length, the name.
_ARRAY = re.compile(r"\s*\.size\s+(_ZZ[\w$]*E\d+([^\W\d][\w$]*)),\s*(\d+)")


def annotate(assembly: str, apart: int = 0) -> str:
    """The assembly with the two tables that csrc/count/count.cpp reads.

    ``apart`` unused bytes are added after each shared array.
    """
    lines = []
    arrays = []
    files = {0: ""}
    file = line = calls = behind = 0
    for text in assembly.splitlines():
        if mark := _LINE.match(text):
            if int(mark[2]):  # 0: code without a line
                file, line = map(int, mark.groups())
        elif name := _FILE.match(text):
            files[int(name[1])] = name[2]
        elif array := _ARRAY.match(text):
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
            re.sub(r"\bmemcpy\b", "count_memcpy", text),
            f".Lsgemm_call{calls}:",
            # ?: if the linker drops one of two equal functions, it also drops these entries
            '\t.pushsection sgemm_call_sites,"a?"',
            f"\t.long .Lsgemm_call{calls} - ., .Lsgemm_file{file} - ., {line}",
            "\t.popsection",
        ]
    lines.append("\t.section .rodata")
    for number, path in files.items():
        lines += [f".Lsgemm_file{number}:", f'\t.asciz "{path}"']
    lines.append('\t.section sgemm_shared_arrays,"a"')
    for symbol, name_of_array, size in arrays:
        # Cut between characters.
        short = name_of_array.encode()[: NAME_BYTES - 1].decode(errors="ignore")
        lines += [f"\t.long {symbol} - ., {size}", f'\t.ascii "{short}"']
        lines.append(f"\t.zero {NAME_BYTES - len(short.encode())}")
    return "\n".join(lines) + "\n"
