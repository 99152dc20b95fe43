"""The machine instructions of a compiled kernel's main loop."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from _sweep import nvcc

_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;")
_JUMP = re.compile(r"\bBRA\b.*?\b0x([0-9a-f]+)")
_FFMA = re.compile(r"FFMA R\d+, (R\w+)(\.reuse)?, (R\w+)(\.reuse)?, (R\w+)(\.reuse)?$")


def main_loop(program: Path) -> dict[str, Any]:
    """Figures of the loop of a compiled kernel; null where cuobjdump is missing or fails."""
    found = shutil.which("cuobjdump") or shutil.which("cuobjdump", path=Path(nvcc()).parent)
    if found is None:
        return dict.fromkeys(figures([]))
    process = subprocess.run([found, "-sass", program], capture_output=True, text=True, check=False)
    return figures(main_loop_of(process.stdout))


def main_loop_of(text: str) -> list[str]:
    """The instructions of the loop with the largest share of FFMAs, which among nested loops is the
    inner one; none if the code has no FFMAs, or cannot be read."""
    code = [(int(address, 16), what) for address, what in _INSTRUCTION.findall(text)]
    loops = []
    for end, what in code:
        jump = _JUMP.search(what)
        if jump and int(jump[1], 16) < end:
            loop = [each for at, each in code if int(jump[1], 16) <= at <= end]
            if any("FFMA" in each for each in loop):
                loops.append(loop)
    return max(loops, key=lambda loop: sum("FFMA" in each for each in loop) / len(loop), default=[])


def figures(loop: list[str]) -> dict[str, Any]:
    """Figures of a loop that explain its speed.

    `ffma_share` is FFMAs over all instructions. The next two are shares of the FFMAs:
    `reuse_share` with an operand that stays in the reuse cache for the next, `conflict_share` with
    three operands that all come from one of the two register banks, all even or all odd, and not
    from that cache
    (Jia et al., 'Dissecting the NVIDIA Volta GPU architecture via microbenchmarking', 2018).
    `load_distance` counts the instructions from the last load of global memory into registers to
    the first store into shared memory after it.
    """
    ffmas = [each for each in loop if "FFMA" in each]
    loads = [at for at, each in enumerate(loop) if "LDG." in each]
    stores = [
        at
        for at, each in enumerate(loop)
        if re.search(r"\bSTS\b", each) and loads and at > loads[-1]
    ]
    return {
        "loop_instructions": len(loop) or None,
        "ffma_share": len(ffmas) / len(loop) if loop else None,
        "reuse_share": sum(".reuse" in each for each in ffmas) / len(ffmas) if ffmas else None,
        "conflict_share": conflicts(loop) / len(ffmas) if ffmas else None,
        "load_distance": stores[0] - loads[-1] if stores else None,
    }


def conflicts(loop: list[str]) -> int:
    """The FFMAs whose three operands must be read from one register bank."""
    count = 0
    held: list[str] = ["", "", ""]  # the reuse cache's content for each operand
    for each in loop:
        match = _FFMA.search(each)
        if match is None:
            held = ["", "", ""]
            continue
        operands, flags = match.groups()[::2], match.groups()[1::2]
        read = {new for new, old in zip(operands, held, strict=True) if new not in (old, "RZ")}
        banks = [int(register[1:]) % 2 for register in read]
        count += len(banks) == 3 and len(set(banks)) == 1
        held = [each if flag else "" for each, flag in zip(operands, flags, strict=True)]
    return count
