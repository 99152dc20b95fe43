"""Formatting, lint, types, and the stub beside the extension."""

import ast
import inspect
import os
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
        for folder in (ROOT / "csrc", ROOT / "tests", ROOT / "benchmarks")
        for path in sorted(folder.rglob("*"))
        if path.suffix in {".c", ".cpp", ".cu", ".cuh", ".h"}
    ]
    assert sources
    passes("clang-format", "--dry-run", "--Werror", *sources)


def stubbed(kind):
    return {node.name: node for node in STUB.body if isinstance(node, kind)}


def test_the_stub_names_what_the_module_has():
    types_alone = {"_Variant", "_Device", "_BuildInfo", "_Access", "_OnGpu", "_HasStream"}
    named = set(stubbed(ast.FunctionDef)) | set(stubbed(ast.ClassDef)) - types_alone
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
        ("_Access", _core._trace("smem", 32, 32, 32)[2]),
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
