"""Builds the extension and the C libraries from csrc/, and recompiles only what changed.

Freshness depends on file contents, never on timestamps. An object is recompiled if its flags, its
compiler's version, its source or an included header changed. The linked library depends only on
csrc/, the builder and the settings, so a library built on one machine is also valid on a machine
whose toolkit is elsewhere or missing. To rebuild with another compiler but unchanged settings, run
`make clean` first.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import math
import os
import re
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from . import annotation, rungs
from .prerequisites import missing_compiler, missing_headers
from .toolkit import (
    INDEX,
    NATIVE,
    NUMPY_REQUIREMENT,
    OLDEST_ARCHITECTURE,
    BuildError,
    HipToolkit,
    Toolkit,
    architecture_flags,
    choose,
    choose_hip,
    csrc_hash,
    describe_architectures,
    gpus,
    hopper_flags,
    index_root,
    inspect,
    inspect_hip,
)

FOR_HOPPER_ALONE = "ARCHITECTURE_SPECIFIC_VARIANT("  # marks kernels that need sm_90a
ANY_GPU = "{7, 5});"  # ends the catalog entry of a kernel that runs on any GPU
SETTINGS = (
    *("SGEMM_KERNELS_CUDA", "SGEMM_KERNELS_HIP", "SGEMM_KERNELS_ARCHS", "SGEMM_KERNELS_WERROR"),
    *("SGEMM_KERNELS_PORTABLE", "CC", "CXX"),
)

SMALL_CODE_SINCE = 13
"""nvcc's first release with --compress-mode=size: the GPU's code takes a sixth of the bytes."""

# The rooms (folders of csrc/) whose objects a C library contains. csrc/ROOM/LIBRARY.map lists the
# names that it exports.
LIBRARIES = {
    "frontends/c": {
        *("frontends/c", "runtime", "runtime/cpu", "runtime/cuda", "gemm", "gemm/plan", "ladder"),
        *("gemm/simt", "gemm/small", "gemm/tensor_cores", "emulator", "emulator/plain"),
        *("base", "base/cuda"),
    },
    "frontends/blas": {"frontends/blas"},
}

LARGE_ROOMS = {"gemm", "gemm/small"}
"""The rooms whose files have many kernels, which take long to compile."""

OWN_FUNCTIONS_FIRST = ["-Wl,-Bsymbolic"]
"""The extension's flags: it calls its own functions, not those of a C library in the process."""

_SHARED = ["-fPIC", "-fvisibility=hidden"]
_WARNINGS = ["-Wall", "-Wextra"]
# The oldest Python and NumPy APIs that a wheel supports.
_STABLE_INTERFACES = [
    "-DPy_LIMITED_API=0x030b0000",
    "-DNPY_TARGET_VERSION=NPY_2_0_API_VERSION",
    "-DNPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION",
]
# For tests, the extension can record which kernels it launches.
_NAMES_LAUNCHES = "-DSGEMM_NAMES_LAUNCHES=1"
# Fuse a multiplication and an addition only where a kernel asks for it.
_AS_WRITTEN = ["-ffp-contract=off"]
# nvcc fuses a product and a sum of a rung of the ladder, and so does a processor with FMA. GCC
# leaves a chain of sums unfused where that is faster on the processor that it tunes for.
_FUSED = ["-ffp-contract=fast"]
_FUSED_CHAINS = "--param=avoid-fma-max-bits=0"
# The rungs are plain CUDA: unrolled by pragmas, with casts between types of memory.
_PLAIN = ["-fno-strict-aliasing", "-fno-threadsafe-statics", "-Wno-unused", "-Wno-sign-compare"]
_PLAIN += ["-Wno-unknown-pragmas", "-Wno-attributes"]
# Each kernel is compiled for the CPU once per entry, depending on the host's architecture. The
# first entry also provides the shared code, so it must run on every processor of that architecture.
_ONE_COPY: dict[str, list[str]] = {"cpu": []}
_COPIES = {
    "x86_64": {
        "cpu": ["-DSGEMM_FUSED_TOO=1"],
        "cpu_fused": ["-DSGEMM_FUSED=1", "-mfma", "-mavx2"],
    }
}


# Typical compile times in seconds on a slow core: many kernels or one kernel to PTX (a third of
# that to machine code, per architecture), a kernel for the CPU, and any other source.
_MANY_S, _ONE_S, _CPU_KERNEL_S, _HOST_S = 30.0, 2.0, 5.0, 2.0

Result = TypeVar("Result")
Build = Callable[[Path, Mapping[str, str]], Result]


class Progress:
    """Reports the progress of a long build and estimates its total time. The first estimate uses
    the typical time of each object; later ones use the pace so far."""

    SILENT_S = 60.0
    """Builds expected to take less than this are not announced."""
    BETWEEN_S = 15.0
    """Minimum time between two progress lines."""

    def __init__(
        self, seconds: Sequence[float], cores: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._count, self._cores, self._clock = len(seconds), cores, clock
        self._whole, self._longest = math.fsum(seconds), max(seconds, default=0.0)
        self._done, self._done_s = 0, 0.0
        self._start = self._said = clock()
        self._lock = threading.Lock()

    def begin(self) -> str | None:
        """The message before the first object, or None for a short build."""
        expected = max(self._whole / self._cores, self._longest)
        if expected < self.SILENT_S:
            return None
        return (
            f"compiling {self._count} objects on {self._cores} cores: expected to take about "
            f"{_minutes(expected)}"
        )

    def finished(self, seconds: float) -> str | None:
        """The message after an object with this expected time, or None if it is too early."""
        with self._lock:
            self._done += 1
            self._done_s += seconds
            now = self._clock()
            if now - self._said < self.BETWEEN_S:
                return None
            self._said = now
            elapsed = now - self._start
            expected = elapsed * self._whole / self._done_s
            return (
                f"{self._done} of {self._count} objects, {_minutes(elapsed)} elapsed, about "
                f"{_minutes(expected)} expected in all"
            )


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _one_at_a_time(build: Build[Result]) -> Build[Result]:
    """Serializes builds in one tree: parallel test processes all request one."""

    @functools.wraps(build)
    def waiting(root: Path, environ: Mapping[str, str]) -> Result:
        lock = root / "build/lock"
        lock.parent.mkdir(exist_ok=True)
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            return build(root, environ)

    return waiting


@dataclass(frozen=True)
class Compiler:
    """A compiler's command and version."""

    command: str
    version: str


@dataclass(frozen=True)
class Job:
    """Compiles one source to one object. Paths are relative to the source root."""

    compiler: Compiler
    source: Path
    target: Path
    flags: Sequence[str]
    search: Sequence[str] = ()  # flags for third-party include folders
    outside: str = ""  # names and versions of those headers
    log: Path | None = None  # file for the compiler's messages
    counted: bool = False  # whether the assembly is annotated on the way
    first: Path | None = None  # our header to include before the source
    gpu_only: bool = False  # whether nvcc leaves out the host's code

    def key(self, root: Path) -> str:
        """A digest of everything that the object depends on."""
        inputs = [
            (path.relative_to(root).as_posix(), _digest(path.read_bytes()))
            for path in sorted(
                included(root / self.source, *([root / self.first] if self.first else []))
            )
        ]
        facts = [self.compiler.version, self.outside, list(self.flags), str(self.source), inputs]
        if self.counted:
            facts.append(_digest(annotation.SOURCE.read_bytes()))
        if self.gpu_only:
            facts.append("for the GPU only")
        return _digest(json.dumps(facts).encode())

    def is_fresh(self, root: Path) -> bool:
        """True if the object exists and everything that it depends on is unchanged."""
        stamp = root / self._stamp
        needed = [stamp, root / self.target, *([root / self.log] if self.log else [])]
        return all(path.is_file() for path in needed) and stamp.read_text() == self.key(root)

    def run(self, root: Path) -> None:
        """Compiles the object. Raises BuildError with the compiler's messages."""
        print(f"{Path(self.compiler.command).name} {self.source}", flush=True)
        key = self.key(root)
        (root / self._stamp).unlink(missing_ok=True)
        (root / self.target).parent.mkdir(parents=True, exist_ok=True)
        command = [self.compiler.command, *self.flags, *self.search]
        command += ["-include", str(self.first)] if self.first else []
        if self.counted:
            assembly = self.target.with_suffix(".s")
            messages = _run([*command, "-S", str(self.source), "-o", str(assembly)], root)
            (root / assembly).write_text(annotation.annotate((root / assembly).read_text()))
            assemble = [self.compiler.command, "-c", str(assembly), "-o", str(self.target)]
            messages += _run(assemble, root)
        else:
            step = "-fatbin" if self.gpu_only else "-c"
            messages = _run([*command, step, str(self.source), "-o", str(self.target)], root)
        if self.log:
            (root / self.log).parent.mkdir(parents=True, exist_ok=True)
            (root / self.log).write_text(messages)
        else:
            print(messages, end="", file=sys.stderr)
        (root / self._stamp).write_text(key)

    @property
    def core_seconds(self) -> float:
        """Estimated compile time on a slow core."""
        devices = [flag for flag in self.flags if flag.startswith(("-gencode", "--offload-arch"))]
        if self.log:
            codes = sum(flag.count("sm_") for flag in devices)
            one = _MANY_S if _room(self.source) in LARGE_ROOMS else _ONE_S
            return len(devices) * one + codes * one / 3
        if devices:
            return len(devices) * _HOST_S
        return _CPU_KERNEL_S if self.source.suffix == ".cu" else _HOST_S

    @property
    def _stamp(self) -> Path:
        return self.target.with_suffix(".key")


@_one_at_a_time
def build_core(root: Path, environ: Mapping[str, str]) -> Path:
    """Returns the extension's shared object below root/build. The C libraries are in the folder lib
    beside it. Rebuilds them if they are stale.

    Raises BuildError if something is missing or does not compile.
    """
    library = root / ("build/core_hip" if choose_hip(environ) else "build/core") / "_core.abi3.so"
    stamp = library.with_name("_core.json")
    builder = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    facts: dict[str, object] = {
        "csrc": csrc_hash(root / "csrc"),
        "builder": _digest(builder),
        "platform": sysconfig.get_platform(),
        **{name: environ.get(name, "") for name in SETTINGS},
    }
    if environ.get("SGEMM_KERNELS_ARCHS", "").strip() in ("", NATIVE):
        facts["gpus"] = list(gpus())
    made = [library, *libraries_beside(root, library)]
    if all(path.is_file() for path in (*made, stamp)) and json.loads(stamp.read_text()) == facts:
        return library

    include = sysconfig.get_paths()["include"]
    if missing := missing_compiler(environ) or missing_headers(include):
        raise BuildError(missing)
    toolkit = find_toolkit(environ)
    jobs = plan(root, environ, toolkit)
    stamp.unlink(missing_ok=True)
    if isinstance(toolkit, Toolkit) and len(toolkit.architectures) > 1:
        print(_of_several_architectures(toolkit, environ), flush=True)
    _make(root, environ, toolkit, jobs, library)
    stamp.write_text(json.dumps(facts, indent=2))
    return library


def libraries_beside(root: Path, extension: Path) -> dict[Path, Path]:
    """The C libraries that are built with this extension: the path of each, and its map."""
    maps = sorted((root / "csrc").glob("frontends/*/*.map"))
    return {extension.parent / f"lib/{path.stem}.so": path for path in maps}


def _of_several_architectures(toolkit: Toolkit, environ: Mapping[str, str]) -> str:
    """Explains why a build takes long and how to shorten it."""
    asked = environ.get("SGEMM_KERNELS_ARCHS", "").strip()
    why = "nvidia-smi lists no GPU here that this package runs on"
    if asked:
        why = f"SGEMM_KERNELS_ARCHS={asked}"
    elif any(gpu >= OLDEST_ARCHITECTURE for gpu in gpus()):
        why = "this machine has GPUs of several kinds"
    return (
        f"compiling for {describe_architectures(toolkit.architectures)} because {why}. For a "
        f"faster build, set SGEMM_KERNELS_ARCHS='{toolkit.architectures[-1]}' (one architecture)"
    )


@_one_at_a_time
def build_fake(root: Path, environ: Mapping[str, str]) -> Path:
    """Builds the package over tests/fake_cuda instead of a CUDA runtime, in a folder below
    root/build.

    For tests only. Needs only the headers of a toolkit. Raises BuildError as build_core does.
    """
    toolkit = find_toolkit(environ)
    if toolkit is None:
        raise BuildError("the fake CUDA runtime needs the headers of CUDA or HIP, found neither")
    folder = "fake_hip" if isinstance(toolkit, HipToolkit) else "fake"
    package = lay_out_package(root, root / "build" / folder)
    jobs = plan_fake(root, environ, toolkit)
    library = package / "_core.abi3.so"
    stamp = package.with_name("_core.json")
    # Compares keys, since most jobs are shared with the extension and are fresh by now.
    facts = {str(job.target): job.key(root) for job in jobs}
    made = [library, *libraries_beside(root, library), stamp]
    if not (all(path.is_file() for path in made) and json.loads(stamp.read_text()) == facts):
        stamp.unlink(missing_ok=True)
        _make(root, environ, None, jobs, library)
        stamp.write_text(json.dumps(facts, indent=2))
    return package.parent


def lay_out_package(root: Path, folder: Path) -> Path:
    """Links the package's files into folder, where another build of the extension can be added."""
    package = folder / "sgemm_kernels"
    package.mkdir(parents=True, exist_ok=True)
    ours = root / "sgemm_kernels"
    subpackages = [module.parent for module in ours.glob("*/__init__.py")]
    for source in (*ours.glob("*.py*"), *subpackages):
        _link(package / source.name, source)
    _link(package / "csrc", root / "csrc")
    _link(package / "recorded", root / "benchmarks/results")
    return package


def find_toolkit(environ: Mapping[str, str]) -> Toolkit | HipToolkit | None:
    """Finds the toolkit to build with and its version. None for a CPU-only build."""
    if hipcc := choose_hip(environ):
        return inspect_hip(hipcc, environ.get("SGEMM_KERNELS_ARCHS", ""))
    chosen = choose(environ)
    if chosen is None:
        return None
    root = index_root(sys.path) if chosen == INDEX else Path(chosen)
    return inspect(root, environ.get("SGEMM_KERNELS_ARCHS", ""))


def plan(root: Path, environ: Mapping[str, str], toolkit: Toolkit | HipToolkit | None) -> list[Job]:
    """Lists every object of the extension, slowest to compile first.

    CPU-only builds and objects that differ for AMD GPUs have their own folders, so that one kind of
    build does not make another stale.
    """
    werror = environ.get("SGEMM_KERNELS_WERROR") == "1"
    cc = _host_compiler(environ.get("CC") or "cc")
    cxx = _host_compiler(environ.get("CXX") or "c++")
    common = [*_SHARED, *_WARNINGS, *(["-Werror"] if werror else [])]
    csrc = csrc_hash(root / "csrc")
    about = [f'-DSGEMM_CSRC_HASH="{csrc}"']
    build = [f'-DSGEMM_BUILD="{csrc} {_version(root)}"']
    kernels = _kernel_sources(root)[::-1]  # the later rungs take longer
    kind = "" if toolkit else "alone/"
    jobs = []
    vendor_flags: list[str] = []  # flags that tell the C files the GPU vendor

    if isinstance(toolkit, HipToolkit):
        vendor_flags = ["-DSGEMM_HIP=1"]
        about_toolkit = [
            f'-DSGEMM_TOOLKIT="{toolkit.version}"',
            f'-DSGEMM_ARCHITECTURES="{" ".join(toolkit.architectures)}"',
        ]
        about += about_toolkit
        jobs += _plan_hip(root, toolkit, cxx, common, about_toolkit)
        common.append("-DSGEMM_CUDA=1")
    elif toolkit:
        about_toolkit = [
            f'-DSGEMM_TOOLKIT="{toolkit.version}"',
            f'-DSGEMM_ARCHITECTURES="{describe_architectures(toolkit.architectures)}"',
        ]
        about += about_toolkit
        nvcc = Compiler(str(toolkit.nvcc), f"nvcc {toolkit.version}, {cxx.version}")
        flags = ["-ccbin", cxx.command, "-O3", "-std=c++20", "-DSGEMM_CUDA=1"]
        flags += [_NAMES_LAUNCHES]
        flags += ["--compiler-options=" + ",".join(common)]
        flags += ["-Werror=all-warnings"] if werror else []
        if int(toolkit.version.split(".")[0]) >= SMALL_CODE_SINCE:
            flags += ["--compress-mode=size"]
        everywhere = architecture_flags(toolkit.architectures)
        for source in kernels:
            log = Path(f"build/ptxas/{source.stem}.txt")
            text = (root / source).read_text()
            archs = hopper_flags() if FOR_HOPPER_ALONE in text else everywhere
            its_flags = [*flags, *archs, "-Xptxas=-v"]
            jobs.append(Job(nvcc, source, _object("cuda", source), its_flags, log=log))
        flags += everywhere
        for source in _gpu_sources(root):
            jobs.append(Job(nvcc, source, _object("cuda", source), [*flags, *about_toolkit]))
        common.append("-DSGEMM_CUDA=1")

    machine = _answer([cxx.command, "-dumpmachine"]).partition("-")[0]
    for source in kernels:
        # On the CPU device, kernels in files of their own compute nearly all products of simt and
        # auto. The others would compile for twice as long with -O3.
        level = "-O1" if _room(source) in LARGE_ROOMS else "-O3"
        is_rung = source.parent == rungs.FOLDER
        flags = ["-x", "c++", "-std=c++20", level, *common, *(_PLAIN if is_rung else [])]
        if "clang" not in cxx.version:
            # GCC writes small loops out first and then fails to vectorise them: twice as slow.
            flags += ["--param", "max-completely-peeled-insns=20"]
        copies = _COPIES.get(machine, _ONE_COPY)
        for copy, its_flags in copies.items():
            # Without FMA in the processor, a fused sum would be a call of a function.
            fuses = is_rung and copy == [*copies][-1]
            rounding = [*_FUSED, *_if_gcc(cxx, _FUSED_CHAINS)] if fuses else _AS_WRITTEN
            its_flags = [*flags, *rounding, *its_flags, _NAMES_LAUNCHES]
            jobs.append(Job(cxx, source, _object(f"{kind}{copy}", source), its_flags))
        # Compiled as written, with a call at each access, which emulator/access_trace implements. A
        # float4 must stay one access. clang keeps it only without optimisation.
        flags = ["-x", "c++", "-std=c++20", "-g1", "-fno-exceptions", *_AS_WRITTEN, *common]
        flags += _PLAIN if is_rung else []
        flags += ["-O0"] if "clang" in cxx.version else ["-O1", "-fno-tree-sra"]
        flags += ["-fsanitize=thread", "-DSGEMM_TRACED=1"]
        jobs.append(Job(cxx, source, _object(f"{kind}count", source), flags, counted=True))
    host = f"{kind}host"
    for source in [
        *_sources(root, "emulator/*.cpp"),
        *_sources(root, "emulator/access_trace/*.cpp"),
        *_sources(root, "emulator/plain/*.cpp"),
        *_sources(root, "runtime/cpu/*.cpp"),
    ]:
        jobs.append(Job(cxx, source, _object(host, source), ["-std=c++20", "-O3", *common]))

    # Without errno, sqrt compiles to one instruction.
    c_flags = ["-std=c11", "-O2", "-fno-math-errno", *common, *vendor_flags]
    host = "hip/host" if vendor_flags else host
    for source in [
        *_sources(root, "base/*.c"),
        *_sources(root, "runtime/*.c"),
        *_sources(root, "gemm/plan/*.c"),
        *_sources(root, "frontends/c/*.c"),
        *_sources(root, "frontends/blas/*.c"),
    ]:  # without Python's headers
        flags = [*c_flags, *(build if source.name == "kept_proofs.c" else [])]
        jobs.append(Job(cc, source, _object(host, source), flags))
    # PyTorch's exceptions pass through its callers.
    for source in _sources(root, "frontends/torch/*.c"):
        jobs.append(Job(cc, source, _object(host, source), [*c_flags, "-fexceptions"]))
    search, outside = _python_and_numpy()
    for source in [*_sources(root, "module.c"), *_sources(root, "frontends/python/*.c")]:
        flags = [*c_flags, *_STABLE_INTERFACES, *(about if source.name == "describing.c" else [])]
        jobs.append(Job(cc, source, _object(host, source), flags, search, outside))
    return jobs


def _plan_hip(
    root: Path,
    toolkit: HipToolkit,
    cxx: Compiler,
    common: Sequence[str],
    about_toolkit: Sequence[str],
) -> list[Job]:
    """Lists the objects of the kernels and of the host's code in a build for AMD GPUs. Each covers
    all architectures. hipcc compiles files with kernels; the others need only HIP's headers."""
    hipcc = Compiler(str(toolkit.hipcc), f"HIP {toolkit.version}")
    # Some calls ignore CUDA's error codes on purpose; HIP's headers would warn about each.
    # Structures with default values are C's all the same, but Clang doubts it.
    quiet = ["-Wno-unused-result", "-Wno-return-type-c-linkage", "-Wno-non-c-typedef-for-linkage"]
    flags = ["-std=c++20", "-O3", *common, *quiet, "-DSGEMM_CUDA=1", "-DSGEMM_HIP=1"]
    flags += [_NAMES_LAUNCHES]
    for_gpu = ["-x", "hip", *flags, "-Rpass-analysis=kernel-resource-usage"]
    for_gpu += [f"--offload-arch={name}" for name in toolkit.architectures]
    search, outside = _headers(toolkit)
    jobs = []
    for source in (*_kernel_sources(root), *_gpu_sources(root)):
        text = (root / source).read_text()
        target, first = _object("hip", source), Path("csrc/base/cuda/hip.h")
        if (ANY_GPU if "cuda" not in source.parts else "__global__") in text:
            log = Path(f"build/hip_resources/{source.stem}.txt")
            its_flags = [*for_gpu, *(_PLAIN if source.parent == rungs.FOLDER else [])]
            jobs.append(Job(hipcc, source, target, its_flags, log=log, first=first))
        elif "cuda" in source.parts and source.stem != "custom_gpu":  # NVRTC's kernels
            host_flags = ["-x", "c++", *flags, "-D__HIP_PLATFORM_AMD__=1", *about_toolkit]
            jobs.append(Job(cxx, source, target, host_flags, search, outside, first=first))
    return jobs


def _headers(toolkit: Toolkit | HipToolkit) -> tuple[list[str], str]:
    """Flags that find a toolkit's headers, and the toolkit's name and version."""
    if isinstance(toolkit, HipToolkit):
        include = toolkit.hipcc.absolute().parent.parent / "include"
        search = [] if include == Path("/usr/include") else ["-isystem", str(include)]
        return search, f"HIP {toolkit.version}"
    return ["-isystem", str(toolkit.nvcc.parent.parent / "include")], f"CUDA {toolkit.version}"


def plan_fake(root: Path, environ: Mapping[str, str], toolkit: Toolkit | HipToolkit) -> list[Job]:
    """Lists every object of the extension over the fake CUDA runtime. None needs nvcc or hipcc."""
    hip = isinstance(toolkit, HipToolkit)
    compiler = str(toolkit.hipcc if isinstance(toolkit, HipToolkit) else toolkit.nvcc)
    jobs = [job for job in plan(root, environ, toolkit) if job.compiler.command != compiler]
    cxx = _host_compiler(environ.get("CXX") or "c++")
    launchers = " ".join(f"LAUNCHER({name})" for name in _kernels(root, ANY_GPU if hip else ""))
    flags = ["-x", "c++", "-std=c++20", "-g", "-O2", *_SHARED, *_WARNINGS]
    flags += ["-Werror"] if environ.get("SGEMM_KERNELS_WERROR") == "1" else []
    flags += ["-DSGEMM_CUDA=1", f"-DFAKE_CUDA_LAUNCHERS={launchers}"]
    search, outside = _headers(toolkit)
    sources = [path.relative_to(root) for path in (root / "tests/fake_cuda").glob("*.cpp")]
    if hip:
        flags += ["-DSGEMM_HIP=1", "-D__HIP_PLATFORM_AMD__=1", "-Wno-unused-result"]
        target, first = "fake_hip", Path("csrc/base/cuda/hip_names.h")
    else:
        flags += ["-include", "cuda_runtime.h", '-DSGEMM_ARCHITECTURES="sm_90 compute_80"']
        target, first = "fake", None
        sources += [
            path for path in _gpu_sources(root) if "__global__" not in (root / path).read_text()
        ]
    for source in sources:
        jobs.append(Job(cxx, source, _object(target, source), flags, search, outside, first=first))
    return jobs


def included(*sources: Path) -> set[Path]:
    """The sources and all of our files that they include, directly or indirectly."""
    found: set[Path] = set()
    waiting = list(sources)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in re.findall(r'^\s*#\s*include\s+"(.+?)"', path.read_text(), re.MULTILINE):
            neighbour = Path(os.path.normpath(path.parent / name))
            if neighbour.is_file():
                waiting.append(neighbour)
    return found


def compile_stale(root: Path, jobs: Sequence[Job]) -> None:
    """Compiles all stale objects on all cores. Raises BuildError."""
    stale = [job for job in jobs if not job.is_fresh(root)]
    cores = len(os.sched_getaffinity(0))
    progress = Progress([job.core_seconds for job in stale], cores)
    if said := progress.begin():
        print(said, flush=True)

    def make(job: Job) -> None:
        job.run(root)
        if said := progress.finished(job.core_seconds):
            print(said, flush=True)

    with ThreadPoolExecutor(cores) as workers:
        for _ in workers.map(make, stale):
            pass  # re-raises a job's exception


def _make(
    root: Path,
    environ: Mapping[str, str],
    toolkit: Toolkit | HipToolkit | None,
    jobs: Sequence[Job],
    extension: Path,
) -> None:
    """Compiles all stale objects, then links the extension and the C libraries."""
    compile_stale(root, jobs)
    links = {extension: (extension_objects(jobs), OWN_FUNCTIONS_FIRST)}
    for path, exports in libraries_beside(root, extension).items():
        of_tests = [job for job in jobs if job.source.parts[0] == "tests"]  # the fake CUDA runtime
        rooms = LIBRARIES[_room(exports.relative_to(root))]
        objects = of_rooms(jobs, rooms)
        maps = [exports]
        if of_tests and "runtime/cuda" in rooms:
            objects += of_tests
            maps.append(root / "tests/fake_cuda/exports.map")
        flags = [f"-Wl,--version-script={each}" for each in maps]
        flags += [f"-Wl,-soname,{path.name}", "-Wl,-z,nodelete", "-Wl,-z,defs", "-ldl", "-lm"]
        links[path] = ([job.target for job in objects], flags)
    for path, (objects, flags) in links.items():
        print(f"linking {path.relative_to(root)}", flush=True)
        link(root, environ, toolkit, objects, path, flags)


def extension_objects(jobs: Sequence[Job]) -> list[Path]:
    """The objects that the extension is linked from."""
    return [job.target for job in jobs if _room(job.source) != "frontends/blas"]


def of_rooms(jobs: Sequence[Job], rooms: Collection[str]) -> list[Job]:
    """The jobs for files in these rooms, without those that count accesses."""
    return [job for job in jobs if _room(job.source) in rooms and not job.counted]


def link(
    root: Path,
    environ: Mapping[str, str],
    toolkit: Toolkit | HipToolkit | None,
    objects: Sequence[Path],
    library: Path,
    flags: Sequence[str] = OWN_FUNCTIONS_FIRST,
) -> None:
    """Links objects to the extension, or with other flags to another library."""
    library.parent.mkdir(parents=True, exist_ok=True)
    new = library.with_suffix(".new")  # a library that is in use keeps its file
    _run([*_link_command(environ, toolkit, objects, new), *flags], root)
    new.replace(library)


def _link(place: Path, target: Path) -> None:
    """Makes place a symbolic link to target."""
    if not (place.is_symlink() and place.readlink() == target):
        place.unlink(missing_ok=True)
        place.symlink_to(target)


def _kernels(root: Path, marked: str) -> list[str]:
    """The names passed to RUNG or LAUNCHER in files that contain the mark."""
    texts = [(root / path).read_text() for path in _kernel_sources(root)]
    text = "".join(text for text in texts if marked in text)
    return sorted(set(re.findall(r"^(?:RUNG|LAUNCHER)\((\w+)", text, re.MULTILINE)))


def _link_command(
    environ: Mapping[str, str],
    toolkit: Toolkit | HipToolkit | None,
    objects: Sequence[Path],
    library: Path,
) -> list[str]:
    cxx = environ.get("CXX") or "c++"
    command = [cxx, "-shared", "-pthread", *map(str, objects), "-o", str(library)]
    if isinstance(toolkit, HipToolkit):
        command += [str(toolkit.library), f"-Wl,-rpath,{toolkit.library.parent}", "-ldl"]
    elif toolkit:
        command += [str(toolkit.cudart), "-ldl", "-lrt"]
    command += ["-Wl,--exclude-libs,ALL"]  # hide the symbols of static libraries
    command += ["-Wl,--strip-debug"]  # the traced build has its own line table
    # A static C++ runtime runs on this machine whatever runtime a Python environment brings. It
    # needs this machine's glibc, so a wheel for older systems uses their runtime. Some
    # distributions package the static one separately.
    if (
        not _is_portable(environ)
        and Path(_answer([cxx, "-print-file-name=libstdc++.a"])).is_absolute()
    ):
        command += ["-static-libstdc++", "-static-libgcc"]
    return command


def _is_portable(environ: Mapping[str, str]) -> bool:
    """Whether the build is a wheel for other machines."""
    return environ.get("SGEMM_KERNELS_PORTABLE") == "1"


def _kernel_sources(root: Path) -> list[Path]:
    """The generated launchers of the ladder's rungs, and the files with the library's kernels."""
    return [*rungs.generate(root), *_sources(root, "gemm/**/*.cu")]


def _gpu_sources(root: Path) -> list[Path]:
    """The host's code for GPUs."""
    return [*_sources(root, "base/cuda/*.cu"), *_sources(root, "runtime/cuda/*.cu")]


def _sources(root: Path, pattern: str) -> list[Path]:
    return sorted(path.relative_to(root) for path in (root / "csrc").glob(pattern))


def _room(source: Path) -> str:
    """The folder of csrc/ that a file is in: 'runtime/cuda' of csrc/runtime/cuda/device.cu."""
    return source.relative_to(source.parts[0]).parent.as_posix()


def _object(kind: str, source: Path) -> Path:
    """The object's path, unique for each kind and source."""
    return Path(f"build/objects/{kind}/{source}.o")


def _python_and_numpy() -> tuple[list[str], str]:
    """Flags that find the headers of Python and NumPy, and both versions."""
    try:
        import numpy
    except ImportError:
        raise BuildError(f"NumPy is not installed: pip install '{NUMPY_REQUIREMENT}'") from None
    if int(numpy.__version__.split(".")[0]) < 2:
        raise BuildError(f"NumPy {numpy.__version__} is too old: pip install '{NUMPY_REQUIREMENT}'")
    # NumPy's folder first: Debian also has an older NumPy's headers in Python's include folder.
    search = ["-isystem", numpy.get_include(), "-isystem", sysconfig.get_paths()["include"]]
    return search, f"Python {sys.version.split()[0]}, NumPy {numpy.__version__}"


def _if_gcc(cxx: Compiler, flag: str) -> list[str]:
    return [] if "clang" in cxx.version else [flag]


def _host_compiler(command: str) -> Compiler:
    return Compiler(command, _answer([command, "--version"]).partition("\n")[0])


def _answer(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def _run(command: Sequence[str], root: Path) -> str:
    """Runs a compiler in root and returns its messages."""
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    messages = done.stdout + done.stderr
    if done.returncode:
        raise BuildError(f"this command failed:\n{' '.join(command)}\n{messages}")
    return messages


def _version(root: Path) -> str:
    """The package's version."""
    text = (root / "sgemm_kernels/_version.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.+)"', text, re.MULTILINE)
    return str(found)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
