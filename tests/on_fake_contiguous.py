"""A kernel that takes contiguous row-major matrices gets copies of others: on_fake_gpu.py's tests
of csrc/runtime/cuda/contiguous.cu. The kernels of the fake runtime read past the gaps otherwise."""

import contextlib
import ctypes
import os
import signal
import threading

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import run
from sgemm_kernels.measuring.measure import measure

from .exporters import FAKES, GPU, core, refused
from .on_fake_gpu import Capture, held_stream, little_memory
from .support import same_bits, uniform

core.fake_cuda_noted_calls.restype = ctypes.c_char_p
M, N, K = 37, 45, 31


def with_gaps(values, axis=-1):
    """The values as a view of a larger array, and that array."""
    memory = np.repeat(values, 2, axis)
    return memory[..., ::2] if axis == -1 else memory[..., ::2, :], memory


def reversed_along(values, axis):
    memory = np.flip(values, axis).copy()
    return np.flip(memory, axis), memory


def wide(values):
    memory = np.full((*values.shape[:-1], values.shape[-1] + 3), np.nan, np.float32)
    memory[..., :-3] = values
    return memory[..., :-3], memory


def by_columns(values):
    memory = values.swapaxes(-1, -2).copy()
    return memory.swapaxes(-1, -2), memory


VIEWS = {
    "contiguous": lambda values: (values, values),
    "wide": wide,
    "columns": by_columns,
    "wide columns": lambda values: (wide(values.swapaxes(-1, -2))[0].swapaxes(-1, -2),) * 2,
    "columns ::2": with_gaps,
    "rows ::2": lambda values: with_gaps(values, -2),
    "rows ::-1": lambda values: reversed_along(values, -2),
    "columns ::-1": lambda values: reversed_along(values, -1),
}
NAMES = list(VIEWS)


def on_gpu(values, view):
    matrix, memory = VIEWS[view](values)
    base = memory if memory.base is None else memory.base
    return FAKES["ByInterface"](matrix, base)


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


def noted(call):
    core.fake_cuda_note_calls()
    call()
    return core.fake_cuda_noted_calls().decode().splitlines()


@contextlib.contextmanager
def nothing_left():
    """All memory that the package took goes back, but for arrays that remain."""
    sgemm_kernels.memory(empty=True)
    before = core.fake_cuda_live(0)
    yield
    sgemm_kernels.memory(empty=True)
    assert core.fake_cuda_live(0) == before


# ---------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("shape", [(), (5,)], ids=["one", "batch"])
def test_operands_of_every_layout(rng, shape):
    """On the GPU and on the host, C in place and not, with sizes that are no multiples of 4."""
    A, B, C = (uniform(rng, *shape, *each) for each in ((M, K), (K, N), (M, N)))
    for name in ("naive", "tile2d", "warptile"):
        expected = run(name, A, B, C=C, alpha=0.3, beta=0.7, device="cpu")
        for number, view in enumerate(NAMES):
            views = [NAMES[(number + step) % len(NAMES)] for step in (0, 1, 3)]
            a, b, c = (on_gpu(X, each) for X, each in zip((A, B, C), views, strict=True))
            out = on_gpu(np.full_like(C, np.nan), view)
            for target in (out, c):
                run(name, a, b, C=c, alpha=0.3, beta=0.7, out=target)
                core.library_synchronize(1)
                assert same_bits(target.get(), expected), (name, views)
            a, b, c = (VIEWS[each](X.copy())[0] for X, each in zip((A, B, C), views, strict=True))
            run(name, a, b, C=c, alpha=0.3, beta=0.7, out=c, device=GPU)
            assert same_bits(c, expected), (name, views)


@pytest.mark.parametrize("sizes", [(M, N, 0), (M, 1, K), (1, N, K), (M, N, 1), (1, 1, 1)])
def test_thin_and_empty_operands(rng, sizes):
    m, n, k = sizes
    A, B, C = uniform(rng, m, k), uniform(rng, k, n), uniform(rng, m, n)
    expected = run("warptile", A, B, C=C, beta=2, device="cpu")
    for view in NAMES:
        a, b, c = (on_gpu(X, view) for X in (A, B, C))
        assert same_bits(np.asarray(run("warptile", a, b, C=c, beta=2)), expected), view
        a, b, c = (VIEWS[view](X)[0] for X in (A, B, C))
        assert same_bits(run("warptile", a, b, C=c, beta=2, device=GPU), expected), view


def test_only_what_has_gaps_is_copied_and_once_for_a_whole_batch(rng):
    A, B, stack = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, 5, M, K)
    out = FAKES["ByInterface"](np.zeros((5, M, N), np.float32))

    def copies(a, b, out):
        return noted(lambda: run("tile2d", a, b, out=out)).count("launch_strided_copy")

    plain = [on_gpu(X, "contiguous") for X in (A, B, stack)]
    columns = [on_gpu(X, "columns") for X in (A, B, stack)]
    single = FAKES["ByInterface"](np.zeros((M, N), np.float32))
    assert copies(plain[0], plain[1], single) == 0
    assert copies(columns[0], plain[1], single) == 1
    assert copies(columns[0], columns[1], on_gpu(np.zeros((M, N), np.float32), "wide")) == 3
    assert copies(plain[2], columns[1], out) == 1
    assert copies(columns[2], columns[1], out) == 6


def test_small_arrays_of_the_host_are_gathered_without_gaps(operands):
    A, B, C = (by_columns(X)[0] for X in operands)
    stack = np.stack([A, A])
    for a, c in ((A, C), (stack, np.stack([C, C]))):
        calls = noted(lambda a=a, c=c: run("vec4", a, B, C=c, beta=1, device=GPU))
        assert "a launch" in calls
        assert "launch_strided_copy" not in calls


def test_no_copy_is_timed():
    """No size is a multiple of 4, so all matrices have gaps."""
    begun = "cudaEventRecord" if GPU == "cuda" else "hipEventRecord"
    calls = noted(lambda: measure("tile2d", (M, N, K), seconds=0.01, device=GPU))
    assert "launch_strided_copy" in calls
    events = [place for place, call in enumerate(calls) if call == "a timing event"]
    for begin, end in zip(events[::2], events[1::2], strict=True):
        assert calls[begin:end] == ["a timing event", "a launch", begun]


# ---------------------------------------------------------------------------- streams, graphs


def test_copies_of_two_streams_are_apart(operands):
    A, B, C = operands
    (first, is_open), second = held_stream(), core.library_stream(0)
    wanted, calls = [], []
    for stream, scale in ((first, 1), (second, 2)):
        a, b = on_gpu(A * scale, "columns"), on_gpu(B, "columns")
        out = FAKES["ByInterface"](C)
        run("vec4", a, b, out=out, stream=stream)
        wanted.append(run("vec4", A * scale, B, device="cpu"))
        calls.append((a, b, out))
    core.library_synchronize(second)
    is_open.value = 1
    core.library_synchronize(first)
    for (*_, out), expected in zip(calls, wanted, strict=True):
        assert same_bits(out.get(), expected)


def test_copies_in_a_graph_are_made_at_each_replay(operands):
    A, B, C = operands
    a, b, c = (on_gpu(X, "columns") for X in operands)
    out, capture = on_gpu(C, "wide"), Capture()
    in_place = on_gpu(C, "wide")
    with nothing_left():
        with capture as stream:
            run("prefetch", a, b, C=c, beta=0.5, out=out, stream=stream)
            run("prefetch", a, b, C=in_place, beta=1, out=in_place, stream=stream)
        expected = C
        for factor in (1, 2):
            content = core.fake_cuda_content(a.address, a.memory.nbytes)
            scaled = np.ascontiguousarray((A * np.float32(factor)).T)
            ctypes.memmove(content, scaled.ctypes.data, scaled.nbytes)
            capture.replay()
            now = run("prefetch", A * np.float32(factor), B, C=C, beta=0.5, device="cpu")
            assert same_bits(out.get(), now)
            expected = run("prefetch", A * np.float32(factor), B, C=expected, beta=1, device="cpu")
            assert same_bits(in_place.get(), expected)


def test_a_graph_without_memory_pools_takes_contiguous_matrices(operands):
    a, b = (on_gpu(X, "contiguous") for X in operands[:2])
    out, column_major = FAKES["ByInterface"](operands[2]), on_gpu(operands[1], "columns")
    capture = Capture()
    core.fake_cuda_set_pools(0)
    try:
        with capture as stream:
            fact = "'warptile' with contiguous row-major arrays"
            refused(ValueError, "memory pools", fact, A=a, B=column_major, out=out, stream=stream)
            run("vec4", a, b, out=out, stream=stream)
    finally:
        core.fake_cuda_set_pools(1)
    capture.replay()
    assert same_bits(out.get(), run("vec4", *operands[:2], device="cpu"))


# ---------------------------------------------------------------------------- failures


def batch_in_place(rng):
    """Operands whose sums are exact, the call on them, and whether C is right after it."""
    A, B, C = (
        rng.integers(-8, 9, shape).astype(np.float32)
        for shape in ((4, 60, 50), (50, 70), (4, 60, 70))
    )
    expected = A @ B + C
    a, b, c = (
        on_gpu(X, view) for X, view in zip((A, B, C), ("columns", "wide", "wide"), strict=True)
    )
    start = c.memory.read().copy()

    def call(out=c):
        content = core.fake_cuda_content(c.memory.address, c.memory.nbytes)
        ctypes.memmove(content, start.ctypes.data, start.nbytes)
        run("tile2d", a, b, C=c, beta=1, out=out)
        core.library_synchronize(1)

    return call, lambda: np.array_equal(c.get(), expected)


@pytest.mark.parametrize("error", [2, 999], ids=["memory", "unknown"])
def test_each_runtime_call_of_a_batch_fails_in_turn(rng, error):
    """Without memory the batch goes on where it stopped, and adds no product to C twice."""
    call, is_right = batch_in_place(rng)
    call()
    assert is_right()
    outcomes = set()
    with nothing_left():
        for turn in range(1, 1000):
            core.fake_cuda_fail(turn, error)
            try:
                call()
            except sgemm_kernels.DeviceError:
                outcomes.add("raised")
            else:
                assert is_right(), (turn, core.fake_cuda_failed_call())
                outcomes.add("right")
            failed = core.fake_cuda_failed_call()
            core.fake_cuda_fail(0, 0)
            if not failed:
                break
        call()
        assert is_right()
    assert outcomes == {"raised", "right"}


def test_little_memory_on_the_gpu(rng):
    call, is_right = batch_in_place(rng)
    call()
    outcomes = []
    with nothing_left():
        for more in range(0, 16 * 4096, 4096):
            with little_memory(more):
                try:
                    call()
                    outcomes.append(is_right())
                except sgemm_kernels.OutOfMemoryError:
                    outcomes.append(None)
    assert outcomes[0] is None, outcomes
    assert outcomes[-1] is True, outcomes
    assert False not in outcomes


def test_panels_leave_room_for_their_copies(rng):
    """However much memory there is, a product of host arrays fits."""
    A, B, C = (
        rng.integers(-8, 9, shape).astype(np.float32)
        for shape in ((401, 301), (301, 403), (401, 403))
    )
    expected = A @ B + C
    a, b = (VIEWS["columns"](X)[0] for X in (A, B))
    with nothing_left():
        for more in range(1 << 20, 5 << 20, 1 << 17):
            with little_memory(more):
                assert np.array_equal(run("tile2d", a, b, C=C, beta=1, device=GPU), expected), more


def calls_until_interrupted(A):
    """The runtime calls of the batch that an interrupt ended."""
    starts = []

    def interrupt():
        while not starts or core.fake_cuda_calls() < starts[0] + 100:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    def multiply_until_interrupted():
        while True:  # the signal may come late
            starts.append(core.fake_cuda_calls())
            run("naive", A, A, device=GPU)

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            multiply_until_interrupted()
    finally:
        signal.signal(signal.SIGINT, previous)
    thread.join()
    return core.fake_cuda_calls() - starts[-1]


def test_an_interrupt_ends_a_long_batch():
    """Between two products, and not after the last one. The signal may come between two batches,
    so one of some attempts must end inside a batch."""
    A = np.ones((60_000, 1, 1), np.float32)
    run("naive", A[:10], A[:10], device=GPU)
    begin = core.fake_cuda_calls()
    run("naive", A, A, device=GPU)
    whole = core.fake_cuda_calls() - begin
    assert any(0 < calls_until_interrupted(A) < whole - 1000 for _ in range(20))
