"""Experiment 7: ten ideas, each alternating with a baseline in one run.

``python benchmarks/ablations.py`` compiles the kernel of each setting of
``_questions.py`` for this machine's GPU. The kernels of a question then alternate, so that each
ratio comes from one run. ablations/README.md explains the results.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from _questions import QUESTIONS, Kernel, Question
from _results import output_argument, parsed, redraw, write
from _sass import main_loop
from _sweep import PROTOCOL, compile_source, head, measure, parse_report

from sgemm_kernels._style import SERIES, Picture, drawing
from sgemm_kernels._table import table
from sgemm_kernels.cli.experiment_tables import setting_cells, setting_columns

FOLDER = Path(__file__).parent / "ablations"

Row = dict[str, Any]

ARCHITECTURES = {"fp16_pairs.cu": "sm_90a"}
"""Architectures for some files; the others are compiled for the GPU that is present."""

NOTHING = 0.01
"""A smaller difference is neither gain nor loss."""


def kernels(questions: Sequence[Question] = QUESTIONS) -> dict[str, Kernel]:
    """The different kernels, by the names in the compiled program."""
    names: dict[str, Kernel] = {}
    for question in questions:
        for setting in question.settings:
            kernel = question.kernel(setting)
            if kernel not in names.values():
                names[f"kernel_{len(names)}"] = kernel
    return names


def attempt(work: Callable[[], Row]) -> Row:
    """The row of one setting. If it fails, the row has only the `problem`; other settings go on."""
    try:
        return work()
    except (SystemExit, subprocess.SubprocessError, ValueError) as error:
        return {"problem": str(error).strip() or type(error).__name__}


def compile_kernel(name: str, kernel: Kernel, output: Path, architecture: str) -> Row:
    """Compiles a kernel to an object file; returns the figures of the compiler and of its code."""
    text = compile_source(
        FOLDER / kernel.source,
        {"NAME": name} | kernel.constants,
        output,
        "-c",
        architecture=architecture,
    )
    return parse_report(text, name) | main_loop(output)


def alternating(program: Path, n: int, names: list[str]) -> dict[str, Row]:
    """Times the kernels alternately; returns their rows by name. If a kernel crashes the program,
    its row has a `problem`, and the others alternate without it."""

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


def run(questions: Sequence[Question] = QUESTIONS) -> tuple[Row, list[Row]]:
    """The head of the result file, and a row for each setting and size, in order.

    Raises SystemExit if nothing could be measured.
    """
    named = kernels(questions)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as compilers:
        objects = {name: Path(folder) / f"{name}.o" for name in named}
        found = compilers.map(
            lambda name: attempt(
                lambda: compile_kernel(
                    name,
                    named[name],
                    objects[name],
                    ARCHITECTURES.get(named[name].source, "native"),
                )
            ),
            named,
        )
        reports = dict(zip(named, found, strict=True))
        compiled = [name for name, report in reports.items() if "problem" not in report]
        program = Path(folder) / "alternate"
        compile_source(FOLDER / "alternate.cu", {}, program, *(objects[name] for name in compiled))
        rows: list[Row] = []
        for question in questions:
            wanted = [question.kernel(setting) for setting in question.settings]
            names = [next(n for n in named if named[n] == kernel) for kernel in wanted]
            for n in question.sizes:
                measured = alternating(program, n, [name for name in names if name in compiled])
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
    document = head(known["device"], known["driver"])
    document["protocol"] = f"{PROTOCOL}; the kernels of a question alternate"
    kept = [{k: v for k, v in row.items() if k not in ("device", "driver")} for row in rows]
    return document, kept


def compared(baseline: Row, row: Row) -> Row:
    """The speedup over the baseline: from the medians, and its quartiles over all rounds."""
    if "median_s" not in baseline or "median_s" not in row:
        return {}
    pairs = zip(baseline["samples_s"], row["samples_s"], strict=True)
    ratios = [before / after for before, after in pairs]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        "ratio": baseline["median_s"] / row["median_s"],
        "ratio_quartiles": [low, high],
    }


# ----------------------------------------------------------------------------------- results


def of(question: Question, rows: list[Row]) -> list[Row]:
    return [row for row in rows if row["question"] == question.key]


def lines(rows: list[Row], questions: Sequence[Question] = QUESTIONS) -> str:
    """The table for the terminal."""
    columns = setting_columns(rows)
    found = []
    for question in questions:
        found.append([question.idea, *[""] * (len(columns) - 1)])
        for row in of(question, rows):
            name, *figures = setting_cells(row, columns)
            found.append([f"  {name}", *figures])
    return table(columns, found)


def print_found(questions: Sequence[Question], document: Row, rows: list[Row]) -> None:
    """Prints the table, and which settings are missing, and why."""
    print(f"{document['device']}, CUDA {document['cuda_toolkit']}\n")
    print(lines(rows, questions))
    for row in rows:
        if "problem" in row:
            print(f"\n{row['question']}, {row['setting']}, {row['n']} left out: {row['problem']}")


def altered(question: Question, rows: list[Row]) -> list[tuple[str, Row]]:
    """The rows that are not baselines. Names include the size if a question has several."""
    baseline = question.settings[0].name
    return [
        (f"{row['setting']}, {row['n']}" if len(question.sizes) > 1 else row["setting"], row)
        for row in of(question, rows)
        if row["setting"] != baseline
    ]


def picture(document: Row, rows: list[Row]) -> Picture:
    """Draws the speedup of each altered setting with its quartiles, and a line at 1."""
    ratios = [row["ratio"] for question in QUESTIONS for _, row in altered(question, rows)
              if "ratio" in row]  # fmt: skip
    helped = sum(ratio > 1 + NOTHING for ratio in ratios)
    title = f"Ten ideas in {len(ratios)} settings: {helped} helped by more than {NOTHING:.0%}"
    note = f"speedup over the baseline setting (with quartiles), {document['device']}"
    with drawing(title, note, height=12) as (figure, theme):
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
            labels.append((place + 1, f"baseline: {question.settings[0].name}"))
            place += 2
            for name, row in altered(question, rows):
                labels.append((place, name))
                if "ratio" in row:
                    ratio, (low, high) = row["ratio"], row["ratio_quartiles"]
                    colour = theme.grey
                    if abs(ratio - 1) > NOTHING:
                        colour = SERIES[0] if ratio > 1 else SERIES[1]
                    axes.hlines(place, 1, ratio, color=colour, linewidth=2, alpha=0.5)
                    axes.plot(ratio, place, "o", color=colour, markersize=5)
                    axes.plot([low, high], [place, place], "|-", color=theme.ink, markersize=9)
                    axes.annotate(
                        f"{ratio:.3f}  ({low:.3f} to {high:.3f})",
                        (max(ratio, high, 1), place),
                        xytext=(8, 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=9,
                    )
                place += 1
            place += 0.5
        axes.axvline(1, color=theme.ink, linewidth=1.5)
        axes.set_yticks([at for at, _ in labels], [name for _, name in labels], fontsize=9)
        axes.tick_params(axis="y", length=0)
        axes.set(
            ylim=(place, -1), xlabel="speedup: blue is faster, orange is slower, grey is neither"
        )
        axes.margins(x=0.2)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
    return figure


def main() -> None:
    parser = output_argument(__doc__.splitlines()[0], "ablations")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    document, rows = run()
    print_found(QUESTIONS, document, rows)
    write(arguments.output, "ablations", document, rows, picture)


if __name__ == "__main__":
    main()
