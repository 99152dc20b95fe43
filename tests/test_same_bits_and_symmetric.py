"""Experiments 26 and 27 without a GPU: their rows, checks and tables.

A stand-in for PyTorch has NumPy's arrays for tensors, and a clock that the ways advance.
"""

import functools
import json
import sys

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels.cli import same_bits_tables, symmetric_tables
from sgemm_kernels.measuring.results_file import read_json

from .support import run_script
from .test_batched import GPU, HEAD, Torch
from .test_grouped import DoubleTensor


class Tensor(DoubleTensor):
    """An array with all methods of a tensor that these experiments call."""

    def clone(self):
        return self.copy(order="K")

    def copy_(self, other):
        self[...] = other
        return self

    def norm(self):
        return np.linalg.norm(self)


def is_symmetric(A, B):
    """Whether B is the transpose of A in the same memory."""
    same = A.__array_interface__["data"] == B.__array_interface__["data"]
    return same and A.mT.strides == B.strides


def linear(A, B, alpha, beta, C):
    """alpha A @ B + beta C, by float64. A product of A and its own transpose is symmetric."""
    product = np.asarray(A, np.float64) @ np.asarray(B, np.float64)
    if is_symmetric(A, B):
        product = (product + product.swapaxes(-1, -2)) / 2
    return alpha * product + (0 if C is None else beta * np.asarray(C, np.float64))


@pytest.fixture
def torch():
    torch = Torch()
    torch.int32, torch.equal = np.int32, np.array_equal
    torch.empty = lambda shape, device: np.empty(shape, np.float32).view(Tensor)

    def matmul(A, B, out):
        torch.spend("matmul", 4.0)
        out[...] = linear(A, B, 1.0, 0.0, None)

    def addmm(C, A, B, alpha, beta, out):
        torch.spend("addmm", 4.0)
        out[...] = linear(A, B, alpha, beta, C)

    torch.mm = torch.matmul = matmul
    torch.addmm = addmm
    return torch


@pytest.fixture
def started(experiment, monkeypatch, torch):
    """Imports an experiment that starts on the stand-in, and returns it with its command."""
    tensors = experiment("_tensors")
    monkeypatch.setattr(tensors, "find_gpu", lambda _: GPU)
    monkeypatch.setattr(tensors, "imported", lambda _: ({"torch": torch}, {}))
    monkeypatch.setitem(sys.modules, "torch", torch)

    def start(name):
        script = experiment(name)
        monkeypatch.setattr(script, "SECONDS", 0.0)
        return script, functools.partial(run_script, script, monkeypatch)

    return start


# ------------------------------------------------------------------ the same bits


@pytest.fixture
def same_bits(started, monkeypatch, torch):
    script, command = started("same_bits")

    def run(name, A, B, out):
        torch.spend(name, 2.0 if name == "invariant" else 1.0)
        operands = (np.asarray(X) for X in (A, B))
        sgemm_kernels.run(name, *operands, out=np.asarray(out), device="cpu")

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "ROWS", (9, 2, 1))
    monkeypatch.setattr(script, "SIZES", ((6, 130),))
    return script, command


def test_rows_alone_have_the_bits_of_all_rows(same_bits, tmp_path, capsys):
    path = tmp_path / "same_bits.json"
    assert same_bits[1]("-o", path) == 0
    document = json.loads(path.read_text())
    assert document["experiment"] == "same_bits"
    rows = document["rows"]
    assert len(rows) == 2 * 3 * 4, "layouts, numbers of rows, ways"
    assert [row["way"] for row in rows[:4]] == ["torch.mm", "invariant", "auto", "simt"]
    for row in rows:
        assert row["problem"] is None
        assert 0 < row["worst_share_of_bound"] <= 1
        assert row["case"] == f"6 x 130 {row['layout']}"
        assert row["equal_bits"] or row["way"] in ("auto", "simt")
    table = same_bits_tables.same_bits(path)
    assert "| 6 x 130 NT | 2.00 | 2.00 | 2.00 |" in table, "over cuBLAS: 4 ms over 2 ms"
    assert "| 6 x 130 NN | 0.50 | 0.50 | 0.50 |" in table, "over auto: 1 ms over 2 ms"
    assert "| invariant | 4 of 4 |" in table
    assert "4 of 4" in capsys.readouterr().out


def test_other_bits_of_invariant_fail(same_bits, monkeypatch, tmp_path, capsys):
    script, command = same_bits

    def run(name, A, B, out):
        out[...] = linear(A, B, 1.0, 0.0, None)
        if len(A) == 1:
            out[0, 0] = np.nextafter(out[0, 0], np.float32(np.inf))

    monkeypatch.setattr(script, "run", run)
    path = tmp_path / "r.json"
    assert command("-o", path) == 1
    assert "invariant at 6 x 130 NT: other bits than with 9 rows" in capsys.readouterr().err
    rows = json.loads(path.read_text())["rows"]
    of_one = [row for row in rows if row["M"] == 1]
    assert {row["way"]: row["equal_bits"] for row in of_one} == {
        "torch.mm": True, "invariant": False, "auto": False, "simt": False
    }  # fmt: skip
    assert all(("median_ns" in row) == (row["way"] != "invariant") for row in of_one)
    assert "| invariant | 2 of 4 |" in same_bits_tables.same_bits(path)
    assert "| 6 x 130 NT | - | " in same_bits_tables.same_bits(path)


def bits_row(way, M, N, K, median_ns):
    case = f"{N} x {K} NT"
    return {"way": way, "case": case, "M": M, "N": N, "K": K, "median_ns": median_ns}


def test_targets_of_invariant():
    header, lines = same_bits_tables.bits_targets([])
    assert [line[-1] for line in lines] == ["not measured"] * 4
    rows = [
        bits_row(way, M, N, K, ns)
        for (M, N, K), times in {
            (8192, 8192, 8192): (36, 10, 9),
            (2048, 2048, 4096): (30, 10, 8),
            (2048, 1024, 4096): (30, 10, 5),
            (64, 2048, 2048): (9, 10, 1),
            (64, 1024, 2048): (1, 10, 1),
            (512, 2048, 2048): (1, 10, 1),
        }.items()
        for way, ns in zip(("torch.mm", "invariant", "auto"), times, strict=True)
    ]
    _, lines = same_bits_tables.bits_targets(rows)
    assert [line[1:] for line in lines] == [
        ["at least 0.85", "0.80", "missed"],
        ["at least 0.6", "0.50", "missed"],
        ["at least 3.5", "3.60", "met"],
        ["at least 0.8", "0.90", "met"],
    ]
    assert len(header) == len(lines[0])


# ------------------------------------------------------------------ symmetric products


@pytest.fixture
def symmetric(started, monkeypatch, torch):
    script, command = started("symmetric")

    def run(name, A, B, out, alpha=1.0, beta=0.0, C=None):
        torch.spend(name, 1.0 if is_symmetric(A, B) else 1.8)
        out[...] = linear(A, B, alpha, beta, C)

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script, "gram", lambda name, A, out: run(name, A, A.mT, out))
    monkeypatch.setattr(script, "DEPTHS", {5: (3, 7)})
    monkeypatch.setattr(script, "ODD", ())
    monkeypatch.setattr(script, "BATCHES", ((2, 4, 6),))
    monkeypatch.setattr(script, "COLUMNS", ((3, 4),))
    monkeypatch.setattr(script, "WIDTH", 6)
    return script, command


def test_symmetric_products_and_their_table(symmetric, torch, tmp_path):
    path = tmp_path / "symmetric.json.gz"
    assert symmetric[1]("-o", path) == 0
    rows = read_json(path)["rows"]
    cases = list(dict.fromkeys(row["case"] for row in rows))
    assert cases == ["5 x 3", "5 x 7", "2 x 4 x 6", "3 x 4, columns", "Newton-Schulz"]
    assert len(rows) == 4 * 6 + 3
    for row in rows[:-3]:
        assert row["problem"] is None
        assert 0 < row["worst_share_of_bound"] <= 1
        assert row["symmetric"] or "copy" in row["way"]
    assert [row["shape"] for row in rows[::6]] == [[5, 3], [5, 7], [2, 4, 6], [3, 4], [6, 6]]
    for row in rows[-3:]:
        assert 0 < row["relative_error"] < 1e-6
        assert row["steps"] == 5
    table = symmetric_tables.symmetric(path)
    assert "| 5 x 3 | 1000.0 | 1.80 | 1.80 | 4.00 | 1.80 |" in table
    assert "| Newton-Schulz | 19000.0 | 1.42 | - | 3.16 | - |" in table, "10 of 1 ms, 5 of 1.8 ms"
    assert "| Newton-Schulz at 4096, five steps, ms | at most 11 | 19.00 | missed |" in table
    assert "| auto over a copy: slowest | at least 0.98 | 1.42 | met |" in table


def test_a_copy_is_at_another_address_and_a_transpose_is_not(symmetric, monkeypatch):
    script, _ = symmetric
    shared = []

    def run(name, A, B, out):
        shared.append((name, is_symmetric(A, B), np.shares_memory(A, B)))

    monkeypatch.setattr(script, "run", run)
    timer = sys.modules["_tensors"].Timer("products are timed", 0.0)
    (_, first), *_, (_, columns) = script.operands(timer)
    assert first().flags.c_contiguous
    assert columns().flags.f_contiguous
    script.measured(timer, "a case", columns())
    own, copy = (True, True), (False, False)
    assert shared == [("auto", *own), ("auto", *copy), ("simt", *own), ("simt", *copy)]


def test_results_that_are_not_symmetric_fail(symmetric, monkeypatch, tmp_path, capsys):
    script, command = symmetric

    def run(name, A, B, out, **how):
        out[...] = linear(A, B, how.get("alpha", 1), how.get("beta", 0), how.get("C"))
        out[..., 0, 1] = np.nextafter(out[..., 0, 1], np.float32(np.inf))

    monkeypatch.setattr(script, "run", run)
    path = tmp_path / "r.json"
    assert command("-o", path) == 1
    errors = capsys.readouterr().err
    assert "auto at 5 x 3: the result is not symmetric" in errors
    assert "a copy at" not in errors
    assert "gram" not in errors


def test_wrong_steps_and_failures_have_no_samples(symmetric, monkeypatch, tmp_path, capsys):
    script, command = symmetric

    def run(name, A, B, out, alpha=1.0, beta=0.0, C=None):
        if name == "simt":
            raise RuntimeError("no kernel\nat line 3")
        out[...] = linear(A, B, alpha, beta, C) + (1e-3 if C is not None else 0)

    monkeypatch.setattr(script, "run", run)
    path = tmp_path / "r.json"
    assert command("-o", path) == 1
    errors = capsys.readouterr().err
    assert "simt at 5 x 3: no kernel\n" in errors
    assert "auto at Newton-Schulz: wrong: a relative error of " in errors
    rows = json.loads(path.read_text())["rows"]
    assert all(("samples_ns" in row) == (row["problem"] is None) for row in rows)
    _, lines = symmetric_tables.symmetric_targets(rows)
    assert lines[-1][-1] == "not measured"


# ------------------------------------------------------------------ both


@pytest.mark.parametrize("name", ["batched", "grouped", "same_bits", "symmetric"])
def test_without_pytorch(started, monkeypatch, capsys, name):
    _, command = started(name)
    tensors = sys.modules["_tensors"]
    monkeypatch.setattr(tensors, "imported", lambda _: ({}, {"torch": "not here"}))
    assert command() == 2
    assert "PyTorch is missing: not here" in capsys.readouterr().err


def test_files_of_older_sources(tmp_path):
    path = tmp_path / "r.json"
    row = bits_row("torch.mm", 1, 6, 7, None) | {"equal_bits": True}
    path.write_text(json.dumps({**HEAD, "experiment": "same_bits", "rows": [row]}))
    assert same_bits_tables.same_bits(path).endswith("A GPU, CUDA 13.0, csrc 0, 2026-01-02.")


def test_nan_is_wrong(experiment):
    exact = experiment("_tensors").Exact(np.ones((2, 3)).view(Tensor), np.ones((3, 2)).view(Tensor))
    result = np.full((2, 2), 3.0).view(Tensor)
    assert exact.checked(result) == {"worst_share_of_bound": 0.0, "problem": None}
    result[1, 1] = np.nan
    assert exact.checked(result)["problem"] == "wrong: inf times the error bound"
