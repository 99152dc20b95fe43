"""Where the limits of this process's cgroups stand."""

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")


def folders(
    controller: str, proc: Path = PROC, cgroups: Path = CGROUPS
) -> Iterator[tuple[int, Path]]:
    """The version, 1 or 2, and folder of each cgroup of this process, and of their parents.

    Of version 1 only the hierarchy of the controller counts. Inside a container a path may be that
    of the machine, of which only the mount itself is there: a folder need not exist.
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
    """The number in a file of a cgroup, or None where there is none, as in "max" for no limit."""
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
