"""Experiments 18, 19 and 24 without a GPU: what they time, their tables and their pictures.

Stand-ins for PyTorch multiply by NumPy. With PyTorch, its models run on the CPU at tiny sizes.
"""

import contextlib
import functools
import importlib.util
import itertools
import json
import re
import sys
import types

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import Measurement, Results
from sgemm_kernels.cli import experiment_tables, model_tables, product_tables
from sgemm_kernels.measuring.measurement import Accuracy, Protocol, Run

from .support import run_script
from .test_batched import GPU, HEAD


def samples(seconds):
    return {"samples_s": [seconds] * 3, "median_s": seconds, "iqr_s": 0.0}


class Operators:
    """A stand-in for `sgemm_kernels.torch`. It counts three products a call while enabled."""

    def __init__(self):
        self.enabled, self.calls = False, 0

    @contextlib.contextmanager
    def enable(self):
        self.enabled = True
        yield
        self.enabled = False

    def stats(self, reset=False):
        calls, self.calls = self.calls, 0 if reset else self.calls
        return {"mm": {"taken": calls, "small": calls}, "bmm": {"small": calls}} if calls else {}

    def product(self):
        self.calls += self.enabled


class TestCalls:
    @pytest.fixture
    def calls(self, experiment, monkeypatch):
        calls = experiment("calls")
        monkeypatch.setattr(calls, "run", functools.partial(sgemm_kernels.run, device="cpu"))
        return calls

    @pytest.fixture
    def torch(self):
        """PyTorch whose tensors are NumPy's arrays."""

        def mm(A, B, out=None):
            return np.matmul(A, B, out=out)

        def into(A, B, out):
            mm(A, B, out)

        operator = types.SimpleNamespace(default=mm, out=into)
        return types.SimpleNamespace(
            from_numpy=lambda X: types.SimpleNamespace(cuda=lambda: X),
            empty=lambda shape, device: np.empty(shape, np.float32),
            cuda=types.SimpleNamespace(synchronize=lambda: None),
            mm=mm,
            ops=types.SimpleNamespace(sgemm_kernels=types.SimpleNamespace(mm=operator)),
        )

    def test_all_ways_are_checked_and_what_is_missing_is_told(self, calls, torch):
        found = {"torch": torch, "operators": Operators()}
        missing = {}
        rows = calls.rows_at(16, calls.QUEUE, found, 0.0, missing)
        assert [row["way"] for row in rows] == [
            calls.MM, calls.MM_OUT, calls.RUN, calls.RUN_OUT, calls.OPERATOR, calls.OPERATOR_OUT,
            calls.ENABLED, calls.ENABLED_OUT, calls.NUMPY,
        ]  # fmt: skip
        assert all(0 < row["worst_share_of_bound"] <= 1 for row in rows)
        assert all(len(row["samples_s"]) == calls.FEWEST_ROUNDS for row in rows)
        assert "__cuda_array_interface__" in missing["of_device_arrays"]

    def test_a_wrong_product_and_a_missing_operator_are_left_out(self, calls, torch):
        torch.mm = lambda A, B, out=None: A @ B + 1
        del torch.ops.sgemm_kernels.mm
        missing = {}
        rows = calls.rows_at(
            16, calls.QUEUE, {"torch": torch, "operators": Operators()}, 0.0, missing
        )
        assert [row["way"] for row in rows] == [calls.RUN, calls.RUN_OUT, calls.NUMPY]
        assert "times the bound" in missing[calls.MM]
        assert "mm" in missing["of_operators"]

    def test_an_error_of_one_way_leaves_the_others(self, calls, torch):
        def fails(A, B, out):
            raise RuntimeError("no kernel")

        torch.ops.sgemm_kernels.mm.out = fails
        missing = {}
        found = {"torch": torch, "operators": Operators()}
        rows = calls.rows_at(16, calls.QUEUE, found, 0.0, missing)
        assert {calls.OPERATOR, calls.ENABLED, calls.ENABLED_OUT} <= {row["way"] for row in rows}
        assert missing[calls.OPERATOR_OUT] == "no kernel"

    def test_in_a_row_and_without_pytorch(self, calls, torch):
        rows = calls.rows_at(16, calls.IN_A_ROW, {"torch": torch}, 0.0, {})
        assert [row["way"] for row in rows] == [calls.MM_OUT, calls.SIMT_OUT, calls.AUTO_OUT]
        assert calls.rows_at(16, calls.IN_A_ROW, {}, 0.0, {}) == []
        assert [row["way"] for row in calls.rows_at(16, calls.QUEUE, {}, 0.0, {})] == [calls.NUMPY]

    def test_the_wait_belongs_to_products_in_a_row_alone(self, calls, monkeypatch):
        clock = [0.0]

        def spend(seconds):
            clock[0] += seconds

        monkeypatch.setattr(calls.time, "perf_counter", lambda: clock[0])
        way = calls.Way(lambda: spend(1), lambda _: spend(10))
        for waits, expected in ((False, 1), (True, 3)):
            found = calls.sample({"a": way, "b": way}, 5, 0.0, waits=waits)
            assert found == {name: [expected] * calls.FEWEST_ROUNDS for name in "ab"}

    def test_operators_are_enabled_for_their_way_alone(self, calls, torch):
        operators = Operators()
        seen = set()
        multiply = torch.mm

        def mm(A, B, out=None):
            seen.add(operators.enabled)
            return multiply(A, B, out)

        torch.mm = mm
        ways = dict(calls.of_torch({"torch": torch}, *np.ones((2, 4, 4), np.float32)))
        calls.sample({calls.MM: ways[calls.MM]}, 2, 0.0, waits=False)
        assert seen == {False}
        found = {"torch": torch, "operators": operators}
        ways = dict(calls.of_operators(found, *np.ones((2, 4, 4), np.float32)))
        seen.clear()
        calls.sample({calls.ENABLED: ways[calls.ENABLED]}, 2, 0.0, waits=False)
        assert seen == {True}
        assert not operators.enabled

    def test_kernels_are_counted_without_copies(self, calls, torch, monkeypatch):
        monkeypatch.setattr(calls, "COUNTED_SIZE", 16)
        names = ["prepare", "waves", "waves", "Memset (Device)", "cudaLaunchKernel"]
        events = [
            types.SimpleNamespace(
                name=name,
                device_type=types.SimpleNamespace(name="CPU" if "Launch" in name else "CUDA"),
            )
            for name in names * calls.COUNTED
        ]

        @contextlib.contextmanager
        def profile(activities):
            yield types.SimpleNamespace(events=lambda: events)

        activity = types.SimpleNamespace(CUDA="CUDA")
        torch.profiler = types.SimpleNamespace(profile=profile, ProfilerActivity=activity)
        (row,) = calls.kernels({"torch": torch}, {})
        assert (row["kernels"], row["names"]) == (3, ["prepare", "waves"])
        events.clear()
        missing = {}
        assert calls.kernels({"torch": torch}, missing) == []
        assert missing == {"kernels": "the profiler reports none"}
        del torch.profiler.profile
        assert calls.kernels({"torch": torch}, missing) == []
        assert "profile" in missing["kernels"]

    def test_a_module_that_cannot_start_is_missing(self, calls, experiment, monkeypatch):
        modules = experiment("_modules")
        settings = []

        def initialize():
            raise RuntimeError("no driver\nat line 3")

        stand_ins = {
            "torch": types.SimpleNamespace(cuda=types.SimpleNamespace(init=initialize)),
            "jax": types.SimpleNamespace(default_backend=lambda: "cpu"),
            "cupy": types.SimpleNamespace(),
        }

        def load(name):
            if name in stand_ins:
                return stand_ins[name]
            raise ImportError(f"No module named {name!r}")

        monkeypatch.setattr(modules, "importlib", types.SimpleNamespace(import_module=load))
        monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        found, missing = modules.imported(calls.MODULES)
        assert set(found) == {"cupy"}
        assert missing["torch"] == "no driver"
        assert missing["jax"] == "it computes on the cpu here"
        assert missing["operators"] == "No module named 'sgemm_kernels.torch'"

        stand_ins["torch"].cuda.init = lambda: None
        stand_ins["torch"].set_float32_matmul_precision = settings.append
        assert "torch" in modules.imported(calls.MODULES)[0]
        assert settings == ["highest"]

    def made_up(self, calls, slower=1.0):
        rows = [
            {"what": calls.QUEUE, "way": way, "n": n, **samples(us * 1e-6)}
            for way, us in (
                (calls.MM, 15), (calls.MM_OUT, 12), (calls.RUN, 15 * slower),
                (calls.RUN_OUT, 6 * slower), (calls.DEVICE_ARRAYS, 6 * slower),
                (calls.NUMPY, 20 * slower),
            )
            for n in (16, 64)
        ]  # fmt: skip
        rows += [
            {"what": calls.IN_A_ROW, "way": way, "n": n, **samples(us * 1e-6)}
            for way, us in ((calls.MM_OUT, 50), (calls.AUTO_OUT, 25 * slower))
            for n in (256, 1024)
        ]
        count = {"kernels": 3 * slower, "names": ["waves"]}
        return [*rows, {"what": calls.KERNELS, "way": calls.AUTO_OUT, "n": 1024, **count}]

    def test_targets_are_met_missed_or_not_measured(self, calls):
        for slower, verdict in ((1.0, "met"), (2.1, "missed")):
            _, lines = experiment_tables.targets(self.made_up(calls, slower))
            verdicts = [line[-1] for line in lines]
            # 12.6 us of 12 us; and twice as many of everything else
            assert verdicts == [verdict] * 7
        _, lines = experiment_tables.targets([])
        assert {tuple(line[2:]) for line in lines} == {("-", "not measured")}

    def test_tables_and_pictures(self, calls, tmp_path):
        rows = self.made_up(calls)
        (tmp_path / "calls.json").write_text(json.dumps({**HEAD, "rows": rows}))
        told = experiment_tables.queuing(tmp_path / "calls.json")
        assert "| torch.mm, out= | 12.0 | 12.0 |" in told.splitlines()
        assert "| run auto, out= | 25.0 | 25.0 |" in told.splitlines()
        assert "cupy is missing: No module named 'cupy'." in told
        assert told.endswith("A GPU, CUDA 13.0, csrc 0, 2026-01-02.")
        drawn = calls.picture(HEAD, rows)
        assert drawn.get_suptitle().endswith("run 6.0 us, torch.mm 12.0 us")
        bars, lines = drawn.axes
        assert len(bars.patches) == 6
        assert list(lines.lines[1].get_ydata()) == [2, 2]
        alone = calls.picture(HEAD, [row for row in rows if row["way"] == calls.NUMPY])
        assert len(alone.axes) == 1

    def test_the_command_measures_writes_and_draws(self, calls, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(calls, "find_gpu", lambda _: GPU)
        monkeypatch.setattr(calls, "imported", lambda _: ({}, {"torch": "No module named 'torch'"}))
        monkeypatch.setattr(calls, "QUICK_SIZES", (16, 64))
        monkeypatch.setattr(calls, "QUICK_SECONDS", 0.0)
        assert run_script(calls, monkeypatch, "--quick", "-o", tmp_path / "calls.json") == 0
        document = json.loads((tmp_path / "calls.json").read_text())
        assert document["experiment"] == "calls"
        assert document["missing"] == {"torch": "No module named 'torch'"}
        assert {row["way"] for row in document["rows"]} == {calls.NUMPY}
        assert "torch is missing" in capsys.readouterr().err
        assert (tmp_path / "calls.svg").exists()
        assert run_script(calls, monkeypatch, "--draw", "-o", tmp_path / "calls.json") == 0


class TestModels:
    @pytest.fixture
    def models(self, experiment):
        return experiment("models")

    @pytest.fixture
    def torch(self):
        """Records the precision."""
        module = types.SimpleNamespace(precision="highest", __version__="2.11")
        module.set_float32_matmul_precision = lambda name: setattr(module, "precision", name)
        module.backends = types.SimpleNamespace(cudnn=types.SimpleNamespace(allow_tf32=True))
        return module

    @pytest.fixture
    def workloads(self, monkeypatch, torch):
        """A stand-in for _models.py with one model, whose output has an error in TF32."""
        operators = Operators()

        class Work:
            def step(self):
                operators.product()

            def outputs(self, *, exact):
                convolutions_in_tf32 = torch.backends.cudnn.allow_tf32
                assert exact or convolutions_in_tf32 == (torch.precision == "high")
                return [1.0 if exact else 1.001 if torch.precision == "high" else 1.0 + 1e-7]

            def consequence(self, found, exact):
                return "wrong" if found[0] > exact[0] + 1e-4 else ""

        def losses(text, sizes, steps, device, *, seed, exact):
            assert "__global__" in text
            return [seed + (1.01 if torch.precision == "high" and not exact else 1.0)] * steps

        def absent():
            raise ImportError("no such library")

        class Infinite(Work):
            def outputs(self, *, exact):
                return [1.0 if exact else np.inf]

        module = types.SimpleNamespace(
            FULL="full",
            workloads=lambda sizes, device: iter(
                [("infinite", Infinite), ("a model", Work), ("another", absent)]
            ),
            relative_error=lambda found, exact: found[0] - exact[0],
            losses=losses,
        )
        monkeypatch.setitem(sys.modules, "_models", module)
        torch.manual_seed = lambda seed: None
        return operators

    def test_each_way_computes_in_its_precision(self, models, torch, workloads):
        missing, failed = {}, {}
        rows = models.measured(torch, workloads, "cpu", "tiny", 0.0, 12, missing, failed)
        timed, trained, again = rows[:3], rows[3:6], rows[6:]
        assert missing == {"another": "no such library"}
        assert failed == {"infinite": "ArithmeticError: PyTorch float32 computes NaN or infinity"}
        assert [row["way"] for row in timed] == [models.FLOAT32, models.TF32, models.OURS]
        assert [row["consequence"] for row in timed] == ["", "wrong", ""]
        assert timed[1]["relative_error"] == pytest.approx(1e-3)
        assert [row["products"] for row in timed[:2]] == [None, None]
        assert timed[2]["products"] == {"taken": 1, "passed": {"small": 2}}
        assert timed[0]["over_float32"] == 1
        assert [max(row["difference"]) for row in trained] == pytest.approx([0, 0.01, 0])
        assert [(row["way"], row["losses"][0]) for row in again] == [
            (models.FLOAT32, 2),
            (models.FLOAT32, 3),
        ]
        assert (torch.precision, workloads.enabled) == ("highest", False)

    def test_without_operators_the_others_are_measured(self, models, torch, workloads):
        rows = models.measured(torch, None, "cpu", "tiny", 0.0, 12, {}, {})
        assert {row["way"] for row in rows} == {models.FLOAT32, models.TF32}
        assert models.answer(rows) == "PyTorch models in float32 and TF32"

    def test_a_sample_has_enough_steps_and_the_ways_alternate(self, models, monkeypatch):
        clock = itertools.count(step=0.005)
        monkeypatch.setattr(models.time, "perf_counter", lambda: next(clock))
        order = []

        def way(name):
            @contextlib.contextmanager
            def entered():
                order.append(name)
                yield

            return entered

        steps = []
        found = models.sample(lambda: steps.append(1), {n: way(n) for n in "ab"}, lambda: None, 0.0)
        assert order == ["a", "b"] + ["a", "b"] * models.FEWEST_ROUNDS
        a_sample = (len(steps) - 6) / (2 * models.FEWEST_ROUNDS)
        assert a_sample == pytest.approx(models.SAMPLE_S / 0.005)
        assert found["a"] == pytest.approx([0.005 / a_sample] * models.FEWEST_ROUNDS)

    def test_the_command_writes_a_table_and_pictures(
        self, models, torch, workloads, monkeypatch, tmp_path, capsys
    ):
        monkeypatch.setattr(models, "find_gpu", lambda _: GPU)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(models, "operators", lambda: (workloads, {}))
        monkeypatch.setattr(models, "QUICK_SECONDS", 0.0)
        torch.cuda = types.SimpleNamespace(synchronize=lambda: None, empty_cache=lambda: None)
        path = tmp_path / "models.json"
        assert run_script(models, monkeypatch, "--quick", "-o", path) == 1, "a model failed"
        said = capsys.readouterr()
        assert "a model" in said.out
        assert "infinite failed: ArithmeticError: PyTorch float32 computes NaN" in said.out
        assert "Traceback" in said.err
        document = json.loads(path.read_text())
        assert document["failed"].keys() == {"infinite"}
        assert "infinite failed: ArithmeticError" in model_tables.models(path)
        document["rows"][2] |= samples(document["rows"][0]["median_s"] / 2)
        document["rows"][2]["over_float32"] = 0.5
        path.write_text(json.dumps(document))
        told = model_tables.models(path)
        assert "| 2.00x |" in told
        assert "| 1.0e-07 | 1.0e-07 | 1.0e-03 | 1 of 3 |" in told
        assert "a model: PyTorch TF32: wrong." in told
        assert "PyTorch TF32: 1.0e-02, enable(): 0.0e+00. Between 3 seeds" in told
        assert "differ by up to 2.0e+00." in told
        assert "Over 1 models in PyTorch on an A GPU" in model_tables.average(path)
        assert "`enable()` is 2.00 times as fast" in model_tables.average(path)
        assert "with 1.00 times its error (at most 1.0)." in model_tables.average(path)
        drawn = models.picture(document, document["rows"])
        assert drawn.get_suptitle().startswith("enable(): 2.00 times as fast as PyTorch's")
        bars, losses, differences = drawn.axes
        assert len(bars.patches) == 2
        assert any("error 10,000 times" in text.get_text() for text in bars.texts)
        assert (len(losses.lines), len(differences.lines)) == (3, 3)
        assert min(differences.lines[0].get_ydata()) == models.SMALLEST

    def test_training_that_fails_leaves_the_models(self, models, torch, workloads, monkeypatch):
        def losses(*_, **__):
            raise RuntimeError("out of memory\nat line 3")

        monkeypatch.setattr(sys.modules["_models"], "losses", losses)
        failed = {}
        rows = models.measured(torch, workloads, "cpu", "tiny", 0.0, 12, {}, failed)
        assert [row["model"] for row in rows] == ["a model"] * 3
        assert failed[models.TRAINED] == "RuntimeError: out of memory"
        assert torch.precision == "highest"

    def test_nothing_is_written_if_every_model_failed(
        self, models, torch, workloads, monkeypatch, tmp_path, capsys
    ):
        monkeypatch.setattr(models, "find_gpu", lambda _: GPU)
        monkeypatch.setitem(sys.modules, "torch", torch)
        monkeypatch.setattr(models, "operators", lambda: (workloads, {}))
        monkeypatch.setattr(models, "measured", lambda *_: [])
        assert run_script(models, monkeypatch, "-o", tmp_path / "models.json") == 2
        assert "every model failed" in capsys.readouterr().err
        assert not (tmp_path / "models.json").exists()

    def test_the_command_says_what_it_needs(self, models, monkeypatch, capsys):
        monkeypatch.setattr(models, "find_gpu", lambda _: GPU)
        monkeypatch.setitem(sys.modules, "torch", None)
        assert run_script(models, monkeypatch) == 2
        assert "torch" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.filterwarnings("default")  # the libraries' own
class TestWithPyTorch:
    """The models themselves, on the CPU."""

    def test_all_models_compute_and_train(self, experiment):
        import torch

        experiment("_models")
        models = experiment("models")
        module = sys.modules["_models"]
        missing, failed = {}, {}
        rows = models.measured(torch, None, "cpu", module.TINY, 0.0, 12, missing, failed)
        assert failed == {}
        timed = [row for row in rows if "model" in row]
        names = {row["model"] for row in timed}
        assert names | missing.keys() == {model.name for model in module.MODELS}
        assert {name.split()[0] for name in names} >= {"MLP", "Gaussian"}
        for row in timed:
            assert 0 < row["relative_error"] < 1e-2, row["model"]
        trained = [row for row in rows if "losses" in row]
        assert len(trained) == 4
        assert all(max(map(abs, row["difference"])) < 1e-4 for row in trained[:2])
        assert all(min(row["losses"]) < row["losses"][0] for row in trained)

    @pytest.mark.skipif(
        importlib.util.find_spec("sgemm_kernels.torch") is None, reason="there are no operators"
    )
    def test_our_operators_compute_them_too(self, experiment):
        """On CPU tensors, with the CPU device."""
        import torch

        from sgemm_kernels import torch as operators

        @contextlib.contextmanager
        def enable():
            operators.dispatch_override("CPU", "simt", 0.0)
            yield
            operators.disable()

        experiment("_models")
        models = experiment("models")
        ours = types.SimpleNamespace(enable=enable, stats=operators.stats)
        failed = {}
        rows = models.measured(torch, ours, "cpu", sys.modules["_models"].TINY, 0.0, 3, {}, failed)
        assert failed == {}
        timed = [row for row in rows if row["way"] == models.OURS and "model" in row]
        assert len(timed) > 1
        for row in timed:
            assert row["relative_error"] < 1e-2, row["model"]
            assert row["products"]["taken"] > 0, row["model"]


class TestProducts:
    RUN = Run("2026-01-02T03:04:05+00:00", "A GPU", "cuda", "0", "1", Protocol("events", "cold"))

    @pytest.fixture
    def products(self, experiment, monkeypatch):
        """`auto` is three times as fast as cuBLAS, and half as fast for gradients of the weight.
        One of its results is wrong. TF32 is six times as fast, and no gradient fits the memory of
        Wav2Vec2's last layer."""
        products = experiment("products")

        def measure_briefly(names, shape, layout, *, device):
            assert device == "cuda:0"
            if shape == (1992, 3072, 768) and layout == "NN":
                raise MemoryError("too large")
            if shape == (4096, 4096, 1024) and layout == "NT":
                raise sgemm_kernels.DeviceError("the launch failed")
            auto = 2e-3 if layout == "TN" else 1e-3 / 3
            times = {"cublas": 1e-3, "auto": auto, "cublas-tf32": 1e-3 / 6}
            errors = {"cublas": 2e-7, "auto": 1e-7, "cublas-tf32": 2e-4}
            wrong = shape == (100_352, 128, 128) and layout == "NT"
            rows = []
            for name in names:
                right = not (wrong and name == "auto")
                error = Accuracy(errors[name], 0.5 if right else 2.0, 1)
                samples = (times[name],) * 5 if right else ()
                rows.append(
                    Measurement(self.RUN, name, *shape, error, samples_s=samples, layout=layout)
                )
            return Results(self.RUN, tuple(rows))

        monkeypatch.setattr(products, "measure_briefly", measure_briefly)
        monkeypatch.setattr(products, "find_gpu", lambda _: GPU)
        return products

    def test_the_suite_is_102_products(self, products):
        layers = products.layers()
        cases = [(layer, *each) for layer in layers for each in layer.cases().items()]
        assert len(cases) == 102
        assert len({(layer.model, layer.layer, step) for layer, step, _ in cases}) == 102
        assert len({layer.model.partition(",")[0] for layer in layers}) == 9

    def test_products_are_those_of_a_linear_layer(self, products):
        """The shapes and layouts, by NumPy: what PyTorch multiplies forward and backward."""
        rng = np.random.default_rng(0)
        layer = products.Layer("a model", "a layer", 5, 3, 4)
        X, W, G = rng.random((5, 3)), rng.random((4, 3)), rng.random((5, 4))
        operands = {"forward": (X, W.T), "gradient of the input": (G, W),
                    "gradient of the weight": (G.T, X)}  # fmt: skip
        for step, ((M, N, K), layout) in layer.cases().items():
            A, B = operands[step]
            assert ((A @ B).shape, A.shape[1]) == ((M, N), K)
            order = "".join("N" if each.flags.c_contiguous else "T" for each in (A, B))
            assert order == layout

    def test_the_command(self, products, monkeypatch, tmp_path, capsys):
        path = tmp_path / "products.json"
        assert run_script(products, monkeypatch, "-o", path) == 1, "a wrong result"
        said = capsys.readouterr()
        assert "1992x3072x768 of Wav2Vec2, down: left out: too large" in said.err
        assert "4096x4096x1024 NT of MLP, first: left out: the launch failed" in said.err
        assert re.search(r"gradient of the weight +768x768x6144 TN +0.50\n", said.out)
        rows = json.loads(path.read_text())["rows"]
        assert len(rows) == 3 * 100
        assert sum(not row["right"] for row in rows) == 1
        lines = product_tables.products(path).splitlines()
        assert "| GPT-2 | 3.00 | 3.00 | 0.50 | 1.65 | 0.50 | 0.28 | 0.50 |" in lines
        assert next(line for line in lines if line.startswith("| all")).startswith("| all 99 |")
        assert "1992x3072x768 of Wav2Vec2, down: left out: too large" in lines
        assert lines[-1] == "A GPU, CUDA {}, csrc {}, {}.".format(
            *(json.loads(path.read_text())[name] for name in ("cuda_toolkit", "csrc_hash")),
            json.loads(path.read_text())["date"][:10],
        )
        assert (tmp_path / "products.svg").exists()
        drawn = products.picture(HEAD, rows)
        assert "auto is 1.6 times as fast" in drawn.get_suptitle()
        assert len(drawn.axes[0].lines) == 7
        assert run_script(products, monkeypatch, "--draw", "-o", path) == 0

    def test_products_beyond_the_time_limit_are_left_out(self, products, monkeypatch, capsys):
        clock = itertools.count()
        monkeypatch.setattr(products, "time", types.SimpleNamespace(monotonic=clock.__next__))
        missing = {}
        assert len(products.measured("cuda:0", 4.5, missing)) == 3 * 4
        assert missing == {"the last products": "time is over"}
        assert "the last products: left out: time is over" in capsys.readouterr().err
        with pytest.raises(MemoryError, match="no product was measured"):
            products.measured("cuda:0", 0, {})
