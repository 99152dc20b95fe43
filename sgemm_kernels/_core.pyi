from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Protocol, SupportsFloat, TypeAlias, TypedDict, TypeVar, final, overload

import numpy as np
from numpy.typing import DTypeLike, NDArray

_Out = TypeVar("_Out", bound="_OnGpu")

_GPU_KIND: str  # "cuda", or "hip" in a build for AMD GPUs
_REFERENCE: str  # the reference variant: "cublas" or "rocblas"
# a capsule "sgemm_kernels.multiply_batched": sgemm_kernels_multiply_batched of sgemm_kernels.h
_c_multiply_batched: Any
# likewise: sgemm_kernels_multiply_typed
_c_multiply_typed: Any

class Error(Exception): ...
class DeviceError(Error, RuntimeError): ...
class OutOfMemoryError(DeviceError, MemoryError): ...
class UnsupportedVariantError(Error): ...

class _Variant(TypedDict):
    name: str
    summary: str
    file: str | None
    block_tile: tuple[int, int, int]
    thread_tile: tuple[int, int]
    threads: int
    shared_bytes: int
    min_compute_capability: tuple[int, int]
    architecture_specific: bool
    devices: tuple[str, ...]

class _Device(TypedDict):
    name: str
    kind: str
    model: str
    usable: bool
    problem: str | None
    compute_capability: tuple[int, int] | None
    multiprocessors: int
    fused_multiply_add: bool
    clock_mhz: int | None
    memory_clock_mhz: int | None
    memory_bus_bits: int | None
    memory_bytes: int
    l2_bytes: int | None
    shared_bytes_per_multiprocessor: int | None
    registers_per_multiprocessor: int | None
    driver: str | None
    pci_bus_id: str | None

class _BuildInfo(TypedDict):
    csrc_hash: str
    cuda_toolkit: str | None
    hip: str | None
    architectures: tuple[str, ...]
    compiler: str

class _Access(TypedDict):
    file: str
    line: int
    launch: int
    space: str
    operand: str
    kind: str
    copied: bool
    bytes_per_thread: int
    requests: int
    lanes: int
    sectors: int | None
    wavefronts: int | None
    lines: int | None
    least: int
    row_bytes: int
    first_request: tuple[int | None, ...]

class _CustomKernel(Protocol):
    """A custom kernel."""

    def __sgemm_run__(self, A: Any, B: Any, **keywords: Any) -> Any: ...

class _OnGpu(Protocol):
    """A GPU array of CuPy, PyTorch, Numba or JAX, or a DeviceArray."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...

class _HasStream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

class _StreamOfTorch(Protocol):
    @property
    def cuda_stream(self) -> int: ...
    def wait_event(self, event: Any) -> None: ...

class _StreamOfCupy(Protocol):
    @property
    def ptr(self) -> int: ...
    def wait_event(self, event: Any) -> None: ...

_Operand: TypeAlias = NDArray[np.float32] | NDArray[np.float16]
"""A and B. NumPy has no type for bfloat16, which run() takes, too."""

_Interface: TypeAlias = dict[str, Any]
"""The type of __cuda_array_interface__."""

_Stream: TypeAlias = _HasStream | _StreamOfTorch | _StreamOfCupy | int

@final
class DeviceArray:
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def T(self) -> DeviceArray: ...  # noqa: N802
    def __len__(self) -> int: ...
    @property
    def dtype(self) -> np.dtype[np.float32]: ...
    @property
    def device(self) -> str: ...
    __array_ufunc__: None
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]: ...
    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> NDArray[Any]: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class PreparedMatrix:
    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def device(self) -> str: ...

@overload
def run(
    variant: str | _CustomKernel,
    A: _Operand,
    B: _Operand | PreparedMatrix,
    *,
    C: NDArray[np.float32] | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: NDArray[np.float32] | None = None,
    device: str | None = None,
    stream: None = None,
) -> NDArray[np.float32]: ...
@overload
def run(
    variant: str | _CustomKernel,
    A: _OnGpu,
    B: _OnGpu | PreparedMatrix,
    *,
    C: _OnGpu | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: None = None,
    device: str | None = None,
    stream: _Stream | None = None,
) -> DeviceArray: ...
@overload
def run(
    variant: str | _CustomKernel,
    A: _OnGpu,
    B: _OnGpu | PreparedMatrix,
    *,
    C: _OnGpu | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: _Out | None = None,
    device: str | None = None,
    stream: _Stream | None = None,
) -> _Out: ...
@overload
def gram(
    variant: str,
    A: _Operand,
    *,
    C: NDArray[np.float32] | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: NDArray[np.float32] | None = None,
    device: str | None = None,
    stream: None = None,
) -> NDArray[np.float32]: ...
@overload
def gram(
    variant: str,
    A: _OnGpu,
    *,
    C: _OnGpu | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: None = None,
    device: str | None = None,
    stream: _Stream | None = None,
) -> DeviceArray: ...
@overload
def gram(
    variant: str,
    A: _OnGpu,
    *,
    C: _OnGpu | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: _Out | None = None,
    device: str | None = None,
    stream: _Stream | None = None,
) -> _Out: ...
@overload
def run_many(
    variant: str | _CustomKernel,
    As: Sequence[_Operand] | _Operand,
    Bs: Sequence[_Operand] | _Operand,
    Cs: Sequence[NDArray[np.float32]] | None = None,
    *,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: Sequence[NDArray[np.float32]] | None = None,
    device: str | None = None,
    stream: None = None,
) -> list[NDArray[np.float32]]: ...
@overload
def run_many(
    variant: str | _CustomKernel,
    As: Sequence[_OnGpu] | _OnGpu,
    Bs: Sequence[_OnGpu] | _OnGpu,
    Cs: Sequence[_OnGpu] | None = None,
    *,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: None = None,
    device: str | None = None,
    stream: _Stream | None = None,
) -> list[DeviceArray]: ...
@overload
def run_many(
    variant: str | _CustomKernel,
    As: Sequence[_OnGpu] | _OnGpu,
    Bs: Sequence[_OnGpu] | _OnGpu,
    Cs: Sequence[_OnGpu] | None = None,
    *,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: Sequence[_Out] | None = None,
    device: str | None = None,
    stream: _Stream | None = None,
) -> list[_Out]: ...
@overload
def _run_measured(
    variant: str | _CustomKernel,
    A: NDArray[np.float32],
    B: NDArray[np.float32],
    *,
    C: NDArray[np.float32] | None = None,
    alpha: SupportsFloat = 1.0,
    beta: SupportsFloat = 0.0,
    out: NDArray[np.float32] | None = None,
    device: str | None = None,
    stream: None = None,
) -> NDArray[np.float32]: ...
@overload
def _run_measured(
    variant: str | _CustomKernel,
    A: _OnGpu,
    B: _OnGpu,
    *,
    out: _Out,
    stream: _Stream | None = None,
) -> _Out: ...
def prepare(B: _Operand | _OnGpu, *, device: str | None = None) -> PreparedMatrix: ...
def empty(shape: int | tuple[int, ...]) -> NDArray[np.float32]: ...
def _memory() -> tuple[int, int, int]: ...
def _set_memory_limit(limit: int) -> None: ...
def _empty_memory() -> None: ...
def _set_usable_cores(number: int, quota: int, /) -> None: ...
def _quota_cores(proc: str | PathLike[str], cgroups: str | PathLike[str], /) -> int: ...
def _usable_bytes(proc: str | PathLike[str], cgroups: str | PathLike[str], /) -> int: ...
def _plan_constants(model: str, /) -> dict[str, float]: ...
def _keep_plan_constants(model: str, constants: dict[str, float], /) -> None: ...
def _plan_constants_of_sheet(
    major: int,
    minor: int,
    clock: int,
    memory_clock: int,
    memory_bus_bits: int,
    multiprocessors: int,
    /,
) -> dict[str, float] | None: ...
def _plan_prefers_mixed(
    multiprocessors: int, M: int, N: int, K: int, of_B: bool, is_split: bool, /
) -> bool: ...
def _plan_estimate(
    constants: dict[str, float],
    multiprocessors: int,
    cluster: int,
    shared_bytes: int,
    rate: float,
    start: float,
    M: int,
    N: int,
    K: int,
    /,
) -> tuple[float, float, float]: ...
def _keep_proof(model: str, major: int, minor: int, rate: float, start: float, /) -> None: ...
def _read_kept_proofs() -> None: ...
def _cpu_tensor_cores() -> tuple[int, int, int, int]: ...
def _set_cpu_tensor_cores(major: int, minor: int, products: int, bits: int, /) -> None: ...
def _variants() -> tuple[_Variant, ...]: ...
def _devices() -> tuple[_Device, ...]: ...
def _cuda_problem() -> str | None: ...
def _build_info() -> _BuildInfo: ...
def _open_cublas(path: str) -> None: ...
def _measure(
    names: tuple[Any | Callable[[_Interface, _Interface, _Interface], object], ...],
    A: NDArray[np.float32],
    B: NDArray[np.float32],
    device: int,
    sets: int,
    rounds: int,
    C: NDArray[np.float32] | None = None,
    /,
) -> tuple[list[float], ...]: ...
def _measure_copies(
    A: NDArray[np.float32],
    B: NDArray[np.float32],
    C: NDArray[np.float32],
    device: int,
    rounds: int,
    /,
) -> tuple[list[float]]: ...
def _open_kernel(library: str, name: str, file: str, /) -> tuple[Any, _Variant, str | None]: ...
def _add_gpu_code(kernel: Any, capability: int, code: bytes, symbol: str, /) -> None: ...
def _trace(
    variant: Any, batch: int, M: int, N: int, K: int, /
) -> tuple[int, int, int, bytes, tuple[_Access, ...]]: ...
def _launched(record: bool, /) -> frozenset[str]: ...
def _torch_open() -> None: ...
def _torch_register() -> None: ...
def _torch_precision(backend: int, operation: int, /) -> int | None: ...
def _torch_start(
    key: str,
    variant: str,
    min_flops: float,
    reduced: Callable[[], bool] | None,
    /,
) -> None: ...
def _torch_stop() -> None: ...
def _torch_kernel(
    name: str, fallback: Callable[..., object], example: object, /
) -> Callable[..., object]: ...
def _torch_stats(reset: bool, /) -> tuple[dict[str, dict[str, int]], str]: ...
