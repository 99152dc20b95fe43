"""The mistakes that `make thorough GROUP=mutation` makes."""

import importlib
from collections import Counter
from pathlib import Path

import pytest

from sgemm_kernels import variants

pytestmark = pytest.mark.packaging


@pytest.fixture
def mutation(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent)
    return importlib.import_module("tests.mutation")


def test_every_variant_has_mistakes(mutation):
    """Reading the tables fails if a file lacks a text that is to be replaced."""
    count = Counter(mutant.variant for mutant in mutation.mutants())
    assert set(count) == {variant.name for variant in variants() if "cpu" in variant.devices}
    assert min(count[rung] for rung in mutation.RUNGS) >= 6
    assert count["simt"] >= 40


def test_a_mistake_changes_one_place(mutation, tmp_path):
    for mutant in mutation.mutants():
        assert mutant.old != mutant.new, mutant
    several = [mutant for mutant in mutation.mutants() if mutant.place == 1]
    assert several
    for mutant in several[:3]:
        (tmp_path / "csrc" / mutant.file).parent.mkdir(parents=True, exist_ok=True)
        mutant.write(tmp_path)
        text = (mutation.ROOT / "csrc" / mutant.file).read_text()
        changed = (tmp_path / "csrc" / mutant.file).read_text()
        assert changed != text
        assert changed.count(mutant.old) == text.count(mutant.old) - 1
        assert changed.index(mutant.new) > text.index(mutant.old)


def test_a_table_without_its_text_is_refused(mutation, tmp_path, monkeypatch):
    for name, file in (("mutants.toml", "01_naive.cu"), ("shared.toml", "gemm/kernel/kernel.h")):
        (tmp_path / name).write_text(
            '[[mutation]]\nname = "a"\nkinds = ["wrong values"]\nvariants = ["naive"]\n'
            f'file = "{file}"\nold = "no such text"\nnew = "b"\n'
        )
    monkeypatch.setattr(mutation, "MUTANTS", tmp_path)
    with pytest.raises(SystemExit, match=r"kernel/kernel\.h has no text 'no such text'"):
        list(mutation.mutants())
