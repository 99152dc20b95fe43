"""The command line: ``python -m sgemm_kernels {info,list,run,check,measure,judge,plot,report}``."""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from . import (
    Device,
    Error,
    UnsupportedVariantError,
    Variant,
    __version__,
    _core,
    build_info,
    devices,
    run,
    variants,
)
from ._accuracy import expect
from ._catalog import default_device
from ._table import row, table
from .judging import SLOWER, WRONG, describe, judge
from .measuring import find_device, measure, runnable
from .reporting import renew
from .results import CPU_WARNING, KINDS, Results, Shape

_PROGRAM = "python -m sgemm_kernels"


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns its exit status.

    0: done. 1: a check failed, or a comparison found something slower or wrong. 2: it could not be
    done. 130: interrupted.
    """
    options = _parser().parse_args(arguments)
    try:
        match options.command:
            case "info":
                return _info()
            case "list":
                return _list()
            case "run":
                return _run(options.variant, options.A, options.B, options.output, options.device)
            case "check":
                return _check(options.device)
            case "measure":
                return _measure(options)
            case "judge":
                return _judge(options.old, options.new)
            case "plot":
                return _plot(options)
            case _:
                return _report(options.document)
    except (Error, OSError, ValueError, TypeError, MemoryError, ImportError) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{_PROGRAM}: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description="Every kernel of the SGEMM ladder.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("info", help="examine this machine and advise")
    commands.add_parser("list", help="list the ladder")

    where = argparse.ArgumentParser(add_help=False)
    where.add_argument("--device", help="cpu, cuda or cuda:N; by default the first usable GPU")
    product = commands.add_parser("run", parents=[where], help="multiply two float32 .npy files")
    product.add_argument("variant", metavar="VARIANT", help="a name from 'list'")
    product.add_argument("A", metavar="A.npy", type=Path)
    product.add_argument("B", metavar="B.npy", type=Path)
    product.add_argument("-o", dest="output", metavar="C.npy", type=Path, required=True)
    commands.add_parser("check", parents=[where], help="check every rung against float64")
    _add_measuring(commands, where)
    return parser


def _add_measuring(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", where: argparse.ArgumentParser
) -> None:
    timing = commands.add_parser(
        "measure",
        parents=[where],
        usage=f"{_PROGRAM} measure [VARIANT ...] [--sizes SIZE ...] [OPTION ...]",
        help="measure rungs, checked and by turns",
    )
    timing.add_argument(
        "variants",
        metavar="VARIANT",
        nargs="*",
        help="names from 'list', or cublas-tf32; by default all of 'list' that run",
    )
    timing.add_argument(
        "--sizes",
        metavar="SIZE",
        type=_size,
        nargs="+",
        default=[1024],
        help="N for square matrices, or MxNxK (default: 1024)",
    )
    cache = timing.add_mutually_exclusive_group()
    cache.add_argument(
        "--cold",
        dest="cache",
        action="store_const",
        const="cold",
        default="cold",
        help="operands come from memory (default)",
    )
    cache.add_argument(
        "--warm", dest="cache", action="store_const", const="warm", help="one set of operands"
    )
    timing.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="most time to sample at each size, after three samples of each (default: 5)",
    )
    timing.add_argument(
        "--ffma-probe", metavar="CU", type=Path, help="measure peaks too: benchmarks/peaks.cu"
    )
    timing.add_argument("--json", metavar="JSON", type=Path, help="write every sample")
    timing.add_argument("--csv", metavar="CSV", type=Path, help="write one line per measurement")

    judging = commands.add_parser(
        "judge",
        help="say of two runs what became faster or slower",
        description="Says of each variant and size that two runs measured whether the newer one "
        "is faster, slower or the same, or that it cannot be told (unsure).",
        epilog="Exit status: 0 if nothing is slower, 1 if something is slower or wrong, 2 if the "
        "runs are not comparable.",
    )
    judging.add_argument("old", metavar="OLD.json", type=Path)
    judging.add_argument("new", metavar="NEW.json", type=Path)

    plot = commands.add_parser("plot", help="draw results; needs the extra 'plot'")
    plot.add_argument("results", metavar="FILE.json", type=Path)
    plot.add_argument("-o", dest="output", metavar="FILE.svg", type=Path, required=True)
    plot.add_argument("--kind", choices=KINDS, default="speed")
    plot.add_argument("--dark", action="store_true", help="for dark pages")
    plot.add_argument("--pair", metavar="VARIANT", nargs=2, help="for --kind pair")
    plot.add_argument(
        "--size", metavar="SIZE", type=_size, help="for speedup and roofline; default: the largest"
    )
    plot.add_argument(
        "--traffic", metavar="JSON", type=Path, help="for roofline: from benchmarks/traffic.py"
    )

    report = commands.add_parser("report", help="write a document's tables anew")
    report.add_argument(
        "document", metavar="README.md", type=Path, help="it names the results in its comments"
    )


def _size(text: str) -> Shape:
    """'N' or 'MxNxK' as (M, N, K)."""
    parts = text.split("x")
    if len(parts) not in (1, 3) or not all(part.isdecimal() and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"a size is N or MxNxK, from 1 up, not {text!r}")
    M, N, K = map(int, parts if len(parts) == 3 else parts * 3)
    return M, N, K


def _info() -> int:
    build = build_info()
    print(f"sgemm_kernels {__version__}, NumPy {np.__version__}, Python {sys.version.split()[0]}")
    print(f"build    csrc {build.csrc_hash}, {build.compiler}")
    if build.cuda_toolkit is None:
        print("         without CUDA")
    else:
        print(f"         CUDA {build.cuda_toolkit}: {' '.join(build.architectures)}")
    for device in devices():
        print(f"{device.name:<8} {_describe(device)}")
    no_gpu = _core._cuda_problem()
    no_reference = next(v.unavailable for v in variants() if v.file is None)
    if no_gpu is not None:
        print(f"GPU      none usable: {no_gpu}")
    print(f"cuBLAS   {no_reference or 'found'}")
    print(_advice(no_gpu, no_reference))
    return 0


def _describe(device: Device) -> str:
    if not device.usable:
        return f"{device.model}, not usable: {device.problem}"
    if device.compute_capability is None:
        return (
            f"{device.model}, {device.multiprocessors} cores, "
            f"{device.memory_bytes / 2**30:.1f} GiB of memory, "
            f"fused multiply-add: {'yes' if device.fused_multiply_add else 'no'}"
        )
    major, minor = device.compute_capability
    figures = [
        device.model,
        f"compute capability {major}.{minor}",
        f"{device.multiprocessors} SMs",
        f"{device.memory_bytes / 2**30:.1f} GiB of memory",
    ]
    if device.clock_mhz is not None:
        figures.append(f"{device.clock_mhz} MHz")
    if device.memory_clock_mhz is not None:
        figures.append(f"memory at {device.memory_clock_mhz} MHz")
    if device.l2_bytes is not None:
        figures.append(f"{device.l2_bytes / 2**20:.0f} MiB of L2")
    if device.shared_bytes_per_multiprocessor is not None:
        figures.append(f"{device.shared_bytes_per_multiprocessor / 2**10:.0f} KiB shared per SM")
    if device.registers_per_multiprocessor is not None:
        figures.append(f"{device.registers_per_multiprocessor} registers per SM")
    if device.driver is not None:
        figures.append(f"driver serves CUDA {device.driver}")
    return ", ".join(figures)


def _advice(no_gpu: str | None, no_reference: str | None) -> str:
    if no_gpu is not None:
        return (
            "Advice: use device='cpu'; every rung is right there, "
            "but its seconds say nothing about a GPU."
        )
    name = default_device().name
    if no_reference is not None:
        return (
            f"Advice: the ladder runs on {name}; for the reference above it, "
            "pip install 'sgemm_kernels[cublas]'."
        )
    return f"Advice: all is well; every variant runs on {name}."


def _list() -> int:
    rows = []
    for variant in variants():
        major, minor = variant.min_compute_capability
        kernel = variant.file is not None
        rows.append(
            (
                variant.name,
                "x".join(map(str, variant.block_tile)) if kernel else "-",
                "x".join(map(str, variant.thread_tile)) if kernel else "-",
                str(variant.threads) if kernel else "-",
                str(variant.shared_bytes) if kernel else "-",
                f"{major}.{minor}",
                " ".join(variant.devices) or "-",
                variant.summary,
            )
        )
    header = ("name", "block", "thread", "threads", "shared", "GPU", "devices", "idea")
    print(table(header, rows))
    return 0


def _run(variant: str, a: Path, b: Path, output: Path, device: str | None) -> int:
    A, B = _load(a), _load(b)
    name = device or default_device().name
    start = time.perf_counter()
    result = run(variant, A, B, device=name)
    seconds = time.perf_counter() - start
    # Through a file object, because np.save appends .npy to a name without it.
    with output.open("wb") as file:
        np.save(file, result)
    rows, columns = result.shape
    print(f"{output}: {rows} x {columns}, {variant} on {name} in {seconds:.3g} s")
    return 0


def _load(path: Path) -> NDArray[np.float32]:
    # Whatever the file holds: run is the one that judges shapes and types.
    try:
        array: NDArray[np.float32] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None
    return array


def _check(device: str | None) -> int:
    name = device or default_device().name
    ladder = variants()
    header = ("rung", "device", "products", "worst error / bound", "result")
    widths = [max(len(header[0]), *(len(v.name) for v in ladder)), max(len(header[1]), len(name))]
    widths += map(len, header[2:])
    print(row(header, widths))
    failed = False
    for variant in ladder:
        try:
            shares = [_worst_share(variant, shape, name) for shape in _shapes(variant)]
        except UnsupportedVariantError as error:
            print(row((variant.name, name, "0", "-", f"not run: {error}"), widths))
            continue
        worst = max(shares)
        passed = worst <= 1
        failed |= not passed
        verdict = "pass" if passed else "FAIL"
        print(row((variant.name, name, str(len(shares)), f"{worst:.3f}", verdict), widths))
    return 1 if failed else 0


def _shapes(variant: Variant) -> Iterator[tuple[int, int, int]]:
    """Shapes (M, N, K) to check: empty, thin, odd, and round the edges of the variant's tile."""
    yield from ((0, 3, 2), (3, 2, 0), (1, 1, 1), (1, 1000, 77), (1000, 1, 77), (257, 131, 193))
    edges = ((max(size - 1, 0), size, size + 1) for size in variant.block_tile)
    yield from itertools.product(*edges)


def _worst_share(variant: Variant, shape: tuple[int, int, int], device: str) -> float:
    M, N, K = shape
    rng = np.random.default_rng(shape)
    A, B, C = (rng.uniform(-1, 1, size).astype(np.float32) for size in ((M, K), (K, N), (M, N)))
    result = run(variant.name, A, B, C=C, alpha=1.1, beta=-0.7, device=device)
    return expect(A, B, C=C, alpha=1.1, beta=-0.7).worst_share(result)


def _measure(options: argparse.Namespace) -> int:
    device = find_device(options.device)
    if device.kind == "cpu":
        print(f"{_PROGRAM}: {CPU_WARNING}", file=sys.stderr)
    results = measure(
        options.variants or runnable(device),
        options.sizes,
        device=device.name,
        cache=options.cache,
        seconds=options.seconds,
        ffma_probe=options.ffma_probe,
    )
    if options.json is not None:
        results.to_json(options.json)
    if options.csv is not None:
        results.to_csv(options.csv)
    print(results)
    if results.interrupted:
        return 130
    return 0 if all(row.error.right for row in results.rows) else 1


def _judge(old: Path, new: Path) -> int:
    verdicts = judge(Results.from_json(old), Results.from_json(new))
    print(describe(verdicts))
    return 1 if any(verdict.word in (SLOWER, WRONG) for verdict in verdicts) else 0


def _plot(options: argparse.Namespace) -> int:
    from . import plotting  # needs matplotlib

    results = Results.from_json(options.results)
    size = options.size
    traffic = None
    if options.traffic is not None:
        size = size or plotting.common_shape(results, options.traffic)
        traffic = plotting.read_traffic(options.traffic, size)
    picture = plotting.plot(
        results,
        options.kind,
        dark=options.dark,
        pair=None if options.pair is None else tuple(options.pair),
        size=size,
        traffic=traffic,
    )
    picture.save(options.output)
    return 0


def _report(document: Path) -> int:
    renew(document)
    print(document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
