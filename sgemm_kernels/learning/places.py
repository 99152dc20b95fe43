"""Names the threads of a report by their place in the block, as a learner computes it."""

import ast
import re
from dataclasses import replace

from ..custom.diagnosis import Finding

_THREADS = re.compile(r"\b(threads? )(\d+(?:(?:, | and | to )\d+)*)")


def by_place(finding: Finding, block: str) -> Finding:
    """The finding with (threadIdx.x, threadIdx.y) in place of a thread's number, if the block has
    two dimensions. ``block`` is the level's expression, such as ``(16, 16)``."""
    try:
        size = ast.literal_eval(block)
    except ValueError:  # it has constants of the file
        return finding
    if not isinstance(size, tuple):
        return finding

    def place(number: re.Match[str]) -> str:
        y, x = divmod(int(number[0]), size[0])
        return f"({x}, {y})"

    def places(found: re.Match[str]) -> str:
        return found[1] + re.sub(r"\d+", place, found[2])

    return replace(finding, text=_THREADS.sub(places, finding.text))
