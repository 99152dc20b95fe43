"""What `measure` measures, when it refuses, and what happens to the results. The numbers are made
up."""

import contextlib
import csv
import dataclasses
import io
import itertools
import math
import re
import runpy
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import Device, Measurement, Results, _core, recorded_file
from sgemm_kernels.__main__ import main
from sgemm_kernels.measuring import devices, run_facts, telemetry
from sgemm_kernels.measuring import measure as measure_module
from sgemm_kernels.measuring.compare import (
    FASTER,
    SAME,
    SLOWER,
    UNSURE,
    WRONG,
    NotComparableError,
    judge,
)
from sgemm_kernels.measuring.devices import find_device, runnable
from sgemm_kernels.measuring.measure import measure
from sgemm_kernels.measuring.measurement import (
    CPU_WARNING,
    NORMAL,
    TF32,
    UNIFORM,
    Accuracy,
    Protocol,
    Run,
    median_interval,
)
from sgemm_kernels.measuring.operands import MOST_SETS, operand_sets
from sgemm_kernels.measuring.probe import peaks
from sgemm_kernels.measuring.sampling import MOST_SAMPLES, Sampling
from sgemm_kernels.measuring.shapes import LAYOUTS
from sgemm_kernels.measuring.telemetry import Telemetry
from sgemm_kernels.measuring.truth import ROWS_CHECKED, TF32_ROUNDING, Truth

from .support import (
    OVER_HIP,
    printed_by,
    uniform,
    with_header,
)

REFERENCE = _core._REFERENCE
QUICK = {"device": "cpu", "seconds": 0.05}
RUN = Run(
    date="2026-01-02T03:04:05+00:00",
    device="A GPU",
    kind="cuda",
    csrc_hash="0123",
    version="0.1.0",
    protocol=Protocol("CUDA events", "cold"),
    ffma_gflops=1000.0,
)
RIGHT, BAD = Accuracy(1e-7, 0.1, 8), Accuracy(1.0, 3.0, 8)


def row(samples, variant="vec4", shape=(100, 200, 300), error=RIGHT, run=RUN, **fields):
    return Measurement(run, variant, *shape, error, samples_s=tuple(samples), **fields)


class TestOnTheCPU:
    def test_a_measurement_keeps_every_sample_and_warns_of_the_cpu(self):
        measured = measure("tile2d", (9, 17, 33), **QUICK)["tile2d", (9, 17, 33)]
        assert (measured.variant, measured.shape) == ("tile2d", (9, 17, 33))
        assert measured.median_s == np.median(measured.samples_s) > 0
        assert measured.call_median_s == measured.median_s
        assert measured.error.right
        assert measured.error.rows == 9
        assert (measured.vs_cublas, measured.share_of_peak) == (None, None)
        assert measured.run.protocol == Protocol("host clock", "uncontrolled")
        assert CPU_WARNING in repr(measured)
        assert len(repr(measured).splitlines()) == 1
        assert CPU_WARNING in measured._repr_html_()

    def test_operands_are_uniform_or_normal_or_from_a_function(self):
        seen = []

        def keep(A, B, out):
            seen.append((A, B))
            np.matmul(A, B, out=out)

        def ones(rng, shape):
            M, N, K = shape
            return np.ones((M, K), np.float32), np.ones((K, N), np.float32)

        chosen = ("uniform", "normal", ("all ones", ones))
        runs = [measure(("it", keep), (300, 200, 100), data=data, **QUICK).run for data in chosen]
        words = [run.protocol.data for run in runs]
        assert words == ["uniform [-1, 1]", "standard normal", "all ones"]
        firsts = {id(A): (A, B) for A, B in seen}.values()
        (of_uniform, of_normal, of_ones) = [
            np.concatenate([A.ravel(), B.ravel()]) for A, B in firsts
        ]
        assert -1 <= of_uniform.min() < -0.99 < 0.99 < of_uniform.max() < 1
        assert abs(of_normal.std() - 1) < 0.02
        assert np.abs(of_normal).max() > 3
        assert (of_ones == 1).all()
        with pytest.raises(ValueError, match="use one of uniform, normal, or a pair"):
            measure("tile2d", 8, data="exponential", **QUICK)

    @pytest.mark.parametrize(
        ("A", "B", "fact"),
        [
            (np.ones((4, 4), np.float32), np.ones((6, 5), np.float32), r"A with shape \(4, 4\)"),
            (np.ones((4, 6), np.float32), np.ones((6, 5)), "B with shape .* and dtype float64"),
            (np.ones((4, 6), np.float32), [[1.0] * 5] * 6, "B with shape None and dtype list"),
        ],
    )
    def test_a_function_that_makes_wrong_operands_is_refused(self, A, B, fact):
        """With operands of another size, all figures would be wrong."""
        with pytest.raises(ValueError, match=f"data made {fact}"):
            measure("naive", (4, 5, 6), data=("mine", lambda rng, shape: (A, B)), **QUICK)

    def test_batches(self, tmp_path):
        """A batch of 1 is one product."""
        sizes, layouts = [(5, 3, 2, 7), (1, 3, 2, 7), (2, 2, 2, 2)], ("NN", "TT")
        seen = []

        def competitor(A, B, out):
            seen.append((A.shape, B.shape, out.shape))
            np.matmul(A, B, out=out)

        results = measure(["naive", ("NumPy", competitor)], sizes, layouts=layouts, **QUICK)
        assert results.shapes == ((5, 3, 2, 7), (3, 2, 7), (2, 2, 2, 2))
        assert seen[0] == ((5, 3, 7), (5, 7, 2), (5, 3, 2))
        assert all(row.error.right for row in results.rows)
        row = results["naive", (5, 3, 2, 7), "TT"]
        assert (row.batch, row.M, row.N, row.K) == (5, 3, 2, 7)
        assert row.gflops == pytest.approx(2e-9 * 5 * 3 * 2 * 7 / row.median_s)
        assert row.error.rows == 15
        sizes = ("5x3x2x7", "3x2x7", "2x2x2x2")
        header = str(results).splitlines()[2]
        assert re.split("  +", header)[1:] == [f"{s}{t}" for s in sizes for t in ("", " TT")]
        assert "| 5x3x2x7 |" in results.to_markdown()
        results.to_json(tmp_path / "r.json")
        assert Results.from_json(tmp_path / "r.json") == results
        results.to_csv(tmp_path / "r.csv")
        with (tmp_path / "r.csv").open(newline="") as file:
            assert {line["batch"] for line in csv.DictReader(file)} == {"1", "2", "5"}

    @pytest.mark.parametrize("place", [(0, 0, 0), (3, 2, 1)])
    def test_a_wrong_element_of_a_batch_is_found(self, place):
        def nearly(A, B, out):
            np.matmul(A, B, out=out)
            out[place] += 0.01

        (row,) = measure(("nearly", nearly), (4, 3, 2, 7), **QUICK).rows
        assert not row.error.right
        assert row.gflops is None

    @pytest.mark.parametrize("place", [(0, 0, 0), (2, 95, 1)])
    def test_a_wrong_element_of_a_batch_of_large_matrices_is_found(self, place):
        """Only some rows are compared element by element."""

        def product(change):
            def f(A, B, out):
                np.matmul(A, B, out=out)
                out[place] += change

            return f

        right, wrong = measure(
            [("right", product(0)), ("wrong", product(3))], (3, 96, 2, 2100), **QUICK
        ).rows
        assert right.error.right
        assert not wrong.error.right
        assert right.error.vector_share is not None

    def test_zeros_are_right_with_error_0(self):
        """An all-zero product must not cause a division by zero."""
        zeros = np.zeros((4, 4), np.float32), np.zeros((4, 4), np.float32)
        (found,) = measure("naive", 4, data=("zeros", lambda rng, shape: zeros), **QUICK).rows
        assert found.error.right
        assert (found.error.relative, found.error.worst_share) == (0, 0)

    def test_a_competitor_cannot_change_the_operands_of_others(self):
        made = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)

        def greedy(A, B, out):
            np.matmul(A, B, out=out)
            A[:] = 0

        with pytest.raises(ValueError, match="read-only"):
            measure([("greedy", greedy), "naive"], 4, **QUICK)
        measure("naive", 4, data=("mine", lambda rng, shape: made), **QUICK)
        assert all(matrix.flags.writeable for matrix in made), "those who made them may go on"

    @pytest.mark.parametrize("far", ["a competitor", "data"])
    def test_python_functions_are_refused_for_unsanitized_kernels(self, far, custom_cache):
        """Until it has passed sanitize(), a custom kernel runs in a child process, which cannot
        call functions of this process."""
        mine = sgemm_kernels.kernel(with_header("naive"), name="mine")
        function = {"a competitor": [("it", lambda A, B, out: None)], "data": []}[far]
        data = ("mine", lambda rng, shape: None) if far == "data" else "uniform"
        with pytest.raises(TypeError, match=r"until mine has passed check\(\) and sanitize\(\)"):
            measure([mine, *function], 4, data=data, **QUICK)

    def test_a_run_has_a_row_for_each_variant_and_size(self):
        measured = measure(["naive", "vec4", "naive"], [5, (3, 4, 5), (5, 5, 5)], **QUICK)
        assert measured.variants == ("naive", "vec4")
        assert measured.shapes == ((5, 5, 5), (3, 4, 5))
        assert len(measured.rows) == 4
        for text in (repr(measured), measured._repr_html_()):
            assert CPU_WARNING in text
            assert "cuBLAS" not in text

    @pytest.mark.parametrize(
        ("arguments", "options", "error", "fact"),
        [
            ((["niave"], [4]), {}, ValueError, "'naive'"),
            ((["naive"], [0]), {}, ValueError, "at least 1$"),
            (([], [4]), {}, ValueError, "at least one variant"),
            ((["naive"], []), {}, ValueError, "size and layout"),
            ((["naive"], [4]), {"layouts": ["NN", "NF"]}, ValueError, "'NF'"),
            ((["naive"], [4]), {"layouts": []}, ValueError, "size and layout"),
            ((["naive"], [4]), {"cache": "hot"}, ValueError, "'hot'"),
            ((["naive"], [4]), {"seconds": math.nan}, ValueError, "seconds > 0"),
            ((["naive"], [4]), {"device": "gpu"}, ValueError, "'gpu'"),
            (
                (["naive"], [4]),
                {"device": f"{_core._GPU_KIND}:99"},
                sgemm_kernels.DeviceError,
                ":99",
            ),
            (([REFERENCE], [4]), {}, sgemm_kernels.UnsupportedVariantError, REFERENCE),
        ],
    )
    def test_refusals(self, arguments, options, error, fact):
        with pytest.raises(error, match=fact):
            measure(*arguments, **{**QUICK, **options})

    def test_several_devices_are_refused(self, monkeypatch):
        monkeypatch.setattr(_core, "run", lambda *_, **__: None)  # as on a machine with GPUs
        with pytest.raises(ValueError, match="'cuda:all' means several devices"):
            measure("naive", 4, **QUICK | {"device": "cuda:all"})

    @pytest.mark.parametrize(
        "sizes",
        [(3, 4, 5), [(3, 4, 5)], np.int64(3), [np.int32(3)], np.array([[3, 4, 5]]), range(3, 4)],
        ids=repr,
    )
    def test_a_name_and_a_size_need_no_list(self, sizes):
        (row,) = measure("naive", sizes, **QUICK).rows
        assert row.shape in {(3, 4, 5), (3, 3, 3)}
        assert {type(number) for number in row.shape} == {int}

    def test_a_tuple_of_three_is_one_size_and_a_list_is_several(self):
        assert measure("naive", (3, 4, 5), **QUICK).shapes == ((3, 4, 5),)
        assert measure("naive", [3, 4, 5], **QUICK).shapes == ((3,) * 3, (4,) * 3, (5,) * 3)

    @pytest.mark.parametrize(
        ("sizes", "error"),
        [
            ((3, 4), ValueError),
            ([(3, 4)], ValueError),
            ((3, 4, 5, 6, 7), ValueError),
            ("64", TypeError),
            (["64"], TypeError),
            (4.0, TypeError),
            (True, TypeError),
            ([4, True], TypeError),
        ],
        ids=repr,
    )
    def test_invalid_sizes_are_refused(self, sizes, error):
        with pytest.raises(error, match=r"invalid size .*: use N, \(M, N, K\) or"):
            measure("naive", sizes, **QUICK)

    def test_every_layout_gets_the_same_values(self, monkeypatch):
        honest = _core._run_measured
        seen = {}

        def watch(name, A, B, **options):
            if A.shape == (3, 5):
                lies = "".join("N" if X.flags.c_contiguous else "T" for X in (A, B))
                seen.setdefault(lies, []).append((A, B))
            return honest(name, A, B, **options)

        monkeypatch.setattr(_core, "_run_measured", watch)
        shapes = [(3, 4, 5), (3, 6, 5)]
        measured = measure(["naive", "vec4"], shapes, layouts=LAYOUTS, **QUICK)
        assert tuple(seen) == LAYOUTS
        assert all(np.array_equal(A, seen["NN"][0][0]) for (A, _), *_ in seen.values())
        assert measured.cases == tuple(itertools.product(shapes, LAYOUTS))
        assert measured.find("vec4", (3, 6, 5), "TN").layout == "TN"
        assert measured.find("vec4", (3, 6, 5)).layout == "NN"
        header = repr(measured).splitlines()[2].split()
        assert header[2:6] == ["3x4x5", "3x4x5", "NT", "3x4x5"]
        (row,) = measure(["naive"], [(3, 4, 5)], layouts=["TT"], **QUICK).rows
        assert repr(row).startswith("<naive 3x4x5 TT on")
        assert measure("naive", (3, 4, 5), layouts="NT", **QUICK).rows[0].layout == "NT"

    def test_a_wrong_variant_gets_no_time(self, monkeypatch):
        honest = _core._run_measured

        def nearly(name, A, B, **options):
            result = honest(name, A, B, **options)
            if name == "vec4":
                result[-1, -1] += 1
            return result

        monkeypatch.setattr(_core, "_run_measured", nearly)
        measured = measure(["naive", "vec4"], [8], **QUICK)
        good, wrong = measured.rows
        assert good.median_s > 0
        assert not wrong.error.right
        assert (wrong.samples_s, wrong.median_s, wrong.gflops, wrong.iqr_s) == (
            (),
            None,
            None,
            None,
        )
        assert "WRONG" in repr(wrong)
        assert any(line.split()[:2] == ["vec4", "wrong"] for line in repr(measured).splitlines())

    def test_a_competitor_is_checked_and_timed_by_the_same_rules(self):
        seen = []

        def numpy(A, B, out):
            seen.append(out.dtype)
            np.matmul(A, B, out=out)

        def lazy(A, B, out):
            out[1:] = (A @ B)[1:]

        contenders = ["naive", ("NumPy", numpy), ("lazy", lazy)]
        results = measure(contenders, [(3, 4, 5), 6], layouts=["NN", "TN"], **QUICK)
        assert results.variants == ("naive", "NumPy", "lazy")
        assert len(results.rows) == 12
        for row in results.rows:
            assert row.error.right == (row.variant != "lazy")
            assert bool(row.samples_s) == row.error.right
        assert set(seen) == {np.dtype(np.float32)}
        assert measure(("NumPy", numpy), 4, **QUICK)["NumPy", 4].median_s > 0

    @pytest.mark.parametrize(
        ("names", "error", "fact"),
        [
            ([("naive", print)], ValueError, "the name 'naive' is already in use"),
            ([("x", print), ("x", print)], ValueError, "the name 'x' is already in use"),
            ([("x", 3)], TypeError, "a pair \\(name, f\\)"),
            ([3], TypeError, "cannot measure 3"),
            (3, TypeError, "cannot measure 3"),
            (print, TypeError, "pass a variant's name"),
            ([print], TypeError, "pass a variant's name"),
        ],
    )
    def test_invalid_competitors_are_refused(self, names, error, fact):
        with pytest.raises(error, match=fact):
            measure(names, 4, **QUICK)

    def test_an_interrupt_keeps_the_rows_measured_so_far(self, monkeypatch):
        calls = itertools.count()
        honest = _core._run_measured

        def interrupted(name, A, B, **options):
            if A.shape == (6, 6) and next(calls) == 4:
                raise KeyboardInterrupt
            return honest(name, A, B, **options)

        monkeypatch.setattr(_core, "_run_measured", interrupted)
        measured = measure(["naive", "vec4"], [5, 6, 7], **QUICK)
        assert measured.interrupted
        assert measured.shapes[0] == (5, 5, 5)
        assert (7, 7, 7) not in measured.shapes
        assert all(row.samples_s for row in measured.rows)
        assert "interrupted" in repr(measured)

    def test_an_interrupt_before_the_first_row_is_raised(self, monkeypatch):
        def interrupted(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(measure_module, "Truth", interrupted)
        with pytest.raises(KeyboardInterrupt):
            measure("naive", 4, **QUICK)


RUNGS = [
    dataclasses.replace(variant, devices=("cpu", "cuda"))
    for variant in sgemm_kernels.variants()
    if variant.name in ("naive", "vec4")
]
RUNGS.append(types.SimpleNamespace(name=REFERENCE, file=None, devices=("cuda",), unavailable=None))
LADDER = Path(__file__).parent.parent / "benchmarks" / "ladder.py"
SECONDS = {"naive": 8e-3, "vec4": 2e-3, REFERENCE: 1e-3, TF32: 2e-4}
COMPETITOR_S = 1.1e-3


def cut_to_tf32(X):
    """X with 10 of its 23 fraction bits kept."""
    return (X.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


class TestOnAPretendedGPU:
    """The GPU path, computed by the CPU device with made-up times."""

    @pytest.fixture
    def launched(self, monkeypatch):
        gpu = Device("cuda:0", "cuda", "A GPU", True, None, (9, 0), 1, True, *(None,) * 3, 2**30,
                     1000, *(None,) * 3, "0000:3B:00.0")  # fmt: skip
        honest = _core.run
        launched = []

        def run(name, A, B, device):
            assert device == "cuda:0"
            if name == TF32:
                A, B = cut_to_tf32(A), cut_to_tf32(B)
            return honest("naive" if name in (REFERENCE, TF32) else name, A, B, device="cpu")

        def measure(names, A, B, index, sets, rounds, C=None):
            assert index == 0
            launched.append((names, sets))
            if C is not None:  # a competitor, which is checked
                C[:] = A @ B
            seconds = (SECONDS[name] if isinstance(name, str) else COMPETITOR_S for name in names)
            return tuple([each] * rounds for each in seconds)

        monkeypatch.setattr(_core, "_run_measured", run)
        monkeypatch.setattr(_core, "_measure", measure)
        for module in (measure_module, devices):
            monkeypatch.setattr(module, "find_device", lambda _: gpu)
        return launched

    def test_variants_alternate_with_cublas(self, launched):
        measured = measure(["naive", "vec4", REFERENCE], [10])
        assert REFERENCE in launched[-1][0]
        by_name = {row.variant: row for row in measured.rows}
        assert by_name["naive"].vs_cublas == pytest.approx(1 / 8)
        assert by_name[REFERENCE].vs_cublas == 1
        assert measured.over_previous(by_name["vec4"]) is None, "the rung before was not measured"
        assert by_name["vec4"].gflops == pytest.approx(2e-9 * 10**3 / 2e-3)
        assert by_name["vec4"].call_samples_s
        assert by_name["vec4"].run.protocol.timer == "CUDA events"

    def test_equal_times_have_a_ratio_of_1(self, launched, monkeypatch):
        """Times are kept to seven digits. A GPU reports float32; here they have more digits."""
        monkeypatch.setitem(SECONDS, "naive", float(np.float32(1.7056e-5)))
        monkeypatch.setitem(SECONDS, REFERENCE, SECONDS["naive"])
        measured = measure(["naive", REFERENCE], [10])
        assert [row.vs_cublas for row in measured.rows] == [1, 1]

    @pytest.mark.skipif(OVER_HIP, reason="rocBLAS has no TF32")
    def test_tf32_is_a_reference_with_its_own_bound(self, launched):
        """At K = 10 the error of TF32 is far beyond the float32 bound."""
        measured = measure(["vec4", "cublas", TF32], [10])
        _, cublas, tf32 = measured.rows
        assert tf32.error.right
        assert tf32.error.relative > 100 * cublas.error.relative
        assert (tf32.precision, cublas.precision) == ("tf32", "float32")
        assert {row.cublas_median_s for row in measured.rows} == {SECONDS["cublas"]}
        assert tf32.vs_cublas == pytest.approx(5)
        assert measured.over_previous(tf32) is None
        assert "cuBLAS TF32, error 6" in repr(measured)
        run = dataclasses.replace(measured.run, ffma_gflops=1.0)
        shares = [dataclasses.replace(row, run=run).share_of_peak for row in (cublas, tf32)]
        assert shares[0] > 0
        assert shares[1] is None

    @pytest.mark.parametrize(
        ("relative", "rows", "words", "less"),
        [
            (2.6e-4, 64, UNIFORM, True),
            (2.6e-4, 64, NORMAL, True),
            (2.6e-4, 64, "a Hilbert matrix", False),
            (2.6e-4, 1, UNIFORM, False),
            (8e-7, 64, UNIFORM, False),
        ],
        ids=["TF32", "normal", "not random", "few results", "float32"],
    )
    def test_a_relative_error_larger_than_float32s_is_in_the_name(
        self, relative, rows, words, less
    ):
        """At 2048 each element of a TF32 product is within the bound of float32."""
        run = dataclasses.replace(RUN, protocol=Protocol("CUDA events", "cold", words))
        row = Measurement(run, "mine", 2048, 64, 2048, Accuracy(relative, 0.3, rows))
        assert row.error.right
        assert row.less_than_float32 == less
        assert row.label == ("mine, error 2.6e-4" if less else "mine")

    def test_telemetry_reads_the_gpu_that_runs(self, launched, monkeypatch):
        read = []

        class Thermometer(Telemetry):
            def __init__(self, pci_bus_id):
                read.append(pci_bus_id)
                super().__init__(None)

            def figures(self):
                return telemetry.Figures(1980.0, 500.0, 60.0)

        monkeypatch.setattr(measure_module, "Telemetry", Thermometer)
        measured = measure(["naive", "vec4"], [10])
        assert read == ["0000:3B:00.0"]
        (readings,) = measured.readings
        assert (readings.clock_mhz, readings.power_w, readings.temperature_c) == (1980, 500, 60)
        assert "while sampling 10: 1980 MHz, 500 W, 60 °C" in repr(measured)
        assert "MHz" not in repr(measured.rows[0]), "they are not this variant's alone"

    def test_without_whole_calls_each_variant_computes_once_and_is_timed(self, launched):
        (measured,) = measure(["vec4"], [10], whole_calls=False).rows
        assert measured.median_s == SECONDS["vec4"]
        assert measured.call_samples_s == ()

    def test_cublas_gets_the_variants_layout(self, launched):
        measured = measure(["vec4", REFERENCE], [10], layouts=["NN", "TN"])
        assert [row.layout for row in measured.rows] == ["NN", "NN", "TN", "TN"]
        assert {row.vs_cublas for row in measured.rows} == {0.5, 1}
        assert measured.over_previous(measured.rows[2]) is None

    def test_only_named_variants_are_measured(self, launched):
        assert measure("vec4", 10)["vec4", 10].vs_cublas is None
        assert {names for names, _ in launched} == {("vec4",)}

    @pytest.mark.parametrize(("cache", "sets"), [("cold", 1 + 2000 // 1200), ("warm", 1)])
    def test_cold_operands_exceed_twice_the_cache(self, launched, cache, sets):
        measured = measure(["vec4"], [10], cache=cache)
        assert {count for _, count in launched} == {sets} == {measured.rows[0].operand_sets}
        assert measured.run.protocol.cache == cache

    def test_the_ladder_is_one_command(self, launched, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(devices, "variants", lambda: RUNGS)
        monkeypatch.setattr(run_facts, "peaks", lambda *_: (4e-3, 1e12))
        monkeypatch.syspath_prepend(LADDER.parent)
        monkeypatch.setattr(sys, "argv", ["ladder.py", "-o", f"{tmp_path}/r.json", "--sizes", "10"])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(LADDER), run_name="__main__")
        assert ended.value.code == 0
        results = Results.from_json(tmp_path / "r.json")
        others = () if OVER_HIP else (TF32, "cublas-default")
        assert results.variants == ("naive", "vec4", REFERENCE, *others)
        assert results.rows[2].share_of_peak == pytest.approx(0.5)
        assert capsys.readouterr().out.strip() == repr(results)
        assert len(list(tmp_path.glob("r-*.svg"))) == 2
        assert "cublas-default" not in (tmp_path / "r-speedup.svg").read_text()


class TestOnAGPU:
    @pytest.fixture
    def gpu(self, device):
        if device == "cpu":
            pytest.skip("needs a GPU")
        return find_device(device)

    def test_measures_kernels_and_whole_calls(self, gpu):
        measured = measure(["naive", "vec4"], [(300, 200, 100)], device=gpu.name, seconds=0.2)
        for row in measured.rows:
            assert row.error.right
            assert len(row.samples_s) >= 10
            assert 0 < row.median_s < row.call_median_s

    def test_a_competitor_is_timed_like_a_rung(self, gpu):
        """Compares a rung with itself, launched in the default stream as a competitor: each gets
        its own time."""

        def competitor(A, B, out):
            legacy_stream = 1
            sgemm_kernels.run("tile2d", A, B, out=out, stream=legacy_stream)

        contenders = ["tile2d", ("again", competitor)]
        results = measure(contenders, 1024, device=gpu.name, seconds=0.5)
        rung, again = results.rows
        assert again.error.right
        assert again.median_s == pytest.approx(rung.median_s, rel=0.2)

    def test_measures_operands_in_their_layouts(self, gpu):
        shape = 129, 200, 100
        measured = measure(["vec4"], [shape], layouts=LAYOUTS, device=gpu.name, seconds=0.1)
        assert measured.cases == tuple((shape, layout) for layout in LAYOUTS)
        assert all(row.error.right and row.samples_s for row in measured.rows)

    def test_measures_tf32_beside_cublas(self, gpu):
        names = runnable(gpu, tf32=True)
        if TF32 not in names:
            pytest.skip("needs cuBLAS, and a GPU with TF32")
        assert names[-1] == TF32
        measured = measure(["cublas", TF32], [512], device=gpu.name, seconds=0.2)
        cublas, tf32 = measured.rows
        assert cublas.error.right
        assert tf32.error.right
        assert cublas.error.relative < 1e-5 < tf32.error.relative < 1e-3
        assert tf32.vs_cublas > 0


def test_the_interval_of_a_median_for_any_number_of_samples():
    """For 100 samples the 95 % interval is between the 40th and the 61st. For 2,000 samples its
    distance from the middle grows with the square root of the count."""
    assert [median_interval(range(1, count + 1)) for count in (5, 6, 100, 2000)] == [
        (1, 5),
        (1, 6),
        (40, 61),
        (956, 1045),
    ]


def test_operand_sets_exceed_twice_the_cache():
    assert operand_sets((1, 1, 1), 50_000_000) == MOST_SETS
    for shape in ((128, 128, 128), (5000, 3, 77), (4096, 4096, 4096)):
        M, N, K = shape
        one = 4 * (M * K + K * N + M * N)
        sets = operand_sets(shape, 50_000_000)
        assert sets * one > 100_000_000
        assert (sets - 1) * one <= 100_000_000


class TestSampling:
    def sampled(self, times, seconds=0.5):
        """Samples from a function that maps a name and its number of samples to a time; no real
        time passes."""
        counts = dict.fromkeys(times, 0)
        calls = []

        def sampler(names, rounds):
            calls.append(names)
            taken = []
            for name in names:
                taken.append([times[name](counts[name] + i) for i in range(rounds)])
                counts[name] += rounds
            return taken

        sampling = Sampling(sampler, tuple(times))
        sampling.sample(seconds)
        return sampling, calls

    def test_stops_when_the_median_is_stable(self):
        sampling, _ = self.sampled({"a": lambda _: 0.02})
        assert 10 <= len(sampling.samples["a"]) < MOST_SAMPLES
        assert sampling.unmet("a") == ()

    def test_names_the_unmet_criterion(self):
        sampling, _ = self.sampled({"a": lambda i: 0.001 * (1 + i % 2)})
        assert len(sampling.samples["a"]) >= MOST_SAMPLES
        assert "median known to 66.7% (at most 2%)" in sampling.unmet("a")
        none = Sampling(lambda names, _: [[] for _ in names], ("a",))
        none.sample(0.01)
        assert "samples: 0 (at least 10)" in none.unmet("a")

    def test_a_timer_with_a_coarse_step_does_not_hide_a_known_median(self):
        """A third of the samples are one 4 % step higher: the quartiles differ, but the median is
        known."""
        sampling, _ = self.sampled({"a": lambda i: 1e-5 * (1.04 if i % 3 == 0 else 1)})
        assert sampling.unmet("a") == ()

    @pytest.mark.parametrize(("seconds", "enough"), [(0.02, 10), (1.0, 5), (20.0, 3)])
    def test_long_calls_need_fewer_samples(self, seconds, enough):
        """The time limit starts only after this many samples."""
        sampling, calls = self.sampled({"a": lambda _: seconds}, seconds=5)
        assert len(sampling.samples["a"]) >= enough
        assert sampling.unmet("a") == ()
        if seconds > 2:
            assert len(calls) == enough, "its first launch counts, and none is thrown away"

    def test_warm_up_gets_its_time_after_a_long_first_round(self, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])

        def sampler(names, rounds):
            clock[0] += rounds * sum(20.0 if name == "long" else 0.2 for name in names)
            return [[20.0 if name == "long" else 0.2] * rounds for name in names]

        sampling = Sampling(sampler, ("long", "short"))
        sampling.sample(5)
        assert sampling.unmet("long") == ()
        assert "warm-up did not settle" not in sampling.unmet("short")

    def test_waits_until_times_settle(self):
        """The first samples come from a cold clock; all are discarded."""
        sampling, _ = self.sampled({"a": lambda i: 0.1 * max(1.0, 3 - 0.5 * i)})
        assert max(sampling.samples["a"]) == 0.1

    def test_a_long_call_leaves_the_others_their_time(self, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])

        def sampler(names, rounds):
            clock[0] += rounds * sum(20.0 if name == "long" else 0.08 for name in names)
            return [[20.0 if name == "long" else 0.08] * rounds for name in names]

        sampling = Sampling(sampler, ("long", "short"))
        sampling.sample(5)
        assert len(sampling.samples["long"]) == 3
        assert len(sampling.samples["short"]) >= 10
        assert sampling.unmet("long") == sampling.unmet("short") == ()

    def test_the_order_of_variants_changes(self):
        """Each variant gets its own samples, whatever the order."""
        slow = {"a": 0.1, "b": 0.2, "c": 0.3}
        sampling, calls = self.sampled(
            {name: lambda i, name=name: slow[name] * (1 + 0.1 * (i % 3)) for name in slow}
        )
        before_b = {names[names.index("b") - 1] for names in calls if "b" in names[1:]}
        assert before_b == {"a", "c"}
        for name, samples in sampling.samples.items():
            assert all(slow[name] <= sample < 1.3 * slow[name] for sample in samples)

    def test_a_finished_variant_stops_and_the_reference_goes_on(self):
        times = {
            "steady": lambda _: 0.01,
            REFERENCE: lambda _: 0.01,
            "noisy": lambda i: 0.01 * (1 + i % 3),
        }
        sampling, calls = self.sampled(times)
        assert set(calls[-1]) == {REFERENCE, "noisy"}
        assert len(sampling.samples["steady"]) < len(sampling.samples["noisy"])

    def test_ends_soon_if_every_sample_is_discarded(self, monkeypatch):
        """Each launch takes 20 ms before it is given up."""
        clock = [0.0]
        monkeypatch.setattr(time, "monotonic", lambda: clock[0])

        def sampler(names, rounds):
            clock[0] += 0.02 * rounds
            return [[] for _ in names]

        sampling = Sampling(sampler, ("a",))
        sampling.sample(0.05)
        assert sampling.samples["a"] == []
        assert clock[0] < 2


class TestTruth:
    @pytest.mark.parametrize(
        "shape", [(20, 30, 40), (2100, 65, 70), (65, 2100, 70), (70, 80, 3000), (3, 2100, 1000)]
    )
    def test_accepts_float32_and_finds_one_wrong_element_anywhere(self, rng, shape):
        M, N, K = shape
        A, B = uniform(rng, M, K), uniform(rng, K, N)
        truth = Truth(A, B, {3, 4}, rng)
        C = A @ B
        assert truth.accuracy_of(C).right
        for place in ((0, 0), (M - 1, N - 1), (M // 2, N // 3)):
            wrong = C.copy()
            wrong[place] += np.float32(math.sqrt(K))
            assert not truth.accuracy_of(wrong).right
            wrong[place] = np.nan
            assert not truth.accuracy_of(wrong).right

    @pytest.mark.parametrize("shape", [(20, 30, 40), (2100, 65, 70)])
    def test_holds_tf32_to_its_own_bound(self, rng, shape):
        M, N, K = shape
        A, B = uniform(rng, M, K), uniform(rng, K, N)
        truth = Truth(A, B, {3, 4}, rng)
        C = cut_to_tf32(A) @ cut_to_tf32(B)
        assert not truth.accuracy_of(C).right
        assert truth.accuracy_of(C, TF32_ROUNDING).right
        C[0, 0] += np.float32(K)
        assert not truth.accuracy_of(C, TF32_ROUNDING).right

    @pytest.mark.parametrize("kind", [np.tril, np.triu, np.diag])
    def test_rows_of_few_terms_are_right_and_one_wrong_element_is_found(self, kind, rng):
        """Some rows of a product of triangular matrices have a single term, and some have K."""
        A, B = np.tril(uniform(rng, 2100, 2100)), kind(uniform(rng, 2100, 2100))
        B = np.diag(B) if kind is np.diag else B
        A[7] = 0
        truth = Truth(A, B, (), rng)
        C = A @ B
        assert truth.accuracy_of(C).right
        for row in np.setdiff1d(np.arange(2100), truth.rows)[[0, 1000, -1]]:
            wrong = C.copy()
            wrong[row, row] += np.float32(math.sqrt(2100))
            assert not truth.accuracy_of(wrong).right
        C[7, 0] = np.nan
        assert not truth.accuracy_of(C).right

    def test_compares_the_rows_at_tile_edges(self, rng):
        A, B = uniform(rng, 3000, 20), uniform(rng, 20, 30)
        truth = Truth(A, B, {127, 128}, rng)
        assert {127, 128, 2999} <= set(truth.rows)
        assert truth.accuracy_of(A @ B).rows == ROWS_CHECKED


class TestFigures:
    def test_are_medians_and_quartiles(self):
        measured = row(
            [3.0, 1.0, 2.0, 4.0, 5.0],
            call_samples_s=(9.0, 7.0, 8.0),
            cublas_median_s=1.5,
        )
        assert (measured.median_s, measured.quartiles_s, measured.iqr_s) == (3.0, (2.0, 4.0), 2.0)
        assert measured.gflops == pytest.approx(2e-9 * 100 * 200 * 300 / 3)
        assert measured.vs_cublas == 0.5
        assert measured.share_of_peak == pytest.approx(measured.gflops / 1000)
        assert measured.call_median_s == 8.0

    def test_over_the_rung_before(self):
        shape = (100, 200, 300)
        rows = (row([6.0], "naive"), row([2.0], "coalesced"), row([1.0], "cublas"))
        ladder = Results(RUN, rows)
        assert [ladder.over_previous(r) for r in rows] == [None, 3.0, None]
        assert ladder.find("coalesced", shape) is rows[1]
        assert "3.00x" in repr(ladder)

    def test_the_cpu_device_is_never_compared(self):
        run = dataclasses.replace(RUN, kind="cpu")
        rows = (row([6.0], "naive", run=run, cublas_median_s=1.0), row([2.0], "coalesced", run=run))
        assert rows[0].vs_cublas is None
        assert Results(run, rows).over_previous(rows[1]) is None

    def test_are_found_by_name_and_size(self):
        square, thin, transposed = row([1.0], shape=(64,) * 3), row([2.0]), row([3.0], layout="NT")
        results = Results(RUN, (square, thin, transposed))
        assert results["vec4", 64] is results.find("vec4", np.int64(64)) is square
        assert results["vec4", (100, 200, 300)] is thin
        assert results["vec4", [100, 200, 300], "NT"] is transposed
        assert results.find("vec4", 65) is None
        with pytest.raises(KeyError, match="vec4 at 64, 100x200x300, 100x200x300 NT"):
            results["vec4", 65]
        with pytest.raises(TypeError, match="use N,"):
            results["vec4", "64"]
        for key in ("vec4", 0):
            with pytest.raises(TypeError, match=r"results\[name, size\]"):
                results[key]
        with pytest.raises(TypeError, match=r"results\[name, size\]"):
            list(results)

    def test_a_name_with_a_bar_is_one_cell_of_markdown(self):
        results = Results(RUN, (row([1.0], "a|b"),))
        header, _, line = results.to_markdown().splitlines()
        assert line.startswith(r"| a\|b | ")
        assert line.replace(r"\|", "").count("|") == header.count("|")

    def test_converts_to_a_pandas_table(self, monkeypatch, tmp_path):
        results = Results(RUN, (row([1.0, 2.0, 3.0], unmet=("a", "b")), row([], error=BAD)))
        made = []
        pandas = types.SimpleNamespace(DataFrame=lambda records, columns: made.append(records))
        monkeypatch.setitem(sys.modules, "pandas", pandas)
        results.to_pandas()
        ((first, wrong),) = made
        assert (first["variant"], first["median_s"], first["samples"]) == ("vec4", 2.0, 3)
        assert (first["unmet"], wrong["median_s"]) == ("a; b", None)
        results.to_csv(tmp_path / "r.csv")
        assert (tmp_path / "r.csv").read_text().splitlines()[0].split(",") == list(first)
        monkeypatch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ImportError, match="pip install pandas"):
            results.to_pandas()

    def test_figures_with_unmet_criteria_are_marked_everywhere(self):
        met = row([2.0], "naive"), row([2.0], "cublas", cublas_median_s=2.0)
        unmet = row([1.0], "coalesced", unmet=("samples: 1 (at least 5)",), cublas_median_s=2.0)
        wide = Results(RUN, (*met, unmet, row([1.0], "coalesced", shape=(9, 9, 9))))
        for text in (repr(wide), wide.to_markdown(), wide._repr_html_()):
            assert "*: sampling ended before" in text
            assert "1.2e-05*" in text
            assert "2.00*" in text
            assert "2.00x*" in text
        assert "*" not in repr(Results(RUN, met))
        on_cpu = dataclasses.replace(unmet, run=dataclasses.replace(RUN, kind="cpu"))
        for one in (unmet, on_cpu):
            assert "not met: samples: 1 (at least 5)" in repr(one)
        both = Results(RUN, (*met, unmet))
        for text in (repr(judge(both, both)), judge(both, both)._repr_html_()):
            assert "1000*" in text
            assert "+0.0%*" in text
            assert "*: sampling ended before" in text

    def test_objects_are_frozen(self):
        for thing in (row([1.0]), RUN, RIGHT, Results(RUN, ())):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(thing, dataclasses.fields(thing)[0].name, None)


class TestVerdicts:
    STEADY = tuple(1 + 0.0005 * i for i in range(-5, 6))

    def word(self, old, new, **fields):
        (verdict,) = judge(Results(RUN, (row(old),)), Results(RUN, (row(new, **fields),)))
        return verdict.word

    @pytest.mark.parametrize(
        ("old", "new", "expected"),
        [
            (STEADY, [0.93 * s for s in STEADY], FASTER),
            (STEADY, [1.07 * s for s in STEADY], SLOWER),
            (STEADY, [1.044 * s for s in STEADY], UNSURE),  # repeated runs differ by as much
            (STEADY, [1.009 * s for s in STEADY], SAME),
            (STEADY, STEADY, SAME),
            ([0.9, 1.0, 1.1], [1.05, 1.1, 1.2], UNSURE),  # medians differ, intervals overlap
            ([0.9, 1.0, 1.1], [3.4, 3.5, 3.6], SLOWER),  # imprecise, but clearly slower
            (STEADY, [], UNSURE),
        ],
    )
    def test_rules(self, old, new, expected):
        assert self.word(old, new) == expected

    def test_unmet_criteria_never_count_as_the_same(self):
        assert self.word(self.STEADY, self.STEADY, unmet=("samples: 3 (at least 10)",)) == UNSURE

    def runs(self, *factors, csrc_hash="0123"):
        run = dataclasses.replace(RUN, csrc_hash=csrc_hash)
        return [Results(run, (row([f * s for s in self.STEADY], run=run),)) for f in factors]

    @pytest.mark.parametrize(
        ("others", "new", "apart", "expected"),
        [
            ((1.001, 1.002), 1.02, 0.01, SLOWER),  # the runs agree: 2 % is a change
            ((1.001, 0.98), 1.02, 2 * 0.021 / 0.98, UNSURE),  # the runs differ: 2 % is no change
            ((1.001, 0.98), 1.06, 2 * 0.021 / 0.98, SLOWER),
        ],
    )
    def test_the_spread_of_runs_is_learned_from_repeats(self, others, new, apart, expected):
        old, *repeats = self.runs(1.0, *others)
        (changed,) = self.runs(new, csrc_hash="4567")
        (verdict,) = judge(old, changed, repeats=repeats)
        assert verdict.apart == pytest.approx(apart, rel=1e-3)
        assert verdict.word == expected

    def test_repeats_may_be_of_any_sources(self):
        (old,), (new,) = self.runs(1.0), self.runs(1.02, csrc_hash="4567")
        twice = self.runs(1.0, 1.001, csrc_hash="89ab")
        assert judge(old, new, repeats=twice)[0].word == SLOWER
        with pytest.raises(NotComparableError, match="no two of the repeated runs"):
            judge(old, new, repeats=twice[:1])

    @pytest.mark.packaging  # an installed package has no repeated runs
    def test_committed_runs_of_the_same_sources_are_judged_the_same(self):
        """Judges each of three runs of the same sources against another, alone and with the spread
        that the third one gives. One verdict of a hundred may be wrong: a product by a library may
        take longer in the first run, and a spread that only two runs show may be too small."""
        runs = [Results.from_json(recorded_file(f"ladder-{run}.json")) for run in (1, 2, 3)]
        alone, learned = [], []
        for old, new, other in itertools.permutations(runs):
            alone += [verdict.word for verdict in judge(old, new)]
            learned += [verdict.word for verdict in judge(old, new, repeats=[other])]
        for words in (alone, learned):
            different = [word for word in words if word not in (SAME, UNSURE)]
            assert len(different) <= len(words) / 100

    def test_a_wrong_result_has_no_time(self):
        assert self.word(self.STEADY, [], error=BAD) == WRONG

    @pytest.mark.parametrize(
        "change",
        [
            {"device": "Another GPU"},
            {"kind": "cpu"},
            {"protocol": Protocol("CUDA events", "warm")},
        ],
        ids=str,
    )
    def test_not_comparable(self, change):
        other = dataclasses.replace(RUN, **change)
        with pytest.raises(NotComparableError, match=next(iter(change))):
            judge(Results(RUN, (row([1.0]),)), Results(other, (row([1.0], run=other),)))

    def test_not_comparable_across_schemas(self):
        old = Results(RUN, (row([1.0]),), schema=1)
        with pytest.raises(NotComparableError, match="schema, 1 and 4"):
            judge(old, Results(RUN, (row([1.0]),)))
        judge(dataclasses.replace(old, schema=2), Results(RUN, (row([1.0]),)))

    def test_nothing_in_common(self):
        with pytest.raises(NotComparableError, match="no variant"):
            judge(Results(RUN, (row([1.0]),)), Results(RUN, (row([1.0], shape=(1, 1, 1)),)))

    def test_one_layout_is_not_compared_with_another(self):
        both = Results(RUN, (row([1.0]), row([2.0], layout="NT")))
        assert [v.old.layout for v in judge(both, both)] == ["NN", "NT"]
        with pytest.raises(NotComparableError, match="no variant"):
            judge(Results(RUN, both.rows[:1]), Results(RUN, both.rows[1:]))

    @pytest.mark.parametrize(
        ("factor", "status", "word"), [(0.5, 0, "1 faster"), (1, 0, "1 same"), (2, 1, "1 slower")]
    )
    def test_exit_status(self, tmp_path, capsys, factor, status, word):
        for name, by in (("old", 1), ("new", factor)):
            samples = [by * s for s in self.STEADY]
            Results(RUN, (row(samples),)).to_json(tmp_path / f"{name}.json")
        files = [str(tmp_path / "old.json"), str(tmp_path / "new.json")]
        assert main(["judge", *files]) == status
        assert capsys.readouterr().out.splitlines()[-1] == word

    def test_exit_status_for_unsure(self, tmp_path, capsys):
        self.runs(1.0)[0].to_json(tmp_path / "old.json")
        self.runs(1.03)[0].to_json(tmp_path / "new.json")
        files = [str(tmp_path / "old.json"), str(tmp_path / "new.json")]
        assert main(["judge", *files]) == 0
        assert main(["judge", *files, "--fail-on-unsure"]) == 3
        assert "+3.0%" in capsys.readouterr().out
        again = ["--repeats", files[0]]
        assert main(["judge", *files, *again, "--fail-on-unsure"]) == 1
        assert capsys.readouterr().out.splitlines()[-1] == "1 slower"

    def test_exit_status_when_not_comparable(self, tmp_path, capsys):
        Results(RUN, (row([1.0]),)).to_json(tmp_path / "old.json")
        other = dataclasses.replace(RUN, device="Another GPU")
        Results(other, (row([1.0]),)).to_json(tmp_path / "new.json")
        assert main(["judge", str(tmp_path / "old.json"), str(tmp_path / "new.json")]) == 2
        assert "not comparable: different device" in capsys.readouterr().err


class TestTelemetry:
    class NVMLError(Exception):
        pass

    GPUS = {"0000:3B:00.0": 0, "0000:5E:00.0": 1}  # noqa: RUF012

    def nvml(self, **changes):
        facts = {
            "NVMLError": self.NVMLError,
            "NVML_CLOCK_SM": 0,
            "NVML_TEMPERATURE_GPU": 0,
            "nvmlInit": lambda: None,
            "nvmlDeviceGetHandleByPciBusId": self.GPUS.__getitem__,
            "nvmlDeviceGetClockInfo": lambda gpu, _: 1980 + gpu,
            "nvmlDeviceGetPowerUsage": lambda gpu: 500_000 + 1000 * gpu,
            "nvmlDeviceGetTemperature": lambda gpu, _: 60 + gpu,
        }
        return types.SimpleNamespace(**{**facts, **changes})

    def figures(self, monkeypatch, averaged_s, pci_bus_id="0000:3B:00.0", **changes):
        monkeypatch.setattr(telemetry, "open_nvml", lambda: self.nvml(**changes))
        monkeypatch.setattr(telemetry, "_AVERAGED_S", averaged_s)
        monkeypatch.setattr(telemetry, "_PERIOD_S", 0.001)
        with Telemetry(pci_bus_id) as sampled:
            sampled._stop.wait(0.1)
        return sampled.figures()

    def test_reads_clock_power_and_temperature(self, monkeypatch):
        assert self.figures(monkeypatch, 0.01) == (1980, 500, 60)

    def test_is_none_if_sampling_was_too_short(self, monkeypatch):
        assert self.figures(monkeypatch, 1.0) == (None, None, None)

    def test_reads_the_named_gpu(self, monkeypatch):
        assert self.figures(monkeypatch, 0.01, "0000:5E:00.0") == (1981, 501, 61)

    def test_is_none_without_a_gpu(self, monkeypatch):
        assert self.figures(monkeypatch, 0.01, None) == (None, None, None)

    def test_is_none_if_nvml_does_not_find_the_gpu(self, monkeypatch):
        def refuse(_):
            raise self.NVMLError

        unknown = {"nvmlDeviceGetHandleByPciBusId": refuse}
        assert self.figures(monkeypatch, 0.01, **unknown) == (None, None, None)

    def test_is_none_if_the_gpu_does_not_report(self, monkeypatch):
        def refuse(*_):
            raise self.NVMLError

        silent = {"nvmlDeviceGetPowerUsage": refuse}
        assert self.figures(monkeypatch, 0.01, **silent) == (1980, None, 60)

    def test_is_none_without_the_library(self, monkeypatch):
        monkeypatch.setattr(telemetry, "open_nvml", lambda: None)
        with Telemetry("0000:3B:00.0") as sampled:
            pass
        assert sampled.figures() == (None, None, None)


class TestProbe:
    """The probe of peak rates, with a script in place of nvcc and of the program it compiles."""

    @pytest.fixture
    def compiled(self, tmp_path, monkeypatch):
        def install(program, status=0):
            nvcc = tmp_path / "bin" / "nvcc"
            nvcc.parent.mkdir(exist_ok=True)
            nvcc.write_text(
                "#!/bin/sh\n"
                "while [ $1 != -o ]; do shift; done\n"
                f"printf '#!/bin/sh\\n%s\\n' '{program}' > $2; chmod +x $2\n"
                f"echo complaint >&2; exit {status}\n"
            )
            nvcc.chmod(0o755)
            monkeypatch.setenv("CUDA_HOME", str(tmp_path))
            return tmp_path / "peaks.cu"

        return install

    def test_reads_what_the_program_prints(self, compiled):
        source = compiled('echo "{\\"ffma_gflops\\": 5$1, \\"copy_bytes_per_s\\": 3e12}"')
        assert peaks(source, 7) == (57, 3e12)

    def test_shows_the_output_of_the_compiler_or_program(self, compiled):
        with pytest.raises(sgemm_kernels.DeviceError, match=r"nvcc failed:\ncomplaint"):
            peaks(compiled("true", status=1), 0)
        with pytest.raises(sgemm_kernels.DeviceError, match=r"peaks failed:\nno such GPU"):
            peaks(compiled("echo no such GPU >&2; exit 3"), 0)

    def test_needs_nvcc(self, monkeypatch, tmp_path):
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        with pytest.raises(FileNotFoundError, match="CUDA_HOME"):
            peaks(tmp_path / "peaks.cu", 0)


class TestMeasure:
    """The `measure` command."""

    def test_writes_json_and_csv_and_prints_the_table(self, tmp_path, capsys):
        files = [str(tmp_path / "r.json"), str(tmp_path / "r.csv")]
        arguments = ["naive", "vec4", "--sizes", "4", "3x5x7", "--seconds", "0.05"]
        outputs = ["--json", files[0], "--csv", files[1]]
        assert main(["measure", *arguments, "--device", "cpu", *outputs]) == 0
        captured = capsys.readouterr()
        assert CPU_WARNING in captured.err
        assert CPU_WARNING in captured.out
        results = Results.from_json(files[0])
        assert results.shapes == ((4, 4, 4), (3, 5, 7))
        assert captured.out.strip() == repr(results)
        header, *lines = (tmp_path / "r.csv").read_text().splitlines()
        assert len(lines) == 4
        assert header.startswith("variant,M,N,K,median_s,")
        assert all(results.run.csrc_hash in line for line in lines)

    def test_an_interrupt_writes_the_rows_measured_so_far(self, tmp_path, monkeypatch):
        part = Results(RUN, (row([1.0]),), interrupted=True)
        monkeypatch.setattr("sgemm_kernels.cli.measurements.measure", lambda *_, **__: part)
        path = tmp_path / "r.json"
        assert main(["measure", "naive", "--device", "cpu", "--json", str(path)]) == 130
        assert Results.from_json(path) == part

    @pytest.mark.parametrize("size", ["0", "x", "4x4", "4x0x4", "-3", "4x4x4x4x4"])
    def test_refuses_sizes(self, size, capsys):
        with contextlib.suppress(SystemExit):
            main(["measure", "--sizes", size])
        assert "size" in capsys.readouterr().err

    def test_shows_a_progress_bar_on_a_terminal_and_clears_it(self, monkeypatch, capsys):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        monkeypatch.setattr(sys, "stderr", Terminal())
        measure(["naive", "vec4"], [4, 5], **QUICK)
        before, first, *_, last, blank, after = sys.stderr.getvalue().split("\r")
        assert "1 of 4" in first
        assert last.startswith("[" + "#" * 30 + "] 4 of 4")
        assert before == blank.strip() == after == ""

    def test_shows_no_progress_in_a_pipe(self):
        script = """
            import io, sys
            from sgemm_kernels.__main__ import main
            sys.stderr = io.StringIO()
            main(["measure", "naive", "--sizes", "4", "--seconds", "0.05", "--device", "cpu"])
            print(len(sys.stderr.getvalue().splitlines()))
        """
        assert printed_by(script).splitlines()[-1] == "1"
