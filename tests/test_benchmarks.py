"""The arithmetic, tables and pictures of the experiments, without a GPU. All times are made up."""

import contextlib
import ctypes
import dataclasses
import importlib.machinery
import inspect
import itertools
import json
import math
import re
import sys
import tomllib
import types
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import Candidate, Measurement, Results, Tuning, recorded_file, variants
from sgemm_kernels._style import Picture
from sgemm_kernels._table import table
from sgemm_kernels.cli import experiment_tables, report, speed_tables
from sgemm_kernels.measuring import devices
from sgemm_kernels.measuring.devices import find_device
from sgemm_kernels.measuring.measurement import UNIFORM, Accuracy, Protocol, Run
from sgemm_kernels.measuring.operands import DATA, laid_out
from sgemm_kernels.measuring.results_file import origin, read_json
from sgemm_kernels.measuring.shapes import LAYOUTS, as_shape, shapes_of

from . import picture_of_ladder
from .support import OVER_HIP, run_script, same_bits, uniform
from .test_tensor_cores import CERTAIN, EARLY, SLOTS, passes_check, split_fp16_sums, sums_pass

ROOT = Path(__file__).parent.parent
RUN = Run("2026-01-02T03:04:05+00:00", "A Made-Up GPU", "cuda", "0123", "0.1.0",
          Protocol("CUDA events", "cold"))  # fmt: skip
NAMES = [variant.name for variant in variants() if variant.file is not None]


def executable(path, text):
    path.write_text(f"#!/bin/sh\n{text}")
    path.chmod(0o755)
    return path


def test_quartiles_match_numpy(experiment):
    samples = [3.0, 1.0, 7.0, 5.0]
    low, middle, high = np.percentile(samples, (25, 50, 75))
    found = experiment("_results").summary(samples)
    assert (found["median_s"], found["iqr_s"]) == (middle, high - low)


def test_a_file_has_a_line_for_each_row_and_null_for_infinity(experiment, tmp_path):
    def picture(document, rows):
        assert document["device"] == "A GPU"
        return Picture()

    rows = [{"error": math.inf, "samples_s": [1.0, 2.0]}, {"error": 0.5}]
    experiment("_results").write(tmp_path / "r.json", "x", {"device": "A GPU"}, rows, picture)
    text = (tmp_path / "r.json").read_text()
    assert '{"error":null,"samples_s":[1.0,2.0]},\n{"error":0.5}' in text
    assert json.loads(text)["experiment"] == "x"
    drawn = (tmp_path / "r.svg").read_bytes()
    (tmp_path / "r.svg").unlink()
    experiment("_results").redraw(tmp_path / "r.json", picture)
    assert (tmp_path / "r.svg").read_bytes() == drawn


RESULTS = ROOT / "benchmarks/results"
PICTURES = sorted(RESULTS.glob("*/*.svg"))


def drawn_of(picture):
    """A picture's results file. PEERS-NORMAL.svg belongs to PEERS-NORMAL.json, although PEERS.json
    exists too."""
    files = (path for path in picture.parent.glob("*.json*")
             if f"{picture.stem}-".startswith(f"{path.name.partition('.')[0]}-"))  # fmt: skip
    return max(files, key=lambda path: len(path.name.partition(".")[0]))


@pytest.mark.packaging
@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_committed_pictures_show_the_committed_results(picture):
    """A picture carries digests of the files that it shows. `make pictures` redraws it."""
    (told,) = re.findall("<metadata>(.*?)</metadata>", picture.read_text(encoding="utf-8"))
    files = [drawn_of(picture)]
    if picture.stem == "traffic":
        files.append(picture.with_name("ladder.json"))
    assert told == origin(*files), "run: make pictures"


def test_no_text_of_the_results_is_longer_than_250_kilobytes():
    texts = [path for path in RESULTS.glob("*/*") if path.suffix not in (".gz", ".npz")]
    assert len(texts) > 40
    assert not [path for path in texts if path.stat().st_size > 250_000]


def test_the_picture_of_the_ladders_page_shows_the_committed_results():
    image = pytest.importorskip("PIL.Image")
    for path in picture_of_ladder.PICTURES:
        with image.open(path) as picture:
            assert picture.text.get("Source") == picture_of_ladder.shown(), "run: make pictures"


def test_make_pictures_draws_every_picture_of_the_repository(experiment, monkeypatch):
    found = [
        path
        for folder in ("benchmarks", "docs", "csrc", "notebooks")
        for ending in ("svg", "png")
        for path in (ROOT / folder).rglob(f"*.{ending}")
    ]
    assert set(found) == {*PICTURES, *picture_of_ladder.PICTURES}
    asked = []
    pictures = experiment("pictures")
    monkeypatch.setattr(pictures.subprocess, "run", lambda words, **_: asked.append(words))
    pictures.main()
    assert [Path(words[3]) for words in asked[:-1]] == sorted(set(map(drawn_of, PICTURES)))
    assert asked[-1][1:] == ["-m", "tests.picture_of_ladder"]


@pytest.mark.parametrize(
    "path",
    sorted({drawn_of(picture) for picture in PICTURES}),
    ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}",
)
def test_committed_results_are_redrawn(experiment, monkeypatch, tmp_path, path):
    results = tmp_path / path.name
    results.write_bytes(path.read_bytes())
    script = experiment("pictures").script_of(path)
    assert run_script(experiment(script.stem), monkeypatch, "-o", results, "--draw") == 0
    drawn = {path.name for path in tmp_path.glob("*.svg")}
    assert drawn == {picture.name for picture in PICTURES if drawn_of(picture) == path}
    assert experiment("pictures").drawn(path.parent).count(path) == 1
    for path in tmp_path.glob("*.svg"):
        assert "(prefers-color-scheme: dark)" in path.read_text(encoding="utf-8")


def test_results_are_in_the_folder_of_their_gpu():
    for path in RESULTS.glob("*/*.json*"):
        document = read_json(path)
        device = document.get("run", document)["device"]
        folder = device.removeprefix("NVIDIA ").replace(" ", "-").lower()
        assert path.parent.name in (folder, "cpu"), path
        assert (path.parent.name == "cpu") == (not device.startswith("NVIDIA")), path


def test_every_committed_result_is_used():
    """A picture, a table, a comment, the fit or the package uses it."""
    folders = ("docs", "csrc", "benchmarks", "notebooks")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    endings = (".md", ".py", ".c", ".cpp", ".cu", ".ipynb")
    paths = [ROOT / "README.md", *(path for path in paths if path.suffix in endings)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    carried = settings["tool"]["setuptools"]["package-data"]["sgemm_kernels.recorded"]
    pictured = {drawn_of(picture) for picture in PICTURES}
    for path in {*RESULTS.glob("*/*")} - {*PICTURES, *pictured}:
        named = f"{path.parent.name}/{path.name}" in text or path.name == "plan_fit.npz"
        assert named or any(path.match(pattern) for pattern in carried), path


class TestAccuracy:
    def test_rungs_with_one_summation_order_share_a_line(self, experiment):
        accuracy = experiment("accuracy")
        rows = accuracy.measure(find_device("cpu"), (16, 300))
        runs = {variant.name for variant in variants() if "cpu" in variant.devices}
        assert {row["variant"] for row in rows} == {*runs, "numpy"}
        assert all(0 < row["relative_error"] < 1e-6 for row in rows)
        (left, right) = accuracy.picture({"device": "A CPU"}, rows).axes
        assert 2 <= len(left.lines) == len(right.lines) < len(NAMES)
        assert "naive, coalesced" in left.get_legend().get_texts()[0].get_text()
        assert accuracy.lines(rows).count("\n") == len(runs) + 1


class TestHostCost:
    @pytest.fixture
    def host_cost(self, experiment, monkeypatch):
        host_cost = experiment("host_cost")
        kernel = types.SimpleNamespace(find=lambda *_: types.SimpleNamespace(median_s=1e-6))
        monkeypatch.setattr(host_cost, "measure", lambda *_, **__: kernel)
        monkeypatch.setattr(host_cost, "SAMPLING_S", 0.0)
        return host_cost

    @pytest.fixture
    def measured(self, host_cost):
        calls = {"vec4": np.matmul, "CuPy": np.matmul, "PyTorch": lambda A, B: A @ B + 1}
        return host_cost, host_cost.measure_calls(16, calls, ["vec4"], lambda *_: 1e-6)

    def test_results_are_dropped_or_kept(self, experiment):
        host_cost = experiment("host_cost")
        alive, most = [0], [0]

        class Result:
            def __init__(self):
                alive[0] += 1
                most[0] = max(most[0], alive[0])

            def __del__(self):
                alive[0] -= 1

        for kept in (False, True):
            most[0] = 0
            host_cost.sample({"a": lambda *_: Result()}, None, None, kept=kept)
            assert (most[0] > 1) == kept
        assert most[0] >= host_cost.FEWEST_CALLS

    def test_is_checked_and_compared_with_the_fastest_right_library(self, measured):
        host_cost, rows = measured
        assert [(row["way"], row["results"]) for row in rows] == [
            (way, fate)
            for fate in host_cost.FATES
            for way in ("vec4", "CuPy", "PyTorch", "vec4, pinned operands")
        ]
        ours, cupy, torch, pinned = rows[:4]
        assert ours["over_fastest_library"] == ours["median_s"] / cupy["median_s"]
        assert torch["worst_share_of_bound"] > 1
        assert "median_s" not in torch
        assert len(cupy["samples_s"]) == len(pinned["samples_s"]) == host_cost.FEWEST_CALLS - 2

    def test_pinned_operands_are_the_same_in_other_memory(self, host_cost, monkeypatch):
        given, copies, floors = [], [], []
        pinned = host_cost.pinned
        monkeypatch.setattr(
            host_cost, "pinned", lambda array: copies.append(pinned(array)) or copies[-1]
        )
        host_cost.measure_calls(
            16,
            {"vec4": lambda A, B: given.append((A, B)) or A @ B},
            ["vec4"],
            lambda A, B: floors.append((A, B)) or 1e-6,
        )
        ordinary, held = given[:2]
        assert all(map(np.array_equal, ordinary, held))
        assert not any(map(np.shares_memory, ordinary, held))
        assert all(x is y for pair in (held, floors[0]) for x, y in zip(pair, copies, strict=True))

    @pytest.mark.parametrize(
        ("at_once", "cells"), [(0, "0.200 | +0.298"), (1 << 18, "- | +0.498")], ids=["", "small"]
    )
    def test_where_the_time_goes(self, measured, tmp_path, monkeypatch, at_once, cells):
        _, rows = measured
        monkeypatch.setattr(experiment_tables, "_SINGLE_THREAD_BYTES", at_once)
        rows[0]["median_s"], rows[3]["median_s"] = 5e-4, 3e-4
        lines = self.reported(tmp_path, rows).splitlines()
        assert f"| 16 | 0.500 | 0.001 | 0.001 | {cells} |" in lines
        assert lines[-1] == "A GPU, CUDA 13.0, csrc 0, 2026-01-02."

    def test_where_the_time_goes_without_pinned_operands(self, measured, tmp_path):
        _, rows = measured
        old = [row for row in rows if "pinned" not in row["way"]]
        call = 1e3 * old[0]["median_s"]
        line = f"| 16 | {call:.3f} | 0.001 | 0.001 | - | {call - 0.002:+.3f} |"
        assert line in self.reported(tmp_path, old)

    def reported(self, folder, rows):
        head = {"device": "A GPU", "cuda_toolkit": "13.0", "csrc_hash": "0", "date": "2026-01-02T"}
        (folder / "r.json").write_text(json.dumps({**head, "rows": rows}))
        return experiment_tables.calls(folder / "r.json")

    def test_table_and_picture(self, measured):
        host_cost, rows = measured
        assert host_cost.lines(rows).count("whole call, ") == 8
        panels = host_cost.picture({"device": "A GPU"}, rows).axes
        assert [len(axes.lines) for axes in panels] == [4, 4]


@pytest.fixture
def compared(monkeypatch):
    """Replaces `measure` on a GPU with one that checks its arguments and returns the times that the
    test chooses."""

    def patch(script, seconds_of):
        turns = itertools.count()

        def made_up(names, sizes, **options):
            inspect.signature(sgemm_kernels.measure).bind(names, sizes, **options)
            data = options.get("data", "uniform")
            words, _ = DATA[data] if isinstance(data, str) else data
            run = dataclasses.replace(RUN, protocol=Protocol("CUDA events", "cold", words))
            shapes = dict.fromkeys(as_shape(size) for size in sizes)  # no duplicates
            rows = []
            for shape, layout in itertools.product(shapes, options.get("layouts", ("NN",))):
                turn = next(turns)
                times = {name: seconds_of(name, shape, layout, turn) for name in names}
                for name, seconds in times.items():
                    error = Accuracy(0.0, 0.5 if seconds else 2.0, 1)
                    samples = (seconds,) * 3 if seconds else ()
                    rows.append(
                        Measurement(run, name, *shape, error, samples_s=samples, layout=layout,
                                    cublas_median_s=times.get("cublas"))
                    )  # fmt: skip
            return Results(run, tuple(rows))

        gpu = types.SimpleNamespace(kind="cuda", name="cuda:0")
        monkeypatch.setattr(script, "measure", made_up)
        monkeypatch.setattr(script, "find_gpu", lambda _: gpu)

    return patch


@pytest.mark.parametrize(
    "name",
    ["auto", "batched", "calls", "clocks", "grouped", "host_cost", "ladder", "layouts", "models",
     "peers", "plan_times", "products", "random_shapes", "recomputing", "routers", "same_bits",
     "symmetric", "tuning"],
)  # fmt: skip
def test_needs_a_gpu(experiment, monkeypatch, capsys, name):
    cpu = find_device("cpu")
    monkeypatch.setattr(devices, "find_device", lambda _: cpu)
    assert run_script(experiment(name), monkeypatch) == 2
    assert "on a GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kind",
    ["ablation", "average", "batches", "clocks", "grades", "kinds", "models", "products",
     "programs", "queuing", "recomputing", "same_bits", "symmetric", "tuning", "worst"],
)  # fmt: skip
def test_without_results_the_report_says_so(kind, tmp_path):
    files = [tmp_path / "none.json", Path("auto")]
    tell = report.BLOCKS[kind]
    assert tell(*files[: len(inspect.signature(tell).parameters)]) == "Not measured yet."


class TestAuto:
    @pytest.fixture
    def auto(self, experiment, monkeypatch, tmp_path):
        auto = experiment("auto")
        (tmp_path / "suite.json").write_text('{"square": [[8, 8, 8]], "flat": [[64, 8, 4]]}')
        monkeypatch.setattr(auto, "SUITE", tmp_path / "suite.json")
        return auto

    @pytest.mark.parametrize("wrong", [False, True])
    def test_the_whole_suite_in_each_layout(
        self, auto, compared, monkeypatch, tmp_path, capsys, wrong
    ):
        def seconds_of(name, shape, layout, turn):
            if wrong and (name, layout) == ("auto", "TN"):
                return None
            return 1e-3 if name == "cublas" else {"NN": 0.5e-3, "NT": 2e-3, "TN": 1e-3}[layout]

        compared(auto, seconds_of)
        status = run_script(auto, monkeypatch, "-o", tmp_path / "new" / "auto.json")
        assert status == int(wrong)
        out = capsys.readouterr().out
        cells = [re.split(r"  +", line.strip()) for line in out.splitlines()]
        assert ["64 x 8 x 4", "2.00", "0.50", "-" if wrong else "1.00"] in cells
        three = ["2.000, worst 2.00", "0.500, worst 0.50", "-" if wrong else "1.000, worst 1.00"]
        assert ["flat", *three, "1.000, worst 0.50"] in cells
        assert ["all", *three, "1.000, worst 0.50"] in cells
        results = Results.from_json(tmp_path / "new/auto.json")
        assert {layout for _, layout in results.cases} == set(auto.LAYOUTS)
        (axes,) = auto.picture(results).axes
        points = [line for line in axes.lines if line.get_label() in auto.LAYOUTS]
        assert [len(line.get_xdata()) for line in points] == [2, 2, 2]
        assert (tmp_path / "new/auto.svg").exists()

    def test_a_table_without_times(self, auto, compared, monkeypatch, tmp_path):
        compared(auto, lambda *_: None)
        assert run_script(auto, monkeypatch, "-o", tmp_path / "auto.json") == 1

    def test_the_suite_has_every_kind(self, experiment):
        """No kind is empty, no shape occurs twice, and no side is zero."""
        kinds = experiment("auto").suite()
        assert list(kinds) == ["square", "skinny", "deep", "flat"]
        shapes = [shape for kind in kinds.values() for shape in kind]
        assert len(set(shapes)) == len(shapes) >= 52
        assert all(min(shape) >= 1 for shape in shapes)


class TestRandomShapes:
    def test_a_suite_is_log_uniform_in_all_layouts_and_the_same_each_time(self, experiment):
        shapes = experiment("_shapes")
        for name in ("fitting", "developing", "release"):
            cases = shapes.suite(name)
            assert cases == shapes.suite(name)
            assert len(cases) == shapes.COUNT >= 300
            layouts = [layout for _, layout in cases]
            assert {layout: layouts.count(layout) for layout in LAYOUTS} == dict.fromkeys(
                LAYOUTS, shapes.COUNT // 4
            )
            sides = np.array([shape for shape, _ in cases])
            assert sides.min() >= 1
            assert sides.max() <= shapes.LARGEST
            middle = np.median(np.log2(sides), axis=0)
            assert (abs(middle - 7) < 1).all(), "half of the octaves are below 128"

    def test_half_of_the_shapes_to_fit_have_round_sides(self, experiment):
        shapes = experiment("_shapes")
        whole = {
            name: [
                shape for shape, _ in shapes.suite(name) if tuple(map(shapes.whole, shape)) == shape
            ]
            for name in ("fitting", "release")
        }
        assert len(whole["fitting"]) >= shapes.COUNT // 2
        assert len(whole["release"]) < shapes.COUNT // 20
        assert all(side % 4 == 0 and (side < 256 or side % 64 == 0)
                   for shape in whole["fitting"] for side in shape)  # fmt: skip

    def test_fitted_and_judged_shapes_are_disjoint(self, experiment):
        """The suites that judge use other seeds and shapes than the fit, including the fit of the
        committed plans."""
        shapes = experiment("_shapes")
        assert len(set(shapes.SEEDS.values())) == len(shapes.SEEDS)
        to_fit = {shape for shape, _ in shapes.to_fit()}
        assert len(shapes.to_fit()) == 2 * shapes.COUNT
        assert to_fit == {shape for shape, _ in [*shapes.suite("fitting"), *shapes.close()]}
        kept = {shape for shape, _ in shapes.kept()}
        assert len(kept - to_fit) > 500
        assert kept < shapes.fitted()
        assert to_fit < shapes.fitted()
        for name in ("developing", "release"):
            assert not shapes.fitted() & {shape for shape, _ in shapes.suite(name)}

    def test_the_kept_fit_is_of_these_shapes(self, experiment):
        """plan_fit.npz has the first ones: its measurement ended before the others."""
        shapes = experiment("_shapes")
        kept = shapes.kept()
        with np.load(RESULTS / "h100-80gb-hbm3/plan_fit.npz") as data:
            measured = [
                (tuple(shape), LAYOUTS[layout])
                for shape, layout in zip(data["shapes"].tolist(), data["layouts"], strict=True)
            ]
        assert len(measured) > 1100
        assert measured == kept[: len(measured)]

    def test_a_fitted_shape_is_replaced(self, experiment, monkeypatch):
        shapes = experiment("_shapes")
        first = shapes.suite("release")[0]
        monkeypatch.setattr(shapes, "fitted", lambda: {first[0]})
        assert first[0] not in {shape for shape, _ in shapes.suite("release")}
        assert len(shapes.suite("release")) == shapes.COUNT

    def test_each_release_is_judged_by_new_shapes(self, experiment):
        assert sgemm_kernels.__version__ in experiment("_shapes").SEEDS["release"]

    @pytest.fixture
    def random_shapes(self, experiment, monkeypatch):
        """`simt` is half as fast as cuBLAS in layout TN, and otherwise twice as fast."""
        random_shapes = experiment("random_shapes")

        def measure_briefly(names, shape, layout, *, device):
            assert device == "cuda:0"
            if shape == (9999, 9999, 9999):
                raise sgemm_kernels.OutOfMemoryError("too large")
            names = [name if isinstance(name, str) else name[0] for name in names]
            assert names == ["cublas", "simt", "auto", "cublas-default"]
            times = {"cublas": 1e-3, "simt": 2e-3 if layout == "TN" else 5e-4, "auto": 1e-3,
                     "cublas-default": 8e-4}  # fmt: skip
            return Results(RUN, tuple(
                Measurement(RUN, name, *shape, Accuracy(0, 0.5, 1), samples_s=(times[name],) * 5,
                            layout=layout, cublas_median_s=1e-3, unmet=("few",))
                for name in names
            ))  # fmt: skip

        gpu = types.SimpleNamespace(name="cuda:0")
        monkeypatch.setattr(random_shapes, "measure_briefly", measure_briefly)
        monkeypatch.setattr(random_shapes, "find_gpu", lambda _: gpu)
        cases = [((1, 50, 60), "NN"), ((700, 80, 90), "TN"), ((9999,) * 3, "NN"),
                 ((700, 800, 900), "TN"), ((3, 800, 900), "TT")]  # fmt: skip
        monkeypatch.setattr(
            random_shapes, "suite", lambda name: cases if name == "release" else cases[:1]
        )
        return random_shapes

    def test_the_suite_by_kind(self, random_shapes, monkeypatch, tmp_path, capsys):
        path = tmp_path / "random_shapes.json"
        assert run_script(random_shapes, monkeypatch, "-o", path) == 0
        said = capsys.readouterr()
        assert "9999 is left out: too large" in said.err
        lines = [re.split(r"  +", line.strip()) for line in said.out.splitlines()]
        assert ["simt: all", "4", "1.000", "0.50*", "700x80x90 TN", "50.0%", "50.0%"] in lines
        assert ["a vector", "1", "2.000", "2.00*", "1x50x60", "0.0%", "0.0%"] in lines
        assert ["a side of 2 to 16", "1", "2.000", "2.00*", "3x800x900 TT", "0.0%", "0.0%"] in lines
        assert ["K of at most 512", "0", *"-----"] in lines
        assert ["auto: all", "4", "1.000", "1.00*", "1x50x60", "0.0%", "0.0%"] in lines
        assert ["700x800x900 TN", "all longer", "0.50*"] in lines
        assert ["cublas-default: all", "4", "1.250", "1.25*", "1x50x60", "0.0%", "0.0%"] in lines
        assert "16 of 16 times: " in speed_tables.kinds(path)
        assert "| simt: all | 4 | 1.000 |" in speed_tables.kinds(path)
        assert (tmp_path / "random_shapes.svg").exists()
        picture = random_shapes.picture(Results.from_json(path))
        written = picture.findobj(lambda artist: hasattr(artist, "get_text"))
        assert any("16 of 16 times: " in text.get_text() for text in written)
        panels = picture.axes
        points = [sum(len(line.get_xdata()) for line in axes.lines) - 2 for axes in panels]
        assert points == [4, 4], "and a line at 1 of two points"

    def test_the_result_names_its_seed(self, random_shapes, experiment, monkeypatch, tmp_path):
        seeds = experiment("_shapes").SEEDS
        for name, count in (("release", 4), ("developing", 1)):
            path = tmp_path / f"{name}.json"
            assert run_script(random_shapes, monkeypatch, "-o", path, "--suite", name) == 0
            results = Results.from_json(path)
            assert {row.run.seed for row in results.rows} == {results.run.seed} == {seeds[name]}
            assert f"seed {seeds[name]!r}" in speed_tables.kinds(path)
            assert len(results.cases) == count

    def test_the_releases_file_is_for_its_suite(self, random_shapes, monkeypatch, capsys):
        assert run_script(random_shapes, monkeypatch, "--suite", "developing") == 2
        assert "is for the release suite: pass -o FILE" in capsys.readouterr().err

    def test_shapes_beyond_the_time_limit_are_left_out(self, random_shapes, monkeypatch, capsys):
        clock = itertools.count()
        time = types.SimpleNamespace(monotonic=lambda: next(clock))
        monkeypatch.setattr(random_shapes, "time", time)
        results = random_shapes.measured(random_shapes.suite("release"), "cuda:0", 2.5)
        assert len(results.cases) == 2
        assert results.interrupted
        assert "3 of 5 shapes are left out: time was over" in capsys.readouterr().err


class TestLayouts:
    def test_a_loss_is_the_median_of_the_passes(
        self, experiment, compared, monkeypatch, tmp_path, capsys
    ):
        layouts = experiment("layouts")

        def seconds_of(name, shape, layout, turn):
            if (name, layout) == ("vec4", "TT"):
                return None
            drift = 1 + turn // len(layouts.LAYOUTS)  # between passes, not within one
            return drift * (1.25e-3 if layout == "TN" else 1e-3)

        compared(layouts, seconds_of)
        assert run_script(layouts, monkeypatch, "-o", tmp_path / "layouts.json") == 1
        results = Results.from_json(tmp_path / "layouts.json")
        assert len(results.rows) == layouts.PASSES * len(layouts.LAYOUTS) * len(layouts.names())
        assert set(results.variants) == {*NAMES, "simt", "auto"}
        for name in results.variants:
            found = layouts.losses(results, name)
            assert found["NT"] == [0] * layouts.PASSES
            assert found["TN"] == pytest.approx([0.2] * layouts.PASSES)
        assert layouts.losses(results, "vec4")["TT"] == []
        out = capsys.readouterr().out
        assert out.count("20.0% (20.0% to 20.0%)") == len(layouts.names())
        assert (tmp_path / "layouts.svg").exists()


def named_by(libraries):
    """The names of the libraries that can run."""
    return {each if isinstance(each, str) else each[0] for each in libraries.libraries("cuda:0")}


@pytest.mark.skipif(OVER_HIP, reason="they are for NVIDIA GPUs")
class TestLibraries:
    @pytest.fixture
    def libraries(self, experiment):
        return experiment("_libraries")

    def test_libraries_that_do_not_compile_are_left_out(self, libraries, monkeypatch, capsys):
        def refusing(names, *_, **__):
            raise RuntimeError(f"{names[0]}: no such precision\nand more")

        fake = types.SimpleNamespace(product=lambda *_, **__: None)
        for module, *_ in libraries.COMPETITORS.values():
            monkeypatch.setitem(sys.modules, module, fake)
        monkeypatch.setattr(libraries, "measure", refusing)
        assert not named_by(libraries) & {*libraries.COMPETITORS}
        assert "bf16x6: no such precision\n" in capsys.readouterr().err

    def test_without_headers_or_compiler_cutlass_is_left_out(
        self, libraries, experiment, monkeypatch, tmp_path, capsys
    ):
        """The replacement for `measure` runs each competitor's product."""

        def measure(competitor, n, **_):
            competitor[1](*(exported(np.ones((n, n), np.float32)) for _ in "ABC"))

        product = experiment("_cutlass_product")
        product.library.cache_clear()
        monkeypatch.setattr(product, "architecture", lambda: "sm_90a")
        for module in ("_triton_product", "_cublas_product", "_gemmul8_product"):
            monkeypatch.setitem(sys.modules, module, None)  # they cannot read host memory
        monkeypatch.setattr(libraries, "measure", measure)
        monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
        assert "CUTLASS SIMT" not in named_by(libraries)
        assert f"CUTLASS's headers are missing: not in CUTLASS_PATH={tmp_path}" in (
            capsys.readouterr().err
        )
        make_headers_of_cutlass(product, tmp_path)
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        monkeypatch.setattr(experiment("_compiled"), "FOLDER", tmp_path)
        assert "CUTLASS 3xTF32" not in named_by(libraries)
        assert "CUTLASS 3xTF32 is left out" in (said := capsys.readouterr().err)
        assert "no nvcc" in said


def named_in(picture):
    """The names in a picture's legend."""
    return [text.get_text() for text in picture.legends[0].get_texts()]


@pytest.mark.skipif(OVER_HIP, reason="they are for NVIDIA GPUs")
class TestPeers:
    @pytest.fixture
    def peers(self, experiment, monkeypatch):
        peers = experiment("peers")
        monkeypatch.setattr(peers, "find_gpu", lambda _: types.SimpleNamespace(name="cuda:0"))
        return peers

    def patch(self, peers, monkeypatch, *, wrong=()):
        """Replaces `measure`: each way has half the error and half the time of the previous one."""

        def made_up(names, sizes, **options):
            inspect.signature(sgemm_kernels.measure).bind(names, sizes, **options)
            words, _ = DATA[options.get("data", "uniform")]
            run = dataclasses.replace(RUN, protocol=Protocol("CUDA events", "cold", words))
            rows = []
            for place, name in enumerate(n if isinstance(n, str) else n[0] for n in names):
                error = Accuracy(1e-7 / 2**place, 2.0 if name in wrong else 0.5, 1)
                for shape in shapes_of(sizes):
                    samples = () if name in wrong else (1e-9 * shape[0] / 2**place,) * 3
                    rows.append(Measurement(run, name, *shape, error, samples_s=samples))
            return Results(run, tuple(rows))

        monkeypatch.setattr(peers, "measure", made_up)

    def test_libraries_that_are_not_installed_are_left_out(
        self, peers, monkeypatch, tmp_path, capsys
    ):
        for module in ("torch", "_triton_product", "_cutlass_product", "_gemmul8_product", "jax"):
            monkeypatch.setitem(sys.modules, module, None)
        libraries = sys.modules["_libraries"]
        monkeypatch.setattr(libraries, "measure", lambda *_, **__: 1 / 0)
        self.patch(peers, monkeypatch)
        assert run_script(peers, monkeypatch, "-o", tmp_path / "peers.json") == 0
        said = capsys.readouterr()
        for name in (*sys.modules["_libraries"].COMPETITORS, "JAX"):
            assert f"{name} is left out" in said.err
            assert name not in said.out
        assert {path.name for path in tmp_path.iterdir()} == {
            *("peers.json", "peers.svg", "peers-normal.json", "peers-normal.svg"),
        }
        words = Results.from_json(tmp_path / "peers-normal.json").run.protocol.data
        assert words == "standard normal"
        assert Results.from_json(tmp_path / "peers.json").run.protocol.data == UNIFORM

    def test_energy_is_the_counters_difference_by_the_number_of_products(self, peers, monkeypatch):
        energy = sys.modules["_energy"]
        counter = itertools.count(1000, 3000)  # millijoules; a difference of 3 J each time
        nvml = types.SimpleNamespace(
            NVMLError=OSError,
            nvmlDeviceGetHandleByPciBusId=lambda address: address,
            nvmlDeviceGetTotalEnergyConsumption=lambda gpu: next(counter),
        )
        gpu = types.SimpleNamespace(synchronize=lambda: None)
        cupy = types.ModuleType("cupy")
        cupy.__spec__ = importlib.machinery.ModuleSpec("cupy", None)
        cupy.asarray, cupy.empty = np.asarray, np.empty
        cupy.cuda = types.SimpleNamespace(Device=lambda index: contextlib.nullcontext(gpu))
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        monkeypatch.setattr(energy, "open_nvml", lambda: nvml)
        where = types.SimpleNamespace(pci_bus_id="0", name="cuda:0")
        monkeypatch.setattr(energy, "find_device", lambda name: where)
        monkeypatch.setattr(energy, "repeated", lambda call, synchronize, seconds: call() or 12)
        called = []
        monkeypatch.setattr(energy, "run", lambda name, *_, out: called.append(name))
        self.patch(peers, monkeypatch, wrong=["simt"])
        ways = ["simt", "auto", ("Triton", lambda *_: called.append("Triton"))]
        results = peers.with_energies(peers.measure(ways, [64, 128]), ways, "cuda:0")
        found = {(row.variant, row.M): row.energy_j for row in results.rows}
        assert found.pop(("auto", 128)) == found.pop(("Triton", 128)) == 0.25
        assert set(found.values()) == {None}  # other sizes, and a wrong result
        assert set(called) == {"auto", "Triton"}
        assert "0.25" in table(*peers.beside_peers(results))

    def test_a_point_for_each_size_and_a_name_for_each_way(self, peers, monkeypatch):
        self.patch(peers, monkeypatch, wrong=["cublas"])
        competitors = sys.modules["_libraries"].COMPETITORS
        ways = ["simt", "auto", "cublas", "cublas-tf32", *((n, print) for n in competitors)]
        results = peers.measure(ways, list(peers.SIZES))
        picture = peers.picture(results)
        (axes,) = picture.axes
        names = ["simt", "auto", "cuBLAS TF32", *competitors]
        assert named_in(picture) == [*reversed(names)], "the fastest first"
        drawn = [line for line in axes.lines if line.get_label() in names]
        assert [line.get_label() for line in drawn] == names
        assert all(len(line.get_xdata()) == len(peers.SIZES) for line in drawn)
        places = (0, 1, *range(3, 4 + len(competitors)))
        assert [line.get_xdata()[0] for line in drawn] == [1e-7 / 2**n for n in places]

    def test_a_way_less_exact_than_float32_is_named_with_its_error(self, peers, monkeypatch):
        """Its results pass the check of each element, as TF32 and JAX's BF16 X9 do for random
        operands."""
        self.patch(peers, monkeypatch)
        results = peers.measure(["auto", "cublas", ("JAX BF16 X9", print)], [1024, 2048])
        inexact = dataclasses.replace(results.rows[-1].error, relative=2.61e-4)
        rows = [
            dataclasses.replace(row, error=inexact) if row.variant == "JAX BF16 X9" else row
            for row in results.rows
        ]
        assert all(row.error.right for row in rows)
        error = dataclasses.replace(inexact, vector_share=9.0)
        wrong = dataclasses.replace(rows[-1], M=4096, N=4096, K=4096, samples_s=(), error=error)
        results = Results(results.run, (*rows, wrong))
        named = "JAX BF16 X9, error 2.6e-4"
        assert peers.named(results, "JAX BF16 X9") == named
        assert "wrong, 2.6e-04" in table(*peers.beside_peers(results))
        assert named in table(*peers.beside_peers(results))
        picture = peers.picture(results)
        assert named in named_in(picture)
        assert peers.BEYOND_FLOAT32 in "".join(text.get_text() for text in picture.texts)
        assert named in repr(results)
        assert "auto, error" not in repr(results)

    def test_the_title_compares_auto_with_cublas(self, peers, monkeypatch):
        self.patch(peers, monkeypatch)
        results = peers.measure(["auto", "simt", "cublas"], [64, 128])
        rows = [dataclasses.replace(row, cublas_median_s=3 * row.median_s) for row in results.rows]
        compared = Results(RUN, tuple(rows))
        assert (
            peers.answer(compared)
            == "auto beside cuBLAS at 128: 3.0 times as fast, 4 times the error"
        )
        rows[-1] = dataclasses.replace(rows[-1], unmet=("warm-up did not settle",))
        early = Results(RUN, tuple(rows))
        assert "3.0 times as fast*," in peers.answer(early)
        assert "against speed" in peers.answer(peers.measure(["auto", "simt"], [64, 128]))
        (axes,) = peers.picture(compared).axes
        assert not [line for line in axes.lines if line.get_marker() == "x"]
        (axes,) = peers.picture(early).axes
        (cross,) = [line for line in axes.lines if line.get_marker() == "x"]
        assert list(cross.get_xdata()) == [rows[-1].error.relative]

    def test_products_of_models_and_routers_have_files_and_columns(
        self, peers, monkeypatch, tmp_path, capsys
    ):
        refused = ((512, 64, 2048), "NT")

        def measure_briefly(names, shape, layout, *, device):
            """Each way is twice as fast as the previous one; the last is wrong for routers."""
            if (shape, layout) == refused:
                raise RuntimeError("CUTLASS refused it")
            rows = []
            for place, name in enumerate(names):
                wrong = place == len(names) - 1 and shape[1] == 256
                samples = () if wrong else (1e-3 / 2**place,) * 5
                error = Accuracy(1e-7 * 4**place, 2.0 if wrong else 0.5, 1)
                rows.append(Measurement(RUN, name, *shape, error, samples_s=samples,
                                        layout=layout, cublas_median_s=1e-3 / 4))  # fmt: skip
            return Results(RUN, tuple(rows))

        monkeypatch.setattr(peers, "measure_briefly", measure_briefly)
        monkeypatch.setattr(peers, "libraries", lambda _: ("cublas", "cublas-tf32"))
        path = tmp_path / "peers.json"
        assert run_script(peers, monkeypatch, "-o", path, "--cases", "models", "routers") == 1
        assert "512x64x2048 NT is left out: CUTLASS refused it" in capsys.readouterr().err
        models, routers = (tmp_path / f"peers-{kind}.json" for kind in ("models", "routers"))
        found = Results.from_json(models)
        assert len(found.cases) == 12
        assert [layout for _, layout in found.cases] == ["NT", "NN", "TN"] * 4
        assert Results.from_json(routers).interrupted
        self.patch(peers, monkeypatch)
        squares = peers.measure(["simt", "auto", "cublas", "cublas-tf32", ("JAX", print)], [64])
        squares.to_json(path)
        lines = speed_tables.peers(path, models, routers, tmp_path / "none.json").splitlines()
        header = "| 12 products of models: times cuBLAS's speed, error "
        header += "| 5 products of routers: times cuBLAS's speed, error |"
        assert lines[0].endswith(header)
        ends = ["0.25, 0.062 | 0.25, 0.062", "0.50, 0.25 | 0.50, 0.25", "1.00, 1 | 1.00, 1"]
        ends += ["2.00, 4 | -", "- | -"]
        assert [line.split(" | ", 3)[3] for line in lines[2:7]] == [f"{end} |" for end in ends]

    def test_jax_is_timed_by_chains_and_says_so(self, peers, monkeypatch, tmp_path, capsys):
        """Fakes the part of JAX that is used. One algorithm is as inexact as TF32, one is
        unknown."""

        def once(algorithm, A, B):
            if algorithm == "BF16_BF16_F32_X6":
                raise ValueError("not supported here\nand more")
            return A @ B * np.float32(1 + 1e-2 * (algorithm == "BF16_BF16_F32_X9"))

        fake = types.SimpleNamespace(
            TIMED_BY="host clock", needs_gpu=lambda: None, once=once,
            samples=lambda algorithm, A, B: iter([1e-6 * len(A)] * 10),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "_jax_product", fake)
        self.patch(peers, monkeypatch)
        path = tmp_path / "peers.json"
        asked = ("--data", "normal", "--sizes", "64", "128")
        assert run_script(peers, monkeypatch, "-o", path, *asked) == 0
        results = Results.from_json(tmp_path / "peers-normal.json")
        rows = [row for row in results.rows if row.variant in peers.JAX]
        assert {row.variant for row in rows} == {*peers.JAX} - {"JAX BF16 X6"}
        assert {row.timed_by for row in rows} == {"host clock"}
        assert all(row.timed_by is None for row in results.rows if row.variant not in peers.JAX)
        assert results["JAX TF32 X3", 128].median_s == pytest.approx(128e-6)
        assert not results["JAX BF16 X9", 64].error.right
        assert results["JAX BF16 X9", 64].samples_s == ()
        assert "JAX float32 (host clock)" in repr(results)
        assert "JAX BF16 X6 at 64 is left out: not supported here\n" in capsys.readouterr().err
        assert "JAX: by host clock" in "".join(
            text.get_text() for text in peers.picture(results).texts
        )


def exported(matrix):
    """A host matrix in the form of the GPU arrays that competitors get."""
    interface = {"shape": matrix.shape, "strides": matrix.strides}
    interface |= {"data": (matrix.ctypes.data, False)}
    return types.SimpleNamespace(__cuda_array_interface__=interface)


def make_headers_of_cutlass(product, folder):
    for header in (product.HEADER, Path("include/cutlass/version.h")):
        (folder / header).parent.mkdir(parents=True, exist_ok=True)
        (folder / header).write_text("#define CUTLASS_MAJOR 4\n")


@pytest.mark.skipif(OVER_HIP, reason="they are for NVIDIA GPUs")
class TestRouters:
    @staticmethod
    def times():
        """Each way's time in microseconds."""
        own = {"simt": 8, "waves": 4, "fused": 2, "auto": 2, "auto, prepared B": 1}
        others = {"cublas": 8, "cublas-tf32": 1, "Triton tf32x3": 16}
        return {**own, **others, **TestRouters.bfloat16()}

    @staticmethod
    def bfloat16():
        return {"bf16 x fp32: auto": 4, "bf16 x bf16: auto": 1, "bf16 x bf16: mm(out_dtype)": 0.5}

    @pytest.fixture
    def routers(self, experiment, monkeypatch):
        """`measure_briefly` with times by name; one product has a wrong result of `waves`."""
        self.failing = None
        routers = experiment("routers")

        def measure_briefly(names, shape, layout, *, device, data=DATA["uniform"]):
            assert device == "cuda:0"
            assert layout == ("NN" if len(set(shape)) == 1 else "NT")
            if shape == self.failing:
                raise RuntimeError("CUTLASS refused it")
            names = [name if isinstance(name, str) else name[0] for name in names]
            if data == DATA["uniform"]:
                assert {*names} == {*self.times()} - {*self.bfloat16()}
            else:
                assert names == [name for name in self.bfloat16() if name[:11] in data[0]]
            rows = []
            for name in names:
                wrong = name == "waves" and shape == (512, 64, 2048)
                samples = () if wrong else (1e-6 * self.times()[name],) * 5
                error = Accuracy(1e-7 * (1 + (name == "cublas")), 2.0 if wrong else 0.5, 1)
                rows.append(Measurement(RUN, name, *shape, error, samples_s=samples,
                                        layout=layout, cublas_median_s=8e-6))  # fmt: skip
            return Results(RUN, tuple(rows))

        found = ("cublas", "cublas-tf32", ("Triton tf32x3", print))
        gpu = types.SimpleNamespace(name="cuda:0", l2_bytes=1 << 20)
        monkeypatch.setattr(routers, "measure_briefly", measure_briefly)
        monkeypatch.setattr(routers, "libraries", lambda _: found)
        monkeypatch.setattr(routers, "find_gpu", lambda _: gpu)
        products = {"bf16 x fp32": {"auto": print}, "bf16 x bf16": {"auto": print}}
        products["bf16 x bf16"]["mm(out_dtype)"] = print
        monkeypatch.setattr(routers, "products", lambda: products)
        return routers

    def test_all_products_beside_the_libraries(self, routers, monkeypatch, tmp_path, capsys):
        path = tmp_path / "routers.json"
        assert run_script(routers, monkeypatch, "-o", path) == 1, "a wrong result"
        lines = [re.split(r"  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
        speeds = ["1.00", "4.00", "4.00", "8.00", "8.00", "0.50", "2.00", "8.00", "16.00"]
        assert ["65536x896x7168 NT", "8", speeds[0], "2.00", *speeds[1:]] in lines
        assert ["512x64x2048 NT", "8", speeds[0], "-", *speeds[1:]] in lines
        assert ["512x128x2048 NT", "8", speeds[0], "2.00", *speeds[1:]] in lines
        assert ["waves", "-", *["2.00"] * 7, "0.5"] in lines
        assert ["fused", *["4.00"] * 8, "0.5"] in lines
        table = speed_tables.routers(path)
        assert "| Triton tf32x3 | 0.50 | 0.50 |" in table
        assert "| times cuBLAS's speed | 512 rows | 2048 rows |" in table
        assert "| waves |" not in speed_tables.routers(path, Path("Triton"))
        assert "| Triton tf32x3 |" in speed_tables.routers(path, Path("Triton"))
        assert RUN.csrc_hash in table
        picture = routers.picture(Results.from_json(path))
        names = {line.get_label() for line in picture.axes[0].lines[:-1]}
        assert names == {*self.times()} - {"cublas", "cublas-tf32", *self.bfloat16()}

    def test_operands_have_the_values_of_bfloat16(self, routers):
        rng = np.random.default_rng(5)
        for kind, of_b in {"bf16 x fp32": False, "bf16 x bf16": True}.items():
            words, make = routers.data(kind)
            assert words == f"{UNIFORM}, {kind}"
            A, B = make(rng, (5, 6, 7))
            assert (A.shape, B.shape) == ((5, 7), (7, 6))
            for matrix, is_short in ((A, True), (B, of_b)):
                assert bool((matrix.view(np.uint32) & 0xFFFF).any()) != is_short

    def test_each_product_has_another_prepared_copy(self, routers, monkeypatch):
        copies = itertools.count()
        used = []
        monkeypatch.setattr(routers, "prepare", lambda B: (B, next(copies)))
        monkeypatch.setattr(routers, "run", lambda *given, **how: used.append((given, how)))
        product = routers.with_prepared(3)
        for call in range(4):
            product("A", f"B{call}", "out")
        assert [given for given, _ in used] == [("auto", "A", ("B0", n)) for n in (0, 1, 2, 0)]
        assert all(how == {"out": "out", "stream": 1} for _, how in used)

    def test_the_last_products_are_left_out_if_time_runs_out(
        self, routers, monkeypatch, tmp_path, capsys
    ):
        clock = itertools.count(0, 60.0)
        monkeypatch.setattr(routers, "time", types.SimpleNamespace(monotonic=clock.__next__))
        path = tmp_path / "routers.json"
        assert run_script(routers, monkeypatch, "-o", path, "--seconds", "200") == 1
        assert "the last products are left out" in capsys.readouterr().err
        results = Results.from_json(path)
        assert results.interrupted
        assert len(results.cases) == 3
        assert "\n\nSome products are left out.\n\n" in speed_tables.routers(path)

    def test_a_product_that_a_library_refuses_is_left_out(
        self, routers, monkeypatch, tmp_path, capsys
    ):
        self.failing = (2048, 64, 7168)
        path = tmp_path / "routers.json"
        assert run_script(routers, monkeypatch, "-o", path) == 1
        assert "2048x64x7168 NT is left out: CUTLASS refused it" in capsys.readouterr().err
        assert len(Results.from_json(path).cases) == 43

    def test_without_any_product_nothing_is_written(self, routers, monkeypatch, tmp_path, capsys):
        path = tmp_path / "routers.json"
        assert run_script(routers, monkeypatch, "-o", path, "--seconds", "0") == 2
        assert "no product was measured" in capsys.readouterr().err
        assert not path.exists()

    def test_nothing_is_measured_without_cublas(self, routers, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(routers, "libraries", lambda _: ())
        path = tmp_path / "routers.json"
        assert run_script(routers, monkeypatch, "-o", path) == 2
        assert "cuBLAS, which is missing" in capsys.readouterr().err
        assert not path.exists()


def matrix(at, rows, cols, apart):
    """The column-major matrix at a pointer, as a view."""
    flat = np.ctypeslib.as_array((ctypes.c_float * (apart * cols)).from_address(at.value))
    return flat.reshape(cols, apart)[:, :rows].T


class TestCublasProduct:
    @pytest.fixture
    def product(self, experiment, monkeypatch):
        """Fakes the part of cuBLAS that is used: it multiplies column-major matrices in host
        memory."""
        product = experiment("_cublas_product")
        self.modes = []

        def gemm(handle, of_a, of_b, m, n, k, alpha, a, _, lda, b, __, ldb, beta, c, ___, ldc,
                 mode, algorithm):  # fmt: skip
            m, n, k, lda, ldb, ldc = (each.value for each in (m, n, k, lda, ldb, ldc))
            self.modes.append(mode)
            if lda < (k if of_a else m) or ldb < (n if of_b else k) or ldc < m:
                return 7
            A = matrix(a, k, m, lda).T if of_a else matrix(a, m, k, lda)
            B = matrix(b, n, k, ldb).T if of_b else matrix(b, k, n, ldb)
            matrix(c, m, n, ldc)[:] = A @ B
            return self.status

        self.status = 0
        fake = types.SimpleNamespace(cublasCreate_v2=lambda _: 0, cublasGemmEx_64=gemm,
                                     cublasSetEmulationStrategy=lambda *_: 0)  # fmt: skip
        monkeypatch.setattr(product, "_library", lambda: fake)
        product._handle.cache_clear()
        return product

    @pytest.mark.parametrize("shape", [(3, 4, 5), (1, 4, 5), (3, 1, 5), (3, 4, 1), (1, 1, 1)])
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_multiplies_in_the_default_mode_in_each_layout(self, product, rng, shape, layout):
        M, N, K = shape
        A, B = laid_out((uniform(rng, M, K), uniform(rng, K, N)), layout)
        C = np.full((M, N), np.nan, np.float32)
        product.product(*map(exported, (A, B, C)))
        assert np.allclose(C, A @ B, atol=1e-6)
        assert self.modes == [68], "CUBLAS_COMPUTE_32F"

    def test_whether_cublas_emulates(self, product, monkeypatch):
        """Replaces CuPy with NumPy, and products with ones that differ or not."""
        A, _, C = (np.zeros((2, 2), np.float32) for _ in "ABC")
        product.product(*map(exported, (A, A, C)), mode="BF16x9")
        assert self.modes == [78], "CUBLAS_COMPUTE_32F_EMULATED_16BFX9"
        monkeypatch.setitem(sys.modules, "cupy", np)
        for differs in (False, True):
            monkeypatch.setattr(
                product,
                "product",
                lambda A, B, out, mode, d=differs: out.fill(d and mode == "BF16x9"),
            )
            assert product.emulates() == differs

    def test_a_refusal_of_cublas_raises(self, product):
        self.status = 13
        with pytest.raises(RuntimeError, match="2 x 2 x 2: status 13"):
            product.product(*(exported(np.ones((2, 2), np.float32)) for _ in "ABC"))


class TestJaxProduct:
    @pytest.fixture
    def product(self, experiment, monkeypatch):
        """Fakes the part of JAX that is used. A product takes 1 microsecond, and each program 10
        more."""
        product = experiment("_jax_product")
        now = [0.0]
        self.options = []

        def fori_loop(begin, end, step, value):
            now[0] += 1e-5
            for i in range(begin, end):
                value = step(i, value)
            return value

        def jit(f, compiler_options):
            self.options.append(compiler_options)
            return f

        def matmul(A, B, precision):
            now[0] += 1e-6
            return (A @ B).view(Waiting)

        class Waiting(np.ndarray):
            def block_until_ready(self):
                return self

        lax = types.SimpleNamespace(fori_loop=fori_loop, optimization_barrier=lambda x: x,
                                    DotAlgorithmPreset={"X3": "x3"})  # fmt: skip
        jax = types.SimpleNamespace(lax=lax, jit=jit, device_put=lambda x: x,
                                    numpy=types.SimpleNamespace(matmul=matmul),
                                    default_backend=lambda: "cpu")  # fmt: skip
        monkeypatch.setitem(sys.modules, "jax", jax)
        monkeypatch.setattr(product, "CHAIN_S", 1e-9)
        monkeypatch.setattr(product.time, "perf_counter", lambda: now[0])
        product.chain.cache_clear()
        yield product
        product.chain.cache_clear()

    def test_a_chain_multiplies_repeatedly(self, product):
        A, B = np.diag([1, 2, 3]).astype(np.float32), np.ones((3, 2), np.float32)
        assert (product.once("X3", A, B) == A @ B).all()
        assert (product.chain(None, 3)(A, B) == A @ A @ A @ B).all()
        assert (product.once("X3, no Triton", A, B) == A @ B).all()
        assert self.options == [None, None, {"xla_gpu_enable_triton_gemm": False}]

    def test_a_programs_overhead_is_not_counted(self, product, rng):
        A, B = (rng.uniform(-1, 1, (32, 32)).astype(np.float32) for _ in "AB")
        taken = list(product.samples(None, A, B))
        assert taken == pytest.approx([1e-6] * product.PAIRS)

    def test_on_the_cpu_it_is_left_out(self, product):
        with pytest.raises(RuntimeError, match="computes on the cpu here"):
            product.needs_gpu()


class TestCutlassProduct:
    @pytest.fixture
    def product(self, experiment, monkeypatch, tmp_path):
        """Replaces CUTLASS with a CPU product that the C compiler builds."""
        product = experiment("_cutlass_product")
        source = tmp_path / "simt.c"
        source.write_text("""
            int tried = 0;
            int fastest(const float *A, const float *B, float *C, int M, int N, int K, int layout)
            {
                ++tried;
                return K == 9 ? -1 : 2;
            }
            int multiply(const float *A, const float *B, float *C, int M, int N, int K, int layout,
                         int tile, void *stream)
            {
                int down = layout == 2 ? 1 : K, along = layout == 2 ? M : 1;
                int b_down = layout == 1 ? 1 : N, b_along = layout == 1 ? K : 1;
                for (int i = 0; i < M * N; ++i) {
                    C[i] = 0;
                    for (int k = 0; k < K; ++k)
                        C[i] += A[i / N * down + k * along] * B[k * b_down + i % N * b_along];
                }
                return K == 7 || tile != 2 || stream ? 5 : 0;
            }""")
        nvcc = f'cc -fPIC -shared {source} -o "${{@: -1}}"; echo "$@" >> {tmp_path}/calls'
        (tmp_path / "nvcc").write_text(f"#!/bin/bash\n{nvcc}")
        (tmp_path / "nvcc").chmod(0o755)
        monkeypatch.setattr(experiment("_compiled"), "find_nvcc", lambda: str(tmp_path / "nvcc"))
        monkeypatch.setattr(experiment("_compiled"), "FOLDER", tmp_path / "build")
        monkeypatch.setattr(product, "architecture", lambda: "sm_90a")
        monkeypatch.setenv("CUTLASS_PATH", str(tmp_path))
        make_headers_of_cutlass(product, tmp_path)
        monkeypatch.setattr(product, "_TILES", {})
        product.library.cache_clear()
        yield product
        product.library.cache_clear()

    def test_a_product_takes_a_or_b_by_columns(self, product, rng):
        A, B = (rng.integers(-9, 9, shape).astype(np.float32) for shape in ((3, 5), (5, 4)))
        C = np.empty((3, 4), np.float32)
        by_columns = map(np.asfortranarray, (A, B))
        a, b = by_columns
        for operands in ((A, B), (A, b), (a, B), (A, B)):
            C[...] = np.nan
            product.product(*map(exported, (*operands, C)), kernel="Simt")
            assert (A @ B == C).all()
        tried = ctypes.c_int.in_dll(product.library("Simt"), "tried").value
        assert tried == 3, "once for each layout"
        for operands in ((a, b, C), (A, B, C.T.copy().T)):
            with pytest.raises(ValueError, match="by rows"):
                product.product(*map(exported, operands), kernel="Simt")
        with pytest.raises(ValueError, match="densely packed"):
            product.product(*map(exported, (A, B[:, ::2], C)), kernel="Simt")

    def test_a_refusal_is_said(self, product):
        A, B, C = (np.ones(shape, np.float32) for shape in ((2, 7), (7, 2), (2, 2)))
        with pytest.raises(RuntimeError, match="CUTLASS refused 2 x 2 x 7: status 5"):
            product.product(*map(exported, (A, B, C)), kernel="Simt")
        A, B = (np.ones(shape, np.float32) for shape in ((2, 9), (9, 2)))
        with pytest.raises(RuntimeError, match="no tile of CUTLASS can compute 2 x 2 x 9"):
            product.product(*map(exported, (A, B, C)), kernel="Simt")

    def test_is_compiled_once_for_each_release_and_kernel(self, product, tmp_path):
        first = product.build("sm_90a", "Simt")
        assert product.build("sm_90a", "Simt") == first
        assert product.build("sm_90a", "ThreeTf32") != first
        (tmp_path / "include/cutlass/version.h").write_text("#define CUTLASS_MAJOR 5\n")
        assert product.build("sm_90a", "Simt") != first
        calls = (tmp_path / "calls").read_text().splitlines()
        assert ["-DKERNEL=ThreeTf32" in call for call in calls] == [False, True, False]
        assert f"-I{tmp_path}/include" in calls[0]
        assert "-arch=sm_90a" in calls[0]

    def test_headers_default_to_fetched_ones_and_to_a_package(self, product, monkeypatch, tmp_path):
        monkeypatch.delenv("CUTLASS_PATH")
        monkeypatch.setattr(product, "SOURCES", tmp_path / "peers")
        package = tmp_path / "cutlass_library"
        (package / "source").mkdir(parents=True)
        (package / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(FileNotFoundError, match="missing: make peers"):
            product.root()
        make_headers_of_cutlass(product, package / "source")
        assert product.root() == package / "source"
        make_headers_of_cutlass(product, tmp_path / "peers/cutlass")
        assert product.root() == tmp_path / "peers/cutlass"

    def test_compiler_errors_are_raised(self, product, experiment, monkeypatch, tmp_path):
        broken = executable(tmp_path / "broken", "echo no such flag >&2; exit 1")
        monkeypatch.setattr(experiment("_compiled"), "find_nvcc", lambda: str(broken))
        with pytest.raises(RuntimeError, match="no such flag"):
            product.build("sm_90a", "Simt")


class TestGemmul8Product:
    @pytest.fixture
    def product(self, experiment, monkeypatch):
        """Replaces GEMMul8 with a product of column-major matrices in host memory."""
        product = experiment("_gemmul8_product")

        def multiply(of_a, of_b, m, n, k, a, lda, b, ldb, c, ldc, moduli, stream):
            assert (moduli, stream) == (7, None)
            A = matrix(a, k, m, lda).T if of_a.value == b"T" else matrix(a, m, k, lda)
            B = matrix(b, n, k, ldb).T if of_b.value == b"T" else matrix(b, k, n, ldb)
            matrix(c, m, n, ldc)[:] = A @ B
            return self.status

        self.status = 0
        monkeypatch.setattr(product, "library", lambda: types.SimpleNamespace(int8=multiply))
        return product

    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_multiplies_in_each_layout(self, product, rng, layout):
        A, B = laid_out((uniform(rng, 3, 5), uniform(rng, 5, 4)), layout)
        C = np.full((3, 4), np.nan, np.float32)
        product.product(*map(exported, (A, B, C)), numbers="int8")
        assert np.allclose(C, A @ B, atol=1e-6)

    def test_a_refusal_is_said(self, product):
        self.status = 2
        with pytest.raises(RuntimeError, match="GEMMul8 refused 2 x 2 x 2: status 2"):
            product.product(*(exported(np.ones((2, 2), np.float32)) for _ in "ABC"), numbers="int8")

    def test_sources_are_fetched_by_make(self, experiment, monkeypatch, tmp_path):
        product = experiment("_gemmul8_product")
        monkeypatch.setattr(product, "SOURCES", tmp_path)
        with pytest.raises(FileNotFoundError, match="make peers"):
            product.root()


class TestRecomputing:
    @pytest.fixture
    def recomputing(self, experiment):
        return experiment("recomputing")

    SHAPE = (128, 192, 512)

    def made(self, recomputing, key):
        _, make = recomputing.DATA[key]
        return make(np.random.default_rng(self.SHAPE), self.SHAPE)

    @pytest.mark.parametrize(("key", "early"), [("early fallback", 0.0), ("late fallback", 0.75)])
    def test_all_tiles_are_computed_in_float32(self, recomputing, key, early):
        """So they have the bits of a float32 rung. In a tile that is recomputed early, most sums
        are still small after four K chunks. In the others, most are certain to pass the check by
        then."""
        A, B = self.made(recomputing, key)
        expected = sgemm_kernels.run("raster", A, B, device="cpu")
        for name in ("mma", "wgmma"):
            assert same_bits(sgemm_kernels.run(name, A, B, device="cpu"), expected)
        sums = split_fp16_sums(A, B)
        certain = np.abs(sums[EARLY - 1]) >= CERTAIN
        assert certain.mean() == pytest.approx(early, abs=0.01)
        failing = ~sums_pass(sums)
        assert failing.mean() == pytest.approx(1 - early, abs=0.01)

    def test_the_slots_of_all_tiles_are_nearly_full(self, recomputing):
        A, B = self.made(recomputing, "in slots")
        assert 30 <= (~passes_check(A, B)).sum() <= SLOTS
        split_fp16, float32 = (sgemm_kernels.run(name, A, B, device="cpu")
                              for name in ("wgmma", "raster"))  # fmt: skip
        assert (split_fp16 == float32).mean() < 0.5, "no tile was recomputed"

    def test_triangles_are_zero_only_above_their_diagonals(self, recomputing):
        A, B = self.made(recomputing, "triangular")
        assert (np.triu(A, 1) == 0).all()
        assert (np.triu(B, 1) == 0).all()
        assert A[0, 0] * B[0, 0] * A[-1, 0] != 0

    @pytest.mark.parametrize("wrong", [False, True])
    def test_table_file_and_status(
        self, recomputing, compared, monkeypatch, tmp_path, capsys, wrong
    ):
        times = {"simt": 2e-3, "mma": 3e-3, "cublas": 4e-3}

        def seconds_of(name, shape, layout, turn):
            return None if wrong and name == "mma" else times.get(name, 1e-3)

        compared(recomputing, seconds_of)
        monkeypatch.setattr(recomputing, "names", lambda: ["simt", "mma", "waves", "cublas"])
        path = tmp_path / "recomputing.json"
        status = run_script(recomputing, monkeypatch, "-o", path, "--sizes", "512", "1024")
        assert status == int(wrong)
        document = json.loads(path.read_text())
        assert document["device"] == RUN.device
        kinds = {(row["data"], row["n"]) for row in document["rows"]}
        assert kinds == set(itertools.product(recomputing.DATA, (512, 1024)))
        rows = {(row["data"], row["n"], row["variant"]): row for row in document["rows"]}
        row = rows["normal", 512, "waves"]
        assert (row["over_simt"], row["over_cublas"]) == (0.5, 0.25)
        assert row["operands"] == "standard normal"
        line = ["early fallback", "1024", "2.000", "-" if wrong else "1.50", "0.50", "2.00"]
        out = capsys.readouterr().out
        assert line in [re.split(r"  +", text.strip()) for text in out.splitlines()]
        assert f"| {' | '.join(line)} |" in experiment_tables.recomputing(path).splitlines()
        slowest = experiment_tables.worst(path, Path("cublas"))
        assert "`cublas` takes 2.00 times as long as `simt`: *" in slowest
        rows["in slots", 512, "waves"]["over_simt"] = 7.5
        rows["late fallback", 1024, "waves"]["over_simt"] = 1.25
        path.write_text(json.dumps(document))
        slowest = experiment_tables.worst(path, Path("waves"))
        assert "7.50 times as long as `simt`: *in slots* operands with M = N = K = 512." in slowest
        assert "At 1024 it takes up to 1.25 times as long, with *late fallback* op" in slowest
        rows["late fallback", 1024, "waves"]["over_simt"] = 8
        path.write_text(json.dumps(document))
        assert "At 1024" not in experiment_tables.worst(path, Path("waves"))

    def test_names_the_variants_that_run_here(self, recomputing):
        known = {variant.name for variant in variants() if variant.unavailable is None}
        assert recomputing.names() == [name for name in recomputing.NAMES if name in known]
        assert {"simt", "mma", "wgmma", "waves", "auto"} <= set(recomputing.names())


class TestClocks:
    """A GPU whose clock falls while other variants run."""

    @pytest.fixture
    def clocks(self, experiment, monkeypatch):
        clocks = experiment("clocks")
        gpu = types.SimpleNamespace(name="cuda:1", model="A Made-Up GPU", driver="9.9")
        monkeypatch.setattr(clocks, "find_gpu", lambda what: gpu)
        monkeypatch.setattr(clocks, "NAMES", ("streamk", "no_such", "simt"))
        pauses = []
        monkeypatch.setattr(clocks.time, "sleep", pauses.append)

        class Product:
            def __init__(self, n, device):
                assert (n, device) == (1000, 1)

            def sample(self, name):
                hertz = 2e9 if pauses and pauses[-1] > 0 else 1e9
                return 4e6, 4e6 / hertz

        monkeypatch.setattr(clocks, "Clocked", Product)
        return clocks

    def test_table_and_file(self, clocks, monkeypatch, tmp_path, capsys):
        path = tmp_path / "clocks.json"
        assert run_script(clocks, monkeypatch, "-o", path, "--size", "1000") == 0
        rows = json.loads(path.read_text())["rows"]
        assert [(row["variant"], row["order"]) for row in rows] == [
            ("streamk", "round-robin"), ("simt", "round-robin"),
            ("streamk", "after a pause"), ("simt", "after a pause"),
        ]  # fmt: skip
        assert all(len(row["cycles"]) == len(row["samples_s"]) == clocks.ROUNDS for row in rows)
        line = [
            "simt",
            "after a pause",
            "4.0 (4.0 to 4.0)",
            "2000 (2000 to 2000)",
            "1.0 (1.0 to 1.0)",
        ]
        assert line in [
            re.split(r"  +", text.strip()) for text in capsys.readouterr().out.splitlines()
        ]
        assert f"| {' | '.join(line)} |" in experiment_tables.clocks(path).splitlines()

    def test_too_little_memory_is_reported(self, clocks, monkeypatch, capsys):
        def no_memory(*_):
            raise MemoryError("too large")

        monkeypatch.setattr(clocks, "Clocked", no_memory)
        assert run_script(clocks, monkeypatch) == 2
        assert "too large" in capsys.readouterr().err


class TestAllGpus:
    @pytest.fixture
    def all_gpus(self, experiment, monkeypatch):
        all_gpus = experiment("all_gpus")
        monkeypatch.setattr(all_gpus, "SIZES", (8, 16384))
        return all_gpus

    class Tensor(np.ndarray):
        """The part of PyTorch's tensor that is used."""

        cuda, cpu, numpy = *[lambda self: self] * 2, lambda self: np.asarray(self)

    @pytest.mark.parametrize("place", ["GPU", "host", "pinned"])
    @pytest.mark.parametrize("wrong", [False, True])
    def test_both_ways_are_checked_and_timed(self, all_gpus, monkeypatch, place, wrong):
        asked, pinned, waits = [], [], []
        torch = types.SimpleNamespace(
            from_numpy=lambda array: array.view(self.Tensor),
            empty_like=np.empty_like,
            cuda=types.SimpleNamespace(synchronize=lambda: waits.append(len(asked))),
        )

        def run(variant, A, B, *, out, device):
            asked.append((variant, device))
            on_gpu = [isinstance(array, self.Tensor) for array in (A, B, out)]
            assert on_gpu == [place == "GPU"] * 3
            assert place != "pinned" or (A is pinned[0] and B is pinned[1])
            np.matmul(A, B, out=out)
            out += wrong and device == "cuda:all"

        monkeypatch.setattr(all_gpus, "run", run)
        own = all_gpus.host_cost.pinned
        monkeypatch.setattr(
            all_gpus.host_cost, "pinned", lambda array: pinned.append(own(array)) or pinned[-1]
        )
        monkeypatch.setattr(all_gpus.host_cost, "SAMPLING_S", 0.0)
        samples, worst = all_gpus.sample(place, 8, torch)
        assert (worst > 1) == wrong
        assert {way: len(times) for way, times in samples.items()} == dict.fromkeys(
            all_gpus.DEVICES, all_gpus.host_cost.FEWEST_CALLS - 2
        )
        once = [("auto", way) for way in all_gpus.DEVICES]
        assert asked == once * (all_gpus.host_cost.FEWEST_CALLS + 1)
        # A call with PyTorch's tensors is only queued: each is waited for before the next.
        assert waits == (list(range(1, len(asked) + 1)) if place == "GPU" else [])

    @pytest.mark.parametrize(("worst", "status"), [(0.5, 0), (1.5, 1)])
    def test_table_file_and_status(self, all_gpus, monkeypatch, tmp_path, capsys, worst, status):
        gpu = types.SimpleNamespace(kind="cuda", usable=True, model="A Made-Up GPU", driver="13.0")
        monkeypatch.setattr(all_gpus, "devices", lambda: [gpu, gpu])
        monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="0"))
        times = {"cuda:0": [4e-3, 4e-3], "cuda:all": [2e-3, 2e-3]}
        monkeypatch.setattr(all_gpus, "sample", lambda *_: (times, worst))
        path = tmp_path / "all_gpus.json"
        assert run_script(all_gpus, monkeypatch, "-o", path) == status
        out = capsys.readouterr().out
        for place, aim in (("GPU", "1.8"), ("host", "1.7"), ("pinned", "1.7")):
            line = [place, "16384", "4.000", "2.000", "2.00", aim, "NO" if status else "yes"]
            assert line in [text.split() for text in out.splitlines()]
        rows = json.loads(path.read_text())["rows"]
        assert [(row["arrays"], row["n"], row["aimed_at"]) for row in rows] == [
            ("GPU", 8, None),
            ("GPU", 16384, 1.8),
            ("host", 8, None),
            ("host", 16384, 1.7),
            ("pinned", 8, None),
            ("pinned", 16384, 1.7),
        ]
        *_, last, _, facts = experiment_tables.gpus(path).splitlines()
        assert last == f"| 16384 {'| 2.000 ms, 2.00x ' * 3}|"
        assert facts.startswith("2 x A Made-Up GPU, CUDA ")

    def test_one_gpu_is_too_few(self, all_gpus, monkeypatch):
        monkeypatch.setattr(all_gpus, "devices", list)
        assert "two GPUs" in run_script(all_gpus, monkeypatch)


class TestTuning:
    @pytest.mark.parametrize("verdict", ["right", "wrong"])
    def test_a_file_for_each_rung_compares_its_own_values_with_the_best(
        self, experiment, monkeypatch, tmp_path, capsys, verdict
    ):
        tuning = experiment("tuning")

        def tune(rung, space, size, *, device, seconds):
            own = {"tile2d": {"BM": 128, "BN": 128}, "warptile": {"BM": 128, "BN": 256}}[rung]
            seconds = (0.011,) if verdict == "right" else ()
            candidates = (Candidate(own, verdict, seconds=seconds),
                          Candidate({**own, "BM": 64}, "right", seconds=(0.010,)))  # fmt: skip
            return Tuning(rung, "A GPU", "cuda", ((size,) * 3,), {"BM": (64, 128)}, own,
                          candidates, False, "0123")  # fmt: skip

        monkeypatch.setattr(tuning, "tune", tune)
        monkeypatch.setattr(tuning, "find_gpu", lambda _: find_device("cpu"))
        status = run_script(tuning, monkeypatch, "-o", tmp_path / "tuning.json")
        out = capsys.readouterr().out
        assert status == (verdict == "wrong")
        for rung in ("tile2d", "warptile"):
            assert len(Tuning.from_json(tmp_path / f"tuning-{rung}.json").candidates) == 2
        assert out.count("take 1.100 times as long") == (2 if verdict == "right" else 0)
        assert out.count("were not timed") == (0 if verdict == "right" else 2)
        told = experiment_tables.tuning(tmp_path / "tuning-tile2d.json")
        assert told.startswith("`tile2d`: 2 of 2 tried: ")
        assert told.endswith(
            "\n\n| BM | 4096 |\n| :-- | --: |\n| 64 | 13744 |\n"
            + ("| 128 | 12494 |\n" if verdict == "right" else "")
            + "\nGFLOP/s. A GPU, csrc 0123."
        )
        assert ("the file's own values take 1.10x" in told) == (verdict == "right")

    def test_its_spaces_contain_the_ladders_values(self, experiment):
        for rung, space in experiment("tuning").SPACES.items():
            tile = next(v for v in variants() if v.name == rung).block_tile
            assert all(
                size in space[name] for name, size in zip(("BM", "BN", "BK"), tile, strict=True)
            )


class TestPlanCost:
    @pytest.fixture
    def plan_cost(self, experiment):
        return experiment("plan_cost")

    @pytest.mark.packaging
    def test_every_choice_is_timed(self, plan_cost, monkeypatch, tmp_path, capsys):
        run_script(plan_cost, monkeypatch, "-o", tmp_path / "plan_cost.json")
        document = json.loads((tmp_path / "plan_cost.json").read_text())
        best = [row["best_ns"] for row in document["rows"]]
        assert len(best) == sum(map(len, plan_cost.cases().values())) > 320
        assert min(best) > 1, "the calls were left out by the compiler"
        assert document["device"] == find_device("cpu").model
        assert capsys.readouterr().out.count("\nall ") == 1

    def test_shows_the_compilers_message(self, plan_cost, monkeypatch, tmp_path):
        monkeypatch.setenv("CC", str(executable(tmp_path / "cc", "echo no such flag >&2; exit 1")))
        with pytest.raises(SystemExit, match="no such flag"):
            plan_cost.measure()


class TestTraffic:
    CSV = """
        echo '==PROF== Connected'
        echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
        echo '"0","hold(volatile Gate *)","dram__bytes_read.sum","byte","3"'
        echo '"1","sgemm_of_a_library","dram__bytes_read.sum","byte","1,000"'
        echo '"2","sum_of_a_library","dram__bytes_read.sum","byte","24"'
        echo '"3","hold(volatile Gate *)","dram__bytes_read.sum","byte","3"'
        echo '"3","hold(volatile Gate *)","dram__bytes_write.sum","byte","3"'
        echo '"4","naive(Sgemm)","dram__bytes_read.sum","byte","7"'
        echo '"5","hold(volatile Gate *)","dram__bytes_read.sum","byte","3"'
        echo '"6","before_it","dram__bytes_read.sum","byte","1"'
        echo '"6","before_it","smsp__issue_active.avg.pct_of_peak_sustained_active","%","11"'
        echo '"7","void vec4<8>(Sgemm)","dram__bytes_read.sum","byte","5"'
        echo '"7","vec4(Sgemm)","smsp__issue_active.avg.pct_of_peak_sustained_active","%","90"'
        echo '"8","after_it","dram__bytes_read.sum","byte","2"'
    """

    @pytest.fixture
    def watch(self, experiment, monkeypatch, tmp_path):
        """Watches products of variants with a shell script in place of the profiler."""

        def watch(script, *names):
            executable(tmp_path / "ncu", script)
            monkeypatch.setenv("PATH", str(tmp_path))
            return experiment("traffic").watch(1024, "cuda:0", [*names])

        return watch

    def test_kernels_belong_to_the_product_with_a_variants_name(self, watch):
        found = watch(self.CSV, "cublas", "naive", "vec4")
        assert {name: figures["dram_bytes_read"] for name, figures in found.items()} == {
            "cublas": 1024,
            "naive": 7,
            "vec4": 8,
        }
        assert found["vec4"]["issue_slots_percent"] == 90

    def test_a_variants_counts_include_all_kernels_of_its_product(self, watch):
        script = """
            echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
            echo '"0","hold(volatile Gate *)","dram__bytes_read.sum","byte","3"'
            echo '"1","split(Sgemm)","dram__bytes_read.sum","byte","2"'
            echo '"2","wgmma<128>(Sgemm)","dram__bytes_read.sum","byte","5"'
            echo '"3","hold(volatile Gate *)","dram__bytes_read.sum","byte","3"'
            echo '"4","waves<192>(Sgemm)","dram__bytes_read.sum","byte","11"'
            echo '"4","waves(Sgemm)","smsp__issue_active.avg.pct_of_peak_sustained_active","%","9"'
        """
        assert watch(script, "cublas", "wgmma", "waves") == {
            "wgmma": {"dram_bytes_read": 7},
            "waves": {"dram_bytes_read": 11, "issue_slots_percent": 9},
        }

    def test_an_unknown_counter_does_not_affect_the_others(self, watch):
        unknown = (
            'case "$*" in *issue_active*) echo "==ERROR== Failed to find metric"; exit 1;; esac'
        )
        found = watch(unknown + self.CSV, "cublas", "naive", "vec4")
        assert found["naive"] == {"dram_bytes_read": 7}

    def test_says_why_there_are_no_counters(self, watch):
        refusing = "echo '==ERROR== ERR_NVGPUCTRPERM: no permission'; exit 1"
        assert "ERR_NVGPUCTRPERM" in watch(refusing, "naive")

    def test_a_failing_variant_does_not_affect_the_others(self, experiment, monkeypatch, capsys):
        traffic = experiment("traffic")
        done = []

        def measure(names, A, B, device, *, rounds):
            if names == ("vec4",):
                raise sgemm_kernels.DeviceError("too much to ask")
            done.append((names, A.shape, device, rounds))

        monkeypatch.setattr(traffic, "kernel_samples", measure)
        traffic.run_all(8, "cuda:3", ["naive", "vec4", "smem"])
        assert done == [(("naive",), (8, 8), "cuda:3", 1), (("smem",), (8, 8), "cuda:3", 1)]
        assert "vec4: too much" in capsys.readouterr().err

    def test_on_a_gpu_libraries_come_first_and_auto_is_left_out(self, experiment, monkeypatch):
        """The kernels of `auto` have the names of other rungs."""
        traffic = experiment("traffic")
        watched = []
        library = types.SimpleNamespace(
            name="cublas", file=None, devices=("cuda",), unavailable=None
        )
        ladder = [v for v in variants() if v.name in ("naive", "vec4", "auto")]
        monkeypatch.setattr(traffic, "variants", lambda: [*ladder, library])
        monkeypatch.setattr(traffic, "watch", lambda n, gpu, names: watched.extend(names) or "no")
        rows, problem = traffic.measure(128, types.SimpleNamespace(name="cuda:0"))
        assert watched == ["cublas", "naive", "vec4"]
        assert [row["variant"] for row in rows] == ["naive", "vec4", "cublas"]
        assert problem == "no"

    def test_power_is_measured_while_one_kernel_repeats(self, experiment, monkeypatch):
        traffic = experiment("traffic")
        asked = []

        def measure(names, A, B, device, *, rounds):
            asked.append((names, device, rounds))
            return ([0.01] * rounds if len(asked) != 2 else [],)  # the second has no samples

        clock = itertools.count()
        monkeypatch.setattr(traffic.time, "monotonic", lambda: 0.5 * next(clock))
        monkeypatch.setattr(traffic, "kernel_samples", measure)
        gpu = types.SimpleNamespace(name="cuda:3", pci_bus_id=None)
        assert traffic.powered(8, gpu, "vec4") == {"clock_mhz": None, "power_w": None}
        assert {each[:2] for each in asked} == {(("vec4",), "cuda:3")}
        assert [each[2] for each in asked[:3]] == [1, 50, 1]

    def test_counts_match_the_formula(self, experiment):
        traffic = experiment("traffic")
        rows, problem = traffic.measure(256, None)
        assert "no GPU" in problem
        for row in rows:
            figures = traffic.figures(row)
            for space in ("global", "shared"):
                counted, formula = figures[f"{space}, counted"], figures[f"{space}, formula"]
                assert (formula is None) == (row["variant"] in traffic.SPLITTING)
                assert counted == pytest.approx(formula or counted, rel=0.05), row["variant"]
        assert traffic.picture({"device": None}, rows).axes
        alone = traffic.limits(RESULTS / "nowhere/traffic.json", {"device": None}, rows)
        assert "Bytes that each rung moves" in alone.get_suptitle()
        path = recorded_file("traffic.json")
        assert (
            "Utilization of each GPU unit"
            in traffic.limits(path, {"device": None}, rows).get_suptitle()
        )
        assert traffic.lines(rows).count("\n") == len(rows) == len(NAMES)


class TestSweeps:
    def test_reads_the_report_of_ptxas(self, experiment):
        report = """
ptxas info    : Compiling entry function 'compare' for 'sm_90'
ptxas info    : Function properties for compare
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function 'tile' for 'sm_90'
ptxas info    : Function properties for tile
    216 bytes stack frame, 360 bytes spill stores, 364 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 8192 bytes smem
"""
        assert experiment("_sweep").parse_report(report, "tile") == {
            "registers": 255,
            "spill_store_bytes": 360,
            "spill_load_bytes": 364,
            "stack_bytes": 216,
            "shared_bytes": 8192,
        }

    def test_needs_nvcc(self, experiment, monkeypatch):
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        with pytest.raises(SystemExit, match="CUDA_HOME"):
            experiment("_sweep").nvcc()

    @pytest.mark.parametrize("name", ["tile_size", "work_per_thread"])
    def test_tables_and_pictures(self, experiment, name):
        """For the committed results, with one setting changed to a wrong result."""
        script = experiment(name)
        document = json.loads(recorded_file(f"{name}.json").read_text())
        rows = document.pop("rows")
        for key in ("samples_s", "median_s", "iqr_s", "gflops"):
            del rows[-1][key]
        assert script.lines(rows).count("\n") == len(rows)
        assert "wrong" in script.lines(rows).splitlines()[-1]
        axes = script.picture(document, rows).axes[0]
        assert len(axes.lines[0].get_xdata()) == len(rows) - 1
