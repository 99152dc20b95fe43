"""Answers to the questions of somebody who compares libraries: a sentence with figures for each."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..measuring.results import Results
from ..measuring.results_file import experiment_of, read_json
from ..measuring.shapes import Case, size_text
from ..measuring.sources import OLDER, is_older
from .experiment_tables import AUTO_OUT, MM_OUT, RUN_OUT, medians_of_calls, slowest_case, speeds_of
from .model_tables import mean_sentence
from .same_bits_tables import AUTO, CUBLAS, ratios_of
from .speed_tables import NOTHING_MEASURED
from .symmetric_tables import AUTO_COPY, NEWTON_SCHULZ, SIMT
from .symmetric_tables import CUBLAS as MATMUL
from .symmetric_tables import ratios_of as symmetric_ratios

Rows = Sequence[Mapping[str, Any]]

_LIBRARIES = ("CUTLASS", "Triton", "GEMMul8")
_EMULATION = "cuBLAS BF16x9"
_COMPUTED_AS_IS = "(float32)"
"""The end of the emulation's name if its results have the bits of plain float32."""
_LAYOUTS = {
    "NN": "",
    "NT": " with a transposed B",
    "TN": " with a transposed A",
    "TT": " with both transposed",
}
_SAME_FROM, _FEW = 2048, 64
"""`invariant` is described from so many rows on, and up to so many."""
_SYMMETRIC = "4096 x 4096"
_MOST_NAMED = 5


def _range(values: Iterable[float]) -> str:
    known = list(values)
    return f"{min(known):.2f} to {max(known):.2f}"


def _mean(values: Iterable[float]) -> str:
    return f"{statistics.geometric_mean(values):.2f}"


def _list(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _over(
    results: Results, ours: str, theirs: str, cases: Sequence[Case] | None = None
) -> tuple[list[float], list[float]]:
    """The speed and the error of one variant over another's, at each of these cases that both
    have; at all cases by default."""
    cases = results.cases if cases is None else cases
    pairs = [(results.find(ours, *case), results.find(theirs, *case)) for case in cases]
    known = [(a, b) for a, b in pairs if a and b and a.median_s and b.median_s]
    return (
        [(b.median_s or 0.0) / (a.median_s or 1.0) for a, b in known],
        [a.error.relative / b.error.relative for a, b in known],
    )


def _emulation(folder: Path) -> str:
    found = Results.from_json(folder / "peers.json")
    name = next(each for each in found.variants if each.startswith(_EMULATION))
    (speed,), (error,) = _over(found, AUTO, name, found.cases[-1:])
    return (
        f"With M = N = K = {found.shapes[-1][0]}, `auto` is {speed:.2f} times as fast as "
        f"{_EMULATION}, with {error:.2f} times its error."
    ) + (
        f" On an {found.run.device}, cuBLAS computes plain float32 when the emulation is asked for."
        if name.endswith(_COMPUTED_AS_IS)
        else ""
    )


def _peers(folder: Path) -> str:
    squares = Results.from_json(folder / "peers.json")
    products = Results.from_json(folder / "peers-models.json")
    last = squares.cases[-1:]
    speeds: list[str] = []
    errors: dict[str, float] = {}
    for library in _LIBRARIES:
        own: dict[float, str] = {}
        for name in (name for name in squares.variants if name.startswith(library)):
            at_last, in_models = _over(squares, AUTO, name, last), _over(products, AUTO, name)
            if at_last[0] and in_models[0]:
                own[at_last[0][0]] = f"{_mean(in_models[0])} times as fast as {name}"
                errors[name] = 1 / statistics.geometric_mean(in_models[1])
        if own:
            speeds.append(f"{min(own):.2f} and {own[min(own)]}")
    smaller = [f"{name} ({share:.2f} times)" for name, share in errors.items() if share < 1]
    return (
        f"With M = N = K = {squares.shapes[-1][0]}, and as a mean over {len(products.cases)} "
        f"products of models, `auto` is {_list(speeds)}. These are the fastest of each library at "
        f"{squares.shapes[-1][0]}."
    ) + (
        f" Smaller errors than with `auto` in these products: {_list(smaller)}." if smaller else ""
    )


def _energy(folder: Path) -> str:
    found = Results.from_json(folder / "peers.json")
    last = found.shapes[-1]
    rows = [found.find(name, last) for name in (AUTO, "cublas")]
    joules = [f"{row.energy_j:.3g} J" if row and row.energy_j else "an unknown energy"
              for row in rows]  # fmt: skip
    return (
        f"With M = N = K = {last[0]}, a product takes {joules[0]} by `auto`, {joules[1]} by cuBLAS."
    )


def _at_random_shapes(found: Results, variant: str) -> str:
    """A variant against cuBLAS: the mean, how often it is slower, and the worst shape."""
    rows = [row for row in found.rows if row.variant == variant and row.vs_cublas]
    ratios = [row.vs_cublas or 0.0 for row in rows]
    least = rows[ratios.index(min(ratios))]
    return (
        f"`{variant}` is {_mean(ratios)} times as fast as cuBLAS at {len(rows)} random shapes, and "
        f"slower than cuBLAS at {sum(ratio < 1 for ratio in ratios) / len(ratios):.1%} of them. "
        f"The slowest, {size_text(least.shape)}{_LAYOUTS[least.layout]}, has "
        f"{found.ratios(least)[0]} times cuBLAS's speed."
    )


def _random(folder: Path) -> str:
    return _at_random_shapes(Results.from_json(folder / "random_shapes.json.gz"), AUTO)


def _other_gpus(folder: Path) -> str:
    found = Results.from_json(folder / "random_shapes.json.gz")
    return (
        "No GPU was measured but an H100 and an H200. Where `auto` uses no tensor cores, it is "
        f"`simt`. On an {found.run.device}, {_at_random_shapes(found, SIMT)}"
    )


def _operands(folder: Path) -> str:
    return slowest_case(read_json(folder / "recomputing.json")["rows"], AUTO)


def _models(folder: Path) -> str:
    return mean_sentence(read_json(folder / "models.json"))


def _queue(folder: Path) -> str:
    medians = medians_of_calls(read_json(folder / "calls.json")["rows"])
    sizes = sorted({n for what, _, n in medians if what == "queue"})
    ratios = [medians["queue", RUN_OUT, n] / medians["queue", MM_OUT, n] for n in sizes]
    return (
        f"To queue a call of `run` with `out=` takes {_range(ratios)} times as long as one of "
        f"`torch.mm`, with M = N = K from {sizes[0]} to {sizes[-1]}."
    )


def _batches(folder: Path) -> str:
    speeds = {case: speed for (case, way), speed in
              speeds_of(read_json(folder / "batched.json")["rows"]).items()
              if way == AUTO_OUT}  # fmt: skip
    slowest = min(speeds, key=lambda case: speeds[case])
    return (
        f"Over {len(speeds)} batches, `auto` is {_mean(speeds.values())} times as fast as "
        f"`torch.bmm`. The slowest batch has {speeds[slowest]:.2f} times its speed: {slowest} "
        f"(count x M x N x K)."
    )


def _experts(folder: Path) -> str:
    document = read_json(folder / "grouped.json")
    times: dict[str, list[float]] = {}
    for row in document["rows"]:
        times.setdefault(row["way"], []).append(row["median_ns"])
    loop, ours = (next(each for way, each in times.items() if way.startswith(begin))
                  for begin in ("torch.mm", "run_many auto"))  # fmt: skip
    ratios = (theirs / own for theirs, own in zip(loop, ours, strict=True))
    return (
        f"`run_many` multiplies {len(document['rows_of_experts'])} experts with different numbers "
        f"of rows {_range(ratios)} times as fast as a loop of `torch.mm`."
    )


def _invariant(folder: Path) -> str:
    rows = read_json(folder / "same_bits.json.gz")["rows"]
    parts = []
    for begin, least, most in ((f"From {_SAME_FROM} rows on", _SAME_FROM, 2**31),
                               (f"With 1 to {_FEW} rows", 1, _FEW)):  # fmt: skip
        own = [row for row in rows if least <= row["M"] <= most]
        parts.append(
            f"{begin}, `invariant` has {_range(ratios_of(own, AUTO).values())} times the speed of "
            f"`auto`, and {_range(ratios_of(own, CUBLAS).values())} times cuBLAS's."
        )
    return " ".join(parts)


def _symmetric(folder: Path) -> str:
    rows = read_json(folder / "symmetric.json.gz")["rows"]
    over_copy, over_cublas = (symmetric_ratios(rows, AUTO, to) for to in (AUTO_COPY, MATMUL))
    over_copy.pop(NEWTON_SCHULZ, None)
    slowest = min(over_copy, key=lambda case: over_copy[case])
    return (
        f"If A is {_SYMMETRIC}, `A @ A.T` is {over_copy[_SYMMETRIC]:.2f} times as fast as with a "
        f"copy of A, and {over_cublas[_SYMMETRIC]:.2f} times as fast as by cuBLAS. In the slowest "
        f"case, an A of {slowest}, it has {over_copy[slowest]:.2f} times the speed with a copy."
    )


def _sixteen_bits(folder: Path) -> str:
    found = Results.from_json(folder / "routers.json.gz")
    pair, one = "bf16 x bf16: ", "bf16 x fp32: "
    converted, _ = _over(found, f"{pair}auto", f"{pair}float() @ float()")
    native, errors = _over(found, f"{pair}auto", f"{pair}mm(out_dtype)")
    mixed, _ = _over(found, f"{one}auto", f"{one}float() @ float()")
    return (
        f"For two bfloat16 operands, `auto` is {_mean(converted)} times as fast as PyTorch with "
        f"float32 copies. It has {_mean(native)} times the speed of `torch.mm` with "
        f"`out_dtype=torch.float32`, and "
        f"{statistics.geometric_mean(errors):.2g} times its error. For one bfloat16 "
        f"operand, it is {_mean(mixed)} times as fast as PyTorch with a float32 copy. These are "
        f"means over {len(native)} products."
    )


def _age(folder: Path) -> str:
    documents = {path.name: read_json(path) for path in sorted(folder.glob("*.json*"))}
    runs = {name: document.get("run", document) for name, document in documents.items()}
    days = sorted({run["date"][:10] for run in runs.values() if "date" in run})
    older = [
        name
        for name, run in runs.items()
        if is_older(run.get("sources_hash"), experiment_of(documents[name]))
    ]
    if not days:
        return NOTHING_MEASURED
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    files = "1 file" if len(runs) == 1 else f"{len(runs)} files"
    said = f"The results ({files}) are of {dates}. "
    if not older:
        return f"{said}All were measured on the sources of this version."
    if len(older) > _MOST_NAMED:
        return f"{said}On older sources: {len(older)} of them."
    return f"{said}{OLDER.capitalize()}: {', '.join(older)}."


_ANSWERS: dict[str, Callable[[Path], str]] = {
    "NVIDIA's emulation of float32": _emulation,
    "Tuned kernels of other libraries": _peers,
    "Random shapes": _random,
    "The worst case": _operands,
    "Your GPU": _other_gpus,
    "Models in PyTorch": _models,
    "16-bit operands": _sixteen_bits,
    "Symmetric products": _symmetric,
    "The same bits in every batch": _invariant,
    "Batches": _batches,
    "Mixtures of experts": _experts,
    "Small calls": _queue,
    "Energy": _energy,
    "The age of the figures": _age,
}


def answers(folder: Path) -> str:
    """A list of questions, each with the sentence that answers it from the folder's results."""
    lines = []
    for question, answer in _ANSWERS.items():
        try:
            said = answer(folder)
        except FileNotFoundError:
            said = NOTHING_MEASURED
        lines.append(f"- **{question}.** {said}")
    return "\n".join(lines)
