"""Tests that are impossible with real libraries. test_on_gpu.py runs them over the fake CUDA
runtime."""

import contextlib
import ctypes
import gc
import importlib
import itertools
import sys
import threading
import types

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, gram, run
from sgemm_kernels.measuring.brief import measure_briefly
from sgemm_kernels.measuring.measure import measure
from sgemm_kernels.measuring.measurement import TF32

from . import exporters
from .exporters import (
    DEFAULT_STREAM,
    DLPACK_KIND,
    EXPORTED,
    FAKES,
    GPU,
    ByExchange,
    Imported,
    Memory,
    Stream,
    core,
    numbered,
    pending,
    readme_call_from_pytorch,
    refused,
)
from .support import LAYOUTS, same_bits, uniform

M, N, K = 37, 45, 30


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


def test_gram_of_arrays_whose_transpose_would_be_a_copy(operands):
    A = operands[0]
    for kind in FAKES.values():
        found = gram("vec4", kind(A))
        assert same_bits(np.asarray(found), gram("vec4", A, device="cpu"))
    with pytest.raises(ValueError, match="A has 1 dimension, but gram"):
        gram("vec4", kind(A[0]))


# ---------------------------------------------------------------------------- refused calls


def test_operands_on_two_gpus(operands):
    A, B, _ = operands
    kind = FAKES["ByDlpack"]
    a, b = kind(A), kind(B, device=1)
    refused(ValueError, f"A is on {GPU}:0 and B is on {GPU}:1", A=a, B=b)
    refused(ValueError, f"on {GPU}:1", f"'{GPU}:0'", A=kind(A, device=1), B=b, device=f"{GPU}:0")
    result = run("vec4", kind(A, device=1), b)
    assert result.device == f"{GPU}:1"
    assert same_bits(np.asarray(result), run("vec4", A, B, device="cpu"))
    result = run("vec4", FAKES["ByInterface"](A, device=1), b, device=f"{GPU}:1")
    assert result.device == f"{GPU}:1"


@pytest.mark.parametrize("kind", FAKES)
@pytest.mark.parametrize("dtype", ["f8", "u2", "i4", "c8"])
def test_wrong_dtypes(operands, kind, dtype):
    A, B, _ = operands
    name = np.dtype(dtype).name
    wrong = FAKES[kind](B.astype(dtype))
    refused(TypeError, f"B has dtype {name}", ".astype('float32')", A=FAKES[kind](A), B=wrong)
    assert wrong.capsules == 0


@pytest.mark.parametrize("kind", FAKES)
@pytest.mark.parametrize("shape", [(-M, K), (M, -K)])
def test_a_negative_shape(operands, kind, shape):
    A, B, _ = (FAKES[kind](values) for values in operands)
    A.shape = shape
    refused(ValueError, f"A has the negative shape ({shape[0]}, {shape[1]})", A=A, B=B)
    assert A.capsules == 0


@pytest.mark.parametrize("kind", ["ByInterface", "ByDlpack1"])
def test_a_read_only_out(operands, kind):
    A, B, C = (FAKES[kind](values, read_only=True) for values in operands)
    refused(ValueError, "out is read-only", A=A, B=B, out=C)
    run("vec4", A, B, C=C, beta=1)
    assert same_bits(C.get(), operands[2])


def test_a_read_only_out_of_old_dlpack(operands):
    """Old DLPack cannot mark an array read-only, but the array's other protocol can."""

    class Both(FAKES["ByDlpack"], FAKES["ByInterface"]):
        pass

    A, B, C = (Both(values, read_only=True) for values in operands)
    refused(ValueError, "out is read-only", A=A, B=B, out=C)
    assert C.capsules == 0


def test_c_without_beta(operands):
    A, B, C = (FAKES["ByDlpack"](values) for values in operands)
    with pytest.warns(UserWarning, match="pass beta=1"):
        result = run("vec4", A, B, C=C)
    assert same_bits(np.asarray(result), np.asarray(run("vec4", A, B, C=C, beta=0)))
    with pytest.raises(UserWarning, match="pass beta=1"):
        run("vec4", A, B, C=C)
    assert C.capsules == 0


@pytest.mark.parametrize("kind", FAKES)
def test_a_bias_is_refused_once_with_the_call_that_broadcasts_it(operands, kind):
    A, B = (FAKES[kind](values) for values in operands[:2])
    row, column = (np.ones(n, np.float32) for n in (N, M))
    call = "pass cupy.broadcast_to(cupy.asarray(C)"
    for bias in (row, row[:1], row[np.newaxis], column[:, np.newaxis]):
        C = FAKES[kind](bias)
        refused(ValueError, f"{call}, (37, 45))", A=A, B=B, C=C, beta=1)
        assert C.capsules == 0
    refused(ValueError, f"{call}[:, None], (37, 45))", A=A, B=B, C=FAKES[kind](column), beta=1)
    refused(ValueError, "C is (7,)", "(37, 45)", A=A, B=B, C=FAKES[kind](row[:7].copy()), beta=1)
    spread = FAKES["ByInterface"](np.broadcast_to(row, (M, N)), row)
    result = run("vec4", A, B, C=spread, beta=1)
    expected = run("vec4", *operands[:2], C=np.ones((M, N), np.float32), beta=1, device="cpu")
    assert same_bits(np.asarray(result), expected)


def test_operands_outside_gpu_memory_are_refused(operands):
    A, B, _ = operands

    class OnCpu(FAKES["ByDlpack"]):
        device_type = 1

    class Elsewhere(FAKES["ByDlpack"]):
        device_type = 12 - DLPACK_KIND  # ROCm's number in a CUDA build, CUDA's in a ROCm build

    class WithArray(OnCpu):
        def __array__(self, dtype=None, copy=None): ...

    class WithNumpy(WithArray):
        def numpy(self): ...

    class Gradient(FAKES["ByDlpack"]):
        requires_grad = True

    exported = FAKES["ByDlpack"](B)
    refused(
        TypeError, "A is in host memory", "OnCpu", "numpy.from_dlpack(A)", A=OnCpu(A), B=exported
    )
    refused(TypeError, "A is in host memory", "pass numpy.asarray(A)", A=WithArray(A), B=exported)
    refused(TypeError, "A is in host memory", "pass A.numpy()", A=WithNumpy(A), B=B)
    refused(
        TypeError, "A, of type Elsewhere", f"type {12 - DLPACK_KIND}", A=Elsewhere(A), B=exported
    )
    refused(ValueError, "A requires a gradient", "A.detach()", A=Gradient(A), B=exported)
    nowhere = FAKES["ByInterface"](A)
    nowhere.address = A.ctypes.data
    refused(ValueError, "A.__cuda_array_interface__", "not in the memory", A=nowhere, B=exported)
    empty = FAKES["ByInterface"](A[:0])
    empty.address = 0
    refused(TypeError, "A is on a GPU but B is a numpy.ndarray", A=empty, B=B)
    nowhere = FAKES["ByDlpack"](A, device=7)
    nowhere.device = 7
    refused(sgemm_kernels.DeviceError, f"{GPU}:7", A=nowhere, B=nowhere)


@pytest.mark.parametrize(
    "entries",
    [{"data": 5}, {"shape": 5}, {"strides": (4,)}, {"mask": 1}, {"typestr": 4}, {"stream": "a"}],
    ids=str,
)
def test_a_broken_interface(operands, entries):
    good = FAKES["ByInterface"](operands[0])

    class Broken:
        __cuda_array_interface__ = good.__cuda_array_interface__ | entries

    with pytest.raises((TypeError, ValueError)):
        run("vec4", Broken(), FAKES["ByInterface"](operands[1]))


OF_ARRAYS = ("__cuda_array_interface__", "__dlpack_device__", "__dlpack__", "requires_grad")
OF_STREAMS = ("__cuda_stream__", "wait_event", "cuda_stream", "ptr")
WHEN_REFUSED = ("dtype", "numpy", "__array__")


@pytest.mark.parametrize(
    ("name", "argument"),
    [
        *itertools.product((*OF_ARRAYS, *WHEN_REFUSED), ("A", "B", "C", "out")),
        *itertools.product(OF_STREAMS, ("stream",)),
    ],
)
def test_exceptions_of_properties_propagate(operands, argument, name):
    """Except for AttributeError, which says that there is no such property."""

    class MineError(Exception):
        pass

    kind = FAKES["ByInterface" if name == "__cuda_array_interface__" else "ByDlpack"]

    class Raising(object if name in OF_STREAMS else kind):
        device_type = 1 if name in ("numpy", "__array__") else DLPACK_KIND
        wait_event = None

        def __getattribute__(self, attribute):
            if attribute == name:
                raise MineError
            return super().__getattribute__(attribute)

    values = dict(zip("ABC", operands, strict=True))
    arguments = {each: kind(array) for each, array in values.items()}
    arguments |= {"out": kind(operands[2]), "beta": 1, "stream": core.library_stream(0)}
    if name in OF_STREAMS:
        arguments["stream"] = Raising()
    else:
        array = values.get(argument, values["C"])
        arguments[argument] = Raising(array.astype("f8") if name == "dtype" else array)
    with pytest.raises(MineError):
        run("vec4", arguments.pop("A"), arguments.pop("B"), **arguments)


def test_numpy_hides_no_exceptions_of_properties(operands):
    """The check for masked arrays reads a property of NumPy arrays."""
    importlib.import_module("numpy.ma")

    class Odd(np.ndarray):
        @property
        def __class__(self):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run("vec4", operands[0].view(Odd), operands[1])


def test_a_broken_dlpack(operands):
    class Broken(FAKES["ByDlpack"]):
        def __dlpack__(self, *, stream):
            return 5

    class Raising(FAKES["ByDlpack"]):
        def __dlpack__(self, *, stream):
            raise BufferError("mine")

    class Newer(FAKES["ByDlpack1"]):
        def _export(self, stream):
            capsule = super()._export(stream)
            next(reversed(EXPORTED.values()))[1].major = 2
            return capsule

    B = FAKES["ByDlpack"](operands[1])
    with pytest.raises(ValueError, match="PyCapsule"):
        run("vec4", Broken(operands[0]), B)
    with pytest.raises(BufferError, match="mine"):
        run("vec4", Raising(operands[0]), B)
    with pytest.raises(BufferError, match="version 2"):
        run("vec4", Newer(operands[0]), B)


def with_tensor(change):
    """A library whose DLTensor is wrong: `change` modifies the tensor before it is exported."""

    class Wrong(FAKES["ByDlpack"]):
        def _export(self, stream):
            capsule = super()._export(stream)
            change(next(reversed(EXPORTED.values()))[1].tensor)
            return capsule

    return Wrong


def set_strides(*elements):
    def change(tensor):
        tensor.strides[0], tensor.strides[1] = elements

    return change


WRONG_TENSORS = {
    "no data": (lambda t: setattr(t, "data", None), "A has shape (37, 30) and the address 0"),
    "no shape": (lambda t: setattr(t, "shape", None), "A has 2 dimensions and no shape"),
    "-1 dimensions": (lambda t: setattr(t, "ndim", -1), "A has -1 dimensions"),
    "2**31 - 1 dimensions": (lambda t: setattr(t, "ndim", 2**31 - 1), "A has 2147483647 dim"),
    "another GPU": (lambda t: setattr(t, "device_id", 1), f"is on device ({DLPACK_KIND}, 1)"),
    "the host": (lambda t: setattr(t, "device_type", 1), "is on device (1, 0)"),
    "wrapped strides": (set_strides(2**62, 2**62), "strides of (4611686018427387904, "),
    "strides beyond memory": (set_strides(2**58, 1), "beyond the address space"),
    "strides before memory": (set_strides(-(2**56), 1), "beyond the address space"),
    "an offset": (lambda t: setattr(t, "byte_offset", 2**64 - 8), "beyond the address space"),
}


def test_a_negative_stride_that_was_divided_as_unsigned(operands):
    """CuPy exports a stride of -30 elements as 2**62 - 30."""
    A, B = operands[:2]

    def divide(tensor):
        tensor.strides[0] += 2**62

    memory = np.ascontiguousarray(A)
    result = run("vec4", with_tensor(divide)(memory[::-1], memory), FAKES["ByDlpack"](B))
    assert same_bits(np.asarray(result), run("vec4", A[::-1], B, device="cpu"))


@pytest.mark.parametrize("name", WRONG_TENSORS)
def test_an_impossible_tensor_is_refused(operands, name):
    """Nothing runs, and the GPU stays usable for the process."""
    change, fact = WRONG_TENSORS[name]
    A, B = operands[:2]
    good = [FAKES["ByDlpack"](values) for values in (A, B)]
    wrong, out = (with_tensor(change)(values) for values in (A, operands[2]))
    refused(ValueError, fact, A=wrong, B=good[1])
    fact = fact.replace("A ", "out ").replace("30", "45")
    refused(ValueError, fact, A=good[0], B=good[1], out=out)
    assert [array.capsules for array in (wrong, out, *good)] == [0, 0, 0, 0]
    result = run("vec4", *good)
    assert same_bits(np.asarray(result), run("vec4", A, B, device="cpu"))


@pytest.mark.parametrize("index", [-1, -(2**31), 2**31, 2**64, -(2**64)])
def test_an_impossible_device_is_refused(operands, index):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    A.device = index
    refused(ValueError, f"A.__dlpack_device__() returns ({DLPACK_KIND}, {index})", A=A, B=B)
    assert A.capsules == 0


@pytest.mark.parametrize(
    ("entries", "fact"),
    [
        ({"data": (0, False)}, "A has shape (37, 30) and the address 0"),
        ({"data": (-8, False)}, "-8, which is not an address"),
        ({"data": (2**64 + 4096, False)}, "which is not an address"),
        ({"strides": (2**62, 2**62)}, "beyond the address space"),
        ({"strides": (2**64, 4)}, "64 bits"),
        ({"shape": (1, 2**62), "strides": None}, "beyond the address space"),
        ({"shape": (2**64, 4)}, "64 bits"),
    ],
    ids=str,
)
def test_an_impossible_interface_is_refused(operands, entries, fact):
    good = FAKES["ByInterface"](operands[0])

    class Wrong:
        __cuda_array_interface__ = good.__cuda_array_interface__ | entries

    refused(ValueError, fact, A=Wrong(), B=FAKES["ByInterface"](operands[1]))


# ---------------------------------------------------------------------------- exported results


@pytest.mark.parametrize("kind", ["ByDlpack", "ByDlpack1"])
def test_operands_in_capsules_without_a_destructor_are_released(operands, kind, monkeypatch):
    monkeypatch.setattr(exporters, "DISCARD", None)
    A, B = (FAKES[kind](values) for values in operands[:2])
    run("vec4", A, B)
    assert (A.capsules, B.capsules) == (0, 0)


def test_operands_are_released(operands):
    for kind in ("ByDlpack", "ByDlpack1"):
        A, B, C = (FAKES[kind](values) for values in operands)
        run("vec4", A, B, C=C, beta=1, out=C)
        assert (A.capsules, B.capsules, C.capsules) == (0, 0, 0)
        refused(ValueError, A=A, B=A)
        assert A.capsules == 0


@pytest.mark.parametrize("request_", [{}, {"max_version": (1, 0)}], ids=["plain", "versioned"])
def test_dlpack_exports_a_result(operands, request_):
    A, B = (FAKES["ByDlpack"](values, device=1) for values in operands[:2])
    result = run("vec4", A, B)
    expected = np.asarray(result)
    assert result.__dlpack_device__() == (DLPACK_KIND, 1)
    taken = Imported(result, **request_)
    tensor = taken.tensor
    assert (tensor.device_type, tensor.device_id) == (DLPACK_KIND, 1)
    assert (tensor.ndim, tensor.byte_offset) == (2, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert tensor.shape[:2] == list(result.shape)
    assert tensor.strides[:2] == [N, 1]
    del result
    assert same_bits(taken.get(), expected)
    assert same_bits(np.asarray(run("vec4", A, B)), expected)


def test_attributes_of_a_result(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    result = run("vec4", A, B)
    assert (result.ndim, result.size, result.nbytes, len(result)) == (2, M * N, 4 * M * N, M)
    transposed = result.T
    assert type(transposed) is type(result)
    assert (transposed.shape, len(transposed)) == ((N, M), N)
    assert (transposed.size, transposed.nbytes) == (M * N, 4 * M * N)
    assert repr(transposed) == f"DeviceArray(shape=(45, 37), dtype=float32, device='{GPU}:0')"
    assert transposed.T.shape == result.shape
    assert len(run("vec4", FAKES["ByDlpack"](operands[0][:0]), B)) == 0


def test_a_transposed_result_is_a_view(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    result = run("vec4", A, B)
    transposed = result.T
    assert same_bits(np.asarray(transposed), expected.T)
    assert same_bits(np.asarray(transposed.T), expected)
    assert np.asarray(transposed, np.float64).shape == (N, M)
    assert same_bits(np.from_dlpack(transposed, device="cpu"), expected.T)
    interface, plain = transposed.__cuda_array_interface__, result.__cuda_array_interface__
    assert interface["data"] == plain["data"]
    assert (interface["shape"], interface["strides"]) == ((N, M), (4, 4 * N))
    for request in ({}, {"max_version": (1, 0)}, {"copy": True, "max_version": (1, 0)}):
        taken = Imported(transposed, **request)
        assert (taken.tensor.shape[:2], taken.tensor.strides[:2]) == ([N, M], [1, N])
        assert (taken.tensor.data == plain["data"][0]) is ("copy" not in request)
    address = plain["data"][0]
    del result, plain, taken
    for _ in range(3):
        run("vec4", FAKES["ByDlpack"](operands[0] * 0), B)
    assert transposed.__cuda_array_interface__["data"][0] == address, "it keeps the memory"
    assert same_bits(np.asarray(transposed), expected.T)


@pytest.mark.parametrize("stream", [False, True])
def test_a_transposed_result_can_be_any_operand(operands, stream):
    A, B, C = operands
    exported = [FAKES["ByDlpack"](values.T) for values in operands]
    eye = (
        FAKES["ByDlpack"](np.eye(N, dtype=np.float32)),
        FAKES["ByDlpack"](np.eye(K, dtype=np.float32)),
    )
    request = {"stream": core.library_stream(0) if stream else None}
    expected = run("vec4", A, B, C=C, alpha=0.5, beta=2, device="cpu")
    transposed = [
        run("vec4", eye[1], exported[0], **request).T,
        run("vec4", eye[0], exported[1], **request).T,
        run("vec4", eye[0], exported[2], **request).T,
    ]
    result = run("vec4", *transposed[:2], C=transposed[2], alpha=0.5, beta=2, **request)
    assert same_bits(np.asarray(result), expected)
    out = transposed[2]
    assert run("vec4", *transposed[:2], C=out, alpha=0.5, beta=2, out=out, **request) is out
    assert same_bits(np.asarray(out), expected)
    square = run("vec4", eye[0], eye[0], **request)
    assert run("vec4", square, square.T, out=square.T, **request).shape == (N, N)


def test_numpy_operators_refuse_a_result(operands):
    """The result may be the left or the right operand."""
    result = run("vec4", *(FAKES["ByDlpack"](values) for values in operands[:2]))
    ones = np.ones(result.shape, np.float32)
    for operation in (
        lambda: ones == result,
        lambda: result != ones,
        lambda: ones + result,
        lambda: result + ones,
        lambda: result + 1,
        lambda: ones @ result.T,
        lambda: result @ ones.T,
        lambda: ones < result,
        lambda: result >= ones,
        lambda: np.float32(2) * result,
        lambda: np.multiply(ones, result),
        lambda: np.add(ones, ones, out=result),
    ):
        with pytest.raises(TypeError) as raised:
            operation()
        facts = ("supported", "not support ufuncs", "pass numpy.asarray(r)", "return arrays")
        assert any(fact in str(raised.value) for fact in facts), str(raised.value)
    assert type(result).__array_ufunc__ is None
    assert result == result
    assert result != 1
    assert result in {result}


def test_arguments_of_dlpack(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    result = run("vec4", A, B)
    meaningless = {"cuda": (0,), "hip": (1, 2)}[GPU]
    for stream in (*meaningless, -2, "a", 2**70):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            result.__dlpack__(stream=stream)
    per_thread = {"cuda": (2,), "hip": ()}[GPU]
    for stream in (None, -1, DEFAULT_STREAM, *per_thread, core.library_stream(0)):
        assert same_bits(Imported(result, stream=stream).get(), np.asarray(result))
    with pytest.raises(BufferError, match=f"{GPU}:0"):
        result.__dlpack__(dl_device=(DLPACK_KIND, 1))
    with pytest.raises(TypeError):
        result.__dlpack__(dl_device=2)
    assert same_bits(Imported(result, dl_device=(DLPACK_KIND, 0)).get(), np.asarray(result))
    with pytest.raises(BufferError, match="copy"):
        result.__dlpack__(dl_device=(1, 0), copy=False)
    copy = Imported(result, copy=True, max_version=(1, 0))
    assert copy.managed.flags == 2
    assert copy.tensor.data != result.__cuda_array_interface__["data"][0]
    assert same_bits(copy.get(), np.asarray(result))


def test_the_interface_of_a_result(operands):
    A, B = (FAKES["ByInterface"](values) for values in operands[:2])
    interface = run("vec4", A, B).__cuda_array_interface__
    address, read_only = interface.pop("data")
    assert not read_only
    assert core.fake_cuda_content(address, 4 * M * N)
    assert interface == {
        "shape": (M, N),
        "typestr": "<f4",
        "strides": None,
        "version": 3,
        "stream": None,
    }


def test_memory_is_reused(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    core.fake_cuda_allocations.restype = ctypes.c_long
    for _ in range(3):
        run("vec4", A, B)
    allocations = core.fake_cuda_allocations()
    for _ in range(5):
        run("vec4", A, B)
    assert core.fake_cuda_allocations() == allocations


@pytest.mark.parametrize("protocol", ["dlpack", "interface"])
def test_exported_memory_is_not_reused_while_a_consumer_may_read_it(operands, protocol):
    """The consumer releases the memory before its own kernel has read it."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    other = FAKES["ByDlpack"](np.zeros_like(operands[0]))
    expected = run("vec4", *operands[:2], device="cpu")
    stream = core.library_stream(0)
    for _ in range(80):  # enough that calls wait for exported memory
        result = run("vec4", A, B)
        if protocol == "dlpack":
            result = Imported(result, stream=stream)
        address, _ = result.__cuda_array_interface__["data"]
        seen = np.zeros_like(expected)
        core.library_read(stream, address, seen.ctypes.data, seen.nbytes, 3000)
        del result
        run("vec4", other, B)
        run("vec4", other, B)
        core.library_synchronize(stream)
        assert same_bits(seen, expected)


def test_exported_memory_is_returned(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])

    def live():
        return core.fake_cuda_live(0)

    def export(count):
        for _ in range(count):
            Imported(run("vec4", A, B))
            run("vec4", A, B).__cuda_array_interface__  # noqa: B018

    export(200)
    before = live()
    export(200)
    # How many results are in flight varies. Losing one result in ten would exceed this limit.
    assert live() - before < 400 // 10 * 4 * M * N


# ---------------------------------------------------------------------------- work of consumers

STREAMS = {
    "default": lambda: 1,
    "of the thread": lambda: 2,
    "blocking": lambda: core.library_blocking_stream(0),
    "side": lambda: core.library_stream(0),
}


def working(result, stream, protocol):
    """A consumer that uses the result only in this stream."""
    if protocol == "interface":
        result.__cuda_array_interface__  # noqa: B018
        return result
    return Imported(result, stream={"told": numbered(stream), "not told": -1}[protocol])


@pytest.mark.parametrize("protocol", ["told", "not told", "interface"])
@pytest.mark.parametrize("ours", [None, "other", "same"])
@pytest.mark.parametrize("theirs", STREAMS)
def test_a_consumers_work_is_waited_for(operands, theirs, ours, protocol):
    """Work that the consumer has queued so far ends before run() overwrites or reads the result."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    eye, zeros = FAKES["ByDlpack"](np.eye(N, dtype=np.float32)), np.zeros((M, N), np.float32)
    expected = run("vec4", *operands[:2], device="cpu")
    stream = STREAMS[theirs]()
    own = {None: None, "other": core.library_stream(0), "same": stream}[ours]
    result = run("vec4", A, B)
    imported = working(result, stream, protocol)
    address, _ = run("vec4", A, B, out=result).__cuda_array_interface__["data"]
    seen = np.zeros_like(expected)
    for _ in range(2):  # the consumer may queue more while it holds the result
        core.library_read(stream, address, seen.ctypes.data, seen.nbytes, 10_000)
        run("vec4", result, eye, out=result, alpha=-1, stream=own)
        core.library_synchronize(stream)
        assert same_bits(seen, expected)
        core.library_synchronize(own or stream)  # the consumer's duty before it writes
        core.library_write(stream, address, expected.ctypes.data, expected.nbytes, 10_000)
        assert same_bits(np.asarray(run("vec4", result, eye, stream=own)), expected)
        core.library_write(stream, address, zeros.ctypes.data, zeros.nbytes, 10_000)
        assert not np.asarray(result).any()
        core.library_write(stream, address, expected.ctypes.data, expected.nbytes, 10_000)
        assert same_bits(Imported(result, copy=True).get(), expected)
    core.library_write(stream, address, expected.ctypes.data, expected.nbytes, 10_000)
    del imported
    second = run("vec4", result, eye, stream=own)
    assert same_bits(np.asarray(second), expected)


def test_a_consumer_whose_stream_was_destroyed(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    other = FAKES["ByDlpack"](operands[0] * 0)
    expected = run("vec4", *operands[:2], device="cpu")
    for ours in (None, core.library_stream(0)):
        result, stream = run("vec4", A, B), core.library_stream(0)
        imported = Imported(result, stream=stream)
        seen = np.zeros_like(expected)
        address = imported.tensor.data
        core.library_read(stream, address, seen.ctypes.data, seen.nbytes, 10_000)
        core.library_destroy_stream(stream)
        run("vec4", other, B, out=result, stream=ours)
        assert not np.asarray(result).any()
        assert same_bits(seen, expected)


def test_a_consumer_does_not_overtake_queued_products(operands):
    """The consumer may overwrite a result that a product in another stream has yet to read."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    eye, zeros = FAKES["ByDlpack"](np.eye(N, dtype=np.float32)), np.zeros((M, N), np.float32)
    expected = run("vec4", *operands[:2], device="cpu")
    stream, is_open = held_stream()
    first = run("vec4", A, B)
    second = run("vec4", first, eye, stream=stream)
    theirs = core.library_stream(0)
    imported = Imported(first, stream=theirs)
    core.library_write(theirs, imported.tensor.data, zeros.ctypes.data, zeros.nbytes, 0)
    is_open.value = 1
    assert same_bits(np.asarray(second), expected)


by_number = pytest.mark.skipif(
    GPU == "hip", reason="HIP has no number that names a stream for good"
)


@pytest.mark.parametrize("theirs", ["default", "first"])
def test_a_consumers_writes_are_waited_for_in_each_stream(operands, theirs):
    """All streams that read the result wait, not only the first call's stream."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    eye = FAKES["ByDlpack"](np.eye(N, dtype=np.float32))
    first, second = core.library_stream(0), core.library_stream(0)
    stream = {"default": 1, "first": first}[theirs]
    result = run("vec4", A, B)
    written = np.asarray(run("vec4", A, B, alpha=2))
    imported = Imported(result, stream=numbered(stream))
    address = imported.tensor.data
    core.library_write(stream, address, written.ctypes.data, written.nbytes, 30_000)
    del imported
    results = [run("vec4", result, eye, stream=ours) for ours in (first, second)]
    for copy in results:
        assert same_bits(np.asarray(copy), written)


@by_number
def test_exported_results_cause_no_needless_waits(operands):
    """The host never waits for the default stream. For another stream it waits once, after the
    release."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    eye = FAKES["ByDlpack"](np.eye(N, dtype=np.float32))
    stream, side = core.library_stream(0), core.library_stream(0)
    result = run("vec4", A, B)
    imported = Imported(result, stream=DEFAULT_STREAM)
    waits = core.fake_cuda_device_waits()
    run("vec4", result, eye, out=result, stream=stream)
    del imported
    imported = Imported(result, stream=side)
    run("vec4", result, eye, stream=side)
    assert core.fake_cuda_device_waits() == waits
    del imported
    run("vec4", result, eye, stream=stream)
    assert core.fake_cuda_device_waits() == waits + 1
    run("vec4", result, eye, stream=stream)
    np.asarray(result)
    assert core.fake_cuda_device_waits() == waits + 1


# ---------------------------------------------------------------------------- streams


@pytest.mark.parametrize("kind", FAKES)
def test_the_call_waits_for_all_of_the_operands(operands, kind):
    A, B, C = (pending(values, FAKES[kind]) for values in operands)
    expected = run("vec4", *operands[:2], C=operands[2], beta=1, device="cpu")
    result = run("vec4", A, B, C=C, beta=1)
    assert same_bits(np.asarray(result), expected)


@pytest.mark.parametrize("kind", FAKES)
def test_out_is_ready_when_the_call_returns(operands, kind):
    A, B = (pending(values, FAKES[kind]) for values in operands[:2])
    out = FAKES[kind](np.full((M, N), np.nan, np.float32))
    run("vec4", A, B, out=out)
    assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))


def held_stream():
    """A stream that runs its queued work only after the value is set to 1."""
    sgemm_kernels.memory(empty=True)  # or calls would wait for exports of earlier tests
    stream, is_open = core.library_stream(0), ctypes.c_int(0)
    core.library_hold(stream, ctypes.addressof(is_open))
    return stream, is_open


def test_library_write_copies_its_source():
    """Tests a helper: `library_write` once read its source only when the work ran."""
    stream, is_open = held_stream()
    memory, values = Memory(np.zeros(9, np.float32), 0), np.ones(9, np.float32)
    core.library_write(stream, memory.address, values.ctypes.data, values.nbytes, 0)
    values[:] = np.nan
    is_open.value = 1
    core.library_synchronize(stream)
    assert np.array_equal(memory.read().view(np.float32), np.ones(9))


@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("kind", FAKES)
def test_a_stream_is_honoured(operands, kind, as_object):
    """The call returns before the stream reaches its work, and the stream orders everything
    else."""
    A, B = (pending(values, FAKES[kind]) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    handle, is_open = held_stream()
    result = run("vec4", A, B, stream=Stream(handle) if as_object else handle)
    seen = np.zeros_like(expected)
    interface = result.__cuda_array_interface__
    assert interface["stream"] == 1, "the work is still to come, and the default stream waits"
    core.library_read(handle, interface["data"][0], seen.ctypes.data, seen.nbytes, 0)
    assert not seen.any()
    is_open.value = 1
    core.library_synchronize(handle)
    assert same_bits(seen, expected)
    if kind != "ByInterface":
        assert A.requested_stream == handle
    assert result.__cuda_array_interface__["stream"] is None


def test_a_consumers_stream_waits_for_the_result(operands):
    A, B = (pending(values, FAKES["ByDlpack"]) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    theirs = core.library_stream(0)
    taken = Imported(run("vec4", A, B, stream=core.library_stream(0)), stream=theirs)
    seen = np.zeros_like(expected)
    core.library_read(theirs, taken.tensor.data, seen.ctypes.data, seen.nbytes, 0)
    core.library_synchronize(theirs)
    assert same_bits(seen, expected)


def test_results_in_streams_follow_one_another(operands):
    """Each result is an operand of the next product in another stream, and is dropped before it is
    read."""
    square = operands[0][:30, :30].copy()
    exported, zeros = FAKES["ByDlpack"](square), FAKES["ByDlpack"](square * 0)
    first = pending(square, FAKES["ByDlpack"])
    expected, result = square, first
    for _ in range(6):
        expected = run("vec4", expected, square, device="cpu")
        result = run("vec4", result, exported, stream=core.library_stream(0))
        run("vec4", zeros, exported)
    assert same_bits(np.asarray(result), expected)


def busy_stream(milliseconds):
    """A stream with work for this long."""
    stream, memory = core.library_stream(0), FAKES["ByDlpack"](np.zeros((1, 1), np.float32))
    nothing = np.zeros(1, np.float32)
    core.library_read(stream, memory.address, nothing.ctypes.data, 4, 1000 * milliseconds)
    return stream, memory, nothing


def test_a_result_that_another_stream_still_reads_is_not_reused(operands):
    exported, other = (FAKES["ByDlpack"](values) for values in (operands[0], operands[0] * 0))
    B, square = FAKES["ByDlpack"](operands[1]), np.eye(N, dtype=np.float32)
    eye = FAKES["ByDlpack"](square)
    expected = run("vec4", *operands[:2], device="cpu")
    early, late = core.library_stream(0), busy_stream(30)
    first = run("vec4", exported, B, stream=early)
    second = run("vec4", first, eye, stream=late[0])
    core.library_synchronize(early)
    del first
    for _ in range(3):
        run("vec4", other, B)
    assert same_bits(np.asarray(second), expected)


def test_a_refused_call_does_not_free_memory_in_use(operands):
    """Results were dropped before the call, but other streams still read many of them."""
    exported, other = (FAKES["ByDlpack"](values) for values in (operands[0], operands[0] * 0))
    B, eye = FAKES["ByDlpack"](operands[1]), FAKES["ByDlpack"](np.eye(N, dtype=np.float32))
    expected = run("vec4", *operands[:2], device="cpu")
    early, late = core.library_stream(0), busy_stream(30)
    firsts = [run("vec4", exported, B, stream=early) for _ in range(20)]
    seconds = [run("vec4", first, eye, stream=late[0]) for first in firsts]
    core.library_synchronize(early)
    del firsts
    refused(ValueError, A=exported, B=exported)
    third = core.library_stream(0)
    zeros = [run("vec4", other, B, stream=third) for _ in range(20)]
    assert all(same_bits(np.asarray(second), expected) for second in seconds)
    assert not any(np.asarray(zero).any() for zero in zeros)


def test_the_next_product_waits_for_a_result(operands):
    exported, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    eye = FAKES["ByDlpack"](np.eye(N, dtype=np.float32))
    late = busy_stream(30)
    first = run("vec4", exported, B, stream=late[0])
    second = run("vec4", first, eye)
    assert same_bits(np.asarray(second), run("vec4", *operands[:2], device="cpu"))


def test_a_stream_reuses_its_memory_before_it_reaches_the_work(operands):
    exported, B, other = (FAKES["ByDlpack"](values) for values in (*operands[:2], operands[0] * 0))
    stream, is_open = held_stream()
    core.fake_cuda_allocations.restype = ctypes.c_long
    allocations = core.fake_cuda_allocations()
    for _ in range(20):
        run("vec4", other, B, stream=stream)
    result = run("vec4", exported, B, stream=stream)
    assert core.fake_cuda_allocations() <= allocations + 1
    is_open.value = 1
    assert same_bits(np.asarray(result), run("vec4", *operands[:2], device="cpu"))


@pytest.mark.parametrize(
    ("way", "calls", "streams"),
    [
        ("kept", 1000, 1),
        ("kept", 200, 3),
        ("held back", 200, 1),
        pytest.param("exported to its stream", 200, 1, marks=by_number),
        ("exported to the default stream", 200, 1),
    ],
)
def test_a_chain_in_a_stream_neither_waits_nor_allocates(operands, way, calls, streams):
    """Each result is an operand of the next product, whether or not the stream has reached it."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    square = FAKES["ByDlpack"](np.eye(N, dtype=np.float32))
    weights = run("vec4", square, square)
    result, is_open = run("vec4", A, B), ctypes.c_int(way != "held back")
    handles = [core.library_stream(0) for _ in range(streams)]
    for handle in handles:
        core.library_hold(handle, ctypes.addressof(is_open))
    for index in range(calls):
        if index == 40:
            waits, allocations = core.fake_cuda_device_waits(), core.fake_cuda_allocations()
        handle = handles[index % streams]
        result = run("vec4", result, weights, stream=handle)
        if way.startswith("exported"):
            Imported(result, stream=handle if way == "exported to its stream" else DEFAULT_STREAM)
    assert core.fake_cuda_device_waits() == waits
    # How far one stream is behind another varies. Allocating in each call would exceed this limit.
    more = 0 if streams == 1 else (calls - 40) // 10
    assert core.fake_cuda_allocations() <= allocations + more
    is_open.value = 1
    assert same_bits(np.asarray(result), run("vec4", *operands[:2], device="cpu"))


def test_idle_gpu_memory_is_freed_on_request(operands):
    exported, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    gc.collect()  # leftovers of earlier tests
    before = core.fake_cuda_live(0)
    sgemm_kernels.memory(empty=True)
    least = core.fake_cuda_live(0)
    assert least <= before
    kept = run("vec4", exported, B)
    run("vec4", exported, B, stream=core.library_stream(0))
    run("vec4", *operands[:2])
    assert core.fake_cuda_live(0) > least
    sgemm_kernels.memory(empty=True)
    assert 0 < core.fake_cuda_live(0) - least < 1 << 14
    assert same_bits(np.asarray(kept), run("vec4", *operands[:2], device="cpu"))
    del kept
    sgemm_kernels.memory(empty=True)
    assert core.fake_cuda_live(0) == least


def test_out_of_memory_says_what_fits_and_what_to_do():
    A = FAKES["ByDlpack"](np.ones((600, 1), np.float32))
    B = FAKES["ByDlpack"](np.ones((1, 600), np.float32))
    sgemm_kernels.memory(empty=True)
    core.fake_cuda_set_memory(0, core.fake_cuda_live(0) + 4 * 500**2)
    try:
        with pytest.raises(sgemm_kernels.OutOfMemoryError) as raised:
            run("vec4", A, B)
    finally:
        core.fake_cuda_set_memory(0, 2**30)
    for part in ("600 x 600", "0.001 GB requested", "500 x 500 float32", "pass NumPy arrays"):
        assert part in str(raised.value)


def test_out_in_a_stream(operands):
    A, B = (pending(values, FAKES["ByDlpack"]) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    out = run("vec4", FAKES["ByDlpack"](operands[0] * 0), FAKES["ByDlpack"](operands[1]))
    assert run("vec4", A, B, out=out, stream=core.library_stream(0)) is out
    assert same_bits(np.asarray(out), expected)


class Handles:
    """A stream of a library release without __cuda_stream__: an attribute holds the handle."""

    def __init__(self, **handle):
        self.__dict__ |= handle

    def wait_event(self, event): ...


@pytest.mark.parametrize("name", ["cuda_stream", "ptr"])
def test_streams_without_the_protocol(operands, name):
    A, B = (pending(values, FAKES["ByDlpack"]) for values in operands[:2])
    handle, is_open = held_stream()
    result = run("vec4", A, B, stream=Handles(**{name: handle}))
    assert A.requested_stream == handle
    assert result.__cuda_array_interface__["stream"] == 1, "the call did not wait"
    is_open.value = 1
    assert same_bits(np.asarray(result), run("vec4", *operands[:2], device="cpu"))
    run("vec4", A, B, stream=Handles(**{name: 0}))
    assert A.requested_stream == DEFAULT_STREAM


def test_what_only_looks_like_a_stream(operands):
    """CuPy's events and pointers also have a `ptr`."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    event = type("Event", (), {"ptr": 64})()
    refused(TypeError, "stream must be", "Event", A=A, B=B, stream=event)
    refused(TypeError, A=A, B=B, stream=Handles(ptr="a"))
    refused(ValueError, "stream is -1", A=A, B=B, stream=Handles(cuda_stream=-1))


# ---------------------------------------------------------------------------- which GPU is current


class OnlyCurrent(FAKES["ByDlpack"]):
    """Exports only from the current GPU, as PyTorch does."""

    def _export(self, stream):
        if core.library_device() != self.device:
            raise BufferError("my GPU is not the current one")
        return super()._export(stream)


def test_a_library_that_exports_only_from_the_current_gpu(operands):
    A, B, C = (OnlyCurrent(values, device=1) for values in operands)
    result = run("vec4", A, B, C=C, beta=1, out=C)
    expected = run("vec4", *operands[:2], C=operands[2], beta=1, device="cpu")
    assert same_bits(result.get(), expected)
    assert core.library_device() == 0


def test_a_library_that_tracks_the_current_gpu_itself(operands, monkeypatch):
    """PyTorch may consider a GPU current that it has not used yet, whatever CUDA reports."""

    class Guard:
        believed = 0

        def __init__(self, index):
            self.index = index

        def __enter__(self):
            self.before, Guard.believed = Guard.believed, self.index

        def __exit__(self, *raised):
            Guard.believed = self.before

    class Believing(FAKES["ByDlpack"]):
        __module__ = "torch"

        def _export(self, stream):
            if Guard.believed != self.device:
                raise BufferError("my GPU is not the current one")
            return super()._export(stream)

    class Never(Believing):
        def _export(self, stream):
            raise BufferError("never")

    cuda = types.ModuleType("torch.cuda")
    cuda.device = Guard
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    A, B = (Believing(values, device=1) for values in operands[:2])
    result = run("vec4", A, B)
    assert same_bits(np.asarray(result), run("vec4", *operands[:2], device="cpu"))
    with pytest.raises(BufferError, match="never"):
        run("vec4", Never(operands[0], device=1), B)
    assert Guard.believed == 0
    assert (A.capsules, B.capsules) == (0, 0)


def test_the_readmes_call_from_pytorch(operands, monkeypatch):
    A = operands[0]

    def rand(*shape, device):
        assert (shape, device) == ((4096, 4096), "cuda")
        x = ByExchange(A)  # smaller than 4096, since the CPU computes here
        x.T = ByExchange(A.T, A)
        return x

    torch = types.ModuleType("torch")
    torch.rand = rand
    monkeypatch.setitem(sys.modules, "torch", torch)
    names = {}
    exec(readme_call_from_pytorch(), names)
    core.library_synchronize(1)
    np.testing.assert_allclose(names["y"].get(), A @ A.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["ByDlpack", "ByInterface"])
def test_a_library_that_leaves_another_gpu_current(operands, kind):
    """The export changes the current GPU, and the product still runs on the operands' GPU."""

    class Leaving(FAKES[kind]):
        def _export(self, stream):
            core.library_set_device(0)
            return super()._export(stream)

        @property
        def shape(self):
            core.library_set_device(0)
            return self._shape

        @shape.setter
        def shape(self, shape):
            self._shape = shape

    A, B = (Leaving(values, device=1) for values in operands[:2])
    gc.collect()  # leftovers of earlier tests
    sgemm_kernels.memory(empty=True)
    before = core.fake_cuda_live(0)
    result = run("vec4", A, B)
    assert result.device == f"{GPU}:1"
    assert core.fake_cuda_live(0) == before
    assert same_bits(np.asarray(result), run("vec4", *operands[:2], device="cpu"))
    assert core.library_device() == 0


# ---------------------------------------------------------------------------- CUDA graphs


class Capture:
    """Captures the work of its stream in a graph."""

    def __init__(self):
        self.stream, self.graph = core.library_stream(0), None

    def __enter__(self):
        core.library_begin_capture(self.stream)
        return self.stream

    def __exit__(self, *_):
        self.graph = core.library_end_capture(self.stream)

    def replay(self):
        assert self.graph, "the capture was broken"
        core.fake_cuda_replay(self.graph, self.stream)
        core.library_synchronize(self.stream)


@pytest.mark.parametrize("kind", FAKES)
def test_a_product_is_captured(operands, kind):
    """Without copies, on arrays that stay allocated. Each replay uses their current values."""
    A, B, C = (FAKES[kind](values) for values in operands)
    ours, out = run("vec4", A, B), FAKES[kind](operands[2] * 0)
    eye = FAKES[kind](np.eye(N, dtype=np.float32))
    capture = Capture()
    with capture as stream:
        assert run("vec4", A, B, C=C, beta=0.5, out=out, stream=stream) is out
        assert run("vec4", out, eye, out=ours, stream=stream) is ours
    assert not out.get().any(), "nothing ran yet"
    for factor in (1, 2):
        content = core.fake_cuda_content(A.address, A.memory.nbytes)
        scaled = operands[0] * np.float32(factor)
        ctypes.memmove(content, scaled.ctypes.data, scaled.nbytes)
        capture.replay()
        expected = run("vec4", scaled, operands[1], C=operands[2], beta=0.5, device="cpu")
        assert same_bits(out.get(), expected)
        assert same_bits(np.asarray(ours), expected)


def test_a_replay_is_waited_for(operands):
    """The package cannot see when a graph that writes one of its results is replayed."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    result = run("vec4", FAKES["ByDlpack"](operands[0] * 0), B)
    capture = Capture()
    with capture as stream:
        run("vec4", A, B, out=result, stream=stream)
    other, is_open = held_stream()
    core.fake_cuda_replay(capture.graph, other)
    opening = threading.Timer(0.05, setattr, (is_open, "value", 1))
    opening.start()
    assert same_bits(np.asarray(result), expected)


def test_scratch_memory_belongs_to_the_graph(operands):
    """Memory for partial sums exists during each replay, and only then."""
    A, B, C = (FAKES["ByDlpack"](values) for values in operands)
    expected = run("vec4", *operands[:2], device="cpu")
    core.fake_cuda_set_scratch(ctypes.c_size_t(1 << 12))
    try:
        run("vec4", A, B)
        capture = Capture()
        with capture as stream:
            for _ in range(2):
                run("vec4", A, B, out=C, stream=stream)
        sgemm_kernels.memory(empty=True)
        allocations = core.fake_cuda_allocations()
        for _ in range(3):
            ctypes.memset(core.fake_cuda_content(C.address, C.memory.nbytes), 0, C.memory.nbytes)
            capture.replay()
            assert same_bits(C.get(), expected)
        assert core.fake_cuda_allocations() == allocations
        assert same_bits(np.asarray(run("vec4", A, B)), expected)
    finally:
        core.fake_cuda_set_scratch(ctypes.c_size_t(0))


def test_uncapturable_calls_are_refused_and_break_no_capture(operands):
    A, B, C = (FAKES["ByDlpack"](values) for values in operands)
    wide = np.zeros((M, 2 * N), np.float32)
    strided = FAKES["ByDlpack"](wide[:, ::2], wide)
    square = FAKES["ByDlpack"](operands[0][:30, :30].copy())
    elsewhere = FAKES["ByInterface"](operands[0], stream=core.library_stream(0))
    capture = Capture()
    with capture as stream:
        refused(ValueError, "captured", "pass out=", A=A, B=B, stream=stream)
        refused(ValueError, "a copy of out", "pass out", A=A, B=B, out=strided, stream=stream)
        refused(ValueError, "a copy of out", A=square, B=square, out=square, stream=stream)
        refused(ValueError, "cannot wait", A=elsewhere, B=B, out=C, stream=stream)
        core.fake_cuda_set_scratch(ctypes.c_size_t(1 << 12))
        core.fake_cuda_set_pools(0)
        try:
            refused(ValueError, "memory pools", "'vec4'", A=A, B=B, out=C, stream=stream)
        finally:
            core.fake_cuda_set_scratch(ctypes.c_size_t(0))
            core.fake_cuda_set_pools(1)
        run("vec4", A, B, out=C, stream=stream)
    capture.replay()
    assert same_bits(C.get(), run("vec4", *operands[:2], device="cpu"))


@pytest.mark.parametrize("kind", FAKES)
def test_an_operand_of_a_captured_stream_in_an_uncaptured_call(operands, kind):
    B = FAKES[kind](operands[1])
    expected = run("vec4", *operands[:2], device="cpu")
    capture = Capture()
    late = FAKES[kind](operands[0], stream=capture.stream)
    with capture:
        for _ in range(3):
            refused(ValueError, "captured", "pass that stream as stream=", A=late, B=B)
            assert same_bits(run("vec4", *operands[:2], device=GPU), expected)
    # By DLPack, the library made the package's stream part of its capture, and so broke it.
    assert bool(capture.graph) == (kind == "ByInterface")
    handles = core.fake_cuda_handles()
    A = FAKES[kind](operands[0])
    assert same_bits(np.asarray(run("vec4", A, B)), expected)
    for _ in range(3):
        assert same_bits(run("vec4", *operands[:2], device=GPU), expected)
    assert core.fake_cuda_handles() <= handles + 1, "streams are used again after the capture"


def test_a_result_is_exported_within_a_capture(operands):
    """By __cuda_array_interface__. The result is ready, so the captured stream need not wait."""
    A, B = (FAKES["ByInterface"](values) for values in operands[:2])
    result, out = run("vec4", A, B), FAKES["ByInterface"](operands[2])
    eye = FAKES["ByInterface"](np.eye(N, dtype=np.float32))
    capture = Capture()
    with capture as stream:
        assert result.__cuda_array_interface__["stream"] is None
        run("vec4", result, eye, out=out, stream=stream)
    capture.replay()
    assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))


def test_a_first_call_is_captured(operands):
    """A capture needs no call before it: code is loaded and memory allocated within it."""
    A, B, out = (FAKES["ByDlpack"](values) for values in operands)
    core.fake_cuda_forget_kernels()
    core.fake_cuda_set_scratch(ctypes.c_size_t(1 << 12))
    capture = Capture()
    try:
        with capture as stream:
            run("vec4", A, B, out=out, stream=stream)
    finally:
        core.fake_cuda_set_scratch(ctypes.c_size_t(0))
    for _ in range(2):
        capture.replay()
        assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))


@contextlib.contextmanager
def little_memory(more):
    """Limits device 0 to this many bytes more than it uses now."""
    sgemm_kernels.memory(empty=True)
    core.fake_cuda_set_memory(0, core.fake_cuda_live(0) + more)
    try:
        yield
    finally:
        core.fake_cuda_set_memory(0, 2**30)


@contextlib.contextmanager
def captured_elsewhere():
    """Another thread captures a stream in global mode, which restricts every thread."""
    capture, begun, done = Capture(), threading.Event(), threading.Event()

    def work():
        with capture:
            begun.set()
            done.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(20)
    try:
        yield capture
    finally:
        done.set()
        thread.join()
    assert capture.graph, "the capture was broken"


def use_numpy(operands, _stream):
    run("vec4", *operands[:2], device=GPU)


def use_panels(_operands, _stream):
    large = np.ones((600, 600), np.float32)
    run("vec4", large, large, device=GPU)


def use_a_stream(operands, stream):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    for _ in range(3):
        result = run("vec4", A, B, stream=stream)
        del result


def use_exported_memory(operands, _stream):
    A, B = (FAKES["ByInterface"](values) for values in operands[:2])
    result = run("vec4", A, B)
    assert result.__cuda_array_interface__["stream"] is None
    run("vec4", A, B, out=result)
    assert same_bits(np.asarray(result), run("vec4", *operands[:2], device="cpu"))


def drop_exported_memory(operands, _stream):
    A, B = (FAKES["ByInterface"](values) for values in operands[:2])
    for _ in range(70):
        assert run("vec4", A, B).__cuda_array_interface__


def free_memory(operands, _stream):
    run("vec4", *(FAKES["ByDlpack"](values) for values in operands[:2]))
    sgemm_kernels.memory(empty=True)


def pin_anew(_operands, _stream):
    sgemm_kernels.memory(empty=True)
    assert sgemm_kernels.empty((3000, 1000)).shape == (3000, 1000)


def run_out_of_memory(operands, _stream):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    with little_memory(4):
        refused(sgemm_kernels.OutOfMemoryError, A=A, B=B)


def measure_a_variant(_operands, _stream):
    measure("vec4", 16, seconds=0.01, device=GPU)


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "again"])
@pytest.mark.parametrize(
    "use",
    [
        *(use_numpy, use_panels, use_a_stream, use_exported_memory, drop_exported_memory),
        *(free_memory, pin_anew, run_out_of_memory, measure_a_variant),
    ],
)
def test_no_call_of_another_thread_ends_a_capture(operands, use, is_first):
    stream = core.library_stream(0)
    if is_first:
        sgemm_kernels.memory(empty=True)
    else:
        use(operands, stream)
    with captured_elsewhere():
        use(operands, stream)


# ---------------------------------------------------------------------------- several GPUs


def test_a_product_that_is_not_worth_dividing(rng):
    """It takes less time than a second GPU needs to start."""
    allocations = {}
    for n in (40, 400):
        exported = [FAKES["ByDlpack"](uniform(rng, n, n)) for _ in range(2)]
        expected = np.asarray(run("vec4", *exported))
        live = core.fake_cuda_live(1)
        sgemm_kernels.memory(empty=True)
        before = core.fake_cuda_live(1)
        assert before <= live
        assert same_bits(np.asarray(run("vec4", *exported, device=f"{GPU}:all")), expected)
        allocations[n] = core.fake_cuda_live(1) - before
    assert allocations[40] == 0
    assert allocations[400] > 0


@pytest.mark.parametrize(
    ("name", "size", "depth", "divided"),
    [("simt", 100, 300, True), ("auto", 100, 300, GPU == "hip"), ("auto", 150, 120, True)],
)
def test_tensor_cores_divide_only_larger_products(rng, name, size, depth, divided):
    """Tensor cores are faster, so dividing pays off at larger sizes. They need a GPU that has them,
    and a K that is not too short."""
    A, B = uniform(rng, size, depth), uniform(rng, depth, size)
    exported = [FAKES["ByDlpack"](values) for values in (A, B)]
    sgemm_kernels.memory(empty=True)
    before = core.fake_cuda_live(1)
    result = np.asarray(run(name, *exported, device=f"{GPU}:all"))
    assert same_bits(result, run(name, A, B, device="cpu"))
    assert (core.fake_cuda_live(1) > before) == divided


def test_a_gpu_is_asked_for_its_clock_once(rng):
    exported = [FAKES["ByDlpack"](uniform(rng, 40, 40)) for _ in range(2)]
    run("vec4", *exported, device=f"{GPU}:all")
    asked = core.fake_cuda_clock_questions()
    assert asked > 0
    run("vec4", *exported, device=f"{GPU}:all")
    assert core.fake_cuda_clock_questions() == asked


def test_gpus_are_connected_once(rng):
    exported = [FAKES["ByDlpack"](uniform(rng, *shape)) for shape in ((1500, 20), (20, 600))]
    core.fake_cuda_peer_questions.restype = ctypes.c_long
    run("vec4", *exported, device=f"{GPU}:all")
    asked = core.fake_cuda_peer_questions()
    assert asked > 0
    run("vec4", *exported, device=f"{GPU}:all")
    assert core.fake_cuda_peer_questions() == asked
    sgemm_kernels.memory(empty=True)


@pytest.mark.parametrize("rows", [1, 2, 3, 37, 200])
def test_rows_of_host_arrays_on_all_gpus(rng, rows):
    A, B, C = uniform(rng, rows, K), uniform(rng, K, N), uniform(rng, rows, N)
    expected = run("vec4", A, B, C=C, beta=0.5, device="cpu")
    assert same_bits(run("vec4", A, B, C=C, beta=0.5, device=f"{GPU}:all"), expected)
    out = np.asfortranarray(C)
    assert run("vec4", A, B, C=out, beta=0.5, out=out, device=f"{GPU}:all") is out
    assert same_bits(out, expected)


def test_overlap_on_all_gpus(rng):
    memory = uniform(rng, 50 * 50 + 300)
    A, out = memory[:2500].reshape(50, 50), memory[300:].reshape(50, 50)
    B = uniform(rng, 50, 50)
    expected = run("vec4", A.copy(), B, device="cpu")
    run("vec4", A, B, out=out, device=f"{GPU}:all")
    assert same_bits(out, expected)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("home", [0, 1])
def test_rows_of_device_arrays_on_all_gpus(rng, home, transposed):
    """Enough rows that the other GPU computes some of them."""
    A, B, C = uniform(rng, 1500, 20), uniform(rng, 20, 600), uniform(rng, 1500, 600)
    expected = run("vec4", A, B, C=C, beta=0.5, device="cpu")
    if transposed:
        A, B = np.asfortranarray(A), np.asfortranarray(B)
    core.fake_cuda_allocations.restype = ctypes.c_long
    exported = [FAKES["ByDlpack"](values, device=home) for values in (A, B, C)]
    run("vec4", exported[0], exported[1], C=exported[2], beta=0.5)
    allocations = core.fake_cuda_allocations()
    result = run("vec4", exported[0], exported[1], C=exported[2], beta=0.5, device=f"{GPU}:all")
    assert result.device == f"{GPU}:{home}"
    assert same_bits(np.asarray(result), expected)
    if transposed is False and home == 0:
        assert core.fake_cuda_allocations() > allocations, "the other GPU had a part"


def test_all_gpus_wait_for_the_operands(rng):
    A, B = uniform(rng, 1500, 20), uniform(rng, 20, 600)
    exported = [pending(values, FAKES["ByDlpack"], 100_000) for values in (A, B)]
    result = run("vec4", *exported, device=f"{GPU}:all")
    assert same_bits(np.asarray(result), run("vec4", A, B, device="cpu"))


def test_the_current_device_stays_what_it_was(rng):
    A, B = uniform(rng, 1500, 20), uniform(rng, 20, 600)
    for home in (0, 1):
        exported = [FAKES["ByDlpack"](values, device=home) for values in (A, B)]
        for device in (None, f"{GPU}:all"):
            run("vec4", *exported, device=device).__dlpack__(copy=True)
            assert core.library_device() == 0
    run("vec4", A, B, device=f"{GPU}:all")
    assert core.library_device() == 0


@pytest.fixture
def no_memory_on_gpu_1():
    """The link to GPU 1 is measured first. Without a measurement GPU 1 would not be used."""
    A, B = (FAKES["ByDlpack"](np.ones(shape, np.float32)) for shape in ((1500, 20), (20, 600)))
    run("vec4", A, B, device=f"{GPU}:all")
    del A, B
    sgemm_kernels.memory(empty=True)
    core.fake_cuda_set_memory(1, 0)
    yield
    core.fake_cuda_set_memory(1, 2**30)


def test_one_gpus_failure_is_one_error(rng, no_memory_on_gpu_1):
    A, B = uniform(rng, 400, 300), uniform(rng, 300, 400)
    with pytest.raises(sgemm_kernels.OutOfMemoryError, match=f"{GPU}:1, one of 2 GPUs"):
        run("vec4", A, B, device=f"{GPU}:all")
    assert same_bits(run("vec4", A, B, device=f"{GPU}:0"), run("vec4", A, B, device="cpu"))
    A, B = uniform(rng, 1500, 20), uniform(rng, 20, 600)
    exported = FAKES["ByDlpack"](A), FAKES["ByDlpack"](B)
    with pytest.raises(sgemm_kernels.OutOfMemoryError, match=f"{GPU}:1"):
        run("vec4", *exported, device=f"{GPU}:all")
    assert same_bits(np.asarray(run("vec4", *exported)), run("vec4", A, B, device="cpu"))


def test_one_stream_is_not_for_all_gpus(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    refused(ValueError, f"{GPU}:all", A=A, B=B, stream=1, device=f"{GPU}:all")


# ---------------------------------------------------------------------------- failures


def ways(operands):
    """Calls for each path through the code, by name."""
    A, B, C = (FAKES["ByDlpack"](values) for values in operands)
    transposed, wide = operands[0][::-1, ::-1].copy(), np.zeros((M, 2 * N), np.float32)
    odd = FAKES["ByInterface"](transposed[::-1, ::-1], transposed)
    strided = FAKES["ByInterface"](wide[:, ::2], wide)
    tall = FAKES["ByDlpack"](np.ones((3000, K), np.float32))
    column = np.ones((2600, 1), np.float32)
    stream = core.library_stream(0)
    return {
        "a call": lambda: run("vec4", A, B, C=C, beta=1),
        "with copies": lambda: run("vec4", odd, B, out=strided),
        "in a stream": lambda: run("vec4", odd, B, out=strided, stream=stream),
        "a result in a stream": lambda: np.asarray(run("vec4", A, B, stream=stream)),
        "on all GPUs": lambda: run("vec4", tall, B, device=f"{GPU}:all"),
        "host arrays in panels": lambda: run("vec4", column, column.T, device=f"{GPU}:0"),
        "host arrays on all GPUs": lambda: run("vec4", *operands[:2], device=f"{GPU}:all"),
        "exported": lambda: Imported(run("vec4", A, B)),
        "exported as a copy": lambda: Imported(run("vec4", A, B), copy=True),
    }


@pytest.mark.parametrize("code", [2, 999])
@pytest.mark.parametrize("way", ways([np.zeros((1, 1), np.float32)] * 3))
def test_every_cuda_call_may_fail(operands, way, code):
    """Each failure raises the right exception and leaks nothing, and the next call works."""
    call = ways(operands)[way]

    ones = np.ones((4000, 1), np.float32)
    large = [[FAKES["ByDlpack"](x, device=device) for x in (ones, ones.T)] for device in (0, 1)]

    def live():
        """Memory in use. A product too large for each GPU first frees all idle memory."""
        gc.collect()
        for device in (0, 1):
            core.fake_cuda_set_memory(device, 0)
            with pytest.raises(sgemm_kernels.OutOfMemoryError):
                run("vec4", *large[device])
            core.fake_cuda_set_memory(device, 2**30)
        return core.fake_cuda_live(0), core.fake_cuda_live(1), core.fake_cuda_handles()

    call()
    before, failures = live(), 0
    for number in range(1, 200):
        core.fake_cuda_fail(number, code)
        try:
            call()
        except sgemm_kernels.Error:
            failures += 1
        except ValueError:  # a GPU of unknown compute capability is not usable
            assert core.fake_cuda_failed_call() == f"{GPU}DeviceGetAttribute".encode()
        failed = core.fake_cuda_failed_call()
        core.fake_cuda_fail(0, 0)
        if not failed:
            break
    assert failures
    assert number < 199
    assert live() == before


# ---------------------------------------------------------------------------- cuBLAS


REFERENCE = {"cuda": "cublas", "hip": "rocblas"}[GPU]


def test_a_library_whose_calls_cannot_be_ordered_fails(operands):
    """Its calls share memory, so a failure to record or wait for an event must raise."""
    _core._open_cublas(_core.__file__)
    run(REFERENCE, *operands[:2], device=GPU)
    met = set()
    for number in range(1, 30):
        core.fake_cuda_fail(number, 999)
        failed = None
        try:
            run(REFERENCE, *operands[:2], device=GPU)
        except sgemm_kernels.DeviceError as error:
            failed = error
        call = core.fake_cuda_failed_call().decode().removeprefix(GPU)
        core.fake_cuda_fail(0, 0)
        if call in ("StreamWaitEvent", "EventRecord"):
            met.add(call)
            assert failed, call
    assert met == {"StreamWaitEvent", "EventRecord"}


def test_all_variants_are_timed_with_the_same_calls():
    """Only the product runs between the two events of a sample."""
    _core._open_cublas(_core.__file__)
    core.fake_cuda_noted_calls.restype = ctypes.c_char_p
    asking = (f"{GPU}StreamIsCapturing", f"{GPU}DeviceGetAttribute")
    kernels = ("a launch", f"{GPU}LaunchHostFunc")
    for name in ("vec4", REFERENCE):
        core.fake_cuda_note_calls()
        measure(name, 16, seconds=0.01, device=GPU)
        calls = core.fake_cuda_noted_calls().decode().splitlines()
        timed = [at for at, call in enumerate(calls) if call == "a timing event"]
        assert timed, name
        for begin, end in zip(timed[::2], timed[1::2], strict=True):
            window = [call for call in calls[begin + 1 : end - 1] if call not in asking]
            assert ["kernel" if call in kernels else call for call in window] == ["kernel"], name


def whole(rng, *shape):
    """Small integers, so that every product is exact."""
    return rng.integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("on_gpu", [False, True], ids=["host", "gpu"])
def test_cublas_gets_valid_leading_dimensions(rng, on_gpu):
    """Includes matrices of one row or column, whose strides mean nothing. The fake library refuses
    whatever BLAS refuses."""
    _core._open_cublas(_core.__file__)
    sizes, names = (0, 1, 5), ("C", "F", "C with padded rows", "F with padded columns")
    for M, N, K in itertools.product(sizes, repeat=3):
        values = whole(rng, M, K), whole(rng, K, N), whole(rng, M, N)
        expected = values[0] @ values[1] + 2 * values[2]
        for layouts in itertools.product(names, repeat=3):
            placed = [LAYOUTS[name].place(each) for name, each in zip(layouts, values, strict=True)]
            A, B, C = (
                FAKES["ByInterface"](matrix, memory) if on_gpu else matrix
                for matrix, memory in placed
            )
            result = run(_core._REFERENCE, A, B, C=C, beta=2, out=C, device=f"{GPU}:0")
            assert result is C
            assert same_bits(C.get() if on_gpu else C, expected), (M, N, K, layouts)


def test_cublas_takes_a_row_with_column_major_strides(rng):
    wide = whole(rng, 67, 4)
    A, B = wide[:, 1:2].T, whole(rng, 67, 5)
    _core._open_cublas(_core.__file__)
    assert same_bits(run(_core._REFERENCE, A, B, device=f"{GPU}:0"), A @ B)
    exported = FAKES["ByInterface"](A, wide)
    assert same_bits(np.asarray(run(_core._REFERENCE, exported, FAKES["ByInterface"](B))), A @ B)


# ------------------------------------------------------------------------------- competitors

LEGACY_STREAM = 1


def naive(A, B, out, name="naive"):
    run(name, A, B, out=out, stream=LEGACY_STREAM)


@pytest.mark.parametrize("layout", ["NN", "TN"])
@pytest.mark.parametrize("shape", [(M, N, K), (6, M, N, K), (70_000, 1, 2, 3)])
def test_a_competitor_computes_where_the_operands_are(shape, layout):
    seen = []

    def competitor(A, B, out):
        seen.append([array.__cuda_array_interface__["data"][1] for array in (A, B, out)])
        naive(A, B, out, "simt")

    contenders = ["simt", ("other", competitor)]
    results = measure(contenders, shape, layouts=layout, device=GPU, seconds=0.05)
    for row in results.rows:
        assert row.error.right
        assert row.median_s > 0
    assert len(seen) > len(results["other", shape, layout].samples_s)
    assert not any(map(any, seen)), "PyTorch refuses what is read-only"


def test_a_competitor_that_writes_nothing_is_wrong():
    results = measure(
        [("right", naive), ("idle", lambda *_: None)], (M, N, K), device=GPU, seconds=0.05
    )
    assert [row.error.right for row in results.rows] == [True, False]


class Cupy:
    """The part of CuPy that `measure_briefly` uses, with memory of the fake runtime."""

    def __init__(self):
        self.cuda = types.SimpleNamespace(Device=lambda index: contextlib.nullcontext())
        self.asarray = np.asarray
        self.most = 10**8  # bytes
        self.taken, self.given_back = [], 0

    def empty(self, shape, dtype):
        if 4 * np.prod(shape) > self.most:
            raise MemoryError("no room for it")
        memory = Memory(np.zeros(shape, dtype), 0)
        content = core.fake_cuda_content(memory.address, memory.nbytes)
        block = np.frombuffer((ctypes.c_char * memory.nbytes).from_address(content), dtype)
        self.taken.append(memory)
        return Block(block.reshape(shape), memory)

    def get_default_memory_pool(self):
        return types.SimpleNamespace(free_all_blocks=lambda: setattr(self, "given_back", 1))


class Block:
    """A CuPy array."""

    def __init__(self, content, memory):
        self.content, self.memory = content, memory
        self.data = types.SimpleNamespace(ptr=memory.address)

    def __setitem__(self, place, values):
        self.content[place] = values

    def __getitem__(self, place):
        return Block(self.content[place], self.memory)

    def fill(self, value):
        self.content[...] = value

    def get(self):
        core.library_synchronize(LEGACY_STREAM)
        return self.content.copy()


@pytest.fixture
def cupy(monkeypatch):
    cupy = Cupy()
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return cupy


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize(("seconds", "rounds"), [(1e-9, 5), (60.0, 25)])
def test_a_brief_measurement_runs_its_rounds_in_turn(cupy, layout, seconds, rounds):
    """Measures variants and competitors, one of them wrong, for contiguous rows or columns."""
    seen = []

    def right(A, B, out):
        seen.append([array.__cuda_array_interface__ for array in (A, B, out)])
        naive(A, B, out)

    contenders = ["vec4", ("right", right), ("idle", lambda *_: None), "simt"]
    results = measure_briefly(contenders, (M, N, K), layout, device=GPU, seconds=seconds)
    assert results.cases == (((M, N, K), layout),)
    assert [row.error.right for row in results.rows] == [True, True, False, True]
    assert results["idle", (M, N, K), layout].samples_s == ()
    assert any(row.samples_s for row in results.rows)
    for row in results.rows:
        assert len(row.samples_s) <= rounds, "the host may disturb some"
        few = len(row.samples_s) < 10 and row.error.right
        assert any("at least 10" in fault for fault in row.unmet) == (few and row.samples_s != ())
    by_rows, by_columns = ((4 * K, 4), (4 * N, 4)), ((4, 4 * M), (4, 4 * K))
    for A, B, out in seen:
        assert (A["strides"], B["strides"]) == (by_rows if layout == "NN" else by_columns)
        assert out["strides"] == (4 * N, 4)
    places = {A["data"][0] for A, _, _ in seen}
    assert len(places) > 1
    assert len(places) <= results.rows[0].operand_sets
    assert cupy.given_back


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_a_brief_measurement_of_a_batch(cupy, layout):
    seen = []

    def right(A, B, out):
        seen.append([array.__cuda_array_interface__["shape"] for array in (A, B, out)])
        naive(A, B, out)

    contenders = ["auto", ("right", right), ("idle", lambda *_: None)]
    results = measure_briefly(contenders, (4, M, N, K), layout, device=GPU, seconds=1e-9)
    assert results.cases == (((4, M, N, K), layout),)
    assert [row.error.right for row in results.rows] == [True, True, False]
    assert seen[0] == [(4, M, K), (4, K, N), (4, M, N)]
    assert cupy.given_back


def test_a_brief_measurement_holds_tf32_to_its_own_bound(cupy, monkeypatch):
    def inexact(name, *operands, **how):
        return run("naive", *operands, alpha=1 + 2**-12, **how)

    monkeypatch.setattr(_core, "_run_measured", inexact)
    results = measure_briefly(["vec4", TF32], (M, N, K), device=GPU, seconds=1e-9)
    assert [(row.error.right, row.precision) for row in results.rows] == [
        (False, "float32"),
        (True, "tf32"),
    ]


def test_a_brief_measurement_without_memory_or_without_cupy(cupy, monkeypatch):
    cupy.most = 100
    with pytest.raises(MemoryError, match="no room"):
        measure_briefly(["vec4"], (M, N, K), device=GPU)
    assert cupy.given_back
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(ImportError, match="cupy"):
        measure_briefly(["vec4"], (M, N, K), device=GPU)


def test_exceptions_of_a_competitor_propagate():
    def fails(*_):
        raise ZeroDivisionError("of its own")

    with pytest.raises(ZeroDivisionError, match="of its own"):
        measure([("fails", fails)], (M, N, K), device=GPU)
    assert measure("vec4", (M, N, K), device=GPU, seconds=0.05).rows[0].error.right
