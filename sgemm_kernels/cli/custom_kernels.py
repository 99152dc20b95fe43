"""Commands on kernels of your own, and on the text of a rung: new, try, tune, export."""

import argparse
import shlex
import sys
import time
from pathlib import Path

from .._core import Error
from .._table import printable
from ..custom.compiler import NoCompilerError, text_of
from ..custom.kernel import kernel, name_fault, source
from ..custom.tuning import STRATEGIES, tune
from ..measuring.devices import find_device
from ..measuring.results_file import read_json
from .command import (
    INTERRUPTED_STATUS,
    ON_A_GPU,
    ON_THE_CPU,
    WRONG_STATUS,
    Command,
    default_size,
    device_argument,
    program,
    refuse_unwritable,
    show,
    size,
)
from .trial import Try, Wishes, wishes_arguments

_LOOK_S = 0.2
"""How often --watch looks whether the file was saved."""


def _new_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="MINE.cu", type=Path, help="the file to write")
    parser.add_argument("--like", metavar="RUNG", required=True, help="a rung from 'list'")


def _new(options: argparse.Namespace) -> int:
    text = source(options.like)
    _refuse_file_name(options.file)
    _write_new(options.file, text)
    show(f"{options.file} holds the text of {options.like}. Change it, then:")
    show(f"  {program()} try {shlex.quote(str(options.file))} --like {options.like} --watch")
    return 0


def _write_new(path: Path, text: str) -> None:
    """Writes a file, and raises FileExistsError rather than replace one: its user may have changed
    it."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise FileExistsError(f"{path} is there already: choose another name") from None


def _refuse_file_name(path: Path) -> None:
    """Raises ValueError where a kernel cannot have the name of its file."""
    if fault := name_fault(path.stem):
        raise ValueError(
            f"{path}: a kernel has the name of its file, and {fault}: choose another name for the "
            "file, such as mine.cu"
        )


def _try_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="MINE.cu", type=Path, help="the file of the kernel")
    wishes_arguments(parser)
    parser.add_argument("--watch", action="store_true", help="again at each save, until Ctrl-C")


def _try(options: argparse.Namespace) -> int:
    wishes = Wishes.of(options)
    _refuse_file_name(options.file)
    text_of(options.file)
    find_device(options.device)
    if not options.watch:
        return 0 if _tried(options.file, wishes, None).right else WRONG_STATUS
    last = None
    try:
        while True:
            content = _content(options.file)
            try:
                last = _tried(options.file, wishes, last)
            except NoCompilerError:
                raise
            except (Error, OSError, ValueError) as error:  # which the next save may mend
                print(printable(str(error)), file=sys.stderr, flush=True)
            show(f"\nWaiting until {options.file} is saved; Ctrl-C ends.")
            _wait_for_save(options.file, content)
    except KeyboardInterrupt:
        return 0


def _tried(path: Path, wishes: Wishes, last: Try | None) -> Try:
    tried = Try(kernel(path))
    for number, part in enumerate(tried.parts(wishes, last)):
        show(f"\n{part}" if number else part)
    return tried


def _content(path: Path) -> bytes | None:
    """What the file holds; None for nothing: an editor may take it away or empty it as it saves."""
    try:
        return path.read_bytes() or None
    except OSError:
        return None


def _wait_for_save(path: Path, old: bytes | None) -> None:
    """Waits until the file holds something else than the old content."""
    while _content(path) in (old, None):
        time.sleep(_LOOK_S)


def _tune_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="MINE.cu", help="or a rung from 'list'")
    parser.add_argument(
        "--space",
        metavar="SPACE.json",
        type=Path,
        required=True,
        help='what to try of each TUNABLE: {"BM": [64, 128], "TM": [4, 8]}',
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZE",
        type=size,
        nargs="+",
        help=f"N, or MxNxK (default: {ON_A_GPU}, on the CPU {ON_THE_CPU})",
    )
    parser.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default=STRATEGIES[0],
        help=f"how to choose candidates ({STRATEGIES[0]})",
    )
    parser.add_argument("--limit", metavar="COUNT", type=int, help="the most candidates to try")
    parser.add_argument("--json", metavar="JSON", type=Path, help="write every candidate")
    device_argument(parser)


def _tune(options: argparse.Namespace) -> int:
    refuse_unwritable(options.json)
    if options.file.endswith(".cu"):
        _refuse_file_name(Path(options.file))
    device = find_device(options.device)
    tuning = tune(
        options.file,
        _space(options.space),
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
        raise ValueError(f'{path} does not hold a space, as {{"BM": [64, 128], "TM": [4, 8]}}')
    return space


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rung", metavar="RUNG", help="a rung from 'list'")
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE.cu",
        help="the file to write (RUNG.cu); - is standard output",
    )


def _export(options: argparse.Namespace) -> int:
    text = source(options.rung, standalone=True)
    if options.output == "-":
        sys.stdout.write(text)
        return 0
    path = Path(options.output or f"{options.rung}.cu")
    _write_new(path, text)
    show(f"{path} holds {options.rung} and a main. Its first lines say how to compile it.")
    return 0


COMMANDS = (
    Command(
        "new",
        "begin a kernel of your own with the text of a rung",
        "Writes a file with the text of a rung, for you to change.",
        "mine.cu --like tile2d",
        _new,
        _new_arguments,
    ),
    Command(
        "try",
        "check, time and trace a kernel of your own",
        "Says of a kernel of your own what is asked for; by default whether it is right (--check).",
        "mine.cu --check --bench 1024 --against vec4",
        _try,
        _try_arguments,
        "Exit status: 1 if it is wrong, 2 if it does not compile. To try a kernel is to run a "
        "program: try none that you would not run.",
        usage="MINE.cu [OPTION ...]",
    ),
    Command(
        "tune",
        "search the best tiles of a kernel of your own, or of a rung",
        "Tries each choice of values: compiles it, compares it with float64, and times it.",
        "mine.cu --space space.json --sizes 1024",
        _tune,
        _tune_arguments,
        "What was tried is kept, and the same command goes on from there. Exit status: 1 if no "
        "candidate was right.",
        usage="MINE.cu --space SPACE.json [OPTION ...]",
    ),
    Command(
        "export",
        "write a rung as one CUDA file with a main",
        "Writes one file with the rung's kernel, the headers that it includes, and a main. nvcc "
        "compiles it to a program that checks the kernel against a CPU loop and times it beside "
        "cuBLAS.",
        "vec4 -o vec4.cu",
        _export,
        _export_arguments,
        "Then, on a machine with a GPU:\n  nvcc -O3 -arch=native vec4.cu && ./a.out 4096",
    ),
)
