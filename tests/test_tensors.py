"""run() with PyTorch's tensors in host memory. test_on_gpu.py has those on a GPU."""

import numpy as np
import pytest

from sgemm_kernels import run

from .support import same_bits, uniform

torch = pytest.importorskip("torch", minversion="2.10")

M, N, K = 21, 34, 17


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


def test_tensors_in_tensor_out(operands):
    A, B, C = (torch.from_numpy(values) for values in operands)
    expected = run("vec4", *operands[:2], C=operands[2], alpha=2, beta=0.5, device="cpu")
    result = run("vec4", A, B, C=C, alpha=2, beta=0.5, device="cpu")
    assert type(result) is torch.Tensor
    assert same_bits(result.numpy(), expected)
    assert run("vec4", A, B, C=C, alpha=2, beta=0.5, out=C, device="cpu") is C
    assert same_bits(C.numpy(), expected)


def test_any_strides(operands):
    expected = run("vec4", *operands[:2], device="cpu")
    A = torch.from_numpy(operands[0].T.copy()).T
    B = torch.from_numpy(np.repeat(operands[1], 3, axis=1))[:, ::3]
    out = torch.full((N, 2 * M), torch.nan).T[::2]
    run("vec4", A, B, out=out, device="cpu")
    assert same_bits(out.contiguous().numpy(), expected)
    row = torch.from_numpy(operands[0][:1]).expand(5, K)
    assert same_bits(run("vec4", row, B, device="cpu")[4:].numpy(), expected[:1])


def test_tensors_and_numpy_arrays(operands):
    A, B, C = operands
    expected = run("vec4", A, B, device="cpu")
    assert same_bits(run("vec4", torch.from_numpy(A), B, device="cpu").numpy(), expected)
    assert same_bits(run("vec4", A, torch.from_numpy(B), device="cpu"), expected)
    assert run("vec4", torch.from_numpy(A), B, out=C, device="cpu") is C
    assert same_bits(C, expected)


def test_empty_tensors():
    result = run("vec4", torch.ones(0, 3), torch.ones(3, 4), device="cpu")
    assert result.shape == (0, 4)
    assert not run("vec4", torch.ones(2, 0), torch.ones(0, 4), device="cpu").any()


class Subclass(torch.Tensor):
    pass


def test_subclasses(operands):
    A, B = (torch.from_numpy(values) for values in operands[:2])
    expected = run("vec4", A, B, device="cpu")
    assert torch.equal(run("vec4", A.as_subclass(Subclass), B, device="cpu"), expected)
    frozen = torch.nn.Parameter(A, requires_grad=False)
    assert torch.equal(run("vec4", frozen, B, device="cpu"), expected)


def refused(exception, *facts, **arguments):
    with pytest.raises(exception) as caught:
        run("vec4", arguments.pop("A"), arguments.pop("B"), device="cpu", **arguments)
    for fact in facts:
        assert fact in str(caught.value), str(caught.value)


def test_what_is_refused(operands):
    A, B, C = (torch.from_numpy(values) for values in operands)
    refused(ValueError, "B's 34 elements", A=A, B=B[0])
    refused(ValueError, "pass A.T", A=A, B=C)
    refused(ValueError, "torch.broadcast_to(C", A=A, B=B, C=C[0], beta=1)
    refused(ValueError, "out is (17, 34)", A=A, B=B, out=B)
    refused(ValueError, "share memory", A=A, B=B, out=torch.ones(M, 1).expand(M, N))
    refused(ValueError, "stream is only for arrays on a GPU", A=A, B=B, stream=1)


@pytest.mark.parametrize("types", [(torch.float16,) * 2, (torch.bfloat16, torch.float32)], ids=str)
def test_operands_of_16_bits(operands, types):
    """On the CPU device they are converted; a view of them, too."""
    A, B = (torch.from_numpy(x).to(dtype) for x, dtype in zip(operands[:2], types, strict=True))
    result = run("auto", A, B, device="cpu")
    assert (type(result), result.dtype) == (torch.Tensor, torch.float32)
    assert torch.equal(result, run("auto", A.float(), B.float(), device="cpu"))
    turned = run("auto", B.T, A.T[:, ::2], device="cpu")
    assert torch.equal(turned, run("auto", B.float().T, A.float().T[:, ::2], device="cpu"))


def nested(x):
    return torch.nested.nested_tensor(list(x), layout=torch.strided)


def jagged(x):
    return torch.nested.nested_tensor(list(x), layout=torch.jagged)


def quantized(x):
    return torch.quantize_per_tensor(x, 1.0, 0, torch.qint8)


# Each makes, of a batch of small integers, a tensor with these values that run() refuses. It takes
# those of 16 bits as A and B.
UNUSABLE = {
    "float64": torch.Tensor.double,
    "float16": torch.Tensor.half,
    "bfloat16": torch.Tensor.bfloat16,
    "bfloat16 with a gradient": lambda x: x.bfloat16().requires_grad_(),
    "float8": lambda x: x.to(torch.float8_e4m3fn),
    "integers": torch.Tensor.int,
    "complex64": lambda x: torch.complex(x, x),
    "complex128": lambda x: torch.complex(x, x).to(torch.complex128),
    "conjugate": lambda x: torch.complex(x, x).conj(),
    "gradient": lambda x: x.requires_grad_(),
    "float16 with a gradient": lambda x: x.half().requires_grad_(),
    "float64 with a gradient": lambda x: x.double().requires_grad_(),
    "complex with a gradient": lambda x: torch.complex(x, x).requires_grad_(),
    "parameter": torch.nn.Parameter,
    "negated": lambda x: torch._neg_view(-x),
    "negated with a gradient": lambda x: torch._neg_view((-x).requires_grad_()),
    "negated part of a double": lambda x: torch.complex(x, -x).to(torch.complex128).conj().imag,
    "zeros": lambda x: torch._efficientzerotensor(x.shape),
    "zeros of float64": lambda x: torch._efficientzerotensor(x.shape, dtype=torch.float64),
    "sparse": torch.Tensor.to_sparse,
    "sparse with a gradient": lambda x: x.to_sparse().requires_grad_(),
    "sparse float64": lambda x: x.double().to_sparse(),
    "csr": lambda x: x[0].to_sparse_csr(),
    "csc": lambda x: x[0].to_sparse_csc(),
    "bsr": lambda x: x[0].to_sparse_bsr((1, 1)),
    "mkldnn": torch.Tensor.to_mkldnn,
    "nested": nested,
    "jagged": jagged,
    "nested float64": lambda x: nested(x.double()),
    "quantized": quantized,
}


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own prototypes
@pytest.mark.parametrize("kind", UNUSABLE)
def test_the_advice_of_a_refusal_works(rng, kind):
    square = torch.from_numpy(rng.integers(-3, 4, (2, 4, 4)).astype(np.float32))
    zeros = kind.startswith("zeros")
    unusable = UNUSABLE[kind](square.clone())
    values = torch.zeros(2, 4, 4) if zeros else square[0] if unusable.dim() == 2 else square
    other = square[0]
    for name in ("C",) if kind in ("float16", "bfloat16") else ("A", "B", "C"):
        arguments = {"A": other, "B": other, "C": torch.zeros_like(values), name: unusable}
        if name == "C" or kind not in ("float16", "bfloat16"):
            with pytest.raises((TypeError, ValueError)) as caught:
                run("auto", **arguments, beta=1, device="cpu")
            advice = str(caught.value).partition(f"{name} ")[2].rpartition(": pass ")[2]
            arguments[name] = eval(advice, {"torch": torch, name: unusable})
        # A batch of A or B makes a batch of results, so C is not needed to see the values.
        if name != "C":
            del arguments["C"]
        beta = {"beta": 1} if name == "C" else {}
        if name == "C" and values.dim() == 3:
            arguments["A"] = other.expand(2, 4, 4)
        expected = {"A": values @ other, "B": other @ values, "C": other @ other + values}[name]
        assert torch.equal(run("auto", **arguments, **beta, device="cpu"), expected), name
    out = UNUSABLE[kind](torch.zeros(2, 4, 4))
    with pytest.raises((TypeError, ValueError)) as caught:
        run("auto", square, square, out=out, device="cpu")
    advice = str(caught.value).rpartition(": ")[2]
    if advice != "omit out":
        usable = eval(advice.removeprefix("pass "), {"torch": torch, "out": out})
        run("auto", square, square, out=usable, device="cpu")
        assert torch.equal(out.detach(), square @ square)


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own deprecated calls
def test_tensors_without_values(operands):
    """In torch.func, in compilers and on the device meta, the advice is to call the operators."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    import sgemm_kernels.torch  # noqa: F401

    A, B = (torch.from_numpy(values) for values in operands[:2])
    expected = A @ B

    def multiply(A, B):
        with pytest.raises(TypeError, match=r"call torch\.ops\.sgemm_kernels\.mm") as caught:
            run("auto", A, B, device="cpu")
        assert "sgemm_kernels.torch" in str(caught.value)
        return torch.ops.sgemm_kernels.mm(A, B)

    for transform in (
        lambda f: torch.vmap(f, in_dims=(0, None))(A[None], B)[0],
        lambda f: torch.func.grad(lambda A: (f(A, B)).sum())(A),
        lambda f: torch.func.jvp(f, (A, B), (A, B))[0],
        lambda f: torch.func.functionalize(f)(A, B),
        lambda f: torch.func.vmap(torch.func.jacrev(f), in_dims=(0, None))(A[None], B),
    ):
        assert torch.isfinite(transform(multiply)).all()
    assert torch.allclose(torch.func.jvp(multiply, (A, B), (A, B))[0], expected, atol=1e-4)
    assert multiply(A.to("meta"), B.to("meta")).shape == expected.shape
    with FakeTensorMode() as mode:
        fake = multiply(mode.from_tensor(A), mode.from_tensor(B))
    assert fake.shape == expected.shape
    with pytest.raises(TypeError, match="has no values"):
        run("auto", A, B, out=expected.to("meta"), device="cpu")


@pytest.mark.filterwarnings("ignore")  # PyTorch warns of its own prototypes
def test_tensors_that_wrap_others(rng):
    from torch.masked import masked_tensor
    from torch.testing._internal.two_tensor import TwoTensor

    A = torch.from_numpy(uniform(rng, 4, 4))
    for wrapper in (TwoTensor(A, A.clone()), masked_tensor(A, A > 0)):
        for name in ("A", "B", "C", "out"):
            arguments = {"A": A, "B": A, "C": A, "out": A.clone(), name: wrapper}
            advice = f"{name} has type {type(wrapper).__name__}.*pass a torch.Tensor"
            with pytest.raises(TypeError, match=advice):
                run("auto", **arguments, beta=1, device="cpu")
