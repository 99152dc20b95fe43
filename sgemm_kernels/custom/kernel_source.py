"""The file of a custom kernel, with its defines and the files that it includes."""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from .._catalog import KERNEL_FOLDERS, kernel_place, variants
from .._core import Error
from . import hints, inline_ptx, plain_launcher, plain_text
from .expressions import ExpressionError, constants_of
from .launch_bounds import with_bounds
from .plain import Plain, PlainLaunch, analysed
from .reachable import only_for

_PORTABLE = {f"variant_{name}": "portable.cu" for name in ("portable", "per_element")}
"""The library's kernels on the CPU device that are no rungs."""
_TUNABLE = re.compile(r"\bTUNABLE\(\s*(\w+)\s*,")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"(.+?)"', re.MULTILINE)


class CompileError(Error, ValueError):
    """A kernel does not compile. The message is the compiler's, with the file's own lines."""


def text_of(path: Path) -> str:
    """The text of a file. Raises OSError, and ValueError if it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is no text in UTF-8") from None


@dataclass(frozen=True)
class Source:
    """The file of a kernel, its defines and the files that it includes."""

    path: Path
    """Its path, or only a name if the text is not from a file."""
    text: str
    defines: Mapping[str, int] = field(default_factory=dict)
    included: Mapping[Path, str] = field(default_factory=dict)
    """Every file that it includes, directly or not, with the text that was read."""
    launch: PlainLaunch | None = None
    """How a plain kernel is launched. None for a file that is written with kernel.h."""

    def __post_init__(self) -> None:
        if not self.included:
            object.__setattr__(self, "included", self._included_now())

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def folders(self) -> list[Path]:
        """The include path, after the folder of the including file: this file's folder, if it has
        one, and the package's headers."""
        return [*self._own_folders, *(headers() / folder for folder in KERNEL_FOLDERS)]

    @property
    def _own_folders(self) -> list[Path]:
        return [self.path.parent] if self.path.is_absolute() else []

    @property
    def plain(self) -> Plain | None:
        """The plain kernel; None for a file that is written with kernel.h. Raises ValueError."""
        if self.launch is None:
            return None
        defines = tuple(sorted(self.defines.items()))
        whole = self.whole()
        if empty := [name for name in hints.empty_macros(whole) if name not in self.defines]:
            raise ValueError(f"{hints.defines_hint(empty[0], self.file)}: its #define has none")
        try:
            return analysed(whole, self.file, self.launch, defines)
        except ExpressionError as error:
            hint = hints.launch_hint(self.text, self.file, self.left_out, str(error))
            raise ExpressionError(f"{error}{hint}") from None

    def whole(self) -> str:
        """The text with its own included files and its defines."""
        text, _ = plain_text.with_constants(self.text, self.defines)
        included = {
            path: plain_text.with_constants(inner, self.defines)[0]
            for path, inner in self._own_included().items()
        }
        return plain_text.flattened(text, self.file, self._own_folders, included)

    def _device_code(self, plain: Plain) -> str:
        return only_for(plain_text.device_code(self.whole()), plain.call)

    @property
    def left_out(self) -> list[str]:
        """The files that a plain kernel includes and that are not found, in quotes or brackets."""
        texts = [self.text, *self._own_included().values()]
        found = {path.name for path in self.included}
        return list(dict.fromkeys(name for text in texts for name in hints.left_out(text, found)))

    def texts(self, compiler: str) -> dict[str, str]:
        """The files that 'c++', 'nvcc' or 'nvrtc' compiles, by name. The first one is its argument,
        and includes the others. Raises CompileError."""
        plain = self.plain
        if plain is None:
            return {self.file: with_bounds(self.text) if compiler == "c++" else self.text}
        device = self._device_code(plain)
        if compiler == "nvrtc":
            return {self.file: plain_launcher.for_nvrtc(device, self.file)}
        if compiler == "c++":
            try:
                launcher = plain_launcher.for_cpu(plain, device, self.file)
                device = plain_text.for_cpu(inline_ptx.as_calls(with_bounds(device)), self.file)
            except plain_text.UnsupportedCodeError as error:
                raise CompileError(f"{self.file} does not compile:\n{error}") from None
        else:
            launcher = plain_launcher.for_nvcc(plain, device, self.file)
        return {f"launch_of_{self.file}": launcher, self.file: device}

    def _included_now(self) -> dict[Path, str]:
        found: dict[Path, str] = {}
        waiting: list[tuple[str, list[Path]]] = [(self.text, [])]
        # A plain kernel includes no headers of this package.
        folders = self.folders if self.launch is None else self._own_folders
        while waiting:
            text, beside = waiting.pop()
            for name in _INCLUDE.findall(text):
                for folder in (*beside, *folders):
                    path = Path(os.path.normpath(folder / name))
                    if path.is_file():
                        if path not in found:
                            found[path] = text_of(path)
                            waiting.append((found[path], [path.parent]))
                        break
        return found

    def refuse_changed(self) -> None:
        """Raises Error if an included file has changed, since the compiler reads it again."""
        if self._included_now() != self.included:
            raise Error(f"{self.file}: a file that it includes has changed since: load it anew")

    def flags(self) -> list[str]:
        """The options that set the defines. Raises ValueError for one that is not used."""
        texts = [self.text, *self._own_included().values()]
        tunable = {name for text in texts for name in _TUNABLE.findall(text)}
        flags = []
        written: set[str] = set()
        if self.launch is not None:
            for text in texts:
                written |= plain_text.with_constants(text, self.defines)[1]
        for name, value in self.defines.items():
            if name in written:
                continue
            if name in tunable:
                flags.append(f"-DSGEMM_TUNED_{name}=0,{value}")
            elif any(re.search(rf"\b{re.escape(name)}\b", text) for text in texts):
                flags.append(f"-D{name}={value}")
            else:
                raise ValueError(
                    f"{self.file} uses no {name}, which defines sets to {value}: "
                    f"{self._how_to_define(name, tunable)}"
                )
        return flags

    def _how_to_define(self, name: str, tunable: set[str]) -> str:
        """How the file can use a define, and which it has."""
        if self.launch is None:
            how, known = f"TUNABLE({name}, ...)", tunable
        else:
            how = f"constexpr int {name} = ...;"
            known = set(constants_of(plain_text.masked(self.whole()), {}))
        return f"write {how} in it; it has {', '.join(sorted(known)) or 'none'}"

    def rungs_launched(self) -> list[str]:
        """The rungs that it launches instead of its own kernel: their files below the root."""
        rungs = {f"variant_{rung.name}": rung.file for rung in variants()} | _PORTABLE
        words = set(re.findall(r"\bvariant_\w+", "".join([self.text, *self.included.values()])))
        files = {file for name, file in rungs.items() if file and name in words}
        return sorted(kernel_place(file) for file in files)

    def with_text(self, text: str) -> "Source":
        """The same file with another text and the same included files."""
        return replace(self, text=text)

    def with_defines(self, defines: Mapping[str, int]) -> "Source":
        """The same file with other defines."""
        return replace(self, defines=defines)

    def _own_included(self) -> dict[Path, str]:
        """The included files outside the package, by path."""
        return {path: text for path, text in self.included.items() if headers() not in path.parents}

    @property
    def own_files(self) -> list[str]:
        """The names of the file and of its included files outside the package."""
        return [self.file, *(path.name for path in self._own_included())]

    @property
    def digest(self) -> str:
        """A digest of the file, its included files, its defines and this package's headers."""
        own = {str(path): text for path, text in self._own_included().items()}
        facts = [self.file, self.text, dict(self.defines), own, headers_digest()]
        plain = self.plain
        if plain is not None:
            device = self._device_code(plain)
            launcher = plain_launcher.for_cpu(plain, device, self.file)
            facts += [repr(self.launch), device, launcher]
        return digest_of(facts)


@cache
def headers() -> Path:
    """The folder of the package's C sources. The kernels are in its KERNEL_FOLDERS."""
    return (Path(__file__).parent.parent / "csrc").resolve()


@cache
def headers_digest() -> str:
    """A digest of the C sources that custom kernels are compiled with, and of the modules that
    prepare a kernel's text."""
    root = headers()
    parts = (*KERNEL_FOLDERS, "base", "emulator", "custom")
    files = [path for part in parts for path in sorted((root / part).rglob("*.*"))]
    files = [path for path in files if path.suffix in (".h", ".cu", ".c", ".cpp")]
    own = sorted(Path(__file__).parent.glob("*.py"))
    texts = [(path.relative_to(root).as_posix(), path) for path in files]
    texts += [(path.name, path) for path in own]
    return digest_of([[name, path.read_text(encoding="utf-8")] for name, path in texts])


def digest_of(facts: object) -> str:
    """A digest of anything that JSON can express."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]
