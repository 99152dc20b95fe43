"""The benchmark of unchanged programs, at small sizes on the CPU device."""

import json
import shutil

import pytest

from sgemm_kernels.cli import program_tables

from .support import run_script


@pytest.fixture
def programs(experiment):
    return experiment("programs")


OCTAVE = pytest.param(
    "octave",
    marks=pytest.mark.skipif(not shutil.which("octave-cli"), reason="octave is not installed"),
)


@pytest.mark.parametrize(
    "name", ["pca", "kmeans", "kernel_ridge", "mlp", "loop", "loop_empty", OCTAVE]
)
def test_a_program_computes_the_same_under_preload(programs, monkeypatch, name):
    own = programs.run_program(name, programs.OWN, 0.02)
    monkeypatch.setenv("SGEMM_KERNELS_BLAS_DEVICE", "cpu")
    monkeypatch.setenv("SGEMM_KERNELS_BLAS_MIN", "1e5")
    monkeypatch.setenv("SGEMM_KERNELS_BLAS_VARIANT", "tile2d")
    ours = programs.run_program(name, programs.OURS, 0.02)
    assert ours["checksum"] == pytest.approx(own["checksum"], rel=1e-3)
    assert len(ours["seconds"]) == len(own["seconds"]) == 3
    assert ours["computed"] > 0


def test_a_program_that_fails_is_a_row(programs, monkeypatch):
    monkeypatch.setattr(programs, "command_of", lambda *_: ["sh", "-c", "echo reason >&2; exit 3"])
    row = programs.run_program("pca", programs.OWN, 1)
    assert row == {"program": "pca", "way": programs.OWN, "failed": "status 3: reason"}
    assert programs.of_programs([row])[1][0][-1] == "status 3: reason"


def test_the_table_compares_with_the_programs_own_blas(programs):
    rows = [
        {"program": "loop", "way": programs.OWN, "seconds": [4.0, 3.0, 2.0]},
        {
            "program": "loop",
            "way": programs.OURS,
            "seconds": [9.0, 1.0, 0.5],
            "computed": 7,
            "passed_on": 2,
        },
        {"program": "loop_pinned", "way": "run", "seconds": [1.0, 0.4, 0.25]},
    ]
    _, lines = programs.of_programs(rows)
    assert lines[0][2:] == ["4.000", "2.000", "1.00x", "-"]
    assert lines[1][2:] == ["9.000", "0.500", "4.00x", "7 of 9"]
    assert lines[2][2:] == ["1.000", "0.250", "8.00x", "-"]


def test_the_file_has_every_row(programs, monkeypatch, tmp_path, capsys):
    def run_program(program, way, scale):
        return {"program": program, "way": way, "seconds": [scale] * 3, "checksum": 1.0}

    path = tmp_path / "programs.json"
    monkeypatch.setattr(programs, "run_program", run_program)
    assert run_script(programs, monkeypatch, "-o", path, "--scale", "2") == 0
    document = json.loads(path.read_text())
    ways = {(row["program"], row["way"]) for row in document["rows"]}
    assert {("pca", programs.OWN), ("pca", programs.OURS), ("loop_pinned", "run")} <= ways
    assert [way for program, way in ways if program == "loop_empty"] == [programs.OURS]
    assert ("octave" in {program for program, _ in ways}) == bool(shutil.which("octave-cli"))
    assert document["scale"] == 2
    assert "| pca | own BLAS | 2.000 | 2.000 | 1.00x | - |" in program_tables.programs(path)
    said = capsys.readouterr().out
    assert ("left out octave" in said) == (not shutil.which("octave-cli"))
