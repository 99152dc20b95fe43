"""The rules between folders: what csrc/ may include, and what the Python package may import."""

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "sgemm_kernels"

# What each room (a folder or a subfolder) may include besides itself: whole rooms, and single
# headers.
MAY_INCLUDE = {
    "module.c": {"base", "frontends/c", "frontends/python", "runtime"},
    "frontends/python": {
        "base",
        "emulator/access_trace/access_trace.h",
        "emulator/tensor_core_model.h",
        "gemm/plan/plan.h",
        "frontends/c",
        "frontends/torch",
        "runtime",
        "runtime/cuda/device_arrays.h",
    },
    "frontends/torch": {"base", "frontends/c", "runtime"},
    "frontends/jax": {"frontends/c"},
    "frontends/blas": {"frontends/c"},
    "frontends/c": {"base", "runtime"},
    "runtime/cuda": {"base", "base/cuda", "gemm/kernel/launch_kernel.h", "runtime"},
    "runtime/cpu": {"base", "emulator", "runtime"},
    "runtime": {"base", "gemm/plan/proofs.h"},
    "gemm": {
        "base/addend.h",
        "emulator/tensor_core_model.h",
        "gemm/kernel",
        "gemm/plan",
        "gemm/simt",
        "gemm/small",
    },
    "gemm/small": {"base", "gemm/kernel", "gemm/plan", "gemm/simt"},
    "gemm/tensor_cores": {
        "base/addend.h",
        "gemm/kernel",
        "gemm/plan/direct_plan.h",
        "gemm/plan/fused_groups.h",
        "gemm/plan/fused_plan.h",
        "gemm/plan/invariant_plan.h",
        "gemm/plan/waves_plan.h",
    },
    "gemm/simt": {"gemm/kernel", "gemm/plan"},
    "gemm/plan": {"base", "gemm/kernel/lower_tiles.h", "gemm/kernel/tma_rows.h"},
    "gemm/kernel": {
        "base",
        "emulator/access_trace/traced.h",
        "emulator/grid.h",
        "emulator/plain",
    },
    "ladder": set(),
    "custom": {
        "base",
        "emulator",
        "emulator/access_trace/access_trace.h",
        "emulator/sanitizer/sanitizer.h",
        "gemm/kernel/plain_run.h",
    },
    "emulator/access_trace": {"base", "emulator"},
    "emulator/plain": {"base", "emulator"},
    "emulator/sanitizer": {"base", "emulator"},
    "emulator": {"base"},
    "base/cuda": {"base"},
    "base": set(),
}
# What each room may call besides. Headers of base and runtime declare functions of base/cuda and
# runtime/cuda; gemm/kernel/launch.h calls base and emulator; the runtime has the tables of devices
# and of kernels; the compiler adds calls of the access trace; module.c loads NumPy's table.
OF_KERNELS = {"base", "base/cuda", "emulator", "emulator/access_trace", "emulator/plain"}
MAY_CALL = {
    "frontends/c": {"runtime/cuda"},
    "frontends/python": {"module.c"},
    "runtime": {
        *("gemm", "gemm/simt", "gemm/tensor_cores", "ladder", "runtime/cpu", "runtime/cuda"),
    },
    "gemm": {*OF_KERNELS, "gemm/plan", "gemm/tensor_cores", "ladder"},
    "gemm/small": OF_KERNELS,
    "gemm/tensor_cores": {*OF_KERNELS, "gemm/simt", "ladder"},
    "gemm/simt": OF_KERNELS,
    "ladder": OF_KERNELS,
}
# Which rooms may include third-party and generated headers.
FOREIGN = {
    r"Python\.h|structmember\.h|numpy/": {"module.c", "frontends/python"},
    r"cuda|cublas|cooperative_groups|nv|hip/": {
        *("base/cuda", "gemm/kernel", "gemm/tensor_cores", "ladder", "runtime/cuda"),
    },
    r"xla/": {"frontends/jax"},
    r"\.\./\.\./build/ladder/names\.h": {"runtime"},  # generated
}


def room_of(file):
    """The room of a file of csrc/: 'runtime/cuda' of runtime/cuda/device.cu."""
    return file.rpartition("/")[0] or file


def crossings(csrc):
    """Each forbidden include as "FILE includes HEADER"; ascending."""
    found = []
    for path in sorted(
        path for path in csrc.rglob("*") if path.suffix in {".c", ".cpp", ".cu", ".h"}
    ):
        file = path.relative_to(csrc).as_posix()
        room = room_of(file)
        for header in re.findall(
            r'^\s*#\s*include\s*[<"](.+?)[>"]', path.read_text(), re.MULTILINE
        ):
            ours = (path.parent / header).resolve()
            if ours.is_file() and ours.is_relative_to(csrc):
                name = ours.relative_to(csrc).as_posix()
                allowed = {room, *MAY_INCLUDE[room]} & {name, room_of(name)}
            else:
                name = header
                allowed = all(
                    room in friends
                    for headers, friends in FOREIGN.items()
                    if re.match(headers, header)
                )
            if not allowed:
                found.append(f"{file} includes {name}")
    return found


def test_no_file_has_a_forbidden_include():
    assert crossings(CSRC) == []


def test_every_file_is_in_a_room_with_rules():
    sources = [path for path in CSRC.rglob("*") if path.suffix in {".c", ".cpp", ".cu", ".h"}]
    assert {room_of(path.relative_to(CSRC).as_posix()) for path in sources} == set(MAY_INCLUDE)


@pytest.mark.parametrize(
    ("file", "header", "named"),
    [
        ("gemm/plan/plan.c", '"../../frontends/python/operand.h"', "frontends/python/operand.h"),
        ("runtime/device.h", '"../base/cuda/allocator.h"', "base/cuda/allocator.h"),
        ("base/status.h", "<Python.h>", "Python.h"),
        ("base/status.c", "<cuda_runtime.h>", "cuda_runtime.h"),
        ("emulator/grid.h", "<cuda_runtime.h>", "cuda_runtime.h"),
        ("base/cuda/allocator.h", '"../../emulator/grid.h"', "emulator/grid.h"),
        ("runtime/cuda/device.cu", "<numpy/arrayobject.h>", "numpy/arrayobject.h"),
        ("gemm/kernel/kernel.h", '"../../emulator/fiber.h"', "emulator/fiber.h"),
        ("ladder/01_naive.cu", '"../runtime/product.h"', "runtime/product.h"),
        ("emulator/grid.h", '"sanitizer/sanitizer.h"', "emulator/sanitizer/sanitizer.h"),
        ("gemm/tensor_cores/error_check.h", '"../plan/plan.h"', "gemm/plan/plan.h"),
        ("gemm/simt/splitk.cu", '"../small/gemv.h"', "gemm/small/gemv.h"),
        ("gemm/plan/plan.c", '"../simt/store_tile.h"', "gemm/simt/store_tile.h"),
        ("gemm/auto.cu", '"../ladder/03_smem.cu"', "ladder/03_smem.cu"),
        ("ladder/03_smem.cu", '"../gemm/simt/copy_async.h"', "gemm/simt/copy_async.h"),
        ("frontends/python/result.c", '"../../gemm/kernel/kernel.h"', "gemm/kernel/kernel.h"),
        ("module.c", '"emulator/grid.h"', "emulator/grid.h"),
        ("frontends/jax/matmul.c", '"../../runtime/product.h"', "runtime/product.h"),
        ("frontends/c/c_api.c", '"xla/ffi/api/c_api.h"', "xla/ffi/api/c_api.h"),
        ("frontends/blas/engine.c", '"../../runtime/device.h"', "runtime/device.h"),
        ("frontends/python/result.c", '"../../module.c"', "module.c"),
        ("frontends/torch/abi.c", '"../python/operand.h"', "frontends/python/operand.h"),
        ("runtime/many.c", '"../frontends/c/sgemm_kernels.h"', "frontends/c/sgemm_kernels.h"),
        ("base/status.c", '"../runtime/view.h"', "runtime/view.h"),
        ("gemm/plan/plan.c", '"../../runtime/view.h"', "runtime/view.h"),
    ],
)
def test_a_planted_forbidden_include_is_found(tmp_path, file, header, named):
    csrc = shutil.copytree(CSRC, tmp_path.resolve() / "csrc")
    path = csrc / file
    path.write_text(f"#  include {header}\n{path.read_text()}")
    assert crossings(csrc) == [f"{file} includes {named}"]


def test_rooms_have_no_circle():
    """Whole rooms: a folder with its subfolders."""

    def whole(room):
        return room.partition("/")[0]

    arrows = {whole(room): set() for room in MAY_INCLUDE}
    for room, entries in MAY_INCLUDE.items():
        used = {whole(entry) for entry in {*entries, *MAY_CALL.get(room, ())}}
        arrows[whole(room)] |= used - {whole(room)}
    arrows["frontends"].discard("module.c")  # NumPy's table
    assert cycle_in(arrows) == []


def test_the_librarys_rooms_have_no_circle():
    rooms = [room for room in MAY_INCLUDE if room.partition("/")[0] == "gemm"]
    arrows = {room: (allowed_rooms(room) - {room}) & set(rooms) for room in rooms}
    assert cycle_in(arrows) == []


def objects_of(root):
    """The compiled objects of csrc/ that are newer than their sources, by source."""
    found = {}
    for path in sorted((root / "build/objects").rglob("*.o")):
        # The launchers of rungs are generated in build/ladder.
        _, inside, source = re.sub("/build/ladder/", "/csrc/ladder/", path.as_posix()).rpartition(
            "/csrc/"
        )
        file = root / "csrc" / source.removesuffix(".o")
        if inside and file.is_file() and file.stat().st_mtime <= path.stat().st_mtime:
            found.setdefault(source.removesuffix(".o"), []).append(path)
    return found


def forbidden_calls(objects):
    """Each function or variable that a room may not use: "FILE uses NAME of FILE"; ascending."""
    source_of = {str(path): source for source, paths in objects.items() for path in paths}
    command = ["nm", "-A", "-P", "-g", *source_of]
    defined, used = {}, set()
    for line in subprocess.run(command, capture_output=True, text=True).stdout.splitlines():
        path, _, rest = line.partition(": ")
        name, kind = rest.split()[:2]
        if kind in "TDBRC":
            defined.setdefault(name, set()).add(source_of[path])
        elif kind == "U":
            used.add((source_of[path], name))
    return sorted(
        f"{user} uses {name} of {owner}"
        for user, name in used
        for owner in defined.get(name, ())
        if room_of(owner) not in allowed_rooms(room_of(user))
    )


def allowed_rooms(room):
    entries = {entry if entry in MAY_INCLUDE else room_of(entry) for entry in MAY_INCLUDE[room]}
    return {room, *entries, *MAY_CALL.get(room, ())}


def test_no_object_calls_a_forbidden_room():
    objects = objects_of(ROOT)
    if not any(source.startswith("runtime/") for source in objects):
        pytest.skip("nothing is compiled in this clone")
    assert forbidden_calls(objects) == []


def test_a_forbidden_call_is_found(tmp_path):
    texts = {
        "base/status.c": "int product(void);\nint status(void) { return product(); }\n",
        "runtime/product.c": "int status(void);\nint product(void) { return status(); }\n",
    }
    for name, text in texts.items():
        source = tmp_path / "csrc" / name
        target = tmp_path / f"build/objects/host/csrc/{name}.o"
        for path in (source, target):
            path.parent.mkdir(parents=True)
        source.write_text(text)
        subprocess.run(["cc", "-c", source, "-o", target], check=True)
    assert forbidden_calls(objects_of(tmp_path)) == [
        "base/status.c uses product of runtime/product.c"
    ]


# ------------------------------------------------------------------ the Python package

# What each part of sgemm_kernels/ may import besides itself. A subpackage is one part; the modules
# at the top are "foundation", except those with a line of their own.
MAY_IMPORT = {
    "foundation": set(),
    "measuring": {"foundation"},
    "proving": {"foundation", "measuring"},
    "explaining": {"foundation", "measuring"},
    "custom": {"foundation", "measuring", "explaining"},
    "learning": {"foundation", "measuring", "explaining", "custom"},
    "cli": {"foundation", "measuring", "proving", "explaining", "custom", "learning"},
    "_jax_handler": {"foundation", "custom"},
    "_jax_checks": {"foundation"},
    "jax": {"foundation", "_jax_checks", "_jax_handler"},
    "demo": {"foundation", "cli"},
    "__main__": {"foundation", "cli"},
    "__init__": {"foundation", "measuring", "proving", "explaining", "custom", "learning"},
}
MOST_LINES = 500


def modules_of(package):
    """The file of each module of a package, by its name inside the package: 'cli.report'."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        found[".".join(parts[:-1] if len(parts) > 1 and parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(package):
    """The modules that each module imports from its own package, anywhere in its file.

    Imports inside functions and under TYPE_CHECKING count. Running the ``__init__`` of the packages
    above a module does not count as an import. A compiled module imports none of ours.
    """
    modules = modules_of(package)
    compiled = {path.stem for path in package.glob("*.pyi")}

    def module_at(parts):
        return ".".join(parts) if parts else "__init__"

    found = {}
    for name, path in modules.items():
        here = path.relative_to(package).parts[:-1]
        imported = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first, *parts = alias.name.split(".")
                    if first == package.name:
                        imported.add(module_at(parts))
            elif isinstance(node, ast.ImportFrom):
                parts = (node.module or "").split(".") if node.module else []
                if node.level:
                    parts = [*here[: len(here) + 1 - node.level], *parts]
                elif parts[:1] == [package.name]:
                    parts = parts[1:]
                else:
                    continue
                for alias in node.names:
                    inner = module_at([*parts, alias.name])
                    imported.add(inner if inner in {*modules, *compiled} else module_at(parts))
        found[name] = {each for each in imported if each in modules and each != name}
    return found


def cycle_in(imports):
    """The modules of one import cycle in order, ending with the first one again; [] if there is
    none."""
    done, path = set(), []

    def visit(module):
        if module in path:
            return [*path[path.index(module) :], module]
        if module in done:
            return []
        path.append(module)
        for each in sorted(imports[module]):
            if cycle := visit(each):
                return cycle
        path.pop()
        done.add(module)
        return []

    for module in sorted(imports):
        if cycle := visit(module):
            return cycle
    return []


def part_of(module):
    first = module.partition(".")[0]
    return first if first in MAY_IMPORT else "foundation"


def forbidden(imports):
    """Each forbidden import as "MODULE imports MODULE"; ascending."""
    return [
        f"{module} imports {each}"
        for module, imported in sorted(imports.items())
        for each in sorted(imported)
        if part_of(each) not in {part_of(module), *MAY_IMPORT[part_of(module)]}
    ]


def too_long(package):
    """The modules longer than MOST_LINES, with their number of lines."""
    lines = {
        name: len(path.read_text(encoding="utf-8").splitlines())
        for name, path in modules_of(package).items()
    }
    return {name: count for name, count in lines.items() if count > MOST_LINES}


def test_no_module_has_a_forbidden_import():
    imports = imports_of(PACKAGE)
    assert "measuring.shapes" in imports["cli.command"]
    assert forbidden(imports) == []


def test_no_modules_import_each_other_in_a_cycle():
    assert cycle_in(imports_of(PACKAGE)) == []


def test_no_module_is_too_long():
    assert too_long(PACKAGE) == {}


def test_every_subpackage_has_rules():
    subpackages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert subpackages == set(MAY_IMPORT) - {
        *("foundation", "_jax_checks", "_jax_handler", "jax", "demo", "__main__", "__init__")
    }


@pytest.fixture
def small_package(tmp_path):
    """A function that writes a package and returns its folder."""

    def write(**modules):
        package = tmp_path / "sgemm_kernels"
        for name, text in modules.items():
            path = package / f"{name.replace('.', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return package

    return write


@pytest.mark.parametrize(
    "closing",
    [
        "from .limits import most",
        "from . import limits",
        "from ..measuring import limits",
        "from ..measuring.limits import most as least",
        "import sgemm_kernels.measuring.limits",
        "import sgemm_kernels.measuring.limits as known",
        "from sgemm_kernels.measuring.limits import most",
        "from sgemm_kernels.measuring import limits",
        "def later():\n    from .limits import most\n    return most",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .limits import most",
    ],
)
def test_a_planted_cycle_is_found(small_package, closing):
    modules = {
        "__init__": "",
        "_gpus": "import numpy",
        "measuring.__init__": "",
        "measuring.limits": "from .results import Results\nfrom .._gpus import gpu_of",
        "measuring.results": "from .. import _gpus",
    }
    package = small_package(**modules)
    assert cycle_in(imports_of(package)) == []
    (package / "measuring/results.py").write_text(closing)
    assert cycle_in(imports_of(package)) == [
        "measuring.limits",
        "measuring.results",
        "measuring.limits",
    ]


def test_a_cycle_through_the_top_of_the_package_is_found(small_package):
    package = small_package(
        __init__="from ._catalog import variants", _catalog="from . import __version__"
    )
    assert cycle_in(imports_of(package)) == ["__init__", "_catalog", "__init__"]


@pytest.mark.parametrize(
    ("module", "text", "named"),
    [
        ("measuring.plotting", "from ..cli.command import show", "cli.command"),
        ("measuring.plotting", "def draw():\n    import sgemm_kernels.cli", "cli"),
        ("explaining.trace", "from ..custom import kernel", "custom.kernel"),
        ("cli.report", "from .. import run", "__init__"),
        ("_style", "from .measuring import shapes", "measuring.shapes"),
        ("__init__", "from .cli.command import show", "cli.command"),
        ("jax", "import jax\nfrom .cli.command import show", "cli.command"),
        ("custom.kernel", "from .. import jax", "jax"),
    ],
)
def test_a_planted_forbidden_import_is_found(small_package, module, text, named):
    others = {"__init__": "", "cli.__init__": "", "cli.command": "from .. import _style"}
    others |= {"custom.kernel": "", "jax": "", "measuring.shapes": "", "_style": ""}
    package = small_package(**{**others, module: text})
    assert forbidden(imports_of(package)) == [f"{module} imports {named}"]


def test_a_module_that_is_too_long_is_found(small_package):
    package = small_package(**{"cli.long": "\n" * 501, "cli.short": "\n" * 500})
    assert too_long(package) == {"cli.long": 501}
