"""Shows a level, a verdict and the progress, as text and as HTML for notebooks."""

import html
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from .._catalog import kernel_place, variants
from .._table import table
from ..custom import compiler
from ..custom.diagnosis import Finding
from .drawing import svg
from .drawing import text as drawing_text
from .gain import gain_text
from .judge import Verdict, number
from .level import Level, levels
from .workspace import Progress

_WIDTH = 88
_KEPT = "\x1f"
"""Stands for a space that must not become the end of a line."""
_FINDINGS_SHOWN = 3
_LINES_SHOWN = 16
_GREEN, _RED, _GREY = "#1a7f37", "#d1242f", "#656d76"


def wrapped(text: str, indent: str = "") -> str:
    """Paragraphs of Markdown for a terminal: refilled, without marks. Code and the items of lists
    stay whole."""
    parts = []
    whole = re.sub(r"`([^`]+)`", lambda code: " ".join(code[1].split()).replace(" ", _KEPT), text)
    for paragraph in whole.replace("**", "").split("\n\n"):
        items = re.split(r"\n(?=- )", paragraph)
        parts.append(
            "\n".join(
                textwrap.fill(
                    re.sub(r"[ \n]+", " ", item),
                    _WIDTH,
                    break_long_words=False,
                    break_on_hyphens=False,
                    initial_indent=indent,
                    subsequent_indent=indent + ("  " if item.startswith("- ") else ""),
                )
                for item in items
            )
        )
    return "\n\n".join(parts).replace(_KEPT, " ")


def introduction(level: Level) -> str:
    """The level's text and drawing."""
    title = f"Level {level.number} of {len(levels())}: {level.title}"
    drawing = textwrap.indent(drawing_text(level), "    ")
    return (
        f"{title}\n{'=' * len(title)}\n{wrapped(level.text)}\n\n{drawing}\n\nLaunch: {level.launch}"
    )


def goals(level: Level) -> str:
    """The goal, for a terminal."""
    return "\n  ".join([f"Goal: {level.goals[0]}", *level.goals[1:]])


@dataclass(frozen=True, repr=False)
class Judgement:
    """A verdict with the progress. Prints as text, and as HTML in a notebook."""

    verdict: Verdict
    progress: Progress

    def __repr__(self) -> str:
        verdict = self.verdict
        lines = [textwrap.fill(self._headline(), _WIDTH)]
        lines += [""] if verdict.findings else []
        for finding in verdict.findings[:_FINDINGS_SHOWN]:
            if "\n" in finding.text:  # a compiler's messages
                lines += _compiler_lines(finding)
                continue
            lines.append(textwrap.fill(str(finding), _WIDTH, subsequent_indent="    "))
            if (text := verdict.line_of(finding)) is not None:
                lines.append(f"      {finding.line} | {text}")
        more = len(verdict.findings) - _FINDINGS_SHOWN
        lines += [f"… and {more} more"] if more > 0 else []
        if verdict.results:
            lines += ["", self._table()]
        if verdict.passed:
            lines += ["", wrapped(gain_text(verdict)), *_links(verdict)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        verdict = self.verdict
        colour = _GREEN if verdict.passed else _RED
        parts = [f'<p><b style="color: {colour}">{html.escape(self._headline())}</b></p>']
        for finding in verdict.findings[:_FINDINGS_SHOWN]:
            if "\n" in finding.text:
                said = "\n".join(_compiler_lines(finding))
                parts.append(f"<pre>{html.escape(said)}</pre>")
                continue
            parts.append(f"<p>{html.escape(str(finding))}")
            if (text := verdict.line_of(finding)) is not None:
                parts.append(f"<br><code>{finding.line} | {html.escape(text)}</code>")
            parts.append("</p>")
        if verdict.results:
            parts.append(f"<pre>{html.escape(self._table())}</pre>")
        if verdict.passed:
            words = [gain_text(verdict), *_links(verdict)]
            parts.append(f"<p>{'<br>'.join(map(html.escape, words))}</p>")
        parts.append(progress_html(self.progress))
        return "".join(parts)

    def _headline(self) -> str:
        verdict, level = self.verdict, self.verdict.level
        name = f"Level {level.number} of {len(levels())}, {level.title}"
        if verdict.passed:
            return (
                f"PASSED. {name}: {verdict.products} products of random sizes are right. "
                f"Progress: {self.progress.text}."
            )
        kind = verdict.findings[0].kind
        found = "the goal is not reached" if kind == "goal" else f"wrong ({kind})"
        return f"Not yet. {name}: {found}."

    def _table(self) -> str:
        rows = [
            (
                result.limit.count,
                number(result.value),
                result.goal,
                "reached" if result.passed else "not yet",
            )
            for result in self.verdict.results
        ]
        return table(("count", "yours", "goal", ""), rows)


def _compiler_lines(finding: Finding) -> list[str]:
    """A compiler's messages without the lines about the generated launcher."""
    lines = finding.text.splitlines()
    return [line for line in lines if "launch_of_" not in line][:_LINES_SHOWN]


def _links(verdict: Verdict) -> list[str]:
    """The files of the ladder's kernel with the idea, and of the page that explains it. An
    installed package has no page."""
    level = verdict.level
    rungs = {variant.name: variant.file for variant in variants()}
    file = rungs[level.rung]
    assert file is not None
    links = {
        f"The source of {level.rung}": compiler.headers() / kernel_place(file),
        "Read more": Path(__file__).parents[2] / "docs" / level.docs,
    }
    return [f"{words}: {path}" for words, path in links.items() if path.is_file()]


def progress_html(progress: Progress) -> str:
    """A box for each level: green if passed."""
    boxes = []
    for level in levels():
        done = level.name in progress.passed
        now = level == progress.current
        fill = _GREEN if done else "#bf8700" if now else "#d0d7de"
        title = html.escape(f"{level.number}. {level.title}")
        boxes.append(
            f'<span title="{title}" style="display: inline-block; width: 22px; height: 18px; '
            f"margin: 1px; border-radius: 3px; background: {fill}; color: "
            f'{"#fff" if done or now else "#1f2328"}; font-size: 11px; text-align: center">'
            f"{level.number}</span>"
        )
    return f"<div>{''.join(boxes)} &nbsp; {html.escape(progress.text)} levels passed</div>"


def level_html(level: Level, file: str) -> str:
    """The level's text, drawing, goal and cell to begin with."""
    paragraphs = []
    for paragraph in level.text.split("\n\n"):
        items = re.split(r"\n(?=- )", paragraph)
        if len(items) > 1 or items[0].startswith("- "):
            inner = "".join(f"<li>{_inline(item.removeprefix('- '))}</li>" for item in items)
            paragraphs.append(f"<ul>{inner}</ul>")
        else:
            paragraphs.append(f"<p>{_inline(paragraph)}</p>")
    title = html.escape(f"Level {level.number} of {len(levels())}: {level.title}")
    goal = html.escape(goals(level))
    return (
        f"<h3>{title}</h3>{''.join(paragraphs)}{svg(level)}<pre>{goal}</pre>"
        f'<p style="color: {_GREY}">Launch: <code>{html.escape(level.launch)}</code>. '
        f"{html.escape(file)}</p>"
    )


def _inline(markdown: str) -> str:
    text = html.escape(" ".join(markdown.split()))
    text = re.sub(r"`(.+?)`", r"<code>\1</code>", text)
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", text)


def finding_line(finding: Finding) -> str:
    """A finding in one line of a table."""
    return " ".join(str(finding).split())
