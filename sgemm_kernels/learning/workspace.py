"""A learner's folder: one subfolder for each level, and the progress."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .._output import write_text
from ..custom.compiler import text_of
from .drawing import svg
from .level import Level, levels

FOLDER = "sgemm-levels"
"""The folder of a learner's files, by default in the current folder."""
_PROGRESS = "progress.json"


@dataclass
class Progress:
    """The passed levels and the hints shown, by the names of the levels."""

    passed: set[str] = field(default_factory=set)
    hints: dict[str, int] = field(default_factory=dict)
    """How many hints were shown."""

    @property
    def current(self) -> Level | None:
        """The first level that is not passed; None after the last."""
        return next((level for level in levels() if level.name not in self.passed), None)

    @property
    def text(self) -> str:
        """'3 of 21'."""
        return f"{len(self.passed)} of {len(levels())}"

    def bar(self, current: Level | None = None) -> str:
        """A character for each level: # passed, > current, . to come."""
        return "".join(
            "#" if level.name in self.passed else ">" if level == current else "."
            for level in levels()
        )


def _page(level: Level) -> str:
    """The level as a page in Markdown."""
    goals = "\n".join(f"- {goal}" for goal in level.goals)
    return (
        f"# {level.number}. {level.title}\n\n{level.text}\n\n![The drawing](drawing.svg)\n\n"
        f"Goal:\n\n{goals}\n\nLaunch: `{level.launch}`. Edit `{level.file}`.\n"
    )


def course_around(folder: Path) -> Path:
    """The course that contains this folder; the folder itself if there is none. If a course is
    inside another, the outer one."""
    inner = folder.absolute()
    for outer in reversed([inner, *inner.parents]):
        if (outer / _PROGRESS).is_file() and (outer / levels()[0].folder).is_dir():
            return folder if outer == inner else Path(os.path.relpath(outer))
    return folder


class Workspace:
    """The folder. ``open`` makes what is missing and never changes a file that exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def kernel_file(self, level: Level) -> Path:
        """The file that the learner edits."""
        return self.folder / level.folder / level.file

    def open(self, level: Level) -> None:
        """Makes the level's subfolder with its text, drawing and start."""
        folder = self.folder / level.folder
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "drawing.svg").exists():
            write_text(folder / "drawing.svg", svg(level))
        if not (folder / "README.md").exists():
            write_text(folder / "README.md", _page(level))
        if not self.kernel_file(level).exists():
            write_text(self.kernel_file(level), level.start)

    def open_all(self) -> bool:
        """Opens all levels. True if the folder is new."""
        new = not (self.folder / _PROGRESS).exists()
        if new and self.folder.exists() and any(self.folder.iterdir()):
            raise FileExistsError(
                f"{self.folder} has other files: name an empty or new folder with --folder"
            )
        for level in levels():
            self.open(level)
        if new:
            self.save(Progress())
        return new

    def reset(self, level: Level) -> Path | None:
        """Puts the start in place of the learner's file. Returns where the old file is kept."""
        path = self.kernel_file(level)
        kept = None
        if path.exists() and text_of(path) != level.start:
            kept = path.with_suffix(".old.cu")
            path.replace(kept)
        write_text(path, level.start)
        progress = self.progress()
        progress.passed.discard(level.name)
        self.save(progress)
        return kept

    def text(self, level: Level) -> str:
        """The learner's kernel. Raises OSError, and ValueError if it is not UTF-8."""
        return text_of(self.kernel_file(level))

    def progress(self) -> Progress:
        """The progress so far. Raises ValueError for a damaged file."""
        path = self.folder / _PROGRESS
        if not path.exists():
            return Progress()
        try:
            found: dict[str, Any] = json.loads(text_of(path))
            hints = {str(name): int(count) for name, count in found["hints"].items()}
            return Progress({str(name) for name in found["passed"]}, hints)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path} is damaged: delete it to start again") from None

    def save(self, progress: Progress) -> None:
        """Writes the progress."""
        order = [level.name for level in levels() if level.name in progress.passed]
        content = {"passed": order, "hints": progress.hints}
        write_text(self.folder / _PROGRESS, json.dumps(content, indent=2) + "\n")

    def pass_level(self, level: Level) -> Progress:
        """Notes that a level is passed."""
        progress = self.progress()
        progress.passed.add(level.name)
        self.save(progress)
        return progress

    def next_hint(self, level: Level) -> tuple[int, str]:
        """The next hint and its number. After the last one, the last one again."""
        progress = self.progress()
        number = min(progress.hints.get(level.name, 0) + 1, len(level.hints))
        progress.hints[level.name] = number
        self.save(progress)
        return number, level.hints[number - 1]
