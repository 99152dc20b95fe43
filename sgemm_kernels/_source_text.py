"""The lines of a source file."""

from collections.abc import Sequence


def lines_of(text: str) -> list[str]:
    """The lines of a source as compilers count them: only line feeds end a line."""
    return text.replace("\r\n", "\n").split("\n")


def line_at(lines: Sequence[str], number: int) -> str:
    """Line ``number``, from 1. Empty if it does not exist, which #line makes possible."""
    return lines[number - 1] if number <= len(lines) else ""
