"""Custom kernels: loaded at run time, and passed instead of a variant's name.

A kernel's file is plain CUDA, or it is written with kernel.h. The machine's C++ compiler compiles
it for the CPU device, and NVRTC or nvcc for a GPU. The user's cache folder keeps the compiled
files. A kernel is a program with all your rights: do not load one that you would not run. Until it
has passed ``check`` and ``sanitize``, a kernel runs in a child process.
"""

import contextlib
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _cache, _core
from .._catalog import Variant, devices
from .._core import DeviceError, Error, OutOfMemoryError, UnsupportedVariantError
from .._source_text import lines_of
from ..measuring.devices import find_device
from . import compiler, compute_sanitizer, for_gpu, hints, nvrtc, sanitize
from .cases import Case, Tile, tile_of
from .check import check_all
from .child_process import START_S, Child, begin, is_child
from .compiler import (
    CompileError,
    NoCompilerError,
    Source,
    access_trace_build,
    deferred_async_build,
    digest_of,
    run_build,
    sanitizer_build,
)
from .diagnosis import Diagnosis, Finding
from .exchanged import exchange_hint
from .failures import finding_of, placed, with_hint
from .nvrtc import BeyondNvrtcError
from .overflow import overflow
from .plain import Plain

__all__ = ["CompileError", "Kernel", "NoCompilerError"]

_PASSED = ".passed"
_queued: set[object] = set()
"""Kernels that were launched in a caller's stream. They stay loaded until this process ends, since
their work may still be queued there or be part of a CUDA graph."""
_COMPILE_S = 120.0
"""The time limit of a compilation for a GPU that only looks for mistakes."""
_FIRST_LAUNCH_S = 60.0
"""The time limit of the first launch on a GPU, which includes some seconds for the driver."""


_WATCH_S = 20.0
"""The least time limit of a product in the checking build, which is slower."""


class Kernel:
    """A custom kernel, which can be passed instead of a variant's name.

    ``kernel`` makes it. It never changes: after editing its file, call ``kernel`` again. Some
    builds are compiled later: for ``sanitize``, for ``trace`` and for a GPU. If an included file
    has changed by then, such a build raises Error unless it is in the cache.
    """

    def __init__(self, source: Source, name: str, *, stays_apart: bool = False) -> None:
        self.stays_apart = stays_apart
        """Whether it runs in its child process even after it has passed."""
        self._source = source
        self._name = name
        self._digest = source.digest
        self._verdict_key = digest_of(
            [
                compiler.library_key(source, build())
                for build in (run_build, sanitizer_build, deferred_async_build)
            ]
        )
        self._passed: set[str] = set()
        self._opened: dict[str, object] = {}
        self.child = Child(name)
        self._tried_on_gpu = False
        self._lock = threading.Lock()
        self._gpu_way: str | None = None
        _, self._messages = compiler.library(source, run_build())
        if source.launch is not None:
            files = [name for name in source.left_out if name.startswith('"')]
            self._messages += hints.missing_hint(source.file, files)
        self._entry: Variant | None = None

    @property
    def name(self) -> str:
        """Its name in tables and errors."""
        return self._name

    @property
    def file(self) -> str:
        """The name of its file. A kernel from text has its own name with .cu."""
        return self._source.file

    @property
    def source(self) -> str:
        """The text of its file."""
        return self._source.text

    @property
    def defines(self) -> Mapping[str, int]:
        """The defines that it was compiled with."""
        return MappingProxyType(dict(self._source.defines))

    @property
    def plain(self) -> Plain | None:
        """The facts of a plain kernel; None for one that is written with kernel.h."""
        return self._source.plain

    @property
    def warnings(self) -> str:
        """The C++ compiler's warnings; empty if there are none."""
        return self._messages

    @property
    def digest(self) -> str:
        """A digest of its file, the included files and its defines."""
        return self._digest

    @property
    def checked(self) -> bool:
        """Whether ``check`` found nothing wrong in exactly this kernel."""
        return self._has_passed("check")

    @property
    def sanitized(self) -> bool:
        """Whether ``sanitize`` found nothing wrong in exactly this kernel."""
        return self._has_passed("sanitize")

    @property
    def variant(self) -> Variant:
        """Its entry as in ``variants()``: its tiles, threads and shared memory."""
        if self._entry is None:
            if self.in_this_process:
                self._entry = Variant(**self._open("cpu")[1])
            else:
                self._entry = self.child.call_within(START_S, variant_of, self)
        return self._entry

    def __repr__(self) -> str:
        defines = "".join(f", {name}={value}" for name, value in self.defines.items())
        return f"<Kernel {self.name}: {self.file}{defines}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Kernel, (self._source, self._name)

    def check(self, *, device: str | None = None, seconds: float = 20.0) -> Diagnosis:
        """Compares it with float64 at every edge of its tiles, and describes wrong results.

        The products cover every layout and alignment of the operands, alpha, beta, K = 0 and
        special values. They run in a child process, which is killed if one of them takes longer
        than ``seconds``. Right results do not exclude races: see ``sanitize``.

        Parameters
        ----------
        device
            As in ``run``.
        seconds
            The time limit of one product.

        Returns
        -------
        Diagnosis
            True if the kernel passed.

        Raises
        ------
        NoCompilerError
            There is no C++ compiler.
        DeviceError
            The device cannot be used.
        OutOfMemoryError
            There is too little memory.
        """
        where = find_device(device).name
        begin_s = time.monotonic()
        cases, findings = 0, list[Finding]()
        try:
            cases, found = self.child.call(check_all, self, where, seconds)
            findings = [self._with_line(*each, seconds) for each in found]
        except OutOfMemoryError:
            raise
        except (CompileError, DeviceError, UnsupportedVariantError) as error:
            findings = [finding_of(error, self._source, seconds)]
            if findings[0].kind in ("ended its process", "not finished"):
                with contextlib.suppress(Error):
                    seen = self._watch(tile_of(self.variant), max(seconds, _WATCH_S))[1]
                    findings = [_with_place(findings[0], seen)]
        return self._verdict("check", where, cases, begin_s, findings)

    def sanitize(self, *, device: str | None = None, seconds: float = 20.0) -> Diagnosis:
        """Checks each memory access, and reports mistakes with their lines and threads.

        It finds accesses outside of an array, unaligned accesses, data races, reads of memory that
        was never written, barriers that some threads do not reach, and endless loops, in every
        kind of product that ``check`` computes. It also reports what only costs time, such as bank
        conflicts; the kernel still passes. It runs in a child process on the CPU device,
        which has a GPU's threads and barriers. The child is killed if one product, or the trace
        that finds slow accesses, takes longer than ``seconds``.

        On a device 'cuda' the kernel also runs under the tools of compute-sanitizer, which take
        some seconds each.

        A kernel that has passed ``check`` and ``sanitize`` runs in this process from then on, also
        if it is loaded again.

        Parameters
        ----------
        device
            As in ``run``, but None is the CPU device.
        seconds
            The time limit of one product.

        Returns
        -------
        Diagnosis
            True if the kernel passed.

        Raises
        ------
        NoCompilerError
            There is no C++ compiler, or for a GPU no compute-sanitizer.
        DeviceError
            The device cannot be used.
        Error
            A file that the kernel includes has changed since it was loaded.
        """
        found = None if device is None else find_device(device)
        on_gpu = found is not None and found.kind == "cuda"
        where = found.name if found is not None and on_gpu else "cpu"
        begin_s = time.monotonic()
        cases, findings = 0, list[Finding]()
        try:
            tile = tile_of(self.variant)
            cases, findings = self._watch(tile, seconds)
            if sanitize.looks_unset(findings):
                findings += sanitize.unset_variables(self._source, tile, seconds)
            if all(finding.harmless for finding in findings):
                late, _ = compiler.library(self._source, deferred_async_build())
                findings += sanitize.watch_late(late, self._source, tile, seconds)
            if on_gpu:
                more, told = compute_sanitizer.watch(self, where)
                cases += more
                findings += told
            if all(finding.harmless for finding in findings):
                findings += self.child.call_within(_COMPILE_S, for_gpu.findings, self)
            if not any(not finding.harmless for finding in findings):
                program, _ = compiler.library(self._source, sanitizer_build())
                findings += sanitize.elsewhere(program, self._source, seconds)
                findings += overflow(program, self._source, seconds)
                compiler.library(
                    self._source, access_trace_build()
                )  # outside the limit of `seconds`
                findings += self.child.call(sanitize.slow_accesses, self, tile, seconds)
        except OutOfMemoryError:
            raise
        except (CompileError, DeviceError, UnsupportedVariantError) as error:
            findings.append(finding_of(error, self._source, seconds))
        return self._verdict("sanitize", where, cases, begin_s, sanitize.in_order(findings))

    def _watch(self, tile: Tile, seconds: float) -> tuple[int, list[Finding]]:
        program, _ = compiler.library(self._source, sanitizer_build())
        counts, findings = sanitize.watch(program, tile, self._source, seconds)
        hint = exchange_hint(program, self._source, findings, seconds)
        if hint:
            first = sanitize.in_order(findings)[0]
            findings = [
                replace(each, text=each.text + hint) if each is first else each for each in findings
            ]
        static = max((each.static_shared_bytes for each in counts if each is not None), default=0)
        most = self.variant.shared_bytes
        return len(counts), [*findings, *for_gpu.too_much_shared(static, most, self._source)]

    def _with_line(self, finding: Finding, case: Case, seconds: float) -> Finding:
        """The finding of ``check``, with the line that the checking build reports for its product,
        if any."""
        if finding.line is not None or finding.kind == "launch failed":
            return finding
        with contextlib.suppress(Error):
            program, _ = compiler.library(self._source, sanitizer_build())
            limit = max(seconds, _WATCH_S)
            seen = sanitize.watch_these(program, [case], self._source, limit)
            mistakes = [each for each in sanitize.in_order(seen) if not each.harmless]
            return _with_place(finding, mistakes)
        return finding

    def _verdict(
        self, what: str, where: str, cases: int, begin_s: float, findings: list[Finding]
    ) -> Diagnosis:
        """The verdict of ``check`` or ``sanitize``, which is kept if nothing is wrong."""
        if self.plain is not None:
            findings = with_hint(findings, self.plain)
        every = tuple(placed(finding, self._source) for finding in findings)
        took = time.monotonic() - begin_s
        verdict = Diagnosis(self.name, what, where, cases, took, every, self.source, self.file)
        if verdict.passed:
            _cache.note(digest_of([what, self._verdict_key]), _PASSED, verdict.summary)
        return verdict

    def _has_passed(self, what: str) -> bool:
        if what not in self._passed:
            if _cache.noted(digest_of([what, self._verdict_key]), _PASSED) is None:
                return False
            self._passed.add(what)
        return True

    # -------------------------------------------------------------- called by the package

    def __sgemm_run__(self, A: Any, B: Any, **keywords: Any) -> Any:
        """Implements ``run`` for this kernel."""
        if self.in_this_process:
            launched = self.launchable(keywords.get("device"))
            if is_child():
                self._try_first(keywords.get("device"))
            if keywords.get("stream") is not None:
                _queued.add(launched)
            return _core.run(launched, A, B, **keywords)
        operands = [
            A,
            B,
            *(keywords[name] for name in ("C", "out") if keywords.get(name) is not None),
        ]
        if not all(isinstance(operand, np.ndarray) for operand in operands):
            raise Error(
                f"{self.name} has not passed check() and sanitize() yet, so it runs in a child "
                "process on copies: pass NumPy arrays, or call k.check() and k.sanitize() first"
            )
        out = keywords.pop("out", None)
        result = self.child.call(run_here, self, A, B, **keywords)
        return result if out is None else _put(result, A, B, out)

    @property
    def made_of(self) -> Source:
        """Its file, its defines and its included files."""
        return self._source

    @property
    def in_this_process(self) -> bool:
        """Whether it may be launched in this process, not only in its child."""
        return is_child() or (not self.stays_apart and self.checked and self.sanitized)

    def _open(self, way: str) -> Any:
        """The open library of one build: (capsule, entry as a dict, symbol)."""
        if way not in self._opened:
            if way == "nvcc":
                library = nvrtc.nvcc_library(self._source, _capabilities())
            else:
                build = {"cpu": run_build, "count": access_trace_build}[way]()
                library = compiler.library(self._source, build)[0]
            self._opened[way] = _core._open_kernel(str(library), self._name, self.file)
        return self._opened[way]

    def launchable(self, device: str | None) -> Any:
        """The capsule that the extension takes instead of a variant's name.

        If the device may be a GPU, compiles the kernel for all GPUs of this machine, once. Raises
        CompileError and NoCompilerError.
        """
        if device == "cpu":
            return self._open("cpu")[0]
        with self._lock:
            if self._gpu_way is None:
                self._gpu_way = self._compile_for_gpus()
            return self._open(self._gpu_way)[0]

    def _compile_for_gpus(self) -> str:
        """Compiles by NVRTC, or by nvcc if NVRTC cannot. Returns the build to open."""
        capsule, _, symbol = self._open("cpu")
        try:
            for capability in _capabilities():
                code, lowered = nvrtc.gpu_code(self._source, symbol or "", capability)
                _core._add_gpu_code(capsule, capability, code, lowered)
            return "cpu"
        except (NoCompilerError, BeyondNvrtcError) as error:
            if nvrtc.find_nvcc() is None:
                if isinstance(error, NoCompilerError):
                    raise
                raise NoCompilerError(
                    f"{self.file} is more than the one plain kernel that NVRTC compiles for a GPU, "
                    "and needs nvcc: install a CUDA toolkit, and name its path in CUDA_HOME"
                ) from error
        self._open("nvcc")
        return "nvcc"

    def _try_first(self, device: str | None) -> None:
        """Launches a small product before the first one on a GPU. If the kernel is endless, this
        reaches its time limit soon, and the child ends while the driver still works."""
        if device == "cpu" or self._tried_on_gpu or not _capabilities():
            return
        self._tried_on_gpu = True
        tile = tile_of(self.variant)
        A = np.ones((tile.BM + 1, 2 * tile.BK + 1), np.float32)
        B = np.ones((2 * tile.BK + 1, tile.BN + 1), np.float32)
        begin("a first, small product on the GPU", _FIRST_LAUNCH_S)
        _core.run(self.launchable(device), A, B, device=device)
        begin("", None)

    @property
    def symbol(self) -> str:
        """The ``__global__`` function's name in its KernelSpec."""
        return self._open("cpu")[2] or ""

    def countable(self) -> Any:
        """The capsule of the traced build."""
        return self._open("count")[0]

    def lines_of(self, file: str) -> list[str]:
        """The lines of its file or of an included file. Empty for files that ``<...>``, a macro or
        ``#line`` names."""
        if file == self.file:
            return lines_of(self.source)
        for path, text in self._source.included.items():
            if path.name == file:
                return lines_of(text)
        return []


def _with_place(finding: Finding, every: Iterable[Finding]) -> Finding:
    """The finding, with the place of the first of the others that has one."""
    for seen in every:
        if seen.line is not None:
            text = f"; the checking build reports {seen.kind}: {seen.text}"
            text = finding.text + text * (seen.kind != finding.kind)
            return replace(finding, text=text, file=seen.file, line=seen.line)
    return finding


def _put(
    result: NDArray[np.float32], A: Any, B: Any, out: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Copies the result to out, after ``run`` has checked that out is valid."""
    _core.run("naive", A[:, :0], B[:0], out=out, device="cpu")
    np.copyto(out, result)
    return out


def _capabilities() -> list[int]:
    """The compute capabilities of this machine's usable GPUs (90 is 9.0)."""
    found = {d.compute_capability for d in devices() if d.kind == "cuda" and d.usable}
    return sorted(10 * major + minor for major, minor in filter(None, found))


# ------------------------------------------------------------------ called in the child


def variant_of(own: Kernel) -> Variant:
    return own.variant


def run_here(own: Kernel, A: Any, B: Any, **keywords: Any) -> Any:
    return _core.run(own, A, B, **keywords)
