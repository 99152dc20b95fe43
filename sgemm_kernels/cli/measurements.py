"""Commands that measure and that use results: measure, judge, plot, report."""

import argparse
import re
import sys
from pathlib import Path

from ..measuring.compare import SLOWER, UNSURE, WRONG, judge
from ..measuring.devices import find_device, runnable
from ..measuring.measure import measure
from ..measuring.measurement import CPU_WARNING, KINDS
from ..measuring.results import Results
from ..proving.prove import prove
from .command import (
    CPU_SIZE,
    GPU_SIZE,
    INTERRUPTED_STATUS,
    UNSURE_STATUS,
    WRONG_STATUS,
    Command,
    default_size,
    device_argument,
    program,
    refuse_ignored,
    refuse_missing,
    refuse_unwritable,
    show,
    size,
)
from .report import renew

_PICTURES = (".svg", ".png", ".pdf")


def _measure_arguments(parser: argparse.ArgumentParser) -> None:
    device_argument(parser)
    parser.add_argument(
        "variants",
        metavar="VARIANT",
        nargs="*",
        help="names from 'list', or cublas-tf32 (default: all that run here)",
    )
    parser.add_argument(
        "--sizes",
        metavar="SIZE",
        type=size,
        nargs="+",
        help="N for square matrices, MxNxK, or BATCHxMxNxK for a batch "
        f"(default: {GPU_SIZE}; {CPU_SIZE} on the CPU)",
    )
    cache = parser.add_mutually_exclusive_group()
    cache.add_argument(
        "--cold",
        dest="cache",
        action="store_const",
        const="cold",
        help="operands are not in the L2 cache (default)",
    )
    cache.add_argument(
        "--warm",
        dest="cache",
        action="store_const",
        const="warm",
        help="operands may be in the L2 cache",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="maximum sampling time per size, once each variant has the minimum number of samples "
        "(default: 5)",
    )
    parser.add_argument(
        "--ffma-probe",
        metavar="CU",
        type=Path,
        help="also measure peak rates with this file: benchmarks/peaks.cu",
    )
    parser.add_argument("--json", metavar="JSON", type=Path, help="write all samples to this file")
    parser.add_argument(
        "--csv", metavar="CSV", type=Path, help="write one line per measurement to this file"
    )


def _measure(options: argparse.Namespace) -> int:
    for path in (options.json, options.csv):
        refuse_unwritable(path)
    refuse_missing(options.ffma_probe)
    _refuse_sizes(options.variants)
    device = find_device(options.device)
    if device.kind == "cpu":
        _refuse_on_the_cpu(options)
        print(f"{program()}: {CPU_WARNING}", file=sys.stderr)
    results = measure(
        options.variants or runnable(device),
        options.sizes or default_size(device),
        device=device.name,
        cache=options.cache or "cold",
        seconds=options.seconds,
        ffma_probe=options.ffma_probe,
    )
    try:
        show(results)
    finally:  # also if the output pipe is closed
        if options.json is not None:
            results.to_json(options.json)
        if options.csv is not None:
            results.to_csv(options.csv)
    if results.interrupted:
        return INTERRUPTED_STATUS
    return 0 if all(row.error.right for row in results.rows) else WRONG_STATUS


def _refuse_sizes(names: list[str]) -> None:
    """Raises ValueError for a size among the variants' names."""
    sizes = [name for name in names if re.fullmatch(r"\d+((x\d+){2,3})?", name)]
    if sizes:
        kernels = " ".join(name for name in names if name not in sizes)
        raise ValueError(
            f"{sizes[0]} is a size, not a variant. Pass sizes with --sizes: "
            f"{program()} measure {kernels or 'vec4'} --sizes {' '.join(sizes)}"
        )


def _refuse_on_the_cpu(options: argparse.Namespace) -> None:
    given = {f"--{options.cache}": options.cache, "--ffma-probe": options.ffma_probe}
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{option} needs a GPU and does not work on the CPU device")


def _judge_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD.json", type=Path, help="results of 'measure --json'")
    parser.add_argument(
        "new", metavar="NEW.json", type=Path, help="newer results of the same variants"
    )
    parser.add_argument(
        "--repeats",
        metavar="RUN.json",
        type=Path,
        nargs="+",
        default=[],
        help="more runs of the same code as OLD.json, to estimate the variation between runs",
    )
    parser.add_argument(
        "--fail-on-unsure",
        action="store_true",
        help=f"exit with {UNSURE_STATUS} if nothing is slower or wrong but something is unsure",
    )


def _judge(options: argparse.Namespace) -> int:
    repeats = [Results.from_json(path) for path in options.repeats]
    old, new = (Results.from_json(path) for path in (options.old, options.new))
    verdicts = judge(old, new, repeats=repeats)
    show(verdicts)
    words = {verdict.word for verdict in verdicts}
    if words & {SLOWER, WRONG}:
        return WRONG_STATUS
    return UNSURE_STATUS if options.fail_on_unsure and UNSURE in words else 0


def _plot_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results", metavar="FILE.json", type=Path, help="results of 'measure --json'"
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="FILE.svg",
        type=Path,
        required=True,
        help="the plot to write: .svg, .png or .pdf",
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="speed", help="what to plot (default: speed)"
    )
    parser.add_argument(
        "--dark",
        action=argparse.BooleanOptionalAction,
        help="use the dark theme (default: light; an SVG uses its reader's)",
    )
    parser.add_argument(
        "--pair", metavar="VARIANT", nargs=2, help="the two variants to compare, for --kind pair"
    )
    parser.add_argument(
        "--size",
        metavar="SIZE",
        type=size,
        help="for --kind speedup and limits (default: the largest)",
    )
    parser.add_argument(
        "--traffic",
        metavar="JSON",
        type=Path,
        help="for --kind limits: results of benchmarks/traffic.py",
    )


def _plot(options: argparse.Namespace) -> int:
    used = {"pair": ("pair",), "size": ("speedup", "limits"), "traffic": ("limits",)}
    refuse_ignored(options, used, options.kind)
    if options.output.suffix not in _PICTURES:
        known = ", ".join(_PICTURES)
        raise ValueError(f"{options.output}: unknown plot format; use a name that ends in {known}")
    refuse_unwritable(options.output)
    from ..measuring import plotting  # needs matplotlib

    results = Results.from_json(options.results)
    shape = options.size
    traffic = None
    if options.traffic is not None:
        shape = shape or plotting.common_shape(results, options.traffic)
        traffic = plotting.read_traffic(options.traffic, shape)
    picture = plotting.plot(
        results,
        options.kind,
        dark=options.dark,
        pair=None if options.pair is None else tuple(options.pair),
        size=shape,
        traffic=traffic,
    )
    picture.save(options.output)
    run = results.run
    show(f"{options.output}: {options.kind} on {run.device}, measured {run.date[:10]}")
    return 0


def _report_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "document",
        metavar="DOCUMENT.md",
        type=Path,
        help="the document to update; its comments name the result files",
    )


def _report(options: argparse.Namespace) -> int:
    renew(options.document)
    show(options.document)
    return 0


def _prove_arguments(parser: argparse.ArgumentParser) -> None:
    device_argument(parser)
    parser.add_argument(
        "--json", metavar="JSON", type=Path, help="write the proof to this file, to send it"
    )


def _prove(options: argparse.Namespace) -> int:
    refuse_unwritable(options.json)
    proof = prove(device=options.device)
    if options.json is not None:
        proof.to_json(options.json)
    show(proof)
    return 0 if proof.proven else WRONG_STATUS


COMMANDS = (
    Command(
        "measure",
        "check and time kernels",
        "Checks the result of each kernel and times the correct ones in turn.",
        "vec4 auto --sizes 1024 4096 --json result.json",
        _measure,
        _measure_arguments,
        usage="[VARIANT ...] [OPTION ...]",
    ),
    Command(
        "prove",
        "compare the GPU's tensor cores with their model, so that auto uses them",
        "Compares the tensor cores of the GPU with their published model, bit by bit, checks the "
        "error bound for hard operands, times mma against simt, and stores the verdict. From then "
        "on, auto uses tensor cores on this GPU if they are faster.",
        "--json a100.json",
        _prove,
        _prove_arguments,
        "Exit status: 0 if the tensor cores are proven, 1 if not, 2 if there is no such GPU.",
    ),
    Command(
        "judge",
        "tell which variants became faster or slower between two runs",
        "Compares two runs: for each variant and size, tells whether the newer one is faster, "
        "slower, the same or unsure (too close to tell).",
        "before.json after.json",
        _judge,
        _judge_arguments,
        "Exit status: 0 if nothing is slower, 1 if something is slower or wrong, 2 if the runs "
        f"cannot be compared, {UNSURE_STATUS} if something is unsure and --fail-on-unsure is set.",
        usage="OLD.json NEW.json [OPTION ...]",
    ),
    Command(
        "plot",
        "plot results; needs the extra 'plot'",
        "Plots results of 'measure --json'.",
        "result.json -o speed.svg",
        _plot,
        _plot_arguments,
        usage="FILE.json -o FILE.svg [OPTION ...]",
    ),
    Command(
        "report",
        "update the result tables of a document",
        "Replaces each result table of a Markdown document. A comment such as "
        "<!-- results: table FILE.json --> marks the place of a table.",
        "README.md",
        _report,
        _report_arguments,
    ),
)
