"""GPU arrays of other libraries as operands of run(): PyTorch and CuPy, if installed with a GPU.

Over the fake CUDA runtime (tests/fake_cuda/), classes of this module export arrays by each
protocol.
"""

import contextlib
import ctypes
import functools
import importlib.util
import re
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, run

from .support import Float32

core = ctypes.CDLL(_core.__file__)
GPU = _core._GPU_KIND
# DLPack's numbers for CUDA and for ROCm.
DLPACK_KIND = {"cuda": 2, "hip": 10}[GPU]
DEFAULT_STREAM = {"cuda": 1, "hip": 0}[GPU]
FAKE = hasattr(core, "library_malloc")
if FAKE:
    for name in (
        *("library_malloc", "library_stream", "library_blocking_stream", "library_end_capture"),
        "fake_cuda_content",
    ):
        getattr(core, name).restype = ctypes.c_void_p
    core.library_destroy_stream.argtypes = core.library_begin_capture.argtypes = (ctypes.c_void_p,)
    core.library_end_capture.argtypes = (ctypes.c_void_p,)
    core.fake_cuda_replay.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    core.fake_cuda_allocations.restype = core.fake_cuda_device_waits.restype = ctypes.c_long
    core.library_malloc.argtypes = (ctypes.c_int, ctypes.c_size_t)
    core.library_free.argtypes = core.library_synchronize.argtypes = (ctypes.c_void_p,)
    core.fake_cuda_free_in_order.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
    core.library_hold.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    core.library_order.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    core.fake_cuda_failed_call.restype = ctypes.c_char_p
    core.fake_cuda_live.restype = ctypes.c_size_t
    core.fake_cuda_handles.restype = ctypes.c_long
    core.fake_cuda_set_memory.argtypes = (ctypes.c_int, ctypes.c_size_t)
    core.fake_cuda_fail.argtypes = (ctypes.c_long, ctypes.c_int)
    core.fake_cuda_content.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    for name in ("library_read", "library_write"):
        getattr(core, name).argtypes = (
            *(ctypes.c_void_p,) * 3,
            ctypes.c_size_t,
            ctypes.c_int,
        )

_python = ctypes.pythonapi
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_python.PyCapsule_GetPointer.restype = ctypes.c_void_p
_python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
_python.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Plain(ctypes.Structure):
    """DLPack's DLManagedTensor."""

    _fields_ = (("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
NAMES = {Plain: b"dltensor", Versioned: b"dltensor_versioned"}


class Memory:
    """Device memory with a copy of a host array's bytes, from `address` on. It is freed at once,
    or after the work in a stream."""

    def __init__(
        self, values: "np.ndarray[Any, Any]", device: int, freed_after: int | None = None
    ) -> None:
        self.nbytes = max(values.nbytes, 4)
        self.address = core.library_malloc(device, self.nbytes)
        self.device = device
        content = core.fake_cuda_content(self.address, self.nbytes)
        ctypes.memmove(content, values.ctypes.data, values.nbytes)
        if freed_after is None:
            weakref.finalize(self, core.library_free, self.address)
        else:
            free = core.fake_cuda_free_in_order
            weakref.finalize(self, free, self.address, device, freed_after)

    def read(self) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        content = core.fake_cuda_content(self.address, self.nbytes)
        return np.frombuffer(ctypes.string_at(content, self.nbytes), np.uint8)


class Exporter:
    """A view of device memory with the properties given to it, exported by the subclass's
    protocol."""

    def __init__(
        self,
        matrix: "np.ndarray[Any, Any]",
        memory: "np.ndarray[Any, Any] | None" = None,
        *,
        device: int = 0,
        stream: int | None = None,
        read_only: bool = False,
    ) -> None:
        memory = matrix if memory is None else memory
        self.memory = Memory(memory, device, self._freed_after(device))
        self.address = self.memory.address + matrix.ctypes.data - memory.ctypes.data
        self.shape, self.strides, self.dtype = matrix.shape, matrix.strides, matrix.dtype
        self.device, self.stream, self.read_only = device, stream, read_only
        self.capsules = 0  # live capsules
        self.requested_stream: object = None  # the stream that the last consumer named

    def _freed_after(self, device: int) -> int | None:
        return None

    def get(self) -> "np.ndarray[Any, Any]":
        if self.stream:
            core.library_synchronize(self.stream)
        start = self.address - self.memory.address
        bytes_ = np.concatenate([self.memory.read(), np.zeros(4, np.uint8)])
        view = np.ndarray(self.shape, self.dtype, bytes_, start, self.strides)
        return view.astype(np.float32)


class ByInterface(Exporter):
    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.dtype.str,
            "data": (self.address if np.prod(self.shape) else 0, self.read_only),
            "version": 3,
            "stream": self.stream,
        }


def _code_of(dtype: "np.dtype[Any]") -> int:
    """DLPack's code of a type of elements."""
    return 4 if dtype.name == "bfloat16" else 2 if dtype.kind == "f" else 0


class ByDlpack(Exporter):
    kind: type = Plain
    device_type = DLPACK_KIND

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device_type, self.device

    def __dlpack__(self, *, stream: int | None = None) -> object:
        return self._export(stream)

    def _export(self, stream: int | None) -> object:
        self.requested_stream = stream
        if self.stream and stream not in (None, -1):
            core.library_order(stream, self.stream)
        managed = self.kind()
        shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        strides = (ctypes.c_int64 * len(self.shape))(
            *(s // self.dtype.itemsize for s in self.strides)
        )
        offset = 8  # as if the matrix were a view into a larger array
        managed.tensor = Tensor(
            *(self.address - offset, self.device_type, self.device, len(self.shape)),
            *(_code_of(self.dtype), 8 * self.dtype.itemsize, 1),
            *(shape, strides, offset),
        )
        if self.kind is Versioned:
            managed.major, managed.flags = 1, int(self.read_only)
        self.capsules += 1

        def returned(_: object) -> None:
            self.capsules -= 1
            EXPORTED.pop(ctypes.addressof(managed), None)

        deleter = DELETER(returned)
        managed.deleter = ctypes.cast(deleter, ctypes.c_void_p)
        EXPORTED[ctypes.addressof(managed)] = (self, managed, shape, strides, deleter)
        return _python.PyCapsule_New(ctypes.addressof(managed), NAMES[self.kind], DISCARD)


class ByDlpack1(ByDlpack):
    kind = Versioned

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: object = None,
        copy: object = None,
    ) -> object:
        assert max_version is not None
        assert max_version >= (1, 0)
        return self._export(stream)


class Exchange(ctypes.Structure):
    """DLPack's DLPackExchangeAPI."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("older", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("export_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("view", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    )


_address = ctypes.POINTER(ctypes.c_void_p)


class ByExchange(ByDlpack1):
    """A library with DLPack's exchange API. Its work runs in the current stream of a GPU."""

    current: ClassVar[dict[int, int]] = {}
    allocated: ClassVar[dict[int, tuple[Any, ...]]] = {}
    negative = False
    requires_grad = False

    def _freed_after(self, device: int) -> int:
        return self.current.get(device, DEFAULT_STREAM)

    def is_neg(self) -> bool:
        return self.negative

    def _tensor(self) -> Tensor:
        self._shape = (ctypes.c_int64 * len(self.shape))(*self.shape)
        self._strides = (ctypes.c_int64 * len(self.shape))(
            *(s // self.dtype.itemsize for s in self.strides)
        )
        return Tensor(
            *(self.address - 8, self.device_type, self.device, len(self.shape)),
            *(_code_of(self.dtype), 8 * self.dtype.itemsize, 1),
            *(self._shape, self._strides, 8),
        )


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
def _view(array: ByExchange, tensor: Any) -> int:
    tensor[0] = array._tensor()
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, _address)
def _export_object(array: ByExchange, managed: Any) -> int:
    capsule = array._export(None)
    managed[0] = _python.PyCapsule_GetPointer(capsule, NAMES[Versioned])
    _python.PyCapsule_SetName(capsule, b"used_dltensor_versioned")
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(Tensor), _address, ctypes.c_void_p, ctypes.c_void_p)
def _allocate(like: Any, managed: Any, context: object, set_error: object) -> int:
    tensor = like[0]
    values = np.full(tuple(tensor.shape[: tensor.ndim]), np.nan, np.float32)
    array = ByExchange(values, device=tensor.device_id)
    made = Versioned(1, 3, None, None, 0, array._tensor())
    managed[0] = ctypes.addressof(made)
    ByExchange.allocated[managed[0]] = (array, made)
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, _address)
def _to_object(managed: int, result: Any) -> int:
    array = ByExchange.allocated.pop(managed)[0]
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(array))
    result[0] = id(array)
    return 0


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, _address)
def _current_stream(kind: int, device: int, stream: Any) -> int:
    assert kind == DLPACK_KIND
    stream[0] = ByExchange.current.get(device)
    return 0


_functions = (_allocate, _export_object, _to_object, _view, _current_stream)
_exchange = Exchange(1, 3, None, *(ctypes.cast(f, ctypes.c_void_p) for f in _functions))
_newer = Exchange(2, 0, ctypes.addressof(_exchange))
_capsule_name = b"dlpack_exchange_api"
ByExchange.__dlpack_c_exchange_api__ = _python.PyCapsule_New(  # type: ignore[attr-defined]
    ctypes.addressof(_newer), _capsule_name, None
)


class Managed(ByDlpack):
    device_type = {"cuda": 13, "hip": 10}[GPU]


EXPORTED: dict[int, tuple[object, ...]] = {}


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _discard(capsule: int) -> None:
    """A capsule's destructor: calls the deleter."""
    api = ctypes.pythonapi
    api.PyCapsule_IsValid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", api)
    )
    for name in NAMES.values():
        if api.PyCapsule_IsValid(capsule, name):
            managed = EXPORTED[get(capsule, name)][1]
            DELETER(managed.deleter)(ctypes.addressof(managed))


DISCARD = ctypes.cast(_discard, ctypes.c_void_p)


class Imported:
    """Imports `__dlpack__` as a library does: it keeps the memory until it is deleted."""

    def __init__(self, array: Any, **request: object) -> None:
        capsule = array.__dlpack__(**request)
        kind = Versioned if "max_version" in request else Plain
        self.address = _python.PyCapsule_GetPointer(capsule, NAMES[kind])
        self.managed = kind.from_address(self.address)
        self._used = b"used_" + NAMES[kind]
        _python.PyCapsule_SetName(capsule, self._used)
        self.tensor = self.managed.tensor
        weakref.finalize(self, DELETER(self.managed.deleter), self.address)

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        shape, data = tuple(self.tensor.shape[:2]), (self.tensor.data, False)
        return {"shape": shape, "typestr": "<f4", "data": data, "version": 3}

    def get(self) -> Float32:
        rows, cols = self.tensor.shape[0], self.tensor.shape[1]
        assert self.tensor.strides[0] == cols
        content = core.fake_cuda_content(self.tensor.data, 4 * rows * cols)
        return np.frombuffer(ctypes.string_at(content, 4 * rows * cols), np.float32).reshape(
            rows, cols
        )


def numbered(stream: int) -> int:
    """DLPack's number for a stream. ROCm has none for the per-thread stream, so it gets -1."""
    return {1: DEFAULT_STREAM, 2: {"cuda": 2, "hip": -1}[GPU]}.get(stream, stream)


def pending(values: Float32, kind: type[Exporter], microseconds: int = 30_000) -> Exporter:
    """An array whose values its library's stream writes only after a delay."""
    stream = core.library_stream(0)
    array = kind(np.full_like(values, np.nan), stream=stream)
    core.library_write(stream, array.address, values.ctypes.data, values.nbytes, microseconds)
    return array


# --------------------------------------------------------------- one interface to all libraries


def quiet_import(module: str) -> Any:
    """The module with its warnings ignored. Skips the test if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(module)


class OnlyDlpack:
    """An array whose type offers nothing but the methods of DLPack."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


class Torch:
    """Converts matrices to PyTorch tensors and back."""

    def __init__(self) -> None:
        self.torch = quiet_import("torch")
        exchanges = hasattr(self.torch.Tensor, "__dlpack_c_exchange_api__")
        self.result_type = self.torch.Tensor if exchanges else sgemm_kernels.DeviceArray

    def without_exchange(self, array: Any) -> Any:
        """The same array, as an operand whose results are DeviceArrays."""
        return OnlyDlpack(array)

    def host(self, result: Any) -> Float32:
        """A result's values in host memory."""
        is_ours = isinstance(result, sgemm_kernels.DeviceArray)
        values: Float32 = np.asarray(result) if is_ours else result.cpu().numpy()
        return values

    def put(self, matrix: Float32, memory: "np.ndarray[Any, Any] | None" = None) -> Any:
        memory = matrix if memory is None else memory
        flat = self.torch.from_numpy(np.ravel(memory, "K").view(np.float32).copy()).cuda()
        return self.view(flat, matrix, memory)

    def view(self, array: Any, matrix: Float32, memory: "np.ndarray[Any, Any]") -> Any:
        """The view of `array` that `matrix` is of `memory`; `array` is a copy of `memory`."""
        offset = (matrix.ctypes.data - memory.ctypes.data) // 4
        return array.as_strided(matrix.shape, [s // 4 for s in matrix.strides], offset)

    def get(self, array: Any) -> Float32:
        values: Float32 = array.cpu().numpy()
        return values

    def takes(self, matrix: Float32) -> bool:
        in_elements = all(s % 4 == 0 and s >= 0 for s in matrix.strides)
        return matrix.dtype == np.float32 and in_elements and matrix.ctypes.data % 4 == 0

    def import_result(self, result: Any) -> Any:
        return self.torch.from_dlpack(result)

    def address(self, imported: Any) -> int:
        address: int = imported.data_ptr()
        return address

    @contextlib.contextmanager
    def late(self, values: Float32) -> Iterator[Any]:
        source = self.put(values)
        with self.torch.cuda.stream(self.torch.cuda.Stream()):
            self.torch.cuda._sleep(100_000_000)
            yield source * 1


class Cupy:
    """Converts matrices to CuPy arrays and back."""

    result_type = sgemm_kernels.DeviceArray

    def without_exchange(self, array: Any) -> Any:
        return array

    def host(self, result: Any) -> Float32:
        return np.asarray(result)

    def __init__(self) -> None:
        self.cupy = quiet_import("cupy")

    def put(self, matrix: Float32, memory: "np.ndarray[Any, Any] | None" = None) -> Any:
        memory = matrix if memory is None else memory
        return self.view(self.cupy.asarray(np.ravel(memory, "K").view(np.uint8)), matrix, memory)

    def view(self, array: Any, matrix: Float32, memory: "np.ndarray[Any, Any]") -> Any:
        start = self.cupy.cuda.MemoryPointer(array.data.mem, 0)
        pointer = start + (matrix.ctypes.data - memory.ctypes.data)
        return self.cupy.ndarray(matrix.shape, "f4", pointer, matrix.strides)

    def get(self, array: Any) -> Float32:
        values: Float32 = array.get()
        return values

    def takes(self, matrix: Float32) -> bool:
        in_elements = all(s % 4 == 0 for s in matrix.strides)
        return matrix.dtype == np.float32 and in_elements and matrix.ctypes.data % 4 == 0

    def import_result(self, result: Any) -> Any:
        return self.cupy.asarray(result)

    def address(self, imported: Any) -> int:
        address: int = imported.data.ptr
        return address

    @contextlib.contextmanager
    def late(self, values: Float32) -> Iterator[Any]:
        source = self.put(values)
        text = """extern "C" __global__ void wait() {
            for (long long begin = clock64(); clock64() - begin < 100000000;) {} }"""
        with self.cupy.cuda.Stream(non_blocking=True):
            self.cupy.RawKernel(text, "wait")((1,), (1,), ())
            yield source * np.float32(1)


class Fake:
    """Converts matrices to this module's arrays and back."""

    result_type = sgemm_kernels.DeviceArray

    def without_exchange(self, array: Any) -> Any:
        return array

    def host(self, result: Any) -> Float32:
        return np.asarray(result)

    def __init__(self, kind: type[Exporter]) -> None:
        self.kind = kind

    def put(self, matrix: Float32, memory: "np.ndarray[Any, Any] | None" = None) -> Any:
        return self.kind(matrix, memory)

    def view(self, array: Any, matrix: Float32, memory: "np.ndarray[Any, Any]") -> Any:
        view = self.kind(matrix)
        view.memory = array.memory
        view.address = array.memory.address + matrix.ctypes.data - memory.ctypes.data
        return view

    def get(self, array: Any) -> Float32:
        values: Float32 = array.get()
        return values

    def takes(self, matrix: Float32) -> bool:
        in_elements = all(s % 4 == 0 for s in matrix.strides)
        return self.kind is ByInterface or (matrix.dtype == np.float32 and in_elements)

    def import_result(self, result: Any) -> Any:
        return Imported(result)

    def address(self, imported: Any) -> int:
        address: int = imported.tensor.data
        return address

    @contextlib.contextmanager
    def late(self, values: Float32) -> Iterator[Any]:
        yield pending(values, self.kind)


def readme_call_from_pytorch() -> str:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```$", readme, re.DOTALL | re.MULTILINE)
    (code,) = (block for block in blocks if "import torch\n" in block)
    return code


def _present(module: str) -> bool:
    return importlib.util.find_spec(module) is not None and _core._cuda_problem() is None


FAKES = {kind.__name__: kind for kind in (ByInterface, ByDlpack, ByDlpack1, Managed)}
if FAKE:
    LIBRARIES: dict[str, Callable[[], Any]] = {
        name: functools.partial(Fake, kind) for name, kind in FAKES.items()
    }
else:
    known = {"torch": Torch, "cupy": Cupy}
    LIBRARIES = {name: make for name, make in known.items() if _present(name)}


class Stream:
    """An object that names a CUDA stream by the `__cuda_stream__` protocol."""

    def __init__(self, handle: object) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, object]:
        return (0, self.handle)


def refused(exception: type[Exception], *facts: str, **arguments: Any) -> None:
    """Asserts that run() raises exactly this exception, with the facts in its message."""
    with pytest.raises(exception) as caught:
        run("tile2d", arguments.pop("A"), arguments.pop("B"), **arguments)
    assert type(caught.value) is exception
    for fact in facts:
        assert fact in str(caught.value), str(caught.value)
