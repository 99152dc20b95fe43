"""libsgemm_kernels.so as other programs use it: examples, pkg-config, CMake, its symbols."""

import ctypes
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

import sgemm_kernels
from sgemm_kernels import _core, variants
from sgemm_kernels.__main__ import main
from sgemm_kernels.cli import c_library

from .support import fake_cuda, printed_by
from .test_c_16bit import Operand
from .test_c_api import HOST, ON_CPU, Matrix, Place, Status, described

EXAMPLES = Path(__file__).parent.parent / "examples"
NATIVE = Path(__file__).parent / "native"
LIBRARY = Path(sgemm_kernels.get_library_dir(), "libsgemm_kernels.so")
CC, CXX = os.environ.get("CC") or "cc", os.environ.get("CXX") or "c++"
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def needs(program):
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not installed")


def output(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def config(capsys, *options):
    assert main(["config", *options]) == 0
    return capsys.readouterr().out.split()


# ---------------------------------------------------------------------------- examples


@pytest.mark.parametrize("compiler", [(CC, "-xc", "-std=c11"), (CXX, "-xc++", "-std=c++17")])
def test_the_example_compiles_and_runs_in_c_and_cpp(tmp_path, capsys, compiler):
    flags = config(capsys, "--cflags", "--libs")
    program = tmp_path / "product"
    source = EXAMPLES / "product.c"
    output(*compiler, *STRICT, source, "-xnone", *flags, "-o", program)
    assert output(program, "cpu") == "device -1: C[299][199] = 1204, expected 1204\n"
    wrong = subprocess.run([program, "gpu"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "there is no device called 'gpu'" in wrong.stderr


@needs("gfortran")
def test_the_example_compiles_and_runs_in_fortran(tmp_path, capsys):
    module = Path(sgemm_kernels.get_include(), "sgemm_kernels.f90")
    source = EXAMPLES / "product.f90"
    libs = config(capsys, "--libs")
    strict = ["-Wall", "-Wextra", "-Werror", "-std=f2018"]
    output("gfortran", *strict, module, source, *libs, "-o", "product", cwd=tmp_path)
    no_gpu = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    printed = output("./product", cwd=tmp_path, env={**os.environ, **no_gpu})
    assert re.search(r"^device -1: largest difference from matmul +\d\.\dE-0[4-7]$", printed, re.M)


@needs("gfortran")
def test_fortran_sections_are_used_in_place(tmp_path, capsys):
    module = Path(sgemm_kernels.get_include(), "sgemm_kernels.f90")
    libs = config(capsys, "--libs")
    strict = ["-Wall", "-Wextra", "-Werror", "-std=f2018"]
    output("gfortran", *strict, module, NATIVE / "sections.f90", *libs, "-o", "it", cwd=tmp_path)
    assert output("./it", cwd=tmp_path) == "67\n"
    (tmp_path / "copied.f90").write_text(
        "use sgemm_kernels\n"
        "real, target :: a(4, 4)\n"
        "type(sgemm_kernels_matrix) :: matrix\n"
        "matrix = sgemm_kernels_matrix_of(a([1, 3], :))\n"
        "end\n"
    )
    refused = subprocess.run(
        ["gfortran", "-c", "copied.f90"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert "with vector subscripts at (1) is incompatible" in refused.stderr


def test_the_product_after_a_longjmp_or_a_cancel_out_of_one(tmp_path, capsys):
    program = tmp_path / "leaving"
    flags = [*config(capsys, "--cflags", "--libs"), "-pthread"]
    output(CC, NATIVE / "leaving.c", *flags, "-o", program)
    assert output(program) == "32 signals, 0 wrong\n"


def test_products_at_the_limit_of_threads(tmp_path, capsys):
    """They run in fewer threads, or in the calling one."""
    program = tmp_path / "program"
    flags = [*config(capsys, "--cflags", "--libs"), "-rdynamic", "-pthread", "-ldl"]
    output(CC, NATIVE / "no_threads.c", *flags, "-o", program)
    lines = output(program, env={**os.environ, "SGEMM_KERNELS_THREADS": "4"}).splitlines()
    on_cpu = [each.name for each in variants() if each.name != _core._REFERENCE]
    assert [line for line in lines if line.endswith(": 0 wrong")] == [
        f"{name}: 0 wrong" for name in on_cpu
    ]


def test_signals_without_a_handler_still_end_a_product(tmp_path, capsys):
    """The product would take hours."""
    source, program = tmp_path / "long.c", tmp_path / "long"
    source.write_text(
        "#include <signal.h>\n#include <unistd.h>\n"
        '#include "sgemm_kernels.h"\n'
        "static float c[1 << 20];\n"
        "int main(void) {\n"
        "    const int64_t n = 1024, k = 1 << 30;\n"
        "    sgemm_kernels_matrix A = {c, n, k, 1, 0}, B = {c, k, n, 0, 1}, C = {c, n, n, n, 1};\n"
        "    sgemm_kernels_place place = {SGEMM_KERNELS_CPU, SGEMM_KERNELS_HOST_MEMORY, 0};\n"
        "    alarm(1);\n"
        '    return sgemm_kernels_multiply("simt", &place, 1, &A, &B, 0, NULL, &C, NULL);\n'
        "}\n"
    )
    output(CC, source, *config(capsys, "--cflags", "--libs"), "-o", program)
    assert subprocess.run([program], check=False).returncode == -signal.SIGALRM


@needs("gfortran")
def test_16_bit_operands_from_fortran(tmp_path, capsys):
    module = Path(sgemm_kernels.get_include(), "sgemm_kernels.f90")
    libs = config(capsys, "--libs")
    strict = ["-Wall", "-Wextra", "-Werror", "-std=f2018"]
    output("gfortran", *strict, module, NATIVE / "typed.f90", *libs, "-o", "it", cwd=tmp_path)
    printed = output("./it", cwd=tmp_path)
    assert printed.startswith("A has the dtype 7: pass SGEMM_KERNELS_FLOAT32 (0)")
    assert printed.endswith(" 0.0\n")


@needs("pkg-config")
def test_pkg_config_finds_the_library(tmp_path, capsys):
    (folder,) = config(capsys, "--pkgconfigdir")
    find = {**os.environ, "PKG_CONFIG_PATH": folder}
    assert output("pkg-config", "--modversion", "sgemm_kernels", env=find).strip() == (
        sgemm_kernels.__version__
    )
    flags = output("pkg-config", "--cflags", "--libs", "sgemm_kernels", env=find).split()
    program = tmp_path / "product"
    output(CC, EXAMPLES / "product.c", *flags, "-o", program)
    assert output(program, "cpu").startswith("device -1")


@needs("cmake")
def test_cmake_finds_the_library(tmp_path, capsys):
    (folder,) = config(capsys, "--cmakedir")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\n"
        "project(product C)\n"
        f"find_package(sgemm_kernels {sgemm_kernels.__version__} REQUIRED)\n"
        f"add_executable(product {EXAMPLES / 'product.c'})\n"
        "target_link_libraries(product sgemm_kernels::sgemm_kernels)\n"
    )
    output("cmake", "-B", "build", f"-Dsgemm_kernels_DIR={folder}", cwd=tmp_path)
    output("cmake", "--build", "build", cwd=tmp_path)
    assert output("build/product", "cpu", cwd=tmp_path).startswith("device -1")


def test_config_prints_in_the_order_of_the_options(capsys):
    lib = sgemm_kernels.get_library_dir()
    assert config(capsys, "--version", "--cflags") == [
        sgemm_kernels.__version__,
        f"-I{sgemm_kernels.get_include()}",
    ]
    assert config(capsys, "--blas") == [f"{lib}/libsgemm_kernels_blas.so"]
    assert main(["config"]) == 2
    assert "--cflags --libs" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a b", "a,b", 'it\'s "a" $folder', "a:b"])
def test_flags_of_a_folder_of_any_name(tmp_path, capsys, monkeypatch, name):
    """As words of a shell."""
    root, package = tmp_path / name, Path(sgemm_kernels.__file__).parent
    for each in ("include", "lib"):
        shutil.copytree(package / each, root / each)
    monkeypatch.setattr(c_library, "get_include", lambda: str(root / "include"))
    monkeypatch.setattr(c_library, "get_library_dir", lambda: str(root / "lib"))
    if ":" in name:
        assert main(["config", "--libs"]) == 2
        assert "a run path cannot contain a colon" in capsys.readouterr().err
        return
    program = tmp_path / "product"
    flags = [shlex.split(" ".join(config(capsys, "--cflags", "--libs")))]
    assert config(capsys, "--pkgconfigdir") == f"{root}/lib/pkgconfig".split()
    if shutil.which("pkg-config") and not set(name) & set(",'"):
        find = {**os.environ, "PKG_CONFIG_PATH": str(root / "lib/pkgconfig")}
        found = output("pkg-config", "--cflags", "--libs", "sgemm_kernels", env=find)
        flags.append(shlex.split(found))
    for words in flags:
        output(CC, EXAMPLES / "product.c", *words, "-o", program)
        assert output(program, "cpu").startswith("device -1")


# ---------------------------------------------------------------------------- the library


def test_the_library_exports_the_interface_alone():
    header = Path(sgemm_kernels.get_include(), "sgemm_kernels.h").read_text()
    declared = set(re.findall(r"\b(sgemm_kernels_\w+)\(", header))
    listed = output("nm", "-D", "--defined-only", LIBRARY).split("\n")
    names = {line.split()[-1] for line in listed if line}
    assert names == {"SGEMM_KERNELS_0"} | {f"{name}@@SGEMM_KERNELS_0" for name in declared}


def test_the_fortran_module_has_the_functions_and_sizes_of_the_header(tmp_path):
    include = Path(sgemm_kernels.get_include())
    module = (include / "sgemm_kernels.f90").read_text()
    products = ("multiply", "multiply_batched", "multiply_typed", "multiply_many_typed")
    for name in ("find_device", *products, "allocate", "free"):
        assert f"sgemm_kernels_{name}(" in module
    program = tmp_path / "sizes.c"
    program.write_text(
        '#include <stdio.h>\n#include "sgemm_kernels.h"\n'
        'int main(void) { printf("%zu %zu %zu %zu", sizeof(sgemm_kernels_matrix),'
        "sizeof(sgemm_kernels_operand), sizeof(sgemm_kernels_place), "
        "sizeof(sgemm_kernels_status)); return 0; }\n"
    )
    output(CC, program, f"-I{include}", "-o", tmp_path / "sizes")
    sizes = output(tmp_path / "sizes")
    assert sizes == " ".join(str(ctypes.sizeof(each)) for each in (Matrix, Operand, Place, Status))
    assert "message(504)" in module


@pytest.fixture(scope="module")
def library():
    library = ctypes.CDLL(str(LIBRARY))
    library.sgemm_kernels_variant.restype = ctypes.c_char_p
    library.sgemm_kernels_allocate.restype = ctypes.c_void_p
    library.sgemm_kernels_allocate.argtypes = (ctypes.c_int, ctypes.c_size_t)
    library.sgemm_kernels_free.argtypes = (ctypes.c_void_p,)
    library.sgemm_kernels_multiply.argtypes = (
        *(ctypes.c_char_p, ctypes.POINTER(Place), ctypes.c_float),
        *(ctypes.POINTER(Matrix), ctypes.POINTER(Matrix), ctypes.c_float),
        *(ctypes.POINTER(Matrix), ctypes.POINTER(Matrix), ctypes.POINTER(Status)),
    )
    return library


def test_the_variants_are_those_of_python(library):
    names = [variant.name for variant in variants()]
    found = [library.sgemm_kernels_variant(index) for index in range(len(names) + 3)]
    assert [name.decode() for name in found if name] == names
    assert found[len(names) :] == [None] * 3
    assert library.sgemm_kernels_variant(-1) is None


def test_devices_by_name(library):
    device, status = ctypes.c_int(7), Status()
    for name in (b"cpu", None, b"none", f"{_core._GPU_KIND}:0".encode()):
        assert library.sgemm_kernels_find_device(name, None, ctypes.byref(status)) == status.code
        assert status.message == b"device is NULL: pass the address of an int"
    assert library.sgemm_kernels_find_device(b"cpu", ctypes.byref(device), None) == 0
    assert device.value == ON_CPU
    for name in ("gpu", "CPU", "", f"{_core._GPU_KIND}:", f"{_core._GPU_KIND}:-1", "cud"):
        device.value = 7
        failed = library.sgemm_kernels_find_device(
            name.encode(), ctypes.byref(device), ctypes.byref(status)
        )
        assert failed == status.code != 0
        assert f"there is no device called '{name}'".encode() in status.message
        assert device.value == 7


def test_two_copies_of_the_code_in_one_process(library, rng):
    """The extension and the library compute the same, and keep their state to themselves."""
    import numpy as np

    A, B = (rng.uniform(-1, 1, (60, 60)).astype(np.float32) for _ in range(2))
    out, place = np.empty_like(A), Place(ON_CPU, HOST, None)
    arguments = (described(A), described(B), 0, None, described(out), None)
    assert library.sgemm_kernels_multiply(b"tile2d", place, 1, *arguments) == 0
    assert out.tobytes() == sgemm_kernels.run("tile2d", A, B, device="cpu").tobytes()


def test_memory_is_aligned_and_reused_by_anyone(library):
    for bytes_wanted in (0, 1, 100, 1 << 20):
        memory = library.sgemm_kernels_allocate(ON_CPU, bytes_wanted)
        assert memory % 64 == 0
        ctypes.memset(memory, 255, bytes_wanted)
        library.sgemm_kernels_free(memory)
    library.sgemm_kernels_free(None)
    assert library.sgemm_kernels_allocate(ON_CPU, 2**63) is None


def test_the_extension_binds_its_own_functions_first():
    """Even if the process was linked with the library, which has functions of the same names."""
    code = """
        import ctypes, sys
        from tests.test_c_api import _pointer_of, _core
        address = _pointer_of(_core._c_multiply_batched, b"sgemm_kernels.multiply_batched")
        with open("/proc/self/maps") as maps:
            for line in maps:
                begin, end = (int(each, 16) for each in line.split()[0].split("-"))
                if begin <= address < end:
                    print(line.split()[-1])
    """
    printed = printed_by(code, LD_PRELOAD=str(LIBRARY))
    assert Path(printed).name == "_core.abi3.so"


@pytest.mark.fake_cuda
def test_over_the_fake_cuda_runtime():
    """Devices, pinned memory and a product from and to it."""
    code = """
        import ctypes
        import numpy as np
        from pathlib import Path
        import sgemm_kernels
        from sgemm_kernels import _core
        from tests.test_c_api import HOST, Matrix, Place, Status, described
        folder = Path(sgemm_kernels.__file__).parent
        library = ctypes.CDLL(str(folder / "lib/libsgemm_kernels.so"))
        library.sgemm_kernels_allocate.restype = ctypes.c_void_p
        library.sgemm_kernels_allocate.argtypes = (ctypes.c_int, ctypes.c_size_t)
        library.sgemm_kernels_free.argtypes = (ctypes.c_void_p,)
        library.fake_cuda_pinned.restype = ctypes.c_size_t
        device, status = ctypes.c_int(7), Status()
        kind = _core._GPU_KIND
        for name in (None, kind.encode(), f"{kind}:1".encode(), f"{kind}:99".encode()):
            code = library.sgemm_kernels_find_device(
                name, ctypes.byref(device), ctypes.byref(status))
            print(code, device.value)
        assert b"there is no device" in status.message, status.message
        before = library.fake_cuda_pinned()
        memory = library.sgemm_kernels_allocate(0, 4 * 50 * 50)
        assert library.fake_cuda_pinned() > before
        floats = ctypes.cast(memory, ctypes.POINTER(ctypes.c_float))
        pinned = np.ctypeslib.as_array(floats, (50, 50))
        A = np.eye(50, dtype=np.float32)
        pinned[:] = 3
        place = Place(0, HOST, None)
        product = described(pinned)
        assert library.sgemm_kernels_multiply(
            b"vec4", ctypes.byref(place), ctypes.c_float(1), ctypes.byref(described(A)),
            ctypes.byref(product), ctypes.c_float(1), ctypes.byref(product),
            ctypes.byref(product), ctypes.byref(status)) == 0, status.message
        assert (pinned == 6).all()
        library.sgemm_kernels_free(memory)
    """
    printed = printed_by(code, package=fake_cuda())
    assert printed.split("\n") == ["0 0", "0 0", "0 1", "1 1"]


@pytest.mark.fake_cuda
def test_programs_without_python_use_the_tensor_cores_that_prove_has_proven(tmp_path):
    """The library reads the verdict itself."""
    code = """
        import ctypes
        import numpy as np
        from pathlib import Path
        import sgemm_kernels
        from sgemm_kernels import _proofs
        from tests.test_c_api import HOST, Place, Status, described
        folder = Path(sgemm_kernels.__file__).parent
        library = ctypes.CDLL(str(folder / "lib/libsgemm_kernels.so"))
        library.fake_cuda_set_tensor_cores(8, 0, 8, 24)
        A = np.random.default_rng(7).uniform(-1, 1, (512, 512)).astype(np.float32)
        def product(variant):
            out, status = np.empty_like(A), Status()
            assert library.sgemm_kernels_multiply(
                variant, ctypes.byref(Place(0, HOST, None)), ctypes.c_float(1),
                ctypes.byref(described(A)), ctypes.byref(described(A)), ctypes.c_float(0), None,
                ctypes.byref(described(out)), ctypes.byref(status)) == 0, status.message
            return out.tobytes()
        chosen = product(b"auto")
        print([variant for variant in ("simt", "mma") if product(variant.encode()) == chosen])
        facts = {"compute_capability": [8, 0], "date": "2026-01-02", "rate": 1e6, "start": 1.5}
        _proofs.keep("a fake GPU", facts)
    """
    gpu = {
        "FAKE_CUDA_MAJOR": "8",
        "SGEMM_KERNELS_CACHE": str(tmp_path),
        "SGEMM_KERNELS_CPU_MULTIPROCESSORS": "1",
    }
    printed = [printed_by(code, package=fake_cuda(), **gpu) for _ in range(2)]
    assert printed == ["['simt']", "['mma']"]
