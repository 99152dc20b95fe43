"""Turns exceptions and failed launches into findings with a line."""

import re
from dataclasses import replace

from .check import message_finding
from .child_process import ChildError, EndlessError
from .compiler import CompileError, Source
from .diagnosis import Finding
from .plain import Plain
from .plain_text import masked

_OF_LAUNCHES = {"overflow", "does not compile", "launch failed", "divergent barrier", "deadlock"}
_SPEC_WORDS = re.compile(r"block_tile|threads|cluster|shared memory")


def _line_of_launch(source: str, message: str) -> int | None:
    """The line of the KernelSpec or the launcher that caused a refused launch. The source has no
    comments."""
    named = _SPEC_WORDS.search(message)
    patterns = [rf"\b{named[0]}\b", r"\bKernelSpec\b"] if named else []
    for pattern in (*patterns, r"^\s*(RUNG|LAUNCHER)\("):
        found = re.search(pattern, source, re.MULTILINE)
        if found is not None:
            return source.count("\n", 0, found.end()) + 1
    return None


def finding_of(error: Exception, source: Source, seconds: float) -> Finding:
    """The finding for an exception. ``seconds`` is the time limit that was set."""
    if isinstance(error, EndlessError):
        return Finding("not finished", f"{error.doing or 'it'} was not done after {seconds:g} s")
    if isinstance(error, ChildError):
        return Finding("ended its process", error.what)
    if isinstance(error, CompileError):
        place = re.search(rf"(?<!\w){re.escape(source.file)}[:(](\d+)", str(error))
        line = None if place is None else int(place[1])
        return Finding("does not compile", str(error), file=source.file, line=line)
    return message_finding(str(error), source.file, "")


def with_hint(findings: list[Finding], plain: Plain) -> list[Finding]:
    """The findings about a plain kernel. The first one says what to pass if the kernel seems to be
    for whole tiles, or for a C of zeros."""
    wrong = [finding for finding in findings if not finding.harmless]
    if wrong and (wrong[0].kind, wrong[0].array) == ("uninitialized read", "C"):
        hint = "; if the host clears C before the kernel adds to it, pass accumulates=True"
        return _with_text(findings, wrong[0], hint)
    sizes = [re.search(r"M, N, K = (\d+), (\d+), (\d+)", finding.text) for finding in wrong]
    edges = [
        any(int(size) % of for size, of in zip(found.groups(), plain.tile, strict=True))
        for found in sizes
        if found is not None
    ]
    kinds = {finding.kind for finding in wrong}
    if any("exchanged in grid=" in finding.text for finding in wrong):
        return findings
    if plain.in_whole_tiles or kinds & _OF_LAUNCHES or len(edges) < len(wrong):
        return findings
    if not edges or not all(edges):
        return findings
    hint = "; if the kernel needs whole tiles, pass multiple_of=({}, {}, {})".format(*plain.tile)
    return _with_text(findings, wrong[0], hint)


def _with_text(findings: list[Finding], one: Finding, text: str) -> list[Finding]:
    return [replace(each, text=each.text + text) if each is one else each for each in findings]


def placed(finding: Finding, source: Source) -> Finding:
    """The finding, with the line of the KernelSpec or launcher if a launch failed.

    The CPU device gives line numbers without files. One beyond the end of the kernel's file is in a
    header of the package.
    """
    lines = source.text.count("\n") + 1
    if finding.file == source.file and finding.line is not None and finding.line > lines:
        text = f"{finding.text}; {source.file} ends at line {lines}: the line is in a header"
        return replace(finding, text=text, file=None, line=None)
    at_launch = finding.kind in ("launch failed", "scratch memory")
    if finding.line is not None or not (at_launch or "no kernel was launched" in finding.text):
        return finding
    code = masked(source.text)
    if finding.kind == "scratch memory":
        found = re.search(r"\b(scratch|counters)_take\(", code)
        line = None if found is None else code.count("\n", 0, found.start()) + 1
    else:
        line = _line_of_launch(code, finding.text)
    return finding if line is None else replace(finding, file=source.file, line=line)
