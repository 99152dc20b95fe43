"""Tables as text: for the terminal, for Markdown and for a notebook."""

import html
from collections.abc import Iterable, Sequence


def row(cells: Iterable[str], widths: Sequence[int]) -> str:
    """Cells padded to their widths, two spaces apart."""
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A header and rows as lines of text, each column as wide as its widest cell."""
    lines = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(row(line, widths) for line in lines)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same in Markdown: the first column begins at the left, the others end at the right."""
    rule = [":--", *("--:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


def as_html(
    title: str, header: Iterable[str], rows: Iterable[Iterable[str]], note: str = ""
) -> str:
    """The same in HTML, under a title and the lines of a note."""

    def cells(tag: str, texts: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)

    body = "".join(f"<tr>{cells('td', line)}</tr>" for line in rows)
    caption = "<br>".join(html.escape(line) for line in [title, *note.splitlines()] if line)
    return f"<table><caption>{caption}</caption><tr>{cells('th', header)}</tr>{body}</table>"
