"""Grades of accuracy: their bounds, operands and table, on the CPU device."""

import json
import sys
import types

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels.cli import grade_tables

from .support import run_script

U = 2.0**-24


@pytest.fixture
def grades(experiment):
    return experiment("grades")


@pytest.fixture
def asked(grades):
    """The module with the questions."""
    return sys.modules["_grades"]


def rng(*seed):
    return np.random.default_rng(seed)


def as_float32(A, B):
    return A @ B


def as_tf32(A, B):
    """Factors with 10 bits of fraction, as TF32 rounds them."""
    a, b = ((each.view(np.uint32) + 0x1000 & 0xFFFFE000).view(np.float32) for each in (A, B))
    return a @ b


def as_fixed_point(A, B, bits=24):
    """Integers with one scale for each row of A and each column of B."""
    scale_a = 2.0 ** (bits - np.frexp(np.abs(A).max(axis=1, keepdims=True))[1])
    scale_b = 2.0 ** (bits - np.frexp(np.abs(B).max(axis=0, keepdims=True))[1])
    a, b = np.rint(A * scale_a), np.rint(B * scale_b)
    return (a @ b / scale_a / scale_b).astype(np.float32)


def strassen(A, B):
    """One level of Strassen's algorithm."""
    h = len(A) // 2
    a, b = ([each[:h, :h], each[:h, h:], each[h:, :h], each[h:, h:]] for each in (A, B))
    one = (a[0] + a[3]) @ (b[0] + b[3])
    two = (a[2] + a[3]) @ b[0]
    three = a[0] @ (b[1] - b[3])
    four = a[3] @ (b[2] - b[0])
    five = (a[0] + a[1]) @ b[3]
    six = (a[2] - a[0]) @ (b[0] + b[1])
    seven = (a[1] - a[3]) @ (b[2] + b[3])
    return np.block([[one + four - five + seven, three + five],
                     [two + four, one - two + three + six]])  # fmt: skip


class Flushing(np.ndarray):
    """An array that converts subnormal numbers to 0, as CuPy does."""

    def astype(self, *args, **kwargs):
        return np.where(abs(self) < 2.0**-126, 0, self).astype(*args, **kwargs)


def test_subnormal_results_are_compared_as_they_are(asked):
    values = np.array([0, -0.0, 2**-149, -(2**-130), 2**-126, 1, -np.inf, np.nan], np.float32)
    wide = asked.widened(np, values.view(Flushing))
    assert wide.dtype == np.float64
    assert np.array_equal(wide, values.astype(np.float64), equal_nan=True)


@pytest.mark.parametrize(
    ("product", "grade", "zeros", "small"),
    [
        (as_float32, "A", True, True),
        (as_tf32, None, True, False),
        (as_fixed_point, "B", True, False),
        (strassen, "C", False, False),
    ],
)
def test_each_way_to_multiply_has_its_grade(grades, product, grade, zeros, small):
    extent = grades.Extent((16, 32, 64), 32, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        row = grades.graded(np, {"it": product}, extent)["it"]
    assert (row["grade"], row["zeros_exact"]) == (grade, zeros)
    if product is not strassen:  # NVIDIA's programs ask it test 6 instead
        assert row["small_kept"] == small
    assert len(row["errors"]) == len(row["sizes"]) == 3
    if grade == "A":
        assert row["slope"] < 1
        assert row["share_C"] <= row["share_B"] <= row["share_A"] <= 1


def test_a_share_of_one_is_the_bound(asked):
    A, B = np.ones((2, 4), np.float32), np.ones((4, 3), np.float32)
    value, terms = asked.exact(np, A, B)
    assert (value == 4).all()
    assert (terms == 4).all()
    error = np.zeros((2, 3))
    error[1, 2] = 4 * asked.EPSILON * 4
    found = asked.shares(np, A, B, error, terms)
    assert found["A"] == pytest.approx(1)
    assert found["B"] == pytest.approx(1), "the norms are 2 and 2"
    assert found["C"] == pytest.approx(1 / np.sqrt(6)), "the norms are the roots of 8 and 12"
    error[0, 0] = np.nan
    assert asked.shares(np, A, B, error, terms)["A"] == np.inf


def test_an_error_where_all_terms_are_zero_is_infinite(asked):
    error, terms = np.array([[0.0, 1e-30]]), np.zeros((1, 2))
    assert asked.units(np, error[:, :1], terms[:, :1]) == 0
    assert asked.units(np, error, terms) > 1e200


def test_growth_is_an_exponent(asked):
    assert asked.slope((16, 32, 64), (1.0, 2.0, 4.0)) == pytest.approx(1)
    assert asked.slope((16, 64), (3.0, 6.0)) == pytest.approx(0.5)
    assert asked.slope((16, 32), (0.0, 1.0)) is None


@pytest.mark.parametrize("n", [16, 64])
def test_operands_of_the_tests_do_not_overflow(asked, n):
    for name, make in asked.TESTS.items():
        A, B = make(rng(n), n)
        assert (A.shape, B.shape, A.dtype, B.dtype) == ((n, n), (n, n), np.float32, np.float32)
        _, terms = asked.exact(np, A, B)
        assert terms.max() < np.finfo(np.float32).max, name
        smallest = np.abs(A)[A != 0].min() * np.abs(B)[B != 0].min()
        assert smallest > 2.0**-140 or "graded" in name


def test_results_that_are_zero_and_results_on_the_diagonal(asked):
    A, B = asked.TESTS[asked.ZEROS](rng(3), 32)
    _, terms = asked.exact(np, A, B)
    assert (terms == 0).sum() >= 16
    A, B = asked.TESTS[asked.GRADED](rng(4), 32)
    value, _ = asked.exact(np, A, B)
    assert np.allclose(np.diag(value), value[0, 0], rtol=1e-12)
    assert np.abs(A).max() / np.abs(A).min() > 2.0**100


@pytest.mark.parametrize("n", [32, 48])
def test_hard_operands_are_made_by_their_seed_and_do_not_overflow(asked, n):
    for name, make in asked.HARD.items():
        (A, B), again = make(rng(1), n), make(rng(1), n)
        assert (again[0] == A).all(), name
        assert (again[1] == B).all(), name
        assert (A.dtype, B.dtype) == (np.float32, np.float32)
        assert (A.shape, B.shape) == ((n, n), (n, n))
        assert asked.exact(np, A, B)[1].max() < np.finfo(np.float32).max, name


def test_terms_that_are_absorbed_come_near_to_the_bound(asked):
    n = 64
    A, B = asked.HARD["absorbed terms"](rng(2), n)
    value, terms = asked.exact(np, A, B)
    in_order = np.zeros((n, n), np.float32)
    for k in range(n):
        in_order += A[:, k, None] * B[k]
    assert 0.9 < asked.share_of_bound(np, in_order, value, terms, n) <= 1
    assert asked.share_of_bound(np, value.astype(np.float32), value, terms, n) < 0.02
    assert asked.share_of_bound(np, np.full((n, n), np.nan, np.float32), value, terms, n) == np.inf


def test_tiles_of_a_product_are_the_products_of_a_batch(asked):
    A, B = (rng(seed).integers(-9, 9, (48, 48)).astype(np.float32) for seed in (1, 2))
    rows, columns = asked.apart(np, A, B)
    assert (rows.shape, columns.shape) == ((9, 16, 48), (9, 48, 16))
    assert (asked.together(rows @ columns) == A @ B).all()


def test_a_wrong_way_is_found_and_a_failing_one_is_left_out(grades, monkeypatch, capsys):
    def refuses(A, B):
        raise RuntimeError("not today\nor ever")

    found = {"simt": as_float32, "auto": as_float32, "TF32": as_tf32, "broken": refuses}
    monkeypatch.setattr(grades, "ways", lambda device, xp: found.items())
    device = next(each for each in sgemm_kernels.devices() if each.kind == "cpu")
    rows = {row["way"]: row for row in grades.measured(device, grades.ON_CPU)}
    assert {*rows} == {"simt", "auto", "TF32", "auto, batches", "simt, batches"}
    assert "broken is left out: not today\n" in capsys.readouterr().err
    assert rows["TF32"]["grade"] is None
    assert rows["TF32"]["worst_share"] > 1 >= rows["simt"]["worst_share"]
    assert "grade" not in rows["auto, batches"]
    assert {row["products"] for row in rows.values()} == {grades.ON_CPU.products}


def test_on_a_gpu_other_libraries_multiply_too(grades, monkeypatch):
    """Replaces CuPy with NumPy, and cuBLAS and JAX with float32 products."""
    modes = []

    def product(A, B, out, mode=None):
        modes.append(mode)
        out[...] = A @ B

    jax = types.SimpleNamespace(needs_gpu=lambda: None, once=lambda algorithm, A, B: A @ B)
    monkeypatch.setitem(sys.modules, "_jax_product", jax)
    monkeypatch.setattr(np, "asnumpy", np.asarray, raising=False)
    monkeypatch.setattr(grades, "runnable", lambda device: ("simt", "cublas"))
    monkeypatch.setattr(
        grades,
        "libraries",
        lambda device, layouts: ("cublas", "cublas-tf32", ("Triton", product)),
    )
    monkeypatch.setattr(grades, "run", lambda name, A, B, out: product(A, B, out))
    monkeypatch.setattr(sys.modules["_cublas_product"], "product", product)
    device = types.SimpleNamespace(kind="cuda", name="cuda:0")
    found = dict(grades.ways(device, np))
    assert [*found] == ["simt", "cublas", "cublas-tf32", "Triton", *grades.JAX]
    A, B = rng(1).random((2, 4, 4), np.float32)
    assert all((multiply(A, B) == A @ B).all() for multiply in found.values())
    assert modes == [None, None, "TF32", None]


def test_a_million_products_are_asked(grades):
    assert grades.WHOLE.products >= 10**6


def test_every_variant_on_the_cpu_device_has_grade_a(grades, monkeypatch, tmp_path, capsys):
    path = tmp_path / "grades.json"
    assert not run_script(grades, monkeypatch, "--quick", "--device", "cpu", "-o", path)
    document = json.loads(path.read_text())
    rows = {row["way"]: row for row in document["rows"]}
    runs = {each.name for each in sgemm_kernels.variants() if "cpu" in each.devices}
    assert {*rows} == {*runs, "numpy", "auto, batches", "simt, batches"}
    assert {row.get("grade", "A") for row in rows.values()} == {"A"}
    assert all(row["worst_share"] <= 1 for row in rows.values())
    assert "hard products" in capsys.readouterr().out
    table = grade_tables.grades(path)
    assert "| fused | A | 0." in table
    assert "| auto, batches | - | - | - | - | - | 0." in table
    assert table.endswith(f"seed {grades.SEED}.")


def test_infinity_and_no_grade_in_the_table(tmp_path):
    row = {"way": "TF32", "grade": None, "share_A": None, "slope": None, "zeros_exact": True}
    row |= {"small_kept": False, "worst_share": 123.4, "worst_at": "tiny", "products": 4096}
    header, (line,) = grade_tables.of_grades([row])
    assert line == ["TF32", "none", "infinite", "-", "yes", "no", "1.2e+02", "tiny"]
    assert "worst of 4,096 hard products" in header
