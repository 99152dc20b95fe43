"""How DTensor divides the operators of ``torch.ops.sgemm_kernels`` among processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.placement_types import Placement

_Rule = tuple[list[Placement | None], list[Placement | None]]  # of the result, of the operands


def _products(batched: bool) -> list[tuple[Placement, Placement, Placement]]:
    """The placements of the result and of both operands with which no process needs another."""
    rows, cols = (1, 2) if batched else (0, 1)
    placements: list[tuple[Placement, Placement, Placement]] = [
        (Replicate(), Replicate(), Replicate()),
        (Shard(rows), Shard(rows), Replicate()),
        (Shard(cols), Replicate(), Shard(cols)),
        (Partial(), Shard(cols), Shard(rows)),  # each process has a part of K
    ]
    if batched:
        placements.append((Shard(0), Shard(0), Shard(0)))
    return placements


def _added(result: Placement, shape: Sequence[int], dims: int) -> Placement:
    """The placement of C, which is broadcast to the result."""
    if not isinstance(result, Shard):
        return result
    axis = result.dim - (dims - len(shape))
    return Shard(axis) if axis >= 0 and shape[axis] != 1 else Replicate()


def _register(name: str) -> None:
    batched = name.endswith("bmm")

    def rules(*tensors: Any, **_: object) -> list[_Rule]:
        *added, _a, _b = tensors
        return [
            ([out], [*(_added(out, c.shape, 2 + batched) for c in added), a, b])
            for out, a, b in _products(batched)
        ]

    register_sharding(getattr(torch.ops.sgemm_kernels, name).default)(rules)


for _name in ("mm", "addmm", "bmm", "baddbmm"):
    _register(_name)
