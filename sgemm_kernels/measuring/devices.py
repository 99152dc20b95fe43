"""Chooses the device to measure on, and the variants that it can run."""

import contextlib

import numpy as np

from .. import _core
from .._catalog import Device, default_device, devices, variants
from .._core import DeviceError, UnsupportedVariantError
from .measurement import TF32


def runnable(device: Device, *, tf32: bool = False) -> tuple[str, ...]:
    """The names of the variants to measure on a device: the ladder, the reference if it is
    installed, and the TF32 reference if requested."""
    usable = [v for v in variants() if device.kind in v.devices]
    names = tuple(v.name for v in usable if v.file is not None or v.unavailable is None)
    if tf32 and device.kind == "cuda":
        with contextlib.suppress(UnsupportedVariantError):
            one = np.ones((1, 1), np.float32)
            _core._run_measured(TF32, one, one, device=device.name)
            names += (TF32,)
    return names


def gpu_index(device: str) -> int:
    return int(device.partition(":")[2])


def find_device(name: str | None) -> Device:
    """The single device that ``run`` would use. Raises the errors of ``run``, and ValueError if the
    name means several devices."""
    if name is None:
        return default_device()
    one = np.ones((1, 1), np.float32)
    _core.run(variants()[0].name, one, one, device=name)
    for device in devices():
        if device.name == name or (device.kind == name and device.usable):
            return device
    raise ValueError(f"{name!r} means several devices: pass one of them")


def find_gpu(what: str) -> Device:
    """The GPU that ``run`` would use, for measurements that need a GPU.

    Raises DeviceError with ``what`` and the reason if there is no GPU.
    """
    device = find_device(None)
    if device.kind == "cpu":
        raise DeviceError(f"{what} on a GPU: {_core._cuda_problem()}")
    return device
