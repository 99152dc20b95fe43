"""DTensor and FSDP on two processes: the results of one process.

With gloo and CPU tensors, and with NCCL on two GPUs.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", minversion="2.10")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    pytest.skip("this PyTorch has no gloo", allow_module_level=True)

ON_EACH_RANK = """
import copy, os, sys, time
from pathlib import Path
import torch
import sgemm_kernels.torch as ours
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, parallelize_module,
)

rank, kind = int(sys.argv[1]), sys.argv[3]
device = torch.device(kind, rank if kind == "cuda" else None)
torch.set_default_device(device)
if kind == "cuda":
    torch.cuda.set_device(device)
try:
    distributed.init_process_group(
        {"cpu": "gloo", "cuda": "nccl"}[kind], init_method="file://" + sys.argv[2], rank=rank,
        world_size=2,
    )
    distributed.barrier()
except RuntimeError as error:
    print(error, flush=True)
    os._exit(77)  # no connection between processes of this machine
mesh = init_device_mesh(kind, (2,))
ops = torch.ops.sgemm_kernels
generator = torch.Generator(device).manual_seed(60)

def random(*shape):
    return torch.rand(shape, generator=generator) * 2 - 1

def close(found, expected):
    found = found.full_tensor() if isinstance(found, DTensor) else found
    assert torch.allclose(found.double(), expected.double(), rtol=1e-4, atol=1e-4)

# The operators.
x, w, v, c = random(6, 8), random(8, 11), random(11, 5), random(11)
for add in (False, True):
    W, V = distribute_tensor(w, mesh, [Shard(1)]), distribute_tensor(v, mesh, [Shard(0)])
    C, X = distribute_tensor(c, mesh, [Shard(0)]), distribute_tensor(x, mesh, [Replicate()])
    exact = [t.double().requires_grad_() for t in (w, v, c)]
    sharded = [t.requires_grad_() for t in (W, V, C)]
    hidden = ops.addmm(C, X, W, beta=2.0) if add else ops.mm(X, W)
    assert hidden.placements == (Shard(1),)
    y = ops.mm(torch.relu(hidden), V)
    assert y.placements[0].is_partial()
    y = y.redistribute(mesh, [Replicate()])
    z = torch.relu(x.double() @ exact[0] + (2 * exact[2] if add else 0)) @ exact[1]
    close(y, z)
    y.square().sum().backward()
    z.square().sum().backward()
    for found, expected in zip(sharded, exact):
        if expected.grad is not None:
            close(found.grad, expected.grad)
a, b, d = random(4, 5, 6), random(4, 6, 3), random(5, 1)
for of_a, of_b, out in ((0, 0, 0), (1, None, 1), (None, 2, 2), (2, 1, None)):
    A, B = (
        distribute_tensor(t, mesh, [Replicate() if at is None else Shard(at)])
        for t, at in ((a, of_a), (b, of_b))
    )
    D = distribute_tensor(d, mesh, [Replicate()])
    product = ops.bmm(A, B)
    assert out is None and product.placements[0].is_partial() or product.placements == (Shard(out),)
    close(product, a.double() @ b.double())
    close(ops.baddbmm(D, A, B), d + a.double() @ b.double())

# A bfloat16 and a float32 operand, divided along K.
short = x.bfloat16()
X = distribute_tensor(short, mesh, [Shard(1)]).requires_grad_()
W = distribute_tensor(w, mesh, [Shard(0)]).requires_grad_()
y = ops.mm(X, W)
assert y.placements[0].is_partial() and y.dtype == torch.float32
z = short.double() @ w.double()
close(y, z)
y.redistribute(mesh, [Replicate()]).square().sum().backward()
assert X.grad.dtype == torch.bfloat16 and X.grad.placements == (Shard(1),)
close(W.grad, 2 * short.double().T @ z)

# PyTorch's own products in a tensor-parallel and in a sharded model.
torch.manual_seed(60)
model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4))
exact = copy.deepcopy(model).double()
z = exact(x.double())
z.square().sum().backward()
tensor_parallel = parallelize_module(
    copy.deepcopy(model), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()}
)
sharded = copy.deepcopy(model)
fully_shard(sharded, mesh=mesh)
ours.enable() if kind == "cuda" else ours.dispatch_override("CPU", "auto", 0.0)
for parallel in (tensor_parallel, sharded):
    ours.stats(reset=True)
    y = parallel(x)
    close(y, z)
    y.square().sum().backward()
    for found, expected in zip(parallel.parameters(), exact.parameters()):
        close(found.grad, expected.grad)
    taken = ours.stats()
    assert sum(counts.get("taken", 0) for counts in taken.values()) >= 5, taken
ours.disable()
# Some releases of PyTorch abort when gloo's threads end with the process, and a rank that still
# needs the other one must not lose it.
Path(sys.argv[2] + sys.argv[1]).touch()
until = time.monotonic() + 60  # the other rank may have failed
while time.monotonic() < until and not all(Path(sys.argv[2] + rank).exists() for rank in "01"):
    time.sleep(0.01)
os._exit(0)
"""


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_two_processes_compute_the_results_of_one(kind, tmp_path):
    if kind == "cuda" and torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    command = [sys.executable, "-c", ON_EACH_RANK]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(tmp_path / "rendezvous"), kind],
            cwd=Path(__file__).parents[1],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed = [rank.communicate(timeout=250)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    ends = [rank.returncode for rank in ranks]
    if 77 in ends:
        pytest.skip(f"no connection between two processes: {printed[ends.index(77)]}")
    assert ends == [0, 0], "\n".join(printed)
