"""Wrong arguments are refused. The message names the argument, the facts and a call that works."""

import contextlib
import gc
import re
import sys
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, run

GPU = _core._GPU_KIND
A, B, C = (np.ones(shape, np.float32) for shape in ((3, 4), (4, 5), (3, 5)))
READ_ONLY = np.zeros((3, 5), np.float32)
READ_ONLY.flags.writeable = False
LONG = pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="longdouble has few bits")
NAMES = [variant.name for variant in sgemm_kernels.variants()]


def refused(exception, *facts, **changes):
    """Arguments that make a good call wrong, and parts of the expected message."""
    return pytest.param(
        changes, exception, facts, id=" ".join(f"{k}={v!r:.30}" for k, v in changes.items())
    )


WRONG_TYPE = [
    refused(TypeError, "A", "list", "float32", "numpy.asarray", A=A.tolist()),
    refused(TypeError, "A", "float", "float32", "numpy.ones((2, 2), numpy.float32)", A=1.0),
    refused(TypeError, "A", "NoneType", "float32", A=None),
    refused(TypeError, "B", "type float32", "numpy.ones((2, 2), numpy.float32)", B=np.float32(1)),
    refused(TypeError, "B", "masked", "B.filled", B=np.ma.masked_array(B)),
    refused(TypeError, "C", "tuple", "float32", "numpy.asarray", C=(1, 2)),
    refused(TypeError, "out", "list", "float32", out=[]),
    refused(TypeError, "out", "masked", out=np.ma.masked_array(C)),
    *(
        refused(TypeError, name, dtype, "float32", **{name: value.astype(dtype)})
        for name, value in (("A", A), ("B", B), ("C", C), ("out", C))
        for dtype in ("float64", "float16", "int32", "bool", "complex64", "object")
        if dtype != "float16" or name in ("C", "out")  # A and B may be of float16
    ),
    refused(TypeError, "A", "astype(numpy.float32)", A=A.astype(np.float64)),
    refused(TypeError, "C", "float64", C=C.astype(np.float64), beta=0),
    refused(TypeError, "alpha", "str", alpha="1"),
    refused(TypeError, "alpha", "NoneType", alpha=None),
    refused(TypeError, "beta", "complex", beta=1j),
    refused(TypeError, "beta", "list", beta=[1]),
    *(
        refused(TypeError, name, type(value).__name__, "a real number", **{name: value})
        for name in ("alpha", "beta")
        for value in (
            *(np.timedelta64(5, "ns"), np.datetime64(5, "ns"), np.str_("1")),
            *(np.bytes_(b"1"), np.complex64(1), np.array(1j), np.array("1"), np.array([1.0])),
            np.array(5, "m8[ns]"),
        )
    ),
    refused(TypeError, "variant", "int", variant=1),
    refused(TypeError, "variant", "NoneType", variant=None),
    refused(TypeError, "device", "int", device=0),
    refused(TypeError, "gamma", gamma=1),
]

WRONG_VALUE = [
    refused(ValueError, "A", "no dimensions", "A.reshape(1, 1)", A=np.array(1, np.float32)),
    refused(ValueError, "C", "(7,)", "2", C=np.ones(7, np.float32)),
    refused(ValueError, "out", "(5,)", "2", out=C[0].copy()),
    refused(ValueError, "A", "B", "(4, 3)", "(4, 5)", "A.T", A=A.T),
    refused(ValueError, "A", "B", "(3, 4)", "(5, 4)", "B.T", B=B.T),
    refused(ValueError, "A", "B", "(3, 4)", "(7, 5)", B=np.ones((7, 5), np.float32)),
    refused(ValueError, "C", "(5, 3)", "(3, 5)", "numpy.zeros", C=C.T),
    refused(ValueError, "C", "(1, 5)", "(3, 5)", C=C[:1], beta=0),
    refused(ValueError, "C", "(1, 5)", "(3, 5)", "broadcast_to", C=C[:1], beta=1),
    refused(ValueError, "out", "(5, 3)", "(3, 5)", "numpy.empty", out=np.zeros((5, 3), np.float32)),
    refused(ValueError, "out", "read-only", "numpy.empty_like", out=READ_ONLY),
    refused(ValueError, "beta is 0.5", "C", "pass C", beta=0.5, C=None),
    refused(ValueError, "beta is nan", "C", "pass C", beta=float("nan"), C=None),
    refused(ValueError, "'tile3d'", "'tile2d'", *NAMES, variant="tile3d"),
    refused(ValueError, "'Naive'", "'naive'", *NAMES, variant="Naive"),
    refused(ValueError, "''", *NAMES, variant=""),
    refused(ValueError, "'cublas-tf32'", *NAMES, variant="cublas-tf32"),
    refused(ValueError, "variant", "not a valid name", variant="naive\0"),
    refused(ValueError, "variant", variant="\ud800"),
    refused(ValueError, "device", "not a valid name", device=f"{GPU}\0"),
    refused(ValueError, "device", "not a valid name", device=f"{GPU}:0\0"),
    refused(ValueError, "device", device="\ud800"),
    *(
        refused(ValueError, "device", "'cpu'", f"'{GPU}'", f"'{GPU}:<index>'", device=name)
        for name in (
            *("", " cpu", "CPU", "cpu:0", "gpu", f"{GPU}:", f"{GPU}:-1", f"{GPU}:+1", f"{GPU}: 1"),
            *(f"{GPU}:1x", f"{GPU}:\u0663", f"{GPU}:1234567"),
        )
    ),
]


def call(changes):
    good = {"variant": "tile2d", "A": A, "B": B, "C": C, "beta": 0, "device": "cpu"}
    arguments = good | changes
    return run(arguments.pop("variant"), arguments.pop("A"), arguments.pop("B"), **arguments)


def test_the_unchanged_call_works():
    assert np.all(call({}) == 4)


@pytest.mark.parametrize(("changes", "exception", "facts"), WRONG_TYPE + WRONG_VALUE)
def test_refused(changes, exception, facts):
    arrays = [value for value in changes.values() if isinstance(value, np.ndarray)]
    before = [value.copy() for value in arrays]
    counts = [sys.getrefcount(value) for value in arrays]
    with pytest.raises(exception) as caught:
        call(changes)
    assert type(caught.value) is exception
    for fact in facts:
        assert fact in str(caught.value)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))
    del caught

    def attempts(count):
        for _ in range(count):
            with contextlib.suppress(exception):
                call(changes)

    def growth():
        gc.collect()
        blocks = sys.getallocatedblocks()
        attempts(600)
        gc.collect()
        return sys.getallocatedblocks() - blocks

    attempts(300)  # fills the interpreter's own caches
    assert min(growth() for _ in range(3)) < 300, "less than one object in two calls"
    assert [sys.getrefcount(value) for value in arrays] == counts


@pytest.mark.parametrize("arguments", [(), ("naive",), ("naive", A), ("naive", A, B, C)])
def test_wrong_number_of_arguments(arguments):
    with pytest.raises(TypeError):
        run(*arguments)


@pytest.mark.parametrize(
    ("args", "keywords"),
    [
        ((), {}),
        ((A, B), {}),
        ((A, B), {"C": C, "beta": 1}),
        ((A, B), {"device": "cpu"}),
        ((A, B, C), {}),
        ((), {"A": A, "B": B}),
        ((A.tolist(), B), {}),
    ],
    ids=["", "A B", "A B C=C", "A B device", "A B C", "A= B=", "list B"],
)
def test_a_call_without_a_variant_says_where_to_name_it(args, keywords):
    with pytest.raises(TypeError, match=r"argument.* kernel's name.*: call run\('auto', A, B\)"):
        run(*args, **keywords)


@pytest.mark.parametrize("name", ["64", "", "gpu", "A.npy"])
def test_an_unknown_name_without_a_near_match_lists_all(name):
    with pytest.raises(ValueError, match=f"there is no variant '{name}': the variants are naive,"):
        call({"variant": name})


def test_a_positional_c_says_to_pass_it_by_name():
    with pytest.raises(TypeError, match=r"as in run\('auto', A, B, C=C, beta=1\)"):
        run("naive", A, B, C)


SPREAD = {
    "a row": np.arange(5, dtype=np.float32),
    "a column": np.arange(3, dtype=np.float32),
    "one number": np.array(2, np.float32),
    "a vector of one": np.array([2], np.float32),
    "a 1 x n matrix": np.arange(5, dtype=np.float32)[np.newaxis],
    "an m x 1 matrix": np.arange(3, dtype=np.float32)[:, np.newaxis],
}


def advised(error):
    """The expression of A, B and C that the message says to pass."""
    return re.search(r"pass (\S.*\))", str(error)).group(1)


@pytest.mark.parametrize("name", SPREAD)
def test_a_bias_is_refused_once_with_the_call_that_works(name):
    bias = SPREAD[name]
    with pytest.raises(ValueError, match=r"C has shape .* pass numpy\.broadcast_to") as caught:
        call({"C": bias, "beta": 1})
    as_advised = eval(advised(caught.value), {"numpy": np, "C": bias})
    expected = 4 + (bias[:, np.newaxis] if name == "a column" else bias)
    assert np.array_equal(call({"C": as_advised, "beta": 1}), np.broadcast_to(expected, (3, 5)))


def test_a_bias_of_a_square_result_may_be_a_row_or_a_column():
    square = np.ones((3, 3), np.float32)
    with pytest.raises(ValueError, match=r"to each row; write C\[:, None\] instead of C"):
        call({"A": square, "B": square, "C": square[0], "beta": 1})


class Sparse:
    """Like a scipy.sparse matrix: numpy.asarray wraps it in an array of one object."""

    dtype = np.dtype(np.float64)

    def __init__(self, values):
        self.values = values.astype(np.float64)

    def toarray(self):
        return self.values


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_a_sparse_matrix_is_refused_with_the_call_that_works(name):
    values = {"A": A, "B": B, "C": C}[name]
    with pytest.raises(TypeError, match=rf"{name}\.toarray\(\)") as caught:
        call({name: Sparse(values)})
    as_advised = eval(advised(caught.value), {"numpy": np, name: Sparse(values)})
    assert np.array_equal(call({name: as_advised}), call({}))


@pytest.mark.parametrize("name", [f"{GPU}:99", f"{GPU}:999999"])
def test_a_missing_gpu(name):
    with pytest.raises(sgemm_kernels.DeviceError, match=name):
        call({"device": name})


def test_a_scalar_whose_conversion_raises():
    class Stubborn:
        def __float__(self):
            raise ZeroDivisionError("mine")

    for name in ("alpha", "beta"):
        with pytest.raises(ZeroDivisionError, match="mine"):
            call({name: Stubborn()})


@pytest.mark.parametrize("scalar", [2, True, np.float32(2), np.float64(2), np.int8(2)], ids=repr)
def test_any_real_number_is_a_scalar(scalar):
    assert np.all(call({"alpha": scalar, "beta": scalar}) == 5 * float(scalar))


EXACT = np.longdouble
HALF = Fraction(1, 2**24)  # half the distance from 1 to the next float32
TINY = Fraction(1, 2**60)


@pytest.mark.parametrize(
    ("scalar", "expected"),
    [
        (1 + HALF + TINY, 1 + 2.0**-23),
        (1 + HALF, 1.0),
        (1 + HALF - TINY, 1.0),
        (1 + 3 * HALF - TINY, 1 + 2.0**-23),
        (1 + 3 * HALF, 1 + 2.0**-22),
        (-1 - HALF - TINY, -1 - 2.0**-23),
        (-1 - 3 * HALF + TINY, -1 - 2.0**-23),
        (Decimal(1) + Decimal(2) ** -24 + Decimal(10) ** -25, 1 + 2.0**-23),
        (2**60 + 2**36 + 1, 2.0**60 + 2.0**37),
        (2**60 + 2**36, 2.0**60),
        (np.int64(2**60 + 2**36 + 1), 2.0**60 + 2.0**37),
        (np.array(2**60 + 2**36 + 1), 2.0**60 + 2.0**37),
        (np.uint64(2**63 + 2**39 + 1), 2.0**63 + 2.0**40),
        (Fraction(1, 2**150) + Fraction(1, 2**250), 2.0**-149),
        (Fraction(1, 2**150), 0.0),
        (2**128 - 2**103 - 1, 2.0**128 - 2.0**104),
        (2**128 - 2**103, np.inf),
        (Decimal("nan"), np.nan),
        (np.longdouble("nan"), np.nan),
        (np.longdouble("-inf"), -np.inf),
        pytest.param(EXACT(1) + EXACT(2) ** -24 + EXACT(2) ** -60, 1 + 2.0**-23, marks=LONG),
        pytest.param(EXACT(1) + EXACT(2) ** -24 - EXACT(2) ** -60, 1.0, marks=LONG),
        pytest.param(
            np.array(EXACT(1) + EXACT(2) ** -24 + EXACT(2) ** -60), 1 + 2.0**-23, marks=LONG
        ),
    ],
    ids=repr,
)
def test_a_scalar_is_rounded_once(scalar, expected):
    one = np.ones((1, 1), np.float32)
    for changes in ({"alpha": scalar}, {"alpha": 0, "beta": scalar, "C": one}):
        result = call({"A": one, "B": one, "C": None} | changes)
        assert np.array_equal(result[0, 0], np.float32(expected), equal_nan=True), result


def test_a_scalar_only_needs_a_conversion_to_float():
    class Opaque:
        def __float__(self):
            return 2.0

    assert np.all(call({"alpha": Opaque()}) == 8)


def test_c_without_beta_is_not_added_and_a_warning_says_so():
    """With or without out. An explicit beta=0 gives no warning."""
    for out in (None, np.empty_like(C)):
        with pytest.warns(UserWarning, match=r"C is ignored.*pass beta=1") as warned:
            result = run("naive", A, B, C=C, out=out, device="cpu")
        assert [warning.filename for warning in warned] == [__file__]
        assert np.array_equal(result, run("naive", A, B, C=C, beta=0, out=out, device="cpu"))
    with pytest.raises(UserWarning, match="pass beta=1"):  # the tests turn warnings into errors
        run("naive", A, B, C=C, device="cpu")


def test_a_message_cut_inside_a_character_stays_valid(monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "x" + 39 * "é")
    values = np.ones((300, 300), np.float32)
    with pytest.raises(ValueError, match="it must be a number from 1 to 4096"):
        run("splitk", values, values, device="cpu")


def test_exceptions_of_an_arguments_properties_propagate():
    """Also without a GPU. Only AttributeError means that there is no such property."""

    class Raising:
        def __init__(self, name):
            self.name = name

        def __getattr__(self, name):
            raise (ZeroDivisionError if name == self.name else AttributeError)(name)

    for name in ("__dlpack_device__", "__cuda_array_interface__"):
        for argument in ("A", "B", "C", "out"):
            with pytest.raises(ZeroDivisionError, match=name):
                call({argument: Raising(name)})
    with pytest.raises(TypeError, match=r"A must be a numpy\.ndarray"):
        call({"A": Raising("nothing")})


def test_a_subclass_of_ndarray_is_an_array():
    class Mine(np.ndarray):
        pass

    assert type(call({"A": A.view(Mine)})) is np.ndarray


def test_operands_may_be_passed_by_name():
    assert np.all(run(variant="naive", A=A, B=B, device="cpu") == 4)


def test_the_exceptions_form_one_tree():
    package = sgemm_kernels
    assert package.DeviceError.__mro__[1:3] == (package.Error, RuntimeError)
    assert issubclass(package.OutOfMemoryError, package.DeviceError)
    assert issubclass(package.OutOfMemoryError, MemoryError)
    assert issubclass(package.UnsupportedVariantError, package.Error)
    for name in ("Error", "DeviceError", "OutOfMemoryError", "UnsupportedVariantError"):
        assert getattr(package, name).__module__ == "sgemm_kernels"


def test_a_result_too_large_for_any_memory():
    """A result of 2**60 elements from operands that take no memory."""
    tall = np.broadcast_to(np.float32(1), (2**30, 1))
    with pytest.raises(sgemm_kernels.OutOfMemoryError, match=r"memory for the result: .*array"):
        run("naive", tall, tall.T, device="cpu")
