"""The demonstration: a photograph, compressed by every rung."""

import numpy as np
import pytest

from sgemm_kernels import _core, devices, variants

pytest.importorskip("matplotlib")

from matplotlib.image import imread

from sgemm_kernels import demo

RUNGS = [variant.name for variant in variants() if variant.file is not None]


@pytest.fixture
def small_photograph(monkeypatch):
    """Every fourth pixel of the photograph: the same test in a fraction of the time."""
    photograph = demo.load_photograph()[::4, ::4]
    monkeypatch.setattr(demo, "load_photograph", lambda: photograph)
    return photograph


def test_every_rung_passes_and_the_picture_is_written(small_photograph, tmp_path, capsys):
    output = tmp_path / "new folder" / "demo.png"
    assert demo.main(["-o", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    default = next(device.name for device in devices() if device.usable)
    assert lines[0].startswith("Device: ")
    rows = [line.split() for line in lines if line.endswith("pass")]
    assert [row[0] for row in rows] == RUNGS
    for _, where, seconds, share, _ in rows:
        assert where == default
        assert float(seconds) > 0
        assert 0 < float(share) <= 1
    assert str(output) in lines[-1]

    before, after = small_photograph, imread(output)[..., :3]
    height, width = before.shape[:2]
    captions, after = after[height:], after[:height]
    assert captions.min() < 0.5 < captions.max(), "something is written there"
    assert np.allclose(after[:, :width], before, rtol=0, atol=1 / 255), "8 bits a colour"
    change = np.abs(after[:, -width:] - before).mean()
    assert 0.001 < change < 0.1, "compressed, and still the same picture"


def test_a_wrong_product_fails(small_photograph, tmp_path, capsys, monkeypatch):
    def nearly(name, *operands, **options):
        result = _core.run(name, *operands, **options)
        if name == "vec4":
            result[-1, -1] += np.float32(0.01)
        return result

    monkeypatch.setattr(demo, "run", nearly)
    assert demo.main(["-o", str(tmp_path / "demo.png")]) == 1
    failed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if "FAIL" in line]
    assert failed == ["vec4"]


def test_the_transform_is_orthonormal():
    D = demo.cosines(64).astype(np.float64)
    # Each entry is rounded once, so each sum of 64 products is off by 64 * 2 roundings at most.
    assert np.abs(D @ D.T - np.eye(64)).max() < 64 * 2 * 2.0**-24 * np.abs(D).max() ** 2


def test_a_picture_that_cannot_be_written(small_photograph, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert demo.main(["-o", str(tmp_path / "file" / "demo.png")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
