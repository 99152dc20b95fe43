"""Experiment 16: are there faster tile sizes than the ladder's?

``python benchmarks/tuning.py`` runs `tune` on the tiles of two rungs at 4096 on this machine's
GPU: each candidate is compiled, checked and timed. Needs nvcc or NVRTC. Writes a JSON file for
each rung with ``Tuning.to_json``, and prints the fastest candidates.
"""

from __future__ import annotations

import dataclasses
import sys

from _results import CLONE, output_argument

from sgemm_kernels import Error, Tuning, tune
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.sources import sources_hash

SPACES = {
    "tile2d": {"BM": (64, 128), "BN": (64, 128), "BK": (8, 16), "TM": (4, 8), "TN": (4, 8)},
    "warptile": {"BM": (64, 128), "BN": (128, 256), "BK": (8, 16), "WM": (32, 64), "WN": (32, 64),
                 "TN": (8, 16)},
}  # fmt: skip
SIZE = 4096
SECONDS = 0.2


def lines(found: Tuning) -> str:
    """The table of the fastest tile sizes, and the time of the ladder's relative to the fastest."""
    own, best = found.find(), found.best
    if own is None or best is None or not own.seconds:
        return f"{found}\nThe ladder's tile sizes were not timed."
    longer = own.seconds[0] / best.seconds[0]
    return f"{found}\nThe ladder's tile sizes, {own.text}, take {longer:.3f} times as long."


def main() -> int:
    """Searches, writes and prints. Returns 1 if the ladder's sizes were wrong, 2 on an error."""
    path = output_argument(__doc__.splitlines()[0], "tuning").parse_args().output
    status = 0
    for rung, space in SPACES.items():
        try:
            gpu = find_gpu("tile sizes are searched")
            found = tune(rung, space, SIZE, device=gpu.name, seconds=SECONDS)
            own_hash = sources_hash(f"tuning-{rung}", CLONE)
            found = dataclasses.replace(found, sources_hash=own_hash)
        except (Error, OSError) as error:
            print(f"{path.name}: {error}", file=sys.stderr)
            return 2
        path.parent.mkdir(parents=True, exist_ok=True)
        found.to_json(path.with_stem(f"{path.stem}-{rung}"))
        own = found.find()
        status = status if own is not None and own.verdict == "right" else 1
        print(lines(found))
    return status


if __name__ == "__main__":
    sys.exit(main())
