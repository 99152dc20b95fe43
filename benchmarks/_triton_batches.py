"""Batches of float32 products by Triton: a block computes a tile of one product."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

TILES = ((16, 16, 16, 1), (32, 32, 32, 2), (64, 64, 32, 4), (128, 128, 32, 8))
"""BM, BN, BK and the warps of a block: the first tile that C fits into, or the last."""


@triton.jit(do_not_specialize=["M", "across", "tiles"])
def _product(  # type: ignore[no-untyped-def]
    a, b, c, M, N, K, across, tiles, A_SHARED: tl.constexpr, B_SHARED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    matrix = (tl.program_id(0) // tiles).to(tl.int64)
    tile = tl.program_id(0) % tiles
    if not A_SHARED:
        a += matrix * M * K
    if not B_SHARED:
        b += matrix * N * K
    c += matrix * M * N
    i = tile // across * BM + tl.arange(0, BM)
    j = tile % across * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for begin in range(0, K, BK):
        k = begin + tl.arange(0, BK)
        inside_a = (i[:, None] < M) & (k[None, :] < K)
        inside_b = (k[:, None] < K) & (j[None, :] < N)
        of_a = tl.load(a + i[:, None] * K + k[None, :], mask=inside_a, other=0.0)
        places = k[:, None] + j[None, :] * K if B_TRANSPOSED else k[:, None] * N + j[None, :]
        of_b = tl.load(b + places, mask=inside_b, other=0.0)
        sums = tl.dot(of_a, of_b, sums, input_precision="ieee")
    tl.store(c + i[:, None] * N + j[None, :], sums, mask=(i[:, None] < M) & (j[None, :] < N))


def product(a: Any, b: Any, out: Any) -> None:
    """Queues out = a @ b of 3-D tensors in PyTorch's current stream. Matrices are contiguous,
    shared (stride 0), or, for b, transposed."""
    (count, M, K), N = a.shape, b.shape[2]
    fits = (tile for tile in TILES if max(M, N) <= tile[0])
    BM, BN, BK, warps = next(fits, TILES[-1])
    across = triton.cdiv(N, BN)
    tiles = triton.cdiv(M, BM) * across
    transposed = b.stride(1) == 1 and N > 1
    _product[(count * tiles,)](
        a, b, out, M, N, K, across, tiles, a.stride(0) == 0, b.stride(0) == 0, transposed,
        BM, BN, BK, num_warps=warps,
    )  # fmt: skip
