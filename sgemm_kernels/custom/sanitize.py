"""Checks each memory access of a custom kernel.

csrc/emulator/sanitizer/ has the program for it. It is compiled with the kernel and runs on the CPU
device, which has a GPU's threads and barriers.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._core import Error
from ..explaining.trace import trace
from .cases import (
    DEEP,
    FRACTIONS,
    NAN_IN_C,
    SPECIAL,
    Case,
    Tile,
    falls_back,
    plain_cases,
    shared_out,
)
from .child_process import begin
from .compiler import CompileError, Source, library, sanitizer_build
from .diagnosis import Finding
from .plain import Plain
from .sanitizer_program import ProductCounts, run_watched

_CAUSES = (
    "does not compile",
    "divergent barrier",
    "endless",
    "unaligned",
    "out of bounds",
    "writes to an input",
    "race",
    "deadlock",
    "uninitialized read",
    "too much shared memory",
    "scratch memory",
    "not finished",
    "never set",
    "overflow",
    "launch failed",
    "ended its process",
    "wrong values",
)
"""The likeliest cause first. A later kind may be a consequence of an earlier one."""

_CONSEQUENCES = {
    "endless": ("out of bounds", "uninitialized read", "never set", "wrong values"),
    "deadlock": ("never set", "wrong values"),
    "divergent barrier": ("race", "uninitialized read", "never set", "wrong values"),
    "out of bounds": ("uninitialized read", "never set", "wrong values"),
    "unaligned": ("wrong values",),
    "race": ("deadlock", "uninitialized read", "never set", "wrong values"),
    "uninitialized read": ("deadlock", "wrong values"),
    "never set": ("wrong values",),
}
"""The kinds to leave out beside their possible cause."""

_LETTERS = {**SPECIAL, FRACTIONS: "f"}
"""The letters of values in the arguments of csrc/custom/driver.cpp."""
_DEEP_CASES, _EVERY_SHALLOW = 5, 3
"""A kernel that leaves a small K to another kernel: how many products have a large K, and how many
of the others are computed."""

_DECLARATION = re.compile(
    r"^[ \t]*(?!return|using|typedef|static|extern|goto|__shared__|constexpr|break|continue)"
    r"(?:[A-Za-z_][\w:]*(?:<[^;=()]*>)?[ \t]+)+(?P<names>\w+(?:\[[^;=]*?\])*"
    r"(?:[ \t]*,[ \t]*\w+(?:\[[^;=]*?\])*)*)[ \t]*;[ \t]*(?://.*)?$"
)
_DECLARED = re.compile(r"\w+(?:\[[^,;=]*?\])*")
_UNSET_FROM = 1e37
"""The compiler sets variables without an initializer to a pattern that is -1.7e38 as a float."""

_SLOW_SHARED = 2.0
"""An access with this many times the fewest wavefronts is reported as a bank conflict."""
_SLOW_GLOBAL = 4.0
"""The same for sectors of global memory."""


def cases_for(tile: Tile) -> list[Case]:
    """The products. Each size, layout, alignment, alpha, beta and special value of ``check`` is in
    at least one of them."""
    BM, BN, BK = tile.BM, tile.BN, tile.BK
    plain = Case(BM, BN, 2 * BK)
    deep = 5 * BK + 3
    cases = [
        plain,
        Case(BM + 1, BN - 1 or 1, deep),
        Case(BM + 1, BN + 1, BK + 1, True, True, beta=0.5),
        Case(BM - 1 or 1, BN + 5, deep, True, False, 1, 1, 1, alpha=0.7),
        Case(BM, BN, 2 * BK + 1, False, True, 2, 2, 2, beta=1.0),
        Case(1, 1, BK - 1 or 1),
        Case(1, 1, 4 * BK + 1),
        Case(2 * BM, 2 * BN, BK, C_shift=3),
        Case(BM, 2 * BN + 1, 1, alpha=-1.3, beta=0.7),
        Case(2 * BM + 1, 1, 3 * BK, beta=-0.5),
        Case(BM + 3, 3 * BN + 1, BK, C_shift=1, beta=1.0),
        Case(BM + 4, BN + 4, 2 * BK + 4),
        Case(BM, BN, 4 * BK),
        Case(BM + 1, BN + 1, BK + 1, alpha=0.0, beta=2.0),
        Case(BM, BN, 0),
        Case(BM + 1, BN - 1 or 1, 0, beta=0.5),
    ]
    for shift, other in ((1, 2), (2, 3), (3, 1)):
        for columns in (False, True):
            cases.append(Case(BM, BN, BK + 1, columns, not columns, shift, other))
    cases += [replace(plain, special=name, beta=float(name == NAN_IN_C)) for name in SPECIAL]
    cases.append(replace(plain, special=FRACTIONS))
    return list(dict.fromkeys(cases))


def cases_of(tile: Tile, source: Source) -> list[Case]:
    """The products for a kernel: for a plain one, those that its launcher passes on as they are. A
    kernel that takes scratch memory may split a deep K."""
    cases, plain = cases_for(tile), source.plain
    if plain is None:
        shared = [] if falls_back(source) else shared_out(tile, source)
        takes_scratch = not shared and bool(re.search(r"\bscratch_(alloc|take)\(", source.text))
        return [*cases, *shared, *[Case(tile.BM, tile.BN, DEEP + tile.BK)] * takes_scratch]
    cases = [replace(case, A_by_columns=False, B_by_columns=False) for case in cases]
    cases = [case for case in plain_cases(plain, cases) if case.K and case.alpha]
    A_by_columns, B_by_columns = "A.T" in plain.roles, "B.T" in plain.roles
    cases = [replace(case, A_by_columns=A_by_columns, B_by_columns=B_by_columns) for case in cases]
    if not plain.scales:
        cases = [replace(case, alpha=1.0) for case in cases]
    if not plain.adds or plain.accumulates:
        cases = [replace(case, beta=0.0) for case in cases]
    return list(dict.fromkeys(cases))


def _argument(case: Case, plain: Plain | None, *, pads: bool = True, sets_C: bool = True) -> str:
    """The case as an argument of csrc/custom/driver.cpp."""
    sizes = [case.M, case.N, case.K, int(case.A_by_columns), int(case.B_by_columns)]
    shifts = [case.A_shift, case.B_shift, case.C_shift]
    facts = [*sizes, *shifts, f"{case.alpha:g}", f"{case.beta:g}", _LETTERS.get(case.special, "-")]
    reads_C = plain is not None and (plain.accumulates or (plain.reads_C and sets_C))
    contiguous = 0 if plain is None else 2 if "C.T" in plain.roles else 1
    facts += [contiguous, int(pads), int(reads_C), case.multiprocessors]
    return ",".join(map(str, facts))


def watch(
    program: Path, tile: Tile, source: Source, seconds: float
) -> tuple[list[ProductCounts | None], list[Finding]]:
    """Runs the program. Returns the counts of each product that began, and the findings.

    The program is ended when one product takes longer than ``seconds``.
    """
    cases = cases_of(tile, source)
    if falls_back(source):
        deep = [*_deep(cases)[:_DEEP_CASES], *shared_out(tile, source)]
        cases = [*deep, *_not_special(cases)[::_EVERY_SHALLOW]]
    arguments = [_argument(case, source.plain) for case in cases]
    return run_watched(program, cases, arguments, source, seconds)


def watch_these(program: Path, cases: list[Case], source: Source, seconds: float) -> list[Finding]:
    """The findings for these products."""
    arguments = [_argument(case, source.plain) for case in cases]
    return run_watched(program, cases, arguments, source, seconds)[1]


def watch_arguments(
    program: Path, arguments: list[str], when: str, source: Source, seconds: float
) -> list[Finding]:
    """The findings for other arguments of the program, which are products of these sizes."""
    return run_watched(program, [when] * len(arguments), arguments, source, seconds)[1]


def watch_cases(
    program: Path, cases: list[Case], source: Source, seconds: float
) -> tuple[list[ProductCounts | None], list[Finding]]:
    """Runs the program for these products. The launcher of a plain kernel neither pads the operands
    nor sets C first. Returns the counts of each product that began (None if it did not end), and
    the findings."""
    arguments = [_argument(case, source.plain, pads=False, sets_C=False) for case in cases]
    return run_watched(program, cases, arguments, source, seconds)


def elsewhere(program: Path, source: Source, seconds: float) -> list[Finding]:
    """Findings about a plain kernel without its launcher's help: at sizes that ``multiple_of``
    excludes, and with beta = 0 and a C that is not zero."""
    plain = source.plain
    if plain is None:
        return []
    told = []
    M, N, K = plain.fitting(plain.tile[0], plain.tile[1], 2 * plain.tile[2])
    whole = cases_of(Tile(M, N, K), source)[0]
    if plain.reads_C and not plain.accumulates:
        argument = _argument(replace(whole, beta=0.0), plain, sets_C=False)
        for finding in run_watched(program, [whole], [argument], source, seconds)[1]:
            if finding.array == "C":
                text = "C is read although beta is 0: if it holds NaN, so does the result. The "
                text += "launcher zeroes C first"
                told.append(replace(finding, kind="reads C", text=text, harmless=True))
                break
    first: Finding | None = None
    texts = []
    for name, of in zip("MNK", plain.multiple_of, strict=True):
        if of == 1 or (plain.square and name != "M"):
            continue
        sizes = {"M": M, "N": N, "K": K}
        sizes[name] += 4 if of > 4 else 1
        if plain.square:
            sizes = dict.fromkeys("MNK", sizes["M"])
        case = replace(whole, M=sizes["M"], N=sizes["N"], K=sizes["K"])
        argument = _argument(case, plain, pads=False)
        _, findings = run_watched(program, [case], [argument], source, seconds)
        if findings:
            worst = in_order(findings)[0]
            first = first or worst
            whose = "M, N or K" if plain.square else name
            at = "" if worst.line is None else f", line {worst.line}"
            texts.append(f"if {whose} is not a multiple of {of}: {worst.kind}{at}: {worst.text}")
    if first is not None:
        text = "; ".join(texts) + ". The launcher pads the operands with zeros there"
        told.append(replace(first, kind="needs multiples", text=text, harmless=True))
    return told


def looks_unset(findings: list[Finding]) -> bool:
    """Whether wrong results look like the effect of an uninitialized variable, and of nothing that
    the findings name."""
    left = in_order(findings)
    if not left or left[0].kind not in ("uninitialized read", "wrong values"):
        return False
    for finding in findings:
        if finding.kind == "wrong values" and (
            found := re.search(r"is (\S+), expected", finding.text)
        ):
            value = float(found[1])
            if not abs(value) < _UNSET_FROM:
                return True
    return False


def declarations_without_value(text: str) -> list[tuple[int, str, str]]:
    """Each line that declares variables without an initializer: its number from 1, the names, and
    the whole text with zeros as their initializers."""
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


def _is_special(case: Case) -> bool:
    return case.special not in ("", FRACTIONS)


def _not_special(cases: list[Case]) -> list[Case]:
    """The cases that the checking build computes right for a kernel with the fallback to fp32 in
    error_check.h, which this build lacks."""
    return [case for case in cases if not _is_special(case)]


def _deep(cases: list[Case]) -> list[Case]:
    """The same, with a K at which such a kernel runs its own code."""
    return [replace(case, K=case.K + DEEP) for case in _not_special(cases)]


def watch_late(late: Path, source: Source, tile: Tile, seconds: float) -> list[Finding]:
    """Findings of the build in which asynchronous work is late (``deferred_async_build``). If the
    sanitizer finds something in the same products, that is the cause. It had not run all of them,
    and its variables without an initializer were not zero."""
    cases = cases_of(tile, source)
    if falls_back(source):
        cases = [*_deep(cases), *shared_out(tile, source)]
    arguments = [_argument(case, source.plain) for case in cases]
    counts, findings = run_watched(late, cases, arguments, source, seconds)
    if not findings:
        return []
    begun = len(counts)
    watched, _ = library(source, sanitizer_build(variables="zero"))
    return run_watched(watched, cases[:begun], arguments[:begun], source, seconds)[1] or findings


def unset_variables(source: Source, tile: Tile, seconds: float) -> list[Finding]:
    """The declaration whose initializer would make the results right."""
    for line, names, text in declarations_without_value(source.text):
        try:
            program, _ = library(source.with_text(text), sanitizer_build())
        except CompileError:
            continue
        _, left = watch(program, tile, source, seconds)
        if not looks_unset(left):
            text = f"{names} is read before it has a value, which is in the results"
            kind = "uninitialized read"
            return [Finding(kind, text, file=source.file, line=line, array=names)]
    return []


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The findings without consequences of other findings, the likeliest cause first."""
    every = list(findings)
    if not all(finding.harmless for finding in every):  # then this is the likeliest cause
        every = [
            replace(finding, harmless=False) if finding.kind == "divergent barrier" else finding
            for finding in every
        ]
    kinds = {finding.kind for finding in every}
    if _race_parts_warps(every):
        kinds.remove("divergent barrier")
        every = [finding for finding in every if finding.kind != "divergent barrier"]
    hidden = {kind for cause in kinds for kind in _CONSEQUENCES.get(cause, ())}
    left = [finding for finding in every if finding.kind not in hidden or finding.harmless]
    return sorted(left, key=lambda f: (f.harmless, _rank(f.kind)))


def _race_parts_warps(findings: list[Finding]) -> bool:
    """Whether threads of a warp differ in their operations after they have read different values
    in a race."""
    kinds = [finding.kind for finding in findings]
    if "race" not in kinds or "divergent barrier" not in kinds:
        return False
    parted = kinds.index("divergent barrier")
    return kinds.index("race") < parted and "operation was not reached" in findings[parted].text


def _rank(kind: str) -> int:
    return _CAUSES.index(kind) if kind in _CAUSES else len(_CAUSES)


def slow_accesses(own: Any, tile: Tile, seconds: float) -> list[Finding]:
    """Runs in a child process: finds lines whose requests take far more than they need.

    The parent ends the child if that takes longer than ``seconds``.
    """
    if min(own.variant.block_tile[:2]) < 1:  # its first block cannot be traced
        return []
    M, N, K = 2 * tile.BM, 2 * tile.BN, 4 * tile.BK
    if own.plain is not None:
        M, N, K = own.plain.in_float4s(M, N, K)
    begin(f"a trace of a product of M, N, K = {M}, {N}, {K}", seconds)
    try:
        traced = trace(own, M, N, K)
    except Error as error:  # for example more accesses than a trace has
        return [Finding("not traced", str(error), harmless=True)]
    finally:
        begin("", None)
    findings = []
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
