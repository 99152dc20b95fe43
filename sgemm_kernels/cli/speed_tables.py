"""Tables of speeds: runs of ``measure``, suites of shapes, and the ladder."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .._catalog import kernel_place, variants
from .._table import markdown, markdown_text
from ..measuring.measurement import UNMET, UNMET_NOTE
from ..measuring.results import Results
from ..measuring.results_file import read_json
from ..measuring.shapes import Case, Shape, size_text
from ..measuring.sources import OLDER, is_older

NOTHING_MEASURED = "Not measured yet."


def spread(results: Path, *others: Path) -> str:
    """The spread of the medians of several runs, as a Markdown table by variant.

    The spread at a shape is the largest median minus the smallest, divided by their mean. A line
    has the median and the largest spread over the shapes, and the shape of the largest.

    Raises ValueError for a single run, and for runs on different devices, protocols or sources.
    """
    runs = [Results.from_json(file) for file in (results, *others)]
    for fact in ("device", "kind", "protocol", "csrc_hash"):
        found = {str(getattr(each.run, fact)) for each in runs}
        if len(found) > 1:
            raise ValueError(
                f"a spread needs runs with the same {fact}, found: {', '.join(sorted(found))}"
            )
    lines: list[list[str]] = []
    for variant in runs[0].variants:
        spreads: list[tuple[float, Case, str]] = []
        for case in runs[0].cases:
            rows = [run.find(variant, *case) for run in runs]
            medians = [row.median_s for row in rows if row is not None and row.median_s is not None]
            if len(medians) == len(runs) > 1:
                mean = math.fsum(medians) / len(medians)
                early = UNMET if any(row is not None and row.unmet for row in rows) else ""
                spreads.append(((max(medians) - min(medians)) / mean, case, early))
        if spreads:
            spreads.sort()
            middle, largest = spreads[len(spreads) // 2], spreads[-1]
            cells = [f"{share:.1%}{early}" for share, _, early in (middle, largest)]
            lines.append([variant, *cells, size_text(*largest[1])])
    if not lines:
        raise ValueError("a spread needs at least two runs with the same variants and shapes")
    header = ["variant", "median spread", "largest spread", "at"]
    facts = f"{len(runs)} runs on {_facts(runs[0])}."
    return "\n\n".join([markdown(header, lines), *_note_of(lines), facts])


def _facts(results: Results) -> str:
    return markdown_text(results.run.describe().replace(f"\n{OLDER}", f", {OLDER}"))


def _note_of(lines: Iterable[Iterable[str]]) -> list[str]:
    """The note that explains a table's marks, if it has any."""
    return [UNMET_NOTE] if any(UNMET in cell for line in lines for cell in line) else []


def read_suite(path: Path) -> dict[str, list[Shape]]:
    """The shapes of a suite such as benchmarks/shapes.json, by kind."""
    kinds: dict[str, list[list[int]]] = read_json(path)
    return {kind: [(M, N, K) for M, N, K in shapes] for kind, shapes in kinds.items()}


def against_cublas(
    results: Results, suite: Mapping[str, list[Shape]]
) -> tuple[list[str], list[list[str]]]:
    """The speed of one variant relative to cuBLAS, as a table's header and lines. The table has a
    column for each layout and one for all layouts. Its lines are the geometric mean and the worst
    ratio over all shapes and over each kind, then each shape. Wrong or untimed results are dashes
    and are excluded from the means.

    Raises ValueError unless results has exactly one variant besides cuBLAS.
    """
    others = [name for name in results.variants if name != "cublas"]
    if len(others) != 1:
        raise ValueError(
            f"ratios need exactly one variant besides cuBLAS, found: {', '.join(others)}"
        )
    (variant,) = others
    rows = {row.case: row for row in results.rows if row.variant == variant}
    known = {case: row.vs_cublas for case, row in rows.items() if row.vs_cublas is not None}
    early = {row.case for row in results.rows if row.unmet}
    layouts = list(dict.fromkeys(layout for _, layout in results.cases))

    def summaries(shapes: Sequence[Shape]) -> Iterator[str]:
        for wanted in (*([layout] for layout in layouts), layouts):
            found = [case for case in itertools.product(shapes, wanted) if case in known]
            if not found:
                yield "-"
                continue
            mean = statistics.geometric_mean(known[case] for case in found)
            worst = min(found, key=lambda case: known[case])
            marks = [UNMET if early & set(cases) else "" for cases in (found, [worst])]
            yield f"{mean:.3f}{marks[0]}, worst {known[worst]:.2f}{marks[1]}"

    lines = [["all", *summaries(results.shapes)]]
    for kind, shapes in suite.items():
        measured = [shape for shape in shapes if shape in results.shapes]
        lines.append([kind, *summaries(measured)])
        for shape in measured:
            cells = [results.ratios(rows.get((shape, layout)))[0] for layout in layouts]
            lines.append([" x ".join(map(str, shape)), *cells, ""])
    return [f"{variant} / cuBLAS", *layouts, "all"], lines


def ratios(results: Path, suite: Path) -> str:
    """The table of ``against_cublas`` for a file and a suite of shapes."""
    found = Results.from_json(results)
    header, lines = against_cublas(found, read_suite(suite))
    return "\n\n".join([markdown(header, lines), *_note_of(lines), f"{_facts(found)}."])


def named(results: Results, name: str) -> str:
    """The name. It includes the error at the largest correct size if float32's would be smaller."""
    rows = [row for row in results.rows if row.variant == name]
    return max(rows, key=lambda row: (row.error.right, row.M)).name


def beside_peers(results: Results) -> tuple[list[str], list[list[str]]]:
    """Squares, as a table's header and lines: for each library its TFLOP/s and error at each size,
    and the energy of a product at the largest one."""
    last = results.shapes[-1]
    header = ["TFLOP/s, error", *(str(shape[0]) for shape in results.shapes), f"J at {last[0]}"]
    lines = []
    for name in results.variants:
        found = (results.find(name, shape) for shape in results.shapes)
        cells = [
            f"{row.marked(row.gflops / 1e3)}, {row.error.relative:.1e}"
            if row and row.gflops
            else ("-" if row is None or row.error.right else f"wrong, {row.error.relative:.1e}")
            for row in found
        ]
        at_last = results.find(name, last)
        joules = f"{at_last.energy_j:.3g}" if at_last and at_last.energy_j else "-"
        lines.append([named(results, name), *cells, joules])
    return header, lines


def over_cublas(results: Results) -> dict[str, str]:
    """For each way, the geometric means of its speed and of its error over all products, relative
    to cuBLAS's. A dash if a product is missing, wrong or not timed."""
    cases = len(results.cases)
    exact = {row.case: row.error.relative for row in results.rows if row.variant == "cublas"}
    found = {}
    for name in results.variants:
        own = [row for row in results.rows if row.variant == name and row.vs_cublas]
        means = (
            statistics.geometric_mean(figures)
            for figures in (
                [row.vs_cublas or math.nan for row in own],
                [row.error.relative / exact[row.case] for row in own],
            )
        )
        found[name] = "{:.2f}, {:.2g}".format(*means) if len(own) == cases else "-"
    return found


def peers(results: Path, *others: Path) -> str:
    """The table of ``beside_peers`` for a file. Files of other products, such as peers-models.json,
    add a column each with the figures of ``over_cublas``; those that do not exist yet add none."""
    found = Results.from_json(results)
    header, lines = beside_peers(found)
    facts = [f"{_facts(found)}."]
    for path in (each for each in others if each.exists()):
        more = Results.from_json(path)
        kind = path.name.partition(".")[0].partition("-")[2]
        header.append(f"{len(more.cases)} products of {kind}: times cuBLAS's speed, error")
        cells = over_cublas(more)
        for line, name in zip(lines, found.variants, strict=True):
            line.append(cells.get(name, "-"))
        if _facts(more) != _facts(found):
            facts.append(f"Products of {kind}: {_facts(more)}.")
    return "\n\n".join([markdown(header, lines), *_note_of(lines), *facts])


def by_tokens(results: Results) -> tuple[list[str], list[list[str]]]:
    """Speeds relative to cuBLAS, as a table's header and lines. For each other way: the geometric
    mean of the routers with the same number of rows; each square; and the geometric mean of all
    errors relative to cuBLAS's. A dash if a product is missing, wrong or not timed."""
    groups: dict[str, list[Case]] = {}
    for shape, layout in sorted(results.cases, key=lambda case: len(set(case[0])) == 1):
        is_square = len(set(shape)) == 1
        group = f"{shape[0]} cubed" if is_square else f"{shape[0]} rows"
        groups.setdefault(group, []).append((shape, layout))
    own = {(row.variant, row.case): row for row in results.rows}

    def mean(ratios: Iterable[float | None], form: str) -> str:
        known = list(ratios)
        if not known or None in known:
            return "-"
        return format(statistics.geometric_mean(filter(None, known)), form)

    lines = []
    for name in results.variants:
        if name == "cublas":
            continue
        speeds = [[getattr(own.get((name, case)), "vs_cublas", None) for case in cases]
                  for cases in groups.values()]  # fmt: skip
        errors = [
            row.error.relative / own["cublas", row.case].error.relative
            for row in results.rows
            if row.variant == name and row.error.right
        ]
        cells = [mean(ratios, ".2f") for ratios in speeds]
        lines.append([named(results, name), *cells, mean(errors, ".3g")])
    return ["times cuBLAS's speed", *groups, "times cuBLAS's error"], lines


def routers(results: Path, begin: Path = Path()) -> str:
    """The table of ``by_tokens`` for a file. With a second word, it has only the ways whose names
    begin so."""
    found = Results.from_json(results)
    header, lines = by_tokens(found)
    facts = [f"{sampled(found)}.", f"{_facts(found)}."]
    if found.interrupted:
        facts.insert(0, "Some products are left out.")
    chosen = [line for line in lines if line[0].startswith(begin.name)]
    return "\n\n".join([markdown(header, chosen), *facts])


KINDS: dict[str, Callable[[int, int, int], bool]] = {
    "a vector": lambda M, N, K: min(M, N) == 1,
    "a side of 2 to 16": lambda M, N, K: min(M, N) <= 16,
    "a side of 17 to 128": lambda M, N, K: min(M, N) <= 128,
    "K of at most 512": lambda M, N, K: K <= 512,
    "all longer": lambda M, N, K: True,
}
"""Kinds of shapes. The first true condition decides. A side is M or N."""


def kind_of(shape: Shape) -> str:
    """The kind of a shape."""
    return next(kind for kind, is_one in KINDS.items() if is_one(*shape[-3:]))


def by_kind(results: Results) -> tuple[list[str], list[list[str]]]:
    """Speeds relative to cuBLAS, as a table's header and lines. For each variant and each kind of
    shapes: their number, the geometric mean, the worst ratio and its shape, and the shares below 1
    and 0.9. Wrong or untimed results are excluded."""
    lines = []
    for variant in results.variants:
        rows = [row for row in results.rows if row.variant == variant and row.vs_cublas is not None]
        for kind in ("all", *KINDS) if variant != "cublas" else ():
            own = [row for row in rows if kind in ("all", kind_of(row.shape))]
            line = [f"{variant}: {kind}" if kind == "all" else kind, str(len(own))]
            if own:
                ratios = [row.vs_cublas or 0.0 for row in own]
                least = own[ratios.index(min(ratios))]
                line += [f"{statistics.geometric_mean(ratios):.3f}", results.ratios(least)[0]]
                line += [size_text(*least.case)]
                line += [f"{sum(r < limit for r in ratios) / len(own):.1%}" for limit in (1, 0.9)]
            lines.append(line + ["-"] * (7 - len(line)))
    header = ["against cuBLAS", "shapes", "geometric mean", "worst", "at", "below 1", "below 0.9"]
    return header, lines


def kinds(results: Path) -> str:
    """The table of ``by_kind`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    found = Results.from_json(results)
    facts = [f"{sampled(found)}.", f"{_facts(found)}."]
    return "\n\n".join([markdown(*by_kind(found)), *facts])


def sampled(results: Results) -> str:
    """The number of measurements that missed the sampling criteria, instead of a mark at each."""
    unmet = sum(bool(row.unmet) for row in results.rows)
    return f"{unmet} of {len(results.rows)} times: sampling ended before its criteria were met"


def _at_size(results: Path, usage: str) -> tuple[Results, int]:
    """The results and the size of FILE.json#N."""
    name, _, size = results.name.partition("#")
    if not size.isdecimal():
        raise ValueError(f"{results.name} has no size: write '{usage}'")
    return Results.from_json(results.with_name(name)), int(size)


def speedup(results: Path, variant: Path) -> str:
    """A sentence with a variant's speed at one size, FILE.json#N, and its speedup over cuBLAS."""
    found, n = _at_size(results, "speedup RESULTS#N VARIANT")
    row = found.find(variant.name, n)
    if row is None or row.gflops is None or row.vs_cublas is None:
        return NOTHING_MEASURED
    speed, (ratio, _) = row.marked(row.gflops / 1e3), found.ratios(row)
    sentence = (
        f"With M = N = K = {n}, `{row.variant}` reaches {speed} TFLOP/s on an {found.run.device}. "
        f"That is {ratio} times the speed of cuBLAS in float32."
    )
    sentence += f" This was {OLDER}." if is_older(found.run.sources_hash) else ""
    return "\n\n".join([sentence, *_note_of([[speed, ratio]])])


def ladder(results: Path, csrc: Path) -> str:
    """Every variant with its idea and its speed at one size. The size follows a '#':
    FILE.json#N."""
    found, n = _at_size(results, "ladder RESULTS#N CSRC")
    lines = []
    for variant in variants():
        row = found.find(variant.name, n)
        speed = "-" if row is None or row.gflops is None else row.marked(row.gflops / 1e3)
        link = f"`{variant.name}`"
        if variant.file is not None:
            link = f"[{link}]({csrc / kernel_place(variant.file)})"
        lines.append([link, variant.summary, speed, *found.ratios(row)])
    header = ["kernel", "idea", "TFLOP/s", "of cuBLAS", "over the rung before"]
    facts = f"M = N = K = {n}, kernel time alone. {_facts(found)}."
    return "\n\n".join([markdown(header, lines, words=2), *_note_of(lines), facts])


def table(results: Path) -> str:
    """The table of one run."""
    found = Results.from_json(results)
    return f"{found.to_markdown()}\n\n{_facts(found)}."
