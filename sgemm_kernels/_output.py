"""Writes files atomically: a new file appears complete, or the old one stays unchanged."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def is_stream(path: Path) -> bool:
    """True if the path is a pipe, a device or an open file of this process, such as /dev/stdout.

    It must be written in place, because a reader has it open.
    """
    if path.is_symlink() and os.path.realpath(path.parent).startswith(("/proc/", "/dev")):
        return True
    return path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()


def write(path: str | Path, put: Callable[[BinaryIO], object]) -> None:
    """Writes a file. ``put`` writes to the open file. With two concurrent writers, one of the
    files remains.

    Raises OSError with the path and the cause; an existing file then stays unchanged.
    """
    path = Path(path)
    try:
        if is_stream(path):
            with path.open("wb") as stream:
                put(stream)
            return
        target = Path(os.path.realpath(path))  # follow symbolic links
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as workshop:
            made = Path(workshop) / target.name
            with made.open("wb") as file:
                put(file)
            if target.exists():
                made.chmod(stat.S_IMODE(target.stat().st_mode))
            made.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def write_text(path: str | Path, text: str) -> None:
    """Writes text in UTF-8, like ``write``."""
    write(path, lambda file: file.write(text.encode("utf-8")))
