"""The command that prints a shell completion script."""

import argparse
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from .._catalog import variants
from .command import Command

SHELLS = ("bash",)
_TAKE_VARIANTS = {"run", "measure", "explain", "tune"}
"""Commands whose positional arguments are variants or files."""
_VARIANT_OPTIONS = {"--like", "--against", "--pair"}
"""Options whose values are variants."""


def command(commands: Callable[[], Iterable[Command]]) -> Command:
    """The completion command, for these commands and itself."""

    def run(_: argparse.Namespace) -> int:
        print(_bash(commands()), end="")
        return 0

    return Command(
        "completion",
        "print a script that completes commands and options",
        "Prints a script for bash. It completes commands, options, names of kernels and files.",
        "bash >> ~/.bashrc",
        run,
        _arguments,
        "For the current shell only:\n  source <(sgemm-kernels completion bash)",
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


class _Recorder(argparse.ArgumentParser):
    """A parser that records its arguments, including those in groups."""

    def __init__(self) -> None:
        self.added: list[argparse.Action] = []
        super().__init__()

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        self.added.append(super().add_argument(*names, **options))
        return self.added[-1]

    def add_mutually_exclusive_group(self, **_: Any) -> Any:
        return self


def arguments_of(command: Command) -> list[argparse.Action]:
    """The arguments of a command, including --help."""
    recorder = _Recorder()
    command.arguments(recorder)
    return recorder.added


def _bash(commands: Iterable[Command]) -> str:
    names = [variant.name for variant in variants()]
    words = {"": ["-h", "--help", "--version"]}
    values = {}
    for command in commands:
        words[""].append(command.name)
        own = list(names) if command.name in _TAKE_VARIANTS else []
        for action in arguments_of(command):
            own += action.option_strings or map(str, action.choices or ())
            for option in action.option_strings:
                if option in _VARIANT_OPTIONS:
                    values[f"{command.name} {option}"] = names
                elif action.choices:
                    values[f"{command.name} {option}"] = list(map(str, action.choices))
        words[command.name] = own
    return _SCRIPT.format(words=_cases(words), values=_cases(values))


def _cases(table: dict[str, list[str]]) -> str:
    return "\n".join(
        f"        {shlex.quote(key)}) words={shlex.quote(' '.join(found))} ;;"
        for key, found in table.items()
    )


_SCRIPT = """\
# Completion of sgemm-kernels for bash, printed by `sgemm-kernels completion bash`.
_sgemm_kernels() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} command= words=
    (( COMP_CWORD > 1 )) && command=${{COMP_WORDS[1]}}
    case $command in
{words}
    esac
    case "$command $last" in
{values}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o bashdefault -o default -F _sgemm_kernels sgemm-kernels
"""
