"""The published models of tensor cores, and whether the error bound holds for them.

docs/inside/tensor_cores.md has the arithmetic and the proof.
"""

import contextlib
import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from .. import _core
from .._accuracy import UNIT_ROUNDOFF

SHORTEST_K, SHORTEST_K_OF_WGMMA = 256, 128
"""MMA_MIN_K and WGMMA_MIN_K in csrc/base/variant.h. wgmma needs compute capability 9.0."""
_CHUNK, _PASSES = 64, 2.0**15
"""Steps of K of one sum on tensor cores, and the least magnitude of a sum that passes the check."""

_XIE = "Xie et al., arXiv:2511.10909 (microsoft/MMA-Sim)"
_KHATTAK = "Khattak and Mikaitis, arXiv:2512.07004 (MATLAB-tensor-core)"
_OWN = "8 million results of our own (docs/inside/tensor_cores.md)"


@dataclass(frozen=True, slots=True)
class Model:
    """How mma.sync.m16n8k16 adds fp16 products, on GPUs of one compute capability."""

    capability: tuple[int, int]
    products: int
    """G: products that are added at once, together with the sum so far."""
    bits: int
    """F: bits below the largest exponent of these terms that are kept."""
    sources: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.products} products at once, {self.bits} bits below the largest exponent"

    @property
    def chunk_units(self) -> float:
        """R: the loss of a K chunk, in units of 2**-24 of its terms' magnitudes."""
        steps = _CHUNK // self.products
        of_step = self.products * 2.0 ** (24 - self.bits) + 2
        small = 2.0**-10 * (1 + 2.0**-11)  # the small products, relative to the large ones
        large = (1 + 2.0**-11) ** 2 + small
        return of_step * steps * (large + 2 * small) + 8 * (1 + UNIT_ROUNDOFF)

    @property
    def bound_fault(self) -> str | None:
        """Why the error bound cannot be shown for this model; None if it holds for every K."""
        for K in _every_k(SHORTEST_K_OF_WGMMA if self.capability == (9, 0) else SHORTEST_K):
            x = K * UNIT_ROUNDOFF
            chunks = math.ceil(K / _CHUNK)
            r = (self.chunk_units + chunks) * UNIT_ROUNDOFF
            steps = 3 * _CHUNK // self.products
            subnormal = chunks * steps * self.products * 2.0 ** (1 - self.bits)
            small = K * 2.0**-10 + subnormal
            magnitudes = (_PASSES - small) / (1 + r)
            if small + r * magnitudes > x / (1 - x) * magnitudes:
                return (
                    f"with {self}, a chunk of {_CHUNK} steps may lose {self.chunk_units:.1f} units "
                    f"of its magnitudes, which exceeds the bound at K = {K}"
                )
        return None


def _every_k(shortest: int) -> Iterator[int]:
    """Every K from the shortest up to 4096, and then ever larger ones up to the end of the bound.
    The margin grows with K until K * 2**-24 is large."""
    K = shortest
    while K < 2**24 - 4:
        yield K
        K = K + 1 if K < 4096 else K * 101 // 100
    yield 2**24 - 4


MODELS = {
    model.capability: model
    for model in (
        Model((8, 0), 8, 24, (f"{_XIE}: Ampere", f"{_KHATTAK}: A100, A30")),
        Model((8, 6), 8, 24, (f"{_XIE}: Ampere", f"{_KHATTAK}: A2")),
        Model((8, 9), 8, 24, (f"{_XIE}: Ada Lovelace", f"{_KHATTAK}: L40S, RTX 1000 Ada")),
        Model((9, 0), 16, 25, (_OWN, f"{_XIE}: Hopper", f"{_KHATTAK}: H100, H200")),
        Model((10, 0), 16, 25, (f"{_XIE}: Blackwell", f"{_KHATTAK}: B200")),
        Model((12, 0), 16, 25, (f"{_XIE}: RTX Blackwell", "MATLAB-tensor-core: RTX PRO 6000")),
    )
}
"""By compute capability. The sources agree on each row."""

_EMULATING = threading.RLock()


@contextlib.contextmanager
def emulated(model: Model) -> Iterator[None]:
    """Gives the CPU device these tensor cores in the ``with`` block.

    They apply to products of all threads. Other threads wait only if they emulate a model too.
    """
    with _EMULATING:
        before = _core._cpu_tensor_cores()
        _core._set_cpu_tensor_cores(*model.capability, model.products, model.bits)
        try:
            yield
        finally:
            _core._set_cpu_tensor_cores(*before)
