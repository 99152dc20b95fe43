"""`tma` for every layout: TMA loads the operands that it can, and threads copy the others."""

import itertools

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import same_bits, uniform

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"


def placed(rng, rows, cols, transposed, ld):
    """A row-major or column-major operand with leading dimension `ld`, and NaN in the padding."""
    lines, length = (cols, rows) if transposed else (rows, cols)
    memory = np.full((lines, ld), np.nan, np.float32)
    memory[:, :length] = uniform(rng, lines, length)
    return memory[:, :length].T if transposed else memory[:, :length]


def up(count, multiple):
    return -(-count // multiple) * multiple


@pytest.mark.parametrize(
    ("A_column_major", "B_column_major"), list(itertools.product((False, True), repeat=2))
)
@pytest.mark.parametrize("ld", ["aligned", "odd"])
def test_padding_is_not_read(A_column_major, B_column_major, ld, monkeypatch, rng):
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
            for length in (M if A_column_major else K, K if B_column_major else N)
        )
        A = placed(rng, M, K, A_column_major, next(pitches))
        B = placed(rng, K, N, B_column_major, next(pitches))
        assert expect(A, B).worst_share(run("tma", A, B, device="cpu")) <= 1, (M, N, K)


def test_bits_equal_streamk_however_tiles_are_loaded(monkeypatch, rng):
    """Both divide K in the same way."""
    monkeypatch.setenv(SETTING, "3")
    M, N, K = 140, 300, 1000 - 4

    def has_the_same_bits(A_column_major, B_column_major, more):
        A = placed(rng, M, K, A_column_major, (M if A_column_major else K) + more)
        B = placed(rng, K, N, B_column_major, (K if B_column_major else N) + more)
        return same_bits(*(run(name, A, B, device="cpu") for name in ("tma", "streamk")))

    for A_column_major, B_column_major in itertools.product((False, True), repeat=2):
        for more in (0, 1):  # rows that start on 16-byte boundaries, and rows that TMA cannot load
            assert has_the_same_bits(A_column_major, B_column_major, more), (
                A_column_major,
                B_column_major,
                more,
            )
