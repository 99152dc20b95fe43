"""What csrc/engine/plan.c estimates of plans of `simt`; its constants fitted to times.

A plan divides C into tiles, K into parts (csrc/engine/plan.h). ``python benchmarks/plan_model.py``
reads what ``plan_times.py`` measured, fits the constants, and prints them beside those in use, how
far the times are from the model, and the gap: how much longer the plan that the model chooses
takes than the best one. The gap is told of shapes that the fit did not see: each fifth of them is
judged by a fit to the others. Needs no GPU.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _results import output_argument
from numpy.typing import NDArray

from sgemm_kernels._plans import constants_for
from sgemm_kernels._table import table
from sgemm_kernels.cli.speed_tables import KINDS, kind_of

Float64 = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Gpu:
    """What a device tells of itself."""

    multiprocessors: int
    clock_hz: float


@dataclass(frozen=True)
class Constants:
    """What is fitted, by its name in csrc/engine/plan.h, which says what each is."""

    launch: float
    wait: float
    across: float
    along: float
    store: float
    quad: float
    draining: float
    from_memory: float
    of_parts: float
    wasted_across: float
    wasted_along: float
    adding_up: float
    copying: float
    arriving: float
    again: float
    collecting: float
    stream_tile: float
    stream_shared: float
    stream_adding: float
    joining: float
    exchange: float
    joined_lines: float
    joined_columns: float
    joined_quads: float
    pairing: float
    scattered: float
    widening: float
    direct_launch: float
    direct_round: float
    direct_thread: float
    direct_steps: float
    gemv_launch: float
    gemv_block: float
    gemv_filling: float
    gemv_arriving: float
    gemv_round: float
    gemv_row: float
    gemv_single: float
    gemv_factor: float
    gemv_product: float
    gemv_unshared: float
    gemv_scattered: float
    gemv_wasted: float
    streaming: float


def constants_now(model: str) -> Constants:
    """What plans are estimated with on GPUs of a model."""
    return Constants(**constants_for(model))


PART_DEPTH = 16
STREAM_WAITING = 1.075
BY_TMA = 0.965
TURNING = 0.68
FEW_STEPS = 8
DIRECT_AT_ONCE = 4
GEMV_THREADS = 512
CLUSTER_MOST_BLOCKS = 8
CLUSTER_MOST_THREADS = 1024
GEMV_STAGED = 16384
"""As in plan.c and plan.h."""


@dataclass(frozen=True)
class Tiling:
    """A block's tile of C and its step of K, its warps' tiles, its threads', how many blocks a
    multiprocessor holds, what a step of K takes a warp: issue slots where others fill the
    multiprocessor, and cycles where none does; and what storing its results takes, in per cent."""

    BM: int
    BN: int
    BK: int
    WM: int
    WN: int
    TM: int
    TN: int
    slices: int
    stages: int
    resident: int
    slots: int
    cycles: int
    storing: int = 100

    @property
    def warps(self) -> int:
        return self.BM // self.WM * (self.BN // self.WN) * self.slices

    @property
    def joins(self) -> bool:
        """Whether its results find room where its tiles lay."""
        room = self.stages * self.BK * (self.BM + 4 + self.BN + 4)
        return self.slices * self.BM * (self.BN + 4) <= room

    @property
    def large(self) -> bool:
        """Whether its tiles take more shared memory than each GPU gives a block."""
        return self.stages * self.BK * (self.BM + 4 + self.BN + 4) * 4 > 98 * 1024


def gemv_of(tilings: Sequence[Tiling]) -> int:
    """What a plan has in place of a tiling for matrix-vector products."""
    return len(tilings)


def streamk_of(tilings: Sequence[Tiling]) -> int:
    return len(tilings) + 1


def direct_of(tilings: Sequence[Tiling]) -> int:
    return len(tilings) + 2


@dataclass(frozen=True)
class Plans:
    """Plans as arrays, an element for each: what ``estimate`` takes. M and N, and what is said of
    A and B, are as the plan sees them, which may compute the transpose of C."""

    case: NDArray[np.int64]
    """Which shape it is of, from 0 on."""
    M: Float64
    N: Float64
    K: Float64
    a_across: Bools
    """Whether A is copied float by float, across its lines, since they are not aligned; so B."""
    b_across: Bools
    a_along: Bools
    """Whether it is copied float by float along its lines, since neighbours run along K; so B."""
    b_along: Bools
    copied: Float64
    """Floats of operands that are copied beforehand, and for how many operands."""
    copies: Float64
    quads: Bools
    """Whether C is stored by quads."""
    swapped: Bools
    tiling: dict[str, Float64]
    streamk: Bools
    """Plans without splits; their tiling is the first."""
    by_tma: Bools
    """Of those, the ones whose tiles TMA brings."""
    direct: Bools
    gemv: Bools
    gemv_by_rows: Bools
    """Whether B lies by rows to matrix-vector products; and neighbours of A across K, if not."""
    gemv_staged: Bools
    gemv_along: Bools
    """Whether neighbours of A lie along K."""
    gemv_quads: Bools
    gemv_singly: Float64
    """How many floats they read singly for each quad."""
    apart: Float64
    """How far the columns of their blocks lie from each other, and how many they are."""
    width: Float64
    splits: Float64
    cluster: Float64
    """Blocks of a cluster, of which a tile has as many as that makes parts; 0 where none joins."""

    def of(self, chosen: NDArray[Any]) -> Plans:
        """Those that are chosen, by a mask or by places."""
        figures = {name: figure[chosen] for name, figure in self.tiling.items()}
        fields = (f.name for f in dataclasses.fields(self) if f.name != "tiling")
        return Plans(tiling=figures, **{name: getattr(self, name)[chosen] for name in fields})


def plans_of(rows: Sequence[dict[str, Any]], tilings: Sequence[Tiling]) -> Plans:
    """Of rows that name a plan: M, N, K, layout, tiling, splits, swapped, copies_A, copies_B,
    cluster, width."""
    cases = {case: i for i, case in enumerate(dict.fromkeys(map(case_of, rows)))}

    def column(name: str) -> NDArray[Any]:
        return np.array([row[name] for row in rows])

    M, N, K = (column(name).astype(float) for name in "MNK")
    index, turned = column("tiling"), column("swapped")
    of = [tilings[i if i < len(tilings) else 0] for i in index]
    figures = (*(field.name for field in dataclasses.fields(Tiling)), "warps")
    # Along K lie the neighbours of an A by rows, and of a B by columns; others are copied by quads
    # where each line begins at one.
    a_along, b_along = (
        np.array([row["layout"][at] == by and not row[f"copies_{'AB'[at]}"] for row in rows])
        for at, by in enumerate("NT")
    )
    along_A, along_B = (
        np.array([row["layout"][at] == by for row in rows]) for at, by in enumerate("NT")
    )
    a_across, b_across = (
        np.array([row["layout"][at] != by and row[side] % 4 != 0 and not row[f"copies_{'AB'[at]}"]
                  for row in rows])
        for at, by, side in ((0, "N", "M"), (1, "T", "N"))
    )  # fmt: skip
    copies_A, copies_B = column("copies_A"), column("copies_B")
    boxes_A = copies_A | (np.where(along_A, K, M) % 4 == 0)
    boxes_B = copies_B | (np.where(along_B, K, N) % 4 == 0)
    return Plans(
        case=np.array([cases[case_of(row)] for row in rows]),
        M=np.where(turned, N, M),
        N=np.where(turned, M, N),
        K=K,
        a_across=np.where(turned, b_across, a_across),
        b_across=np.where(turned, a_across, b_across),
        a_along=np.where(turned, b_along, a_along),
        b_along=np.where(turned, a_along, b_along),
        copied=np.where(copies_A, M * K, 0) + np.where(copies_B, K * N, 0),
        copies=copies_A.astype(float) + copies_B,
        quads=N % 4 == 0,
        swapped=turned,
        tiling={name: np.array([getattr(t, name) for t in of], float) for name in figures},
        streamk=index == streamk_of(tilings),
        by_tma=(index == streamk_of(tilings)) & boxes_A & boxes_B & ~(a_along & b_along),
        direct=index == direct_of(tilings),
        gemv=index == gemv_of(tilings),
        gemv_by_rows=np.array([by_rows(case_of(row), row["swapped"]) for row in rows]),
        gemv_staged=np.array([gemv_staged(case_of(row), row["swapped"]) for row in rows]),
        gemv_along=np.where(turned, along_B | (N == 1), along_A | (M == 1)),
        gemv_quads=np.array([gemv_quads(case_of(row), row["swapped"]) for row in rows]),
        gemv_singly=np.array([gemv_singly(case_of(row), row["swapped"]) for row in rows], float),
        apart=np.array([gemv_apart(case_of(row), row["swapped"]) for row in rows], float),
        width=np.maximum(column("width"), 1).astype(float),
        splits=column("splits").astype(float),
        cluster=column("cluster").astype(float),
    )


def direct_sharers(results: Any, K: Any) -> Any:
    """How many threads share each of so many results without tiles."""
    return np.select([results <= 1024, K <= DIRECT_AT_ONCE], [32, 1], 8)


Row = tuple[int, int, int, str]
"""M, N, K and the layout."""


def by_rows(case: Row, swapped: bool) -> bool:
    """Whether neighbours of what is B to a matrix-vector product lie in a row."""
    M, N, _, layout = case
    return (layout[0] == "T" and M != 1) if swapped else (layout[1] == "N" and N != 1)


def gemv_apart(case: Row, swapped: bool) -> int:
    """How far the columns of a block lie from each other, so that all begin alike."""
    return 1 if by_rows(case, swapped) else {0: 1, 2: 2}.get(case[2] % 4, 4)


def gemv_staged(case: Row, swapped: bool) -> bool:
    """Whether rows of what is A are brought to shared memory."""
    return not by_rows(case, swapped) and by_rows(case, not swapped)


def gemv_singly(case: Row, swapped: bool) -> int:
    """How many floats a thread reads singly for each quad of what is B: its own, or A's."""
    M, N, K, _ = case
    rows, cols = (N, M) if swapped else (M, N)
    if by_rows(case, swapped):
        return int(cols % 4 != 0)
    quads = K % 4 == 0 or gemv_staged(case, swapped)
    return 0 if quads else int(gemv_rows(rows))


def gemv_rows(rows: Any) -> Any:
    """How many rows a block of matrix-vector products has, of so many in all."""
    return np.select([rows > 4, rows > 2], [8, 4], rows)


def gemv_quads(case: Row, swapped: bool) -> bool:
    """Whether both operands are read along K, by aligned quads."""
    return not (by_rows(case, swapped) or gemv_staged(case, swapped)) and case[2] % 4 == 0


def gemv_resident(rows: Any, quads: Any) -> Any:
    """For how many of them a multiprocessor has room."""
    return np.where(gemv_rows(rows) < np.where(quads, 2, 4), 2, 1)


def gemv_blocks(rows: Any, cols: Any, apart: Any, width: Any) -> Any:
    """How many there are of so many columns."""
    across = cols // (apart * width) * apart + np.minimum(cols % (apart * width), apart)
    return across * np.ceil(rows / gemv_rows(rows))


def gemv_deep(rows: Any, staged: Any) -> Any:
    """How many quads of B a thread has on their way."""
    return np.where((gemv_rows(rows) < 8) | staged, 4, 2)


def gemv_depth(rows: Any, staged: Any, width: Any) -> Any:
    """How many steps of K one of so many columns loads at once."""
    loaded = 4 * gemv_deep(rows, staged) * GEMV_THREADS // width
    room = GEMV_STAGED // (gemv_resident(rows, False) * gemv_rows(rows))
    return np.where(staged, np.minimum(loaded, room), loaded)


def gemv_choices(case: Row, swapped: bool, multiprocessors: int) -> Iterator[tuple[int, int]]:
    """Columns of a block, and parts of K, between which plan.c chooses."""
    M, N, K, _ = case
    rows, cols = (N, M) if swapped else (M, N)
    first, last = (2, 7 if rows <= 4 else 6) if by_rows(case, swapped) else (0, 6)
    for width in (1 << bits for bits in range(first, last + 1)):
        blocks = int(gemv_blocks(rows, cols, gemv_apart(case, swapped), width))
        whole = K // int(gemv_depth(rows, gemv_staged(case, swapped), width))
        fitting = multiprocessors * int(gemv_resident(rows, gemv_quads(case, swapped))) // blocks
        yield from ((width, splits) for splits in dict.fromkeys((1, max(min(whole, fitting), 1))))


def cluster_room(blocks: Any, multiprocessors: int) -> Any:
    """Among how many multiprocessors clusters of so many blocks are spread evenly."""
    some = multiprocessors * 15 // 16 if multiprocessors > 1 else 1
    return np.where(blocks > 2, some, multiprocessors)


def joined_choices(
    t: Tiling, rows: int, cols: int, K: int, swapped: bool, multiprocessors: int, clusters: bool
) -> Iterator[tuple[int, int]]:
    """Into how many parts of K a tiling may divide a tile that several blocks or warps join, and of
    how many blocks a cluster is, for so many rows and columns as the plan sees."""
    if not t.joins or (t.large and not clusters):
        return
    tiles = -(-rows // t.BM) * -(-cols // t.BN)
    room, most = t.resident * multiprocessors // tiles, K // (2 * t.BK)
    wide = min(CLUSTER_MOST_BLOCKS, CLUSTER_MOST_THREADS // (32 * t.warps)) if clusters else 1
    widths = [width for width in (1, 2, 4, 8) if width <= wide]
    for width in widths:
        alone = t.slices > 1 or (swapped and t.stages > 1)
        if width <= min(room, most) if width > 1 else alone:
            yield width, width
    counts = [each for each in (1, 2, 4, 6) if each <= t.resident]
    for each, width in itertools.product(counts, widths[:2]):
        count = min(each * multiprocessors // tiles, most) // width
        if count > 1:
            yield count * width, width


def case_of(row: dict[str, Any]) -> Row:
    return row["M"], row["N"], row["K"], row["layout"]


def stream_plan(
    tiles: Float64, steps: Float64, places: Float64, depth: Float64
) -> tuple[Float64, Float64, Float64]:
    """How many steps of a tile a block of `streamk` has at most, how many blocks there are, and
    of how many parts a tile is at most, 0 where none is shared: plan_stream of plan.c."""
    part = PART_DEPTH / depth
    even = tiles - tiles % places - places
    whole = np.where(tiles < places, 0, even)
    streamed = tiles - whole
    shares = np.minimum(streamed * np.floor(np.sqrt(steps / part)), places)
    waves = np.ceil(streamed / places) * steps
    some = np.maximum(shares, 1)
    longest = np.ceil(streamed * steps / some)
    parts = np.ceil(some / streamed) + 1
    shared = (shares > 0) & (tiles % places != 0) & (longest + part * (1 + parts) < waves)
    steps_of_one = whole / places * steps + np.where(shared, longest, waves)
    return steps_of_one, np.where(shared, whole + shares, tiles), np.where(shared, parts, 0)


ADDED_AT_ONCE = 8
"""As in plan.c."""


def collecting(c: Constants, parts: Float64, of_block: Float64) -> Float64:
    """Cycles until the last block to arrive has added what so many have left."""
    return 4 * of_block * parts / c.collecting


def collecting_groups(c: Constants, parts: Float64, of_block: Float64) -> Float64:
    """The same where those of a group are added before, if there are many."""
    many = parts > ADDED_AT_ONCE
    group = np.where(many, np.ceil(np.sqrt(parts)), 1)
    groups = np.ceil(parts / group)
    return np.where(many, c.again, 0) + collecting(c, groups + np.where(many, group, 0), of_block)


def beside_memory(memory: Float64, busy: Float64, c: Constants) -> Float64:
    """Cycles for memory's traffic and for what multiprocessors do meanwhile."""
    return np.sqrt(memory**2 + busy**2 + 2 * c.adding_up * memory * busy)


def estimate(c: Constants, p: Plans, gpu: Gpu) -> Float64:
    """Seconds that each plan takes: what plan.c has in its functions of this name."""
    t = p.tiling
    work = t["TM"] * t["TN"]
    memory = 1 / (c.from_memory * gpu.multiprocessors)
    before = c.launch + c.copying * p.copies + 8 * p.copied * memory
    wasted_a = np.where(p.a_along, c.wasted_along / t["BK"], c.wasted_across / t["BM"])
    wasted_b = np.where(p.b_along, c.wasted_along / t["BK"], c.wasted_across / t["BN"])
    operands = p.M * p.K * (1 + wasted_a) + p.K * p.N * (1 + wasted_b)
    memory = 4 * (operands + p.M * p.N) * memory
    tiles = np.ceil(p.M / t["BM"]) * np.ceil(p.N / t["BN"])
    steps = np.ceil(p.K / t["BK"])
    a_copy, b_copy = (
        np.where(along, c.along, np.where(across, c.across, 0))
        for along, across in ((p.a_along, p.a_across), (p.b_along, p.b_across))
    )
    copies = (t["BM"] * a_copy + t["BN"] * b_copy) / (32 * t["warps"])

    # Tiles, of which each is there before it is multiplied.
    ring = t["stages"] > 1
    joins = p.cluster > 0
    width = np.maximum(p.cluster, 1)
    clusters = np.where(joins, p.splits // width, 1)
    of_part = np.ceil(steps / p.splits)
    depth = np.where(ring, of_part * t["BK"], np.minimum(of_part * t["BK"], p.K)) / t["slices"]
    side_by_side = np.where(p.swapped & (~ring | p.streamk), t["WM"], t["WN"])
    plain = np.where(p.quads, c.quad / 4, c.store * (side_by_side + 31) / side_by_side)
    quads = c.joined_quads * (32 + t["BN"]) / (2 * t["BN"])
    lines = c.joined_lines * (32 + t["BN"]) / 64
    joined = np.select(
        [clusters > 1, p.swapped, p.quads], [c.quad / 4, c.joined_columns, quads], lines
    )
    joined = joined / (t["slices"] * width) + c.exchange
    stored = t["storing"] / 100 * work * np.where(joins, joined, plain)
    cycles = t["cycles"] / t["slices"]
    alone = stored + np.where(
        ring,
        c.wait + of_part * np.maximum(t["BK"] * (cycles + copies), c.wait),
        of_part * c.wait + of_part * t["BK"] * copies + depth * t["cycles"],
    )
    of_warp = depth * t["slots"] + of_part * t["BK"] * copies + stored
    blocks = tiles * p.splits
    of_each = np.ceil(blocks / cluster_room(p.cluster, gpu.multiprocessors))
    waves = np.ceil(of_each / t["resident"]) - 1
    rest = of_each - waves * t["resident"]
    uneven = (t["resident"] == 2) | ((t["resident"] == 3) & (of_part <= FEW_STEPS))
    rest = np.where(uneven & (waves > 0), np.minimum(rest + 1, t["resident"]), rest)
    in_step = (t["resident"] <= 2) | (t["resident"] * t["warps"] < 8)
    full = waves * of_warp * t["resident"] * t["warps"] / 4
    busy = np.hypot(full, np.where(in_step, waves, np.sqrt(waves)) * alone)
    busy += np.hypot(np.ceil(rest * t["warps"] / 4) * of_warp, alone)
    busy += (waves + 1) * 4 * t["BM"] * t["BN"] / c.draining
    busy *= 1 + c.widening * (np.log2(np.maximum(p.cluster, 2)) - 1)  # a power of two
    tiled = before + beside_memory(memory, busy, c)
    tiled += np.where(p.cluster > 1, c.joining, 0)
    parts = 4 * p.M * p.N * (clusters + 1) / (c.of_parts * gpu.multiprocessors)
    of_block = t["BM"] * t["BN"] / width
    parts += c.arriving + np.where(p.cluster > 1, c.pairing, 0)
    parts += np.where(p.swapped, 0, c.scattered * of_block)
    parts += collecting_groups(c, clusters, of_block)
    tiled += np.where(clusters > 1, parts, 0)

    places = np.full(len(tiles), float(gpu.multiprocessors))
    longest, _, parts = stream_plan(tiles, steps, places, t["BK"])
    warps = t["warps"] / 4
    waiting = STREAM_WAITING * np.where(p.by_tma, BY_TMA, 1)
    turned = copies * np.where(p.by_tma, TURNING, 1)
    of_step = np.maximum((t["slots"] + turned) * warps * waiting, t["cycles"] + turned)
    of_tile = c.stream_tile + work * plain * warps
    streamed = before + beside_memory(memory, longest * t["BK"] * of_step, c)
    streamed += np.ceil(tiles / places) * of_tile
    adding = 4 * t["BM"] * t["BN"] * (parts + 1) / c.stream_adding
    adding += c.stream_shared
    streamed += np.where(parts > 0, adding, 0)

    sharers = direct_sharers(p.M * p.N, p.K)
    rounds = np.ceil(p.K / (DIRECT_AT_ONCE * sharers))
    streaming = 4 * (p.M * p.K + p.K * p.N + p.M * p.N) / (c.streaming * gpu.multiprocessors)
    threads = p.M * p.N * sharers / gpu.multiprocessors
    of_thread = c.direct_thread + c.direct_steps * rounds
    direct = c.direct_launch + c.direct_round * rounds + np.hypot(streaming, threads * of_thread)

    blocks = gemv_blocks(p.M, p.N, p.apart, p.width) * p.splits
    room = gpu.multiprocessors * gemv_resident(p.M, p.gemv_quads)
    waves = np.ceil(blocks / room)
    steps = np.ceil(p.K / p.splits)
    of_block = gemv_rows(p.M)
    deep = gemv_deep(p.M, p.gemv_staged)
    round_ = c.gemv_round + of_block * c.gemv_row + deep * p.gemv_singly * c.gemv_single
    unshared = np.where(p.gemv_along, c.gemv_unshared, c.gemv_scattered)
    round_ += np.where(p.gemv_by_rows, of_block * deep * unshared / p.width, 0)
    rounds = np.ceil(steps / gemv_depth(p.M, p.gemv_staged, p.width)) * round_
    staging = of_block * (c.gemv_factor + p.width * c.gemv_product) * steps
    staging = np.where(p.gemv_staged, staging, 0)
    waits = waves * (c.gemv_block + rounds + staging)
    waits += np.minimum(blocks, room) * c.gemv_filling / gpu.multiprocessors
    wasted = np.where(p.gemv_by_rows & (p.width < p.N), c.gemv_wasted / p.width, 0)
    gemv = c.gemv_launch + np.hypot(waits, streaming * (1 + wasted))
    parts = c.gemv_arriving + collecting(c, p.splits, of_block * p.width)
    gemv += np.where(p.splits > 1, parts, 0)
    cycles = np.select([p.gemv, p.direct, p.streamk], [gemv, direct, streamed], tiled)
    return cycles / gpu.clock_hz


# ------------------------------------------------------------------------------------- the fit


NEAR = 0.3
"""A plan that takes so much longer than its shape's best, as a share, counts by 1 / e: how slow the
slow ones are is of little use to a choice."""
COMMON = 0.4
"""What a shape's plans are off the model together changes no choice: it is lessened so far."""
SHARE = 0.25
"""The weight of squares of times off the model, beside what choices by it lose."""
SURE = 0.02
"""An estimate that is longer by such a share makes a choice of the plan less likely by 1 / e."""
MOST_LOST = 0.3
"""A choice that loses more weighs no more."""
CLOSE, CLOSE_WEIGHT = 0.06, 2.0
"""What is lost weighs by so much more where cuBLAS takes as long as the best plan, and by 1 / e of
that where one of them takes longer by such a share."""
STEPS = 60
HELD = 0.01
HELD_CONSTANTS = 0.003
TOLERANCE = 1e-5


def fit(p: Plans, seconds: Float64, cublas: Float64, gpu: Gpu) -> Constants:
    """The constants by which estimates are near to measured times, and choices near to the best."""
    return fitted(p, seconds, cublas, gpu, np.zeros(len(seconds), int), 0)[0]


FITTED = ("slots", "cycles", "storing")
"""Figures of a tiling that are fitted."""


def fit_steps(
    p: Plans,
    seconds: Float64,
    cublas: Float64,
    gpu: Gpu,
    tilings: Sequence[Tiling],
    index: NDArray[Any],
) -> Float64:
    """What a step of K takes each tiling, a row of slots and one of cycles, and a row of what
    storing takes, by a fit of these and of the constants together. `index` has each plan's
    tiling."""
    of_tiling = np.where(p.gemv | p.direct, 0, index)
    of_tiling[p.streamk] = 0
    factors = fitted(p, seconds, cublas, gpu, of_tiling, len(tilings))[1]
    return factors * np.array([[getattr(t, name) for t in tilings] for name in FITTED])


def fitted(
    p: Plans,
    seconds: Float64,
    cublas: Float64,
    gpu: Gpu,
    of_tiling: NDArray[Any],
    count: int,
) -> tuple[Constants, Float64]:
    """A fit by damped least squares (Levenberg and Marquardt), over the logarithms of the constants
    and of factors of the fitted figures of so many tilings. Both are held near to the package's
    where plans say little of them. What is squared is how far the logarithms of estimates are from
    those of measured times. What is added to the squares is for each shape what a choice loses to
    the best plan in the mean, if plans with nearly the least estimate are chosen nearly as often.
    `cublas` is its time at each plan's shape, NaN where that is not known."""
    names = [field.name for field in dataclasses.fields(Constants)]
    start = constants_now("")
    x = first = np.r_[
        np.log([getattr(start, name) for name in names]), np.zeros(len(FITTED) * count)
    ]
    held = np.r_[np.full(len(names), HELD_CONSTANTS), np.full(len(FITTED) * count, HELD)]
    held *= math.sqrt(SHARE * len(seconds))
    best = best_of(p, seconds)
    lost = seconds / best[p.case] - 1
    weights = np.exp(-lost / NEAR)
    ahead = np.zeros(len(best))
    ahead[p.case] = np.nan_to_num(cublas / best[p.case] - 1, nan=math.inf)
    worth = 1 + CLOSE_WEIGHT * np.exp(-((ahead / CLOSE) ** 2))
    worth /= worth.mean()

    def of_case(values: Float64) -> Float64:
        return np.bincount(p.case, values, len(best))

    def constants(logs: Float64) -> Constants:
        values = map(float, np.exp(logs[: len(names)]))
        return Constants(**dict(zip(names, values, strict=True)))

    def factors(logs: Float64) -> Float64:
        return np.exp(logs[len(names) :]).reshape(len(FITTED), count)

    def residuals(logs: Float64) -> Float64:
        plans = p
        if count:
            of_plan = zip(FITTED, factors(logs)[:, of_tiling], strict=True)
            figures = {name: p.tiling[name] * factor for name, factor in of_plan}
            plans = dataclasses.replace(p, tiling=p.tiling | figures)
        estimates = np.log(estimate(constants(logs), plans, gpu))
        off = estimates - np.log(seconds)
        together = of_case(weights * off) / of_case(weights)
        likely = np.exp(-(estimates - best_of(p, estimates)[p.case]) / SURE)
        losses = of_case(likely * np.minimum(lost, MOST_LOST)) / of_case(likely)
        return np.r_[
            np.sqrt(SHARE * weights) * (off - (1 - COMMON) * together[p.case]),
            np.sqrt(worth * losses + 1e-4),  # whose slope is finite where nothing is lost
            held * (logs - first),
        ]

    now, damping = residuals(x), 1e-2
    for _ in range(STEPS):
        slopes = np.stack(
            [(residuals(x + 1e-4 * unit) - now) / 1e-4 for unit in np.eye(len(x))], axis=1
        )
        square, down = slopes.T @ slopes, slopes.T @ now
        while damping < 1e9:
            scale = np.diag(damping * np.diag(square) + 1e-9)
            tried = x - np.clip(np.linalg.solve(square + scale, down), -1, 1)
            then = residuals(tried)
            if then @ then < now @ now:
                break
            damping *= 4
        else:
            break
        gained = 1 - (then @ then) / (now @ now)
        x, now, damping = tried, then, damping / 4
        if gained < TOLERANCE:
            break
    return constants(x), factors(x)


def best_of(p: Plans, seconds: Float64) -> Float64:
    """The least time of each case."""
    best = np.full(p.case.max() + 1, math.inf)
    np.minimum.at(best, p.case, seconds)
    return best


def chosen_by(estimates: Float64, p: Plans) -> NDArray[np.int64]:
    """The place of the plan with the least estimate, for each case that has plans."""
    order = np.lexsort((estimates, p.case))
    return order[np.r_[True, np.diff(p.case[order]) > 0]]


def gaps(c: Constants, p: Plans, seconds: Float64, gpu: Gpu) -> Float64:
    """For each case, the time of the plan that the constants choose over that of the best."""
    chosen = chosen_by(estimate(c, p, gpu), p)
    return seconds[chosen] / best_of(p, seconds)[p.case[chosen]]


FOLDS = 5


def gaps_unseen(p: Plans, seconds: Float64, cublas: Float64, gpu: Gpu) -> Float64:
    """For each case the gap by a fit to the cases of the other folds."""
    found = np.full(p.case.max() + 1, math.nan)
    for fold in range(FOLDS):
        judged = p.case % FOLDS == fold
        if not judged.any() or judged.all():
            continue
        constants = fit(renumbered(p.of(~judged)), seconds[~judged], cublas[~judged], gpu)
        places = np.unique(p.case[judged])
        found[places] = gaps(constants, renumbered(p.of(judged)), seconds[judged], gpu)
    return found


def renumbered(p: Plans) -> Plans:
    """With cases from 0 on, in their order."""
    return dataclasses.replace(p, case=np.unique(p.case, return_inverse=True)[1])


# ------------------------------------------------------------------------------------- the file


def fitted_to(document: dict[str, Any]) -> tuple[Constants, str]:
    """The constants; and they and the gaps, as text."""
    gpu = Gpu(**document["gpu"])
    tilings = [Tiling(*figures) for figures in document["tilings"]]
    # With tilings that the package lacks it is not the package that chooses.
    tried = document.get("tried_tilings", 0) > 0
    when = "with the tried tilings" if tried else "now"
    rows = [row for row in document["rows"] if "median_s" in row]
    p = plans_of(rows, tilings)
    seconds = np.array([row["median_s"] for row in rows])
    over_best = seconds / best_of(p, seconds)[p.case]
    cublas = np.array([row.get("cublas_median_s") or math.nan for row in rows])
    constants = fit(p, seconds, cublas, gpu)
    off = np.abs(np.log(estimate(constants, p, gpu) / seconds))[over_best <= 1 + NEAR]
    unseen = gaps_unseen(p, seconds, cublas, gpu)
    today = {int(p.case[i]): over_best[i] for i, row in enumerate(rows) if row["chosen"]}
    way_in = [row["simt_median_s"] / row["median_s"] for row in rows
              if row["chosen"] and row["simt_median_s"] and not tried]  # fmt: skip
    kind_of_case = {int(p.case[i]): kind_of(case_of(row)[:3]) for i, row in enumerate(rows)}
    body = []
    for kind in ("all", *KINDS):
        own = [case for case, its in kind_of_case.items() if kind in ("all", its)]
        if own:
            fitted = told([unseen[case] for case in own])
            body.append((kind, str(len(own)), *fitted, *told([today.get(c) for c in own])))
    header = ("gap to the best plan", "shapes", "unseen by the fit", "worst", when, "worst")
    now = constants_now(document["device"])
    figures = [
        (f.name, *(f"{getattr(these, f.name):.3g}" for these in (constants, now)))
        for f in dataclasses.fields(constants)
    ]
    known = [f"Plans near the best are off the model by {np.median(off):.1%} (median)."]
    rival = dict(zip(map(int, p.case), cublas, strict=True))
    speeds = [
        (rival[case] / best, rival[case] / best / today[case])
        for case, best in enumerate(best_of(p, seconds))
        if case in today and not math.isnan(rival[case])
    ]
    if speeds:
        best, chosen = map(statistics.geometric_mean, zip(*speeds, strict=True))
        known += [f"Of cuBLAS's speed, the plans that are chosen {when} have {chosen:.3f}, the "
                  f"best {best:.3f} (geometric mean)."]  # fmt: skip
    if way_in:
        middle = statistics.median(way_in)
        known += [f"`simt` itself takes {middle:.3f} of the time of its plan here (median)."]
    return constants, "\n\n".join(
        [
            table(("constant", "fitted", "now"), figures),
            *known,
            table(header, body),
            worth_of_tilings(p, seconds, cublas, tilings, rows, gpu),
        ]
    )


def worth_of_tilings(
    p: Plans,
    seconds: Float64,
    cublas: Float64,
    tilings: Sequence[Tiling],
    rows: Sequence[dict[str, Any]],
    gpu: Gpu,
) -> str:
    """At how many shapes the best plan has each tiling, how much longer the best plans without it
    take, where there are others, and what a step of K takes it, by a fit."""
    index = np.array([row["tiling"] for row in rows])
    of_step = fit_steps(p, seconds, cublas, gpu, tilings, index)
    best = best_of(p, seconds)
    body = []
    for number, t in enumerate(tilings):
        others = np.full(len(best), math.inf)
        np.minimum.at(others, p.case[index != number], seconds[index != number])
        own = others > best
        lost = np.log(others / best)[np.isfinite(others)]
        figures = ", ".join(map(str, dataclasses.astuple(t)))
        mean = f"{math.expm1(lost.mean()):.2%}" if lost.size else "-"
        fits = (f"{figure:.0f}" for figure in of_step[:, number])
        body.append((figures, str(own.sum()), mean, *fits))
    return table(("tiling", "best at", "lost without it", "slots, fitted", "cycles", "%"), body)


def told(found: Sequence[float | None]) -> tuple[str, str]:
    """The geometric mean of the ratios that are known, and the worst."""
    known = [ratio for ratio in found if ratio is not None and math.isfinite(ratio)]
    return (f"{statistics.geometric_mean(known):.3f}", f"{max(known):.2f}") if known else ("-", "-")


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "plan_times")
    path = parser.parse_args().output
    print(fitted_to(json.loads(path.read_text(encoding="utf-8")))[1])


if __name__ == "__main__":
    main()
