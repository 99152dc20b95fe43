"""The command line."""

import re

import numpy as np
import pytest

from sgemm_kernels import __version__, _core, build_info, devices, variants
from sgemm_kernels.__main__ import main

from .support import printed_by, python, same_bits, uniform


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
    *_, last = printed.splitlines()
    assert last.startswith("Advice: ")


def test_info_says_why_there_is_no_gpu():
    script = """
        import sys
        from sgemm_kernels import _core
        from sgemm_kernels.__main__ import main
        main(["info"])
        print(_core._cuda_problem())
    """
    *lines, problem = printed_by(script, CUDA_VISIBLE_DEVICES="").splitlines()
    assert any(problem in line for line in lines)
    assert "device='cpu'" in lines[-1]


def test_list_has_one_row_for_each_variant(capsys):
    assert main(["list"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == [variant.name for variant in variants()]
    for row, variant in zip(rows, variants(), strict=True):
        assert row.endswith(variant.summary)
        assert row.index(variant.summary) == header.index("idea"), "columns are aligned"


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
        (["naive", "B.npy", "B.npy"], "(30, 10)"),
        (["naive", "A.npy", "missing.npy"], "missing.npy"),
        (["naive", "A.npy", "text.npy"], "text.npy"),
        (["naive", "A.npy", "empty.npy"], "empty.npy"),
        (["naive", "A.npy", "double.npy"], "float64"),
        (["naive", "A.npy", "pickle.npy"], "pickle.npy"),
        (["naive", "A.npy", "B.npy", "--device", "gpu"], "'gpu'"),
        (["naive", "A.npy", "B.npy", "--device", "cuda:99"], "cuda:99"),
    ],
)
def test_a_run_that_cannot_be_done(files, capsys, monkeypatch, arguments, fact):
    folder, _, B = files
    monkeypatch.chdir(folder)
    (folder / "text.npy").write_text("not an array")
    (folder / "empty.npy").touch()
    np.save(folder / "double.npy", B.astype(np.float64))
    np.save(folder / "pickle.npy", np.array([{}], object))
    assert main(["run", *arguments, "-o", "C.npy"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert fact in captured.err
    assert not (folder / "C.npy").exists()


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

    monkeypatch.setattr("sgemm_kernels.__main__.run", nearly)
    assert main(["check", "--device", "cpu"]) == 1
    failed = [row.split()[0] for row in capsys.readouterr().out.splitlines() if "FAIL" in row]
    assert failed == ["tile2d"]


@pytest.mark.parametrize("arguments", [[], ["sing"], ["run", "naive"]], ids=str)
def test_usage_errors(arguments):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_check_of_a_gpu_that_is_not_there():
    script = """
        import sys
        from sgemm_kernels.__main__ import main
        sys.exit(main(["check", "--device", "cuda"]))
    """
    process = python(script, CUDA_VISIBLE_DEVICES="")
    assert process.returncode == 2
    assert len(process.stderr.splitlines()) == 1
    assert "'cuda'" in process.stderr
