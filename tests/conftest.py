"""Runs each test on every pair of a variant and a device that can run it.

A test requests the fixture that its promise covers: ``variant`` is every variant, ``rung`` every
rung of the ladder (a library decides the reference's bits), ``device`` every usable device.
"""

import importlib
import os
from pathlib import Path

import numpy as np
import pytest

from sgemm_kernels import Device, Variant, _core, devices, variants

DEVICES = [device for device in devices() if device.usable]


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory):
    """A cache folder for compiled kernels that only the tests use. It starts empty."""
    before = os.environ.get("SGEMM_KERNELS_CACHE")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["SGEMM_KERNELS_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["SGEMM_KERNELS_CACHE"]
    else:
        os.environ["SGEMM_KERNELS_CACHE"] = before


def _runs(variant: Variant, device: Device) -> bool:
    return variant.runs_on(device) and (device.kind == "cpu" or variant.unavailable is None)


def pytest_report_header() -> str:
    problem = _core._cuda_problem()
    names = ", ".join(device.name for device in DEVICES)
    return f"devices: {names}" + (f" (running on the CPU device: {problem})" if problem else "")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.fixturenames
    if "variant" in wanted or "rung" in wanted:
        kind = "rung" if "rung" in wanted else "variant"
        pairs = [
            pytest.param(variant, device.name, id=f"{variant.name}-{device.name}")
            for device in DEVICES
            for variant in variants()
            if _runs(variant, device) and (kind == "variant" or variant.file is not None)
        ]
        metafunc.parametrize((kind, "device"), pairs)
    elif "device" in wanted:
        metafunc.parametrize("device", [device.name for device in DEVICES])


@pytest.fixture(scope="session")
def variants_on():
    """Maps each device's name to the names of the variants that run on it."""
    return {
        device.name: [variant.name for variant in variants() if _runs(variant, device)]
        for device in DEVICES
    }


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that gives the same numbers in every run."""
    return np.random.default_rng(20240229)


@pytest.fixture
def experiment(monkeypatch):
    """Imports a script of benchmarks/ by the name that the scripts use among themselves."""
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    return importlib.import_module
