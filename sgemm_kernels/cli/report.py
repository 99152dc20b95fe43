"""Writes the result tables in documents: ``python -m sgemm_kernels report``.

A table is between two comments. The first one names the kind of table and the files:

    <!-- results: table benchmarks/results/GPU/ladder.json -->
    ...
    <!-- end of results -->

| kind | what it shows |
| :-- | :-- |
| answers FOLDER | a list: a sentence with figures for each question of a newcomer |
| speedup RESULTS#N VARIANT | a sentence: a variant's speed, and its speedup over cuBLAS |
| ladder RESULTS#N CSRC | each variant: its file, idea, and speed at M = N = K = N |
| table RESULTS | one run of ``measure`` or of benchmarks/ladder.py |
| spread RESULTS RESULTS ... | the spread of the medians of several runs of the same thing |
| ratios RESULTS SUITE | one variant against cuBLAS, over a suite of shapes in several layouts |
| peers RESULTS ... | other libraries' speed, error and energy: benchmarks/peers.py |
| grades RESULTS | the grade and the worst error of each way to multiply: benchmarks/grades.py |
| routers RESULTS [BEGIN] | routers and squares against cuBLAS, by rows: benchmarks/routers.py |
| kinds RESULTS | variants against cuBLAS at random shapes: benchmarks/random_shapes.py |
| counters RESULTS | the profiler's counters of each kernel: benchmarks/traffic.py |
| ablation RESULTS#KEY | the settings of one question: benchmarks/ablations.py |
| calls RESULTS | where the time of whole calls goes: benchmarks/host_cost.py |
| queuing RESULTS | host time to queue a call, and products in a row: benchmarks/calls.py |
| models RESULTS | time and error of PyTorch models: benchmarks/models.py |
| average RESULTS | a sentence: the mean speed over these models |
| products RESULTS | products of models against cuBLAS, by model: benchmarks/products.py |
| batches RESULTS | batches of products against torch.bmm, by kind: benchmarks/batched.py |
| same_bits RESULTS | the price of the same bits in every batch: benchmarks/same_bits.py |
| symmetric RESULTS | A @ A.mT against the product with a copy: benchmarks/symmetric.py |
| programs RESULTS | programs under ``sgemm-kernels preload``: benchmarks/programs.py |
| gpus RESULTS | whole calls on all GPUs, and their speedup: benchmarks/all_gpus.py |
| clocks RESULTS | cycles and clocks of products: benchmarks/clocks.py |
| recomputing RESULTS | the cost of recomputing results in fp32: benchmarks/recomputing.py |
| worst RESULTS VARIANT | a sentence: the operands for which a variant takes longest |
| tuning RESULTS | the best tile sizes found for a rung: benchmarks/tuning.py |

Paths, including those in links, are relative to the document's folder. A result or a picture in
another GPU's folder than the first one of ``FOLDERS`` that has it is replaced by that one.
"""

import inspect
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .._output import write_text
from ..measuring.recorded import FOLDERS
from .answers import answers
from .experiment_tables import (
    ablation,
    batches,
    calls,
    clocks,
    counters,
    gpus,
    queuing,
    recomputing,
    tuning,
    worst,
)
from .grade_tables import grades
from .model_tables import average, models
from .product_tables import products
from .program_tables import programs
from .same_bits_tables import same_bits
from .speed_tables import kinds, ladder, peers, ratios, routers, speedup, spread, table
from .symmetric_tables import symmetric

_BLOCK = re.compile(
    r"^(?P<head><!-- results: (?P<words>[^>]+?) -->\n).*?^(?P<tail><!-- end of results -->)",
    re.DOTALL | re.MULTILINE,
)
_RESULT = re.compile(
    rf"(?P<place>(?:[\w.-]+/)*results)/(?:{'|'.join(FOLDERS)})/(?P<file>[\w-]+\.[\w.]*\w)"
)
_LINK = re.compile(r"\]\(([^)]+)\)")


def renew(document: Path) -> None:
    """Updates the document's tables.

    Raises ValueError if a table cannot be made; the document then stays unchanged.
    """
    try:
        text = document.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{document} is not UTF-8 text") from None

    def block(match: re.Match[str]) -> str:
        body = _block(document.parent, match["words"].split())
        return f"{match['head']}{body}\n{match['tail']}"

    new, count = _BLOCK.subn(block, _RESULT.sub(partial(_preferred, document.parent), text))
    if not count:
        raise ValueError(
            f"{document} has no comment '<!-- results: KIND FILE.json -->': add one above each "
            "table"
        )
    write_text(document, new)


def _preferred(here: Path, found: re.Match[str]) -> str:
    """The path of a result, in the first folder that has it."""
    paths = (f"{found['place']}/{folder}/{found['file']}" for folder in FOLDERS)
    return next((path for path in paths if (here / path).exists()), found[0])


def _block(folder: Path, words: list[str]) -> str:
    kind, *files = words
    if kind not in BLOCKS:
        raise ValueError(f"unknown table kind {kind!r}: use one of {', '.join(BLOCKS)}")
    wanted = inspect.signature(BLOCKS[kind])
    try:
        wanted.bind(*files)
    except TypeError:
        takes = " ".join(name.upper() for name in wanted.parameters)
        raise ValueError(
            f"{' '.join(words)!r} has the wrong arguments: write '{kind} {takes}'"
        ) from None
    try:
        body = BLOCKS[kind](*(folder / file for file in files))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{' '.join(files)} lacks data for the table {kind!r}: {error!r}"
        ) from None
    return _LINK.sub(lambda link: f"]({os.path.relpath(link[1], folder)})", body)


BLOCKS: dict[str, Callable[..., str]] = {
    block.__name__: block
    for block in (answers, speedup, ladder, table, spread, ratios, peers, grades, routers, kinds,
                  counters, ablation, calls, gpus, clocks, recomputing, worst, tuning, queuing,
                  average, models, products, batches, programs, same_bits, symmetric)
}  # fmt: skip
"""The kinds of tables. Each function takes the files named after the kind."""
