"""Targets: limits for the figures of experiments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A limit for a figure of benchmarks/calls.py or batched.py."""

    text: str
    figure: Callable[[Any], float]
    """The figure from what the experiment measured. KeyError or ValueError if not measured."""
    limit: float
    at_least: bool = False

    def line(self, measured: Any) -> list[str]:
        """A table's line: the figure, its target, the measured value, and the verdict."""
        words = f"{'at least' if self.at_least else 'at most'} {self.limit:g}"
        try:
            found = self.figure(measured)
        except (KeyError, ValueError):
            return [self.text, words, "-", "not measured"]
        met = found >= self.limit if self.at_least else found <= self.limit
        return [self.text, words, f"{found:.2f}", "met" if met else "missed"]
