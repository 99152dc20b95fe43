"""Judges a kernel by a level's goal: results, memory accesses, and exact counts."""

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

from .._core import DeviceError, Error, UnsupportedVariantError
from .._source_text import line_at, lines_of
from ..custom import compiler, sanitize
from ..custom.cases import Case, Tile, tile_of
from ..custom.check import check_all
from ..custom.child_process import Child
from ..custom.compiler import CompileError, NoCompilerError, access_trace_build, sanitizer_build
from ..custom.diagnosis import Finding
from ..custom.failures import finding_of, placed
from ..custom.kernel import Kernel
from ..custom.load import kernel
from ..custom.sanitizer_program import ProductCounts
from ..explaining.accesses import Access
from ..explaining.trace import trace
from .counts import COUNTS, Counted
from .expressions import value_of
from .level import Level, Limit, Sizes
from .places import by_place

_SECONDS = 10.0
"""The time limit of one product."""
_ALPHAS, _BETAS = (0.7, -1.3, 0.5, 1.7), (0.5, -2.0, 1.5, -0.3)
_ROUNDING = 1e-9
_UNREAD = re.compile(r"no thread reads [AB]\[\d+, \d+\]")
_REQUESTED = 8
"""The bytes that a thread without tiles loads for a multiply-add. If neighbouring threads have
neighbouring addresses, the sectors hold fewer."""
_DESCRIBED = "wrong values"
"""The kind of finding of ``sanitize`` that ``check`` describes better."""


def number(value: float) -> str:
    """A count for a reader: 0.2875, 15,230."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Result:
    """One count beside its limit."""

    limit: Limit
    value: float
    bound: float
    passed: bool
    access: Access | None
    """The access that adds most to it."""

    @property
    def goal(self) -> str:
        """'at most 1.25'."""
        word = "at least" if self.limit.at_most is None else "at most"
        return f"{word} {number(self.bound)}"

    def missed(self) -> Finding:
        """The finding for a limit that is not reached."""
        access = self.access
        text = f"{self.limit.count}: {number(self.value)}, and the goal is {self.goal}"
        text += f" ({self.limit.meaning})"
        if access is not None:
            text += f". Most of it is a {access.kind} of {access.operand} here, with "
            text += f"{access.verdict} for a warp's request"
        if self.limit.otherwise:
            text += f". {self.limit.otherwise}"
        return Finding(
            "goal",
            text,
            file=access.file if access else None,
            line=access.line if access else None,
            array=access.operand if access else None,
        )


@dataclass(frozen=True)
class Verdict:
    """How a kernel did in a level. True if it reached the goal."""

    level: Level
    products: int
    findings: tuple[Finding, ...]
    """Mistakes, the likeliest cause first; then limits that are not reached."""
    results: tuple[Result, ...]
    """The counts. Empty for a kernel that is wrong, which is not counted."""
    similar: str
    """The ladder's kernel that is most like this one."""
    source: str
    file: str

    @property
    def passed(self) -> bool:
        return not self.findings

    def __bool__(self) -> bool:
        return self.passed

    def line_of(self, finding: Finding) -> str | None:
        """The text of a finding's line, if it is in the kernel's file."""
        if finding.line is None or finding.file != self.file:
            return None
        return line_at(lines_of(self.source), finding.line)


def judge(
    level: Level, text: str, *, seed: int | None = None, child: Child | None = None
) -> Verdict:
    """Judges the text of a kernel. Without ``seed``, the sizes are new each time.

    The kernel runs in child processes. ``child`` is one to share between kernels. Raises
    NoCompilerError if there is no C++ compiler.
    """
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    draw = random.Random(seed)
    try:
        own = load(level, text)
    except NoCompilerError:
        raise
    except (Error, ValueError) as error:  # ValueError: there is no such kernel in the text
        finding = _not_loaded(error, level, text)
        return Verdict(level, 0, (finding,), (), level.similar, text, level.file)
    if child is not None:
        own.child = child
    tile = tile_of(own.variant)
    cases = draw_cases(level.sizes, tile, draw)
    M, N, K = (
        draw.randrange(a, b + 1, step) for a, b, step in (level.counted[name] for name in "MNK")
    )
    counted = Case(M, N, K)
    results: list[Result] = []
    similar = level.similar
    try:
        product, findings = _watch(own, tile, [*cases, counted])
        if all(each.kind == _DESCRIBED for each in findings):
            # `sanitize` always multiplies small integers.
            checked = [replace(case, integers=level.sizes.integers) for case in cases]
            findings = _checked(own, checked, findings)
        if not findings and product is not None:
            counts = _count(own, level, counted, product)
            results = _results(level, counted, counts)
            moved = COUNTS["bytes of sectors per multiply-add"](counts).value
            if level.scattered is not None and moved > _REQUESTED:
                similar = level.scattered
    except (CompileError, DeviceError, UnsupportedVariantError) as error:
        findings = [finding_of(error, own.made_of, _SECONDS)]
    findings = [by_place(placed(finding, own.made_of), level.block) for finding in findings]
    findings += [result.missed() for result in results if not result.passed]
    return Verdict(level, len(cases), tuple(findings), tuple(results), similar, text, level.file)


def _not_loaded(error: Exception, level: Level, text: str) -> Finding:
    if isinstance(error, CompileError):
        return finding_of(error, compiler.Source(Path(level.file), text), _SECONDS)
    line = re.match(rf"{re.escape(level.file)}:(\d+): ", str(error))
    number = None if line is None else int(line[1])
    return Finding("does not compile", str(error), file=level.file, line=number)


def load(level: Level, text: str) -> Kernel:
    """Compiles a kernel with the level's launch. Raises CompileError."""
    return kernel(
        text if "\n" in text else f"{text}\n",
        name=level.name,
        grid=level.grid,
        block=level.block,
        shared=level.shared,
        multiple_of=level.sizes.multiple_of,
        tile=level.tile,
    )


def draw_cases(sizes: Sizes, tile: Tile, draw: random.Random) -> list[Case]:
    """Products of random sizes: whole tiles; each size off alone; all off; all off but multiples of
    4; and all at most a tile. Then alpha, beta, and both differ from 1 and 0."""
    cases = [Case(*_sizes(sizes, tile, kind, draw)) for kind in ("ttt", "ott", "tot", "tto", "ooo")]
    alpha, beta = draw.choice(_ALPHAS), draw.choice(_BETAS)
    for kind, scalars in (("eee", (alpha, 0.0)), ("sss", (1.0, beta)), ("tto", (alpha, beta))):
        case = Case(*_sizes(sizes, tile, kind, draw))
        if sizes.scalars:
            case = replace(case, alpha=scalars[0], beta=scalars[1])
        cases.append(case)
    return list(dict.fromkeys(cases))


def _sizes(sizes: Sizes, tile: Tile, kinds: str, draw: random.Random) -> tuple[int, int, int]:
    """M, N and K, each of one kind, if its range has such a number: 't' whole tiles, 'o' odd and no
    whole tiles, 'e' multiples of 4 but no whole tiles, 's' at most a tile."""
    found: list[int] = []
    tiles = (tile.BM, tile.BN, tile.BK)
    for name, size, kind, step in zip("MNK", tiles, kinds, sizes.multiple_of, strict=True):
        low, high = sizes.ranges[name]
        every = [n for n in range(low, high + 1) if n % step == 0]
        wanted = {
            "t": [n for n in every if n % size == 0],
            "o": [n for n in every if n % size and n % 2],
            "e": [n for n in every if n % size and n % 4 == 0],
            "s": [n for n in every if n <= size],
        }[kind]
        longer = [n for n in wanted if n > size and kind != "s"]
        # Different sizes, and different numbers of tiles along M and N, show what is mixed up.
        new = [n for n in longer or wanted or every if n not in found]
        if name == "N":
            down = -(-found[0] // tile.BM)
            for pool in (longer, wanted):
                if other := [n for n in pool if -(-n // size) != down]:
                    new = other
                    break
        found.append(draw.choice(new or longer or wanted or every))
    return found[0], found[1], found[2]


def _watch(
    own: Kernel, tile: Tile, cases: list[Case]
) -> tuple[ProductCounts | None, list[Finding]]:
    """The counts of the last product, and the mistakes in all of them."""
    program, _ = compiler.library(own.made_of, sanitizer_build())
    counts, findings = sanitize.watch_cases(program, cases, own.made_of, _SECONDS)
    if sanitize.looks_unset(findings):
        findings += sanitize.unset_variables(own.made_of, tile, _SECONDS)
    return counts[-1] if counts else None, sanitize.in_order(findings)


def _checked(own: Kernel, cases: list[Case], watched: list[Finding]) -> list[Finding]:
    """The wrong values in the words of ``check``, with the line that stored them and the elements
    that no thread reads."""
    _, told = own.child.call(check_all, own, "cpu", _SECONDS, cases)
    described = [finding for finding, _ in told]
    if not described or not watched:
        return described or watched
    first = watched[0]
    unread = "".join(f"; {words}" for words in _UNREAD.findall(first.text))
    text = described[0].text + unread
    return [replace(described[0], text=text, file=first.file, line=first.line), *described[1:]]


def _count(own: Kernel, level: Level, case: Case, product: ProductCounts) -> Counted:
    compiler.library(own.made_of, access_trace_build())  # outside the time limit
    return Counted(own.child.call(trace, own, case.M, case.N, case.K), product, level.shared)


def _results(level: Level, case: Case, counted: Counted) -> list[Result]:
    sizes = {"M": case.M, "N": case.N, "K": case.K}
    results = []
    for limit in level.limits:
        count = COUNTS[limit.count](counted)
        most = limit.at_most is not None
        bound = value_of(limit.at_most if limit.at_most is not None else limit.at_least or 0, sizes)
        passed = count.value <= bound + _ROUNDING if most else count.value >= bound - _ROUNDING
        results.append(Result(limit, count.value, bound, passed, count.access))
    return results
