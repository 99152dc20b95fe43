"""libsgemm_kernels_blas.so under a small BLAS, and under NumPy; `sgemm-kernels preload`."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sgemm_kernels
from sgemm_kernels import _core
from sgemm_kernels.__main__ import main

from .support import ending, fake_cuda, python

NATIVE = Path(__file__).parent / "native"
BLAS = str(Path(sgemm_kernels.get_library_dir(), "libsgemm_kernels_blas.so"))
VARIABLES = "SGEMM_KERNELS_BLAS_"
WITHOUT_GPUS = not sgemm_kernels.build_info().architectures
CC = os.environ.get("CC") or "cc"


def preloaded(code, blas=BLAS, **settings):
    """Runs Python code under preload. Settings are our variables without their prefix."""
    package = Path(blas).parents[2]
    environment = {f"{VARIABLES}{name}": value for name, value in settings.items()}
    return python(PRELUDE + textwrap.dedent(code), package, LD_PRELOAD=blas, **environment)


PRELUDE = """
import ctypes, itertools, os, sys, threading
import numpy as np
rng = np.random.default_rng(3)

def uniform(*shape):
    return rng.uniform(-1, 1, shape).astype(np.float32)

def near(C, A, B, added=0):
    exact = A.astype(np.float64) @ B.astype(np.float64) + added
    bound = 4e-7 * (A.shape[1] + 3) * (np.abs(A).astype(np.float64) @ np.abs(B) + np.abs(added))
    return bool((np.abs(C - exact) <= bound).all())
"""


def counts(process):
    """The calls computed here and passed on, by the log."""
    assert process.returncode == 0, ending(process)
    found = re.findall(r"(\d+) calls computed here \(.*?\), (\d+) passed on", process.stderr)
    assert found, ending(process)
    return [sum(int(each[place]) for each in found) for place in (0, 1)]


# ---------------------------------------------------------------------------- a small BLAS


@pytest.fixture(scope="module")
def blas(tmp_path_factory):
    """Compiles the small BLAS with these flags, and returns its path."""
    folder = tmp_path_factory.mktemp("blas")

    def build(name, *flags):
        library = folder / f"lib{name}.so"
        if not library.exists():
            command = [CC, "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *flags]
            subprocess.run([*command, NATIVE / "small_blas.c", "-o", library], check=True)
        return str(library)

    return build


FORTRAN = """
    own = ctypes.CDLL({own!r}, {mode})
    sgemm = ctypes.CDLL(None)[{name!r}]

    def integers(*values):
        return [ctypes.byref({integer}(value)) for value in values]

    def reals(*values):
        return [ctypes.byref(ctypes.c_float(value)) for value in values]

    def pointer(array):
        return ctypes.c_void_p(array.ctypes.data)

    def called(transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
        (m, n, k, lda, ldb, ldc), (alpha, beta) = (
            integers(m, n, k, lda, ldb, ldc), reals(alpha, beta))
        sgemm(transa, transb, m, n, k, alpha, pointer(A), lda, pointer(B), ldb, beta, pointer(C),
              ldc)

    def count(name):
        return ctypes.c_long.in_dll(own, name).value
"""


def fortran(own, name="sgemm_", mode="ctypes.RTLD_GLOBAL", integer="ctypes.c_int32"):
    return textwrap.dedent(FORTRAN).format(own=own, mode=mode, name=name, integer=integer)


EVERY_CASE = """
for ta, tb, beta in itertools.product(b"NTC", b"nt", (0.0, 1.0, -0.5)):
    m, n, k = 37, 21, 29
    A, B, C = uniform(m, k), uniform(k, n), uniform(m, n)
    a = np.full((40, k), np.nan, np.float32, "F") if ta == 78 else (
        np.full((33, m), np.nan, np.float32, "F"))
    b = np.full((33, n), np.nan, np.float32, "F") if tb == 110 else (
        np.full((25, k), np.nan, np.float32, "F"))
    c = np.full((44, n), 7, np.float32, "F")
    a[:A.shape[0] if ta == 78 else k] = A if ta == 78 else A.T
    b[:k if tb == 110 else n] = B if tb == 110 else B.T
    c[:m] = C if beta else np.nan
    called(bytes([ta]), bytes([tb]), m, n, k, 1.5, a, a.shape[0], b, b.shape[0], beta, c, 44)
    assert near(c[:m], 1.5 * A, B, beta * C.astype(np.float64)), (ta, tb, beta)
    assert (c[m:] == 7).all()
"""


@pytest.mark.parametrize("kernel", ["naive", "auto"])
def test_fortran_calls_with_every_option(blas, kernel):
    code = fortran(blas("plain")) + EVERY_CASE + "\nprint(count('own_sgemm_calls'))"
    process = preloaded(code, DEVICE="cpu", VARIANT=kernel, LOG="stats")
    assert counts(process) == [18, 0]
    assert process.stdout.strip() == "0"


def test_calls_are_passed_on_unchanged(blas):
    code = fortran(blas("plain")) + EVERY_CASE + "\nprint(count('own_sgemm_calls'))"
    process = preloaded(code, DEVICE="cpu", MIN="1e12", LOG="stats")
    assert counts(process) == [0, 18]
    assert process.stdout.strip() == "18"
    assert "smaller than SGEMM_KERNELS_BLAS_MIN" in process.stderr


@pytest.mark.parametrize(
    ("library", "name", "integer"),
    [
        ("plain", "sgemm_", "int32"),
        ("scipy", "scipy_sgemm_", "int32"),
        ("wide", "sgemm_64_", "int64"),
        ("blas64", "sgemm_", "int64"),  # Debian's ILP64 libraries have plain names
    ],
)
@pytest.mark.parametrize("mode", ["ctypes.RTLD_GLOBAL", "ctypes.RTLD_LOCAL"])
def test_own_functions_are_found_in_any_loaded_library(blas, library, name, integer, mode):
    own = blas(library, f"-Dsgemm_={name}", f"-DINTEGER={integer}_t", "-include", "stdint.h")
    code = fortran(own, name, mode, f"ctypes.c_{integer}") + EVERY_CASE
    process = preloaded(f"{code}\nprint(count('own_sgemm_calls'))", LOG="stats")
    assert counts(process) == [0, 18]
    assert process.stdout.strip() == "18"
    assert counts(preloaded(code, LOG="stats", DEVICE="cpu")) == [18, 0]


def test_the_library_in_the_environment_comes_first(blas, tmp_path):
    other = tmp_path / "libother.so"
    other.write_bytes(Path(blas("plain")).read_bytes())
    code = f"""
    other = ctypes.CDLL({str(other)!r})
    {textwrap.indent(fortran(blas("plain")), "    ").strip()}
    called(b"N", b"N", 1, 1, 1, 1, uniform(1), 1, uniform(1), 1, 0, uniform(1), 1)
    print(count("own_sgemm_calls"), ctypes.c_long.in_dll(other, "own_sgemm_calls").value)
    """
    for settings, expected in (({}, "1 0"), ({"LIBRARY": str(other)}, "0 1")):
        process = preloaded(code, **settings)
        assert process.stdout.strip() == expected, ending(process)
    missing = preloaded(code, LIBRARY="libnone.so")
    assert missing.stdout.strip() == "1 0", "the usual search follows"


def test_libblastrampoline_is_not_the_programs_own_blas(blas):
    """It forwards to the names that it finds first, which are ours."""
    own_names = "-Wl,-Bsymbolic"  # each library has its own counters
    trampoline, own = blas("blastrampoline", own_names), blas("symbolic", own_names)
    code = f"""
    trampoline = ctypes.CDLL({trampoline!r}, ctypes.RTLD_GLOBAL)
    {textwrap.indent(fortran(own), "    ").strip()}
    called(b"N", b"N", 1, 1, 1, 1, uniform(1), 1, uniform(1), 1, 0, uniform(1), 1)
    print([ctypes.c_long.in_dll(each, "own_sgemm_calls").value for each in (trampoline, own)])
    """
    assert preloaded(code).stdout.strip() == "[0, 1]"


CALLER = """
#define ALL const void *a, const void *b, const void *c, const void *d, const void *e, \\
    const void *f, const void *g, const void *h, const void *i, const void *j, const void *k, \\
    const void *l, const void *m
void sgemm_(ALL);
void call(ALL) { sgemm_(a, b, c, d, e, f, g, h, i, j, k, l, m); AFTER; }
void call_other(void (*other)(ALL), ALL) {
    other(a, b, c, d, e, f, g, h, i, j, k, l, m);
    __asm__("");  /* no tail call */
}
"""

PLUGINS = {  # the BLAS of each, and its flags
    "one": ("libone.so", []),
    "two": ("libtwo.so", ["-DPADDING"]),
    "wide": ("libblas64.so", ["-DINTEGER=int64_t", "-include", "stdint.h"]),
}

OWN_OF_PLUGINS = {name: own for name, (own, _) in PLUGINS.items()}


@pytest.fixture(scope="module", params=["", '__asm__("")'], ids=["tail call", "call"])
def plugins(tmp_path_factory, request):
    """Libraries that call their own BLAS. After a tail call, the return address is their caller's.
    Returns code to load and call them."""
    folder = tmp_path_factory.mktemp("plugins")
    (folder / "caller.c").write_text(CALLER)
    for name, (own, flags) in PLUGINS.items():
        command = [CC, "-O2", "-shared", "-fPIC", f"-DAFTER={request.param}"]
        subprocess.run([*command, *flags, NATIVE / "small_blas.c", "-o", folder / own], check=True)
        caller = ["-o", folder / f"{name}.so", folder / "caller.c", folder / own]
        subprocess.run([*command, *caller], check=True)
    return textwrap.dedent(f"""
        owns = {OWN_OF_PLUGINS}
        one = ctypes.byref(ctypes.c_float(1))
        class Loaded:
            def __init__(self, name):
                self.caller = ctypes.CDLL(f"{folder}/{{name}}.so")
                self.own = ctypes.CDLL(f"{folder}/{{owns[name]}}")
                # The memory beside a 32-bit integer is not zero.
                self.memory = (ctypes.c_int64 * 1)(1 if name == "wide" else 1 + (77 << 32))
            def call(self, through=None):
                size = ctypes.c_void_p(ctypes.addressof(self.memory))
                C = uniform(1)
                C[0] = 3
                arguments = (b"N", b"N", size, size, size, one, one, size, one, size, one,
                             pointer(C), size)
                if through:
                    through.caller.call_other(self.caller.call, *arguments)
                else:
                    self.caller.call(*arguments)
                assert C[0] == 4, C
            def count(self, name="own_sgemm_calls"):
                return ctypes.c_long.in_dll(self.own, name).value
            def close(self):
                import _ctypes
                counted = self.count(), self.count("errors")
                for library in (self.caller, self.own):
                    _ctypes.dlclose(library._handle)
                return counted
        def pointer(array):
            return ctypes.c_void_p(array.ctypes.data)
    """)


@pytest.mark.parametrize("first", PLUGINS)
def test_each_caller_gets_the_blas_that_it_was_linked_with(plugins, first, request):
    """A tail call can be attributed if only one library is loaded. Otherwise it gets a BLAS that
    computes the right result."""
    code = """
        loaded = {name: Loaded(name) for name in sorted(owns, key=lambda name: name != first)}
        for name in ("two", "one", "wide", "two"):
            loaded[name].call()
        print({name: each.count() for name, each in sorted(loaded.items())})
        for each in loaded.values():
            for other in loaded.values():
                each.call(through=other)
        print(sum(each.count("errors") for each in loaded.values()))
    """
    process = preloaded(f"{plugins}\nfirst = {first!r}\n{textwrap.dedent(code)}")
    counted, errors = process.stdout.splitlines()
    assert errors == "0", ending(process)
    if "tail" not in request.node.name:
        assert counted == str({"one": 1, "two": 2, "wide": 1})
    alone = f"""
        others = [ctypes.CDLL(Loaded(name).own._name) for name in owns if name != {first!r}]
        only = Loaded({first!r})
        only.call()
        print(only.count(), only.count("errors"))
    """
    alone = alone.replace("Loaded(name).own._name", "folder + owns[name]")
    folder = re.search(r'CDLL\(f"(.*/)\{name\}', plugins)[1]
    process = preloaded(f"{plugins}\nfolder = {folder!r}\n{textwrap.dedent(alone)}")
    assert process.stdout == "1 0\n", ending(process)


def test_a_blas_that_is_unloaded_is_not_called(plugins):
    """Another one can be at its address."""
    code = """
        for name in ("one", "two", "one", "wide", "two", "wide", "one", "one"):
            loaded = Loaded(name)
            loaded.call()
            loaded.call()
            print(*loaded.close())
    """
    process = preloaded(plugins + textwrap.dedent(code))
    assert process.stdout.split("\n") == ["2 0"] * 8 + [""], ending(process)


def of_program(own, source, tmp_path, **settings):
    """Compiles a program with a BLAS of its own and runs it under preload, on the CPU device."""
    program = tmp_path / "program"
    rpath = f"-Wl,-rpath,{Path(own).parent}"
    subprocess.run([CC, "-O1", NATIVE / source, own, rpath, "-pthread", "-o", program], check=True)
    settings = {"DEVICE": "cpu", "LOG": "stats", **settings}
    environment = {f"{VARIABLES}{name}": value for name, value in settings.items()}
    environment = {**os.environ, **environment, "LD_PRELOAD": BLAS}
    return subprocess.run([program], env=environment, capture_output=True, text=True, check=False)


def test_products_after_a_longjmp_out_of_the_programs_own_blas(blas, tmp_path):
    done = of_program(blas("plain"), "blas_leaving.c", tmp_path, MIN="1000")
    assert counts(done) == [4, 0]
    assert done.stdout == "4\n", "the calls that were left"


@pytest.mark.parametrize("kernel", ["naive", "auto"])
def test_products_on_the_smallest_stacks(blas, tmp_path, kernel):
    done = of_program(blas("plain"), "blas_stacks.c", tmp_path, VARIANT=kernel)
    assert counts(done) == [9, 0]
    assert done.stdout == "9\n"


WIDE_NAMES = (
    *("libblas64.so.3", "libopenblas64.so.0", "libopenblaso64.so", "libopenblasp64.so.0"),
    *("libblis64.so.4", "libflexiblas64.so.3", "libmkl_gf_ilp64.so.2", "libmkl_intel_ilp64.so"),
    *("libarmpl_ilp64_mp.so", "libnvpl_blas_ilp64_gomp.so.0", "libessl6464.so"),
    *("libesslsmp6464.so.1", "lib_ILP64/libblis-mt.so"),
)
NARROW_NAMES = (
    *("libblas.so.3", "libopenblas.so.0", "libblis.so.4", "libmkl_gf_lp64.so.2", "libmkl_rt.so.2"),
    *("libarmpl_lp64_mp.so", "libnvpl_blas_lp64_gomp.so.0", "libessl.so", "lib_LP64/libblis-mt.so"),
    *("blas64/libblas.so.3", "ilp64/of/libblas.so.3"),
)


def test_which_libraries_have_64_bit_integers(blas, tmp_path):
    """By their answers, otherwise by their names. With 32-bit integers, 2^32 + 1 is a leading
    dimension that is too small, so the call is not computed here."""
    wide = ("-DINTEGER=int64_t", "-include", "stdint.h")
    answering = {
        "libplain.so": (True, ['-DOPENBLAS="OpenBLAS 0.3.21 USE64BITINT DYNAMIC_ARCH"']),
        "liblike64/libblas64.so": (False, ['-DOPENBLAS="OpenBLAS 0.3.21 DYNAMIC_ARCH"']),
        "libanother.so": (True, ["-DBLIS=64"]),
        "libmore/libblis64.so": (False, ["-DBLIS=32"]),
    }
    named = {name: (True, []) for name in WIDE_NAMES} | {name: (False, []) for name in NARROW_NAMES}
    expected = {}
    for name, (is_wide, flags) in {**named, **answering}.items():
        path = tmp_path / str(len(expected)) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(Path(blas(f"integers{len(flags) and name.replace('/', '')}", *wide,
                                   *flags)).read_bytes())  # fmt: skip
        expected[str(path)] = is_wide
    code = fortran(blas("plain"), integer="ctypes.c_int64") + textwrap.dedent(
        f"""
        import _ctypes
        one = (ctypes.c_float * 1)(1)
        _ctypes.dlclose(own._handle)
        for path, is_wide in {expected}.items():
            library = ctypes.CDLL(path)
            before = ctypes.c_long.in_dll(library, "own_sgemm_calls").value
            sizes = integers(2, 1, 1, 2**32 + 1, 2**32 + 1, 2**32 + 1)
            A, C, (m, n, k, *ld) = uniform(2), uniform(2), sizes
            sgemm(b"N", b"N", m, n, k, one, pointer(A), ld[0], one, ld[1], *reals(0), pointer(C),
                  ld[2])
            calls = ctypes.c_long.in_dll(library, "own_sgemm_calls").value - before
            assert (C == A).all() and calls == (not is_wide), (path, calls)
            _ctypes.dlclose(library._handle)
        print(os.environ.get("MKL_INTERFACE_LAYER"))
        """
    )
    process = preloaded(code, DEVICE="cpu", VARIANT="naive")
    assert process.stdout == "None\n", ending(process)


def test_a_program_without_products_is_left_alone():
    """It prints nothing. Settings would be reported at the first product."""
    environment = {f"{VARIABLES}LOG": "stats", f"{VARIABLES}MIN": "many", "LD_PRELOAD": BLAS}
    done = subprocess.run(
        ["true"], env={**os.environ, **environment}, capture_output=True, check=True
    )
    assert done.stdout + done.stderr == b""
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", BLAS], capture_output=True, text=True, check=True
    )
    wanted = {line.split()[-1].partition("@")[0] for line in listed.stdout.splitlines()}
    assert "abort" in wanted
    assert not wanted & {"exit", "_exit", "_Exit", "quick_exit"}
    assert not any(name.startswith("Py") for name in wanted)


@pytest.mark.parametrize("where", ["cpu", f"{_core._GPU_KIND}:7"])
def test_a_program_without_a_blas_can_find_our_functions(blas, where):
    """Such as by dlsym, to see whether there is a BLAS. The CPU device computes the products."""
    start = fortran(blas("plain")).replace("own =", "unused =", 1)
    start = "\n".join(line for line in start.split("\n") if "CDLL('" not in line)
    assert ".so" not in start
    cblas = EVERY_CBLAS_CASE.format(name="cblas_sgemm", more=0)
    code = (
        start
        + EVERY_CASE
        + cblas
        + textwrap.dedent(
            """
        C, X = uniform(3, 3), uniform(9)
        for m, n, k, alpha in ((0, 3, 3, 1), (3, 0, 3, 1), (3, 3, 0, 1), (3, 3, 3, 0)):
            for beta in (0, 0.5):
                c = C.copy("F")
                called(b"N", b"N", m, n, k, alpha, X, 3, X, 3, beta, c, 3)
                assert (c == (C * beta if m and n else C)).all(), (m, n, k, alpha, beta)
        ssyrk = ctypes.CDLL(None).ssyrk_
        for uplo in (b"U", b"L"):
            c = C.copy("F")
            (n, ld), (alpha, beta) = integers(3, 3), reals(2, 1)
            ssyrk(uplo, b"N", n, n, alpha, pointer(X), ld, beta, pointer(c), ld)
            A, half = X.reshape(3, 3).T, np.triu if uplo == b"U" else np.tril
            assert np.allclose(c, C + half(2 * np.einsum("ik,jk->ij", A, A)), atol=1e-5)
        called(b"N", b"N", 3, 3, 3, 1, X, 2, X, 3, 0, C, 3)
        """
        )
    )
    process = preloaded(code, DEVICE=where, VARIANT="naive", LOG="stats")
    assert counts(process)[1] == 0
    assert process.stderr.startswith("sgemm_kernels: sgemm_ was called with a wrong argument\n")


def test_empty_and_wrong_calls_go_to_the_programs_own_blas(blas):
    code = fortran(blas("plain")) + textwrap.dedent(
        """
        X = uniform(9)
        called(b"N", b"N", 3, 3, 0, 1, X, 3, X, 1, 0, X, 3)   # K = 0
        called(b"N", b"N", 0, 3, 3, 1, X, 1, X, 3, 0, X, 1)   # M = 0
        called(b"N", b"N", 3, 3, 3, 0, X, 3, X, 3, 1, X, 3)   # alpha = 0
        print(count("own_sgemm_calls"), count("errors"))
        called(b"N", b"N", 3, 3, 3, 1, X, 2, X, 3, 0, X, 3)   # lda
        called(b"N", b"N", -3, 3, 3, 1, X, 3, X, 3, 0, X, 3)  # M
        called(b"N", b"N", 3, 3, 3, 1, X, 3, X, -3, 0, X, 3)  # ldb
        called(b"T", b"N", 1, 3, 3, 1, X, 1, X, 3, 0, X, 1)   # lda, of the transposed A
        print(count("own_sgemm_calls"), count("errors"))
        called(b"o", b"N", 3, 3, 3, 1, X, 3, X, 3, 0, X, 3)   # CBLAS's numbers as characters
        called(b"N", b"p", 3, 3, 3, 1, X, 3, X, 3, 0, X, 3)
        called(b"q", b"U", 3, 3, 3, 1, X, 3, X, 3, 0, X, 3)
        ssyrk = ctypes.CDLL(None).ssyrk_
        for uplo, trans in ((b"y", b"N"), (b"z", b"N"), (b"N", b"N"), (b"U", b"o")):
            (n, k, ld), (alpha, beta) = integers(3, 3, 3), reals(1, 0)
            ssyrk(uplo, trans, n, k, alpha, pointer(X), ld, beta, pointer(uniform(9)), ld)
        print(count("own_sgemm_calls"), count("own_ssyrk_calls"))
        """
    )
    process = preloaded(code, DEVICE="cpu")
    assert process.stdout.split() == ["3", "0", "7", "4", "10", "4"], ending(process)
    assert process.stderr == "", "silent by default"


EVERY_CBLAS_CASE = """
cblas = ctypes.CDLL(None)[{name!r}]
cases = itertools.product((101, 102), (111, 112, 113), (111, 112, 113), (0.0, -0.5))
for order, ta, tb, beta in cases:
    m, n, k = 37, 21, 29
    A, B, C = uniform(m, k), uniform(k, n), uniform(m, n)

    def stored(X, trans, ld):
        # Rows, or columns, are in `ld` elements each.
        X = X if (order == 101) == (trans == 111) else X.T
        memory = np.full((len(X), ld), np.nan, np.float32)
        memory[:, :X.shape[1]] = X
        return memory
    a, b, c = stored(A, ta, 40), stored(B, tb, 41), stored(C if beta else np.nan * C, 111, 42)
    sizes = [ctypes.c_int64(each + {more}) for each in (m, n, k)]
    ld = [ctypes.c_int64(each + {more}) for each in (40, 41, 42)]
    f = ctypes.c_float
    cblas(order, ta, tb, *sizes, f(1.5), pointer(a), ld[0], pointer(b), ld[1], f(beta), pointer(c),
          ld[2])
    found = c[:, :n] if order == 101 else c[:, :m].T
    assert near(found, 1.5 * A, B, beta * C.astype(np.float64)), (order, ta, tb, beta)
    assert np.isnan(c[:, n if order == 101 else m:]).all()
"""


@pytest.mark.parametrize(
    ("library", "integer", "more"),
    [
        ("plain", "int32", -(7 << 32)),  # the upper half of a register is undefined
        ("wide", "int64", 0),
    ],
)
@pytest.mark.parametrize("here", [True, False])
def test_cblas_calls_with_every_option(blas, library, integer, more, here):
    suffix = "64_" if library == "wide" else ""
    names = [f"-Dsgemm_=sgemm_{suffix}", f"-Dcblas_sgemm=cblas_sgemm{suffix}"] if suffix else []
    own = blas(library + "_cblas", *names, f"-DINTEGER={integer}_t", "-include", "stdint.h")
    code = fortran(own) if not suffix else fortran(own, f"sgemm_{suffix}")
    code += EVERY_CBLAS_CASE.format(name=f"cblas_sgemm{suffix}", more=more)
    settings = {} if here else {"MIN": "1e12"}
    process = preloaded(code, DEVICE="cpu", VARIANT="tile2d", LOG="stats", **settings)
    assert counts(process) == ([36, 0] if here else [0, 36])


def test_a_leading_dimension_beyond_all_memory(blas):
    """That of a matrix with one column is never used."""
    own = blas("wide", "-Dsgemm_=sgemm_64_", "-DINTEGER=int64_t", "-include", "stdint.h")
    code = fortran(own, "sgemm_64_", integer="ctypes.c_int64") + textwrap.dedent(
        """
        A, B, C = uniform(20, 1), uniform(1, 1), uniform(20, 1)
        for ld in (2**31 + 20, 2**61 + 20, 2**63 - 1):
            C[:] = np.nan
            called(b"N", b"N", 20, 1, 1, 1, A, ld, B, ld, 0, C, ld)
            assert near(C, A, B), C
        """
    )
    assert counts(preloaded(code, DEVICE="cpu", VARIANT="tile2d", LOG="stats")) == [3, 0]


def test_a_call_inside_a_call_that_was_passed_on_is_passed_on(blas):
    """The reference BLAS calls sgemm_, which is ours, in its cblas_sgemm."""
    code = fortran(blas("plain")) + textwrap.dedent(
        """
        A, C = uniform(20, 20), np.zeros((20, 20), np.float32)
        f = ctypes.c_float
        ctypes.CDLL(None).cblas_sgemm(
            101, 111, 112, 20, 20, 20, f(1), pointer(A), 20, pointer(A), 20, f(0), pointer(C), 20)
        assert near(C, A, A.T)
        print(count("own_cblas_calls"), count("own_sgemm_calls"))
        """
    )
    process = preloaded(code, DEVICE="cpu", MIN="1e9", LOG="stats")
    assert process.stdout.split() == ["1", "1"], ending(process)
    assert counts(process) == [0, 1]


def test_ssyrk_changes_one_triangle(blas):
    code = fortran(blas("plain")) + textwrap.dedent(
        """
        ssyrk = ctypes.CDLL(None).ssyrk_
        cblas = ctypes.CDLL(None).cblas_ssyrk
        n, k, f = 35, 20, ctypes.c_float
        for uplo, trans, beta in itertools.product("UL", "NT", (0.0, 2.0)):
            A, C = uniform(n, k), uniform(n, n)
            a = np.asfortranarray(A if trans == "N" else A.T)
            changed = np.triu(np.ones((n, n), bool)) if uplo == "U" else (
                np.tril(np.ones((n, n), bool)))
            c = np.full((n + 3, n), 7, np.float32, "F")
            c[:n] = C
            (n_, k_, lda, ldc), (alpha, beta_) = (
                integers(n, k, a.shape[0], n + 3), reals(-1.5, beta))
            ssyrk(uplo.encode(), trans.encode(), n_, k_, alpha, pointer(a), lda, beta_, pointer(c),
                  ldc)
            expected = np.where(changed, -1.5 * A.astype(np.float64) @ A.T + beta * C, C)
            assert np.abs(c[:n] - expected).max() < 1e-5, (uplo, trans, beta)
            assert (c[:n][~changed] == C[~changed]).all() and (c[n:] == 7).all()
            row_major = C.copy()
            by_rows = np.ascontiguousarray(A if trans == "N" else A.T)
            cblas(101, 121 if uplo == "U" else 122, 111 if trans == "N" else 112, n, k, f(-1.5),
                  pointer(by_rows), by_rows.shape[1], f(beta), pointer(row_major), n)
            assert np.abs(row_major - expected).max() < 1e-5, (uplo, trans, beta)
            assert (row_major[~changed] == C[~changed]).all()
        """
    )
    # The small BLAS has no cblas_ssyrk, which must exist even if it is never called.
    own = blas("with_cblas_ssyrk", "-Dssyrk_=cblas_ssyrk", "-Dsgemm_=unused", "-Dcblas_sgemm=none")
    code = code.replace("own = ", f"also = ctypes.CDLL({own!r}); own = ", 1)
    process = preloaded(code, DEVICE="cpu", LOG="stats")
    assert counts(process) == [16, 0]


# ---------------------------------------------------------------------------- NumPy

NUMPY = """
    for m, n, k in ((1, 1, 1), (64, 48, 33), (70, 1, 90), (1, 80, 3), (130, 200, 150)):
        A, B = uniform(m, k), uniform(k, n)
        for a, b in itertools.product((A, np.asfortranarray(A)), (B, np.asfortranarray(B))):
            assert near(a @ b, A, B)
            assert near(np.dot(a, b, out=np.empty((m, n), np.float32)), A, B)
        wide = uniform(m, 2 * k)[:, ::2]
        assert near(wide @ B, wide, B)
        assert near(A @ A.T, A, A.T) and near(A.T @ A, A.T, A)
        assert near(np.einsum("ij,jk->ik", A, B, optimize=True), A, B)
"""


def test_numpys_products_are_computed_here():
    computed, passed_on = counts(preloaded(NUMPY, DEVICE="cpu", VARIANT="vec4", LOG="stats"))
    assert computed > 20
    assert passed_on == 0


def test_without_a_gpu_numpys_own_blas_computes_and_nothing_is_printed():
    hidden = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    process = python(PRELUDE + textwrap.dedent(NUMPY), LD_PRELOAD=BLAS, **hidden)
    assert process.returncode == 0, ending(process)
    assert process.stdout + process.stderr == ""


def test_the_library_is_small_until_a_product_is_large_enough():
    code = """
        def loaded():
            with open("/proc/self/maps") as maps:
                return any("libsgemm_kernels.so" in line for line in maps)
        small, large = uniform(20, 20), uniform(300, 300)
        small @ small.T
        print(loaded())
        large @ uniform(300, 300)
        print(loaded())
    """
    process = preloaded(code, DEVICE="cpu", MIN="1e7")
    assert process.stdout.split() == ["False", "True"], ending(process)


def test_threads_with_small_stacks_and_a_fork():
    code = """
        A, B = uniform(90, 80), uniform(80, 70)
        threading.stack_size(256 << 10)
        right = []
        def work():
            for _ in range(5):
                right.append(near(A @ B, A, B))
        def run_all():
            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        run_all()
        child = os.fork()
        if child == 0:
            right.clear()
            run_all()
            os._exit(0 if all(right) and len(right) == 30 else 1)
        print(all(right), len(right), os.waitpid(child, 0)[1])
    """
    process = preloaded(code, DEVICE="cpu", MIN="1e4", VARIANT="tile2d")
    assert process.stdout.split() == ["True", "30", "0"], ending(process)
    assert process.stderr == ""


def test_programs_that_exit_at_any_time():
    for ending_code in (
        "sys.exit(3)",
        "os._exit(3)",
        "threading.Thread(target=work).start(); exit(3)",
    ):
        code = f"""
        A = uniform(200, 200)
        def work():
            for _ in range(20):
                A @ A[::-1]
        work()
        {ending_code}
        """
        process = preloaded(code, DEVICE="cpu", VARIANT="vec4")
        assert process.returncode == 3, ending(process)
        assert process.stderr == ""


def test_ctrl_c_interrupts_after_the_product():
    code = """
        import signal
        A = uniform(100, 100)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                A @ A[::-1]
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert preloaded(code, DEVICE="cpu", VARIANT="vec4").stdout.strip() == "interrupted"


def test_numpys_own_tests(tmp_path):
    module = "numpy._core.tests.test_multiarray"
    tests = [f"{module}::TestMatmul", f"{module}::TestMatmulOperator", f"{module}::TestDot"]
    options = ["-q", "-pno:cacheprovider", "-pno:xdist", f"--rootdir={tmp_path}", "-Wignore"]
    settings = {"DEVICE": "cpu", "VARIANT": "vec4", "LOG": "stats"}
    log = tmp_path / "log"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--pyargs", *tests, "-k", "not huge"],
        cwd=tmp_path,
        env={
            **os.environ,
            "LD_PRELOAD": BLAS,
            **{f"{VARIABLES}{name}": value for name, value in settings.items()},
            f"{VARIABLES}LOGFILE": str(log),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.search(r"(\d+) calls computed here", log.read_text())[1]) > 5


# ---------------------------------------------------------------------------- the log and settings


def test_the_log_shows_each_call_and_a_summary(tmp_path):
    code = """
        A, B = uniform(50, 40), uniform(40, 30)
        for _ in range(3):
            A @ B
        A @ A.T
    """
    stats = preloaded(code, DEVICE="cpu", MIN="1.1e5", LOG="stats").stderr
    assert re.search(r"process \d+: 3 calls computed here \(0\.\d+ s\), 1 passed on", stats)
    rows = [line.split() for line in stats.splitlines()]
    assert ["calls", "seconds"] in rows
    (row,) = [row for row in rows if "M=50" in row and "N=30" in row]
    assert row[0] == "3"
    assert row[2:] == ["scipy_cblas_sgemm64_", "M=50", "N=30", "K=40", "computed", "here"]
    calls = preloaded(code, DEVICE="cpu", MIN="1.1e5", LOG="calls").stderr
    assert len(re.findall(r"K=40 alpha=1 beta=0: [\d.]+ s, computed here", calls)) == 3
    log = tmp_path / "log"
    quiet = preloaded(code, DEVICE="cpu", LOG="stats", LOGFILE=str(log))
    assert quiet.stderr == ""
    assert "4 calls computed here" in log.read_text()


def test_the_summary_counts_calls_of_more_shapes_than_it_has_rows():
    code = """
        for rows in range(1, 601):
            uniform(rows, 3) @ uniform(3, 2)
        uniform(20, 20) @ uniform(20, 20)
        if os.fork() == 0:
            uniform(4, 4) @ uniform(4, 4)
            sys.exit()
        os.wait()
    """
    process = preloaded(code, DEVICE="cpu", VARIANT="naive", MIN="30", LOG="stats")
    found = re.findall(r"(\d+) calls computed here \(.*?\), (\d+) passed on", process.stderr)
    assert found == [("1", "0"), ("599", "1")], "those of the child and of its parent"


@pytest.mark.parametrize(
    ("name", "value"),
    [("MIN", "many"), ("MIN", "1e9x"), ("MIN", "nan"), ("MIN", "-1"), ("LOG", "loud")],
)
def test_a_setting_that_is_not_understood_is_ignored_and_reported(name, value):
    settings = {"DEVICE": "cpu", "LOG": "stats", name: value}
    process = preloaded("uniform(3, 3) @ uniform(3, 4)", **settings)
    assert f"ignoring SGEMM_KERNELS_BLAS_{name}='{value}'" in process.stderr
    if name == "MIN":
        assert counts(process) == [1, 0], "with the default"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"DEVICE": "cpu", "VARIANT": "fast"}, "there is no variant 'fast'"),
        ({"DEVICE": "gpu", "MIN": "0"}, "there is no device called 'gpu'"),
    ],
)
def test_the_log_says_why_nothing_was_computed_here(settings, reason):
    process = preloaded(
        "A = uniform(30, 30); assert near(A @ A[::-1], A, A[::-1])", **settings, LOG="stats"
    )
    assert counts(process) == [0, 1]
    assert reason in process.stderr


@pytest.mark.parametrize("setting", [{"LOG": "calls"}, {"LOG": "stats"}, {"MIN": "many"}])
@pytest.mark.parametrize("opened", [True, False])
def test_nothing_is_written_to_a_file_of_the_program(tmp_path, setting, opened):
    """It has the number of the standard error, which the program has closed."""
    code = f"""
        os.close(2)
        file = os.open({str(tmp_path / "data")!r}, os.O_CREAT | os.O_WRONLY) if {opened} else 2
        A = uniform(20, 20)
        A @ A[::-1]
        sys.exit(file - 2)
    """
    process = preloaded(code, DEVICE="cpu", **setting)
    assert (process.returncode, process.stderr) == (0, "")
    assert not opened or (tmp_path / "data").read_bytes() == b""


@pytest.mark.parametrize("linked", [False, True])
def test_relative_paths_and_a_program_that_changes_its_folder(blas, tmp_path, linked):
    (tmp_path / "link.so").symlink_to(BLAS)
    settings = {"DEVICE": "cpu", "LOG": "stats", "LOGFILE": "log", "MIN": "30000"}
    settings["LIBRARY"] = os.path.relpath(blas("plain"), tmp_path)
    code = f"""
        os.chdir("/")
        A = uniform(30, 30)
        A @ A[::-1]
        X, one, n = ctypes.c_void_p(A.ctypes.data), ctypes.byref(ctypes.c_float(1)), (
            ctypes.byref(ctypes.c_int(3)))
        ctypes.CDLL(None).sgemm_(b"N", b"N", n, n, n, one, X, n, X, n, one, X, n)
        print({Path(blas("plain")).name!r} in open("/proc/self/maps").read())
    """
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
        cwd=tmp_path,
        env={
            **os.environ,
            **{f"{VARIABLES}{name}": value for name, value in settings.items()},
            "LD_PRELOAD": "./link.so" if linked else os.path.relpath(BLAS, tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    done.stderr = (tmp_path / "log").read_text()
    assert counts(done) == [1, 1]


@pytest.mark.skipif(not WITHOUT_GPUS, reason="this build can use a GPU")
@pytest.mark.parametrize("settings", [{}, {"DEVICE": _core._GPU_KIND}, {"MIN": "0"}])
def test_the_log_of_a_build_without_gpus_says_so(settings):
    process = preloaded("A = uniform(300, 300); A @ A[::-1]", LOG="stats", **settings)
    assert counts(process) == [0, 1]
    assert "this build has no GPU support" in process.stderr


def test_a_library_that_cannot_be_loaded_is_reported(tmp_path):
    process = preloaded("uniform(3, 3) @ uniform(3, 4)", LIBRARY=str(tmp_path / "lib.so"))
    assert process.returncode == 0
    assert "ignoring SGEMM_KERNELS_BLAS_LIBRARY: " in process.stderr
    assert str(tmp_path / "lib.so") in process.stderr


FROM_FOLDER = """
    import os, sys
    sys.path.insert(0, {folder!r})
    from sgemm_kernels.__main__ import main
    import sgemm_kernels
    assert sgemm_kernels.__file__.startswith({folder!r})
    code = "import numpy as np; A = np.ones((5, 4), np.float32); print((A @ A.T).sum())"
    options = ["--device", "cpu", "--log", "stats"]
    sys.exit(main(["preload", *options, "--", sys.executable, "-c", code]))
"""


@pytest.mark.parametrize("name", ["a b", "a:b", " ::", "quote'and\"more", "ä,$b"])
def test_preload_from_a_folder_of_any_name(tmp_path, name):
    folder, unnecessary = tmp_path / name, ("csrc", "recorded", "levels", "__pycache__")
    package = Path(sgemm_kernels.__file__).parent
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns(*unnecessary))
    code = FROM_FOLDER.format(folder=str(folder))
    process = python(code, SGEMM_KERNELS_CACHE=str(tmp_path / "cache"))
    assert counts(process) == [1, 0]
    assert process.stdout.strip() == "100.0"
    if set(name) & set(" :"):
        process = python(code, SGEMM_KERNELS_CACHE=str(tmp_path / "the cache"))
        assert process.returncode == 2
        assert "set SGEMM_KERNELS_CACHE to a folder without them" in process.stderr


def test_preload_runs_a_program(capfd):
    code = "import numpy as np; A = np.ones((5, 4), np.float32); print((A @ A.T).sum())"
    command = [
        sys.executable,
        "-m",
        "sgemm_kernels",
        "preload",
        "--device",
        "cpu",
        "--log",
        "stats",
    ]
    done = subprocess.run(
        [*command, "--", sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "100.0"
    assert "1 calls computed here" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a program"),
        (["--"], "name a program"),
        (["--", "no-such-program"], "there is no program 'no-such-program'"),
        (["--variant", "fast", "--", "true"], "there is no variant 'fast'"),
        (["--logfile", "/none/log", "--", "true"], "the folder /none does not exist"),
        (["--device", "gpu", "--", "true"], "unknown device 'gpu': use cpu, "),
        (["--device", "nonsense", "--", "true"], "unknown device 'nonsense'"),
        (["--device", f"{_core._GPU_KIND}:all", "--", "true"], "unknown device"),
        (["--device", f"{_core._GPU_KIND}:99", "--", "true"], "GPU"),
        (["--library", "/no/lib.so", "--", "true"], "cannot load --library /no/lib.so: "),
        (["--library", "libm.so.6", "--", "true"], "--library libm.so.6 has neither sgemm_"),
        (["--min", "abc", "--", "true"], "invalid number 'abc': name the least 2*M*N*K"),
        (["--min", "nan", "--", "true"], "invalid number 'nan'"),
        (["--min=-1", "--", "true"], "invalid number '-1'"),
        (["--min", "", "--", "true"], "invalid number ''"),
    ],
)
def test_preload_refuses(capsys, arguments, message):
    with contextlib.suppress(SystemExit):  # by argparse
        assert main(["preload", *arguments]) == 2
    assert message in capsys.readouterr().err


# ---------------------------------------------------------------------------- pinned arrays

OPENED = """
    def opened():
        with open("/proc/self/maps") as maps:
            return {line.split("/")[-1].strip() for line in maps if "sgemm_kernels" in line} & {
                "libsgemm_kernels.so", "_core.abi3.so"}
"""


def over_fake(code, package=None, **settings):
    """Runs code under the preload of the fake CUDA runtime."""
    blas = str((fake_cuda() / "sgemm_kernels/lib/libsgemm_kernels_blas.so").absolute())
    environment = {f"{VARIABLES}{name}": value for name, value in settings.items()}
    script = PRELUDE + textwrap.dedent(OPENED) + textwrap.dedent(code)
    return python(script, package or fake_cuda(), LD_PRELOAD=blas, **environment)


@pytest.mark.fake_cuda
def test_arrays_of_empty_are_not_copied_to_other_pinned_memory():
    """The products run in the extension that the arrays are from."""
    code = """
        import sgemm_kernels
        fake = ctypes.CDLL(sgemm_kernels._core.__file__)
        fake.fake_cuda_pinned.restype = ctypes.c_size_t

        def pinned_more(make):
            A, B, out = make((2500, 40)), make((40, 2600)), make((2500, 2600))
            A[:], B[:] = uniform(*A.shape), uniform(*B.shape)
            before = fake.fake_cuda_pinned()
            np.matmul(A, B, out=out)
            np.matmul(A, B, out=out)
            assert near(out, A, B)
            return fake.fake_cuda_pinned() - before

        direct = pinned_more(sgemm_kernels.empty)
        staged = pinned_more(lambda shape: np.empty(shape, np.float32))
        print(direct < 8 << 20 < staged)  # the result has 26 MB
        print(opened())
    """
    process = over_fake(code, MIN="0", VARIANT="vec4", LOG="stats")
    assert counts(process) == [4, 0]
    assert process.stdout.split("\n")[:2] == ["True", "{'_core.abi3.so'}"]


@pytest.mark.fake_cuda
def test_an_extension_that_comes_late_or_cannot_use_the_device_is_not_used():
    """The libraries differ: only those of the preload have the fake runtime."""
    late = "B = A @ A; import sgemm_kernels; assert near(A @ B, A, B)"
    other = "import sgemm_kernels; assert near(A @ A, A, A)"
    for code, package, expected in (
        (late, None, [2, 0]),
        (other, Path(sgemm_kernels.__file__).parents[1], [1, 0]),
    ):
        if package and sgemm_kernels.build_info().architectures:
            continue  # this extension can use a GPU
        code = f"A = uniform(60, 60); {code}; assert 'libsgemm_kernels.so' in opened()"
        process = over_fake(
            code, package, MIN="0", VARIANT="vec4", LOG="stats", DEVICE=f"{_core._GPU_KIND}:0"
        )
        assert counts(process) == expected


# ---------------------------------------------------------------------------- failures of a GPU

FAILURES = """
    engine = ctypes.CDLL({engine!r})
    engine.fake_cuda_failed_call.restype = ctypes.c_char_p
    engine.fake_cuda_set_memory.argtypes = (ctypes.c_int, ctypes.c_size_t)
    sgemm = ctypes.CDLL(None).scipy_cblas_sgemm64_
    ssyrk = ctypes.CDLL(None).scipy_cblas_ssyrk64_
    f, i = ctypes.c_float, ctypes.c_int64

    def integers(*shape):
        return rng.integers(-8, 9, shape).astype(np.float32)

    def multiply(C, beta):
        M, N, K = *C.shape, A.shape[1]
        pointers = [ctypes.c_void_p(X.ctypes.data) for X in (A, B, C)]
        sgemm(101, 111, 111, i(M), i(N), i(K), f(1), pointers[0], i(K), pointers[1], i(N), f(beta),
              pointers[2], i(N))
        return C

    def multiply_by_transposed(C, beta):
        N, K = A.shape
        pointers = [ctypes.c_void_p(X.ctypes.data) for X in (A, C)]
        ssyrk(101, 121, 111, i(N), i(K), f(1), pointers[0], i(K), f(beta), pointers[1], i(N))
        return C

    def child(turn, memory, compute, beta):
        engine.fake_cuda_set_memory(0, memory)
        engine.fake_cuda_fail(turn, 999)
        upper = (C * 0 == 0) if compute is multiply else np.triu(C * 0 == 0)
        right = np.array_equal(compute(C.copy(), beta), np.where(upper, product + beta * C, C))
        failed = engine.fake_cuda_failed_call()
        engine.fake_cuda_fail(0, 0)
        right = right and np.array_equal(compute(C.copy(), 0), np.where(upper, product, C))
        return 9 if not right else 0 if failed else 1

    aborted = 0
    for compute, (M, N, K, memory) in (
        (multiply, (30, 20, 10, 1 << 30)),
        (multiply, (500, 400, 9, 1 << 30)),
        (multiply, (700, 600, 9, 1 << 20)),
        (multiply_by_transposed, (30, 30, 10, 1 << 30)),
        (multiply_by_transposed, (600, 600, 9, 1 << 20)),
    ):
        A, C = integers(M, K), integers(M, N)
        B = integers(K, N) if compute is multiply else A.T
        product = np.einsum("ik,kj->ij", A, B)
        for beta in (0, 1):
            turn, ends = 0, set()
            while 0x100 not in ends:
                turn += 1
                process = os.fork()
                if process == 0:
                    os._exit(child(turn, memory, compute, beta))
                end = os.waitpid(process, 0)[1]
                assert end & 0x7f == 6 or end in (0, 0x100), (turn, end)
                aborted += end & 0x7f == 6
                ends.add(end & 0xff7f)
            print(turn > 10, sorted(ends))
    print(aborted)
"""


@pytest.mark.fake_cuda
def test_every_failure_of_a_gpu_gives_the_right_result_or_a_clear_stop():
    """Each CUDA call fails in turn, each time in a new process."""
    library = fake_cuda() / "sgemm_kernels/lib"
    code = textwrap.dedent(FAILURES).format(engine=str(library / "libsgemm_kernels.so"))
    blas = str(library / "libsgemm_kernels_blas.so")
    process = preloaded(code, blas, MIN="0", VARIANT="naive", DEVICE=f"{_core._GPU_KIND}:0")
    assert process.returncode == 0, ending(process)
    # 0: right after a failure; 6: aborted; 256: right, and no call failed any more
    of_sgemm, of_ssyrk = ["True [0, 256]"] * 5 + ["True [0, 6, 256]"], ["True [0, 256]"] * 4
    *found, aborted = process.stdout.splitlines()
    assert found == of_sgemm + of_ssyrk
    assert process.stderr.count("C is lost") == int(aborted)


@pytest.mark.fake_cuda
def test_the_estimate_leaves_small_products_and_short_programs_to_the_programs_own_blas():
    library = fake_cuda() / "sgemm_kernels/lib"
    code = """
        A, small, huge = uniform(600, 600), uniform(20, 20), uniform(3000, 3000)
        small @ small[::-1]
        A @ A[::-1]
    """
    blas = str(library / "libsgemm_kernels_blas.so")
    log = preloaded(code, blas, LOG="stats").stderr
    assert "M=20     N=20     K=20     faster in the program's own BLAS" in log
    assert re.search(r"M=600 .*(would gain less than opening|faster in the program's own)", log)
    assert ", 2 passed on" in log
