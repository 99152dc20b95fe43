"""The programs that programs.py times. None of them imports this package, except the loops.

``python _programs.py NAME SCALE`` runs one, and prints a JSON line with the seconds of each
repetition and a checksum. Only NumPy is used: k-means, PCA and kernel ridge regression do the same
products as scikit-learn's.
"""

import json
import sys
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Work = Callable[[], float]
REPEATS = 3


def _normal(*shape: int) -> Float32:
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def pca(scale: float) -> Work:
    """The covariance of n points, its eigenvectors, and the projection on the 64 largest."""
    X = _normal(int(60_000 * scale), 2048)

    def work() -> float:
        centred = X - X.mean(axis=0)
        covariance = centred.T @ centred / np.float32(len(X))
        _, vectors = np.linalg.eigh(covariance[:512, :512])
        return float(np.abs(centred[:, :512] @ vectors[:, -64:]).sum())

    return work


def kmeans(scale: float) -> Work:
    """Lloyd's iterations: distances to 1024 centres, then the means of the clusters."""
    X = _normal(int(100_000 * scale), 256)
    norms = (X * X).sum(axis=1)

    def work() -> float:
        centres, total = X[:1024].copy(), 0.0
        for _ in range(4):
            distances = norms[:, None] + (centres * centres).sum(axis=1) - 2 * (X @ centres.T)
            labels = distances.argmin(axis=1)
            order = np.argsort(labels, kind="stable")
            starts = np.flatnonzero(np.diff(labels[order], prepend=-1))
            counts = np.diff(np.append(starts, len(X)))
            centres[labels[order][starts]] = np.add.reduceat(X[order], starts) / counts[:, None]
            total = float(distances.min(axis=1).sum())
        return total

    return work


def kernel_ridge(scale: float) -> Work:
    """A Gaussian kernel between n points, the solution of a linear system, and predictions."""
    n = int(6_000 * scale)
    X, test, y = _normal(n, 1024), _normal(2 * n, 1024)[n:], _normal(n, 16)

    def kernel(A: Float32, B: Float32) -> Float32:
        squares = (A * A).sum(axis=1)[:, None] + (B * B).sum(axis=1)
        scaled: Float32 = np.exp((2 * (A @ B.T) - squares) / np.float32(4096))
        return scaled

    def work() -> float:
        K = kernel(X, X)
        K[np.diag_indices_from(K)] += np.float32(1)
        return float(np.abs(kernel(test, X) @ np.linalg.solve(K, y)).sum())

    return work


def mlp(scale: float) -> Work:
    """Training steps of a multilayer perceptron: 4096 inputs, two hidden layers of 4096."""
    width, batch = int(4096 * scale) // 64 * 64, int(4096 * scale) // 64 * 64
    rng = np.random.default_rng(7)
    X, Y = _normal(batch, width), _normal(batch, 512)
    shapes = [(width, width), (width, width), (width, 512)]

    def work() -> float:
        weights = [rng.standard_normal(shape, np.float32) / 64 for shape in shapes]
        loss = 0.0
        for _ in range(3):
            layers = [X]
            for weight in weights[:-1]:
                layers.append(np.maximum(layers[-1] @ weight, 0))
            gradient = (layers[-1] @ weights[-1] - Y) / np.float32(batch)
            loss = float((gradient * gradient).sum())
            for index in range(2, -1, -1):
                change = layers[index].T @ gradient
                gradient = (gradient @ weights[index].T) * (layers[index] > 0)
                weights[index] -= np.float32(0.01) * change
        return loss

    return work


def _powers(scale: float, multiply: Callable[..., Float32], empty: Callable[..., Float32]) -> Work:
    """Repeated products with one matrix, as in a power iteration, into arrays that are reused."""
    n = int(4096 * scale) // 64 * 64
    A, arrays = empty((n, n)), [empty((n, n)) for _ in range(2)]
    A[:] = _normal(n, n) / np.float32(n**0.5)

    def work() -> float:
        arrays[0][:] = A
        for step in range(8):
            multiply(A, arrays[step % 2], out=arrays[1 - step % 2])
        return float(np.abs(arrays[0]).mean())

    return work


def loop(scale: float) -> Work:
    """Repeated products of ordinary arrays, by NumPy."""
    return _powers(scale, np.matmul, lambda shape: np.empty(shape, np.float32))


def loop_run(scale: float) -> Work:
    """The same by `sgemm_kernels.run`."""
    import sgemm_kernels

    return _powers(
        scale,
        lambda A, B, out: sgemm_kernels.run("auto", A, B, out=out),
        lambda shape: np.empty(shape, np.float32),
    )


def loop_pinned(scale: float) -> Work:
    """The same with arrays of `sgemm_kernels.empty`, which are in pinned memory."""
    import sgemm_kernels

    return _powers(
        scale, lambda A, B, out: sgemm_kernels.run("auto", A, B, out=out), sgemm_kernels.empty
    )


def loop_empty(scale: float) -> Work:
    """NumPy's products of such arrays, for preload: they are not copied to other pinned memory."""
    import sgemm_kernels

    return _powers(scale, np.matmul, sgemm_kernels.empty)


PROGRAMS: dict[str, Callable[[float], Work]] = {
    "pca": pca,
    "kmeans": kmeans,
    "kernel_ridge": kernel_ridge,
    "mlp": mlp,
    "loop": loop,
    "loop_run": loop_run,
    "loop_pinned": loop_pinned,
    "loop_empty": loop_empty,
}


def main(name: str, scale: str) -> None:
    """Runs a program REPEATS times."""
    work = PROGRAMS[name](float(scale))
    seconds, checksum = [], 0.0
    for _ in range(REPEATS):
        begin = time.perf_counter()
        checksum = work()
        seconds.append(time.perf_counter() - begin)
    print(json.dumps({"seconds": seconds, "checksum": checksum}))


if __name__ == "__main__":
    main(*sys.argv[1:])
