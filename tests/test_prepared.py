"""prepare(): on the CPU device here, and on GPUs over the fake CUDA runtime."""

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import PreparedMatrix, prepare, run

from .support import LAYOUTS, same_bits, uniform

M, N, K = 70, 150, 300


@pytest.mark.parametrize("name", ["auto", "waves", "fused"])
@pytest.mark.parametrize("layout", ["C", "F", "columns ::2", "C, byte-swapped", "C, 1 byte on"])
@pytest.mark.parametrize("multiprocessors", ["", "1"])
def test_products_have_the_bits_of_unprepared_ones(name, layout, multiprocessors, rng, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", multiprocessors)
    A, C = uniform(rng, M, K), uniform(rng, M, N)
    B = LAYOUTS[layout].place(uniform(rng, K, N)).matrix
    prepared = prepare(B, device="cpu")
    expected = run(name, A, B, C=C, alpha=0.5, beta=-2, device="cpu")
    B[...] = 0  # the object has a copy
    out = np.empty_like(C)
    assert run(name, A, prepared, C=C, alpha=0.5, beta=-2, out=out) is out
    assert same_bits(out, expected)
    stack = run(name, np.stack([A, A]), prepared, C=C, alpha=0.5, beta=-2, device="cpu")
    assert stack.shape == (2, M, N)


def test_what_it_says(rng):
    prepared = prepare(uniform(rng, K, N), device="cpu")
    assert type(prepared) is PreparedMatrix
    assert prepared.shape == (K, N)
    assert prepared.nbytes == 4 * K * N
    assert prepared.device == "cpu"
    assert repr(prepared) == "PreparedMatrix(shape=(300, 150), dtype=float32, device='cpu')"
    with pytest.raises(TypeError, match="cannot create"):
        PreparedMatrix()


def test_refused_calls(rng):
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    prepared = prepare(B, device="cpu")
    for name in ("naive", "mma", "simt"):
        with pytest.raises(ValueError, match=f"'{name}' cannot use a prepared B: pass 'auto'"):
            run(name, A, prepared)
    with pytest.raises(ValueError, match="prepared on 'cpu' but device is 'cuda'"):
        run("auto", A, prepared, device="cuda")
    with pytest.raises(TypeError, match="A is a prepared matrix, but only B may be one"):
        run("auto", prepared, B, device="cpu")
    with pytest.raises(ValueError, match=r"pass B.reshape\(-1, 1\)"):
        prepare(B[0], device="cpu")
    with pytest.raises(ValueError, match="each matrix of a batch"):
        prepare(B[None], device="cpu")
    with pytest.raises(TypeError, match="float64"):
        prepare(B.astype(np.float64), device="cpu")
    with pytest.raises(ValueError, match="no device called"):
        prepare(B, device="tpu")
    with pytest.raises(ValueError, match="must match B's 300 rows"):
        run("auto", A[:, 1:], prepared)


def test_it_is_public():
    assert {"prepare", "PreparedMatrix"} <= set(sgemm_kernels.__all__)
