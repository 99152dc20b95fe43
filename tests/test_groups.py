"""Groups of rows or columns of different sizes, each with a matrix of its own, are one launch of
`fused`: the products of a mixture of experts."""

import numpy as np
import pytest

from sgemm_kernels import _core, run_many

from .support import same_bits, uniform
from .test_many import worst_share

SIZES = [33, 95, 0, 64, 1, 130, 1, 0, 77]
N, K = 128, 512


@pytest.fixture(autouse=True)
def planned(monkeypatch):
    """The plans of a GPU, on the CPU device, without copies of operands."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "4")
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")


def rows_of(matrix, sizes=SIZES):
    return np.split(matrix, np.cumsum(sizes)[:-1])


def tokens_and_weights(rng, k_major, sizes=SIZES, n=N, k=K):
    """All tokens, and a matrix for each group."""
    tokens = uniform(rng, sum(sizes), k)
    shape = (n, k) if k_major else (k, n)
    stack = uniform(rng, len(sizes), *shape)
    return tokens, list(stack.mT if k_major else stack)


def launched_by(As, Bs, out, *Cs, **factors):
    _core._launched(True)
    try:
        run_many("auto", As, Bs, *Cs, out=out, device="cpu", **factors)
    finally:
        launched = _core._launched(False)
    return launched


@pytest.mark.parametrize("k_major", [True, False])
def test_groups_of_rows(rng, k_major):
    tokens, weights = tokens_and_weights(rng, k_major)
    outs = []
    for _ in range(2):
        padded = np.full((len(tokens) + 1, N + 4), 7, np.float32)
        out = rows_of(padded[:-1, :N])
        assert launched_by(rows_of(tokens), weights, out) == {
            "split_whole_rows",
            "fused",
            "recompute",
        }
        assert worst_share(out, rows_of(tokens), weights) <= 1
        assert (padded[:, N:] == 7).all()
        assert (padded[-1] == 7).all()
        outs.append(padded)
    assert same_bits(*outs)


def test_groups_of_columns(rng):
    sizes = [5, 130, 0, 64, 99]
    tokens, weights = tokens_and_weights(rng, True, sizes)
    columns = [rows.T for rows in rows_of(tokens, sizes)]
    out = np.split(np.empty((N, sum(sizes)), np.float32), np.cumsum(sizes)[:-1], axis=1)
    stacks = [weight.T for weight in weights]
    assert "fused" in launched_by(stacks, columns, out)
    assert worst_share(out, stacks, columns) <= 1


@pytest.mark.parametrize("in_place", [True, False])
def test_alpha_and_beta(rng, in_place):
    tokens, weights = tokens_and_weights(rng, True)
    old = uniform(rng, len(tokens), N)
    result = old.copy() if in_place else np.empty_like(old)
    Cs = rows_of(result if in_place else old)
    factors = {"alpha": -0.7, "beta": 1.5}
    assert "fused" in launched_by(rows_of(tokens), weights, rows_of(result), Cs, **factors)
    assert worst_share(rows_of(result), rows_of(tokens), weights, rows_of(old), **factors) <= 1


@pytest.mark.parametrize("k_major", [True, False])
def test_what_fails_the_check_is_computed_again(rng, k_major):
    """Two rows of a group fail it, and all rows of another one."""
    tokens, weights = tokens_and_weights(rng, k_major)
    groups = rows_of(tokens)
    for weight in weights:
        weight[3] = 0
    groups[0][7:9, 3] = 2.0**24
    groups[5][:, 3] = 2.0**24
    groups[8][5, 9] = np.nan
    groups[8][6, 9] = np.inf
    weights[1][20, 11] = np.inf
    out = rows_of(np.full((len(tokens), N), 7, np.float32))
    assert "fused" in launched_by(groups, weights, out)
    assert worst_share(out, groups, weights) <= 1


@pytest.mark.thorough
def test_more_groups_than_a_launch_has(rng, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "1")
    sizes = [1 + n % 3 for n in range(300)]
    tokens, weights = tokens_and_weights(rng, True, sizes)
    out = rows_of(np.full((sum(sizes), N), 7, np.float32), sizes)
    assert "fused" in launched_by(rows_of(tokens, sizes), weights, out)
    assert worst_share(out, rows_of(tokens, sizes), weights) <= 1


def test_rows_that_do_not_follow_each_other(rng):
    """Groups apart from each other, or in another order, and one that is twice in the list."""
    tokens, weights = tokens_and_weights(rng, True)
    result = np.empty((len(tokens), N), np.float32)
    groups, out = rows_of(tokens), rows_of(result)
    for order in ([0, 1, 4, 5, 8], [8, 5, 4, 1, 0], [0, 1, 3, 4, 5, 6, 8]):
        lists = [[each[n] for n in order] for each in (groups, weights, out)]
        launched_by(*lists)
        assert worst_share(lists[2], *lists[:2]) <= 1
    out = rows_of(np.empty((5 * 95, N), np.float32), [95] * 5)
    launched_by([groups[1]] * 5, weights[:5], out)
    assert worst_share(out, [groups[1]] * 5, weights[:5]) <= 1


def test_a_tile_reads_no_memory_behind_a_matrix(rng):
    """TMA loads 128 rows of weights. If others follow at once, that is memory of the next group;
    otherwise another allocation need not have memory there."""
    sizes = [size for size in SIZES if size]
    tokens, weights = tokens_and_weights(rng, True, sizes)
    out = rows_of(np.empty((len(tokens), N - 28), np.float32), sizes)
    groups = rows_of(tokens, sizes)
    apart = [weight[:, :-28] for weight in weights]
    assert "fused" not in launched_by(groups, apart, out)
    assert worst_share(out, groups, apart) <= 1
    next_to_each_other = list(np.stack([weight.T for weight in apart]).mT)
    assert "fused" in launched_by(groups, next_to_each_other, out)
    assert worst_share(out, groups, next_to_each_other) <= 1
