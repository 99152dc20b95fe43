"""Arrays of a library with DLPack's exchange API, over the fake CUDA runtime (test_on_gpu.py)."""

import ctypes
import gc
import sys

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import run

from .exporters import GPU, ByDlpack1, ByExchange, core, refused
from .support import same_bits, uniform

M, N, K = 37, 45, 30
core.fake_cuda_noted_calls.restype = ctypes.c_char_p


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


@pytest.fixture
def current():
    """A stream that is the library's current one, and does nothing until `is_open` is set."""
    gc.collect()  # to free memory later would wait for the stream
    stream, is_open = core.library_stream(0), ctypes.c_int(0)
    core.library_hold(stream, ctypes.addressof(is_open))
    ByExchange.current[0] = stream
    yield stream, is_open
    is_open.value = 1
    core.library_synchronize(stream)
    ByExchange.current.clear()


def finished(array):
    """The values after the work in the library's current stream."""
    core.library_synchronize(ByExchange.current.get(array.device) or 1)
    return array.get()


def exchanged(values, **more):
    return [ByExchange(each, **more) for each in values]


def test_the_result_belongs_to_the_library(operands):
    A, B, C = exchanged(operands)
    result = run("vec4", A, B, C=C, alpha=2, beta=3)
    assert type(result) is ByExchange
    expected = run("vec4", *operands[:2], C=operands[2], alpha=2, beta=3, device="cpu")
    assert same_bits(finished(result), expected)
    assert (A.capsules, B.capsules, C.capsules, ByExchange.allocated) == (0, 0, 0, {})
    assert sys.getrefcount(result) == 2


def test_out_and_transposed_operands(operands):
    A, B = operands[:2]
    turned = np.asfortranarray(A)
    out = ByExchange(np.zeros((N, M), np.float32).T)
    kept = ByExchange(turned, turned.T), ByExchange(B)
    assert run("vec4", *kept, out=out) is out
    assert same_bits(finished(out), run("vec4", A, B, device="cpu"))
    assert out.capsules == 0


def test_the_call_is_queued_in_the_current_stream(operands, current):
    stream, is_open = current
    A, B, _ = exchanged(operands)
    fresh = np.full_like(operands[0], 7)
    core.library_write(stream, A.address, fresh.ctypes.data, fresh.nbytes, 1000)
    waits = core.fake_cuda_device_waits()
    result = run("vec4", A, B)
    assert np.isnan(result.get()).all()
    is_open.value = 1
    assert same_bits(finished(result), run("vec4", fresh, operands[1], device="cpu"))
    assert core.fake_cuda_device_waits() == waits


def test_another_stream_follows_the_current_one(operands, current):
    stream, is_open = current
    A, B, C = exchanged(operands)
    fresh = np.full_like(operands[0], 7)
    core.library_write(stream, A.address, fresh.ctypes.data, fresh.nbytes, 20_000)
    other = core.library_stream(0)
    run("vec4", A, B, out=C, stream=other)
    assert same_bits(C.get(), operands[2])
    result = run("vec4", A, B, stream=other)
    assert type(result) is sgemm_kernels.DeviceArray
    in_current = run("vec4", A, B, stream=stream)
    assert type(in_current) is ByExchange
    is_open.value = 1
    core.library_synchronize(other)
    assert same_bits(C.get(), run("vec4", fresh, operands[1], device="cpu"))


def test_arrays_of_two_libraries_are_waited_for(operands):
    A, B, C = operands
    expected = run("vec4", A, B, device="cpu")
    kept = ByExchange(A), ByDlpack1(B)
    result = run("vec4", *kept)
    assert type(result) is ByExchange
    assert same_bits(finished(result), expected)
    other = run("vec4", ByDlpack1(A), ByExchange(B))
    assert type(other) is sgemm_kernels.DeviceArray
    assert same_bits(np.asarray(other), expected)
    out = ByDlpack1(C)
    assert run("vec4", ByExchange(A), ByExchange(B), out=out) is out
    assert same_bits(finished(out), expected)


def test_operands_on_the_second_gpu_and_on_all(operands, monkeypatch):
    A, B = operands[:2]
    expected = run("vec4", A, B, device="cpu")
    monkeypatch.setitem(ByExchange.current, 1, core.library_stream(1))
    for device in (None, f"{GPU}:1", f"{GPU}:all"):
        kept = exchanged((A, B), device=1)
        result = run("vec4", *kept, device=device)
        assert result.device == 1
        assert same_bits(finished(result), expected)
    refused(ValueError, f"on {GPU}:0", f"on {GPU}:1", A=ByExchange(A), B=ByExchange(B, device=1))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_empty_results(shape):
    A, B = np.ones((shape[0], 3), np.float32), np.ones((3, shape[1]), np.float32)
    kept = exchanged((A, B))
    result = run("vec4", *kept)
    assert type(result) is ByExchange
    assert result.shape == shape


def test_a_product_without_a_sum():
    A, B = np.ones((4, 0), np.float32), np.ones((0, 6), np.float32)
    kept = exchanged((A, B))
    assert same_bits(finished(run("vec4", *kept)), np.zeros((4, 6), np.float32))


def test_what_is_refused(operands):
    A, B, C = operands
    refused(TypeError, "B has dtype float64", A=ByExchange(A), B=ByExchange(B.astype("f8")))
    refused(ValueError, "pass A.T", A=ByExchange(A), B=ByExchange(C))
    refused(ValueError, "B's 45 elements", A=ByExchange(A), B=ByExchange(B[0]))
    out = ByExchange(C, read_only=True)
    refused(ValueError, "out is read-only", A=ByExchange(A), B=ByExchange(B), out=out)
    assert out.capsules == 0
    strided = ByExchange(np.zeros((M, 2 * K), np.float32)[:, ::2])
    strided.negative = True
    refused(ValueError, "A is a view of negated values", A=strided, B=ByExchange(B))
    wanted = ByExchange(A)
    wanted.requires_grad = True
    refused(ValueError, "A requires a gradient", "A.detach()", A=wanted, B=ByExchange(B))
    refused(TypeError, "but B is a numpy.ndarray", A=ByExchange(A), B=B)


def test_more_types_than_are_remembered(operands):
    A, B = operands[:2]
    expected = run("vec4", A, B, device="cpu")
    for index in range(20):
        kind = type(f"Kind{index}", (ByExchange if index % 2 else ByDlpack1,), {})
        a, b = kind(A), kind(B)
        result = run("vec4", a, b)
        assert type(result) is (ByExchange if index % 2 else sgemm_kernels.DeviceArray)
        result = finished(result) if index % 2 else np.asarray(result)
        assert same_bits(result, expected)


def test_memory_that_is_freed_right_after_the_call(operands, current):
    """The library may reuse it in the current stream only, whose work follows the product."""
    stream, is_open = current
    A, B, _ = exchanged(operands)
    result = run("vec4", A, B)
    other = np.full_like(operands[0], 9)
    core.library_write(stream, A.address, other.ctypes.data, other.nbytes, 0)
    is_open.value = 1
    assert same_bits(finished(result), run("vec4", *operands[:2], device="cpu"))


def test_a_product_is_captured_with_its_result(operands):
    stream = core.library_stream(0)
    ByExchange.current[0] = stream
    try:
        A, B, _ = exchanged(operands)
        core.library_begin_capture(stream)
        result = run("vec4", A, B)
        graph = core.library_end_capture(stream)
        assert np.isnan(result.get()).all()
        core.fake_cuda_replay(graph, stream)
        core.library_synchronize(stream)
        assert same_bits(finished(result), run("vec4", *operands[:2], device="cpu"))
    finally:
        ByExchange.current.clear()


def calls_of(product):
    """The CUDA calls of one product, after others."""
    gc.collect()
    sgemm_kernels.memory(empty=True)  # else the call would look for results that were dropped
    for _ in range(3):
        product()
    core.fake_cuda_note_calls()
    product()
    return core.fake_cuda_noted_calls().decode().splitlines()


@pytest.mark.skipif(GPU == "hip", reason="HIP has no number that names a stream for good")
@pytest.mark.parametrize("name", ["vec4", "simt", "auto"])
def test_a_product_makes_few_cuda_calls(operands, name):
    """Attributes that do not change are asked once, and an event is recorded only if another stream
    may have to wait for it."""
    A, B, _ = operands
    a, b, c = exchanged(operands)
    session = 2  # the context is pushed and popped
    capture = 2  # the stream may be captured before the operands are imported, or after
    calls = calls_of(lambda: run(name, a, b, out=c))
    assert calls.count("a launch") == 1
    assert len(calls) <= session + capture + 1, calls
    first, second = (run(name, ByDlpack1(A), ByDlpack1(B)) for _ in range(2))
    square = run(name, ByDlpack1(A), ByDlpack1(np.ascontiguousarray(A.T)))
    stream = core.library_stream(0)
    calls = calls_of(lambda: run(name, square, first, out=second, stream=stream))
    assert len(calls) <= session + capture + 3, calls  # the stream's ID, a launch, an event
    calls = calls_of(lambda: run(name, square, first, stream=stream))
    assert len(calls) <= session + capture + 4, calls
    calls = calls_of(lambda: run(name, A, B, device=GPU))
    assert len(calls) <= session + 4, calls  # a copy, a launch, a copy or none, a wait


def test_the_default_stream_is_current_at_first(operands):
    """The library's handle of it is NULL."""
    assert ByExchange.current == {}
    A, B, C = exchanged(operands)
    run("vec4", A, B, out=C)
    assert same_bits(finished(C), run("vec4", *operands[:2], device="cpu"))
