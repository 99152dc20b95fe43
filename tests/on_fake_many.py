"""run_many with arrays on a GPU, over the fake CUDA runtime (test_on_gpu.py)."""

import ctypes
import gc

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import run, run_many

from .exporters import FAKES, GPU, ByExchange, core
from .on_fake_gpu import Capture
from .support import same_bits, uniform

SHAPES = [(37, 45, 30), (0, 4, 3), (1, 70, 9), (70, 1, 0), (20, 20, 20)]
KINDS = {**FAKES, "ByExchange": ByExchange}
core.fake_cuda_noted_calls.restype = ctypes.c_char_p


def lists(rng, shapes=SHAPES):
    """As, Bs and Cs for shapes (M, N, K)."""
    return (
        [uniform(rng, M, K) for M, _, K in shapes],
        [uniform(rng, K, N) for _, N, K in shapes],
        [uniform(rng, M, N) for M, N, _ in shapes],
    )


def exported(kind, arrays, **more):
    return [KINDS[kind](each, **more) for each in arrays]


def on_host(array):
    """The values after the work in the default stream, where an exchange library queues its own."""
    core.library_synchronize(1)
    return array.get() if hasattr(array, "get") else np.asarray(array)


def all_same_bits(results, expected):
    return all(same_bits(on_host(a), b) for a, b in zip(results, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["vec4", "simt", "auto"])
def test_the_results_are_those_of_run(rng, kind, name):
    As, Bs, Cs = lists(rng)
    expected = run_many(name, As, Bs, Cs, alpha=2, beta=3, device="cpu")
    arrays = [exported(kind, each) for each in (As, Bs, Cs)]
    results = run_many(name, *arrays, alpha=2, beta=3)
    library = ByExchange if kind == "ByExchange" else sgemm_kernels.DeviceArray
    assert {type(result) for result in results} == {library}
    assert all_same_bits(results, expected)
    out = exported(kind, [np.full_like(C, np.nan) for C in Cs])
    returned = run_many(name, *arrays, alpha=2, beta=3, out=out)
    assert all(a is b for a, b in zip(returned, out, strict=True))
    assert all_same_bits(out, expected)
    eyes = [np.eye(C.shape[1], dtype=np.float32) for C in Cs]
    units = exported(kind, eyes)  # kept until the work is done
    again = run_many(name, results, units)  # results as operands
    assert all_same_bits(again, run_many(name, expected, eyes, device="cpu"))
    assert all(each.capsules == 0 for some in arrays for each in some)


def test_one_shared_matrix(rng):
    As, Bs, _ = lists(rng, [(M, 30, 20) for M in (5, 0, 70)])
    shared = run("vec4", FAKES["ByDlpack"](np.eye(20, dtype="f4")), FAKES["ByDlpack"](Bs[0]))
    results = run_many("simt", exported("ByDlpack", As), shared)
    assert all_same_bits(results, run_many("simt", As, Bs[0], device="cpu"))


def calls_of(products):
    """The CUDA calls, after others."""
    gc.collect()
    sgemm_kernels.memory(empty=True)
    for _ in range(3):
        products()
    core.fake_cuda_note_calls()
    products()
    return core.fake_cuda_noted_calls().decode().splitlines()


@pytest.mark.parametrize(("name", "launches"), [("simt", 1), ("auto", 1), ("vec4", 64)])
def test_a_list_makes_as_few_cuda_calls_as_one_product(rng, name, launches):
    As, Bs, Cs = lists(rng, [(1 + n, 8, 5) for n in range(64)])
    launches = 64 if GPU == "hip" else launches
    a, b, c = (exported("ByExchange", each) for each in (As, Bs, Cs))
    calls = calls_of(lambda: run_many(name, a, b, out=c))
    assert calls.count("a launch") == launches
    assert len(calls) <= launches + 4, calls  # a session, and two questions about a capture
    results = run_many(name, exported("ByDlpack", As), exported("ByDlpack", Bs))
    turned = [each.T for each in results]
    stream = core.library_stream(0)
    calls = calls_of(lambda: run_many(name, results, turned, stream=stream))
    assert calls.count("a launch") == launches
    copies = 2 * 64 if name == "vec4" else 0  # it takes contiguous matrices: memory, and a copy
    # A session, two questions about a capture, the stream's ID, an event, memory of results.
    assert len(calls) <= launches + copies + 6 + 2 * 64, calls


def test_out_overlaps_operands_of_other_products(rng):
    As, Bs, Cs = lists(rng, [(40, 40, 40)] * 3)
    expected = run_many("simt", As, Bs, Cs, beta=1, device="cpu")
    a, b, c = (exported("ByDlpack", each) for each in (As, Bs, Cs))
    out = [a[2], c[0], b[0]]
    run_many("simt", a, b, c, beta=1, out=out)
    assert all_same_bits(out, expected)
    with pytest.raises(ValueError, match=r"out\[0\] and out\[2\] may share memory"):
        run_many("simt", a, b, out=[c[0], c[1], c[0]])


def test_copies_of_operands_and_results(rng):
    """Arrays whose rows and columns are not contiguous, also bytes in the other order."""
    As, Bs, Cs = lists(rng)
    expected = run_many("vec4", As, Bs, Cs, beta=2, device="cpu")

    def scattered(X):
        memory = np.zeros((2 * X.shape[0] + 1, 2 * X.shape[1] + 1), ">f4")
        view = memory[1::2, 1::2]
        view[...] = X
        return FAKES["ByInterface"](view, memory)

    a, b, c = ([scattered(X) for X in some] for some in (As, Bs, Cs))
    run_many("vec4", a, b, c, beta=2, out=c)
    assert all_same_bits(c, expected)


def test_places_of_arrays(rng):
    As, Bs, _ = lists(rng, [(3, 4, 5)] * 2)
    a, b = (exported("ByDlpack", each) for each in (As, Bs))
    elsewhere = [exported("ByDlpack", each, device=1)[1] for each in (As, Bs)]
    with pytest.raises(ValueError, match=rf"^product 1: its arrays are on {GPU}:1, but those of"):
        run_many("simt", [a[0], elsewhere[0]], [b[0], elsewhere[1]])
    with pytest.raises(ValueError, match=rf"^product 1: A is on {GPU}:0 and B is on {GPU}:1"):
        run_many("simt", a, [b[0], elsewhere[1]])
    with pytest.raises(TypeError, match=r"^product 1: its arrays are in host memory, but"):
        run_many("simt", [a[0], As[1]], [b[0], Bs[1]])
    with pytest.raises(TypeError, match=r"^product 1: A is on .* but B is a numpy.ndarray"):
        run_many("simt", a, [b[0], Bs[1]])
    assert not any(each.capsules for each in (*a, *b, *elsewhere))
    results = run_many("simt", elsewhere[:1], elsewhere[1:])
    assert results[0].device == f"{GPU}:1"


def test_a_bad_product_leaves_out_as_it_was(rng):
    As, Bs, Cs = lists(rng, [(3, 4, 5)] * 3)
    a, b, c = (exported("ByDlpack1", each) for each in (As, Bs, Cs))
    wrong = FAKES["ByDlpack1"](Bs[2].T.copy())
    with pytest.raises(ValueError, match=r"^product 2: A is \(3, 5\) and B is \(4, 5\)"):
        run_many("simt", a, [*b[:2], wrong], out=c)
    with pytest.raises(TypeError, match=r"^product 2: B has dtype float64"):
        run_many("simt", a, [*b[:2], FAKES["ByDlpack1"](Bs[2].astype(float))], out=c)
    assert all_same_bits(c, Cs)
    assert not any(each.capsules for each in (*a, *b, *c, wrong))


def test_a_list_is_captured(rng):
    As, Bs, Cs = lists(rng, [(9, 8, 7), (30, 20, 10)])
    a, b, c = (exported("ByDlpack", each) for each in (As, Bs, Cs))
    run_many("simt", a, b, out=c)
    out = exported("ByDlpack", [np.zeros_like(C) for C in Cs])
    squares = exported("ByDlpack", [uniform(rng, 5, 5) for _ in "ab"])
    capture = Capture()
    with capture as stream:
        run_many("simt", a, b, out=out, stream=stream)
        with pytest.raises(ValueError, match=r"captured .* pass out=, arrays that you keep"):
            run_many("simt", a, b, stream=stream)
        with pytest.raises(ValueError, match=r"captured .* without overlap"):
            run_many("simt", squares, squares[::-1], out=squares, stream=stream)
    assert not any(each.get().any() for each in out)
    capture.replay()
    assert all_same_bits(out, run_many("simt", As, Bs, device="cpu"))


def test_all_gpus(rng):
    As, Bs, _ = lists(rng, [(1500, 600, 20), (3, 4, 5)])
    expected = run_many("vec4", As, Bs, device="cpu")
    a, b = (exported("ByDlpack", each) for each in (As, Bs))
    assert all_same_bits(run_many("vec4", a, b, device=f"{GPU}:all"), expected)
    assert all_same_bits(run_many("vec4", As, Bs, device=f"{GPU}:all"), expected)
    assert all_same_bits(run_many("simt", As, Bs, device=GPU),
                         run_many("simt", As, Bs, device="cpu"))  # fmt: skip
    with pytest.raises(ValueError, match="stream belongs to one GPU"):
        run_many("vec4", a, b, device=f"{GPU}:all", stream=core.library_stream(0))


@pytest.mark.parametrize("code", [2, 999])
@pytest.mark.parametrize("name", ["simt", "vec4"])
def test_every_cuda_call_may_fail(rng, name, code):
    As, Bs, Cs = lists(rng)
    a, b, c = (exported("ByDlpack", each) for each in (As, Bs, Cs))
    expected = run_many(name, As, Bs, Cs, beta=1, device="cpu")

    def live():
        gc.collect()
        sgemm_kernels.memory(empty=True)
        return core.fake_cuda_live(0), core.fake_cuda_handles()

    results = run_many(name, a, b, c, beta=1)
    del results
    before, failures = live(), 0
    for number in range(1, 200):
        core.fake_cuda_fail(number, code)
        try:
            results = run_many(name, a, b, c, beta=1)
        except sgemm_kernels.Error:
            failures += 1
        except ValueError:  # a GPU of unknown compute capability is not usable
            assert core.fake_cuda_failed_call() == f"{GPU}DeviceGetAttribute".encode()
        failed = core.fake_cuda_failed_call()
        core.fake_cuda_fail(0, 0)
        if not failed:
            break
    assert failures
    assert number < 199
    assert all_same_bits(results, expected)
    del results
    assert live() == before
