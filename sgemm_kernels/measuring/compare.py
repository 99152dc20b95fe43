"""Compares two runs of the same variants and tells whether a difference is significant.

Runs of the same code differ more than the samples within a run: clock, power and operand addresses
change from run to run. A change therefore counts only if it exceeds the variation between runs.
"""

import itertools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from .._table import as_html, table
from .measurement import UNMET, UNMET_NOTE, Measurement
from .results import Results
from .results_file import SAME_TIMES
from .shapes import Case, size_text

FASTER, SLOWER, SAME, UNSURE, WRONG = "faster", "slower", "same", "unsure", "WRONG"

LEAST_CHANGE = 0.01
"""Changes below this share of the old time count as none."""
RUNS_APART = 0.05
"""Assumed variation between two runs if there are no repeated runs. On another host, launches may
take longer; small products then vary more."""
BEYOND = 2
"""Hardly any two runs differ by more than this factor times the maximum over a few repeated
runs."""

_SAME_FACTS = ("device", "kind", "protocol")
"""The facts that must be equal in both runs."""


class NotComparableError(ValueError):
    """The two runs measured different things."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparison of one variant at one shape and layout."""

    old: Measurement
    new: Measurement
    apart: float
    """Variation between runs of the same code in this case, as a share of the time."""

    @property
    def change(self) -> float | None:
        """(new - old) / old, for the median times; None if one is missing."""
        if self.old.median_s is None or self.new.median_s is None:
            return None
        return self.new.median_s / self.old.median_s - 1

    @property
    def word(self) -> str:
        """'faster' or 'slower' if the intervals of the medians differ by more than runs vary;
        'same' if the medians differ by at most LEAST_CHANGE and all sampling criteria were met;
        'WRONG' if the new result is wrong; otherwise 'unsure'.
        """
        if not self.new.error.right:
            return WRONG
        old, new, change = self.old.interval_s, self.new.interval_s, self.change
        if old is None or new is None or change is None:
            return UNSURE
        if new[1] < old[0] * (1 - self.apart):
            return FASTER
        if new[0] > old[1] * (1 + self.apart):
            return SLOWER
        return SAME if abs(change) <= LEAST_CHANGE and not self.unmet else UNSURE

    @property
    def unmet(self) -> bool:
        """True if sampling ended before its criteria were met, in either run."""
        return bool(self.old.unmet or self.new.unmet)


class Verdicts(tuple[Verdict, ...]):
    """The verdicts on two runs. Prints as a table with their counts in the last line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{table(*self._cells())}\n{self._notes()}"

    def _repr_html_(self) -> str:
        return as_html("", *self._cells(), self._notes())

    def _notes(self) -> str:
        marks = f"{UNMET_NOTE}\n" if any(v.unmet for v in self) else ""
        words = [verdict.word for verdict in self]
        return marks + ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))

    def _cells(self) -> tuple[tuple[str, ...], list[list[str]]]:
        header = ("variant", "size", "old, ms", "new, ms", "time", "runs differ by", "verdict")
        lines = [
            [
                v.new.variant,
                size_text(*v.new.case),
                *(_figure(row) for row in (v.old, v.new)),
                "-" if v.change is None else f"{v.change:+.1%}{UNMET if v.unmet else ''}",
                f"{v.apart:.1%}",
                v.word,
            ]
            for v in self
        ]
        return header, lines


def judge(old: Results, new: Results, *, repeats: Iterable[Results] = ()) -> Verdicts:
    """Compares two runs: for each variant, shape and layout in both, tells which one is faster.

    Parameters
    ----------
    old, new
        Results of ``measure`` or ``Results.from_json``. Both should have the same variants, because
        a time can depend on the variants that are timed in turn with it.
    repeats
        More runs of the same code: either as ``old`` (by the hash of its sources), or at least two
        of other code. The assumed variation between runs is twice the largest difference between
        two of them in the same case. Without repeats it is RUNS_APART. Give several: a
        single repeat shows too little of the variation.

    Returns
    -------
    Verdicts
        A tuple of ``Verdict`` that prints as a table.

    Raises
    ------
    NotComparableError
        If device, protocol or schema differ, if the runs have nothing in common, or if no two of
        the repeats are of the same code.
    """
    repeats = list(repeats)
    for other in (new, *repeats):
        _refuse_incomparable(old, other)
    apart = _apart([old, *repeats]) if repeats else {}
    if repeats and not apart:
        raise NotComparableError(
            "not comparable: no two of the repeated runs have the same sources (csrc_hash) and a "
            "shape in common, and none has the sources of the old run"
        )
    usual = max(apart.values(), default=RUNS_APART / BEYOND)
    pairs = ((old.find(row.variant, *row.case), row) for row in new.rows)
    verdicts = Verdicts(
        Verdict(before, row, max(BEYOND * apart.get(row.case, usual), LEAST_CHANGE))
        for before, row in pairs
        if before is not None
    )
    if not verdicts:
        raise NotComparableError("not comparable: the runs have no variant and shape in common")
    return verdicts


def _refuse_incomparable(old: Results, new: Results) -> None:
    for fact in _SAME_FACTS:
        before, after = getattr(old.run, fact), getattr(new.run, fact)
        if before != after:
            raise NotComparableError(f"not comparable: different {fact}, {before} and {after}")
    if old.schema != new.schema and not {old.schema, new.schema} <= SAME_TIMES:
        raise NotComparableError(f"not comparable: different schema, {old.schema} and {new.schema}")


def _apart(runs: list[Results]) -> dict[Case, float]:
    """For each shape and layout, the largest relative difference between the medians of one variant
    in two runs of the same sources. Uses all variants, because the causes affect all of them."""
    alike: dict[str, list[Results]] = defaultdict(list)
    for run in runs:
        alike[run.run.csrc_hash].append(run)
    found: dict[Case, float] = {}
    for group in alike.values():
        for one, other in itertools.combinations(group, 2):
            for row in one.rows:
                again = other.find(row.variant, *row.case)
                if row.median_s and again is not None and again.median_s:
                    ratio = again.median_s / row.median_s
                    difference = max(ratio, 1 / ratio) - 1
                    found[row.case] = max(found.get(row.case, 0.0), difference)
    return found


def _figure(row: Measurement) -> str:
    return "not timed" if row.median_s is None else row.marked(1e3 * row.median_s)
