"""Constants of `simt`'s plans that are fitted on a machine and stored there."""

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, _plans

MODEL = "A model that no test has beside this one"
GPUS = [device for device in sgemm_kernels.devices() if device.kind == "cuda" and device.usable]
FAKE = hasattr(ctypes.CDLL(_core.__file__), "fake_cuda_live")
SLICED = ("48x64x32", "32x128x32", "32x32x32", "16x128x32")
"""Tile configurations whose warps split K, see csrc/gemm/plan/tiles.h."""
ASKED = f"from sgemm_kernels._plans import constants_for; print(constants_for({MODEL!r}))"


@pytest.fixture
def file(monkeypatch, tmp_path):
    monkeypatch.setenv("SGEMM_KERNELS_CACHE", str(tmp_path))
    return tmp_path / _plans.FILE


@pytest.fixture
def others():
    return {name: 1.5 * value for name, value in _plans.constants_for(MODEL).items()}


def known_to_a_new_process():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", ASKED], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_stored_constants_are_used_by_the_next_process(file, others):
    assert known_to_a_new_process() == str(_plans.constants_for(MODEL))
    assert _plans.keep(MODEL, others) == file
    assert known_to_a_new_process() == str(others)


def test_constants_of_another_build_are_ignored(file, others):
    own = str(_plans.constants_for(MODEL))
    _plans.keep(MODEL, others)
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"csrc_hash": "0123"}))
    assert known_to_a_new_process() == own
    _plans.keep("Another", others)
    assert list(json.loads(file.read_text())["models"]) == ["Another"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"csrc_hash": 1}', "\xff"])
def test_a_malformed_file_is_ignored(file, text):
    file.write_bytes(text.encode("latin-1"))
    assert known_to_a_new_process() == str(_plans.constants_for(MODEL))


BROKEN_MODELS = {
    "nested": "[" * 100_000,
    "a nested value": f'{{"{MODEL}": ' + '{"copying":' * 50_000,
    "400 digits": f'{{"{MODEL}": {{"copying": 1{"0" * 400}}}}}',
    "5000 digits": f'{{"{MODEL}": {{"copying": 1{"0" * 5000}}}}}',
    "no dictionary": f'{{"{MODEL}": [1, 2]}}',
    "a text": f'{{"{MODEL}": "text"}}',
    "a lone surrogate": '{"\\ud800": {"copying": 1}}',
    "a zero byte": '{"\\u0000": {"copying": 1}}',
    "a list": "[[1, 2, 3]]",
    "a number": "5",
    "a null": "null",
}


@pytest.mark.parametrize("name", BROKEN_MODELS)
def test_malformed_models_are_ignored(file, name):
    own, models = str(_plans.constants_for(MODEL)), BROKEN_MODELS[name]
    csrc_hash = _core._build_info()["csrc_hash"]
    file.write_text(f'{{"csrc_hash": "{csrc_hash}", "models": {models}}}')
    assert known_to_a_new_process() == own


@pytest.mark.parametrize("number", [10**400, -(10**400)], ids=["plus", "minus"])
def test_a_model_with_a_400_digit_constant_is_ignored(file, others, number):
    own = str(_plans.constants_for(MODEL))
    _plans.keep(MODEL, others | {"mn_major_copy": number})
    assert known_to_a_new_process() == own


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e9, None, "1"])
def test_invalid_constants_are_refused(file, others, value):
    own = str(_plans.constants_for(MODEL))
    _plans.keep(MODEL, others | {"mn_major_copy": value})
    assert known_to_a_new_process() == own
    with pytest.raises((ValueError, TypeError)):
        _core._keep_plan_constants(MODEL, others | {"mn_major_copy": value})


@pytest.mark.parametrize("folder", ["a" * 5000, "relative"])
def test_an_unreadable_folder_is_ignored(monkeypatch, tmp_path, folder):
    """The relative folder belongs to a working directory that was deleted."""
    monkeypatch.setenv("SGEMM_KERNELS_CACHE", folder)
    gone = f"import os; os.chdir({str(tmp_path)!r}); os.rmdir({str(tmp_path)!r});"
    root = str(Path(_core.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {root!r}); import numpy; {gone} {ASKED}"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_every_constant_is_required(others):
    for name in others:
        with pytest.raises(ValueError, match=f"{name} must be a number above 0"):
            _core._keep_plan_constants(MODEL, {key: 1.0 for key in others if key != name})


@pytest.mark.skipif(not GPUS or FAKE, reason="needs a GPU")
def test_a_gpu_uses_the_constants_stored_for_its_model(file, tmp_path):
    """With these constants, adding split-K partial sums is expensive, and so is every plan that
    splits K among threads. The sum is then in order, unlike before."""
    rng = np.random.default_rng(3)
    A, B = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((64, 1024), (1024, 64)))
    np.savez(tmp_path / "operands.npz", A=A, B=B)
    gpu = GPUS[0]
    code = f"""if True:
        import numpy, sgemm_kernels
        with numpy.load({str(tmp_path / "operands.npz")!r}) as given:
            A, B = given["A"], given["B"]
        C, in_order = (sgemm_kernels.run(name, A, B, device={gpu.name!r})
                       for name in ("simt", "naive"))
        print((C == in_order).all())
    """
    printed = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        printed.append(done.stdout.strip())
        dear = dict.fromkeys(("arriving", "cluster_reduce_cycles", "dot_round", "gemv_launch"), 1e8)
        dear |= {f"slots_{tile}": 1e8 for tile in SLICED}
        _plans.keep(gpu.model, _plans.constants_for(gpu.model) | dear)
    assert printed == ["False", "True"]
