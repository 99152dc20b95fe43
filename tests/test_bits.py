"""The CPU device computes with a GPU's bits."""

import itertools
import os
from fractions import Fraction

import numpy as np
import pytest

from sgemm_kernels import devices, kernel, run, source
from sgemm_kernels.custom import compiler
from sgemm_kernels.learning.level import level_of

from . import bits
from .record_bits import RECORD, recorded
from .support import uniform


def thorough(number):
    return pytest.param(number, marks=pytest.mark.thorough)


CPU = next(device for device in devices() if device.kind == "cpu")
SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
OTHERWISE = ("splitk", "streamk", "tma", "mma", "wgmma", "waves", "fused", "simt")
"""Variants that split K or sum it in chunks."""
IN_ORDER = [name for name in bits.compared() if name not in OTHERWISE]


def fused(a, b, c):
    """a * b + c, rounded once."""
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(way)) for way in (-np.inf, np.inf)]
    return min([near, *around], key=lambda x: abs(Fraction(float(x)) - exact))


def test_fused_multiply_add_is_detected_on_x86():
    if not os.path.exists("/proc/cpuinfo"):
        pytest.skip("no /proc/cpuinfo to compare with")
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line.split() for line in file if line.startswith("flags")), None)
    if flags is not None:
        assert CPU.fused_multiply_add == ("fma" in flags and "avx2" in flags)


@pytest.mark.skipif(not CPU.fused_multiply_add, reason="this processor does not fuse")
@pytest.mark.parametrize("name", IN_ORDER)
def test_a_result_is_a_chain_of_fused_multiply_adds_in_order_of_k(name):
    rng = np.random.default_rng(3)
    A, B, C = uniform(rng, 5, 300), uniform(rng, 300, 6), uniform(rng, 5, 6)
    result = run(name, A, B, C=C, alpha=-0.7, beta=0.3, device="cpu")
    for row, col in ((0, 0), (4, 5), (2, 3)):
        total = np.float32(0)
        for k in range(300):
            total = fused(A[row, k], B[k, col], total)
        expected = fused(np.float32(0.3), C[row, col], np.float32(-0.7) * total)
        assert result[row, col] == expected


@pytest.mark.skipif(not CPU.fused_multiply_add, reason="this processor does not fuse")
@pytest.mark.usefixtures("custom_cache")
@pytest.mark.parametrize("number", [7, *(thorough(n) for n in (4, 8, 9, 11, 13))])
def test_a_level_ends_with_a_plain_kernel_that_has_the_bits_of_its_rung(number):
    """nvcc fuses its `sum += a * b`, and so does the CPU device."""
    level = level_of(number)
    plain = kernel(level.solution, name="plain", grid=level.grid, block=level.block)
    rng = np.random.default_rng(3)
    A, B, C = uniform(rng, 33, 300), uniform(rng, 300, 134), uniform(rng, 33, 134)
    for beta in (0.0, 0.3):
        operands = {"C": C, "alpha": -0.7, "beta": beta, "device": "cpu"}
        assert np.array_equal(run(plain, A, B, **operands), run(level.rung, A, B, **operands))


@pytest.mark.skipif(not CPU.fused_multiply_add, reason="this processor does not fuse")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the option is for x86-64")
@pytest.mark.usefixtures("custom_cache")
def test_a_plain_kernel_is_fused_for_every_processor(monkeypatch):
    """Newer versions of GCC tune for such processors by default."""
    monkeypatch.setenv("CXX", f"{compiler.find_compiler()[0]} -mtune=znver3")
    test_a_level_ends_with_a_plain_kernel_that_has_the_bits_of_its_rung(7)


@pytest.mark.skipif(not CPU.fused_multiply_add, reason="this processor does not fuse")
@pytest.mark.usefixtures("custom_cache")
@pytest.mark.parametrize("name", ["prefetch", pytest.param("async", marks=pytest.mark.thorough)])
def test_a_copy_of_a_rung_has_the_bits_of_the_ladders(name):
    copy = kernel(source(name), name="mine", like=name)
    rng = np.random.default_rng(3)
    A, B, C = uniform(rng, 133, 300), uniform(rng, 300, 262), uniform(rng, 133, 262)
    for beta in (0.0, 0.3):
        operands = {"C": C, "alpha": -0.7, "beta": beta, "device": "cpu"}
        assert np.array_equal(run(copy, A, B, **operands), run(name, A, B, **operands))


ROUNDED_TWICE = """
__global__ void rounded_twice(int M, int N, int K, const float *A, const float *B, float *C)
{
    int row = blockIdx.y, col = blockIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < K; ++k) {
        sum = __fadd_rn(sum, A[row * K + k] * B[k * N + col]);
        sum = __fmul_rn(sum, 0.9f) + 0.1f;
    }
    C[row * N + col] = __fsub_rn(sum, sum * 0.3f);
}
"""


@pytest.mark.usefixtures("custom_cache")
def test_a_plain_kernel_can_say_that_a_product_is_rounded():
    plain = kernel(ROUNDED_TWICE, name="rounded_twice", grid="(N, M)", block=1)
    rng = np.random.default_rng(4)
    A, B = uniform(rng, 5, 40), uniform(rng, 40, 6)
    total = np.zeros((5, 6), np.float32)
    for k in range(40):
        total = (total + np.outer(A[:, k], B[k])) * np.float32(0.9) + np.float32(0.1)
    assert np.array_equal(run(plain, A, B, device="cpu"), total - total * np.float32(0.3))


@pytest.mark.skipif(not CPU.fused_multiply_add, reason="this processor does not fuse")
@pytest.mark.parametrize("name", bits.compared())
def test_has_the_bits_recorded_on_a_gpu(name, monkeypatch):
    if not RECORD.is_file():
        pytest.fail(f"{RECORD.name} is missing: on a GPU, run python -m tests.record_bits")
    record, expected = recorded(name)
    if not expected:
        pytest.fail(f"{name} is not recorded: on a GPU, run python -m tests.record_bits")
    monkeypatch.setenv(SETTING, str(record["multiprocessors"]))
    found = bits.digests(name, "cpu")
    assert set(expected) == set(found), "other cases: on a GPU, run python -m tests.record_bits"
    assert {case: found[case] for case in expected} == expected


@pytest.mark.parametrize("name", OTHERWISE)
def test_results_do_not_depend_on_the_alignment_of_operands(name, monkeypatch, rng):
    """On a GPU, host operands are copied to memory with aligned rows or columns."""
    monkeypatch.setenv(SETTING, "132")
    for (M, N, K), layout in itertools.product(bits.UNALIGNED, ("rc", "cc", "rr")):
        A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
        results = [
            run(
                name,
                place(A, layout[0]),
                place(B, layout[1]),
                C=place(C, "r"),
                device="cpu",
                beta=0.5,
            )
            for place in (bits.contiguous, bits.placed)
        ]
        assert results[0].tobytes() == results[1].tobytes(), (M, N, K, layout)


def test_results_do_not_depend_on_the_place_in_a_batch(monkeypatch, rng):
    """A launch computes at most 65,535 products, so there are two. Both add in the same order."""
    monkeypatch.setenv(SETTING, "132")
    shapes = ((16, 64), (64, 1))
    A, B = (np.broadcast_to(uniform(rng, *one), (65_536, *one)).copy() for one in shapes)
    result = run("simt", A, B, device="cpu")
    assert (result == result[0]).all()


@pytest.mark.parametrize("name", ["splitk", "streamk", "tma", "simt", "auto"])
class TestMultiprocessors:
    def test_decide_how_k_is_divided(self, name, monkeypatch):
        rng = np.random.default_rng(4)
        A, B = uniform(rng, 20, 20_000), uniform(rng, 20_000, 20)
        results = set()
        for count in ("1", "132"):
            monkeypatch.setenv(SETTING, count)
            results.add(run(name, A, B, device="cpu").tobytes())
        assert len(results) == 2

    @pytest.mark.parametrize("text", ["0", "-1", "many", "8 ", "100000", "1e3"])
    def test_must_be_a_number(self, name, text, monkeypatch):
        monkeypatch.setenv(SETTING, text)
        square = np.ones((4, 4), np.float32)
        with pytest.raises(ValueError, match=f"{SETTING} is '{text}': .* from 1 to 4096"):
            run(name, square, square, device="cpu")
