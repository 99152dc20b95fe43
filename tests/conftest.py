"""Runs each test on every pair of a variant and a device that can run it.

A test requests the fixture that its promise covers: ``variant`` is every variant, ``rung`` every
rung of the ladder (a library decides the reference's bits), ``device`` every usable device.
"""

import contextlib
import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sgemm_kernels import Device, Variant, _core, devices, variants
from sgemm_kernels.custom import compiler

from .support import MULTIPROCESSORS

COMPILED = {".o", ".so", ".txt", ".sha256"}
"""The suffixes of files that a compiler made, and of their digests."""

DEVICES = [device for device in devices() if device.usable]
RUNGS = {variant.name for variant in variants() if variant.file is not None}


@pytest.fixture(scope="session", autouse=True)
def custom_cache() -> Iterator[Path]:
    """A cache folder for compiled kernels that only the tests use.

    It starts with the files that earlier runs compiled from the same headers, but without verdicts.
    """
    kept = Path(__file__).parent.parent / "build/test-cache" / compiler.headers_digest()
    kept.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(dir=kept.parent) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        _link_compiled(kept, Path(folder))
        patch.setenv("SGEMM_KERNELS_CACHE", folder)
        yield Path(folder)
        _link_compiled(Path(folder), kept)


def _link_compiled(source: Path, target: Path) -> None:
    for path in source.iterdir():
        if path.suffix in COMPILED and path.is_file():
            with contextlib.suppress(FileExistsError):
                (target / path.name).hardlink_to(path)


def _runs(variant: Variant, device: Device) -> bool:
    return variant.runs_on(device) and (device.kind == "cpu" or variant.unavailable is None)


def _is_tested(variant: Variant, device: Device) -> bool:
    """On the CPU device, `auto` would launch the same kernels as `simt`, and `invariant` is slow:
    test_auto.py and test_same_bits.py test these."""
    elsewhere = device.kind == "cpu" and variant.name in ("auto", "invariant")
    return _runs(variant, device) and not elsewhere


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fails a test of a variant that launched only other variants' kernels: a rung on tensor cores
    leaves a short K to another rung. The mark any_kernel lifts this.

    On the CPU device, `simt` plans for a GPU of 132 multiprocessors. Otherwise it would run rungs.
    """
    params = item.callspec.params if hasattr(item, "callspec") else {}
    variant = params.get("variant", params.get("rung"))
    if not isinstance(variant, Variant):
        return (yield)
    with pytest.MonkeyPatch.context() as patch:
        plans = variant.name == "simt" and params["device"] == "cpu"
        if plans:
            patch.setenv(MULTIPROCESSORS, "132")
        _core._launched(True)
        try:
            result = yield
        finally:
            launched = _core._launched(False)
    if not item.get_closest_marker("any_kernel"):
        if variant.file is not None:
            assert variant.name in launched, "the rung did not run its own kernel"
        assert not plans or launched - RUNGS, "simt ran no kernel of the engine"
    return result


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
            if _is_tested(variant, device) and (kind == "variant" or variant.file is not None)
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
