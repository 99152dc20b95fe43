"""Runs a kernel of one's own with each of its accesses looked at, and says what is wrong with them.

The program that does so is compiled for the kernel: csrc/custom/ has its parts. It runs on the
CPU device, whose threads and barriers are a GPU's.
"""

import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..explaining.trace import trace
from .check import Tile, message_finding
from .diagnosis import Finding

_CAUSES = (
    "divergent barrier",
    "deadlock",
    "unaligned",
    "out of bounds",
    "writes to an input",
    "race",
    "memory nobody wrote",
    "endless",
    "never set",
    "launch failed",
    "ended its process",
    "wrong values",
)
"""The likeliest cause first: what stands behind another in a list may be for that alone."""

_CONSEQUENCES = {
    "deadlock": ("never set", "wrong values"),
    "divergent barrier": ("race", "memory nobody wrote", "never set", "wrong values"),
    "out of bounds": ("memory nobody wrote", "never set", "wrong values"),
    "unaligned": ("wrong values",),
    "race": ("memory nobody wrote", "wrong values"),
    "memory nobody wrote": ("wrong values",),
    "never set": ("wrong values",),
}
"""What is left out beside what may have caused it."""

_RECORD = re.compile(r"(case|finding|failed)\t(.*)")
"""What the program prints, after what the kernel has left of a line."""
_STOPPED = 3
"""Its exit status where a finding ended it."""
_LINES_SAID = 3
"""Of what else was printed, the last that are told of a process that ended."""

_DECLARATION = re.compile(
    r"^[ \t]*(?!return|using|typedef|static|extern|goto|__shared__|constexpr|break|continue)"
    r"(?:[A-Za-z_][\w:]*(?:<[^;=()]*>)?[ \t]+)+(?P<names>\w+(?:\[[^;=]*?\])*"
    r"(?:[ \t]*,[ \t]*\w+(?:\[[^;=]*?\])*)*)[ \t]*;[ \t]*(?://.*)?$"
)
_DECLARED = re.compile(r"\w+(?:\[[^,;=]*?\])*")
_UNSET_FROM = 1e37
"""The compiler fills variables without a value with what is -1.7e38 as a float."""

_SLOW_SHARED = 2.0
"""From so many times the fewest wavefronts on, an access has bank conflicts worth telling of."""
_SLOW_GLOBAL = 4.0
"""Likewise for sectors of global memory."""


def cases_for(tile: Tile) -> list[str]:
    """The products, as csrc/custom/driver.cpp takes them: M, N, K, A and B by columns, shift,
    alpha, beta."""
    BM, BN, BK = tile.BM, tile.BN, tile.BK
    deep = 5 * BK + 1
    return [
        f"{BM},{BN},{2 * BK},0,0,0,1,0",
        f"{BM + 1},{BN - 1 or 1},{deep},0,0,0,1,0",
        f"{BM + 1},{BN + 1},{BK + 1},1,1,0,1,0.5",
        f"{BM - 1 or 1},{BN + 3},{deep},1,0,1,0.5,0",
        f"{BM},{BN},{deep},0,1,2,1,1",
        f"1,1,{BK - 1 or 1},0,0,0,1,0",
    ]


def watch(program: Path, tile: Tile, file: str, seconds: float) -> tuple[int, list[Finding]]:
    """How many products the program computed, and what was wrong with the accesses.

    It is ended after so many seconds for a product.
    """
    cases = cases_for(tile)
    command = [str(program), str(max(round(seconds), 1)), *cases]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    # For one that the kernel keeps from ending by itself when its time is over.
    timer = threading.Timer((seconds + 5) * len(cases), process.kill)
    findings: dict[tuple[Any, ...], Finding] = {}
    begun = 0
    case = ""
    said: deque[str] = deque(maxlen=_LINES_SAID)
    done = False
    with process:
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                done = line.endswith("done\n")
                record = _RECORD.search(line)
                if record is None:
                    said.append(line.strip())
                elif record[1] == "case" and record[2] in cases:
                    begun += 1
                    case = _in_words(record[2])
                elif (finding := _finding(record[0].split("\t"), case, file)) is not None:
                    place = (finding.kind, finding.file, finding.line, finding.array)
                    findings.setdefault(place, finding)
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    stopped = process.returncode == _STOPPED and findings
    if not stopped and not (process.returncode == 0 and done and begun == len(cases)):
        text = f"exit status {process.returncode}, {case} {' '.join(said)}"
        findings[("ended its process",)] = Finding("ended its process", text.strip())
    return begun, list(findings.values())


def _finding(line: list[str], case: str, file: str) -> Finding | None:
    match line:
        case ["finding", kind, name, number, array, block, thread, other, text]:
            threads = tuple(int(n) for n in (thread, other) if int(n) >= 0)
            return Finding(
                kind,
                f"{text}{' of block ' + block if int(block) > 0 else ''}; {case}",
                file=name or None,
                line=int(number) or None,
                array=array or None,
                threads=threads,
                block=int(block) if int(block) >= 0 else None,
            )
        case ["failed", message]:
            return message_finding(message, file, case)
    return None


def _in_words(case: str) -> str:
    M, N, K, A, B, shift, alpha, beta = case.split(",")
    words = [f"at M, N, K = {M}, {N}, {K}"]
    words += [f"{name} by columns" for name, flag in (("A", A), ("B", B)) if flag == "1"]
    words += [f"operands {4 * int(shift)} bytes from a multiple of 16"] if shift != "0" else []
    words += [f"alpha = {alpha}"] if alpha != "1" else []
    words += [f"beta = {beta}"] if beta != "0" else []
    return ", ".join(words)


def looks_unset(findings: Iterable[Finding]) -> bool:
    """Whether wrong results are what a variable without a value would leave in them."""
    for finding in findings:
        if finding.kind == "wrong values" and (found := re.search(r"is (\S+), and", finding.text)):
            value = float(found[1])
            if not abs(value) < _UNSET_FROM:
                return True
    return False


def declarations_without_value(text: str) -> list[tuple[int, str, str]]:
    """Each line that declares variables without a value: its number from 1, what it declares, and
    the text with zeros for them."""
    lines = re.split(r"(?<=\n)", text)
    found = []
    for index, line in enumerate(lines):
        declared = _DECLARATION.match(line.rstrip("\n"))
        if declared is not None:
            first, last = declared.span("names")
            zeros = _DECLARED.sub(lambda name: f"{name[0]} = {{}}", line[first:last])
            changed = [*lines[:index], line[:first] + zeros + line[last:], *lines[index + 1 :]]
            names = re.sub(r"\[.*?\]", "", declared["names"])
            found.append((index + 1, names, "".join(changed)))
    return found


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without what is for another's sake, the likeliest cause first."""
    every = list(findings)
    kinds = {finding.kind for finding in every}
    hidden = {kind for cause in kinds for kind in _CONSEQUENCES.get(cause, ())}
    left = [finding for finding in every if finding.kind not in hidden or finding.harmless]
    return sorted(left, key=lambda f: (f.harmless, _rank(f.kind)))


def _rank(kind: str) -> int:
    return _CAUSES.index(kind) if kind in _CAUSES else len(_CAUSES)


def slow_accesses(own: Any, tile: Tile) -> list[Finding]:
    """What only costs time: the lines whose requests take far more than they need."""
    findings = []
    traced = trace(own, 2 * tile.BM, 2 * tile.BN, 4 * tile.BK)
    for access in traced.accesses:
        taken = access.sectors if access.wavefronts is None else access.wavefronts
        shared = access.space == "shared"
        if taken is None or taken < (_SLOW_SHARED if shared else _SLOW_GLOBAL) * access.least:
            continue
        kind = "bank conflict" if shared else "uncoalesced"
        text = f"{access.kind}s of {access.operand} take {access.verdict} for a warp's request"
        findings.append(
            Finding(
                kind, text, file=access.file, line=access.line, array=access.operand, harmless=True
            )
        )
    return findings
