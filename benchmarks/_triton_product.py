"""A product of float32 matrices by Triton, with a chosen input precision."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BM, BN, BK, BAND = 128, 128, 32, 8


@triton.jit
def _product(  # type: ignore[no-untyped-def]
    a, b, c, M, N, K, lda, ldb, ldc,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    BAND: tl.constexpr,
):  # fmt: skip
    """A tile of C, in bands of BAND rows of tiles."""
    number = tl.program_id(0)
    in_band = BAND * tl.cdiv(N, BN)
    first = number // in_band * BAND
    rows = min(tl.cdiv(M, BM) - first, BAND)
    i = (first + number % in_band % rows) * BM + tl.arange(0, BM)
    j = (number % in_band // rows) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for begin in range(0, K, BK):
        k = begin + tl.arange(0, BK)
        inside_a = (i[:, None] < M) & (k[None, :] < K)
        inside_b = (k[:, None] < K) & (j[None, :] < N)
        of_a = tl.load(a + i[:, None] * lda + k[None, :], mask=inside_a, other=0.0)
        of_b = tl.load(b + k[:, None] * ldb + j[None, :], mask=inside_b, other=0.0)
        sums = tl.dot(of_a, of_b, sums, input_precision=PRECISION)
    tl.store(c + i[:, None] * ldc + j[None, :], sums, mask=(i[:, None] < M) & (j[None, :] < N))


def product(A: Any, B: Any, out: Any, precision: str) -> None:
    """Queues out = A @ B of row-major matrices in PyTorch's current stream."""
    a, b, c = (torch.as_tensor(X, device="cuda") for X in (A, B, out))
    (M, K), N = a.shape, b.shape[1]
    strides = (a.stride(0), b.stride(0), c.stride(0))
    grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
    _product[grid](
        a, b, c, M, N, K, *strides, precision, BM, BN, BK, BAND, num_warps=8, num_stages=3
    )
