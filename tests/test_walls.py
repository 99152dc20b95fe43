"""The walls between the folders of csrc/: which may include what of another."""

import re
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

CSRC = Path(__file__).parent.parent / "csrc"

# What each folder may include beside itself: whole folders, and single headers.
MAY_INCLUDE = {
    "module.c": {"python", "core"},
    "python": {"core", "count/count.h", "cuda/device_arrays.h", "engine/plan.h"},
    "core": set(),
    "cuda": {"core", "ladder/launch_kernel.h"},
    "cpu": {"core"},
    "count": {"core", "cpu/grid.h"},
    "ladder": {"core", "cpu/grid.h", "count/counted.h", "engine/plan.h"},
    "engine": {"core", "ladder/kernel.h", "ladder/launch.h"},
    "custom": {"core", "cpu/grid.h", "count/count.h"},
}
# Who may include the headers of what is not ours.
FOREIGN = {
    r"Python\.h|structmember\.h|numpy/": {"module.c", "python"},
    r"cuda|cublas|cooperative_groups|nv|hip/": {"cuda", "ladder"},
}


def crossings(csrc):
    """Each include that its folder may not have, as "FILE includes HEADER"; ascending."""
    found = []
    for path in sorted(
        path for path in csrc.rglob("*") if path.suffix in {".c", ".cpp", ".cu", ".h"}
    ):
        file = path.relative_to(csrc).as_posix()
        folder = file.partition("/")[0]
        for header in re.findall(
            r'^\s*#\s*include\s*[<"](.+?)[>"]', path.read_text(), re.MULTILINE
        ):
            ours = (path.parent / header).resolve()
            if ours.is_file():
                name = ours.relative_to(csrc).as_posix()
                allowed = {folder, *MAY_INCLUDE[folder]} & {name, name.partition("/")[0]}
            else:
                name = header
                allowed = all(
                    folder in friends
                    for headers, friends in FOREIGN.items()
                    if re.match(headers, header)
                )
            if not allowed:
                found.append(f"{file} includes {name}")
    return found


def test_no_file_reaches_through_a_wall():
    assert crossings(CSRC) == []


def test_every_file_is_in_a_folder_with_walls():
    sources = [path.relative_to(CSRC) for path in CSRC.rglob("*") if path.suffix in {".c", ".h"}]
    assert {path.parts[0] for path in sources} - set(MAY_INCLUDE) == set()


@pytest.mark.parametrize(
    ("file", "header", "named"),
    [
        ("engine/plan.c", '"../python/operand.h"', "python/operand.h"),
        ("core/device.h", '"../cuda/allocator.h"', "cuda/allocator.h"),
        ("core/status.h", "<Python.h>", "Python.h"),
        ("core/status.c", "<cuda_runtime.h>", "cuda_runtime.h"),
        ("cpu/grid.h", "<cuda_runtime.h>", "cuda_runtime.h"),
        ("cuda/allocator.h", '"../cpu/grid.h"', "cpu/grid.h"),
        ("cuda/device.cu", "<numpy/arrayobject.h>", "numpy/arrayobject.h"),
        ("ladder/kernel.h", '"../count/count.h"', "count/count.h"),
        ("ladder/01_naive.cu", '"../cpu/fiber.h"', "cpu/fiber.h"),
        ("python/result.c", '"../ladder/kernel.h"', "ladder/kernel.h"),
        ("module.c", '"cpu/grid.h"', "cpu/grid.h"),
        ("python/result.c", '"../module.c"', "module.c"),
    ],
)
def test_a_planted_crossing_is_seen(tmp_path, file, header, named):
    csrc = shutil.copytree(CSRC, tmp_path.resolve() / "csrc")
    path = csrc / file
    path.write_text(f"#  include {header}\n{path.read_text()}")
    assert crossings(csrc) == [f"{file} includes {named}"]
