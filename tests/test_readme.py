"""What the documents say is so: the example, the table, the commands, the files they point to."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from sgemm_kernels import variants

from .support import printed_by

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "csrc/**/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)


def fenced(language):
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return text


def commands(document):
    """What a document sets as code, in a sentence or on lines of its own, without comments."""
    text = (ROOT / document).read_text(encoding="utf-8")
    found = re.findall(r"`([^`\n]+)`|^ {4,}([^#\n]+)", text, re.MULTILINE)
    return [sentence or line.strip() for sentence, line in found]


def makes(command):
    """The targets that a command asks make for."""
    return re.findall(r"[a-z-]+", "".join(re.findall(r"\bmake((?: [a-z-]+)+)", command)))


@pytest.fixture(scope="module")
def report():
    specification = importlib.util.spec_from_file_location("report", ROOT / "benchmarks/report.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_the_example_prints_what_it_says():
    assert printed_by(fenced("python")) == fenced("text").strip()


def test_the_table_is_what_the_report_makes(report):
    assert report.updated(README) == README, "run: python benchmarks/report.py"


def result(**changes):
    row = {
        **dict.fromkeys("mnk", 4096),
        "variant": "naive",
        "gflops": 1234.5,
        "vs_cublas": 0.25,
        "worst_share_of_bound": 0.5,
    }
    row = {key: value for key, value in (row | changes).items() if value is not None}
    smaller = row | {"m": 256, "gflops": 9e9, "worst_share_of_bound": 0.75}
    facts = ("device", "driver", "cuda_toolkit", "csrc_hash", "protocol")
    return {**{name: f"<{name}>" for name in facts}, "date": "2001-02-03T", "rows": [row, smaller]}


@pytest.mark.parametrize(
    ("changes", "cells"),
    [
        ({}, ["1.23", "0.25", "0.7500"]),
        ({"gflops": None, "vs_cublas": None}, ["wrong", "-", "0.7500"]),
        ({"vs_cublas": None}, ["1.23", "-", "0.7500"]),
        ({"variant": "a rung of old"}, ["-", "-", "-"]),
    ],
    ids=["measured", "wrong", "without cuBLAS", "not measured"],
)
def test_the_table_holds_what_was_measured(report, tmp_path, changes, cells):
    folder = tmp_path / "benchmarks/results"
    folder.mkdir(parents=True)
    for name in ("one", "two"):
        (folder / f"{name}.json").write_text(json.dumps(result(**changes)))
    text = report.updated(README, folder)
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| [`")]
    assert len(rows) == len(variants()) - 1
    assert rows[0][2:] == cells * 2
    assert rows[1][2:] == ["-"] * 6
    assert text.count("<device>") == text.count("<csrc_hash>") == 2
    assert "two: <device>" in text
    assert "](benchmarks/results/two.json)" in text


def test_a_readme_without_its_table_is_refused(report):
    with pytest.raises(ValueError, match="the ladder"):
        report.updated("# Another")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_target_of_make_that_is_named_exists(document):
    makefiles = [ROOT / "Makefile", ROOT / "tests/native/checks.mk"]
    phony = [re.findall(r"^\.PHONY: (.+)$", path.read_text(), re.MULTILINE) for path in makefiles]
    targets = {target for lines in phony for line in lines for target in line.split()}
    for command in commands(document):
        assert set(makes(command)) <= targets, command


def test_every_target_of_ci_is_in_the_readme():
    described = {target for command in commands("README.md") for target in makes(command)}
    needed = makes((ROOT / ".ci/run").read_text().replace("\n", ";"))
    assert needed
    assert set(needed) <= described


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_file_that_is_named_exists(document):
    here = (ROOT / document).parent
    text = (ROOT / document).read_text(encoding="utf-8")
    links = [here / link for link in re.findall(r"\]\((?!https:)([^)]+)\)", text)]
    scripts = [
        ROOT / script
        for command in commands(document)
        for script in re.findall(
            r"\b(?:benchmarks|csrc|tests)/[\w/.]+\.(?:py|cu|cpp|c|h|mk)\b", command
        )
        if "_NAME" not in script
    ]
    for path in links + scripts:
        assert path.exists(), path


def test_the_settings_of_the_build_are_all_there():
    settings = set(
        re.findall(r"SGEMM_KERNELS_[A-Z]+", (ROOT / "build_backend/compiling.py").read_text())
    )
    assert set(re.findall(r"SGEMM_KERNELS_[A-Z]+", README)) == settings
