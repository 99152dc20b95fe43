"""Which results are of older sources, and `make evidence`, which renews them. Needs no GPU."""

import dataclasses
import json
import re
import tarfile
import types
from pathlib import Path

import pytest

from sgemm_kernels import Results
from sgemm_kernels._style import Picture, drawing
from sgemm_kernels.cli import speed_tables
from sgemm_kernels.measuring.results_file import experiment_of, file_is_older, origin, read_json
from sgemm_kernels.measuring.sources import OLDER, is_older, patterns_of, sources_hash

from . import record_gpu_check

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
COMMITTED = sorted(RESULTS.glob("*/*.json*"))
MADE_UP = ROOT / "tests/data/results_schema_4.json"


@pytest.fixture
def clone(tmp_path):
    """A small clone with a kernel, its header, the choice among kernels, and the host's code."""
    files = {
        "ladder/05_tile2d.cu": '#include "tile.h" // the tiles\nint tile = 1;\n',
        "ladder/tile.h": '#include "../emulator/grid.h"\nint edge = 8;\n',
        "ladder/06_vec4.cu": 'char url[] = "http://here";\n',
        "ladder/launches.toml": 'block = "THREADS"\n',
        "gemm/kernel/rung.h": "int rung;\n",
        "emulator/grid.h": "int fibers;\n",
        "gemm/auto.cu": "int choose;\n",
        "gemm/simt/splitk.cu": "int slices;\n",
        "gemm/small/grouped.cu": "int groups;\n",
        "gemm/tensor_cores/mma.cu": "int pairs;\n",
        "gemm/plan/plan.c": "int plan;\n",
        "runtime/catalog.c": "int catalog;\n",
        "frontends/c/c_api.c": "int api;\n",
        "base/status.c": "int status;\n",
        "base/cuda/allocator.cu": "int memory;\n",
        "runtime/cuda/device.cu": "int device;\n",
        "frontends/python/run.c": "int run;\n",
        "frontends/torch/product.c": "int product;\n",
        "frontends/blas/entries.c": "int entries;\n",
        "custom/plain.cpp": "int plain;\n",
    }
    for name, text in files.items():
        path = tmp_path / "clone/csrc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "clone"


AGED = {
    "ladder/05_tile2d.cu": {"ladder", "traffic", "tuning-tile2d"},
    "ladder/tile.h": {"ladder", "traffic", "tuning-tile2d"},
    "ladder/06_vec4.cu": {"ladder", "traffic"},
    "ladder/launches.toml": {"ladder", "traffic"},
    "gemm/kernel/rung.h": {"ladder", "traffic"},
    "gemm/simt/splitk.cu": {"", "ladder", "traffic", "calls", "programs", "host_cost"},
    "gemm/tensor_cores/mma.cu": {"", "ladder", "traffic", "calls", "programs", "host_cost"},
    "gemm/small/grouped.cu": {"", "ladder", "calls", "programs", "host_cost"},
    "gemm/auto.cu": {"", "ladder", "calls", "programs", "host_cost"},
    "gemm/plan/plan.c": {"", "ladder", "calls", "programs", "host_cost"},
    "runtime/cuda/device.cu": {"calls", "programs", "host_cost"},
    "frontends/python/run.c": {"calls", "host_cost"},
    "frontends/torch/product.c": {"calls"},
    "frontends/blas/entries.c": {"programs"},
    "emulator/grid.h": set(),
    "custom/plain.cpp": set(),
}


def hashes(clone):
    sources_hash.cache_clear()
    return {name: sources_hash(name, clone) for name in set().union(*AGED.values())}


@pytest.mark.parametrize("changed", AGED)
def test_an_edit_ages_only_what_is_compiled_from_it(clone, changed):
    before = hashes(clone)
    path = clone / "csrc" / changed
    path.write_text(path.read_text() + "int more;\n")
    after = hashes(clone)
    assert {name for name in before if before[name] != after[name]} == AGED[changed]


def test_comments_and_spaces_do_not_age_a_result(clone):
    before = hashes(clone)
    vec4 = clone / "csrc/ladder/06_vec4.cu"
    vec4.write_text(f"/* a long\n comment */\n{vec4.read_text()}  // and 'another\n")
    assert hashes(clone) == before
    vec4.write_text(vec4.read_text().replace("//here", "//there"))
    assert hashes(clone) != before, "a text is no comment"


def test_what_only_other_builds_compile_does_not_age_a_result(clone):
    before = hashes(clone)
    tile = clone / "csrc/ladder/tile.h"
    own = tile.read_text()
    (clone / "csrc/base/launched.h").write_text("int launched;\n")
    for name, aged in (("SGEMM_NAMES_LAUNCHES", False), ("SGEMM_SM90", True)):
        block = f'#ifdef {name}\n#include "../base/launched.h"\nint more;\n#endif // {name}\n'
        tile.write_text(block + own)
        assert (hashes(clone) != before) == aged


def test_without_the_sources_the_age_is_unknown(clone):
    (clone / "csrc/runtime/catalog.c").unlink()
    found = hashes(clone)
    assert found["ladder"] is None
    assert found["traffic"] is not None
    assert not is_older(None)
    assert is_older("0123")


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_committed_results_have_the_hash_of_their_sources(path):
    document = read_json(path)
    recorded = document.get("run", document).get("sources_hash")
    assert re.fullmatch("[0-9a-f]{16}", recorded)
    assert all(list(ROOT.glob(each)) for each in patterns_of(experiment_of(document)))


class TestMarks:
    @pytest.fixture
    def older(self, tmp_path):
        """A file of older sources, and the same of this clone's."""
        results = Results.from_json(MADE_UP)
        paths = [tmp_path / "older.json", tmp_path / "current.json"]
        for path, of in zip(paths, ("0123456789abcdef", sources_hash("ladder")), strict=True):
            run = dataclasses.replace(results.run, sources_hash=of)
            dataclasses.replace(results, run=run).to_json(path)
        return paths

    def test_of_tables_sentences_and_notebooks(self, older):
        for path in older:
            run = Results.from_json(path).run
            told = [
                speed_tables.table(path),
                speed_tables.speedup(path.with_name(f"{path.name}#4096"), Path("vec4")),
                run.describe(),
                Results.from_json(path)._repr_html_(),
            ]
            assert {OLDER in text for text in told} == {path.stem == "older"}

    def test_of_pictures(self, older, experiment):
        def picture(found):
            with drawing("title", "a note") as (figure, _):
                figure.subplots()
            drawn.append(figure)
            return figure

        for path in older:
            drawn: list[Picture] = []
            experiment("_results").draw(path, picture, None)
            assert file_is_older(path) == (path.stem == "older")
            for figure in drawn:
                assert figure.get_supxlabel() == (
                    f"a note\n{OLDER}" if path.stem == "older" else "a note"
                )
            assert f"<metadata>{origin(path)}<" in path.with_suffix(".svg").read_text()
            assert (OLDER in origin(path)) == (path.stem == "older")

    def test_a_note_is_not_repeated(self):
        with drawing("title", f"facts\n{OLDER}") as (figure, theme):
            figure.subplots()
        figure.add_note(OLDER)
        assert figure.get_supxlabel() == f"facts\n{OLDER}"
        assert figure._supxlabel.get_color() == theme.grey


SCRIPT = """
import json, sys, time
from pathlib import Path
path = Path(sys.argv[sys.argv.index("-o") + 1])
print("begin", path.name, flush=True)
if "--fail" in sys.argv:
    sys.exit("no such kernel")
if "--hang" in sys.argv:
    time.sleep(600)
path.write_text(json.dumps({"experiment": "ladder", "sources_hash": HASH, "n": path.name}))
path.with_name(path.stem + ".svg").write_text("drawn")
"""


class TestEvidence:
    @pytest.fixture
    def evidence(self, experiment, tmp_path, monkeypatch):
        """The command with four parts, one GPU, and a folder of results of its own."""
        module = experiment("evidence")
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.replace("HASH", repr(sources_hash("ladder"))))
        gpu = types.SimpleNamespace(kind="cuda", usable=True)
        results = tmp_path / "clone/benchmarks/results/gpu"
        for name, value in {
            "HERE": tmp_path,
            "RESULTS": results.parent,
            "WORK": tmp_path / "work",
            "folder": lambda: results,
            "devices": lambda: [gpu],
            "PARTS": tuple(
                module.Part(name, minutes, (("script.py", f"{name}.json"),), gpus=gpus)
                for name, minutes, gpus in (("a", 1, 1), ("b", 5, 1), ("c", 2, 1), ("two", 1, 2))
            ),
        }.items():
            monkeypatch.setattr(module, name, value)
        return module

    @pytest.fixture
    def call(self, evidence, monkeypatch, capsys):
        """Calls the command; returns its status and the parts that it renewed."""

        def called(*arguments):
            monkeypatch.setattr("sys.argv", ["evidence", *map(str, arguments)])
            status = evidence.main()
            self.said = capsys.readouterr().out
            return status, re.findall(r"^(\w+): renewed", self.said, re.MULTILINE)

        return called

    def change(self, evidence, name, *options):
        """Gives a part's script more options."""
        return tuple(
            dataclasses.replace(part, commands=((*part.commands[0], *options),))
            if part.name == name
            else part
            for part in evidence.PARTS
        )

    def test_all_parts_that_fit_the_machine_in_order(self, call, evidence):
        assert call() == (0, ["a", "b", "c"])
        assert json.loads((evidence.folder() / "b.json").read_text())["n"] == "b.json"
        assert call() == (0, ["a", "b", "c"]), "a whole round begins again"

    def test_only_stale_or_missing_parts(self, call, evidence):
        call()
        assert call("--stale") == (0, [])
        assert "nothing to renew" in self.said
        (evidence.folder() / "a.json").unlink()
        (evidence.folder() / "c.json").write_text('{"sources_hash": "0"}')
        assert call("--stale") == (0, ["a", "c"])

    def test_goes_on_after_an_interruption(self, call, evidence, monkeypatch):
        monkeypatch.setattr(evidence, "PARTS", self.change(evidence, "b", "--fail"))
        status, renewed = call()
        assert (status, renewed) == (1, ["a", "c"])
        assert "no such kernel" in self.said
        parts = [dataclasses.replace(p, commands=(p.commands[0][:2],)) for p in evidence.PARTS]
        monkeypatch.setattr(evidence, "PARTS", parts)
        assert call() == (0, ["b"])
        assert call() == (0, ["a", "b", "c"])

    def test_a_part_of_other_sources_is_not_finished(self, call, evidence, monkeypatch):
        monkeypatch.setattr(evidence, "PARTS", self.change(evidence, "c", "--fail"))
        call()
        (evidence.folder() / "a.json").write_text('{"sources_hash": "0"}')
        assert call() == (1, ["a"])

    def test_one_part(self, call):
        assert call("--part", "b") == (0, ["b"])
        assert call("--part", "b") == (0, ["b"])

    def test_minutes_leave_out_what_does_not_fit(self, call):
        assert call("--stale", "--minutes", 4) == (0, ["a", "c"])
        assert "b: left for the next call" in self.said
        assert call("--stale", "--minutes", 8) == (0, ["b"])

    def test_what_takes_too_long_is_stopped(self, call, evidence, monkeypatch):
        monkeypatch.setattr(evidence, "PARTS", self.change(evidence, "b", "--hang"))
        monkeypatch.setattr(evidence, "LONGEST_MIN", 1 / 60)
        status, renewed = call("--part", "b")
        assert (status, renewed) == (1, [])
        assert "b: stopped after 0.0 minutes" in self.said

    def test_the_archive_has_what_changed(self, call, evidence, tmp_path):
        call()
        (evidence.folder() / "c.json").write_text('{"sources_hash": "0"}')
        archive = tmp_path / "new.tar.gz"
        assert call("--stale", "--archive", archive) == (0, ["c"])
        with tarfile.open(archive) as packed:
            assert packed.getnames() == ["benchmarks/results/gpu/c.json"]

    def test_the_list_needs_no_gpu(self, call, evidence, monkeypatch):
        call("--part", "a")
        monkeypatch.setattr(evidence, "FOLDERS", ("gpu",))
        monkeypatch.setattr(evidence, "devices", list)
        assert call("--list") == (0, [])
        lines = [line.split() for line in self.said.splitlines()]
        assert ["a", "1", "1", "-"] in lines
        assert ["two", "1", "2", "yes"] in lines

    def test_every_committed_result_belongs_to_a_part(self, experiment):
        parts = experiment("evidence").PARTS
        assert {path.name for path in COMMITTED} <= {file for part in parts for file in part.files}
        assert all(part.minutes <= experiment("evidence").LONGEST_MIN for part in parts)
        scripts = {script for part in parts for script, *_ in part.commands}
        assert all((ROOT / "benchmarks" / script).is_file() for script in scripts)


def test_the_record_of_a_check_names_what_failed_or_has_no_report(tmp_path, monkeypatch, capsys):
    gpu = types.SimpleNamespace(kind="cuda", usable=True, model="A GPU", driver="13.0")
    monkeypatch.setattr(record_gpu_check, "devices", lambda: [gpu])
    monkeypatch.setattr("sys.argv", ["record_gpu_check.py", str(tmp_path)])
    (tmp_path / "sanitize.txt").write_text("========= ERROR SUMMARY: 0 errors\n")
    counts = 'tests="2" failures="{}" errors="0" skipped="0" time="1.5"'
    case = '<testcase classname="tests.test_a" name="test_b">{}</testcase>'

    def recorded(failures, inside):
        suite = f"<testsuite {counts.format(failures)}>{case.format(inside)}</testsuite>"
        (tmp_path / "test_evidence.py.xml").write_text(f"<testsuites>{suite}</testsuites>")
        status = record_gpu_check.main()
        return status, json.loads(capsys.readouterr().out)["pytest"]

    status, found = recorded(1, "<failure/>")
    assert (status, found["failed"]) == (1, ["tests.test_a::test_b"])
    assert {"test_variants.py"} <= set(found["without_report"])
    for path in Path(__file__).parent.glob("test_*.py"):
        empty = f"<testsuite {counts.format(0)}/>"
        (tmp_path / f"{path.name}.xml").write_text(f"<testsuites>{empty}</testsuites>")
    status, found = recorded(0, "")
    assert status == 0
    assert not {"failed", "without_report"} & set(found)
