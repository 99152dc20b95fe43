"""Compares a custom kernel with float64 around the edges of its tiles, and describes the errors.

Each product differs from a plain one in one or two properties. If all wrong products share a
property that no right product has, that property shows the cause. NaN guard bands surround the
operands.
"""

import itertools
import mmap
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._accuracy import expect
from .._catalog import Variant
from .._core import OutOfMemoryError
from .child_process import begin
from .compiler import Source
from .diagnosis import Finding
from .plain import Plain

_Float32 = NDArray[np.float32]

_GUARD = 8
"""NaN elements before and after each row (or column) of an operand."""
_UNSET = 0x7F80BEEF
"""The initial bits of C without beta: a signalling NaN that differs from all others."""
_COMPUTED = 0x7FC0BEEF
"""What arithmetic makes of them, apart from the sign: a quiet NaN."""
_APART = 1 << 27
"""Elements between the starts of rows that are far apart."""
_ROWS_APART = 20
"""Rows of such an operand: their offsets exceed 2^31."""
DEEP = 256
"""From this K on, kernels that fall back to another kernel for a small K run their own."""
_EVERY_DEEP = 6
"""One of so many products is computed with a deep K, too."""
_PROBED = 64
"""Up to this K, each k is also tested alone."""


@dataclass(frozen=True)
class Case:
    """One product: how it differs from a plain one."""

    M: int
    N: int
    K: int
    A_by_columns: bool = False
    B_by_columns: bool = False
    A_shift: int = 0  # floats past a multiple of 16 bytes
    B_shift: int = 0
    C_shift: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    special: str = ""
    integers: bool = False  # small values that fp16 holds exactly
    apart: bool = False  # 2^27 elements between the starts of rows

    @property
    def text(self) -> str:
        words = [f"M, N, K = {self.M}, {self.N}, {self.K}"]
        words += ["A column-major"] if self.A_by_columns else []
        words += ["B column-major"] if self.B_by_columns else []
        for name, shift in (("A", self.A_shift), ("B", self.B_shift), ("C", self.C_shift)):
            words += [f"{name} {4 * shift} bytes from a multiple of 16"] if shift else []
        words += [f"alpha = {self.alpha:g}"] if self.alpha != 1 else []
        words += [f"beta = {self.beta:g}"] if self.beta != 0 else []
        words += [self.special] if self.special else []
        words += [f"rows {_APART} elements apart"] if self.apart else []
        return ", ".join(words)

    @property
    def work(self) -> int:
        return self.M * self.N * max(self.K, 1)


@dataclass(frozen=True)
class Tile:
    """The tile of C that a block computes, and its step through K."""

    BM: int
    BN: int
    BK: int


@dataclass(frozen=True)
class _Outcome:
    case: Case
    wrong: NDArray[np.bool_]  # (M, N)
    result: _Float32
    message: str = ""  # of a failed launch
    outside: str = ""  # the operands whose surroundings were written

    @property
    def failed(self) -> bool:
        return bool(self.wrong.any() or self.message or self.outside)


@dataclass(frozen=True)
class _Where:
    """The kernel, the device, and the time limit of one product in seconds."""

    own: Any
    device: str
    seconds: float


def tile_of(variant: Variant) -> Tile:
    """The variant's tile, with plausible sizes if it has none."""
    BM, BN, BK = (size if size > 0 else 16 for size in variant.block_tile)
    return Tile(BM, BN, max(BK, 2))


def cases_for(tile: Tile) -> list[Case]:
    """The products, the plainest first."""
    BM, BN, BK = tile.BM, tile.BN, tile.BK
    plain = Case(2 * BM, 2 * BN, 4 * BK)
    cases = [plain]
    cases += [replace(plain, M=BM, N=BN, K=K) for K in (*_about(BK), 2 * BK, 3 * BK, 5 * BK + 3)]
    for M, N in itertools.product([*_about(BM), 2 * BM + 1], [*_about(BN), 2 * BN + 1]):
        cases.append(replace(plain, M=M, N=N, K=2 * BK + 1))
    for A, B in itertools.product((False, True), repeat=2):
        layout = replace(plain, A_by_columns=A, B_by_columns=B)
        cases += [layout, replace(layout, M=BM + 3, N=BN + 5, K=2 * BK + 1)]
        for shift in (1, 2, 3):
            cases.append(replace(layout, A_shift=shift))
            cases.append(replace(layout, B_shift=shift))
    cases += [replace(plain, C_shift=shift) for shift in (1, 2, 3)]
    # With beta, a tile reads C, so the result shows a stray write by its neighbour.
    cases.append(replace(plain, C_shift=1, beta=1.0, M=BM + 3, N=3 * BN + 1, K=BK))
    for alpha, beta in ((0.7, 0.0), (1.0, 1.0), (-1.3, 0.7), (0.0, 2.0), (1.0, -0.5)):
        cases.append(replace(plain, alpha=alpha, beta=beta))
        cases.append(replace(plain, alpha=alpha, beta=beta, M=BM + 1, N=BN - 1, K=BK + 1))
    # Groups of four elements are whole, but tiles are not.
    for A, B in ((False, False), (True, False), (False, True)):
        cases.append(Case(BM + 4, BN + 4, 2 * BK + 4, A_by_columns=A, B_by_columns=B))
    cases += [replace(plain, special=name, beta=float(name == NAN_IN_C)) for name in SPECIAL]
    cases += [Case(BM, BN, DEEP + BK), Case(BM + 1, BN - 1, DEEP + BK + 1, alpha=0.7, beta=0.5)]
    cases += [
        Case(_ROWS_APART, _ROWS_APART, _ROWS_APART, beta=1.0, apart=True),
        replace(plain, K=0),
        replace(plain, K=0, beta=0.5),
        Case(1, 1, 1),
        Case(1, 1, 4 * BK + 1),
    ]
    seen = dict.fromkeys(case for case in cases if case.M > 0 and case.N > 0)
    return list(seen)


def cases_of(own: Any) -> list[Case]:
    """The products for a custom kernel: for a plain one, of sizes that it computes."""
    cases = cases_for(tile_of(own.variant))
    if own.plain is not None:
        return plain_cases(own.plain, cases)
    return [*cases, *deep_cases(cases)] if falls_back(own.made_of) else cases


def falls_back(source: Source) -> bool:
    """Whether the kernel leaves products with a small K to another kernel."""
    return any(path.name == "error_check.h" for path in source.included)


def deep_cases(cases: Sequence[Case]) -> list[Case]:
    """A part of the products, with a K from which on such a kernel runs its own code."""
    return [replace(case, K=case.K + DEEP) for case in cases[:: _EVERY_DEEP] if not case.apart]


def plain_cases(plain: Plain, cases: Sequence[Case]) -> list[Case]:
    """The products of sizes that the kernel computes as they are, and a few that need copies."""
    kept = []
    for case in cases:
        M, N, K = plain.fitting(case.M, case.N, case.K) if case.K else (case.M, case.N, 0)
        shifted = case.A_shift or case.B_shift or case.C_shift
        turned = case.A_by_columns or case.B_by_columns
        if shifted or case.apart or (turned and (case.M, case.N, case.K) != (M, N, K)):
            continue
        kept.append(replace(case, M=M, N=N, K=K))
    return list(dict.fromkeys(kept))


def _about(size: int) -> list[int]:
    return sorted({1, max(size - 1, 1), size, size + 1})


def _set_nan(A: _Float32, B: _Float32) -> None:
    A[0, -1] = np.nan


def _set_infinity(A: _Float32, B: _Float32) -> None:
    B[-1, 0] = np.inf


def _scale(A: _Float32, B: _Float32) -> None:
    A *= np.float32(1e-30)
    B *= np.float32(1e30)


def _set_nan_beside_zero(A: _Float32, B: _Float32) -> None:
    A[0, -1] = np.nan
    B[-1] = 0.0


def _set_nothing(A: _Float32, B: _Float32) -> None:
    """For a NaN in C, which ``_values`` sets."""


NAN_IN_C = "a NaN in C"
_SET = {
    "a NaN in A": _set_nan,
    "a NaN in A beside zeros in B": _set_nan_beside_zero,
    NAN_IN_C: _set_nothing,
    "an infinity in B": _set_infinity,
    "tiny and huge values": _scale,
}
SPECIAL = dict(zip(_SET, "nzcis", strict=True))
"""Special values, and their letters in the arguments of csrc/custom/driver.cpp."""


def check_all(
    own: Any, device: str, seconds: float, cases: Sequence[Case] = ()
) -> tuple[int, list[Finding]]:
    """Runs in a child process. Returns the number of products, and the findings.

    Without ``cases``, the products are those of ``cases_for``. The parent ends the child if one
    product takes longer than ``seconds``.
    """
    tile = tile_of(own.variant)
    outcomes: list[_Outcome] = []
    where = _Where(own, device, seconds)
    for case in cases or cases_of(own):
        outcomes.append(_run_case(where, case))
        if sum(bool(outcome.message) for outcome in outcomes) >= 3:
            break
    return len(outcomes), _describe(where, tile, outcomes)


def _values(case: Case) -> tuple[_Float32, _Float32, _Float32]:
    rng = np.random.default_rng((case.M, case.N, case.K))
    shapes = ((case.M, case.K), (case.K, case.N), (case.M, case.N))
    A, B, C = (
        (rng.integers(-8, 9, shape) if case.integers else rng.uniform(-1, 1, shape)).astype(
            np.float32
        )
        for shape in shapes
    )
    if case.special and A.size and B.size:
        _SET[case.special](A, B)
    if case.special == NAN_IN_C:
        C[0, -1] = np.nan
    return A, B, C


def _guarded(
    values: _Float32, by_columns: bool, shift: int, contiguous: bool = False
) -> tuple[_Float32, _Float32]:
    """A view of the values between guard bands, and all of the memory. ``contiguous``: without
    gaps between the rows."""
    if by_columns:
        transposed, memory = _guarded(values.T, False, shift, contiguous)
        return transposed.T, memory
    rows, cols = values.shape
    ld = cols if contiguous else -(-(cols + 2 * _GUARD) // 4) * 4
    before = -(-_GUARD * (ld + 1) // 4) * 4
    memory = np.full(rows * ld + 2 * before + 8, np.nan, np.float32)
    first = (-memory.ctypes.data // 4) % 4 + shift + before
    view = np.lib.stride_tricks.as_strided(memory[first:], (rows, cols), (4 * ld, 4))
    view[:] = values
    return view, memory


def _far_apart(values: _Float32) -> _Float32:
    """A view of the values in reserved memory. A 32-bit offset that overflows stays inside."""
    rows, cols = values.shape
    before = 1 << 31
    size = 4 * (before + rows * _APART)
    reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = np.frombuffer(mmap.mmap(-1, size, flags=reserve), np.float32)
    view = np.lib.stride_tricks.as_strided(memory[before:], (rows, cols), (4 * _APART, 4))
    view[:] = values
    return view


def _run_case(where: _Where, case: Case, values: Any = None) -> _Outcome:
    A_values, B_values, C_values = values or _values(case)
    contiguous = where.own.plain is not None
    A, A_memory = _guarded(A_values, case.A_by_columns, case.A_shift, contiguous)
    B, B_memory = _guarded(B_values, case.B_by_columns, case.B_shift, contiguous)
    unset = np.full(C_values.shape, _UNSET, np.uint32).view(np.float32)
    start = C_values if case.beta != 0 else unset
    out, C_memory = _guarded(start, False, case.C_shift, contiguous)
    if case.apart:
        try:
            A, B, out = (_far_apart(X) for X in (A_values, B_values, start))
        except OSError:  # the address space is limited
            return _Outcome(case, np.zeros(C_values.shape, bool), C_values)
    kept = [memory.copy() for memory in (A_memory, B_memory, C_memory)]
    keywords: dict[str, Any] = {"C": out, "beta": case.beta} if case.beta != 0 else {}
    nothing = np.zeros(C_values.shape, bool)
    begin(f"a product of {case.text}", where.seconds)
    try:
        _core.run(where.own, A, B, out=out, alpha=case.alpha, device=where.device, **keywords)
    except OutOfMemoryError:
        raise
    except (_core.Error, ValueError) as error:  # the launcher's own refusals
        return _Outcome(case, nothing, out.copy(), message=str(error))
    finally:
        begin("", None)
    result = out.copy()
    exact = expect(A_values, B_values, C=C_values, alpha=case.alpha, beta=case.beta)
    wrong = exact.shares(result) > 1
    out[:] = start
    beside = [
        name
        for name, memory, before in zip("ABC", (A_memory, B_memory, C_memory), kept, strict=True)
        if memory.tobytes() != before.tobytes()
    ]
    return _Outcome(case, wrong, result, outside=" and ".join(beside))


# ------------------------------------------------------------- common properties of wrong cases

_Feature = tuple[str, Callable[[Case], bool]]


def _features(tile: Tile) -> list[_Feature]:
    BM, BN, BK = tile.BM, tile.BN, tile.BK
    return [
        ("with beta", lambda c: c.beta != 0),
        ("without beta", lambda c: c.beta == 0),
        ("with an alpha other than 1", lambda c: c.alpha != 1),
        ("with alpha = 0 or K = 0", lambda c: c.alpha == 0 or c.K == 0),
        ("with A column-major", lambda c: c.A_by_columns),
        ("with A row-major", lambda c: not c.A_by_columns),
        ("with B column-major", lambda c: c.B_by_columns),
        ("with B row-major", lambda c: not c.B_by_columns),
        ("where A's address is not a multiple of 16", lambda c: c.A_shift != 0),
        ("where B's address is not a multiple of 16", lambda c: c.B_shift != 0),
        ("where C's address is not a multiple of 16", lambda c: c.C_shift != 0),
        *((f"with {name}", lambda c, name=name: c.special == name) for name in SPECIAL),
        ("with special values", lambda c: bool(c.special)),
        ("where rows are far apart, so that a 32-bit index overflows", lambda c: c.apart),
        (f"where M is not a multiple of {BM}", lambda c: c.M % BM != 0),
        (f"where N is not a multiple of {BN}", lambda c: c.N % BN != 0),
        (
            f"where N is a multiple of 4 and not of {BN}",
            lambda c: c.N % 4 == 0 and c.N % BN != 0,
        ),
        (
            f"where M is a multiple of 4 and not of {BM}",
            lambda c: c.M % 4 == 0 and c.M % BM != 0,
        ),
        (f"where K is not a multiple of {BK}", lambda c: c.K % BK != 0),
        (f"where K is a multiple of {BK}", lambda c: c.K % BK == 0),
        (f"where K is above {BK}", lambda c: c.K > BK),
        (f"where K is below {BK}", lambda c: c.K < BK),
        (f"where K is above {2 * BK}", lambda c: c.K > 2 * BK),
        (f"where M is above {BM}", lambda c: c.M > BM),
        (f"where M is below {BM}", lambda c: c.M < BM),
        (f"where N is above {BN}", lambda c: c.N > BN),
        (f"where N is below {BN}", lambda c: c.N < BN),
    ]


def _when(tile: Tile, wrong: Sequence[Case], right: Sequence[Case]) -> str:
    """The properties that all wrong cases share and few right ones have, or an empty text."""
    chosen: list[str] = []
    left = list(right)
    common = [(text, has) for text, has in _features(tile) if all(map(has, wrong))]
    while left and len(chosen) < 3:
        text, has = min(common, key=lambda f: sum(map(f[1], left)), default=("", None))
        if has is None or sum(map(has, left)) == len(left):
            break
        chosen.append(text)
        left = [case for case in left if has(case)]
    return ", ".join(["only " + chosen[0], *chosen[1:]]) if chosen else ""


def _describe(where: _Where, tile: Tile, outcomes: list[_Outcome]) -> list[Finding]:
    findings = []
    failed = [outcome for outcome in outcomes if outcome.message]
    for message in dict.fromkeys(outcome.message for outcome in failed):
        findings.append(
            _of_message(where.own, message, [o for o in failed if o.message == message])
        )
    outside = [outcome for outcome in outcomes if outcome.outside]
    if outside:
        simplest = min(outside, key=lambda o: o.case.work)
        when = _when(tile, [o.case for o in outside], [o.case for o in outcomes if not o.outside])
        findings.append(
            Finding(
                "writes outside",
                f"the kernel wrote to {simplest.outside} or beside it, where no result belongs"
                f"{', ' + when if when else ''}; at {simplest.case.text}",
                array=simplest.outside,
            )
        )
    wrong = [outcome for outcome in outcomes if outcome.wrong.any()]
    if wrong:
        right = [o.case for o in outcomes if not o.wrong.any() and not o.message]
        findings.append(_of_values(where, tile, wrong, right))
    return findings


def _of_message(own: Any, message: str, outcomes: list[_Outcome]) -> Finding:
    simplest = min(outcomes, key=lambda o: o.case.work)
    return message_finding(message, own.file, f"at {simplest.case.text}")


_ASYNCHRONOUS = (
    "in flight|may still read|could still read|wgmma.fence|without waiting|no thread waited"
)
"""Words of errors about asynchronous work: csrc/cpu/late.cpp and wgmma.cpp."""


def message_finding(message: str, file: str, when: str) -> Finding:
    """The finding for the message of a failed launch, with the lines and threads that it names."""
    lines = [int(number) for number in re.findall(r"\bline (\d+)", message)]
    threads = tuple(int(number) for number in re.findall(r"thread (\d+)", message))
    kind = "launch failed"
    if "barrier was not reached" in message or "warp operation" in message:
        kind = "divergent barrier"
    elif "can go on" in message:
        kind = "deadlock"
    elif re.search(_ASYNCHRONOUS, message):
        kind = "race"
    return Finding(
        kind,
        "; ".join(filter(None, (message, when))),
        file=file if lines else None,
        line=min(lines, default=None),
        threads=threads,
    )


def _of_values(where: _Where, tile: Tile, wrong: list[_Outcome], right: Sequence[Case]) -> Finding:
    """The finding about wrong values, from the plainest wrong product."""
    outcome = min(wrong, key=lambda o: _plainness(o, tile))
    case = outcome.case
    exact = expect(*_values(case)[:2], C=_values(case)[2], alpha=case.alpha, beta=case.beta)
    rows, cols = np.nonzero(outcome.wrong)
    i, j = int(rows[0]), int(cols[0])
    got = outcome.result[outcome.wrong]
    kind = "wrong values"
    bits = got.view(np.uint32)
    if (bits == _UNSET).all():
        kind = "never set"
    elif case.beta == 0 and (bits & 0x7FFFFFFF == _COMPUTED).any():
        kind = "memory nobody wrote"
    when = _when(tile, [o.case for o in wrong], right)
    parts = [_where(outcome.wrong, tile)]
    if kind == "memory nobody wrote":
        parts.append("C is read although beta is 0: it may hold NaN, and 0 * NaN is NaN")
    parts += [text] if (text := _steps(where, outcome)) else []
    parts += [text] if (text := _beta(outcome)) else []
    count = len(wrong) + len(right)
    parts.append(when or f"in {'every one' if not right else len(wrong)} of {count} products")
    sentence = ", ".join(part for part in parts if part)
    return Finding(
        kind,
        f"{sentence}; at {case.text} C[{i}, {j}] is {outcome.result[i, j]:.7g}, "
        f"expected {exact.value[i, j]:.7g}",
        array="C",
    )


def _plainness(outcome: _Outcome, tile: Tile) -> tuple[Any, ...]:
    """The sort key that puts the most informative wrong product first: some of its elements are
    right, it has at least a whole tile and two steps of K, and it is small."""
    case = outcome.case
    thin = case.M < tile.BM or case.N < tile.BN or case.K < 2
    return (bool(case.special), bool(outcome.wrong.all()), thin, case.work)


def _where(wrong: NDArray[np.bool_], tile: Tile) -> str:
    """The wrong elements, in words."""
    M, N = wrong.shape
    if wrong.all():
        return "every element of C"
    count = int(wrong.sum())
    rows, cols = np.flatnonzero(wrong.any(1)), np.flatnonzero(wrong.any(0))
    words = []
    if len(rows) < M:
        words.append(_lines("row", rows, M, tile.BM))
    if len(cols) < N:
        words.append(_lines("column", cols, N, tile.BN))
    if count == len(rows) * len(cols):
        return " and ".join(words)
    among = f" in {' and '.join(words)}" if words else ""
    return f"{count} of {M * N} elements{among}"


def _lines(what: str, which: NDArray[np.intp], count: int, tile: int) -> str:
    """'rows 128 on: the last tile's edge', 'rows 3 to 7', 'row 5', 'every 4th row from 2 on'."""
    first, last = int(which[0]), int(which[-1])
    steps = set(np.diff(which).tolist())
    if len(which) == 1:
        text = f"{what} {first}"
    elif steps == {1}:
        text = f"{what}s {first} on" if last == count - 1 else f"{what}s {first} to {last}"
    elif len(steps) == 1:
        text = f"every {_ordinal(steps.pop())} {what} from {first} on"
    else:
        within = sorted({int(line) % tile for line in which})
        whole = {line for line in range(count) if line % tile in within}
        if count > tile and whole == set(which.tolist()) and len(within) < tile:
            where = (
                _lines(what, np.array(within), tile, tile)
                if len(within) > 1
                else f"{what} {within[0]}"
            )
            return f"{where} of every tile"
        text = f"{len(which)} {what}s from {first} to {last}"
    if last == count - 1 and first >= count // tile * tile and count % tile:
        text += ": the last tile's edge"
    return text


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _steps(where: _Where, outcome: _Outcome) -> str:
    """The steps of K that are summed wrongly. Tests each step alone."""
    case = outcome.case
    if case.special or case.alpha == 0 or not 1 < case.K <= _PROBED:
        return ""
    A, B, C = _values(replace(case, beta=0.0))
    wrong = []
    for k in range(case.K):
        alone = np.zeros_like(A)
        alone[:, k] = A[:, k]
        probe = _run_case(where, replace(case, beta=0.0), (alone, B, C))
        if probe.message:
            return ""
        if probe.wrong.any():
            wrong.append(k)
    if not wrong or len(wrong) == case.K:
        return ""
    if len(wrong) == 1:
        return f"wrong at k = {wrong[0]} alone"
    if wrong == list(range(wrong[0], case.K)):
        return f"wrong from k = {wrong[0]} on"
    if wrong == list(range(wrong[0], wrong[-1] + 1)):
        return f"wrong from k = {wrong[0]} to {wrong[-1]}"
    return f"wrong at {len(wrong)} of {case.K} steps of k, from {wrong[0]} on"


def _beta(outcome: _Outcome) -> str:
    """The factor that C was multiplied by, if it was not beta."""
    case = outcome.case
    if case.beta == 0 or outcome.wrong.mean() < 0.5:
        return ""
    A, B, C = _values(case)
    rest = outcome.result - case.alpha * (A.astype(np.float64) @ B.astype(np.float64))
    if not np.isfinite(rest).all():
        return ""
    factor = float((rest * C).sum() / (C.astype(np.float64) ** 2).sum())
    if np.abs(rest - factor * C).max() > 1e-3:
        return ""
    return f"C is multiplied by {round(factor, 6) + 0.0:.4g} and not by beta = {case.beta:g}"
