"""Collects the facts that all measurements of one run share."""

import datetime
from pathlib import Path

from .. import _cublas
from .._catalog import Device, build_info
from .._version import __version__
from .devices import gpu_index
from .measurement import Protocol, Run
from .probe import peaks
from .telemetry import driver_version


def describe_run(device: Device, cache: str, data: str, ffma_probe: str | Path | None) -> Run:
    build = build_info()
    on_gpu = device.kind != "cpu"
    protocol = Protocol("host clock", "uncontrolled", data)
    if on_gpu:
        protocol = Protocol(f"{device.kind.upper()} events", cache, data)
    ffma, copy = None, None
    if on_gpu and ffma_probe is not None:
        ffma, copy = peaks(Path(ffma_probe), gpu_index(device.name))
    return Run(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        device=device.model,
        kind=device.kind,
        csrc_hash=build.csrc_hash,
        version=__version__,
        protocol=protocol,
        driver=driver_version() if on_gpu else None,
        cuda_toolkit=build.cuda_toolkit,
        cublas=_cublas.version() if on_gpu else None,
        ffma_gflops=ffma,
        copy_bytes_per_s=copy,
    )
