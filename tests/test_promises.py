"""Each promise of docs/inside/promises.md has its tests."""

import pytest

from . import promises

pytestmark = pytest.mark.packaging


def test_every_promise_has_its_tests():
    assert promises.problems() == []


@pytest.mark.parametrize(
    ("test", "command"),
    [
        ("test_accuracy.py::test_uniform", "make test"),
        ("test_accuracy.py::uniform", None),
        ("test_accurate.py::test_uniform", None),
        ("test_shapes.py::test_every_combination", "make thorough GROUP=variants"),
        ("test_cuda_failures.py::test_each_call_fails_in_turn", "make thorough GROUP=fake"),
        ("on_fake_gpu.py::test_a_product_is_captured", "make thorough GROUP=fake"),
        ("make checkers", "make test"),
        ("make asan", "make asan"),
        ("make thorough GROUP=mutation", "make thorough GROUP=mutation"),
        ("make thorough GROUP=mutants", None),
        ("make as", None),
    ],
)
def test_the_command_that_runs_a_test(test, command):
    assert promises.command(test) == command


def test_a_missing_test_and_a_promise_without_tests_are_problems(tmp_path, monkeypatch):
    page = tmp_path / "promises.md"
    page.write_text(
        "| 1 | a | `test_accuracy.py::test_no` |\n| 2 | b | `make asan` |\n"
        "| 4 | c | `test_accuracy.py::test_uniform` |\n"
    )
    monkeypatch.setattr(promises, "PAGE", page)
    assert promises.problems() == [
        "promises.md lacks a number, or has one twice",
        "1: there is no test_accuracy.py::test_no",
        "1: no test in make test",
        "2: no test in make test",
    ]
