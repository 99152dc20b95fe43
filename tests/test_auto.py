"""`auto` computes with `simt`, or with the tensor cores' rung if that takes less time.

The tests run on the CPU device, which can choose for a GPU of a given number of multiprocessors.
With one multiprocessor, small products count as large.
"""

import contextlib
import dataclasses

import numpy as np
import pytest

from sgemm_kernels import _core, run
from sgemm_kernels._accuracy import expect
from sgemm_kernels.proving.models import MODELS, emulated

from .support import (
    MULTIPROCESSORS,
    launched_by,
    printed_by,
    printed_over_fake_cuda,
    same_bits,
    uniform,
)

SETTING = MULTIPROCESSORS
ON_TENSOR_CORES = "waves"
LARGE = (256, 256, 512)  # large for one multiprocessor


FAMILIES = [
    ("dot", 132, 1, (5, 3, 3), "CC CF FC FF"),
    ("dot", 132, 70, (9, 9, 9), "CC CF FC FF"),
    ("gemv_by_rows", 132, 1, (2, 300, 999), "CC FC"),
    ("gemv_by_rows", 1, 1, (300, 1, 300), "FC FF"),
    ("gemv_by_rows", 1, 1, (300, 3, 300), "FC FF"),  # C is column-major: it computes the transpose
    ("gemv_by_columns", 132, 1, (4, 4, 5000), "CF"),
    ("gemv_by_columns", 132, 1, (1, 300, 300), "CF FF"),
    ("gemv_unaligned_columns", 132, 1, (8, 300, 999), "CF FF"),
    ("split_product", 132, 1, (200, 200, 513), "CC CF FC FF"),
    ("split_product", 132, 1, (129, 131, 100), "CC CF FC FF"),
    ("split_product", 4, 1, (33, 33, 333), "CC CF FC FF"),
    ("split_product", 3, 1, (20, 37, 1030), "CC FF"),  # adds its splits in memory
    ("tiled", 4, 1, (129, 131, 100), "CC CF FC FF"),
    ("tiled", 1, 1, (257, 130, 123), "CC CF FC FF"),
    ("tiled", 4, 7, (90, 70, 60), "CC CF FC FF"),
    ("tma", 1, 1, (128, 256, 3000), "CC FC"),
    ("small_batch", 132, 500, (12, 40, 16), "CC CF FC FF"),
    ("small_batch", 1, 20, (12, 8, 52), "CC CF FC FF"),  # several chunks of K, the last with a tail
    ("small_batch", 1, 3, (4, 132, 8), "CC CF FC FF"),  # two tiles
    ("packed_batch", 132, 900, (10, 7, 5), "CC"),
    ("packed_batch", 132, 20, (700, 23, 3), "CC FC"),  # a task has some rows of a matrix
    ("packed_batch", 132, 600, (4, 11, 205), "CC CF"),  # neighbouring threads divide K
]
"""A kernel of a plan, and products for which `simt` chooses it: multiprocessors, batch, shape, and
layouts of A and B."""


def in_layout(matrices, layout):
    """A copy of the matrices whose rows, or for F columns, are contiguous."""
    return np.ascontiguousarray(matrices.mT).mT if layout == "F" else np.ascontiguousarray(matrices)


@contextlib.contextmanager
def without_copies():
    """The kernels see the caller's arrays, as on a GPU whose memory they are in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")
        yield


@pytest.mark.parametrize(("kernel", "multiprocessors", "count", "shape", "layouts"), FAMILIES)
def test_each_kernel_of_a_plan(monkeypatch, rng, kernel, multiprocessors, count, shape, layouts):
    monkeypatch.setenv(SETTING, str(multiprocessors))
    M, N, K = shape
    batch = () if count == 1 else (count,)
    A, B, C = (uniform(rng, *batch, *sizes) for sizes in ((M, K), (K, N), (M, N)))
    for factors in ({"alpha": 1.0, "beta": 0.0}, {"alpha": -0.7, "beta": 0.3}):
        expected = expect(A, B, C=C, **factors)
        for of_A, of_B in layouts.split():
            a, b = in_layout(A, of_A), in_layout(B, of_B)
            result, launched = launched_by("simt", a, b, C=C, **factors)
            assert launched == {kernel}, (of_A, of_B)
            assert expected.worst_share(result) <= 1, (of_A, of_B, factors)
            # Aligned rows, and space behind each row and each matrix that must not change.
            memory = np.full((*batch, M + 1, (N // 4 + 2) * 4), 7, np.float32)
            out = memory[..., :M, :N]
            with without_copies():
                run("simt", a, b, C=C, **factors, out=out, device="cpu")
            assert expected.worst_share(out) <= 1, (of_A, of_B, factors)
            out[...] = 7
            assert (memory == 7).all(), (of_A, of_B, factors)


@pytest.mark.parametrize(
    ("kernel", "shape", "layouts"),
    [
        ("waves", (257, 130, 1023), "CC CF FC FF"),
        ("waves", (8, 300, 999), "CC"),
        ("fused", (256, 256, 512), "CC CF FC FF"),
        ("fused", (64, 64, 1024), "CC"),
    ],
)
def test_each_rung_on_tensor_cores(monkeypatch, rng, kernel, shape, layouts):
    monkeypatch.setenv(SETTING, "1")
    M, N, K = shape
    A, B, C = (uniform(rng, *sizes) for sizes in ((M, K), (K, N), (M, N)))
    expected = expect(A, B, C=C, alpha=-0.7, beta=0.3)
    for of_A, of_B in layouts.split():
        a, b = in_layout(A, of_A), in_layout(B, of_B)
        result, launched = launched_by("auto", a, b, C=C, alpha=-0.7, beta=0.3)
        assert kernel in launched, (of_A, of_B)
        assert expected.worst_share(result) <= 1, (of_A, of_B)


@pytest.mark.parametrize(
    ("kernel", "shape"), [("waves", (257, 130, 1023)), ("fused", (64, 64, 600))]
)
def test_a_batch_on_tensor_cores(monkeypatch, rng, kernel, shape):
    monkeypatch.setenv(SETTING, "1")
    M, N, K = shape
    A, B = uniform(rng, 3, M, K), uniform(rng, 3, K, N)
    result, launched = launched_by("auto", A, B)
    assert kernel in launched
    assert expect(A, B).worst_share(result) <= 1


def test_a_batch_on_tensor_cores_one_by_one(monkeypatch, rng):
    """The rung mma takes no batches. It runs on tensor cores of other GPUs than 9.0."""
    monkeypatch.setenv(SETTING, "1")
    model = dataclasses.replace(MODELS[8, 0], capability=(2, 0))  # no other test has its proof
    _core._keep_proof("a GPU with mma", *model.capability, 1e6, 1.0)
    A, B = uniform(rng, 2, 384, 512), uniform(rng, 2, 512, 384)
    C = np.broadcast_to(uniform(rng, 2, 1, 384), (2, 384, 384))
    with emulated(model):
        result, launched = launched_by("auto", A, B, C=C, beta=0.5)
    assert "mma" in launched
    assert expect(A, B, C=C, beta=0.5).worst_share(result) <= 1


def test_a_batch_with_a_long_k(monkeypatch, rng):
    """No kernel divides K of a batch."""
    monkeypatch.setenv(SETTING, "132")
    A, B = uniform(rng, 3, 64, 2000), uniform(rng, 3, 2000, 64)
    assert expect(A, B).worst_share(run("simt", A, B, device="cpu")) <= 1


@pytest.mark.parametrize("shared", ["A", "B", None])
@pytest.mark.parametrize(
    ("kernel", "more_lines", "longer"),
    [("packed_batch", 0, 0), ("small_batch", 2, 0), ("small_batch", 0, 2)],
    ids=["no gaps", "gaps between matrices", "gaps between lines"],
)
def test_a_batch_of_small_products(monkeypatch, rng, kernel, more_lines, longer, shared):
    monkeypatch.setenv(SETTING, "132")
    A = uniform(rng, 900, 5 + more_lines, 10 + longer)[:, :5, :10].mT
    B = uniform(rng, 900, 5 + more_lines, 7 + longer)[:, :5, :7]
    A, B = A[0] if shared == "A" else A, B[0] if shared == "B" else B
    with without_copies():
        result, launched = launched_by("simt", A, B)
    assert launched == {kernel}
    assert same_bits(result, run("naive", A.copy(), B.copy(), device="cpu"))


@pytest.mark.parametrize("name", ["simt", "auto"])
@pytest.mark.parametrize(
    ("kernel", "shape"),
    [("per_element", (37, 45, 70)), ("portable", (37, 45, 300)), ("portable", (129, 131, 20))],
)
def test_the_cpu_device_runs_two_kernels_unless_it_models_a_gpu(
    monkeypatch, rng, name, kernel, shape
):
    monkeypatch.delenv(SETTING, raising=False)
    M, N, K = shape
    result, launched = launched_by(name, A := uniform(rng, M, K), B := uniform(rng, K, N))
    assert launched == {kernel}
    assert same_bits(result, run("naive", A, B, device="cpu"))


def choice(monkeypatch, A, B, multiprocessors):
    """The variant that `auto` chose: their results are bit-identical."""
    monkeypatch.setenv(SETTING, multiprocessors)
    results = {name: run(name, A, B, device="cpu") for name in ("simt", ON_TENSOR_CORES, "auto")}
    assert not same_bits(results["simt"], results[ON_TENSOR_CORES])
    (chosen,) = (n for n, r in results.items() if n != "auto" and same_bits(r, results["auto"]))
    return chosen


@pytest.mark.parametrize(
    ("shape", "multiprocessors", "chosen"),
    [
        (LARGE, "1", ON_TENSOR_CORES),
        (LARGE, "132", "simt"),
        ((256, 256, 256), "1", ON_TENSOR_CORES),
        ((32, 32, 512), "1", "simt"),
        ((1, 1500, 1500), "132", "simt"),
        ((1500, 1, 1500), "132", "simt"),
    ],
)
def test_tensor_cores_where_they_take_less_time(monkeypatch, rng, shape, multiprocessors, chosen):
    M, N, K = shape
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    assert choice(monkeypatch, A, B, multiprocessors) == chosen


def test_the_cpu_device_emulates_tensor_cores_only_on_request(monkeypatch, rng):
    monkeypatch.delenv(SETTING, raising=False)
    M, N, K = LARGE
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    auto, simt, waves = (
        run(name, A, B, device="cpu") for name in ("auto", "simt", ON_TENSOR_CORES)
    )
    assert same_bits(auto, simt)
    assert not same_bits(auto, waves)


def test_any_values_are_within_the_bound(monkeypatch, rng):
    """Includes values for which fp16 pairs are not accurate enough."""
    M, N, K = LARGE
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    A[:, : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :] *= np.float32(2.0**-30)
    C = uniform(rng, M, N)
    monkeypatch.setenv(SETTING, "1")
    result = run("auto", A, B, C=C, alpha=-0.7, beta=0.3, device="cpu")
    assert expect(A, B, C=C, alpha=-0.7, beta=0.3).worst_share(result) <= 1


def test_uses_simt_if_memory_for_fp16_pairs_is_short():
    """The named rung raises. C must still be unchanged, because beta needs it."""
    pytest.importorskip("resource")
    code = f"""
import resource
import numpy as np
from sgemm_kernels import run
from tests.support import same_bits, uniform

rng = np.random.default_rng(0)
A, B = uniform(rng, 128, 2**15), uniform(rng, 2**15, 128)
C = uniform(rng, 128, 128)
def product(name):
    return run(name, A, B, C=C, beta=0.5, device="cpu")
simt, halves, roomy = product("simt"), product({ON_TENSOR_CORES!r}), product("auto")
with open("/proc/self/statm") as sizes:
    now = int(sizes.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 2**24, resource.RLIM_INFINITY))
try:
    product({ON_TENSOR_CORES!r})
except MemoryError as error:
    print(error)
print(same_bits(roomy, halves), same_bits(product("auto"), simt), same_bits(simt, halves))
"""
    few = {"OPENBLAS_NUM_THREADS": "1", "SGEMM_KERNELS_THREADS": "2", "MALLOC_ARENA_MAX": "1"}
    said, found = printed_by(code, **few, **{SETTING: "1"}).splitlines()
    assert "no memory for 0.03" in said
    assert found == "True True False"


@pytest.mark.fake_cuda
@pytest.mark.parametrize(
    ("shape", "megabytes", "again"),
    [
        ((2600, 256, 2600), 1024, 4),  # 2 x 2 panels: four of the eight uses need no split
        ((2600, 256, 2600), 52, 0),  # too little memory to keep fp16 pairs
        ((256, 256, 82_000), 1024, 5),  # six panels of B, four of them kept at a time, and one of A
    ],
)
def test_a_panel_is_split_once(shape, megabytes, again):
    code = f"""
    M, K, N = {shape}
    A, B = (rng.integers(1, 9, s).astype(np.float32) for s in ((M, K), (K, N)))
    A[:, 64:] = 0
    fake.fake_cuda_prepared_again.restype = ctypes.c_long
    fake.fake_cuda_set_memory(0, {megabytes} << 20)
    result = run({ON_TENSOR_CORES!r}, A, B, device="cuda:0")
    print(np.array_equal(result, A @ B), fake.fake_cuda_prepared_again())
    """
    assert printed_over_fake_cuda(code) == f"True {again}"
