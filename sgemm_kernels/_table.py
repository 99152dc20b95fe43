"""Tables as text: for the terminal, for Markdown and for a notebook."""

import html
import re
from collections.abc import Iterable, Sequence

_FIGURE = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?([*%x]|$)|-$|wrong$|not timed$|$")
"""How the cell of a column of figures begins; a dash where there is none."""


def row(cells: Iterable[str], widths: Sequence[int], figures: Iterable[int] = ()) -> str:
    """Cells padded to their widths, two spaces apart; columns of figures end at the right."""
    figures = set(figures)
    padded = (
        f"{cell:>{width}}" if index in figures else f"{cell:<{width}}"
        for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A header and rows as lines of text, each column as wide as its widest cell. A column that
    holds figures alone ends at the right; the first never does."""
    lines = [header, *rows]
    columns = list(zip(*lines, strict=True))
    widths = [max(map(len, column)) for column in columns]
    figures = [
        index
        for index, (_, *cells) in enumerate(columns)
        if index > 0 and cells and all(_FIGURE.match(cell) for cell in cells)
    ]
    return "\n".join(row(line, widths, figures) for line in lines)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """The same in Markdown: the first columns, of words, begin at the left; the others end at the
    right."""
    rule = [":--" if index < words else "--:" for index in range(len(header))]
    names, *lines = ([cell.replace("|", r"\|") for cell in line] for line in (header, *rows))
    return "\n".join(f"| {' | '.join(line)} |" for line in (names, rule, *lines))


def as_html(
    title: str, header: Iterable[str], rows: Iterable[Iterable[str]], note: str = ""
) -> str:
    """The same in HTML, under a title and the lines of a note."""

    def cells(tag: str, texts: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in rows)
    caption = "<br>".join(html.escape(line) for line in [title, *note.splitlines()] if line)
    return f"<table><caption>{caption}</caption><tr>{cells('th', header)}</tr>{body}</table>"
