"""Grades many submissions, each in its own process with limits on time and memory."""

import difflib
import html
import itertools
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .._core import Error
from .._table import table
from ..custom.child_process import run_limited
from ..custom.compiler import text_of
from .judge import judge
from .level import Level, level_of, levels
from .report import finding_line

NEAR = 0.95
"""Submissions for one level whose own parts are at least this similar are marked."""
FEWEST = 30
"""The fewest tokens of an own part. Shorter ones are alike by necessity."""
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|\S")
_KEPT_NAMES = {
    *("if", "else", "for", "while", "return", "float", "int", "unsigned", "const", "float4"),
    *("threadIdx", "blockIdx", "blockDim", "__shared__", "__syncthreads", "x", "y", "z"),
    *("A", "B", "C", "M", "N", "K", "alpha", "beta"),
}


@dataclass(frozen=True)
class Grade:
    """The result of one submission."""

    file: str
    """Its path below the graded folder."""
    level: int | None
    passed: bool
    verdict: str
    """'passed', or the first mistake."""
    counts: dict[str, float]
    similar: tuple[str, ...] = ()
    """Other files for this level that are nearly the same."""


def submissions(folder: Path, level: Level | None) -> list[tuple[Path, Level | None]]:
    """The .cu files below a folder with their levels: the given one, or the one that a file's or
    folder's name contains, such as shared_tile.cu or 05_shared_tile. Raises ValueError if there
    are no files."""
    files = [
        path
        for path in sorted(folder.rglob("*.cu"))
        if path.is_file() and not path.name.endswith(".old.cu")
    ]
    if not files:
        raise ValueError(f"{folder} has no .cu files")
    return [(path, level or _level_by_name(path.relative_to(folder))) for path in files]


def _level_by_name(path: Path) -> Level | None:
    for part in reversed(path.parts):
        for level in levels():
            if part.removesuffix(".cu") in (level.name, level.folder):
                return level
    return None


def grade(
    folder: Path,
    *,
    level: Level | None = None,
    seconds: float = 60.0,
    memory_bytes: int = 4 << 30,
    told: Callable[[Grade], None] = lambda _: None,
) -> list[Grade]:
    """Grades all files. Calls ``told`` with each grade as soon as it is known."""
    grades: list[Grade] = []
    texts: list[str] = []
    for path, own in submissions(folder, level):
        name = str(path.relative_to(folder))
        found = _grade_file(path, name, own, seconds, memory_bytes)
        told(found)
        grades.append(found)
        try:
            texts.append(text_of(path))
        except (OSError, ValueError):
            texts.append("")
    return _with_similar(grades, texts)


def _grade_file(
    path: Path, name: str, level: Level | None, seconds: float, memory_bytes: int
) -> Grade:
    if level is None:
        return Grade(name, None, False, "no level has this name: pass --level", {})
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "grade.json"
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import judge_file; "
        code += f"judge_file({str(path)!r}, {level.number}, {str(answer)!r}, {memory_bytes})"
        try:
            done = run_limited([sys.executable, "-c", code], seconds)
        except subprocess.TimeoutExpired:
            text = f"not done after {seconds:g} s"
            return Grade(name, level.number, False, text, {})
        try:
            found = json.loads(answer.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            text = f"its process ended with status {done.returncode} {' '.join(last)}".strip()
            return Grade(name, level.number, False, text, {})
    return Grade(name, level.number, found["passed"], found["verdict"], found["counts"])


def judge_file(path: str, number: int, answer: str, memory_bytes: int) -> None:
    """Runs in a process of its own: judges a file, and writes the result to ``answer``. Its
    children, which run the kernel, have the same limit on memory."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    os.nice(5)
    try:
        verdict = judge(level_of(number), text_of(Path(path)))
        text = "passed" if verdict.passed else finding_line(verdict.findings[0])
        counts = {result.limit.count: result.value for result in verdict.results}
        found = {"passed": verdict.passed, "verdict": text, "counts": counts}
    except (Error, OSError, ValueError, MemoryError) as error:
        found = {"passed": False, "verdict": str(error), "counts": {}}
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


# ------------------------------------------------------------------ near-identical submissions


def tokens(text: str) -> list[str]:
    """The tokens of a source without comments. All names of its own are alike, so that renaming
    changes nothing."""
    found = _TOKEN.findall(_COMMENT.sub(" ", text))
    return ["name" if token[0].isalpha() and token not in _KEPT_NAMES else token for token in found]


def own_part(found: Sequence[str], start: Sequence[str]) -> list[str]:
    """The tokens that are not in the level's start."""
    matcher = difflib.SequenceMatcher(None, start, found, autojunk=False)
    return [
        token
        for kind, _, _, first, last in matcher.get_opcodes()
        if kind in ("replace", "insert")
        for token in found[first:last]
    ]


def similarity(one: Sequence[str], other: Sequence[str]) -> float:
    """The share of tokens that two sources have in common, in order."""
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    if matcher.real_quick_ratio() < NEAR or matcher.quick_ratio() < NEAR:
        return 0.0
    return matcher.ratio()


def _with_similar(grades: list[Grade], texts: list[str]) -> list[Grade]:
    starts = {level.number: tokens(level.start) for level in levels()}
    every = [
        own_part(tokens(t), starts.get(g.level or 0, []))
        for g, t in zip(grades, texts, strict=True)
    ]
    near: dict[int, list[str]] = {}
    for one, other in itertools.combinations(range(len(grades)), 2):
        number = grades[one].level
        if number is None or number != grades[other].level:
            continue
        if min(len(every[one]), len(every[other])) < FEWEST:
            continue
        if similarity(every[one], every[other]) >= NEAR:
            near.setdefault(one, []).append(grades[other].file)
            near.setdefault(other, []).append(grades[one].file)
    return [
        Grade(g.file, g.level, g.passed, g.verdict, g.counts, tuple(near.get(index, ())))
        for index, g in enumerate(grades)
    ]


# ------------------------------------------------------------------ tables

_HEADER = ("file", "level", "result", "nearly the same as", "verdict")


def _row(grade: Grade) -> tuple[str, ...]:
    level = "-" if grade.level is None else str(grade.level)
    result = "passed" if grade.passed else "not yet"
    verdict = "" if grade.passed else grade.verdict
    return grade.file, level, result, ", ".join(grade.similar), verdict


def as_text(grades: Sequence[Grade]) -> str:
    """A table for a terminal."""
    rows = [(*row[:-1], row[-1][:100]) for row in map(_row, grades)]
    return table(_HEADER, rows)


def as_json(grades: Sequence[Grade]) -> str:
    """All grades, as JSON."""
    return json.dumps([asdict(grade) for grade in grades], indent=2) + "\n"


def as_page(grades: Sequence[Grade]) -> str:
    """All grades as an HTML page."""
    passed = sum(grade.passed for grade in grades)
    lines = []
    for grade in grades:
        cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in _row(grade))
        kind = "passed" if grade.passed else "wrong"
        kind += " similar" if grade.similar else ""
        lines.append(f'<tr class="{kind}">{cells}</tr>')
    head = "".join(f"<th>{cell}</th>" for cell in _HEADER)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Grades</title>
<meta name="viewport" content="width=device-width">
<style>
:root {{ color-scheme: light dark }}
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em }}
table {{ border-collapse: collapse; width: 100% }}
th, td {{ text-align: left; vertical-align: top; padding: .35em .7em }}
th, td {{ border-bottom: 1px solid #8886 }}
.passed td:nth-child(3) {{ color: #1a7f37; font-weight: 600 }}
.wrong td:nth-child(3) {{ color: #d1242f; font-weight: 600 }}
.similar td:nth-child(4) {{ background: #bf870033 }}
</style></head><body>
<h1>Grades</h1>
<p>{passed} of {len(grades)} submissions passed.</p>
<table><thead><tr>{head}</tr></thead><tbody>
{chr(10).join(lines)}
</tbody></table>
</body></html>
"""
