"""Usable devices, the default device, and why there is no GPU."""

import dataclasses
import re

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, devices, run

from .support import NO_GPU, printed_by, python

ONE = np.ones((1, 1), np.float32)


def test_gpus_come_first_and_the_cpu_last():
    *gpus, cpu = devices()
    assert (cpu.name, cpu.kind, cpu.usable, cpu.problem) == ("cpu", "cpu", True, None)
    assert [gpu.name for gpu in gpus] == [
        f"{_core._GPU_KIND}:{index}" for index in range(len(gpus))
    ]
    assert all(gpu.kind == _core._GPU_KIND for gpu in gpus)


def test_figures_of_every_device():
    for device in devices():
        assert device.model.strip()
        assert device.multiprocessors > 0
        assert device.memory_bytes > 2**28
        assert device.usable == (device.problem is None)


def test_figures_of_a_gpu():
    for gpu in devices()[:-1]:
        assert gpu.kind == "hip" or gpu.compute_capability >= (1, 0)
        assert 10_000 <= gpu.registers_per_multiprocessor <= 10_000_000
        assert 2**14 <= gpu.shared_bytes_per_multiprocessor <= 2**24
        assert 2**18 <= gpu.l2_bytes <= 2**32
        assert 100 < gpu.clock_mhz < 10_000
        assert 100 < gpu.memory_clock_mhz < 100_000
        assert re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.0", gpu.pci_bus_id)
        major, minor = gpu.driver.split(".")
        assert int(major) >= 11
        assert int(minor) >= 0


def test_the_cpu_has_no_figures_of_a_gpu():
    cpu = devices()[-1]
    assert cpu.compute_capability is cpu.driver is cpu.registers_per_multiprocessor is None
    assert cpu.pci_bus_id is None


def test_the_cpu_counts_the_cores_it_may_use():
    script = """
        import os
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        import sgemm_kernels
        print(sgemm_kernels.devices()[-1].multiprocessors)
    """
    assert printed_by(script) == "1"


def test_a_device_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        devices()[-1].name = "other"


def test_there_is_a_problem_or_a_usable_gpu():
    usable = any(device.usable for device in devices() if device.kind != "cpu")
    assert usable == (_core._cuda_problem() is None)


def test_the_default_without_a_gpu_warns_once():
    script = """
        import threading, warnings
        import numpy as np
        import sgemm_kernels
        one = np.ones((1, 1), np.float32)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert sgemm_kernels.run("naive", one, one, device="cpu") == 1
            assert not caught, "it was asked for by name"
            assert sgemm_kernels.run("naive", one, one) == 1
            assert sgemm_kernels.run("smem", one, one, device=None) == 1
        (warning,) = caught
        assert warning.category is RuntimeWarning
        assert warning.filename == "<string>", "it points at the caller"
        print(warning.message)
        print(sgemm_kernels._core._cuda_problem())
    """
    warning, problem = printed_by(script, **NO_GPU).splitlines()
    assert problem in warning
    assert "device='cpu'" in warning


def test_the_warning_repeats_if_it_is_an_error():
    """Otherwise a second attempt would use the CPU without a warning."""
    script = """
        import warnings
        import numpy as np
        from sgemm_kernels import run
        A = np.ones((2, 2), np.float32)
        warnings.simplefilter("error")
        for _ in range(2):
            try:
                run("naive", A, A)
            except RuntimeWarning as warning:
                print("no usable GPU" in str(warning))
    """
    assert printed_by(script, **NO_GPU).splitlines() == ["True", "True"]


def test_the_warning_may_be_an_error():
    script = """
        import warnings
        import numpy as np
        import sgemm_kernels
        warnings.simplefilter("error")
        one = np.ones((1, 1), np.float32)
        try:
            sgemm_kernels.run("naive", one, one)
        except RuntimeWarning:
            print("raised", sgemm_kernels.run("naive", one, one, device="cpu").item())
    """
    assert printed_by(script, **NO_GPU) == "raised 1.0"


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1", "cuda:all"])
def test_asking_for_a_gpu_says_why_there_is_none(name):
    script = f"""
        import numpy as np
        import sgemm_kernels
        one = np.ones((1, 1), np.float32)
        try:
            sgemm_kernels.run("naive", one, one, device={name!r})
        except sgemm_kernels.DeviceError as error:
            assert type(error) is sgemm_kernels.DeviceError
            print(error)
        print(sgemm_kernels._core._cuda_problem())
    """
    message, problem = printed_by(script, **NO_GPU).splitlines()
    assert problem in message
    assert repr(name) in message


def test_without_a_gpu_only_the_cpu_is_usable():
    script = """
        import sgemm_kernels
        print([device.name for device in sgemm_kernels.devices() if device.usable])
    """
    assert printed_by(script, **NO_GPU) == "['cpu']"


def test_the_default_with_a_gpu_is_the_gpu_without_a_warning(device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    assert run("naive", ONE, ONE, device=_core._GPU_KIND) == 1
    script = """
        import numpy as np
        from sgemm_kernels import run
        one = np.ones((1, 1), np.float32)
        print(run("naive", one, one).item())
    """
    process = python(script)
    assert (process.returncode, process.stdout, process.stderr) == (0, "1.0\n", "")


def test_a_variant_that_a_device_cannot_run():
    for variant in sgemm_kernels.variants():
        if "cpu" not in variant.devices:
            with pytest.raises(sgemm_kernels.UnsupportedVariantError, match=variant.name):
                run(variant.name, ONE, ONE, device="cpu")
