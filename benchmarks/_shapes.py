"""Shapes drawn at random: some to fit the choice behind `simt` to, others to judge it by."""

from __future__ import annotations

import random

from sgemm_kernels.results import LAYOUTS, Case

LARGEST = 16384
COUNT = 320
SEEDS = {"fitting": "shapes to fit to", "judging": "shapes to judge by"}
"""What each suite is drawn from. They have no shape in common."""


def side(rng: random.Random) -> int:
    """From 1 to LARGEST, each octave as likely as any other."""
    return round(LARGEST ** rng.random())


def suite(name: str) -> list[Case]:
    """COUNT shapes (M, N, K), each in one layout; all four come equally often."""
    rng = random.Random(SEEDS[name])  # whose numbers are the same in each release of Python
    return [((side(rng), side(rng), side(rng)), LAYOUTS[i % len(LAYOUTS)]) for i in range(COUNT)]
