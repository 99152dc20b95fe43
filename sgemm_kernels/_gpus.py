"""GPU specifications by model: units, throughput and capacities of a multiprocessor."""

from dataclasses import dataclass

WARP = 32

SECTOR_BYTES = 32
"""The smallest transfer from or to global memory."""


WORDS_PER_LOAD = 4
"""The compiler can merge at most this many 4-byte loads of the source into one instruction."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """Throughput per clock and capacities of a GPU, from the vendor's documents unless a comment
    says otherwise. All figures except the first two are per multiprocessor."""

    multiprocessors: int
    l2_bytes: int
    """Bytes per clock that the L2 cache delivers."""
    instructions: int = 4
    """Warp instructions: one per scheduler."""
    lines: int = 1
    """128-byte lines from the L1 cache or shared memory."""
    multiply_adds: int = 128
    tensor_multiply_adds: int = 2048
    """fp16 products with fp32 accumulation."""
    threads: int = 2048
    blocks: int = 32
    registers: int = 65536
    shared_bytes: int = 228 * 1024
    shared_bytes_taken: int = 1024
    """Bytes that each block takes in addition to its own."""


_GH100 = Gpu(
    multiprocessors=132,
    # Of the A100: NVIDIA A100 Tensor Core GPU Architecture, 2020, page 35. For the H100, NVIDIA
    # publishes only the cache's size. Our measurements do not show its rate either: no kernel in
    # benchmarks/results reached two thirds of this.
    l2_bytes=5120,
)
_GPUS = {"H100": _GH100, "H200": _GH100}


def gpu_of(device: str) -> Gpu:
    """The GPU whose model name occurs in device. Raises ValueError for an unknown model."""
    for name, gpu in _GPUS.items():
        if name in device:
            return gpu
    raise ValueError(f"no specifications of the GPU {device!r}: add them to {__name__}")
