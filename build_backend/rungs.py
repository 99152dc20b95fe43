"""Generates the launchers of the ladder's rungs from csrc/ladder/launches.toml.

Each is a file of C++ for all compilers: the rung's text, its KernelSpec and its catalog entry. The
text for the CPU device is transformed like that of a plain kernel. A header lists the rungs for the
catalog.
"""

from __future__ import annotations

import importlib
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path("build/ladder")
"""Where the files are generated, relative to the source root."""
NAMES = FOLDER / "names.h"
TABLE = Path("csrc/ladder/launches.toml")
_HEAD = f"/* Generated from {TABLE} by build_backend/rungs.py. */\n"
_CUSTOM = Path(__file__).parent.parent / "sgemm_kernels/custom"


def _plain_text() -> ModuleType:
    """The module of the package by its path: the package cannot be imported before its extension is
    built."""
    package = ModuleType("_sgemm_kernels_custom")
    package.__path__ = [str(_CUSTOM)]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.plain_text")


plain_text = _plain_text()


def generate(root: Path) -> list[Path]:
    """Writes the launchers and the list of rungs, as far as they changed. Returns the launchers'
    paths, relative to root, in the ladder's order."""
    table = tomllib.loads((root / TABLE).read_text())
    launchers = {
        FOLDER / rung["file"]: launcher(
            name, rung, (root / TABLE.parent / rung["file"]).read_text()
        )
        for name, rung in table.items()
    }
    for path, text in {**launchers, NAMES: names(table)}.items():
        if not ((root / path).is_file() and (root / path).read_text() == text):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
    return [*launchers]


def names(table: Iterable[str]) -> str:
    """A header that lists the rungs."""
    listed = "".join(f" \\\n    EACH({name})" for name in table)
    return f"{_HEAD}#define LADDER(EACH){listed}\n"


def launcher(name: str, rung: Mapping[str, Any], text: str) -> str:
    """The launcher of one rung, given its entry in the table and its text."""
    headers = "".join(f"#include <{each}>\n" for each in plain_text.cuda_headers(text))
    parts = [
        f'{_HEAD}#include "../../csrc/gemm/kernel/rung.h"\n#ifdef __CUDACC__\n{headers}#endif\n',
        _configuration(f"rung_{name}", name, rung, text),
    ]
    launch = f"rung_{name}::launch(problem, where)"
    if "smaller" in rung:
        smaller, known = plain_text.with_constants(text, rung["smaller"])
        if known != set(rung["smaller"]):
            raise ValueError(f"{rung['file']} has no constants {set(rung['smaller']) - known}")
        parts.append(_configuration(f"rung_{name}_smaller", name, rung, smaller))
        launch = (
            f"has_shared_memory(where, rung_{name}::spec) ? {launch}\n"
            f"        : rung_{name}_smaller::launch(problem, where)"
        )
    parts.append(f"LAUNCHER({name})\n{{\n    return {launch};\n}}\n")
    major, minor = rung["min_compute_capability"]
    parts.append(
        f'VARIANT({name}, "{rung["summary"]}", "{rung["file"]}",\n'
        f"        rung_{name}::spec, {{{major}, {minor}}});\n"
    )
    return "\n".join(parts)


def _configuration(namespace: str, name: str, rung: Mapping[str, Any], text: str) -> str:
    """The rung's text, its KernelSpec and its launch, in a namespace."""
    numbered = f'#line 1 "{rung["file"]}"\n'
    # GCC computes the products of a single sum as a vector, and then cannot fuse them with it.
    single = rung.get("thread_tile", [1, 1])[1] == 1
    scalar = '#pragma GCC optimize("no-tree-loop-vectorize")\n' if single else ""
    on_gpu = re.sub(r"^[ \t]*#[ \t]*include[ \t]*<[^\n]*", "", text, flags=re.MULTILINE)
    on_cpu = plain_text.for_cpu(text, rung["file"])
    threads = rung["block"].strip("()")
    spec = {
        "symbol": f'"{name}"',
        "block_tile": f"{{{', '.join(map(str, rung['tile']))}}}",
        "thread_tile": f"{{{', '.join(map(str, rung.get('thread_tile', [1, 1])))}}}",
        "threads": f"{{{threads if ',' in threads else f'{threads}, 1'}}}",
        "static_bytes": rung.get("static_shared", "0"),
        "dynamic_bytes": rung.get("dynamic_shared", "0"),
        "contiguous": "true",
    }
    fields = ",\n    ".join(f".{field} = {value}" for field, value in spec.items())
    return f"""\
namespace {{
namespace {namespace} {{
#ifdef __CUDACC__
{numbered}{on_gpu}#else
{scalar}{numbered}{on_cpu}#endif
constexpr KernelSpec spec = {{
    {fields}}};
static Status launch(const Sgemm *problem, const Launch *where)
{{
    const int64_t M = problem->C.rows, N = rung_cols(problem), K = problem->A.cols;
    static_cast<void>(K);
    return launch_rung({name}, spec, {rung["grid"]}, problem, where);
}}
}} // namespace {namespace}
}} // namespace
"""


if __name__ == "__main__":
    generate(Path(__file__).parent.parent)
