"""Experiment 21 without a GPU: its suite, its samples, its tables and its picture.

A stand-in for PyTorch has NumPy's arrays for tensors, and a clock that the ways advance.
"""

import functools
import json
import math
import sys
import types

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels.cli import experiment_tables

from .support import run_script

GPU = types.SimpleNamespace(name="cuda:0", kind="cuda", model="A GPU", driver="1", l2_bytes=4096)
HEAD = {
    "device": "A GPU",
    "cuda_toolkit": "13.0",
    "csrc_hash": "0",
    "date": "2026-01-02T",
    "versions": {"torch": "2.11"},
    "missing": {"cupy": "No module named 'cupy'"},
    "copy_bytes_per_s": 3e12,
}


class Tensor(np.ndarray):
    """An array with the methods of a tensor that the experiment calls."""

    def expand(self, *shape):
        return np.broadcast_to(self, shape, subok=True)

    def uniform_(self, low, high):
        self[...] = np.random.default_rng(self.size).uniform(low, high, self.shape)
        return self

    def fill_(self, value):
        self[...] = value
        return self

    def copy_(self, other):
        self[...] = other

    def cpu(self):
        return self

    @property
    def mT(self):  # noqa: N802
        return self.swapaxes(-1, -2)


class Torch:
    """PyTorch on a GPU whose time is `now`, in milliseconds."""

    __version__ = "2.11"

    def __init__(self):
        self.now, self.log = 0.0, []
        self.cuda = types.SimpleNamespace(
            Event=self.event, synchronize=lambda: None, empty_cache=lambda: None, init=lambda: None
        )

    def event(self, enable_timing):
        assert enable_timing
        event = types.SimpleNamespace()
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: end.at - event.at
        return event

    def spend(self, what, milliseconds):
        self.now += milliseconds
        self.log.append(what)

    def empty(self, shape, device):
        assert device == "cuda"
        return np.empty(shape, np.float32).view(Tensor)

    def bmm(self, a, b, out):
        self.spend("bmm", 2.0)
        return np.matmul(a, b, out=out)

    def manual_seed(self, seed):
        pass

    def set_float32_matmul_precision(self, name):
        self.precision = name


@pytest.fixture
def torch():
    return Torch()


@pytest.fixture
def batched(experiment, monkeypatch, torch):
    batched = experiment("batched")

    def run(name, A, B, out):
        torch.spend(name, 1.0)
        plain = (np.asarray(X) for X in (A, B))
        sgemm_kernels.run("simt", *plain, out=np.asarray(out), device="cpu")

    monkeypatch.setattr(batched, "run", run)
    return batched


@pytest.fixture
def start(tensors, monkeypatch, torch):
    """Makes a timer that finds these modules on the stand-in's GPU."""
    monkeypatch.setattr(tensors, "find_gpu", lambda _: GPU)
    monkeypatch.setitem(sys.modules, "torch", torch)

    def start(**others):
        found = {"torch": torch, **others}
        monkeypatch.setattr(tensors, "imported", lambda _: (found, {"cupy": "none"}))
        return tensors.Timer("batches are timed", 0.0)

    return start


@pytest.fixture
def tensors(experiment):
    return experiment("_tensors")


@pytest.fixture
def suite(experiment):
    return experiment("_batches")


class TestSuite:
    def test_sixty_batches_of_every_kind(self, suite):
        batches = suite.suite()
        assert len(batches) == len(set(batches)) == 60
        assert [batch.text for batch in suite.suite()] == [batch.text for batch in batches]
        for kind in suite.KINDS:
            own = [batch for batch in batches if batch.kind == kind.name]
            assert len(own) == kind.shapes
            for batch in own:
                sides = {batch.M, batch.N, batch.K} - ({1} if kind.name == suite.VECTORS else set())
                assert kind.sides[0] <= min(sides)
                assert max(sides) <= kind.sides[1]

    @pytest.mark.parametrize("seed", [None, "another", "a third"])
    def test_sizes_fit_the_memory_and_the_time(self, suite, seed):
        batches = suite.suite() if seed is None else suite.suite(seed)
        assert all(batch.bytes < 2e9 for batch in batches)
        work = [2 * batch.count * batch.M * batch.N * batch.K for batch in batches]
        assert max(work) <= suite.LARGEST_WORK
        large = [batch for batch in batches if batch.kind == suite.TINY]
        assert all(0.99e8 < batch.bytes < 6.01e8 for batch in large)
        assert (batches == suite.suite()) == (seed is None)

    def test_a_shared_operand_is_counted_once(self, suite):
        assert suite.Batch("", 10, 2, 3, 4).bytes == 4 * 10 * (8 + 12 + 6)
        assert suite.Batch("", 10, 2, 3, 4, shared="A").bytes == 4 * (8 + 120 + 60)
        assert suite.Batch("", 10, 2, 3, 4, shared="B").bytes == 4 * (80 + 12 + 60)


class TestMeasuring:
    @pytest.mark.parametrize(
        "more", [{}, {"transposed": True}, {"shared": "A"}, {"shared": "B"}], ids=str
    )
    def test_every_way_multiplies_the_same_operands(self, batched, suite, start, more):
        timer = start(
            cupy=types.SimpleNamespace(from_dlpack=lambda tensor: tensor, matmul=np.matmul),
            triton=types.SimpleNamespace(product=lambda a, b, out: np.matmul(a, b, out=out)),
        )
        batch = suite.Batch("a kind", 3, 4, 5, 6, **more)
        rows = batched.measured(timer, batch)
        assert [row["way"] for row in rows] == [
            batched.BMM_OUT, batched.AUTO_OUT, batched.SIMT_OUT, batched.CUPY_OUT, batched.TRITON
        ]  # fmt: skip
        for row in rows:
            assert 0 < row["worst_share_of_bound"] <= 1
            assert row["problem"] is None
            assert (row["case"], row["bytes"]) == (batch.text, batch.bytes)
        assert [row["median_ns"] for row in rows[:3]] == [2e6, 1e6, 1e6]
        assert rows[0]["samples_ns"] == [2_000_000] * sys.modules["_tensors"].FEWEST_ROUNDS
        a, b, out = batched.operands(timer, batch)
        assert (a.strides[0] == 0, b.strides[0] == 0) == (batch.shared == "A", batch.shared == "B")
        assert (b.strides[1] == 4) == batch.transposed
        assert out.shape == (3, 4, 5)

    def test_wrong_results_and_failures_have_no_samples(self, batched, suite, start):
        def wrong(a, b, out):
            np.matmul(a, b, out=out)
            out[-1, 2, 3] += 1e-4

        def fails(a, b, out):
            raise RuntimeError("no kernel\nat line 3")

        timer = start(
            cupy=types.SimpleNamespace(from_dlpack=lambda tensor: tensor, matmul=fails),
            triton=types.SimpleNamespace(product=wrong),
        )
        *ours, cupy, triton = batched.measured(timer, suite.Batch("", 100, 4, 5, 6))
        assert len(ours) == 3
        assert cupy["problem"] == "no kernel"
        assert triton["problem"].startswith("wrong: ")
        assert triton["worst_share_of_bound"] > 1
        assert not {"samples_ns", "median_ns"} & {*cupy, *triton}

    def test_a_result_that_is_not_written_is_wrong(self, batched, suite, start, torch):
        torch.bmm = lambda a, b, out: None
        first, *_ = batched.measured(start(), suite.Batch("", 3, 4, 5, 6))
        assert first["problem"] == "wrong: inf times the error bound"

    def test_the_checked_matrices(self, batched, suite):
        assert batched.checked_indices(suite.Batch("", 3, 1, 1, 1)) == [0, 1, 2]
        many = batched.checked_indices(suite.Batch("", 10**6, 4, 4, 4))
        assert len(many) == batched.MOST_CHECKED
        assert {0, *batched.EDGES, 10**6 - 1} < set(many)
        assert batched.checked_indices(suite.Batch("", 16, 2048, 2048, 2048)) == [0, 15]

    def test_a_flush_precedes_each_sample_and_is_not_timed(self, tensors, torch):
        calls = {name: functools.partial(torch.spend, name, 3.0) for name in "abc"}
        flush = functools.partial(torch.spend, "flush", 100.0)
        samples = tensors.sample(torch, calls, flush, 0.0)
        assert samples == {name: [3_000_000] * tensors.FEWEST_ROUNDS for name in "abc"}
        assert torch.log[::2] == ["flush"] * 3 * (1 + tensors.FEWEST_ROUNDS)
        rounds = [tuple(torch.log[i : i + 6 : 2]) for i in range(1, len(torch.log), 6)]
        assert {frozenset(each) for each in rounds} == {frozenset("abc")}
        assert len(set(rounds)) > 1, "the order changes"

    def test_sampling_ends_by_the_clock_or_the_number(self, tensors, torch, monkeypatch):
        clock = iter(range(1000))
        monkeypatch.setattr(tensors.time, "perf_counter", lambda: next(clock))
        calls = {"a": functools.partial(torch.spend, "a", 1.0)}
        assert len(tensors.sample(torch, calls, int, 9.5)["a"]) == 9 + tensors.FEWEST_ROUNDS
        assert len(tensors.sample(torch, calls, int, 1e9)["a"]) == tensors.MOST_ROUNDS

    def test_the_flush_reads_more_than_the_cache(self, tensors, torch):
        sizes = []
        empty = torch.empty
        torch.empty = lambda shape, device: sizes.append(shape) or empty(shape, device)
        assert tensors.flush_of(torch, 4096)() == 0
        assert 4 * math.prod(sizes[0]) == tensors.FLUSHED * 4096

    def test_a_copy_counts_reads_and_writes(self, batched, torch, monkeypatch):
        monkeypatch.setattr(batched, "COPIED_BYTES", 4096)
        monkeypatch.setattr(Tensor, "copy_", lambda *_: torch.spend("copy", 0.5))
        assert batched.copy_bytes_per_s(torch) == 2 * 4096 / 0.5e-3


def made_up(batched, suite, slower=1.0):
    """Rows of four batches: torch.bmm takes 100 us, `auto` 20, `simt` 50 and Triton 200."""
    batches = [
        suite.Batch(suite.TINY, 10_000, 32, 32, 32),
        suite.Batch(suite.MIDDLE, 100, 64, 64, 64),
        suite.Batch(suite.MIDDLE, 100, 128, 64, 64),
        suite.Batch(suite.LARGE, 2, 1024, 1024, 1024),
    ]
    times_us = {batched.BMM_OUT: 100, batched.AUTO_OUT: 20 * slower, batched.SIMT_OUT: 50,
                batched.TRITON: 200}  # fmt: skip
    return [
        {"way": way, "case": batch.text, "bytes": batch.bytes, "kind": batch.kind, "M": batch.M,
         "N": batch.N, "K": batch.K, "problem": None, "median_ns": 1e3 * microseconds}
        for batch in batches for way, microseconds in times_us.items()
    ]  # fmt: skip


class TestResults:
    def test_targets_are_met_missed_or_not_measured(self, batched, suite):
        for slower, verdict in ((1, "met"), (5.5, "missed")):
            _, lines = experiment_tables.batch_targets(made_up(batched, suite, slower), 3e12)
            assert [line[-1] for line in lines] == [verdict] * 5
        _, lines = experiment_tables.batch_targets([], 3e12)
        assert {tuple(line[2:]) for line in lines} == {("-", "not measured")}

    def test_table(self, batched, suite, tmp_path):
        rows = made_up(batched, suite)
        slow = next(row for row in rows if row["way"] == batched.AUTO_OUT and row["M"] == 128)
        slow["median_ns"] = 200e3
        failed = next(row for row in rows if row["way"] == batched.TRITON)
        failed |= {"problem": "no kernel", "median_ns": None}
        (tmp_path / "batched.json").write_text(json.dumps({**HEAD, "rows": rows}))
        told = experiment_tables.batches(tmp_path / "batched.json")
        lines = told.splitlines()
        assert (
            "| run auto, out=: all | 4 | 2.81 | 0.50 | 100 x 128 x 64 x 64 | 25.0% | - |" in lines
        )
        tiny = f"| {suite.TINY} | 1 | 5.00 | 5.00 | 10000 x 32 x 32 x 32 | 0.0% |"
        assert f"{tiny} 6.14 (6.14 to 6.14) |" in lines
        assert "| Triton: all | 3 | 0.50 | 0.50 | 100 x 64 x 64 x 64 | 100.0% | - |" in lines
        assert "Triton at 10000 x 32 x 32 x 32: no kernel." in told
        assert "cupy is missing: No module named 'cupy'." in told
        assert "A copy in the GPU's memory: 3.00 TB/s." in told
        assert told.endswith("A GPU, CUDA 13.0, csrc 0, 2026-01-02.")

    def test_picture(self, batched, suite):
        rows = made_up(batched, suite)
        drawn = batched.picture(HEAD, rows)
        assert drawn.get_suptitle().endswith("auto is 5.00 times as fast as torch.bmm")
        above, below = drawn.axes
        by_label = {line.get_label(): line for line in above.lines}
        assert list(by_label["run auto"].get_ydata()) == [5] * 4
        assert by_label["run auto"].get_xdata() == pytest.approx([32, 64, 64 * 2 ** (1 / 3), 1024])
        rates = {line.get_label(): line for line in below.lines}["torch.bmm"].get_ydata()
        assert rates[0] == pytest.approx(4 * 3 * 32 * 32 * 10_000 / 100e-6 / 1e12)
        alone = batched.picture(HEAD, [row for row in rows if row["way"] == batched.BMM_OUT])
        assert alone.get_suptitle() == "Batches of products by size"

    @pytest.fixture
    def quick(self, batched, suite, start, monkeypatch):
        """A suite of small batches, on the stand-in."""
        batches = [suite.Batch(suite.TINY, count, 3, 4, 5) for count in range(2, 14)]
        monkeypatch.setattr(batched, "suite", lambda seed: batches if seed else None)
        monkeypatch.setattr(batched, "copy_bytes_per_s", lambda _: 3e12)
        start()
        return batches

    def test_the_command_measures_writes_and_draws(
        self, batched, quick, monkeypatch, tmp_path, capsys
    ):
        output = tmp_path / "batched.json"
        assert run_script(batched, monkeypatch, "--quick", "-o", output) == 0
        document = json.loads(output.read_text())
        assert (document["experiment"], document["seed"]) == ("batched", batched.SEED)
        assert document["missing"] == {"cupy": "none"}
        assert {row["case"] for row in document["rows"]} == {
            batch.text for batch in quick[:: batched.QUICK_STEP]
        }
        assert {row["way"] for row in document["rows"]} == {
            batched.BMM_OUT, batched.AUTO_OUT, batched.SIMT_OUT
        }  # fmt: skip
        assert all(isinstance(ns, int) for row in document["rows"] for ns in row["samples_ns"])
        captured = capsys.readouterr()
        assert "geometric mean" in captured.out
        assert "cupy is missing: none" in captured.err
        assert (tmp_path / "batched.svg").exists()
        assert run_script(batched, monkeypatch, "--draw", "-o", output) == 0

    def test_a_wrong_result_of_ours_fails(self, batched, quick, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(batched, "run", lambda *_, **__: None)
        assert run_script(batched, monkeypatch, "--quick", "-o", tmp_path / "r.json") == 1
        assert "run auto, out= at 2 x 3 x 4 x 5: wrong" in capsys.readouterr().err

    def test_another_suite_needs_another_file(self, batched, quick, monkeypatch, tmp_path):
        for option in (["--seed", "unseen"], ["--quick"]):
            assert run_script(batched, monkeypatch, *option) == 2
        output = tmp_path / "r.json"
        assert run_script(batched, monkeypatch, "--seed", "unseen", "-o", output) == 0
        document = json.loads(output.read_text())
        assert document["seed"] == "unseen"
        assert len({row["case"] for row in document["rows"]}) == len(quick)
