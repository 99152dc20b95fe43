"""Products of float32 matrices by JAX, with named algorithms.

JAX uses its own streams, so events cannot time its work. Instead, the host's clock times two chains
of products, each product using the previous result. One chain is twice as long as the other. The
difference of their times contains neither the launch nor the wait.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

TIMED_BY = "host clock, chains of products, warm"
PAIRS = 10
"""Number of pairs of a long and a short chain, alternating."""
CHAIN_S = 0.05
"""Approximate difference between the two chains, at 50 TFLOP/s."""

NO_TRITON = ", no Triton"
"""Ends the name of an algorithm that XLA is to compute without its fusions for Triton."""

Float32 = np.ndarray


def needs_gpu() -> None:
    """Raises ImportError without JAX, and RuntimeError if JAX finds no GPU."""
    import jax

    if jax.default_backend() != "gpu":
        raise RuntimeError(f"it computes on the {jax.default_backend()} here")


@functools.cache
def chain(algorithm: str | None, count: int) -> Callable[[Any, Any], Any]:
    """A compiled program of `count` products by A: A (... (A X)). Algorithm None: full float32."""
    import jax

    preset, no_triton, _ = (algorithm or "").partition(NO_TRITON)
    chosen: Any = jax.lax.DotAlgorithmPreset[preset] if preset else "highest"
    options = {"xla_gpu_enable_triton_gemm": False} if no_triton else None
    multiply = functools.partial(jax.numpy.matmul, precision=chosen)

    def step(_: Any, AX: Any) -> Any:
        # Without the barrier, work on A alone could move before the first product.
        A, X = jax.lax.optimization_barrier(AX)
        return A, multiply(A, X)

    return jax.jit(
        lambda A, X: jax.lax.fori_loop(0, count, step, (A, X))[1], compiler_options=options
    )


def once(algorithm: str | None, A: Float32, B: Float32) -> Float32:
    """A @ B, for the check."""
    return np.asarray(chain(algorithm, 1)(A, B))


def samples(algorithm: str | None, A: Float32, B: Float32) -> Iterator[float]:
    """Times of one product of square matrices, in seconds."""
    import jax

    n = A.shape[0]
    half = max(math.ceil(CHAIN_S / (2 * n**3 / 50e12)), 2)
    # This scale keeps the magnitude of products of random matrices.
    a = jax.device_put(A / np.float32(A.std() * math.sqrt(n)))
    b = jax.device_put(B)
    programs = [chain(algorithm, count) for count in (half, 2 * half)]
    for program in programs:
        program(a, b).block_until_ready()  # compiled, and warm
    for _ in range(PAIRS):
        taken = []
        for program in programs:
            begin = time.perf_counter()
            program(a, b).block_until_ready()
            taken.append(time.perf_counter() - begin)
        yield (taken[1] - taken[0]) / half
