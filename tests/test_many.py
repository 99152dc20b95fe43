"""run_many: products of different shapes in one call."""

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, run, run_many
from sgemm_kernels._accuracy import expect

from .support import (
    LAYOUTS,
    same_bits,
    uniform,
    with_header,
)

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
RAGGED = [(1, 1, 1), (0, 5, 3), (4, 0, 3), (7, 5, 0), (130, 65, 70), (3, 300, 41), (300, 3, 129)]
RAGGED += [(40, 35, 300)]  # on tensor cores in all their rungs


def lists(rng, shapes):
    """As, Bs and Cs for shapes (M, N, K)."""
    return (
        [uniform(rng, M, K) for M, _, K in shapes],
        [uniform(rng, K, N) for _, N, K in shapes],
        [uniform(rng, M, N) for M, N, _ in shapes],
    )


def worst_share(results, As, Bs, Cs=None, **factors):
    """The largest share of the error bound in all products."""
    assert len(results) == len(As)
    shares = []
    for n, result in enumerate(results):
        assert result.shape == (As[n].shape[0], Bs[n].shape[1])
        assert result.dtype in (np.dtype("<f4"), np.dtype(">f4"))
        C = None if Cs is None else Cs[n]
        shares.append(expect(As[n], Bs[n], C=C, **factors).worst_share(result))
    return max(shares)


def all_same_bits(some, others):
    return all(same_bits(a, b) for a, b in zip(some, others, strict=True))


@pytest.fixture
def like_gpu(monkeypatch):
    """Makes the CPU device plan like a GPU with this many multiprocessors."""
    return lambda count: monkeypatch.setenv(SETTING, str(count))


# ---------------------------------------------------------------------------- results


def test_every_variant(variant, device, rng):
    As, Bs, Cs = lists(rng, RAGGED)
    assert worst_share(run_many(variant.name, As, Bs, device=device), As, Bs) <= 1
    factors = {"alpha": 0.3, "beta": -2.0}
    results = run_many(variant.name, As, Bs, Cs, device=device, **factors)
    assert worst_share(results, As, Bs, Cs, **factors) <= 1


def test_a_rung_has_the_bits_of_run(rung, device, rng):
    As, Bs, Cs = lists(rng, [*RAGGED, (70, 33, 600)])
    results = run_many(rung.name, As, Bs, Cs, beta=0.5, device=device)
    single = [
        run(rung.name, A, B, C=C, beta=0.5, device=device)
        for A, B, C in zip(As, Bs, Cs, strict=True)
    ]
    assert all_same_bits(results, single)


@pytest.mark.parametrize("name", ["simt", "auto"])
@pytest.mark.parametrize("multiprocessors", [1, 132])
def test_plans_of_a_gpu(like_gpu, rng, name, multiprocessors):
    """Random shapes, layouts and factors: all configurations, and products that are launched
    singly."""
    like_gpu(multiprocessors)
    _core._launched(True)
    for trial in range(8):
        count, most = (60, 40) if trial % 2 else (9, 300)
        shapes = [tuple(rng.integers(0, most, 3)) for _ in range(count)]
        As, Bs, Cs = lists(rng, [(*map(int, shape),) for shape in shapes])
        for operands in (As, Bs, Cs):
            for n, layout in enumerate(rng.choice(list(LAYOUTS), count)):
                operands[n] = LAYOUTS[layout].place(operands[n])[0]
        factors = {"alpha": 1.0 if trial < 4 else -0.7, "beta": 0.0 if trial < 6 else 1.5}
        results = run_many(name, As, Bs, Cs, device="cpu", **factors)
        assert worst_share(results, As, Bs, Cs, **factors) <= 1, trial
        again = run_many(name, As, Bs, Cs, device="cpu", **factors)
        assert all_same_bits(results, again), trial
    assert "grouped" in _core._launched(False)


@pytest.mark.parametrize(("M", "N", "layout"), [(64, 64, "C"), (128, 128, "F")])
def test_many_products_share_a_launch(like_gpu, rng, M, N, layout):
    """Together they fill the GPU, so no product divides K: each result is a sum in the order of K,
    as in naive. For one product simt divides K."""
    like_gpu(1)
    As, Bs, _ = lists(rng, [(M, N, 500)] * 8)
    Bs = [np.asarray(B, order=layout) for B in Bs]
    naive = [run("naive", A, B, device="cpu") for A, B in zip(As, Bs, strict=True)]
    assert all_same_bits(run_many("simt", As, Bs, device="cpu"), naive)
    if M == 64:
        assert not same_bits(run("simt", As[0], Bs[0], device="cpu"), naive[0])


@pytest.mark.parametrize("shape", [(3, 200, 90), (200, 3, 90), (16, 128, 64), (1, 1, 40)])
def test_more_products_than_fit_in_a_launch(like_gpu, rng, shape):
    like_gpu(2)
    As, Bs, _ = lists(rng, [shape] * 700)
    assert worst_share(run_many("simt", As, Bs, device="cpu"), As, Bs) <= 1


def test_large_products_between_small_ones_run_on_tensor_cores(like_gpu, rng):
    like_gpu(4)
    shapes = [(5, 256, 512)] * 5 + [(512, 256, 512)] + [(9, 256, 512)] * 5
    As, Bs, _ = lists(rng, shapes)
    results = run_many("auto", As, Bs, device="cpu")
    assert worst_share(results, As, Bs) <= 1
    tensor_cores = [run(name, As[5], Bs[5], device="cpu") for name in ("waves", "fused")]
    assert any(same_bits(results[5], each) for each in tensor_cores)
    assert all_same_bits(run_many("simt", As, Bs, device="cpu")[:5], results[:5])


def test_products_that_differ_by_their_places_are_one_batch(like_gpu, rng, monkeypatch):
    """The batch runs on tensor cores, but none of its products would. In another order they are
    groups (test_groups.py)."""
    like_gpu(12)
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")
    rows, weights = uniform(rng, 12, 64, 1024), uniform(rng, 12, 256, 1024)
    As, Bs = [uniform(rng, 9, 40), *rows], [uniform(rng, 40, 7), *weights.mT]
    out = np.full((12, 65, 260), 7, np.float32)
    outs = [np.empty((9, 7), np.float32), *out[:, :64, :256]]
    for order in (range(13), (0, 1, 3, 6, 10, 2)):
        _core._launched(True)
        try:
            chosen = [[each[n] for n in order] for each in (As, Bs, outs)]
            run_many("auto", *chosen[:2], out=chosen[2], device="cpu")
        finally:
            launched = _core._launched(False)
        assert launched & {"waves", "fused"}, launched
        assert worst_share(chosen[2], *chosen[:2]) <= 1
    assert (out[:, :64, 256:] == 7).all()
    assert (out[:, 64] == 7).all()
    # A tile of a batch may read behind a matrix, where another allocation need not have memory.
    apart = list(uniform(rng, 12, 1025, 64)[:, :-1].mT)
    Bs[1:] = uniform(rng, 12, 1024, 256)
    _core._launched(True)
    try:
        run_many("auto", apart, Bs[1:], out=outs[1:], device="cpu")
    finally:
        assert not _core._launched(False) & {"waves", "fused"}
    assert worst_share(outs[1:], apart, Bs[1:]) <= 1


@pytest.mark.parametrize("multiprocessors", [None, 132])
def test_special_values_stay_in_their_product(like_gpu, device, rng, multiprocessors):
    if multiprocessors:
        like_gpu(multiprocessors)
    As, Bs, _ = lists(rng, [(20, 10, 33), (7, 50, 300), (1, 9, 4), (40, 40, 40)])
    As[0][2, 3], As[1][0, 0], Bs[1][5, 6], Bs[3][0] = np.nan, np.inf, -np.inf, np.nan
    for name in ("naive", "simt", "auto"):
        assert worst_share(run_many(name, As, Bs, device=device), As, Bs) <= 1, name


@pytest.mark.parametrize("name", ["vec4", "auto"])
def test_a_shared_operand(device, rng, name):
    As, Bs, _ = lists(rng, [(M, 30, 20) for M in (5, 0, 70)])
    shared = run_many(name, As, Bs[0], device=device)
    assert all_same_bits(shared, run_many(name, As, [Bs[0]] * 3, device=device))
    transposed = run_many(name, Bs[0].T, [A.T for A in As], device=device)
    assert worst_share(transposed, [Bs[0].T] * 3, [A.T for A in As]) <= 1


def test_nothing_to_compute(device, rng):
    assert run_many("auto", [], [], device=device) == []
    assert run_many("auto", [], uniform(rng, 3, 4), device=device) == []
    assert run_many("auto", (), (), (), beta=1, out=[], device=device) == []
    As, Bs, Cs = lists(rng, [(3, 4, 0), (0, 4, 5), (2, 2, 2)])
    results = run_many("auto", As, Bs, Cs, alpha=0, beta=2, device=device)
    assert all_same_bits(results, [2 * C for C in Cs])


# ---------------------------------------------------------------------------- out


@pytest.mark.parametrize("multiprocessors", [None, 132])
@pytest.mark.parametrize("name", ["tile2d", "simt"])
def test_out_of_any_layout(like_gpu, device, rng, name, multiprocessors):
    if multiprocessors:
        like_gpu(multiprocessors)
    layouts = [layout for layout in LAYOUTS.values() if layout.writeable]
    As, Bs, Cs = lists(rng, [(30 + n, 50 - n, 20) for n in range(len(layouts))])
    out = [layout.place(np.full_like(C, np.nan))[0] for layout, C in zip(layouts, Cs, strict=True)]
    results = run_many(name, As, Bs, Cs, beta=2, out=out, device=device)
    assert all(result is each for result, each in zip(results, out, strict=True))
    assert worst_share(results, As, Bs, Cs, beta=2) <= 1
    in_place = [C.copy() for C in Cs]
    run_many(name, As, Bs, in_place, beta=2, out=in_place, device=device)
    assert all_same_bits(in_place, run_many(name, As, Bs, Cs, beta=2, device=device))


@pytest.mark.parametrize("name", ["tile2d", "simt"])
@pytest.mark.parametrize("multiprocessors", [None, 132])
def test_out_overlaps_operands_of_other_products(like_gpu, device, rng, name, multiprocessors):
    """The results are as if all operands had been copied before."""
    if multiprocessors:
        like_gpu(multiprocessors)
    As, Bs, Cs = lists(rng, [(40, 40, 40)] * 4)
    expected = run_many(name, As, Bs, Cs, beta=1, device=device)
    # Each result replaces an operand that the next product reads, or one before.
    for out in (
        [As[1], Bs[2], Cs[3], Cs[0]],
        [Cs[1], Cs[0], Cs[2], As[0]],
        [As[3], As[2], As[1], As[0]],
    ):
        arrays = {id(X): X.copy() for X in (*As, *Bs, *Cs)}
        a, b, c, results = ([arrays[id(X)] for X in some] for some in (As, Bs, Cs, out))
        run_many(name, a, b, c, beta=1, out=results, device=device)
        assert all_same_bits(results, expected)


def test_out_may_be_parts_of_one_array(device, rng):
    As, Bs, _ = lists(rng, [(9, N, 20) for N in (5, 1, 8)])
    whole = np.full((9, 16), np.nan, np.float32)
    columns = [whole[:, :5], whole[:, 5:6], whole[:, 8:]]
    run_many("simt", As, Bs, out=columns, device=device)
    assert worst_share(columns, As, Bs) <= 1
    assert np.isnan(whole[:, 6:8]).all()
    rows = np.full((20, 30), np.nan, np.float32)
    As, Bs, _ = lists(rng, [(M, 30, 6) for M in (11, 0, 9)])
    run_many("simt", As, Bs, out=[rows[:11], rows[11:11], rows[11:]], device=device)
    assert worst_share([rows[:11], rows[11:11], rows[11:]], As, Bs) <= 1


@pytest.mark.parametrize(
    "parts",
    [
        lambda X: (X, X),
        lambda X: (X[:5], X[4:]),
        lambda X: (X[:, :5], X[:, 4:]),
        lambda X: (X[:5].T, X[4:].T),
        lambda X: (X[4:], X[:5]),
        lambda X: (X[:, 4:], X[:, :5]),
        lambda X: (X[1:4, 2:6], X[::-1][4:8, :4]),
    ],
)
def test_outs_that_share_memory_are_refused(device, rng, parts):
    memory = np.zeros((9, 9), np.float32)
    out = [np.zeros((2, 2), np.float32), *parts(memory)]
    As, Bs, _ = lists(rng, [(*X.shape, 3) for X in out])
    with pytest.raises(ValueError, match=r"out\[1\] and out\[2\] may share memory: pass "):
        run_many("auto", As, Bs, out=out, device=device)
    assert not memory.any()
    assert not out[0].any()


# ---------------------------------------------------------------------------- refused calls


def test_the_product_is_named_and_nothing_is_computed(device, rng):
    As, Bs, Cs = lists(rng, [(3, 4, 5), (6, 7, 8), (2, 2, 2)])
    out = [np.full_like(C, 7) for C in Cs]
    read_only = Cs[2].copy()
    read_only.flags.writeable = False

    def refused(error, message, **changed):
        arguments = {"As": As, "Bs": Bs, "Cs": Cs, "out": out, **changed}
        with pytest.raises(error, match=message):
            run_many("auto", **arguments, beta=1, device=device)
        assert all((X == 7).all() for X in out)

    def last(X, some):
        return [*some[:2], X]

    refused(TypeError, "^product 2: A has dtype float64, but", As=last(As[2].astype(float), As))
    refused(TypeError, "^product 2: B must be a numpy.ndarray", Bs=last([[1]], Bs))
    refused(ValueError, r"^product 2: A is \(2, 2\) and B is \(3, 2\): A's 2 columns must match",
            Bs=last(uniform(rng, 3, 2), Bs))  # fmt: skip
    refused(ValueError, r"^product 2: C is \(2, 3\) but the result is \(2, 2\)",
            Cs=last(uniform(rng, 2, 3), Cs))  # fmt: skip
    refused(ValueError, r"^product 2: out is \(2, 3\) but", out=last(uniform(rng, 2, 3), out))
    refused(ValueError, "^product 2: out is read-only", out=last(read_only, out))
    refused(ValueError, "^product 2: A and B must be matrices", As=last(As[2][np.newaxis], As))
    with pytest.raises(ValueError, match=r"^product 2: A and B must be matrices"):
        run_many("auto", As, last(Bs[2][0], Bs), device=device)
    refused(TypeError, r"^Cs\[2\] is None: pass an array for each product", Cs=last(None, Cs))
    refused(ValueError, "^As has 3 arrays but Bs has 2: pass one for each product", Bs=Bs[:2])
    refused(ValueError, "^As has 3 arrays but out has 2", out=out[:2])
    refused(TypeError, "^Cs must be a list with an array for each product, not ndarray", Cs=Cs[0])
    refused(TypeError, r"^As and Bs are both single arrays: pass .* or call run\(\)",
            As=As[0], Bs=Bs[0])  # fmt: skip


def test_the_call_is_checked_as_for_run(device, rng):
    As, Bs, Cs = lists(rng, [(3, 4, 5)] * 2)
    with pytest.raises(ValueError, match="beta is 1 but C is missing"):
        run_many("auto", As, Bs, beta=1, device=device)
    with pytest.warns(UserWarning, match="C is ignored") as warned:
        run_many("auto", As, Bs, Cs, device=device)
    assert len(warned) == 1
    with pytest.raises(ValueError, match="omit stream"):
        run_many("auto", As, Bs, stream=1, device=device)
    with pytest.raises(ValueError, match="no variant"):
        run_many("nonsense", As, Bs, device=device)
    with pytest.raises(TypeError, match=r"alpha must be a real number"):
        run_many("auto", As, Bs, alpha="1", device=device)
    with pytest.raises(TypeError, match=r"^product 0: B is a prepared matrix"):
        run_many("auto", As, sgemm_kernels.prepare(Bs[0], device=device), device=device)


def test_a_custom_kernel_multiplies_each_pair(rng, custom_cache):
    kernel = sgemm_kernels.kernel(with_header("naive"), name="mine")
    As, Bs, Cs = lists(rng, [(3, 4, 5), (6, 7, 8)])
    out = [np.empty_like(C) for C in Cs]
    results = run_many(kernel, As, Bs, Cs, beta=1, out=out, device="cpu")
    assert all(result is each for result, each in zip(results, out, strict=True))
    assert worst_share(results, As, Bs, Cs, beta=1) <= 1
    with pytest.raises(ValueError, match=r"^product 1: A is"):
        run_many(kernel, As, [Bs[0], Bs[0]], device="cpu")
