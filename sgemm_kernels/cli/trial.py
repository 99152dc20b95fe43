"""One trial of a custom kernel: check result, changed lines, times and accesses, in this order.

Notebook cells and the command ``try`` show the same parts, each as soon as it is available.
"""

import argparse
import contextlib
import difflib
import html
from collections.abc import Iterator
from dataclasses import dataclass

from .._catalog import variants
from .._core import UnsupportedVariantError
from .._source_text import lines_of
from .._table import as_html, table
from ..custom.diagnosis import Diagnosis, Finding
from ..custom.kernel import Kernel
from ..custom.load import source as source_of
from ..explaining.trace import Trace, trace
from ..measuring.compare import NotComparableError, Verdict, judge
from ..measuring.devices import find_device
from ..measuring.measure import measure
from ..measuring.measurement import UNMET_NOTE, Measurement
from ..measuring.results import Results
from ..measuring.shapes import Shape, size_text
from .command import device_argument, size

_TRACED = (512, 512, 64)
"""(M, N, K) of the product whose first block is traced. It cuts off no rung's tile."""
_LINES_SHOWN = 60
"""Maximum number of changed lines to show."""


def trial_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a trial. Without any of them, it checks the kernel."""
    parser.add_argument(
        "--like", metavar="RUNG", help="the rung that it started from, which also says its launch"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare it with float64 and check its memory accesses"
    )
    parser.add_argument(
        "--bench", metavar="SIZE", type=size, nargs="+", help="time it at these sizes: N or MxNxK"
    )
    parser.add_argument(
        "--against",
        metavar="VARIANT",
        nargs="+",
        default=[],
        help="variants to time beside it, in addition to --like",
    )
    parser.add_argument("--trace", action="store_true", help="count its memory accesses")
    device_argument(parser)


@dataclass(frozen=True)
class TrialOptions:
    """The options of a trial."""

    check: bool
    sizes: tuple[Shape, ...]
    compared: tuple[str, ...]
    traced: bool
    device: str | None
    like: str | None

    @classmethod
    def parse(cls, options: argparse.Namespace) -> "TrialOptions":
        """Raises ValueError for an unknown variant."""
        if options.like is not None:
            source_of(options.like)
        like = [] if options.like is None else [options.like]
        names = [variant.name for variant in variants()]
        for name in options.against:
            if name not in names:
                raise ValueError(
                    f"--against: unknown variant {name!r}; use one of {', '.join(names)}"
                )
        return cls(
            options.check or not (options.bench or options.trace),
            tuple(options.bench or ()),
            tuple(dict.fromkeys([*like, *options.against])),
            options.trace,
            options.device,
            options.like,
        )


class Try:
    """A trial of a kernel, with the results for comparison with the next one."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.right = True
        """False if a check found an error."""
        self.results: Results | None = None
        self.trace: Trace | None = None

    def parts(self, selected: TrialOptions, last: "Try | None") -> Iterator[object]:
        """Runs the selected parts. Each part prints as text and has _repr_html_.

        A wrong kernel is neither timed nor traced, because it may not terminate.
        """
        kernel = self.kernel
        if selected.check:
            checked = kernel.check(device=selected.device)
            watched = kernel.sanitize()
            self.right = checked.passed and watched.passed
            yield _CheckResult(checked, watched)
        if last is not None:
            yield _Changes(last.kernel.source, kernel.source, "the last run")
        elif selected.like is not None:
            # A cell's source starts with an empty line in place of the magic's line.
            first = kernel.source[: kernel.source.startswith("\n")]
            yield _Changes(first + source_of(selected.like), kernel.source, selected.like)
        if not self.right:
            if selected.sizes or selected.traced:
                yield _Note(f"{kernel.name} is not timed or traced until it is correct.")
            return
        if selected.sizes:
            yield from self._times(selected, last)
        if selected.traced:
            traced = _TRACED if kernel.plain is None else kernel.plain.fitting(*_TRACED)
            self.trace = trace(kernel, *traced)
            yield _Traffic(self.trace, None if last is None else last.trace, selected.compared)
            yield self.trace

    def _times(self, selected: TrialOptions, last: "Try | None") -> Iterator[object]:
        device = find_device(selected.device)
        if device.kind == "cpu" and selected.device is None:
            yield _Note(
                "No times: this machine has no usable GPU, and the CPU device's timing does not "
                "predict a GPU's. Pass --device cpu to see it anyway."
            )
            return
        runnable = [
            variant.name
            for variant in variants()
            if device.kind in variant.devices and variant.unavailable is None
        ]
        beside = [name for name in selected.compared if name in runnable]
        self.results = measure(
            [*beside, self.kernel], selected.sizes, device=device.name, whole_calls=False
        )
        missing = [name for name in selected.compared if name not in runnable]
        note = f"{', '.join(missing)}: does not run on {device.name}" if missing else ""
        before = None if last is None else last.results
        yield _Times(self.kernel.name, self.results, before, note)


@dataclass(frozen=True, repr=False)
class _CheckResult:
    """Tells whether the kernel is correct, and if not, why."""

    checked: Diagnosis
    watched: Diagnosis

    def __repr__(self) -> str:
        lines = [self._headline()]
        for finding, text in self._findings():
            lines.append(f"  {finding}")
            lines += [f"      {finding.line} | {text}"] if text is not None else []
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        items = []
        for finding, text in self._findings():
            code = "" if text is None else f"<pre>{finding.line} | {html.escape(text)}</pre>"
            items.append(f"<li>{html.escape(str(finding))}{code}</li>")
        body = f"<ul>{''.join(items)}</ul>" if items else ""
        colour = "#2da44e" if self._right() else "#d1242f"
        headline = f'<b style="color: {colour}">{html.escape(self._headline())}</b>'
        return f"<p>{headline}</p>{body}"

    def _right(self) -> bool:
        return self.checked.passed and self.watched.passed

    def _headline(self) -> str:
        name, checked, watched = self.checked.kernel, self.checked, self.watched
        if not self._right():
            return f"{name} is WRONG:"
        word = (
            f"{name} is correct: {checked.cases} products on {checked.device} match float64 within "
            f"the error bound, and the memory checks of {watched.cases} more found no error."
        )
        return f"{word} Performance hints:" if watched.findings else word

    def _findings(self) -> list[tuple[Finding, str | None]]:
        """The findings without duplicates, with their source lines. Causes precede their
        effects."""
        found: dict[tuple[str, str], Finding] = {}
        for finding in (*self.watched.findings, *self.checked.findings):
            found.setdefault((finding.kind, finding.place), finding)
        lines = lines_of(self.checked.source)
        return [
            (
                finding,
                lines[finding.line - 1]
                if finding.line is not None
                and finding.file == self.checked.file
                and finding.line <= len(lines)
                else None,
            )
            for finding in found.values()
        ]


class _Changes:
    """The difference of two sources: removed and added lines with their numbers."""

    def __init__(self, old: str, new: str, since: str) -> None:
        self._since = since
        self._lines: list[str] = []
        before, after = lines_of(old), lines_of(new)
        matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
        for kind, old_from, old_to, new_from, new_to in matcher.get_opcodes():
            if kind != "equal":
                self._lines += [f"- {n + 1:>4}  {before[n]}" for n in range(old_from, old_to)]
                self._lines += [f"+ {n + 1:>4}  {after[n]}" for n in range(new_from, new_to)]

    def __repr__(self) -> str:
        return "\n".join([self._title(), *(f"  {line}" for line in self._shown())])

    def _repr_html_(self) -> str:
        colours = {"-": "rgba(248, 81, 73, 0.2)", "+": "rgba(46, 160, 67, 0.2)"}
        lines = "\n".join(
            f'<span style="background: {colours.get(line[0], "none")}">{html.escape(line)}</span>'
            for line in self._shown()
        )
        return f"<p>{html.escape(self._title())}</p>{f'<pre>{lines}</pre>' if lines else ''}"

    def _title(self) -> str:
        if not self._lines:
            return f"Source: identical to {self._since}."
        return f"Source: lines changed since {self._since}:"

    def _shown(self) -> list[str]:
        more = len(self._lines) - _LINES_SHOWN
        return self._lines[:_LINES_SHOWN] + ([f"… and {more} more lines"] if more > 0 else [])


class _Times:
    """The times of the kernel and the variants beside it, shortest first."""

    def __init__(self, name: str, results: Results, last: Results | None, note: str) -> None:
        self._name, self._results = name, results
        self._since: dict[Shape, str] = {}
        if last is not None:
            with contextlib.suppress(NotComparableError):
                self._since = {
                    each.new.shape: _since(each)
                    for each in judge(last, results)
                    if each.new.variant == name
                }
        marks = [UNMET_NOTE] if any(row.unmet for row in results.rows) else []
        self._notes = "\n".join([results.run.describe(), *marks, *([note] if note else [])])

    def __repr__(self) -> str:
        return f"Times:\n{table(*self._cells())}\n{self._notes}"

    def _repr_html_(self) -> str:
        return as_html("Times", *self._cells(), self._notes)

    def _cells(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        header = ["kernel", "size", "ms", "TFLOP/s", f"speedup of {self._name}"]
        header += ["change since last run"] if self._since else []
        lines = []
        for shape in self._results.shapes:
            rows = [row for row in self._results.rows if row.shape == shape]
            own = self._results.find(self._name, shape)
            for row in sorted(rows, key=lambda row: row.median_s or float("inf")):
                line = [row.label, size_text(shape), *_figures(row), _speed_over(own, row)]
                line += [self._since.get(shape, "") if row is own else ""] if self._since else []
                lines.append(tuple(line))
        return tuple(header), lines


def _figures(row: Measurement) -> tuple[str, str]:
    if row.median_s is None or row.gflops is None:
        return ("not timed" if row.error.right else "wrong"), "-"
    return row.marked(1e3 * row.median_s), row.marked(row.gflops / 1e3)


def _since(verdict: Verdict) -> str:
    if verdict.change is None:
        return verdict.word
    return f"{verdict.word}, time {verdict.change:+.1%}"


def _speed_over(own: Measurement | None, row: Measurement) -> str:
    if own is None or row is own or own.median_s is None or row.median_s is None:
        return "-"
    return f"{row.median_s / own.median_s:.2f}x"


class _Traffic:
    """Counted bytes per multiply-add, which are the same on every device."""

    def __init__(self, own: Trace, last: Trace | None, compared: tuple[str, ...]) -> None:
        self._lines = [_bytes(own.variant, own)]
        if last is not None:
            self._lines.append(_bytes(f"{own.variant}, last run", last))
        files = {variant.name: variant.file for variant in variants()}
        for name in compared:
            try:
                if files[name] is not None:
                    self._lines.append(_bytes(name, trace(name, *_TRACED)))
            except UnsupportedVariantError:
                pass  # the trace runs on the CPU device, which does not support every rung

    _HEADER = ("kernel", "shared memory", "global memory", "global, whole sectors")
    _TITLE = "Bytes accessed per multiply-add, counted over one block"

    def __repr__(self) -> str:
        return f"{self._TITLE}:\n{table(self._HEADER, self._lines)}"

    def _repr_html_(self) -> str:
        return as_html(self._TITLE, self._HEADER, self._lines)


def _bytes(name: str, counted: Trace) -> tuple[str, ...]:
    figures = (
        counted.shared_bytes_per_multiply_add,
        counted.global_bytes_per_multiply_add,
        counted.sector_bytes_per_multiply_add,
    )
    return name, *(f"{figure:.3g}" for figure in figures)


@dataclass(frozen=True, repr=False)
class _Note:
    """A note."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.text)}</p>"
