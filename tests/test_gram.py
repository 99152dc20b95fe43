"""gram: each matrix times its own transpose, as run() computes it, in Python and PyTorch.

test_jax.py has JAX's."""

import importlib

import numpy as np
import pytest

from sgemm_kernels import gram, run

from .support import MULTIPROCESSORS, same_bits, uniform


@pytest.fixture(autouse=True)
def few_multiprocessors(monkeypatch):
    """Tensor cores compute products of these sizes, which are symmetric only if A is seen twice."""
    monkeypatch.setenv(MULTIPROCESSORS, "1")


def matrices(rng):
    """In several layouts, the first ones for tensor cores."""
    A = uniform(rng, 2, 150, 300)
    return (A, A[0], A[1].T, A[:, ::-1, 1:], A[0, :7], A[0].astype(np.float16), A[:0], A[0, :, :0])


@pytest.mark.parametrize("name", ["auto", "simt", "vec4"])
def test_it_is_the_product_with_the_transpose(rng, name):
    for A in matrices(rng):
        result = gram(name, A, device="cpu")
        assert same_bits(result, run(name, A, A.mT, device="cpu"))
        assert same_bits(result, result.mT)


def test_options(rng):
    A, C, out = uniform(rng, 40, 30), uniform(rng, 40, 40), np.empty((40, 40), np.float32)
    options = {"alpha": 0.5, "beta": 2.0, "C": C, "device": "cpu"}
    assert gram("auto", A, out=out, **options) is out
    assert same_bits(out, run("auto", A, A.T, **options))


def test_errors():
    with pytest.raises(ValueError, match=r"A has 1 dimension, but gram\(\).*A\.reshape\(1, -1\)"):
        gram("auto", np.ones(3, np.float32), device="cpu")
    with pytest.raises(ValueError, match="A has 0 dimensions"):
        gram("auto", np.ones((), np.float32), device="cpu")
    with pytest.raises(TypeError, match="variant must be a str"):
        gram(np.ones((3, 3), np.float32), "auto")
    with pytest.raises(ValueError, match=r"C.*\(2, 3\)"):
        gram("auto", np.ones((3, 4), np.float32), C=np.ones((2, 3), np.float32), beta=1)


@pytest.fixture
def torch():
    torch = pytest.importorskip("torch", minversion="2.10")
    importlib.import_module("sgemm_kernels.torch")
    return torch


def test_pytorch(rng, torch):
    ours = torch.ops.sgemm_kernels.gram
    for A in matrices(rng):
        if all(A.strides) and min(A.strides) > 0:
            found = ours(torch.from_numpy(A))
            assert same_bits(found.numpy(), run("auto", A, A.mT, device="cpu"))
    A = torch.from_numpy(rng.integers(-4, 5, (3, 20, 30)).astype(np.float32))
    assert torch.equal(ours(A, variant="vec4"), A @ A.mT)
    for moved, axis in ((A, 0), (A.transpose(0, 1), 1), (A.movedim(0, 2), 2)):
        assert torch.equal(torch.func.vmap(ours, in_dims=axis)(moved), A @ A.mT)
    with pytest.raises(RuntimeError, match=r"input has shape \(3,\).*input\.reshape"):
        ours(torch.ones(3))
    with pytest.raises(TypeError, match="input is float64 but must be float32"):
        ours(torch.ones(3, 3, dtype=torch.float64))


@pytest.mark.filterwarnings("ignore")  # PyTorch's checks warn
def test_derivatives_of_pytorch(rng, torch):
    ours = torch.ops.sgemm_kernels.gram
    A, weights, step = (
        torch.from_numpy(rng.integers(-4, 5, shape).astype(np.float32))
        for shape in ((2, 5, 6), (2, 5, 5), (2, 5, 6))
    )

    def weighted(multiply):
        return lambda X: (multiply(X) ** 2 * weights).sum()

    def plain(X):
        return X @ X.mT

    transforms = torch.func
    for transform in (transforms.grad, transforms.hessian):
        found, expected = (transform(weighted(each))(A) for each in (ours, plain))
        assert torch.equal(found, expected)
    found, expected = (transforms.jvp(each, (A,), (step,)) for each in (ours, plain))
    assert all(map(torch.equal, found, expected))
    half = A.half().requires_grad_()
    ours(half).sum().backward()
    assert half.grad.dtype == torch.float16
    torch.library.opcheck(ours.default, (A.requires_grad_(),))


def test_flops_of_pytorch(torch):
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        torch.ops.sgemm_kernels.gram(torch.ones(2, 4, 5))
    assert counter.get_total_flops() == 2 * 2 * 4 * 4 * 5
