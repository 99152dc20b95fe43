"""Experiment 23 without a GPU: its rows, its samples, its table and its picture.

A stand-in for PyTorch has NumPy's arrays for tensors, and a clock that the ways advance.
"""

import functools
import json
import sys

import numpy as np
import pytest

import sgemm_kernels

from .support import run_script
from .test_batched import GPU, Tensor, Torch


class DoubleTensor(Tensor):
    """An array with the methods of a tensor that check results."""

    def double(self):
        return self.astype(np.float64)

    def abs(self):
        return np.abs(self)


@pytest.fixture
def torch():
    torch = Torch()
    torch.empty = lambda shape, device: np.empty(shape, np.float32).view(DoubleTensor)

    def mm(a, b, out):
        torch.spend("mm", 1.0)
        np.matmul(a, b, out=out)

    torch.mm = mm
    return torch


@pytest.fixture
def grouped(experiment, monkeypatch, torch):
    grouped = experiment("grouped")

    def run_many(name, As, Bs, out):
        torch.spend(name, 1.5)
        plain = ([np.asarray(X) for X in some] for some in (As, Bs))
        sgemm_kernels.run_many(name, *plain, out=[np.asarray(X) for X in out], device="cpu")

    monkeypatch.setattr(grouped, "run_many", run_many)
    monkeypatch.setattr(grouped, "SECONDS", 0.0)
    tensors = experiment("_tensors")
    monkeypatch.setattr(tensors, "find_gpu", lambda _: GPU)
    monkeypatch.setattr(tensors, "imported", lambda _: ({"torch": torch}, {}))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return grouped


@pytest.fixture
def timer(grouped):
    return grouped.Timer("experts are timed", 0.0)


def test_the_rows_are_drawn_from_the_seed(grouped):
    rows = grouped.rows_of_experts(grouped.SEED)
    assert rows == grouped.rows_of_experts(grouped.SEED)
    assert rows != grouped.rows_of_experts("another")
    assert len(rows) == 64
    assert min(rows) >= 1
    assert max(rows) <= 4096
    assert sum(row < 64 for row in rows) > 16, "as many up to 64 as from 64 on, about"


def test_every_way_multiplies_the_same_operands(grouped, timer):
    rows = grouped.measured(timer, [1, 5, 3], 6, 7)
    assert [row["way"] for row in rows] == [grouped.LOOP, grouped.AUTO, grouped.SIMT]
    assert [row["median_ns"] for row in rows] == [3e6, 1.5e6, 1.5e6]
    for row in rows:
        assert row["problem"] is None
        assert 0 < row["worst_share_of_bound"] <= 1
        assert (row["case"], row["operations"]) == ("6 x 7", 2 * 9 * 6 * 7)
    assert grouped.speeds_of(rows)["6 x 7", grouped.AUTO] == 2
    assert grouped.lines(rows)[1][-1] == "2.00"
    a, b, out = grouped.operands(timer, [1, 5], 6, 7)
    assert [X.shape for X in (*a, *b, *out)] == [(1, 7), (5, 7), (7, 6), (7, 6), (1, 6), (5, 6)]
    assert all(X.strides[0] == 4 for X in b), "as the weights of a linear layer are"


def test_wrong_results_and_failures_have_no_samples(grouped, timer, monkeypatch):
    def run_many(name, As, Bs, out):
        if name == "auto":
            raise RuntimeError("no kernel\nat line 3")
        for A, B, result in zip(As, Bs, out[:-1], strict=False):
            np.matmul(A, B, out=result)

    monkeypatch.setattr(grouped, "run_many", run_many)
    loop, auto, simt = grouped.measured(timer, [4, 5], 6, 7)
    assert loop["problem"] is None
    assert auto["problem"] == "no kernel"
    assert simt["problem"] == "wrong: inf times the error bound"
    assert not {"samples_ns", "median_ns"} & {*auto, *simt}


@pytest.fixture
def script(grouped, monkeypatch):
    """Runs the command with small sizes, on the stand-in."""
    monkeypatch.setattr(grouped, "SIZES", ((6, 7), (3, 8)))
    monkeypatch.setattr(grouped, "MOST_ROWS", 9)

    return functools.partial(run_script, grouped, monkeypatch)


def test_the_command_measures_writes_and_draws(grouped, script, tmp_path, capsys):
    output = tmp_path / "grouped.json"
    assert script("-o", output) == 0
    document = json.loads(output.read_text())
    assert (document["experiment"], document["seed"]) == ("grouped", grouped.SEED)
    assert len(document["rows"]) == 6
    assert len(document["rows_of_experts"]) == 64
    assert "auto, slowest: 42.67 times as fast (target 1.5)" in capsys.readouterr().out
    assert (tmp_path / "grouped.svg").exists()
    assert script("--draw", "-o", output) == 0
    drawn = grouped.picture(document, document["rows"])
    assert [bar.get_height() for bar in drawn.axes[0].patches] == pytest.approx([64 / 1.5] * 4)


def test_a_wrong_result_of_ours_fails(grouped, script, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(grouped, "run_many", lambda *_, **__: None)
    assert script("-o", tmp_path / "r.json") == 1
    assert f"{grouped.AUTO} at 6 x 7: wrong" in capsys.readouterr().err


def test_another_seed_needs_another_file(grouped, script, tmp_path):
    assert script("--seed", "unseen") == 2
    assert script("--seed", "unseen", "-o", tmp_path / "r.json") == 0
