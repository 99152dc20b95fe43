"""The workloads of models.py in plain PyTorch.

Importing this file needs PyTorch. Every workload has a `step`, which is timed, and `outputs`, which
computes the same results in float32 or in float64.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

EXPERTS_CHOSEN = 8
"""Experts of a token."""
LENGTH_SCALE, NOISE = 20.0, 1e-2
"""Of the Gaussian process: the kernel's length scale, and the variance of the observations."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of all workloads."""

    mlp: tuple[int, int, int, int]
    """Rows of a batch, inputs, hidden units, outputs."""
    gpt: tuple[int, int, int, int, int, int]
    """Sequences of a batch, tokens of a sequence, vocabulary, layers, heads, width."""
    vit: tuple[int, int, int, int, int, int]
    """Images of a batch, pixels of a side, of a patch's side, layers, heads, width."""
    routers: tuple[tuple[int, int, int], ...]
    """Tokens, experts, width."""
    gp: tuple[int, int, int]
    """Observations, predictions, features."""
    curve: tuple[int, int, int, int, int, int]
    """As `gpt`, for the loss curves."""


FULL = Sizes(
    mlp=(4096, 1024, 4096, 1024),
    gpt=(4, 1024, 50304, 12, 12, 768),  # GPT-2: 124M parameters; its vocabulary, padded to 64
    vit=(64, 224, 16, 12, 12, 768),  # ViT-B/16
    routers=tuple((tokens, experts, 7168) for tokens in (8192, 65536) for experts in (128, 256)),
    gp=(8192, 4096, 784),
    curve=(32, 256, 128, 6, 6, 384),
)
QUICK = dataclasses.replace(FULL, routers=FULL.routers[:2])
TINY = Sizes(
    mlp=(8, 4, 16, 4),
    gpt=(2, 8, 32, 2, 2, 16),
    vit=(2, 8, 4, 2, 2, 16),
    routers=((32, 16, 24),),
    gp=(48, 8, 12),
    curve=(2, 8, 128, 1, 2, 16),
)
"""For tests."""


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, heads: int, width: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(self.norm_1(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class Transformer(nn.Module):
    """The blocks of GPT-2 and of ViT, with GPT-2's initial weights."""

    def __init__(self, tokens: int, layers: int, heads: int, width: int, causal: bool) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.empty(tokens, width))
        self.blocks = nn.Sequential(*(Block(heads, width, causal) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.blocks(x + self.position[: x.shape[1]]))

    def initialize(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("projection.weight", "down.weight"))
                scale = math.sqrt(2 * len(self.blocks)) if residual else 1.0
                nn.init.normal_(parameter, std=0.02 / scale)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)


class GPT(Transformer):
    def __init__(self, tokens: int, vocabulary: int, layers: int, heads: int, width: int) -> None:
        super().__init__(tokens, layers, heads, width, causal=True)
        self.embedding = nn.Embedding(vocabulary, width)
        self.initialize()

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """The loss."""
        logits = F.linear(self.encode(self.embedding(tokens)), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), following.flatten())


class ViT(Transformer):
    CLASSES = 1000

    def __init__(self, side: int, patch: int, layers: int, heads: int, width: int) -> None:
        super().__init__((side // patch) ** 2 + 1, layers, heads, width, causal=False)
        self.patch = patch
        self.patches, self.head = nn.Linear(3 * patch**2, width), nn.Linear(width, self.CLASSES)
        self.first = nn.Parameter(torch.empty(1, 1, width))
        self.initialize()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits of images: batch x 3 x side x side."""
        squares = F.unfold(images, self.patch, stride=self.patch).transpose(1, 2)
        tokens = [self.first.expand(len(images), -1, -1), self.patches(squares)]
        return self.head(self.encode(torch.cat(tokens, dim=1))[:, 0])


class Workload:
    """What all workloads have."""

    name: str

    def step(self) -> None:
        """The timed work."""
        raise NotImplementedError

    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        """Results that are compared with those in float64, which `exact` asks for."""
        raise NotImplementedError

    def consequence(self, found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> str:
        """The effect of the errors on a user of the model; empty if the workload has no measure."""
        return ""


class Training(Workload):
    """A training step. The outputs are all gradients."""

    def __init__(self, name: str, model: nn.Module, loss: Callable[[nn.Module], torch.Tensor]):
        self.name, self.model, self.loss = name, model, loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(self.model).backward()
        self.optimizer.step()

    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        model = copy.deepcopy(self.model)
        if exact:
            model.double()
        model.zero_grad(set_to_none=True)
        self.loss(model).backward()
        return [parameter.grad for parameter in model.parameters()]


class Inference(Workload):
    """A model without gradients. The outputs are its logits."""

    def __init__(self, name: str, model: nn.Module, inputs: torch.Tensor) -> None:
        self.name, self.model, self.inputs = name, model.eval(), inputs

    @torch.inference_mode()
    def step(self) -> None:
        self.model(self.inputs)

    @torch.inference_mode()
    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        if not exact:
            return [self.model(self.inputs)]
        return [copy.deepcopy(self.model).double()(self.inputs.double())]


class Router(Workload):
    """The router of a mixture of experts: for each token, the experts with the largest logits."""

    def __init__(self, tokens: int, experts: int, width: int, device: str) -> None:
        self.name = f"router, {tokens} x {experts}"
        self.x = torch.randn(tokens, width, device=device)
        self.weight = torch.randn(experts, width, device=device) / math.sqrt(width)

    def route(self, x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        logits = F.linear(x, weight)
        shares, experts = torch.softmax(logits, -1).topk(EXPERTS_CHOSEN)
        return [logits, shares / shares.sum(-1, keepdim=True), experts]

    def step(self) -> None:
        self.route(self.x, self.weight)

    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        if not exact:
            return self.route(self.x, self.weight)
        return self.route(self.x.double(), self.weight.double())

    def consequence(self, found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> str:
        chosen, right = (each[2].sort(-1).values for each in (found, exact))
        other = int((chosen != right).any(-1).sum())
        return f"{other} of {len(right)} tokens misrouted"


class GaussianProcess(Workload):
    """Regression by a Gaussian process: mean and covariance at new points.

    The points are on a surface of a few dimensions, as images of one kind of object are.
    """

    DIMENSIONS, OUTPUTS = 4, 16

    def __init__(self, observations: int, predictions: int, features: int, device: str) -> None:
        self.name = f"Gaussian process, {observations} points"
        surface = torch.randn(self.DIMENSIONS, features, device=device) / math.sqrt(self.DIMENSIONS)
        places = torch.randn(observations + predictions, self.DIMENSIONS, device=device)
        points = torch.tanh(places @ surface)
        directions = torch.randn(self.DIMENSIONS, self.OUTPUTS, device=device)
        values = torch.sin(places @ directions)
        noise = math.sqrt(NOISE) * torch.randn(observations, self.OUTPUTS, device=device)
        self.x, self.new = points[:observations], points[observations:]
        self.y = values[:observations] + noise

    def predict(self, x: torch.Tensor, y: torch.Tensor, new: torch.Tensor) -> list[torch.Tensor]:
        covariance = kernel_matrix(x, x)
        covariance.diagonal().add_(NOISE)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        across = kernel_matrix(x, new)
        mean = across.T @ torch.cholesky_solve(y, factor)
        explained = torch.linalg.solve_triangular(factor, across, upper=False)
        return [mean, kernel_matrix(new, new) - explained.T @ explained, failed]

    def step(self) -> None:
        self.predict(self.x, self.y, self.new)

    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        data = (self.x, self.y, self.new)
        return self.predict(*(each.double() for each in data) if exact else data)

    def consequence(self, found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> str:
        if int(found[2]):
            return "Cholesky fails"
        return f"prediction off by {relative_error(found[:1], exact[:1]):.1g}"


def kernel_matrix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """exp(-|a - b|^2 / (2 l^2)) for all pairs of rows, with one product of matrices."""
    squares = a.square().sum(1, keepdim=True) + b.square().sum(1) - 2 * (a @ b.T)
    return torch.exp(-squares.clamp_(min=0) / (2 * LENGTH_SCALE**2))


def workloads(sizes: Sizes, device: str) -> Iterator[Callable[[], Workload]]:
    """Functions that make the workloads, one after another, so that each can be freed."""
    yield functools.partial(mlp, sizes, device)
    yield functools.partial(gpt, sizes, device)
    yield functools.partial(vit, sizes, device)
    for router in sizes.routers:
        yield functools.partial(Router, *router, device)
    yield functools.partial(GaussianProcess, *sizes.gp, device)


def mlp(sizes: Sizes, device: str) -> Workload:
    rows, inputs, hidden, outputs = sizes.mlp
    with torch.device(device):
        x, y = torch.randn(rows, inputs), torch.randn(rows, outputs)
        layers = [nn.Linear(inputs, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU()]
        model = nn.Sequential(*layers, nn.Linear(hidden, outputs))

    def loss(model: nn.Module) -> torch.Tensor:
        kind = next(model.parameters()).dtype
        return F.mse_loss(model(x.to(kind)), y.to(kind))

    return Training("MLP, training step", model, loss)


def gpt(sizes: Sizes, device: str) -> Workload:
    batch, tokens, vocabulary, *rest = sizes.gpt
    with torch.device(device):
        model = GPT(tokens, vocabulary, *rest)
        text = torch.randint(vocabulary, (batch, tokens + 1))
    return Training("GPT-2, training step", model, lambda m: m(text[:, :-1], text[:, 1:]))


def vit(sizes: Sizes, device: str) -> Workload:
    batch, side, *rest = sizes.vit
    with torch.device(device):
        return Inference("ViT-B, inference", ViT(side, *rest), torch.randn(batch, 3, side, side))


def relative_error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The relative error of all floating-point outputs together (Frobenius norms)."""
    error = norm = 0.0
    for mine, right in zip(found, exact, strict=True):
        if mine.is_floating_point():
            error += float((mine.double() - right).square().sum())
            norm += float(right.square().sum())
    return math.sqrt(error / norm)


def products_of(step: Callable[[], Any]) -> float:
    """The floating-point operations of a step in products of matrices."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    counted = counter.get_flop_counts().get("Global", {})
    names = {"aten.mm", "aten.addmm", "aten.bmm", "aten.baddbmm"}
    return float(sum(flop for name, flop in counted.items() if str(name) in names))


def losses(text: str, sizes: Sizes, steps: int, device: str, *, exact: bool) -> list[float]:
    """The loss at each step of a small GPT that learns a text of ASCII characters.

    The initial weights, the batches and their order are always the same. `exact` computes in
    float64.
    """
    batch, tokens, vocabulary, *rest = sizes.curve
    torch.manual_seed(0)
    with torch.device(device):
        model = GPT(tokens, vocabulary, *rest)
    kind = torch.float64 if exact else torch.float32
    model.to(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = torch.frombuffer(bytearray(text, "ascii", "replace"), dtype=torch.uint8).long()
    begins = torch.randint(
        len(data) - tokens, (steps, batch, 1), generator=torch.Generator().manual_seed(1)
    )
    windows = data[begins + torch.arange(tokens + 1)].to(device)
    found = []
    for window in windows:
        optimizer.zero_grad(set_to_none=True)
        loss = model(window[:, :-1], window[:, 1:])
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return [float(loss) for loss in torch.stack(found).double().cpu()]
