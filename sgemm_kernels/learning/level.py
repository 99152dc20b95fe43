"""Reads the levels: a folder of the package for each, with its text, start, goal and hints."""

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from .._catalog import kernel_file
from .._launches import launches

_FOLDER = re.compile(r"(\d\d)_(\w+)")
_GOAL_KEYS = {
    "start",
    "rung",
    "similar",
    "scattered",
    "before",
    "docs",
    "launch",
    "sizes",
    "counted",
    "limit",
    "drawing",
}
_LAUNCH_KEYS = {"grid", "block", "shared", "tile"}
_SIZES_KEYS = {"M", "N", "K", "multiple_of", "scalars", "integers"}
_LIMIT_KEYS = {"count", "at_most", "at_least", "meaning", "otherwise"}


@dataclass(frozen=True)
class Limit:
    """A limit on an exact count."""

    count: str
    """A name in ``counts.COUNTS``."""
    at_most: str | float | None
    """A number, or an expression of M, N and K. None if the count has a minimum."""
    at_least: str | float | None
    meaning: str
    """Where the number comes from."""
    otherwise: str
    """What a kernel beyond the limit most likely does."""


@dataclass(frozen=True)
class Sizes:
    """The judged products: the range of each size, and whether alpha and beta are drawn, too."""

    ranges: Mapping[str, tuple[int, int]]
    multiple_of: tuple[int, int, int]
    scalars: bool
    integers: bool
    """Whether all values are small integers, which fp16 holds exactly."""


@dataclass(frozen=True)
class Level:
    """One level."""

    number: int
    """From 1."""
    name: str
    title: str
    text: str
    """In Markdown, without the title."""
    start: str
    """The kernel to begin with."""
    solution: str
    hints: tuple[str, ...]
    """In rising detail. The last one is the idea of the solution."""
    grid: str
    block: str
    shared: int
    """Bytes of dynamic shared memory."""
    tile: tuple[str | int, ...]
    """The tile of C that a block computes, and its step along K: numbers, or constants of the
    file."""
    sizes: Sizes
    counted: Mapping[str, tuple[int, int, int]]
    """First, last and step of each size of the product that is counted."""
    limits: tuple[Limit, ...]
    drawing: Mapping[str, Any]
    rung: str
    """The ladder's kernel with the same idea."""
    similar: str
    """The ladder's kernel that is most like the solution."""
    scattered: str | None
    """The one that is most like a kernel with scattered accesses, if the level allows them."""
    before: str | None
    """The kernel without it, for the measured gain."""
    docs: str
    """A page of this package's documentation, below docs/."""

    @property
    def folder(self) -> str:
        """'05_shared_tile'."""
        return f"{self.number:02}_{self.name}"

    @property
    def launch(self) -> str:
        """The launch in words."""
        shared = f", {self.shared} bytes of dynamic shared memory" if self.shared else ""
        return f"grid = {self.grid}, block = {self.block}{shared}"

    @property
    def goals(self) -> list[str]:
        """The things that a kernel must reach, in words."""
        goals = ["right results, no stray access, no race"]
        for limit in self.limits:
            least = limit.at_most is None
            bound = f"at least {limit.at_least}" if least else f"at most {limit.at_most}"
            goals.append(f"{limit.count}: {bound} ({limit.meaning})")
        return goals

    @property
    def file(self) -> str:
        """The name of the kernel's file: the level's, so that messages show which one it is."""
        return f"{self.name}.cu"


@functools.cache
def levels() -> tuple[Level, ...]:
    """All levels in order."""
    folders = resources.files(__package__).joinpath("levels").iterdir()
    named = sorted((each for each in folders if _FOLDER.fullmatch(each.name)), key=lambda f: f.name)
    return tuple(read_level(folder, number) for number, folder in enumerate(named, 1))


def level_of(which: int | str) -> Level:
    """The level with this number or name. Raises ValueError."""
    for level in levels():
        if which in (level.number, level.name, level.folder, str(level.number)):
            return level
    raise ValueError(f"there is no level {which!r}: use a number from 1 to {len(levels())}")


def read_level(folder: Traversable, number: int) -> Level:
    """The level in a folder. Raises ValueError for a goal.toml with an unknown or missing entry."""
    found = _FOLDER.fullmatch(folder.name)
    if found is None:
        raise ValueError(f"{folder.name}: a level's folder is named like 05_shared_tile")

    def text(file: str) -> str:
        return folder.joinpath(file).read_text(encoding="utf-8")

    heading, _, body = text("text.md").partition("\n")
    title = heading.removeprefix("# ").strip()
    hints = re.split(r"^## .*\n", text("hints.md"), flags=re.MULTILINE)[1:]
    try:
        goal = tomllib.loads(text("goal.toml"))
        _refuse_unknown(goal, _GOAL_KEYS)
        launch, sizes = goal["launch"], goal["sizes"]
        _refuse_unknown(launch, _LAUNCH_KEYS)
        _refuse_unknown(sizes, _SIZES_KEYS)
        solution = _solution(folder, goal["rung"])
        start = altered(solution, goal["start"]) if "start" in goal else text("start.cu")
        return Level(
            number=number,
            name=found[2],
            title=title,
            text=body.strip(),
            start=f"// Level {number}: {title}\n// grid = {launch['grid']}, block = "
            f"{launch['block']}; the division rounds up.\n{start}",
            solution=solution,
            hints=tuple(hint.strip() for hint in hints),
            grid=launch["grid"],
            block=launch["block"],
            shared=launch.get("shared", 0),
            tile=tuple(launch["tile"]),
            sizes=Sizes(
                {name: tuple(sizes[name]) for name in "MNK"},
                tuple(sizes.get("multiple_of", (1, 1, 1))),
                sizes.get("scalars", True),
                sizes.get("integers", False),
            ),
            counted={name: _stepped(goal["counted"][name]) for name in "MNK"},
            limits=tuple(_limit(entry) for entry in goal.get("limit", ())),
            drawing=goal["drawing"],
            rung=goal["rung"],
            similar=goal.get("similar", goal["rung"]),
            scattered=goal.get("scattered"),
            before=goal.get("before"),
            docs=goal["docs"],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder.name}/goal.toml: {error!r}") from None


def _solution(folder: Traversable, rung: str) -> str:
    """The text of solution.cu, or of the level's rung where that is the model solution."""
    own = folder.joinpath("solution.cu")
    return (
        own.read_text(encoding="utf-8") if own.is_file() else kernel_file(launches()[rung]["file"])
    )


def altered(text: str, changes: list[list[str]]) -> str:
    """The text with the first string of each change replaced by the second.

    Raises ValueError unless the first one occurs once.
    """
    for old, new in changes:
        if text.count(old) != 1:
            raise ValueError(f"{old!r} occurs {text.count(old)} times, not once, in the solution")
        text = text.replace(old, new)
    return text


def _refuse_unknown(entries: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(entries.keys() - known):
        raise ValueError(f"unknown entry {unknown[0]!r}: use {', '.join(sorted(known))}")


def _stepped(size: int | list[int]) -> tuple[int, int, int]:
    if isinstance(size, int):
        return size, size, 1
    first, last, step = size
    return first, last, step


def _limit(entry: Mapping[str, Any]) -> Limit:
    _refuse_unknown(entry, _LIMIT_KEYS)
    if ("at_most" in entry) == ("at_least" in entry):
        raise ValueError("a limit has one of at_most and at_least")
    return Limit(
        entry["count"],
        entry.get("at_most"),
        entry.get("at_least"),
        entry["meaning"],
        entry.get("otherwise", ""),
    )
