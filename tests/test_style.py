"""Formatting, lint, types, and the stub beside the extension."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sgemm_kernels import _core

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
STUB = ast.parse((ROOT / "sgemm_kernels" / "_core.pyi").read_text())


def passes(*command):
    tool = shutil.which(
        command[0], path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    )
    assert tool, f"{command[0]} is missing: pip install '.[test]'"
    process = subprocess.run(
        [tool, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=" ".join)
def test_ruff(command):
    passes("ruff", *command, ".")


def test_mypy():
    passes("mypy", "--strict", "sgemm_kernels")


def test_clang_format():
    sources = [
        str(path.relative_to(ROOT))
        for folder in (ROOT / "csrc", ROOT / "tests", ROOT / "benchmarks", ROOT / "examples")
        for path in sorted(folder.rglob("*"))
        if path.suffix in {".c", ".cpp", ".cu", ".cuh", ".h"}
    ]
    assert sources
    passes("clang-format", "--dry-run", "--Werror", *sources)


COMMENTED = {".c", ".cpp", ".cu", ".cuh", ".h", ".in", ".js", ".mk", ".py", ".sh", ".toml", ".yml"}
COMMENT = re.compile(r"\s*(#|//|/\*|\* )")


def long_comments(text):
    """The comment lines beyond 100 columns. The formatters break code, and not comments."""
    return [
        line for line in text.splitlines() if len(line) > 100 and COMMENT.match(line) is not None
    ]


def test_comments_have_at_most_100_columns():
    places = [ROOT / name for name in ("Makefile", "pyproject.toml", "setup.py")]
    for folder in ("csrc", "sgemm_kernels", "tests", "benchmarks", "examples", "build_backend"):
        places += [path for path in (ROOT / folder).rglob("*") if path.suffix in COMMENTED]
    found = {
        str(path.relative_to(ROOT)): lines
        for path in places
        if (lines := long_comments(path.read_text(encoding="utf-8", errors="replace")))
    }
    assert found == {}


@pytest.mark.parametrize("begin", ["# ", "// ", "/* ", " * ", "    /* "])
def test_a_long_comment_is_found(begin):
    line = begin.ljust(101, "x")
    assert long_comments(f"{line}\n{line[:100]}\n{'x' * 101}\n") == [line]


def unset_macros(root):
    """The macros SGEMM_... in conditions of C and CUDA files that no file and no flag defines."""
    folders = ("csrc", "tests", "benchmarks", "build_backend", "sgemm_kernels")
    kinds = {".c", ".cpp", ".cu", ".cuh", ".h", ".in", ".mk", ".py"}
    texts = {
        path: path.read_text(encoding="utf-8")
        for folder in folders
        for path in (root / folder).rglob("*.*")
        if path.suffix in kinds
    }
    code = "".join(text for path, text in texts.items() if path.suffix not in {".mk", ".py"})
    conditions = re.findall(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(?:.*\\\n)*.*", code, re.MULTILINE)
    tested = set(re.findall(r"\bSGEMM_\w+", "".join(conditions)))
    return tested - set(
        re.findall(r"(?:-D|#[ \t]*define[ \t]+)(SGEMM_\w+)", "".join(texts.values()))
    )


def test_each_macro_in_a_condition_is_defined_somewhere():
    assert unset_macros(ROOT) == set()


def test_a_misspelt_macro_is_found(tmp_path):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/a.h").write_text("#define SGEMM_A 1\n#if SGEMM_A && defined(SGEMM_AA)\n")
    assert unset_macros(tmp_path) == {"SGEMM_AA"}


def private(name):
    return name.startswith("_") and not name.endswith("__")


def modules_of_ours():
    """The names of the modules here, without their packages, and without those that share a
    framework's name: `torch` alone is PyTorch."""
    places = [ROOT, *(ROOT / f for f in ("benchmarks", "build_backend", "tests"))]
    found = [path for place in places for path in place.glob("*.py")]
    names = {path.stem for path in (*found, *(ROOT / "sgemm_kernels").rglob("*.py"))}
    return names - {"jax", "torch"} | {"_core"}


def private_names_taken(text, *, inside):
    """Uses of another module's private names in a module, as (line, name).

    A module may be private to its folder; it is imported by name. `inside` is true if the module
    belongs to the package, or tests its internals. The compiled half, `_core`, has names for the
    package alone: inside, they do not count as private.
    """
    ours, others = modules_of_ours(), {}
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[-1]
            from_here = node.level > 0 or (node.module or "").split(".")[0] in ours | {
                "sgemm_kernels"
            }
            for alias in node.names:
                others[alias.asname or alias.name] = alias.name if from_here else ""
                is_module = module in ("", "sgemm_kernels", "tests") and alias.name in ours
                taken = from_here and private(alias.name) and not is_module
                if taken and not (inside and module == "_core"):
                    found.append((node.lineno, f"{module}.{alias.name}"))
        elif isinstance(node, ast.Import):
            for alias in node.names:
                last = alias.name.split(".")[-1]
                others[alias.asname or alias.name] = last if last in ours else ""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and private(node.attr):
            value = node.value
            holder = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
            known = others.get(holder, holder if holder in ours else "")
            if known and not (inside and known == "_core"):
                found.append((node.lineno, f"{holder}.{node.attr}"))
    return found


@pytest.mark.parametrize(
    "folder", ["sgemm_kernels", "benchmarks", "build_backend", "notebooks", "tests", "."]
)
def test_private_names_do_not_cross_modules(folder):
    found = {
        path.name: taken
        for path in sorted((ROOT / folder).glob("**/*.py" if folder == "sgemm_kernels" else "*.py"))
        if (
            taken := private_names_taken(
                path.read_text(encoding="utf-8"), inside=folder in ("sgemm_kernels", "tests")
            )
        )
    }
    assert found == {}


@pytest.mark.parametrize(
    "planted",
    [
        "from .results import _size",
        "from sgemm_kernels.measuring.plotting import Picture, _style",
        "from _results import _plain",
        "from . import plotting\nplotting._style",
        "import sgemm_kernels.measuring.plotting\nsgemm_kernels.measuring.plotting._style",
        "import measure as m\nm._shape(3)",
        "from .truth import Truth\nTruth._rows",
    ],
)
def test_a_private_name_that_crosses_is_found(planted):
    assert len(private_names_taken(planted, inside=True)) == 1


def test_names_that_are_not_private_to_another_module():
    allowed = "import os\nfrom . import _core\nos._exit(0)\nself._x\n_core._trace\n_table.row"
    assert private_names_taken(allowed, inside=True) == []
    assert private_names_taken(allowed, inside=False) == [(5, "_core._trace")]


def stubbed(kind):
    return {node.name: node for node in STUB.body if isinstance(node, kind)}


def test_the_stub_has_the_modules_names():
    types_alone = {"_Variant", "_Device", "_BuildInfo", "_Access", "_OnGpu", "_HasStream"}
    types_alone |= {"_StreamOfTorch", "_StreamOfCupy", "_CustomKernel"}
    named = set(stubbed(ast.FunctionDef)) | set(stubbed(ast.ClassDef)) - types_alone
    declared = (node for node in STUB.body if isinstance(node, ast.AnnAssign) and not node.value)
    named |= {node.target.id for node in declared if isinstance(node.target, ast.Name)}
    assert named == {name for name in vars(_core) if not name.startswith("__")}


def test_the_stub_has_the_signature_of_run():
    arguments = stubbed(ast.FunctionDef)["run"].args
    parameters = inspect.signature(_core.run).parameters.values()
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    keywords = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert [argument.arg for argument in arguments.args] == positional
    assert [argument.arg for argument in arguments.kwonlyargs] == list(keywords)
    defaults = [ast.literal_eval(default) for default in arguments.kw_defaults]
    assert defaults == list(keywords.values())


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("_Variant", _core._variants()),
        ("_Device", _core._devices()),
        ("_BuildInfo", (_core._build_info(),)),
        ("_Access", _core._trace("smem", 1, 32, 32, 32)[-1]),
    ],
    ids=["_Variant", "_Device", "_BuildInfo", "_Access"],
)
def test_the_stub_has_the_keys(name, entries):
    fields = [field.target.id for field in stubbed(ast.ClassDef)[name].body]
    assert entries
    for entry in entries:
        assert list(entry) == fields


@pytest.mark.parametrize(
    "name", ["Error", "DeviceError", "OutOfMemoryError", "UnsupportedVariantError"]
)
def test_the_stub_has_the_bases(name):
    bases = [base.id for base in stubbed(ast.ClassDef)[name].bases]
    assert [base.__name__ for base in getattr(_core, name).__bases__] == bases
