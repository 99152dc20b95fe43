"""Breaks one line of each variant's kernels in turn, and runs that variant's tests until one fails.

    python -m tests.mutation [--variant NAME] [--name PATTERN] [--jobs N]

The tests must notice every mistake. The script compiles a mistake's file only, in a folder of its
own, and links it with the other objects of this tree. mutants/mutants.toml has the mistakes in the
rungs, which also the judge of custom kernels must find; mutants/shared.toml has those in the files
that rungs share, and in the rest of the library.
"""

import argparse
import dataclasses
import os
import queue
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from build_backend import compiling, rungs
from build_backend.toolkit import BuildError
from sgemm_kernels import Variant, devices, variants
from sgemm_kernels._catalog import kernel_place

ROOT = Path(__file__).parent.parent
MUTANTS = ROOT / "tests/mutants"
BUILD = ROOT / "build/mutation"
LARGE = {Path("csrc", room) for room in compiling.LARGE_ROOMS}
RUNGS = {variant.name: variant.file for variant in variants() if variant.file is not None}
FILES = {"simt": "gemm/auto.cu", "invariant": "gemm/tensor_cores/fixed.cu"}
"""Of the library's variants."""
NAMES = {variant.name for variant in variants()}
CPU = next(device for device in devices() if device.kind == "cpu")

LOOPS = {
    **dict.fromkeys(("splitk", "streamk", "tma"), "async_tiles.h"),
    **dict.fromkeys(("wgmma", "waves"), "wgmma_tiles.h"),
    "fused": "fused_tiles.h",
}
"""The header with the main loop of a rung, if it shares the loop with other kernels."""

VISIBLE = {"wrong values", "never set"}
"""Findings of the judge that also a test of values makes. Others need a checker: on the CPU device,
threads run in one order, and a read beyond an array often finds a harmless value."""

FIRST = ("accuracy", "exact", "special", "auto", "many", "same_bits")
"""The tests that find most mistakes soon: tests/test_NAME.py."""
THEN = (
    *("tensor_cores", "shapes", "layouts", "out", "addend", "empty", "batches", "streamk"),
    *("tma", "bits", "repeatable", "properties", "last_wave", "edges"),
)
WHOLE_FILES = {
    "tma": {"test_tma.py"},
    "fused": {"test_last_wave.py"},
    "simt": {"test_auto.py", "test_many.py", "test_batches.py"},
    "auto": {"test_auto.py", "test_many.py", "test_batches.py"},
    "invariant": {"test_same_bits.py"},
}
"""Tests of a variant that do not name it in their parameters."""


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One mistake: the variant whose tests must notice it, and the file to compile."""

    variant: str
    name: str
    file: str  # below csrc/
    old: str
    new: str
    place: int  # which of the places with this text
    source: str  # the file to compile: this one, or one that includes it

    def __str__(self) -> str:
        return f"{self.variant}: {self.name} ({self.file})"

    def write(self, folder: Path) -> None:
        """Writes the file with the mistake."""
        parts = (ROOT / "csrc" / self.file).read_text().split(self.old)
        before = self.old.join(parts[: self.place + 1])
        after = self.old.join(parts[self.place + 1 :])
        (folder / "csrc" / self.file).write_text(before + self.new + after)


def mutants() -> Iterator[Mutant]:
    for entry in _table("mutants.toml"):
        if VISIBLE.isdisjoint(entry["kinds"]) or "launch" in entry:
            continue
        for variant in entry.get("rungs", RUNGS):
            source = kernel_place(RUNGS[variant])
            yield from _everywhere(variant, source, source, entry)
            if variant in LOOPS:
                yield from _everywhere(variant, kernel_place(LOOPS[variant]), source, entry)
    for entry in _table("shared.toml"):
        for variant in entry["variants"]:
            file = entry["file"]
            source = entry.get("source") or (_file_of(variant) if file.endswith(".h") else file)
            found = list(_everywhere(variant, file, source, entry))
            if not found:
                raise SystemExit(f"{file} has no text '{entry['old']}'")
            yield from found


def _file_of(variant: str) -> str:
    """The file to compile for a mistake in a header."""
    return FILES.get(variant) or kernel_place(RUNGS[variant])


def _table(name: str) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = tomllib.loads((MUTANTS / name).read_text())["mutation"]
    return entries


def _everywhere(variant: str, file: str, source: str, entry: dict[str, Any]) -> Iterator[Mutant]:
    for place in range((ROOT / "csrc" / file).read_text().count(entry["old"])):
        yield Mutant(variant, entry["name"], file, entry["old"], entry["new"], place, source)


class Builder:
    """Builds the extension with one mistake in a folder."""

    def __init__(self) -> None:
        compiling.build_core(ROOT, os.environ)
        self._toolkit = compiling.find_toolkit(os.environ)
        self._jobs = compiling.plan(ROOT, os.environ, self._toolkit)
        kinds = {self._kind(job) for job in self._jobs}
        fused = CPU.fused_multiply_add and "cpu_fused" in kinds
        self._here = {"cpu_fused" if fused else "cpu", "host"}

    def build(self, mutant: Mutant, folder: Path) -> None:
        """Compiles for this processor alone. Raises BuildError."""
        source = Path("csrc") / mutant.source
        if source.parent == rungs.TABLE.parent:
            source = rungs.FOLDER / source.name
        broken = [job for job in self._jobs if job.source == source and self._is_for_here(job)]
        shutil.copytree(ROOT / "csrc", folder / "csrc", dirs_exist_ok=True)
        mutant.write(folder)
        rungs.generate(folder)
        for job in broken:
            self._compile(job, folder)
        targets = {job.target for job in broken}
        objects = [
            (folder if target in targets else ROOT) / target
            for target in compiling.extension_objects(self._jobs)
        ]
        package = compiling.lay_out_package(ROOT, folder / "package")
        compiling.link(ROOT, os.environ, self._toolkit, objects, package / "_core.abi3.so")

    @staticmethod
    def _kind(job: compiling.Job) -> str:
        """The folder of an object: `cpu` or `cpu_fused` if it has kernels for the CPU, ..."""
        return next(part for part in job.target.parts[2:] if part != "alone")

    def _is_for_here(self, job: compiling.Job) -> bool:
        return self._kind(job) in self._here

    @staticmethod
    def _compile(job: compiling.Job, folder: Path) -> None:
        (folder / job.target).parent.mkdir(parents=True, exist_ok=True)
        flags = [flag for flag in job.flags if flag != "-Werror"]  # for variables without use
        flags += ["-O1"] if job.source.parent in LARGE else []  # takes half the time
        command = [job.compiler.command, *flags, *job.search, "-c", str(job.source)]
        command += ["-o", str(job.target)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise BuildError(done.stderr)


# ------------------------------------------------------------------------------------- the tests

TIMEOUT_S = 300
"""For one test: a mistake may make it endless. No right test takes as long on a busy machine."""

CHILD = "import sys; from tests.mutation import run_tests; sys.exit(run_tests({!r}, {!r}))"


def failing_test(variant: str, package: Path) -> str:
    """The first test of the variant that fails with this package, or an empty string."""
    for names in (FIRST, THEN):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (package, ROOT))),
            "OPENBLAS_NUM_THREADS": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # starts in less time
        }
        command = [sys.executable, "-P", "-c", CHILD.format(variant, names)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        begun = re.findall(r"^begins (.*)$", done.stdout, re.MULTILINE)
        failed = re.findall(r"^fails (.*)$", done.stdout, re.MULTILINE)
        if failed:
            return failed[0]
        if done.returncode != 0:
            if not begun:
                raise SystemExit(f"the tests of {variant} did not run:\n{done.stdout}{done.stderr}")
            return f"{begun[-1]}, which ended the process"
    return ""


class OfVariant:
    """A plugin of pytest: it keeps the tests of one variant, and prints which test fails."""

    def __init__(self, variant: str) -> None:
        self._variant = variant

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._is_about_it(item)]

    def _is_about_it(self, item: pytest.Item) -> bool:
        """Whether it is parametrized with the variant, or runs all variants in a loop."""
        given = (
            item.callspec.params.values()
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else ()
        )
        names = {
            value.name if isinstance(value, Variant) else str(value).partition("-")[0]
            for value in given  # "waves-low" is a tile size of waves
        }
        return (
            self._variant in names
            or item.path.name in WHOLE_FILES.get(self._variant, ())
            or ("variants_on" in item.fixturenames and names.isdisjoint(NAMES))
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        print(f"\nbegins {nodeid}", flush=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print(f"\nfails {report.nodeid}", flush=True)


def run_tests(variant: str, names: Sequence[str]) -> int:
    """Runs the variant's tests in this process until one fails."""
    files = [f"tests/test_{name}.py" for name in names]
    options = ["-x", "-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
    options += [f"--timeout={TIMEOUT_S}", "--timeout-method=thread"]
    options += ["-m", "not thorough and not fake_cuda and not nvcc"]
    status = pytest.main([*options, *files], plugins=[OfVariant(variant)])
    return 0 if status == pytest.ExitCode.NO_TESTS_COLLECTED else int(status)


# ------------------------------------------------------------------------------------- the report


@dataclasses.dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killer: str  # empty if all tests passed
    problem: str = ""  # why it was not tried

    @property
    def is_expected(self) -> bool:
        return bool(self.killer) and not self.problem


def judge(mutant: Mutant, builder: Builder, folders: "queue.Queue[Path]") -> Verdict:
    """Builds the mistake in a free folder, and runs the tests."""
    begin = time.perf_counter()
    folder = folders.get()
    try:
        builder.build(mutant, folder)
        verdict = Verdict(mutant, failing_test(mutant.variant, folder / "package"))
    except BuildError as error:
        verdict = Verdict(mutant, "", f"does not compile:\n{error}")
    finally:
        folders.put(folder)
    said = verdict.problem or verdict.killer or "SURVIVED"
    print(f"{time.perf_counter() - begin:3.0f} s  {mutant}: {said}", flush=True)
    return verdict


def main() -> int:
    """Returns 1 if a mistake survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--variant", default="", help="only the mistakes of this variant")
    parser.add_argument("--name", default="", help="only mistakes that match this pattern")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    chosen = [
        mutant
        for mutant in mutants()
        if asked.variant in ("", mutant.variant) and re.search(asked.name, str(mutant))
    ]
    chosen.sort(key=lambda mutant: Path("csrc", mutant.source).parent not in LARGE)  # longest first
    builder = Builder()
    folders: queue.Queue[Path] = queue.Queue()
    for number in range(asked.jobs):
        folders.put(BUILD / str(number))
    # A mistake that changes nothing must survive. Otherwise the tests fail for another reason.
    first = "ladder/01_naive.cu"
    control = judge(Mutant("naive", "none", first, "row", "row", 0, first), builder, folders)
    if control.killer or control.problem:
        raise SystemExit("the tests fail without a mistake")
    with ThreadPoolExecutor(asked.jobs) as pool:
        verdicts = list(pool.map(lambda mutant: judge(mutant, builder, folders), chosen))
    missed = [verdict for verdict in verdicts if not verdict.is_expected]
    print(f"\n{len(verdicts)} mistakes, {len(verdicts) - len(missed)} found by a test")
    for verdict in missed:
        print(f"{verdict.mutant}: {verdict.problem or 'survived'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
