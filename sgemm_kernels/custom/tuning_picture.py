"""Draws the result of ``tune``."""

import itertools
from collections.abc import Mapping, Sequence

from .._style import SERIES, Cell, Picture, cells, drawing

Space = Mapping[str, tuple[int, ...]]
"""The values tried of each define."""

Scores = Sequence[tuple[Mapping[str, int], float]]
"""The defines of each right candidate, and its GFLOP/s: the geometric mean over the sizes."""


def draw(kernel: str, note: str, space: Space, scores: Scores, *, dark: bool | None) -> Picture:
    """Draws a table over two defines: each cell is the best candidate with that pair of values. The
    two are those with the largest differences."""
    names = _two(space, scores)
    most = max((score for _, score in scores), default=1.0)
    down, across = space[names[0]], space.get(names[-1], ())
    if len(names) == 1:
        across = ()
    rows = []
    for value in down:
        line = []
        for other in across or (None,):
            chosen = {names[0]: value, **({} if other is None else {names[1]: other})}
            score = _best_with(scores, chosen)
            text = "-" if score is None else f"{score:.4g}"
            strength = 0.0 if score is None else score / most
            line.append(Cell(text, SERIES[0], strength, outlined=score == most))
        rows.append((f"{names[0]} = {value}", line))
    columns = [f"{names[1]} = {value}" for value in across] or ["GFLOP/s"]
    title = f"{kernel}: GFLOP/s, the best of what else was tried"
    height = 2.2 + 0.5 * len(rows)
    with drawing(title, note, dark=dark, height=height) as (picture, theme):
        cells(picture.add_subplot(), rows, columns, theme)
    return picture


def _best_with(scores: Scores, chosen: Mapping[str, int]) -> float | None:
    found = [
        score
        for defines, score in scores
        if all(defines.get(name) == value for name, value in chosen.items())
    ]
    return max(found, default=None)


def _two(space: Space, scores: Scores) -> tuple[str, ...]:
    """The two defines over which the best scores differ most; one if there is only one."""
    names = [name for name, values in space.items() if len(values) > 1] or [*space]
    if len(names) < 2:
        return tuple(names)

    def spread(pair: tuple[str, str]) -> float:
        values = itertools.product(*(space[name] for name in pair))
        best = [_best_with(scores, dict(zip(pair, each, strict=True))) for each in values]
        known = [score for score in best if score is not None]
        return max(known) / min(known) if known else 0.0

    return max(itertools.combinations(names, 2), key=spread)
