"""How a build for AMD GPUs differs. `make thorough GROUP=hip` runs these tests, and those that HIP
shares with CUDA, over the fake runtime under HIP's names."""

import ctypes
import json
import sys

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, build_info, devices, run, variants
from sgemm_kernels.__main__ import main
from sgemm_kernels.measuring.measure import measure

from . import record_gpu_check
from .support import printed_over_fake_cuda, same_bits, uniform

RUNGS = [variant for variant in variants() if variant.file is not None]
# Rungs with launchers compiled for AMD GPUs, and rungs without.
THERE = [rung.name for rung in RUNGS if rung.min_compute_capability == (7, 5)]
MISSING = [rung.name for rung in RUNGS if rung.name not in THERE]
CHOICES = ("simt", "auto", "invariant")


@pytest.fixture
def operands(rng):
    return uniform(rng, 150, 40), uniform(rng, 40, 270)


@pytest.fixture
def rocblas():
    """The fake rocBLAS, which is part of the extension."""
    _core._open_cublas(_core.__file__)


def test_the_catalog_says_which_rungs_have_a_counterpart():
    kinds = {variant.name: variant.devices for variant in variants()}
    assert kinds == {
        **dict.fromkeys((*THERE, *CHOICES), ("cpu", "hip")),
        **dict.fromkeys(MISSING, ("cpu",)),
        "rocblas": ("hip",),
    }


@pytest.mark.parametrize("name", MISSING)
def test_a_rung_without_a_counterpart_says_so(operands, name):
    with pytest.raises(sgemm_kernels.UnsupportedVariantError, match=f"'{name}'.*NVIDIA.*'cpu'"):
        run(name, *operands, device="hip")


@pytest.mark.parametrize("name", [*THERE, *CHOICES])
@pytest.mark.parametrize("where", [None, "hip", "hip:1", "hip:all"])
def test_every_other_variant_runs_on_every_device(operands, name, where):
    rung = name if name in THERE else "warptile"
    expected = run(rung, *operands, device="cpu")
    assert same_bits(run(name, *operands, device=where), expected)


@pytest.mark.parametrize("name", ["cuda", "cuda:0", "hip:", "hip:x", "hipp", "hip:all:0", "HIP"])
def test_other_names_of_devices_are_refused(operands, name):
    with pytest.raises(ValueError, match="'cpu', 'hip', 'hip:<index>', 'hip:all' or None"):
        run("vec4", *operands, device=name)
    with pytest.raises(sgemm_kernels.DeviceError, match=r"an index up to 1 \(visible GPUs: 2\)"):
        run("vec4", *operands, device="hip:2")


def test_facts_about_devices_and_build(capsys):
    gpu = devices()[0]
    assert (gpu.name, gpu.kind, gpu.usable) == ("hip:0", "hip", True)
    assert gpu.model == "a fake GPU (gfx90a)"
    assert gpu.compute_capability is None
    assert gpu.driver == ".".join(build_info().hip.split(".")[:2])
    assert build_info().cuda_toolkit is None
    assert "gfx90a" in build_info().architectures
    assert main(["info"]) == 0
    said = capsys.readouterr().out
    for fact in (f"HIP {build_info().hip}: gfx900", "(gfx90a), 8 compute units", "rocBLAS"):
        assert fact in said
    assert "CUDA" not in said


def test_a_gpu_that_the_build_has_no_code_for():
    code = """
        gpu = sgemm_kernels.devices()[0]
        print(gpu.usable, gpu.problem)
        print(sgemm_kernels.devices()[0].model)
    """
    said = printed_over_fake_cuda(code, FAKE_HIP_ARCHITECTURE="gfx1100")
    assert said.startswith("False this build has no code for the GPU: it is a gfx1100")
    assert "SGEMM_KERNELS_ARCHS=gfx1100" in said
    # A prefix of the architecture's name does not match.
    assert printed_over_fake_cuda(code, FAKE_HIP_ARCHITECTURE="gfx90").startswith("False")


def test_rocblas_multiplies(operands, rocblas):
    A, B = (np.rint(4 * values) for values in operands)
    assert same_bits(run("rocblas", A, B, device="hip"), A @ B)
    assert same_bits(run("rocblas", np.asfortranarray(A), B.T.copy().T, alpha=2), 2 * (A @ B))


def test_rocblas_that_is_missing_names_its_package(monkeypatch):
    code = """
        from sgemm_kernels import _cublas
        _cublas._ROCBLAS = ("libnowhere.so",)
        try:
            run("rocblas", np.ones((2, 2), "f4"), np.ones((2, 2), "f4"))
        except sgemm_kernels.UnsupportedVariantError as error:
            print(error)
    """
    said = printed_over_fake_cuda(code)
    assert "rocBLAS library, which was not found" in said
    assert "apt install librocblas0" in said


def test_a_measurement_beside_rocblas(rocblas):
    found = measure(["vec4", "rocblas"], 64, device="hip", seconds=0.05)
    assert (found.run.kind, found.run.protocol.timer) == ("hip", "HIP events")
    assert found["vec4", 64].vs_cublas > 0
    assert "of rocBLAS" in str(found)
    assert "cuBLAS" not in str(found)


def test_check_finds_all_right():
    assert main(["check", "--device", "hip:1"]) == 0


def test_the_record_of_a_check_on_a_gpu(tmp_path, monkeypatch, capsys):
    counts = 'tests="3" failures="0" errors="0" skipped="1" time="1.5"'
    (tmp_path / "one.xml").write_text(f"<testsuites><testsuite {counts}/></testsuites>")
    (tmp_path / "sanitize.txt").write_text("compute-sanitizer is for NVIDIA GPUs alone")
    monkeypatch.setattr(sys, "argv", ["record_gpu_check.py", str(tmp_path)])
    record_gpu_check.main()
    record = json.loads(capsys.readouterr().out)
    assert (record["device"], record["hip"]) == ("a fake GPU (gfx90a)", build_info().hip)
    assert record["driver_serves_hip"] == devices()[0].driver
    assert record["pytest"]["tests"] == 3
    assert record["compute_sanitizer"]["summaries"] == []


def test_the_default_stream_is_hips(operands):
    """CUDA's number for the default stream and PyTorch's both mean HIP's."""
    from .exporters import FAKES

    A, B = (FAKES["ByDlpack"](values) for values in operands)
    expected = run("vec4", *operands, device="cpu")
    core = ctypes.CDLL(_core.__file__)
    for stream in (0, 1):
        result = run("vec4", A, B, stream=stream)
        core.library_synchronize(None)
        assert same_bits(np.asarray(result), expected)
        assert A.requested_stream == 0


def test_a_custom_kernel_runs_only_on_the_cpu_device(operands, tmp_path):
    source = next(variant.source for variant in variants() if variant.name == "naive")
    (tmp_path / "mine.cu").write_text(source)
    mine = sgemm_kernels.kernel(tmp_path / "mine.cu", like="naive")
    assert same_bits(run(mine, *operands, device="cpu"), run("naive", *operands, device="cpu"))
    with pytest.raises(
        sgemm_kernels.UnsupportedVariantError, match="'mine' does not run on the AMD GPU"
    ):
        run(mine, *operands, device="hip")
