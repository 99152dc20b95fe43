"""Two runs of the same variants: which of them is faster, and whether that can be told at all."""

from dataclasses import dataclass

from ._table import table
from .results import Measurement, Results, size_text

FASTER, SLOWER, SAME, UNSURE, WRONG = "faster", "slower", "same", "unsure", "WRONG"

_DIFFERENT = 0.01
"""Medians that differ by more than this share are different, if the quartile boxes are apart."""
_NOISY = 0.02
"""Medians are the same only where neither interquartile range is beyond this share of them."""

_SAME = ("device", "kind", "protocol")
"""The facts about two runs that must agree."""


class NotComparableError(ValueError):
    """The two runs measured different things."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one variant at one shape."""

    old: Measurement
    new: Measurement

    @property
    def word(self) -> str:
        """faster, slower, same, unsure, or WRONG where the new result is wrong."""
        if not self.new.error.right:
            return WRONG
        old, new = self.old, self.new
        if old.median_s is None or new.median_s is None:
            return UNSURE
        old_box, new_box = old.quartiles_s, new.quartiles_s
        assert old_box
        assert new_box
        change = abs(new.median_s - old.median_s) / old.median_s
        if change > _DIFFERENT:
            if new_box[1] < old_box[0]:
                return FASTER
            return SLOWER if new_box[0] > old_box[1] else UNSURE
        quiet = all(_relative_iqr(row) < _NOISY for row in (old, new))
        return SAME if quiet else UNSURE


def judge(old: Results, new: Results) -> list[Verdict]:
    """A verdict for each variant, shape and layout that both runs measured.

    Raises NotComparableError where device, protocol or schema differ, or nothing is in both.
    """
    facts = [(fact, getattr(old.run, fact), getattr(new.run, fact)) for fact in _SAME]
    for fact, before, after in [*facts, ("schema", old.schema, new.schema)]:
        if before != after:
            raise NotComparableError(f"not comparable: {fact} {before} and {after}")
    pairs = ((old.find(row.variant, *row.case), row) for row in new.rows)
    verdicts = [Verdict(before, row) for before, row in pairs if before is not None]
    if not verdicts:
        raise NotComparableError("not comparable: no variant was measured at one shape in both")
    return verdicts


def describe(verdicts: list[Verdict]) -> str:
    """A table with a line for each verdict, and a last line that counts them."""
    lines = [
        [
            v.new.variant,
            size_text(*v.new.case),
            _figures(v.old),
            _figures(v.new),
            _change(v),
            v.word,
        ]
        for v in verdicts
    ]
    words = [v.word for v in verdicts]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    header = ("variant", "size", "old", "new", "time", "verdict")
    return f"{table(header, lines)}\n{counts}"


def _relative_iqr(row: Measurement) -> float:
    assert row.iqr_s is not None
    assert row.median_s is not None
    return row.iqr_s / row.median_s


def _figures(row: Measurement) -> str:
    if row.median_s is None:
        return "not timed"
    return f"{row.median_s:.4g} s, IQR {_relative_iqr(row):.1%}"


def _change(verdict: Verdict) -> str:
    old, new = verdict.old.median_s, verdict.new.median_s
    return "-" if old is None or new is None else f"{new / old - 1:+.1%}"
