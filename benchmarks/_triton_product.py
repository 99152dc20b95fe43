"""A product by Triton, with a chosen input precision: of float32 matrices, of bfloat16 matrices, or
of a bfloat16 A and a float32 B. The result is float32.

Triton tries the tiles of TILES at the first product of a size, and keeps the fastest.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BAND = 8
TILES = (
    *((64, 64, 32, 4, 3), (64, 64, 64, 4, 3), (128, 64, 32, 4, 4), (128, 128, 16, 4, 4)),
    *((128, 128, 32, 4, 3), (128, 128, 32, 8, 3), (128, 256, 32, 8, 3)),
)
"""BM, BN, BK, and the warps and stages of a block."""


def _timed(call: Any, quantiles: Any) -> Any:
    return triton.testing.do_bench(call, warmup=3, rep=15, quantiles=quantiles)


@triton.autotune(
    [
        triton.Config({"BM": BM, "BN": BN, "BK": BK}, num_warps=warps, num_stages=stages)
        for BM, BN, BK, warps, stages in TILES
    ],
    key=["M", "N", "K", "a_along", "b_along", "PRECISION"],
    do_bench=_timed,
)
@triton.jit
def _product(  # type: ignore[no-untyped-def]
    a, b, c, M, N, K, a_down, a_along, b_down, b_along, ldc,
    PRECISION: tl.constexpr, BAND: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
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
        of_a = tl.load(a + i[:, None] * a_down + k[None, :] * a_along, mask=inside_a, other=0.0)
        of_a = of_a.to(b.dtype.element_ty)
        of_b = tl.load(b + k[:, None] * b_down + j[None, :] * b_along, mask=inside_b, other=0.0)
        sums = tl.dot(of_a, of_b, sums, input_precision=PRECISION)
    tl.store(c + i[:, None] * ldc + j[None, :], sums, mask=(i[:, None] < M) & (j[None, :] < N))


def product(A: Any, B: Any, out: Any, precision: str) -> None:
    """Queues out = A @ B in PyTorch's current stream. `out` is row-major."""
    a, b, c = (torch.as_tensor(X, device="cuda") for X in (A, B, out))
    (M, K), N = a.shape, b.shape[1]
    strides = (*a.stride(), *b.stride(), c.stride(0))
    _product[lambda tile: (triton.cdiv(M, tile["BM"]) * triton.cdiv(N, tile["BN"]),)](
        a, b, c, M, N, K, *strides, precision, BAND
    )
