"""Commands for learners and teachers: learn, grade."""

import argparse
import shlex
import time
from pathlib import Path

from .._catalog import default_device
from .._output import write_text
from ..learning.grade import Grade, as_json, as_page, as_text, grade
from ..learning.judge import judge
from ..learning.level import Level, level_of, levels
from ..learning.report import Judgement, goals, introduction, wrapped
from ..learning.workspace import FOLDER, Workspace, course_around
from .command import WRONG_STATUS, Command, program, refuse_unwritable, show

_LOOK_S = 0.2
"""Polling interval of --watch, in seconds."""
_ACTIONS = ("hint", "reset", "status", "solution")


def _learn_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        choices=_ACTIONS,
        help="show the next hint, start the level again, list all levels, or show a solution; "
        "without it, judge the current level",
    )
    parser.add_argument("--level", metavar="LEVEL", help="a level's number or name")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(FOLDER),
        help=f"your files (default: the course that you are in, otherwise {FOLDER})",
    )
    parser.add_argument("--watch", action="store_true", help="judge at each save, until Ctrl-C")


def _learn(options: argparse.Namespace) -> int:
    if options.watch and options.action is not None:
        raise ValueError(f"--watch judges at each save, and {options.action} does not: leave one")
    chosen = None if options.level is None else level_of(options.level)
    workspace = Workspace(course_around(options.folder))
    new = workspace.open_all()
    if new:
        show(f"Made {len(levels())} levels in {workspace.folder}.\n")
    level = chosen or workspace.progress().current
    if options.action == "status":
        _show_status(workspace)
        return 0
    if level is None:
        show(f"All {len(levels())} levels are passed. --level N judges one of them again.")
        return 0
    if options.action == "hint":
        number, hint = workspace.next_hint(level)
        what = f"hint {number} of {len(level.hints) - 1}"
        what = "the idea of the solution" if number == len(level.hints) else what
        show(f"Level {level.number}, {what}:\n\n{wrapped(hint, '  ')}")
    elif options.action == "reset":
        kept = workspace.reset(level)
        show(f"{workspace.kernel_file(level)} is the start of level {level.number} again.")
        if kept is not None:
            show(f"Your file is kept as {kept}.")
    elif options.action == "solution":
        show(level.solution)
    elif options.watch:
        return _watch(workspace, chosen)
    else:
        passed = _judged(workspace, level)
        following = workspace.progress().current
        if passed and following is not None:
            show("")
            _introduce(workspace, following)
        return 0 if passed else WRONG_STATUS
    return 0


def _judged(workspace: Workspace, level: Level) -> bool:
    """Judges the learner's file. Introduces the level first if the file is still the start."""
    text = workspace.text(level)
    path = workspace.kernel_file(level)
    if text == level.start:
        _introduce(workspace, level)
        show("")
    show(f"Judging {path} ...\n")
    verdict = judge(level, text)
    progress = workspace.pass_level(level) if verdict.passed else workspace.progress()
    show(Judgement(verdict, progress))
    show(f"\n{progress.text}  [{progress.bar(level if not verdict.passed else None)}]")
    if verdict.passed and default_device().kind != "cpu" and not level.sizes.integers:
        show(f"Its time on your GPU: {trial(path, level, verdict.similar)}")
    if not verdict.passed:
        show(f"Edit {path}. For help: {_command(workspace, level, 'hint')}")
    elif progress.current is None:
        show(f"All {len(levels())} levels are passed.")
    return verdict.passed


def _introduce(workspace: Workspace, level: Level) -> None:
    show(introduction(level))
    show(goals(level))
    show(f"\nEdit {workspace.kernel_file(level)}, then run: {_command(workspace, level)}")
    show(f"The drawing: {workspace.kernel_file(level).parent / 'drawing.svg'}")


def trial(path: Path, level: Level, similar: str) -> str:
    """The command that times a learner's kernel beside the ladder's."""
    words = [program(), "try", str(path), "--grid", level.grid, "--block", level.block]
    if level.shared:
        words += ["--shared", str(level.shared)]
    words += ["--tile", f"({', '.join(map(str, level.tile))})"]
    words += ["--multiple-of", str(level.sizes.multiple_of)]
    return shlex.join([*words, "--bench", "4096", "--against", similar])


def _command(workspace: Workspace, level: Level, action: str = "") -> str:
    """The command for this level, as the learner can type it."""
    words = [program(), "learn", *filter(None, [action])]
    if level != workspace.progress().current:
        words += ["--level", str(level.number)]
    if workspace.folder != course_around(Path(FOLDER)):
        words += ["--folder", shlex.quote(str(workspace.folder))]
    return " ".join(words)


def _watch(workspace: Workspace, chosen: Level | None) -> int:
    try:
        while (level := chosen or workspace.progress().current) is not None:
            path = workspace.kernel_file(level)
            before = _saved(path)
            if _judged(workspace, level):
                if chosen is not None:
                    return 0
                show("")
                continue
            show(f"\nWaiting for {path} to be saved. Ctrl-C stops.")
            while _saved(path) in (before, None):
                time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        return WRONG_STATUS  # it waits only for a level that is not passed
    return 0


def _saved(path: Path) -> tuple[int, int] | None:
    """When a file was saved, and its size. None if it is missing or empty, as during a save."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size) if found.st_size else None


def _show_status(workspace: Workspace) -> None:
    progress = workspace.progress()
    for level in levels():
        mark = "x" if level.name in progress.passed else ">" if level == progress.current else " "
        hints = progress.hints.get(level.name, 0)
        note = f"  ({hints} hint{'' if hints == 1 else 's'})" if hints else ""
        show(f"[{mark}] {level.number:>2}  {level.title}{note}")
    show(f"\n{progress.text} passed. Files: {workspace.folder}")


def _grade_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the submissions: .cu files")
    parser.add_argument(
        "--level", metavar="LEVEL", help="the level of all files (default: by their names)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time limit of a submission (default: 60)"
    )
    parser.add_argument(
        "--memory-gb", type=float, default=4.0, help="memory limit of a process (default: 4)"
    )
    parser.add_argument("--json", metavar="JSON", type=Path, help="write the grades to this file")
    parser.add_argument("--html", metavar="HTML", type=Path, help="write the table as a page")


def _grade(options: argparse.Namespace) -> int:
    if not options.folder.is_dir():
        raise ValueError(f"{options.folder} is no folder")
    for path in (options.json, options.html):
        refuse_unwritable(path)
    level = None if options.level is None else level_of(options.level)

    def told(found: Grade) -> None:
        show(f"{'passed ' if found.passed else 'not yet'}  {found.file}")

    grades = grade(
        options.folder,
        level=level,
        seconds=options.seconds,
        memory_bytes=round(options.memory_gb * 2**30),
        told=told,
    )
    show(f"\n{as_text(grades)}")
    if options.json is not None:
        write_text(options.json, as_json(grades))
    if options.html is not None:
        write_text(options.html, as_page(grades))
    return 0


COMMANDS = (
    Command(
        "learn",
        "learn CUDA in levels, judged without a GPU",
        "Makes a folder of levels, and judges the current one. A level is a text, a kernel with a "
        "gap or a mistake, and an exact goal.",
        "--watch",
        _learn,
        _learn_arguments,
        "Exit status: 1 if the level is not passed yet. This command runs the kernel's code on "
        "your machine.",
    ),
    Command(
        "grade",
        "judge a folder of solutions",
        "Judges each .cu file below a folder in its own process, and shows a table. Files are "
        "named like their level, or are in a folder named like it: anna/05_shared_tile.cu, "
        "bert/05_shared_tile/shared_tile.cu.",
        "submissions --html grades.html",
        _grade,
        _grade_arguments,
        "Nearly identical files are marked. This command runs the submitted code with your "
        "rights: for code that you do not trust, use a container.",
    ),
)
