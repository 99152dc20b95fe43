"""Experiment 19: real models in PyTorch: float32, TF32, and float32 with `enable()`.

``python benchmarks/models.py`` needs a GPU and PyTorch, and for most models `transformers`, `timm`,
`torch_geometric` and `e3nn`. The models of `_models.py` run in PyTorch's float32, in its TF32, and
with `sgemm_kernels.torch.enable()`, alternating. Results are compared with the same model in
float64. Then a small GPT is trained in each way, and in float32 from other seeds, too. Writes JSON
with every sample, prints a table, and draws a picture. A model that fails is left out, and its
error is printed and in the JSON.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import math
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from _results import facts, measuring, output_argument, parsed, redraw, summary, write

from sgemm_kernels import source, variants
from sgemm_kernels._style import SERIES, Picture, Theme, drawing
from sgemm_kernels._table import table
from sgemm_kernels.cli.model_tables import FLOAT32, OURS, TF32, of_models
from sgemm_kernels.measuring.devices import find_gpu

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SECONDS, QUICK_SECONDS = 2.0, 0.3
"""To sample a model, all ways together."""
STEPS, QUICK_STEPS = 500, 20
"""Of the training whose losses are compared."""
OTHER_SEEDS = (1, 2)
"""For training in float32 again: its losses differ by more than any way's errors."""
FEWEST_ROUNDS, MOST_ROUNDS = 3, 50
TRAINED = "GPT, training"
SAMPLE_S = 0.02
"""A sample has as many steps as take this long."""
SMOOTHED = 10
"""Steps whose mean difference the picture shows."""
SMALLEST = 1e-9
"""The smallest difference of losses that the picture shows."""

Mode = Callable[[], AbstractContextManager[Any]]


def modes(torch: Any, ours: Any) -> dict[str, Mode]:
    """Context managers that make PyTorch compute in each way. `ours` is `sgemm_kernels.torch`, or
    None."""

    def choose(precision: str) -> None:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.allow_tf32 = precision == "high"  # PyTorch's default is True

    @contextlib.contextmanager
    def precision(name: str) -> Iterator[None]:
        choose(name)
        try:
            yield
        finally:
            choose("highest")

    @contextlib.contextmanager
    def enabled() -> Iterator[None]:
        with precision("highest"), ours.enable():
            yield

    found: dict[str, Mode] = {
        FLOAT32: lambda: precision("highest"),
        TF32: lambda: precision("high"),
    }
    return found | ({OURS: enabled} if ours else {})


def counted(ours: Any, step: Callable[[], Any]) -> dict[str, Any]:
    """The number of a step's products that are taken, and the number passed on for each reason.
    Call it while the operators are enabled."""
    ours.stats(reset=True)
    step()
    found: dict[str, int] = {}
    for outcomes in ours.stats().values():  # of each operator
        for outcome, number in outcomes.items():
            found[outcome] = found.get(outcome, 0) + number
    return {"taken": found.pop("taken", 0), "passed": found}


def sample(
    step: Callable[[], Any],
    ways: Mapping[str, Mode],
    synchronize: Callable[[], Any],
    seconds: float,
) -> dict[str, list[float]]:
    """Times of a step in each way, alternating, in seconds. The host's clock times several steps
    until the GPU has finished them."""

    def timed(steps: int) -> float:
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        synchronize()
        return (time.perf_counter() - begin) / steps

    for way in ways.values():
        with way():
            timed(2)  # the first calls load kernels and allocate memory
            warm = timed(1)
    steps = max(1, math.ceil(SAMPLE_S / warm))
    samples: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    for turn in range(MOST_ROUNDS):
        if turn >= FEWEST_ROUNDS and time.perf_counter() > end:
            break
        for name, way in ways.items():
            with way():
                samples[name].append(timed(steps))
    return samples


def rows_of(
    model: str,
    make: Callable[[], Any],
    ways: Mapping[str, Mode],
    ours: Any,
    synchronize: Callable[[], Any],
    seconds: float,
) -> list[dict[str, Any]]:
    """A row for each way: errors first, then times. Raises ArithmeticError if a way computes NaN or
    infinity."""
    models = importlib.import_module("_models")
    work = make()
    exact = work.outputs(exact=True)
    judged, products = {}, None
    for name, way in ways.items():
        with way():
            found = work.outputs(exact=False)
            judged[name] = {
                "relative_error": models.relative_error(found, exact),
                "consequence": work.consequence(found, exact),
            }
            if not math.isfinite(judged[name]["relative_error"]):
                raise ArithmeticError(f"{name} computes NaN or infinity")
            if name == OURS:
                products = counted(ours, work.step)
        del found
    del exact
    samples = sample(work.step, ways, synchronize, seconds)
    rows = []
    for name in ways:
        row = {"model": model, "way": name, **judged[name], **summary(samples[name])}
        row["over_float32"] = row["median_s"] / statistics.median(samples[FLOAT32])
        row["products"] = products if name == OURS else None
        rows.append(row)
    return rows


def curves(ways: Mapping[str, Mode], sizes: Any, steps: int, device: str) -> list[dict[str, Any]]:
    """A row for each way with its losses, and their differences from the losses in float64. Rows of
    float32 with other seeds have no differences."""
    models = importlib.import_module("_models")
    text = "\n".join(source(variant.name) for variant in variants() if variant.file)

    def losses(seed: int, *, exact: bool = False) -> list[float]:
        return models.losses(text, sizes, steps, device, seed=seed, exact=exact)

    exact = losses(0, exact=True)
    rows: list[dict[str, Any]] = []
    for name, way in ways.items():
        with way():
            found = losses(0)
        away = [mine - right for mine, right in zip(found, exact, strict=True)]
        rows.append({"curve": TRAINED, "way": name, "seed": 0, "losses": found})
        rows[-1]["difference"] = away
    with ways[FLOAT32]():
        for seed in OTHER_SEEDS:
            found = losses(seed)
            rows.append({"curve": TRAINED, "way": FLOAT32, "seed": seed, "losses": found})
    return rows


def measured(
    torch: Any,
    ours: Any,
    device: str,
    sizes: Any,
    seconds: float,
    steps: int,
    missing: dict[str, str],
    failed: dict[str, str],
) -> list[dict[str, Any]]:
    """All rows. Adds a model whose library is not installed to `missing`, and a model that raises
    another error to `failed`. Each model is freed before the next one is made."""
    models = importlib.import_module("_models")
    ways = modes(torch, ours)
    on_gpu = device == "cuda"
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None

    def attempt(name: str, measure: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        begin, rows = time.monotonic(), []
        try:
            rows = measure()
            told = f"{time.monotonic() - begin:.1f} s"
        except ImportError as error:
            told = missing[name] = str(error)
        except Exception as error:  # any error of a library, or of a kernel
            traceback.print_exc()
            told = failed[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
        gc.collect()
        with contextlib.suppress(RuntimeError):  # after an error, the GPU may be lost
            if on_gpu:
                torch.cuda.empty_cache()
        print(f"{name}: {told}", file=sys.stderr, flush=True)
        return rows

    rows = []
    for name, make in models.workloads(sizes, device):
        rows += attempt(name, partial(rows_of, name, make, ways, ours, synchronize, seconds))
    return rows + attempt(TRAINED, partial(curves, ways, sizes, steps, device))


LOOKS = {FLOAT32: ("#7a838e", "--"), TF32: (SERIES[1], "-"), OURS: (SERIES[2], "-")}
"""The colour and the line of each way."""


def answer(rows: Sequence[Mapping[str, Any]]) -> str:
    """The picture's title, with figures if there are any."""
    own = {(row["model"], row["way"]): row for row in rows if "model" in row}
    pairs = [(row, own[model, FLOAT32]) for (model, way), row in own.items() if way == OURS]
    if not pairs:
        return "PyTorch models in float32 and TF32"
    faster = [1 / row["over_float32"] for row, _ in pairs]
    error = max(row["relative_error"] / other["relative_error"] for row, other in pairs)
    return (
        f"enable(): {statistics.geometric_mean(faster):.2f} times as fast as PyTorch's float32 "
        f"({min(faster):.2f} to {max(faster):.2f}), at most {error:.1f} times its error"
    )


def picture(head: dict[str, Any], rows: list[dict[str, Any]]) -> Picture:
    """Times relative to PyTorch's float32, with errors; below, the losses of a training run, and
    their differences from float64."""
    timed = [row for row in rows if "model" in row]
    trained = [row for row in rows if "difference" in row]
    names = list(dict.fromkeys(row["model"] for row in timed))
    note = f"{head['device']}, PyTorch {head['versions']['torch']}; errors are those of "
    note += "outputs or gradients, against float64\n"
    note += f"loss: same first weights and batches; right: mean of {SMOOTHED} steps"
    height = 3.6 + 0.62 * len(names)
    with drawing(answer(rows), note, height=height) as (figure, theme):
        grid = figure.add_gridspec(2, 2, height_ratios=(0.62 * len(names), 2.6))
        draw_bars(figure.add_subplot(grid[0, :]), names, timed, theme)
        draw_losses(figure.add_subplot(grid[1, 0]), trained)
        draw_differences(figure.add_subplot(grid[1, 1]), trained)
    return figure


MOST_BESIDE = 0.8
"""The widest bar whose label has room beside it, left of float32's line at 1."""
ROOM = 0.05, 1.3
"""Left of the errors, and their width, in the units of the bars."""


def draw_bars(axes: Axes, names: list[str], rows: list[dict[str, Any]], theme: Theme) -> None:
    """Two bars for each model, with the speedup, and with the error in units of float32's."""
    own = {(row["model"], row["way"]): row for row in rows}
    errors_from = max([1, *(row["over_float32"] for row in rows)]) + ROOM[0]
    thick = 0.4
    for place, name in enumerate(names):
        exact = own[name, FLOAT32]["relative_error"]
        for index, way in enumerate((OURS, TF32)):
            row = own.get((name, way))
            if row is None:
                continue
            share, y = row["over_float32"], place + (index - 0.5) * thick
            axes.barh(y, share, height=thick, color=LOOKS[way][0])
            inside = share > MOST_BESIDE  # else the label would cover the text
            axes.annotate(
                f"{1 / share:.2f}x", (share, y), (-4 if inside else 4, 0),
                textcoords="offset points", va="center", ha="right" if inside else "left",
                fontsize=9, fontweight="bold", color=theme.paper if inside else theme.ink,
            )  # fmt: skip
            if place == 0:
                label = way.removeprefix("PyTorch ")
                axes.text(0.01, y, label, va="center", fontsize=9, color=theme.paper)
            times = row["relative_error"] / exact
            text = f"error {times:.1f}" if times < 10 else f"error {times:,.0f}"
            text += f" times float32's; {row['consequence']}".removesuffix("; ")
            axes.text(
                errors_from,
                y,
                text,
                va="center",
                fontsize=9,
                color=theme.alarm if times > 10 else theme.ink,
            )
    axes.axvline(1, color=LOOKS[FLOAT32][0], linestyle="--", linewidth=2)
    axes.set_yticks(range(len(names)), names)
    axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, errors_from + ROOM[1]))
    axes.set_title("time, relative to PyTorch's float32 (dashed)")
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0])
    axes.grid(visible=False, axis="y")


def draw_losses(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The losses. The widest line is below the others, since they coincide."""
    for row, width in zip(rows, (7, 3.5, 1.5), strict=False):
        colour, _ = LOOKS[row["way"]]
        axes.plot(row["losses"], "-", color=colour, linewidth=width, label=row["way"])
    axes.set(title="loss of a small GPT", xlabel="step")
    if rows:
        axes.legend(handlelength=1)


def draw_differences(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The distances of the losses from those in float64."""
    for row in rows:
        away = [max(abs(each), SMALLEST) for each in row["difference"]]
        window = min(SMOOTHED, len(away))
        means = [statistics.fmean(away[end - window : end]) for end in range(window, len(away) + 1)]
        colour, line = LOOKS[row["way"]]
        axes.plot(range(window, len(away) + 1), means, line, color=colour, linewidth=2)
    axes.set(title="difference from float64", xlabel="step", yscale="log")


def operators() -> tuple[Any, dict[str, str]]:
    """`sgemm_kernels.torch`; or None, and the reason by the name of the way that is missing."""
    try:
        return importlib.import_module("sgemm_kernels.torch"), {}
    except (ImportError, RuntimeError) as error:
        return None, {OURS: str(error).strip().partition("\n")[0]}


def main() -> int:
    """Measures, writes and prints. Returns 1 if a model failed, 2 if nothing was measured."""
    parser = output_argument(__doc__.splitlines()[0], "models")
    parser.add_argument("--quick", action="store_true", help="fewer samples and training steps")
    arguments = parsed(parser, lambda path: redraw(path, picture))
    with measuring(parser, RuntimeError):
        gpu = find_gpu("models are measured")
        torch = importlib.import_module("torch")
        models = importlib.import_module("_models")
        ours, missing = operators()
        seconds = QUICK_SECONDS if arguments.quick else SECONDS
        steps = QUICK_STEPS if arguments.quick else STEPS
        failed: dict[str, str] = {}
        rows = measured(torch, ours, "cuda", models.FULL, seconds, steps, missing, failed)
    if not any("model" in row for row in rows):
        print(f"{parser.prog}: every model failed", file=sys.stderr)
        return 2
    head = {
        **facts(gpu),
        "versions": {"torch": torch.__version__},
        "missing": missing,
        "failed": failed,
        "protocol": "whole steps by the host's clock until the GPU has finished, round-robin; "
        "random weights and inputs; relative Frobenius errors against the same model in float64, "
        "of all gradients for a training step",
    }
    print(f"{gpu.model}, PyTorch {torch.__version__}\n\n{table(*of_models(rows))}")
    for name, error in failed.items():
        print(f"{name} failed: {error}")
    write(arguments.output, "models", head, rows, picture)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
