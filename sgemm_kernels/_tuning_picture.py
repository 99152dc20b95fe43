"""Draws what a search for the best defines has found."""

import itertools
import math
from typing import TYPE_CHECKING

from ._style import SERIES, Cell, Picture, cells, drawing

if TYPE_CHECKING:
    from .tuning import Candidate, Tuning


def draw(tuning: "Tuning", *, dark: bool) -> Picture:
    """For each pair of values of two defines the best that any others gave: those two over which
    times differ most."""
    names = _two(tuning)
    best = {c.text: _score(tuning, c) for c in tuning.ranked}
    most = max(best.values(), default=1.0)
    down, across = tuning.space[names[0]], tuning.space.get(names[-1], ())
    if len(names) == 1:
        across = ()
    rows = []
    for value in down:
        line = []
        for other in across or (None,):
            chosen = {names[0]: value, **({} if other is None else {names[1]: other})}
            score = _best_with(tuning, chosen)
            text = "-" if score is None else f"{score:.4g}"
            strength = 0.0 if score is None else score / most
            line.append(Cell(text, SERIES[0], strength, outlined=score == most))
        rows.append((f"{names[0]} = {value}", line))
    columns = [f"{names[1]} = {value}" for value in across] or ["GFLOP/s"]
    title = f"{tuning.kernel}: GFLOP/s, the best of what else was tried"
    note = f"{tuning.device}; " + "; ".join(tuning.summary())
    height = 2.2 + 0.5 * len(rows)
    with drawing(title, note, dark=dark, height=height) as (picture, theme):
        cells(picture.add_subplot(), rows, columns, theme)
    return picture


def _score(tuning: "Tuning", candidate: "Candidate") -> float:
    """The geometric mean over the sizes."""
    rates = tuning.gflops(candidate)
    return math.exp(sum(map(math.log, rates)) / len(rates))


def _best_with(tuning: "Tuning", chosen: dict[str, int]) -> float | None:
    scores = [
        _score(tuning, c)
        for c in tuning.ranked
        if all(c.defines.get(name) == value for name, value in chosen.items())
    ]
    return max(scores, default=None)


def _two(tuning: "Tuning") -> tuple[str, ...]:
    """The two defines whose best values differ most; one if there is no other."""
    names = [name for name, values in tuning.space.items() if len(values) > 1] or [*tuning.space]
    if len(names) < 2:
        return tuple(names)

    def spread(pair: tuple[str, str]) -> float:
        values = itertools.product(*(tuning.space[name] for name in pair))
        scores = [_best_with(tuning, dict(zip(pair, each, strict=True))) for each in values]
        known = [score for score in scores if score is not None]
        return max(known) / min(known) if known else 0.0

    return max(itertools.combinations(names, 2), key=spread)
