"""Pages that explain a kernel: what it asks of a GPU line by line, what limits it, what it gained.

What a page says is data, made here; how it looks is the folder page, a template with one script and
one style sheet.
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
from .limits import Limits, limits, times, turns
from .occupancy import Occupancy, occupancy
from .source_diff import Row, difference
from .trace import Trace, trace

__all__ = ["Explained", "Explanation", "explain", "save_ladder"]

STALLS = {
    "barrier_waits": "at a barrier",
    "shared_waits": "for shared memory",
    "dispatch_stalls": "for a pipe that is taken (dispatch)",
}
"""What warps wait for, of what the profiler was asked, by its name in benchmarks/traffic.py."""


@dataclass(frozen=True, slots=True)
class Explained:
    """All that a page says of one kernel, at M = N = K = 4096 on the GPU that was measured."""

    variant: Variant
    sources: Mapping[str, str]
    """The texts of its own file, which is the first, and of others where it accesses memory."""
    traced: Trace
    record: Record
    limits: Limits
    occupancy: Occupancy
    stalls: Mapping[str, float]
    """Warps that wait, for each instruction issued, by what they wait for: the profiler's."""
    before: str | None
    """The rung before; None for the first, and for a kernel of your own."""
    gain: Gain | None
    difference: tuple[Row, ...]
    """Of the source, to that of the rung before."""

    @property
    def head(self) -> dict[str, str]:
        """The comment at the head of the source, by what each part of it says."""
        found: dict[str, str] = {}
        lines = next(iter(self.sources.values())).splitlines()
        comment = itertools.takewhile(lambda line: line.startswith("//"), lines)
        name = ""
        for line in comment:
            text = line.removeprefix("//").strip()
            if start := re.match(r"// (\w[\w ]*?)  +(.+)", line):
                name, text = start.groups()
            found[name] = f"{found[name]} {text}" if name in found else text
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
            f"{table(header, rows)}\n* predicted to limit it; shares of what a unit can do"
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
    """One kernel, or two beside each other: as text, in a notebook, and as a page of its own."""

    kernels: tuple[Explained, ...]

    def save(self, path: str | Path) -> None:
        """Writes a page that needs no other file and no network.

        Parameters
        ----------
        path
            A file, whose name ends in .html.
        """
        write_text(path, self._page())

    def __repr__(self) -> str:
        return "\n\n\n".join(map(repr, self.kernels))

    def _repr_html_(self) -> str:
        frame = 'style="width: 100%; height: 46rem; border: 0" title="what limits a kernel"'
        return f'<iframe srcdoc="{html.escape(self._page())}" {frame}></iframe>'

    def _page(self) -> str:
        names = [kernel.variant.name for kernel in self.kernels]
        return _page(" beside ".join(names), {"kernels": [_data(k) for k in self.kernels]})


def explain(variant: str | CustomKernel, beside: str | CustomKernel | None = None) -> Explanation:
    """Says what a kernel asks of a GPU, line by line, what limits it, and why; or of two.

    What is predicted is counted by ``trace`` from the kernel's own accesses, on any machine; what
    is measured comes from the results that the package carries. Takes some seconds.

    Parameters
    ----------
    variant
        A name from ``variants()``, or a kernel of your own.
    beside
        Another one, for a page with both.

    Returns
    -------
    Explanation
        What a page says; ``save`` writes it, a notebook shows it.

    Raises
    ------
    ValueError
        For an unknown variant.
    UnsupportedVariantError
        For a library's, for one that has no kernel of its own, as `auto`, and for one that does
        not run on the CPU device.
    """
    kernels = (variant,) if beside is None else (variant, beside)
    return Explanation(
        tuple(_rung(each) if isinstance(each, str) else _own(each) for each in kernels)
    )


def save_ladder(folder: str | Path) -> None:
    """Writes index.html, the page of the whole ladder, and a page for each of its rungs beside it.

    A rung that does not run on the CPU device, where accesses are counted, is left out.

    Parameters
    ----------
    folder
        It is made if it is not there.
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


@functools.cache  # a rung's is wanted again by the next
def _traced(name: str) -> Trace:
    return trace(name, SIZE, SIZE, SIZE)


def _rungs() -> list[Variant]:
    return [variant for variant in variants() if variant.file is not None]


def _rung(name: str) -> Explained:
    traced = _traced(name)  # which refuses what has no kernel of its own
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
    """Those beside the kernel's own, where it accesses memory."""
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


# ------------------------------------------------------------------------- what a page is given


def _page(title: str, data: Mapping[str, Any]) -> str:
    folder = resources.files(f"{__package__}.page")
    parts = {
        name: folder.joinpath(f"page.{name}").read_text(encoding="utf-8")
        for name in ("html", "css", "js")
    }
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    return Template(parts["html"]).substitute(
        title=html.escape(title), style=parts["css"], script=parts["js"], data=text
    )


def _summary(kernel: Explained) -> dict[str, Any]:
    """What the ladder's page says of a rung."""
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
        "device": kernel.record.device,
    }


def _data(kernel: Explained) -> dict[str, Any]:
    """What a page says of a kernel, as JSON has it."""
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
        "csrc_hash": record.csrc_hash,
        "counted": record.counted and {"date": record.counted[0][:10], "csrc": record.counted[1]},
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
    """The warp of each result; the first warp that has any, and of its results the thread, -1
    elsewhere."""
    threads = np.frombuffer(traced.owners, np.int16).astype(int)
    warps = threads // WARP
    shown = int(warps[warps >= 0].min())
    return {
        "warp": shown,
        "warps": _runs(warps.tolist()),
        "lanes": _runs(np.where(warps == shown, threads % WARP, -1).tolist()),
    }


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Equal neighbours as one: how many, and the number."""
    return [(len(list(same)), n) for n, same in itertools.groupby(numbers)]


def _accesses(traced: Trace, threads: int) -> list[dict[str, Any]]:
    """Each as the trace has it, with its share of the turns of the level-1 cache."""
    all_turns = sum(times(access, traced) * turns(access) for access in traced.accesses)
    return [
        dataclasses.asdict(access)
        | {
            "verdict": access.verdict,
            "share": times(access, traced) * turns(access) / all_turns,
            "runs": access.requests / (threads / WARP),
        }
        for access in traced.accesses
    ]
