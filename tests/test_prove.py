"""`prove` compares tensor cores with their model. The CPU device emulates every generation."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sgemm_kernels import _core, _plans, _proofs, prove, run
from sgemm_kernels.__main__ import main
from sgemm_kernels._accuracy import expect
from sgemm_kernels._catalog import Device
from sgemm_kernels._version import __version__
from sgemm_kernels.proving.hard_cases import DEPTHS, INPUTS, hard_cases
from sgemm_kernels.proving.models import MODELS, Model, emulated
from sgemm_kernels.proving.proof import read_document
from sgemm_kernels.proving.prove import refusal_of
from sgemm_kernels.proving.speed import SHAPES, Timed, fit
from sgemm_kernels.proving.steps import KINDS, SIDE, compare_steps, differs, step_products

from .support import printed_over_fake_cuda, same_bits, uniform
from .test_tensor_cores import step

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
AMPERE, HOPPER = MODELS[8, 0], MODELS[9, 0]
GENERATIONS = {f"{m.products}-{m.bits}": m for m in (AMPERE, HOPPER)}
OTHERS = [(4, 24), (8, 23), (8, 25), (16, 24), (16, 25)]
"""Products and bits that are not those of compute capability 8.0."""


@pytest.fixture(params=GENERATIONS)
def model(request):
    return GENERATIONS[request.param]


# ------------------------------------------------------------------ the models


def test_the_table_has_every_generation():
    assert set(MODELS) == {(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)}
    assert {(m.products, m.bits) for m in MODELS.values()} == {(8, 24), (16, 25)}
    assert all(m.sources for m in MODELS.values())
    assert all(m.bound_fault is None for m in MODELS.values())


def test_the_bound_has_the_proofs_constants(model):
    """R of docs/inside/tensor_cores.md."""
    assert model.chunk_units == pytest.approx({16: 48.2, 8: 88.4}[model.products], abs=0.1)


def test_a_model_that_loses_too_much_is_refused():
    volta = Model((7, 0), 4, 23, ())
    assert "a chunk of 64 steps may lose 168" in str(volta.bound_fault)
    assert "K = 256" in str(volta.bound_fault)


@pytest.mark.parametrize("products", [8, 16])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if "NaN" not in kind])
def test_the_cpu_device_computes_what_the_model_says(kind, products, rng):
    """The model in NumPy (test_tensor_cores.py) is another program than the CPU device."""
    model = {m.products: m for m in GENERATIONS.values()}[products]
    A, B, C = (X.astype(np.float64) for X in KINDS[kind](rng))
    expected = C[:16, :8]
    for k in range(0, 16, products):
        a, b = A[:16, None, k : k + products], B.T[None, :8, k : k + products]
        expected = step(expected, np.broadcast_to(a, (16, 8, products)), b, model.bits)
    with emulated(model):
        found = step_products((A.astype("f4"), B.astype("f4"), C.astype("f4")), "cpu")[:16, :8]
    assert (found == expected).all()


def test_emulating_ends_with_the_block():
    before = _core._cpu_tensor_cores()
    with emulated(AMPERE):
        assert _core._cpu_tensor_cores() == (8, 0, 8, 24)
    with pytest.raises(ZeroDivisionError), emulated(AMPERE):
        raise ZeroDivisionError
    assert _core._cpu_tensor_cores() == before == (9, 0, 16, 25)


@pytest.mark.parametrize("numbers", [(3, 25), (0, 25), (32, 25), (16, 26), (16, 0)])
def test_impossible_models_are_refused(numbers):
    with pytest.raises(ValueError, match="the CPU device cannot add"):
        _core._set_cpu_tensor_cores(9, 0, *numbers)


# ------------------------------------------------------------------ comparing bits


def test_the_right_model_agrees(model):
    with emulated(model):
        compared = tuple(compare_steps("cpu", model, 1))
        assert refusal_of(compared, "cpu", model) is None
    assert [each.kind for each in compared] == list(KINDS)
    assert all(each.results == SIDE**2 and each.differing == 0 for each in compared)


@pytest.mark.parametrize("numbers", OTHERS, ids=str)
def test_a_wrong_model_differs_in_every_kind_of_operands(numbers):
    other = replace(AMPERE, products=numbers[0], bits=numbers[1])
    with emulated(other):
        compared = tuple(compare_steps("cpu", AMPERE, 1))
        refusal = refusal_of(compared, "cpu", AMPERE)
    assert all(each.differing for each in compared)
    assert refusal is not None
    assert "differ from the model (8 products at once, 24 bits" in refusal
    assert f"agree with another model: {other}" in refusal


def test_a_difference_names_the_bits():
    with emulated(HOPPER):
        first = next(compare_steps("cpu", AMPERE, 1)).first_difference
    assert first is not None
    a, b = (first.split(f"{name} = ")[1].split(",")[0].split(" (")[0].split() for name in "AB")
    c = first.split("C = ")[1][:8]
    found, expected = first.split("computes ")[1][:8], first.split("the model ")[1][:8]
    assert len(a) == len(b) == 16
    A, B = (np.array([int(h, 16) for h in x], np.uint16).view(np.float16) for x in (a, b))
    operands = np.zeros((SIDE, 16), "f4"), np.zeros((16, SIDE), "f4"), np.zeros((SIDE, SIDE), "f4")
    operands[0][0], operands[1][:, 0] = A, B
    operands[2][0, 0] = np.array(int(c, 16), np.uint32).view(np.float32)
    for model, wanted in ((HOPPER, found), (AMPERE, expected)):
        with emulated(model):
            assert f"{step_products(operands, 'cpu').view(np.uint32)[0, 0]:08x}" == wanted
    assert found != expected


def test_all_nan_are_equal_and_zeros_have_signs():
    a = np.array([0x7FC00000, 0x7FFFFFFF, 0, 0], np.uint32).view(np.float32)
    b = np.array([0x7FFFFFFF, 0x3F800000, 0x80000000, 0], np.uint32).view(np.float32)
    assert differs(a, b).tolist() == [False, True, True, False]


@pytest.mark.parametrize("shape", [(16, 8, 15), (15, 8, 16), (16, 7, 16)])
def test_a_step_refuses_other_shapes(shape):
    M, N, K = shape
    A, B, C = np.ones((M, K), "f4"), np.ones((K, N), "f4"), np.ones((M, N), "f4")
    with pytest.raises(ValueError, match="mma_step computes"):
        _core._run_measured("mma_step", A, B, C=C, beta=1, device="cpu")
    with pytest.raises(ValueError, match="there is no variant 'mma_step'"):
        run("mma_step", A, B, device="cpu")


# ------------------------------------------------------------------ the error bound


def test_hard_operands_are_within_the_bound(model):
    with emulated(model):
        found = list(hard_cases("cpu", model))
    assert len(found) == (len(INPUTS) + 1) * len(DEPTHS)
    assert max(each.worst_share for each in found) <= 1
    assert max(each.worst_share for each in found if each.name == "most losses known") > 0.1


def test_tensor_cores_with_a_few_bits_exceed_the_bound():
    """The hard cases can fail."""
    with emulated(replace(HOPPER, bits=16)):
        assert max(each.worst_share for each in hard_cases("cpu", HOPPER)) > 1


# ------------------------------------------------------------------ what auto chooses


def chosen(monkeypatch, rng, capability):
    """The rungs with the bits of `auto` on a CPU device with these tensor cores."""
    monkeypatch.setenv(SETTING, "1")
    A, B = uniform(rng, 512, 512), uniform(rng, 512, 512)
    with emulated(replace(MODELS[capability], capability=capability)):
        rungs = ("auto", "simt", "mma", "waves", "fused")
        results = {name: run(name, A, B, device="cpu") for name in rungs}
    assert expect(A, B).worst_share(results["auto"]) <= 1
    return {name for name in rungs[1:] if same_bits(results[name], results["auto"])}


@pytest.mark.fake_cuda
@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (10, 0), (12, 0)])
def test_auto_uses_tensor_cores_once_they_are_proven(monkeypatch, rng, capability):
    code = f"""
    import os
    import numpy as np
    from sgemm_kernels import _core
    from sgemm_kernels.proving.models import MODELS, emulated
    os.environ[{SETTING!r}] = "1"
    A, B = uniform(rng, 512, 512), uniform(rng, 512, 512)
    def choice():
        results = {{n: run(n, A, B, device="cuda:0") for n in ("auto", "simt", "mma")}}
        return next(n for n in ("simt", "mma") if same_bits(results[n], results["auto"]))
    with emulated(MODELS[{capability}]):
        before = choice()
        _core._keep_proof("another GPU", 7, 5, 1e6, 1.0)
        other = choice()
        _core._keep_proof("a fake GPU", *{capability}, 1e6, 1.0)
        print(before, other, choice())
    """
    assert printed_over_fake_cuda(code) == "simt simt mma"
    assert chosen(monkeypatch, rng, capability) == {"simt"}


def test_auto_needs_no_proof_on_hopper(monkeypatch, rng):
    assert chosen(monkeypatch, rng, (9, 0)) & {"waves", "fused"}


@pytest.mark.fake_cuda
@pytest.mark.parametrize("K", [255, 64])
def test_auto_computes_short_sums_in_float32(rng, K):
    code = f"""
    import os
    from sgemm_kernels import _core
    from sgemm_kernels.proving.models import MODELS, emulated
    os.environ[{SETTING!r}] = "1"
    _core._keep_proof("a fake GPU", 8, 0, 1e8, 1.0)
    A, B = uniform(rng, 256, {K}), uniform(rng, {K}, 256)
    with emulated(MODELS[8, 0]):
        print(same_bits(*(run(n, A, B, device="cpu") for n in ("auto", "simt"))))
    """
    assert printed_over_fake_cuda(code) == "True"


@pytest.mark.parametrize("value", [0.0, -1.0, 1e9, float("nan")])
def test_impossible_constants_are_refused(value):
    for constants in ((value, 1.0), (1.0, value)):
        with pytest.raises(ValueError, match="rate and start must be"):
            _core._keep_proof("a GPU", 8, 0, *constants)


# ------------------------------------------------------------------ the estimate


def a_gpu(**changes):
    facts = dict.fromkeys(Device.__slots__) | {
        "model": "NVIDIA A100-SXM4-40GB",
        "compute_capability": (8, 0),
        "multiprocessors": 108,
        "clock_mhz": 1410,
        "memory_clock_mhz": 1215,
        "memory_bus_bits": 5120,
        "shared_bytes_per_multiprocessor": 164 << 10,
    }
    return Device(**facts | changes)


def estimates(gpu, rate, start, shape):
    constants = _plans.constants_on(gpu)
    return _core._plan_estimate(constants, 108, 1, 163 << 10, rate, start, *shape)


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_the_fit_finds_the_constants_of_made_up_times(slower):
    """Also on a GPU on which everything takes three times as long as the estimate of simt."""
    gpu, rate, start = a_gpu(), 170.0, 23_000.0
    cycles = {shape: estimates(gpu, rate, start, shape)[:2] for shape in SHAPES}
    times = tuple(
        Timed(*shape, *(slower * c / 1.41e9 for c in both)) for shape, both in cycles.items()
    )
    found = fit(gpu, times)
    assert found.rate == pytest.approx(rate, rel=1e-6)
    assert found.start == pytest.approx(start, rel=1e-6)


def test_the_fit_survives_odd_times():
    rng = np.random.default_rng(0)
    for _ in range(50):
        times = tuple(Timed(*shape, *rng.uniform(1e-6, 1e-2, 2)) for shape in SHAPES[:3])
        found = fit(a_gpu(), times)
        _core._keep_proof("made up", 1, 0, found.rate, found.start)
    with pytest.raises(ValueError, match="no product was timed"):
        fit(a_gpu(), ())


def test_smaller_tiles_take_more_waves():
    """With less shared memory, mma has smaller tiles; a large product takes about as long."""
    constants = _plans.constants_on(a_gpu())
    for M in (64, 4096):
        works = [
            _core._plan_estimate(constants, 108, 1, kib << 10, 200.0, 1e4, M, M, 4096)[2]
            for kib in (227, 163, 99)
        ]
        assert works[2] <= works[1] <= works[0]
        assert M == 64 or works[0] / works[2] < 1.2
    assert works[2] < works[0]


def test_constants_come_from_the_data_sheet():
    """An A100 has half the float32 units of an H100 in each multiprocessor."""
    fitted, gpu = _plans.constants_for(""), a_gpu()
    found = _plans.constants_on(gpu)
    assert _plans.source_of(gpu) == "from the GPU's data sheet"
    assert found["slots_128x128x16"] == 2 * fitted["slots_128x128x16"]
    per_cycle = 2 * 1215e6 * 5120 / 8 / 1410e6 / 108
    assert found["from_memory"] == pytest.approx(fitted["from_memory"] * per_cycle / 12.8)
    assert found["launch"] == fitted["launch"]
    ada = _plans.constants_on(a_gpu(compute_capability=(8, 9)))
    assert ada["slots_128x128x16"] == fitted["slots_128x128x16"]


@pytest.mark.parametrize(
    "changes",
    [
        {"compute_capability": (9, 0)},
        {"compute_capability": (7, 5)},
        {"compute_capability": None},
        {"clock_mhz": None},
        {"memory_bus_bits": None},
    ],
    ids=str,
)
def test_other_gpus_have_the_fitted_constants(changes):
    gpu = a_gpu(**changes)
    assert _plans.constants_on(gpu) == _plans.constants_for("")
    assert _plans.source_of(gpu) == "fitted to an H100"


def test_constants_fitted_here_come_first():
    gpu = a_gpu(model="A model of test_prove.py")
    own = {name: 1.25 * value for name, value in _plans.constants_for("").items()}
    _core._keep_plan_constants(gpu.model, own)
    assert _plans.constants_on(gpu) == own
    assert _plans.source_of(gpu) == "fitted on this machine"


# ------------------------------------------------------------------ the verdict


@pytest.fixture
def file(monkeypatch, tmp_path):
    monkeypatch.setenv("SGEMM_KERNELS_CACHE", str(tmp_path))
    return tmp_path / _proofs.FILE


# A compute capability that no other test's `auto` has: what is kept lasts as long as the process.
FACTS = {"compute_capability": [8, 7], "date": "2026-01-02", "rate": 200.0, "start": 1e4}


def test_a_verdict_is_bound_to_the_gpu_and_the_build(file):
    assert _proofs.keep("A100", FACTS) == file
    assert _proofs.known("A100", (8, 7)) == FACTS
    assert _proofs.known("A100", (8, 6)) is None
    assert _proofs.known("A30", (8, 7)) is None
    whole = file.read_text()
    for part in (_core._build_info()["csrc_hash"], __version__):
        file.write_text(whole.replace(part, "other", 1))
        assert _proofs.known("A100", (8, 7)) is None
    file.write_text(whole)
    _proofs.keep("A30", FACTS)
    assert _proofs.known("A100", (8, 7)) == FACTS
    _proofs.forget("A100")
    _proofs.forget("unknown")
    assert _proofs.known("A100", (8, 7)) is None
    assert _proofs.known("A30", (8, 7)) == FACTS


@pytest.mark.parametrize("text", ["", "\n", "[]", "8 7 1 1 2 A100\n", "\xff", "\0" * 100_000])
def test_a_damaged_file_is_no_verdict(file, text):
    file.write_bytes(text.encode("latin-1"))
    assert _proofs.known("A100", (8, 7)) is None
    _core._read_kept_proofs()
    _proofs.forget("A100")
    _proofs.keep("A100", FACTS)
    assert _proofs.known("A100", (8, 7)) == FACTS


@pytest.mark.parametrize(
    "line", ["", "A100", "8 7 x 1 2026 A100", "8 1 1 2026 A100", "8 x 1 1 1 A100"]
)
def test_a_damaged_line_is_ignored(file, line):
    _proofs.keep("A30", FACTS)
    build, facts = file.read_text().split("\n", 1)
    file.write_text(f"{build}\n{line}\n{facts}")
    _core._read_kept_proofs()
    assert _proofs.known("A100", (8, 7)) is None
    assert _proofs.known("A30", (8, 7)) == FACTS


def test_prove_needs_a_gpu(capsys):
    with pytest.raises(RuntimeError, match="tensor cores of an NVIDIA GPU, and cpu has none"):
        prove(device="cpu")
    with pytest.raises(ValueError, match="rounds is 0"):
        prove(device="cpu", rounds=0)
    assert main(["prove", "--device", "cpu"]) == 2
    assert "and cpu has none" in capsys.readouterr().err


PROVE = f"""
import os
from pathlib import Path
from sgemm_kernels import _core, _proofs
from sgemm_kernels.__main__ import main
from itertools import islice
from sgemm_kernels.proving import prove as proving, speed
from sgemm_kernels.proving.hard_cases import hard_cases
from sgemm_kernels.proving.models import MODELS
proving.ROUNDS = 1
proving.hard_cases = lambda device, model: islice(hard_cases(device, model), 2)
def time_shapes(gpu):
    # Measures, and makes up that mma is much faster: on the CPU device it is not.
    measured = speed.time_shapes(gpu, speed.SHAPES[:2])
    return tuple(speed.Timed(t.M, t.N, t.K, t.simt_s, 1e-3 * t.simt_s) for t in measured)
proving.time_shapes = time_shapes
def became(capability, products, bits):
    _core._set_cpu_tensor_cores(*capability, products, bits)
def choice():
    os.environ[{SETTING!r}] = "1"
    A, B = uniform(rng, 512, 512), uniform(rng, 512, 512)
    results = {{n: run(n, A, B, device="cuda:0") for n in ("auto", "simt", "mma")}}
    del os.environ[{SETTING!r}]
    return next(n for n in ("simt", "mma") if same_bits(results[n], results["auto"]))
"""


@pytest.mark.fake_cuda
@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9)])
def test_prove_on_a_gpu(tmp_path, capability):
    """Over the fake CUDA runtime, whose kernels run on the CPU device."""
    major, minor = map(str, capability)
    gpu = {"FAKE_CUDA_MAJOR": major, "FAKE_CUDA_MINOR": minor}
    gpu["SGEMM_KERNELS_CACHE"] = str(tmp_path)
    printed = printed_over_fake_cuda(
        PROVE
        + f"""
became({capability}, 8, 24)
before = choice()
proof = sgemm_kernels.prove(device="cuda:0", rounds=1)
proof.to_json({str(tmp_path / "gpu.json")!r})
print(before, proof.proven, proof.compute_capability, len(proof.times), choice())
print(proof)
""",
        **gpu,
    )
    first, rest = printed.split("\n", 1)
    assert first == f"simt True {capability} 2 mma"
    assert "infinities and NaN" in rest
    assert "Proven: auto uses the tensor cores of this GPU (mma)" in rest
    assert "Not verified:" in rest
    document = read_document(tmp_path / "gpu.json")
    assert document["proven"]
    assert document["model"]["products"] == 8
    later = PROVE + f"became({capability}, 8, 24)\nprint(choice())"
    assert printed_over_fake_cuda(later, **gpu) == "mma"
    elsewhere = gpu | {"FAKE_CUDA_MINOR": "7"}
    assert printed_over_fake_cuda(
        PROVE + "became((8, 7), 8, 24)\nprint(choice())", **elsewhere
    ) == ("simt")
    info = printed_over_fake_cuda("from sgemm_kernels.__main__ import main\nmain(['info'])", **gpu)
    assert "tensor cores: proven on 20" in info
    assert "estimates of simt: from the GPU's" in info


@pytest.mark.fake_cuda
def test_only_a_whole_verdict_is_used(tmp_path):
    """csrc/runtime/kept_proofs.c reads the file for Python and for C programs."""
    code = (
        PROVE
        + f"""
became((8, 0), 8, 24)
path = _proofs.keep("a fake GPU", {FACTS | {"rate": 1e6}})
build, facts = path.read_text().replace("8 7", "8 0").split("\\n", 1)
assert facts.startswith("8 0 1000000.0 10000.0 "), facts
def read(text):
    path.write_text(text)
    _core._read_kept_proofs()
    return choice()
for damaged in (facts, build[:-1] + "\\n" + facts, build + " 1\\n" + facts):
    assert read(damaged) == "simt", damaged
for part, other in (("8 0", "8 7"), ("8 0", "8"), ("000.0", "000,0"), ("1000000.0", "nan"),
                    ("10000.0", "1e9"), (" a fake GPU", "")):
    assert part in facts
    assert read(build + "\\n" + facts.replace(part, other, 1)) == "simt", (part, other)
path.unlink()
os.mkfifo(path)
_core._read_kept_proofs()  # must not wait for a writer
path.unlink()
path.mkdir()
_core._read_kept_proofs()
path.rmdir()
os.environ["SGEMM_KERNELS_CACHE"] = "/" + "x" * 5000
_core._read_kept_proofs()
print(choice())
for place in ("SGEMM_KERNELS_CACHE", "XDG_CACHE_HOME", "HOME"):
    os.environ.pop(place, None)
_core._read_kept_proofs()
folder = Path(os.environ["CACHES"])
folder.mkdir()
os.environ["HOME"] = str(folder)
path = folder / ".cache/sgemm_kernels/proofs.txt"
path.parent.mkdir(parents=True)
os.environ["XDG_CACHE_HOME"] = "relative"
print(choice(), read(build + "\\n9 9\\n" + facts))
"""
    )
    gpu = {"FAKE_CUDA_MAJOR": "8", "SGEMM_KERNELS_CACHE": str(tmp_path)}
    printed = printed_over_fake_cuda(code, **gpu, CACHES=str(tmp_path / "home"))
    assert printed.split() == ["simt", "simt", "mma"]


@pytest.mark.fake_cuda
def test_a_gpu_with_other_bits_is_not_proven(tmp_path):
    """An earlier verdict is removed."""
    gpu = {"FAKE_CUDA_MAJOR": "8", "SGEMM_KERNELS_CACHE": str(tmp_path)}
    printed = printed_over_fake_cuda(
        PROVE
        + f"""
_proofs.keep("a fake GPU", {FACTS | {"compute_capability": [8, 0]}})
became((8, 0), 16, 25)
print(main(["prove", "--device", "cuda:0", "--json", {str(tmp_path / "gpu.json")!r}]))
print(_proofs.known("a fake GPU", (8, 0)))
""",
        **gpu,
    )
    assert "NOT proven: its tensor cores differ from the model" in printed
    assert "First difference, operands 'normal': A = " in printed
    assert "agree with another model: 16 products at once, 25 bits" in printed
    assert printed.splitlines()[-2:] == ["1", "None"]
    assert not read_document(tmp_path / "gpu.json")["proven"]


@pytest.mark.fake_cuda
def test_an_unknown_generation_is_not_proven(tmp_path):
    gpu = {"FAKE_CUDA_MAJOR": "8", "FAKE_CUDA_MINOR": "7", "SGEMM_KERNELS_CACHE": str(tmp_path)}
    code = "proof = sgemm_kernels.prove(device='cuda:0')\nprint(repr(proof))\nprint(proof)"
    printed = printed_over_fake_cuda(code, **gpu)
    assert printed.startswith("<Proof of a fake GPU: NOT proven>")
    assert "there is no published model" in printed
    assert "8.0, 8.6, 8.9, 9.0, 10.0, 12.0" in printed


@pytest.mark.parametrize(
    "change",
    [
        {"proven": False},
        {"proof_schema": 0},
        {"compared": []},
        {"csrc_hash": ""},
        {"hard_cases": [{"worst_share": 1.5}]},
        {"compared": [{"results": 1, "differing": 1}]},
        {"device": None},
    ],
    ids=str,
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, change, experiment):
    accept = experiment("gpu_checks").accept
    path = tmp_path / "gpu.json"
    document = {
        "proof_schema": 1, "proven": True, "refusal": None, "device": "A100", "date": "2026",
        "compute_capability": [8, 0], "csrc_hash": "0123",
        "compared": [{"results": 1, "differing": 0}], "hard_cases": [{"worst_share": 0.5}],
    }  # fmt: skip
    path.write_text(json.dumps(document))
    assert read_document(path) == document
    taken = accept(path, tmp_path / "proofs")
    assert taken == tmp_path / "proofs" / "a100.json"
    assert read_document(taken) == document
    path.write_text(json.dumps(document | change))
    with pytest.raises(ValueError, match="contradicts itself"):
        accept(path, tmp_path / "others")
    assert not (tmp_path / "others").exists()
    for text in ("", "[]", "{}"):
        path.write_text(text)
        with pytest.raises(ValueError, match="is not a file of 'sgemm-kernels prove'"):
            read_document(path)
