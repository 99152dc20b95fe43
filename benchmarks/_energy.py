"""Energy of products, by the GPU's own counter (NVML's total energy consumption)."""

from __future__ import annotations

import importlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from sgemm_kernels import run
from sgemm_kernels.measuring.competitors import Competitor
from sgemm_kernels.measuring.devices import find_device, gpu_index
from sgemm_kernels.measuring.operands import Float32
from sgemm_kernels.measuring.telemetry import open_nvml

SECONDS = 2.0
"""How long each product is repeated. The counter changes every 0.1 s at most."""
WARM_SECONDS = 0.5
QUEUED_SECONDS = 0.05
"""Work that is queued at a time."""


def repeated(call: Callable[[], object], synchronize: Callable[[], None], seconds: float) -> int:
    """Repeats a call for about so long without a pause. Returns how often."""
    begin = time.monotonic()
    call()
    synchronize()
    batch = max(int(QUEUED_SECONDS / (time.monotonic() - begin)), 1)
    count = 1
    while time.monotonic() - begin < seconds:
        for _ in range(batch):
            call()
        synchronize()
        count += batch
    return count


def energies(
    ways: Mapping[str, Competitor | None], A: Float32, B: Float32, device: str
) -> Iterator[tuple[str, float]]:
    """Joules of one product for each way: a competitor, or None for a variant of that name. Yields
    nothing without CuPy, NVML or its counter."""
    nvml = open_nvml()
    if nvml is None or importlib.util.find_spec("cupy") is None:
        return
    cupy = importlib.import_module("cupy")
    where = find_device(device)
    try:
        gpu = nvml.nvmlDeviceGetHandleByPciBusId(where.pci_bus_id)
        nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except nvml.NVMLError:
        return
    with cupy.cuda.Device(gpu_index(where.name)) as on_gpu:
        a, b = cupy.asarray(A), cupy.asarray(B)
        out = cupy.empty((A.shape[0], B.shape[1]), np.float32)
        for name, competitor in ways.items():

            def call(name: str = name, competitor: Competitor | None = competitor) -> Any:
                return competitor(a, b, out) if competitor else run(name, a, b, out=out)

            repeated(call, on_gpu.synchronize, WARM_SECONDS)
            before = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            count = repeated(call, on_gpu.synchronize, SECONDS)
            after = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            yield name, (after - before) / 1e3 / count
