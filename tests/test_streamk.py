"""How `streamk` and `tma` divide the steps of K, and how blocks add the partial sums of a tile."""

import os
import re

import numpy as np
import pytest

import sgemm_kernels as sk

from .support import same_bits, uniform

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"


def streamk(A, B, name="streamk", **options):
    return sk.run(name, A, B, device="cpu", **options)


BOTH = pytest.mark.parametrize("name", ["streamk", "tma"])


def integers(rng, *shape):
    """Integers, whose products are exact in any order of additions."""
    return rng.integers(-8, 9, shape).astype(np.float32)


@BOTH
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 4, 5, 8, 13, 132])
def test_every_division_is_exact_for_integers(name, order, multiprocessors, monkeypatch, rng):
    """Includes the case in which `tma` does not transpose, because A is column-major, and uses
    deeper tiles."""
    monkeypatch.setenv(SETTING, str(multiprocessors))
    for M, N, K in ((300, 700, 300), (129, 260, 1000), (1, 513, 2048), (640, 256, 64), (5, 5, 0)):
        A = np.asarray(integers(rng, M, K), order=order)
        B, C = integers(rng, K, N), integers(rng, M, N)
        result = streamk(A, B, name, C=C, alpha=2, beta=-1)
        assert np.array_equal(result, 2 * (A @ B) - C), (M, N, K)


@BOTH
def test_bits_do_not_depend_on_the_last_block_to_arrive(name, monkeypatch, rng):
    monkeypatch.setenv(SETTING, "7")
    A, B = uniform(rng, 200, 700), uniform(rng, 700, 500)
    first = streamk(A, B, name)
    cores = os.sched_getaffinity(0)
    try:
        for count in range(1, len(cores) + 1):
            os.sched_setaffinity(0, sorted(cores)[:count])
            assert all(same_bits(streamk(A, B, name), first) for _ in range(20))
    finally:
        os.sched_setaffinity(0, cores)


def whole_tiles_of(A, B, shape):
    """For each of the 128 x 256 tiles: is it bit-identical to raster? raster adds in order of k,
    and so does a tile that one block computes."""
    result, in_order = streamk(A, B), sk.run("raster", A, B, device="cpu")
    tiles = [np.s_[128 * i : 128 * (i + 1), 256 * j : 256 * (j + 1)] for i, j in np.ndindex(shape)]
    return [same_bits(result[tile], in_order[tile]) for tile in tiles]


def test_whole_waves_are_whole_tiles(monkeypatch, rng):
    """Nine tiles are a whole number of waves only for some numbers of multiprocessors."""
    A, B = uniform(rng, 300, 500), uniform(rng, 500, 700)
    whole = []
    for multiprocessors in (1, 2, 3, 4, 5, 9, 12):
        monkeypatch.setenv(SETTING, str(multiprocessors))
        whole += [multiprocessors] * all(whole_tiles_of(A, B, (3, 3)))
    assert whole == [1, 3, 9]


def test_waves_before_the_last_two_are_whole_tiles(monkeypatch, rng):
    """Nine tiles on two multiprocessors: the first six are whole. Two blocks share the last three,
    and the middle one is divided."""
    monkeypatch.setenv(SETTING, "2")
    A, B = uniform(rng, 9 * 128, 500), uniform(rng, 500, 256)
    assert whole_tiles_of(A, B, (9, 1)) == [True] * 7 + [False, True]


def test_a_share_has_at_least_four_steps(monkeypatch, rng):
    """K = 2048 has 64 steps, so at most 16 blocks share a tile, on a GPU of any size."""
    A, B = uniform(rng, 20, 2048), uniform(rng, 2048, 30)
    results = {}
    for multiprocessors in (15, 16, 132):
        monkeypatch.setenv(SETTING, str(multiprocessors))
        results[multiprocessors] = streamk(A, B)
    assert same_bits(results[16], results[132])
    assert not same_bits(results[15], results[16])


BEFORE = "__threadfence(); // all threads' partial sums are visible before the block arrives"
AFTER = "__threadfence(); // the others' partial sums are read after their arrivals"
ARRIVES = "if (threadIdx.x == 0) {\n        const unsigned others ="


@pytest.mark.usefixtures("custom_cache")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(BEFORE, "", id="no fence before the arrival", marks=pytest.mark.thorough),
        pytest.param(AFTER, "", id="no fence after it"),
        pytest.param(
            f"__syncthreads();\n    {ARRIVES}",
            ARRIVES,
            id="no barrier before the fence",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_sanitize_finds_missing_synchronization_between_blocks(old, new):
    text = sk.source("streamk")
    assert text.count(old) == 1
    new += "\n" * (old.count("\n") - new.count("\n"))
    verdict = sk.kernel(text.replace(old, new), name="mutant").sanitize(seconds=60)
    first = verdict.findings[0]
    assert first.kind == "race", verdict
    assert first.array == "scratch"
    assert "+ from[i * threads];" in verdict.source.splitlines()[first.line - 1]
    writer = re.search(
        r"which thread \d+ of block \d+ writes at line (\d+), and no fence", first.text
    )
    line = verdict.source.splitlines()[int(writer[1]) - 1]
    assert "from[i * threads] = sum" in line, verdict
