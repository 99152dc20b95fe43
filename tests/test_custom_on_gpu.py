"""Custom kernels on GPUs: over the fake CUDA runtime and a fake NVRTC, and on a real GPU."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels as sk
from sgemm_kernels import _core
from sgemm_kernels.custom import for_gpu, nvrtc
from sgemm_kernels.custom.compiler import Source
from sgemm_kernels.custom.plain import PlainLaunch

from .support import (
    printed_over_fake_cuda,
    with_header,
)

pytestmark = pytest.mark.usefixtures("custom_cache")

NATIVE = Path(__file__).parent / "native"
GPUS = [device.name for device in sk.devices() if device.kind == "cuda" and device.usable]


@pytest.fixture
def fake_nvrtc(tmp_path, monkeypatch):
    """A fake NVRTC, and an empty cache."""
    library = tmp_path / "nvrtc.so"
    compiler = os.environ.get("CC") or "cc"
    command = [compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*command, str(NATIVE / "fake_nvrtc.c")], check=True)
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(library))
    monkeypatch.setenv("CUDA_HOME", "/nowhere")
    return library


MINE = """
        import numpy as np
        import sgemm_kernels as sk
        from sgemm_kernels.custom import nvrtc
        nvrtc.find_nvcc = lambda: None
        mine = sk.kernel(OWN, name="mine")
        A, B = uniform(rng, 70, 40), uniform(rng, 40, 90)
"""


def over_fake(code, text="// fake\n"):
    """The output of the code, in which `mine` is a kernel."""
    own = with_header("tile2d") + text
    return printed_over_fake_cuda(f"        OWN = {own!r}\n" + MINE + code)


@pytest.mark.fake_cuda
def test_it_runs_on_each_gpu_like_on_the_cpu(fake_nvrtc):
    code = """
        expected = run("tile2d", A, B, device="cpu")
        for device in (None, "cuda", "cuda:1"):
            assert same_bits(run(mine, A, B, device=device), expected)  # in its own process
        assert mine.check(device="cpu")
        assert mine.sanitize()
        for device in (None, "cuda", "cuda:1", "cuda:all"):
            assert same_bits(run(mine, A, B, device=device), expected)
        print("same")
    """
    assert over_fake(code) == "same"


@pytest.mark.fake_cuda
def test_only_kernels_that_passed_accept_arrays_on_a_gpu(fake_nvrtc):
    code = """
        from tests.exporters import FAKES
        a, b = FAKES["ByDlpack"](A), FAKES["ByDlpack"](B)
        try:
            run(mine, a, b)
        except sk.Error as error:
            print("sanitize() first" in str(error))
        assert mine.check(device="cpu")
        assert mine.sanitize()
        assert same_bits(np.asarray(run(mine, a, b)), run("tile2d", A, B, device="cpu"))
    """
    assert over_fake(code, "// arrays\n") == "True"


@pytest.mark.fake_cuda
def test_a_launch_that_fails(fake_nvrtc):
    """A launch without enough memory is retried, and an error that ends the GPU is remembered."""
    code = """
        from tests.exporters import FAKES
        a, b = FAKES["ByDlpack"](A), FAKES["ByDlpack"](B)
        expected = run("tile2d", A, B, device="cpu")
        assert mine.check(device="cpu")
        assert mine.sanitize()
        run(mine, a, b)
        number, call = 0, b""
        while call != b"cudaLaunchKernelExC":
            number += 1
            fake.fake_cuda_fail(number, 2)
            try:
                right = same_bits(np.asarray(run(mine, a, b)), expected)
            except sk.Error:
                right = False
            call = fake.fake_cuda_failed_call()
        print(right)
        fake.fake_cuda_fail(number, 719)
        for _ in range(2):
            try:
                run(mine, a, b)
            except sk.Error as error:
                print(error)
    """
    right, first, second = over_fake(code, "// fails\n").splitlines()
    assert right == "True"
    assert "launching a kernel failed on cuda:0" in first
    assert "cuda:0 is unusable until this process is restarted" in second


@pytest.mark.fake_cuda
def test_it_is_measured_on_a_gpu(fake_nvrtc):
    code = """
        row, _ = sk.measure([mine, "naive"], 64, device="cuda", seconds=0.1).rows
        print(row.variant, row.error.right, len(row.samples_s) > 0)
    """
    assert over_fake(code) == "mine True True"


@pytest.mark.fake_cuda
def test_nvrtcs_error_log_is_shown(fake_nvrtc):
    code = """
        try:
            run(mine, A, B, device="cuda")
        except sk.CompileError as error:
            print(error)
    """
    text = "#if defined(__CUDACC_RTC__)\n#error no\n#endif\n"
    assert "mine.cu(7): error: as the source says" in over_fake(code, text)


@pytest.mark.fake_cuda
@pytest.mark.parametrize(
    "function",
    [
        "nvrtcVersion",
        "nvrtcGetNumSupportedArchs",
        "nvrtcGetSupportedArchs",
        "nvrtcCreateProgram",
        "nvrtcAddNameExpression",
        "nvrtcGetLoweredName",
        "nvrtcGetCUBINSize",
        "nvrtcGetCUBIN",
    ],
)
def test_each_call_of_nvrtc_may_fail(fake_nvrtc, monkeypatch, function):
    code = """
        import os
        for _ in range(2):
            try:
                run(mine, A, B, device="cuda")
            except sk.CompileError as error:
                print(error)
    """
    monkeypatch.setenv("FAKE_NVRTC_FAILS", function)
    text = f"// {function}\n"
    printed = over_fake(code, text).splitlines()
    assert len(printed) == 2
    assert all(line.startswith("NVRTC failed") and "planted" in line for line in printed)


@pytest.mark.fake_cuda
def test_code_refused_by_the_gpu(fake_nvrtc, monkeypatch):
    code = """
        try:
            run(mine, A, B, device="cuda")
        except sk.DeviceError as error:
            print("could not be loaded" in str(error))
    """
    monkeypatch.setenv("FAKE_NVRTC_CODE", "broken")
    assert over_fake(code, "// broken\n") == "True"


@pytest.mark.fake_cuda
def test_loading_may_fail_at_each_call(fake_nvrtc):
    code = """
        assert mine.check(device="cpu")
        assert mine.sanitize()
        expected = run("tile2d", A, B, device="cpu")
        run("naive", A, B, device="cuda")
        failed = set()
        for call in range(1, 60):
            fresh = sk.kernel(mine.source, name="mine")
            fake.fake_cuda_fail(call, 2)
            try:
                result = run(fresh, A, B, device="cuda")
            except sk.OutOfMemoryError:
                pass
            except sk.DeviceError:
                pass
            else:
                assert same_bits(result, expected)
            if fake.fake_cuda_failed_call():
                failed.add(fake.fake_cuda_failed_call().decode())
            fake.fake_cuda_fail(0, 0)
        assert same_bits(run(mine, A, B, device="cuda"), expected)
        print(sorted(name for name in failed if "Library" in name or "Launch" in name))
    """
    printed = over_fake("        import ctypes\n" + code, "// loading\n")
    assert printed == "['cudaLaunchKernelExC', 'cudaLibraryGetKernel', 'cudaLibraryLoadData']"


COMPUTE_SANITIZER = """\
#!/bin/sh
# Runs the program, and says of it what the tools say.
tool=$2
shift 4
"$@" || exit
case $tool in
memcheck) cat << END
========= Invalid __global__ read of size 4 bytes
=========     at mine(Sgemm)+0x150 in /tmp/mine.cu:52
=========     by thread (3,0,0) in block (7,0,0)
=========     Address 0x7f0000000000 is out of bounds
========= ERROR SUMMARY: 1 error
END
;;
racecheck) cat << END
========= Error: Race reported between Write access at mine(Sgemm)+0x90 in mine.cu:43
=========     and Read access at mine(Sgemm)+0x120 in mine.cu:50 [16 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
END
;;
*) echo "========= ERROR SUMMARY: 0 errors" ;;
esac
"""


@pytest.mark.fake_cuda
def test_compute_sanitizer_reports_become_findings(fake_nvrtc, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin/compute-sanitizer"
    tool.write_text(COMPUTE_SANITIZER)
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    code = """
        diagnosis = mine.sanitize(device="cuda")
        for f in diagnosis.findings:
            print(f.kind, f.place, f.threads, f.block)
        print(diagnosis.device, "exit status" in str(diagnosis), mine.sanitized)
    """
    assert over_fake(code, "// compute-sanitizer\n").splitlines() == [
        "out of bounds mine.cu:52 (3,) 7",
        "race mine.cu:43 () None",
        "cuda:0 False False",
    ]


@pytest.mark.fake_cuda
def test_a_program_that_fails_under_compute_sanitizer_is_refused(fake_nvrtc, tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin/compute-sanitizer"
    tool.write_text("#!/bin/sh\necho it failed\nexit 5\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    code = """
        print(*(str(f) for f in mine.sanitize(device="cuda").findings), mine.sanitized)
    """
    said = over_fake(code, "// fails under it\n")
    assert said == "ended its process: under memcheck: exit status 5, it failed False"


LOADED = """
        import gc, os

        def loaded():
            cache = os.environ["SGEMM_KERNELS_CACHE"]
            with open("/proc/self/maps") as maps:
                own = {line.split()[-1] for line in maps if cache in line}
            return len(own), fake.fake_cuda_libraries()
"""


@pytest.mark.fake_cuda
def test_a_library_is_closed_with_its_last_kernel(fake_nvrtc):
    code = """
        other = sk.kernel(mine.source, name="mine")
        assert mine.check(device="cpu")
        assert mine.sanitize()
        expected = run("tile2d", A, B, device="cpu")
        for own in (mine, other, mine):
            assert same_bits(run(own, A, B, device="cuda"), expected)
            assert same_bits(run(own, A, B, device="cpu"), expected)
        print(loaded())
        del mine, own
        gc.collect()
        print(loaded(), same_bits(run(other, A, B, device="cuda"), expected))
        del other
        gc.collect()
        print(loaded())
    """
    said = over_fake(LOADED + code, "// closed\n").splitlines()
    assert said == ["(1, 1)", "(1, 1) True", "(0, 0)"]


@pytest.mark.fake_cuda
def test_a_library_whose_work_may_be_queued_stays_open(fake_nvrtc):
    code = """
        from tests.exporters import FAKES
        a, b = FAKES["ByDlpack"](A), FAKES["ByDlpack"](B)
        assert mine.check(device="cpu")
        assert mine.sanitize()
        result = run(mine, a, b, stream=1)
        del mine
        gc.collect()
        print(loaded(), same_bits(np.asarray(result), run("tile2d", A, B, device="cpu")))
    """
    assert over_fake(LOADED + code, "// queued\n") == "(1, 1) True"


@pytest.mark.fake_cuda
def test_without_nvrtc_and_nvcc_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(tmp_path / "none.so"))
    code = """
        assert mine.check(device="cpu")
        assert mine.sanitize()  # its own process would find the machine's nvcc
        try:
            run(mine, A, B, device="cuda")
        except sk.NoCompilerError as error:
            print("none.so" in str(error))
        assert run(mine, A, B, device="cpu").shape == (70, 90)
    """
    assert over_fake(code) == "True"


def test_the_architecture_to_compile_for():
    known = [75, 80, 86, 90]
    wanted = {75: "sm_75", 89: "sm_86", 90: "sm_90", 120: "compute_90"}
    assert {c: nvrtc.architecture(c, known) for c in wanted} == wanted
    with pytest.raises(sk.CompileError, match=r"7\.5 and newer"):
        nvrtc.architecture(70, known)


@pytest.mark.nvcc
@pytest.mark.skipif(not nvrtc.find_nvcc(), reason="needs nvcc")
@pytest.mark.parametrize("taken", ["tile2d", "async", "splitk"])
def test_nvcc_builds_a_library_from_a_rung(taken):
    """The library describes itself without a GPU."""
    library = nvrtc.nvcc_library(Source(Path("mine.cu"), sk.source(taken)), [90])
    _, entry, symbol = _core._open_kernel(str(library), "mine", "mine.cu")
    assert entry["devices"] in (("cuda",), ())  # () in a CPU-only build
    assert symbol == taken


@pytest.mark.nvcc
@pytest.mark.skipif(not nvrtc.find_nvcc(), reason="needs nvcc")
def test_nvcc_gets_the_values_of_defines():
    text = with_header("tile2d") + "static_assert(BM == 64 && BN == 64);\n"
    nvrtc.nvcc_library(Source(Path("mine.cu"), text, {"BM": 64, "BN": 64}), [90])


@pytest.mark.nvcc
@pytest.mark.skipif(not nvrtc.find_nvcc(), reason="needs nvcc")
def test_nvcc_builds_a_library_from_a_plain_kernel():
    """It includes headers of the toolkit, which NVRTC lacks."""
    path = Path(__file__).parent / "plain/barrier.cu"
    launch = PlainLaunch.of("(N/16, M/16)", (16, 16), function="gemm_barrier<16>")
    library = nvrtc.nvcc_library(Source(path, path.read_text(), launch=launch), [80])
    _, _, symbol = _core._open_kernel(str(library), "mine", "mine.cu")
    assert symbol == "gemm_barrier<16>"


def real_nvrtc():
    home = Path(nvrtc.find_nvcc() or "/nowhere").parent.parent
    return next(iter(sorted(home.glob("lib64/libnvrtc.so*"))), None)


@pytest.mark.skipif(real_nvrtc() is None, reason="needs NVRTC")
@pytest.mark.parametrize("taken", [v.name for v in sk.variants()[:8]])
def test_nvrtc_compiles_the_rungs_of_one_kernel(taken, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(real_nvrtc()))
    code, symbol = nvrtc.gpu_code(Source(Path("mine.cu"), sk.source(taken)), taken, 80)
    assert code.startswith(b"\x7fELF")
    assert symbol.encode() in code


@pytest.mark.skipif(real_nvrtc() is None, reason="needs NVRTC")
def test_nvrtc_errors_say_when_nvcc_is_needed_and_name_the_line(monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(real_nvrtc()))
    with pytest.raises(nvrtc.BeyondNvrtcError):
        nvrtc.gpu_code(Source(Path("mine.cu"), with_header("splitk")), "splitk", 80)
    for name in ("a$s", "Ähre"):
        text = with_header("tile2d").replace("As[", f"{name}[")
        with pytest.raises(nvrtc.BeyondNvrtcError):
            nvrtc.gpu_code(Source(Path("mine.cu"), text), "tile2d", 80)
    text = with_header("naive") + "#ifdef __CUDACC_RTC__\nint wrong = nowhere;\n#endif\n"
    line = text.count("\n") - 1
    with pytest.raises(sk.CompileError, match=rf"mine\.cu\({line}\): error"):
        nvrtc.gpu_code(Source(Path("mine.cu"), text), "naive", 80)


@pytest.mark.parametrize(
    ("version", "has_cache"), [("12.8", False), ("12.9", True), ("13.0", True)]
)
def test_a_report_is_not_from_nvrtcs_cache(fake_nvrtc, monkeypatch, tmp_path, version, has_cache):
    monkeypatch.setenv("SGEMM_KERNELS_CACHE", str(tmp_path))
    monkeypatch.setenv("FAKE_NVRTC_VERSION", version)
    log = nvrtc.compile_log(Source(Path("mine.cu"), with_header("naive")), "naive", 90, False)
    assert ("--no-cache" in log.split()) == has_cache
    assert "--ptxas-options=-v" in log.split()


@pytest.mark.skipif(real_nvrtc() is None, reason="needs NVRTC")
@pytest.mark.parametrize(
    ("taken", "kernels"),
    [
        ("naive", ["naive"]),
        ("splitk", ["reduce", "splitk"]),
        ("tma", ["tma"]),
        ("wgmma", ["largest_of_rows", "recompute", "split_rows", "split_whole_rows", "wgmma"]),
    ],
)
def test_nvrtc_reports_on_each_kernel_of_a_file(taken, kernels, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(real_nvrtc()))
    source = Source(Path("mine.cu"), with_header(taken))
    log = nvrtc.compile_log(source, taken, 90, taken == "wgmma")
    entries = re.findall(r"Compiling entry function '(\w+)' for '(\w+)'", log)
    named = {for_gpu.plain_name(mangled) for mangled, _ in entries}
    assert sorted(named - {"sgemm_every_kernel"}) == kernels
    assert {architecture for _, architecture in entries} == {
        "sm_90a" if taken == "wgmma" else "sm_90"
    }
    assert for_gpu.spills(log) == []


@pytest.mark.skipif(real_nvrtc() is None, reason="needs NVRTC")
def test_a_spill_names_its_kernel(monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(real_nvrtc()))
    text = sk.source("splitk").replace("(threads, 1) splitk", "(threads, 4) splitk")
    log = nvrtc.compile_log(Source(Path("mine.cu"), text), "splitk", 90, False)
    found = [finding.text.split(":")[0] for finding in for_gpu.spills(log)]
    assert found == ["splitk"]


def test_the_report_names_functions_as_the_file_does():
    names = {
        "naive": "naive",
        "_Z5naive5Sgemm": "naive",
        "_ZL5naive5Sgemm": "naive",
        "_ZN30_GLOBAL__N__9_splitk_cu_14e4e96splitkILi16EEEvNS_12SplitProductE": "splitk",
    }
    assert {mangled: for_gpu.plain_name(mangled) for mangled in names} == names


def by_nvrtc(source, monkeypatch):
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", str(real_nvrtc()))
    nvrtc.gpu_code(source, "tile2d", 80)


WAYS = [
    pytest.param(
        by_nvrtc, marks=pytest.mark.skipif(real_nvrtc() is None, reason="needs NVRTC"), id="nvrtc"
    ),
    pytest.param(
        lambda source, _: nvrtc.nvcc_library(source, [80]),
        marks=[
            pytest.mark.nvcc,
            pytest.mark.skipif(not nvrtc.find_nvcc(), reason="needs nvcc"),
        ],
        id="nvcc",
    ),
]


@pytest.mark.parametrize("compiled", WAYS)
def test_on_a_gpu_a_header_beside_the_file_replaces_the_packages(compiled, tmp_path, monkeypatch):
    (tmp_path / "mine.cu").write_text(with_header("tile2d"))
    source = Source(tmp_path / "mine.cu", with_header("tile2d"))
    compiled(source, monkeypatch)
    (tmp_path / "kernel.h").write_text("#error beside\n")
    with pytest.raises(sk.CompileError, match=r"kernel\.h.*#error.*beside"):
        compiled(Source(source.path, source.text), monkeypatch)


@pytest.mark.parametrize("compiled", WAYS)
def test_the_current_folder_is_not_searched_for_headers(compiled, tmp_path, monkeypatch):
    for folder in ("current", "own apart"):
        (tmp_path / folder).mkdir()
    (tmp_path / "current/kernel.h").write_text("#error current\n")
    monkeypatch.chdir(tmp_path / "current")
    text = with_header("tile2d") + "// whose current folder has headers\n"
    for path in (Path("mine.cu"), tmp_path / "own apart/mine.cu"):
        compiled(Source(path, text), monkeypatch)


@pytest.mark.skipif(not GPUS, reason="needs a GPU")
@pytest.mark.parametrize("taken", ["naive", "tile2d", "warptile", "async"])
def test_on_a_gpu_it_is_bit_identical_to_the_rung(taken):
    if not (nvrtc.has_nvrtc() or shutil.which("nvcc") or nvrtc.find_nvcc()):
        pytest.skip("needs NVRTC or nvcc")
    mine = sk.kernel(sk.source(taken), name="mine", like=taken)
    rng = np.random.default_rng(1)
    A, B = (rng.uniform(-1, 1, s).astype(np.float32) for s in ((300, 257), (257, 140)))
    expected = sk.run(taken, A, B, device="cuda")
    assert sk.run(mine, A, B, device="cuda").tobytes() == expected.tobytes()
    assert mine.check(device="cuda").passed
    assert mine.sanitize()
    assert sk.run(mine, A, B, device="cuda").tobytes() == expected.tobytes()
    assert mine.check(device="cuda").passed


@pytest.mark.skipif(not GPUS, reason="needs a GPU")
def test_on_a_gpu_an_out_of_bounds_write_ends_only_its_own_process():
    """Arrays already on the GPU survive, both this process's and another library's."""
    if not (nvrtc.has_nvrtc() or nvrtc.find_nvcc()):
        pytest.skip("needs NVRTC or nvcc")
    cupy = pytest.importorskip("cupy")
    there = cupy.arange(1000, dtype=cupy.float32).reshape(20, 50)
    product = sk.run("naive", there, there.T)
    expected = np.asarray(product)
    text = with_header("naive")
    wrong = text.replace("store(p, row, col, sum)", "p.C.data[(int64_t(1) << 40) + col] = sum")
    assert wrong != text
    far = sk.kernel(wrong, name="far")
    A = np.ones((64, 64), np.float32)
    with pytest.raises(sk.DeviceError):
        sk.run(far, A, A, device="cuda")
    assert not far.sanitize()
    assert (np.asarray(product) == expected).all()
    assert (there.get() == np.arange(1000).reshape(20, 50)).all()
    assert (sk.run("naive", A, A, device="cuda") == 64).all()
