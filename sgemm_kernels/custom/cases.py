"""The products that ``check`` and ``sanitize`` compute: sizes around the edges of a tile."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._catalog import Variant
from .compiler import Source
from .plain import Plain

_Float32 = NDArray[np.float32]

MULTIPROCESSORS = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
"""The setting of the CPU device (csrc/emulator/processor.cpp)."""
APART = 1 << 27
"""Elements between the starts of rows that are far apart."""
_ROWS_APART = 20
"""Rows of such an operand: their offsets exceed 2^31."""
DEEP = 256
"""From this K on, kernels that fall back to another kernel for a small K run their own."""
_SHARES_OUT = re.compile(r"\bmultiprocessors_(of|to_fill)\(where, &")
_EVERY_DEEP = 6
"""One of so many products is computed with a deep K, too."""


@dataclass(frozen=True)
class Case:
    """One product: how it differs from a plain one."""

    M: int
    N: int
    K: int
    A_by_columns: bool = False
    B_by_columns: bool = False
    A_shift: int = 0  # floats past a multiple of 16 bytes
    B_shift: int = 0
    C_shift: int = 0
    alpha: float = 1.0
    beta: float = 0.0
    special: str = ""
    integers: bool = False  # small values that fp16 holds exactly
    apart: bool = False  # 2^27 elements between the starts of rows
    multiprocessors: int = 0  # that the CPU device models; 0: the default

    @property
    def text(self) -> str:
        words = [f"M, N, K = {self.M}, {self.N}, {self.K}"]
        words += ["A column-major"] if self.A_by_columns else []
        words += ["B column-major"] if self.B_by_columns else []
        for name, shift in (("A", self.A_shift), ("B", self.B_shift), ("C", self.C_shift)):
            words += [f"{name} {4 * shift} bytes from a multiple of 16"] if shift else []
        words += [f"alpha = {self.alpha:g}"] if self.alpha != 1 else []
        words += [f"beta = {self.beta:g}"] if self.beta != 0 else []
        words += [self.special] if self.special else []
        words += [f"rows {APART} elements apart"] if self.apart else []
        words += [f"{self.multiprocessors} multiprocessors"] if self.multiprocessors else []
        return ", ".join(words)

    @property
    def work(self) -> int:
        return self.M * self.N * max(self.K, 1)


@dataclass(frozen=True)
class Tile:
    """The tile of C that a block computes, and its step through K."""

    BM: int
    BN: int
    BK: int


def tile_of(variant: Variant) -> Tile:
    """The variant's tile, with plausible sizes if it has none."""
    BM, BN, BK = (size if size > 0 else 16 for size in variant.block_tile)
    return Tile(BM, BN, max(BK, 2))


def cases_for(tile: Tile) -> list[Case]:
    """The products, the plainest first."""
    BM, BN, BK = tile.BM, tile.BN, tile.BK
    plain = Case(2 * BM, 2 * BN, 4 * BK)
    cases = [plain]
    cases += [replace(plain, M=BM, N=BN, K=K) for K in (*_about(BK), 2 * BK, 3 * BK, 5 * BK + 3)]
    for M, N in itertools.product([*_about(BM), 2 * BM + 1], [*_about(BN), 2 * BN + 1]):
        cases.append(replace(plain, M=M, N=N, K=2 * BK + 1))
    for A, B in itertools.product((False, True), repeat=2):
        layout = replace(plain, A_by_columns=A, B_by_columns=B)
        cases += [layout, replace(layout, M=BM + 3, N=BN + 5, K=2 * BK + 1)]
        for shift in (1, 2, 3):
            cases.append(replace(layout, A_shift=shift))
            cases.append(replace(layout, B_shift=shift))
    cases += [replace(plain, C_shift=shift) for shift in (1, 2, 3)]
    # With beta, a tile reads C, so the result shows a stray write by its neighbour.
    cases.append(replace(plain, C_shift=1, beta=1.0, M=BM + 3, N=3 * BN + 1, K=BK))
    for alpha, beta in ((0.7, 0.0), (1.0, 1.0), (-1.3, 0.7), (0.0, 2.0), (1.0, -0.5)):
        cases.append(replace(plain, alpha=alpha, beta=beta))
        cases.append(replace(plain, alpha=alpha, beta=beta, M=BM + 1, N=BN - 1, K=BK + 1))
    # Groups of four elements are whole, but tiles are not.
    for A, B in ((False, False), (True, False), (False, True)):
        cases.append(Case(BM + 4, BN + 4, 2 * BK + 4, A_by_columns=A, B_by_columns=B))
    cases += [replace(plain, special=name, beta=float(name == NAN_IN_C)) for name in SPECIAL]
    cases += [Case(BM, BN, DEEP + BK), Case(BM + 1, BN - 1, DEEP + BK + 1, alpha=0.7, beta=0.5)]
    cases += [
        Case(_ROWS_APART, _ROWS_APART, _ROWS_APART, beta=1.0, apart=True),
        replace(plain, K=0),
        replace(plain, K=0, beta=0.5),
        Case(1, 1, 1),
        Case(1, 1, 4 * BK + 1),
    ]
    seen = dict.fromkeys(case for case in cases if case.M > 0 and case.N > 0)
    return list(seen)


def cases_of(own: Any) -> list[Case]:
    """The products for a custom kernel: for a plain one, of sizes that it computes."""
    tile = tile_of(own.variant)
    cases = cases_for(tile)
    if own.plain is not None:
        return plain_cases(own.plain, [*cases, *many_tiles(tile, own.plain)])
    shared = shared_out(tile, own.made_of)
    cases += shared
    if falls_back(own.made_of):
        return [*cases, *deep_cases(cases)]
    # Fifteen tiles of few steps: some blocks begin within a step of a tile's first.
    many = Case(2 * tile.BM + 1, 5 * tile.BN - 3, 2 * tile.BK, multiprocessors=8)
    return [*cases, *[many] * bool(shared), *many_tiles(tile)]


def many_tiles(tile: Tile, plain: Plain | None = None) -> list[Case]:
    """Products of more rows, or columns, of tiles than a band of eight, which kernels use to choose
    the blocks that run together. None for a kernel of square products, whose K would be large."""
    if plain is not None and plain.square:
        return []
    BM, BN, BK = tile.BM, tile.BN, tile.BK
    return [Case(9 * BM + 1, BN + 1, BK), Case(BM + 1, 9 * BN + 1, BK)]


def shared_out(tile: Tile, source: Source) -> list[Case]:
    """Products for a kernel that shares out its work among multiprocessors: few, so that a block
    computes several tiles, and a deep K, so that blocks divide it. Results end within a block of
    the kernel that adds partial sums."""
    if not _SHARES_OUT.search("".join([source.text, *source.included.values()])):
        return []
    M, N, K = tile.BM + 1, max(tile.BN - 3, 1), DEEP + tile.BK + 1
    ragged = Case(M, N, K, alpha=0.7, beta=0.5)
    in_fp16 = falls_back(source)  # then few blocks divide K only if many would be idle
    count = 8 if in_fp16 else 3
    deep = replace(ragged, M=max(tile.BM - 1, 1), K=2 * DEEP + 3, multiprocessors=count)
    shallow = K if in_fp16 else 2 * tile.BK + 1
    return [ragged, deep, Case(M, N, shallow, multiprocessors=1)]


def falls_back(source: Source) -> bool:
    """Whether the kernel leaves products with a small K to another kernel."""
    return any(path.name == "error_check.h" for path in source.included)


def deep_cases(cases: Sequence[Case]) -> list[Case]:
    """A part of the products, with a K from which on such a kernel runs its own code."""
    return [replace(case, K=case.K + DEEP) for case in cases[::_EVERY_DEEP] if not case.apart]


def plain_cases(plain: Plain, cases: Sequence[Case]) -> list[Case]:
    """The products of sizes that the kernel computes as they are, and a few that need copies."""
    kept = []
    for case in cases:
        M, N, K = plain.fitting(case.M, case.N, case.K) if case.K else (case.M, case.N, 0)
        shifted = case.A_shift or case.B_shift or case.C_shift
        turned = case.A_by_columns or case.B_by_columns
        if shifted or case.apart or (turned and (case.M, case.N, case.K) != (M, N, K)):
            continue
        kept.append(replace(case, M=M, N=N, K=K))
    return list(dict.fromkeys(kept))


def _about(size: int) -> list[int]:
    return sorted({1, max(size - 1, 1), size, size + 1})


def _set_nan(A: _Float32, B: _Float32) -> None:
    A[0, -1] = np.nan


def _set_infinity(A: _Float32, B: _Float32) -> None:
    B[-1, 0] = np.inf


def _scale(A: _Float32, B: _Float32) -> None:
    A *= np.float32(1e-30)
    B *= np.float32(1e30)


def _set_nan_beside_zero(A: _Float32, B: _Float32) -> None:
    A[0, -1] = np.nan
    B[-1] = 0.0


def _set_nothing(A: _Float32, B: _Float32) -> None:
    """For a NaN in C, which ``_values`` sets."""


NAN_IN_C = "a NaN in C"
_SET = {
    "a NaN in A": _set_nan,
    "a NaN in A beside zeros in B": _set_nan_beside_zero,
    NAN_IN_C: _set_nothing,
    "an infinity in B": _set_infinity,
    "tiny and huge values": _scale,
}
SPECIAL = dict(zip(_SET, "nzcis", strict=True))
FRACTIONS = "values between -1 and 1"
"""Other values of ``sanitize``, which has small integers: fp16 does not hold them exactly."""
"""Special values, and their letters in the arguments of csrc/custom/driver.cpp."""


def values_of(case: Case) -> tuple[_Float32, _Float32, _Float32]:
    rng = np.random.default_rng((case.M, case.N, case.K))
    shapes = ((case.M, case.K), (case.K, case.N), (case.M, case.N))
    A, B, C = (
        (rng.integers(-8, 9, shape) if case.integers else rng.uniform(-1, 1, shape)).astype(
            np.float32
        )
        for shape in shapes
    )
    if case.special and A.size and B.size:
        _SET[case.special](A, B)
    if case.special == NAN_IN_C:
        C[0, -1] = np.nan
    return A, B, C
