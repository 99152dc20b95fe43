"""16-bit operands of the C functions: the result is that of float32 copies of the operands.

These tests also run over the fake CUDA runtime, with operands in its device memory."""

import ctypes

import numpy as np
import pytest

import sgemm_kernels

from .exporters import core
from .support import same_bits, uniform
from .test_c_api import HOST, ON_CPU, Matrix, Place, Status, described

FLOAT32, FLOAT16, BFLOAT16 = 0, 1, 2
TYPES = {FLOAT32: np.dtype("f4"), FLOAT16: np.dtype("f2"), BFLOAT16: np.dtype("u2")}
M, N, K = 37, 45, 30


def run(*arguments, **options):
    return sgemm_kernels.run(*arguments, device="cpu", **options)


class Operand(ctypes.Structure):
    """sgemm_kernels_operand of csrc/frontends/c/sgemm_kernels.h."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("rows", "cols", "row_stride", "col_stride")),
        ("dtype", ctypes.c_int),
    )


class Of16Bits:
    """An array, and the type of its elements. A bfloat16 is two bytes of a uint16."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, dtype

    def transposed(self):
        return Of16Bits(self.array.T, self.dtype)

    def __getitem__(self, index):
        return Of16Bits(self.array[index], self.dtype)

    def floats(self):
        if self.dtype != BFLOAT16:
            return self.array.astype(np.float32)
        return (self.array.astype(np.uint32) << 16).view(np.float32)

    def operand(self):
        size = self.array.itemsize
        strides = (stride // size for stride in self.array.strides[-2:])
        return Operand(self.array.ctypes.data, *self.array.shape[-2:], *strides, self.dtype)


def of_type(floats, dtype):
    if dtype != BFLOAT16:
        return Of16Bits(floats.astype(TYPES[dtype]), dtype)
    return Of16Bits((floats.view(np.uint32) >> 16).astype(np.uint16), dtype)


_operand, _matrix = ctypes.POINTER(Operand), ctypes.POINTER(Matrix)
multiply_typed = core.sgemm_kernels_multiply_typed
multiply_typed.argtypes = (
    *(ctypes.c_char_p, ctypes.POINTER(Place), ctypes.c_int64),
    *(ctypes.c_float, _operand, ctypes.c_int64, _operand, ctypes.c_int64),
    *(ctypes.c_float, _matrix, ctypes.c_int64, _matrix, ctypes.c_int64),
    ctypes.POINTER(Status),
)
multiply_many_typed = core.sgemm_kernels_multiply_many_typed
multiply_many_typed.argtypes = (
    *(ctypes.c_char_p, ctypes.POINTER(Place), ctypes.c_int64),
    *(ctypes.c_float, _operand, _operand, ctypes.c_float, _matrix, _matrix),
    ctypes.POINTER(Status),
)


def call(A, B, out, *, variant="simt", count=1, strides=(0, 0, 0, 0), C=None, alpha=1.0, beta=0.0):
    """Calls sgemm_kernels_multiply_typed. Returns the message, "" for success."""
    A, B = (each if isinstance(each, Operand) else each.operand() for each in (A, B))
    C = None if C is None else described(C)
    status = Status(-1, -1, b"?")
    code = multiply_typed(
        *(variant.encode(), Place(ON_CPU, HOST, None), count, alpha, A, strides[0], B, strides[1]),
        *(beta, C, strides[2], described(out), strides[3], status),
    )
    assert code == status.code
    assert bool(code) == bool(status.message)
    return status.message.decode()


def unfilled(*shape):
    return np.full(shape, np.nan, np.float32)


@pytest.fixture
def floats(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


@pytest.mark.parametrize("of_B", TYPES)
@pytest.mark.parametrize("of_A", TYPES)
@pytest.mark.parametrize("name", ["naive", "simt"])
def test_the_result_is_that_of_float32_copies(floats, of_A, of_B, name):
    A, B, C = of_type(floats[0], of_A), of_type(floats[1], of_B), floats[2]
    out = unfilled(M, N)
    assert call(A, B, out, variant=name, C=C, alpha=0.5, beta=-2) == ""
    assert same_bits(out, run(name, A.floats(), B.floats(), C=C, alpha=0.5, beta=-2))


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_every_value_is_converted_exactly(dtype):
    """All 65,536 values, the subnormal ones among them, times 1."""
    every = Of16Bits(np.arange(1 << 16, dtype=np.uint16).reshape(-1, 1), dtype)
    if dtype == FLOAT16:
        every.array = every.array.view(np.float16)
    out = unfilled(1 << 16, 1)
    assert call(every, of_type(np.ones((1, 1), np.float32), dtype), out) == ""
    wanted = every.floats()
    nan = np.isnan(wanted)
    assert np.array_equal(np.isnan(out), nan)
    assert same_bits(out[~nan], wanted[~nan] + np.float32(0))  # sums begin with 0: no -0


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_operands_of_any_strides(rng, dtype):
    wide = of_type(uniform(rng, 2 * M, 3 * K), dtype)
    B = of_type(uniform(rng, N, K), dtype).transposed()
    for A in (wide[::2, ::3], wide[:M, K - 1 :: -1], wide[::-2, 1 : K + 1], wide[:1, :K]):
        out = unfilled(A.array.shape[0], N)
        assert call(A, B, out) == ""
        assert same_bits(out, run("simt", A.floats(), B.floats()))
    repeated = Of16Bits(np.broadcast_to(wide.array[0, :K], (M, K)), dtype)
    out = unfilled(N, M).T
    assert call(repeated, B, out) == ""
    assert same_bits(out, np.ascontiguousarray(run("simt", repeated.floats(), B.floats())))


def test_an_address_that_is_odd(rng):
    A, B = (of_type(uniform(rng, 8, 8), FLOAT16) for _ in range(2))
    memory = np.zeros(8 * 8 * 2 + 1, np.uint8)
    memory[1:] = A.array.view(np.uint8).reshape(-1)
    odd = A.operand()
    odd.data = memory.ctypes.data + 1
    out = unfilled(8, 8)
    assert call(odd, B, out) == ""
    assert same_bits(out, run("simt", A.floats(), B.floats()))


def test_batches(rng):
    count = 5
    A = of_type(uniform(rng, count * M, K), BFLOAT16)
    B, C = of_type(uniform(rng, K, N), FLOAT16), uniform(rng, M, N)
    out = unfilled(count * M, N)
    strides = (M * K, 0, 0, M * N)
    assert call(A[:M], B, out[:M], count=count, strides=strides, C=C, beta=1) == ""
    stack = A.floats().reshape(count, M, K)
    assert same_bits(out.reshape(count, M, N), run("simt", stack, B.floats(), C=C, beta=1))


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_an_output_that_overlaps_the_operands(rng, shift):
    """`out` ends, or begins, within a 16-bit operand."""
    n = 16
    values = of_type(uniform(rng, n, n), FLOAT16)
    B = of_type(uniform(rng, n, n), FLOAT16)
    wanted = run("simt", values.floats(), B.floats())
    for A_first in (shift, 4 * n * n - 2 * n + shift, 4 * n * n - 2 + shift):
        memory = np.zeros(8 * n * n + 8, np.uint8)
        memory[A_first : A_first + 2 * n * n] = values.array.view(np.uint8).reshape(-1)
        out = memory[: 4 * n * n].view(np.float32).reshape(n, n)
        A = values.operand()
        A.data = memory.ctypes.data + A_first
        assert call(A, B, out) == ""
        assert same_bits(out, wanted)


def test_empty_products_read_nothing():
    nowhere = Operand(None, M, 0, 0, 1, FLOAT16), Operand(None, 0, N, N, 1, BFLOAT16)
    out = unfilled(M, N)
    assert call(*nowhere, out) == ""
    assert not out.any()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": 3}, "A has the dtype 3: pass SGEMM_KERNELS_FLOAT32 (0)"),
        ({"dtype": -1}, "A has the dtype -1"),
        ({"cols": K + 1}, f"B is ({K}, {N}) but ({K + 1}, {N}) is needed"),
        ({"row_stride": 1 << 60}, "strides count elements, not bytes"),
        ({"data": None}, "A has the address 0"),
    ],
)
def test_refused_operands(floats, changes, message):
    A, B = of_type(floats[0], FLOAT16), of_type(floats[1], FLOAT16)
    operand, out = A.operand(), unfilled(M, N)
    for name, value in changes.items():
        setattr(operand, name, value)
    assert message in call(operand, B, out)
    assert np.isnan(out).all()


NOT_READ = ctypes.cast(8, ctypes.POINTER(Matrix))
"""C if beta is 0: whoever reads there crashes."""


def test_many_products_of_any_types(rng):
    shapes = [(3, 4, 5), (40, 30, 20), (1, 7, 9), (16, 16, 16)]
    types = [(FLOAT16, FLOAT16), (BFLOAT16, FLOAT32), (FLOAT32, FLOAT16), (BFLOAT16, BFLOAT16)]
    As = [of_type(uniform(rng, m, k), a) for (m, n, k), (a, b) in zip(shapes, types, strict=True)]
    Bs = [of_type(uniform(rng, k, n), b) for (m, n, k), (a, b) in zip(shapes, types, strict=True)]
    outs, count = [unfilled(m, n) for m, n, k in shapes], len(shapes)
    status = Status(-1, -1, b"?")
    code = multiply_many_typed(
        *(b"simt", Place(ON_CPU, HOST, None), count, 1),
        *((Operand * count)(*(each.operand() for each in operands)) for operands in (As, Bs)),
        *(0, NOT_READ, (Matrix * count)(*(described(out) for out in outs)), status),
    )
    assert (code, status.message) == (0, b"")
    for A, B, out in zip(As, Bs, outs, strict=True):
        assert same_bits(out, run("simt", A.floats(), B.floats()))
