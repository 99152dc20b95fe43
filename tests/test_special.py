"""NaN and infinities are where float64 has them, and excluded operands are not read."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import _core, run
from sgemm_kernels._accuracy import expect

from .support import deep, deepened, printed_by, same_bits, uniform

SPECIAL = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("shape", [(5, 7, 3), (70, 67, 35), (130, 131, 20)], ids=str)
def test_sprinkled(variant, device, rng, shape):
    M, N, K = shape
    K = deep(variant.name, K)
    for where in ("A", "B", "C", "ABC"):
        operands = {"A": uniform(rng, M, K), "B": uniform(rng, K, N), "C": uniform(rng, M, N)}
        for name in where:
            chosen = rng.random(operands[name].shape) < 0.01
            operands[name][chosen] = rng.choice(SPECIAL, int(chosen.sum()))
            operands[name][-1, -1] = np.inf
        A, B, C = operands.values()
        result = run(variant.name, A, B, C=C, alpha=-0.5, beta=2, device=device)
        assert not np.isfinite(result).all(), where
        assert expect(A, B, C=C, alpha=-0.5, beta=2).worst_share(result) <= 1, where


def test_at_every_edge(variant, device, rng):
    """One infinity in one corner spreads along its row or column and no further."""
    K = deep(variant.name, 35)
    A, B = uniform(rng, 67, K), uniform(rng, K, 69)
    for row, column in itertools.product((0, -1), (0, -1)):
        for values in (A, B):
            kept, values[row, column] = values[row, column], np.inf
            assert expect(A, B).worst_share(run(variant.name, A, B, device=device)) <= 1
            values[row, column] = kept


def test_zero_times_infinity(variant, device):
    zero, inf = np.zeros((3, 2), np.float32), np.full((2, 4), np.inf, np.float32)
    A, B = deepened(variant.name, zero, inf)
    assert np.isnan(run(variant.name, A, B, device=device)).all()
    C = np.full((3, 4), np.inf, np.float32)
    A, B = deepened(variant.name, zero, np.ones((2, 4), np.float32))
    assert np.isposinf(run(variant.name, A, B, C=C, beta=1, device=device)).all()


def test_opposite_infinities(variant, device):
    A = np.array([[np.inf, -np.inf]], np.float32)
    A, B = deepened(variant.name, A, np.ones((2, 1), np.float32))
    assert np.isnan(run(variant.name, A, B, device=device)).all()


@pytest.mark.parametrize("alpha", [*SPECIAL, 1.0, 1e300, -1e300])
def test_special_scalars(variant, device, rng, alpha):
    """A scalar beyond float32 is rounded to an infinity."""
    K = deep(variant.name, 33)
    # Positive, so that no order of summation can change a sign.
    A, B, C = (np.abs(uniform(rng, *s)) + np.float32(0.1) for s in ((33, K), (K, 33), (33, 33)))
    for beta in (*SPECIAL, 1.0, 1e300):
        result = run(variant.name, A, B, C=C, alpha=alpha, beta=beta, device=device)
        assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(result) <= 1, beta


def test_overflow_is_infinite(variant, device):
    huge = np.full((5, 5), 1e30, np.float32)
    for sign in (1, -1):
        A, B = deepened(variant.name, huge, sign * huge)
        assert (run(variant.name, A, B, device=device) == sign * np.inf).all()


def test_alpha_multiplies_the_finished_sum(variant, device):
    """As docs/use/accuracy.md says: it prevents neither overflow nor underflow of A @ B."""
    if variant.name == _core._REFERENCE:
        pytest.skip("the library decides the order of multiplications")
    for factor, alpha, expected in ((1e20, 1e-30, np.inf), (1e-25, 1e30, 0)):
        A, B = deepened(variant.name, *np.full((2, 5, 5), factor, np.float32))
        assert (run(variant.name, A, B, alpha=alpha, device=device) == expected).all()


def test_beta_zero_does_not_read_c(variant, device, rng):
    K = deep(variant.name, 35)
    A, B, C = uniform(rng, 70, K), uniform(rng, K, 67), np.full((70, 67), np.nan, np.float32)
    for beta in (0.0, -0.0):
        out = run(variant.name, A, B, C=C, beta=beta, device=device)
        assert expect(A, B).worst_share(out) <= 1
        in_place = C.copy()
        run(variant.name, A, B, C=in_place, beta=beta, out=in_place, device=device)
        assert same_bits(in_place, out)


@pytest.mark.any_kernel
def test_alpha_zero_does_not_read_a_and_b(variant, device, rng):
    """A product of no terms: rungs on tensor cores leave it to another rung."""
    A, B = np.full((70, 300), np.nan, np.float32), np.full((300, 67), np.inf, np.float32)
    C = uniform(rng, 70, 67)
    for alpha in (0.0, -0.0):
        kept = run(variant.name, A, B, C=C, alpha=alpha, beta=1, device=device)
        assert np.array_equal(kept, C)
        zeros = run(variant.name, A, B, alpha=alpha, device=device)
        assert np.array_equal(zeros, np.zeros_like(C))


def test_subnormals_are_kept(variant, device):
    """Every value is exact, so flushing to zero anywhere would show."""

    def product(A, B, **options):
        return run(variant.name, *deepened(variant.name, A, B), device=device, **options)

    tiny = np.float32(2.0**-149)
    k = np.arange(1, 71, dtype=np.float32)
    row, ones = (k * tiny).reshape(1, 70), np.ones((70, 1), np.float32)
    assert product(row, ones)[0, 0] == k.sum() * tiny
    one = np.ones((1, 1), np.float32)
    assert same_bits(product(one, row), row)
    assert same_bits(product(row.T, one), row.T)
    zero = np.zeros((1, 1), np.float32)
    assert same_bits(product(zero, row, C=row, beta=1), row)
    assert product(one, one, alpha=3 * tiny)[0, 0] == 3 * tiny
    root = np.full((1, 1), 2.0**-74, np.float32)
    assert product(root, root * np.float32(0.5))[0, 0] == tiny


def test_unreadable_pages(device, variants_on):
    """beta = 0 with an unreadable C, and alpha = 0 with unreadable A and B: reading such a page
    ends the process."""
    script = f"""
        import numpy as np
        from sgemm_kernels import _core, run
        from tests.support import unreadable

        def views(rows, columns):
            '''Every way to pass a matrix on: as it is, transposed, and to be packed.'''
            page = unreadable(2 * rows + 1, 2 * columns + 1)
            yield page[:rows, :columns]
            yield page.ravel()[: rows * columns].reshape(columns, rows).T
            yield page[:rows, : 2 * columns : 2]
            yield page[rows - 1 :: -1, :columns]
            yield page[:rows, :columns].view(page.dtype.newbyteorder())
            yield np.ndarray((rows, columns), np.float32, page, 1)

        A, B, C = (np.ones(shape, np.float32) for shape in ((40, 300), (300, 50), (40, 50)))
        for name in {variants_on[device]!r}:
            for c in views(40, 50):
                assert np.all(run(name, A, B, C=c, beta=0, device={device!r}) == 300), name
            for a, b in zip(views(40, 300), views(300, 50)):
                result = run(name, a, b, C=C, alpha=0, beta=3, device={device!r})
                assert np.all(result == 3), name
                assert np.all(run(name, a, b, alpha=0, device={device!r}) == 0), name
        print("done")
    """
    assert printed_by(script) == "done"


def test_unreadable_pages_are_unreadable():
    """Shows that the test above can fail: reading such a page ends the process."""
    script = """
        from tests.support import python
        print(python("from tests.support import unreadable; unreadable(1, 1).sum()").returncode)
    """
    assert int(printed_by(script)) < 0
