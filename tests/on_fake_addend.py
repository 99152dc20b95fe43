"""Which calls copy C to the result first: test_addend.py's tests over the fake CUDA runtime."""

import ctypes
import functools

import numpy as np
import pytest

from sgemm_kernels import run

from .exporters import FAKES, core
from .on_fake_gpu import Capture
from .support import MULTIPROCESSORS, same_bits, uniform

core.fake_cuda_noted_calls.restype = ctypes.c_char_p
M, N, K = 257, 132, 1024
A_COPY = {"launch_strided_copy", "a copy of C"}
"""How the fake runtime notes a copy by the host's side, and by a launcher."""
ADDENDS = {"row": (N,), "column": (M, 1), "number": (1,), "all of C": (M, N)}


@pytest.fixture(params=ADDENDS)
def operands(request, rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, *ADDENDS[request.param])


def on_gpu(matrix):
    return FAKES["ByInterface"](np.broadcast_to(matrix, (M, N)), matrix)


def copies_of(call):
    """The result of a call, and how often it copied an array."""
    core.fake_cuda_note_calls()
    result = np.asarray(call())
    calls = core.fake_cuda_noted_calls().decode().splitlines()
    return result, sum(name in A_COPY for name in calls)


def check(name, operands, copies, monkeypatch, A_like=np.s_[:], K=K):
    """The result is that of a copy of C on the CPU device, with so many copies on a GPU."""
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A, B = operands[0][A_like][..., :K].copy(), operands[1][:K]
    full = np.array(np.broadcast_to(operands[2], (M, N))[A_like])
    C = FAKES["ByInterface"](np.broadcast_to(operands[2], (M, N))[A_like], operands[2])
    call = functools.partial(run, name, FAKES["ByInterface"](A), FAKES["ByInterface"](B))
    result, copied = copies_of(lambda: call(C=C, beta=-0.5))
    assert copied == copies
    assert same_bits(result, run(name, A, B, C=full, beta=-0.5, device="cpu"))
    assert same_bits(C.get(), full), "C is not changed"


@pytest.mark.parametrize(
    ("name", "copies"),
    [("auto", 0), ("waves", 0), ("fused", 0), ("mma", 0), ("simt", 1), ("vec4", 1)],
)
def test_tensor_cores_read_it_where_it_is(name, copies, operands, monkeypatch):
    check(name, operands, copies, monkeypatch)


def test_auto_copies_it_for_tiles_on_cuda_cores(operands, monkeypatch):
    check("auto", operands, 1, monkeypatch, K=9)


def test_few_rows_read_it_where_it_is(operands, monkeypatch):
    if operands[2].shape != (M, 1):
        check("auto", operands, 0, monkeypatch, A_like=np.s_[:2])


@pytest.mark.parametrize(("K", "copies"), [(1024, 0), (20, 1)])
def test_a_batch(K, copies, rng, monkeypatch):
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A, B, bias = uniform(rng, 3, M, K), uniform(rng, 3, K, N), uniform(rng, 3, 1, N)
    C = FAKES["ByInterface"](np.broadcast_to(bias, (3, M, N)), bias)
    a, b = FAKES["ByInterface"](A), FAKES["ByInterface"](B)
    result, copied = copies_of(lambda: run("auto", a, b, C=C, beta=-0.5))
    assert (copied > 0) == (copies > 0)
    full = np.array(np.broadcast_to(bias, (3, M, N)))
    assert same_bits(result, run("auto", A, B, C=full, beta=-0.5, device="cpu"))


def test_a_capture_reads_it_when_it_is_replayed(operands, monkeypatch):
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A, B, C = operands
    a, b, c = FAKES["ByInterface"](A), FAKES["ByInterface"](B), on_gpu(C)
    out = FAKES["ByInterface"](np.zeros((M, N), np.float32))
    capture = Capture()
    with capture as stream:
        run("auto", a, b, C=c, beta=-0.5, out=out, stream=stream)
    changed = C + np.float32(1)
    content = core.fake_cuda_content(c.memory.address, c.memory.nbytes)
    ctypes.memmove(content, changed.ctypes.data, changed.nbytes)
    capture.replay()
    full = np.array(np.broadcast_to(changed, (M, N)))
    assert same_bits(out.get(), run("auto", A, B, C=full, beta=-0.5, device="cpu"))
