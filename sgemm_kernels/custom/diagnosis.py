"""The result of ``check`` and ``sanitize`` of a custom kernel."""

import html
from dataclasses import dataclass

from .._source_text import lines_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel or slows it down."""

    kind: str
    """The kind of mistake, from a fixed list: see docs/use/custom_kernels.md."""
    text: str
    """A sentence: what happens, where and when."""
    file: str | None = None
    """The file of ``line``: the kernel's own, or one that it includes."""
    line: int | None = None
    """The line number, from 1; None if the line is unknown."""
    array: str | None = None
    """'A', 'B', 'C', or the name of an array of the kernel."""
    threads: tuple[int, ...] = ()
    """The threads of the block that are involved, numbered along x first."""
    block: int | None = None
    harmless: bool = False
    """True if results are right and it only costs time."""

    @property
    def place(self) -> str:
        """'FILE:LINE', or an empty text."""
        return "" if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}{': ' if self.place else ''}{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """The findings. True if the kernel passed. Prints as text, in a notebook too."""

    kernel: str
    """Its name."""
    what: str
    """'check' or 'sanitize'."""
    device: str
    """The device that it ran on."""
    cases: int
    """How many products were computed."""
    seconds: float
    """The time that it took."""
    findings: tuple[Finding, ...]
    """Mistakes, the likeliest cause first, then findings that only cost time."""
    source: str
    """The kernel's text."""
    file: str
    """The name of its file."""

    @property
    def passed(self) -> bool:
        """True if nothing is wrong. Findings that only cost time do not count."""
        return all(finding.harmless for finding in self.findings)

    @property
    def summary(self) -> str:
        """The verdict in one line."""
        wrong = sum(not finding.harmless for finding in self.findings)
        verdict = "passed" if self.passed else f"{wrong} finding{'' if wrong == 1 else 's'}"
        return (
            f"{self.what} of {self.kernel} on {self.device}: {verdict} "
            f"({self.cases} products, {self.seconds:.1f} s)"
        )

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        parts = [self.summary]
        for finding in self.findings:
            parts.append(f"  {finding}")
            if (text := self._line(finding)) is not None:
                parts.append(f"      {finding.line} | {text}")
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        parts = [f"<p><b>{html.escape(self.summary)}</b></p>"]
        for finding in self.findings:
            parts.append(f"<p>{html.escape(str(finding))}")
            if (text := self._line(finding)) is not None:
                parts.append(f"<br><code>{finding.line} | {html.escape(text)}</code>")
            parts.append("</p>")
        return "".join(parts)

    def _line(self, finding: Finding) -> str | None:
        """The text of the finding's line, if it is in the kernel's own file."""
        lines = lines_of(self.source)
        if finding.line is None or finding.file != self.file or finding.line > len(lines):
            return None
        return lines[finding.line - 1]
