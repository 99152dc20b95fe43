"""Compiles custom kernels with the machine's C++ compiler.

There are four builds: one runs the kernel on the CPU device, one counts its accesses, one checks
each access, and one completes asynchronous work late. Each links the kernel with the parts of the
CPU device that it needs.
"""

import contextlib
import operator
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import SupportsIndex

from .. import _cache
from .._catalog import devices
from .._core import Error
from .._version import __version__
from . import hints
from .annotate_assembly import annotate
from .child_process import run_limited
from .kernel_source import CompileError, Source, digest_of, headers, headers_digest, text_of

__all__ = ["CompileError", "Source", "digest_of", "headers", "headers_digest", "text_of"]
"""From kernel_source.py, for those who import them from here."""

_WARNINGS = ("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-missing-field-initializers")
_REDZONE = 128  # bytes after each shared array: csrc/emulator/sanitizer/sanitizer_parts.h
_DEFINE = re.compile(r"[A-Za-z_]\w*")
_PLAIN = (
    # nvcc fuses a product and a sum, and so does a processor with FMA.
    "-ffp-contract=fast",
    "-fno-strict-aliasing",
    "-fno-threadsafe-statics",
    "-Wno-unused",
    "-Wno-sign-compare",
    "-Wno-attributes",  # a function that is always inlined need not be declared inline
)
"""The options of a plain kernel's file."""
_FUSED_CHAINS = "--param=avoid-fma-max-bits=0"
"""GCC leaves a chain of sums unfused where that is faster on the processor that it tunes for."""
_CUSTOM = "-DSGEMM_CUSTOM=1"
"""The option of a kernel's file and of csrc/custom/ in a build whose entry is variant_custom."""
_MESSAGES_SHOWN = 40  # lines of a compiler's messages
_COMPILE_S = 600.0
"""The time limit of one compiler process."""
_ASK_S = 60.0
"""The time limit of a question to a compiler, as for its version."""


class NoCompilerError(Error):
    """There is no compiler. The message says what to install."""


def with_defines(source: Source, defines: Mapping[str, int]) -> Source:
    """The source of a kernel with these defines added to its own, or replacing them.

    Raises ValueError.
    """
    return source.with_defines({**source.defines, **checked_defines(defines)})


def checked_defines(defines: Mapping[str, SupportsIndex]) -> dict[str, int]:
    """The defines with values as int. Raises ValueError for an invalid one."""
    values = dict(defines)
    for define, value in values.items():
        named = isinstance(define, str) and _DEFINE.fullmatch(define)
        if not named or not isinstance(value, SupportsIndex):
            raise ValueError(f"a define is a name and an integer, and {define!r}: {value!r} is not")
    return {define: operator.index(value) for define, value in values.items()}


@dataclass(frozen=True)
class Build:
    """One way to compile a kernel: the options of its file and of all files, and the parts."""

    name: str
    kernel: tuple[str, ...]
    all: tuple[str, ...]
    parts: tuple[str, ...]
    annotated: bool = False
    link: tuple[str, ...] = ("-shared",)


def run_build() -> Build:
    """A library that runs the kernel on the CPU device."""
    fused: tuple[str, ...] = ()
    if os.uname().machine == "x86_64" and devices()[-1].fused_multiply_add:
        fused = ("-mfma", "-mavx2")
    # nvcc rejects `throw` and arrays of variable length in a kernel, and so do all builds.
    # An index that overflows wraps around, as on a GPU.
    kernel = (
        "-O2",
        "-fwrapv",
        "-ffp-contract=off",
        "-fno-exceptions",
        *fused,
        *_variables_are("pattern"),
    )
    kernel = (*kernel, "-Werror=vla", _CUSTOM, *_WARNINGS)
    # The linker puts the kernel's code between these two, so that a signal handler can tell whether
    # a thread is in it (emulator/runaway.cpp).
    around = ("custom/kernel_begins.cpp", "custom/kernel_ends.cpp")
    parts = (*around, *_device(), "custom/library.cpp")
    return Build("run", kernel, ("-O2", "-DSGEMM_STOPPABLE=1"), parts)


def access_trace_build() -> Build:
    """A library that counts the first block's accesses, as the extension's traced build."""
    clang = "clang" in find_compiler()[1]
    # Loops stay in the order of the text, in which the checking build looks for their rounds.
    kernel = ("-O0",) if clang else ("-O1", "-fno-tree-sra", "-fno-reorder-blocks")
    kernel = (*kernel, "-fno-exceptions", "-ffp-contract=off", "-fsanitize=thread")
    parts = (*_device(), "emulator/access_trace/access_trace.cpp", "custom/library.cpp")
    return Build("access_trace", kernel, ("-O2", "-DSGEMM_TRACED=1"), parts, annotated=True)


def sanitizer_build(*, variables: str = "pattern") -> Build:
    """A program that runs the kernel and checks each access. Variables without an initializer hold
    a pattern that is NaN as fp16 and -1.7e38 as a float, or are 'zero'."""
    count = access_trace_build()
    kernel = (*count.kernel, "-fwrapv", "-fsanitize=bounds", "-fsanitize-coverage=trace-pc")
    kernel = (*kernel, *_variables_are(variables))
    parts = (*_device(), *_sources("emulator/sanitizer"), "custom/large.cpp", "custom/driver.cpp")
    return Build(
        "sanitizer", kernel, ("-O2", "-DSGEMM_TRACED=1", "-DSGEMM_SANITIZED=1"), parts, True, ()
    )


def deferred_async_build() -> Build:
    """A program that runs the kernel with asynchronous work as late as its rules allow, and with
    blocks and threads in two orders. Variables without an initializer are zero."""
    run = run_build()
    kernel = (*run.kernel, *_variables_are("zero"))  # the last option counts
    flags = ("-O2", "-DSGEMM_CHECKED=1")
    parts = (*_device(), "custom/deferred_async.cpp", "custom/driver.cpp")
    return Build("deferred_async", kernel, flags, parts, link=())


def _variables_are(what: str) -> tuple[str, ...]:
    """The compiler's option for variables without an initializer."""
    return _accepted(f"-ftrivial-auto-var-init={what}")


def _sources(folder: str) -> tuple[str, ...]:
    """The C++ files of a folder of the headers' root."""
    return tuple(sorted(f"{folder}/{path.name}" for path in (headers() / folder).glob("*.cpp")))


def _device() -> tuple[str, ...]:
    """The CPU device's sources that a custom kernel needs, below the headers' root."""
    base = ("base/threads.c", "base/undisturbed.c", "base/status.c")
    return (*_sources("emulator"), "custom/launch_bounds.cpp", *base)


def library(source: Source, build: Build) -> tuple[Path, str]:
    """The library or program of a kernel, from the cache or compiled now, and the warnings.

    Raises CompileError, NoCompilerError, OSError, and Error for included files that have changed.
    """
    compiler = find_compiler()
    parts = parts_of(build, source)
    flags = _flags(source, build)

    texts = source.texts("c++")

    def make(paths: tuple[Path, ...]) -> None:
        target, messages = paths
        object_file = target.with_suffix(".o")
        source.refuse_changed()
        said = _compile_kernel(compiler, source, texts, flags, object_file, build.annotated)
        source.refuse_changed()
        _link(compiler, build, source, [parts[0], object_file, *parts[1:]], target)
        messages.write_text(said, encoding="utf-8")

    target, messages = _cache.kept_all(library_key(source, build), (".so", ".txt"), make)
    return target, messages.read_text(encoding="utf-8")


def library_key(source: Source, build: Build) -> str:
    """A digest of everything that a library depends on: the source and its included files, the
    compiler, its options, and this package's version, headers and preparation of the text."""
    facts = [find_compiler(), build.name, source.digest, _flags(source, build), list(build.link)]
    return digest_of(["kernel", __version__, *facts])


def _flags(source: Source, build: Build) -> list[str]:
    plain = () if source.launch is None else (*_PLAIN, *_accepted(_FUSED_CHAINS))
    return [*build.all, *build.kernel, *plain, *source.flags()]  # the kernel's own -O counts


def parts_of(build: Build, source: Source) -> list[Path]:
    """The objects that a build links beside the kernel, from the cache or compiled now: the CPU
    device, and the rungs that the kernel launches instead of itself."""
    compiler = find_compiler()

    def part(name: str) -> Path:
        flags = [*build.all, "-fPIC", "-fvisibility=hidden"]
        flags += ["-std=gnu11", "-xc"] if name.endswith(".c") else ["-std=c++20", "-xc++"]
        flags += [_CUSTOM] if name.startswith("custom/") and _CUSTOM in build.kernel else []
        key = digest_of(["part", compiler, name, flags, headers_digest()])

        def make(path: Path) -> None:
            command = [*shlex.split(compiler[0]), *flags, "-c", str(headers() / name)]
            done = run_compiler([*command, "-o", str(path)], headers())
            if done.returncode:
                raise NoCompilerError(f"{compiler[0]} cannot compile this package: {done.stderr}")

        return _cache.kept(key, ".o", make)

    own = () if source.launch is None else ("custom/plain.cpp", "emulator/plain/plain_device.cpp")
    with ThreadPoolExecutor() as workers:
        return list(workers.map(part, [*build.parts, *own, *source.rungs_launched()]))


@cache
def _found(environ_cxx: str, path: str) -> tuple[str, str] | None:
    for command in [environ_cxx] if environ_cxx else ["c++", "g++", "clang++"]:
        words = shlex.split(command)
        if words and shutil.which(words[0], path=path):
            with contextlib.suppress(subprocess.TimeoutExpired):
                version = run_limited([*words, "--version"], _ASK_S)
                if version.returncode == 0:
                    return command, version.stdout.decode(errors="replace").partition("\n")[0]
    return None


def find_compiler() -> tuple[str, str]:
    """The C++ compiler's command, by $CXX or the usual names, and its version.

    Raises NoCompilerError.
    """
    wish = os.environ.get("CXX", "")
    found = _found(wish, os.environ.get("PATH", os.defpath))
    if found is None:
        raise NoCompilerError(
            (f"CXX={wish} cannot be run" if wish else "there is no C++ compiler on this machine")
            + ", and custom kernels and sgemm_kernels.jax need one, also for a GPU: apt install "
            "g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), or name one in CXX"
        )
    return found


@cache
def _accepted_by(compiler: tuple[str, str], flag: str) -> bool:
    command = [*shlex.split(compiler[0]), "-Werror", flag, "-E", "-xc++", os.devnull]
    try:
        return run_limited(command, _ASK_S).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _accepted(*flags: str) -> tuple[str, ...]:
    """The flags that the compiler accepts."""
    compiler = find_compiler()
    return tuple(flag for flag in flags if _accepted_by(compiler, flag))


def write_texts(texts: Mapping[str, str], folder: Path) -> str:
    """Writes the files into the folder. Returns the first one's name as a compiler's argument."""
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    first = next(iter(texts))
    # A leading - or @ would make it an option.
    return f"./{first}" if first.startswith(("-", "@")) else first


def _compile_kernel(
    compiler: tuple[str, str],
    source: Source,
    texts: Mapping[str, str],
    flags: Sequence[str],
    target: Path,
    annotated: bool,
) -> str:
    """Compiles the file itself, and returns the warnings."""
    # Compiles a copy of the text that was digested, since the file may change meanwhile. Included
    # files are still searched beside the original.
    folder = target.parent
    argument = write_texts(texts, folder)
    command = [*shlex.split(compiler[0]), "-xc++", "-std=c++20", "-g1", *flags]
    command += ["-fPIC", "-fvisibility=hidden", "-fmax-errors=5", "-fdiagnostics-color=never"]
    *own, package = source.folders
    command += [f"-iquote{folder}" for folder in own]
    command += [f"-I{package}"]
    if not annotated:
        done = run_compiler([*command, "-c", argument, "-o", str(target)], folder)
    else:
        assembly = target.with_suffix(".s")
        done = run_compiler([*command, "-S", argument, "-o", str(assembly)], folder)
        if done.returncode == 0:
            annotated_text = annotate(
                assembly.read_text(encoding="utf-8"), apart=_REDZONE, own=source.own_files
            )
            assembly.write_text(annotated_text, encoding="utf-8")
            assemble = [*shlex.split(compiler[0]), "-c", str(assembly), "-o", str(target)]
            done = run_compiler(assemble, folder)
    # A plain kernel's launcher is not the user's file.
    said = done.stderr.replace("plain_user::", "") if source.launch is not None else done.stderr
    said = "".join(
        line
        for line in said.splitlines(keepends=True)
        if not re.search(r"launch_of_.*(?::\d+[:,]$|required from here)", line.rstrip())
    )
    if done.returncode:
        hint = ""
        if source.launch is not None:
            hint = hints.compile_hint(source.whole(), source.file, source.left_out, said)
        if "variable length array" in said:
            hint = "\nCUDA has no arrays of variable length: the size of an array is a constant"
        raise CompileError(f"{source.file} does not compile:\n{_shortened(said)}{hint}")
    return said


def _link(
    compiler: tuple[str, str], build: Build, source: Source, objects: Iterable[Path], target: Path
) -> None:
    command = [*shlex.split(compiler[0]), *build.link, "-pthread", *map(str, objects)]
    done = run_compiler([*command, "-Wl,--no-undefined", "-o", str(target)], target.parent)
    if done.returncode and re.search("variant_custom|__start_sgemm_traced", done.stderr):
        raise CompileError(
            f"{source.file} says nowhere how its kernel is launched: end it with a line such as\n"
            '    RUNG(mine, "what it does", "mine.cu", spec, {7, 5});\n'
            "where mine is the __global__ function, and spec its KernelSpec"
        )
    if done.returncode:
        raise CompileError(f"{source.file} cannot be linked:\n{_shortened(done.stderr)}")


def run_compiler(
    command: Sequence[str], folder: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Runs a compiler in a folder. Raises CompileError if it does not end, and NoCompilerError if
    it is not one: it succeeds, but does not write the file after ``-o``."""
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        done = run_limited(command, _COMPILE_S, folder=folder, environ=environ)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} was ended after {_COMPILE_S:g} s") from None
    written = Path(folder or "", command[command.index("-o") + 1]) if "-o" in command else None
    if done.returncode == 0 and written and not written.exists():
        raise NoCompilerError(
            f"{command[0]} reported no error, but wrote no file. It may be no C++ compiler, or "
            "have an option such as -fsyntax-only: set CXX to a compiler, or unset it"
        )
    said = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, *said)


def _shortened(messages: str) -> str:
    lines = messages.strip().splitlines()
    return "\n".join(lines[:_MESSAGES_SHOWN])
