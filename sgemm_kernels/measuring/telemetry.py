"""Clock, power and temperature of the GPU while something is sampled, through nvidia-ml-py."""

import importlib
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

_AVERAGED_S = 1.0
"""The counters average over about a second, so earlier readings include the time before."""
_PERIOD_S = 0.05


class Figures(NamedTuple):
    """Medians; None if nothing could be read for long enough."""

    clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None


def open_nvml() -> Any:
    """The initialized module pynvml, or None if it or its library is missing."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def driver_version() -> str | None:
    """Version of the GPU's driver, or None without NVML."""
    nvml = open_nvml()
    return None if nvml is None else str(nvml.nvmlSystemGetDriverVersion())


class Telemetry:
    """Reads one GPU in a thread while the ``with`` block runs.

    The GPU is identified by its PCI bus ID, because NVML counts GPUs in another order than CUDA and
    ignores CUDA_VISIBLE_DEVICES. Without an ID, nothing is read.
    """

    def __init__(self, pci_bus_id: str | None) -> None:
        self._pci_bus_id = pci_bus_id
        self._nvml: Any = open_nvml() if pci_bus_id else None
        self._readings: list[tuple[float, Figures]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._begin = 0.0

    def __enter__(self) -> "Telemetry":
        self._begin = time.monotonic()
        if self._nvml is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _read(self) -> None:
        nvml = self._nvml

        def ask(question: Callable[[], Any]) -> Any:
            try:
                return question()
            except nvml.NVMLError:
                return None  # this GPU or container does not report it

        gpu = ask(lambda: nvml.nvmlDeviceGetHandleByPciBusId(self._pci_bus_id))
        while gpu is not None and not self._stop.wait(_PERIOD_S):
            clock = ask(lambda: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM))
            power = ask(lambda: nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3)
            heat = ask(lambda: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU))
            self._readings.append((time.monotonic(), Figures(clock, power, heat)))

    def figures(self) -> Figures:
        """Medians of the readings after the first second."""
        settled = [read for moment, read in self._readings if moment - self._begin > _AVERAGED_S]
        columns = [[x for x in column if x is not None] for column in zip(*settled, strict=True)]
        return Figures(*(float(statistics.median(c)) if c else None for c in columns))
