"""Shapes drawn at random: some to fit the choice behind `simt` to, others to judge it by."""

from __future__ import annotations

import itertools
import random

from sgemm_kernels.measuring.shapes import LAYOUTS, Case

LARGEST = 16384
COUNT = 320
SEEDS = {"fitting": "shapes to fit to", "judging": "shapes to judge by"}
"""What each suite is drawn from. They have no shape in common."""

CLOSE = (
    ((300, 16384), (300, 16384), (16, 500)),  # a large C of short K,
    ((12, 260), (1500, 16384), (60, 800)),  # a flat one,
    ((8, 260), (1000, 16384), (800, 14000)),  # or of long K,
    ((500, 12000), (300, 3000), (200, 2000)),  # one that fills a GPU a few times,
    ((8, 64), (8, 64), (500, 8000)),  # and a small C of long K
)
"""Between what M, N and K are drawn of kinds of shapes at which a choice of plans matters most."""
FLAT = (1, 2)
"""Of those, the kinds that stand upright half of the time."""


def side(rng: random.Random) -> int:
    """From 1 to LARGEST, each octave as likely as any other."""
    return round(LARGEST ** rng.random())


def whole(side: int) -> int:
    """The nearest multiple of 4, or from 256 on of 64."""
    step = 4 if side < 256 else 64
    return max(round(side / step), 1) * step


def close() -> list[Case]:
    """COUNT shapes of these kinds, log-uniform, in the four layouts by turns."""
    rng = random.Random("hard kinds")
    cases = []
    for index in range(COUNT):
        by_four, layout = divmod(index, len(LAYOUTS))
        kind = by_four % len(CLOSE)
        M, N, K = (round(least * (most / least) ** rng.random()) for least, most in CLOSE[kind])
        if kind in FLAT and rng.random() < 0.5:
            M, N = N, M
        cases.append(((M, N, K), LAYOUTS[layout]))
    return cases


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


def to_fit() -> list[Case]:
    """The suite to fit to and the close ones, by turns."""
    pairs = zip(close(), suite("fitting"), strict=True)
    return list(itertools.chain.from_iterable(pairs))
