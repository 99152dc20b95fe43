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


def whole(side: int) -> int:
    """The nearest multiple of 4, or from 256 on of 64."""
    step = 4 if side < 256 else 64
    return max(round(side / step), 1) * step


def suite(name: str) -> list[Case]:
    """COUNT shapes (M, N, K), each in one layout; all four come equally often.

    Of shapes drawn so hardly any has aligned lines, as most have that people choose: half of those
    to fit to have whole sides.
    """
    rng = random.Random(SEEDS[name])  # whose numbers are the same in each release of Python
    cases = []
    for index in range(COUNT):
        M, N, K = side(rng), side(rng), side(rng)
        by_four, layout = divmod(index, len(LAYOUTS))
        if name == "fitting" and by_four % 2:
            M, N, K = whole(M), whole(N), whole(K)
        cases.append(((M, N, K), LAYOUTS[layout]))
    return cases
