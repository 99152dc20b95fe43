"""Arrays that are on a GPU already: lent, multiplied, and lent on, with no copy through the host.

With PyTorch or CuPy and a GPU these tests use them. Everywhere they run a second time in a process
of their own over the fake CUDA runtime, with arrays that tests/lenders.py makes."""

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import run

from .lenders import FAKE, FAKES, KINDS, Borrowed, core, pending
from .support import LAYOUTS, fake_cuda, python, same_bits, uniform

M, N, K = 37, 45, 30
only_fake = pytest.mark.skipif(not FAKE, reason="runs over the fake CUDA runtime")
lib_names = list(KINDS) or [pytest.param("none", marks=pytest.mark.skip("no PyTorch or CuPy here"))]


@pytest.fixture(params=lib_names)
def lib(request):
    return KINDS[request.param]()


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


@pytest.mark.skipif(FAKE, reason="is what runs the others")
def test_over_the_fake_cuda_runtime():
    code = f"""
        import sys, pytest
        sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", {__file__!r}]))
    """
    process = python(code, fake_cuda())
    assert process.returncode == 0, process.stdout + process.stderr
    assert "passed" in process.stdout


# ---------------------------------------------------------------------------- products


def test_the_result_is_on_the_gpu_with_the_bits_of_the_host(lib, operands):
    A, B, C = operands
    expected = run("vec4", A, B, C=C, alpha=1.5, beta=-0.5, device="cuda")
    result = run("vec4", lib.put(A), lib.put(B), C=lib.put(C), alpha=1.5, beta=-0.5)
    assert type(result) is sgemm_kernels.DeviceArray
    assert (result.shape, result.dtype, result.device) == ((M, N), np.float32, "cuda:0")
    assert repr(result) == "DeviceArray(shape=(37, 45), dtype=float32, device='cuda:0')"
    assert same_bits(np.asarray(result), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(lib, operands, layout):
    A, B, C = operands
    expected = run("vec4", A, B, C=C, beta=0.5, device="cuda")
    for index in range(3):
        placed = LAYOUTS[layout].place(operands[index])
        if not lib.takes(placed.matrix):
            pytest.skip("cannot be said by this protocol")
        args = [lib.put(values) for values in operands]
        args[index] = lib.put(placed.matrix, placed.memory)
        result = run("vec4", args[0], args[1], C=args[2], beta=0.5)
        assert same_bits(np.asarray(result), expected), index


@pytest.mark.parametrize("beta", [0.0, -0.7])
@pytest.mark.parametrize("layout", [name for name, value in LAYOUTS.items() if value.writeable])
def test_out_of_every_layout(lib, operands, layout, beta):
    A, B, C = operands
    placed = LAYOUTS[layout].place(C)
    if not lib.takes(placed.matrix):
        pytest.skip("cannot be said by this protocol")
    out = lib.put(placed.matrix, placed.memory)
    expected = run("vec4", A, B, C=C, beta=beta, device="cuda")
    assert run("vec4", lib.put(A), lib.put(B), C=lib.put(C), beta=beta, out=out) is out
    assert same_bits(lib.get(out), expected)
    if FAKE:
        after = placed.memory.copy()
        np.ndarray(
            placed.matrix.shape,
            placed.matrix.dtype,
            after,
            placed.matrix.ctypes.data - placed.memory.ctypes.data,
            placed.matrix.strides,
        )[...] = expected
        assert np.array_equal(out.memory.read(), after), "nothing else was written"


@pytest.mark.parametrize("operand", [0, 1, 2], ids=["A", "B", "C"])
def test_out_overlaps_an_operand(lib, rng, operand):
    shapes = [(6, 5), (5, 7), (6, 7)]
    size, room = int(np.prod(shapes[operand])), 6 * 7
    for offset in range(0, size + room + 1, 3):
        values = [uniform(rng, *shape) for shape in shapes]
        memory = uniform(rng, 2 * room + size)
        place = memory[room : room + size].reshape(shapes[operand])
        place[...] = values[operand]
        apart = run("vec4", *values[:2], C=values[2], beta=0.5, device="cuda")
        args = [lib.put(value) for value in values]
        args[operand] = lib.put(place, memory)
        out = same_memory(lib, args[operand], memory, memory[offset : offset + room].reshape(6, 7))
        run("vec4", args[0], args[1], C=args[2], beta=0.5, out=out)
        assert same_bits(lib.get(out), apart), offset


def same_memory(lib, array, memory, view):
    """Another view of the array's memory: `view` of `memory`, of which `array` was made."""
    if FAKE:
        other = type(array)(view)
        other.memory = array.memory
        other.address = array.memory.address + view.ctypes.data - memory.ctypes.data
        return other
    if hasattr(array, "as_strided"):
        offset = (view.ctypes.data - memory.ctypes.data) // 4
        return array.as_strided(view.shape, [s // 4 for s in view.strides], offset)
    first = type(array.data)(array.data.mem, 0)
    pointer = first + (view.ctypes.data - memory.ctypes.data)
    return type(array)(view.shape, "f4", pointer, view.strides)


def test_out_is_every_operand(lib, rng):
    A = uniform(rng, 50, 50)
    expected = run("vec4", A, A.T, C=A, beta=1, device="cuda")
    lent = lib.put(A)
    transposed = same_memory(lib, lent, A, A.T)
    assert run("vec4", lent, transposed, C=lent, beta=1, out=lent) is lent
    assert same_bits(lib.get(lent), expected)


@pytest.mark.parametrize("shape", [(0, 5, 4), (5, 0, 4), (0, 0, 4), (3, 5, 0), (0, 0, 0)])
def test_empty(lib, rng, shape):
    m, n, k = shape
    C = uniform(rng, m, n)
    A, B = lib.put(uniform(rng, m, k)), lib.put(uniform(rng, k, n))
    result = run("vec4", A, B, C=lib.put(C), beta=2)
    assert type(result) is sgemm_kernels.DeviceArray
    assert same_bits(np.asarray(result), 2 * C)
    out = lib.put(C.copy())
    assert run("vec4", A, B, out=out) is out


def test_alpha_0_reads_neither_a_nor_b(lib, rng):
    nan = np.full((6, 6), np.nan, np.float32)
    C = uniform(rng, 6, 6)
    result = run("vec4", lib.put(nan), lib.put(nan), C=lib.put(C), alpha=0, beta=3)
    assert same_bits(np.asarray(result), 3 * C)
    result = run("vec4", lib.put(C), lib.put(C), C=lib.put(nan), beta=0)
    assert not np.isnan(np.asarray(result)).any()


def test_a_result_is_an_operand_and_out(lib, operands):
    A, B, C = operands
    first = run("vec4", lib.put(A), lib.put(B))
    expected = run("vec4", np.asarray(first).T.copy(), C, device="cuda")
    second = run("vec4", lib.put(np.asarray(first).T), lib.put(C))
    assert same_bits(np.asarray(second), expected)
    assert run("vec4", lib.put(A), lib.put(B), C=first, beta=1, out=first) is first
    assert same_bits(
        np.asarray(first),
        run("vec4", A, B, C=run("vec4", A, B, device="cuda"), beta=1, device="cuda"),
    )


def test_every_rung(lib, operands, variants_on):
    A, B, _ = operands
    for name in variants_on["cuda:0"]:
        if name == "cublas":
            continue
        expected = run(name, A, B, device="cuda")
        assert same_bits(np.asarray(run(name, lib.put(A), lib.put(B))), expected), name


# ---------------------------------------------------------------------------- what is refused


def refused(exception, *facts, **changes):
    arguments = {"variant": "tile2d"} | changes
    with pytest.raises(exception) as caught:
        run(arguments.pop("variant"), arguments.pop("A"), arguments.pop("B"), **arguments)
    assert type(caught.value) is exception
    for fact in facts:
        assert fact in str(caught.value), (fact, str(caught.value))


def test_numpy_mixed_with_a_gpu(lib, operands):
    A, B, C = operands
    refused(TypeError, "A is on cuda:0", "B is a numpy.ndarray", "(B)", A=lib.put(A), B=B)
    refused(TypeError, "B is on cuda:0", "A is a numpy.ndarray", "(A)", A=A, B=lib.put(B))
    lent = {"A": lib.put(A), "B": lib.put(B)}
    refused(TypeError, "C is a numpy.ndarray", **lent, C=C)
    refused(TypeError, "out is a numpy.ndarray", **lent, out=C)
    refused(TypeError, "out is on cuda:0", "A is a numpy.ndarray", A=A, B=B, out=lib.put(C))


def test_wrong_shapes_and_dimensions(lib, operands):
    A, B, C = (lib.put(values) for values in operands)
    refused(ValueError, "(37, 30)", "(37, 45)", "pass A.T", A=A, B=C)
    refused(ValueError, "C is (37, 30)", "(37, 45)", A=A, B=B, C=A)
    refused(ValueError, "out is (37, 30)", "(37, 45)", A=A, B=B, out=A)
    refused(ValueError, "A has 1 dimension", A=lib.put(operands[0][0]), B=B)
    refused(ValueError, "B has 3 dimensions", A=A, B=lib.put(operands[1][np.newaxis]))
    refused(ValueError, "beta is 2", "pass C", A=A, B=B, beta=2)
    refused(TypeError, "C must be", A=A, B=B, C=[1])
    refused(TypeError, "B must be", A=A, B=None)


def test_the_device_is_that_of_the_operands(lib, operands):
    A, B = (lib.put(values) for values in operands[:2])
    expected = np.asarray(run("vec4", A, B))
    for device in ("cuda", "cuda:0", None):
        assert same_bits(np.asarray(run("vec4", A, B, device=device)), expected)
    refused(ValueError, "on cuda:0", "'cpu'", "device=None", A=A, B=B, device="cpu")
    refused(ValueError, "no device called 'gpu'", A=A, B=B, device="gpu")
    refused(TypeError, "device must be a str", A=A, B=B, device=0)
    refused(sgemm_kernels.DeviceError, "cuda:99", A=A, B=B, device="cuda:99")


@only_fake
def test_operands_on_two_gpus(operands):
    A, B, _ = operands
    kind = FAKES["ByDlpack"]
    a, b = kind(A), kind(B, device=1)
    refused(ValueError, "A is on cuda:0 and B is on cuda:1", A=a, B=b)
    refused(ValueError, "on cuda:1", "'cuda:0'", A=kind(A, device=1), B=b, device="cuda:0")
    result = run("vec4", kind(A, device=1), b)
    assert result.device == "cuda:1"
    assert same_bits(np.asarray(result), run("vec4", A, B, device="cpu"))
    result = run("vec4", FAKES["ByInterface"](A, device=1), b, device="cuda:1")
    assert result.device == "cuda:1"


@only_fake
@pytest.mark.parametrize("kind", FAKES)
@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "c8"])
def test_wrong_dtypes(operands, kind, dtype):
    A, B, _ = operands
    name = np.dtype(dtype).name
    wrong = FAKES[kind](B.astype(dtype))
    refused(TypeError, f"B has dtype {name}", ".astype('float32')", A=FAKES[kind](A), B=wrong)
    assert gc.collect() >= 0
    assert wrong.lent == 0


@only_fake
@pytest.mark.parametrize("kind", ["ByInterface", "ByDlpack1"])
def test_a_read_only_out(operands, kind):
    A, B, C = (FAKES[kind](values, read_only=True) for values in operands)
    refused(ValueError, "out is read-only", A=A, B=B, out=C)
    run("vec4", A, B, C=C, beta=1)
    assert same_bits(C.get(), operands[2])


@only_fake
def test_a_read_only_out_of_old_dlpack(operands):
    """Which does not tell, where the array has the other protocol too."""

    class Both(FAKES["ByDlpack"], FAKES["ByInterface"]):
        pass

    A, B, C = (Both(values, read_only=True) for values in operands)
    refused(ValueError, "out is read-only", A=A, B=B, out=C)
    assert C.lent == 0


@only_fake
def test_other_places(operands):
    A, B, _ = operands

    class OnCpu(FAKES["ByDlpack"]):
        device_type = 1

    class Elsewhere(FAKES["ByDlpack"]):
        device_type = 10

    class WithNumpy(OnCpu):
        def numpy(self): ...

    class Gradient(FAKES["ByDlpack"]):
        requires_grad = True

    lent = FAKES["ByDlpack"](B)
    refused(TypeError, "A is in host memory", "OnCpu", "numpy.asarray(A)", A=OnCpu(A), B=lent)
    refused(TypeError, "A is in host memory", "pass A.numpy()", A=WithNumpy(A), B=B)
    refused(TypeError, "A, of type Elsewhere", "kind 10", A=Elsewhere(A), B=lent)
    refused(ValueError, "A requires a gradient", "A.detach()", A=Gradient(A), B=lent)
    nowhere = FAKES["ByInterface"](A)
    nowhere.address = A.ctypes.data
    refused(ValueError, "A.__cuda_array_interface__", "not in the memory", A=nowhere, B=lent)
    nowhere = FAKES["ByDlpack"](A, device=7)
    nowhere.device = 7
    refused(sgemm_kernels.DeviceError, "cuda:7", A=nowhere, B=nowhere)


@only_fake
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


@only_fake
def test_a_broken_dlpack(operands):
    class Broken(FAKES["ByDlpack"]):
        def __dlpack__(self, *, stream):
            return 5

    class Raising(FAKES["ByDlpack"]):
        def __dlpack__(self, *, stream):
            raise BufferError("mine")

    class Newer(FAKES["ByDlpack1"]):
        def _lend(self, stream):
            capsule = super()._lend(stream)
            next(reversed(LENT.values()))[1].major = 2
            return capsule

    from .lenders import _LENT as LENT

    B = FAKES["ByDlpack"](operands[1])
    with pytest.raises(ValueError, match="PyCapsule"):
        run("vec4", Broken(operands[0]), B)
    with pytest.raises(BufferError, match="mine"):
        run("vec4", Raising(operands[0]), B)
    with pytest.raises(BufferError, match="version 2"):
        run("vec4", Newer(operands[0]), B)


def test_torch_says_what_to_do(operands):
    torch = pytest.importorskip("torch")
    A, B = (torch.from_numpy(values) for values in operands[:2])
    refused(TypeError, "A is in host memory", "pass A.numpy()", A=A, B=B)
    if "torch" in KINDS:
        A, B = A.cuda(), B.cuda()
        refused(TypeError, "torch.from_numpy(B).cuda()", "A.cpu().numpy()", A=A, B=operands[1])
        refused(TypeError, "A has dtype torch.float64", "A.float()", A=A.double(), B=B)
        refused(ValueError, "A.detach()", A=A.requires_grad_(), B=B)


# ---------------------------------------------------------------------------- lending on


@only_fake
def test_operands_are_returned(operands):
    for kind in ("ByDlpack", "ByDlpack1"):
        A, B, C = (FAKES[kind](values) for values in operands)
        run("vec4", A, B, C=C, beta=1, out=C)
        assert (A.lent, B.lent, C.lent) == (0, 0, 0)
        refused(ValueError, A=A, B=A)
        assert A.lent == 0


@only_fake
@pytest.mark.parametrize("request_", [{}, {"max_version": (1, 0)}], ids=["plain", "versioned"])
def test_what_dlpack_says_of_a_result(operands, request_):
    A, B = (FAKES["ByDlpack"](values, device=1) for values in operands[:2])
    result = run("vec4", A, B)
    expected = np.asarray(result)
    assert result.__dlpack_device__() == (2, 1)
    taken = Borrowed(result, **request_)
    tensor = taken.tensor
    assert (tensor.device_type, tensor.device_id, tensor.ndim, tensor.byte_offset) == (2, 1, 2, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (2, 32, 1)
    assert tensor.shape[:2] == list(result.shape)
    assert tensor.strides[:2] == [N, 1]
    del result
    assert same_bits(taken.get(), expected)
    assert same_bits(np.asarray(run("vec4", A, B)), expected)


@only_fake
def test_what_dlpack_may_ask(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    result = run("vec4", A, B)
    for stream in (0, -2, "a", 2**70):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            result.__dlpack__(stream=stream)
    for stream in (None, -1, 1, 2, core.lender_stream(0)):
        assert same_bits(Borrowed(result, stream=stream).get(), np.asarray(result))
    with pytest.raises(BufferError, match="cuda:0"):
        result.__dlpack__(dl_device=(2, 1))
    with pytest.raises(TypeError):
        result.__dlpack__(dl_device=2)
    assert same_bits(Borrowed(result, dl_device=(2, 0)).get(), np.asarray(result))
    with pytest.raises(BufferError, match="copy"):
        result.__dlpack__(dl_device=(1, 0), copy=False)
    copy = Borrowed(result, copy=True, max_version=(1, 0))
    assert copy.lent.flags == 2
    assert copy.tensor.data != result.__cuda_array_interface__["data"][0]
    assert same_bits(copy.get(), np.asarray(result))


def test_a_result_copied_to_the_host(lib, operands):
    result = run("vec4", lib.put(operands[0]), lib.put(operands[1]))
    expected = run("vec4", *operands[:2], device="cuda")
    assert same_bits(np.array(result), expected)
    assert np.asarray(result, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(result, copy=False)
    assert same_bits(np.from_dlpack(result, device="cpu"), expected)


def test_a_result_computes_nothing(lib, operands):
    result = run("vec4", lib.put(operands[0]), lib.put(operands[1]))
    for operation in (
        lambda: result + 1,
        lambda: operands[2] + result,
        lambda: np.add(result, 1),
        lambda: sgemm_kernels.DeviceArray(),
    ):
        with pytest.raises(TypeError):
            operation()


@only_fake
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


@only_fake
def test_memory_is_used_again(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    core.fake_cuda_allocations.restype = int
    for _ in range(3):
        run("vec4", A, B)
    allocations = core.fake_cuda_allocations()
    for _ in range(5):
        run("vec4", A, B)
    assert core.fake_cuda_allocations() == allocations


@only_fake
def test_lent_memory_is_not_used_again_while_a_consumer_may_read_it(operands):
    """The consumer lets go of it while a kernel of its own has not yet read it."""
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])
    other = FAKES["ByDlpack"](np.zeros_like(operands[0]))
    expected = run("vec4", *operands[:2], device="cpu")
    stream = core.lender_stream(0)
    for _ in range(80):  # enough for the memory to be waited for
        taken = Borrowed(run("vec4", A, B), stream=stream)
        seen = np.zeros_like(expected)
        core.lender_read(stream, taken.tensor.data, seen.ctypes.data, seen.nbytes, 3000)
        del taken
        run("vec4", other, B)
        run("vec4", other, B)
        core.lender_synchronize(stream)
        assert same_bits(seen, expected)


@only_fake
def test_lent_memory_comes_back(operands):
    A, B = (FAKES["ByDlpack"](values) for values in operands[:2])

    def live():
        return core.fake_cuda_live(0)

    def lend(count):
        for _ in range(count):
            Borrowed(run("vec4", A, B))
            run("vec4", A, B).__cuda_array_interface__  # noqa: B018

    lend(200)
    before = live()
    lend(200)
    assert live() == before


# ---------------------------------------------------------------------------- streams


@only_fake
@pytest.mark.parametrize("kind", FAKES)
def test_the_call_waits_for_the_producers_streams(operands, kind):
    A, B, C = (pending(values, FAKES[kind]) for values in operands)
    expected = run("vec4", *operands[:2], C=operands[2], beta=1, device="cpu")
    result = run("vec4", A, B, C=C, beta=1)
    assert same_bits(np.asarray(result), expected)


@only_fake
@pytest.mark.parametrize("kind", FAKES)
def test_out_is_ready_when_the_call_returns(operands, kind):
    A, B = (pending(values, FAKES[kind]) for values in operands[:2])
    out = FAKES[kind](np.full((M, N), np.nan, np.float32))
    run("vec4", A, B, out=out)
    assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))


class Stream:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


@only_fake
@pytest.mark.parametrize("as_object", [False, True])
@pytest.mark.parametrize("kind", FAKES)
def test_a_stream_is_honoured(operands, kind, as_object):
    """The call returns before the stream has come to it, and the stream orders all the rest."""
    A, B = (pending(values, FAKES[kind]) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    handle = core.lender_stream(0)
    result = run("vec4", A, B, stream=Stream(handle) if as_object else handle)
    seen = np.zeros_like(expected)
    interface = result.__cuda_array_interface__
    assert interface["stream"] == handle, "the work still waits for the operands"
    core.lender_read(handle, interface["data"][0], seen.ctypes.data, seen.nbytes, 0)
    assert not seen.any()
    core.lender_synchronize(handle)
    assert same_bits(seen, expected)
    if kind != "ByInterface":
        assert A.asked == [handle]
    assert result.__cuda_array_interface__["stream"] is None


@only_fake
def test_a_consumers_stream_waits_for_the_result(operands):
    A, B = (pending(values, FAKES["ByDlpack"]) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    theirs = core.lender_stream(0)
    taken = Borrowed(run("vec4", A, B, stream=core.lender_stream(0)), stream=theirs)
    seen = np.zeros_like(expected)
    core.lender_read(theirs, taken.tensor.data, seen.ctypes.data, seen.nbytes, 0)
    core.lender_synchronize(theirs)
    assert same_bits(seen, expected)


@only_fake
def test_results_in_streams_follow_one_another(operands):
    """Each result is an operand of the next in another stream, and goes before it is read."""
    square = operands[0][:30, :30]
    expected = square
    result = pending(square, FAKES["ByDlpack"])
    for _ in range(6):
        expected = run("vec4", expected, square, device="cpu")
        result = run("vec4", result, FAKES["ByDlpack"](square), stream=core.lender_stream(0))
        run("vec4", FAKES["ByDlpack"](square * 0), FAKES["ByDlpack"](square))
    assert same_bits(np.asarray(result), expected)


@only_fake
def test_out_in_a_stream(operands):
    A, B = (pending(values, FAKES["ByDlpack"]) for values in operands[:2])
    expected = run("vec4", *operands[:2], device="cpu")
    out = run("vec4", FAKES["ByDlpack"](operands[0] * 0), FAKES["ByDlpack"](operands[1]))
    assert run("vec4", A, B, out=out, stream=core.lender_stream(0)) is out
    assert same_bits(np.asarray(out), expected)


def test_streams_that_are_none(lib, operands):
    A, B = (lib.put(values) for values in operands[:2])
    for stream in ("a", 1.5, object(), Stream("a"), type("Odd", (), {"__cuda_stream__": int})()):
        refused(TypeError, A=A, B=B, stream=stream)
    refused(ValueError, "stream is -1", A=A, B=B, stream=-1)
    refused(ValueError, "cuda:all", A=A, B=B, stream=1, device="cuda:all") if FAKE else None
    expected = np.asarray(run("vec4", A, B))
    for stream in (None, 0, 1):
        assert same_bits(np.asarray(run("vec4", A, B, stream=stream)), expected)


def test_a_stream_for_host_arrays_is_refused():
    one = np.ones((1, 1), np.float32)
    refused(ValueError, "stream orders work", "leave stream out", A=one, B=one, stream=1)


# ---------------------------------------------------------------------------- threads


def test_8_threads(lib, rng):
    sizes = [(40 + 9 * i, 70 - i, 33 + i) for i in range(8)]
    failures = []

    def work(m, n, k):
        try:
            rng = np.random.default_rng(m)
            A, B = uniform(rng, m, k), uniform(rng, k, n)
            expected = run("vec4", A, B, device="cuda")
            lent = lib.put(A), lib.put(B)
            for _ in range(20):
                assert same_bits(np.asarray(run("vec4", *lent)), expected)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=size) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---------------------------------------------------------------------------- several GPUs


@only_fake
@pytest.mark.parametrize("rows", [1, 2, 3, 37, 200])
def test_rows_of_host_arrays_on_all_gpus(rng, rows):
    A, B, C = uniform(rng, rows, K), uniform(rng, K, N), uniform(rng, rows, N)
    expected = run("vec4", A, B, C=C, beta=0.5, device="cpu")
    assert same_bits(run("vec4", A, B, C=C, beta=0.5, device="cuda:all"), expected)
    out = np.asfortranarray(C)
    assert run("vec4", A, B, C=out, beta=0.5, out=out, device="cuda:all") is out
    assert same_bits(out, expected)


@only_fake
def test_overlap_on_all_gpus(rng):
    memory = uniform(rng, 50 * 50 + 300)
    A, out = memory[:2500].reshape(50, 50), memory[300:].reshape(50, 50)
    B = uniform(rng, 50, 50)
    expected = run("vec4", A.copy(), B, device="cpu")
    run("vec4", A, B, out=out, device="cuda:all")
    assert same_bits(out, expected)


@only_fake
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("home", [0, 1])
def test_rows_of_device_arrays_on_all_gpus(rng, home, transposed):
    """Large enough in rows for the other GPU to take some of them."""
    A, B, C = uniform(rng, 1500, 20), uniform(rng, 20, 600), uniform(rng, 1500, 600)
    expected = run("vec4", A, B, C=C, beta=0.5, device="cpu")
    if transposed:
        A, B = np.asfortranarray(A), np.asfortranarray(B)
    core.fake_cuda_allocations.restype = int
    lent = [FAKES["ByDlpack"](values, device=home) for values in (A, B, C)]
    run("vec4", lent[0], lent[1], C=lent[2], beta=0.5)
    allocations = core.fake_cuda_allocations()
    result = run("vec4", lent[0], lent[1], C=lent[2], beta=0.5, device="cuda:all")
    assert result.device == f"cuda:{home}"
    assert same_bits(np.asarray(result), expected)
    if transposed is False and home == 0:
        assert core.fake_cuda_allocations() > allocations, "the other GPU had a part"


@only_fake
def test_one_gpus_failure_is_one_error():
    process = python(
        """
        import ctypes
        import numpy as np
        import sgemm_kernels
        fake = ctypes.CDLL(sgemm_kernels._core.__file__)
        fake.fake_cuda_set_memory.argtypes = (ctypes.c_int, ctypes.c_size_t)
        fake.fake_cuda_set_memory(1, 0)
        A = np.ones((64, 64), np.float32)
        try:
            sgemm_kernels.run("vec4", A, A, device="cuda:all")
        except sgemm_kernels.OutOfMemoryError as error:
            assert "cuda:1, one of 2 GPUs" in str(error), error
            print(sgemm_kernels.run("vec4", A, A, device="cuda:0")[0, 0])
        """,
        Path(sgemm_kernels.__file__).parent.parent,
    )
    assert process.stdout == "64.0\n", process.stderr
