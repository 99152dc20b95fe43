"""``%load_ext sgemm_kernels`` and ``%%sgemm``: the cell of a notebook is a kernel."""

import argparse
import shlex
from typing import Any, NoReturn

from ..custom.compiler import NoCompilerError
from ..custom.kernel import kernel, name_fault, source
from ..explaining.trace import Trace
from .trial import Try, Wishes, wishes_arguments

_MAGIC = "%%sgemm"


class _Parser(argparse.ArgumentParser):
    """One that does not end the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}\n{self.format_usage()}")


def load_ipython_extension(ipython: Any) -> None:
    """Called by ``%load_ext sgemm_kernels``: adds the cell magic ``%%sgemm``.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell
        What it is added to.
    """
    from IPython.core.error import UsageError

    parser = _Parser(prog=_MAGIC, add_help=False)
    parser.add_argument("name", metavar="NAME", help="what to call the kernel")
    wishes_arguments(parser)
    last: dict[str, Try] = {}

    def sgemm(line: str, cell: str) -> None:
        """Compiles the cell, and says what was asked for."""
        try:
            options = parser.parse_args(shlex.split(line))
            if fault := name_fault(options.name):
                raise ValueError(f"{fault}: give the kernel another name, as in {_MAGIC} mine")
            wishes = Wishes.of(options)
            if not cell.strip():
                if options.like is None:
                    raise ValueError("the cell is empty: --like tile2d fills it with that rung")
                ipython.set_next_input(f"{_MAGIC} {line}\n{source(options.like)}", replace=True)
                print(f"The cell now holds the text of {options.like}: change it, and run it.")
                return
            # The magic's own line is the first one of the cell, by which a notebook counts.
            own = kernel(f"\n{cell}", name=options.name)
        except (ValueError, NoCompilerError) as error:
            raise UsageError(str(error)) from None
        ipython.push({own.name: own})
        tried = Try(own)
        for part in tried.parts(wishes, last.get(own.name)):
            _display(part)
        last[own.name] = tried

    sgemm.__doc__ = f"{sgemm.__doc__}\n\n{parser.format_help()}"
    ipython.register_magic_function(sgemm, "cell", "sgemm")
    if _with_a_body not in ipython.input_transformers_cleanup:
        ipython.input_transformers_cleanup.append(_with_a_body)


def _with_a_body(lines: list[str]) -> list[str]:
    """Gives a cell that is nothing but this magic an empty line: without, IPython refuses it."""
    alone = len(lines) == 1 and lines[0].split()[:1] == [_MAGIC]
    return [f"{lines[0].rstrip()}\n", "\n"] if alone else lines


def _display(part: object) -> None:
    import IPython.display

    show: Any = IPython.display.display  # which has no types
    if isinstance(part, Trace):
        try:
            part = part.plot()
        except ImportError as error:
            print(f"{error}; the same as a table:")
    show(part)
