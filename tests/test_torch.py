"""sgemm_kernels.torch: the operators, and PyTorch's own products on this package's kernels.

CPU tensors use the CPU device, so most of this needs no GPU. The tests marked `on_gpu` need one.
"""

import shutil
import sys
import threading

import numpy as np
import pytest

from sgemm_kernels import _core, run
from sgemm_kernels._accuracy import expect

from .support import printed_by

torch = pytest.importorskip("torch", minversion="2.10")

import sgemm_kernels.torch as ours  # noqa: E402

GPU = torch.cuda.is_available() and _core._cuda_problem() is None
on_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
PLACES = ["cpu", pytest.param("cuda", marks=on_gpu)]
ops = torch.ops.sgemm_kernels

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler and checks warn a lot

M, N, K, BATCH = 37, 29, 41, 3


@pytest.fixture
def random():
    generator = torch.Generator().manual_seed(20240229)
    return lambda *shape: torch.rand(shape, generator=generator) * 2 - 1


@pytest.fixture(params=PLACES)
def place(request):
    return request.param


@pytest.fixture
def taken(place):
    """PyTorch's products on `place` use these kernels. The value counts the calls."""
    ours.dispatch_override(place.upper(), "auto", 0.0)
    ours.stats(reset=True)
    yield lambda: ours.stats(reset=True)
    ours.disable()
    ours.stats(reset=True)


def share(result, A, B, C=None, *, alpha=1.0, beta=0.0):
    """The largest error of a result, or of a stack of results, as a share of its bound."""
    arrays = [x.detach().cpu().numpy() for x in (result, A, B)]
    assert result.dtype == torch.float32
    if C is not None:
        C = np.broadcast_to(C.detach().cpu().numpy(), arrays[0].shape)
    if arrays[0].ndim == 2:
        return expect(*arrays[1:], C=C, alpha=alpha, beta=beta).worst_share(arrays[0])
    return max(
        expect(a, b, C=None if C is None else C[i], alpha=alpha, beta=beta).worst_share(one)
        for i, (one, a, b) in enumerate(zip(*arrays, strict=True))
    )


def row_major(x):
    return x.contiguous()


def transposed(x):
    return x.mT.contiguous().mT


def sliced(x):
    shape = (*x.shape[:-2], x.shape[-2] + 1, 2 * x.shape[-1] + 3)
    wide = torch.full(shape, torch.nan, dtype=x.dtype)
    part = wide.to(x.device)[..., 1:, 1 : 2 * x.shape[-1] : 2]
    return part.copy_(x)


def batch_last(x):
    return x if x.dim() == 2 else x.permute(1, 2, 0).contiguous().permute(2, 0, 1)


LAYOUTS = [row_major, transposed, sliced, batch_last]

# ------------------------------------------------------------------ operators


@pytest.mark.parametrize("layout_of_b", LAYOUTS)
@pytest.mark.parametrize("layout_of_a", LAYOUTS)
def test_products_of_any_strides(random, place, layout_of_a, layout_of_b):
    a, b = random(BATCH, M, K).to(place), random(BATCH, K, N).to(place)
    A, B = layout_of_a(a), layout_of_b(b)
    assert share(ops.mm(layout_of_a(a[0]), layout_of_b(b[0])), a[0], b[0]) <= 1
    assert share(ops.bmm(A, B), a, b) <= 1
    for shape in ((N,), (1, N), (M, 1), (M, N)):
        C = random(*shape).to(place)
        sums = ops.addmm(C, A[0], B[0], beta=0.5, alpha=-2.0)
        assert share(sums, a[0], b[0], C, alpha=-2.0, beta=0.5) <= 1
        sums = ops.baddbmm(C, A, B, beta=0.5, alpha=-2.0)
        assert share(sums, a, b, C, alpha=-2.0, beta=0.5) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_out_has_any_strides(random, place, layout):
    a, b, C = random(BATCH, M, K).to(place), random(BATCH, K, N).to(place), random(N).to(place)
    out = layout(random(BATCH, M, N).to(place))
    assert ops.mm.out(a[0], b[0], out=out[0]) is None
    assert share(out[0], a[0], b[0]) <= 1
    ops.bmm.out(a, b, out=out)
    assert share(out, a, b) <= 1
    ops.addmm.out(C, a[0], b[0], beta=3.0, out=out[0])
    assert share(out[0], a[0], b[0], C, beta=3.0) <= 1
    ops.baddbmm.out(C, a, b, beta=3.0, out=out)
    assert share(out, a, b, C, beta=3.0) <= 1
    before = out.clone()
    ops.baddbmm.out(out, a, b, beta=-1.0, out=out)
    assert share(out, a, b, before, beta=-1.0) <= 1


def test_stacks_that_are_one_product(random, place):
    """A shared operand of a stack is read once; the result is the same."""
    a, b = random(BATCH, M, K).to(place), random(BATCH, K, N).to(place)
    C = random(N).to(place)
    shared_b, shared_a = b[:1].expand(BATCH, K, N), a[:1].expand(BATCH, M, K)
    for A, B in ((a, shared_b), (shared_a, b), (batch_last(a), shared_b), (shared_a, shared_b)):
        assert share(ops.bmm(A, B), A, B) <= 1
        assert share(ops.baddbmm(C, A, B), A, B, C, beta=1.0) <= 1
    out = random(M, BATCH, N).to(place).transpose(0, 1)  # columns of the stack follow each other
    ops.bmm.out(shared_a, b.permute(1, 0, 2).contiguous().permute(1, 0, 2), out=out)
    assert share(out, shared_a, b) <= 1


@pytest.mark.parametrize("kernel", ["naive", "vec4", "auto"])
def test_the_variant_decides_the_bits(random, place, kernel):
    a, b = random(M, K).to(place), random(K, N).to(place)
    expected = run(kernel, a, b, device=place)
    assert torch.equal(ops.mm(a, b, variant=kernel), expected)


def test_scalars_that_hide_operands(random, place):
    a, b = random(M, K).to(place), random(K, N).to(place)
    nan = torch.full((M, N), torch.nan, device=place)
    assert share(ops.addmm(nan, a, b, beta=0), a, b) <= 1
    C = random(M, N).to(place)
    assert torch.equal(ops.addmm(C, a * torch.nan, b, alpha=0), C)
    empty = torch.empty(M, 0, device=place)
    assert torch.equal(ops.mm(empty, empty.new_empty(0, N)), torch.zeros(M, N, device=place))
    assert ops.bmm(a.new_empty(0, 2, 3), a.new_empty(0, 3, 4)).shape == (0, 2, 4)


def test_errors(random, place):
    a, b = random(M, K).to(place), random(K, N).to(place)
    for message, call in {
        "cannot be multiplied": lambda: ops.mm(a, a),
        "must be a matrix": lambda: ops.mm(a[0], b),
        "must be a 3D tensor": lambda: ops.bmm(a, b),
        "first two dimensions of batch2": lambda: ops.bmm(a[None], b[:2][None]),
        "expanded size": lambda: ops.addmm(a, a, b),
        "out does not have the shape": lambda: ops.mm.out(a, b, out=a),
        "out is int32": lambda: ops.mm.out(a, b, out=a.int()),
        "no variant 'fast'": lambda: ops.mm(a, b, variant="fast"),
        "share memory": lambda: ops.mm.out(a, b, out=a.new_empty(1, N).expand(M, N)),
        "of out share memory": lambda: ops.bmm.out(
            a.expand(2, M, K), b.expand(2, K, N), out=a.new_empty(M, N).expand(2, M, N)
        ),
    }.items():
        with pytest.raises(RuntimeError, match=message):
            call()


CASES = {
    "mm": ((M, K), (K, N)),
    "bmm": ((BATCH, M, K), (BATCH, K, N)),
    "addmm": ((N,), (M, K), (K, N)),
    "baddbmm": ((BATCH, M, N), (BATCH, M, K), (BATCH, K, N)),
}


@pytest.mark.parametrize("name", CASES)
def test_opcheck(random, place, name):
    tensors = [random(*shape).to(place) for shape in CASES[name]]
    scalars = {"beta": 2.0, "alpha": 0.5} if len(tensors) == 3 else {}
    packet = getattr(ops, name)
    torch.library.opcheck(packet.default, tensors, scalars)
    gradients = [x.clone().requires_grad_() for x in tensors]
    torch.library.opcheck(packet.default, gradients, {"variant": "vec4"})
    out = (tensors[-2] @ tensors[-1]).zero_()
    torch.library.opcheck(packet.out, tensors, {"out": out, **scalars})


@pytest.mark.parametrize("name", CASES)
def test_gradients(random, place, name):
    *C, a, b = (random(*shape).to(place).requires_grad_() for shape in CASES[name])
    scalars = {"beta": 2.0, "alpha": 0.5} if C else {}
    alpha = scalars.get("alpha", 1.0)
    result = getattr(ops, name)(*C, a, b, **scalars)
    g = random(*result.shape).to(place).requires_grad_()
    *of_C, of_a, of_b = torch.autograd.grad(result, [*C, a, b], g, create_graph=True)
    assert share(of_a, g, b.mT, alpha=alpha) <= 1
    assert share(of_b, a.mT, g, alpha=alpha) <= 1
    if name == "addmm":
        assert share(of_C[0][None], torch.ones(1, M), g, alpha=2.0) <= 1
    elif name == "baddbmm":
        assert torch.equal(of_C[0], 2 * g)
    v = random(*of_a.shape).to(place)  # the gradient of a gradient
    (twice,) = torch.autograd.grad(of_a, g, v, retain_graph=True)
    assert share(twice, v, b, alpha=alpha) <= 1
    (twice,) = torch.autograd.grad(of_a, b, v)
    assert share(twice, v.mT, g, alpha=alpha) <= 1 or share(twice.mT, g.mT, v, alpha=alpha) <= 1


def test_gradients_are_products_of_the_same_variant(random):
    a, b, g = random(M, K).requires_grad_(), random(K, N).requires_grad_(), random(M, N)
    of_a, of_b = torch.autograd.grad(ops.mm(a, b, variant="naive"), (a, b), g)
    with torch.no_grad():
        assert torch.equal(of_a, ops.mm(g, b.T, variant="naive"))
        assert torch.equal(of_b, ops.mm(a.T, g, variant="naive"))
    result = ops.mm(a, b.detach())
    assert len([x for x in result.grad_fn.saved_tensors if x is not None]) == 1  # b alone


@pytest.mark.parametrize("name", CASES)
def test_autograd_notices_what_out_overwrites(random, place, name):
    tensors = [random(*shape).to(place) for shape in CASES[name]]
    write = getattr(ops, name).out
    out = (tensors[-2] @ tensors[-1]).zero_()
    squares = out.clone().requires_grad_() * out  # saves `out`
    write(*tensors, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squares.sum().backward()
    with torch.inference_mode():
        write(*tensors, out=out)
        write(*tensors, out=torch.empty_like(out))

    parameter = torch.zeros_like(out).requires_grad_()
    for wanted in (parameter, parameter[:], parameter * 2):
        before = wanted.detach().clone()
        with pytest.raises(RuntimeError, match="out requires grad"):
            write(*tensors, out=wanted)
        assert torch.equal(wanted.detach(), before)
        with torch.no_grad():
            write(*tensors, out=wanted.detach())
    with torch.no_grad():
        write(*tensors, out=parameter)
    assert torch.equal(parameter.detach(), out)


def test_vmap(random, place):
    a, b = random(BATCH, M, K).to(place), random(BATCH, K, N).to(place)
    C = random(BATCH, N).to(place)
    assert share(torch.vmap(ops.mm)(a, b), a, b) <= 1
    shared = b[:1].expand(BATCH, K, N)
    assert share(torch.vmap(ops.mm, in_dims=(0, None))(a, b[0]), a, shared) <= 1
    assert share(torch.vmap(ops.mm, in_dims=(2, 0))(a.permute(1, 2, 0), b), a, b) <= 1
    sums = torch.vmap(lambda c, x, y: ops.addmm(c, x, y, beta=2.0))(C, a, b)
    assert share(sums, a, b, C[:, None], beta=2.0) <= 1
    stacks = torch.stack([a, 2 * a])
    for added in (None, C[0], C[:, None]):
        if added is None:
            result = torch.vmap(ops.bmm, in_dims=(0, None))(stacks, b)
        else:
            result = torch.vmap(ops.baddbmm, in_dims=(None, 0, None))(added, stacks, b)
        beta = 0.0 if added is None else 1.0
        assert share(result[0], a, b, added, beta=beta) <= 1
        assert share(result[1], 2 * a, b, added, beta=beta) <= 1
    x = a.clone().requires_grad_()
    torch.vmap(ops.mm)(x, b).sum().backward()
    ones = torch.ones(BATCH, M, N)
    assert share(x.grad, ones, b.mT) <= 1


class Model(torch.nn.Module):
    def __init__(self, out=False):
        super().__init__()
        self.out = out

    def forward(self, c, a, b):
        products = ops.mm(a, b, variant="vec4")
        if self.out:
            into = torch.empty_like(products)
            ops.addmm.out(c, a, b, out=into)
            return products, into
        return products, ops.addmm(c, a, b)


def check_model(model, random, place):
    c, a, b = random(N).to(place), random(M, K).to(place), random(K, N).to(place)
    products, sums = model(c, a, b)
    assert share(products, a, b) <= 1
    assert share(sums, a, b, c, beta=1.0) <= 1


@pytest.mark.parametrize("out", [False, True])
def test_compile_without_code_generation(random, place, out):
    check_model(torch.compile(Model(out), fullgraph=True, backend="aot_eager"), random, place)


def test_compiled_gradients(random, place):
    a, b = (random(*s).to(place).requires_grad_() for s in CASES["mm"])
    compiled = torch.compile(ops.mm.default, fullgraph=True, backend="aot_eager", dynamic=True)
    g = random(M, N).to(place)
    of_a, of_b = torch.autograd.grad(compiled(a, b), (a, b), g)
    assert share(of_a, g, b.mT) <= 1
    assert share(of_b, a.mT, g) <= 1


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_compile(random, place):
    check_model(torch.compile(Model(), fullgraph=True), random, place)


def test_export(random):
    arguments = random(N), random(M, K), random(K, N)
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(Model(), arguments, dynamic_shapes=(None, {0: rows}, None))
    assert "sgemm_kernels.mm" in program.graph_module.code
    check_model(program.module(), random, "cpu")
    assert program.module()(random(N), random(7, K), random(K, N))[0].shape == (7, N)


# ------------------------------------------------------------------ the dispatch override


def test_every_form_is_taken(random, place, taken):
    a, b = random(BATCH, M, K).to(place), random(BATCH, K, N).to(place)
    C, D = random(M, N).to(place), random(BATCH, M, N).to(place)
    out, outs = torch.empty_like(C), torch.empty_like(D)
    assert share(torch.mm(a[0], b[0]), a[0], b[0]) <= 1
    assert torch.mm(a[0], b[0], out=out) is out
    assert share(out, a[0], b[0]) <= 1
    assert share(torch.bmm(a, b), a, b) <= 1
    assert torch.bmm(a, b, out=outs) is outs
    assert share(outs, a, b) <= 1
    scalars = {"beta": 2, "alpha": 0.5}
    assert share(torch.addmm(C, a[0], b[0], **scalars), a[0], b[0], C, **scalars) <= 1
    assert torch.addmm(C, a[0], b[0], **scalars, out=out) is out
    assert share(out, a[0], b[0], C, **scalars) <= 1
    assert share(torch.baddbmm(D, a, b, **scalars), a, b, D, **scalars) <= 1
    assert torch.baddbmm(D, a, b, **scalars, out=outs) is outs
    assert share(outs, a, b, D, **scalars) <= 1
    before, stack_before = C.clone(), D.clone()
    assert C.addmm_(a[0], b[0], beta=True) is C
    assert share(C, a[0], b[0], before, beta=1.0) <= 1
    assert D.baddbmm_(a, b) is D
    assert share(D, a, b, stack_before, beta=1.0) <= 1
    forms = ("mm", "mm.out", "bmm", "bmm.out")
    forms += tuple(f"{name}{form}" for name in ("addmm", "baddbmm") for form in ("", ".out", "_"))
    assert taken() == {form: {"taken": 1} for form in forms}


def test_the_results_are_those_of_the_variant(random, place):
    a, b, C = random(M, K).to(place), random(K, N).to(place), random(M, N).to(place)
    ours.dispatch_override(place.upper(), "naive", 0.0)
    try:
        product, total = a @ b, torch.addmm(C, a, b, beta=2.0, alpha=0.5)
    finally:
        ours.disable()
    assert torch.equal(product, ops.mm(a, b, variant="naive"))
    assert torch.equal(total, ops.addmm(C, a, b, beta=2.0, alpha=0.5, variant="naive"))


def test_layers_and_gradients(random, place, taken):
    x = random(BATCH, M, K).to(place).requires_grad_()
    layer = torch.nn.Linear(K, N).to(place)
    y = layer(x)
    assert share(y, x, layer.weight.T.expand(BATCH, K, N), layer.bias, beta=1.0) <= 1
    g = random(BATCH, M, N).to(place)
    y.backward(g)
    assert share(x.grad, g, layer.weight.expand(BATCH, N, K)) <= 1
    flat_g, flat_x = g.flatten(0, 1), x.flatten(0, 1)
    assert share(layer.weight.grad.T, flat_x.T, flat_g) <= 1
    counts = taken()
    assert counts["addmm"] == {"taken": 1}
    assert counts["mm"] == {"taken": 2}


def test_einsum_attention_and_functional_transforms(random, place, taken):
    q, k, v = (random(2, 4, 16, 8).to(place) for _ in "qkv")
    torch.einsum("bhid,bhjd->bhij", q, k)
    assert taken() == {"bmm": {"taken": 1}}
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        torch.nn.functional.scaled_dot_product_attention(q, k, v)
    assert taken() == {"bmm": {"taken": 2}}
    a, b = random(M, K).to(place), random(K, N).to(place)
    gradient = torch.func.grad(lambda x: (x @ b).sum())(a)
    assert share(gradient, torch.ones(M, N), b.T) <= 1
    torch.func.jvp(lambda x: x @ b, (a,), (a,))
    torch.vmap(lambda x: x @ b)(torch.stack([a, a]))
    assert all(reasons == {"taken": reasons["taken"]} for reasons in taken().values())


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
def test_compiled_models_are_taken(random, place, taken):
    x, w, bias = random(M, K).to(place), random(K, N).to(place), random(N).to(place)
    compiled = torch.compile(lambda x, w, bias: torch.addmm(bias, x, w).relu() @ w.T)
    compiled(x, w, bias)  # on a GPU, Inductor times products while it compiles
    taken()
    result = compiled(x, w, bias)
    hidden = torch.addmm(bias, x, w).relu()
    counts = taken()  # Inductor may use mm for addmm
    assert all(set(reasons) == {"taken"} for reasons in counts.values())
    assert sum(reasons["taken"] for reasons in counts.values()) == 3
    assert share(result, hidden, w.T) <= 1


def test_other_calls_are_left_to_pytorch(random, place, taken):
    a, b, C = random(M, K).to(place), random(K, N).to(place), random(M, N).to(place)
    for dtype in (torch.float64, torch.bfloat16, torch.complex64):
        assert torch.mm(a.to(dtype), b.to(dtype)).dtype == dtype
        assert torch.addmm(C.to(dtype), a.to(dtype), b.to(dtype)).dtype == dtype
    torch.mm(a.double(), b.double(), out=C.double())
    assert taken() == {"mm": {"dtype": 3}, "addmm": {"dtype": 3}, "mm.out": {"dtype": 1}}
    assert torch.mm(a[:0], b).shape == (0, N)
    assert torch.equal(torch.mm(a[:, :0], b[:0]), torch.zeros(M, N, device=place))
    assert torch.equal(torch.addmm(C, a[:, :0], b[:0]), C)
    assert taken() == {"mm": {"empty": 2}, "addmm": {"empty": 1}}
    out = torch.mm(a, b, out=torch.empty(2, 2, device=place))
    assert share(out, a, b) <= 1
    assert share(torch.addmm(C, a, b, out=out[:0].clone()), a, b, C, beta=1.0) <= 1
    assert taken() == {"mm.out": {"shape": 1}, "addmm.out": {"shape": 1}}
    sparse = a.to_sparse()
    assert share(torch.mm(sparse, b), a, b) <= 1
    torch.addmm(C, sparse, b)
    assert taken() == {}
    with torch.autocast(place, dtype=torch.bfloat16):
        assert torch.mm(a, b).dtype == torch.bfloat16
    assert taken() == {"mm": {"dtype": 1}}
    conjugate = (a + 1j * a).conj().imag  # carries a lazy negation
    assert conjugate.is_neg()
    assert share(torch.mm(conjugate, b), -a, b) <= 1
    assert taken() == {"mm": {"taken": 1}}


def test_small_products_are_left_to_pytorch(random, place):
    a, b = random(BATCH, M, K).to(place), random(BATCH, K, N).to(place)
    try:
        ours.dispatch_override(place.upper(), "auto", 2 * M * N * K)
        ours.stats(reset=True)
        a[0] @ b[0], a[0, 1:] @ b[0], a @ b, torch.bmm(a, b[:1].expand(BATCH, K, N))
        torch.baddbmm(torch.zeros(N, device=place), a, b)
        assert ours.stats(reset=True) == {
            "mm": {"taken": 1, "small": 1},
            "bmm": {"taken": 2},
            "baddbmm": {"taken": 1},
        }
    finally:
        ours.disable()


@pytest.mark.parametrize("readable", [True, False])
def test_tf32_is_left_to_pytorch(random, place, readable, monkeypatch):
    a, b = random(M, K).to(place), random(K, N).to(place)
    matmul = torch.backends.cuda.matmul
    if not readable:
        monkeypatch.setattr(ours, "_precision_is_readable", lambda: False)
    ours.dispatch_override(place.upper(), "auto", 0.0)
    ours.stats(reset=True)

    def left():
        a @ b
        torch.addmm(b[0], a, b)
        counts = ours.stats(reset=True)
        assert counts["mm"] == counts["addmm"]
        return counts["mm"] == {"tf32": 1}

    try:
        assert not left()
        for precision, allowed in {"high": True, "medium": True, "highest": False}.items():
            torch.set_float32_matmul_precision(precision)
            assert left() == allowed
        for allowed in (True, False):
            matmul.allow_tf32 = allowed
            assert left() == allowed
        for precision in ("tf32", "ieee"):
            matmul.fp32_precision = precision
            assert left() == (precision == "tf32")
    finally:
        ours.disable()
        torch.set_float32_matmul_precision("highest")


def test_a_kernel_that_does_not_run_there_is_left_to_pytorch(random, place):
    a, b = random(M, K).to(place), random(K, N).to(place)
    if place == "cuda":
        pytest.skip("every kernel may run on this GPU")
    ours.dispatch_override("CPU", "cublas", 0.0)
    ours.stats(reset=True)
    try:
        assert share(a @ b, a, b) <= 1
        assert share(torch.addmm(b[0], a, b), a, b, b[0], beta=1.0) <= 1
        assert ours.stats() == {"mm": {"unsupported": 1}, "addmm": {"unsupported": 1}}
        assert "cublas" in ours.last_failure()
    finally:
        ours.disable()


def test_batches_that_write_over_their_operands(random, place):
    """The result is as if the operands had been copied first."""
    memory, b = random(BATCH + 1, M, M).to(place), random(BATCH, M, M).to(place)
    first, last = memory[:BATCH], memory[1:]
    copy = first.clone()
    ops.bmm.out(first, b, out=last)
    assert share(last, copy, b) <= 1
    copy = first.clone()
    ops.baddbmm.out(first, first, b, out=last)
    assert share(last, copy, b, copy, beta=1.0) <= 1
    ours.dispatch_override(place.upper(), "auto", 0.0)
    ours.stats(reset=True)
    try:
        copy = first.clone()
        first.baddbmm_(b, b)
        assert share(first, b, b, copy, beta=1.0) <= 1
        assert ours.stats(reset=True) == {"baddbmm_": {"taken": 1}}
    finally:
        ours.disable()


# Without address space for the stacks of a block's threads, the CPU device cannot compute.
NO_STACKS = """
    import resource
    import torch
    import sgemm_kernels.torch as ours
    torch.set_num_threads(1)
    a, b, C = torch.ones(150, 150), torch.ones(150, 150), torch.zeros(150, 150)
    exact = a @ b
    torch.addmm(C, a, b, out=torch.empty(150, 150))
    ours.dispatch_override("CPU", "smem", 0.0)
    mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + (6 << 20),) * 2)
    for call in (
        lambda: C.addmm_(a, b),
        lambda: torch.addmm(C, a, b, out=C),
        lambda: torch.mm(C, b, out=C),
        lambda: C[None].baddbmm_(a[None], b[None]),
    ):
        try:
            call()
        except RuntimeError as error:
            assert "memory" in str(error), error
    assert torch.equal(torch.addmm(C, a, b, beta=0), exact)
    assert torch.equal(C.addmm_(a, b, beta=0), exact)
    print(ours.stats())
"""


def test_only_a_failure_that_changed_an_operand_is_not_left_to_pytorch():
    printed = printed_by(
        NO_STACKS, GLIBC_TUNABLES="glibc.pthread.stack_cache_size=0", OPENBLAS_NUM_THREADS="1"
    )
    assert eval(printed) == {
        "mm.out": {"failed": 1},
        "addmm": {"failed": 1},
        "addmm.out": {"raised": 1},
        "addmm_": {"failed": 1, "raised": 1},
        "baddbmm_": {"raised": 1},
    }


def test_errors_are_those_of_pytorch(random, place, taken):
    a, b = random(M, K).to(place), random(K, N).to(place)
    for call in (
        lambda: torch.mm(a, a),
        lambda: torch.mm(a, a, out=b),
        lambda: torch.addmm(b, a, a),
        lambda: torch.addmm(a, a, b),
        lambda: torch.bmm(a[None], a[None]),
    ):
        with pytest.raises(RuntimeError) as with_override:
            call()
        ours.disable()
        with pytest.raises(RuntimeError) as without:
            call()
        ours.dispatch_override(place.upper(), "auto", 0.0)
        message = str(without.value).splitlines()[0]  # of newer releases: "mm: ..."
        assert message.endswith(str(with_override.value).splitlines()[0])
    with pytest.raises(RuntimeError, match="must be a matrix"):
        torch.mm(a[0], b)
    for wrong in (lambda: torch.mm(a, b.double()), lambda: torch.addmm(b[0], a, b.double())):
        with pytest.raises(RuntimeError, match="dtype"):
            wrong()
    column = torch.ones(1, 1, device=place).expand(2**26, 1)
    for product in (torch.mm, ops.mm):
        with pytest.raises(RuntimeError, match="memory"):
            product(column, column.T)
    with pytest.raises(RuntimeError, match="single memory location"):
        a.new_zeros(1, N).expand(M, N).addmm_(a, b)


def kernels(key):
    return [repr(torch.library.get_kernel(f"aten::{name}", key)) for name in ("mm", "addmm_")]


def test_disable_restores_pytorch(random, place):
    key = place.upper()
    a, b = random(M, K).to(place), random(K, N).to(place)
    before, kernels_before = a @ b, kernels(key)
    for _ in range(3):
        ours.dispatch_override(key, "naive", 0.0)
        assert kernels(key) != kernels_before
        ours.dispatch_override(key, "vec4", 0.0)
        ours.disable()
        ours.disable()
        assert kernels(key) == kernels_before
        ours.stats(reset=True)
        assert torch.equal(a @ b, before)
        assert ours.stats() == {}


def test_enable_nests():
    """Each `with` restores the former settings. CUDA kernels are registered without a GPU, too."""
    if not torch.backends.cuda.is_built():
        pytest.skip("this PyTorch has no CUDA")
    before = kernels("CUDA")
    with ours.enable():
        inside = kernels("CUDA")
        assert inside != before
        with ours.enable("vec4", min_flops=1e9) as entered:
            assert isinstance(entered, ours.Enabled)
        assert kernels("CUDA") == inside
        with pytest.raises(ValueError, match="no variant 'fast'"):
            ours.enable("fast")
        assert kernels("CUDA") == inside
    assert kernels("CUDA") == before


def test_enable_loads_the_library_of_the_variant(monkeypatch):
    if not torch.backends.cuda.is_built():
        pytest.skip("this PyTorch has no CUDA")
    before, loads = kernels("CUDA"), []
    monkeypatch.setattr(ours._cublas, "load", lambda: loads.append(kernels("CUDA")))
    with ours.enable("cublas"):
        assert loads == [before]
    with ours.enable("auto"):
        assert loads == [before]

    def missing():
        raise _core.UnsupportedVariantError("no library")

    monkeypatch.setattr(ours._cublas, "load", missing)
    with pytest.raises(_core.UnsupportedVariantError, match="no library"):
        ours.enable("cublas")
    assert kernels("CUDA") == before


def test_the_environment_enables():
    if not torch.backends.cuda.is_built():
        pytest.skip("this PyTorch has no CUDA")
    script = """
        import os, sys
        import sgemm_kernels
        assert "torch" not in sys.modules
        os.environ["SGEMM_KERNELS_TORCH"] = "auto"
        del sys.modules["sgemm_kernels"]
        import sgemm_kernels
        import torch
        print("dispatch_override.c" in repr(torch.library.get_kernel("aten::mm", "CUDA")))
    """
    assert printed_by(script) == "True"


def test_without_pytorch_the_error_says_so():
    script = """
        from sgemm_kernels import _core
        try:
            _core._torch_open()
        except ValueError as error:
            print(error)
    """
    assert "import torch before" in printed_by(script)


def test_threads(random, place, taken):
    a, b = random(M, K).to(place), random(K, N).to(place)
    results = []

    def multiply():
        for _ in range(20):
            results.append(share(torch.addmm(b[0], a, b), a, b, b[0], beta=1.0))
            results.append(share(a @ b, a, b))

    threads = [threading.Thread(target=multiply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 160
    assert max(results) <= 1
    assert taken() == {"mm": {"taken": 80}, "addmm": {"taken": 80}}


def test_another_thread_may_multiply_during_the_first_enable():
    """Each kernel is registered after the settings that it reads."""
    script = """
        import torch
        import sgemm_kernels.torch as ours
        from sgemm_kernels import _core
        a = torch.ones(2, 2)
        alone = _core._torch_kernel("addmm", torch.addmm, a)
        assert torch.equal(alone(a, a, a, beta=2), torch.full((2, 2), 4.0))
        override = ours._override_from_python
        def other_thread(key):
            library = override(key)
            torch.addmm(a, a, a)
            print(ours.stats()["addmm"])
            return library
        ours._override_from_python = other_thread
        ours.dispatch_override("CPU", "auto", 0.0)
    """
    assert printed_by(script) == "{'taken': 1}"


def test_no_tensor_leaks(random, place, taken):
    """Every call frees what it was given: errors and calls left to PyTorch, too."""
    a, b, out = random(M, K).to(place), random(K, N).to(place), random(M, N).to(place)

    def all_kinds():
        a @ b
        torch.mm(a, b, out=out)
        torch.addmm(out, a, b)
        a.double() @ b.double()
        ops.mm(a, b)
        ops.addmm.out(out, a, b, out=out)
        for wrong in (lambda: torch.mm(a, a), lambda: ops.mm(a, a), lambda: ops.mm(a, b.int())):
            with pytest.raises((RuntimeError, TypeError)):
                wrong()

    all_kinds()
    counts = [sys.getrefcount(x) for x in (a, b, out)]
    uses = [x._use_count() for x in (a, b, out)]
    for _ in range(5):
        all_kinds()
    assert [sys.getrefcount(x) for x in (a, b, out)] == counts
    assert [x._use_count() for x in (a, b, out)] == uses


def test_no_tensor_leaks_if_a_kernel_fails(random):
    a, b, C, out = random(M, K), random(K, N), random(M, N), random(M, N)
    ours.dispatch_override("CPU", "cublas", 0.0)
    ours.stats(reset=True)
    try:
        counts = [sys.getrefcount(x) for x in (a, b, C, out)]
        for _ in range(3):
            C.addmm_(a, b)
            torch.addmm(C, a, b, out=out)
        assert ours.stats(reset=True)["addmm_"] == {"unsupported": 3}
        assert [sys.getrefcount(x) for x in (a, b, C, out)] == counts
    finally:
        ours.disable()


def test_pytorchs_own_samples():
    """The operator database of PyTorch's tests, forward and backward."""
    printed = printed_by("from tests.torch_own_tests import check; print(check('cpu', 'auto'))")
    lines = printed.splitlines()
    assert lines[-1] == "0"
    for name in ("mm", "addmm", "bmm", "baddbmm", "nn.functional.linear"):
        assert any(line.startswith(f"{name}: ") for line in lines)


# ------------------------------------------------------------------ GPUs


@pytest.fixture
def taken_on_gpu():
    ours.stats(reset=True)
    with ours.enable():
        yield lambda: ours.stats(reset=True)


@on_gpu
def test_calls_are_queued_in_the_current_stream(random, taken_on_gpu):
    a, b = random(512, 512).cuda(), random(512, 512).cuda()
    side = torch.cuda.Stream()
    torch.addmm(a @ b, a, b)  # loads the kernels
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        x = a * 2
        y, z = x @ b, ops.mm(x, b)
        total = torch.addmm(y, x, b)
        assert not side.query()  # none of them waited
    side.synchronize()
    assert share(y, 2 * a, b) <= 1
    assert share(z, 2 * a, b) <= 1
    assert share(total, 2 * a, b, y, beta=1.0) <= 1


GRAPH = """
    import torch
    import sgemm_kernels.torch
    a, b = torch.rand(300, 200, device="cuda"), torch.rand(200, 100, device="cuda")
    c, bias = torch.zeros(300, 100, device="cuda"), torch.rand(100, device="cuda")
    graph = torch.cuda.CUDAGraph()
    {enable}
    with torch.cuda.graph(graph):
        x = {product}
        y = {total}
        {into}
    counts = sgemm_kernels.torch.stats()
    for _ in range(2):
        a.copy_(torch.rand_like(a))
        graph.replay()
        exact = a.double() @ b.double()
        for got, wanted in ((x, exact), (y, exact + bias), (c, exact)):
            assert (got - wanted).abs().max() < 1e-3
    print("replayed", counts)
"""


@on_gpu
def test_the_first_call_may_be_captured():
    replayed = printed_by(
        GRAPH.format(
            enable="pass",
            product="torch.ops.sgemm_kernels.mm(a, b)",
            total="torch.ops.sgemm_kernels.addmm(bias, a, b)",
            into="torch.ops.sgemm_kernels.mm.out(a, b, out=c)",
        )
    )
    assert replayed.startswith("replayed")
    replayed = printed_by(
        GRAPH.format(
            enable="sgemm_kernels.torch.enable()",
            product="a @ b",
            total="torch.addmm(bias, a, b)",
            into="torch.mm(a, b, out=c)",
        )
    )
    assert replayed == (
        "replayed {'mm': {'taken': 1}, 'mm.out': {'taken': 1}, 'addmm': {'taken': 1}}"
    )


@on_gpu
def test_every_gpu(random, taken_on_gpu):
    for index in range(torch.cuda.device_count()):
        a, b = random(M, K).to(f"cuda:{index}"), random(K, N).to(f"cuda:{index}")
        for product in (a @ b, ops.mm(a, b), torch.addmm(b[0] * 0, a, b)):
            assert product.device == a.device
            assert share(product, a, b) <= 1
    assert torch.cuda.current_device() == 0
    a, b = random(M, K), random(K, N).cuda()
    with pytest.raises(RuntimeError):
        a @ b
    with pytest.raises(RuntimeError, match="different devices"):
        ops.mm(b.T, b.cpu())


@on_gpu
def test_tensors_freed_right_after_the_call(random, taken_on_gpu):
    """PyTorch's allocator may reuse their memory at once, in the same stream."""
    a, b = random(700, 300).cuda(), random(300, 500).cuda()
    exact = a.double() @ b.double()
    for _ in range(50):
        product = (a * 2) @ (b * 2)
        total = torch.addmm(torch.ones(500, device="cuda"), a * 2, b * 2)
        torch.full((700, 300), torch.nan, device="cuda")
        torch.full((300, 500), torch.nan, device="cuda")
        assert torch.allclose(product.double(), 4 * exact, atol=1e-3)
        assert torch.allclose(total.double(), 4 * exact + 1, atol=1e-3)


@on_gpu
@pytest.mark.parametrize(
    "product",
    [
        "torch.ops.sgemm_kernels.mm(column, row)",
        "column @ row",
        "torch.addmm(row[0], column, row)",
    ],
)
def test_idle_memory_of_the_package_makes_room_for_results(product):
    script = f"""
        import torch
        import sgemm_kernels
        import sgemm_kernels.torch as ours
        class Bare:
            def __init__(self, tensor):
                self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        column, row = torch.ones(16384, 1, device="cuda"), torch.ones(1, 16384, device="cuda")
        ours.enable()
        torch.addmm(row[0, :8], column[:8], row[:, :8])  # loads the kernels
        torch.cuda.synchronize()
        sgemm_kernels.run("auto", Bare(column), Bare(row))  # 1 GiB, freed at once
        torch.cuda.synchronize()
        filler = torch.empty(torch.cuda.mem_get_info()[0] - 2**28, dtype=torch.uint8, device="cuda")
        row = row[:, :8192]
        ours.stats(reset=True)
        result = {product}  # 512 MiB
        print(result[-1, -1].item(), ours.stats())
    """
    printed = printed_by(script)
    assert printed.startswith(("1.0", "2.0"))
    assert "failed" not in printed


@on_gpu
def test_the_first_call_loads_cublas():
    """In a new process, where nothing has opened the library."""
    pytest.importorskip("cuda.pathfinder")
    script = """
        import torch
        import sgemm_kernels.torch as ours
        a = torch.eye(64, device="cuda")
        {first}
        assert torch.equal(a, first)
        print(ours.stats())
    """
    operator = script.format(first="first = torch.ops.sgemm_kernels.mm(a, a, variant='cublas')")
    assert printed_by(operator) == "{}"
    enabled = script.format(first="ours.enable('cublas'); first = a @ a")
    assert printed_by(enabled) == "{'mm': {'taken': 1}}"


@on_gpu
def test_large_products(random, taken_on_gpu):
    for m, n, k in ((1024, 1024, 1024), (2048, 512, 4096), (1, 4096, 4096), (4096, 1, 4096)):
        a, b = random(m, k).cuda(), random(k, n).cuda()
        assert share(a @ b, a, b) <= 1
        assert share(torch.nn.functional.linear(a, b.T, b[0]), a, b, b[0], beta=1.0) <= 1
    assert all(set(reasons) == {"taken"} for reasons in taken_on_gpu().values())
