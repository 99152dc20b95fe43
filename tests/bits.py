"""Test products and digests of their results, to compare a GPU's bits with the CPU device's.

Operands are made of raw random bits, which NumPy promises not to change. In most cases each row (or
column) begins on a 16-byte boundary, as in the GPU's copies of host arrays. The shapes in
`UNALIGNED` are the exception.
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sgemm_kernels import run, variants

Float32 = NDArray[np.float32]

SHAPES = (
    (1, 1, 1),
    (7, 5, 3),
    (33, 65, 17),
    (64, 64, 64),
    (129, 131, 100),
    (4, 4, 5000),
    (1, 1000, 2048),
    (1000, 1, 3001),
    (3, 700, 1027),
    (64, 64, 4096),
    (100, 70, 2049),
    (257, 130, 1023),
    (128, 256, 2048),
    (50, 60, 0),
)
UNALIGNED = ((257, 65, 300), (200, 200, 513), (70, 90, 2048), (3, 500, 1027))
SCALARS = ((1.0, 0.0), (-0.75, 0.0), (1.0, 1.0), (1 / 3, -0.1), (0.0, 2.5))
KINDS = {  # exponents of A and of B, and special elements per thousand
    "ordinary": ((-6, 2), (-6, 2), 0),
    "wide": ((-55, 55), (-55, 55), 0),
    "tiny": ((-149, -100), (-40, 0), 0),
    "special": ((-6, 2), (-6, 2), 3),
}
SPECIAL = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-149, 3e38, -3e38])


class Case(NamedTuple):
    """One product: its shape, layouts, scalars and values."""

    shape: tuple[int, int, int]
    layout: str  # A's, then B's: r is row-major, c is column-major
    scalars: tuple[float, float]
    kind: str
    aligned: bool

    def __str__(self) -> str:
        alpha, beta = self.scalars
        name = f"{'x'.join(map(str, self.shape))} {self.layout} {alpha:.3g} {beta:.3g} {self.kind}"
        return name if self.aligned else name + " unaligned"


def cases() -> Iterator[Case]:
    """Every shape in every layout. Scalars and kinds rotate, so each kind is tested with each
    scalar."""
    others = itertools.cycle(itertools.product(KINDS, SCALARS))
    for shape, layout in itertools.product(SHAPES + UNALIGNED, ("rr", "rc", "cr", "cc")):
        kind, scalars = next(others)
        yield Case(shape, layout, scalars, kind, shape not in UNALIGNED)


def digests(variant: str, device: str) -> dict[str, str]:
    """Maps the name of each case to a digest of its result's bits. All NaNs count as equal."""
    found = {}
    for case in cases():
        M, N, K = case.shape
        bits = np.random.PCG64(int(hashlib.sha256(str(case).encode()).hexdigest()[:8], 16))
        of_A, of_B, specials = KINDS[case.kind]
        place = placed if case.aligned else contiguous
        A = place(random_values(bits, (M, K), of_A, specials), case.layout[0])
        B = place(random_values(bits, (K, N), of_B, specials), case.layout[1])
        C = place(random_values(bits, (M, N), (-6, 2), specials), "r")
        alpha, beta = case.scalars
        result = run(variant, A, B, C=C if beta else None, alpha=alpha, beta=beta, device=device)
        result = np.where(np.isnan(result), np.float32(np.nan), result)
        found[str(case)] = hashlib.sha256(result.tobytes()).hexdigest()[:16]
    return found


def compared() -> list[str]:
    """The names of the variants that run on both kinds of device: the rungs and `simt`."""
    return [v.name for v in variants() if v.file is not None or v.name == "simt"]


def random_values(
    bits: np.random.PCG64, shape: tuple[int, int], exponents: tuple[int, int], specials: int
) -> Float32:
    """Random signs and fractions, with exponents from the first to the second, both included."""
    raw = bits.random_raw(shape[0] * shape[1]).astype(np.uint64)
    first, last = exponents
    fraction = 1 + (raw & 0x7FFFFF) / 2**23
    exponent = first + (raw >> 23 & 0xFFFF).astype(np.int64) % (last - first + 1)
    sign = 1 - 2 * (raw >> 39 & 1).astype(np.float64)
    values = np.ldexp(sign * fraction, exponent).astype(np.float32)
    chosen = (raw >> 40 & 0xFFFF) % 1000 < specials
    return np.where(chosen, SPECIAL[raw >> 56 & 7], values).reshape(shape)


def contiguous(matrix: Float32, layout: str) -> Float32:
    """The matrix in row-major or column-major order, without padding."""
    return np.asarray(matrix, order="C" if layout == "r" else "F")


def placed(matrix: Float32, layout: str) -> Float32:
    """The matrix in row-major or column-major order, aligned and padded as on a device."""
    if layout == "c":
        return placed(matrix.T, "r").T
    rows, cols = matrix.shape
    ld = cols if cols < 4 else -(-cols // 4) * 4
    memory = np.zeros(rows * ld + 16, np.float32)
    first = -memory.ctypes.data % 64 // 4
    copy = memory[first : first + rows * ld].reshape(rows, ld)[:, :cols]
    copy[...] = matrix
    return copy
