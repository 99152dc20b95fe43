"""Commands for custom kernels and kernel sources: new, try, tune, export."""

import argparse
import shlex
import sys
import time
from pathlib import Path

from .._core import Error
from .._table import printable
from ..custom.compiler import NoCompilerError, text_of
from ..custom.load import kernel, name_fault, source
from ..custom.tuning import STRATEGIES, tune
from ..measuring.devices import find_device
from ..measuring.results_file import read_json
from .command import (
    CPU_SIZE,
    GPU_SIZE,
    INTERRUPTED_STATUS,
    WRONG_STATUS,
    Command,
    default_size,
    device_argument,
    program,
    refuse_unwritable,
    show,
    size,
)
from .plain_options import plain_arguments, plain_keywords
from .trial import TrialOptions, Try, trial_arguments

_LOOK_S = 0.2
"""Polling interval of --watch, in seconds."""


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="MINE.cu", type=Path, help="the file to write")
    parser.add_argument("--like", metavar="RUNG", required=True, help="a rung from 'list'")


def _new(options: argparse.Namespace) -> int:
    text = source(options.like)
    _refuse_file_name(options.file)
    _write_new(options.file, text)
    show(f"Wrote the source of {options.like} to {options.file}. Edit it, then run:")
    show(f"  {program()} try {shlex.quote(str(options.file))} --like {options.like} --watch")
    return 0


def _write_new(path: Path, text: str) -> None:
    """Writes a new file. Raises FileExistsError for an existing one, which the user may have
    edited."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FileExistsError(f"{path} already exists: choose another name or delete it") from None


def _refuse_file_name(path: Path) -> None:
    """Raises ValueError if the file's name is not valid as a kernel name."""
    if fault := name_fault(path.stem):
        raise ValueError(
            f"{path}: the kernel is named after its file, but {fault}. Rename the file, for "
            "example to mine.cu"
        )


def _try_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="MINE.cu", type=Path, help="the kernel's file")
    trial_arguments(parser)
    plain_arguments(parser)
    parser.add_argument("--watch", action="store_true", help="repeat after each save, until Ctrl-C")


def _try(options: argparse.Namespace) -> int:
    selected = TrialOptions.parse(options)
    _refuse_file_name(options.file)
    text_of(options.file)
    find_device(options.device)
    if not options.watch:
        return 0 if _tried(options, selected, None).right else WRONG_STATUS
    last = None
    try:
        while True:
            content = _content(options.file)
            try:
                last = _tried(options, selected, last)
            except NoCompilerError:
                raise
            except (Error, OSError, ValueError) as error:  # the next save may fix it
                print(printable(str(error)), file=sys.stderr, flush=True)
            show(f"\nWaiting for {options.file} to be saved. Press Ctrl-C to stop.")
            _wait_for_save(options.file, content)
    except KeyboardInterrupt:
        return 0


def _tried(options: argparse.Namespace, selected: TrialOptions, last: Try | None) -> Try:
    tried = Try(kernel(options.file, like=options.like, **plain_keywords(options)))
    for number, part in enumerate(tried.parts(selected, last)):
        show(f"\n{part}" if number else part)
    return tried


def _content(path: Path) -> bytes | None:
    """The file's content. None if it is missing or empty, as some editors leave it during a
    save."""
    try:
        return path.read_bytes() or None
    except OSError:
        return None


def _wait_for_save(path: Path, old: bytes | None) -> None:
    """Waits until the file's content changes."""
    while _content(path) in (old, None):
        time.sleep(_LOOK_S)


def _tune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="MINE.cu", help="a custom kernel's file, or a rung from 'list'"
    )
    parser.add_argument(
        "--space",
        metavar="SPACE.json",
        type=Path,
        required=True,
        help='values to try for each constant: {"BM": [64, 128], "TM": [4, 8]}',
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZE",
        type=size,
        nargs="+",
        help=f"N or MxNxK (default: {GPU_SIZE} on a GPU, {CPU_SIZE} on the CPU)",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=STRATEGIES[0],
        help=f"search strategy (default: {STRATEGIES[0]})",
    )
    parser.add_argument(
        "--limit", metavar="COUNT", type=int, help="maximum number of candidates to try"
    )
    parser.add_argument(
        "--json", metavar="JSON", type=Path, help="write all candidates to this file"
    )
    device_argument(parser)
    parser.add_argument("--like", metavar="RUNG", help="the rung that the file started from")
    plain_arguments(parser)


def _tune(options: argparse.Namespace) -> int:
    refuse_unwritable(options.json)
    is_file = options.file.endswith(".cu")
    if is_file:
        _refuse_file_name(Path(options.file))
    space = _space(options.space)
    target = options.file
    if is_file:
        target = kernel(target, like=options.like, **plain_keywords(options))
    device = find_device(options.device)
    tuning = tune(
        target,
        space,
        options.sizes or default_size(device),
        device=device.name,
        strategy=options.strategy,
        limit=options.limit,
    )
    show(tuning)
    if options.json is not None:
        tuning.to_json(options.json)
    if tuning.interrupted:
        return INTERRUPTED_STATUS
    return WRONG_STATUS if tuning.best is None else 0


def _space(path: Path) -> dict[str, list[int]]:
    space = read_json(path)
    if not isinstance(space, dict) or not all(
        isinstance(values, list) and all(type(value) is int for value in values)
        for values in space.values()
    ):
        raise ValueError(f'{path} is not a search space such as {{"BM": [64, 128], "TM": [4, 8]}}')
    return space


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rung", metavar="RUNG", help="a rung from 'list'")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE.cu",
        help="the file to write (default: RUNG.cu); - for standard output",
    )


def _export(options: argparse.Namespace) -> int:
    text = source(options.rung, standalone=True)
    if options.output == "-":
        sys.stdout.write(text)
        return 0
    path = Path(options.output or f"{options.rung}.cu")
    _write_new(path, text)
    show(f"Wrote {options.rung} with a main to {path}. Its first lines show how to compile it.")
    return 0


COMMANDS = (
    Command(
        "new",
        "start a custom kernel from a rung's source",
        "Writes a file with the source of a rung, for you to edit.",
        "mine.cu --like tile2d",
        _new,
        _new_arguments,
    ),
    Command(
        "try",
        "check, time and trace a custom kernel",
        "Checks, times and traces a custom kernel, as selected. By default it is checked "
        "(--check).",
        "mine.cu --like tile2d --bench 1024 --against vec4",
        _try,
        _try_arguments,
        "Exit status: 1 if it is wrong, 2 if it does not compile. This command runs the kernel's "
        "code on your machine: try only code that you trust.",
        usage="MINE.cu [OPTION ...]",
    ),
    Command(
        "tune",
        "search the best tile sizes of a custom kernel or a rung",
        "Compiles each combination of values, checks it against float64, and times it.",
        "mine.cu --like tile2d --space space.json",
        _tune,
        _tune_arguments,
        "Results are saved, so the same command resumes an interrupted search. Exit status: 1 if "
        "no candidate is correct.",
        usage="MINE.cu --space SPACE.json [OPTION ...]",
    ),
    Command(
        "export",
        "export a rung as one CUDA file with a main",
        "Writes one file with the rung's kernel, any headers that it includes, and a main. nvcc "
        "compiles it to a program that checks the kernel against a CPU loop and times it beside "
        "cuBLAS.",
        "vec4 -o vec4.cu",
        _export,
        _export_arguments,
        "Then, on a machine with a GPU:\n  nvcc -O3 -arch=native vec4.cu && ./a.out 4096",
    ),
)
