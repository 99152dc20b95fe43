"""What a command of the shell is, and how it prints."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from .. import _core
from .._catalog import Device
from .._output import is_stream
from .._table import printable
from ..measuring.shapes import Shape

WRONG_STATUS, REFUSED_STATUS, UNSURE_STATUS = 1, 2, 3
INTERRUPTED_STATUS, BROKEN_PIPE_STATUS = 130, 141
"""Exit statuses beside 0: a check failed or something became slower; it could not be done; it could
not be told; as of a process that the signal ended."""

ON_A_GPU, ON_THE_CPU = 1024, 128
"""The size that is measured where none is named: on the CPU device one that takes no minutes."""

_RED, _PLAIN = "\x1b[31m", "\x1b[0m"
_ALARMS = re.compile(r"\b(FAIL|WRONG|wrong)\b")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``sgemm-kernels NAME``."""

    name: str
    help: str
    description: str
    """What its ``--help`` says above its arguments."""
    example: str
    """Arguments that it takes."""
    run: Callable[[argparse.Namespace], int]
    """Does it; returns the exit status."""
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    """Adds its arguments to its parser."""
    epilog: str = ""
    """What its ``--help`` says below its arguments."""
    usage: str | None = None
    """How they follow its name, where argparse would put them in an order that it cannot read."""


def program() -> str:
    """What the user typed to come here."""
    script = Path(sys.argv[0]).name
    return script if script == "sgemm-kernels" else "python -m sgemm_kernels"


def show(text: object, to: TextIO | None = None) -> None:
    """Prints, to standard output if no other stream is named; on a terminal what failed is red,
    unless NO_COLOR is set."""
    line = printable(str(text))
    to = to or sys.stdout
    if to.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        line = _ALARMS.sub(rf"{_RED}\1{_PLAIN}", line)
    print(line, file=to, flush=True)


def device_argument(parser: argparse.ArgumentParser) -> None:
    """``--device``, of every command that computes."""
    which = f"{_DEVICES}; by default the first usable GPU"
    parser.add_argument("--device", type=device_name, help=which)


_DEVICES = f"cpu, {_core._GPU_KIND}, {_core._GPU_KIND}:N or {_core._GPU_KIND}:all"


def device_name(text: str) -> str:
    """The type of an argument: a device's name."""
    if not re.fullmatch(rf"cpu|{_core._GPU_KIND}(:\d{{1,6}}|:all)?", text):
        raise argparse.ArgumentTypeError(f"a device is {_DEVICES}, not {text!r}")
    return text


def size(text: str) -> Shape:
    """The type of an argument: 'N' or 'MxNxK' as (M, N, K)."""
    parts = text.split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"a size is N or MxNxK, from 1 up, not {text!r}")
    M, N, K = map(int, parts if len(parts) == 3 else parts * 3)
    return M, N, K


def default_size(device: Device) -> int:
    """What is measured where no size is named."""
    return ON_THE_CPU if device.kind == "cpu" else ON_A_GPU


def refuse_unwritable(path: Path | None) -> None:
    """Raises OSError, before any work, where a file could not be written in the end."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path} cannot be written: there is no folder {path.parent}")
    folder = Path(os.path.realpath(path)).parent  # a new file takes the place of the old one
    needed = [path] if is_stream(path) else [folder, *([path] if path.exists() else [])]
    if not all(os.access(each, os.W_OK) for each in needed):
        raise PermissionError(f"{path} cannot be written: no permission")


def refuse_missing(path: Path | None) -> None:
    """Raises FileNotFoundError, before any work, where a file is not there."""
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")


def refuse_ignored(
    options: argparse.Namespace, used: Mapping[str, tuple[str, ...]], kind: str
) -> None:
    """Raises ValueError for an option that was given and that this kind would ignore; used has the
    kinds that each option is for."""
    for option, kinds in used.items():
        given: Any = getattr(options, option)
        if given is not None and kind not in kinds:
            raise ValueError(f"--{option} is for --kind {' and '.join(kinds)}, not for {kind}")
