"""sgemm_call, the C function that the JAX and PyTorch front ends call, through ctypes.

These tests also run over the fake CUDA runtime, with operands in its device memory."""

import ctypes
import threading
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, run

from .exporters import FAKE, GPU, Memory, core
from .support import LAYOUTS, ending, fake_cuda, printed_by, python, same_bits, uniform, unreadable

M, N, K = 37, 45, 30
ON_CPU = -1
NATIVE = [name for name, layout in LAYOUTS.items() if layout.dtype == "=f4"]


class SgemmMatrix(ctypes.Structure):
    """SgemmMatrix of csrc/core/call.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "cols", "row_bytes", "col_bytes")),
    )


_matrix = ctypes.POINTER(SgemmMatrix)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
sgemm_call = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p),
    *(ctypes.c_float, _matrix, _matrix),
    *(ctypes.c_float, _matrix, _matrix),
    *(ctypes.c_char_p, ctypes.c_size_t),
)(_pointer_of(_core._c_call, b"sgemm_kernels.call"))


def described(array, address=None):
    """The SgemmMatrix of an array, or of a copy of it at another address."""
    address = array.ctypes.data if address is None else address
    return SgemmMatrix(address, *array.shape, *array.strides)


def call(variant, A, B, out, *, C=None, alpha=1.0, beta=0.0, device=ON_CPU, stream=None):
    """Calls sgemm_call with NumPy arrays or SgemmMatrix. Returns its message, "" for success."""
    matrices = [
        each if each is None or isinstance(each, SgemmMatrix) else described(each)
        for each in (A, B, C, out)
    ]
    message = ctypes.create_string_buffer(496)
    A, B, C, out = matrices
    failed = sgemm_call(
        *(variant.encode(), device, stream, alpha, A, B, beta, C, out),
        *(message, len(message)),
    )
    assert bool(failed) == bool(message.value)
    return message.value.decode()


def unfilled(rows, cols):
    return np.full((rows, cols), np.nan, np.float32)


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


@pytest.mark.parametrize("layout", NATIVE)
def test_the_result_is_that_of_run(operands, layout):
    placed = [LAYOUTS[layout].place(values).matrix for values in operands]
    A, B, C = placed
    for variant in ("vec4", "auto"):
        expected = run(variant, A, B, C=C, alpha=0.3, beta=-2, device="cpu")
        out = unfilled(M, N)
        assert call(variant, A, B, out, C=C, alpha=0.3, beta=-2) == ""
        assert same_bits(out, expected)


def test_an_output_of_any_strides(operands):
    A, B, _ = operands
    expected = run("vec4", A, B, device="cpu")
    for layout in ("F", "rows ::-1", "C, 1 byte on", "columns ::2"):
        placed = LAYOUTS[layout].place(unfilled(M, N))
        before = placed.surroundings()
        assert call("vec4", A, B, placed.matrix) == ""
        assert same_bits(placed.matrix.astype(np.float32), expected)
        assert placed.surroundings() == before


def test_an_output_that_overlaps_the_operands(rng):
    square = uniform(rng, 40, 40)
    expected = run("vec4", square.copy(), square.T.copy(), C=square.copy(), beta=1, device="cpu")
    assert call("vec4", square, square.T, square, C=square, beta=1) == ""
    assert same_bits(square, expected)


def test_unused_operands_are_not_read(operands):
    A, B, C = operands
    A, B = unreadable(M, K), unreadable(K, N)
    out = unfilled(M, N)
    assert call("vec4", A, B, out, alpha=0, C=C, beta=2) == ""
    assert same_bits(out, run("vec4", A, B, alpha=0, C=C, beta=2, device="cpu"))
    assert call("vec4", *operands[:2], out, C=unreadable(M, N)) == ""
    assert same_bits(out, run("vec4", *operands[:2], device="cpu"))


def test_empty_products(operands):
    C = operands[2]
    out = unfilled(M, N)
    assert call("vec4", unfilled(M, 0), unfilled(0, N), out) == ""
    assert not out.any()
    assert call("vec4", unfilled(M, 0), unfilled(0, N), out, C=C, beta=1) == ""
    assert same_bits(out, C)
    nowhere = [SgemmMatrix(None, 0, 7, 28, 4), unfilled(7, N), SgemmMatrix(None, 0, N, 4 * N, 4)]
    assert call("vec4", *nowhere) == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "fast"}, "there is no variant 'fast'"),
        ({"device": -2}, "device is -2"),
        ({"B": unfilled(K + 1, N)}, f"B is ({K + 1}, {N}) but ({K}, {N}) is needed"),
        ({"out": unfilled(N, M)}, f"out is ({N}, {M}) but ({M}, {N}) is needed"),
        ({"C": unfilled(N, M), "beta": 1}, f"C is ({N}, {M}) but ({M}, {N}) is needed"),
        ({"beta": 1}, "beta is 1 but C is missing"),
        ({"A": SgemmMatrix(64, -M, K, 4 * K, 4)}, f"A has the negative shape ({-M}, {K})"),
        ({"A": SgemmMatrix(None, M, K, 4 * K, 4)}, "A has the address 0"),
        (
            {"out": np.lib.stride_tricks.as_strided(unfilled(1, N), (M, N), (0, 4))},
            "elements of out share memory",
        ),
        ({"variant": _core._REFERENCE}, f"variant '{_core._REFERENCE}' does not run on the CPU"),
    ],
)
def test_refused_calls(operands, changes, message):
    arguments = {"variant": "vec4", "A": operands[0], "B": operands[1], "out": unfilled(M, N)}
    assert message in call(**{**arguments, **changes})


def test_a_short_buffer_for_the_message(operands):
    message = ctypes.create_string_buffer(b"?" * 8, 8)
    matrices = [described(each) for each in operands]
    A, B, C = matrices
    assert sgemm_call(b"none", ON_CPU, None, 1, A, B, 0, None, C, message, 5) != 0
    assert message.raw == b"ther\0???"


def test_threads_call_at_the_same_time(operands):
    A, B, _ = operands
    expected = run("tile2d", A, B, device="cpu")
    results = [unfilled(M, N) for _ in range(8)]
    threads = [threading.Thread(target=call, args=("tile2d", A, B, out)) for out in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same_bits(out, expected) for out in results)


def test_the_callers_floating_point_environment_changes_no_bit():
    code = """
        import ctypes, platform
        import numpy as np
        from tests.test_call import call
        libm = ctypes.CDLL("libm.so.6")
        tiny, one = np.full((40, 40), 1e-40, np.float32), np.eye(40, dtype=np.float32)
        expected, out = tiny.tobytes(), np.empty_like(tiny)
        environment = (ctypes.c_uint32 * 16)()
        libm.fegetenv(environment)
        if platform.machine() == "x86_64":
            environment[7] |= 0x8040  # MXCSR: flush to zero, denormals are zero
        else:
            environment[0] |= 1 << 24  # FPCR: flush to zero
        libm.fesetenv(environment)
        message = call("smem", tiny, one, out)
        still = np.float32(1e-40) * np.float32(1) == 0
        libm.fesetenv(ctypes.c_void_p(-1))
        assert out.tobytes() == expected
        print(message, still)
    """
    assert printed_by(code) == "True"


# ---------------------------------------------------------------------------- device memory

if FAKE:

    class OnGpu:
        """A copy of a matrix in the fake device's memory."""

        def __init__(self, values, device=0):
            self.shape, self.strides = values.shape, values.strides
            self.memory = Memory(np.ravel(values, "K"), device)
            self.described = described(values, self.memory.address)

        def get(self):
            return np.ndarray(self.shape, np.float32, self.memory.read(), 0, self.strides)

    @pytest.fixture
    def held():
        """A stream, and a value that must be 1 before the stream runs its work."""
        sgemm_kernels.memory(empty=True)
        stream, is_open = core.library_stream(0), ctypes.c_int(0)
        core.library_hold(stream, ctypes.addressof(is_open))
        return stream, is_open

    @pytest.mark.parametrize("order", ["C", "F"])
    def test_the_product_is_queued_on_the_stream(operands, held, order):
        stream, is_open = held
        A, B, C, out = (
            OnGpu(np.asarray(each, order=order)) for each in (*operands, unfilled(M, N))
        )
        message = call(
            *("vec4", A.described, B.described, out.described),
            C=C.described,
            alpha=0.3,
            beta=-2,
            device=0,
            stream=stream,
        )
        assert message == ""
        assert np.isnan(out.get()).all(), "the stream has not run its work yet"
        is_open.value = 1
        core.library_synchronize(stream)
        expected = run("vec4", *operands[:2], C=operands[2], alpha=0.3, beta=-2, device="cpu")
        assert same_bits(out.get(), expected)

    def test_no_stream_is_the_legacy_default_stream(operands):
        A, B, out = (OnGpu(each) for each in (*operands[:2], unfilled(M, N)))
        waits = core.fake_cuda_device_waits()
        assert call("auto", A.described, B.described, out.described, device=0) == ""
        assert core.fake_cuda_device_waits() == waits
        core.library_synchronize(None)
        assert same_bits(out.get(), run("auto", *operands[:2], device=f"{GPU}:0"))

    def test_a_second_gpu(operands):
        A, B, out = (OnGpu(each, device=1) for each in (*operands[:2], unfilled(M, N)))
        stream = core.library_stream(1)
        message = call("vec4", A.described, B.described, out.described, device=1, stream=stream)
        assert message == ""
        core.library_synchronize(stream)
        assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))

    def test_a_graph_captures_the_product(operands):
        A, B, out = (OnGpu(each) for each in (*operands[:2], unfilled(M, N)))
        stream = core.library_stream(0)
        core.library_begin_capture(stream)
        message = call("splitk", A.described, B.described, out.described, device=0, stream=stream)
        graph = core.library_end_capture(stream)
        assert message == ""
        assert np.isnan(out.get()).all()
        core.fake_cuda_replay(graph, stream)
        core.library_synchronize(stream)
        assert same_bits(out.get(), run("splitk", *operands[:2], device=f"{GPU}:0"))

    def test_a_gpu_that_does_not_exist(operands):
        A, B, out = operands
        assert f"there is no device '{GPU}:99'" in call("vec4", A, B, out, device=99)

    def test_the_reference_before_its_library_is_loaded():
        code = """
            from tests.test_call import _core, call, unfilled
            square = unfilled(4, 4)
            print(call(_core._REFERENCE, square, square, square, device=0))
        """
        assert f"call sgemm_kernels.run('{_core._REFERENCE}', A, B) once before" in printed_by(code)


else:

    def test_over_the_fake_cuda_runtime():
        code = f"""
            import sys, pytest
            sys.exit(pytest.main(["-v", "-x", "-p", "no:cacheprovider", {str(Path(__file__))!r}]))
        """
        process = python(code, fake_cuda(), PYTHONFAULTHANDLER="1")
        assert process.returncode == 0, ending(process)
        assert " passed" in process.stdout
