"""Prepared matrices on a GPU. test_prepared.py runs these tests over the fake CUDA runtime."""

import ctypes
import gc
import threading

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import DeviceError, OutOfMemoryError, prepare, run

from .exporters import FAKES, GPU, ByExchange, core
from .on_fake_gpu import Capture, held_stream
from .support import same_bits, uniform

M, N, K = 70, 150, 300
USERS = ["auto", "waves", "fused"]
core.fake_cuda_prepared_again.restype = ctypes.c_long


@pytest.fixture(autouse=True)
def one_multiprocessor(monkeypatch):
    """`auto` then computes these products on tensor cores."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "1")


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


def used_again() -> int:
    """How many launches so far have read pairs that an earlier launch made."""
    core.library_synchronize(core.library_stream(0))
    return core.fake_cuda_prepared_again()


def live() -> int:
    gc.collect()
    sgemm_kernels.memory(empty=True)
    return core.fake_cuda_live(0)


@pytest.mark.parametrize("kind", FAKES)
@pytest.mark.parametrize("by_columns", [False, True])
def test_products_have_the_bits_of_unprepared_ones(operands, kind, by_columns):
    A, B, C = operands
    B = np.asfortranarray(B) if by_columns else B
    a, b, c = FAKES[kind](A), FAKES[kind](B), FAKES[kind](C)
    prepared = prepare(b)
    for name in USERS:
        for scalars in ({}, {"C": c, "alpha": -0.7, "beta": 0.3}):
            before = used_again()
            result = run(name, a, prepared, **scalars)
            expected = run(name, a, b, **scalars)
            assert type(result) is type(expected)
            assert same_bits(host(result), host(expected))
            assert used_again() == before + 1
        out = FAKES[kind](C)
        assert run(name, a, prepared, out=out) is out
        assert same_bits(host(out), host(run(name, a, b)))


def host(array) -> np.ndarray:
    return array.get() if hasattr(array, "get") else np.asarray(array)


def test_a_prepared_matrix_is_a_copy(operands):
    A, B, _ = operands
    b = FAKES["ByDlpack"](B)
    prepared = prepare(b)
    ctypes.memset(core.fake_cuda_content(b.address, b.memory.nbytes), 0, b.memory.nbytes)
    expected = run("waves", A, B, device="cpu")
    assert same_bits(np.asarray(run("waves", FAKES["ByDlpack"](A), prepared)), expected)


def test_what_it_says(operands):
    B = operands[1]
    prepared = prepare(FAKES["ByDlpack"](B))
    assert prepared.shape == (K, N)
    assert prepared.device == f"{GPU}:0"
    assert prepared.nbytes == 4 * K * N + 4 * 256 * 320  # pairs of whole tiles
    assert repr(prepared) == f"PreparedMatrix(shape=({K}, {N}), dtype=float32, device='{GPU}:0')"
    short = prepare(FAKES["ByDlpack"](B[:127]))
    assert short.nbytes == 4 * 127 * N


@pytest.mark.parametrize("name", USERS)
def test_a_short_or_empty_matrix(name, operands):
    A, B, _ = operands
    for A1, B1 in ((A[:, :127], B[:127]), (A, B[:, :0]), (A[:, :0], B[:0]), (A[:0], B)):
        a, b = FAKES["ByDlpack"](A1.copy()), FAKES["ByDlpack"](B1.copy())
        result = run(name, a, prepare(b))
        assert same_bits(host(result), host(run(name, a, b)))


@pytest.mark.parametrize("name", USERS)
def test_batches_and_vectors(name, rng, operands):
    B = operands[1]
    stack = uniform(rng, 3, 90, K)
    shapes = {
        "rows that follow each other": FAKES["ByInterface"](stack[:, :M].copy()),
        "with gaps": FAKES["ByInterface"](stack[:, :M], stack),
        "one matrix repeated": FAKES["ByInterface"](np.broadcast_to(stack[:1], (2, 90, K)), stack),
        "a vector": FAKES["ByInterface"](stack[0, 0].copy()),
    }
    b = FAKES["ByInterface"](B)
    prepared = prepare(b)
    for label, a in shapes.items():
        before = used_again()
        result = run(name, a, prepared)
        assert same_bits(host(result), host(run(name, a, b))), label
        assert used_again() > before, label


def test_a_column_beside_a_broadcast_matrix(rng):
    """The columns of all products make one matrix B, which is not the prepared one."""
    A = uniform(rng, 5, K)
    a = FAKES["ByInterface"](np.broadcast_to(A, (3, 5, K)), A)
    b = FAKES["ByInterface"](uniform(rng, K, 1))
    assert same_bits(host(run("waves", a, prepare(b))), host(run("waves", a, b)))


@pytest.mark.parametrize("by_columns", [False, True])
def test_arrays_of_numpy(operands, by_columns):
    """They are copied to the GPU of B."""
    A, B, C = operands
    B = np.asfortranarray(B) if by_columns else B
    prepared = prepare(B)
    assert prepared.device == f"{GPU}:0"
    expected = run("waves", A, B, C=C, beta=0.5, device="cpu")
    before = used_again()
    swapped = A[::-1].astype(A.dtype.newbyteorder("S"))[::-1]
    result = run("waves", swapped, prepared, C=C, beta=0.5)
    assert type(result) is np.ndarray
    assert same_bits(result, expected)
    out = np.empty((N, M), np.float32).T
    assert run("waves", A, prepared, C=C, beta=0.5, out=out) is out
    assert same_bits(out, expected)
    changed = C.copy()
    assert run("waves", A, prepared, C=changed, beta=0.5, out=changed) is changed
    assert same_bits(changed, expected)
    assert used_again() == before + 3


def test_refused_calls(operands):
    A, B, C = operands
    a, prepared = FAKES["ByDlpack"](A), prepare(FAKES["ByDlpack"](B))

    def refused(exception, *facts, variant="waves", A=a, **others):
        with pytest.raises(exception) as caught:
            run(variant, A, prepared, **others)
        for fact in facts:
            assert fact in str(caught.value)

    refused(ValueError, "'vec4' cannot use a prepared B", "'auto'", variant="vec4")
    refused(ValueError, f"A is on {GPU}:1", f"{GPU}:0", A=FAKES["ByDlpack"](A, device=1))
    refused(ValueError, f"'{GPU}:all'", "omit device", device=f"{GPU}:all")
    refused(ValueError, "'cpu'", "omit device", device="cpu")
    refused(ValueError, "must match B's 300 rows", A=FAKES["ByDlpack"](A[:, 1:].copy()))
    refused(ValueError, "must match B's 300 rows", A=A[:, 1:])
    refused(TypeError, "float64", A=A.astype(np.float64))
    refused(ValueError, "read-only", A=A, out=np.broadcast_to(np.float32(0), (M, N)))
    refused(ValueError, "the result is (70, 150)", A=A, out=np.empty((M, 1), np.float32))
    refused(ValueError, "omit stream", A=A, stream=core.library_stream(0))
    refused(TypeError, "numpy.ndarray", A=a, C=C, beta=1)
    with pytest.raises(ValueError, match="3 dimensions"):
        prepare(FAKES["ByDlpack"](B[None]))
    with pytest.raises(ValueError, match="omit device"):
        prepare(FAKES["ByDlpack"](B), device=f"{GPU}:1")
    with pytest.raises(ValueError, match="on each GPU"):
        prepare(B, device=f"{GPU}:all")
    with pytest.raises(TypeError, match="float64"):
        prepare(FAKES["ByDlpack"](B.astype(np.float64)))


def test_memory_is_freed_after_the_last_product(operands):
    """The object dies while its product is still queued. Then other calls use memory."""
    A, B, C = operands
    expected = run("waves", A, B, device="cpu")
    a, b, out = FAKES["ByInterface"](A), FAKES["ByInterface"](B), FAKES["ByInterface"](C)
    run("waves", a, b)
    before = live()
    stream, is_open = held_stream()
    prepared = prepare(b)
    with_it = core.fake_cuda_live(0)
    run("waves", a, prepared, out=out, stream=stream)
    del prepared
    run("vec4", a, b)
    prepare(FAKES["ByInterface"](B * 2))
    is_open.value = 1
    core.library_synchronize(stream)
    assert same_bits(out.get(), expected)
    assert with_it > before
    assert live() == before


def test_the_exchange_api_queues_in_the_current_stream(operands):
    A, B, _ = operands
    a, prepared = ByExchange(A), prepare(ByExchange(B))
    stream, is_open = held_stream()
    ByExchange.current[0] = stream
    try:
        result = run("fused", a, prepared)  # returns while the stream is held
    finally:
        ByExchange.current.clear()
        is_open.value = 1
    assert type(result) is ByExchange
    core.library_synchronize(stream)
    assert same_bits(result.get(), run("fused", A, B, device="cpu"))


@pytest.mark.parametrize("name", ["waves", "fused"])
def test_a_product_is_captured(operands, name):
    A, B, C = operands
    a, out = FAKES["ByDlpack"](A), FAKES["ByDlpack"](C * 0)
    prepared = prepare(FAKES["ByDlpack"](B))
    capture = Capture()
    with capture as stream:
        run(name, a, prepared, out=out, stream=stream)
    assert not out.get().any()
    for factor in (1, 2):
        scaled = A * np.float32(factor)
        content = core.fake_cuda_content(a.address, a.memory.nbytes)
        ctypes.memmove(content, scaled.ctypes.data, scaled.nbytes)
        capture.replay()
        assert same_bits(out.get(), run(name, scaled, B, device="cpu"))


def test_each_call_fails_in_turn(operands):
    A, B, _ = operands
    a, b = FAKES["ByDlpack"](A), FAKES["ByDlpack"](B)
    expected = run("waves", A, B, device="cpu")
    before = live()
    raised = turn = 0
    while True:
        turn += 1
        sgemm_kernels.memory(empty=True)
        core.fake_cuda_fail(ctypes.c_long(turn), 2 if turn % 2 else 999)
        try:
            result = np.asarray(run("waves", a, prepare(b)))
            assert same_bits(result, expected)
        except (DeviceError, OutOfMemoryError):
            raised += 1
        hit = core.fake_cuda_failed_call()
        core.fake_cuda_fail(ctypes.c_long(0), 0)
        assert same_bits(np.asarray(run("waves", a, prepare(b))), expected)
        if not hit:
            break
    assert raised > 10
    assert live() == before


def test_short_memory_is_reported(rng):
    B = FAKES["ByInterface"](uniform(rng, 2000, 2000))
    before = live()
    core.fake_cuda_set_memory(0, ctypes.c_size_t(before + (8 << 20)))  # the copy needs 16 MB
    try:
        with pytest.raises(OutOfMemoryError):
            prepare(B)
    finally:
        core.fake_cuda_set_memory(0, ctypes.c_size_t(1 << 30))
    assert live() == before


def test_from_many_threads(operands):
    A, B, _ = operands
    prepared = prepare(FAKES["ByDlpack"](B))
    expected = run("fused", A, B, device="cpu")
    wrong = []

    def work():
        for _ in range(3):
            result = np.asarray(run("fused", FAKES["ByDlpack"](A), prepared))
            wrong.extend([] if same_bits(result, expected) else [result])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
