"""The command line: ``sgemm-kernels COMMAND``, or ``python -m sgemm_kernels COMMAND``.

Each module of ``cli`` lists its commands, of class ``Command``, in ``COMMANDS``.
"""

import argparse
import os
import sys

from ._core import Error
from ._table import printable
from ._version import __version__
from .cli import c_library, completion, custom_kernels, explain, learn, measurements, products
from .cli.command import BROKEN_PIPE_STATUS, INTERRUPTED_STATUS, REFUSED_STATUS, Command, program

COMMANDS: tuple[Command, ...] = (
    *products.COMMANDS,
    *measurements.COMMANDS,
    *explain.COMMANDS,
    *custom_kernels.COMMANDS,
    *c_library.COMMANDS,
    *learn.COMMANDS,
    completion.command(lambda: COMMANDS),
)


def main(arguments: list[str] | None = None) -> int:
    """Runs one command and returns its exit status.

    0: success. 1: a check failed, or a kernel is slower or wrong. 2: the command could not run. 3:
    with ``--fail-on-unsure``, the comparison has no clear result. 130: interrupted. 141: the reader
    of the output closed the pipe.
    """
    if sys.stdout is None:  # stdout is closed
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # replace characters the terminal lacks
            stream.reconfigure(errors="replace")
    options = make_parser().parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # Python flushes stdout again at exit, which would print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE_STATUS
    except (Error, OSError, ValueError, TypeError, MemoryError, ImportError) as error:
        said = str(error)
        if isinstance(error, OSError) and error.filename:
            said = f"{error.filename}: {error.strerror}"
        print(printable(f"{program()}: {said}"), file=sys.stderr)
        return REFUSED_STATUS
    except KeyboardInterrupt:
        print(f"{program()}: interrupted", file=sys.stderr)
        return INTERRUPTED_STATUS


class _Help(argparse.HelpFormatter):
    """Wraps paragraphs but leaves indented lines, such as commands, unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(
            part if "\n  " in part else super(_Help, self)._fill_text(part, width, indent)
            for part in paragraphs
        )


def make_parser() -> argparse.ArgumentParser:
    """Builds the command-line parser."""
    about = "Run, check, measure and explain the kernels of the SGEMM ladder."
    parser = argparse.ArgumentParser(
        prog=program(), description=about, epilog=f"{program()} COMMAND --help shows an example."
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        own = commands.add_parser(
            command.name,
            help=command.help,
            description=command.description,
            formatter_class=_Help,
        )
        own.usage = command.usage and f"{program()} {command.name} {command.usage}"
        example = f"Example:\n  {program()} {command.name} {command.example}".rstrip()
        own.epilog = "\n\n".join([*filter(None, [command.epilog]), example])
        command.arguments(own)
        own.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
