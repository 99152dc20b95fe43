"""Compares the counts of the traced build with formulas, and plants a bank conflict."""

import dataclasses
import html
import json
import os
import re
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.typing import NDArray

import sgemm_kernels
from sgemm_kernels import (
    Trace,
    UnsupportedVariantError,
    _style,
    kernel,
    run,
    source,
    trace,
    variants,
)
from sgemm_kernels._catalog import kernel_file
from sgemm_kernels.explaining.accesses import Access
from sgemm_kernels.explaining.trace_picture import alike

from .support import SPLIT_FP16, printed_by, sampled, uniform

KERNELS = [variant for variant in variants() if variant.file is not None]
ASYNCHRONOUS = ("splitk", "streamk", "tma")
"""The library's kernels that copy tiles asynchronously."""
NAMES = [kernel.name for kernel in KERNELS]
BY_NAME = pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
PICTURED = ("naive", "vec4", "async", "fused")
"""The rungs whose pictures are drawn in every run of the tests."""


def requested_bytes(traced: Trace, operand: str, kind: str) -> int:
    """Bytes that the threads of the block request."""
    found = [a for a in traced.accesses if a.operand == operand and a.kind == kind]
    return sum(a.lanes * a.bytes_per_thread for a in found)


def files_of(name: str) -> set[str]:
    """The names of a kernel's file and of all kernels' headers that it includes, directly or
    indirectly."""
    within = re.findall(r'^#include "([\w./]+)"', kernel_file(name), re.MULTILINE)
    ours = [Path(each).name for each in within if not re.search(r"/(base|emulator)/", each)]
    return {name}.union(*map(files_of, ours))


def find(traced: Trace, operand: str, kind: str):
    (access,) = [a for a in traced.accesses if a.operand == operand and a.kind == kind]
    return access


def row_bytes_of_a(traced: Trace) -> int:
    (found,) = {access.row_bytes for access in traced.accesses if access.operand == "A"}
    return found


@pytest.mark.parametrize("name", ["naive", "vec4", "splitk", "wgmma"])
def test_printed_traces_fit_in_100_columns(name):
    """The notebook page shows the source line in full."""
    traced = trace(name, 512, 512, 64)
    lines = repr(traced).splitlines()
    assert max(map(len, lines)) <= 100
    longest = max((access.text.strip() for access in traced.accesses), key=len)
    assert html.escape(longest) in traced._repr_html_()
    if name == "vec4":
        assert any(re.match(r"\d+ .*…  ", line) for line in lines), "what is cut is marked"


def test_naive_reads_a_sector_for_each_thread():
    traced = trace("naive", 64, 64, 64)
    assert find(traced, "A", "load").sectors_per_request == 32
    assert find(traced, "A", "load").wasteful
    assert find(traced, "B", "load").sectors_per_request == 1
    assert find(traced, "C", "store").sectors_per_request == 32


def test_coalesced_reads_whole_sectors():
    traced = trace("coalesced", 64, 64, 64)
    assert find(traced, "A", "load").sectors_per_request == 1
    assert find(traced, "B", "load").sectors_per_request == 4
    assert find(traced, "C", "store").sectors_per_request == 4
    assert not any(access.wasteful for access in traced.accesses)


def test_a_request_has_the_addresses_of_a_warp():
    traced = trace("coalesced", 100, 1000, 7)
    load = find(traced, "B", "load")
    assert load.requests == 32 * 7  # warps of the block, steps of K
    assert load.first_request == tuple(4 * thread for thread in range(32))
    assert load.row_bytes == 4 * 1000
    down = find(trace("naive", 100, 1000, 7), "A", "load")
    # The ladder's matrices are contiguous. The library pads rows to a multiple of 16 bytes.
    assert down.first_request == tuple(28 * thread for thread in range(32))
    assert row_bytes_of_a(trace("splitk", 100, 1000, 7)) == 32


@BY_NAME
@pytest.mark.parametrize("depth", [16, 64, 100])
def test_traffic_matches_the_formulas(kernel, depth):
    traced = trace(kernel.name, 256, 256, depth)
    (BM, BN, BK), (TM, TN) = kernel.block_tile, kernel.thread_tile
    assert (traced.rows, traced.cols) == (BM, BN)
    assert requested_bytes(traced, "C", "store") == 4 * BM * BN
    assert requested_bytes(traced, "C", "load") == 0
    if kernel.shared_bytes == 0:
        for operand in "AB":
            assert requested_bytes(traced, operand, "load") == 4 * BM * BN * depth
        return
    if kernel.name in SPLIT_FP16:
        return  # tested below
    # Each block reads its rows of A and columns of B once.
    assert requested_bytes(traced, "A", "load") == 4 * BM * depth
    assert requested_bytes(traced, "B", "load") == 4 * BN * depth
    # Whole tiles are stored and read, with zeros beyond the end of K. Kernels that prefetch read
    # one step more, and those of the ladder store one tile more.
    steps = -(-depth // BK)
    ladder_ahead = kernel.name in ("prefetch", "warptile", "async", "raster")
    ahead = ladder_ahead or kernel.name in ASYNCHRONOUS
    stored, read = (steps + ladder_ahead) * BK, steps * BK + ahead
    assert requested_bytes(traced, "As", "store") == 4 * BM * stored
    assert requested_bytes(traced, "Bs", "store") == 4 * BN * stored
    # A thread uses a value of A for TN results of a row, and a value of B for TM of a column.
    assert requested_bytes(traced, "As", "load") == 4 * BM * BN * read // TN
    assert requested_bytes(traced, "Bs", "load") == 4 * BM * BN * read // TM


@BY_NAME
@pytest.mark.parametrize("batch", [2, 7])
def test_a_batch_counts_each_product(kernel, batch):
    """Every second product begins in the middle of a cache line: it has the same sectors, but
    other lines."""
    one = trace(kernel.name, 36, 52, 20)
    every = trace(kernel.name, batch, 36, 52, 20)
    assert (every.batch, every.M, every.N, every.K) == (batch, 36, 52, 20)
    assert every.owners == one.owners
    assert every.multiply_adds == batch * one.multiply_adds
    assert every.tensor_multiply_adds == batch * one.tensor_multiply_adds
    counts = ("requests", "lanes", "sectors", "wavefronts", "least")
    for found, single in zip(every.accesses, one.accesses, strict=True):
        expected = {name: getattr(single, name) for name in counts}
        expected = {name: None if n is None else batch * n for name, n in expected.items()}
        assert dataclasses.replace(found, lines=single.lines) == dataclasses.replace(
            single, **expected
        )
    assert [access.lines for access in every.accesses] != [
        None if access.lines is None else batch * access.lines for access in one.accesses
    ]
    for name in ("global", "shared", "sector"):
        figure = f"{name}_bytes_per_multiply_add"
        assert getattr(every, figure) == getattr(one, figure)


@pytest.mark.parametrize(
    "size", [(70, 5, 7, 3), (31, 5, 7, 3), (32, 1, 1, 1), (33, 2, 40, 3), (9, 40, 3, 20)]
)
def test_a_batch_of_naive_reads_the_sectors_of_its_addresses(size):
    """Matrices follow each other without gaps, so few begin with a sector or a cache line."""
    batch, M, N, K = size
    traced = trace("naive", *size)
    rows, cols = min(M, 32), min(N, 32)
    down = np.arange(rows)
    expected = {operand: np.zeros(4, int) for operand in "ABC"}
    for product in range(batch):
        for col in range(cols):  # a warp has a column
            requests = {
                "A": [product * M * K + down * K + k for k in range(K)],
                "B": [product * K * N + 0 * down + k * N + col for k in range(K)],
                "C": [product * M * N + down * N + col],
            }
            for operand, floats in requests.items():
                for of_lanes in floats:
                    sectors, lines = (len(set(of_lanes * 4 // size)) for size in (32, 128))
                    expected[operand] += [1, rows, sectors, lines]
    for operand, kind in [("A", "load"), ("B", "load"), ("C", "store")]:
        access = find(traced, operand, kind)
        counts = [access.requests, access.lanes, access.sectors, access.lines]
        assert counts == list(expected[operand])


def test_rows_of_a_batch_have_no_padding():
    """Only every second row of 30 floats begins on 16 bytes, so there are no float4 loads."""

    def wide(traced):
        return sum(
            access.lanes
            for access in traced.accesses
            if access.operand in "AB" and access.bytes_per_thread == 16
        )

    one, every = trace("tma", 64, 30, 30), trace("tma", 4, 64, 30, 30)
    assert row_bytes_of_a(every) == 4 * 30
    assert row_bytes_of_a(one) == 4 * 32
    assert wide(one) > wide(every) == 0


def test_a_large_batch_is_counted_like_a_small_one():
    one, every = trace("warptile", 32, 32, 32), trace("warptile", 1_000_000, 32, 32, 32)
    assert [access.requests for access in every.accesses] == [
        1_000_000 * access.requests for access in one.accesses
    ]
    assert every.owners == one.owners


def test_sizes_are_given_as_for_measure():
    expected = trace("vec4", 48, 48, 48)
    assert expected.batch == 1
    assert trace("vec4", 48) == trace("vec4", (48, 48, 48)) == expected
    assert trace("vec4", 1, 48, 48, 48) == trace("vec4", [1, 48, 48, 48]) == expected
    assert trace("vec4", (5, 48, 48, 48)) == trace("vec4", 5, 48, 48, np.int64(48))


def multiplying_accesses(traced: Trace) -> list[Access]:
    """The accesses of the kernel that multiplies, among the kernels of a split-fp16 product."""
    (launch,) = {access.launch for access in traced.accesses if access.operand == "As"}
    return [access for access in traced.accesses if access.launch == launch]


def in_float4s(accesses: Iterable[Access], operand: str, kind: str) -> int:
    """Bytes requested as float4."""
    return sum(
        access.lanes * 16
        for access in accesses
        if (access.operand, access.kind, access.bytes_per_thread) == (operand, kind, 16)
    )


def stored_pairs(traced: Trace) -> int:
    """Bytes of fp16 pairs, the only scratch memory that a thread writes 8 or 16 bytes at a time."""
    return sum(
        access.lanes * access.bytes_per_thread
        for access in traced.accesses
        if (access.operand, access.kind) == ("scratch", "store") and access.bytes_per_thread >= 8
    )


@pytest.mark.parametrize("depth", [16, 64, 100, 300])
@pytest.mark.parametrize("name", SPLIT_FP16)
def test_traffic_of_split_fp16(name, depth):
    kernel = next(kernel for kernel in KERNELS if kernel.name == name)
    traced = trace(name, 256, 256, depth)
    BM, BN, _ = kernel.block_tile
    # Both operands are read twice: for their largest elements, and to be split. `fused` reads A
    # once, as it is multiplied.
    assert requested_bytes(traced, "A", "load") == (1 if name == "fused" else 2) * 4 * BM * depth
    assert requested_bytes(traced, "B", "load") == 2 * 4 * BN * depth
    # The fp16 pairs fill whole K chunks. They are written once, and read once for each tile of C.
    A, B = (4 * lines * 64 * -(-depth // 64) for lines in (BM, BN))
    pairs = B if name == "fused" else A + B
    assert stored_pairs(traced) == pairs
    product = multiplying_accesses(traced)
    assert in_float4s(product, "scratch", "load") == pairs
    at_the_end = [access for access in product if "store_passing" in access.text]
    in_chunks = [access for access in product if access not in at_the_end]
    assert in_float4s(in_chunks, "As", "store") == A
    assert in_float4s(in_chunks, "Bs", "store") == B
    if name == "mma":
        # Warps of 64 x 32 results read both fp16 values of each pair. Too few registers are left to
        # keep all of A's hi values, so a quarter of them is read twice.
        assert in_float4s(in_chunks, "As", "load") == A * (BN // 32) * 9 // 8
        assert in_float4s(in_chunks, "Bs", "load") == B * (BM // 64)
    elif name == "fused":
        # A thread reads pairs of A's floats once, and keeps their fp16 pairs in registers.
        assert requested_bytes(traced, "As", "load") == A
        assert in_float4s(in_chunks, "Bs", "load") == 3 * B // 2 * (BM // 64)
    else:
        # Each of the three fp16 products reads both of its factors, for 64 x 128 results.
        assert in_float4s(in_chunks, "As", "load") == 3 * A // 2
        assert in_float4s(in_chunks, "Bs", "load") == 3 * B // 2 * (BM // 64)
    # The results are stored in pairs, as tensor cores hold them: 32 bytes of each of eight rows.
    stores = [access for access in at_the_end if access.operand == "C"]
    assert {access.bytes_per_thread for access in stores} == {8}
    assert {access.sectors_per_request for access in stores} == {8}
    assert sum(access.lanes * access.bytes_per_thread for access in stores) == 4 * BM * BN


@pytest.mark.parametrize("name", ["vec4", "prefetch", "warptile"])
def test_float4_wavefronts_match_a_gpus_counts(name):
    """In A's tile, two neighboring threads load the same address; in B's, only threads further
    apart do."""
    rows = json.loads(sgemm_kernels.recorded_file("h200/traffic.json").read_text())["rows"]
    (gpu,) = [row["gpu"] for row in rows if (row["variant"], row["M"]) == (name, 4096)]
    loads = [a for a in trace(name, 256, 256, 64).accesses if a.operand in {"As", "Bs"}]
    loads = [access for access in loads if access.kind == "load"]
    assert {(access.operand, access.wavefronts_per_request) for access in loads} == {
        ("As", 2.0),
        ("Bs", 4.0),
    }
    counted = sum(a.wavefronts for a in loads) / sum(a.requests for a in loads)
    measured = gpu["shared_load_wavefronts"] / gpu["shared_load_requests"]
    assert counted == pytest.approx(measured, rel=0.001)


@pytest.mark.parametrize("name", ["wgmma", "waves"])
def test_tma_tiles_and_warpgroup_products_have_no_bank_conflict(name):
    """A TMA tile of 128 rows of 128 bytes counts as 32 requests; a product reads its factors in
    16-byte chunks."""
    traced = trace(name, 256, 256, 256)
    tma_tiles = [access for access in multiplying_accesses(traced) if "tma_load_2d" in access.text]
    assert [(a.operand, a.kind) for a in tma_tiles] == [
        *(("scratch", "load"), ("As", "store")),
        *(("scratch", "load"), ("Bs", "store")),
    ]
    for access in tma_tiles:
        assert access.requests == 32 * 8  # 8 tiles, each with 32 steps of K
        if access.space == "global":
            assert (access.sectors_per_request, access.lines) == (16, 4 * access.requests)
        else:
            assert access.wavefronts_per_request == 4
    # The first rows of a TMA tile in shared memory: the swizzle permutes groups of eight
    # chunks.
    store = tma_tiles[1].first_request
    assert store[:9] == tuple(16 * chunk for chunk in (*range(8), 8 + 1))
    assert store[16:18] == (16 * (16 + 2), 16 * (16 + 3))
    products = [
        access for access in multiplying_accesses(traced) if "multiply_chunk" in access.text
    ]
    k_chunks, depths, fp16_products, warpgroups = 4, 4, 3, 2
    for access in products:
        tiles_read = k_chunks * depths * fp16_products * warpgroups
        requests = {"As": 64, "Bs": 128}[access.operand] * 2 // 32  # two chunks of each row
        assert access.requests == tiles_read * requests
        assert access.wavefronts == access.least == 4 * access.requests
    assert [access.operand for access in products] == ["As", "Bs"]


@pytest.mark.parametrize("name", SPLIT_FP16)
def test_data_passed_between_kernels_of_a_product_is_counted(name):
    traced = trace(name, 256, 256, 256)
    product = multiplying_accesses(traced)
    copied = in_float4s([a for a in product if "store_passing" not in a.text], "scratch", "load")
    assert copied == stored_pairs(traced) > 0
    before = range(product[0].launch)
    split = "B" if name == "fused" else "AB"
    assert {a.launch for a in traced.accesses if a.operand in split} <= set(before)
    assert {a.operand for a in trace("vec4", 256, 256, 256).accesses} == {*"ABC", "As", "Bs"}


@BY_NAME
def test_tensor_cores_compute_three_of_four_fp16_products(kernel):
    traced = trace(kernel.name, 256, 256, 256)
    text = "".join(map(kernel_file, files_of(kernel.file) - {"ptx.h"}))
    uses = "mma_m16n8k16(" in text or "wgmma_k16(" in text
    assert uses == (kernel.name in SPLIT_FP16)
    assert traced.tensor_multiply_adds == (3 * traced.multiply_adds if uses else 0)


def owners_of(traced: Trace) -> NDArray[np.int16]:
    return np.frombuffer(traced.owners, np.int16).reshape(traced.rows, traced.cols)


@BY_NAME
def test_each_thread_owns_its_share_of_the_results(kernel):
    owners = owners_of(trace(kernel.name, 512, 512, 64))
    threads, results = np.unique(owners, return_counts=True)
    TM, TN = kernel.thread_tile
    assert list(threads) == list(range(owners.size // (TM * TN)))
    assert set(results) == {TM * TN}
    down, across = np.unravel_index(np.flatnonzero(owners == 0), owners.shape)
    share = (len(set(down)), len(set(across)))
    if kernel.name in SPLIT_FP16:
        # Tensor cores give a thread pairs of every eighth row.
        assert sorted(set(down)) == list(range(0, 8 * TM, 8))
        assert all(col % 8 < 2 for col in across)
    assert share == (TM, TN)


@BY_NAME
def test_each_warp_owns_a_rectangle_of_the_results(kernel):
    owners = owners_of(trace(kernel.name, 512, 512, 64)) // 32
    for warp in np.unique(owners):
        down, across = np.nonzero(owners == warp)
        assert len(down) == len(set(down)) * len(set(across))


def test_cache_lines_match_their_sectors():
    assert (
        find(trace("naive", 64, 64, 64), "A", "load").lines
        == 32 * find(trace("naive", 64, 64, 64), "A", "load").requests
    )
    load = find(trace("coalesced", 64, 64, 64), "B", "load")
    assert (load.lines, load.sectors) == (load.requests, 4 * load.requests)
    load = find(trace("vec4", 256, 256, 256), "B", "load")
    assert (load.lines, load.sectors) == (4 * load.requests, 16 * load.requests)
    assert find(trace("vec4", 256, 256, 256), "As", "load").lines is None


SPENT_ONCE_BY_FUSED = {
    # four rows of an MN-major operand at a time: other blocks use the rest of a sector
    ("for_each_four<K_MAJOR>(s, X, row, share, [&](int64_t, const", "B"),
    ("for_each_four<K_MAJOR>(s, X, row, share, [&](int64_t four, const", "B"),
}
SPENT_ONCE = {
    # once per K chunk: a warp's threads read every fourth row; a row has 33 words
    ("find_largest<true>(s, first, begin, end, found);", "found"),
    # once per row: two consecutive floats
    ("powers[thread] = {largest < infinity_bits ? power_of_two(scale / 2) : 0.0f,", "powers"),
    # once per element: both hi blocks of a row use the same banks, and so do both lo blocks
    ("tile[row][place_in_row(row, vector)].fours[four % 2] = hi;", "tile"),
    ("tile[row][place_in_row(row, vector + lo_offset)].fours[four % 2] = lo;", "tile"),
}
"""Wasteful accesses of split-fp16 products, none of them in the inner loop: the start of the source
line, and the array."""


@BY_NAME
def test_only_naive_wastes_bandwidth(kernel):
    traced = trace(kernel.name, 256, 256, 64)
    wasteful = {(a.text.strip(), a.operand) for a in traced.accesses if a.wasteful}
    if kernel.name in SPLIT_FP16:
        for text, operand in SPENT_ONCE_BY_FUSED if kernel.name == "fused" else SPENT_ONCE:
            found = {w for w in wasteful if w[0].startswith(text) and w[1] == operand}
            assert len(found) == 1, f"{text} wastes nothing any more"
            wasteful -= found
    assert bool(wasteful) == (kernel.name == "naive")


@BY_NAME
def test_figures_per_multiply_add_are_sums_over_the_accesses(kernel):
    traced = trace(kernel.name, 200, 300, 40)
    operations = traced.rows * traced.cols * 40
    assert traced.multiply_adds == operations
    by_space = {"global": 0, "shared": 0}
    for access in traced.accesses:
        by_space[access.space] += access.lanes * access.bytes_per_thread
    assert traced.global_bytes_per_multiply_add == by_space["global"] / operations
    assert traced.shared_bytes_per_multiply_add == by_space["shared"] / operations
    sectors = sum(access.sectors or 0 for access in traced.accesses)
    assert traced.sector_bytes_per_multiply_add == 32 * sectors / operations


@BY_NAME
def test_each_access_names_its_line(kernel):
    traced = trace(kernel.name, 200, 200, 20)
    places = [(access.file, access.line) for access in traced.accesses]
    assert places == sorted(places)
    files = files_of(kernel.file)
    for access in traced.accesses:
        assert access.file in files
        lines = kernel_file(access.file).splitlines()
        assert access.text == lines[access.line - 1]
        if access.space == "shared":
            # Other lines are calls that copy both operands, or load both through pointers.
            assert access.operand in access.text or "load(" in access.text
        elif access.operand == "C":
            assert re.search(r"store|\b(c|to)(\[\w\])? = ", access.text)
        elif access.operand != "scratch":
            assert access.kind == "load"
        assert (access.sectors is None) == (access.space == "shared")
        assert (access.wavefronts is None) == (access.space == "global")


@BY_NAME
def test_a_block_at_the_edge_touches_only_the_operands(kernel):
    traced = trace(kernel.name, 1, 1, 1)
    assert (traced.rows, traced.cols) == (1, 1)
    # Split operands are read twice: for the largest element, and to be split.
    of_A = 2 if kernel.name in SPLIT_FP16 and kernel.name != "fused" else 1
    of_B = 2 if kernel.name in SPLIT_FP16 else 1
    assert requested_bytes(traced, "A", "load") == 4 * of_A
    assert requested_bytes(traced, "B", "load") == 4 * of_B
    assert requested_bytes(traced, "C", "store") == 4


def test_traces_in_threads_do_not_mix():
    names = [kernel.name for kernel in KERNELS]
    alone = [trace(name, 128, 128, 32) for name in names]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda name: trace(name, 128, 128, 32), names * 2))
    assert together == alone * 2


@BY_NAME
def test_a_product_is_the_same_during_a_trace(kernel, rng):
    A, B = uniform(rng, 150, 70), uniform(rng, 70, 140)
    expected = run(kernel.name, A, B, device="cpu")
    with ThreadPoolExecutor(1) as pool:
        tracing = pool.submit(trace, kernel.name, 256, 256, 256)
        while not tracing.done():
            assert np.array_equal(run(kernel.name, A, B, device="cpu"), expected)


def test_a_product_that_ran_in_the_calling_thread_does_not_disturb_a_trace():
    code = """
        import numpy as np
        from sgemm_kernels import run, trace
        expected = trace("tile2d", 64, 64, 16)
        square = np.ones((32, 32), np.float32)
        run("naive", square, square, device="cpu")
        print(trace("tile2d", 64, 64, 16) == expected)
    """
    assert printed_by(code) == "True"


def test_an_interrupt_ends_a_trace():
    class EnoughError(Exception):
        pass

    def stop(*_):
        raise EnoughError

    before = signal.signal(signal.SIGUSR1, stop)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(EnoughError):
            trace("smem", 64, 64, 1 << 20)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert find(trace("naive", 64, 64, 64), "A", "load").sectors_per_request == 32


def test_a_child_of_a_fork_can_trace_while_its_parent_does():
    code = """
        import os, threading, time
        from sgemm_kernels import trace
        thread = threading.Thread(target=trace, args=("smem", 64, 64, 8192))
        thread.start()
        time.sleep(0.1)
        child = os.fork()
        if child == 0:
            os._exit(trace("naive", 64, 64, 8).accesses[0].requests % 251)
        assert thread.is_alive()
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 32 * 8 % 251)
        thread.join()
    """
    assert printed_by(code) == "True"


def test_refusals():
    with pytest.raises(ValueError, match="did you mean 'coalesced'"):
        trace("coalesed", 64, 64, 64)
    with pytest.raises(UnsupportedVariantError, match="cublas"):
        trace("cublas", 64, 64, 64)
    with pytest.raises(UnsupportedVariantError, match="'auto' has no kernel of its own"):
        trace("auto", 64, 64, 64)
    with pytest.raises(ValueError, match="at least 1"):
        trace("naive", 64, 0, 64)
    with pytest.raises(ValueError, match="too large"):
        trace("naive", 64, 1 << 70, 64)
    with pytest.raises(ValueError, match=r"\(0, 64, 64, 64\): each number must be at least 1"):
        trace("naive", 0, 64, 64, 64)
    with pytest.raises(ValueError, match=r"\(64, 64\): use N, \(M, N, K\) or \(batch, M, N, K\)"):
        trace("naive", 64, 64)
    assert trace("naive", 1 << 62, 32, 8).accesses == trace("naive", 32, 32, 8).accesses
    for size in [
        (64, 1 << 62, 64),
        (8, 1 << 40, 1 << 40),
        (1 << 40, 64, 64, 64),
        (1 << 62, 64, 64, 64),
    ]:
        with pytest.raises(sgemm_kernels.OutOfMemoryError, match=f"no address space.*{size[0]}, "):
            trace("naive", *size)
    with pytest.raises(TypeError):
        trace("naive", 64, 64.0, 64)  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace("naive", 64, 64, 64).K = 3  # type: ignore[misc]


def test_it_prints_a_table():
    traced = trace("naive", 64, 64, 64)
    text = repr(traced)
    assert "naive, M = 64, N = 64, K = 64: one block, 32 x 32 results" in text
    load = find(traced, "A", "load")
    (line,) = [line for line in text.splitlines() if "load A (global)" in line]
    assert line.startswith(str(load.line))
    assert load.text.strip()[:30] in line
    assert "32 sectors" in line
    first, *_ = repr(trace("naive", 5, 64, 48, 32)).splitlines()
    sizes = "naive, batch = 5, M = 64, N = 48, K = 32"
    assert first == f"{sizes}: one block of each product, 32 x 32 results"
    html = traced._repr_html_()
    assert html.count("<tr>") == 1 + len(traced.accesses)
    assert "load A (global)" in html


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(
    "kernel", sampled(KERNELS, [k for k in KERNELS if k.name in PICTURED]), ids=NAMES
)
def test_the_picture_has_a_panel_for_each_access(kernel, dark):
    traced = trace(kernel.name, 4096, 4096, 32)
    picture = traced.plot(dark=dark)
    assert picture._repr_png_().startswith(b"\x89PNG")
    panels = picture.axes
    assert len(panels) == len(alike(traced.accesses))
    words = [text.get_text() for axes in panels for text in axes.texts]
    for access in traced.accesses:
        assert any(access.verdict in text for text in words)
    counts = [int(found[1]) for text in words if (found := re.match(r"(\d+) requests?", text))]
    assert len(counts) == len(panels)
    assert sum(counts) == sum(access.requests for access in traced.accesses)
    # No panel overlaps another one.
    boxes = [axes.get_tightbbox() for axes in panels]
    for index, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[index + 1 :])
    for axes in panels:
        above = [text for text in axes.texts if text.get_transform() == axes.transAxes]
        code, counts, verdict = (text.get_window_extent() for text in above)
        assert code.x1 < counts.x0
        assert not verdict.overlaps(code)


def test_wasted_bytes_are_not_green():
    """`coalesced` broadcasts words of A. Each request reads as few sectors as possible, but wastes
    seven of a sector's eight words."""
    traced = trace("coalesced", 512, 512, 64)
    picture = traced.plot()
    colours = {
        text.get_text().split(",")[0]: to_hex(text.get_color())
        for axes in picture.axes
        for text in axes.texts
        if "bytes per thread" in text.get_text()
    }
    green = _style.theme(dark=False).good
    assert colours["load B"] == colours["store C"] == green
    assert colours["load A"] != green
    words = [text.get_text() for axes in picture.axes for text in axes.texts]
    assert "2048 requests, 1 of 8 words used" in words


@pytest.mark.parametrize("kernel", ["naive", "tile2d", "vec4"])
@pytest.mark.parametrize("N", [1, 5, 37, 130])
def test_pictures_of_sectors_across_rows_stay_in_their_panels(kernel, N):
    for axes in trace(kernel, 130, N, N).plot().axes:
        (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
        for patch in axes.patches:
            assert left <= patch.get_x() <= patch.get_x() + patch.get_width() <= right
            assert top <= patch.get_y() <= patch.get_y() + patch.get_height() <= bottom


def test_a_planted_bank_conflict_is_seen(custom_cache):
    # The padding puts two float4s of A, stored along K, in different banks.
    for padding, wavefronts in ((4, 1.0), (0, 2.0)):
        text = source("vec4").replace("PAD = 4;", f"PAD = {padding};")
        assert (text == source("vec4")) == (padding == 4)
        accesses = trace(kernel(text, name="planted", like="vec4"), 128, 128, 8).accesses
        stores = [
            (access.operand, access.wavefronts_per_request, access.wasteful)
            for access in accesses
            if access.space == "shared" and access.kind == "store"
        ]
        of_A = ("As", wavefronts, padding == 0)
        assert stores == [of_A, of_A, ("Bs", 4.0, False)]
