"""Prints each promise with its tests and the command that runs them.

    python -m tests.promises

docs/inside/promises.md lists the promises. The exit status is 1 if a named test does not exist, or
if a promise has no test in `make test`.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/inside/promises.md"
MAKEFILES = (ROOT / "Makefile", ROOT / "tests/native/checks.mk")

ELSEWHERE = {"10", "13", "21"}
"""Promises that only a group of `make thorough` tests. The page says why."""

IN_MAKE_TEST = "checkers"
"""The target that `make test` makes."""

GROUPS = {"fake_cuda": "fake", "nvcc": "nvcc", "thorough": "variants"}
"""The group that runs the tests with a mark."""


class Promise(NamedTuple):
    number: str
    text: str
    tests: list[str]


def promises() -> list[Promise]:
    rows = re.findall(r"^\| (\d+) \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    return [Promise(number, text, re.findall("`(.+?)`", tests)) for number, text, tests in rows]


def command(test: str) -> str | None:
    """The command that runs a test, or None if there is no such test."""
    if test.startswith("make "):
        # A group is a target, too: thorough-NAME. The Makefile lists the groups' names.
        target = test.removeprefix("make ").removeprefix("thorough GROUP=")
        rules = "\n".join(path.read_text() for path in MAKEFILES)
        name = re.escape(target)
        if not re.search(rf"^([\w -]* |thorough-)?{name}\b[\w -]*:(?!=)", rules, re.MULTILINE):
            return None
        return "make test" if target == IN_MAKE_TEST else test
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        return None
    tree = ast.parse(path.read_text())
    marks = {mark for found, marks in _tests(tree.body) if found == name for mark in marks}
    if name not in {found for found, _ in _tests(tree.body)}:
        return None
    if not file.startswith("test_"):  # a file for the fake CUDA runtime
        marks.add("fake_cuda")
    else:
        marks |= _marks_of_module(tree)
    group = next((group for mark, group in GROUPS.items() if mark in marks), "")
    return f"make thorough GROUP={group}" if group else "make test"


def _tests(body: list[ast.stmt]) -> Iterator[tuple[str, set[str]]]:
    """The names of all tests, also in classes and after an `if`, with their marks."""
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            yield node.name, {_mark(each) for each in node.decorator_list}
        elif isinstance(node, ast.ClassDef | ast.If):
            yield from _tests(node.body)


def _mark(node: ast.expr) -> str:
    """NAME of pytest.mark.NAME, with or without arguments."""
    return ast.unparse(node).removeprefix("pytest.mark.").partition("(")[0]


def _marks_of_module(tree: ast.Module) -> set[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            values = node.value.elts if isinstance(node.value, ast.List) else [node.value]
            return {_mark(value) for value in values}
    return set()


def problems() -> list[str]:
    """Tests that do not exist, and promises that `make test` does not test."""
    found = []
    listed = promises()
    if sorted(int(promise.number) for promise in listed) != list(range(1, len(listed) + 1)):
        found.append(f"{PAGE.name} lacks a number, or has one twice")
    for promise in listed:
        commands = {test: command(test) for test in promise.tests}
        found += [
            f"{promise.number}: there is no {test}" for test in commands if commands[test] is None
        ]
        if promise.number not in ELSEWHERE and "make test" not in commands.values():
            found.append(f"{promise.number}: no test in make test")
    return found


def main() -> int:
    for promise in sorted(promises(), key=lambda promise: int(promise.number)):
        print(f"{promise.number:>2} {promise.text}")
        for test in promise.tests:
            print(f"     {command(test) or 'MISSING':<30} {test}")
    missing = problems()
    print("\n".join(missing))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
