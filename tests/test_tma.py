"""`tma` for every layout: TMA loads the operands that it can, and threads copy the others."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import same_bits, uniform

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"


def lying(rng, rows, cols, transposed, ld):
    """A row-major or column-major operand with leading dimension `ld`, and NaN in the padding."""
    lines, length = (cols, rows) if transposed else (rows, cols)
    memory = np.full((lines, ld), np.nan, np.float32)
    memory[:, :length] = uniform(rng, lines, length)
    return memory[:, :length].T if transposed else memory[:, :length]


def up(count, multiple):
    return -(-count // multiple) * multiple


@pytest.mark.parametrize(("across_A", "along_B"), list(itertools.product((False, True), repeat=2)))
@pytest.mark.parametrize("ld", ["aligned", "odd"])
def test_padding_is_not_read(across_A, along_B, ld, monkeypatch, rng):
    """TMA loads rows that start on 16-byte boundaries; threads copy the others."""
    monkeypatch.setenv(SETTING, "3")
    for M, N, K in (
        (1, 1, 1),
        (2, 3, 33),
        (129, 261, 70),
        (300, 40, 4),
        (130, 515, 257),
        (70, 300, 128),
        (129, 130, 144),
    ):
        pitches = (
            up(length, 4) + 4 if ld == "aligned" else up(length, 4) + 3
            for length in (M if across_A else K, K if along_B else N)
        )
        A = lying(rng, M, K, across_A, next(pitches))
        B = lying(rng, K, N, along_B, next(pitches))
        assert expect(A, B).worst_share(run("tma", A, B, device="cpu")) <= 1, (M, N, K)


def test_bits_equal_streamk_however_tiles_are_loaded(monkeypatch, rng):
    """Both divide K in the same way."""
    monkeypatch.setenv(SETTING, "3")
    M, N, K = 140, 300, 1000 - 4

    def has_the_same_bits(across_A, along_B, more):
        A = lying(rng, M, K, across_A, (M if across_A else K) + more)
        B = lying(rng, K, N, along_B, (K if along_B else N) + more)
        return same_bits(*(run(name, A, B, device="cpu") for name in ("tma", "streamk")))

    for across_A, along_B in itertools.product((False, True), repeat=2):
        for more in (0, 1):  # rows that start on 16-byte boundaries, and rows that TMA cannot load
            assert has_the_same_bits(across_A, along_B, more), (across_A, along_B, more)
