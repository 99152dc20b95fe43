"""Compiles the kernels for every architecture of nvcc, and reports which spill registers.

A kernel that spills keeps accumulators in memory: it is right but slow. `make spills` runs this. It
needs a toolkit, or nvcc from the package index, but no GPU. Objects that are up to date are not
compiled again; only their logs are read.
"""

import math
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

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


class KnownSpill(NamedTuple):
    """Spills that need no change: of a kernel, on some architectures, up to a number of bytes."""

    kernel: str
    architectures: set[str]
    most: float


_KNOWN = [
    # The larger tiles of mma use 145 KiB of shared memory or more, but a block has 99 KiB here.
    # These kernels are never launched on these architectures.
    KnownSpill("mmaINS_7MmaTileILi128", {"sm_86", "sm_89", "sm_120", "sm_121"}, math.inf),
    # Before 9.0 tile2d spills 36 bytes where it stores its results, outside the loops. With one
    # block less per multiprocessor it would not spill, but be slower.
    KnownSpill("tile2d", {"sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89"}, 72),
    # Since these kernels take batches, they keep a few more numbers that a block reads only once:
    # three to six words are stored and loaded again. Nobody has timed what that costs.
    KnownSpill("tiledI8GeometryILi32ELi128ELi8ELi32ELi64ELi8ELi8ELi1ELb0ELb1EELi8", {"sm_80"}, 44),
    KnownSpill("mmaINS_7MmaTileILi128ELi128ELi64", {"sm_90"}, 28),
    KnownSpill("largest_of_rows", {"sm_100", "sm_103", "sm_110"}, 24),
]


def reported(log: str) -> dict[tuple[str, str], int]:
    """The bytes that each kernel spills, by symbol and architecture, as ptxas -v reports them."""
    return {(name, arch): int(out) + int(back) for name, arch, out, back in _ENTRY.findall(log)}


def is_known(name: str, arch: str, spilt: int) -> bool:
    return any(
        known.kernel in name and arch in known.architectures and spilt <= known.most
        for known in _KNOWN
    )


def spilling(log: str) -> dict[tuple[str, str], int]:
    """The kernels that spill, without the known ones."""
    return {
        (name, arch): spilt
        for (name, arch), spilt in reported(log).items()
        if spilt and not is_known(name, arch, spilt)
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
