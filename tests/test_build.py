"""The build: its decisions, its errors, incremental compilation, and the contents of a wheel."""

import contextlib
import importlib
import math
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import sgemm_kernels

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # at the end, so that the installed package is imported

from build_backend import annotation, compiling, prerequisites, rungs, toolkit  # noqa: E402
from build_backend.toolkit import BuildError  # noqa: E402

from .native import spills  # noqa: E402

pytestmark = pytest.mark.packaging

VERSION = "Cuda compilation tools, release {0}, V{0}.88\nBuild cuda_{0}.r{0}/compiler.36424714_0\n"
GPU_CODES = "sm_52\nsm_75\nsm_80\nsm_90\nsm_90a\nsm_120\nsm_103f\nsm_100\n"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_toolkit(root, release="13.0", codes=GPU_CODES, library="lib64"):
    """A toolkit that answers the build's questions and compiles nothing."""
    answers = (
        f"case $1 in --version) printf '{VERSION.format(release)}';; *) printf '{codes}';; esac"
    )
    script(root / "bin/nvcc", answers.replace("\n", "\\n"))
    if library:
        (root / library).mkdir(parents=True)
        (root / library / "libcudart_static.a").touch()
    return root


# ------------------------------------------------------------------------------ choice of toolkit


@pytest.fixture
def places(tmp_path):
    """One toolkit in each place where the build looks."""
    return {name: fake_toolkit(tmp_path / name) for name in ("home", "path", "usual", "named")}


@pytest.mark.parametrize("wish", [None, "", "auto"])
@pytest.mark.parametrize(
    ("present", "chosen"),
    [
        (("home", "path", "usual"), "home"),
        (("path", "usual"), "path"),
        (("usual",), "usual"),
        ((), "index"),
    ],
)
def test_auto_takes_the_first_place_that_has_a_toolkit(places, tmp_path, wish, present, chosen):
    environ = {"PATH": str(tmp_path)}
    if wish is not None:
        environ["SGEMM_KERNELS_CUDA"] = wish
    if "home" in present:
        environ["CUDA_HOME"] = str(places["home"])
    if "path" in present:
        environ["PATH"] += f"{os.pathsep}{places['path'] / 'bin'}"
    usual = places["usual"] if "usual" in present else tmp_path / "none"
    assert toolkit.choose(environ, usual) == places.get(chosen, toolkit.INDEX)


def test_a_link_on_path_leads_to_its_toolkit(places, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvcc").symlink_to(places["path"] / "bin/nvcc")
    assert toolkit.choose({"PATH": str(tmp_path / "bin")}, tmp_path / "none") == places["path"]


@pytest.mark.parametrize(("wish", "chosen"), [("0", None), ("index", "index"), ("named", "named")])
def test_a_requested_toolkit_takes_precedence(places, wish, chosen):
    environ = {"CUDA_HOME": str(places["home"]), "PATH": str(places["path"] / "bin")}
    environ["SGEMM_KERNELS_CUDA"] = str(places.get(wish, wish))
    assert toolkit.choose(environ, places["usual"]) == places.get(chosen, chosen)


@pytest.mark.parametrize("name", ["SGEMM_KERNELS_CUDA", "CUDA_HOME"])
def test_a_place_without_nvcc_is_refused(places, tmp_path, name):
    wrong = tmp_path / "wrong"
    with pytest.raises(BuildError) as caught:
        toolkit.choose({name: str(wrong), "PATH": str(places["path"] / "bin")}, places["usual"])
    message = str(caught.value)
    assert f"{name}={wrong}" in message
    assert f"{wrong}/bin/nvcc does not exist" in message
    assert "SGEMM_KERNELS_CUDA=index" in message


@pytest.mark.parametrize("wish", ["1", "yes", "cuda", "13.0"])
def test_an_unknown_request_is_refused(wish):
    with pytest.raises(BuildError, match=rf"SGEMM_KERNELS_CUDA={wish} .*path.*index.*0.*auto"):
        toolkit.choose({"SGEMM_KERNELS_CUDA": wish})


HIP_VERSION = "HIP version: 5.2.21153-0\\nDebian clang version 15.0.6\\n"


def fake_hip(root):
    """A hipcc that answers the build's questions and compiles nothing."""
    (root / "lib").mkdir(parents=True)
    (root / "lib/libamdhip64.so").touch()
    return script(root / "bin/hipcc", f"printf '{HIP_VERSION}'")


def test_hipcc_is_used_if_there_is_no_cuda_toolkit(places, tmp_path):
    hipcc, none = fake_hip(tmp_path / "rocm"), tmp_path / "none"
    on_path = {"PATH": str(hipcc.parent)}
    for wish in ("", "auto", "1"):
        environ = {**on_path, "SGEMM_KERNELS_HIP": wish}
        assert toolkit.choose_hip(environ, none, none) == hipcc
        assert toolkit.choose_hip({**environ, "PATH": ""}, tmp_path / "rocm", none) == hipcc
    assert toolkit.build_requirements(environ) == ["numpy>=2"]
    assert toolkit.choose_hip({"PATH": ""}, none, none) is None
    assert toolkit.choose_hip(on_path, none, places["usual"]) is None
    for cuda in (
        {"CUDA_HOME": str(places["home"])},
        {"SGEMM_KERNELS_CUDA": "index"},
        {"SGEMM_KERNELS_CUDA": "0"},
        {"SGEMM_KERNELS_HIP": "0"},
    ):
        assert toolkit.choose_hip({**on_path, **cuda}, none, none) is None


@pytest.mark.parametrize("wish", ["1", "rocm", "rocm/bin/hipcc"])
def test_requested_hip_takes_precedence_over_cuda(places, tmp_path, wish):
    hipcc = fake_hip(tmp_path / "rocm")
    environ = {"PATH": str(hipcc.parent), "CUDA_HOME": str(places["home"])}
    environ["SGEMM_KERNELS_HIP"] = wish if wish == "1" else str(tmp_path / wish)
    assert toolkit.choose_hip(environ, tmp_path / "none") == hipcc
    found = compiling.find_toolkit({**environ, "SGEMM_KERNELS_ARCHS": "gfx90a gfx1030"})
    assert found == toolkit.HipToolkit(
        hipcc, tmp_path / "rocm/lib/libamdhip64.so", "5.2.21153", ("gfx90a", "gfx1030")
    )
    assert compiling.find_toolkit(environ).architectures == toolkit.HIP_ARCHITECTURES
    with pytest.raises(BuildError, match="one vendor"):
        toolkit.choose_hip({**environ, "SGEMM_KERNELS_CUDA": "index"})


@pytest.mark.parametrize(
    ("environ", "fact"),
    [
        ({"SGEMM_KERNELS_HIP": "1"}, "apt install hipcc"),
        ({"SGEMM_KERNELS_HIP": "/nowhere"}, "/nowhere: this is neither hipcc nor a folder"),
        ({"SGEMM_KERNELS_HIP": "yes"}, "SGEMM_KERNELS_HIP=yes is not understood"),
    ],
)
def test_impossible_requests_for_hip_are_refused(tmp_path, environ, fact):
    with pytest.raises(BuildError, match=fact):
        toolkit.choose_hip({"PATH": "", **environ}, tmp_path / "none")


@pytest.mark.parametrize("wanted", ["", "all", " all "])
def test_all_of_amds_architectures_are_the_default(tmp_path, wanted):
    hipcc = fake_hip(tmp_path / "rocm")
    assert toolkit.inspect_hip(hipcc, wanted).architectures == toolkit.HIP_ARCHITECTURES


def test_architectures_that_are_not_amds_are_refused(tmp_path):
    with pytest.raises(BuildError, match="sm_90 is not an AMD architecture"):
        toolkit.inspect_hip(fake_hip(tmp_path), "gfx90a sm_90")
    (tmp_path / "lib/libamdhip64.so").unlink()
    with pytest.raises(BuildError, match="libamdhip64-dev"):
        toolkit.inspect_hip(tmp_path / "bin/hipcc")


def test_kernels_for_one_architecture_are_compiled_only_for_it():
    cuda = toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), "13.0.88", (80, 90))
    flags = {job.source.name: " ".join(job.flags) for job in plan(ROOT, cuda) if job.log}
    alone = {name for name, text in flags.items() if "compute_90a" in text}
    hopper = {"wgmma.cu", "waves.cu", "fused.cu", "direct.cu", "mixed.cu", "fixed.cu"}
    assert alone == hopper | {"auto_16bit.cu"}
    assert not any("compute_80" in flags[name] for name in alone)
    assert "compute_80" in flags["mma.cu"]


def test_a_build_for_amd_gpus_shares_only_the_cpus_objects():
    cuda = toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), "13.0.88", (90,))
    hip = toolkit.HipToolkit(Path("/rocm/bin/hipcc"), Path("/rocm/lib/a"), "5.2", ("gfx90a",))
    by_target = [{job.target: job for job in plan(ROOT, made_for)} for made_for in (cuda, hip)]
    shared = by_target[0].keys() & by_target[1].keys()
    assert {target.parts[2] for target in shared} == {"cpu", "cpu_fused", "count", "host"} & {
        target.parts[2] for target in by_target[0]
    }
    for target in shared:
        assert by_target[0][target].key(ROOT) == by_target[1][target].key(ROOT), target
    own = {job.source.name: job for target, job in by_target[1].items() if target not in shared}
    assert "08_warptile.cu" in own
    assert "auto.cu" in own
    assert not {"09_async.cu", "wgmma.cu", "custom_gpu.cu"} & own.keys()
    kernel, host = own["08_warptile.cu"], own["panel_pipeline.cu"]
    assert kernel.compiler.command == "/rocm/bin/hipcc"
    assert "--offload-arch=gfx90a" in kernel.flags
    assert host.compiler.command != "/rocm/bin/hipcc"
    assert "-DSGEMM_HIP=1" in own["choosing.c"].flags
    # Its key also covers the header of HIP names, which no source includes.
    changed = replace(kernel, first=Path("csrc/base/cuda/hip_names.h"))
    assert changed.key(ROOT) != kernel.key(ROOT)


def test_the_index_provides_nvcc_only_if_needed(places):
    numpy = ["numpy>=2"]
    nvcc = ["cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]==13.0.*"]
    assert toolkit.build_requirements({"SGEMM_KERNELS_CUDA": "0"}) == numpy
    assert toolkit.build_requirements({"SGEMM_KERNELS_CUDA": str(places["named"])}) == numpy
    assert toolkit.build_requirements({"SGEMM_KERNELS_CUDA": "index"}) == numpy + nvcc


def test_the_index_packages_are_found_on_the_search_path(tmp_path):
    root = fake_toolkit(tmp_path / "second/nvidia/cu13", library="lib")
    search = ["", str(tmp_path / "first"), str(tmp_path / "second")]
    assert toolkit.index_root(search) == root
    with pytest.raises(BuildError, match=r"pip install 'cuda-toolkit\[nvcc.*SGEMM_KERNELS_CUDA=0"):
        toolkit.index_root(search[:2])


# ------------------------------------------------------------------------ inspection of a toolkit


@pytest.mark.parametrize(
    "library", ["lib64", "lib", "targets/sbsa-linux/lib", "lib/x86_64-linux-gnu"]
)
def test_a_toolkit_is_inspected(tmp_path, monkeypatch, library):
    root = fake_toolkit(tmp_path, library=library)
    monkeypatch.setattr(toolkit, "gpus", lambda: ())
    assert toolkit.inspect(root) == toolkit.Toolkit(
        nvcc=root / "bin/nvcc",
        cudart=root / library / "libcudart_static.a",
        version="13.0.88",
        architectures=(75, 80, 90, 100, 120),
    )


def test_unusable_toolkits_are_refused(tmp_path):
    with pytest.raises(BuildError, match=r"is version 11\.8\.88, but 12\.0 or newer is needed"):
        toolkit.inspect(fake_toolkit(tmp_path / "old", release="11.8"))
    with pytest.raises(BuildError, match=r"no libcudart_static\.a.*cuda-cudart-dev"):
        toolkit.inspect(fake_toolkit(tmp_path / "half", library=None))
    script(tmp_path / "broken/bin/nvcc", "exit 3")
    with pytest.raises(BuildError, match=r"nvcc --version` failed"):
        toolkit.inspect(tmp_path / "broken")
    script(tmp_path / "mute/bin/nvcc", "echo hello")
    with pytest.raises(BuildError, match=r"no version in the output of `nvcc --version`: 'hello'"):
        toolkit.inspect(tmp_path / "mute")


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("", (75, 80, 100)),
        ("all", (75, 80, 100)),
        ("80", (80,)),
        ("100 75", (75, 100)),
        (" 80  80 ", (80,)),
    ],
)
def test_architectures_are_the_requested_ones_or_all(wanted, chosen):
    assert toolkit.choose_architectures([75, 80, 100], wanted) == chosen


@pytest.mark.parametrize("wanted", ["70", "80 700", "sm_80", "80,100", "all 80"])
def test_architectures_that_nvcc_lacks_are_refused(wanted):
    with pytest.raises(BuildError, match=r"SGEMM_KERNELS_ARCHS='.*native.*: 75 80 100$"):
        toolkit.choose_architectures([75, 80, 100], wanted)


def test_native_means_the_gpus_of_this_machine(tmp_path, monkeypatch):
    root = fake_toolkit(tmp_path / "cuda")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="capability 75 or newer; nvidia-smi finds none"):
        toolkit.inspect(root, "native")
    script(tmp_path / "nvidia-smi", "echo 9.0; echo 12.0; echo 9.0; echo '[N/A]'")
    assert toolkit.inspect(root, "native").architectures == (90, 120)
    script(tmp_path / "nvidia-smi", "echo 'No devices were found'; exit 6")
    with pytest.raises(BuildError, match="nvidia-smi finds none"):
        toolkit.inspect(root, "native")


@pytest.mark.parametrize(
    ("present", "chosen"),
    [
        ((90,), (90,)),
        ((86, 89), (80,)),  # both run code compiled for 8.0
        ((121,), (120,)),
        ((70, 90), (90,)),  # 7.0 is too old for this package
    ],
)
def test_native_is_what_nvcc_knows_and_the_gpu_runs(present, chosen):
    assert toolkit.native_architectures([75, 80, 90, 120], present) == chosen


EVERY = (75, 80, 90, 100, 120)


@pytest.mark.parametrize(
    ("wanted", "present", "chosen"),
    [
        ("", (), EVERY),
        ("", (90,), (90,)),
        ("", (86, 120), (80, 120)),
        ("", (60,), EVERY),  # too old for this package
        ("", (60, 90), (90,)),
        ("all", (90,), EVERY),
        ("75 80", (90,), (75, 80)),
    ],
)
def test_the_default_is_the_gpus_of_this_machine(tmp_path, monkeypatch, wanted, present, chosen):
    monkeypatch.setattr(toolkit, "gpus", lambda: present)
    assert toolkit.inspect(fake_toolkit(tmp_path), wanted).architectures == chosen


def test_a_long_build_reports_its_progress():
    now = [0.0]
    progress = compiling.Progress([100.0] * 30, 2, lambda: now[0])
    assert progress.begin() == "compiling 30 objects on 2 cores: expected to take about 25 min"
    said = []
    for _ in range(30):  # each takes twice as long as expected
        now[0] += 100.0
        said.append(progress.finished(100.0))
    assert said[2] == "3 of 30 objects, 5 min elapsed, about 50 min expected in all"
    assert said[-1] == "30 of 30 objects, 50 min elapsed, about 50 min expected in all"


def test_progress_is_not_reported_too_often():
    now = [0.0]
    progress = compiling.Progress([2.0] * 100, 8, lambda: now[0])
    assert progress.begin() is None
    said = []
    for _ in range(100):
        now[0] += 0.25
        said.append(progress.finished(2.0))
    assert len([line for line in said if line]) == 1


def test_objects_for_more_architectures_are_expected_to_take_longer():
    one, many = (
        math.fsum(
            job.core_seconds
            for job in plan(
                ROOT, toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), "13.0.88", archs)
            )
        )
        for archs in ((90,), EVERY)
    )
    assert 1.5 * one < many < 6 * one


def test_a_build_for_several_architectures_says_why(sources, tmp_path, monkeypatch, capsys):
    root = fake_toolkit(tmp_path / "cuda")
    environ = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": str(root)}
    monkeypatch.setattr(compiling, "_make", lambda *_: None)
    every = "sm_75 sm_80 sm_90 sm_100 sm_120 compute_100"
    for archs, present, shown in (
        ("", (), f"{every} because nvidia-smi lists no GPU here"),
        ("all", (90,), f"{every} because SGEMM_KERNELS_ARCHS=all"),
        ("", (90, 120), "sm_90 sm_120 compute_120 because this machine has GPUs of several kinds"),
    ):
        for module in (toolkit, compiling):
            monkeypatch.setattr(module, "gpus", lambda present=present: present)
        with contextlib.suppress(OSError):
            compiling.build_core(sources, environ | {"SGEMM_KERNELS_ARCHS": archs})
        said = capsys.readouterr().out
        assert f"compiling for {shown}" in said
        assert "set SGEMM_KERNELS_ARCHS='120' (one arch" in said


def test_the_proofs_are_bound_to_the_sources_and_the_version(sources):
    (sources / "csrc/runtime/kept_proofs.c").write_text("const char *build = SGEMM_BUILD;\n")
    jobs = {
        job.source.name: job for job in compiling.plan(sources, {"PATH": os.environ["PATH"]}, None)
    }
    of_csrc = toolkit.csrc_hash(sources / "csrc")
    assert f'-DSGEMM_BUILD="{of_csrc} 1.2.3"' in jobs["kept_proofs.c"].flags
    assert not any("SGEMM_BUILD" in flag for flag in jobs["other.c"].flags)


def test_native_refuses_gpus_that_are_too_old():
    with pytest.raises(BuildError, match="capability 75 or newer; nvidia-smi finds 60 70"):
        toolkit.native_architectures([75, 80], (60, 70))


# ------------------------------------------------------------------------ in a working tree


def settle(tmp_path, *goals, gpus="", cuda=False, **environ):
    """The output of `make` with these goals on a machine with these GPUs, and the settings it
    chooses."""
    folder = tmp_path / "bin"
    script(folder / "nvidia-smi", f"echo {gpus}" if gpus else "exit 9")
    if cuda:
        fake_toolkit(tmp_path / "cuda", library=None)
        environ["CUDA_HOME"] = str(tmp_path / "cuda")
    file = tmp_path / "settings"
    command = [sys.executable, str(ROOT / "build_backend/working_tree.py"), "settings", str(file)]
    done = subprocess.run(
        [*command, *goals], env={"PATH": str(folder), **environ}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    words = (word.split("=", 1) for word in shlex.split(file.read_text()))
    settled = {name.removeprefix("SGEMM_KERNELS_"): value for name, value in words if value}
    if "SGEMM_KERNELS_HIP" not in environ:
        assert settled.pop("HIP") == "0", "no hipcc that is there is taken unasked"
    return done.stdout, settled


def test_a_demo_without_a_gpu_is_built_for_the_cpu_only(tmp_path):
    for gpus in ("", "6.1"):
        said, settled = settle(tmp_path, "demo", gpus=gpus, cuda=True)
        assert settled == {"CUDA": "0"}
        assert said.startswith("Built for the CPU only: nvidia-smi lists no GPU")
        assert "SGEMM_KERNELS_CUDA=auto" in said
        assert len(said.splitlines()) == 1


def test_a_demo_does_not_fetch_a_toolkit_unasked(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "build_backend")
    working_tree = importlib.import_module("working_tree")
    monkeypatch.setattr(working_tree, "gpus", lambda: (90,))
    monkeypatch.setattr(working_tree, "choose", lambda environ: toolkit.INDEX)
    settings, why = working_tree.settle({"demo"}, {}, {})
    assert settings["SGEMM_KERNELS_CUDA"] == "0"
    assert why == "there is a GPU but no CUDA toolkit"


def test_a_demo_is_built_for_the_gpus_of_this_machine(tmp_path):
    said, settled = settle(tmp_path, "demo", gpus="9.0", cuda=True)
    assert (said, settled) == ("", {"CUDA": "auto", "ARCHS": "native"})


def test_only_the_group_of_nvcc_needs_cuda_and_the_demo_then_keeps_it(tmp_path):
    with_cuda = {"CUDA": "auto", "ARCHS": "90"}
    for goal in ("demo", "test", "thorough-fake"):
        assert settle(tmp_path, goal)[1] == {"CUDA": "0"}
    assert settle(tmp_path, "thorough-nvcc") == ("", with_cuda)
    date = (tmp_path / "settings").stat().st_mtime_ns
    for goals in (["demo"], ["test"], ["demo", "test"], ["notebooks"]):
        assert settle(tmp_path, *goals) == ("", with_cuda)
    assert (tmp_path / "settings").stat().st_mtime_ns == date, "nothing is built anew"
    assert settle(tmp_path, "test", gpus="8.6")[1] == {**with_cuda, "ARCHS": "native"}


def test_explicit_settings_are_kept(tmp_path):
    asked = {"SGEMM_KERNELS_CUDA": "index", "SGEMM_KERNELS_ARCHS": "75 90"}
    expected = {"CUDA": "index", "ARCHS": "75 90"}
    assert settle(tmp_path, "demo", **asked) == ("", expected)
    assert settle(tmp_path, "test", **asked) == ("", expected)
    for goal in ("test", "demo"):
        assert settle(tmp_path, goal, gpus="9.0", SGEMM_KERNELS_CUDA="0") == ("", {"CUDA": "0"})
    # Architectures imply CUDA.
    said, settled = settle(tmp_path, "demo", SGEMM_KERNELS_ARCHS="80", SGEMM_KERNELS_WERROR="1")
    assert (said, settled) == ("", {"CUDA": "auto", "ARCHS": "80", "WERROR": "1"})


def test_a_tree_is_built_for_amd_gpus_when_asked(tmp_path):
    asked = {"SGEMM_KERNELS_HIP": "1", "SGEMM_KERNELS_ARCHS": "gfx90a"}
    expected = {"HIP": "1", "ARCHS": "gfx90a"}
    assert settle(tmp_path, "demo", gpus="9.0", **asked) == ("", expected)
    assert settle(tmp_path, "test", **asked) == ("", expected)


def test_packages_for_building_in_the_tree():
    command = [sys.executable, str(ROOT / "build_backend/working_tree.py"), "requirements", "plot"]
    done = subprocess.run(
        command, env={"SGEMM_KERNELS_CUDA": "index"}, capture_output=True, text=True
    )
    names = [re.match(r"[\w-]+", line)[0] for line in done.stdout.splitlines()]
    assert names == ["setuptools", "numpy", "cuda-toolkit", "matplotlib"]


def test_packages_of_an_extra_alone():
    command = [sys.executable, str(ROOT / "build_backend/working_tree.py"), "extra", "frameworks"]
    done = subprocess.run(command, env={}, capture_output=True, text=True)
    names = [re.match(r"[\w-]+", line)[0] for line in done.stdout.splitlines()]
    assert names == ["flatbuffers", "jax", "kernels", "numpy", "pytest", "pytest-timeout", "torch"]


def test_the_newest_architecture_is_also_compiled_to_ptx():
    assert toolkit.describe_architectures((75, 90)) == "sm_75 sm_90 compute_90"
    assert toolkit.architecture_flags((75, 90)) == [
        "-gencode=arch=compute_75,code=[sm_75]",
        "-gencode=arch=compute_90,code=[sm_90,compute_90]",
    ]


def test_the_architectures_of_a_generation_share_their_ptx():
    assert toolkit.architecture_flags((86, 89, 100, 120)) == [
        "-gencode=arch=compute_86,code=[sm_86,sm_89]",
        "-gencode=arch=compute_100,code=[sm_100,sm_120,compute_100]",
    ]
    described = toolkit.describe_architectures((86, 89, 100, 120))
    assert described == "sm_86 sm_89 sm_100 sm_120 compute_100"


def test_the_kernels_distinguish_only_generations():
    """Architectures that share their PTX get the same code."""
    numbers = {
        int(number)
        for path in (ROOT / "csrc").rglob("*")
        if path.suffix in (".cu", ".h")
        for number in re.findall(r"__CUDA_ARCH__ *[!<>=]=? *(\d+)", path.read_text())
    }
    assert numbers <= {number * 10 for number in (70, *toolkit.GENERATIONS)}
    assert 900 in numbers


# ------------------------------------------------------------------------ missing prerequisites


def test_missing_prerequisites_are_named(tmp_path):
    script(tmp_path / "cc", "")
    path = {"PATH": str(tmp_path)}
    assert "no C compiler: 'cc'" in prerequisites.missing_compiler({"PATH": "/nowhere"})
    assert "no C++ compiler: 'c++'" in prerequisites.missing_compiler(path)
    assert "no C compiler: 'icx'" in prerequisites.missing_compiler({**path, "CC": "icx"})
    script(tmp_path / "c++", "")
    assert prerequisites.missing_compiler(path) is None
    assert "python3-dev" in prerequisites.missing_headers(str(tmp_path))
    (tmp_path / "Python.h").touch()
    assert prerequisites.missing_headers(str(tmp_path)) is None
    assert "3.11 or newer is needed, but this is 3.9" in prerequisites.missing_python((3, 9), True)
    assert "python3-venv" in prerequisites.missing_python((3, 11), False)
    assert prerequisites.missing_python((3, 11), True) is None


def test_prerequisites_are_reported_in_one_line():
    command = [sys.executable, str(ROOT / "build_backend/prerequisites.py")]
    lacking = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert lacking.returncode == 1
    assert re.fullmatch(r".*no C compiler.*\n", lacking.stderr)
    complete = subprocess.run(command, capture_output=True, text=True)
    assert (complete.returncode, complete.stderr) == (0, "")


# -------------------------------------------------------------------------- compilation


@pytest.fixture
def sources(tmp_path):
    """A minimal csrc/ with one file of each kind, and a version."""
    root = tmp_path / "tree"
    texts = {
        "module.c": '#include "base/shared.h"\n'
        "#include <Python.h>\n"
        "static PyModuleDef_Slot slots[] = {{0, NULL}};\n"
        "static struct PyModuleDef module = {\n"
        '    PyModuleDef_HEAD_INIT, .m_name = "_core",\n'
        "    .m_slots = slots};\n"
        "PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }\n",
        "frontends/python/describing.c": "const char *hash(void);\n"
        "const char *hash(void) { return SGEMM_CSRC_HASH; }\n",
        "runtime/other.c": "int other(void);\nint other(void) { return 1; }\n",
        "base/shared.h": "int shared(void);\n",
        "emulator/grid.cpp": '#include "../base/shared.h"\nint grid() { return 2; }\n',
        "runtime/cuda/device.cu": "int device() { return 3; }\n",
        "gemm/simt/splitk.cu": '#include "../kernel/kernel.h"\n',
        "ladder/launches.toml": "",
        "gemm/kernel/kernel.h": '# include "../../base/shared.h"\n',
        "ladder/README.md": "words\n",
    }
    for name, text in texts.items():
        path = root / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "sgemm_kernels").mkdir()
    (root / "sgemm_kernels/_version.py").write_text('__version__ = "1.2.3"\n')
    return root


@pytest.fixture
def build(sources, capsys):
    """Builds for the CPU only and returns the files that were compiled."""

    def build(root=sources, **settings):
        environ = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": "0", **settings}
        library = compiling.build_core(root, environ)
        assert library == root / "build/core/_core.abi3.so"
        assert library.is_file()
        printed = capsys.readouterr().out
        return {Path(name).name for name in re.findall(r"csrc/\S+", printed)}

    return build


ALL = {"splitk.cu", "grid.cpp", "module.c", "describing.c", "other.c"}


def append(path, text="/* more */\n"):
    path.write_text(path.read_text() + text)


def test_only_what_changed_is_compiled(build, sources):
    assert build() == ALL
    assert build() == set()
    append(sources / "csrc/gemm/kernel/kernel.h")
    assert build() == {"splitk.cu", "describing.c"}  # describing.c: the hash of csrc/ changed
    append(sources / "csrc/base/shared.h")
    assert build() == {"splitk.cu", "grid.cpp", "module.c", "describing.c"}
    append(sources / "csrc/ladder/README.md")
    assert build() == set()
    (sources / "build/objects/alone/host/csrc/runtime/other.c.o").unlink()
    (sources / "build/core/_core.abi3.so").unlink()
    assert build() == {"other.c"}
    assert build(SGEMM_KERNELS_WERROR="1") == ALL


def test_concurrent_builds_compile_everything_once(sources, capsys):
    environ = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": "0"}
    with ThreadPoolExecutor(3) as builders:
        for library in builders.map(compiling.build_core, [sources] * 3, [environ] * 3):
            assert library.is_file()
    printed = capsys.readouterr().out
    compiled = sorted(Path(name).name for name in re.findall(r"csrc/\S+", printed))
    copies = ["splitk.cu"] * (2 if platform.machine() == "x86_64" else 1)
    assert compiled == sorted([*ALL, *copies])  # to run with and without FMA, and to be counted
    assert printed.count("linking") == 1


def test_a_built_library_works_on_another_machine(build, sources, tmp_path):
    build()
    there = tmp_path / "elsewhere"
    shutil.copytree(sources, there, copy_function=shutil.copyfile)  # with new timestamps
    shutil.rmtree(there / "build/objects")
    assert build(there, PATH="/nowhere") == set()
    append(there / "csrc/runtime/other.c")
    with pytest.raises(BuildError, match="no C compiler"):
        build(there, PATH="/nowhere")


def test_compiler_errors_are_shown(build, sources):
    build()
    append(sources / "csrc/runtime/other.c", "int wrong(void) { return nothing; }\n")
    for _ in range(2):  # a failure leaves no object that looks up to date
        with pytest.raises(BuildError, match=r"(?s)cc .*csrc/runtime/other\.c.*'?nothing'?"):
            build()


def test_a_truncated_object_is_rebuilt(build, sources, tmp_path):
    cut = tmp_path / "cut"
    cc = script(
        tmp_path / "cc",
        f"""[ -e {cut} ] || exec cc "$@"
            while [ "$1" != -o ]; do shift; done; echo half >"$2"; exit 1""",
    )
    before = (sources / "csrc/runtime/other.c").read_text()
    assert build(CC=str(cc)) == ALL
    cut.touch()
    append(sources / "csrc/runtime/other.c")
    with pytest.raises(BuildError):
        build(CC=str(cc))
    cut.unlink()
    (sources / "csrc/runtime/other.c").write_text(before)
    shutil.rmtree(sources / "build/core")
    assert "other.c" in build(CC=str(cc))


def test_a_launcher_has_the_rung_and_its_entry_of_the_table(sources):
    text = "#include <cuda_pipeline.h>\nconstexpr int BK = 32;\nextern __shared__ float4 tiles[];\n"
    entry = (
        '[one]\nfile = "01_one.cu"\nsummary = "first"\ngrid = "M / BK"\nblock = "(BK, 2)"\n'
        'dynamic_shared = "4 * BK"\ntile = [1, 2, "BK"]\nmin_compute_capability = [8, 0]\n'
        "smaller = { BK = 16 }\n"
    )
    (sources / "csrc/ladder/01_one.cu").write_text(text)
    (sources / "csrc/ladder/launches.toml").write_text(entry)
    (path,) = rungs.generate(sources)
    made = (sources / path).read_text()
    assert made.count("constexpr int BK = 32;") == made.count("constexpr int BK = 16;") == 2
    assert made.count("extern __shared__ float4 tiles[];") == 2, "on a GPU the text is the file's"
    assert made.index("#include <cuda_pipeline.h>") < made.index("namespace")
    for part in (".threads = {BK, 2}", ".dynamic_bytes = 4 * BK", "M / BK", '"first", "01_one.cu"'):
        assert part in made
    assert "EACH(one)" in (sources / rungs.NAMES).read_text()
    with pytest.raises(ValueError, match=r"01_one\.cu has no constants \{'BM'\}"):
        rungs.launcher("one", {**tomllib.loads(entry)["one"], "smaller": {"BM": 1}}, text)


def test_warnings_are_errors_on_request(build, sources):
    append(sources / "csrc/runtime/other.c", "static int unused(void) { return 0; }\n")
    build()
    with pytest.raises(BuildError, match="unused"):
        build(SGEMM_KERNELS_WERROR="1")


def test_each_kernel_is_compiled_for_both_kinds_of_device(sources):
    cuda = toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), "13.0.88", (80, 90))
    jobs = {job.target.relative_to("build/objects").as_posix(): job for job in plan(sources, cuda)}
    on_cpu = ("cpu", "cpu_fused") if platform.machine() == "x86_64" else ("cpu",)
    kernels = [f"{kind}/csrc/gemm/simt/splitk.cu.o" for kind in ("cuda", *on_cpu, "count")]
    device, describing = (
        "cuda/csrc/runtime/cuda/device.cu.o",
        "host/csrc/frontends/python/describing.c.o",
    )
    others = ("emulator/grid.cpp", "runtime/other.c", "module.c")
    assert set(jobs) == {*kernels, device, describing, *(f"host/csrc/{name}.o" for name in others)}
    for name in kernels[1:]:  # they fuse only explicit multiply-adds
        assert "-ffp-contract=off" in jobs[name].flags
        assert {"-mfma", "-mavx2"} & set(jobs[name].flags) == (
            {"-mfma", "-mavx2"} if "cpu_fused/" in name else set()
        )
    assert all("-DSGEMM_CUDA=1" in job.flags for job in jobs.values())
    for job in (jobs[kernels[0]], jobs[device]):
        assert job.compiler.command == "/cuda/bin/nvcc"
        assert set(toolkit.architecture_flags((80, 90))) <= set(job.flags)
    assert jobs[kernels[0]].log == Path("build/ptxas/splitk.txt")
    assert "-Xptxas=-v" in jobs[kernels[0]].flags
    facts = {'-DSGEMM_TOOLKIT="13.0.88"', '-DSGEMM_ARCHITECTURES="sm_80 sm_90 compute_90"'}
    told = {name for name, job in jobs.items() if facts <= set(job.flags)}
    assert told == {describing, device}

    alone = plan(sources, None)
    assert {job.source.name for job in alone} == ALL
    assert not any("-DSGEMM_CUDA=1" in job.flags for job in alone)


@pytest.mark.parametrize(("version", "compressed"), [("13.0.88", True), ("12.4.131", False)])
def test_the_gpus_code_is_compressed_where_nvcc_can(version, compressed):
    cuda = toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), version, (90,))
    jobs = compiling.plan(ROOT, {"PATH": os.environ["PATH"]}, cuda)
    of_nvcc = [job for job in jobs if job.compiler.command == "/cuda/bin/nvcc"]
    assert of_nvcc
    assert all(("--compress-mode=size" in job.flags) == compressed for job in of_nvcc)


def test_a_portable_build_uses_the_users_runtime_of_cpp(tmp_path):
    compiler = tmp_path / "c++"  # one with a static runtime
    compiler.write_text("#!/bin/sh\necho /usr/lib/libstdc++.a\n")
    compiler.chmod(0o755)
    for portable, static in (("1", False), ("", True)):
        environ = {"CXX": str(compiler), "SGEMM_KERNELS_PORTABLE": portable}
        command = compiling._link_command(environ, None, [], Path("out.so"))
        assert ("-static-libstdc++" in command) == static


def test_no_two_objects_share_a_path():
    cuda = toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), "13.0.88", (90,))
    environ = {"PATH": os.environ["PATH"]}
    with_cuda = [job.target for job in compiling.plan_fake(ROOT, environ, cuda)]
    with_cuda += [job.target for job in plan(ROOT, cuda) if job.target not in with_cuda]
    alone = [job.target for job in plan(ROOT, None)]
    # CPU-only builds and CUDA builds do not replace each other's objects.
    assert len({*with_cuda, *alone}) == len(with_cuda) + len(alone)


def test_core_is_compiled_without_the_headers_of_python_and_numpy(sources):
    searched = {job.source.as_posix(): bool(job.search) for job in plan(sources, None)}
    assert searched.pop("csrc/module.c")
    assert searched.pop("csrc/frontends/python/describing.c")
    assert not any(searched.values())


def test_numpys_headers_come_from_the_imported_numpy(sources, tmp_path, monkeypatch):
    """Not from a distribution's copy beside Python's headers."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy/numpyconfig.h").write_text("#error another NumPy's\n")
    monkeypatch.setattr(compiling.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    module = next(job for job in plan(sources, None) if job.source.name == "module.c")
    subprocess.run(
        [*module.compiler.command.split(), "-E", "-x", "c", "-", *module.search],
        input=b"#include <numpy/numpyconfig.h>\n",
        stdout=subprocess.DEVNULL,
        check=True,
    )


def test_the_fake_library_is_relinked_when_the_extensions_objects_change(sources, tmp_path):
    cuda = fake_toolkit(tmp_path / "cuda")
    (cuda / "include").mkdir()
    (cuda / "include/cuda_runtime.h").touch()
    environ = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": str(cuda)}
    library = compiling.build_fake(sources, environ) / "sgemm_kernels/_core.abi3.so"
    append(sources / "csrc/runtime/other.c", 'const char more[] = "words to be found";\n')
    shared = compiling.plan_fake(sources, environ, compiling.find_toolkit(environ))
    compiling.compile_stale(sources, shared)  # as the extension's build does first
    assert compiling.build_fake(sources, environ)
    assert b"words to be found" in library.read_bytes()
    date = library.stat().st_mtime_ns
    compiling.build_fake(sources, environ)
    assert library.stat().st_mtime_ns == date


def plan(root, cuda):
    return compiling.plan(root, {"PATH": os.environ["PATH"]}, cuda)


def test_an_object_depends_on_compilers_but_not_on_their_paths(sources):
    here = toolkit.Toolkit(Path("/here/bin/nvcc"), Path("/here/lib/a"), "13.0.88", (90,))
    there = replace(here, nvcc=Path("/there/bin/nvcc"), cudart=Path("/there/lib/a"))

    def keys(cuda):
        return {job.target: job.key(sources) for job in plan(sources, cuda)}

    def differing(cuda):
        return {path.name for path, key in keys(cuda).items() if keys(here)[path] != key}

    assert differing(there) == set()
    told = {"splitk.cu.o", "device.cu.o", "describing.c.o"}
    assert differing(replace(here, version="13.0.96")) == told
    module = next(job for job in plan(sources, here) if job.source.name == "module.c")
    assert replace(module, search=["-I/elsewhere"]).key(sources) == module.key(sources)
    assert replace(module, outside="NumPy 9").key(sources) != module.key(sources)


def test_calls_are_noted_with_their_lines_and_shared_arrays_with_their_names():
    assembly = """\
\t.file 1 "csrc/ladder/03_smem.cu"
\t.loc 1 24 9
\tcall\t__tsan_read4@PLT
\t.loc\t0 0 3
\tcallq\tmemcpy@PLT
\t.section\t.data.rel.ro.local,"aw"
\t.size\t_ZZL11launch_smemPK5SgemmE9launchers, 24
\t.section\t.rodata
\t.size\t_ZZL11launch_smemPK5SgemmE5tiles, 48
\t.bss
\t.size\t_ZZN12_GLOBAL__N_14smemE5SgemmE2As, 4096
\t.size\t_ZN12_GLOBAL__N_14smemE5Sgemm, 96
"""
    words = [line.split() for line in annotation.annotate(assembly).splitlines()]
    assert words[words.index([".Lsgemm_file1:"]) + 1] == [".asciz", '"03_smem.cu"']
    assert [".long", ".Lsgemm_call1", "-", ".,", ".Lsgemm_file1", "-", ".,", "24"] in words
    # Line 0 means no line: the call belongs to the previous line.
    assert [".long", ".Lsgemm_call2", "-", ".,", ".Lsgemm_file1", "-", ".,", "24"] in words
    assert ["callq", "traced_memcpy@PLT"] in words
    arrays = words[words.index([".section", 'sgemm_shared_arrays,"a"']) + 1 :]
    symbol = "_ZZN12_GLOBAL__N_14smemE5SgemmE2As"
    assert arrays == [[".long", symbol, "-", ".,", "4096"], [".ascii", '"As"'], [".zero", "22"]]


def test_the_hash_is_over_paths_and_contents_of_sources(sources):
    csrc = sources / "csrc"
    first = toolkit.csrc_hash(csrc)
    assert re.fullmatch("[0-9a-f]{16}", first)
    append(csrc / "ladder/README.md")
    os.utime(csrc / "module.c", (0, 0))
    assert toolkit.csrc_hash(csrc) == first
    (csrc / "runtime/other.c").rename(csrc / "runtime/renamed.c")
    second = toolkit.csrc_hash(csrc)
    append(csrc / "runtime/renamed.c")
    assert len({first, second, toolkit.csrc_hash(csrc)}) == 3


def test_the_extension_was_built_from_these_sources():
    assert sgemm_kernels.build_info().csrc_hash == toolkit.csrc_hash(ROOT / "csrc")


# ------------------------------------------------------------------------ reports of ptxas


@pytest.mark.nvcc
@pytest.mark.skipif(
    sgemm_kernels.build_info().cuda_toolkit is None, reason="this build is for the CPU alone"
)
@pytest.mark.parametrize(
    "name",
    [Path(variant.file).stem for variant in sgemm_kernels.variants() if variant.file],
)
def test_no_rung_spills_registers(name):
    """For the architectures of this build. `make wheels` checks all."""
    report = (ROOT / f"build/ptxas/{name}.txt").read_text()
    built_for = sgemm_kernels.build_info().architectures
    compiled_for = {architecture for _, architecture in spills.reported(report)}
    everywhere = {architecture for architecture in built_for if "sm_" in architecture}
    assert compiled_for == ({"sm_90a"} if name in ("wgmma", "waves", "fused") else everywhere)
    assert spills.spilling(report) == {}


def test_spills_are_read_from_the_reports_of_ptxas():
    report = """\
ptxas info    : Compiling entry function '_Z5naive5Sgemm' for 'sm_75'
ptxas info    : Function properties for _Z5naive5Sgemm
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function '_Z5naive5Sgemm' for 'sm_120'
    240 bytes stack frame, 8 bytes spill stores, 232 bytes spill loads
"""
    assert spills.reported(report) == {
        ("_Z5naive5Sgemm", "sm_75"): 0,
        ("_Z5naive5Sgemm", "sm_120"): 240,
    }
    assert spills.spilling(report) == {("_Z5naive5Sgemm", "sm_120"): 240}


def test_a_known_spill_may_not_grow_move_or_outlive_its_cause():
    report = """\
ptxas info    : Compiling entry function '_Z15largest_of_rowsPf' for 'sm_{arch}'
    0 bytes stack frame, {spilt} bytes spill stores, 4 bytes spill loads
"""
    assert spills.spilling(report.format(arch=100, spilt=20)) == {}
    assert len(spills.spilling(report.format(arch=100, spilt=24))) == 1
    assert len(spills.spilling(report.format(arch=120, spilt=20))) == 1
    assert spills.outdated(spills.reported(report.format(arch=100, spilt=20))) == []
    assert len(spills.outdated({("another", "sm_100"): 0, ("another", "sm_75"): 0})) == 1


# ---------------------------------------------------------------------------- hooks and wheels


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the repository's files to build in."""
    tree = tmp_path_factory.mktemp("tree") / "copy"
    made = ("build", "dist", "*.egg-info", "*.so", "__pycache__", "recorded", ".*")
    for name in ("benchmarks", "build_backend", "csrc", "examples", "sgemm_kernels", "tests"):
        also = ("csrc", "include") if name == "sgemm_kernels" else ()
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns(*made, *also))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copyfile(path, tree / path.name)
    return tree


@pytest.fixture(scope="module")
def only_setuptools(tmp_path_factory):
    """A package folder with setuptools and without NumPy."""
    import setuptools

    folder = tmp_path_factory.mktemp("packages")
    installed = Path(setuptools.__file__).parents[1]
    for path in [installed / "_distutils_hack", *installed.glob("setuptools*")]:
        (folder / path.name).symlink_to(path)
    return folder


def call_hook(tree, packages, expression, **environ):
    """Calls a hook of the build backend without this Python's installed packages."""
    code = f"import build_backend; print(build_backend.{expression})"
    environ = {"PYTHONPATH": f"{tree}{os.pathsep}{packages}", **environ}
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True)


@pytest.mark.parametrize(
    "expression",
    [
        "prepare_metadata_for_build_wheel('out')",
        "prepare_metadata_for_build_editable('out')",
        "get_requires_for_build_sdist()",
        "get_requires_for_build_wheel()",
        "get_requires_for_build_editable()",
        "build_sdist('out')",
    ],
)
def test_hooks_work_without_nvcc_and_numpy(tree, only_setuptools, expression):
    (tree / "out").mkdir(exist_ok=True)
    done = call_hook(tree, only_setuptools, expression, PATH="/nowhere", SGEMM_KERNELS_CUDA="index")
    assert done.returncode == 0, done.stderr
    answer = done.stdout.splitlines()[-1]
    if "requires" in expression:
        assert ("cuda-toolkit" in answer) == ("sdist" not in expression)
    elif "metadata" in expression:
        metadata = (tree / "out" / answer / "METADATA").read_text()
        assert f"Version: {sgemm_kernels.__version__}\n" in metadata
        assert "Description-Content-Type: text/markdown\n" in metadata
        assert "\n\n# sgemm_kernels\n" in metadata
    else:
        assert (tree / "out" / answer).is_file()


def test_a_missing_toolkit_is_reported_in_one_line(tree, only_setuptools):
    expression = "get_requires_for_build_wheel()"
    done = call_hook(tree, only_setuptools, expression, SGEMM_KERNELS_CUDA="/nowhere")
    assert done.returncode == 1
    assert "\nerror: SGEMM_KERNELS_CUDA=/nowhere is not a CUDA toolkit" in done.stderr
    assert "Traceback" not in done.stderr


def test_compiling_without_numpy_says_so(tree, only_setuptools):
    settings = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": "0"}
    shutil.rmtree(tree / "build", ignore_errors=True)
    done = call_hook(tree, only_setuptools, "build_wheel('out')", **settings)
    assert done.returncode == 1
    assert "error: NumPy is not installed: pip install 'numpy>=2'" in done.stderr


def test_make_help_lists_every_goal_of_the_head():
    done = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    listed = re.findall(r"^make ([\w-]+) +\S", done.stdout, re.MULTILINE)
    assert len(listed) == len(done.stdout.splitlines())
    goals = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)[0]
    assert sorted([*listed, "build-lib", "FORCE"]) == sorted(goals.split())


def test_make_format_fixes_unformatted_code_that_ruff_refuses(tmp_path):
    """A long line that only formatting shortens, and unsorted imports."""
    (recipe,) = re.findall(r"^format: .*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    commands = [line.strip() for line in recipe.splitlines() if "ruff" in line]
    long = ", ".join(f"argument_{number}" for number in range(12))
    (tmp_path / "long.py").write_text(f'"""It."""\n\nimport sys\nimport os\n\nprint({long})\n')
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    names = "".join(f"argument_{number} = os, sys\n" for number in range(12))
    text = (tmp_path / "long.py").read_text()
    (tmp_path / "long.py").write_text(text.replace("print", f"{names}print"))
    folder = Path(sys.executable).parent
    for command in commands:
        words = shlex.split(command.replace("$(BIN)", str(folder)))
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
    ruff = str(folder / "ruff")
    for check in (["check", "."], ["format", "--check", "."]):
        subprocess.run([ruff, *check], cwd=tmp_path, check=True, capture_output=True)


def test_no_make_variable_is_set_twice():
    files = [ROOT / "Makefile", *sorted((ROOT / "tests/native").glob("*.mk"))]
    names = [
        name
        for file in files
        for name in re.findall(r"^(\w+) *(?:[:?]|::)?=", file.read_text(), re.MULTILINE)
    ]
    assert len(files) > 1
    assert sorted(names) == sorted(set(names))


def test_an_sdist_has_all_files_for_building_and_testing(tree, only_setuptools):
    (tree / "out").mkdir(exist_ok=True)
    done = call_hook(tree, only_setuptools, "build_sdist('out')", PATH="/nowhere")
    with tarfile.open(tree / "out" / done.stdout.splitlines()[-1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        path.relative_to(tree).as_posix()
        for folder in ("build_backend", "csrc", "examples", "sgemm_kernels", "tests")
        for path in (tree / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    needed |= {"Makefile", "README.md", "LICENSE", "pyproject.toml", "setup.py", ".clang-format"}
    assert needed <= held
    assert not [name for name in held if name.endswith((".so", ".pyc"))]


@pytest.mark.thorough
def test_a_wheel_has_the_package_its_kernels_and_recorded_results(tree):
    code = "import build_backend; print(build_backend.build_wheel('out'))"
    quick = tree / "quick_c++"  # optimising takes longer than all else
    quick.write_text(f'#!/bin/sh\nexec {os.environ.get("CXX") or "c++"} "$@" -O0\n')
    quick.chmod(0o755)
    settings = {"SGEMM_KERNELS_CUDA": "0", "CXX": str(quick)}
    environ = {**os.environ, **settings, "PYTHONPATH": str(tree)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tree, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    name = done.stdout.splitlines()[-1]
    assert re.fullmatch(
        rf"sgemm_kernels-{sgemm_kernels.__version__}-cp311-abi3-linux_\w+\.whl", name
    )
    with zipfile.ZipFile(tree / "out" / name) as wheel:
        held = {name for name in wheel.namelist() if name.startswith("sgemm_kernels/")}
    ours = tree / "sgemm_kernels"
    subpackages = [module.parent for module in ours.glob("*/__init__.py")]
    package = [*ours.glob("*.py*"), *(path for sub in subpackages for path in sub.glob("*.py"))]
    levels = [path for path in ours.glob("learning/levels/*/*") if path.is_file()]
    results = tree / "benchmarks/results"
    experiments = ("accuracy", "ladder", "tile_size", "traffic", "work_per_thread")
    recorded = [path for name in experiments for path in results.glob(f"*/{name}.json")]
    assert {path.stem for path in recorded} == set(experiments)
    recorded += [
        path for name in ("batched", "calls", "models") for path in results.glob(f"*/{name}.json")
    ]
    lib_files = [path for path in ours.glob("lib/*/**/*") if path.is_file()]
    assert {path.suffix for path in lib_files} == {".pc", ".cmake"}
    compiled_with = {
        "base": ("*.h", "status.c", "threads.c", "undisturbed.c"),
        "emulator": ("*.h", "*.cpp"),
        "emulator/access_trace": ("*.h", "*.cpp"),
        "emulator/plain": ("*.h", "*.cpp"),
        "emulator/sanitizer": ("*.h", "*.cpp"),
        "custom": ("*.h", "*.cpp", "*.cu", "*.cu.in"),
        "gemm/kernel": ("*.h",),
        "ladder": ("*.cu", "launches.toml"),
        "gemm/plan": ("*.h",),
        "gemm/simt": ("*.cu", "*.h"),
        "gemm/tensor_cores": ("*.cu", "*.h"),
        "frontends/c": ("sgemm_kernels.h",),
        "frontends/jax": ("matmul.c",),
    }
    assert held == {
        *(
            f"sgemm_kernels/csrc/{folder}/{path.name}"
            for folder, patterns in compiled_with.items()
            for pattern in patterns
            for path in (tree / "csrc" / folder).glob(pattern)
        ),
        "sgemm_kernels/_core.abi3.so",
        *(f"sgemm_kernels/include/sgemm_kernels.{kind}" for kind in ("h", "f90")),
        *(f"sgemm_kernels/lib/libsgemm_kernels{kind}.so" for kind in ("", "_blas")),
        *(path.relative_to(tree).as_posix() for path in lib_files),
        "sgemm_kernels/py.typed",
        *(path.relative_to(tree).as_posix() for path in [*package, *levels]),
        *(f"sgemm_kernels/explaining/page/page.{kind}" for kind in ("html", "css", "js")),
        *(f"sgemm_kernels/recorded/{path.relative_to(results).as_posix()}" for path in recorded),
    }
