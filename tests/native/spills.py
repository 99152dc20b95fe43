"""Reports the kernels that spill registers, on every architecture of a build.

    python tests/native/spills.py FOLDER    # with ptxas's reports; `make wheels` runs this

A kernel that spills keeps accumulators in memory: it is right but slow.
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

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
    # Since these kernels take batches, they keep a few more numbers that a block reads only once:
    # three to six words are stored and loaded again. Nobody has timed what that costs.
    KnownSpill("tiledI8GeometryILi32ELi128ELi8ELi32ELi64ELi8ELi8ELi1ELb0ELb1EELi8", {"sm_80"}, 44),
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


def outdated(reports: dict[tuple[str, str], int]) -> list[str]:
    """The known spills that no kernel has any more, on some architecture of the reports."""
    compiled_for = {arch for _, arch in reports}
    return [
        f"{known.kernel} no longer spills on {arch}: remove it from {Path(__file__).name}"
        for known in _KNOWN
        for arch in sorted(known.architectures & compiled_for)
        if not any(
            spilt and arch == its and known.kernel in name for (name, its), spilt in reports.items()
        )
    ]


def main() -> str | None:
    """Prints the number of kernels checked; returns the faults, or None."""
    logs = {path.stem: path.read_text() for path in sorted(Path(sys.argv[1]).glob("*.txt"))}
    found = [
        f"{source}: {name} spills {spilt} bytes on {arch}"
        for source, log in logs.items()
        for (name, arch), spilt in spilling(log).items()
    ]
    reports = reported("".join(logs.values()))
    found += outdated(reports)
    kernels, architectures = ({entry[part] for entry in reports} for part in (0, 1))
    print(f"{len(kernels)} kernels on {len(architectures)} architectures: {len(found)} faults")
    if not kernels:
        return f"no report of ptxas in {sys.argv[1]}"
    return "\n".join(found) or None


if __name__ == "__main__":
    sys.exit(main())
