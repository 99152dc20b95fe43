"""The lessons: committed as executed, without typed figures, and repeatable.

notebooks/execute.py executes a copy of them. The output of cells with the tag 'live' depends on
the machine.
"""

import dataclasses
import difflib
import importlib.util
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

import sgemm_kernels
from sgemm_kernels.measuring import recorded
from sgemm_kernels.measuring.recorded import FOLDERS
from sgemm_kernels.measuring.results_file import read_json

# The first test that reads a re-executed lesson waits for all of them.
pytestmark = [pytest.mark.packaging, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Pictures with 32 colours; each rung adds about 3 kB of text.
MOST_BYTES = 250_000
REMEDY = "run: make notebooks"


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def cells(notebook, kind):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def texts(cell):
    """The text output of a code cell, without pictures."""
    found = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            found.append((output["name"], "".join(output["text"])))
        else:
            data = output.get("data", {})
            found += [(kind, "".join(data[kind])) for kind in sorted(data) if kind[:5] == "text/"]
    return found


@pytest.fixture(scope="module")
def again(tmp_path_factory, custom_cache):
    """A folder with the lessons, executed now."""
    folder = tmp_path_factory.mktemp("copy") / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder)
    process = subprocess.run(
        [sys.executable, folder / "execute.py"], capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == [path.name for path in LESSONS]
    return folder


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem)
def lesson(request):
    return request.param


def test_the_readme_leads_to_every_lesson():
    linked = re.findall(r"\]\((notebooks/[^)]+)\)", (ROOT / "README.md").read_text("utf-8"))
    assert linked == [path.relative_to(ROOT).as_posix() for path in LESSONS]


def test_a_lesson_is_committed_as_executed(lesson):
    notebook = read(lesson)
    code = cells(notebook, "code")
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1)), REMEDY
    check_outputs(code)
    assert notebook["metadata"]["language_info"] == {"name": "python"}, REMEDY
    assert {key for cell in code for key in cell["metadata"]} <= {"tags"}, REMEDY
    assert lesson.stat().st_size < MOST_BYTES


def test_a_lesson_shows_the_committed_results(lesson):
    """Each hash of sources that it prints is that of a file of results."""
    shown = {
        digest
        for cell in cells(read(lesson), "code")
        for _, text in texts(cell)
        for digest in re.findall(r"\bcsrc ([0-9a-f]{16})\b", text)
    }
    results = (ROOT / "benchmarks/results").glob("*/*.json*")
    known = {document.get("run", document).get("csrc_hash") for document in map(read_json, results)}
    assert shown <= known, REMEDY


def check_outputs(code):
    """No error, no warning, and no path of the machine that executed it."""
    for cell in code:
        assert {output["output_type"] for output in cell["outputs"]} <= {
            "display_data",
            "execute_result",
            "stream",
        }, cell["id"]
        for kind, text in texts(cell):
            assert kind != "stderr", text
            assert not re.search(r"(?<![\w.])/(?:home|root|tmp|usr|var)/", text), text
            assert str(ROOT) not in text


def test_a_lesson_needs_only_the_package(lesson):
    """No other files of the repository, and only the results that a wheel contains."""
    code = "\n".join("".join(cell["source"]) for cell in cells(read(lesson), "code"))
    assert "../" not in code
    assert "benchmarks" not in code
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    carried = settings["tool"]["setuptools"]["package-data"]["sgemm_kernels.recorded"]
    for experiment in re.findall(r'[\w-]+/(\w+)\.json|load\("(\w+)"\)', code):
        assert f"*/{''.join(experiment)}.json" in carried


def code_of(lesson):
    return "\n".join("".join(cell["source"]) for cell in cells(read(lesson), "code"))


def test_a_lesson_names_no_gpu_to_take_results_from(lesson):
    """recorded_file() and the pages of explain() choose the same one, so that a sentence with two
    numbers is about one GPU."""
    assert not re.search(r"h[12]00", code_of(lesson), re.IGNORECASE)


@pytest.mark.parametrize("later", FOLDERS)
def test_pages_and_lessons_show_one_gpu(monkeypatch, later):
    """Whichever was measured last."""
    known = [
        dataclasses.replace(record, date=f"{2000 + (record.folder == later)}-01-01")
        for record in recorded.records()
    ]
    monkeypatch.setattr(recorded, "records", lambda: tuple(known))
    names = [variant.name for variant in sgemm_kernels.variants() if variant.file]
    shown = sgemm_kernels.recorded_file("ladder.json").parent.name
    for pair in itertools.pairwise(names):
        assert recorded.record_of(pair).folder == shown


@pytest.mark.parametrize("installed", [False, True])
def test_the_first_cell_installs_a_wheel_where_the_package_is_missing(
    lesson, tmp_path, monkeypatch, installed
):
    """As in a hosted notebook. IPython runs `%pip` as a magic."""
    transformer = pytest.importorskip("IPython.core.inputtransformer2")
    cell = cells(read(lesson), "code")[0]
    assert cell["id"] == "install"
    code = transformer.TransformerManager().transform_cell("".join(cell["source"]))
    ran = []
    shell = SimpleNamespace(run_line_magic=lambda name, line: ran.append((name, line)))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object() if installed else None)
    monkeypatch.chdir(tmp_path)
    if not installed:
        with pytest.raises(FileNotFoundError, match="upload a wheel"):
            exec(code, {"get_ipython": lambda: shell})
    wheel = tmp_path / "sgemm_kernels-1.0-cp311-abi3-manylinux_2_34_x86_64.whl"
    wheel.touch()
    names = {"get_ipython": lambda: shell}
    exec(code, names)
    if installed:
        assert ran == []
        return
    ((magic, line),) = ran
    assert magic == "pip"
    expanded = shlex.split(line.format(**names))  # IPython expands the braces
    assert expanded == ["install", "--quiet", f"{wheel}[plot]"]


def test_a_lesson_links_to_the_next():
    for lesson, after in itertools.pairwise(LESSONS):
        last = "".join(read(lesson)["cells"][-1]["source"])
        assert re.fullmatch(r"Next: \[[^]]+\]\((\S+)\),.*", last, re.DOTALL)[1] == after.name


def test_a_lesson_ends_with_an_exercise(lesson):
    headings = re.findall(r"^## (.+)$", prose(read(lesson)), re.MULTILINE)
    assert headings[-1] == "Your turn"


def test_no_figure_in_the_prose_is_typed(lesson):
    text = re.sub(r"`[^`]+`|\$[^$]+\$|\]\([^)]+\)", "", prose(read(lesson)))
    assert not re.findall(r"(?<!\w)\d[\d.,]*.{0,20}", text)


def prose(notebook):
    return "\n\n".join("".join(cell["source"]) for cell in cells(notebook, "markdown"))


@pytest.mark.thorough
def test_a_lesson_runs_and_prints_the_committed_output(lesson, again):
    old, new = (cells(read(path), "code") for path in (lesson, again / lesson.name))
    check_outputs(new)
    for before, after in zip(old, new, strict=True):
        if "live" not in before["metadata"].get("tags", ()):
            assert texts(before) == texts(after), REMEDY


@pytest.mark.thorough
def test_an_execution_changes_only_outputs(lesson, again):
    fresh, committed = read(again / lesson.name), read(lesson)
    for notebook in (fresh, committed):
        for cell in cells(notebook, "code"):
            cell["outputs"] = []
    assert fresh == committed, REMEDY


def said(folder):
    """The text output of each code cell of the lesson on custom kernels, by cell id."""
    code = cells(read(folder / "6_your_own_kernel.ipynb"), "code")
    return {cell["id"]: "\n".join(text for _, text in texts(cell)) for cell in code}


def line_of(text):
    """The line of a cell with the text of tile2d, below the line of the magic."""
    lines = sgemm_kernels.source("tile2d").splitlines()
    return next(number for number, line in enumerate(lines, start=2) if text in line)


@pytest.mark.thorough
def test_the_broken_barrier_is_reported_and_the_kernel_beats_a_rung(again):
    """Includes the cells that name the machine, which are not compared as a whole."""
    for cell in (said(ROOT / "notebooks"), said(again)):
        assert "mine is WRONG" in cell["broken"]
        assert f"mine.cu:{line_of('a[i] = As[i];')}: race: " in cell["broken"]
        barrier = "__syncthreads(); // the tiles are complete"
        assert f"-   {line_of(barrier)}          {barrier}" in cell["broken"]
        assert "mine is correct" in cell["larger-cell"]
        assert "6 right, 2 did not compile" in cell["tune-cell"]
        assert "static assertion failed" in cell["tune-refused"]
        times = re.findall(r"(\d+\.\d+) times as much", cell["beat-cell"])
        assert len(times) == 3
        assert all(float(each) > 1 for each in times)


def test_the_lesson_begins_with_the_readmes_plain_kernel():
    first = next(cell for cell in cells(read(LESSONS[5]), "code") if "%%sgemm" in cell["source"][0])
    command, text = "".join(first["source"]).split("\n", 1)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        text.split() == readme.split("```cuda")[1].split("```")[0].replace("mine", "first").split()
    )
    assert command == '%%sgemm first --grid "(N/16, M/16)" --block "(16, 16)"'
    assert "first is correct" in said(ROOT / "notebooks")["plain-cell"]


def test_the_lesson_changes_the_lines_of_the_rung_that_it_names():
    rung = sgemm_kernels.source("tile2d").splitlines()
    code = {cell["id"]: cell for cell in cells(read(LESSONS[5]), "code")}
    changed = {}
    for name in ("broken", "larger-cell"):
        lines = "".join(code[name]["source"]).splitlines()[1:]
        pairs = difflib.ndiff(rung, lines)
        changed[name] = [line for line in pairs if line[0] in "+-"]
    assert changed["broken"] == ["-         __syncthreads(); // the tiles are complete"]
    old, new = changed["larger-cell"]
    assert new == "+" + old[1:].replace("TN = 8", "TN = 16")
