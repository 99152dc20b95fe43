"""Formats text and tables for the terminal, Markdown and notebooks.

Names and messages may come from untrusted files. They must not control a terminal, break a table or
become markup.
"""

import html
import re
from collections.abc import Iterable, Sequence

_FIGURE = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?([*%x]|$)|-$|wrong$|not timed$|$")
"""Matches the start of a cell in a column of numbers; "-" means no value."""

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROL = re.compile(f"[{_CONTROLS}]")
_NOT_OF_A_LINE = re.compile(f"[{_CONTROLS}\t\n\u2028\u2029]")


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def printable(text: str) -> str:
    """Escapes control characters except newlines and tabs, for a terminal."""
    return _CONTROL.sub(_escaped, text)


def one_line(text: str) -> str:
    """Escapes control characters including newlines and tabs, for one line."""
    return _NOT_OF_A_LINE.sub(_escaped, text)


def markdown_text(text: str) -> str:
    """Escapes text for Markdown, so that it contains no tags."""
    return printable(text).replace("<", "&lt;")


def row(cells: Iterable[str], widths: Sequence[int], figures: Iterable[int] = ()) -> str:
    """Cells padded to their widths, two spaces apart. Number columns are right-aligned."""
    figures = set(figures)
    padded = (
        f"{cell:>{width}}" if index in figures else f"{cell:<{width}}"
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a header and rows as text, each column as wide as its widest cell. A column that
    contains only numbers is right-aligned, except for the first."""
    lines = [[one_line(cell) for cell in line] for line in (header, *rows)]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    figures = [
        index
        for index, (_, *cells) in enumerate(columns)
        if index > 0 and cells and all(_FIGURE.match(cell) for cell in cells)
    ]
    return "\n".join(row(line, widths, figures) for line in lines)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Formats a Markdown table. The first ``words`` columns are left-aligned, the others
    right-aligned."""
    rule = [":--" if index < words else "--:" for index in range(len(header))]
    names, *lines = (map(_markdown_cell, line) for line in (header, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, rule, *lines))


def _markdown_cell(cell: str) -> str:
    return markdown_text(one_line(cell)).replace("|", r"\|")


def as_html(
    title: str, header: Iterable[str], rows: Iterable[Iterable[str]], note: str = ""
) -> str:
    """Formats an HTML table with a title and a note."""

    def cells(tag: str, texts: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in rows)
    caption = "<br>".join(html.escape(line) for line in [title, *note.splitlines()] if line)
    return f"<table><caption>{caption}</caption><tr>{cells('th', header)}</tr>{body}</table>"
