"""The builder: its decisions, its errors, what it compiles again, and what a wheel holds."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

import sgemm_kernels

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # at the end: the package itself is imported from where it is installed

from build_backend import compiling, counting, prerequisites, toolkit  # noqa: E402
from build_backend.toolkit import BuildError  # noqa: E402

pytestmark = pytest.mark.packaging

VERSION = "Cuda compilation tools, release {0}, V{0}.88\nBuild cuda_{0}.r{0}/compiler.36424714_0\n"
GPU_CODES = "sm_52\nsm_75\nsm_80\nsm_90\nsm_90a\nsm_120\nsm_103f\nsm_100\n"


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_toolkit(root, release="13.0", codes=GPU_CODES, library="lib64"):
    """A toolkit that answers the builder's questions and compiles nothing."""
    answers = (
        f"case $1 in --version) printf '{VERSION.format(release)}';; *) printf '{codes}';; esac"
    )
    script(root / "bin/nvcc", answers.replace("\n", "\\n"))
    if library:
        (root / library).mkdir(parents=True)
        (root / library / "libcudart_static.a").touch()
    return root


# ------------------------------------------------------------------------------ which toolkit


@pytest.fixture
def places(tmp_path):
    """A toolkit in each place where one can be."""
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
def test_a_wish_goes_before_what_is_found(places, wish, chosen):
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
    assert f"no {wrong}/bin/nvcc" in message
    assert "SGEMM_KERNELS_CUDA=index" in message


@pytest.mark.parametrize("wish", ["1", "yes", "cuda", "13.0"])
def test_a_wish_that_means_nothing_is_refused(wish):
    with pytest.raises(BuildError, match=rf"SGEMM_KERNELS_CUDA={wish} .*path.*index.*0.*auto"):
        toolkit.choose({"SGEMM_KERNELS_CUDA": wish})


def test_the_index_is_asked_only_where_it_serves(places):
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


# --------------------------------------------------------------------------- what a toolkit is


@pytest.mark.parametrize(
    "library", ["lib64", "lib", "targets/sbsa-linux/lib", "lib/x86_64-linux-gnu"]
)
def test_a_toolkit_is_asked_what_it_is(tmp_path, library):
    root = fake_toolkit(tmp_path, library=library)
    assert toolkit.inspect(root) == toolkit.Toolkit(
        nvcc=root / "bin/nvcc",
        cudart=root / library / "libcudart_static.a",
        version="13.0.88",
        architectures=(75, 80, 90, 100, 120),
    )


def test_toolkits_that_cannot_serve_are_refused(tmp_path):
    with pytest.raises(BuildError, match=r"is 11\.8\.88, and 12\.0 or newer is needed"):
        toolkit.inspect(fake_toolkit(tmp_path / "old", release="11.8"))
    with pytest.raises(BuildError, match=r"no libcudart_static\.a.*cuda-cudart-dev"):
        toolkit.inspect(fake_toolkit(tmp_path / "half", library=None))
    script(tmp_path / "broken/bin/nvcc", "exit 3")
    with pytest.raises(BuildError, match=r"nvcc --version` failed"):
        toolkit.inspect(tmp_path / "broken")
    script(tmp_path / "mute/bin/nvcc", "echo hello")
    with pytest.raises(BuildError, match=r"gives no version: 'hello'"):
        toolkit.inspect(tmp_path / "mute")


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [("", (75, 80, 100)), ("80", (80,)), ("100 75", (75, 100)), (" 80  80 ", (80,))],
)
def test_architectures_are_those_wanted_or_all(wanted, chosen):
    assert toolkit.choose_architectures([75, 80, 100], wanted) == chosen


@pytest.mark.parametrize("wanted", ["70", "80 700", "sm_80", "80,100", "all"])
def test_architectures_that_nvcc_lacks_are_refused(wanted):
    with pytest.raises(BuildError, match=r"SGEMM_KERNELS_ARCHS='.*native.*: 75 80 100$"):
        toolkit.choose_architectures([75, 80, 100], wanted)


def test_native_means_the_gpus_of_this_machine(tmp_path, monkeypatch):
    root = fake_toolkit(tmp_path / "cuda")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="nvidia-smi finds none"):
        toolkit.inspect(root, "native")
    script(tmp_path / "nvidia-smi", "echo 9.0; echo 12.0; echo 9.0")
    assert toolkit.inspect(root, "native").architectures == (90, 120)


def test_the_newest_architecture_comes_as_ptx_too():
    assert toolkit.describe_architectures((75, 90)) == "sm_75 sm_90 compute_90"
    assert toolkit.architecture_flags((75, 90)) == [
        "-gencode=arch=compute_75,code=sm_75",
        "-gencode=arch=compute_90,code=sm_90",
        "-gencode=arch=compute_90,code=compute_90",
    ]


# ------------------------------------------------------------------------ what a machine lacks


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
    assert "3.11 or newer is needed, this is 3.9" in prerequisites.missing_python((3, 9), True)
    assert "python3-venv" in prerequisites.missing_python((3, 11), False)
    assert prerequisites.missing_python((3, 11), True) is None


def test_prerequisites_are_reported_in_one_line():
    command = [sys.executable, str(ROOT / "build_backend/prerequisites.py")]
    lacking = subprocess.run(command, env={"PATH": "/nowhere"}, capture_output=True, text=True)
    assert lacking.returncode == 1
    assert re.fullmatch(r".*no C compiler.*\n", lacking.stderr)
    complete = subprocess.run(command, capture_output=True, text=True)
    assert (complete.returncode, complete.stderr) == (0, "")


# -------------------------------------------------------------------------- what is compiled


@pytest.fixture
def sources(tmp_path):
    """The smallest csrc/ with a file of each kind."""
    root = tmp_path / "tree"
    texts = {
        "module.c": '#include "core/shared.h"\n'
        "#include <Python.h>\n"
        "static PyModuleDef_Slot slots[] = {{0, NULL}};\n"
        "static struct PyModuleDef module = {\n"
        '    PyModuleDef_HEAD_INIT, .m_name = "_core",\n'
        "    .m_slots = slots};\n"
        "PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }\n",
        "python/describing.c": "const char *hash(void);\n"
        "const char *hash(void) { return SGEMM_CSRC_HASH; }\n",
        "core/other.c": "int other(void);\nint other(void) { return 1; }\n",
        "core/shared.h": "int shared(void);\n",
        "cpu/grid.cpp": '#include "../core/shared.h"\nint grid() { return 2; }\n',
        "cuda/device.cu": "int device() { return 3; }\n",
        "kernels/01_naive.cu": '#include "kernel.h"\n',
        "kernels/kernel.h": '# include "../core/shared.h"\n',
        "kernels/README.md": "words\n",
    }
    for name, text in texts.items():
        path = root / "csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def build(sources, capsys):
    """Builds for the CPU alone; returns the files that were compiled."""

    def build(root=sources, **settings):
        environ = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": "0", **settings}
        library = compiling.build_core(root, environ)
        assert library == root / "build/core/_core.abi3.so"
        assert library.is_file()
        printed = capsys.readouterr().out
        return {Path(name).name for name in re.findall(r"csrc/\S+", printed)}

    return build


ALL = {"01_naive.cu", "grid.cpp", "module.c", "describing.c", "other.c"}


def append(path, text="/* more */\n"):
    path.write_text(path.read_text() + text)


def test_only_what_changed_is_compiled(build, sources):
    assert build() == ALL
    assert build() == set()
    append(sources / "csrc/kernels/kernel.h")
    assert build() == {"01_naive.cu", "describing.c"}  # describing.c: the hash of csrc/ changed
    append(sources / "csrc/core/shared.h")
    assert build() == {"01_naive.cu", "grid.cpp", "module.c", "describing.c"}
    append(sources / "csrc/kernels/README.md")
    assert build() == set()
    (sources / "build/objects/core/other.o").unlink()
    (sources / "build/core/_core.abi3.so").unlink()
    assert build() == {"other.c"}
    assert build(SGEMM_KERNELS_WERROR="1") == ALL


def test_a_library_serves_on_another_machine(build, sources, tmp_path):
    build()
    there = tmp_path / "elsewhere"
    shutil.copytree(sources, there, copy_function=shutil.copyfile)  # new times
    shutil.rmtree(there / "build/objects")
    assert build(there, PATH="/nowhere") == set()
    append(there / "csrc/core/other.c")
    with pytest.raises(BuildError, match="no C compiler"):
        build(there, PATH="/nowhere")


def test_a_compiler_says_what_is_wrong(build, sources):
    build()
    append(sources / "csrc/core/other.c", "int wrong(void) { return nothing; }\n")
    for _ in range(2):  # a failure is not taken for an object the next time
        with pytest.raises(BuildError, match=r"(?s)cc .*csrc/core/other\.c.*'?nothing'?"):
            build()


def test_an_object_that_was_cut_short_is_made_again(build, sources, tmp_path):
    cut = tmp_path / "cut"
    cc = script(
        tmp_path / "cc",
        f"""[ -e {cut} ] || exec cc "$@"
            while [ "$1" != -o ]; do shift; done; echo half >"$2"; exit 1""",
    )
    before = (sources / "csrc/core/other.c").read_text()
    assert build(CC=str(cc)) == ALL
    cut.touch()
    append(sources / "csrc/core/other.c")
    with pytest.raises(BuildError):
        build(CC=str(cc))
    cut.unlink()
    (sources / "csrc/core/other.c").write_text(before)
    shutil.rmtree(sources / "build/core")
    assert "other.c" in build(CC=str(cc))


def test_warnings_are_errors_on_request(build, sources):
    append(sources / "csrc/core/other.c", "static int unused(void) { return 0; }\n")
    build()
    with pytest.raises(BuildError, match="unused"):
        build(SGEMM_KERNELS_WERROR="1")


def test_each_kernel_is_compiled_for_both_kinds_of_device(sources):
    cuda = toolkit.Toolkit(Path("/cuda/bin/nvcc"), Path("/cuda/lib/a"), "13.0.88", (80, 90))
    jobs = {job.target.relative_to("build/objects").as_posix(): job for job in plan(sources, cuda)}
    assert set(jobs) == {
        *("cuda/01_naive.o", "cuda/device.o", "cpu/01_naive.o", "cpu/grid.o", "count/01_naive.o"),
        *("core/other.o", "python/module.o", "python/describing.o"),
    }
    assert all("-DSGEMM_CUDA=1" in job.flags for job in jobs.values())
    for job in (jobs["cuda/01_naive.o"], jobs["cuda/device.o"]):
        assert job.compiler.command == "/cuda/bin/nvcc"
        assert set(toolkit.architecture_flags((80, 90))) <= set(job.flags)
    assert jobs["cuda/01_naive.o"].log == Path("build/ptxas/01_naive.txt")
    assert "-Xptxas=-v" in jobs["cuda/01_naive.o"].flags
    facts = {'-DSGEMM_TOOLKIT="13.0.88"', '-DSGEMM_ARCHITECTURES="sm_80 sm_90 compute_90"'}
    told = {name for name, job in jobs.items() if facts <= set(job.flags)}
    assert told == {"python/describing.o", "cuda/device.o"}

    alone = plan(sources, None)
    assert {job.source.name for job in alone} == ALL
    assert not any("-DSGEMM_CUDA=1" in job.flags for job in alone)


def plan(root, cuda):
    return compiling.plan(root, {"PATH": os.environ["PATH"]}, cuda)


def test_an_object_depends_on_compilers_and_not_on_where_they_lie(sources):
    here = toolkit.Toolkit(Path("/here/bin/nvcc"), Path("/here/lib/a"), "13.0.88", (90,))
    there = replace(here, nvcc=Path("/there/bin/nvcc"), cudart=Path("/there/lib/a"))

    def keys(cuda):
        return {job.target: job.key(sources) for job in plan(sources, cuda)}

    def differing(cuda):
        return {path.name for path, key in keys(cuda).items() if keys(here)[path] != key}

    assert differing(there) == set()
    assert differing(replace(here, version="13.0.96")) == {"01_naive.o", "device.o", "describing.o"}
    module = next(job for job in plan(sources, here) if job.source.name == "module.c")
    assert replace(module, search=["-I/elsewhere"]).key(sources) == module.key(sources)
    assert replace(module, outside="NumPy 9").key(sources) != module.key(sources)


def test_calls_are_noted_with_their_lines_and_shared_arrays_with_their_names():
    assembly = """\
\t.file 1 "csrc/kernels/03_smem.cu"
\t.loc 1 24 9
\tcall\t__tsan_read4@PLT
\t.loc\t0 0 3
\tcallq\tmemcpy@PLT
\t.size\t_ZZN12_GLOBAL__N_14smemE5SgemmE2As, 4096
\t.size\t_ZN12_GLOBAL__N_14smemE5Sgemm, 96
"""
    words = [line.split() for line in counting.annotate(assembly).splitlines()]
    assert words[words.index([".Lsgemm_file1:"]) + 1] == [".asciz", '"03_smem.cu"']
    assert [".long", ".Lsgemm_call1", "-", ".,", ".Lsgemm_file1", "-", ".,", "24"] in words
    # Line 0 stands for no line: what follows belongs to the line before.
    assert [".long", ".Lsgemm_call2", "-", ".,", ".Lsgemm_file1", "-", ".,", "24"] in words
    assert ["callq", "count_memcpy@PLT"] in words
    arrays = words[words.index([".section", 'sgemm_shared_arrays,"a"']) + 1 :]
    symbol = "_ZZN12_GLOBAL__N_14smemE5SgemmE2As"
    assert arrays == [[".long", symbol, "-", ".,", "4096"], [".ascii", '"As"'], [".zero", "22"]]


def test_the_hash_is_over_paths_and_contents_of_sources(sources):
    csrc = sources / "csrc"
    first = toolkit.csrc_hash(csrc)
    assert re.fullmatch("[0-9a-f]{16}", first)
    append(csrc / "kernels/README.md")
    os.utime(csrc / "module.c", (0, 0))
    assert toolkit.csrc_hash(csrc) == first
    (csrc / "core/other.c").rename(csrc / "core/renamed.c")
    second = toolkit.csrc_hash(csrc)
    append(csrc / "core/renamed.c")
    assert len({first, second, toolkit.csrc_hash(csrc)}) == 3


def test_the_extension_was_built_from_these_sources():
    assert sgemm_kernels.build_info().csrc_hash == toolkit.csrc_hash(ROOT / "csrc")


# ------------------------------------------------------------------------ what ptxas reported


@pytest.mark.skipif(
    sgemm_kernels.build_info().cuda_toolkit is None, reason="this build is for the CPU alone"
)
@pytest.mark.parametrize(
    "name",
    sorted(p.stem for p in ROOT.glob("csrc/kernels/*.cu") if "__global__" in p.read_text()),
)
def test_no_rung_spills_registers(name):
    report = (ROOT / f"build/ptxas/{name}.txt").read_text()
    compiled = re.findall(
        r"for '(sm_\d+)'\n(?:.*\n)?.* (\d+) bytes spill stores, (\d+) bytes spill loads", report
    )
    built_for = sgemm_kernels.build_info().architectures
    assert {name for name, _, _ in compiled} == {name for name in built_for if "sm_" in name}
    assert [entry for entry in compiled if entry[1:] != ("0", "0")] == []


# ---------------------------------------------------------------------------- hooks and wheels


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what the repository holds, as a place to build in."""
    tree = tmp_path_factory.mktemp("tree") / "copy"
    made = ("build", "dist", "*.egg-info", "*.so", "__pycache__", "kernels", ".*")
    ignore = shutil.ignore_patterns(*made)
    tree.mkdir()
    for name in ("build_backend", "csrc", "sgemm_kernels", "tests"):
        only = shutil.ignore_patterns(*set(made) - {"kernels"}) if name == "csrc" else ignore
        shutil.copytree(ROOT / name, tree / name, ignore=only)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copyfile(path, tree / path.name)
    return tree


@pytest.fixture(scope="module")
def only_setuptools(tmp_path_factory):
    """A folder of packages with setuptools and without NumPy."""
    import setuptools

    folder = tmp_path_factory.mktemp("packages")
    installed = Path(setuptools.__file__).parents[1]
    for path in [installed / "_distutils_hack", *installed.glob("setuptools*")]:
        (folder / path.name).symlink_to(path)
    return folder


def call_hook(tree, packages, expression, **environ):
    """Calls a hook of the build backend, without the packages installed beside this Python."""
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
    else:
        assert (tree / "out" / answer).is_file()


def test_hooks_end_in_one_line_where_no_toolkit_is(tree, only_setuptools):
    expression = "get_requires_for_build_wheel()"
    done = call_hook(tree, only_setuptools, expression, SGEMM_KERNELS_CUDA="/nowhere")
    assert done.returncode == 1
    assert "\nerror: SGEMM_KERNELS_CUDA=/nowhere names no CUDA toolkit" in done.stderr
    assert "Traceback" not in done.stderr


def test_compiling_without_numpy_says_so(tree, only_setuptools):
    settings = {"PATH": os.environ["PATH"], "SGEMM_KERNELS_CUDA": "0"}
    shutil.rmtree(tree / "build", ignore_errors=True)
    done = call_hook(tree, only_setuptools, "build_wheel('out')", **settings)
    assert done.returncode == 1
    assert "error: no NumPy to compile with: pip install 'numpy>=2'" in done.stderr


def test_an_sdist_holds_what_building_and_testing_need(tree, only_setuptools):
    (tree / "out").mkdir(exist_ok=True)
    done = call_hook(tree, only_setuptools, "build_sdist('out')", PATH="/nowhere")
    with tarfile.open(tree / "out" / done.stdout.splitlines()[-1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    needed = {
        path.relative_to(tree).as_posix()
        for folder in ("build_backend", "csrc", "sgemm_kernels", "tests")
        for path in (tree / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    needed |= {"Makefile", "README.md", "LICENSE", "pyproject.toml", "setup.py", ".clang-format"}
    assert needed <= held
    assert not [name for name in held if name.endswith((".so", ".pyc"))]


def test_a_wheel_holds_the_package_and_its_kernels(tree):
    code = "import build_backend; print(build_backend.build_wheel('out'))"
    environ = {**os.environ, "SGEMM_KERNELS_CUDA": "0", "PYTHONPATH": str(tree)}
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
    package = (tree / "sgemm_kernels").glob("*.py*")
    kernels = [path for path in (tree / "csrc/kernels").iterdir() if path.suffix in {".cu", ".h"}]
    assert held == {
        "sgemm_kernels/_core.abi3.so",
        "sgemm_kernels/py.typed",
        *(f"sgemm_kernels/{path.name}" for path in package),
        *(f"sgemm_kernels/kernels/{path.name}" for path in kernels),
    }
