"""Compiles the kernels for every architecture of nvcc, and reports which spill registers.

A kernel that spills keeps accumulators in memory: it is right but slow. `make spills` runs this. It
needs a toolkit, or nvcc from the package index, but no GPU. Objects that are up to date are not
compiled again; only their logs are read.
"""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from build_backend import compiling  # noqa: E402
from build_backend.toolkit import ALL, BuildError  # noqa: E402

FOLDER = Path("build/check/spills")
PLANTED = Path("tests/native/spilling.cu")

_ENTRY = re.compile(
    r"Compiling entry function '(\w+)' for '(sm_\d+a?)'\n(?:.*\n)?"
    r".* (\d+) bytes spill stores, (\d+) bytes spill loads"
)


# The larger tiles of mma use 145 KiB of shared memory or more, but a block has 99 KiB here. These
# kernels are never launched on these architectures, so their spills do not matter.
_LARGER_TILES = re.compile(r"mmaINS_7MmaTileILi128")
_TOO_SMALL_FOR_THEM = {"sm_86", "sm_89", "sm_120", "sm_121"}
# Before 9.0 tile2d spills 36 bytes where it stores its results, outside the loops. With one block
# less per multiprocessor it would not spill, but be slower.
_IN_ITS_EPILOGUE = re.compile(r"tile2d")
_BEFORE_9_0 = {"sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89"}


def reported(log: str) -> dict[tuple[str, str], int]:
    """The bytes that each kernel spills, by symbol and architecture, as ptxas -v reports them."""
    return {(name, arch): int(out) + int(back) for name, arch, out, back in _ENTRY.findall(log)}


def spilling(log: str) -> dict[tuple[str, str], int]:
    """The kernels that spill, without architectures that cannot launch them."""
    return {
        (name, arch): spilt
        for (name, arch), spilt in reported(log).items()
        if spilt
        and not (arch in _TOO_SMALL_FOR_THEM and _LARGER_TILES.search(name))
        and not (arch in _BEFORE_9_0 and _IN_ITS_EPILOGUE.search(name) and spilt <= 72)
    }


def by_generation(job: compiling.Job) -> list[compiling.Job]:
    """Splits a job: one for each generation of architectures, without the host's code. As one job,
    the engine's kernels would take longer than all others together."""
    generations = [flag for flag in job.flags if flag.startswith("-gencode")]
    shared = [flag for flag in job.flags if flag not in generations]
    parts = []
    for generation in generations:
        name = f"{job.source.stem}-{generation.partition('compute_')[2].partition(',')[0]}"
        part = replace(job, flags=[*shared, generation], gpu_only=True)
        parts.append(replace(part, target=FOLDER / f"{name}.fatbin", log=FOLDER / f"{name}.txt"))
    return parts


def main() -> str | None:
    """Prints the number of kernels checked; returns the faults, or None."""
    environ = {**os.environ, "SGEMM_KERNELS_ARCHS": ALL}
    try:
        toolkit = compiling.find_toolkit(environ)
        if toolkit is None:
            return "make spills: SGEMM_KERNELS_CUDA=0 leaves out nvcc, which it takes"
        kernels = [job for job in compiling.plan(ROOT, environ, toolkit) if job.log]
        planted = replace(kernels[-1], source=PLANTED)  # like the first rung, for all architectures
        jobs = [part for job in [*kernels, planted] for part in by_generation(job)]
        compiling.compile_stale(ROOT, jobs)
    except BuildError as error:
        return str(error)

    logs = {job.source: "" for job in jobs}
    for job in jobs:
        logs[job.source] += (ROOT / str(job.log)).read_text()
    architectures = {f"sm_{number}" for number in toolkit.architectures}
    if {arch for _, arch in spilling(logs.pop(PLANTED))} != architectures:
        return f"make spills: what {PLANTED} spills was not found on every architecture"
    entries = {entry for log in logs.values() for entry in reported(log)}
    if {arch for _, arch in entries} != architectures | {"sm_90a"}:
        return "make spills: ptxas reported on other architectures than it compiled for"
    found = [
        f"{source}: {name} spills {spilt} bytes on {arch}"
        for source, log in logs.items()
        for (name, arch), spilt in spilling(log).items()
    ]
    names = {name for name, _ in entries}
    print(f"{len(names)} kernels on {len(architectures)} architectures: {len(found)} spill")
    return "\n".join(found) or None


if __name__ == "__main__":
    sys.exit(main())
