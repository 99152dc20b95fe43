"""A document's tables and pictures, written from results: ``python -m sgemm_kernels report``.

A block stands between two comments, and the first one says what it shows and of which results:

    <!-- results: table benchmarks/results/h100.json -->
    ...
    <!-- end of results -->

``table`` is the table of one run, ``spread`` says how far the medians of several runs of the same
thing lie apart, ``counters`` shows what the profiler counted of each kernel (in a file of
benchmarks/traffic.py, at its largest size), and the kinds of ``plotting`` are pictures, light and
dark, written beside the first file. A word with '=' is an option of the picture:
pair=vec4,cublas size=4096 traffic=benchmarks/results/traffic.json. ``ratios`` shows one variant
against cuBLAS over a suite of shapes: variant=auto suite=benchmarks/shapes.json. Paths count from
the document's folder.
"""

import itertools
import json
import math
import os
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .plotting import common_shape, plot, read_traffic
from .results import KINDS, Case, Comparison, Shape, size_text

_BLOCK = re.compile(
    r"^(?P<head><!-- results: (?P<words>[^>]+?) -->\n).*?^(?P<tail><!-- end of results -->)",
    re.DOTALL | re.MULTILINE,
)


def renew(document: Path) -> list[Path]:
    """Writes the document's blocks and pictures anew; returns the files written.

    Raises ValueError where a block cannot be made; the document is unchanged then.
    """
    text = document.read_text(encoding="utf-8")
    written = [document]

    def block(match: re.Match[str]) -> str:
        body = _block(document.parent, match["words"].split(), written)
        return f"{match['head']}{body}\n{match['tail']}"

    new, count = _BLOCK.subn(block, text)
    if not count:
        raise ValueError(f"{document} has no block '<!-- results: KIND FILE.json -->'")
    document.write_text(new, encoding="utf-8")
    return written


def _block(folder: Path, words: list[str], written: list[Path]) -> str:
    kind, *rest = words
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    files = [folder / word for word in rest if "=" not in word]
    if not files:
        raise ValueError(f"the block {' '.join(words)!r} names no results")
    if kind == "counters":
        return counters(files[0])
    runs = [Comparison.from_json(file) for file in files]
    if kind == "table":
        return f"{runs[0].to_markdown()}\n\n{runs[0].run.describe()}."
    if kind == "ratios":
        if options.keys() != {"variant", "suite"}:
            raise ValueError("a block of ratios takes variant=NAME and suite=SHAPES.json")
        header, lines = ratios(runs[0], options["variant"], read_suite(folder / options["suite"]))
        return f"{_markdown(header, lines)}\n\n{runs[0].run.describe()}."
    if kind == "spread":
        return f"{spread(runs)}\n\n{len(runs)} runs on {runs[0].run.describe()}."
    if kind in KINDS:
        return _pictures(folder, kind, files[0], runs[0], options, written)
    raise ValueError(
        f"there is no block {kind!r}, only table, spread, counters, ratios, {', '.join(KINDS)}"
    )


def spread(runs: list[Comparison]) -> str:
    """How far apart the medians of several runs lie, as a Markdown table by variant.

    Per shape it is the largest median less the smallest, over their mean; a line has the middle
    and the largest of them, and where that one was.

    Raises ValueError for a single run, and for runs of different devices, protocols or sources.
    """
    for fact in ("device", "kind", "protocol", "csrc_hash"):
        found = {str(getattr(results.run, fact)) for results in runs}
        if len(found) > 1:
            raise ValueError(
                f"a spread is of runs that differ in {fact}: {', '.join(sorted(found))}"
            )
    header = ["variant", "median spread", "largest spread", "at"]
    lines = [header, [":--", "--:", "--:", ":--"]]
    for variant in runs[0].variants:
        spreads: list[tuple[float, Case]] = []
        for case in runs[0].cases:
            rows = [run.find(variant, *case) for run in runs]
            medians = [row.median_s for row in rows if row is not None and row.median_s is not None]
            if len(medians) == len(runs) > 1:
                mean = math.fsum(medians) / len(medians)
                spreads.append(((max(medians) - min(medians)) / mean, case))
        if spreads:
            spreads.sort()
            middle, (largest, where) = spreads[len(spreads) // 2][0], spreads[-1]
            lines.append([variant, f"{middle:.1%}", f"{largest:.1%}", size_text(*where)])
    if len(lines) == 2:
        raise ValueError("a spread needs two or more runs that timed the same variants and shapes")
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read_suite(path: Path) -> dict[str, list[Shape]]:
    """The shapes of a suite such as benchmarks/shapes.json, by kind."""
    kinds: dict[str, list[list[int]]] = json.loads(path.read_text(encoding="utf-8"))
    return {kind: [(M, N, K) for M, N, K in shapes] for kind, shapes in kinds.items()}


def ratios(
    results: Comparison, variant: str, suite: Mapping[str, list[Shape]]
) -> tuple[list[str], list[list[str]]]:
    """A variant's speed over cuBLAS's, as the header and the lines of a table with a column for
    each layout, and one for all: the geometric mean and the worst of all shapes and of each kind,
    and each shape. What is wrong or has no time is a dash, and in no mean.
    """
    known = {
        row.case: row.vs_cublas
        for row in results.rows
        if row.variant == variant and row.vs_cublas is not None
    }
    layouts = list(dict.fromkeys(layout for _, layout in results.cases))

    def summaries(shapes: Sequence[Shape]) -> Iterator[str]:
        for wanted in (*([layout] for layout in layouts), layouts):
            found = [known[case] for case in itertools.product(shapes, wanted) if case in known]
            mean = statistics.geometric_mean(found) if found else None
            yield "-" if mean is None else f"{mean:.3f}, worst {min(found):.2f}"

    lines = [["all", *summaries(results.shapes)]]
    for kind, shapes in suite.items():
        measured = [shape for shape in shapes if shape in results.shapes]
        lines.append([kind, *summaries(measured)])
        for shape in measured:
            cells = [known.get((shape, layout)) for layout in layouts]
            lines.append([" x ".join(map(str, shape)), *map(_share, cells), ""])
    return [f"{variant} / cuBLAS", *layouts, "all"], lines


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def _markdown(header: list[str], lines: list[list[str]]) -> str:
    rule = [":--", *("--:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *lines))


_COUNTERS: dict[str, Callable[[Mapping[str, float]], str]] = {
    "issue slots": lambda c: f"{c['issue_slots_percent'] / 100:.1%}",
    "FFMA of instructions": lambda c: f"{c['multiply_adds'] / 32 / c['instructions']:.1%}",
    "FMA pipe": lambda c: f"{c['fma_pipe_percent'] / 100:.1%}",
    "dispatch stalls": lambda c: f"{c['dispatch_stalls']:.2f}",
    "waits for shared memory": lambda c: f"{c['shared_waits']:.2f}",
    "waits at barriers": lambda c: f"{c['barrier_waits']:.2f}",
    "sectors a global load": lambda c: (
        f"{c['global_load_sectors'] / c['global_load_requests']:.2f}"
    ),
    "wavefronts a shared load": lambda c: (
        f"{c['shared_load_wavefronts'] / c['shared_load_requests']:.2f}"
    ),
    "bank conflicts a shared load": lambda c: (
        f"{c['bank_conflicts'] / c['shared_load_requests']:.3f}"
    ),
    "warps resident": lambda c: f"{c['warps_percent'] / 100:.1%}",
    "MHz": lambda c: f"{c['clock_mhz']:.0f}",
    "W": lambda c: f"{c['power_w']:.0f}",
}
"""What is told of a kernel, by the names of benchmarks/traffic.py."""


def counters(file: Path) -> str:
    """What the profiler counted at a file's largest size, as a Markdown table by variant.

    A figure that no kernel of the file has is left out; one that a kernel lacks is a dash.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    size = max(row["M"] for row in document["rows"])
    rows = [row for row in document["rows"] if row["M"] == size]
    columns = {what: [_counter(tell, row) for row in rows] for what, tell in _COUNTERS.items()}
    columns = {what: cells for what, cells in columns.items() if set(cells) != {"-"}}
    if not columns:
        return "Not measured yet."
    lines = [[row["variant"], *cells] for row, *cells in zip(rows, *columns.values(), strict=True)]
    facts = [f"{size} x {size} x {size}", document["device"], f"CUDA {document['cuda_toolkit']}"]
    facts += [f"csrc {document['csrc_hash']}", document["date"][:10]]
    return f"{_markdown(['', *columns], lines)}\n\n{', '.join(facts)}, by Nsight Compute."


def _counter(tell: Callable[[Mapping[str, float]], str], row: Mapping[str, Any]) -> str:
    known = {name: value for name, value in row.items() if value is not None}
    try:
        return tell(known | (row["gpu"] or {}))
    except (KeyError, ZeroDivisionError):  # not counted; no such load
        return "-"


def _pictures(
    folder: Path,
    kind: str,
    file: Path,
    results: Comparison,
    options: dict[str, str],
    written: list[Path],
) -> str:
    known: dict[str, Any] = {}
    for name, value in options.items():
        match name:
            case "pair":
                known["pair"] = tuple(value.split(","))
            case "size":
                known["size"] = (int(value),) * 3
            case "traffic":
                size = known.get("size") or common_shape(results)
                known |= {"size": size, "traffic": read_traffic(folder / value, size)}
            case _:
                raise ValueError(f"there is no option {name!r}, only pair, size and traffic")
    links = {}
    for theme in ("light", "dark"):
        path = file.with_name(f"{file.stem}-{kind}-{theme}.svg")
        plot(results, kind, dark=theme == "dark", **known).save(path)
        written.append(path)
        links[theme] = Path(os.path.relpath(path, folder)).as_posix()
    return (
        "<picture>\n"
        f'  <source media="(prefers-color-scheme: dark)" srcset="{links["dark"]}">\n'
        f'  <img alt="{_ALTERNATIVES[kind]}, {results.run.device}" src="{links["light"]}">\n'
        "</picture>"
    )


_ALTERNATIVES = {
    "speed": "TFLOP/s of every rung over matrix size",
    "pair": "Speed of one rung over that of another",
    "speedup": "Speed of every rung over the first",
    "roofline": "Every rung under the roofline",
}
