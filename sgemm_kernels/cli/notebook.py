"""``%load_ext sgemm_kernels`` and ``%%sgemm``: write a kernel, or solve a level, in a notebook
cell."""

import argparse
import builtins
import shlex
from pathlib import Path
from typing import Any, NoReturn

from ..custom.compiler import NoCompilerError
from ..custom.load import kernel, name_fault, source
from ..explaining.trace import Trace
from ..learning.judge import judge
from ..learning.level import level_of
from ..learning.report import Judgement
from ..learning.workspace import FOLDER, Workspace, course_around
from .plain_options import plain_arguments, plain_keywords
from .trial import TrialOptions, Try, trial_arguments

_MAGIC = "%%sgemm"


class _Parser(argparse.ArgumentParser):
    """A parser that raises ValueError instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}\n{self.format_usage()}")


def load_ipython_extension(ipython: Any) -> None:
    """Called by ``%load_ext sgemm_kernels``: adds the cell magic ``%%sgemm``.

    Parameters
    ----------
    ipython : IPython.core.interactiveshell.InteractiveShell
        The shell to add it to.
    """
    from IPython.core.error import UsageError

    parser = _Parser(prog=_MAGIC, add_help=False)
    parser.add_argument("name", metavar="NAME", help="the kernel's name")
    trial_arguments(parser)
    plain_arguments(parser)
    last: dict[str, Try] = {}

    def sgemm(line: str, cell: str) -> None:
        """Compiles the cell as a kernel, then checks, times and traces it as selected. After
        ``%%sgemm level 5`` the cell is judged as a solution of that level."""
        try:
            words = shlex.split(line)
            if words[:1] == ["level"] and len(words) > 1 and not words[1].startswith("-"):
                _solve(ipython, words[1:], cell)
                return
            options = parser.parse_args(words)
            if fault := name_fault(options.name):
                raise ValueError(f"{fault}: use another kernel name, such as {_MAGIC} mine")
            if not options.name.isidentifier():
                raise ValueError(
                    f"{options.name!r} begins with a digit, which no name in Python does: use "
                    f"another kernel name, such as {_MAGIC} mine"
                )
            if hasattr(builtins, options.name):
                raise ValueError(
                    f"{options.name!r} is a built-in of Python, which the kernel would hide: use "
                    f"another kernel name, such as {_MAGIC} mine"
                )
            selected = TrialOptions.parse(options)
            if not cell.strip():
                if options.like is None:
                    raise ValueError(
                        "the cell is empty: add --like tile2d to fill it with that rung's source"
                    )
                ipython.set_next_input(f"{_MAGIC} {line}\n{source(options.like)}", replace=True)
                print(
                    f"Filled the cell with the source of {options.like}. Edit it and run it again."
                )
                return
            # Notebooks count the line of the magic as line 1.
            own = kernel(
                f"\n{cell}", name=options.name, like=options.like, **plain_keywords(options)
            )
        except (ValueError, NoCompilerError) as error:
            raise UsageError(str(error)) from None
        ipython.push({own.name: own})
        tried = Try(own)
        for part in tried.parts(selected, last.get(own.name)):
            _display(part)
        last[own.name] = tried

    sgemm.__doc__ = f"{sgemm.__doc__}\n\n{parser.format_help()}"
    ipython.register_magic_function(sgemm, "cell", "sgemm")
    if _with_a_body not in ipython.input_transformers_cleanup:
        ipython.input_transformers_cleanup.append(_with_a_body)


def _solve(ipython: Any, words: list[str], cell: str) -> None:
    """Judges the cell as a solution of a level. An empty cell is filled with the level's start.

    ``words`` are the level, and 'hint' or 'solution' to see one. Raises ValueError.
    """
    level = level_of(words[0])
    workspace = Workspace(course_around(Path(FOLDER)))
    workspace.open_all()
    match words[1:]:
        case ["hint"]:
            number, hint = workspace.next_hint(level)
            print(f"Hint {number} of {len(level.hints)}:\n{hint}")
        case ["solution"]:
            print(level.solution)
        case [] if not cell.strip():
            line = f"{_MAGIC} level {words[0]}"
            ipython.set_next_input(f"{line}\n{level.start}", replace=True)
            print(f"Filled the cell with the start of level {level.number}. Edit it and run it.")
        case []:
            verdict = judge(level, f"\n{cell}")  # notebooks count the line of the magic
            done = workspace.pass_level(level) if verdict.passed else workspace.progress()
            _display(Judgement(verdict, done))
        case _:
            raise ValueError(
                f"after the level, {_MAGIC} takes hint, solution or nothing, and not "
                f"{' '.join(words[1:])!r}"
            )


def _with_a_body(lines: list[str]) -> list[str]:
    """Adds an empty line to a cell with only this magic, which IPython would reject."""
    alone = len(lines) == 1 and lines[0].split()[:1] == [_MAGIC]
    return [f"{lines[0].rstrip()}\n", "\n"] if alone else lines


def _display(part: object) -> None:
    import IPython.display

    show: Any = IPython.display.display  # it has no type annotations
    if isinstance(part, Trace):
        try:
            part = part.plot()
        except ImportError as error:
            print(f"{error}. The same data as a table:")
    show(part)
