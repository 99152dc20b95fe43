"""Defines a shell command, shared arguments and checks, and printing."""

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
from ..measuring.shapes import Shape, as_shape

WRONG_STATUS, REFUSED_STATUS, UNSURE_STATUS = 1, 2, 3
INTERRUPTED_STATUS, BROKEN_PIPE_STATUS = 130, 141
"""Exit statuses other than 0: a check failed or something is slower; the command cannot run; the
result is unclear; interrupted and broken pipe use the codes of the signals."""

GPU_SIZE, CPU_SIZE = 1024, 128
"""Default sizes to measure. The CPU device is slow, so its default is small."""

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"
_ALARMS = re.compile(r"\b(FAIL|WRONG|wrong)\b")


@dataclass(frozen=True, slots=True)
class Command:
    """One command: ``sgemm-kernels NAME``."""

    name: str
    help: str
    description: str
    """The text of ``--help`` above the arguments."""
    example: str
    """Arguments for the example in ``--help``."""
    run: Callable[[argparse.Namespace], int]
    """Runs the command and returns the exit status."""
    arguments: Callable[[argparse.ArgumentParser], None] = lambda _: None
    """Adds its arguments to its parser."""
    epilog: str = ""
    """The text of ``--help`` below the arguments."""
    usage: str | None = None
    """The usage line, if argparse would print an order that it cannot parse."""


def program() -> str:
    """The command that the user typed."""
    script = Path(sys.argv[0]).name
    return script if script == "sgemm-kernels" else "python -m sgemm_kernels"


def show(text: object, to: TextIO | None = None) -> None:
    """Prints to ``to`` or standard output. On a terminal, failures are red and passed levels
    are green unless NO_COLOR is set."""
    line = printable(str(text))
    to = to or sys.stdout
    if to.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        line = _ALARMS.sub(rf"{_RED}\1{_PLAIN}", line)
        line = re.sub(r"\bPASSED\b", f"{_GREEN}PASSED{_PLAIN}", line)
    print(line, file=to, flush=True)


def device_argument(parser: argparse.ArgumentParser) -> None:
    """Adds ``--device``."""
    which = f"{_DEVICES}; default: the first usable GPU, otherwise cpu"
    parser.add_argument("--device", type=device_name, help=which)


_DEVICES = f"cpu, {_core._GPU_KIND}, {_core._GPU_KIND}:N or {_core._GPU_KIND}:all"


def device_name(text: str) -> str:
    """Parses a device name."""
    if not re.fullmatch(rf"cpu|{_core._GPU_KIND}(:\d{{1,6}}|:all)?", text):
        raise argparse.ArgumentTypeError(f"unknown device {text!r}: use {_DEVICES}")
    return text


def size(text: str) -> Shape:
    """Parses 'N', 'MxNxK' or 'BATCHxMxNxK' as a shape."""
    parts = text.split("x")
    if len(parts) not in (1, 3, 4) or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(
            f"invalid size {text!r}: use N, MxNxK or BATCHxMxNxK, each at least 1"
        )
    return as_shape(tuple(map(int, parts if len(parts) > 1 else parts * 3)))


def default_size(device: Device) -> int:
    """The size to measure by default."""
    return CPU_SIZE if device.kind == "cpu" else GPU_SIZE


def refuse_unwritable(path: Path | None) -> None:
    """Raises OSError if the output file cannot be written, before any work is done."""
    if path is None:
        return
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file to write")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: the folder {path.parent} does not exist")
    folder = Path(os.path.realpath(path)).parent  # a new file replaces the old one
    needed = [path] if is_stream(path) else [folder, *([path] if path.exists() else [])]
    if not all(os.access(each, os.W_OK) for each in needed):
        raise PermissionError(f"cannot write {path}: permission denied")


def refuse_missing(path: Path | None) -> None:
    """Raises FileNotFoundError if an input file does not exist, before any work is done."""
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"{path} does not exist")


def refuse_ignored(
    options: argparse.Namespace, used: Mapping[str, tuple[str, ...]], kind: str
) -> None:
    """Raises ValueError for a given option that this kind ignores. ``used`` maps each option to the
    kinds that use it."""
    for option, kinds in used.items():
        given: Any = getattr(options, option)
        if given is not None and kind not in kinds:
            raise ValueError(
                f"--{option} works only with --kind {' or '.join(kinds)}, not with {kind}"
            )
