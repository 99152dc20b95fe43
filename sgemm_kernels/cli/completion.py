"""The command that prints a shell completion script."""

import argparse
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .. import _core
from .._catalog import variants
from ..learning.level import levels
from .command import Command

SHELLS = ("bash", "fish", "zsh")


def command(commands: Callable[[], Iterable[Command]]) -> Command:
    """The completion command, for these commands and itself."""

    def run(options: argparse.Namespace) -> int:
        print(_SCRIPTS[options.shell](list(commands())), end="")
        return 0

    return Command(
        "completion",
        "print a script that completes commands and options",
        "Prints a script for bash, fish or zsh. It completes commands, options, names of kernels "
        "and levels, and files.",
        "bash >> ~/.bashrc",
        run,
        _arguments,
        "For fish:\n  sgemm-kernels completion fish > "
        "~/.config/fish/completions/sgemm-kernels.fish\n\n"
        "For zsh, in a folder of $fpath:\n  sgemm-kernels completion zsh > _sgemm-kernels\n\n"
        "For the current bash only:\n  source <(sgemm-kernels completion bash)",
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


def arguments_of(command: Command) -> list[argparse.Action]:
    """The arguments of a command, those in groups and --help included."""
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    return parser._actions


@dataclass(frozen=True)
class _Argument:
    """An argument, as a shell completes it."""

    options: Sequence[str]
    """Its names. Empty for a positional argument."""
    takes_value: bool
    words: Sequence[str]
    """Its values. If there are none, the shell offers files."""
    help: str


def _argument(action: argparse.Action) -> _Argument:
    helped = (action.help or "").replace("%%", "%")
    return _Argument(action.option_strings, action.nargs != 0, _words(action, helped), helped)


def _words(action: argparse.Action, helped: str) -> list[str]:
    """The possible values, by the argument's choices or its name in the help."""
    if action.choices is not None:
        return list(map(str, action.choices))
    named = action.metavar if isinstance(action.metavar, tuple) else (action.metavar,)
    if {"VARIANT", "RUNG"} & set(named) or "'list'" in helped:
        return [variant.name for variant in variants()]
    if "LEVEL" in named:
        return [level.name for level in levels()]
    if action.dest == "device":
        return ["cpu", _core._GPU_KIND, f"{_core._GPU_KIND}:all"]
    return []


def _table(commands: Sequence[Command]) -> dict[str, list[_Argument]]:
    return {each.name: list(map(_argument, arguments_of(each))) for each in commands}


# ------------------------------------------------------------------ bash and zsh


def _cases(commands: Sequence[Command]) -> dict[str, str]:
    """The two tables of a script, as lines of `case`: what a command takes, and an option's
    values."""
    taken = {"": ["-h", "--help", "--version", *(each.name for each in commands)]}
    values = {}
    for name, arguments in _table(commands).items():
        taken[name] = [word for each in arguments for word in (each.options or each.words)]
        for each in arguments:
            for option in each.options if each.takes_value else ():
                values[f"{name} {option}"] = each.words
    return {"taken": _lines(taken), "values": _lines(values)}


def _lines(table: dict[str, list[str]] | dict[str, Sequence[str]]) -> str:
    return "\n".join(
        f"        {shlex.quote(key)}) found={shlex.quote(' '.join(words))} ;;"
        for key, words in table.items()
    )


def _bash(commands: Sequence[Command]) -> str:
    return _BASH.format(**_cases(commands))


def _zsh(commands: Sequence[Command]) -> str:
    return _ZSH.format(**_cases(commands))


_BASH = """\
# Completion of sgemm-kernels for bash, printed by `sgemm-kernels completion bash`.
_sgemm_kernels() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} command= found=
    (( COMP_CWORD > 1 )) && command=${{COMP_WORDS[1]}}
    case $command in
{taken}
    esac
    case "$command $last" in
{values}
    esac
    COMPREPLY=($(compgen -W "$found" -- "$word"))
}}
complete -o bashdefault -o default -F _sgemm_kernels sgemm-kernels
"""

_ZSH = """\
#compdef sgemm-kernels
# Completion of sgemm-kernels for zsh, printed by `sgemm-kernels completion zsh`.
_sgemm_kernels() {{
    local last=$words[CURRENT-1] command= found=
    (( CURRENT > 2 )) && command=$words[2]
    case $command in
{taken}
    esac
    case "$command $last" in
{values}
    esac
    compadd -- ${{=found}}
    (( CURRENT > 2 )) && _files
}}
if [[ $funcstack[1] == _sgemm-kernels ]]; then
    _sgemm_kernels "$@"
else
    compdef _sgemm_kernels sgemm-kernels
fi
"""


# ------------------------------------------------------------------ fish


def _fish(commands: Sequence[Command]) -> str:
    lines = ["# Completion of sgemm-kernels for fish, printed by `sgemm-kernels completion fish`."]
    first = "__fish_use_subcommand"
    lines += [_fish_line(first, "-s h -l help"), _fish_line(first, "-l version")]
    for each in commands:
        lines.append(_fish_line(first, f"-f -a {_fish_text(each.name)}", each.help))
    for name, arguments in _table(commands).items():
        when = f"__fish_seen_subcommand_from {name}"
        for argument in arguments:
            lines.append(_fish_line(when, _fish_argument(argument), argument.help))
    return "\n".join(line for line in lines if line) + "\n"


def _fish_argument(argument: _Argument) -> str:
    parts = [
        f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
        for option in argument.options
    ]
    if argument.options and argument.takes_value:
        parts.append("-r")
    if argument.words:
        parts.append(f"-a {_fish_text(' '.join(argument.words))}")
    return " ".join(parts)


def _fish_line(when: str, what: str, helped: str = "") -> str:
    """A line of the script; empty for a positional argument that is a file."""
    told = f" -d {_fish_text(helped)}" if helped else ""
    return f"complete -c sgemm-kernels -n {_fish_text(when)} {what}{told}" if what else ""


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_SCRIPTS: dict[str, Callable[[Sequence[Command]], str]] = {
    "bash": _bash,
    "fish": _fish,
    "zsh": _zsh,
}
