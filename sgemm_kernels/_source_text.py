"""The lines of a source file."""

from collections.abc import Sequence


def lines_of(text: str) -> list[str]:
    """The lines of a source, as compilers count them: no other character ends one."""
    return text.replace("\r\n", "\n").split("\n")


def line_at(lines: Sequence[str], number: int) -> str:
    """The line of that number, from 1; empty where there is none, as #line may say."""
    return lines[number - 1] if number <= len(lines) else ""
