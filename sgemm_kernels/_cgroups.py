"""Finds the folders with the limits of this process's cgroups."""

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def folders(
    controller: str, proc: Path = PROC, cgroups: Path = CGROUPS
) -> Iterator[tuple[int, Path]]:
    """The version (1 or 2) and the folder of each cgroup of this process and of its parents.

    For version 1, only the hierarchy of the controller. A folder need not exist: inside a
    container, a path can be the host's while only the mount point is visible.
    """
    try:
        lines = (proc / "self/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            version, mount = 2, cgroups
        elif controller in controllers.split(","):
            version, mount = 1, cgroups / controller
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            yield version, folder
            if folder == mount:
                break


def number_in(file: Path) -> int | None:
    """The number in a cgroup file. None if it has no number, such as "max" for no limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
