"""What ``check`` and ``sanitize`` say of a kernel of your own."""

import html
from dataclasses import dataclass

from .._source_text import lines_of


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with a kernel, or that costs it time."""

    kind: str
    """The kind of finding, in a few fixed words: see docs/use/custom_kernels.md."""
    text: str
    """What happens, where and when, in a sentence."""
    file: str | None = None
    """The file of ``line``: the kernel's own, or one that it includes."""
    line: int | None = None
    """Where, from 1; None where no line can be told."""
    array: str | None = None
    """'A', 'B', 'C', or the name of an array of the kernel."""
    threads: tuple[int, ...] = ()
    """The threads of the block, numbered along x first."""
    block: int | None = None
    harmless: bool = False
    """Whether it only costs time."""

    @property
    def place(self) -> str:
        """'FILE:LINE', or nothing."""
        return "" if self.line is None else f"{self.file}:{self.line}"

    def __str__(self) -> str:
        return f"{self.place}{': ' if self.place else ''}{self.kind}: {self.text}"


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """What was found. True if the kernel passed; prints as text, in a notebook too."""

    kernel: str
    """Its name."""
    what: str
    """'check' or 'sanitize'."""
    device: str
    """Where it ran."""
    cases: int
    """How many products were computed."""
    seconds: float
    """What it took."""
    findings: tuple[Finding, ...]
    """What is wrong, the likeliest cause first, and then what only costs time."""
    source: str
    """The kernel's text, of which lines are shown."""
    file: str
    """The name of its file."""

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong; what only costs time is not."""
        return all(finding.harmless for finding in self.findings)

    @property
    def summary(self) -> str:
        """In one line."""
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
        """The line of the kernel's own file that a finding names."""
        lines = lines_of(self.source)
        if finding.line is None or finding.file != self.file or finding.line > len(lines):
            return None
        return lines[finding.line - 1]
