"""Experiment 7: what did not help. Eleven ideas, each against a baseline, by turns in one run.

``python benchmarks/ablations.py`` compiles the kernel of each setting of
``_questions.py`` for this machine's GPU. The kernels of a question then take turns, so that each
ratio comes from one run. ``python benchmarks/ablations.py --page`` writes what was found into
``benchmarks/ablations/README.md``.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _questions import QUESTIONS, Kernel, Question
from _results import output_argument, write
from _sass import main_loop
from _sweep import HARNESS, PROTOCOL, compile_source, head, measure, milliseconds, parse_report
from matplotlib.figure import Figure

from sgemm_kernels._table import table

FOLDER = Path(__file__).parent / "ablations"
PAGE = FOLDER / "README.md"
RUNGS = Path(__file__).parent.parent / "csrc" / "kernels"
SOURCES = [
    *(FOLDER / name for name in ("tile.cu", "async.cu", "tma.cu", "rung.h", "turns.h", "turns.cu")),
    *(RUNGS / name for name in ("async.h", "quad.h", "kernel.h")),
]

Row = dict[str, Any]


def kernels() -> dict[str, Kernel]:
    """The different kernels, each by the name that it is compiled under."""
    names: dict[str, Kernel] = {}
    for question in QUESTIONS:
        for setting in question.settings:
            kernel = question.kernel(setting)
            if kernel not in names.values():
                names[f"kernel_{len(names)}"] = kernel
    return names


def attempt(work: Callable[[], Row]) -> Row:
    """What came of some work on one setting: its row, or the `problem` that ended it, so that the
    others keep their results."""
    try:
        return work()
    except (SystemExit, subprocess.SubprocessError, ValueError) as error:
        return {"problem": str(error).strip() or type(error).__name__}


def compile_kernel(name: str, kernel: Kernel, output: Path, architecture: str) -> Row:
    """Compiles a kernel to an object file; returns what the compiler and its code say of it."""
    text = compile_source(
        FOLDER / kernel.source,
        {"NAME": name} | kernel.constants,
        output,
        "-c",
        architecture=architecture,
    )
    return parse_report(text, name) | main_loop(output)


def by_turns(program: Path, n: int, names: list[str]) -> dict[str, Row]:
    """The kernels' rows by name. One that ends the program has a problem, and the others take turns
    without it."""

    def together(chosen: list[str]) -> dict[str, Row]:
        return dict(zip(chosen, measure(program, n, *chosen), strict=True))

    found = attempt(lambda: together(names))
    if "problem" not in found:
        return found
    alone = {name: attempt(lambda name=name: together([name])[name]) for name in names}
    whole = [name for name, row in alone.items() if "problem" not in row]
    again = attempt(lambda: together(whole)) if whole else {}
    if "problem" in again:
        again = dict.fromkeys(whole, again)
    return alone | again


def run() -> tuple[Row, list[Row]]:
    """The head of the result file, and a row for each setting and size, in order. Raises SystemExit
    where nothing could be measured."""
    named = kernels()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as compilers:
        objects = {name: Path(folder) / f"{name}.o" for name in named}
        found = compilers.map(
            lambda name: attempt(
                lambda: compile_kernel(name, named[name], objects[name], "native")
            ),
            named,
        )
        reports = dict(zip(named, found, strict=True))
        compiled = [name for name, report in reports.items() if "problem" not in report]
        program = Path(folder) / "turns"
        compile_source(FOLDER / "turns.cu", {}, program, *(objects[name] for name in compiled))
        rows: list[Row] = []
        for question in QUESTIONS:
            wanted = [question.kernel(setting) for setting in question.settings]
            names = [next(n for n in named if named[n] == kernel) for kernel in wanted]
            for n in question.sizes:
                measured = by_turns(program, n, [name for name in names if name in compiled])
                baseline = measured.get(names[0], {})
                for setting, name in zip(question.settings, names, strict=True):
                    row = measured.get(name, {})
                    rows.append(
                        {"question": question.key, "setting": setting.name, "n": n}
                        | {"source": named[name].source}
                        | {key.lower(): value for key, value in named[name].constants.items()}
                        | reports[name]
                        | row
                        | compared(baseline, row)
                    )
    known = next((row for row in rows if "device" in row), None)
    if known is None:
        raise SystemExit(rows[0]["problem"])
    document = head(known["device"], known["driver"], [*HARNESS, *SOURCES])
    document["protocol"] = f"{PROTOCOL}; the kernels of a question by turns"
    kept = [{k: v for k, v in row.items() if k not in ("device", "driver")} for row in rows]
    return document, kept


def compared(baseline: Row, row: Row) -> Row:
    """How many times as fast as the baseline, by the medians, and the quartiles over all rounds."""
    if "median_s" not in baseline or "median_s" not in row:
        return {}
    pairs = zip(baseline["samples_s"], row["samples_s"], strict=True)
    ratios = [before / after for before, after in pairs]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        "ratio": baseline["median_s"] / row["median_s"],
        "ratio_quartiles": [low, high],
    }


# ----------------------------------------------------------------------------------- what was found

SETTINGS_HEADER = ("setting", "n", "registers", "spilled bytes", "blocks an SM", "loop")
SETTINGS_HEADER += ("FFMA", ".reuse", "one bank", "ahead", "ms", "ratio", "quartiles")


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def count(value: int | None) -> str:
    return "-" if value is None else str(value)


def cells(row: Row) -> tuple[str, ...]:
    """A row for a table; the columns are those of SETTINGS_HEADER."""
    spilled = [row.get(f"spill_{kind}_bytes") for kind in ("store", "load")]
    return (
        row["setting"],
        str(row["n"]),
        count(row.get("registers")),
        count(None if None in spilled else sum(spilled)),
        count(row.get("resident_blocks")),
        count(row.get("loop_instructions")),
        percent(row.get("ffma_share")),
        percent(row.get("reuse_share")),
        percent(row.get("conflict_share")),
        count(row.get("load_distance")),
        "failed" if "problem" in row else milliseconds(row),
        f"{row['ratio']:.3f}" if "ratio" in row else "-",
        "{:.3f} to {:.3f}".format(*row["ratio_quartiles"]) if "ratio" in row else "-",
    )


def of(question: Question, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["question"] == question.key]


def lines(rows: list[Row]) -> str:
    """The table for the terminal."""
    found = []
    for question in QUESTIONS:
        found.append((question.idea, *[""] * (len(SETTINGS_HEADER) - 1)))
        found += [(f"  {cells(row)[0]}", *cells(row)[1:]) for row in of(question, rows)]
    return table(SETTINGS_HEADER, found)


def altered(question: Question, rows: list[Row]) -> list[tuple[str, Row]]:
    """The rows that are not baselines, with names that tell sizes apart if there are several."""
    baseline = question.settings[0].name
    return [
        (f"{row['setting']}, {row['n']}" if len(question.sizes) > 1 else row["setting"], row)
        for row in of(question, rows)
        if row["setting"] != baseline
    ]


def picture(document: Row, rows: list[Row]) -> Figure:
    """The ratio of each altered setting, with its quartiles, and a line at 1."""
    figure = Figure(figsize=(8, 11), layout="constrained")
    axes = figure.subplots()
    labels: list[tuple[float, str]] = []
    place = 0.0
    for question in QUESTIONS:
        axes.text(
            -0.02,
            place,
            question.idea,
            transform=axes.get_yaxis_transform(),
            ha="right",
            va="center",
            weight="bold",
        )
        place += 1
        labels.append((place, f"against: {question.settings[0].name}"))
        place += 1
        for name, row in altered(question, rows):
            labels.append((place, name))
            if "ratio" in row:
                ratio, (low, high) = row["ratio"], row["ratio_quartiles"]
                axes.hlines(place, low, high, color="C0", linewidth=5, alpha=0.4)
                axes.plot(ratio, place, "o", color="C0", markersize=5)
                axes.annotate(
                    f"{ratio:.2f}",
                    (max(ratio, high), place),
                    xytext=(7, 0),
                    textcoords="offset points",
                    va="center",
                    fontsize=9,
                )
            place += 1
        place += 0.5
    axes.axvline(1, color="0.4", linewidth=1)
    axes.set_yticks([at for at, _ in labels], [name for _, name in labels], fontsize=9)
    axes.tick_params(axis="y", length=0)
    axes.set(ylim=(place, -1), xlabel="times as fast; right of 1 is faster; with quartiles")
    axes.margins(x=0.12)
    axes.grid(axis="x", alpha=0.3)
    for side in ("left", "right", "top"):
        axes.spines[side].set_visible(False)
    figure.suptitle(f"What did not help\n{document['device']}")
    return figure


# ----------------------------------------------------------------------------------------- the page


def markdown(header: tuple[str, ...], rows: list[tuple[str, ...]], aligned: str = ":--") -> str:
    """A table whose first column is aligned on the left, and the others as `aligned` says."""
    lines = [header, (":--", *[aligned] * (len(header) - 1)), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def answers(rows: list[Row]) -> str:
    """The ideas, each with its prediction, what came of it, and why."""
    found = []
    for question in QUESTIONS:
        results = [f"against: {question.settings[0].name}"]
        for name, row in altered(question, rows):
            if "ratio" in row:
                low, high = row["ratio_quartiles"]
                results.append(f"{name} **{row['ratio']:.2f}** ({low:.3f} to {high:.3f})")
            elif "median_s" in row:
                results.append(f"{name} {milliseconds(row)} ms, without a baseline")
            else:
                results.append(f"{name} {'failed' if 'problem' in row else 'wrong'}")
        measured = len(results) > 1
        found.append(
            (
                question.idea,
                question.prediction,
                "<br>".join(results) if measured else "not measured yet",
                question.cause if measured else "-",
            )
        )
    return markdown(("idea", "prediction", "result", "cause"), found)


def settings(rows: list[Row]) -> str:
    """Every setting, with what the compiler made of it."""
    if not rows:
        return "Not measured yet."
    found = []
    for question in QUESTIONS:
        found.append((f"**{question.idea}**", *[""] * (len(SETTINGS_HEADER) - 1)))
        found += [cells(row) for row in of(question, rows)]
    return markdown(SETTINGS_HEADER, found, "--:")


def drawn(document: Row) -> str:
    """The picture, and where the figures come from."""
    if not document:
        return "Not measured yet."
    return (
        "![Times as fast as the baseline, for each altered setting](../results/ablations.svg)\n\n"
        f"{document['device']}, CUDA {document['cuda_toolkit']}, driver {document['driver']}, "
        f"sources {document['sources_hash']}, {document['date'][:10]}: {document['protocol']}."
    )


def page(text: str, document: Row) -> str:
    """A document with its blocks written anew; `document` is empty before the first measurement."""
    rows = document.get("rows", [])
    blocks = {"answers": answers(rows), "settings": settings(rows), "picture": drawn(document)}
    for name, block in blocks.items():
        begin, end = f"<!-- ablations: {name} -->\n", "<!-- end of ablations -->"
        text, count = re.subn(
            f"({begin}).*?({end})",
            lambda match, block=block: f"{match[1]}{block}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(f"the page has {count} blocks {name!r}, not one")
    return text


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "ablations")
    parser.add_argument("--page", action="store_true", help=f"write the file's results into {PAGE}")
    arguments = parser.parse_args()
    if arguments.page:
        document = json.loads(arguments.output.read_text(encoding="utf-8"))
        PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), document), encoding="utf-8")
        return
    document, rows = run()
    print(f"{document['device']}, CUDA {document['cuda_toolkit']}\n")
    print(lines(rows))
    for row in rows:
        if "problem" in row:
            print(f"\n{row['question']}, {row['setting']}, {row['n']} left out: {row['problem']}")
    write(arguments.output, "ablations", document, rows, picture(document, rows))


if __name__ == "__main__":
    main()
