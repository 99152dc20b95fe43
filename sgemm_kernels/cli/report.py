"""A document's tables, written from results: ``python -m sgemm_kernels report``.

A table stands between two comments, and the first one says of what kind it is, and of which files:

    <!-- results: table benchmarks/results/GPU/ladder.json -->
    ...
    <!-- end of results -->

| kind | what it shows |
| :-- | :-- |
| ladder RESULTS#N KERNELS | each variant: its file, idea, and speed at M = N = K = N |
| table RESULTS | one run of ``measure`` or of benchmarks/ladder.py |
| spread RESULTS RESULTS ... | how far the medians of several runs of the same thing lie apart |
| ratios RESULTS SUITE | one variant against cuBLAS, over a suite of shapes in several layouts |
| kinds RESULTS | variants against cuBLAS at random shapes: benchmarks/random_shapes.py |
| counters RESULTS | what the profiler counted of each kernel: benchmarks/traffic.py |
| ablation RESULTS#KEY | the settings of one question: benchmarks/ablations.py |
| calls RESULTS | where the time of whole calls goes: benchmarks/host_cost.py |
| gpus RESULTS | whole calls on all GPUs, and how many times as fast: benchmarks/all_gpus.py |
| clocks RESULTS | cycles and clocks of products: benchmarks/clocks.py |
| recomputing RESULTS | what results computed anew in float32 cost: benchmarks/recomputing.py |
| tuning RESULTS | the best of the tiles that were tried of a rung: benchmarks/tuning.py |

Paths, those of links too, count from the document's folder.
"""

import inspect
import os
import re
from collections.abc import Callable
from pathlib import Path

from .._output import write_text
from .experiment_tables import ablation, calls, clocks, counters, gpus, recomputing, tuning
from .speed_tables import kinds, ladder, ratios, spread, table

_BLOCK = re.compile(
    r"^(?P<head><!-- results: (?P<words>[^>]+?) -->\n).*?^(?P<tail><!-- end of results -->)",
    re.DOTALL | re.MULTILINE,
)
_LINK = re.compile(r"\]\(([^)]+)\)")


def renew(document: Path) -> None:
    """Writes the document's tables anew.

    Raises ValueError where one cannot be made; the document is unchanged then.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{document} is no text in UTF-8") from None

    def block(match: re.Match[str]) -> str:
        body = _block(document.parent, match["words"].split())
        return f"{match['head']}{body}\n{match['tail']}"

    new, count = _BLOCK.subn(block, text)
    if not count:
        raise ValueError(f"{document} has no block '<!-- results: KIND FILE.json -->'")
    write_text(document, new)


def _block(folder: Path, words: list[str]) -> str:
    kind, *files = words
    if kind not in BLOCKS:
        raise ValueError(f"there is no block {kind!r}, only {', '.join(BLOCKS)}")
    wanted = inspect.signature(BLOCKS[kind])
    try:
        wanted.bind(*files)
    except TypeError:
        takes = " ".join(name.upper() for name in wanted.parameters)
        raise ValueError(f"a block is '{kind} {takes}', not {' '.join(words)!r}") from None
    try:
        body = BLOCKS[kind](*(folder / file for file in files))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{' '.join(files)} does not hold what a block {kind!r} shows: {error!r}"
        ) from None
    return _LINK.sub(lambda link: f"]({os.path.relpath(link[1], folder)})", body)


BLOCKS: dict[str, Callable[..., str]] = {
    block.__name__: block
    for block in (ladder, table, spread, ratios, kinds, counters, ablation, calls, gpus,
                  clocks, recomputing, tuning)
}  # fmt: skip
"""The kinds of blocks; each is made of the files that stand behind its name."""
