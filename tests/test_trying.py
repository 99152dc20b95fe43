"""Custom kernels in the shell: the commands new, try and tune."""

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading

import pytest

import sgemm_kernels as sk
from sgemm_kernels.__main__ import main
from sgemm_kernels.cli import custom_kernels

pytestmark = pytest.mark.usefixtures("custom_cache")

BARRIER = "        __syncthreads(); // the tiles are complete\n"
TYPED = "float sum[TM][TN] = {};"
LINES = sk.source("tile2d").splitlines()
CONSTANTS = next(line for line in LINES if line.startswith("constexpr int BM"))
READ = "            a[i] = As[i];"


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A file with the text of tile2d."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "mine.cu"
    path.write_text(sk.source("tile2d"), encoding="utf-8")
    return path


def change(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1, old
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_new_copies_the_text_of_a_rung(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "mine.cu", "--like", "tile2d"]) == 0
    assert (tmp_path / "mine.cu").read_text(encoding="utf-8") == sk.source("tile2d")
    assert "try mine.cu --like tile2d" in capsys.readouterr().out


def test_new_says_how_to_try_a_file_in_a_folder_with_a_space(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my kernels").mkdir()
    assert main(["new", "my kernels/mine.cu", "--like", "tile2d"]) == 0
    _, _, command = capsys.readouterr().out.partition(" try ")
    assert shlex.split(command)[:2] == ["my kernels/mine.cu", "--like"]


@pytest.mark.parametrize("file", ["my kernel.cu", "tile2d.cu", "my-kernel.cu"])
def test_new_creates_no_file_that_try_refuses(tmp_path, monkeypatch, capsys, file):
    monkeypatch.chdir(tmp_path)
    assert main(["new", file, "--like", "tile2d"]) == 2
    assert f"{file}: the kernel is named after its file, but" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_new_leaves_an_existing_file(mine, capsys):
    mine.write_text("precious")
    assert main(["new", "mine.cu", "--like", "tile2d"]) == 2
    assert mine.read_text() == "precious"
    assert "mine.cu already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["new", "other.cu", "--like", "tile3d"], "no source of 'tile3d': the rungs are naive"),
        (["new", "nowhere/other.cu", "--like", "tile2d"], "nowhere/other.cu"),
        (["try", "missing.cu"], "missing.cu"),
        (["try", "missing.cu", "--watch"], "missing.cu"),
        (["try", "."], "is not a valid name"),
        (["try", "binary.cu"], "binary.cu is no text in UTF-8"),
        (["try", "mine.cu", "--like", "tile3d"], "no source of 'tile3d'"),
        (["try", "mine.cu", "--against", "blas"], "--against: unknown variant 'blas'"),
        (["tune", "missing.cu", "--space", "space.json"], "missing.cu"),
        (["tune", "mine.cu", "--space", "missing.json"], "missing.json"),
        (["tune", "mine.cu", "--space", "mine.cu"], "mine.cu is not JSON"),
        (["tune", "mine.cu", "--space", "list.json"], "list.json is not a search space"),
        (["tune", "mine.cu", "--space", "deep.json"], "deep.json is not JSON"),
        (["tune", "mine.cu", "--space", "texts.json"], "texts.json is not a search space"),
        (["tune", "mine.cu", "--space", "space.json", "--json", "."], ". is a folder"),
    ],
)
def test_errors_are_messages_without_a_traceback(mine, capsys, arguments, fact):
    (mine.parent / "binary.cu").write_bytes(b"\xff\xfe\x00")
    (mine.parent / "list.json").write_text("[64]")
    (mine.parent / "deep.json").write_text("[" * 100_000)
    (mine.parent / "texts.json").write_text('{"BM": ["64"]}')
    (mine.parent / "space.json").write_text('{"BM": [64]}')
    assert main(arguments) == 2
    complaint = capsys.readouterr().err
    assert fact in complaint
    assert "Traceback" not in complaint


def test_try_reports_a_correct_kernel_and_its_changes(mine, capsys):
    change(mine, "TM = 8", "TM = 4")
    assert main(["try", "mine.cu", "--like", "tile2d", "--device", "cpu"]) == 0
    verdict, changes = capsys.readouterr().out.split("\n\n")
    assert verdict.startswith("mine is correct: ")
    title, old, new = changes.splitlines()
    assert title == "Source: lines changed since tile2d:"
    assert old.split()[:2] == ["-", str(LINES.index(CONSTANTS) + 1)]
    assert "TM = 8" in old
    assert new.split()[:2] == ["+", str(LINES.index(CONSTANTS) + 1)]
    assert "TM = 4" in new


def test_try_first_names_the_line_of_a_missing_barrier(mine, capsys):
    change(mine, BARRIER, "")
    arguments = ["--check", "--trace", "--bench", "64", "--device", "cpu"]
    assert main(["try", "mine.cu", "--like", "tile2d", *arguments]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "mine is WRONG:"
    number = LINES.index(READ) + 1
    assert lines[1].startswith(f"  mine.cu:{number}: race: ")
    assert lines[2].startswith(f"      {number} | {READ}")
    assert any(line.startswith(f"  mine.cu:{number}: wrong values: ") for line in lines)
    assert lines[-1] == "mine is not timed or traced until it is correct."


def test_try_times_a_kernel_beside_its_neighbours(mine, capsys):
    arguments = ["--bench", "32", "48", "--against", "naive", "cublas", "--device", "cpu"]
    assert main(["try", "mine.cu", "--like", "tile2d", *arguments]) == 0
    out = capsys.readouterr().out
    assert "is correct:" not in out  # not requested
    rows = [line.split() for line in out.splitlines()]
    measured = [(row[0], row[1]) for row in rows if row[:1] and row[0] in ("mine", "naive")]
    assert sorted(measured) == [("mine", "32"), ("mine", "48"), ("naive", "32"), ("naive", "48")]
    assert sum(row[:1] == ["tile2d"] for row in rows) == 2
    assert "CPU DEVICE" in out
    assert "cublas: does not run on cpu" in out


@pytest.mark.skipif(any(d.kind == "cuda" and d.usable for d in sk.devices()), reason="has a GPU")
def test_without_a_gpu_there_are_no_times(mine, capsys, monkeypatch):
    monkeypatch.setattr("sgemm_kernels.cli.trial.measure", pytest.fail)
    assert main(["try", "mine.cu", "--like", "tile2d", "--bench", "4096"]) == 0
    assert "\nNo times: this machine has no usable GPU" in capsys.readouterr().out


def test_try_counts_bytes_beside_its_neighbours(mine, capsys):
    assert (
        main(["try", "mine.cu", "--like", "tile2d", "--trace", "--against", "tile1d", "cublas"])
        == 0
    )
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    (own,) = (row for row in rows if row[:1] == ["mine"])
    (other,) = (row for row in rows if row[:1] == ["tile1d"])
    assert float(own[1]) < float(other[1])
    for name, row in (("tile2d", own), ("tile1d", other)):
        trace = sk.trace(name, 512, 512, 64)
        assert row[1] == f"{trace.shared_bytes_per_multiply_add:.3g}"
        assert row[2] == f"{trace.global_bytes_per_multiply_add:.3g}"
        assert row[3] == f"{trace.sector_bytes_per_multiply_add:.3g}"


def test_compile_errors_have_the_lines_of_the_file(mine, capsys):
    change(mine, TYPED, "floot sum[TM][TN] = {};")
    assert main(["try", "mine.cu", "--like", "tile2d"]) == 2
    assert f"mine.cu:{LINES.index(f'    {TYPED}') + 1}:5: error: " in capsys.readouterr().err


class Watched:
    """Runs ``try --watch`` in a separate process and reads it line by line."""

    def __init__(self, *arguments):
        program = [sys.executable, "-m", "sgemm_kernels"]
        self.process = subprocess.Popen(
            [*program, "try", "mine.cu", "--like", "tile2d", "--watch", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            # The children of a background job ignore SIGINT.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self._lines = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        with self.process.stdout as said:
            for line in said:
                self._lines.put(line)

    def end(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()

    def is_silent(self, seconds):
        try:
            self._lines.get(timeout=seconds)
        except queue.Empty:
            return True
        return False

    def until_it_waits(self):
        """The output up to the wait for the next save."""
        said = ""
        while "Waiting for" not in said:
            said += self._lines.get(timeout=100)
        return said


def test_watch_tries_again_at_each_save(mine):
    watched = Watched("--device", "cpu")
    try:
        assert "mine is correct" in watched.until_it_waits()
        change(mine, BARRIER, "")
        said = watched.until_it_waits()
        assert "mine is WRONG" in said
        assert "lines changed since the last run" in said
        assert f"-   {LINES.index(BARRIER.rstrip()) + 1}          __syncthreads();" in said
        change(mine, TYPED, "floot sum[TM][TN] = {};")
        assert f"mine.cu:{LINES.index(f'    {TYPED}') + 1}:5: error: " in watched.until_it_waits()
        # Like an editor that saves: the file is missing for a moment.
        mine.rename(mine.with_suffix(".old"))
        assert watched.is_silent(0.6)
        mine.write_text(sk.source("tile2d"), encoding="utf-8")
        assert "mine is correct" in watched.until_it_waits()
        watched.process.send_signal(signal.SIGINT)
        assert watched.process.wait(timeout=30) == 0
    finally:
        watched.end()


def test_watch_waits_for_the_next_save_after_an_unreadable_one(mine):
    watched = Watched("--trace")
    try:
        watched.until_it_waits()
        mine.write_bytes(b"// \xff\n")
        assert "mine.cu is no text in UTF-8" in watched.until_it_waits()
        mine.unlink()
        mine.mkdir()
        assert watched.is_silent(0.6)
        mine.rmdir()
        mine.write_text(sk.source("tile2d"), encoding="utf-8")
        assert "Bytes accessed" in watched.until_it_waits()
    finally:
        watched.end()


def test_watch_waits_for_the_next_save_if_the_file_is_missing(mine, monkeypatch, capsys):
    tried = []

    def kernel(path, **launch):
        tried.append(path)
        if len(tried) == 2:
            raise KeyboardInterrupt
        mine.unlink()
        return sk.kernel(path, **launch)

    monkeypatch.setattr(custom_kernels, "kernel", kernel)
    monkeypatch.setattr(custom_kernels.time, "sleep", lambda _: mine.write_text("again"))
    assert main(["try", "mine.cu", "--like", "tile2d", "--watch"]) == 0
    assert len(tried) == 2
    assert "mine.cu" in capsys.readouterr().err


def test_tune_finds_the_best_tiles_of_a_file(mine, capsys):
    (mine.parent / "space.json").write_text('{"BM": [40, 128], "TM": [8]}')
    arguments = ["--space", "space.json", "--sizes", "32", "--device", "cpu"]
    assert main(["tune", "mine.cu", "--like", "tile2d", *arguments, "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 tried: 1 did not compile, 1 right" in out
    found = json.loads((mine.parent / "found.json").read_text())
    assert [each["defines"]["BM"] for each in found["candidates"]] == [40, 128]


def test_tune_fails_if_no_candidate_is_right(mine):
    (mine.parent / "space.json").write_text('{"BM": [40]}')
    arguments = ["--space", "space.json", "--sizes", "32", "--device", "cpu"]
    assert main(["tune", "mine.cu", "--like", "tile2d", *arguments]) == 1


def test_on_the_cpu_tune_uses_a_small_size_by_default(mine, monkeypatch):
    asked = []

    def tune(kernel, space, sizes, **options):
        asked.append((kernel.name, space, sizes, options["device"]))
        raise ValueError("enough")

    monkeypatch.setattr("sgemm_kernels.cli.custom_kernels.tune", tune)
    (mine.parent / "space.json").write_text('{"BM": [64]}')
    arguments = ["--like", "tile2d", "--space", "space.json", "--device", "cpu"]
    assert main(["tune", "mine.cu", *arguments]) == 2
    assert asked == [("mine", {"BM": [64]}, 128, "cpu")]
