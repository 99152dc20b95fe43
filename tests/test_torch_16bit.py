"""sgemm_kernels.torch with operands of 16 bits: results are float32.

CPU tensors use the CPU device, so most of this needs no GPU."""

import itertools

import pytest

torch = pytest.importorskip("torch", minversion="2.10")

import sgemm_kernels.torch as ours  # noqa: E402

from .test_torch import BATCH, CASES, PLACES, K, M, N, kernels, ops, share, sliced, transposed  # noqa: E402

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
PAIRS = [pair for pair in itertools.product(FLOATS, FLOATS) if pair != FLOATS[:1] * 2]

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's compiler and checks warn a lot


@pytest.fixture(params=PLACES)
def place(request):
    return request.param


@pytest.fixture
def random(place):
    generator = torch.Generator().manual_seed(20240229)

    def make(*shape, dtype=torch.float32):
        return (torch.rand(shape, generator=generator) * 2 - 1).to(place, dtype)

    return make


def exact_share(result, a, b, *added, **scalars):
    """The largest error for the exact values of the operands, as a share of its bound."""
    return share(result, a.float(), b.float(), *added, **scalars)


# ------------------------------------------------------------------ operators


@pytest.mark.parametrize(("of_a", "of_b"), PAIRS)
def test_products(random, of_a, of_b):
    a, b = random(BATCH, M, K, dtype=of_a), random(BATCH, K, N, dtype=of_b)
    C = random(N)
    for A, B in ((a, b), (transposed(a), sliced(b)), (sliced(a), transposed(b))):
        assert exact_share(ops.mm(A[0], B[0]), a[0], b[0]) <= 1
        assert exact_share(ops.bmm(A, B), a, b) <= 1
        sums = ops.addmm(C, A[0], B[0], beta=0.5, alpha=-2.0)
        assert exact_share(sums, a[0], b[0], C, alpha=-2.0, beta=0.5) <= 1
        sums = ops.baddbmm(C, A, B, beta=0.5, alpha=-2.0)
        assert exact_share(sums, a, b, C, alpha=-2.0, beta=0.5) <= 1
    shared = b[:1].expand(BATCH, K, N)
    assert exact_share(ops.bmm(a, shared), a, shared) <= 1


@pytest.mark.parametrize(("of_a", "of_b"), PAIRS)
def test_other_variants_multiply_float32_copies(random, of_a, of_b):
    a, b = random(M, K, dtype=of_a), random(K, N, dtype=of_b)
    expected = ops.mm(a.float(), b.float(), variant="naive")
    assert torch.equal(ops.mm(a, b, variant="naive"), expected)


def test_out_in_the_memory_of_an_operand(random):
    """The result is as if the operands had been copied before."""
    memory = random(M, N)
    a, b = memory.view(torch.bfloat16)[:, ::2].fill_(0.5), random(N, N, dtype=torch.bfloat16)
    expected = ops.mm(a.clone(), b)
    assert ops.mm.out(a, b, out=memory) is None
    assert torch.equal(memory, expected)
    with pytest.raises(RuntimeError, match="out is bfloat16 but must be float32: omit out"):
        ops.mm.out(a, b, out=expected.bfloat16())


def test_autocast_changes_nothing(random, place):
    a, b = random(M, K, dtype=torch.bfloat16), random(K, N)
    with torch.autocast(place, dtype=torch.bfloat16):
        assert torch.equal(ops.mm(a, b), ops.mm(a, b))
        assert exact_share(ops.mm(a, b), a, b) <= 1


WRONG = {
    torch.int32: "float()",
    torch.bool: "float()",
    torch.float64: "float()",
    torch.float8_e4m3fn: "bfloat16()",
    torch.float8_e5m2: "bfloat16()",
    torch.complex64: "real.float()",
}


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_refused_dtypes(place, wrong):
    good = torch.ones(2, 2, device=place)
    bad, name = good.to(wrong), str(wrong).removeprefix("torch.")
    message = f"mat2 is {name} but must be float32, float16 or bfloat16: pass mat2.{WRONG[wrong]}"
    for call in (
        lambda: ops.mm(good, bad),
        lambda: ops.mm.out(good, bad, out=good),
        lambda: ops.addmm(good, good, bad),
        lambda: ops.mm(good.to("meta"), bad.to("meta")),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value).endswith(message)
    with torch.inference_mode(), pytest.raises(RuntimeError) as error:
        ops.mm(good, bad)
    assert message in str(error.value)
    converted = eval(f"bad.{WRONG[wrong]}", {"bad": bad})
    assert torch.equal(ops.mm(good, converted), torch.full_like(good, 2))


@pytest.mark.parametrize("wrong", [torch.float16, torch.complex64, torch.float8_e5m2], ids=str)
def test_the_added_tensor_is_float32(place, wrong):
    good = torch.ones(2, 2, device=place)
    with pytest.raises(TypeError, match=r"input is .* but must be float32: pass input\.") as error:
        ops.addmm(good.to(wrong), good, good)
    converted = eval(str(error.value).rpartition("pass ")[2], {"input": good.to(wrong)})
    assert converted.dtype == torch.float32


# ------------------------------------------------------------------ gradients and transformations


@pytest.mark.parametrize(("of_a", "of_b"), PAIRS)
@pytest.mark.parametrize("name", ["mm", "baddbmm"])
def test_gradients_have_the_dtypes_of_the_operands(random, name, of_a, of_b):
    """They are products with the float32 gradient, rounded once."""
    *C, a, b = (random(*shape) for shape in CASES[name])
    a, b = a.to(of_a).requires_grad_(), b.to(of_b).requires_grad_()
    result = getattr(ops, name)(*C, a, b)
    g = random(*result.shape).requires_grad_()
    of_both = torch.autograd.grad(result, (a, b), g, create_graph=True)
    product = ops.mm if name == "mm" else ops.bmm
    with torch.no_grad():
        wide = product(g, b.mT), product(a.mT, g)
    for found, operand, exact in zip(of_both, (a, b), wide, strict=True):
        assert found.dtype == operand.dtype
        assert torch.equal(found, exact.to(operand.dtype))
    assert exact_share(wide[0], g, b.mT) <= 1
    assert exact_share(wide[1], a.mT, g) <= 1
    of_g, of_b_again = torch.autograd.grad(of_both[0].float().sum(), (g, b))
    assert (of_g.dtype, of_b_again.dtype) == (torch.float32, b.dtype)
    ones = torch.ones_like(a)
    assert exact_share(of_g, ones, b) <= 1


def test_tangents(random):
    a, b = random(M, K, dtype=torch.bfloat16), random(K, N)
    u, v = random(M, K, dtype=torch.bfloat16), random(K, N)
    result, tangent = torch.func.jvp(ops.mm.default, (a, b), (u, v))
    assert torch.equal(result, ops.mm(a, b))
    assert torch.equal(tangent, ops.mm(u, b) + ops.mm(a, v))
    of_a, of_b = torch.func.grad(lambda x, y: ops.mm(x, y).sum(), argnums=(0, 1))(a, b)
    assert (of_a.dtype, of_b.dtype) == (torch.bfloat16, torch.float32)


def test_vmap(random):
    a, b = random(BATCH, M, K, dtype=torch.bfloat16), random(BATCH, K, N)
    C = random(BATCH, N)
    assert exact_share(torch.vmap(ops.mm)(a, b), a, b) <= 1
    shared = b[:1].expand(BATCH, K, N)
    assert exact_share(torch.vmap(ops.mm, in_dims=(0, None))(a, b[0]), a, shared) <= 1
    sums = torch.vmap(lambda c, x, y: ops.addmm(c, x, y, beta=2.0))(C, a, b)
    assert exact_share(sums, a, b, C[:, None], beta=2.0) <= 1


@pytest.mark.parametrize("name", ["mm", "addmm"])
def test_opcheck(random, name):
    *C, a, b = (random(*shape) for shape in CASES[name])
    tensors = [*C, a.bfloat16().requires_grad_(), b.requires_grad_()]
    torch.library.opcheck(getattr(ops, name).default, tensors)
    out = random(M, N)
    torch.library.opcheck(getattr(ops, name).out, [x.detach() for x in tensors], {"out": out})


def test_compile(random):
    """A router whose weights are float32, and a head of 16 bits with log-probabilities."""

    def losses(x, router, head):
        scores = ops.mm(x, router).softmax(-1)
        return scores.sum() + ops.mm(x, head).log_softmax(-1)[:, 0].sum()

    x, head = (random(*shape, dtype=torch.bfloat16).requires_grad_() for shape in CASES["mm"])
    router = random(K, 5).requires_grad_()
    expected = torch.autograd.grad(losses(x, router, head), (x, router, head))
    compiled = torch.compile(losses, fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(x, router, head), (x, router, head))
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.allclose(one.float(), other.float(), rtol=2**-7, atol=2**-20)


# ------------------------------------------------------------------ products with out_dtype


def by_float64(name):
    """PyTorch has these kernels for GPUs only."""

    def kernel(*arguments, out=None, **scalars):
        *tensors, dtype = arguments
        result = getattr(torch, name)(*(x.double() for x in tensors), **scalars).to(dtype)
        return result if out is None else out.copy_(result)

    return kernel


@pytest.fixture
def out_dtype(place):
    """Turns these products on or off. The value counts the calls."""
    library = torch.library.Library("aten", "IMPL")
    for name in ours._WITH_OUT_DTYPE if place == "cpu" else ():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "CPU"):
            library.impl(name, by_float64(name.partition(".")[0]), "CPU")
    ours.stats(reset=True)

    def switch(on):
        ours.dispatch_override(place.upper(), "auto", 0.0, on)
        counts = ours.stats(reset=True)
        return {name: reasons for name, reasons in counts.items() if ".dtype" in name}

    yield switch
    ours.disable()
    ours.stats(reset=True)
    library._destroy()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_products_with_out_dtype(random, out_dtype, dtype):
    out_dtype(True)
    a, b = random(BATCH, M, K, dtype=dtype), random(BATCH, K, N, dtype=dtype)
    float32 = {"out_dtype": torch.float32}
    C, out, outs = random(M, N), random(M, N), random(BATCH, M, N)
    of_one = {"alpha": -2.0, "beta": 0.5}
    for result in (
        torch.mm(a[0], b[0], **float32),
        torch.mm(a[0], transposed(b[0]), **float32, out=out),
    ):
        assert exact_share(result, a[0], b[0]) <= 1
    for result in (torch.bmm(a, b, **float32), torch.bmm(a, sliced(b), **float32, out=outs)):
        assert exact_share(result, a, b) <= 1
    for result in (
        torch.addmm(C, a[0], b[0], **float32, **of_one),
        torch.addmm(C, a[0], b[0], **float32, **of_one, out=out),
    ):
        assert exact_share(result, a[0], b[0], C, **of_one) <= 1
    forms = ["mm.dtype", "mm.dtype_out", "bmm.dtype", "bmm.dtype_out"]
    forms += ["addmm.dtype", "addmm.dtype_out"]
    if "baddbmm.dtype" in ours._WITH_OUT_DTYPE:
        for result in (
            torch.baddbmm(C, a, b, **float32, **of_one),
            torch.baddbmm(C, a, b, **float32, **of_one, out=outs),
        ):
            assert exact_share(result, a, b, C, **of_one) <= 1
        forms += ["baddbmm.dtype", "baddbmm.dtype_out"]
    assert out_dtype(True) == {name: {"taken": 1} for name in forms}


def test_calls_with_out_dtype_that_are_left_to_pytorch(random, out_dtype, place):
    out_dtype(True)
    a, b = random(M, K, dtype=torch.bfloat16), random(K, N, dtype=torch.bfloat16)
    assert torch.mm(a, b, out_dtype=torch.bfloat16).dtype == torch.bfloat16
    torch.mm(a[:0], b, out_dtype=torch.float32)
    if place == "cpu":  # PyTorch's kernels for GPUs refuse these
        torch.mm(a, b.half(), out_dtype=torch.float32)
        torch.addmm(a[:, :N], a, b, out_dtype=torch.float32)
        assert out_dtype(True) == {
            "mm.dtype": {"dtype": 2, "empty": 1},
            "addmm.dtype": {"dtype": 1},
        }
    torch.mm(a, b)
    torch.mm(a, b, out_dtype=torch.float32)
    assert out_dtype(True)["mm.dtype"]["taken"] == 1


def test_tf32_does_not_concern_16_bits(random, out_dtype):
    out_dtype(True)
    a, b = random(M, K, dtype=torch.float16), random(K, N, dtype=torch.float16)
    try:
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        torch.mm(a, b, out_dtype=torch.float32)
        torch.mm(a.float(), b.float(), out_dtype=torch.float32)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert out_dtype(True) == {"mm.dtype": {"taken": 1, "tf32": 1}}


def test_out_dtype_is_taken_over_only_if_asked(random, out_dtype, place):
    key = place.upper()

    def of_pytorch():
        return [repr(torch.library.get_kernel(f"aten::{n}", key)) for n in ours._WITH_OUT_DTYPE]

    before, others = of_pytorch(), kernels(key)
    out_dtype(False)
    enabled = kernels(key)
    assert enabled != others
    assert of_pytorch() == before
    out_dtype(True)
    assert all(map(str.__ne__, of_pytorch(), before))
    assert kernels(key) == enabled
    out_dtype(False)
    assert of_pytorch() == before
    a, b = random(M, K, dtype=torch.bfloat16), random(K, N, dtype=torch.bfloat16)
    torch.mm(a, b, out_dtype=torch.float32)
    assert out_dtype(False) == {}
    out_dtype(True)
    ours.disable()
    assert (of_pytorch(), kernels(key)) == (before, others)


def test_enable_takes_over_out_dtype():
    if not torch.backends.cuda.is_built():
        pytest.skip("this PyTorch has no CUDA")

    def kernel():
        return repr(torch.library.get_kernel("aten::mm.dtype", "CUDA"))

    before = kernel()
    with ours.enable():
        assert kernel() == before
        with ours.enable("vec4", out_dtype=True):
            assert kernel() != before
            with ours.enable():
                assert kernel() == before
            assert kernel() != before
        assert kernel() == before
