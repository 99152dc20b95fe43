"""What GPUs can do, by model: units, rates and capacities of a multiprocessor."""

from dataclasses import dataclass

WARP = 32

SECTOR_BYTES = 32
"""What global memory moves at least."""


WORDS_A_LOAD = 4
"""Of four bytes, at most: so many loads of the source can be one of the compiled kernel."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU does in a clock, and what a multiprocessor has room for: by its maker's documents,
    where nothing else is said."""

    multiprocessors: int
    l2_bytes: int
    """That the level-2 cache delivers; what follows is of one multiprocessor."""
    instructions: int = 4
    """Of a warp: one by each scheduler."""
    lines: int = 1
    """Of 128 bytes, from the level-1 cache or from shared memory."""
    multiply_adds: int = 128
    tensor_multiply_adds: int = 2048
    """Of halves, whose sum is float32."""
    threads: int = 2048
    blocks: int = 32
    registers: int = 65536
    shared_bytes: int = 228 * 1024
    shared_bytes_taken: int = 1024
    """By each block, beside its own."""


_GH100 = Gpu(
    multiprocessors=132,
    # Of A100's: NVIDIA A100 Tensor Core GPU Architecture, 2020, page 35. Of this one's NVIDIA has
    # published the size alone, and what was measured does not tell either: no kernel in
    # benchmarks/results took two thirds of that.
    l2_bytes=5120,
)
_GPUS = {"H100": _GH100, "H200": _GH100}


def gpu_of(device: str) -> Gpu:
    """By the maker's name for it. Raises ValueError for one whose figures are not known here."""
    for name, gpu in _GPUS.items():
        if name in device:
            return gpu
    raise ValueError(f"no limits are known of the GPU {device!r}: add them to {__name__}")
