"""Operands of float16 and bfloat16: run, run_many, prepare and batches."""

import ml_dtypes
import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, prepare
from sgemm_kernels._accuracy import expect

from .support import LAYOUTS, MULTIPROCESSORS, same_bits, uniform

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT16, FLOAT32 = np.dtype(np.float16), np.dtype(np.float32)
TYPES = [FLOAT16, BFLOAT16]
M, N, K = 70, 90, 300


@pytest.fixture(params=["gpu", "cpu"])
def model(request, monkeypatch):
    """The CPU device as a model of an H200, where `auto` runs `direct`, and as itself."""
    if request.param == "gpu":
        monkeypatch.setenv(MULTIPROCESSORS, "132")
    return request.param


@pytest.fixture
def like_gpu(monkeypatch):
    monkeypatch.setenv(MULTIPROCESSORS, "132")


def run(name, A, B, **options):
    return sgemm_kernels.run(name, A, B, device="cpu", **options)


def launched_by(call):
    _core._launched(True)
    result = call()
    return result, _core._launched(False)


def of(rng, dtype, *shape):
    return uniform(rng, *shape).astype(dtype)


def share(result, A, B, **options):
    """The worst error, in parts of the bound, against the exact values of the operands."""
    return expect(A.astype(np.float32), B.astype(np.float32), **options).worst_share(result)


# ------------------------------------------------------------------ which kernel


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_auto_multiplies_two_operands_of_one_type_as_they_are(like_gpu, rng, dtype):
    A, B = of(rng, dtype, M, K), of(rng, dtype, K, N)
    result, launched = launched_by(lambda: run("auto", A, B))
    assert launched == {"direct"}
    assert result.dtype == np.float32
    assert share(result, A, B) <= 1


@pytest.mark.parametrize("types", [(FLOAT16, FLOAT32), (FLOAT32, BFLOAT16)], ids=str)
def test_a_16bit_and_a_float32_operand(model, rng, monkeypatch, types):
    """On a GPU with one multiprocessor this product takes long, so `mixed` is faster."""
    A, B = of(rng, types[0], 128, 512), of(rng, types[1], 512, 128)
    result, launched = launched_by(lambda: run("auto", A, B))
    assert share(result, A, B) <= 1
    assert ("widen" in launched) == (model == "gpu"), launched
    assert same_bits(result, run("auto", A.astype(np.float32), B.astype(np.float32)))
    if model == "gpu":
        monkeypatch.setenv(MULTIPROCESSORS, "1")
        for a, b in ((A, B), (np.asfortranarray(A), B), (A, np.asfortranarray(B))):
            result, launched = launched_by(lambda a=a, b=b: run("auto", a, b))
            assert "mixed" in launched
            assert share(result, A, B) <= 1


@pytest.mark.parametrize("types", [(FLOAT16, BFLOAT16), (BFLOAT16, FLOAT16)], ids=str)
def test_operands_of_two_16bit_types(model, rng, monkeypatch, types):
    """The smaller one is converted, and then the other one if that is faster."""
    A, B = of(rng, types[0], 192, 512), of(rng, types[1], 512, 128)
    assert same_bits(run("auto", A, B), run("auto", A.astype(np.float32), B.astype(np.float32)))
    if model == "gpu":
        monkeypatch.setenv(MULTIPROCESSORS, "1")
        result, launched = launched_by(lambda: run("auto", A, B))
        assert {"widen", "mixed"} <= launched
        assert same_bits(result, run("auto", A, B.astype(np.float32)))


@pytest.mark.parametrize(
    ("M", "N", "K", "of_A", "of_B", "if_split"),
    [
        (64, 256, 7168, False, False, False),
        (512, 256, 7168, True, True, True),
        (8192, 256, 7168, True, False, True),
        (16384, 128, 2816, True, False, True),
        (1, 32000, 4096, False, True, False),
        (64, 32000, 4096, False, True, False),
        (512, 32000, 4096, False, True, True),
        (4096, 4096, 4096, True, True, True),
        (8192, 8192, 8192, True, True, True),
        (8192, 8192, 127, False, False, False),
        (128, 128, 128, False, False, False),
    ],
)
def test_when_mixed_is_faster_than_a_float32_copy(M, N, K, of_A, of_B, if_split):
    """As an H200 needs less time. The last: with the pairs of a float32 B."""
    assert _core._plan_prefers_mixed(132, M, N, K, False, False) == of_A
    assert _core._plan_prefers_mixed(132, M, N, K, True, False) == of_B
    assert _core._plan_prefers_mixed(132, M, N, K, False, True) == if_split


@pytest.mark.parametrize(("count", "size", "kernel"), [(5, 40, "direct"), (8000, 4, "widen")])
def test_a_batch_of_tiny_products_shares_blocks_in_float32(like_gpu, rng, count, size, kernel):
    A, B = of(rng, FLOAT16, count, size, size), of(rng, FLOAT16, count, size, size)
    result, launched = launched_by(lambda: run("auto", A, B))
    assert kernel in launched
    assert np.allclose(result, A.astype(np.float64) @ B.astype(np.float64), atol=1e-5)


def test_a_batch_of_both_types_is_computed_together(like_gpu, rng):
    A, B = of(rng, FLOAT16, 3, M, K), of(rng, FLOAT32, 3, K, N)
    for a, b in ((A, B), (A[:1], B), (A, B[:1]), (B.transpose(0, 2, 1), A.transpose(0, 2, 1))):
        result, launched = launched_by(lambda a=a, b=b: run("auto", a, b))
        assert "widen" in launched
        floats = run("auto", a.astype(np.float32), b.astype(np.float32))
        assert same_bits(result, floats)


@pytest.mark.parametrize("shape", [(1, 9), (3, 8), (5, 1), (4, 16), (7, 23)], ids=str)
def test_every_value_is_converted_exactly(like_gpu, rng, shape):
    """By eight elements at a time, and by single ones."""
    rows, cols = shape
    A = of(rng, BFLOAT16, rows, cols)
    for a in (A, np.asfortranarray(A)):
        assert np.array_equal(run("auto", a, np.eye(cols, dtype=np.float32)), A.astype(np.float32))


@pytest.mark.parametrize("name", ["vec4", "simt", "waves"])
@pytest.mark.parametrize("types", [(FLOAT16, FLOAT16), (BFLOAT16, FLOAT16)], ids=str)
def test_a_variant_by_name_multiplies_float32_copies(like_gpu, rng, name, types):
    A, B = of(rng, types[0], M, K), of(rng, types[1], K, N)
    result, launched = launched_by(lambda: run(name, A, B))
    assert "direct" not in launched
    assert same_bits(result, run(name, A.astype(np.float32), B.astype(np.float32)))


# ------------------------------------------------------------------ values


def wide(rng, dtype, *shape, exponents):
    values = rng.uniform(1, 2, shape) * np.exp2(rng.uniform(*exponents, shape))
    return (values * rng.choice([-1, 1], shape)).astype(dtype)


@pytest.mark.parametrize(
    ("dtype", "exponents"),
    [
        (FLOAT16, (-14, 15)),
        (FLOAT16, (-13, -5)),
        (BFLOAT16, (-40, 40)),
        (BFLOAT16, (-75, -60)),  # the products are subnormal in float32
        (BFLOAT16, (60, 66)),  # the largest overflow
        (BFLOAT16, (-133, 10)),  # subnormal factors
    ],
    ids=str,
)
def test_wide_ranges(model, rng, dtype, exponents):
    A, B = wide(rng, dtype, M, K, exponents=exponents), wide(rng, dtype, K, N, exponents=exponents)
    C = uniform(rng, M, N)
    for alpha, beta in ((1, 0), (-0.3, 1.7)):
        result = run("auto", A, B, C=C, alpha=alpha, beta=beta)
        assert share(result, A, B, C=C, alpha=alpha, beta=beta) <= 1


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_cancellation(model, rng, dtype):
    """The sums vanish, and their terms do not."""
    half, column = of(rng, dtype, M, K), of(rng, dtype, K, N)
    A = np.hstack([half, -half[:, ::-1]])
    B = np.vstack([column, column[::-1]])
    result = run("auto", A, B)
    assert share(result, A, B) <= 1


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_integers_are_exact(model, rng, dtype):
    A = rng.integers(-8, 9, (M, K)).astype(np.float32).astype(dtype)
    B = rng.integers(-8, 9, (K, N)).astype(np.float32).astype(dtype)
    assert np.array_equal(run("auto", A, B), A.astype(np.float64) @ B.astype(np.float64))


@pytest.mark.parametrize(
    "types", [(FLOAT16, FLOAT16), (BFLOAT16,) * 2, (FLOAT32, FLOAT16)], ids=str
)
def test_infinities_and_nan(model, rng, types):
    A, B = of(rng, types[0], M, K), of(rng, types[1], K, N)
    A[3, 7], A[5, 1], B[2, 4], B[9, 9], A[6, 2] = np.inf, np.nan, -np.inf, np.nan, 0
    result = run("auto", A, B)
    with np.errstate(invalid="ignore"):
        expected = A.astype(np.float64) @ B.astype(np.float64)
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    assert np.array_equal(result[np.isinf(expected)], expected[np.isinf(expected)])
    assert np.isfinite(result[np.isfinite(expected)]).all()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_least_and_the_largest_values(model, dtype):
    """Every value of the type times 1: subnormal ones, too."""
    values = np.arange(1 << 16, dtype=np.uint16).view(dtype).reshape(-1, 1)
    result = run("auto", values, np.ones((1, 1), dtype))
    wanted = values.astype(np.float32)
    assert np.array_equal(result, wanted, equal_nan=True)


# ------------------------------------------------------------------ memory


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_operands_of_any_strides(model, rng, dtype):
    plain = of(rng, dtype, M, K), of(rng, dtype, K, N)
    expected = run("auto", *plain)
    memory = np.zeros((2 * M, 3 * K + 1), dtype), np.zeros((3 * K, 2 * N + 1), dtype)
    views = [
        (memory[0][:M, :K], memory[1][:K, :N]),
        (memory[0][::2, 1 : K + 1], memory[1][1 : K + 1, 1 : N + 1]),
        (memory[0][:M, : 3 * K : 3], memory[1][::3, : 2 * N : 2]),
        (memory[0][M - 1 :: -1, :K], memory[1][:K, N - 1 :: -1]),
        (np.zeros((K, M), dtype).T, np.zeros((N, K + 3), dtype)[:, 1 : K + 1].T),
    ]
    for A, B in views:
        A[...], B[...] = plain
        assert same_bits(run("auto", A, B), expected)
    odd = np.zeros(2 * M * K + 1, np.uint8)[1:].view(dtype).reshape(M, K)
    odd[...] = plain[0]
    assert same_bits(run("auto", odd, plain[1]), expected)


def test_the_same_row_many_times(model, rng):
    A = np.broadcast_to(of(rng, FLOAT16, K), (M, K))
    B = of(rng, FLOAT16, K, N)
    assert same_bits(run("auto", A, B), run("auto", A.copy(), B))


def test_float16_in_the_other_byte_order(model, rng):
    A, B = of(rng, FLOAT16, M, K), of(rng, FLOAT16, K, N)
    swapped = A.astype(">f2")
    assert same_bits(run("auto", swapped, B), run("auto", A, B))
    assert same_bits(run("auto", B.T.astype(">f2"), swapped.T), run("auto", B.T, A.T))


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if "read-only" not in name])
def test_an_output_of_any_strides(like_gpu, rng, layout):
    A, B, C = of(rng, BFLOAT16, M, K), of(rng, BFLOAT16, K, N), uniform(rng, M, N)
    placed = LAYOUTS[layout].place(C)
    before = placed.surroundings()
    run("auto", A, B, C=C, beta=-1, out=placed.matrix)
    assert same_bits(placed.matrix.astype(np.float32), run("auto", A, B, C=C, beta=-1))
    assert placed.surroundings() == before


@pytest.mark.parametrize("first", [0, 2, 4 * M * N - 2])
def test_an_output_that_overlaps_an_operand(model, rng, first):
    memory = np.zeros(4 * M * N + 2 * M * K, np.uint8)
    A = memory[first : first + 2 * M * K].view(np.float16).reshape(M, K)
    A[...] = of(rng, FLOAT16, M, K)
    B = of(rng, FLOAT16, K, N)
    expected = run("auto", A.copy(), B)
    out = memory[: 4 * M * N].view(np.float32).reshape(M, N)
    assert run("auto", A, B, out=out) is out
    assert same_bits(out, expected)


@pytest.mark.parametrize("types", [(FLOAT16, FLOAT16), (BFLOAT16, FLOAT32)], ids=str)
def test_empty_operands(model, rng, types):
    C = uniform(rng, 3, 4)
    A, B = np.zeros((3, 0), types[0]), np.zeros((0, 4), types[1])
    assert same_bits(run("auto", A, B), np.zeros((3, 4), np.float32))
    assert same_bits(run("auto", A, B, C=C, beta=2), 2 * C)
    assert run("auto", np.zeros((0, 5), types[0]), np.zeros((5, 4), types[1])).shape == (0, 4)
    nan = np.full((3, 5), np.nan, types[0]), np.zeros((5, 4), types[1])
    assert same_bits(run("auto", *nan, alpha=0, C=C, beta=1), C)


# ------------------------------------------------------------------ several products


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_vectors_and_batches(model, rng, dtype):
    A, B = of(rng, dtype, 3, 5, M, K), of(rng, dtype, 5, K, N)
    result = run("auto", A, B)
    assert result.shape == (3, 5, M, N)
    assert result.dtype == np.float32
    for index in np.ndindex(3, 5):
        assert share(result[index], A[index], B[index[1]]) <= 1
    rows = run("auto", A, B[0])  # one product with many rows
    assert all(share(rows[i], A[i], B[0]) <= 1 for i in np.ndindex(3, 5))
    assert share(run("auto", A[0, 0, :1], B[0]), A[0, 0, :1], B[0]) <= 1
    assert np.ndim(run("auto", A[0, 0, 0], B[0, :, 0])) == 0


def test_a_batch_of_large_products_has_the_bits_of_each(like_gpu, rng):
    A, B = of(rng, FLOAT16, 2, 1024, 16), of(rng, FLOAT16, 2, 16, 1024)
    result, launched = launched_by(lambda: run("auto", A, B))
    assert launched == {"direct"}
    for n in range(2):
        assert same_bits(result[n], run("auto", A[n], B[n]))


def test_many_products_of_all_types(model, rng):
    types = [(a, b) for a in (*TYPES, FLOAT32) for b in (*TYPES, FLOAT32)]
    As = [of(rng, a, 20 + n, 140) for n, (a, _) in enumerate(types)]
    Bs = [of(rng, b, 140, 40 - n) for n, (_, b) in enumerate(types)]
    Cs = [uniform(rng, len(A), B.shape[1]) for A, B in zip(As, Bs, strict=True)]
    results = sgemm_kernels.run_many("auto", As, Bs, Cs, beta=0.5, device="cpu")
    for A, B, C, result in zip(As, Bs, Cs, results, strict=True):
        assert share(result, A, B, C=C, beta=0.5) <= 1
        if A.dtype == B.dtype != FLOAT32:
            assert same_bits(result, run("auto", A, B, C=C, beta=0.5))


def test_an_output_among_the_operands_of_another_product(model, rng):
    A, B = of(rng, FLOAT16, 32, 64), of(rng, FLOAT16, 64, 32)
    out = [A.copy().view(np.float32), np.empty((32, 32), np.float32)]
    aliased = out[0].view(np.float16)
    sgemm_kernels.run_many("auto", [A, aliased], [B, B], out=out, device="cpu")
    assert same_bits(out[0], run("auto", A, B))
    assert same_bits(out[1], run("auto", A, B))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("by_columns", [False, True])
def test_a_prepared_matrix(model, rng, dtype, by_columns):
    A, B = of(rng, dtype, M, K), of(rng, dtype, K, N)
    B = np.asfortranarray(B) if by_columns else B
    prepared = prepare(B, device="cpu")
    kept = np.dtype(dtype if model == "gpu" else np.float32)
    assert repr(prepared) == f"PreparedMatrix(shape=({K}, {N}), dtype={kept}, device='cpu')"
    assert prepared.nbytes == K * N * kept.itemsize
    for a in (A, A.astype(np.float32)):
        for name in ("auto", "waves"):
            assert same_bits(sgemm_kernels.run(name, a, prepared), run(name, a, B))


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("dtype", "conversion"),
    [
        (np.int8, "A.astype(numpy.float32)"),
        (np.uint16, "A.astype(numpy.float32)"),
        (np.float64, "A.astype(numpy.float32)"),
        (ml_dtypes.float8_e4m3fn, "A.astype(numpy.float32)"),
        (ml_dtypes.int4, "A.astype(numpy.float32)"),
        (np.complex64, "A.real.astype(numpy.float32)"),
    ],
)
def test_other_types_are_refused_with_the_conversion(dtype, conversion):
    A, B = np.ones((4, 4)).astype(dtype), np.ones((4, 4), np.float16)
    takes = "run() takes float32, float16 and bfloat16, and never converts silently"
    for call in (
        lambda: run("auto", A, B),
        lambda: sgemm_kernels.run_many("auto", [A], [B], device="cpu"),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value).endswith(
            f"A has dtype {np.dtype(dtype)}, but {takes}: pass {conversion}"
        )


@pytest.mark.parametrize("name", ["C", "out"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_results_are_float32(name, dtype):
    A = np.ones((4, 4), dtype)
    with pytest.raises(
        TypeError, match=rf"^{name} has dtype {dtype}, but run\(\) takes only float32"
    ):
        run("auto", A, A, beta=1, **{"C": A.astype(np.float32), name: A})
