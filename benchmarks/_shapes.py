"""Random shapes: some to fit the planner to, some to watch while it is developed, some to judge a
release by.
"""

from __future__ import annotations

import functools
import itertools
import math
import random

from sgemm_kernels import __version__
from sgemm_kernels.measuring.shapes import LAYOUTS, Case, Shape

LARGEST = 16384
COUNT = 320
LARGEST_KEPT = 3e11
"""Multiply-adds of a product that the kept fit leaves out, and of larger ones."""
SEEDS = {
    "fitting": "shapes to fit to",
    "close": "hard kinds",
    "more": "more shapes to fit the new kernels to",
    "developing": "shapes to judge by",
    "release": f"shapes of release {__version__}",
}
"""What each suite is drawn from. Published figures come from `release`, which is measured once,
when the kernels of that version are final. A change after that needs a new version."""
CLOSE = (
    ((300, 16384), (300, 16384), (16, 500)),  # large C, short K
    ((12, 260), (1500, 16384), (60, 800)),  # flat C
    ((8, 260), (1000, 16384), (800, 14000)),  # flat C, long K
    ((500, 12000), (300, 3000), (200, 2000)),  # fills a GPU a few times
    ((8, 64), (8, 64), (500, 8000)),  # small C, long K
)
"""Ranges of M, N and K for kinds of shapes where the choice of a plan matters most."""
FLAT = (1, 2)
"""The kinds that swap M and N half of the time."""


def side(rng: random.Random) -> int:
    """A random side from 1 to LARGEST; each octave is equally likely."""
    return round(LARGEST ** rng.random())


def whole(side: int) -> int:
    """The nearest multiple of 4, or from 256 on of 64."""
    step = 4 if side < 256 else 64
    return max(round(side / step), 1) * step


def close() -> list[Case]:
    """COUNT shapes of these kinds, log-uniform, in the four layouts in turn."""
    rng = random.Random(SEEDS["close"])
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
    """COUNT shapes (M, N, K), each in one layout; each layout is equally frequent.

    Few random shapes have aligned rows, but most shapes in practice do. So half of the shapes for
    fitting have rounded sides (see ``whole``). A shape used for fitting is in no other suite.
    """
    rng = random.Random(SEEDS[name])  # the same numbers in each release of Python
    seen = set() if name == "fitting" else fitted()
    cases = []
    for index in range(COUNT):
        by_four, layout = divmod(index, len(LAYOUTS))
        M, N, K = side(rng), side(rng), side(rng)
        while (M, N, K) in seen:
            M, N, K = side(rng), side(rng), side(rng)
        if name == "fitting" and by_four % 2:
            M, N, K = whole(M), whole(N), whole(K)
        cases.append(((M, N, K), LAYOUTS[layout]))
    return cases


def to_fit() -> list[Case]:
    """The suite to fit to and the close ones, alternating."""
    pairs = zip(close(), suite("fitting"), strict=True)
    return list(itertools.chain.from_iterable(pairs))


def more() -> list[Case]:
    """2 * COUNT more shapes, in the four layouts in turn. A third of them have rounded sides."""
    rng = random.Random(SEEDS["more"])
    cases = []
    for index in range(2 * COUNT):
        by_four, layout = divmod(index, len(LAYOUTS))
        M, N, K = side(rng), side(rng), side(rng)
        if by_four % 3 == 2:
            M, N, K = whole(M), whole(N), whole(K)
        cases.append(((M, N, K), LAYOUTS[layout]))
    return cases


def kept() -> list[Case]:
    """The shapes that the package's constants were fitted to, in the order of
    results/h100-80gb-hbm3/plan_fit.npz: those of `more` and `to_fit`, alternating, without the
    largest products. That measurement ended before the last ones."""
    pairs = zip(more(), to_fit(), strict=True)
    cases = itertools.chain.from_iterable(pairs)
    return [(shape, layout) for shape, layout in cases if math.prod(shape) < LARGEST_KEPT]


@functools.cache
def fitted() -> frozenset[Shape]:
    """All shapes that the planner's constants were or will be fitted to."""
    return frozenset(shape for shape, _ in [*more(), *to_fit()])
