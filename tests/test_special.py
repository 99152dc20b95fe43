"""NaN and infinities are where float64 has them, and excluded operands are not read."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import printed_by, same_bits, uniform

SPECIAL = [np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("shape", [(5, 7, 3), (70, 67, 35), (130, 131, 20)], ids=str)
@pytest.mark.parametrize("where", ["A", "B", "C", "ABC"])
def test_sprinkled(variant, device, rng, shape, where):
    M, N, K = shape
    operands = {"A": uniform(rng, M, K), "B": uniform(rng, K, N), "C": uniform(rng, M, N)}
    for name in where:
        chosen = rng.random(operands[name].shape) < 0.01
        operands[name][chosen] = rng.choice(SPECIAL, int(chosen.sum()))
        operands[name][-1, -1] = np.inf
    A, B, C = operands.values()
    result = run(variant.name, A, B, C=C, alpha=-0.5, beta=2, device=device)
    assert not np.isfinite(result).all()
    assert expect(A, B, C=C, alpha=-0.5, beta=2).worst_share(result) <= 1


def test_at_every_edge(variant, device, rng):
    """One infinity in one corner spreads along its row or column and no further."""
    A, B = uniform(rng, 67, 35), uniform(rng, 35, 69)
    for row, column in itertools.product((0, -1), (0, -1)):
        for values in (A, B):
            kept, values[row, column] = values[row, column], np.inf
            assert expect(A, B).worst_share(run(variant.name, A, B, device=device)) <= 1
            values[row, column] = kept


def test_zero_times_infinity(variant, device):
    zero, inf = np.zeros((3, 2), np.float32), np.full((2, 4), np.inf, np.float32)
    assert np.isnan(run(variant.name, zero, inf, device=device)).all()
    C = np.full((3, 4), np.inf, np.float32)
    ones = np.ones((2, 4), np.float32)
    assert np.isposinf(run(variant.name, zero, ones, C=C, beta=1, device=device)).all()


def test_opposite_infinities(variant, device):
    A = np.array([[np.inf, -np.inf]], np.float32)
    assert np.isnan(run(variant.name, A, np.ones((2, 1), np.float32), device=device)).all()


@pytest.mark.parametrize("alpha", [*SPECIAL, 1.0, 1e300, -1e300])
@pytest.mark.parametrize("beta", [*SPECIAL, 1.0, 1e300])
def test_special_scalars(variant, device, rng, alpha, beta):
    """A scalar beyond float32 is rounded to an infinity."""
    # Positive, so that no order of summation can change a sign.
    A, B, C = (np.abs(uniform(rng, n, n)) + np.float32(0.1) for n in (33, 33, 33))
    result = run(variant.name, A, B, C=C, alpha=alpha, beta=beta, device=device)
    assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(result) <= 1


def test_overflow_is_infinite(variant, device):
    huge = np.full((5, 5), 1e30, np.float32)
    assert np.isposinf(run(variant.name, huge, huge, device=device)).all()
    assert np.isneginf(run(variant.name, huge, -huge, device=device)).all()


def test_beta_zero_does_not_read_c(variant, device, rng):
    A, B, C = uniform(rng, 70, 35), uniform(rng, 35, 67), np.full((70, 67), np.nan, np.float32)
    for beta in (0.0, -0.0):
        out = run(variant.name, A, B, C=C, beta=beta, device=device)
        assert expect(A, B).worst_share(out) <= 1
        in_place = C.copy()
        run(variant.name, A, B, C=in_place, beta=beta, out=in_place, device=device)
        assert same_bits(in_place, out)


def test_alpha_zero_does_not_read_a_and_b(variant, device, rng):
    A, B = np.full((70, 35), np.nan, np.float32), np.full((35, 67), np.inf, np.float32)
    C = uniform(rng, 70, 67)
    for alpha in (0.0, -0.0):
        kept = run(variant.name, A, B, C=C, alpha=alpha, beta=1, device=device)
        assert np.array_equal(kept, C)
        zeros = run(variant.name, A, B, alpha=alpha, device=device)
        assert np.array_equal(zeros, np.zeros_like(C))


def test_subnormals_are_kept(variant, device):
    """Every value is exact, so flushing to zero anywhere would show."""
    tiny = np.float32(2.0**-149)
    k = np.arange(1, 71, dtype=np.float32)
    row, ones = (k * tiny).reshape(1, 70), np.ones((70, 1), np.float32)
    assert run(variant.name, row, ones, device=device)[0, 0] == k.sum() * tiny
    one = np.ones((1, 1), np.float32)
    assert same_bits(run(variant.name, one, row, device=device), row)
    assert same_bits(run(variant.name, row.T, one, device=device), row.T)
    zero = np.zeros((1, 1), np.float32)
    assert same_bits(run(variant.name, zero, row, C=row, beta=1, device=device), row)
    assert run(variant.name, one, one, alpha=3 * tiny, device=device)[0, 0] == 3 * tiny
    root = np.full((1, 1), 2.0**-74, np.float32)
    assert run(variant.name, root, root * np.float32(0.5), device=device)[0, 0] == tiny


def test_unreadable_pages(device, variants_on):
    """beta = 0 with an unreadable C, and alpha = 0 with unreadable A and B: reading such a page
    ends the process."""
    script = f"""
        import numpy as np
        from sgemm_kernels import run
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

        A, B, C = (np.ones(shape, np.float32) for shape in ((40, 30), (30, 50), (40, 50)))
        for name in {variants_on[device]!r}:
            for c in views(40, 50):
                assert np.all(run(name, A, B, C=c, beta=0, device={device!r}) == 30), name
            for a, b in zip(views(40, 30), views(30, 50)):
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
