"""Stacks of matrices, vectors and broadcasting: the shapes of numpy.matmul."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import printed_over_fake_cuda, same_bits, uniform

SHAPES = [
    ((5, 3, 4), (5, 4, 6)),
    ((3, 4), (5, 4, 6)),  # A is shared
    ((5, 3, 4), (4, 6)),  # B is shared: one product of 15 rows
    ((2, 1, 3, 4), (7, 4, 5)),
    ((2, 7, 3, 4), (7, 4, 5)),
    ((1, 1, 3, 4), (4, 5)),
    ((2, 3, 4, 5, 6), (3, 1, 6, 2)),
    ((4,), (4, 6)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((9, 3, 4), (4,)),
    ((4,), (9, 4, 6)),
    ((0, 3, 4), (4, 5)),
    ((3, 0, 4), (3, 4, 5)),
    ((2, 3, 0), (2, 0, 4)),
    ((0,), (0,)),
    ((3, 130, 70), (3, 70, 129)),
]


def operands(rng, shape_A, shape_B):
    return uniform(rng, *shape_A), uniform(rng, *shape_B)


def worst_share(result, A, B, C=None, **factors):
    """The largest share of the error bound in all products."""
    with np.errstate(invalid="ignore"):
        shape = np.matmul(A, B).shape
    assert np.shape(result) == shape
    rows = A[np.newaxis] if A.ndim == 1 else A
    columns = B[:, np.newaxis] if B.ndim == 1 else B
    leading = np.broadcast_shapes(rows.shape[:-2], columns.shape[:-2])
    full = (*leading, rows.shape[-2], columns.shape[-1])
    rows = np.broadcast_to(rows, (*leading, *rows.shape[-2:]))
    columns = np.broadcast_to(columns, (*leading, *columns.shape[-2:]))
    results = np.reshape(result, full)
    begun = None if C is None else np.broadcast_to(C, shape).reshape(full)
    shares = [
        expect(
            rows[index], columns[index], C=None if begun is None else begun[index], **factors
        ).worst_share(results[index])
        for index in np.ndindex(*leading)
    ]
    return max(shares, default=0.0)


@pytest.mark.parametrize(("shape_A", "shape_B"), SHAPES)
def test_every_shape_of_matmul(variants_on, device, rng, shape_A, shape_B):
    A, B = operands(rng, shape_A, shape_B)
    for name in variants_on[device]:
        result = run(name, A, B, device=device)
        assert isinstance(result, type(np.matmul(A, B)))
        assert result.dtype == np.float32
        assert worst_share(result, A, B) <= 1, name


@pytest.mark.parametrize(("shape_A", "shape_B"), SHAPES)
def test_c_and_out(device, rng, shape_A, shape_B):
    A, B = operands(rng, shape_A, shape_B)
    shape = np.matmul(A, B).shape
    C, out = uniform(rng, *shape), np.full(shape, np.nan, np.float32)
    for name in ("naive", "splitk", "auto"):
        result = run(name, A, B, C=C, alpha=0.3, beta=0.7, out=out, device=device)
        assert result is out
        assert worst_share(out, A, B, C=C, alpha=0.3, beta=0.7) <= 1, name
        in_place = C.copy()
        run(name, A, B, C=in_place, alpha=0.3, beta=0.7, out=in_place, device=device)
        assert same_bits(in_place, out)


@pytest.mark.parametrize("leading", [(), (1,), (4,), (3, 1), (3, 4)])
def test_c_is_broadcast_along_the_leading_dimensions(device, rng, leading):
    A, B, C = uniform(rng, 3, 4, 5, 6), uniform(rng, 6, 7), uniform(rng, *leading, 5, 7)
    before = C.copy()
    result = run("vec4", A, B, C=C, beta=-1.5, device=device)
    assert worst_share(result, A, B, C=C, beta=-1.5) <= 1
    assert same_bits(C, before)


def strided(stack, how):
    """The same values with other strides."""
    if how == "transposed":
        return np.ascontiguousarray(stack.mT).mT
    if how == "backwards":
        return np.ascontiguousarray(stack[::-1, ::-1, ::-1])[::-1, ::-1, ::-1]
    if how == "batch last":
        return np.ascontiguousarray(stack.transpose(1, 2, 0)).transpose(2, 0, 1)
    if how == "padded":
        return np.pad(stack, [(0, 0), (0, 3), (0, 1)])[:, :-3, :-1]
    if how == "unaligned":
        memory = np.empty(stack.nbytes + 1, np.uint8)[1:]
        copy = memory.view(np.float32).reshape(stack.shape)
        copy[...] = stack
        return copy
    assert how == "byte order"
    return stack.astype(stack.dtype.newbyteorder())


@pytest.mark.parametrize(
    "how", ["transposed", "backwards", "batch last", "padded", "unaligned", "byte order"]
)
def test_every_stride_is_read_and_written(device, rng, how):
    A, B, C = uniform(rng, 6, 9, 5), uniform(rng, 6, 5, 7), uniform(rng, 6, 9, 7)
    expected = run("tile2d", A, B, C=C, beta=2, device=device)
    a, b, c = strided(A, how), strided(B, how), strided(C, how)
    assert same_bits(run("tile2d", a, b, C=c, beta=2, device=device), expected)
    out = strided(np.full_like(C, np.nan), how)
    run("tile2d", a, b, C=c, beta=2, out=out, device=device)
    assert same_bits(out.astype(np.float32), expected)
    assert worst_share(run("auto", a, b, C=c, beta=2, device=device), A, B, C=C, beta=2) <= 1


def test_windows_of_one_array_are_a_batch(device, rng):
    """The matrices of A overlap."""
    A = np.lib.stride_tricks.sliding_window_view(uniform(rng, 40, 8), (12, 8))[:, 0]
    B = uniform(rng, 8, 5)
    for name in ("coalesced", "auto"):
        assert worst_share(run(name, A, B, device=device), A, B) <= 1


@pytest.mark.parametrize("operand", ["A", "B", "C"])
def test_out_overlaps_an_operand(device, rng, operand):
    memory = uniform(rng, 12, 6, 6)
    arrays = {"A": memory[:8], "B": memory[:8], "C": memory[:8]}
    for name in arrays:
        if name != operand:
            arrays[name] = arrays[name].copy()
    copies = {name: values.copy() for name, values in arrays.items()}
    expected = run("naive", **copies, beta=1, device=device)
    out = memory[3:11]
    run("naive", arrays["A"], arrays["B"], C=arrays["C"], beta=1, out=out, device=device)
    assert same_bits(out, expected)


def test_each_matrix_has_the_bits_of_its_own_product(rung, device, rng):
    A, B = uniform(rng, 4, 70, 300), uniform(rng, 4, 300, 40)
    result = run(rung.name, A, B, device=device)
    for index in range(4):
        assert same_bits(result[index], run(rung.name, A[index], B[index], device=device))


def test_special_values_stay_in_their_matrix(variants_on, device, rng):
    A, B = uniform(rng, 6, 20, 300), uniform(rng, 6, 300, 10)
    A[1, 2, 3], A[3, 0, 0], B[4, 5, 6] = np.nan, np.inf, -np.inf
    for name in variants_on[device]:
        assert worst_share(run(name, A, B, device=device), A, B) <= 1, name


def test_more_matrices_than_a_grid_has_rows(device, rng):
    A, B = uniform(rng, 70_000, 2, 3), uniform(rng, 70_000, 3, 2)
    expected = np.matmul(A, B)
    for name in ("naive", "auto"):
        result = run(name, A, B, device=device)
        assert np.allclose(result, expected, rtol=1e-5, atol=1e-6), name


def test_as_many_dimensions_as_numpy_has(device, rng):
    A, B = uniform(rng, 2, 3, 4), uniform(rng, 5, 4, 2)
    expected = run("naive", A[:, np.newaxis], B, device=device)
    result = run(
        "naive", A.reshape(2, *[1] * 61, 3, 4), B.reshape(*[1] * 57, 5, 4, 2), device=device
    )
    assert result.shape == (2, *[1] * 60, 5, 3, 2)
    assert same_bits(result.reshape(2, 5, 3, 2), expected)


@pytest.mark.parametrize(
    ("count", "M", "N", "K"),
    [
        (70_000, 3, 3, 3),
        (3000, 4, 4, 4),
        (900, 10, 7, 5),
        (500, 16, 16, 16),
        (500, 12, 40, 16),
    ],
)
@pytest.mark.parametrize("how", ["as it is", "transposed", "padded", "unaligned"])
def test_kernels_for_small_matrices(monkeypatch, rng, count, M, N, K, how):
    """They add in the order of K, as `naive` does. Other plans for these shapes do not."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "132")
    A, B, C = uniform(rng, count, M, K), uniform(rng, count, K, N), uniform(rng, count, M, N)
    a, b = (X if how == "as it is" else strided(X, how) for X in (A, B))
    assert same_bits(run("simt", a, b, device="cpu"), run("naive", A, B, device="cpu"))
    expected = run("naive", A, B, C=C, alpha=0.5, beta=-2, device="cpu")
    run("simt", a, b, C=C, alpha=0.5, beta=-2, out=C, device="cpu")
    assert same_bits(C, expected)


REFUSED = [
    ((2, 3, 4), (3, 4, 5), None, r"A is \(2, 3, 4\) and B is \(3, 4, 5\).*cannot be broadcast"),
    ((2, 3, 4), (2, 5, 6), None, r"A's 4 columns must match B's 5 rows: pass arrays with"),
    ((2, 3, 4), (2, 5, 4), None, r"pass B\.mT"),
    ((2, 4, 3), (2, 4, 5), None, r"pass A\.mT"),
    ((3,), (4,), None, r"A's 3 elements must match B's 4 elements"),
    ((2, 3), (2,), None, r"A's 3 columns must match B's 2 elements"),
    ((2, 3, 4), (4, 5), (3, 3, 5), r"C is \(3, 3, 5\) but the result is \(2, 3, 5\)"),
    ((2, 3, 4), (4, 5), (5,), r"pass numpy\.broadcast_to\(C, \(2, 3, 5\)\)"),
    ((2, 3, 4), (4, 5), (3, 1), r"pass numpy\.broadcast_to\(C, \(2, 3, 5\)\)"),
    ((3, 4), (4, 5), (2, 3, 5), r"C is \(2, 3, 5\) but the result is \(3, 5\)"),
]


@pytest.mark.parametrize(("shape_A", "shape_B", "shape_C", "message"), REFUSED)
def test_shapes_that_do_not_fit(rng, shape_A, shape_B, shape_C, message):
    A, B = operands(rng, shape_A, shape_B)
    more = {} if shape_C is None else {"C": uniform(rng, *shape_C), "beta": 1}
    with pytest.raises(ValueError, match=message):
        run("naive", A, B, device="cpu", **more)


@pytest.mark.parametrize("shape", [(3, 5), (1, 3, 5), (2, 3, 4), (2, 2, 3, 5)])
def test_an_out_of_another_shape(rng, shape):
    A, B = operands(rng, (2, 3, 4), (4, 5))
    with pytest.raises(ValueError, match=r"the result is \(2, 3, 5\).*numpy\.empty\(\(2, 3, 5\)"):
        run("naive", A, B, out=np.empty(shape, np.float32), device="cpu")


def test_an_out_whose_matrices_share_memory(rng):
    A, B = operands(rng, (2, 3, 4), (4, 5))
    memory = np.empty((3, 5), np.float32)
    out = np.lib.stride_tricks.as_strided(memory, (2, 3, 5), (0, 20, 4))
    with pytest.raises(ValueError, match=r"elements of out share memory .*\(0, 20, 4\) bytes"):
        run("naive", A, B, out=out, device="cpu")


# ---------------------------------------------------------------------------- over the fake GPUs


@pytest.mark.fake_cuda
def test_a_batch_runs_in_pieces_on_every_gpu():
    code = """
        from sgemm_kernels import _core
        A, B, C = uniform(rng, 900, 70, 40), uniform(rng, 900, 40, 90), uniform(rng, 900, 70, 90)
        expected = run("tile2d", A, B, C=C, beta=2, device="cpu")
        for device in ("cuda:0", "cuda:all"):
            assert same_bits(run("tile2d", A, B, C=C, beta=2, device=device), expected), device
            assert same_bits(run("tile2d", A.mT.copy().mT, B, C=C[0] * 0 + C, beta=2,
                                 device=device), expected), device
        shared = run("tile2d", A, B[0], device="cuda:all")
        assert same_bits(shared, run("tile2d", A, B[0], device="cpu"))
        print("same")
    """
    assert printed_over_fake_cuda(code) == "same"


@pytest.mark.fake_cuda
def test_arrays_on_a_gpu_are_batches():
    code = """
        from tests.exporters import FAKES
        shapes = [((5, 3, 4), (5, 4, 6)), ((2, 1, 3, 4), (7, 4, 5)), ((4,), (9, 4, 6)),
                  ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 0), (2, 0, 4)), ((0, 3, 4), (4, 5))]
        for kind in ("ByDlpack", "ByInterface"):
            for a, b in shapes:
                A, B = uniform(rng, *a), uniform(rng, *b)
                expected = run("vec4", A, B, device="cpu")
                result = run("vec4", FAKES[kind](A), FAKES[kind](B))
                assert result.shape == expected.shape, (kind, a, b)
                assert result.ndim == len(result.shape)
                assert same_bits(np.asarray(result), expected), (kind, a, b)
                out = np.zeros_like(expected)
        A, B = uniform(rng, 5, 3, 4), uniform(rng, 5, 3, 6)
        a = run("naive", FAKES["ByDlpack"](A), FAKES["ByDlpack"](np.eye(4, dtype=np.float32)))
        product = run("vec4", a.mT, FAKES["ByDlpack"](B))
        assert same_bits(np.asarray(product), run("vec4", A.mT, B, device="cpu"))
        assert np.array_equal(np.asarray(a.T), A.T) and a.T.shape == (4, 3, 5)
        assert repr(a).startswith("DeviceArray(shape=(5, 3, 4)") and len(a) == 5
        print("same")
    """
    assert printed_over_fake_cuda(code) == "same"


@pytest.mark.parametrize("pair", list(itertools.product(("mT", "copy"), repeat=2)))
def test_layouts_of_both_operands(device, rng, pair):
    A, B = uniform(rng, 5, 40, 33), uniform(rng, 5, 33, 65)
    a, b = (
        np.ascontiguousarray(X.mT).mT if how == "mT" else X
        for X, how in zip((A, B), pair, strict=True)
    )
    assert worst_share(run("auto", a, b, device=device), A, B) <= 1
