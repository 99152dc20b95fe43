"""Runs the programs of csrc/custom/ that check a kernel, and reads what they print."""

import re
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .cases import Case
from .check import message_finding
from .compiler import Source
from .diagnosis import Finding

_TWO_BARRIERS = "two barriers"
"""The program's kind for warps that wait at two barriers. A GPU takes them for one. It is a
divergent barrier, and harmless if nothing is wrong otherwise."""

_RECORD = re.compile(r"(case|counted|finding|failed)\t(.*)")
"""A record in the program's output. The kernel may have printed before it in the same line."""
_COUNTED = re.compile(r"\t".join([r"(\d{1,18})"] * 11))
_STOPPED = 3
"""The program's exit status after a finding that ended it."""
_GRACE_S = 1.0
"""How long the program may take to end itself after its time limit."""
_MORE = 4
"""How many products follow the first one with a finding."""
_LINES_SAID = 3
"""The last lines of other output that are shown if the program ended itself."""
_LOOP = re.compile(r"\b(?:for|while|do)\b")


@dataclass(frozen=True)
class ProductCounts:
    """What one watched product did."""

    barriers: int
    """``__syncthreads()`` of the first block."""
    atomics: int
    """Atomic operations of all threads."""
    accesses: int
    """Accesses to memory by the first block's busiest thread."""
    static_shared_bytes: int
    shared_reads: int
    """Reads of shared memory by the first block."""
    reads_ahead: int
    """Those after the same thread has read new elements of A and of B since its last barrier. An
    element is new if no thread has read it."""
    reads_in_flight: int
    """Those while an asynchronous copy of the same thread is on its way."""
    waits: int
    """Waits of the first block that complete an asynchronous copy."""
    waits_with_more: int
    """Those that leave another copy of the same thread on its way."""
    copied: int
    """Words that the first block copies asynchronously."""
    copied_to_mbarriers: int
    """Those whose copies arrive at an mbarrier."""


def run_watched(
    program: Path,
    cases: Sequence[Case | str],
    arguments: list[str],
    source: Source,
    seconds: float,
) -> tuple[list[ProductCounts | None], list[Finding]]:
    """Runs the program for these cases, each of which is an argument. Returns the counts of each
    product that began, and the findings."""
    process = subprocess.Popen(
        [str(program), str(max(round(seconds), 1)), "/".join(source.own_files), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    watchdog = _Watchdog(process, max(seconds, 1) + _GRACE_S)
    findings: dict[tuple[Any, ...], Finding] = {}
    counts: list[ProductCounts | None] = []
    when = ""
    said: deque[str] = deque(maxlen=_LINES_SAID)
    done = enough = False
    first_wrong: int | None = None
    with process:
        try:
            watchdog.restart()
            assert process.stdout is not None
            for line in process.stdout:
                done = line.endswith("done\n")
                record = _RECORD.search(line)
                if record is None:
                    said.append(line.strip())
                elif record[1] == "case" and record[2] in arguments[len(counts) :][:1]:
                    if first_wrong is not None and len(counts) > first_wrong + _MORE:
                        process.kill()
                        enough = True
                        break
                    case = cases[len(counts)]
                    when = f"at {case if isinstance(case, str) else case.text}"
                    counts.append(None)
                    watchdog.restart()
                elif record[1] == "counted":
                    if counts and (numbers := _COUNTED.fullmatch(record[2])) is not None:
                        counts[-1] = ProductCounts(*map(int, numbers.groups()))
                elif (finding := _finding(record[0].split("\t"), when, source)) is not None:
                    place = (finding.kind, finding.file, finding.line, finding.array)
                    findings.setdefault(place, finding)
                    if first_wrong is None and not finding.harmless:
                        first_wrong = len(counts)
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            watchdog.stop()
    if watchdog.has_killed:
        text = f"the kernel had not ended after {seconds:g} s; {when}"
        findings[("not finished",)] = Finding("not finished", text)
    told = [
        _with_finished(finding, len(counts), len(cases))
        if finding.kind == "not finished"
        else finding
        for finding in findings.values()
    ]
    stopped = process.returncode == _STOPPED and findings
    whole = process.returncode == 0 and done and len(counts) == len(cases)
    if not (stopped or whole or enough or watchdog.has_killed):
        text = f"exit status {process.returncode}, {when} {' '.join(said)}"
        told.append(Finding("ended its process", text.strip()))
    return counts, told


def _with_finished(finding: Finding, begun: int, count: int) -> Finding:
    """The finding about a product that took too long, with the products that did not."""
    text = f"{finding.text}; {begun - 1} of {count} products finished before it: if this one takes "
    return replace(finding, text=text + "long, pass a longer time, as in sanitize(seconds=100)")


class _Watchdog:
    """Kills a process if ``restart`` is not called in time. The program has its own alarm, but a
    kernel may have disabled it."""

    def __init__(self, process: "subprocess.Popen[str]", seconds: float) -> None:
        self._process, self._seconds = process, seconds
        self._timer: threading.Timer | None = None
        self.has_killed = False

    def restart(self) -> None:
        self.stop()
        self._timer = threading.Timer(self._seconds, self._kill)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _kill(self) -> None:
        self.has_killed = True
        self._process.kill()


def _finding(line: list[str], case: str, source: Source) -> Finding | None:
    match line:
        case ["finding", kind, name, number, array, block, thread, other, text]:
            threads = tuple(int(n) for n in (thread, other) if int(n) >= 0)
            at = int(number)
            return Finding(
                "divergent barrier" if kind == _TWO_BARRIERS else kind,
                f"{text}; {case}",
                file=name or None,
                line=(_line_of(kind, text, at, source) if name == source.file else at) or None,
                array=array or None,
                threads=threads,
                block=int(block) if int(block) >= 0 else None,
                harmless=kind == _TWO_BARRIERS,
            )
        case ["failed", message]:
            found = message_finding(message, source.file, case)
            if found.kind == "divergent barrier" and found.line is not None:
                found = replace(found, line=_line_of(found.kind, message, found.line, source))
            return found
    return None


def _line_of(kind: str, text: str, line: int, source: Source) -> int:
    """The line of a finding in the kernel's own file.

    The line of an endless loop's code may be in its body, or before the loop if the compiler has
    emptied it: then the line that begins the loop. Of two barriers, the one under a condition.
    """
    lines = source.text.splitlines()
    if kind in (_TWO_BARRIERS, "divergent barrier"):
        found = [int(number) for number in re.findall(r"\bat line (\d+)", text)]
        here = [at for at in found if 0 < at <= len(lines)]  # others are in headers
        conditional = ((" if " in lines[at - 1], _indent(lines[at - 1]), at) for at in here)
        return max(conditional, default=(True, 0, line))[2]
    if kind != "endless":
        return line
    begins = [at for at, text in enumerate(lines, 1) if _LOOP.search(text)]
    around = [
        at for at in begins if at < line and _indent(lines[at - 1]) < _indent(lines[line - 1])
    ]
    after = [at for at in begins if at > line]
    return line if line in begins or not begins else (around[-1:] or after or begins)[0]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
