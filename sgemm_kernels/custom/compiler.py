"""Kernels of the package's users, compiled by the machine's C++ compiler.

The same file is compiled in three ways, as the ladder's are: to run on the CPU device, to have its
accesses counted, and to have each of them checked. Each way it is linked with the parts of the CPU
device that it needs to a library, or a program, of its own.
"""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from .. import _cache
from .._catalog import devices, variants
from .._core import Error
from .._version import __version__
from .annotate_assembly import annotate
from .child_process import run_limited

# What no kernel needs of the CPU device, by which the extension computes whole products.
_NOT_LINKED = ("device.cpp", "multiply.cpp")

_WARNINGS = ("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-missing-field-initializers")
_REDZONE = 128  # bytes after each shared array: csrc/custom/watch.cpp
_TUNABLE = re.compile(r"\bTUNABLE\(\s*(\w+)\s*,")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(.+?)"', re.MULTILINE)
_MESSAGES_SHOWN = 40  # lines of a compiler's messages
_COMPILE_S = 600.0
"""The time limit of one compiler process."""
_ASK_S = 60.0
"""The time limit of a question to a compiler, as for its version."""


class CompileError(Error, ValueError):
    """A kernel that does not compile; the message is the compiler's, with the file's own lines."""


class NoCompilerError(Error):
    """There is nothing to compile a kernel with; the message says what to install."""


def text_of(path: Path) -> str:
    """What a file holds. Raises OSError, and ValueError where that is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None


@dataclass(frozen=True)
class Source:
    """The file of a kernel, with what it is compiled with."""

    path: Path
    """Where it lies; its name alone for a text that lies in no file."""
    text: str
    defines: Mapping[str, int] = field(default_factory=dict)
    included: Mapping[Path, str] = field(default_factory=dict)
    """Every file that it includes, directly or not, and its text when this was made."""

    def __post_init__(self) -> None:
        if not self.included:
            object.__setattr__(self, "included", self._included_now())

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def argument(self) -> str:
        """Its file's name, as compilers take it: what begins so is an option or a list of them."""
        return f"./{self.file}" if self.file.startswith(("-", "@")) else self.file

    @property
    def folders(self) -> list[Path]:
        """Where compilers look for what it includes, in their order, after the folder of the file
        that includes: beside this one, if it is a file, and in the package."""
        own = [self.path.parent] if self.path.is_absolute() else []
        return [*own, headers() / "ladder"]

    def _included_now(self) -> dict[Path, str]:
        found: dict[Path, str] = {}
        waiting: list[tuple[str, list[Path]]] = [(self.text, [])]
        while waiting:
            text, beside = waiting.pop()
            for name in _INCLUDE.findall(text):
                for folder in (*beside, *self.folders):
                    path = Path(os.path.normpath(folder / name))
                    if path.is_file():
                        if path not in found:
                            found[path] = text_of(path)
                            waiting.append((found[path], [path.parent]))
                        break
        return found

    def refuse_changed(self) -> None:
        """Raises Error if an included file is no longer what it was: the compiler reads it anew."""
        if self._included_now() != self.included:
            raise Error(f"{self.file}: a file that it includes has changed since: load it anew")

    def flags(self) -> list[str]:
        """What sets the defines. Raises ValueError for one that the file does not use."""
        texts = [self.text, *self._own_included().values()]
        tunable = {name for text in texts for name in _TUNABLE.findall(text)}
        flags = []
        for name, value in self.defines.items():
            if name in tunable:
                flags.append(f"-DSGEMM_TUNED_{name}=0,{value}")
            elif any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts):
                flags.append(f"-D{name}={value}")
            else:
                known = ", ".join(sorted(tunable)) or "none"
                raise ValueError(
                    f"{self.file} uses no {name}, which defines sets to {value}: write "
                    f"TUNABLE({name}, ...) in it where the value belongs; what it has so: {known}"
                )
        return flags

    def rungs_launched(self) -> list[str]:
        """The files of rungs that it launches in its kernel's place, below the headers' root."""
        rungs = {f"variant_{rung.name}": rung.file for rung in variants()}
        words = set(re.findall(r"\bvariant_\w+", "".join([self.text, *self.included.values()])))
        return [f"ladder/{file}" for name, file in rungs.items() if file and name in words]

    def with_text(self, text: str) -> "Source":
        """The same file with another text, which includes the same."""
        return replace(self, text=text)

    def with_defines(self, defines: Mapping[str, int]) -> "Source":
        """The same file with other defines."""
        return replace(self, defines=defines)

    def _own_included(self) -> dict[str, str]:
        """The included files that are no headers of the package, by their paths."""
        package = headers() / "ladder"
        return {str(path): text for path, text in self.included.items() if path.parent != package}

    @property
    def digest(self) -> str:
        """Of the file, what it includes and its defines, and of this package's headers."""
        own = self._own_included()
        return digest_of([self.file, self.text, dict(self.defines), own, _headers_digest()])


@dataclass(frozen=True)
class Build:
    """One way to compile a kernel: flags of the kernel's file, of all files, and what is linked."""

    name: str
    kernel: tuple[str, ...]
    all: tuple[str, ...]
    parts: tuple[str, ...]
    annotated: bool = False
    link: tuple[str, ...] = ("-shared",)


@cache
def headers() -> Path:
    """The folder of the package's C sources; that of the kernels lies in it."""
    return (Path(__file__).parent.parent / "csrc").resolve()


def run_build() -> Build:
    """A library that runs the kernel on the CPU device."""
    fused: tuple[str, ...] = ()
    if os.uname().machine == "x86_64" and devices()[-1].fused_multiply_add:
        fused = ("-mfma", "-mavx2")
    patterned = _accepted("-ftrivial-auto-var-init=pattern")
    # As nvcc, none of the builds accepts `throw`.
    kernel = ("-O2", "-ffp-contract=off", "-fno-exceptions", *fused, *patterned)
    kernel = (*kernel, "-DSGEMM_OWN=1", *_WARNINGS)
    # The kernel's code lies between the first two: a launch that does not stop is taken out of it.
    around = ("custom/kernel_begins.cpp", "custom/kernel_ends.cpp")
    parts = (*around, *_device(), "custom/library.cpp")
    return Build("run", kernel, ("-O2", "-DSGEMM_STOPPABLE=1"), parts)


def count_build() -> Build:
    """A library that counts the accesses of the kernel's first block, as build_backend makes it."""
    clang = "clang" in find_compiler()[1]
    kernel = ("-O0",) if clang else ("-O1", "-fno-tree-sra")
    kernel = (*kernel, "-fno-exceptions", "-ffp-contract=off", "-fsanitize=thread")
    parts = (*_device(), "count/count.cpp", "custom/library.cpp")
    return Build("count", kernel, ("-O2", "-DSGEMM_COUNTED=1"), parts, annotated=True)


def watch_build() -> Build:
    """A program that runs the kernel with each of its accesses looked at."""
    count = count_build()
    kernel = (*count.kernel, "-fsanitize=bounds", "-fsanitize-coverage=trace-pc")
    kernel = (*kernel, *_accepted("-ftrivial-auto-var-init=pattern"))
    parts = (*_device(), "custom/watch.cpp", "custom/driver.cpp")
    return Build(
        "watch", kernel, ("-O2", "-DSGEMM_COUNTED=1", "-DSGEMM_WATCHED=1"), parts, True, ()
    )


def _device() -> tuple[str, ...]:
    """The CPU device's sources, below the headers' root, as a kernel of one's own needs them."""
    names = sorted(path.name for path in (headers() / "cpu").glob("*.cpp"))
    cpu = tuple(f"cpu/{name}" for name in names if name not in _NOT_LINKED)
    return (*cpu, "core/threads.c", "core/status.c")


def library(source: Source, build: Build) -> tuple[Path, str]:
    """The library, or program, of a kernel, from the cache or made now, and what the compiler said.

    Raises CompileError, NoCompilerError, OSError, and Error for included files that have changed.
    """
    compiler = find_compiler()
    parts = parts_of(build, source)
    flags = _flags(source, build)

    def make(paths: tuple[Path, ...]) -> None:
        target, messages = paths
        object_file = target.with_suffix(".o")
        source.refuse_changed()
        said = _compile_kernel(compiler, source, flags, object_file, build.annotated)
        source.refuse_changed()
        _link(compiler, build, source, [parts[0], object_file, *parts[1:]], target)
        messages.write_text(said, encoding="utf-8")

    target, messages = _cache.kept_all(library_key(source, build), (".so", ".txt"), make)
    return target, messages.read_text(encoding="utf-8")


def library_key(source: Source, build: Build) -> str:
    """A digest of all that a library depends on: the source with what it includes, the compiler,
    its options, and this package's version and headers."""
    facts = [find_compiler(), build.name, source.digest, _flags(source, build), list(build.link)]
    return digest_of(["kernel", __version__, *facts])


def _flags(source: Source, build: Build) -> list[str]:
    return [*build.kernel, *build.all, *source.flags()]


def parts_of(build: Build, source: Source) -> list[Path]:
    """The objects that a build links, from the cache or made now: the CPU device, and the rungs
    that the kernel launches in its place."""
    compiler = find_compiler()

    def part(name: str) -> Path:
        flags = [*build.all, "-fPIC", "-fvisibility=hidden"]
        flags += ["-std=gnu11", "-xc"] if name.endswith(".c") else ["-std=c++20", "-xc++"]
        key = digest_of(["part", compiler, name, flags, _headers_digest()])

        def make(path: Path) -> None:
            command = [*shlex.split(compiler[0]), *flags, "-c", str(headers() / name)]
            done = run_compiler([*command, "-o", str(path)], headers())
            if done.returncode:
                raise NoCompilerError(f"{compiler[0]} cannot compile this package: {done.stderr}")

        return _cache.kept(key, ".o", make)

    with ThreadPoolExecutor() as workers:
        return list(workers.map(part, [*build.parts, *source.rungs_launched()]))


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
            + ", and a kernel of your own is compiled here, also for a GPU: apt install g++ "
            "(Debian, Ubuntu), dnf install gcc-c++ (Fedora), or name one in CXX"
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
    """Those of the flags that the compiler knows."""
    compiler = find_compiler()
    return tuple(flag for flag in flags if _accepted_by(compiler, flag))


def _compile_kernel(
    compiler: tuple[str, str], source: Source, flags: Sequence[str], target: Path, annotated: bool
) -> str:
    """Compiles the file itself; what the compiler said of it."""
    # A copy, so that what is kept under the text's digest was made of that text, whatever becomes
    # of the file meanwhile; what it includes is still looked for beside the file.
    folder = target.parent
    (folder / source.file).write_text(source.text, encoding="utf-8")
    command = [*shlex.split(compiler[0]), "-xc++", "-std=c++20", "-g1", *flags]
    command += ["-fPIC", "-fvisibility=hidden", "-fmax-errors=5", "-fdiagnostics-color=never"]
    *own, package = source.folders
    command += [f"-iquote{folder}" for folder in own]
    command += [f"-I{package}"]
    if not annotated:
        done = run_compiler([*command, "-c", source.argument, "-o", str(target)], folder)
    else:
        assembly = target.with_suffix(".s")
        done = run_compiler([*command, "-S", source.argument, "-o", str(assembly)], folder)
        if done.returncode == 0:
            annotated_text = annotate(assembly.read_text(encoding="utf-8"), apart=_REDZONE)
            assembly.write_text(annotated_text, encoding="utf-8")
            assemble = [*shlex.split(compiler[0]), "-c", str(assembly), "-o", str(target)]
            done = run_compiler(assemble, folder)
    if done.returncode:
        raise CompileError(f"{source.file} does not compile:\n{_shortened(done.stderr)}")
    return done.stderr


def _link(
    compiler: tuple[str, str], build: Build, source: Source, objects: Iterable[Path], target: Path
) -> None:
    command = [*shlex.split(compiler[0]), *build.link, "-pthread", *map(str, objects)]
    done = run_compiler([*command, "-Wl,--no-undefined", "-o", str(target)], target.parent)
    if done.returncode and re.search("variant_own|__start_sgemm_counted", done.stderr):
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
    """Runs a compiler in a folder. Raises CompileError if it does not end."""
    environ = {**os.environ, "LC_ALL": "C"}
    try:
        done = run_limited(command, _COMPILE_S, folder=folder, environ=environ)
    except subprocess.TimeoutExpired:
        raise CompileError(f"{command[0]} was ended after {_COMPILE_S:g} s") from None
    said = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(command, done.returncode, *said)


def _shortened(messages: str) -> str:
    lines = messages.strip().splitlines()
    return "\n".join(lines[:_MESSAGES_SHOWN])


@cache
def _headers_digest() -> str:
    root = headers()
    parts = ("ladder", "engine", "core", "cpu", "count", "custom")
    files = [path for part in parts for path in sorted((root / part).rglob("*.*"))]
    files = [path for path in files if path.suffix in (".h", ".cu", ".c", ".cpp")]
    return digest_of(
        [[path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")] for path in files]
    )


def digest_of(facts: object) -> str:
    """Of anything that JSON can hold."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
