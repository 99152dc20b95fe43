"""The command-line interface."""

import importlib
import io
import json
import os
import pickle
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import __version__, _core, build_info, devices, variants
from sgemm_kernels.__main__ import COMMANDS, main, make_parser
from sgemm_kernels._output import write_text
from sgemm_kernels.cli import command
from sgemm_kernels.cli.completion import SHELLS, arguments_of

from .support import NO_GPU, printed_by, python, same_bits, uniform

ROOT = Path(__file__).parent.parent
MADE_UP = ROOT / "tests/data/results_schema_4.json"


@pytest.fixture
def files(tmp_path, rng):
    A, B = uniform(rng, 20, 30), uniform(rng, 30, 10)
    np.save(tmp_path / "A.npy", A)
    np.save(tmp_path / "B.npy", B)
    return tmp_path, A, B


def test_as_a_module():
    assert (
        printed_by(
            "import runpy, sys; sys.argv = ['sgemm_kernels', '--version'];"
            "runpy.run_module('sgemm_kernels', run_name='__main__')"
        )
        == __version__
    )


def test_info_examines_the_machine_and_advises(capsys):
    assert main(["info"]) == 0
    printed = capsys.readouterr().out
    for fact in (__version__, build_info().csrc_hash, build_info().compiler, np.__version__):
        assert fact in printed
    for device in devices():
        assert re.search(rf"^{device.name} .*{re.escape(device.model)}", printed, re.MULTILINE)
    assert re.search("^Advice: ", printed, re.MULTILINE)
    assert max(map(len, printed.splitlines())) <= 80


def test_info_says_why_there_is_no_gpu():
    script = """
        import sys
        from sgemm_kernels import _core
        from sgemm_kernels.__main__ import main
        main(["info"])
        print(_core._cuda_problem())
    """
    *lines, problem = printed_by(script, **NO_GPU).splitlines()
    said = " ".join(line.strip() for line in lines)
    assert f"none usable: {problem}" in said
    assert "Advice:  use --device cpu" in said


def test_list_has_one_row_for_each_variant(capsys):
    assert main(["list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [variant.name for variant in variants()]
    for row, variant in zip(rows, variants(), strict=True):
        assert row.endswith(variant.summary)
        assert row.index(variant.summary) == header.index("idea"), "columns are aligned"


@pytest.mark.parametrize("command", [None, *(command.name for command in COMMANDS)])
def test_help_fits_a_terminal(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        main([*filter(None, [command]), "--help"])
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("usage: ")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_has_an_example_that_parses(capsys, command):
    with pytest.raises(SystemExit):
        main([command.name, "--help"])
    shown = capsys.readouterr().out
    assert len(command.description) > 20
    *_, example = shown.rstrip().splitlines()
    words = shlex.split(example.partition(">")[0])
    assert words[:4] == ["python", "-m", "sgemm_kernels", command.name]
    assert make_parser().parse_args(words[3:]).command == command.name


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_argument_has_help(command):
    assert [action.dest for action in arguments_of(command) if not action.help] == []


@pytest.fixture(scope="module", params=SHELLS)
def complete(request, tmp_path_factory):
    """Completes the last word of a command line in a shell."""
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    script = tmp_path_factory.mktemp("completion") / shell
    empty = tmp_path_factory.mktemp("empty")
    script.write_text(
        printed_by(f"from sgemm_kernels.__main__ import main\nmain(['completion', '{shell}'])")
    )

    def ask(line):
        words = ["sgemm-kernels", *line.split(" ")]
        commands = {
            "bash": f"source {script}; COMP_WORDS=({shlex.join(words)}); "
            f"COMP_CWORD={len(words) - 1}; _sgemm_kernels; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            "fish": f"source {script}; complete -C {shlex.quote(' '.join(words))}",
            "zsh": "compdef() {}; _files() {}; compadd() { shift; print -rl -- $@ }; "
            f"source {script}; words=({shlex.join(words)}); CURRENT={len(words)}; _sgemm_kernels",
        }
        done = subprocess.run(
            [shell, "-c", commands[shell]], capture_output=True, text=True, cwd=empty
        )
        assert done.stderr == ""
        found = [row.partition("\t")[0] for row in done.stdout.splitlines()]
        return {word for word in found if word and word.startswith(words[-1])}

    return ask


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("", {"run", "measure"}),
        ("me", {"measure"}),
        ("--v", {"--version"}),
        ("run ", {"vec4", "auto"}),
        ("run --", {"--device"}),
        ("tune ", {"vec4", "auto"}),
        ("try --gr", {"--grid"}),
        ("try --mu", {"--multiple-of"}),
        ("plot --kind sp", {"speed", "speedup"}),
        ("new mine.cu --like tile", {"tile1d", "tile2d"}),
        ("try mine.cu --against tile", {"tile1d", "tile2d"}),
        ("preload --log c", {"calls"}),
        ("learn --level shared", {"shared_tile"}),
        ("completion ", set(SHELLS)),
    ],
)
def test_a_shell_completes(complete, line, some):
    found = complete(line)
    assert some <= found
    if line.split(" ")[-1] not in ("", "--"):
        assert found == some


def test_a_file_is_no_option(complete):
    """After an option that takes a file, the script leaves completion to the shell."""
    assert complete("measure --json ") == set()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_shell_completes_every_option_of_a_command(complete, command, capsys):
    with pytest.raises(SystemExit):
        main([command.name, "--help"])
    shown = capsys.readouterr().out
    lines = re.findall(r"^  (-\S.*?)(?:  |$)", shown, re.MULTILINE)
    options = set(re.findall(r"--[a-z][\w-]*", " ".join(lines)))
    assert "--help" in options
    assert complete(f"{command.name} --") == options


def test_a_size_in_place_of_a_name_suggests_the_option(capsys):
    assert main(["measure", "vec4", "64", "8x9x10", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "64 is a size" in said
    assert re.search(r": \S.* measure vec4 --sizes 64 8x9x10$", said.strip())


@pytest.mark.parametrize("name", ["double.npy", "a row.npy", "three.npy", "transposed.npy"])
def test_run_suggests_a_command_that_converts_the_file(files, capsys, monkeypatch, name):
    folder, A, _ = files
    wrong = {"double.npy": A.astype("f8"), "a row.npy": A[0], "transposed.npy": A.T.copy()}
    np.save(folder / name, wrong.get(name, A.reshape(2, 10, 30)))
    monkeypatch.chdir(folder)
    assert main(["run", "naive", name, "B.npy", "-o", "C.npy", "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert name in said
    advised = re.search("python3 -c .*", said)[0].replace("python3", sys.executable, 1)
    subprocess.run(["bash", "-c", advised], check=True)
    converted = f"{Path(name).stem}-converted.npy"
    assert main(["run", "naive", converted, "B.npy", "-o", "C.npy", "--device", "cpu"]) == 0
    assert np.load("C.npy").shape == (1 if name == "a row.npy" else 20, 10)


@pytest.mark.parametrize(
    "arguments",
    [["new", "naive.cu", "--like", "naive"], ["try", "naive.cu"], ["try", "my-kernel.cu"],
     ["tune", "vec4.cu", "--space", "s.json"]],
    ids=str,
)  # fmt: skip
def test_an_invalid_file_name_says_to_rename_the_file(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "Rename the file" in said
    assert "name=" not in said


def test_explain_and_plot_say_what_they_wrote(tmp_path, capsys):
    page, picture = tmp_path / "naive.html", tmp_path / "speed.svg"
    assert main(["explain", "naive", "-o", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}: the bottleneck of naive\n"
    assert main(["plot", str(MADE_UP), "-o", str(picture)]) == 0
    run = sgemm_kernels.Results.from_json(MADE_UP).run
    said = f"{picture}: speed on {run.device}, measured {run.date[:10]}\n"
    assert capsys.readouterr().out == said


def test_list_fits_a_terminal(capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert main(["list", "--tiles"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert "shared, bytes" in header
    assert [row.split()[0] for row in rows] == [variant.name for variant in variants()]
    shared = {row: row.split()[4] for row in rows if int(row.split()[4].replace("-", "0"))}
    ends = {row.index(f" {figure}  ") + len(figure) for row, figure in shared.items()}
    assert len(shared) > 5
    assert len(ends) == 1, "figures end at the right"


def test_run_writes_the_product(files, device, variants_on, capsys):
    from sgemm_kernels import run

    folder, A, B = files
    for name in variants_on[device]:
        output = folder / f"{name}.result"
        arguments = [name, str(folder / "A.npy"), str(folder / "B.npy"), "-o", str(output)]
        assert main(["run", *arguments, "--device", device]) == 0
        assert same_bits(np.load(output), run(name, A, B, device=device))
        assert re.search(rf"20 x 10, {name} on {device} in \S+ s", capsys.readouterr().out)


def test_run_uses_the_default_device_without_a_warning(files, capsys):
    folder, *_ = files
    files = [str(folder / name) for name in ("A.npy", "B.npy", "C.npy")]
    assert main(["run", "naive", *files[:2], "-o", files[2]]) == 0
    default = next(device.name for device in devices() if device.usable)
    assert f" on {default} in " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["niave", "A.npy", "B.npy"], "'naive'"),
        (["naive", "B.npy", "B.npy"], "B.npy is 30 x 10"),
        (["naive", "A.npy", "missing.npy"], "missing.npy"),
        (["naive", "A.npy", "text.npy"], "text.npy"),
        (["naive", "A.npy", "empty.npy"], "empty.npy"),
        (["naive", "A.npy", "double.npy"], "float64"),
        (["naive", "A.npy", "double.npy"], "double.npy"),
        (["naive", "A.npy", "pickle.npy"], "pickle.npy"),
        (["naive", "A.npy", "pickled"], "pickled is not a .npy file: create one with numpy.save()"),
        (["naive", "A.npy", "cut.npy"], "cut.npy"),
        (["naive", "A.npy", "cut.npz"], "cut.npz"),
        (["naive", "A.npy", "huge.npy"], "huge.npy"),
        (["naive", "A.npy", "damaged.npy"], "damaged.npy"),
        (["naive", "A.npy", "two.npz"], "two.npz is an archive of arrays (x, y)"),
        (["naive", "A.npy", "B.npy", "--device", f"{_core._GPU_KIND}:99"], ":99"),
    ],
)
def test_an_impossible_run(files, capsys, monkeypatch, arguments, fact):
    folder, _, B = files
    monkeypatch.chdir(folder)
    (folder / "text.npy").write_text("not an array")
    (folder / "empty.npy").touch()
    np.save(folder / "double.npy", B.astype(np.float64))
    np.save(folder / "pickle.npy", np.array([{}], object))
    (folder / "pickled").write_bytes(pickle.dumps(B))
    for name, shape in (("huge.npy", f"({10**31},)}}"), ("damaged.npy", "( \n")):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}\n".encode()
        (folder / name).write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
    np.savez(folder / "two.npz", x=B, y=B)
    for name, whole in (("cut.npy", "B.npy"), ("cut.npz", "two.npz")):
        (folder / name).write_bytes((folder / whole).read_bytes()[:130])
    assert main(["run", *arguments, "-o", "C.npy"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert fact in captured.err
    assert not (folder / "C.npy").exists()


@pytest.fixture
def product(files, monkeypatch):
    """A function that runs the command with a given output file, and the expected product."""
    folder, A, B = files
    monkeypatch.chdir(folder)
    expected = sgemm_kernels.run("naive", A, B, device="cpu")
    arguments = ["run", "naive", "A.npy", "B.npy", "--device", "cpu", "-o"]
    return lambda output: main([*arguments, output]), expected


def test_run_replaces_a_file_atomically(product, files):
    """The old file keeps its content under its other name. The new file has the old permissions."""
    run_to, expected = product
    old = files[0] / "C.npy"
    old.write_bytes(b"old")
    old.chmod(0o640)
    os.link(old, files[0] / "other")
    (files[0] / "link").symlink_to("C.npy")
    assert run_to("link") == 0
    assert (files[0] / "link").is_symlink()
    assert same_bits(np.load(old), expected)
    assert (files[0] / "other").read_bytes() == b"old", "the file was written in place"
    assert old.stat().st_mode & 0o777 == 0o640
    assert not list(files[0].glob("making-*"))


def test_a_full_disk_leaves_the_old_file(product, files, capsys):
    run_to, _ = product
    (files[0] / "C.npy").write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
        assert run_to("C.npy") == 2
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert capsys.readouterr().err.endswith(": C.npy: File too large\n")
    assert (files[0] / "C.npy").read_bytes() == b"old"
    assert not list(files[0].glob("making-*"))


def test_run_reports_a_full_device(product, capsys):
    assert product[0]("/dev/full") == 2
    assert capsys.readouterr().err.endswith(": /dev/full: No space left on device\n")


def test_run_writes_to_a_pipe(product, files):
    run_to, expected = product
    os.mkfifo(files[0] / "pipe")
    with ThreadPoolExecutor(1) as readers:
        reader = readers.submit((files[0] / "pipe").read_bytes)
        assert run_to("pipe") == 0
        assert same_bits(np.load(io.BytesIO(reader.result())), expected)
    assert (files[0] / "pipe").is_fifo()


@pytest.mark.parametrize("to", ["| cat > C.npy", "> C.npy"])
def test_run_writes_to_standard_output(product, files, to):
    """The summary then goes to standard error."""
    command = f"{sys.executable} -m sgemm_kernels run naive A.npy B.npy --device cpu -o /dev/stdout"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {to}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("/dev/stdout: 20 x 10, naive on cpu")
    assert same_bits(np.load(files[0] / "C.npy"), product[1])


def test_two_writers_leave_a_whole_file(tmp_path):
    path = tmp_path / "it"
    texts = [letter * 1_000_000 for letter in "ab"]
    with ThreadPoolExecutor(3) as threads:
        writers = [
            threads.submit(lambda t=t: [write_text(path, t) for _ in range(20)]) for t in texts
        ]
        while not path.exists():
            pass
        while not all(writer.done() for writer in writers):
            assert path.read_text() in texts


WRITERS = {
    "to_json": lambda path: sgemm_kernels.Results.from_json(MADE_UP).to_json(path),
    "to_csv": lambda path: sgemm_kernels.Results.from_json(MADE_UP).to_csv(path),
    "a picture": lambda path: sgemm_kernels.Results.from_json(MADE_UP).plot().save(path),
}


@pytest.mark.parametrize("name", WRITERS)
def test_saving_replaces_a_file_atomically(tmp_path, name):
    path = tmp_path / "it.svg"
    path.write_text("old")
    os.link(path, tmp_path / "other")
    WRITERS[name](path)
    assert path.stat().st_size > 1000
    assert (tmp_path / "other").read_text() == "old"


def test_check_has_a_passing_row_for_each_variant(device, variants_on, capsys):
    assert main(["check", "--device", device]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["rung", "device", "products"]
    assert [row.split()[0] for row in rows] == [variant.name for variant in variants()]
    for row in rows:
        name, where, products, share, *result = row.split()
        assert where == device
        if name in variants_on[device]:
            assert result == ["pass"]
            assert int(products) > 20
            assert 0 < float(share) <= 1
        else:
            assert result[:2] == ["not", "run:"]


def test_check_fails_when_a_rung_is_wrong(capsys, monkeypatch):
    def nearly(name, *operands, **options):
        result = _core.run(name, *operands, **options)
        if name == "tile2d" and result.size:
            result[-1, -1] *= np.float32(1.001)
        return result

    monkeypatch.setattr("sgemm_kernels.cli.products.run", nearly)
    assert main(["check", "--device", "cpu"]) == 1
    failed = [row.split()[0] for row in capsys.readouterr().out.splitlines() if "FAIL" in row]
    assert failed == ["tile2d"]


@pytest.mark.parametrize(
    "arguments", [[], ["sing"], ["run", "naive"], ["check", "--device", "gpu"]], ids=str
)
def test_usage_errors(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_check_of_a_missing_gpu():
    script = """
        import sys
        from sgemm_kernels.__main__ import main
        sys.exit(main(["check", "--device", "cuda"]))
    """
    process = python(script, **NO_GPU)
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1
    assert "'cuda'" in process.stderr
    assert process.stdout == ""


def piped(command, environment=None):
    """The exit status, output and errors of a command whose reader exits after one line."""
    shell = f"set -o pipefail; {sys.executable} -m sgemm_kernels {command} | head -n 1"
    process = subprocess.run(
        ["bash", "-c", shell],
        env=os.environ | (environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr


def test_head_shows_no_broken_pipe():
    """The reader is already gone at a write, or only at the final flush."""
    for unbuffered in ("", "1"):
        for _ in range(3):
            status, out, complaints = piped("list", {"PYTHONUNBUFFERED": unbuffered})
            assert complaints == ""
            assert status in (0, 141)
            assert out.startswith("name")


@pytest.mark.parametrize("to", ["| true", "> /dev/full", ">&-"])
def test_results_are_saved_even_if_the_output_fails(to, tmp_path):
    path = tmp_path / "it.json"
    command = f"{sys.executable} -m sgemm_kernels measure naive --sizes 4 --seconds 0.01"
    subprocess.run(
        ["bash", "-c", f"{command} --device cpu --json {path} {to}"],
        capture_output=True,
        check=False,
    )
    assert sgemm_kernels.Results.from_json(path)["naive", 4].samples_s


def test_closed_output_is_no_error():
    shell = f"{sys.executable} -m sgemm_kernels list >&-"
    process = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stderr) == (0, "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "coloured"),
    [
        (Terminal, {}, True),
        (Terminal, {"NO_COLOR": "1"}, False),
        (Terminal, {"NO_COLOR": ""}, True),
        (io.StringIO, {}, False),
    ],
)
def test_failures_are_red_and_passed_levels_green_on_a_terminal(
    monkeypatch, stream, environment, coloured
):
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", stream())
    command.show("naive FAIL")
    command.show("PASSED.")
    printed = sys.stdout.getvalue()
    red, green = "naive \x1b[31mFAIL\x1b[0m\n", "\x1b[32mPASSED\x1b[0m.\n"
    assert printed == (red + green if coloured else "naive FAIL\nPASSED.\n")


def test_the_script_says_its_own_name(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["/somewhere/bin/sgemm-kernels", "report", "missing.md"])
    assert main(["report", "missing.md"]) == 2
    assert capsys.readouterr().err.startswith("sgemm-kernels: ")
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["sgemm-kernels"].partition(":")
    assert getattr(importlib.import_module(module), function) is main


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (["--json", "nowhere/r.json"], "the folder nowhere does not exist"),
        (["--csv", "."], ". is a folder"),
        (["--ffma-probe", "peaks.cu"], "peaks.cu does not exist"),
    ],
)
def test_paths_are_checked_before_anything_is_measured(
    monkeypatch, tmp_path, capsys, arguments, fact
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sgemm_kernels.cli.measurements.measure", pytest.fail)
    assert main(["measure", "naive", "--device", "cpu", *arguments]) == 2
    assert fact in capsys.readouterr().err


def test_results_are_printed_even_if_they_cannot_be_saved(monkeypatch, tmp_path, capsys):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("sgemm_kernels.measuring.results.Results.to_json", full)
    arguments = ["naive", "--sizes", "4", "--seconds", "0.05", "--device", "cpu"]
    assert main(["measure", *arguments, "--json", str(tmp_path / "r.json")]) == 2
    captured = capsys.readouterr()
    assert "no space left" in captured.err
    assert "naive" in captured.out


def test_no_result_is_lost_to_an_encoding():
    script = """
        import sys
        from sgemm_kernels.cli import command
        from sgemm_kernels.__main__ import main
        main(["list"])
        command.show("5 µs")
    """
    assert printed_by(script, PYTHONIOENCODING="ascii").splitlines()[-1] == "5 ?s"


def test_on_the_cpu_small_sizes_are_the_default(monkeypatch, capsys):
    asked = []

    def measure(_, sizes, **options):
        asked.append((sizes, options["device"]))
        raise ValueError("enough")

    monkeypatch.setattr("sgemm_kernels.cli.measurements.measure", measure)
    assert main(["measure", "naive", "--device", "cpu"]) == 2
    assert asked == [(128, "cpu")]


@pytest.mark.parametrize("option", [["--warm"], ["--cold"], ["--ffma-probe", str(MADE_UP)]])
def test_measure_refuses_what_it_would_ignore_on_the_cpu(monkeypatch, capsys, option):
    monkeypatch.setattr("sgemm_kernels.cli.measurements.measure", pytest.fail)
    assert main(["measure", "naive", "--device", "cpu", *option]) == 2
    assert f"{option[0]} needs a GPU" in capsys.readouterr().err


def test_judge_says_that_its_files_come_first(capsys):
    """After --repeats they would count as repeats."""
    with pytest.raises(SystemExit):
        main(["judge", "--repeats", "again.json", "old.json", "new.json"])
    assert "judge OLD.json NEW.json [OPTION ...]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        (
            ["-o", "p.svg", "--pair", "naive", "vec4"],
            "--pair works only with --kind pair, not with speed",
        ),
        (["-o", "p.svg", "--size", "64"], "--size works only with"),
        (["-o", "p.svg", "--kind", "speedup", "--traffic", "t.json"], "--traffic works only with"),
        (["-o", "p.jpg"], "p.jpg: unknown plot format; use a name that ends in .svg, .png, .pdf"),
        (["-o", "p"], "a name that ends in"),
        (["-o", "nowhere/p.svg"], "the folder nowhere does not exist"),
    ],
)
def test_plot_refuses_what_it_would_ignore(monkeypatch, tmp_path, capsys, arguments, fact):
    monkeypatch.chdir(tmp_path)
    assert main(["plot", str(MADE_UP), *arguments]) == 2
    assert fact in capsys.readouterr().err


HOSTILE = "\x1b[2J\x9b2J\u202e$\\frac{$|<script>\nfake line\r<b>"


@pytest.fixture
def hostile(tmp_path):
    """A results file with terminal escapes, mathematics, tags and line breaks in its names."""
    document = json.loads(MADE_UP.read_text())
    document["run"]["device"] = document["run"]["driver"] = HOSTILE
    first = document["rows"][0]["variant"]
    for row in document["rows"]:
        if row["variant"] == first:
            row["variant"] = HOSTILE
    path = tmp_path / "hostile.json"
    path.write_text(json.dumps(document))
    return path


def harmless(text):
    """True if no character controls the terminal."""
    return not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_names_from_a_file_do_not_control_a_terminal(hostile, tmp_path, capsys):
    assert main(["judge", str(hostile), str(hostile)]) in (0, 1)
    printed = capsys.readouterr().out
    assert harmless(printed)
    assert "\\x1b[2J" in printed
    assert not re.search("^fake line", printed, re.MULTILINE)
    assert main(["judge", str(hostile), str(MADE_UP)]) == 2
    assert harmless(capsys.readouterr().err)
    odd = tmp_path / "\x1b[2J.json"
    odd.write_text(hostile.read_text().replace('"schema": 3', '"schema": "\\u001b[2J"'))
    assert main(["judge", str(odd), str(MADE_UP)]) == 2
    assert harmless(capsys.readouterr().err)
    results = sgemm_kernels.Results.from_json(hostile)
    assert harmless(repr(results))
    assert not re.search("^fake line", repr(results), re.MULTILINE)


def test_names_from_a_file_are_no_markup(hostile, tmp_path):
    document = tmp_path / "it.md"
    document.write_text("<!-- results: table hostile.json -->\n<!-- end of results -->\n")
    assert main(["report", str(document)]) == 0
    text = document.read_text()
    assert harmless(text)
    assert not re.search("^fake line", text, re.MULTILINE)
    assert re.findall("<[a-z/]+", text) == []


@pytest.mark.parametrize("kind", ["speed", "speedup", "pair"])
def test_names_from_a_file_are_no_mathematics(hostile, tmp_path, kind):
    plt = pytest.importorskip("matplotlib")
    results = sgemm_kernels.Results.from_json(hostile)
    options = {"pair": results.variants[:2]} if kind == "pair" else {}
    with plt.rc_context({"svg.fonttype": "none"}):
        picture = results.plot(kind, **options)
        picture.save(tmp_path / "p.svg")
    assert r"$\frac{$" in (tmp_path / "p.svg").read_text()


def test_report_needs_no_optional_package(tmp_path):
    document = tmp_path / "it.md"
    document.write_text(f"<!-- results: table {MADE_UP} -->\n<!-- end of results -->\n")
    script = f"""
        import sys
        sys.modules |= dict.fromkeys(("matplotlib", "pandas", "IPython", "scipy"))
        from sgemm_kernels.__main__ import main
        sys.exit(main(["report", {str(document)!r}]))
    """
    assert printed_by(script) == str(document)
    assert "| naive |" in document.read_text()


def test_a_missing_file_is_named_first(capsys):
    assert main(["judge", "missing.json", str(MADE_UP)]) == 2
    assert ": missing.json: No such file" in capsys.readouterr().err


def test_a_file_of_another_kind_is_named(tmp_path, capsys):
    path = tmp_path / "list.json"
    path.write_text("[]")
    picture = str(tmp_path / "p.svg")
    for arguments in (
        ["judge", str(path), str(MADE_UP)],
        ["plot", str(path), "-o", picture],
        ["plot", str(MADE_UP), "-o", picture, "--kind", "limits", "--traffic", str(path)],
    ):
        assert main(arguments) == 2
        assert f"{path} is not a file of" in capsys.readouterr().err
