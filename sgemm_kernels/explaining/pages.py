"""Pages that explain a kernel: memory accesses line by line, bottleneck and speedup.

This module makes the data of a page. The folder page/ has the template, the script and the style
sheet that display it.
"""

import dataclasses
import functools
import html
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from .._catalog import Variant, build_info, kernel_file, variants
from .._custom_kernel import CustomKernel
from .._gpus import WARP, gpu_of
from .._output import write_text
from .._table import table
from ..measuring.measurement import UNMET, UNMET_NOTE
from ..measuring.recorded import SIZE, Record, record_of
from .gain import Gain, gain
from .limits import Limits, l1_cycles, limits, repetitions
from .occupancy import Occupancy, occupancy
from .source_diff import Row, difference
from .trace import Trace, trace

__all__ = ["Explained", "Explanation", "explain", "save_ladder"]

STALLS = {
    "barrier_waits": "at a barrier",
    "shared_waits": "for shared memory",
    "dispatch_stalls": "for a busy pipe (dispatch)",
}
"""Stall reasons that the profiler counts, by their names in benchmarks/traffic.py."""


@dataclass(frozen=True, slots=True)
class Explained:
    """The content of a page about one kernel, at M = N = K = 4096 on the measured GPU."""

    variant: Variant
    sources: Mapping[str, str]
    """Texts of the kernel's file (first) and of included files with memory accesses."""
    traced: Trace
    record: Record
    limits: Limits
    occupancy: Occupancy
    stalls: Mapping[str, float]
    """Waiting warps per issued instruction, by stall reason, from the profiler."""
    before: str | None
    """The rung before; None for the first rung and for a custom kernel."""
    gain: Gain | None
    difference: tuple[Row, ...]
    """Difference of the source to the rung before."""

    @property
    def head(self) -> dict[str, str]:
        """The entries at the head of the source, by their names. Further lines of an entry are
        indented."""
        found: dict[str, str] = {}
        lines = next(iter(self.sources.values())).splitlines()
        comment = itertools.takewhile(lambda line: line.startswith("//"), lines)
        for line in comment:
            if start := re.match(r"// (\w[\w ]*?)  +(.+)", line):
                name, found[name] = start[1], start[2]
            elif found and line.startswith("//   "):
                found[name] += f" {line.removeprefix('//').strip()}"
        return found

    def __repr__(self) -> str:
        return "\n\n".join(self._paragraphs())

    def _paragraphs(self) -> list[str]:
        header = ("unit", "predicted", "measured")
        rows = [
            (
                f"{limit.unit}{' *' if limit is self.limits.limiting else ''}",
                f"{limit.share:.0%}",
                "-" if limit.measured_share is None else f"{limit.measured_share:.0%}",
            )
            for limit in self.limits.units
        ]
        found = [f"{self.variant.name}, M = N = K = {SIZE}, {self.record.device}"]
        found.append(
            f"{table(header, rows)}\n* predicted bottleneck. Predicted: relative to the busiest "
            "unit's time; measured: relative to the unit's peak rate"
        )
        measured = self.limits.measured_s
        found.append(
            f"time: predicted {1e3 * self.limits.predicted_s:.3g} ms, "
            + (
                "not measured"
                if measured is None
                else f"measured {1e3 * measured:.3g} ms{_mark(self.limits)}"
            )
        )
        if self.gain is not None:
            got = self.gain.measured
            got_text = "not measured" if got is None else f"measured {got:.2f}{_mark(self.gain)}"
            compiled = self.gain.as_compiled
            as_compiled = "" if compiled is None else f", as compiled {compiled:.2f}"
            found.append(
                f"gain over {self.before}: predicted as written {self.gain.predicted:.2f}"
                f"{as_compiled}, {got_text}\n{self.gain.cause}"
            )
        if self.limits.unmet or (self.gain is not None and self.gain.unmet):
            found.append(UNMET_NOTE)
        return found


def _mark(measured: Limits | Gain) -> str:
    return UNMET if measured.unmet else ""


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """One or two explained kernels. Shows as text and in notebooks, and saves as a page."""

    kernels: tuple[Explained, ...]

    def save(self, path: str | Path) -> None:
        """Writes a self-contained HTML page.

        Parameters
        ----------
        path
            The file to write, such as vec4.html.
        """
        write_text(path, self._page())

    def __repr__(self) -> str:
        return "\n\n\n".join(map(repr, self.kernels))

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 46rem; border: 0" title="bottleneck of a kernel"'
        return f'<iframe srcdoc="{html.escape(self._page())}" {frame}></iframe>'

    def _page(self) -> str:
        names = [kernel.variant.name for kernel in self.kernels]
        return _page(" and ".join(names), {"kernels": [_data(k) for k in self.kernels]})


def explain(variant: str | CustomKernel, beside: str | CustomKernel | None = None) -> Explanation:
    """Explains a kernel's bottleneck and its memory accesses, line by line. Optionally for two
    kernels.

    Predictions come from the accesses that ``trace`` counts, on any machine. Measurements come from
    the results in the package. Takes a few seconds.

    Parameters
    ----------
    variant
        A name from ``variants()``, or a custom kernel.
    beside
        A second kernel, for a page with both.

    Returns
    -------
    Explanation
        The explanation. ``save`` writes it as a page; notebooks display it.

    Raises
    ------
    ValueError
        For an unknown variant.
    UnsupportedVariantError
        For a library, for a variant without a kernel of its own, such as `auto`, and for one that
        does not run on the CPU device.
    """
    kernels = (variant,) if beside is None else (variant, beside)
    return Explanation(
        tuple(_rung(each) if isinstance(each, str) else _own(each) for each in kernels)
    )


def save_ladder(folder: str | Path) -> None:
    """Writes index.html, a page about the whole ladder, and a page for each rung.

    Omits rungs that do not run on the CPU device, where accesses are counted.

    Parameters
    ----------
    folder
        The folder to write to. It is created if necessary.
    """
    to = Path(folder)
    to.mkdir(parents=True, exist_ok=True)
    rungs = [rung for rung in _rungs() if "cpu" in rung.devices]
    names = [rung.name for rung in rungs]
    summaries = []
    for rung in rungs:
        kernel = _rung(rung.name)
        data = {"kernels": [_data(kernel)], "ladder": names}
        write_text(to / f"{rung.name}.html", _page(rung.name, data))
        summaries.append(_summary(kernel))
    page = _page("The ladder", {"rungs": summaries, "size": SIZE})
    write_text(to / "index.html", page)


@functools.cache  # the next rung uses it again
def _traced(name: str) -> Trace:
    return trace(name, SIZE, SIZE, SIZE)


def _rungs() -> list[Variant]:
    return [variant for variant in variants() if variant.file is not None]


def _rung(name: str) -> Explained:
    traced = _traced(name)  # raises for a variant without a kernel
    rungs = _rungs()
    place = [rung.name for rung in rungs].index(name)
    before = rungs[place - 1] if place and "cpu" in rungs[place - 1].devices else None
    names = [name] if before is None else [before.name, name]
    others = _other_files(rungs[place], traced)
    sources = {file: kernel_file(file) for file in (rungs[place].file or "", *others)}
    return _explained(rungs[place], sources, traced, record_of(names), before)


def _own(kernel: CustomKernel) -> Explained:
    traced = trace(kernel, SIZE, SIZE, SIZE)
    others = _other_files(kernel.variant, traced)
    sources = {kernel.file: kernel.source}
    sources |= {file: "\n".join(text) for file in others if (text := kernel.lines_of(file))}
    return _explained(kernel.variant, sources, traced, record_of([]), None)


def _other_files(variant: Variant, traced: Trace) -> list[str]:
    """Included files with memory accesses."""
    return sorted({access.file for access in traced.accesses} - {variant.file})


def _explained(
    variant: Variant,
    sources: Mapping[str, str],
    traced: Trace,
    record: Record,
    before: Variant | None,
) -> Explained:
    counters = record.counters.get(variant.name, {})
    stalls = {words: counters[key] for key, words in STALLS.items() if key in counters}
    its_limits = limits(traced, record)
    gained, changed = None, []
    if before is not None:
        old = before.name, limits(_traced(before.name), record)
        gained = gain(old, (variant.name, its_limits), stalls)
        changed = difference(before.source or "", variant.source or "")
    return Explained(
        variant,
        sources,
        traced,
        record,
        its_limits,
        occupancy(
            gpu_of(record.device),
            variant.threads,
            variant.shared_bytes,
            variant.thread_tile,
            counters.get("warps_percent"),
        ),
        stalls,
        None if before is None else before.name,
        gained,
        tuple(changed),
    )


# ------------------------------------------------------------------------------- data of a page


def _page(title: str, data: Mapping[str, Any]) -> str:
    folder = resources.files(f"{__package__}.page")
    parts = {
        name: folder.joinpath(f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    text = text.replace(
        "<", "\\u003c"
    )  # so that no text ends the script, or begins a comment in it
    return Template(parts["html"]).substitute(
        title=html.escape(title), style=parts["css"], script=parts["js"], data=text
    )


def _summary(kernel: Explained) -> dict[str, Any]:
    """A rung's entry on the ladder's page."""
    measured = kernel.limits.measured_s
    limiting = kernel.limits.limiting
    return {
        "name": kernel.variant.name,
        "summary": kernel.variant.summary,
        "unit": limiting.unit,
        "measured_share": limiting.measured_share,
        "teraflops": None if measured is None else 2 * SIZE**3 / measured / 1e12,
        "unmet": kernel.limits.unmet,
        "predicted_teraflops": 2 * SIZE**3 / kernel.limits.predicted_s / 1e12,
        "gain": kernel.gain and dataclasses.asdict(kernel.gain),
        "device": kernel.record.device + kernel.record.age,
    }


def _data(kernel: Explained) -> dict[str, Any]:
    """A kernel's data for its page, ready for JSON."""
    variant, traced, record = kernel.variant, kernel.traced, kernel.record
    own = dataclasses.asdict(kernel.limits) | {"limiting": kernel.limits.limiting.unit}
    counters = record.counters.get(variant.name, {})
    return {
        "name": variant.name,
        "summary": variant.summary,
        "head": kernel.head,
        "size": SIZE,
        "device": record.device,
        "multiprocessors": gpu_of(record.device).multiprocessors,
        "clock_mhz": record.clock_hz / 1e6,
        "alone": {name: counters.get(name) for name in ("clock_mhz", "power_w")},
        "date": record.date[:10],
        "csrc_hash": record.csrc_hash + record.age,
        "counted": record.counted
        and {"date": record.counted[0][:10], "csrc": "".join(record.counted[1:])},
        "build": build_info().csrc_hash,
        "tile": {
            "block": variant.block_tile,
            "thread": variant.thread_tile,
            "threads": variant.threads,
            "shared_bytes": variant.shared_bytes,
            "rows": traced.rows,
            "cols": traced.cols,
            **_owners(traced),
        },
        "limits": own,
        "occupancy": dataclasses.asdict(kernel.occupancy),
        "stalls": kernel.stalls,
        "before": kernel.before,
        "gain": kernel.gain and dataclasses.asdict(kernel.gain),
        "difference": kernel.difference,
        "files": [{"name": name, "text": text} for name, text in kernel.sources.items()],
        "accesses": _accesses(traced, variant.threads),
    }


def _owners(traced: Trace) -> dict[str, Any]:
    """The warp of each result, the first warp with results, and the thread of each of its results
    (-1 elsewhere)."""
    threads = np.frombuffer(traced.owners, np.int16).astype(int)
    warps = threads // WARP
    shown = int(warps[warps >= 0].min())
    return {
        "warp": shown,
        "warps": _runs(warps.tolist()),
        "lanes": _runs(np.where(warps == shown, threads % WARP, -1).tolist()),
    }


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Run-length encoding: (count, number) pairs."""
    return [(len(list(same)), n) for n, same in itertools.groupby(numbers)]


def _accesses(traced: Trace, threads: int) -> list[dict[str, Any]]:
    """The trace's accesses, with their shares of the L1 cycles."""
    all_cycles = sum(repetitions(access, traced) * l1_cycles(access) for access in traced.accesses)
    return [
        dataclasses.asdict(access)
        | {
            "verdict": access.verdict,
            "share": repetitions(access, traced) * l1_cycles(access) / all_cycles,
            "runs": access.requests / (threads / WARP),
        }
        for access in traced.accesses
    ]
