"""PyTorch's own samples of mm, addmm, bmm, baddbmm, matmul and linear, on this package's kernels.

    python -m tests.torch_own_tests [cpu | cuda] [VARIANT]

Takes the sample inputs of PyTorch's operator database (`op_db`, with which PyTorch tests its
operators), in float32, computes each with the kernels enabled, forward and backward, and compares
with float64 on the CPU. The tolerance is PyTorch's own for float32, relative to the largest
element, or twice the error of PyTorch's own kernels. Downloads nothing. Exits with 1 if a result
differs.

PyTorch's test files run with the kernels if `SGEMM_KERNELS_TORCH=auto` is set and sgemm_kernels is
imported first:

    SGEMM_KERNELS_TORCH=auto python -c 'import sgemm_kernels, runpy; \\
        runpy.run_path("test_linalg.py", run_name="__main__")' -k addmm
"""

import argparse
import importlib.util
import sys
import types
import unittest

import torch
from torch.testing import assert_close
from torch.utils._pytree import tree_map

import sgemm_kernels.torch

if importlib.util.find_spec("expecttest") is None:  # PyTorch's tests import it; samples do not
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    sys.modules["expecttest"] = stand_in
from torch.testing._internal.common_methods_invocations import op_db

RTOL, ATOL = 1.3e-6, 1e-5  # torch.testing.assert_close for float32
NAMES = (
    *("mm", "addmm", "bmm", "baddbmm", "addbmm", "matmul", "__rmatmul__", "einsum"),
    *("nn.functional.linear", "nn.functional.bilinear", "linalg.multi_dot", "chain_matmul"),
)


def exact(value):
    """A float64 copy on the CPU of a tensor; other values as they are."""
    if not isinstance(value, torch.Tensor):
        return value
    copy = value.detach().cpu()
    copy = copy.double() if copy.is_floating_point() else copy
    return copy.requires_grad_(value.requires_grad)


def tensors_of(*values):
    found = []
    tree_map(lambda x: found.append(x) if isinstance(x, torch.Tensor) else None, values)
    return found


def results(op, arguments):
    """The result and the gradients of its sum of squares."""
    result = op(arguments[0], *arguments[1], **arguments[2])
    inputs = [x for x in tensors_of(*arguments) if x.requires_grad]
    gradients = []
    if inputs and result.requires_grad and result.numel():
        gradients = torch.autograd.grad(result.square().sum(), inputs, allow_unused=True)
    return [result.detach(), *(g for g in gradients if g is not None)]


def check(device, variant):
    """Prints a line for each operator; the number of samples that differ."""
    wrong = 0
    for info in op_db:
        if info.name not in NAMES or torch.float32 not in info.supported_dtypes(device):
            continue
        sgemm_kernels.torch.stats(reset=True)
        samples = 0
        for sample in info.sample_inputs(device, torch.float32, requires_grad=True):
            arguments = (sample.input, sample.args, sample.kwargs)
            sgemm_kernels.torch.dispatch_override(device.upper(), variant, 0.0)
            try:
                found = results(info.op, arguments)
            finally:
                sgemm_kernels.torch.disable()
            pytorchs = results(info.op, arguments)
            wanted = results(info.op, tree_map(exact, arguments))
            samples += 1
            try:
                for got, theirs, value in zip(found, pytorchs, wanted, strict=True):
                    assert got.dtype == torch.float32
                    largest = float(value.abs().max()) if value.numel() else 0.0
                    error = float((theirs.cpu() - value).abs().max()) if value.numel() else 0.0
                    atol = max(RTOL * largest + ATOL, 2 * error)
                    assert_close(got.cpu(), value.float(), rtol=RTOL, atol=atol)
            except AssertionError as error:
                wrong += 1
                print(f"{info.full_name}: {[tuple(x.shape) for x in tensors_of(*arguments)]}")
                print(error)
        print(f"{info.full_name}: {samples} samples, {sgemm_kernels.torch.stats()}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("device", nargs="?", choices=("cpu", "cuda"))
    parser.add_argument("variant", nargs="?", default="auto")
    chosen = parser.parse_args()
    device = chosen.device or ("cuda" if torch.cuda.is_available() else "cpu")
    print(f"PyTorch {torch.__version__}, {device}, variant {chosen.variant}")
    wrong = check(device, chosen.variant)
    print(f"{wrong} samples differ" if wrong else "no sample differs")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
