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
    refused(TypeError, "A has dtype torch.float64", "A.float()", A=A.double(), B=B)
    refused(ValueError, "A requires a gradient", "A.detach()", A=torch.nn.Parameter(A), B=B)
    refused(ValueError, "B's 34 elements", A=A, B=B[0])
    refused(ValueError, "pass A.T", A=A, B=C)
    refused(ValueError, "torch.broadcast_to(C", A=A, B=B, C=C[0], beta=1)
    refused(ValueError, "out is (17, 34)", A=A, B=B, out=B)
    refused(ValueError, "share memory", A=A, B=B, out=torch.ones(M, 1).expand(M, N))
    refused(ValueError, "stream is only for arrays on a GPU", A=A, B=B, stream=1)
    negated = torch.complex(A, A).conj().imag
    refused(ValueError, "A.resolve_neg()", A=negated, B=B)
    column = torch.complex(B[:, 0], B[:, 0]).conj().imag[:, None]
    refused(ValueError, "B.resolve_neg()", A=A, B=column)
    refused(TypeError, "A is in host memory", A=A.to_sparse(), B=B)
    refused(ValueError, "meta", A=A.to("meta"), B=B)
