"""Files that the user names: each appears whole, or the old one stays as it is."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def is_stream(path: Path) -> bool:
    """Whether a path names a pipe, a device or an open file of this process, as /dev/stdout does.

    A reader is at its other end, so no other file can take its place.
    """
    if path.is_symlink() and os.path.realpath(path.parent).startswith(("/proc/", "/dev")):
        return True
    return path.exists() and not stat.S_ISREG(path.stat().st_mode) and not path.is_dir()


def write(path: str | Path, put: Callable[[BinaryIO], object]) -> None:
    """Writes a file: ``put`` gets it open. Two writers at once leave the file of one of them.

    Raises OSError, which names the path and the cause; a file that was there before is unchanged
    then.
    """
    path = Path(path)
    try:
        if is_stream(path):
            with path.open("wb") as stream:
                put(stream)
            return
        target = Path(os.path.realpath(path))  # a link stays one
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
    """The same, of text in UTF-8."""
    write(path, lambda file: file.write(text.encode("utf-8")))
