"""The measured plans, and the model fitted to them. The times are made up."""

import ctypes
import json
import re
import subprocess
import types
from pathlib import Path

import numpy as np
import pytest

from sgemm_kernels import Measurement, Results, _plans
from sgemm_kernels.measuring.measurement import Accuracy, Protocol, Run
from sgemm_kernels.measuring.probe import find_nvcc

from .support import run_script

ROOT = Path(__file__).parent.parent
PLAN = ROOT / "csrc/gemm/plan"
RUN = Run("2026-01-02T03:04:05+00:00", "A GPU", "cuda", "0123", "0.1.0", Protocol("", "cold"))
MULTIPROCESSORS = 132
WRONG = "32x128x8"

# The functions of plan_times.cu without CUDA: code from the C compiler computes the products.
STAND_IN = """
#include "plan.h"

int keep_scratch(int device) { return device == 7; }
Status describe(int device, PlanDevice *found)
{
    *found = (PlanDevice){132, device == 8 ? 1 : 8, 227 * 1024, &plan_fitted};
    return status_ok();
}
int list_plans(const Sgemm *problem, const PlanDevice *device, Plan *plans)
{
    const PlanShape shape = plan_shape(problem);
    return plan_list(&shape, device, plans);
}
int choose(const Sgemm *problem, const PlanDevice *device, Plan *plan)
{
    *plan = plan_choose(problem, device);
    return plan_supports(plan, problem, device);
}
Status multiply(const Sgemm *p, int device, const Plan *plan)
{
    if (plan->transposed) return status_error(STATUS_DEVICE, "no transposes on %d", device);
    for (int64_t i = 0; i < p->C.rows; ++i)
        for (int64_t j = 0; j < p->C.cols; ++j) {
            float sum = 1000 * plan->kernel + 10000 * plan->splits;
            for (int64_t k = 0; k < p->A.cols; ++k)
                sum += p->A.data[i * p->A.row_stride + k * p->A.col_stride] *
                       p->B.data[k * p->B.row_stride + j * p->B.col_stride];
            p->C.data[i * p->C.row_stride + j] = sum * p->alpha;
        }
    return status_ok();
}
"""


@pytest.fixture
def plan_times(experiment):
    return experiment("plan_times")


@pytest.fixture
def model(experiment):
    return experiment("plan_model")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    (folder / "stand_in.c").write_text(STAND_IN)
    names = ("plan", "plan_cache", "plan_constants", "small_batch_plan")
    sources = [PLAN / f"{name}.c" for name in names]
    subprocess.run(
        ["cc", "-shared", "-fPIC", f"-I{PLAN}", folder / "stand_in.c", *sources,
         ROOT / "csrc/base/status.c", "-o", folder / "plans.so", "-lm"],
        check=True,
    )  # fmt: skip
    return folder / "plans.so"


def test_constants_that_a_plan_reads_do_not_change(library):
    """Another thread may store new constants for the same model at any time."""
    core = ctypes.CDLL(str(library))
    core.plan_constants.restype = ctypes.POINTER(ctypes.c_double)
    kept = [(ctypes.c_double * 200)(*[value] * 200) for value in (1.0, 2.0)]
    core.plan_keep(b"a GPU", kept[0])
    read = core.plan_constants(b"a GPU")
    core.plan_keep(b"a GPU", kept[1])
    assert read[0] == 1
    assert core.plan_constants(b"a GPU")[0] == 2
    assert core.plan_constants(b"another")[0] not in (1, 2)


@pytest.fixture(scope="module")
def ptx(tmp_path_factory):
    """The PTX of the entry points and of the kernels."""
    try:
        nvcc = find_nvcc()
    except FileNotFoundError:
        pytest.skip("there is no nvcc")
    to = tmp_path_factory.mktemp("ptx") / "plans.ptx"
    source = ROOT / "benchmarks/plan_times.cu"
    subprocess.run([nvcc, "--ptx", "-std=c++20", "-arch=compute_90", source, "-o", to], check=True)
    return to.read_text()


@pytest.fixture
def kernels(plan_times, library):
    return plan_times.Kernels(library, 0, "")


def exported(matrix):
    interface = {"shape": matrix.shape, "strides": matrix.strides}
    interface |= {"data": (matrix.ctypes.data, False)}
    return types.SimpleNamespace(__cuda_array_interface__=interface)


def chosen_by_c(model, kernels, problem):
    """plan_choose's plan, and whether plan_supports it."""
    plan = np.zeros((), model.PLAN)
    supported = kernels.library.choose(
        problem.ctypes.data_as(ctypes.c_void_p), ctypes.byref(kernels.limits),
        plan.ctypes.data_as(ctypes.c_void_p),
    )  # fmt: skip
    return plan, bool(supported)


class TestEntryPoints:
    @pytest.mark.parametrize(
        ("name", "dtype"), [("Matrix", "MATRIX"), ("Sgemm", "SGEMM"), ("Plan", "PLAN")]
    )
    def test_records_are_the_structures_of_the_headers(self, model, name, dtype, tmp_path):
        structure = getattr(model, dtype)
        printed = ", ".join(f"offsetof({name}, {field})" for field in structure.names)
        (tmp_path / "a.c").write_text(
            '#include <stddef.h>\n#include <stdio.h>\n#include "plan.h"\nint main(void)\n{\n'
            f"    const size_t found[] = {{sizeof({name}), {printed}}};\n"
            f"    for (int i = 0; i <= {len(structure.names)}; ++i)"
            ' printf("%zu ", found[i]);\n}\n'
        )
        program = tmp_path / "a"
        subprocess.run(["cc", f"-I{PLAN}", tmp_path / "a.c", "-o", program], check=True)
        found = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        offsets = [structure.fields[field][1] for field in structure.names]
        assert [int(word) for word in found.split()] == [structure.itemsize, *offsets]

    def test_the_named_plan_computes_the_product(self, plan_times, model, kernels, rng):
        A = rng.integers(-9, 9, (3, 5)).astype(np.float32)
        B = np.asfortranarray(rng.integers(-9, 9, (5, 4)).astype(np.float32))
        padded = np.zeros((3, 8), np.float32)
        choice = plan_times.Choice(model.KERNELS[2], 3, False, False, 0)
        kernels.product(*map(exported, (A, B, padded[:, :4])), choice=choice)
        assert (padded[:, :4] == A @ B + 32000).all()
        assert (padded[:, 4:] == 0).all()

    @pytest.mark.nvcc
    def test_nvcc_compiles_the_source(self, ptx):
        """The source includes the package's kernels and provides what they need."""
        assert "tiled" in ptx

    @pytest.mark.nvcc
    def test_float4s_are_stored_as_float4s(self, ptx):
        """If C is aligned, a thread stores all its results this way. nvcc splits some float4
        assignments."""
        kernels = re.findall(
            r"\.entry \w+?tiledI\w*?8GeometryI((?:Li\d+E)+)(.*?)(?=\.entry |\Z)", ptx, re.DOTALL
        )
        assert kernels
        for figures, text in kernels:
            *_, TM, TN, slices = map(int, re.findall(r"\d+", figures))
            assert slices == 1
            assert text.count("st.global.v4.f32") == TM * TN // 4, figures

    def test_a_refused_plan_is_reported(self, plan_times, kernels):
        one = np.ones((1, 1), np.float32)
        refused = plan_times.Choice("dot", 1, False, True, 0)
        with pytest.raises(plan_times.DeviceError, match=f"{refused.name}: no transposes"):
            kernels.product(*map(exported, (one, one, one)), choice=refused)
        with pytest.raises(plan_times.DeviceError, match="memory pools"):
            plan_times.Kernels(Path(kernels.library._name), 7, "")

    def test_the_planner_chooses_the_least_estimate_of_its_plans(self, plan_times, model, kernels):
        """At each shape of the fit, all plans differ and the launcher supports the chosen one."""
        seen = set()
        for case in plan_times.to_fit():
            (M, N, K), layout = case
            every = kernels.plans(case)
            assert len({plan_times.choice_of(plan) for plan in every}) == len(every)
            for _ in range(2):  # the second time from the cache
                chosen, supported = chosen_by_c(model, kernels, model.problem(M, N, K, layout))
                assert chosen["cycles"] == every["cycles"][0]
                assert supported
            seen.add(int(chosen["kernel"]))
        assert len(seen) > len(model.KERNELS) / 2

    def test_plans_that_differ_in_alignment_or_beta_alone_do_not_share_a_place_in_the_cache(
        self, model, kernels
    ):
        own = model.problem(4096, 4096, 4096, "NN")
        aligned, _ = chosen_by_c(model, kernels, own)
        odd = own.copy()
        odd["A"]["row_stride"] = odd["B"]["row_stride"] = 4097
        other, _ = chosen_by_c(model, kernels, odd)
        assert other["cycles"] > aligned["cycles"]
        read = own.copy()
        read["beta"] = 1
        small = model.problem(64, 64, 512, "NN")
        small_read = small.copy()
        small_read["beta"] = 1
        first, second = (chosen_by_c(model, kernels, p)[0]["cycles"] for p in (small, small_read))
        assert second >= first
        assert chosen_by_c(model, kernels, own)[0] == aligned

    def test_without_clusters_no_plan_uses_them(self, plan_times, kernels):
        """With clusters, some plans use them."""
        without = plan_times.Kernels(Path(kernels.library._name), 8, "")
        found = {True: 0, False: 0}
        for case in plan_times.to_fit():
            for these in (kernels, without):
                plans = these.plans(case)
                assert these is kernels or not plans["cluster"].any()
                found[these is kernels] += bool(plans["cluster"][0])
        assert found[True] > 10
        assert found[False] == 0

    def test_with_little_shared_memory_large_tiles_are_left_out(self, plan_times, kernels):
        kernels.limits.shared_bytes = 64 * 1024
        names = {plan_times.choice_of(plan).kernel for plan in kernels.plans(((512,) * 3, "NN"))}
        assert "32x32x32" in names
        assert "32x128x32" not in names

    @pytest.mark.parametrize(
        ("shape", "layout", "gemv"),
        [((1, 128256, 4096), "NN", True), ((1, 128256, 4096), "NT", True),
         ((10**6, 1, 1000), "NN", True), ((2, 15686, 286), "NT", True),
         ((206, 3, 6496), "NN", True), ((16, 4096, 4096), "NN", False)],
    )  # fmt: skip
    def test_few_rows_are_matrix_vector_products(self, plan_times, kernels, shape, layout, gemv):
        chosen = plan_times.choice_of(kernels.plans((shape, layout))[0])
        assert (chosen.kernel == "gemv") == gemv

    def test_slow_plans_are_left_out(self, plan_times, kernels):
        """One tile and a long K: a plan that does not split K uses one multiprocessor."""
        every = kernels.plans(((128, 128, 65536), "NN"))
        kept = plan_times.worth_timing(every)
        assert kept[0] == plan_times.choice_of(every[0])
        assert 3 < len(kept) == len(set(kept)) < len(every)
        assert all(choice.splits > 1 or choice.kernel == "streamk" for choice in kept)


@pytest.fixture
def c_model(model):
    return model.Model()


@pytest.fixture
def true(c_model):
    """Constants that differ from the package's."""
    factors = np.exp(np.linspace(-0.2, 0.2, len(c_model.names)))
    own = _plans.constants_for("")
    return {name: own[name] * f for name, f in zip(c_model.names, factors, strict=True)}


@pytest.fixture
def measured(plan_times, model, kernels, c_model, true):
    """Times at the shapes of the fit, computed by the model with the constants `true`."""
    rows = [
        plan_times.row_of(case, choice) | {"median_s": 1.0}
        for case in plan_times.to_fit()
        for choice in plan_times.worth_timing(kernels.plans(case))
    ]
    m = model.from_rows(rows, MULTIPROCESSORS, 1.755e9)
    m.seconds[:] = c_model.seconds(true, m)
    return m


class TestTheModel:
    def test_is_the_model_of_the_c_code(self, plan_times, model, kernels, c_model):
        for case in plan_times.to_fit()[:40]:
            plans = kernels.plans(case)
            rows = [plan_times.row_of(case, plan_times.choice_of(plan)) for plan in plans]
            m = model.from_rows([row | {"median_s": 1.0} for row in rows], MULTIPROCESSORS, 1.0)
            found = c_model.seconds(_plans.constants_for(""), m)
            assert found == pytest.approx(plans["cycles"], rel=1e-12)

    def test_the_constants_have_the_packages_names(self, c_model):
        assert c_model.names == list(_plans.constants_for(""))
        assert len(c_model.names) <= 30

    def test_saved_measurements_load_again(self, model, measured, tmp_path):
        layouts = []
        for own in measured.problems:
            by = [own[name]["col_stride"] == 1 for name in "AB"]
            layouts.append("".join("N" if rows else "T" for rows in by))
        measured.cublas[:] = 1e-4
        model.save(tmp_path / "a.npz", measured, layouts)
        found = model.load(tmp_path / "a.npz")
        assert found.seconds == pytest.approx(measured.seconds, rel=1e-3)
        assert (found.of == measured.of).all()
        assert (found.plans == measured.plans).all()
        assert (found.multiprocessors, found.clock_hz) == (MULTIPROCESSORS, 1.755e9)

    def test_the_packages_constants_choose_well_among_the_measured_plans(self, model, c_model):
        """On an H100: 1.3 % slower than the best plan, and rarely below 0.85 of cuBLAS's speed."""
        m = model.load(model.DATA)
        found = model.gaps(_plans.constants_for(""), m, c_model)
        assert np.log(found).mean() < 0.014
        speed = m.cublas / m.best / found
        assert (speed < 0.9).mean() < 0.01
        assert (speed < 0.85).mean() < 0.002
        assert model.DATA.stat().st_size < 200_000

    def test_the_fit_comes_near_the_times(self, model, c_model, measured, true):
        pytest.importorskip("scipy")
        own = _plans.constants_for("")
        fitted = model.fit(measured, own, c_model)
        before, after = (
            np.log(model.gaps(constants, measured, c_model)).mean() for constants in (own, fitted)
        )
        assert after < 0.002 < before
        off = np.abs(np.log(c_model.seconds(fitted, measured) / measured.seconds))
        assert np.median(off) < 0.02

    def test_the_gap_is_computed_on_shapes_outside_the_fit(
        self, model, c_model, measured, monkeypatch
    ):
        seen = []
        own = _plans.constants_for("")

        def spy(m, start, of):
            seen.append(np.unique(m.seconds))
            return start

        monkeypatch.setattr(model, "fit", spy)
        found = model.gaps_unseen(measured, own, c_model)
        assert found == pytest.approx(model.gaps(own, measured, c_model))
        assert len(seen) == model.FOLDS
        for fold, times in enumerate(seen):
            others = measured.of % model.FOLDS != fold
            assert np.isin(measured.seconds[others], times).all()
            assert not np.isin(measured.seconds[~others], times).all()


def library_of(unavailable):
    return types.SimpleNamespace(name="cublas", unavailable=unavailable)


class TestTheCommand:
    @pytest.fixture
    def on_a_gpu(self, plan_times, model, c_model, library, true, monkeypatch):
        """Each plan takes the model's time with `true`; the plans of one kernel are wrong."""
        pytest.importorskip("scipy")

        def measure_briefly(names, shape, layout, *, device, seconds):
            assert len(names) <= 64
            rows = []
            for name in names:
                if isinstance(name, str):
                    taken = {"simt": 1e-3, "cublas": 2e-3}[name]
                    rows.append(Measurement(RUN, name, *shape, Accuracy(0, 0.5, 1),
                                            samples_s=(taken,) * 5, layout=layout))  # fmt: skip
                    continue
                label, competitor = name
                choice = competitor.keywords["choice"]
                assert choice.name == label
                row = plan_times.row_of((shape, layout), choice) | {"median_s": 1.0}
                (time,) = c_model.seconds(true, model.from_rows([row], MULTIPROCESSORS, 1.755e9))
                wrong = choice.kernel == WRONG
                rows.append(
                    Measurement(RUN, label, *shape, Accuracy(0, 2.0 if wrong else 0.5, 1),
                                samples_s=() if wrong else (float(time),) * 5, layout=layout)
                )  # fmt: skip
            return Results(RUN, tuple(rows))

        device = types.SimpleNamespace(
            name="cuda:0", model="A GPU", driver="13.0", multiprocessors=MULTIPROCESSORS,
            clock_mhz=1755,
        )  # fmt: skip
        monkeypatch.setattr(plan_times, "find_gpu", lambda _: device)
        monkeypatch.setattr(plan_times, "architecture", lambda: "sm_90a")
        monkeypatch.setattr(plan_times, "build", lambda target: library)
        monkeypatch.setattr(plan_times, "measure_briefly", measure_briefly)
        monkeypatch.setattr(plan_times, "variants", lambda: [library_of(None)])
        cases = plan_times.to_fit()[:60]
        monkeypatch.setattr(plan_times, "to_fit", lambda: cases)
        return plan_times

    def test_writes_each_plan_and_prints_the_fit(self, on_a_gpu, monkeypatch, tmp_path, capsys):
        path = tmp_path / "plan_times.json"
        assert run_script(on_a_gpu, monkeypatch, "-o", path) == 1, "some plans were wrong"
        document = json.loads(path.read_text())
        wrong = [row for row in document["rows"] if not row["right"]]
        assert {row["kernel"] for row in wrong} == {WRONG}
        assert not any("median_s" in row for row in wrong)
        cases = {((row["M"], row["N"], row["K"]), row["layout"]) for row in document["rows"]}
        assert cases == set(on_a_gpu.to_fit())
        assert sum(row["chosen"] for row in document["rows"]) == len(cases)
        out = capsys.readouterr().out
        assert "from_memory" in out
        assert "unseen by the fit" in out

    def test_the_fit_is_kept_for_the_model(self, on_a_gpu, monkeypatch, tmp_path, capsys):
        """For later processes; the constants of other models stay."""
        monkeypatch.setenv("SGEMM_KERNELS_CACHE", str(tmp_path / "cache"))
        _plans.keep("Another", _plans.constants_for(""))
        run_script(on_a_gpu, monkeypatch, "-o", tmp_path / "plan_times.json", "--keep")
        path = tmp_path / "cache/plans.json"
        assert str(path) in capsys.readouterr().out
        models = json.loads(path.read_text())["models"]
        assert models["Another"] == _plans.constants_for("")
        assert models["A GPU"].keys() == models["Another"].keys()
        assert models["A GPU"] != models["Another"]

    def test_plans_are_timed_without_cublas(self, on_a_gpu, monkeypatch, tmp_path):
        monkeypatch.setattr(on_a_gpu, "variants", lambda: [library_of("no libcublas")])
        path = tmp_path / "plan_times.json"
        assert run_script(on_a_gpu, monkeypatch, "-o", path) == 1
        rows = json.loads(path.read_text())["rows"]
        assert {row["cublas_median_s"] for row in rows} == {None}
        assert {row["simt_median_s"] for row in rows} == {1e-3}

    def test_a_shape_with_a_plan_that_cannot_launch_is_left_out(
        self, on_a_gpu, kernels, monkeypatch, capsys
    ):
        measure = on_a_gpu.measure_briefly
        cases = [case for case in on_a_gpu.to_fit() if min(case[0][:2]) > 1][:3]

        def fails(names, shape, *others, **options):
            if shape == cases[1][0]:
                raise on_a_gpu.DeviceError("32x32x32, K in 1: too many resources")
            return measure(names, shape, *others, **options)

        monkeypatch.setattr(on_a_gpu, "measure_briefly", fails)
        rows = on_a_gpu.measured(cases, kernels, "cuda:0", 100)
        timed = {((row["M"], row["N"], row["K"]), row["layout"]) for row in rows}
        assert timed == {cases[0], cases[2]}
        said = f"{on_a_gpu.size_text(*cases[1])} is left out: 32x32x32, K in 1: too many resources"
        assert said in capsys.readouterr().err

    def test_nothing_is_written_if_no_plan_was_timed(self, on_a_gpu, monkeypatch, tmp_path, capsys):
        path = tmp_path / "plan_times.json"
        assert run_script(on_a_gpu, monkeypatch, "-o", path, "--seconds", 0) == 2
        assert "plan_times.py: no plan was timed" in capsys.readouterr().err
        assert not path.exists()

    def test_compiling_needs_no_gpu(self, plan_times, library, monkeypatch, capsys):
        asked = []
        monkeypatch.setattr(plan_times, "build", lambda of: asked.append(of) or library)
        assert run_script(plan_times, monkeypatch, "--compile", "sm_90a") == 0
        assert asked == ["sm_90a"]
        assert str(library) in capsys.readouterr().out
