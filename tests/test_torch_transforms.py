"""The operators of sgemm_kernels.torch in PyTorch's transformations, on its lazy views and in its
compilers. The operands are small integers, so every sum is exact."""

import itertools

import pytest

from sgemm_kernels import _core, run, run_many

from .support import printed_by, python

torch = pytest.importorskip("torch", minversion="2.10")

from torch import func  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

import sgemm_kernels.torch as ours  # noqa: E402

GPU = torch.cuda.is_available() and _core._cuda_problem() is None
on_gpu = pytest.mark.skipif(not GPU, reason="needs a GPU")
ops = torch.ops.sgemm_kernels

pytestmark = pytest.mark.filterwarnings("ignore")  # PyTorch's transformations warn a lot

M, N, K, BATCH = 3, 4, 5, 2
SHAPES = {
    "mm": ((M, K), (K, N)),
    "bmm": ((BATCH, M, K), (BATCH, K, N)),
    "addmm": ((N,), (M, K), (K, N)),
    "baddbmm": ((BATCH, M, N), (BATCH, M, K), (BATCH, K, N)),
}


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_gpu)])
def place(request):
    return request.param


@pytest.fixture
def integers(place):
    generator = torch.Generator().manual_seed(20240229)

    def make(*shape):
        return torch.randint(-4, 5, shape, generator=generator).float().to(place)

    return make


def scalars(name):
    return {"beta": 2.0, "alpha": -3.0} if name in ("addmm", "baddbmm") else {}


def pair(name):
    """The operator, and PyTorch's own."""
    return [
        lambda *tensors, namespace=namespace: getattr(namespace, name)(*tensors, **scalars(name))
        for namespace in (ops, torch)
    ]


def same(found, expected):
    found, expected = tree_leaves(found), tree_leaves(expected)
    return len(found) == len(expected) and all(map(torch.equal, found, expected))


# ---------------------------------------------------------------------------- transformations


def squares(product):
    return lambda *tensors: (product(*tensors) ** 2).sum()


def all_of(tensors):
    return tuple(range(len(tensors)))


def stacked(tensors, others):
    return [torch.stack(each) for each in zip(tensors, others, strict=True)]


# Each takes an operator, its operands, and other tensors of their shapes.
TRANSFORMATIONS = {
    "jvp": lambda f, x, y: func.jvp(f, tuple(x), tuple(y)),
    "jvp of one operand": lambda f, x, y: [
        func.jvp(lambda z, i=i: f(*x[:i], z, *x[i + 1 :]), (x[i],), (y[i],)) for i in all_of(x)
    ],
    "jvp of jvp": lambda f, x, y: func.jvp(
        lambda *z: func.jvp(f, z, tuple(y))[1], tuple(x), tuple(y)
    ),
    "jacfwd": lambda f, x, y: func.jacfwd(f, all_of(x))(*x),
    "jacrev": lambda f, x, y: func.jacrev(f, all_of(x))(*x),
    "grad": lambda f, x, y: func.grad(squares(f), all_of(x))(*x),
    "hessian": lambda f, x, y: func.hessian(squares(f), all_of(x))(*x),
    "jacrev of jacrev": lambda f, x, y: func.jacrev(func.jacrev(squares(f), all_of(x)), all_of(x))(
        *x
    ),
    "jacfwd of jacfwd": lambda f, x, y: func.jacfwd(func.jacfwd(squares(f), all_of(x)), all_of(x))(
        *x
    ),
    "jacrev of jacfwd": lambda f, x, y: func.jacrev(func.jacfwd(squares(f), all_of(x)), all_of(x))(
        *x
    ),
    "vmap of grad": lambda f, x, y: func.vmap(func.grad(squares(f), all_of(x)))(*stacked(x, y)),
    "vmap of jvp": lambda f, x, y: func.vmap(lambda *z: func.jvp(f, z, z)[1])(*stacked(x, y)),
    "grad of vmap": lambda f, x, y: func.grad(squares(func.vmap(f)), all_of(x))(*stacked(x, y)),
    "jvp of vmap": lambda f, x, y: func.jvp(
        func.vmap(f), tuple(stacked(x, y)), tuple(stacked(y, x))
    ),
    "vjp": lambda f, x, y: func.vjp(f, *x)[1](torch.ones_like(f(*x))),
    "linearize": lambda f, x, y: func.linearize(f, *x)[1](*y),
    "functionalize of grad": lambda f, x, y: func.functionalize(func.grad(squares(f), all_of(x)))(
        *x
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_transformations(integers, name):
    operands, others = ([integers(*shape) for shape in SHAPES[name]] for _ in range(2))
    for label, transform in TRANSFORMATIONS.items():
        found, expected = (transform(product, operands, others) for product in pair(name))
        assert same(found, expected), label


@pytest.mark.parametrize("name", SHAPES)
def test_dual_numbers(integers, name):
    """Any operands may have a tangent, or require a gradient."""
    operands, tangents = ([integers(*shape) for shape in SHAPES[name]] for _ in range(2))
    for dual in itertools.product((False, True), repeat=len(operands)):
        for gradient in (False, True):
            results = []
            for product in pair(name):
                with forward_ad.dual_level():
                    made = [
                        forward_ad.make_dual(x.clone().requires_grad_(gradient), y)
                        if is_dual
                        else x
                        for x, y, is_dual in zip(operands, tangents, dual, strict=True)
                    ]
                    unpacked = forward_ad.unpack_dual(product(*made))
                    results.append([x for x in unpacked if x is not None])
            assert same(*results), dual
            assert len(results[0]) == 1 + any(dual)


@pytest.mark.parametrize("name", SHAPES)
def test_a_call_with_out_loses_no_derivative(integers, name):
    operands = [integers(*shape) for shape in SHAPES[name]]
    write = getattr(ops, name).out
    expected = pair(name)[1](*operands)
    out = torch.zeros_like(expected)
    for i, operand in enumerate(operands):
        wanted = [x.clone().requires_grad_(j == i) for j, x in enumerate(operands)]
        with pytest.raises(RuntimeError, match=r"requires grad.*without out"):
            write(*wanted, out=out, **scalars(name))
        assert not out.any()
        with torch.no_grad():
            write(*wanted, out=out, **scalars(name))
        assert torch.equal(out, expected)
        out.zero_()
        with forward_ad.dual_level():
            dual = [*operands[:i], forward_ad.make_dual(operand, operand), *operands[i + 1 :]]
            with pytest.raises(RuntimeError, match=r"tangent.*without out"):
                write(*dual, out=out, **scalars(name))

        def into(x, i=i):
            write(*operands[:i], x, *operands[i + 1 :], out=out, **scalars(name))
            return out.sum()

        for transform in (func.grad(into), lambda x: func.jvp(into, (x,), (x,))):
            with pytest.raises(RuntimeError, match="without out"):
                transform(operand)
    with forward_ad.dual_level():
        with pytest.raises(RuntimeError, match=r"tangent.*without out"):
            write(*operands, out=forward_ad.make_dual(out, out), **scalars(name))
        write(*operands, out=out, **scalars(name))
    assert torch.equal(out, expected)


# ---------------------------------------------------------------------------- lazy views


def imaginary(x):
    """A view whose memory holds the negatives of its values."""
    view = torch.complex(torch.zeros_like(x), -x).conj().imag
    assert view.is_neg()
    return view.copy_(x)


def negated(x):
    return torch._neg_view(-x)


def overlaid(x):
    """Contiguous, so that its strides do not tell what it is."""
    view = torch._neg_view(torch.zeros(x.numel(), device=x.device)).view(x.shape)
    return view.copy_(x)


@pytest.mark.parametrize("view", [imaginary, negated, overlaid])
@pytest.mark.parametrize("name", SHAPES)
def test_views_of_negated_values(integers, name, view):
    operands = [integers(*shape) for shape in SHAPES[name]]
    write = getattr(ops, name).out
    expected = pair(name)[1](*operands)
    for lazy in itertools.product((False, True), repeat=len(operands)):
        mixed = [view(x) if one else x for x, one in zip(operands, lazy, strict=True)]
        assert torch.equal(pair(name)[0](*mixed), expected)
        for out in (torch.zeros_like(expected), view(torch.zeros_like(expected))):
            version = out._version
            write(*mixed, out=out, **scalars(name))
            assert torch.equal(out, expected)
            assert out._version > version
    with pytest.raises(RuntimeError, match="does not have the shape"):
        write(*operands, out=view(expected[..., :-1].contiguous()), **scalars(name))
    if name == "baddbmm":
        out = view(operands[0])  # it is an operand, too
        write(out, *operands[1:], out=out, **scalars(name))
        assert torch.equal(out, expected)


def test_a_negated_view_as_an_operand_of_run(place, integers):
    square = integers(4, 4)
    exact = torch.zeros_like(square)
    for view in (imaginary, negated, overlaid):
        lazy = view(square)
        operands = {"A": square, "B": square, "C": square, "out": exact}
        for name in operands:
            way = "omit out" if name == "out" else rf"pass {name}\.resolve_neg\(\)"
            arguments = {**operands, name: lazy}
            with pytest.raises(ValueError, match=rf"{name} is a view of negated values.*{way}"):
                run("auto", **arguments, beta=1, device=place)
            lists = {f"{each}s": [x] for each, x in arguments.items()}
            lists["out"] = lists.pop("outs")
            with pytest.raises(ValueError, match=rf"{name} is a view of negated values.*{way}"):
                run_many("auto", **lists, beta=1, device=place)
        assert torch.equal(run("auto", lazy.resolve_neg(), square, device=place), square @ square)


# ---------------------------------------------------------------------------- versions


def test_autograd_notices_what_run_overwrites(place, integers):
    a, b = integers(M, K), integers(K, N)
    into = {
        "run": lambda out: run("vec4", a, b, out=out, device=place),
        "run in place": lambda out: run("vec4", a, b, C=out, beta=1, out=out, device=place),
        "run_many": lambda out: run_many("vec4", [a, a], [b, b], out=[out, out * 0], device=place),
        "a part": lambda out: run("vec4", a[:1], b, out=out[:1], device=place),
        "detached": lambda out: run("vec4", a, b, out=out.detach(), device=place),
        "nothing to compute": lambda out: run("vec4", a[:0], b, out=out[:0], device=place),
        "mm.out": lambda out: ops.mm.out(a, b, out=out),
        "mm.out without grad": lambda out: torch.no_grad()(ops.mm.out)(a, b, out=out),
        "mm.out in inference": lambda out: torch.inference_mode()(ops.mm.out)(a, b, out=out),
    }
    for label, write in into.items():
        out = integers(M, N)
        saved = out.clone().requires_grad_() * out
        write(out)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved.sum().backward()
        assert label
    refused = integers(M, N)
    version = refused._version
    with pytest.raises(ValueError, match="result is"):
        run("vec4", a, b, out=refused[:1], device=place)
    assert refused._version == version
    with torch.inference_mode():
        out = torch.zeros(M, N, device=place)
        run("vec4", a, b, out=out, device=place)
    assert torch.equal(run("vec4", a, b, out=out, device=place), a @ b)


def test_a_tangent_is_not_lost_in_run(place, integers):
    square = integers(4, 4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(square, square)
        advice = r"pass torch\.autograd\.forward_ad\.unpack_dual\({}\)\.primal"
        for name in ("A", "B", "C", "out"):
            arguments = {"A": square, "B": square, "C": square, "out": square.clone(), name: dual}
            with pytest.raises(ValueError, match=f"{name} has a tangent.*{advice.format(name)}"):
                run("auto", **arguments, beta=1, device=place)
        expected = square @ square
        assert torch.equal(run("auto", square, square, device=place), expected)
        primal = forward_ad.unpack_dual(dual).primal
        assert torch.equal(run("auto", primal, square, device=place), expected)


# ---------------------------------------------------------------------------- shapes and counts


@pytest.fixture(params=[False, True], ids=["operators", "enabled"])
def namespace(request, place):
    if not request.param:
        yield ops
        return
    ours.dispatch_override(place.upper(), "auto", 0.0)
    yield torch
    ours.disable()


def test_strides_of_empty_results(place, namespace):
    for rows, cols, depth, batch in itertools.product((0, 1, 3), (0, 1, 3), (0, 2), (0, 2)):
        a = torch.ones(batch, rows, depth, device=place)
        b = torch.ones(batch, depth, cols, device=place)
        expected = torch.zeros(batch, rows, cols, device=place).stride()
        assert namespace.bmm(a, b).stride() == expected
        assert namespace.baddbmm(torch.ones(1, 1, 1, device=place), a, b).stride() == expected
        a, b = torch.ones(rows, depth, device=place), torch.ones(depth, cols, device=place)
        assert namespace.mm(a, b).stride() == expected[1:]
        assert namespace.addmm(torch.ones(1, device=place), a, b).stride() == expected[1:]


@pytest.mark.parametrize("name", SHAPES)
def test_flops_are_counted_as_pytorchs(integers, name, namespace):
    from torch.utils.flop_counter import FlopCounterMode

    operands = [integers(*shape).requires_grad_() for shape in SHAPES[name]]
    with FlopCounterMode(display=False) as counter:
        result = getattr(namespace, name)(*operands)
        forward = counter.get_total_flops()
        result.sum().backward()
    products = BATCH if name.endswith("bmm") else 1
    assert forward == 2 * M * N * K * products
    assert counter.get_total_flops() == 3 * forward
    if namespace is ops:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            getattr(ops, name).out(*operands, out=torch.zeros_like(result))
        assert counter.get_total_flops() == forward


def result_of(call):
    """What a call gives: the facts that PyTorch promises, or the kind of its error."""
    try:
        result = call()
    except RuntimeError:
        return "RuntimeError"
    return result.dtype, result.shape, result.stride(), result.device.type


def test_products_left_to_pytorch_have_its_dtype(place):
    dtypes = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32)
    dtypes += (torch.complex64, torch.bool)
    different = []
    for of_a, of_b in itertools.product(dtypes, repeat=2):
        for rows, depth, cols in ((3, 2, 4), (0, 2, 4), (3, 0, 4), (3, 2, 0)):
            a = torch.ones(2, rows, depth, device=place).to(of_a)
            b = torch.ones(2, depth, cols, device=place).to(of_b)
            calls = {
                "bmm": lambda a=a, b=b: torch.bmm(a, b),
                "mm": lambda a=a, b=b: torch.mm(a[0], b[0]),
                "matmul": lambda a=a, b=b: a @ b,
                "no stack": lambda a=a, b=b: torch.bmm(a[:0], b[:0]),
            }
            before = {name: result_of(call) for name, call in calls.items()}
            ours.dispatch_override(place.upper(), "auto", 0.0)
            try:
                after = {name: result_of(call) for name, call in calls.items()}
            finally:
                ours.disable()
            different += [
                (name, of_a, of_b, (rows, depth, cols), before[name], after[name])
                for name in calls
                if before[name] != after[name]
            ]
    assert different == []


# ---------------------------------------------------------------------------- compilers


@pytest.mark.parametrize("name", SHAPES)
def test_fake_tensors_know_their_devices(name):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        shapes = SHAPES[name]
        here = [torch.empty(shape) for shape in shapes]
        result = pair(name)[0](*here)
        assert result.stride() == torch.empty(result.shape).stride()
        for device in ("cuda", "meta"):
            there = [torch.empty(shape, device=device) for shape in shapes]
            assert pair(name)[0](*there).device.type == device
            for i in range(len(shapes)):
                mixed = [*here[:i], there[i], *here[i + 1 :]]
                with pytest.raises(RuntimeError, match="different devices"):
                    pair(name)[0](*mixed)
            with pytest.raises(RuntimeError, match="different devices"):
                getattr(ops, name).out(*here, out=torch.empty_like(result, device=device))


def test_transformations_in_compiled_code(integers):
    a, b = integers(M, K), integers(K, N)
    for transform in (
        lambda f: lambda x: func.jvp(lambda x: f(x, b), (x,), (x,))[1],
        lambda f: lambda x: func.jacfwd(lambda x: f(x, b))(x),
        lambda f: lambda x: func.grad(lambda x: (f(x, b) ** 2).sum())(x),
        lambda f: lambda x: func.vmap(lambda row: f(row[None], b))(x),
    ):
        compiled = torch.compile(transform(ops.mm), backend="aot_eager", fullgraph=True)
        assert torch.equal(compiled(a), transform(torch.mm)(a))

    @torch.compile(backend="aot_eager")
    def tangent(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(ops.mm(forward_ad.make_dual(x, x), b)).tangent

    assert torch.equal(tangent(a), a @ b)


def test_out_of_any_strides_in_compiled_code(place, integers):
    """Dynamo leaves calls with an `out` that is not contiguous out of its graphs."""
    a, b = integers(M, K), integers(K, N)
    compiled = torch.compile(lambda a, b, out: ops.mm.out(a, b, out=out), backend="aot_eager")
    for out in (torch.zeros(M, N), torch.zeros(N, M).T, torch.zeros(M, 2 * N)[:, ::2]):
        out = out.to(place)
        compiled(a, b, out)
        assert torch.equal(out, a @ b)


# ---------------------------------------------------------------------------- the start


def test_enable_is_quiet():
    script = """
        import torch
        import sgemm_kernels.torch as ours
        ours.dispatch_override("CPU", "auto", 0.0)
        ours.disable()
        if torch.backends.cuda.is_built():
            with ours.enable():
                pass
    """
    process = python(script)
    assert process.returncode == 0
    assert "Overriding" not in process.stderr


def test_the_environment_never_breaks_the_import():
    script = """
        import sys
        import sgemm_kernels
        print("torch" in sys.modules)
    """
    for off in ("", "0"):
        assert printed_by(script, SGEMM_KERNELS_TORCH=off) == "False"
    for hide, variant, reason in (
        ("import sys; sys.modules['torch'] = None", "auto", "torch"),
        ("", "fast", "no variant 'fast'"),
    ):
        process = python(f"{hide}\nimport sgemm_kernels", SGEMM_KERNELS_TORCH=variant)
        assert process.returncode == 0, process.stderr
        assert f"SGEMM_KERNELS_TORCH={variant} has no effect" in process.stderr
        assert reason in process.stderr
