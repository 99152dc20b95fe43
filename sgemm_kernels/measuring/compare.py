"""Two runs of the same variants: which of them is faster, and whether that can be told at all.

Runs of one thing lie further apart than the samples of each of them do: the clock, the power and
the place of the operands differ from run to run. So a change counts only beyond what repeated runs
differ by.
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
"""What is no change, as a share of the old time."""
RUNS_APART = 0.05
"""What two runs of one thing may differ by where no repeated runs tell. On another host a launch
may take longer: there small products differ by more."""
BEYOND = 2
"""The most that a few repeated runs differ by, times this, is what hardly any two differ by."""

_SAME_FACTS = ("device", "kind", "protocol")
"""The facts about two runs that must agree."""


class NotComparableError(ValueError):
    """The two runs measured different things."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one variant at one shape and layout."""

    old: Measurement
    new: Measurement
    apart: float
    """By what share the times of two runs of one thing may differ here."""

    @property
    def change(self) -> float | None:
        """The new median time less the old one, as a share of it; None where one is missing."""
        if self.old.median_s is None or self.new.median_s is None:
            return None
        return self.new.median_s / self.old.median_s - 1

    @property
    def word(self) -> str:
        """'faster' or 'slower' where the intervals of the medians lie apart by more than runs do;
        'same' where the medians differ by no more than LEAST_CHANGE, and all criteria were met;
        'WRONG' where the new result is wrong; else 'unsure'.
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
        """Whether the sampling of either ended before its criteria were met."""
        return bool(self.old.unmet or self.new.unmet)


class Verdicts(tuple[Verdict, ...]):
    """The verdicts on two runs. Prints as a table with a last line that counts them."""

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
    """Says of each variant, shape and layout that both runs measured what became of it.

    Parameters
    ----------
    old, new
        What ``measure`` returned, or ``Results.from_json`` read: best of the same variants, since
        a time may depend on those that take turns with it.
    repeats
        More runs of one thing, by the hash of its sources: of what ``old`` is, or two and more of
        anything else. Twice the most that two of them differ by in the same case is what runs are
        taken to differ by there, and RUNS_APART without any.

    Returns
    -------
    Verdicts
        A tuple of ``Verdict``, which prints as a table.

    Raises
    ------
    NotComparableError
        Where device, protocol or schema differ, or nothing is in both; where no two runs are of one
        thing among the repeats.
    """
    repeats = list(repeats)
    for other in (new, *repeats):
        _refuse_incomparable(old, other)
    apart = _apart([old, *repeats]) if repeats else {}
    if repeats and not apart:
        raise NotComparableError(
            "not comparable: no two of the repeated runs are of the same sources (csrc_hash), or "
            "of the old run's, at a shape of theirs"
        )
    usual = max(apart.values(), default=RUNS_APART / BEYOND)
    pairs = ((old.find(row.variant, *row.case), row) for row in new.rows)
    verdicts = Verdicts(
        Verdict(before, row, max(BEYOND * apart.get(row.case, usual), LEAST_CHANGE))
        for before, row in pairs
        if before is not None
    )
    if not verdicts:
        raise NotComparableError("not comparable: no variant was measured at one shape in both")
    return verdicts


def _refuse_incomparable(old: Results, new: Results) -> None:
    for fact in _SAME_FACTS:
        before, after = getattr(old.run, fact), getattr(new.run, fact)
        if before != after:
            raise NotComparableError(f"not comparable: {fact} {before} and {after}")
    if old.schema != new.schema and not {old.schema, new.schema} <= SAME_TIMES:
        raise NotComparableError(f"not comparable: schema {old.schema} and {new.schema}")


def _apart(runs: list[Results]) -> dict[Case, float]:
    """By shape and layout, the most that the medians of one variant differ by between two runs of
    the same sources, as a share. All variants tell: what sets runs apart is common to them."""
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
