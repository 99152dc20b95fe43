"""What custom kernels may include: kernel.h with its version, and the other headers of kernels."""

import re
from pathlib import Path

import pytest

from sgemm_kernels._catalog import kernel_file
from sgemm_kernels.custom.kernel_source import Source

PAGE = Path(__file__).parent.parent / "docs/use/custom_kernels.md"

PROMISED = {
    1: {
        *("TUNABLE", "tile_origin", "at", "address", "inside", "multiply_add", "store", "store4"),
        *("read4", "dynamic_shared", "RUNG", "LAUNCHER", "VARIANT", "launch_blocks", "tiles_of"),
        *("scratch_alloc", "scratch_free", "counters_alloc"),
        *("scratch_take", "scratch_give", "counters_take"),
    },
}
"""The functions and macros of kernel.h by its version. A version that is released keeps its entry:
what goes or changes its meaning needs a new one."""

INCLUDED = (
    *("kernel.h", "launch.h", "ptx.h", "float4_loader.h", "async_tiles.h", "split_fp16.h"),
    *("error_check.h", "fused_launch.h"),
)


def version() -> int:
    (found,) = re.findall(r"^#define SGEMM_KERNEL_H_VERSION (\d+)$", kernel_file("kernel.h"), re.M)
    return int(found)


def test_the_version_has_every_name_that_it_promises():
    text = kernel_file("kernel.h") + kernel_file("launch.h")
    defined = set(
        re.findall(r"^(?:#define (?=\w)|[^\n/#]*?[\w>&*] [*&]?(?=\w+\())(\w+)", text, re.MULTILINE)
    )
    assert PROMISED[version()] <= defined
    assert version() == max(PROMISED)


def test_the_page_has_the_version_and_the_names():
    page = PAGE.read_text(encoding="utf-8")
    assert f"`SGEMM_KERNEL_H_VERSION` is {version()}" in page
    assert [name for name in PROMISED[version()] if not re.search(rf"\b{name}[(<`]", page)] == []


@pytest.mark.parametrize("header", INCLUDED)
def test_a_kernel_finds_the_headers_of_the_package(header):
    names = [path.name for path in Source(Path("mine.cu"), f'#include "{header}"\n').included]
    assert names[0] == header
    assert "kernel.h" in names or header == "launch.h"
