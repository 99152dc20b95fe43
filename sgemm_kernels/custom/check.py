"""Compares a custom kernel with float64 around the edges of its tiles, and describes the errors.

Each product differs from a plain one in one or two properties. If all wrong products share a
property that no right product has, that property shows the cause. NaN guard bands surround the
operands.
"""

import mmap
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core
from .._accuracy import expect
from .._core import OutOfMemoryError
from .cases import APART, MULTIPROCESSORS, SPECIAL, Case, Tile, cases_of, tile_of, values_of
from .child_process import begin
from .diagnosis import Finding

_Float32 = NDArray[np.float32]

_GUARD = 8
"""NaN elements before and after each row (or column) of an operand."""
_UNSET = 0x7F80BEEF
"""The initial bits of C without beta: a signalling NaN that differs from all others."""
_COMPUTED = 0x7FC0BEEF
"""What arithmetic makes of them, apart from the sign: a quiet NaN."""
_PROBED = 64
"""Up to this K, each k is also tested alone."""


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


def check_all(
    own: Any, device: str, seconds: float, cases: Sequence[Case] = ()
) -> tuple[int, list[tuple[Finding, Case]]]:
    """Runs in a child process. Returns the number of products, and the findings, each with the
    product that it is about.

    Without ``cases``, the products are those of ``cases_for``. The parent ends the child if one
    product takes longer than ``seconds``.
    """
    tile = tile_of(own.variant)
    outcomes: list[_Outcome] = []
    where = _Where(own, device, seconds)
    for case in cases or cases_of(own):
        if case.apart and device != "cpu":  # a GPU would need a copy of the gaps
            continue
        outcomes.append(_run_case(where, case))
        if sum(bool(outcome.message) for outcome in outcomes) >= 3:
            break
    return len(outcomes), _describe(where, tile, outcomes)


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
    size = 4 * (before + rows * APART)
    reserve = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
    memory = np.frombuffer(mmap.mmap(-1, size, flags=reserve), np.float32)
    view = np.lib.stride_tricks.as_strided(memory[before:], (rows, cols), (4 * APART, 4))
    view[:] = values
    return view


def _run_case(where: _Where, case: Case, values: Any = None) -> _Outcome:
    A_values, B_values, C_values = values or values_of(case)
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
    modelled = os.environ.get(MULTIPROCESSORS)
    if case.multiprocessors:
        os.environ[MULTIPROCESSORS] = str(case.multiprocessors)
    try:
        _core.run(where.own, A, B, out=out, alpha=case.alpha, device=where.device, **keywords)
    except OutOfMemoryError:
        raise
    except (_core.Error, ValueError) as error:  # the launcher's own refusals
        return _Outcome(case, nothing, out.copy(), message=str(error))
    finally:
        begin("", None)
        if case.multiprocessors:
            del os.environ[MULTIPROCESSORS]
        if modelled is not None:
            os.environ[MULTIPROCESSORS] = modelled
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
        ("with few multiprocessors", lambda c: c.multiprocessors != 0),
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


def _describe(where: _Where, tile: Tile, outcomes: list[_Outcome]) -> list[tuple[Finding, Case]]:
    findings = []
    failed = [outcome for outcome in outcomes if outcome.message]
    for message in dict.fromkeys(outcome.message for outcome in failed):
        same = [outcome.case for outcome in failed if outcome.message == message]
        case = min(same, key=lambda c: c.work)
        finding = message_finding(message, where.own.file, f"at {case.text}")
        findings.append((finding, case))
    outside = [outcome for outcome in outcomes if outcome.outside]
    if outside:
        simplest = min(outside, key=lambda o: o.case.work)
        when = _when(tile, [o.case for o in outside], [o.case for o in outcomes if not o.outside])
        finding = Finding(
            "writes outside",
            f"the kernel wrote to {simplest.outside} or beside it, where no result belongs"
            f"{', ' + when if when else ''}; at {simplest.case.text}",
            array=simplest.outside,
        )
        findings.append((finding, simplest.case))
    wrong = [outcome for outcome in outcomes if outcome.wrong.any()]
    if wrong:
        right = [o.case for o in outcomes if not o.wrong.any() and not o.message]
        plainest = min(wrong, key=lambda o: _plainness(o, tile))
        finding = _of_values(where, tile, plainest, [o.case for o in wrong], right)
        findings.append((finding, plainest.case))
    return findings


_ASYNCHRONOUS = (
    "proxy fence|in flight|may still read|could still read|wgmma.fence|without waiting|"
    "no thread waited"
)
"""Words of errors about asynchronous work: deferred_async.cpp and wgmma.cpp of the emulator."""


def message_finding(message: str, file: str, when: str) -> Finding:
    """The finding for the message of a failed launch, with the lines and threads that it names."""
    lines = [int(number) for number in re.findall(r"\bline (\d+)", message)]
    threads = tuple(int(number) for number in re.findall(r"thread (\d+)", message))
    kind = "launch failed"
    if re.search("was not reached by the whole|warp operation", message):
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


def _of_values(
    where: _Where, tile: Tile, outcome: _Outcome, wrong: Sequence[Case], right: Sequence[Case]
) -> Finding:
    """The finding about wrong values, from one of the wrong products."""
    case = outcome.case
    exact = expect(*values_of(case)[:2], C=values_of(case)[2], alpha=case.alpha, beta=case.beta)
    rows, cols = np.nonzero(outcome.wrong)
    i, j = int(rows[0]), int(cols[0])
    got = outcome.result[outcome.wrong]
    kind = "wrong values"
    bits = got.view(np.uint32)
    if (bits == _UNSET).all():
        kind = "never set"
    elif case.beta == 0 and (bits & 0x7FFFFFFF == _COMPUTED).any():
        kind = "uninitialized read"
    when = _when(tile, wrong, right)
    parts = [_where(outcome.wrong, tile)]
    if kind == "uninitialized read":
        parts.append("C is read although beta is 0: it may hold NaN, and 0 * NaN is NaN")
    parts += [text] if (text := _steps(where, outcome)) else []
    parts += [text] if (text := _beta(outcome) or _alpha(outcome)) else []
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
    A, B, C = values_of(replace(case, beta=0.0))
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
    A, B, C = values_of(case)
    rest = outcome.result - case.alpha * (A.astype(np.float64) @ B.astype(np.float64))
    if not np.isfinite(rest).all():
        return ""
    factor = float((rest * C).sum() / (C.astype(np.float64) ** 2).sum())
    if np.abs(rest - factor * C).max() > 1e-3:
        return ""
    return f"C is multiplied by {round(factor, 6) + 0.0:.4g} and not by beta = {case.beta:g}"


def _alpha(outcome: _Outcome) -> str:
    """The factor that A @ B was multiplied by, if it was not alpha."""
    case = outcome.case
    if case.alpha in (0, 1) or outcome.wrong.mean() < 0.5:
        return ""
    A, B, C = values_of(case)
    product = A.astype(np.float64) @ B.astype(np.float64)
    rest = outcome.result - (case.beta * C.astype(np.float64) if case.beta else 0.0)
    if not np.isfinite(rest).all() or not product.any():
        return ""
    factor = float((rest * product).sum() / (product**2).sum())
    if np.abs(rest - factor * product).max() > 1e-3:
        return ""
    times = {case.alpha**2: ": alpha is applied twice", 1.0: ": alpha is not applied"}
    known = [text for value, text in times.items() if abs(factor - value) < 1e-3]
    text = f"A @ B is multiplied by {round(factor, 6) + 0.0:.4g} and not by alpha = {case.alpha:g}"
    return text + "".join(known[:1])
