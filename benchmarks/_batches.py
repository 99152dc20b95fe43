"""The suite of batches: shapes drawn from a seed, by kind."""

from __future__ import annotations

import random
from dataclasses import dataclass

from _shapes import whole

from sgemm_kernels.cli.experiment_tables import LARGE, MIDDLE, TINY

SEED = "batches to judge by"
"""The committed suite. Pass another seed for shapes that the kernels were not tuned to."""
LARGEST_WORK = 2.8e11
"""Operations of a batch, so that float32 takes some milliseconds."""

ATTENTION, VECTORS, SHARED = "attention", "matrix-vector", "shared operand"


@dataclass(frozen=True)
class Batch:
    """A batch of products of M x K by K x N."""

    kind: str
    count: int
    M: int
    N: int
    K: int
    transposed: bool = False
    """B is stored transposed, as the keys of attention are."""
    shared: str = ""
    """The operand that all products share: A, B or none."""

    @property
    def bytes(self) -> int:
        """Operands and results, each counted once."""
        of_A = self.M * self.K * (1 if self.shared == "A" else self.count)
        of_B = self.K * self.N * (1 if self.shared == "B" else self.count)
        return 4 * (of_A + of_B + self.count * self.M * self.N)

    @property
    def text(self) -> str:
        words = [f"{self.count} x {self.M} x {self.N} x {self.K}"]
        words += ["NT"] if self.transposed else []
        words += [f"shared {self.shared}"] if self.shared else []
        return " ".join(words)


@dataclass(frozen=True)
class Kind:
    """How to draw shapes: log-uniform within these limits."""

    name: str
    shapes: int
    sides: tuple[int, int]
    bytes: tuple[float, float]


KINDS = (
    Kind(TINY, 14, (1, 32), (1e8, 6e8)),
    Kind("1 to 32, smaller", 8, (1, 32), (2e4, 5e7)),
    Kind("33 to 63", 4, (33, 63), (1e7, 4e8)),
    Kind(MIDDLE, 10, (64, 256), (1e7, 4e8)),
    Kind("257 to 512", 4, (257, 512), (1e7, 4e8)),
    Kind(LARGE, 4, (1024, 2048), (5e7, 1e9)),
    Kind(VECTORS, 6, (33, 2048), (1e7, 6e8)),
    Kind(SHARED, 4, (16, 512), (1e7, 4e8)),
)
KNOWN_ATTENTION = (
    Batch(ATTENTION, 512, 197, 197, 64, transposed=True),
    Batch(ATTENTION, 512, 197, 64, 197),
    Batch(ATTENTION, 96, 2048, 2048, 128, transposed=True),
    Batch(ATTENTION, 96, 2048, 128, 2048),
)
"""Scores and sums of ViT-B/16 and of a long context. Two other lengths are drawn."""


def suite(seed: str = SEED) -> list[Batch]:
    """60 batches. Equal seeds give equal batches in each release of Python."""
    rng = random.Random(seed)
    drawn = [_drawn(rng, kind, index) for kind in KINDS for index in range(kind.shapes)]
    return [*drawn, *KNOWN_ATTENTION, *(_attention(rng, scores) for scores in (True, False))]


def _between(rng: random.Random, limits: tuple[float, float]) -> float:
    least, most = limits
    return least * (most / least) ** rng.random()


def _drawn(rng: random.Random, kind: Kind, index: int) -> Batch:
    """Half of the shapes are cubes, and half of those have rounded sides."""
    M, N, K = (round(_between(rng, kind.sides)) for _ in "MNK")
    if kind.name == VECTORS:
        M, N = (1, N) if index % 2 else (M, 1)
    elif index % 2:
        M = N = K = whole(K) if index % 4 == 3 else K
    shared = "AB"[index % 4 // 2] if kind.name == SHARED else ""
    return _filled(Batch(kind.name, 1, M, N, K, shared=shared), _between(rng, kind.bytes))


def _attention(rng: random.Random, scores: bool) -> Batch:
    length, width = round(_between(rng, (128, 1024))), rng.choice((64, 80, 128))
    N, K = (length, width) if scores else (width, length)
    return _filled(Batch(ATTENTION, 1, length, N, K, transposed=scores), _between(rng, (5e7, 1e9)))


def _filled(one: Batch, size: float) -> Batch:
    """As many products as take this many bytes, at least two."""
    work = 2 * one.M * one.N * one.K
    varying = one.bytes - 4 * one.K * {"A": one.M, "B": one.N, "": 0}[one.shared]
    count = max(int(min(size / varying, LARGEST_WORK / work)), 2)
    return Batch(one.kind, count, one.M, one.N, one.K, one.transposed, one.shared)
