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
import itertools
import math
import os
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ._catalog import variants
from ._table import markdown
from .results import UNMET, UNMET_NOTE, Case, Results, Shape, read_json, size_text
from .tuning import Tuning

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
    document.write_text(new, encoding="utf-8")


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


def spread(results: Path, *others: Path) -> str:
    """How far apart the medians of several runs lie, as a Markdown table by variant.

    Per shape it is the largest median less the smallest, over their mean; a line has the middle
    and the largest of them, and where that one was.

    Raises ValueError for a single run, and for runs of different devices, protocols or sources.
    """
    runs = [Results.from_json(file) for file in (results, *others)]
    for fact in ("device", "kind", "protocol", "csrc_hash"):
        found = {str(getattr(each.run, fact)) for each in runs}
        if len(found) > 1:
            raise ValueError(
                f"a spread is of runs that differ in {fact}: {', '.join(sorted(found))}"
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
        raise ValueError("a spread needs two or more runs that timed the same variants and shapes")
    header = ["variant", "median spread", "largest spread", "at"]
    facts = f"{len(runs)} runs on {runs[0].run.describe()}."
    return "\n\n".join([markdown(header, lines), *_note_of(lines), facts])


def _note_of(lines: Iterable[Iterable[str]]) -> list[str]:
    """What the marks of a table mean, if it has any."""
    return [UNMET_NOTE] if any(UNMET in cell for line in lines for cell in line) else []


def read_suite(path: Path) -> dict[str, list[Shape]]:
    """The shapes of a suite such as benchmarks/shapes.json, by kind."""
    kinds: dict[str, list[list[int]]] = read_json(path)
    return {kind: [(M, N, K) for M, N, K in shapes] for kind, shapes in kinds.items()}


def against_cublas(
    results: Results, suite: Mapping[str, list[Shape]]
) -> tuple[list[str], list[list[str]]]:
    """The speed of the one other variant over cuBLAS's, as the header and the lines of a table with
    a column for each layout, and one for all: the geometric mean and the worst of all shapes and of
    each kind, and each shape. What is wrong or has no time is a dash, and in no mean.

    Raises ValueError where there is not one other variant.
    """
    others = [name for name in results.variants if name != "cublas"]
    if len(others) != 1:
        raise ValueError(f"ratios are of one variant against cuBLAS, not {', '.join(others)}")
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
    """``against_cublas`` of a file, over the shapes of a suite."""
    found = Results.from_json(results)
    header, lines = against_cublas(found, read_suite(suite))
    return "\n\n".join([markdown(header, lines), *_note_of(lines), f"{found.run.describe()}."])


KINDS: dict[str, Callable[[int, int, int], bool]] = {
    "a vector": lambda M, N, K: min(M, N) == 1,
    "a side of 2 to 16": lambda M, N, K: min(M, N) <= 16,
    "a side of 17 to 128": lambda M, N, K: min(M, N) <= 128,
    "K of at most 512": lambda M, N, K: K <= 512,
    "all longer": lambda M, N, K: True,
}
"""What shapes are told apart by: the first that is true of one is its kind. A side is M or N."""


def kind_of(shape: Shape) -> str:
    """The kind of a shape."""
    return next(kind for kind, is_one in KINDS.items() if is_one(*shape))


def by_kind(results: Results) -> tuple[list[str], list[list[str]]]:
    """Speeds over cuBLAS's, as the header and the lines of a table: for each variant, and each kind
    of shapes and all, how many there are, the geometric mean, the worst and where it is, and which
    share is slower than cuBLAS, and than 0.9 of it. What is wrong or has no time is in none."""
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
    """``by_kind`` of a file."""
    if not results.exists():
        return _NOTHING
    found = Results.from_json(results)
    facts = [f"{sampled(found)}.", f"{found.run.describe()}."]
    return "\n\n".join([markdown(*by_kind(found)), *facts])


def sampled(results: Results) -> str:
    """Of how many times the criteria were not met, where a mark at each would say little."""
    unmet = sum(bool(row.unmet) for row in results.rows)
    return f"{unmet} of {len(results.rows)} times are of samples that met not all criteria"


def ladder(results: Path, kernels: Path) -> str:
    """Every variant with its idea, and its speed at one size, which stands behind a '#':
    FILE.json#N."""
    name, _, size = results.name.partition("#")
    if not size.isdecimal():
        raise ValueError(f"a block is 'ladder RESULTS#N KERNELS', with a size, not {results.name}")
    found, n = Results.from_json(results.with_name(name)), int(size)
    lines = []
    for variant in variants():
        row = found.find(variant.name, n)
        speed = "-" if row is None or row.gflops is None else row.marked(row.gflops / 1e3)
        link = f"`{variant.name}`"
        if variant.file is not None:
            link = f"[{link}]({kernels / variant.file})"
        lines.append([link, variant.summary, speed, *found.ratios(row)])
    header = ["kernel", "idea", "TFLOP/s", "of cuBLAS", "over the rung before"]
    facts = f"M = N = K = {n}, kernel time alone. {found.run.describe()}."
    return "\n\n".join([markdown(header, lines, words=2), *_note_of(lines), facts])


def table(results: Path) -> str:
    """One run's."""
    found = Results.from_json(results)
    return f"{found.to_markdown()}\n\n{found.run.describe()}."


_BY_TENSOR_CORES = 10
"""Of a kernel that has kept their pipe busy for more per cent."""


def _shared_loads(counters: Mapping[str, float]) -> float:
    """From shared memory, where the profiler counts all; else KeyError."""
    if counters.get("tensor_pipe_percent", 0) > _BY_TENSOR_CORES:
        raise KeyError("shared_load_requests")
    return counters["shared_load_requests"]


_COUNTERS: dict[str, Callable[[Mapping[str, float]], str]] = {
    "issue slots": lambda c: f"{c['issue_slots_percent'] / 100:.1%}",
    "FFMA of instructions": lambda c: f"{c['multiply_adds'] / 32 / c['instructions']:.1%}",
    "FMA pipe": lambda c: f"{c['fma_pipe_percent'] / 100:.1%}",
    "tensor pipe": lambda c: f"{c['tensor_pipe_percent'] / 100:.1%}",
    "dispatch stalls": lambda c: f"{c['dispatch_stalls']:.2f}",
    "waits for shared memory": lambda c: f"{c['shared_waits']:.2f}",
    "waits at barriers": lambda c: f"{c['barrier_waits']:.2f}",
    "sectors a global load": lambda c: (
        f"{c['global_load_sectors'] / c['global_load_requests']:.2f}"
    ),
    "wavefronts a shared load": lambda c: f"{c['shared_load_wavefronts'] / _shared_loads(c):.2f}",
    "bank conflicts a shared load": lambda c: f"{c['bank_conflicts'] / _shared_loads(c):.3f}",
    "warps resident": lambda c: f"{c['warps_percent'] / 100:.1%}",
    "MHz": lambda c: f"{c['clock_mhz']:.0f}",
    "W": lambda c: f"{c['power_w']:.0f}",
}
"""What is told of a kernel, by the names of benchmarks/traffic.py."""


def counters(results: Path) -> str:
    """What the profiler counted at a file's largest size, as a Markdown table by variant.

    A figure that no kernel of the file has is left out; one that a kernel lacks is a dash.
    """
    document = _read(results)
    size = max(row["M"] for row in document["rows"])
    rows = [row for row in document["rows"] if row["M"] == size]
    counted = [row | (row["gpu"] or {}) for row in rows]
    columns = {what: [_cell(tell, row) for row in counted] for what, tell in _COUNTERS.items()}
    columns = {what: cells for what, cells in columns.items() if set(cells) != {"-"}}
    if not columns:
        return _NOTHING
    lines = [[row["variant"], *cells] for row, *cells in zip(rows, *columns.values(), strict=True)]
    size_and_facts = f"{size} x {size} x {size}, {_facts(document)}"
    return f"{markdown(['', *columns], lines)}\n\n{size_and_facts}, by Nsight Compute."


def _time(row: Mapping[str, Any]) -> str:
    if "problem" in row:
        return "failed"
    return f"{1e3 * row['median_s']:.3f}" if "median_s" in row else "wrong"


SETTINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "setting": lambda row: str(row["setting"]),
    "n": lambda row: str(row["n"]),
    "registers": lambda row: f"{row['registers']:d}",
    "spilled bytes": lambda row: str(row["spill_store_bytes"] + row["spill_load_bytes"]),
    "blocks an SM": lambda row: f"{row['resident_blocks']:d}",
    "loop": lambda row: f"{row['loop_instructions']:d}",
    "FFMA": lambda row: f"{row['ffma_share']:.1%}",
    ".reuse": lambda row: f"{row['reuse_share']:.1%}",
    "one bank": lambda row: f"{row['conflict_share']:.1%}",
    "ahead": lambda row: f"{row['load_distance']:d}",
    "error": lambda row: f"{row['relative_error']:.1e}",
    "ms": _time,
    "TFLOP/s": lambda row: f"{row['gflops'] / 1e3:.1f}",
    "ratio": lambda row: f"{row['ratio']:.3f}",
    "quartiles": lambda row: "{:.3f} to {:.3f}".format(*row["ratio_quartiles"]),
}
"""What is told of a setting of an ablation, by the names of benchmarks/ablations.py."""

_OF_FFMAS = ("loop", "FFMA", ".reuse", "one bank", "ahead")
_OF_HALVES = ("error", "TFLOP/s")


def setting_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Those of SETTINGS that say something of these rows: of what products of halves have, and of
    what products in float32 have, the one or the other."""
    of_halves = {row["source"] == "halves.cu" for row in rows} == {True}
    left_out = _OF_FFMAS if of_halves else _OF_HALVES
    return [name for name in SETTINGS if name not in left_out]


def setting_cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """A setting as a line under these columns; what is not known is a dash."""
    return [_cell(SETTINGS[name], row) for name in columns]


def ablation(results: Path) -> str:
    """The settings of one question, which stands behind a '#': FILE.json#KEY."""
    name, _, key = results.name.partition("#")
    file = results.with_name(name)
    if not file.exists():
        return _NOTHING
    document = _read(file)
    rows = [row for row in document["rows"] if row["question"] == key]
    columns = setting_columns(rows)
    lines = [setting_cells(row, columns) for row in rows]
    return f"{markdown(columns, lines)}\n\n{_facts(document)}." if lines else _NOTHING


_GATHERED_AT_ONCE = 1 << 18
"""Up to so many bytes of operands and result one thread gathers, pinned or not: `small_bytes` of
csrc/cuda/host_arrays.cu."""


def calls(results: Path) -> str:
    """Where the time of whole calls goes, of those whose results are dropped at once.

    Gathering is what a call takes beyond one whose operands are pinned.
    """
    document = _read(results)
    first = document["rows"][0]["way"]
    own = {(row["way"], row["n"]): row for row in document["rows"] if row["results"] == "dropped"}
    lines = []
    for n in sorted({row["n"] for row in document["rows"]}):
        row = own[first, n]
        call, copies, kernel = row["median_s"], row["bus_floor_s"], row["kernel_median_s"]
        held = own.get((f"{first}, pinned operands", n), {}).get("median_s")
        gathering = None if held is None or 12 * n * n <= _GATHERED_AT_ONCE else call - held
        rest = None if kernel is None else call - (gathering or 0) - copies - kernel
        cells = ["-" if x is None else f"{1e3 * x:.3f}" for x in (call, kernel, copies, gathering)]
        lines.append([str(n), *cells, "-" if rest is None else f"{1e3 * rest:+.3f}"])
    header = ["M = N = K", "whole call, ms", "kernel", "copies", "gathering"]
    header += ["launches and waits, less overlap"]
    return f"{markdown(header, lines)}\n\n{_facts(document)}."


def gpus(results: Path) -> str:
    """What all GPUs take for a call, and how many times the speed of one that is, by where the
    arrays are."""
    document = _read(results)
    own = {(row["arrays"], row["n"]): row for row in document["rows"]}
    places = list(dict.fromkeys(place for place, _ in own))
    lines = []
    for n in sorted({n for _, n in own}):
        pairs = [[own[place, n][way]["median_s"] for way in ("one", "all")] for place in places]
        cells = (f"{1e3 * every:.3f} ms, {one / every:.2f}x" for one, every in pairs)
        lines.append([str(n), *cells])
    body = markdown(["M = N = K", *(f"arrays: {place}" for place in places)], lines)
    return f"{body}\n\n{document['gpus']} x {_facts(document)}."


def over_simt(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Times as multiples of `simt`'s, of the rows of benchmarks/recomputing.py: the header and the
    lines of a table with a column for each other variant, and a line for each kind of operands and
    size."""
    own = {(row["data"], row["n"], row["variant"]): row for row in rows}
    others = [name for name in dict.fromkeys(row["variant"] for row in rows) if name != "simt"]
    lines = []
    for data, n in dict.fromkeys((row["data"], row["n"]) for row in rows):
        simt = own[data, n, "simt"]
        line = [data, str(n), f"{_time(simt)}{UNMET if simt['unmet'] else ''}"]
        for row in (own.get((data, n, name), {}) for name in others):
            share = row.get("over_simt")
            mark = UNMET if simt["unmet"] or row.get("unmet") else ""
            line.append("-" if share is None else f"{share:.2f}{mark}")
        lines.append(line)
    return ["times as long as simt", "M = N = K", "simt, ms", *others], lines


def recomputing(results: Path) -> str:
    """``over_simt`` of a file."""
    if not results.exists():
        return _NOTHING
    document = _read(results)
    marks = [UNMET_NOTE] if any(row["unmet"] for row in document["rows"]) else []
    figures = markdown(*over_simt(document["rows"]))
    return "\n\n".join([figures, *marks, f"{_facts(document)}."])


def _range(values: Sequence[float], form: str) -> str:
    least, most = (format(value, form) for value in (min(values), max(values)))
    return f"{format(statistics.median(values), form)} ({least} to {most})"


CLOCKS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "million cycles": lambda row: _range([cycles / 1e6 for cycles in row["cycles"]], ".1f"),
    "MHz": lambda row: _range(
        [c / s / 1e6 for c, s in zip(row["cycles"], row["samples_s"], strict=True)], ".0f"
    ),
    "TFLOP/s": lambda row: _range([2 * row["n"] ** 3 / s / 1e12 for s in row["samples_s"]], ".1f"),
}
"""What is told of the products of a variant, by the names of benchmarks/clocks.py."""


def clocks(results: Path) -> str:
    """What benchmarks/clocks.py wrote, as a Markdown table: medians, and from the least to the
    most."""
    if not results.exists():
        return _NOTHING
    document = _read(results)
    lines = [
        [row["variant"], row["turn"], *(tell(row) for tell in CLOCKS.values())]
        for row in document["rows"]
    ]
    return f"{markdown(['', '', *CLOCKS], lines)}\n\n{_facts(document)}."


def tuning(results: Path) -> str:
    """What ``Tuning.to_json`` wrote, as a Markdown table and in words."""
    if not results.exists():
        return _NOTHING
    found = Tuning.from_json(results)
    words = "; ".join(found.summary())
    facts = f"GFLOP/s. {found.device}, csrc {found.csrc_hash}."
    return "\n\n".join([f"`{found.kernel}`: {words}.", markdown(*found._cells()), facts])


BLOCKS: dict[str, Callable[..., str]] = {
    block.__name__: block
    for block in (ladder, table, spread, ratios, kinds, counters, ablation, calls, gpus,
                  clocks, recomputing, tuning)
}  # fmt: skip
"""The kinds of blocks; each is made of the files that stand behind its name."""

_NOTHING = "Not measured yet."


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(file)
    return found


def _facts(document: Mapping[str, Any]) -> str:
    """What a result file was measured with."""
    hashes = [f"{name} {document[f'{name}_hash']}" for name in ("csrc", "sources")
              if f"{name}_hash" in document]  # fmt: skip
    facts = [document["device"], f"CUDA {document['cuda_toolkit']}", *hashes, document["date"][:10]]
    return ", ".join(facts)


def _cell(tell: Callable[[Mapping[str, Any]], str], row: Mapping[str, Any]) -> str:
    try:
        return tell({name: value for name, value in row.items() if value is not None})
    except (KeyError, ZeroDivisionError):  # not counted; no such load
        return "-"
