"""Tables for the experiments in benchmarks/: counters, ablations, calls, models, batches..."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .._table import markdown, markdown_text, one_line
from ..custom.tuning_result import Tuning
from ..measuring.measurement import UNMET, UNMET_NOTE
from ..measuring.results_file import facts_of, read_json, with_age
from .speed_tables import NOTHING_MEASURED
from .targets import Target

_TENSOR_CORE_PERCENT = 10
"""A kernel that keeps the tensor pipe busier than this uses tensor cores."""


def _shared_loads(counters: Mapping[str, float]) -> float:
    """Loads from shared memory. KeyError for tensor cores, whose loads the profiler misses."""
    if counters.get("tensor_pipe_percent", 0) > _TENSOR_CORE_PERCENT:
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
    "sectors per global load": lambda c: (
        f"{c['global_load_sectors'] / c['global_load_requests']:.2f}"
    ),
    "wavefronts per shared load": lambda c: f"{c['shared_load_wavefronts'] / _shared_loads(c):.2f}",
    "bank conflicts per shared load": lambda c: f"{c['bank_conflicts'] / _shared_loads(c):.3f}",
    "warps resident": lambda c: f"{c['warps_percent'] / 100:.1%}",
    "MHz": lambda c: f"{c['clock_mhz']:.0f}",
    "W": lambda c: f"{c['power_w']:.0f}",
}
"""Columns of the table, computed from the counters of benchmarks/traffic.py."""


def counters(results: Path) -> str:
    """The profiler's counters at a file's largest size, as a Markdown table by variant.

    Columns without any value are omitted; a missing value is a dash.
    """
    document = _read(results)
    size = max(row["M"] for row in document["rows"])
    rows = [row for row in document["rows"] if row["M"] == size]
    counted = [row | (row["gpu"] or {}) for row in rows]
    columns = {what: [_cell(tell, row) for row in counted] for what, tell in _COUNTERS.items()}
    columns = {what: cells for what, cells in columns.items() if set(cells) != {"-"}}
    if not columns:
        return NOTHING_MEASURED
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
    "blocks per SM": lambda row: f"{row['resident_blocks']:d}",
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
"""Columns of an ablation, computed from the rows of benchmarks/ablations.py."""

_FP32_COLUMNS = ("loop", "FFMA", ".reuse", "one bank", "ahead")
_FP16_COLUMNS = ("error", "TFLOP/s")


def setting_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fp16 columns of SETTINGS if all rows are fp16 kernels, otherwise the fp32 columns."""
    fp16 = {row["source"] == "fp16_pairs.cu" for row in rows} == {True}
    left_out = _FP32_COLUMNS if fp16 else _FP16_COLUMNS
    return [name for name in SETTINGS if name not in left_out]


def setting_cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """One setting's cells for these columns; a missing value is a dash."""
    return [_cell(SETTINGS[name], row) for name in columns]


def ablation(results: Path) -> str:
    """The settings of one question. The question's key follows a '#': FILE.json#KEY."""
    name, _, key = results.name.partition("#")
    file = results.with_name(name)
    if not file.exists():
        return NOTHING_MEASURED
    document = _read(file)
    rows = [row for row in document["rows"] if row["question"] == key]
    columns = setting_columns(rows)
    lines = [setting_cells(row, columns) for row in rows]
    return f"{markdown(columns, lines)}\n\n{_facts(document)}." if lines else NOTHING_MEASURED


_SINGLE_THREAD_BYTES = 1 << 18
"""Up to this many bytes of operands and result, one thread gathers them, pinned or not:
`small_bytes` in csrc/runtime/cuda/host_arrays.cu."""


def calls(results: Path) -> str:
    """Where the time of whole calls goes, for calls whose results are dropped immediately.

    The gathering time is the difference from a call with pinned operands.
    """
    document = _read(results)
    first = document["rows"][0]["way"]
    own = {(row["way"], row["n"]): row for row in document["rows"] if row["results"] == "dropped"}
    lines = []
    for n in sorted({row["n"] for row in document["rows"]}):
        row = own[first, n]
        call, copies, kernel = row["median_s"], row["bus_floor_s"], row["kernel_median_s"]
        held = own.get((f"{first}, pinned operands", n), {}).get("median_s")
        gathering = None if held is None or 12 * n * n <= _SINGLE_THREAD_BYTES else call - held
        rest = None if kernel is None else call - (gathering or 0) - copies - kernel
        cells = ["-" if x is None else f"{1e3 * x:.3f}" for x in (call, kernel, copies, gathering)]
        lines.append([str(n), *cells, "-" if rest is None else f"{1e3 * rest:+.3f}"])
    header = ["M = N = K", "whole call, ms", "kernel", "copies", "gathering"]
    header += ["launches and waits, less overlap"]
    return f"{markdown(header, lines)}\n\n{_facts(document)}."


def gpus(results: Path) -> str:
    """The time of a call on all GPUs, and its speedup over one GPU, for each place of the
    arrays."""
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
    """Times relative to `simt`, from the rows of benchmarks/recomputing.py. Returns a table's
    header and lines: one column per other variant, one line per kind of operands and size."""
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
    return ["time relative to simt", "M = N = K", "simt, ms", *others], lines


def recomputing(results: Path) -> str:
    """The table of ``over_simt`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = _read(results)
    marks = [UNMET_NOTE] if any(row["unmet"] for row in document["rows"]) else []
    figures = markdown(*over_simt(document["rows"]))
    return "\n\n".join([figures, *marks, f"{_facts(document)}."])


def slowest_case(rows: Sequence[Mapping[str, Any]], variant: str) -> str:
    """Sentences with the operands for which a variant takes longest, relative to `simt`: at any
    size, and at the largest one. The rows are those of benchmarks/recomputing.py."""
    own = [row for row in rows if row["variant"] == variant and row.get("over_simt") is not None]
    largest = max(row["n"] for row in own)
    slowest = max(own, key=_over_simt)
    large = max((row for row in own if row["n"] == largest), key=_over_simt)
    at_largest = (
        f" At {largest} it takes up to {_over_simt(large):.2f} times as long, with "
        f"*{large['data']}* operands."
    )
    return (
        f"The slowest measured case of `{variant}` takes {_over_simt(slowest):.2f} times as "
        f"long as `simt`: *{slowest['data']}* operands with M = N = K = {slowest['n']}."
        f"{at_largest if slowest['n'] < largest else ''}"
    )


def worst(results: Path, variant: Path) -> str:
    """The sentences of ``slowest_case`` for a file."""
    if not results.exists():
        return NOTHING_MEASURED
    document = _read(results)
    return f"{slowest_case(document['rows'], variant.name)} {_facts(document)}."


def _over_simt(row: Mapping[str, Any]) -> float:
    return float(row["over_simt"])


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
"""Columns of the table, computed from the rows of benchmarks/clocks.py."""


def clocks(results: Path) -> str:
    """The results of benchmarks/clocks.py as a Markdown table: median (minimum to maximum)."""
    if not results.exists():
        return NOTHING_MEASURED
    document = _read(results)
    lines = [
        [row["variant"], row["order"], *(tell(row) for tell in CLOCKS.values())]
        for row in document["rows"]
    ]
    return f"{markdown(['kernel', 'order', *CLOCKS], lines)}\n\n{_facts(document)}."


def tuning(results: Path) -> str:
    """The results of ``Tuning.to_json`` as a Markdown table with a summary."""
    if not results.exists():
        return NOTHING_MEASURED
    found = Tuning.from_json(results)
    words = "; ".join(found.summary())
    facts = with_age(f"csrc {found.csrc_hash}", _read(results))
    told = [f"`{found.kernel}`: {words}.", f"GFLOP/s. {found.device}, {facts}."]
    head, facts = (markdown_text(one_line(line)) for line in told)
    return "\n\n".join([head, markdown(*found._cells()), facts])


def of_calls(rows: Sequence[Mapping[str, Any]], what: str) -> tuple[list[str], list[list[str]]]:
    """Microseconds of a call, from the rows of benchmarks/calls.py of this kind: ``queue`` or
    ``in a row``. Returns a table's header and lines: one line per way, one column per size."""
    own = {(row["way"], row["n"]): row for row in rows if row["what"] == what}
    sizes = sorted({n for _, n in own})
    lines = []
    for way in dict.fromkeys(way for way, _ in own):
        found = (own.get((way, n), {}).get("median_s") for n in sizes)
        lines.append([way, *("-" if s is None else f"{1e6 * s:.1f}" for s in found)])
    return [f"us, {what}", *map(str, sizes)], lines


MM, MM_OUT, RUN, RUN_OUT = "torch.mm", "torch.mm, out=", "run", "run, out="
DEVICE_ARRAYS, NUMPY = "run, DeviceArray, stream=", "run, NumPy, complete"
SIMT_OUT, AUTO_OUT = "run simt, out=", "run auto, out="
"""Ways of benchmarks/calls.py that have a target."""


def _over(what: str, ours: str, theirs: str) -> Callable[..., float]:
    """The largest ratio of two ways' times over all sizes."""
    return lambda medians: max(
        seconds / medians[what, theirs, n]
        for (kind, way, n), seconds in medians.items()
        if (kind, way) == (what, ours)
    )


def _worst_us(ours: str) -> Callable[..., float]:
    return lambda medians: (
        1e6
        * max(
            seconds for (kind, way, _), seconds in medians.items() if (kind, way) == ("queue", ours)
        )
    )


_TARGETS = (
    Target("queue with out: time over torch.mm's", _over("queue", RUN_OUT, MM_OUT), 1),
    Target("queue without out: time over torch.mm's", _over("queue", RUN, MM), 1),
    Target("queue with DeviceArray operands, us", _worst_us(DEVICE_ARRAYS), 8),
    Target("NumPy to NumPy at 64, us", lambda found: 1e6 * found["queue", NUMPY, 64], 25),
    Target("in a row: speed of auto over torch.mm, slowest size",
            lambda found: 1 / _over("in a row", AUTO_OUT, MM_OUT)(found), 1, at_least=True),
    Target("in a row: speed of auto over torch.mm at 1024",
            lambda found: found["in a row", MM_OUT, 1024] / found["in a row", AUTO_OUT, 1024],
            2, at_least=True),
    Target("kernels of a product by auto at 1024",
            lambda found: found["kernels", AUTO_OUT, 1024], 3),
)  # fmt: skip


def medians_of_calls(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str, int], float]:
    """The medians, or numbers of kernels, of benchmarks/calls.py by kind, way and size."""
    found = {
        (row["what"], row["way"], row["n"]): row.get("median_s", row.get("kernels")) for row in rows
    }
    return {key: value for key, value in found.items() if value is not None}


def targets(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """What benchmarks/calls.py aims at, beside what it found. Returns a header and lines."""
    found = medians_of_calls(rows)
    header = ["figure", "target", "measured", ""]
    return header, [target.line(found) for target in _TARGETS]


def queuing(results: Path) -> str:
    """The results of benchmarks/calls.py as Markdown tables: targets, queue times, and products in
    a row."""
    if not results.exists():
        return NOTHING_MEASURED
    document = _read(results)
    rows = document["rows"]
    blocks = [targets(rows), of_calls(rows, "queue"), of_calls(rows, "in a row")]
    missing = [f"{way} is missing: {why}." for way, why in document["missing"].items()]
    texts = [markdown(header, lines) for header, lines in blocks]
    return "\n\n".join([*texts, *map(markdown_text, missing), f"{_facts(document)}."])


BMM_OUT = "torch.bmm, out="
TINY, MIDDLE, LARGE = "1 to 32, from 100 MB", "64 to 256", "1024 to 2048"
"""Kinds of batches of benchmarks/batched.py that have a target."""
_SLOW = 0.95
"""The least share of torch.bmm's speed that `auto` aims at."""


def speeds_of(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Speeds over torch.bmm by batch and way, from the rows of benchmarks/batched.py. Wrong or
    failed products have none."""
    medians = {(row["case"], row["way"]): row["median_ns"] for row in rows if row.get("median_ns")}
    return {
        (case, way): medians[case, BMM_OUT] / median
        for (case, way), median in medians.items()
        if (case, BMM_OUT) in medians
    }


def _of_auto(rows: Sequence[Mapping[str, Any]], kind: str = "") -> list[float]:
    """The speeds of `auto` over torch.bmm at all batches, or at one kind's."""
    kinds_of = {row["case"]: row["kind"] for row in rows}
    return [
        speed
        for (case, way), speed in speeds_of(rows).items()
        if way == AUTO_OUT and kind in ("", kinds_of[case])
    ]


def _bytes_per_s(row: Mapping[str, Any]) -> float:
    return float(1e9 * row["bytes"] / row["median_ns"])


def batch_targets(
    rows: Sequence[Mapping[str, Any]], copy_bytes_per_s: float
) -> tuple[list[str], list[list[str]]]:
    """What benchmarks/batched.py aims at, beside what it found. Returns a header and lines."""
    targets = (
        Target("auto over torch.bmm: geometric mean",
                lambda rows: statistics.geometric_mean(_of_auto(rows)), 2, at_least=True),
        Target("auto over torch.bmm: slowest",
                lambda rows: min(_of_auto(rows)), _SLOW, at_least=True),
        Target(f"{TINY}: lowest share of a copy's bandwidth",
                lambda rows: min(_bytes_per_s(row) / copy_bytes_per_s for row in rows
                                 if row["kind"] == TINY and row["way"] == AUTO_OUT),
                0.7, at_least=True),
        Target(f"{MIDDLE}: slowest",
                lambda rows: min(_of_auto(rows, MIDDLE)), 1.15, at_least=True),
        Target(f"{LARGE}: slowest",
                lambda rows: min(_of_auto(rows, LARGE)), 3.5, at_least=True),
    )  # fmt: skip
    return ["figure", "target", "measured", ""], [target.line(rows) for target in targets]


def of_batches(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Speeds over torch.bmm by way and kind, from the rows of benchmarks/batched.py. Returns a
    table's header and lines. TB/s counts each operand and result once."""
    speeds = speeds_of(rows)
    lines = []
    for way in (way for way in dict.fromkeys(row["way"] for row in rows) if way != BMM_OUT):
        timed = [row for row in rows if row["way"] == way and (row["case"], way) in speeds]
        by_kind = way in (AUTO_OUT, SIMT_OUT)
        for kind in ("all", *(dict.fromkeys(row["kind"] for row in rows) if by_kind else ())):
            own = [row for row in timed if kind in ("all", row["kind"])]
            line = [f"{way}: all" if kind == "all" else kind, str(len(own))]
            if own:
                found = [speeds[row["case"], way] for row in own]
                line += [f"{statistics.geometric_mean(found):.2f}", f"{min(found):.2f}"]
                line += [own[found.index(min(found))]["case"]]
                line += [f"{sum(speed < _SLOW for speed in found) / len(own):.1%}"]
                rates = [_bytes_per_s(row) / 1e12 for row in own]
                line += ["-"] if kind == "all" else [_range(rates, ".2f")]
            lines.append(line + ["-"] * (7 - len(line)))
    header = ["speed over torch.bmm", "batches", "geometric mean", "slowest", "at"]
    return [*header, f"below {_SLOW:g}", "TB/s"], lines


def batches(results: Path) -> str:
    """The results of benchmarks/batched.py as Markdown tables: targets, and speeds by kind."""
    if not results.exists():
        return NOTHING_MEASURED
    document = _read(results)
    rows, bandwidth = document["rows"], document["copy_bytes_per_s"]
    blocks = [markdown(*batch_targets(rows, bandwidth)), markdown(*of_batches(rows))]
    problems = [f"{row['way']} at {row['case']}: {row['problem']}." for row in rows
                if row["problem"]]  # fmt: skip
    missing = [f"{way} is missing: {why}." for way, why in document["missing"].items()]
    copies = f"A copy in the GPU's memory: {bandwidth / 1e12:.2f} TB/s. TB/s: median (range)."
    texts = map(markdown_text, map(one_line, [*problems, *missing, copies]))
    return "\n\n".join([*blocks, *texts, f"{_facts(document)}."])


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_json(file)
    return found


def _facts(document: Mapping[str, Any]) -> str:
    """The device, toolkit, sources and date of a result file."""
    return markdown_text(facts_of(document))


def _cell(tell: Callable[[Mapping[str, Any]], str], row: Mapping[str, Any]) -> str:
    try:
        return tell({name: value for name, value in row.items() if value is not None})
    except (KeyError, ZeroDivisionError):  # not counted; no such load
        return "-"
