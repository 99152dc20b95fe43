"""`torch.nn.functional.grouped_mm` in float32 on this package's kernels, and no warnings."""

import pytest

from sgemm_kernels import _core

from .support import printed_by

torch = pytest.importorskip("torch", minversion="2.10")

from . import test_torch  # noqa: E402

ours, share = test_torch.ours, test_torch.share
place, taken = test_torch.place, test_torch.taken

grouped_mm = torch.nn.functional.grouped_mm
ENDS = [5, 5, 12, 20]  # the second group is empty
GROUPS, ROWS, K, N = len(ENDS), 20, 16, 8
# The shapes of the operands, by what is divided into groups.
CASES = {
    "rows": ((ROWS, K), (GROUPS, K, N)),
    "columns": ((GROUPS, N, K), (K, ROWS)),
    "K": ((K, ROWS), (ROWS, N)),
    "stack": ((GROUPS, 8, K), (GROUPS, K, N)),
}


def operands(case, place):
    generator = torch.Generator().manual_seed(60)
    a, b = (
        (torch.rand(shape, generator=generator) * 2 - 1).to(place).requires_grad_()
        for shape in CASES[case]
    )
    offs = None if case == "stack" else torch.tensor(ENDS, dtype=torch.int32, device=place)
    return a, b, offs


def groups_of(case, a, b, out):
    """The operands and the result of each group."""
    at = {"rows": (0, None, 0), "columns": (None, 1, 1), "K": (1, 0, None)}.get(case, (None,) * 3)
    sizes = [end - start for start, end in zip([0, *ENDS], ENDS, strict=False)]
    parts = (
        tensor.unbind() if axis is None else tensor.split(sizes, axis)
        for tensor, axis in zip((a, b, out), at, strict=True)
    )
    return zip(*parts, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_grouped_products_and_their_gradients(place, taken, case):
    a, b, offs = operands(case, place)
    out = grouped_mm(a, b, offs=offs)
    seed = torch.rand(out.shape, generator=torch.Generator().manual_seed(1)).to(place) + 0.5
    gradient = torch.empty_like(out).copy_(seed)
    of_a, of_b = torch.autograd.grad(out, (a, b), gradient)
    assert taken() == {"_grouped_mm": {"taken": 3}}
    for one_a, one_b, one in groups_of(case, a, b, out):
        if one.numel():
            assert share(one, one_a, one_b) <= 1
    for one_a, one_b, g in groups_of(case, a, b, gradient):
        expected = torch.autograd.grad(
            (one_a.double() @ one_b.double() * g.double()).sum(), (a, b), retain_graph=True
        )
        for whole, part in zip((of_a, of_b), expected, strict=True):
            inside = part != 0
            assert torch.allclose(whole[inside], part[inside], rtol=1e-4, atol=1e-5)
    ours.disable()
    theirs = grouped_mm(a, b, offs=offs)
    assert theirs.shape == out.shape
    assert theirs.stride() == out.stride()
    assert torch.allclose(theirs, out, atol=1e-5)


def test_groups_of_rows_are_one_launch_on_tensor_cores(place, taken, monkeypatch):
    """Forward and backward: the weights are K-major in one of them, and MN-major in the other."""
    monkeypatch.setenv("SGEMM_KERNELS_CPU_MULTIPROCESSORS", "4")
    monkeypatch.setenv("SGEMM_KERNELS_CPU_COPIES", "0")
    ends = torch.tensor([40, 40, 105, 106, 300], dtype=torch.int32, device=place)
    tokens = torch.rand(300, 512, device=place, requires_grad=True)
    weights = torch.rand(5, 128, 512, device=place)
    of_out = torch.rand(300, 128, device=place)
    _core._launched(True)
    try:
        out = grouped_mm(tokens, weights.mT, offs=ends)
        (gradient,) = torch.autograd.grad(out, tokens, of_out)
    finally:
        launched = _core._launched(False)
    assert taken() == {"_grouped_mm": {"taken": 2}}
    if place == "cpu":
        assert launched >= {"fused", "recompute"}, launched
        assert "grouped" not in launched
    begin = 0
    for weight, end in zip(weights, ends.tolist(), strict=True):
        rows = slice(begin, end)
        if begin < end:
            assert share(out[rows], tokens[rows], weight.T) <= 1
            assert share(gradient[rows], of_out[rows], weight) <= 1
        begin = end


def test_rows_of_the_result_are_padded_as_by_pytorch(taken, place):
    a, b = torch.ones(2, 4, 8, device=place), torch.ones(2, 12, 8, device=place).mT[..., :6]
    out = grouped_mm(a, b)
    assert taken() == {"_grouped_mm": {"taken": 1}}
    assert out.stride() == (32, 8, 1)
    assert torch.equal(out, torch.full_like(out, 8))


def test_the_variant_decides_the_bits(place):
    a, b, offs = operands("rows", place)
    ours.dispatch_override(place.upper(), "naive", 0.0)
    try:
        out = grouped_mm(a, b, offs=offs)
    finally:
        ours.disable()
    exact = [
        torch.ops.sgemm_kernels.mm(x, y, variant="naive")
        for x, y, _ in groups_of("rows", a, b, out)
        if len(x)
    ]
    assert torch.equal(out, torch.cat(exact))


def test_what_is_left_to_pytorch(place, taken):
    a, b, offs = (x.detach() for x in operands("rows", place))
    half = grouped_mm(a.bfloat16(), b.bfloat16().mT.contiguous().mT, offs=offs)
    assert half.dtype == torch.bfloat16
    grouped_mm(a[:0], b, offs=offs * 0)
    assert taken()["_grouped_mm"] == {"dtype": 1, "empty": 1}
    for wrong in (
        lambda: grouped_mm(a, b),
        lambda: grouped_mm(a, b[:3], offs=offs),
        lambda: grouped_mm(a, b, offs=offs.long()),
        lambda: grouped_mm(a[:, :8], b, offs=offs),
        lambda: grouped_mm(a.expand(4, *a.shape)[:, :, ::2], b[:, ::2]),
    ):
        with pytest.raises(RuntimeError):
            wrong()
    assert taken()["_grouped_mm"] == {"shape": 5}
    grouped_mm(a, b, offs=torch.tensor([4, 2, 8, 20], dtype=torch.int32, device=place))
    assert taken()["_grouped_mm"] == {"shape": 1}
    short = grouped_mm(a, b, offs=offs - 1)
    assert taken() == {"_grouped_mm": {"taken": 1}}
    assert share(short[:4], a[:4], b[0]) <= 1
    ours.dispatch_override(place.upper(), "auto", 2.0 * ROWS * K * N + 1)
    grouped_mm(a, b, offs=offs)
    assert taken()["_grouped_mm"] == {"small": 1}


def test_nothing_is_written_to_stderr():
    """PyTorch warns of replaced kernels, of each one after set_warn_always(True)."""
    script = """
        import contextlib, os, tempfile
        import torch
        def through(key):
            ours.dispatch_override(key, "auto", 0.0)
            torch.ones(4, 4) @ torch.ones(4, 4)
            ours.dispatch_override(key, "naive", 0.0)
            ours.disable()
        with tempfile.TemporaryFile() as file:
            kept = os.dup(2)
            os.dup2(file.fileno(), 2)
            import sgemm_kernels.torch as ours
            keys = ["CPU"] + ["CUDA"] * torch.backends.cuda.is_built()
            for always in (False, True):
                torch.set_warn_always(always)
                for key in keys:
                    through(key)
                assert torch.is_warn_always_enabled() == always
            os.dup2(kept, 2)
            file.seek(0)
            print(file.read().decode())
    """
    assert printed_by(script) == ""
