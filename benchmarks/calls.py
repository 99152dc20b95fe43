"""Experiment 18: the host's time to queue a call, from PyTorch, CuPy, JAX and NumPy.

``python benchmarks/calls.py`` needs a GPU. At 16 to 1024 it times loops of 20 calls, without the
wait for the GPU that follows: `run` with tensors, with DeviceArray and with NumPy's arrays, the
operators of `sgemm_kernels.torch`, `torch.mm` with and without `enable()`, CuPy and JAX. At 256 to
4096 it times 100 products in a row with their wait, and it counts the kernels of one product. All
ways are checked and alternate. A library that is not installed is left out, and the result names
it. Writes JSON with every sample, prints tables, and draws a picture.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from _modules import first_line, imported
from _results import facts, measuring, output_argument, parsed, redraw, summary, write

from sgemm_kernels import run
from sgemm_kernels._style import (
    SERIES,
    Picture,
    Theme,
    drawing,
    label_ends,
    label_of,
    ticks,
)
from sgemm_kernels._table import table
from sgemm_kernels.cli.experiment_tables import (
    AUTO_OUT,
    DEVICE_ARRAYS,
    MM,
    MM_OUT,
    NUMPY,
    RUN,
    RUN_OUT,
    SIMT_OUT,
    of_calls,
    targets,
)
from sgemm_kernels.measuring.devices import find_gpu
from sgemm_kernels.measuring.truth import Truth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUEUE, IN_A_ROW, KERNELS = "queue", "in a row", "kernels"
SIZES = (16, 32, 64, 128, 256, 512, 1024)
QUICK_SIZES = (16, 64, 256, 1024)
ROW_SIZES = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096)
QUICK_ROW_SIZES = (256, 1024, 4096)
SECONDS, QUICK_SECONDS = 1.5, 0.3
"""To sample a size, all ways together."""
CALLS, PRODUCTS = 20, 100
"""Calls of a loop that are timed without the wait, and products in a row with it."""
FEWEST_ROUNDS, MOST_ROUNDS = 3, 100
COUNTED_SIZE, COUNTED = 1024, 5
"""The size and the number of the products whose kernels are counted."""

MODULES = {
    "torch": "torch",
    "operators": "sgemm_kernels.torch",
    "cupy": "cupy",
    "jax": "jax",
    "jax products": "sgemm_kernels.jax",
}
"""Modules by the name that the result reports if they are missing."""
ENABLED, ENABLED_OUT = "torch.mm after enable()", "torch.mm, out=, after enable()"
OPERATOR, OPERATOR_OUT = "torch.ops.sgemm_kernels.mm.default", "torch.ops.sgemm_kernels.mm.out"
JAX, JAX_OURS = "jax.numpy.matmul, jit", "sgemm_kernels.jax.matmul, jit"
CUPY_OUT = "cupy.matmul, out="

Modules = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """A way to multiply two matrices."""

    call: Callable[[], Any]
    """Returns the product, or queues it."""
    finish: Callable[[Any], Any]
    """Waits until the product that `call` returned is complete."""
    around: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext


class Bare:
    """An array of a GPU that offers `__cuda_array_interface__` alone, so `run` returns a
    DeviceArray."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__cuda_array_interface__


def on_host(result: Any) -> np.ndarray:
    """A copy of a result of any library."""
    for copy in ("get", "cpu"):
        if hasattr(result, copy):
            result = getattr(result, copy)()
    return np.asarray(result)


def wait_of(found: Modules) -> Callable[[Any], Any]:
    """Waits for all of PyTorch's work on the GPU."""
    return lambda _: found["torch"].cuda.synchronize()


def tensors(found: Modules, A: np.ndarray, B: np.ndarray) -> tuple[Any, Any, Any]:
    """A, B and memory for their product, as PyTorch's tensors on the GPU."""
    torch = found["torch"]
    a, b = (torch.from_numpy(X).cuda() for X in (A, B))
    return a, b, torch.empty((A.shape[0], B.shape[1]), device=a.device)


def of_torch(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Queued calls with PyTorch's tensors."""
    torch, wait = found["torch"], wait_of(found)
    a, b, c = tensors(found, A, B)
    yield MM, Way(lambda: torch.mm(a, b), wait)
    yield MM_OUT, Way(lambda: torch.mm(a, b, out=c), wait)
    yield RUN, Way(lambda: run("simt", a, b), wait)
    yield RUN_OUT, Way(lambda: run("simt", a, b, out=c), wait)


def of_operators(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Calls of our operators, and of PyTorch's while ours are enabled."""
    torch, enable, wait = found["torch"], found["operators"].enable, wait_of(found)
    a, b, c = tensors(found, A, B)
    # The overloads: PyTorch takes longer to choose between them.
    product, product_out = torch.ops.sgemm_kernels.mm.default, torch.ops.sgemm_kernels.mm.out

    def into_c() -> Any:
        product_out(a, b, out=c)  # returns nothing
        return c

    yield OPERATOR, Way(lambda: product(a, b), wait)
    yield OPERATOR_OUT, Way(into_c, wait)
    yield ENABLED, Way(lambda: torch.mm(a, b), wait, enable)
    yield ENABLED_OUT, Way(lambda: torch.mm(a, b, out=c), wait, enable)


def of_device_arrays(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Calls with DeviceArray and a stream of PyTorch's, for square matrices."""
    one = np.eye(len(A), dtype=np.float32)
    placed = [Bare(found["torch"].from_numpy(X).cuda()) for X in (one, A, B)]
    stream = found["torch"].cuda.Stream()
    a, b, c = (run("simt", placed[0], each) for each in (*placed[1:], placed[0]))
    yield (
        DEVICE_ARRAYS,
        Way(lambda: run("simt", a, b, out=c, stream=stream), lambda _: stream.synchronize()),
    )


def of_numpy(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Whole calls, which copy both operands and the result."""
    yield NUMPY, Way(lambda: run("simt", A, B), lambda _: None)


def of_cupy(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    cupy = found["cupy"]
    a, b = cupy.asarray(A), cupy.asarray(B)
    c = cupy.empty((A.shape[0], B.shape[1]), cupy.float32)
    yield (
        CUPY_OUT,
        Way(lambda: cupy.matmul(a, b, out=c), lambda _: cupy.cuda.runtime.deviceSynchronize()),
    )


def of_jax(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Compiled calls with JAX's arrays."""
    jax = found["jax"]
    a, b = jax.device_put(A), jax.device_put(B)
    products = {JAX: functools.partial(jax.numpy.matmul, precision="highest")}
    if "jax products" in found:
        products[JAX_OURS] = found["jax products"].matmul
    for name, product in products.items():
        compiled = jax.jit(product)
        yield name, Way(lambda f=compiled: f(a, b), lambda result: result.block_until_ready())


def in_a_row(found: Modules, A: np.ndarray, B: np.ndarray) -> Iterator[tuple[str, Way]]:
    """Calls with tensors and `out`, by `simt`, by `auto` and by PyTorch."""
    torch, wait = found["torch"], wait_of(found)
    a, b, c = tensors(found, A, B)
    yield MM_OUT, Way(lambda: torch.mm(a, b, out=c), wait)
    yield SIMT_OUT, Way(lambda: run("simt", a, b, out=c), wait)
    yield AUTO_OUT, Way(lambda: run("auto", a, b, out=c), wait)
    if "operators" in found:
        yield ENABLED_OUT, Way(lambda: torch.mm(a, b, out=c), wait, found["operators"].enable)


Make = Callable[[Modules, np.ndarray, np.ndarray], Iterator[tuple[str, Way]]]
MAKERS: dict[str, list[tuple[Make, set[str]]]] = {
    QUEUE: [
        (of_torch, {"torch"}),
        (of_operators, {"torch", "operators"}),
        (of_device_arrays, {"torch"}),
        (of_numpy, set()),
        (of_cupy, {"cupy"}),
        (of_jax, {"jax"}),
    ],
    IN_A_ROW: [(in_a_row, {"torch"}), (of_jax, {"jax"})],
}
"""Functions that make the ways of each kind, and the modules that they need."""


def operands(n: int) -> tuple[np.ndarray, np.ndarray, Truth]:
    rng = np.random.default_rng(n)
    A, B = (rng.uniform(-1, 1, (n, n)).astype(np.float32) for _ in "AB")
    return A, B, Truth(A, B, (), rng)


def checked(
    what: str,
    found: Modules,
    data: tuple[np.ndarray, np.ndarray, Truth],
    missing: dict[str, str],
) -> dict[str, tuple[Way, float]]:
    """The ways of a kind whose product is right, each with its worst error as a share of the bound.
    The others are added to `missing`."""
    A, B, truth = data
    right = {}
    for make, needed in MAKERS[what]:
        if not needed <= found.keys():
            continue
        try:
            ways = list(make(found, A, B))
        except Exception as problem:  # any error of a library
            missing.setdefault(make.__name__, first_line(problem))
            continue
        for name, way in ways:
            try:
                error = truth.accuracy_of(warmed(way))
            except Exception as problem:  # any error of a library
                missing.setdefault(name, first_line(problem))
                continue
            if error.right:
                right[name] = way, error.worst_share
            else:
                missing.setdefault(name, f"wrong, {error.worst_share:.2g} times the bound")
    return right


def warmed(way: Way) -> np.ndarray:
    """The product, after calls that load kernels and allocate memory."""
    with way.around():
        for _ in range(3):
            result = way.call()
        way.finish(result)
    return on_host(result)


def sample(
    ways: Mapping[str, Way], calls: int, seconds: float, *, waits: bool
) -> dict[str, list[float]]:
    """Times of one call in alternating loops of `calls` calls, in seconds; each with its share of
    the wait at the end, or without."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    for turn in range(MOST_ROUNDS):
        if turn >= FEWEST_ROUNDS and time.perf_counter() > end:
            break
        for name, way in ways.items():
            with way.around():
                way.finish(way.call())  # the first call after enable() may take longer
                begin = time.perf_counter()
                for _ in range(calls):
                    result = way.call()
                queued = time.perf_counter()
                way.finish(result)
                taken = (time.perf_counter() if waits else queued) - begin
            samples[name].append(taken / calls)
    return samples


def rows_at(
    n: int, what: str, found: Modules, seconds: float, missing: dict[str, str]
) -> list[dict[str, Any]]:
    """A row for each way at n x n x n."""
    waits = what == IN_A_ROW
    ways = checked(what, found, operands(n), missing)
    samples = sample(
        {name: way for name, (way, _) in ways.items()},
        PRODUCTS if waits else CALLS,
        seconds,
        waits=waits,
    )
    return [
        {"what": what, "way": name, "n": n, "worst_share_of_bound": share, **summary(samples[name])}
        for name, (_, share) in ways.items()
    ]


def kernels(found: Modules, missing: dict[str, str]) -> list[dict[str, Any]]:
    """A row with the number of kernels of a product by `auto`, counted by PyTorch's profiler."""
    if "torch" not in found:
        return []
    torch = found["torch"]
    A, B, _ = operands(COUNTED_SIZE)
    way = dict(in_a_row(found, A, B))[AUTO_OUT]
    way.finish(way.call())
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(COUNTED):
                way.call()
            way.finish(None)
    except Exception as problem:  # any error of a profiler that does not start
        missing[KERNELS] = first_line(problem)
        return []
    names = [
        event.name
        for event in profile.events()
        if event.device_type.name == "CUDA" and not event.name.startswith(("Memset", "Memcpy"))
    ]
    if not names:
        missing[KERNELS] = "the profiler reports none"
        return []
    count = {"kernels": len(names) / COUNTED, "names": sorted(set(names))}
    return [{"what": KERNELS, "way": AUTO_OUT, "n": COUNTED_SIZE, **count}]


LIBRARIES = (MM, MM_OUT, CUPY_OUT, JAX)
SHOWN_SIZE = 64
"""The size of the picture's queue times, which hardly depend on it."""
LOOKS = {
    MM_OUT: ("torch.mm", "#7a838e", "--", "^"),
    SIMT_OUT: ("run simt", SERIES[2], "-.", "o"),
    AUTO_OUT: ("run auto", SERIES[2], "-", "o"),
    ENABLED_OUT: ("enable()", SERIES[0], "-", "P"),
    JAX: ("jax.numpy", "#7a838e", ":", "s"),
    JAX_OURS: ("jax, ours", SERIES[3], "-", "s"),
}
"""The label, colour, line and marker of each way in a row."""


def lines_of(rows: Sequence[Mapping[str, Any]], what: str) -> dict[str, dict[int, float]]:
    """The medians of each way by size."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        if row["what"] == what:
            found.setdefault(row["way"], {})[row["n"]] = row["median_s"]
    return found


def answer(times: Mapping[str, float]) -> str:
    """The picture's title, with figures if there are any."""
    if RUN_OUT not in times or MM_OUT not in times:
        return "The host's time to queue a product"
    ours, theirs = (1e6 * times[way] for way in (RUN_OUT, MM_OUT))
    return f"Host time to queue a product, out=: run {ours:.1f} us, torch.mm {theirs:.1f} us"


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Above, the time to queue a call; below, the speed of products in a row over torch.mm's."""
    note = f"{head['device']}, medians; "
    note += ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    queued, together = lines_of(rows, QUEUE), lines_of(rows, IN_A_ROW)
    times = {way: found[SHOWN_SIZE] for way, found in queued.items() if SHOWN_SIZE in found}
    panels = 2 if MM_OUT in together else 1
    with drawing(answer(times), note, height=1 + 4.2 * panels) as (figure, theme):
        axes = figure.subplots(panels, squeeze=False)[:, 0]
        draw_bars(axes[0], times, theme)
        if panels > 1:
            theirs = together[MM_OUT]
            speeds = {
                way: {n: theirs[n] / seconds for n, seconds in medians.items()}
                for way, medians in together.items()
            }
            draw_lines(axes[1], speeds)
            aims(axes[1], theme)
    return figure


def draw_bars(axes: Axes, times: Mapping[str, float], theme: Theme) -> None:
    """A bar for each way, the fastest first; dashed lines at PyTorch's."""
    ways = sorted(times, key=lambda way: times[way])
    for place, way in enumerate(ways):
        colour = "#7a838e" if way in LIBRARIES else SERIES[2]
        axes.barh(place, 1e6 * times[way], color=colour)
        axes.annotate(
            f"{1e6 * times[way]:.1f}", (1e6 * times[way], place), (4, 0),
            textcoords="offset points", va="center", fontsize=9,
        )  # fmt: skip
    axes.set_yticks(range(len(ways)), list(map(label_of, ways)))
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="us: lower is better")
    axes.set_title(f"{SHOWN_SIZE} x {SHOWN_SIZE}; NumPy: the whole call")


def draw_lines(axes: Axes, speeds: Mapping[str, Mapping[int, float]]) -> None:
    """A line for each way in a row."""
    axes.set_xscale("log", base=2)
    ends = []
    for way, found in speeds.items():
        label, colour, dashes, marker = LOOKS[way]
        values = list(found.values())
        axes.plot(list(found), values, dashes, marker=marker, color=colour, linewidth=2)
        ends.append((values[-1], label, colour))
    sizes = {n for found in speeds.values() for n in found}
    ticks(axes, "x", sorted(n for n in sizes if n & (n - 1) == 0))
    axes.set(ylim=(0, None), ylabel="times as fast", xlabel="M = N = K")
    axes.set_title("100 products in a row: speed over torch.mm, out=")
    label_ends(axes, ends)


def aims(axes: Axes, theme: Theme) -> None:
    """The targets of products in a row."""
    axes.plot([COUNTED_SIZE], [2], "_", color=theme.alarm, markersize=30, markeredgewidth=2)
    axes.annotate(
        "aimed at", (COUNTED_SIZE, 2), (-18, 0), textcoords="offset points", ha="right",
        va="center", color=theme.alarm, fontsize=9,
    )  # fmt: skip


def main() -> int:
    """Measures, writes and prints. Returns 2 if measuring failed."""
    parser = output_argument(__doc__.splitlines()[0], "calls")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    with measuring(parser):
        gpu = find_gpu("calls are timed")
        found, missing = imported(MODULES)
        seconds = QUICK_SECONDS if arguments.quick else SECONDS
        rows: list[dict[str, Any]] = []
        for n in QUICK_SIZES if arguments.quick else SIZES:
            rows += rows_at(n, QUEUE, found, seconds, missing)
        for n in QUICK_ROW_SIZES if arguments.quick else ROW_SIZES:
            rows += rows_at(n, IN_A_ROW, found, seconds, missing)
        rows += kernels(found, missing)
    versions = {"numpy": np.__version__}
    versions |= {n: found[n].__version__ for n in ("torch", "cupy", "jax") if n in found}
    head = {
        **facts(gpu),
        "versions": versions,
        "missing": missing,
        "protocol": f"queue: loops of {CALLS} calls by the host's clock, round-robin, without the "
        f"wait; in a row: {PRODUCTS} calls with the wait; operators and enable() with their "
        "defaults, everything else by simt unless it says auto; uniform [-1, 1]",
    }
    print(f"{gpu.model}\n")
    for header, lines in (targets(rows), of_calls(rows, QUEUE), of_calls(rows, IN_A_ROW)):
        print(f"{table(header, lines)}\n")
    for name, why in missing.items():
        print(f"{name} is missing: {why}", file=sys.stderr)
    write(arguments.output, "calls", head, rows, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
