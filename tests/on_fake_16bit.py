"""16-bit operands on a GPU, over the fake CUDA runtime (test_on_gpu.py)."""

import ctypes

import ml_dtypes
import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import prepare, run, run_many

from .exporters import FAKES, ByExchange, core
from .on_fake_gpu import Capture
from .support import same_bits, uniform

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32 = np.dtype(np.float16), np.dtype(np.float32)
TYPES = [FLOAT16, BFLOAT16]
KINDS = {**FAKES, "ByExchange": ByExchange}
M, N, K = 70, 90, 300
core.fake_cuda_noted_calls.restype = ctypes.c_char_p
core.fake_cuda_prepared_again.restype = ctypes.c_long


@pytest.fixture(autouse=True)
def like_gpu(monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "132")


def of(rng, dtype, *shape):
    return uniform(rng, *shape).astype(dtype)


def on_host(array):
    core.library_synchronize(1)
    return array.get() if hasattr(array, "get") else np.asarray(array)


def direct(A, B, **options):
    """The result of the kernel on the CPU device."""
    return run("auto", A, B, device="cpu", **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_auto_multiplies_arrays_of_one_type_as_they_are(rng, kind, dtype):
    A, B, C = of(rng, dtype, M, K), of(rng, dtype, K, N), uniform(rng, M, N)
    a, b, c = (KINDS[kind](each) for each in (A, B, C))
    result = run("auto", a, b, C=c, beta=-1)
    assert type(result) is (ByExchange if kind == "ByExchange" else sgemm_kernels.DeviceArray)
    assert same_bits(on_host(result), direct(A, B, C=C, beta=-1))
    assert run("auto", a, b, out=c) is c
    assert same_bits(on_host(c), direct(A, B))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("types", [(FLOAT16, FLOAT32), (FLOAT32, BFLOAT16), (BFLOAT16, FLOAT16)])
def test_operands_of_two_types_and_variants_by_name(rng, kind, types):
    A, B = of(rng, types[0], M, K), of(rng, types[1], K, N)
    a, b = KINDS[kind](A), KINDS[kind](B)
    assert same_bits(on_host(run("auto", a, b)), direct(A, B))
    expected = run("tile2d", A.astype(np.float32), B.astype(np.float32), device="cpu")
    assert same_bits(on_host(run("tile2d", a, b)), expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_views_of_any_strides(rng, dtype):
    A, B = of(rng, dtype, M, K), of(rng, dtype, K, N)
    memory = np.zeros((2 * M, 3 * K + 1), dtype), np.zeros((3 * K, 2 * N + 1), dtype)
    expected = direct(A, B)
    for a, b in [
        (memory[0][:M, :K], memory[1][:K, :N]),
        (memory[0][::2, 1 : K + 1], memory[1][1 : K + 1, 1 : N + 1]),
        (memory[0][:M, : 3 * K : 3], memory[1][::3, : 2 * N : 2]),
        (memory[0][M - 1 :: -1, :K], memory[1][:K, N - 1 :: -1]),
    ]:
        a[...], b[...] = A, B
        result = run("auto", ByExchange(a, memory[0]), ByExchange(b, memory[1]))
        assert same_bits(on_host(result), expected)


def test_an_output_that_overlaps_an_operand(rng):
    """By one byte alone, too."""
    B = of(rng, FLOAT16, K, N)
    for first in (0, 2, 4 * M * N - 2):
        memory = np.zeros(4 * M * N + 2 * M * K, np.uint8)
        A = memory[first : first + 2 * M * K].view(np.float16).reshape(M, K)
        A[...] = of(rng, FLOAT16, M, K)
        expected = direct(A.copy(), B)
        out = memory[: 4 * M * N].view(np.float32).reshape(M, N)
        a = ByExchange(A, memory)
        c = ByExchange(out, memory)
        c.memory, c.address = a.memory, a.memory.address
        assert same_bits(on_host(run("auto", a, ByExchange(B), out=c)), expected)


def test_batches_and_lists(rng):
    for dtype in TYPES:
        A, B = of(rng, dtype, 3, M, K), of(rng, dtype, 3, K, N)
        a, b = ByExchange(A), ByExchange(B)
        result = on_host(run("auto", a, b))
        floats = [each.astype(np.float32) for each in (A, B)]
        assert np.allclose(result, floats[0] @ floats[1], atol=1e-4)
    types = [(FLOAT16, FLOAT16), (BFLOAT16, FLOAT32), (BFLOAT16, BFLOAT16), (FLOAT32, FLOAT32)]
    As = [of(rng, a, 20 + n, 140) for n, (a, _) in enumerate(types)]
    Bs = [of(rng, b, 140, 40 - n) for n, (_, b) in enumerate(types)]
    expected = run_many("auto", As, Bs, device="cpu")
    results = run_many("auto", [ByExchange(A) for A in As], [ByExchange(B) for B in Bs])
    for result, wanted in zip(results, expected, strict=True):
        assert same_bits(on_host(result), wanted)


def test_a_batch_of_large_products(rng):
    A, B = of(rng, FLOAT16, 2, 1024, 16), of(rng, FLOAT16, 2, 16, 1024)
    result = on_host(run("auto", ByExchange(A), ByExchange(B)))
    for n in range(2):
        assert same_bits(result[n], direct(A[n], B[n]))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_prepared_matrix(rng, dtype):
    """It stays as it is: products have the bits of those with B."""
    A, B, C = of(rng, dtype, M, K), of(rng, dtype, K, N), uniform(rng, M, N)
    for b in (B, np.asfortranarray(B)):
        for prepared in (prepare(b, device="cuda"), prepare(ByExchange(b))):
            assert f"dtype={dtype}" in repr(prepared)
            assert prepared.nbytes == 2 * K * N
            for a in (A, A.astype(np.float32)):
                expected = direct(a, b, C=C, beta=2)
                there = run("auto", ByExchange(a), prepared, C=ByExchange(C), beta=2)
                assert same_bits(on_host(there), expected)
                assert same_bits(run("auto", a, prepared, C=C, beta=2), expected)
                by_waves = on_host(run("waves", ByExchange(a), ByExchange(b)))
                assert same_bits(on_host(run("waves", ByExchange(a), prepared)), by_waves)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_prepared_float32_matrix_beside_16_bits(rng, dtype, monkeypatch):
    """`mixed` reads its fp16 pairs."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "1")
    A, B = of(rng, dtype, 192, 512), of(rng, FLOAT32, 512, 128)
    before = core.fake_cuda_prepared_again()
    result = on_host(run("auto", ByExchange(A), prepare(B, device="cuda")))
    assert same_bits(result, direct(A, B))
    assert core.fake_cuda_prepared_again() > before


@pytest.mark.parametrize("shape", [(20, 30, 40), (300, 400, 500), (3000, 40, 200)], ids=str)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_host_arrays_have_the_same_bits(rng, dtype, shape):
    """Of all sizes, and gathered from any strides."""
    rows, cols, depth = shape
    A, B, C = of(rng, dtype, rows, depth), of(rng, dtype, depth, cols), uniform(rng, rows, cols)
    expected = direct(A, B, C=C, beta=2)
    for a in (A, np.asfortranarray(A), np.repeat(A, 2, axis=1)[:, ::2]):
        for b in (B, np.asfortranarray(B)):
            assert same_bits(run("auto", a, b, C=C, beta=2, device="cuda"), expected)
    pinned = run("auto", np.eye(rows, dtype=np.float32), A.astype(np.float32), device="cuda")
    assert same_bits(
        run("auto", pinned, B, device="cuda:0").astype(np.float16),
        run("auto", A, B.astype(np.float32), device="cuda:0").astype(np.float16),
    )


def test_host_arrays_in_panels_and_on_several_gpus(rng):
    A, B = of(rng, FLOAT16, 2600, 128), of(rng, FLOAT16, 128, 2300)
    expected = direct(A, B)
    for device in ("cuda:0", "cuda:all"):
        for b in (B, np.asfortranarray(B)):
            assert same_bits(run("auto", A, b, device=device), expected)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_product_is_captured(rng, dtype):
    A, B, C = of(rng, dtype, 64, 128), of(rng, dtype, 128, 64), uniform(rng, 64, 64)
    a, b, out = FAKES["ByDlpack1"](A), FAKES["ByDlpack1"](B), FAKES["ByDlpack1"](C)
    capture = Capture()
    with capture as stream:
        run("auto", a, b, out=out, stream=stream)
    capture.replay()
    assert same_bits(out.get(), direct(A, B))
    floats = FAKES["ByDlpack1"](A.astype(np.float32))
    with capture as stream:
        run("auto", floats, b, out=out, stream=stream)
    capture.replay()
    assert same_bits(out.get(), direct(A.astype(np.float32), B))
    with pytest.raises(ValueError, match="pass B as float32"), Capture() as stream:
        run("simt", floats, b, out=out, stream=stream)


@pytest.mark.parametrize("many", [False, True])
def test_a_gpu_takes_16_bits_whatever_the_cpu_device_plans_for(rng, monkeypatch, many):
    """Otherwise a copy would be made before the launch, and the capture be refused."""
    monkeypatch.delenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS")
    A, B = of(rng, FLOAT32, 64, 128), of(rng, BFLOAT16, 128, 64)
    a, b, out = (FAKES["ByDlpack1"](each) for each in (A, B, np.zeros((64, 64), np.float32)))
    capture = Capture()
    with capture as stream:
        if many:
            run_many("auto", [a], [b], out=[out], stream=stream)
        else:
            run("auto", a, b, out=out, stream=stream)
    capture.replay()
    assert np.allclose(out.get(), A @ B.astype(np.float32), atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.int16, np.uint16])
def test_other_types_are_refused(kind, dtype):
    A, B = KINDS[kind](np.ones((4, 4), dtype)), KINDS[kind](np.ones((4, 4), np.float16))
    with pytest.raises(TypeError, match="takes float32, float16 and bfloat16"):
        run("auto", A, B)
    with pytest.raises(TypeError, match="takes only float32"):
        run("auto", B, B, out=B)
