"""The C functions that the JAX and PyTorch front ends call, through ctypes.

These tests also run over the fake CUDA runtime, with operands in its device memory."""

import ctypes
import threading

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, run

from .exporters import FAKE, GPU, Memory, core
from .support import LAYOUTS, printed_by, same_bits, uniform, unreadable

M, N, K = 37, 45, 30
ON_CPU = -1
HOST, ON_GPU = 0, 1  # memory
IN_FLOATS = [
    name
    for name, layout in LAYOUTS.items()
    if layout.dtype == "=f4" and not any(stride % 4 for stride in layout.strides(8, 8))
]


class Matrix(ctypes.Structure):
    """sgemm_kernels_matrix of csrc/frontends/c/sgemm_kernels.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "cols", "row_stride", "col_stride")),
    )


class Place(ctypes.Structure):
    """sgemm_kernels_place."""

    _fields_ = (("device", ctypes.c_int), ("memory", ctypes.c_int), ("stream", ctypes.c_void_p))


class Status(ctypes.Structure):
    """sgemm_kernels_status."""

    _fields_ = (
        ("code", ctypes.c_int),
        ("out_changed", ctypes.c_int),
        ("message", ctypes.c_char * 504),
    )


_matrix = ctypes.POINTER(Matrix)
_with_stride = (_matrix, ctypes.c_int64)
_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = (ctypes.py_object, ctypes.c_char_p)
multiply = core.sgemm_kernels_multiply
multiply.argtypes = (
    *(ctypes.c_char_p, ctypes.POINTER(Place)),
    *(ctypes.c_float, _matrix, _matrix),
    *(ctypes.c_float, _matrix, _matrix),
    ctypes.POINTER(Status),
)


multiply_batched = ctypes.CFUNCTYPE(
    *(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(Place), ctypes.c_int64),
    *(ctypes.c_float, *_with_stride, *_with_stride),
    *(ctypes.c_float, *_with_stride, *_with_stride),
    ctypes.POINTER(Status),
)(_pointer_of(_core._c_multiply_batched, b"sgemm_kernels.multiply_batched"))


def described(array, address=None):
    """The Matrix of an array, or of a copy of it at another address."""
    address = array.ctypes.data if address is None else address
    return Matrix(address, *array.shape, *(stride // 4 for stride in array.strides))


def status_of(
    variant, A, B, out, *, C=None, alpha=1.0, beta=0.0, device=ON_CPU, memory=HOST, stream=None
):
    """Calls sgemm_kernels_multiply with NumPy arrays or Matrix. Returns its status."""
    A, B, C, out = (
        each if each is None or isinstance(each, Matrix) else described(each)
        for each in (A, B, C, out)
    )
    place, status = Place(device, memory, stream), Status(-1, -1, b"?")
    code = multiply(variant.encode(), place, alpha, A, B, beta, C, out, status)
    assert code == status.code
    assert bool(code) == bool(status.message)
    return status


def call(variant, A, B, out, **options):
    """The same. Returns the message, "" for success."""
    return status_of(variant, A, B, out, **options).message.decode()


def batched(count, A, B, out, strides, *, C=None, beta=0.0):
    """Calls sgemm_kernels_multiply_batched. Returns the message, "" for success."""
    status = Status(-1, -1, b"?")
    of_A, of_B, of_C, of_out = strides
    code = multiply_batched(
        *(b"vec4", Place(ON_CPU, HOST, None), count),
        *(1, described(A), of_A, described(B), of_B),
        *(beta, None if C is None else described(C), of_C, described(out), of_out, status),
    )
    assert code == status.code
    return status.message.decode()


def unfilled(rows, cols):
    return np.full((rows, cols), np.nan, np.float32)


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


@pytest.mark.parametrize("layout", IN_FLOATS)
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
    nowhere = [Matrix(None, 0, 7, 7, 1), unfilled(7, N), Matrix(None, 0, N, N, 1)]
    assert call("vec4", *nowhere) == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"variant": "fast"}, "there is no variant 'fast'"),
        ({"device": -2}, "device is -2"),
        ({"memory": 2}, "memory is 2"),
        ({"memory": ON_GPU}, "in GPU memory but the device is the CPU"),
        ({"B": unfilled(K + 1, N)}, f"B is ({K + 1}, {N}) but ({K}, {N}) is needed"),
        ({"out": unfilled(N, M)}, f"out is ({N}, {M}) but ({M}, {N}) is needed"),
        ({"C": unfilled(N, M), "beta": 1}, f"C is ({N}, {M}) but ({M}, {N}) is needed"),
        ({"beta": 1}, "beta is 1 but C is missing"),
        ({"A": Matrix(64, -M, K, K, 1)}, f"A has the negative shape ({-M}, {K})"),
        ({"A": Matrix(None, M, K, K, 1)}, "A has the address 0"),
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


HUGE_STRIDES = (1 << 62, (1 << 60) + 4, 1 << 55, -(1 << 54), (1 << 63) - 1, -(1 << 63))


@pytest.mark.parametrize("name", ["A", "B", "C", "out"])
@pytest.mark.parametrize("axis", ["row_stride", "col_stride"])
def test_strides_beyond_any_memory_are_refused(operands, name, axis):
    matrices = dict(zip("ABC", map(described, operands), strict=True))
    matrices["out"] = described(unfilled(M, N))
    for stride in HUGE_STRIDES:
        setattr(matrices[name], axis, stride)
        message = call("vec4", **matrices, beta=1)
        assert message.startswith(f"{name} is ({matrices[name].rows}, {matrices[name].cols}) with")
        assert str(stride) in message


@pytest.mark.parametrize("stride", HUGE_STRIDES)
def test_a_stride_along_one_element_is_never_used(operands, stride):
    A, B, C = operands
    expected = run("vec4", A[:, :1], B[:1, :1], C=C[:, :1], beta=2, device="cpu")
    out = unfilled(M, 1)
    there = {
        "A": Matrix(A[:, :1].copy().ctypes.data, M, 1, 1, stride),
        "B": Matrix(B.ctypes.data, 1, 1, stride, stride),
        "C": Matrix(C.ctypes.data, M, 1, N, stride),
        "out": Matrix(out.ctypes.data, M, 1, 1, stride),
    }
    kept = A[:, :1].copy()
    there["A"].data = kept.ctypes.data
    assert call("vec4", **there, beta=2) == ""
    assert same_bits(out, expected)


def test_the_strides_of_a_batch_beyond_any_memory_are_refused(operands):
    A, B, _ = operands
    for stride in HUGE_STRIDES:
        for at in range(4):
            strides = [0, 0, 0, M * N]
            strides[at] = stride
            message = batched(3, A, B, unfilled(3 * M, N)[:M], strides, C=unfilled(M, N), beta=1)
            assert f"{('A', 'B', 'C', 'out')[at]} is (" in message
            assert f"and the batch's stride {stride}" in message
        out = unfilled(M, N)
        assert batched(1, A, B, out, [stride] * 4) == "", "of one product they are never used"
        assert same_bits(out, run("vec4", A, B, device="cpu"))


def test_a_status_is_optional(operands):
    A, B, _ = (described(each) for each in operands)
    out = unfilled(M, N)
    place = Place(ON_CPU, HOST, None)
    assert multiply(b"vec4", place, 1, A, B, 0, None, described(out), None) == 0
    assert same_bits(out, run("vec4", *operands[:2], device="cpu"))
    assert multiply(b"none", place, 1, A, B, 0, None, described(out), None) != 0


def test_pointers_that_are_null(operands):
    A, B, out = (described(each) for each in (*operands[:2], unfilled(M, N)))
    given = {"variant": b"vec4", "place": Place(ON_CPU, HOST, None), "A": A, "B": B, "out": out}
    for missing in given:
        g = {**given, missing: None}
        status = Status()
        call = (g["variant"], g["place"], 1, g["A"], g["B"], 0, None, g["out"], status)
        assert multiply(*call) == status.code != 0
        assert status.message.decode() == f"{missing} is NULL"


def test_no_product_needs_no_matrices(operands):
    place, status = Place(ON_CPU, HOST, None), Status(-1, -1, b"?")
    of_many = (0, 1, None, None, 1, None, None, status)
    assert multiply_many(b"vec4", place, *of_many) == status.code == 0
    of_batch = (0, 1, None, 0, None, 0, 1, None, 0, None, 0, status)
    assert multiply_batched(b"vec4", place, *of_batch) == status.code == 0
    for call_without_place, rest in ((multiply_many, of_many), (multiply_batched, of_batch)):
        assert call_without_place(b"vec4", None, *rest) != 0
        assert status.message == b"place is NULL"
        assert call_without_place(b"none", place, *rest) != 0
        assert status.message == b"there is no variant 'none'"
    assert "negative count -1" in batched(-1, *operands[:2], unfilled(M, N), [0] * 4)


def test_the_status_says_whether_out_changed(operands):
    A, B, C = operands
    assert status_of("vec4", A, B, unfilled(M, N)).out_changed == 1
    assert status_of("none", A, B, unfilled(M, N)).out_changed == 0
    assert status_of("vec4", A, B, C, C=None, beta=1).out_changed == 0


@pytest.mark.parametrize("name", ["naive", "vec4", "auto"])
def test_a_column_major_result_is_that_of_the_transposed_product(rng, name):
    A, B, C = uniform(rng, M, K), uniform(rng, K, N), np.asfortranarray(uniform(rng, M, N))
    expected = run(name, B.T, A.T, C=C.T, alpha=0.5, beta=2, device="cpu").T
    assert call(name, A, B, C, C=C, alpha=0.5, beta=2) == ""
    assert same_bits(C, expected)


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
        from tests.test_c_api import call
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


# ---------------------------------------------------------------------------- many products

multiply_many = core.sgemm_kernels_multiply_many
multiply_many.argtypes = (
    *(ctypes.c_char_p, ctypes.POINTER(Place), ctypes.c_int64),
    *(ctypes.c_float, _matrix, _matrix),
    *(ctypes.c_float, _matrix, _matrix),
    ctypes.POINTER(Status),
)


def many(variant, As, Bs, out, *, Cs=None, alpha=1.0, beta=0.0, device=ON_CPU, memory=HOST,
         stream=None, count=None):  # fmt: skip
    """Calls sgemm_kernels_multiply_many with lists of NumPy arrays or Matrix. Returns the message,
    "" for success."""

    def array(some):
        if some is None:
            return None
        each = [X if isinstance(X, Matrix) else described(X) for X in some]
        return (Matrix * max(len(each), 1))(*each)

    place, status = Place(device, memory, stream), Status(-1, -1, b"?")
    count = len(As) if count is None else count
    code = multiply_many(variant.encode(), place, count, alpha, array(As), array(Bs), beta,
                         array(Cs), array(out), status)  # fmt: skip
    assert code == status.code
    assert bool(code) == bool(status.message)
    return status.message.decode()


@pytest.fixture
def lists(rng):
    shapes = [(37, 45, 30), (0, 4, 3), (1, 70, 9), (70, 1, 0)]
    return (
        [uniform(rng, m, k) for m, _, k in shapes],
        [uniform(rng, k, n) for _, n, k in shapes],
        [uniform(rng, m, n) for m, n, _ in shapes],
    )


@pytest.mark.parametrize("name", ["vec4", "simt", "auto"])
@pytest.mark.parametrize("by_columns", [False, True])
def test_many_products_are_those_of_run_many(lists, name, by_columns):
    As, Bs, Cs = lists
    factors = {"alpha": 0.5, "beta": 2}
    if by_columns:
        transposed = ([X.T for X in some] for some in (Bs, As, Cs))
        expected = [X.T for X in sgemm_kernels.run_many(name, *transposed, **factors,
                                                        device="cpu")]  # fmt: skip
    else:
        expected = sgemm_kernels.run_many(name, As, Bs, Cs, **factors, device="cpu")
    out = [np.full(C.shape, np.nan, np.float32, order="F" if by_columns else "C") for C in Cs]
    assert many(name, As, Bs, out, Cs=Cs, **factors) == ""
    assert all(same_bits(a, b) for a, b in zip(out, expected, strict=True))


def test_many_products_and_their_aliases(rng):
    squares = [uniform(rng, 9, 9) for _ in range(3)]
    copies = [X.copy() for X in squares]
    expected = sgemm_kernels.run_many("vec4", copies, copies[::-1], device="cpu")
    assert many("vec4", squares, squares[::-1], squares) == ""
    assert all(same_bits(a, b) for a, b in zip(squares, expected, strict=True))


def test_refused_lists(lists):
    As, Bs, Cs = lists
    out = [np.full_like(C, 7) for C in Cs]
    wrong = [*As[:2], As[0], As[3]]
    assert "product 2: B is (9, 70) but (30, 70) is needed" in many("vec4", wrong, Bs, out)
    assert "product 0: beta is 2 but C is missing" in many("vec4", As, Bs, out, beta=2)
    assert "out[0] and out[2] may share memory" in many(
        "vec4", [As[0], As[1], As[0]], [Bs[0], Bs[1], Bs[0]], [out[0], out[1], out[0]]
    )
    assert many("vec4", As, Bs, out, count=-1) == "the list has the negative count -1"
    assert many("none", As, Bs, out) == "there is no variant 'none'"
    assert many("vec4", None, Bs, out, count=4) == "A is NULL"
    assert "in GPU memory but the device is the CPU" in many("vec4", As, Bs, out, memory=ON_GPU)
    assert all((X == 7).all() for X in out)
    assert many("vec4", As, Bs, out, count=0) == ""
    assert many("vec4", As, Bs, out, count=1) == ""
    assert (out[2] == 7).all()


# ---------------------------------------------------------------------------- device memory

if FAKE:
    GPU_0 = {"device": 0, "memory": ON_GPU}

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
            memory=ON_GPU,
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
        assert call("auto", A.described, B.described, out.described, **GPU_0) == ""
        assert core.fake_cuda_device_waits() == waits
        core.library_synchronize(None)
        assert same_bits(out.get(), run("auto", *operands[:2], device=f"{GPU}:0"))

    def test_a_second_gpu(operands):
        A, B, out = (OnGpu(each, device=1) for each in (*operands[:2], unfilled(M, N)))
        stream = core.library_stream(1)
        there = {"memory": ON_GPU, "stream": stream}
        message = call("vec4", A.described, B.described, out.described, device=1, **there)
        assert message == ""
        core.library_synchronize(stream)
        assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))

    @pytest.mark.parametrize("name", ["vec4", "simt"])
    def test_many_products_are_queued_on_the_stream(lists, held, name):
        stream, is_open = held
        As, Bs, Cs = ([OnGpu(X) for X in some] for some in lists)
        out = [OnGpu(np.full_like(C, np.nan)) for C in lists[2]]
        described_lists = ([X.described for X in some] for some in (As, Bs, out))
        options = {"Cs": [C.described for C in Cs], "beta": 2, "memory": ON_GPU}
        assert many(name, *described_lists, **options, device=0, stream=stream) == ""
        assert all(np.isnan(X.get()).all() for X in out)
        is_open.value = 1
        core.library_synchronize(stream)
        expected = sgemm_kernels.run_many(name, *lists, beta=2, device="cpu")
        assert all(same_bits(X.get(), each) for X, each in zip(out, expected, strict=True))

    def test_a_graph_captures_the_product(operands):
        A, B, out = (OnGpu(each) for each in (*operands[:2], unfilled(M, N)))
        stream = core.library_stream(0)
        core.library_begin_capture(stream)
        there = {**GPU_0, "stream": stream}
        message = call("splitk", A.described, B.described, out.described, **there)
        graph = core.library_end_capture(stream)
        assert message == ""
        assert np.isnan(out.get()).all()
        core.fake_cuda_replay(graph, stream)
        core.library_synchronize(stream)
        assert same_bits(out.get(), run("splitk", *operands[:2], device=f"{GPU}:0"))

    def test_host_memory_on_a_gpu(operands):
        A, B, C = operands
        for small in (True, False):
            if not small:
                A, B, C = (np.tile(each, (20, 20)) for each in operands)
            expected = run("vec4", A, B, C=C, alpha=0.3, beta=-2, device=f"{GPU}:0")
            out = np.full_like(C, np.nan)
            options = {"C": C, "alpha": 0.3, "beta": -2, "device": 0}
            assert status_of("vec4", A, B, out, **options).out_changed == 1
            assert same_bits(out, expected)

    @pytest.mark.parametrize("shape", [(30, 40, 50), (300, 400, 500), (2600, 9, 2600)])
    @pytest.mark.parametrize("pinned", [False, True])
    def test_after_a_failure_out_has_its_old_content_unless_the_status_says_otherwise(
        rng, shape, pinned
    ):
        """Each CUDA call of a product fails in turn."""
        M, K, N = shape
        A, B = uniform(rng, M, K), uniform(rng, K, N)
        out = sgemm_kernels.empty((M, N)) if pinned else np.empty((M, N), np.float32)
        out[:] = old = uniform(rng, M, N)
        expected = run("vec4", A, B, C=old, beta=2, device=f"{GPU}:0")
        changed, failed, turn = [], "?", 0
        while failed:
            turn += 1
            out[:] = old
            core.fake_cuda_fail(turn, 999)
            status = status_of("vec4", A, B, out, C=out, beta=2, device=0)
            failed = core.fake_cuda_failed_call()
            core.fake_cuda_fail(0, 0)
            if status.code:
                changed.append(status.out_changed)
                assert status.out_changed or same_bits(out, old), failed
            else:
                assert same_bits(out, expected), failed
        assert 0 in changed
        assert (1 in changed) == (pinned or shape[0] > 2048)

    def test_a_gpu_that_does_not_exist(operands):
        A, B, out = operands
        assert f"there is no device '{GPU}:99'" in call("vec4", A, B, out, device=99, memory=ON_GPU)

    def test_the_reference_before_its_library_is_loaded():
        code = """
            from tests.test_c_api import _core, call, unfilled
            square = unfilled(4, 4)
            print(call(_core._REFERENCE, square, square, square, device=0, memory=1))
        """
        assert f"sgemm_kernels.run('{_core._REFERENCE}', A, B) once before" in printed_by(code)
