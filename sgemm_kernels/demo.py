"""Compresses a photograph with a two-dimensional cosine transform, once with every rung.

``python -m sgemm_kernels.demo -o demo.png``

For each colour channel X of the picture, Y = D_m @ X @ D_n.T is its cosine transform. The demo
keeps only the largest coefficients of Y and computes D_m.T @ Y @ D_n, which approximates the
picture. Every rung computes all products, and each is checked against numpy.matmul in float64.
Needs matplotlib.
"""

import argparse
import io
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import _core
from ._accuracy import expect
from ._catalog import Device, default_device, variants
from ._core import Error, run
from ._output import write
from ._table import row
from .cli.command import show

_KEPT = 0.03
"""The share of the coefficients that is kept."""

_HEADER = ("rung", "device", "seconds", "worst error / bound", "result")
_FIGURES = (2, 3)
"""Indices of the number columns."""


def main(arguments: list[str] | None = None) -> int:
    """Prints one row per rung and writes the picture. Returns 1 if a check failed, otherwise 0."""
    parser = argparse.ArgumentParser(
        prog="python -m sgemm_kernels.demo",
        description="Compress a photograph with every rung of the ladder.",
    )
    parser.add_argument("-o", dest="output", metavar="PNG", type=Path, default=Path("demo.png"))
    output: Path = parser.parse_args(arguments).output
    try:
        return _demo(output)
    except (Error, ImportError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _demo(output: Path) -> int:
    photograph = load_photograph()
    device = default_device()
    print(_device_line(device))
    height, width, colours = photograph.shape
    print(f"{4 * colours} products per rung, on a photograph of {width} x {height} pixels.\n")

    rungs = [variant.name for variant in variants() if variant.file is not None]
    widths = [max(map(len, (*rungs, _HEADER[0]))), max(map(len, (device.name, _HEADER[1])))]
    widths += map(len, _HEADER[2:])
    show(row(_HEADER, widths, _FIGURES))
    passed = True
    for rung in rungs:
        multiply = _CheckedProduct(rung, device.name)
        restored = _compress_and_restore(photograph, multiply)
        passed &= multiply.passed
        seconds, share = f"{multiply.seconds:.4f}", f"{multiply.worst_share:.4f}"
        verdict = "pass" if multiply.passed else "FAIL"
        show(row((rung, device.name, seconds, share, verdict), widths, _FIGURES))

    error = float(np.sqrt(np.mean(np.square(restored - photograph, dtype=np.float64))))
    change = f"after: {_KEPT:.0%} of the coefficients kept, {error:.1%} RMS error"
    _write(output, photograph, restored, change)
    print(
        f"\nKept {_KEPT:.0%} of the coefficients. The RMS change of the picture is {error:.1%} of "
        f"its range. Before and after: {output}"
    )
    return 0 if passed else 1


def _device_line(device: Device) -> str:
    if device.kind == "cpu":
        return f"Device: cpu ({_core._cuda_problem()}). Its timing does not predict a GPU's."
    return f"Device: {device.name}, {device.model}. Seconds include the copies to it and back."


@dataclass
class _CheckedProduct:
    """Computes and times A @ B with one rung, and compares each product with float64."""

    rung: str
    device: str
    seconds: float = field(default=0.0, init=False)
    worst_share: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        # The first call also initializes the device. Exclude that from the rung's time.
        run(self.rung, np.ones((1, 1), np.float32), np.ones((1, 1), np.float32), device=self.device)

    @property
    def passed(self) -> bool:
        return self.worst_share <= 1

    def __call__(self, A: NDArray[np.float32], B: NDArray[np.float32]) -> NDArray[np.float32]:
        start = time.perf_counter()
        result = run(self.rung, A, B, device=self.device)
        self.seconds += time.perf_counter() - start
        self.worst_share = max(self.worst_share, expect(A, B).worst_share(result))
        return result


def _compress_and_restore(
    photograph: NDArray[np.float32], multiply: _CheckedProduct
) -> NDArray[np.float32]:
    """Rebuilds the photograph (height, width, colours) from each channel's largest coefficients."""
    D_m, D_n = cosines(photograph.shape[0]), cosines(photograph.shape[1])
    restored = np.empty_like(photograph)
    for colour in range(photograph.shape[2]):
        X = photograph[:, :, colour]  # a strided view, which run accepts
        Y = multiply(multiply(D_m, X), D_n.T)
        smallest_kept = np.quantile(np.abs(Y), 1 - _KEPT)
        Y[np.abs(Y) < smallest_kept] = 0
        restored[:, :, colour] = multiply(multiply(D_m.T, Y), D_n)
    return restored


def cosines(n: int) -> NDArray[np.float32]:
    """The orthonormal DCT-II matrix (n, n): row k is the cosine of frequency k."""
    frequency = np.arange(n)[:, np.newaxis]
    position = np.arange(n) + 0.5
    matrix = np.sqrt(2 / n) * np.cos(np.pi / n * frequency * position)
    matrix[0] /= np.sqrt(2)
    return np.asarray(matrix, np.float32)


def load_photograph() -> NDArray[np.float32]:
    """Rear Admiral Grace Hopper, from matplotlib's sample data: (height, width, 3) in [0, 1]."""
    from matplotlib.cbook import get_sample_data
    from matplotlib.image import imread

    pixels = imread(str(get_sample_data("grace_hopper.jpg", asfileobj=False)))
    return np.asarray(pixels / 255, np.float32)


def _write(
    output: Path, before: NDArray[np.float32], after: NDArray[np.float32], change: str
) -> None:
    """Writes a PNG with both pictures side by side and a caption below."""
    from matplotlib.image import imread, imsave

    from ._style import Picture, styled

    output.parent.mkdir(parents=True, exist_ok=True)
    gap = np.ones((before.shape[0], 16, 3), np.float32)
    pictures = np.clip(np.hstack([before, gap, after]), 0, 1)
    width, dots = pictures.shape[1], 100
    with styled(dark=False):
        strip = Picture(
            figsize=((width + 0.5) / dots, 0.36)
        )  # half a pixel more, because the width is rounded down
        strip.text(0.01, 0.5, "before", va="center", fontsize=10)
        strip.text(1 - after.shape[1] / width + 0.01, 0.5, change, va="center", fontsize=10)
        strip.savefig(buffer := io.BytesIO(), format="png", dpi=dots)
    buffer.seek(0)
    captions = imread(buffer, format="png")[:, :, :3]
    write(output, lambda file: imsave(file, np.vstack([pictures, captions]), format="png"))


if __name__ == "__main__":
    sys.exit(main())
