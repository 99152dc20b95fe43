"""Commands about the machine, the ladder and single products: info, list, run, check."""

import argparse
import itertools
import json
import shlex
import sys
import textwrap
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenError
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _core, _cublas, _plans, _proofs
from .._accuracy import expect
from .._catalog import Device, Variant, build_info, default_device, devices, variants
from .._core import UnsupportedVariantError, run
from .._output import is_stream, write
from .._table import row, table
from .._version import __version__
from ..measuring.measurement import LIBRARIES
from .command import WRONG_STATUS, Command, device_argument, refuse_unwritable, show


def _info(_: argparse.Namespace) -> int:
    build = build_info()
    show(f"sgemm_kernels {__version__}, NumPy {np.__version__}, Python {sys.version.split()[0]}")
    _fact("build", f"csrc {build.csrc_hash}, {build.compiler}")
    if build.hip is not None:
        _fact("", f"HIP {build.hip}: {' '.join(build.architectures)}")
    elif build.cuda_toolkit is not None:
        _fact("", f"CUDA {build.cuda_toolkit}: {' '.join(build.architectures)}")
    else:
        _fact("", "without CUDA")
    for device in devices():
        _fact(device.name, _describe(device))
        if device.usable and device.compute_capability is not None:
            _fact("", _describe_choices(device, device.compute_capability))
    no_gpu = _core._cuda_problem()
    no_reference = next(v.unavailable for v in variants() if v.file is None)
    if no_gpu is not None:
        _fact("GPU", f"none usable: {no_gpu}")
    _fact(LIBRARIES[_core._GPU_KIND], no_reference or "found")
    _fact("Advice:", _advice(no_gpu, no_reference))
    return 0


def _fact(name: str, text: str) -> None:
    """Prints an entry of ``info``, wrapped at 80 columns."""
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    show(textwrap.fill(f"{name:<8} {text}", 80, subsequent_indent=" " * 9, **options))


def _describe(device: Device) -> str:
    if not device.usable:
        return f"{device.model}, not usable: {device.problem}"
    if device.kind == "cpu":
        return (
            f"{device.model}, {device.multiprocessors} cores, "
            f"{device.memory_bytes / 2**30:.1f} GiB of memory, "
            f"fused multiply-add: {'yes' if device.fused_multiply_add else 'no'}"
        )
    figures = [device.model]
    if device.compute_capability is not None:
        figures.append("compute capability {}.{}".format(*device.compute_capability))
    units = "SM" if device.kind == "cuda" else "compute unit"
    figures += [
        f"{device.multiprocessors} {units}s",
        f"{device.memory_bytes / 2**30:.1f} GiB of memory",
    ]
    if device.clock_mhz is not None:
        figures.append(f"{device.clock_mhz} MHz")
    if device.memory_clock_mhz is not None:
        figures.append(f"memory at {device.memory_clock_mhz} MHz")
    if device.l2_bytes is not None:
        figures.append(f"{device.l2_bytes / 2**20:.0f} MiB of L2")
    if device.shared_bytes_per_multiprocessor is not None:
        figures.append(
            f"{device.shared_bytes_per_multiprocessor / 2**10:.0f} KiB shared per {units}"
        )
    if device.registers_per_multiprocessor is not None:
        figures.append(f"{device.registers_per_multiprocessor} registers per {units}")
    if device.driver is not None:
        figures.append(f"driver supports {device.kind.upper()} {device.driver}")
    return ", ".join(figures)


def _describe_choices(device: Device, capability: tuple[int, int]) -> str:
    """What ``auto`` knows of a GPU: its tensor cores, and the constants of the estimates."""
    proof = _proofs.known(device.model, capability)
    if capability == (9, 0):
        cores = "compared with their model for every H100 and H200"
    elif proof is not None:
        cores = f"proven on {proof['date'][:10]}"
    elif capability >= (8, 0):
        cores = "not proven, so auto does not use them: run 'sgemm-kernels prove'"
    else:
        cores = "not used"
    return f"tensor cores: {cores}; estimates of simt: {_plans.source_of(device)}"


def _advice(no_gpu: str | None, no_reference: str | None) -> str:
    if no_gpu is not None:
        return (
            "use --device cpu, or device='cpu' in Python. Every rung is correct on the CPU device, "
            "but its timing does not predict a GPU's."
        )
    name = default_device().name
    if no_reference is not None:
        return f"the ladder runs on {name}; for the reference library, {_cublas.REMEDY}."
    return f"no problems found; every variant runs on {name}."


_GEOMETRY = ("block", "thread", "threads", "shared, bytes", "oldest GPU", "devices")


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tiles", action="store_true", help="show tiles and threads instead of the idea"
    )


def _list(options: argparse.Namespace) -> int:
    if options.tiles:
        show(table(("name", *_GEOMETRY), [(v.name, *_geometry(v)) for v in variants()]))
    else:
        show(table(("name", "idea"), [(v.name, v.summary) for v in variants()]))
    return 0


def _geometry(variant: Variant) -> tuple[str, ...]:
    where = "{}.{}".format(*variant.min_compute_capability), " ".join(variant.devices) or "-"
    if variant.file is None:
        return "-", "-", "-", "-", *where
    tiles = ("x".join(map(str, tile)) for tile in (variant.block_tile, variant.thread_tile))
    return *tiles, str(variant.threads), str(variant.shared_bytes), *where


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    device_argument(parser)
    parser.add_argument("variant", metavar="VARIANT", help="a name from 'list'")
    parser.add_argument("A", metavar="A.npy", type=Path, help="a float32 matrix")
    parser.add_argument(
        "B", metavar="B.npy", type=Path, help="a float32 matrix with as many rows as A has columns"
    )
    parser.add_argument(
        "-o",
        dest="output",
        metavar="C.npy",
        type=Path,
        required=True,
        help="where to write A @ B; a pipe and /dev/stdout work too",
    )


def _run(options: argparse.Namespace) -> int:
    refuse_unwritable(options.output)
    A, B = _load(options.A), _load(options.B)
    for path, array in ((options.A, A), (options.B, B)):
        _refuse_array(path, array)
    _refuse_shapes(options, A, B)
    name = options.device or default_device().name
    start = time.perf_counter()
    result = run(options.variant, A, B, device=name)
    seconds = time.perf_counter() - start
    # np.save would seek in a file, which fails for a pipe and hides the cause if a disk is
    # full.
    write(options.output, lambda file: np.save(SimpleNamespace(write=file.write), result))
    rows, columns = result.shape
    to = sys.stderr if is_stream(options.output) else sys.stdout
    show(
        f"{options.output}: {rows} x {columns}, {options.variant} on {name} in {seconds:.3g} s", to
    )
    return 0


def _refuse_array(path: Path, array: NDArray[Any]) -> None:
    """Raises ValueError, with a command to fix it, for an array that is not a float32 matrix."""
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path} has dtype {array.dtype}, but run needs float32")
    change, fault = "", ""
    if array.dtype.newbyteorder("=") != np.float32:
        fault = f"{path} has dtype {array.dtype}, but run needs float32"
        change += '.astype("float32")'
    if array.ndim != 2:
        fault = fault or f"{path} has shape {array.shape}, but run needs a matrix"
        change += ".reshape(1, -1)" if array.ndim < 2 else f".reshape(-1, {array.shape[-1]})"
    if fault:
        raise ValueError(f"{fault}. Convert it with: {_conversion(path, change)}")


def _refuse_shapes(options: argparse.Namespace, A: NDArray[Any], B: NDArray[Any]) -> None:
    """Raises ValueError if A's column count differs from B's row count."""
    if A.shape[1] == B.shape[0]:
        return
    of_A, of_B = ("{} x {}".format(*matrix.shape) for matrix in (A, B))
    to_transpose = options.B if A.shape[1] == B.shape[1] else options.A
    fits = A.shape[1] == B.shape[1] or A.shape[0] == B.shape[0]
    remedy = f" Transpose {to_transpose} with: {_conversion(to_transpose, '.T')}" if fits else ""
    raise ValueError(
        f"{options.A} is {of_A} and {options.B} is {of_B}: the number of columns of the first must "
        f"equal the number of rows of the second.{remedy}"
    )


def _conversion(path: Path, change: str) -> str:
    """A command that applies `change` to the array and writes a new file."""
    new = path.with_name(f"{path.stem}-converted.npy")
    to, source = (json.dumps(str(each)) for each in (new, path))
    code = f"import numpy; numpy.save({to}, numpy.load({source}){change})"
    return f"python3 -c {shlex.quote(code)}"


_NPY, _ZIP = b"\x93NUMPY", b"PK"
"""The first bytes of files of numpy.save() and numpy.savez()."""


def _load(path: Path) -> NDArray[np.float32]:
    with path.open("rb") as file:
        if not file.read(len(_NPY)).startswith((_NPY, _ZIP)):
            raise ValueError(f"{path} is not a .npy file: create one with numpy.save()")
        file.seek(0)
        # Accept any array here; the callers check its shape and type.
        try:
            found = np.load(file, allow_pickle=False)
        except (ValueError, OverflowError, SyntaxError, TokenError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a .npy file of numbers: {error}") from None
    if not isinstance(found, np.ndarray):
        names = ", ".join(found.files)
        raise ValueError(
            f"{path} is an archive of arrays ({names}), not a .npy file: save one of them with "
            "numpy.save()"
        )
    array: NDArray[np.float32] = found
    return array


def _check(options: argparse.Namespace) -> int:
    name = options.device or default_device().name
    ladder = variants()
    header = ("rung", "device", "products", "worst error / bound", "result")
    widths = [max(len(header[0]), *(len(v.name) for v in ladder)), max(len(header[1]), len(name))]
    widths += map(len, header[2:])
    figures = (2, 3)
    one = np.ones((1, 1), np.float32)
    run(ladder[0].name, one, one, device=name)  # fail before the header if the device is unusable
    show(row(header, widths, figures))
    failed = False
    for variant in ladder:
        try:
            shares = [_worst_share(variant, shape, name) for shape in _shapes(variant)]
        except UnsupportedVariantError as error:
            show(row((variant.name, name, "0", "-", f"not run: {error}"), widths, figures))
            continue
        worst = max(shares)
        passed = worst <= 1
        failed |= not passed
        verdict = "pass" if passed else "FAIL"
        cells = (variant.name, name, str(len(shares)), f"{worst:.3f}", verdict)
        show(row(cells, widths, figures))
    return WRONG_STATUS if failed else 0


def _shapes(variant: Variant) -> Iterator[tuple[int, ...]]:
    """Shapes (M, N, K) and (batch, M, N, K) to check: empty, thin, odd, and around the size of the
    variant's tile."""
    yield from ((0, 3, 2), (3, 2, 0), (1, 1, 1), (1, 1000, 77), (1000, 1, 77), (257, 131, 193))
    yield from ((0, 3, 2, 4), (300, 4, 4, 4), (7, 17, 33, 29), (3, 65, 130, 300))
    edges = ((max(size - 1, 0), size, size + 1) for size in variant.block_tile)
    yield from itertools.product(*edges)


def _worst_share(variant: Variant, shape: tuple[int, ...], device: str) -> float:
    *batch, M, N, K = shape
    rng = np.random.default_rng(shape)
    A, B, C = (
        rng.uniform(-1, 1, (*batch, *size)).astype(np.float32) for size in ((M, K), (K, N), (M, N))
    )
    result = run(variant.name, A, B, C=C, alpha=1.1, beta=-0.7, device=device)
    return expect(A, B, C=C, alpha=1.1, beta=-0.7).worst_share(result)


COMMANDS = (
    Command(
        "info",
        "show this machine's devices and problems",
        "Shows versions, devices and missing parts, and advises what to do.",
        "",
        _info,
    ),
    Command(
        "list",
        "list the ladder",
        "Lists every kernel with its idea, or with its tile sizes.",
        "--tiles",
        _list,
        _list_arguments,
    ),
    Command(
        "run",
        "multiply two float32 .npy files",
        "Multiplies the matrices in two files with one kernel and writes the product.",
        "auto A.npy B.npy -o C.npy",
        _run,
        _run_arguments,
        usage="VARIANT A.npy B.npy -o C.npy [OPTION ...]",
    ),
    Command(
        "check",
        "check every rung against float64",
        "Multiplies matrices and batches of many shapes with every kernel and compares the results "
        "with float64.",
        "--device cpu",
        _check,
        device_argument,
        "Exit status: 1 if a result is wrong.",
    ),
)
