"""Keeps compiled files in the user's cache folder, under a digest of all their inputs.

Several processes may use the folder at the same time. A file appears complete, by a rename, and
never changes. If two processes need the same file, both compile it and the later one replaces an
equal file.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ._folder import VARIABLE, wanted
from ._output import write_text


def folder() -> Path:
    """The cache folder: $SGEMM_KERNELS_CACHE, or sgemm_kernels in the user's cache folder.

    If it is not writable, returns a temporary folder that exists until the process ends, and emits
    a RuntimeWarning.
    """
    path = _writable(wanted())
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # users may delete it at any time
    return path


@cache
def _writable(path: Path) -> Path:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        temporary = _temporary()
        warnings.warn(
            f"cannot write compiled kernels to the cache folder {path} ({error.strerror}); using "
            f"{temporary} until this process ends. Set {VARIABLE} to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )
        return temporary


@cache
def _temporary() -> Path:
    # The function's cache keeps the folder; the interpreter removes it at exit.
    _owner.append(tempfile.TemporaryDirectory(prefix="sgemm_kernels-"))
    return Path(_owner[-1].name)


_owner: list["tempfile.TemporaryDirectory[str]"] = []


def kept(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of this key. If it does not exist, calls ``make`` with the path to write."""
    return kept_all(key, (suffix,), lambda paths: make(paths[0]))[0]


def kept_all(
    key: str, suffixes: tuple[str, ...], make: Callable[[tuple[Path, ...]], None]
) -> tuple[Path, ...]:
    """Like ``kept``, for files that are written together."""
    where = folder()
    targets = tuple(where / f"{key}{suffix}" for suffix in suffixes)
    if all(target.is_file() for target in targets):
        return targets
    with tempfile.TemporaryDirectory(dir=where, prefix="making-") as workshop:
        made = tuple(Path(workshop) / target.name for target in targets)
        make(made)
        for path, target in zip(made, targets, strict=True):
            path.replace(target)
    return targets


def note(key: str, suffix: str, text: str) -> None:
    """Keeps a text under this key. Does nothing if the folder is not writable."""
    with contextlib.suppress(OSError):
        write_text(folder() / f"{key}{suffix}", text)


def noted(key: str, suffix: str) -> str | None:
    """The text that ``note`` kept under this key, or None."""
    try:
        return (folder() / f"{key}{suffix}").read_text(encoding="utf-8")
    except OSError:
        return None
