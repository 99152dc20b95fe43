"""What was compiled is kept, in the user's cache folder, by a digest of all that it was made of.

Several processes may use the folder at once: a file appears whole, by a rename, and is never
changed. Two that need the same at the same time both make it, and the later one replaces an equal
file.
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
    """Where compiled kernels are kept: $SGEMM_KERNELS_CACHE, or sgemm_kernels in the user's caches.

    Where that cannot be written, a temporary folder serves as long as the process lives, and a
    RuntimeWarning says so.
    """
    path = _writable(wanted())
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # who uses it may delete it at any time
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
            f"compiled kernels cannot be kept in {path} ({error.strerror}), and are kept in "
            f"{temporary} until this process ends: set {VARIABLE} to a folder that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return temporary


@cache
def _temporary() -> Path:
    # Kept by the cache of this function, and removed when the interpreter ends.
    _owner.append(tempfile.TemporaryDirectory(prefix="sgemm_kernels-"))
    return Path(_owner[-1].name)


_owner: list["tempfile.TemporaryDirectory[str]"] = []


def kept(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of that key, which ``make`` writes to the path that it is given if there is none."""
    return kept_all(key, (suffix,), lambda paths: make(paths[0]))[0]


def kept_all(
    key: str, suffixes: tuple[str, ...], make: Callable[[tuple[Path, ...]], None]
) -> tuple[Path, ...]:
    """As ``kept``, for files that are made together; the last is there only if all are."""
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
    """Keeps a text under that key, or, where it cannot be written, does nothing."""
    with contextlib.suppress(OSError):
        write_text(folder() / f"{key}{suffix}", text)


def noted(key: str, suffix: str) -> str | None:
    """The text that ``note`` kept; None if there is none."""
    try:
        return (folder() / f"{key}{suffix}").read_text(encoding="utf-8")
    except OSError:
        return None
