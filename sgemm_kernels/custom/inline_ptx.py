"""Inline PTX for the CPU device: an `asm` statement becomes a call of a function with its operands.

Statements with an instruction that the CPU device lacks stay, and plain_text.py refuses them.
"""

import re
from collections.abc import Iterator

from .plain_text import after, masked

INSTRUCTIONS = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "plain_mma_m16n8k16",
}
"""The functions of csrc/emulator/plain/plain_tensor_cores.h. Each has a parameter for each operand
of the instruction, in the same order."""

_ASM = re.compile(r"\b(?:asm|__asm__)\b\s*(?:volatile\b|__volatile__\b)?\s*(?=\()")
_STRING = re.compile(r'"((?:\\.|[^"\\])*)"')
_INSTRUCTION = re.compile(r"\s*([\w.:]+)\s+([^;]*);?\s*")
_OPERAND = re.compile(r'\s*"[^"]*"\s*(\(.*\))\s*', re.DOTALL)


def as_calls(text: str) -> str:
    """The text with calls in place of the `asm` statements that the CPU device can run. The number
    of lines stays."""
    hidden = masked(text)
    parts: list[str] = []
    end = 0
    for found in _ASM.finditer(hidden):
        closes = after(hidden, found.end(), "(", ")")
        inner = slice(found.end() + 1, closes - 1)
        call = _call(text[inner], hidden[inner])
        if call is not None:
            lines = text.count("\n", found.start(), closes) - call.count("\n")
            parts += [text[end : found.start()], call, "\n" * lines]
            end = closes
    return "".join([*parts, text[end:]])


def _call(text: str, hidden: str) -> str | None:
    """The call for what is between the parentheses of an `asm` statement."""
    template, *lists = _split(text, hidden, ":")
    found = _INSTRUCTION.fullmatch(re.sub(r"\\[nt]", " ", "".join(_STRING.findall(template))))
    if found is None or found[1] not in INSTRUCTIONS:
        return None
    values: list[str] = []
    for operands in lists[:2]:  # outputs and inputs; the third list has clobbers
        for operand in _split(operands, masked(operands), ","):
            value = _OPERAND.fullmatch(operand)
            values += [value[1]] if value else []
    numbers = re.findall(r"%(\d+)", found[2])
    if any(int(number) >= len(values) for number in numbers):
        return None
    return f"{INSTRUCTIONS[found[1]]}({', '.join(values[int(number)] for number in numbers)})"


def _split(text: str, hidden: str, separator: str) -> Iterator[str]:
    """The parts of a text between separators outside brackets and strings."""
    depth = begin = 0
    for at, letter in enumerate(hidden):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == separator and depth == 0:
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]
