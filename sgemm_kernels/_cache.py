"""Keeps compiled files in the user's cache folder, under a digest of all their inputs.

Several processes may use the folder at the same time. A file appears complete, by a rename, and
never changes. If two processes need the same file, both compile it and the later one replaces an
equal file.
"""

import contextlib
import hashlib
import os
import shlex
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

from ._folder import VARIABLE, wanted
from ._output import write_text


def folder() -> Path:
    """The folder of compiled kernels: $SGEMM_KERNELS_CACHE, or sgemm_kernels in the user's caches.

    If it is not writable, or if other users could put files into it, emits a RuntimeWarning and
    returns a temporary folder that exists until the process ends.
    """
    path = wanted()
    fault = _fault(path)
    return path if fault is None else _in_place_of(path, fault)


def _fault(path: Path) -> str | None:
    """Why a folder cannot be used. Makes it first, since it may be deleted at any time."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        # The rule of ssh: what runs in this process must come from this user.
        if found.st_uid != os.geteuid():
            return f"it belongs to another user, with the number {found.st_uid}"
        if found.st_mode & 0o022:
            return f"other users can write to it: chmod go-w {shlex.quote(str(path))}"
        _write_to(path)
    except OSError as error:
        return error.strerror or str(error)
    return None


@cache
def _write_to(path: Path) -> None:
    with tempfile.TemporaryFile(dir=path):
        pass


@cache
def _in_place_of(path: Path, fault: str) -> Path:
    temporary = _temporary()
    warnings.warn(
        f"cannot write compiled kernels to the cache folder {path} ({fault}); using "
        f"{temporary} until this process ends. Set {VARIABLE} to a folder that only you can write",
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
    """As ``kept``, for files that are made together.

    A file is used only if its content still has the digest that was noted when it was made: one
    that is empty, truncated or damaged is made again.
    """
    where = folder()
    targets = tuple(where / f"{key}{suffix}" for suffix in suffixes)
    digests = where / f"{key}.sha256"
    if _are_whole(targets, digests):
        return targets
    with tempfile.TemporaryDirectory(dir=where, prefix="making-") as workshop:
        made = tuple(Path(workshop) / target.name for target in targets)
        make(made)
        noted_digests = Path(workshop) / digests.name
        noted_digests.write_text(_digests_of(made), encoding="utf-8")
        for path, target in zip((*made, noted_digests), (*targets, digests), strict=True):
            path.replace(target)
    return targets


def _are_whole(paths: tuple[Path, ...], digests: Path) -> bool:
    try:
        return digests.read_text(encoding="utf-8") == _digests_of(paths)
    except (OSError, UnicodeDecodeError):
        return False


def _digests_of(paths: tuple[Path, ...]) -> str:
    """As sha256sum prints them."""
    return "".join(f"{_sha256(path.read_bytes())}  {path.name}\n" for path in paths)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def note(key: str, suffix: str, text: str) -> None:
    """Keeps a text under this key. Does nothing if the folder is not writable."""
    with contextlib.suppress(OSError):
        write_text(folder() / f"{key}{suffix}", f"{_bound(key, suffix, text)}\n{text}")


def noted(key: str, suffix: str) -> str | None:
    """The text that ``note`` kept under this key, or None."""
    try:
        digest, _, text = (folder() / f"{key}{suffix}").read_text("utf-8").partition("\n")
    except (OSError, UnicodeDecodeError):
        return None
    return text if digest == _bound(key, suffix, text) else None


def _bound(key: str, suffix: str, text: str) -> str:
    return _sha256(f"{key}\0{suffix}\0{text}".encode())
