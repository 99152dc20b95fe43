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


def test_arrays_of_their_own(rng):
    """Each group has its own memory, in any order; one is twice in the list."""
    tokens, weights = tokens_and_weights(rng, True)
    groups = [rows.copy() for rows in rows_of(tokens)]
    weights = [np.asarray(weight.T.copy()).T for weight in weights]
    for order in (range(9), [8, 5, 4, 1, 0], [1, 1, 3, 3, 5]):
        chosen = [[each[n] for n in order] for each in (groups, weights)]
        out = [np.full((len(rows), N), 7, np.float32) for rows in chosen[0]]
        assert "fused" in launched_by(*chosen, out)
        assert worst_share(out, *chosen) <= 1


@pytest.mark.parametrize("k_major", [True, False])
def test_a_tile_reads_nothing_behind_a_matrix(rng, k_major):
    """Neither rows of a tile nor steps of a K chunk that the matrix lacks."""
    tokens, _ = tokens_and_weights(rng, True, k=500)
    stack = np.full((len(SIZES), 600, 600), np.nan, np.float32)
    weights = list(stack[:, :100, :500].mT if k_major else stack[:, :500, :100])
    for weight in weights:
        weight[:] = uniform(rng, 500, 100)
    out = rows_of(np.empty((len(tokens), 100), np.float32))
    assert "fused" in launched_by(rows_of(tokens), weights, out)
    assert worst_share(out, rows_of(tokens), weights) <= 1


def test_what_is_not_one_launch(rng):
    """Other factors and other sizes of the weights."""
    tokens, weights = tokens_and_weights(rng, True)
    groups = rows_of(tokens)
    weights[4] = uniform(rng, N + 4, K).T
    out = [
        np.empty((len(rows), weight.shape[1]), np.float32)
        for rows, weight in zip(groups, weights, strict=True)
    ]
    launched_by(groups, weights, out)
    assert worst_share(out, groups, weights) <= 1
