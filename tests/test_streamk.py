"""Blocks that take equal shares of all steps of K, and those that add parts of K without a second
kernel: benchmarks/ablations/streamk.cu."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels as sk
from sgemm_kernels._probe import find_nvcc

from .support import same_bits, uniform

FILE = Path(__file__).parent.parent / "benchmarks/ablations/streamk.cu"
SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.fixture(scope="module")
def passed(own_cache):
    """Loads the kernel, in which sanitize() has found nothing, so that it runs in this process."""
    loaded = {}

    def load(name):
        if name not in loaded:
            defines = {"DIVIDE_K": 1} if name == "divided" else {}
            loaded[name] = sk.kernel(FILE, name=name, defines=defines)
            verdict = loaded[name].sanitize(seconds=60)
            assert verdict.passed, verdict
            assert {finding.kind for finding in verdict.findings} <= {"uncoalesced"}
        return loaded[name]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, "5")
        yield load


@pytest.fixture
def streamed(passed):
    return passed("streamed")


@pytest.fixture
def divided(passed):
    return passed("divided")


@pytest.fixture(params=["streamed", "divided"])
def kernel(request):
    return request.getfixturevalue(request.param)


def integers(rng, *shape):
    """Whose products are exact in any order of additions."""
    return rng.integers(-8, 9, shape).astype(np.float32)


@pytest.mark.parametrize("multiprocessors", [5, 7])
def test_is_right_about_every_edge(kernel, multiprocessors, monkeypatch):
    monkeypatch.setenv(SETTING, str(multiprocessors))
    verdict = sk.kernel(FILE, name=f"checked{multiprocessors}", defines=kernel.defines).check(
        device="cpu", seconds=60
    )
    assert verdict.passed, verdict


@pytest.mark.parametrize("multiprocessors", [1, 2, 3, 4, 5, 8, 13, 132])
def test_every_division_is_exact_for_integers(kernel, multiprocessors, monkeypatch, rng):
    monkeypatch.setenv(SETTING, str(multiprocessors))
    for M, N, K in ((300, 700, 300), (129, 257, 999), (1, 513, 2048), (640, 256, 64), (5, 5, 0)):
        A, B, C = integers(rng, M, K), integers(rng, K, N), integers(rng, M, N)
        result = sk.run(kernel, A, B, C=C, alpha=2, beta=-1, device="cpu")
        assert np.array_equal(result, 2 * (A @ B) - C), (M, N, K)


def test_has_the_same_bits_whoever_arrives_last(kernel, monkeypatch, rng):
    monkeypatch.setenv(SETTING, "7")
    A, B = uniform(rng, 200, 700), uniform(rng, 700, 500)
    first = sk.run(kernel, A, B, device="cpu")
    cores = os.sched_getaffinity(0)
    try:
        for count in range(1, len(cores) + 1):
            os.sched_setaffinity(0, sorted(cores)[:count])
            assert all(same_bits(sk.run(kernel, A, B, device="cpu"), first) for _ in range(20))
    finally:
        os.sched_setaffinity(0, cores)


def test_whole_waves_are_whole_tiles(streamed, monkeypatch, rng):
    """A tile that one block computes has the bits of raster, which adds in order of k; and nine
    tiles are a whole number of waves for some numbers of multiprocessors alone."""
    A, B = uniform(rng, 300, 500), uniform(rng, 500, 700)
    in_order = sk.run("raster", A, B, device="cpu")
    whole = []
    for multiprocessors in (1, 2, 3, 4, 5, 9, 12):
        monkeypatch.setenv(SETTING, str(multiprocessors))
        result = sk.run(streamed, A, B, device="cpu")
        whole += [multiprocessors] * same_bits(result, in_order)
    assert whole == [1, 3, 9]


def test_waves_before_the_last_two_are_whole_tiles(streamed, monkeypatch, rng):
    """Nine tiles on two: the first six, by bands of 8 rows of tiles, come first."""
    monkeypatch.setenv(SETTING, "2")
    A, B = uniform(rng, 9 * 128, 500), uniform(rng, 500, 256)
    result = sk.run(streamed, A, B, device="cpu")
    in_order = sk.run("raster", A, B, device="cpu")
    tiles = [slice(128 * i, 128 * (i + 1)) for i in range(9)]
    same = [same_bits(result[tile], in_order[tile]) for tile in tiles]
    # 3 tiles of 16 steps each for two: the one in the middle is divided.
    assert same == [True] * 7 + [False, True]


def test_a_divided_k_has_the_bits_of_splitk(divided, monkeypatch, rng):
    """Whose second kernel adds up to four parts in the same order."""
    A, B = uniform(rng, 130, 2000), uniform(rng, 2000, 300)
    in_order = sk.run("raster", A, B, device="cpu")
    monkeypatch.setenv(SETTING, "16")
    result = sk.run(divided, A, B, device="cpu")
    assert same_bits(result, sk.run("splitk", A, B, device="cpu"))
    assert not same_bits(result, in_order)


BEFORE = "__threadfence(); // what the block has stored, before it arrives"
AFTER = "__threadfence(); // and before what the block reads, that the others have arrived"
FIRST_BARRIER = f"__syncthreads();\n    if (threadIdx.x == 0) {{\n        {BEFORE}"


@pytest.mark.parametrize(
    ("old", "new"),
    [(BEFORE, ""), (AFTER, ""), (FIRST_BARRIER, f"if (threadIdx.x == 0) {{ {BEFORE}")],
    ids=["no fence before the arrival", "no fence after it", "no barrier before the fence"],
)
def test_sanitize_finds_what_is_missing_between_blocks(old, new, monkeypatch):
    monkeypatch.setenv(SETTING, "5")
    text = FILE.read_text(encoding="utf-8")
    assert text.count(old) == 1
    new += "\n" * (old.count("\n") - new.count("\n"))
    verdict = sk.kernel(text.replace(old, new), name="mutant").sanitize(seconds=60)
    first = verdict.findings[0]
    assert first.kind == "race", verdict
    assert first.array == "scratch"
    assert "add_part" in verdict.source.splitlines()[first.line - 1]
    writer = re.search(
        r"which thread \d+ of block \d+ writes at line (\d+), and no fence", first.text
    )
    assert "store_part" in verdict.source.splitlines()[int(writer[1]) - 1], verdict


@pytest.mark.packaging
def test_it_compiles_for_a_gpu_without_spills(experiment, tmp_path):
    try:
        find_nvcc()
    except FileNotFoundError:
        pytest.skip("nvcc compiles the kernel")
    sweep = experiment("_sweep")
    constants = {"SGEMM_OWN": 1, "SGEMM_CUDA": 1}
    include = f"-I{FILE.parent.parent.parent / 'csrc/kernels'}"
    text = sweep.compile_source(
        FILE, constants, tmp_path / "streamk.cubin", "-cubin", include, architecture="sm_90"
    )
    report = sweep.parse_report(text, r"\w*streamkI8GeometryILi128ELi256ELi32E\w*")
    assert report["registers"] <= 255
    assert report["spill_store_bytes"] + report["spill_load_bytes"] + report["stack_bytes"] == 0
