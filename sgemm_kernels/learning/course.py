"""``sgemm_kernels.learn()``: the levels in a notebook."""

from pathlib import Path

from .level import Level, level_of, levels
from .report import introduction, level_html, progress_html
from .workspace import FOLDER, Progress, Workspace, course_around


class Course:
    """A learner's levels and progress. In a notebook it shows the current level."""

    def __init__(self, workspace: Workspace, level: Level | None) -> None:
        self._workspace = workspace
        self._level = level

    @property
    def progress(self) -> Progress:
        """The levels that are passed, and the hints that were shown."""
        return self._workspace.progress()

    @property
    def level(self) -> Level | None:
        """The level that it shows: the chosen one, or the first that is not passed."""
        return self._level or self.progress.current

    def __repr__(self) -> str:
        level = self.level
        if level is None:
            return f"All {len(levels())} levels are passed."
        return f"{introduction(level)}\n\nProgress: {self.progress.text}"

    def _repr_html_(self) -> str:
        level = self.level
        if level is None:
            return progress_html(self.progress)
        use = f"Begin with a cell that contains only %%sgemm level {level.number}"
        return progress_html(self.progress) + level_html(level, use)


def learn(level: int | str | None = None, *, folder: str | Path = FOLDER) -> Course:
    """Shows a level of the course in a notebook: its text, drawing and goal, and the progress.

    Levels are small exercises, from the first kernel to tensor cores. The CPU device judges them,
    so no GPU is needed. A cell that begins with ``%%sgemm level 5`` is a solution of level 5.
    ``sgemm-kernels learn`` does the same from a shell.

    Parameters
    ----------
    level : int or str, optional
        The number or name of a level. The default is the first that is not passed.
    folder : str or path, optional
        The folder with the learner's files and progress. It is made if it does not exist. If it
        would be inside such a folder, that one is used.

    Returns
    -------
    Course
        Shows the level, in a notebook with its drawing.

    Raises
    ------
    ValueError
        There is no such level.
    FileExistsError
        The folder has other files.
    """
    workspace = Workspace(course_around(Path(folder)))
    chosen = None if level is None else level_of(level)
    workspace.open_all()
    return Course(workspace, chosen)
