"""The workloads of models.py: models of well-known libraries with random weights.

Importing this file needs PyTorch. Every workload has a `step`, which is timed, and `outputs`, which
computes the same results in float32 or in float64. `MODELS` lists them with their sizes.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

LENGTH_SCALE, NOISE = 20.0, 1e-2
"""Of the Gaussian process: the kernel's length scale, and the variance of the observations."""


class Workload:
    """What all workloads have."""

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

    def __init__(self, model: nn.Module, loss: Callable[[nn.Module], torch.Tensor]) -> None:
        self.model, self.loss = model, loss
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(self.model).backward()
        self.optimizer.step()

    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        model = in_float64(self.model) if exact else copy.deepcopy(self.model)
        model.zero_grad(set_to_none=True)
        self.loss(model).backward()
        return [each.grad for each in model.parameters() if each.grad is not None]


class Inference(Workload):
    """A model without gradients. The output is its first result."""

    def __init__(self, model: nn.Module, *inputs: torch.Tensor) -> None:
        self.model, self.inputs = model.eval(), inputs

    @torch.inference_mode()
    def step(self) -> None:
        self.model(*self.inputs)

    @torch.inference_mode()
    def outputs(self, *, exact: bool) -> list[torch.Tensor]:
        model = in_float64(self.model) if exact else self.model
        found = model(*(each.double() if exact and each.is_floating_point() else each
                        for each in self.inputs))  # fmt: skip
        return [found if isinstance(found, torch.Tensor) else found[0]]


class Float64Norm(nn.Module):
    """A root-mean-square norm. Those of `transformers` always compute in float32."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight, self.epsilon = norm.weight, norm.variance_epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


def in_float64(model: nn.Module) -> nn.Module:
    """A copy that computes in float64."""
    found = copy.deepcopy(model).double()
    for module in list(found.modules()):
        for name, child in module.named_children():
            if hasattr(child, "variance_epsilon"):
                setattr(module, name, Float64Norm(child))
    return found


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
    """Blocks, with GPT-2's initial weights."""

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


class GaussianProcess(Workload):
    """Regression by a Gaussian process: mean and covariance at new points.

    The points are on a surface of a few dimensions, as images of one kind of object are.
    """

    DIMENSIONS, OUTPUTS = 4, 16

    def __init__(self, observations: int, predictions: int, features: int) -> None:
        surface = torch.randn(self.DIMENSIONS, features) / math.sqrt(self.DIMENSIONS)
        places = torch.randn(observations + predictions, self.DIMENSIONS)
        points = torch.tanh(places @ surface)
        directions = torch.randn(self.DIMENSIONS, self.OUTPUTS)
        values = torch.sin(places @ directions)
        noise = math.sqrt(NOISE) * torch.randn(observations, self.OUTPUTS)
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


# The models. Each function gets the sizes of its entry in `MODELS`, and imports its library itself.


def tokens_of(vocabulary: int, batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(vocabulary, (batch, tokens))


def bert(batch: int, tokens: int, **config: int) -> Workload:
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(**config))
    return Inference(model, tokens_of(model.config.vocab_size, batch, tokens))


def llama(batch: int, tokens: int, **config: int) -> Workload:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(use_cache=False, **config))
    return Inference(model, tokens_of(model.config.vocab_size, batch, tokens))


def t5(batch: int, tokens: int, **config: int) -> Workload:
    from transformers import T5Config, T5EncoderModel

    model = T5EncoderModel(T5Config(**config))
    return Inference(model, tokens_of(model.config.vocab_size, batch, tokens))


def timm_model(name: str, batch: int, side: int, **config: Any) -> Workload:
    import timm

    model = timm.create_model(name, img_size=side, **config)
    return Inference(model, torch.randn(batch, 3, side, side))


def wav2vec2(batch: int, samples: int, **config: Any) -> Workload:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    return Inference(Wav2Vec2Model(Wav2Vec2Config(**config)), torch.randn(batch, samples))


def gpt2(batch: int, tokens: int, **config: int) -> Workload:
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(
        GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, **config)
    )
    text = tokens_of(model.config.vocab_size, batch, tokens)
    return Training(model, lambda m: m(input_ids=text, labels=text).loss)


def mlp(rows: int, widths: Sequence[int]) -> Workload:
    x, y = torch.randn(rows, widths[0]), torch.randn(rows, widths[-1])
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.GELU()]

    def loss(model: nn.Module) -> torch.Tensor:
        kind = next(model.parameters()).dtype
        return F.mse_loss(model(x.to(kind)), y.to(kind))

    return Training(nn.Sequential(*layers[:-1]), loss)


def gcn(nodes: int, edges: int, width: int, outputs: int) -> Workload:
    from torch_geometric.nn.models import GCN

    model = GCN(width, width, num_layers=3, out_channels=outputs)
    return Inference(model, torch.randn(nodes, width), torch.randint(nodes, (2, edges)))


def tensor_product(rows: int, irreps: str, other: str) -> Workload:
    from e3nn.o3 import FullyConnectedTensorProduct, Irreps

    model = FullyConnectedTensorProduct(irreps, other, irreps)
    return Inference(
        model, torch.randn(rows, Irreps(irreps).dim), torch.randn(rows, Irreps(other).dim)
    )


@dataclasses.dataclass(frozen=True)
class Model:
    """A workload with its sizes, and with small ones for tests."""

    name: str
    make: Callable[..., Workload]
    full: Mapping[str, Any]
    tiny: Mapping[str, Any]


TINY_BERT = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 1,
             "num_attention_heads": 2, "intermediate_size": 64}  # fmt: skip
LLAMA = {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 8,
         "num_attention_heads": 16}  # fmt: skip
T5_BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
TINY_T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1,
           "num_heads": 2}  # fmt: skip
TINY_WAV2VEC2 = TINY_BERT | {"conv_dim": (8, 8), "conv_kernel": (10, 3), "conv_stride": (5, 2),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2}  # fmt: skip

MODELS = (
    Model("BERT base, 16 x 384 tokens", bert,
          {"batch": 16, "tokens": 384}, {"batch": 2, "tokens": 8, **TINY_BERT}),
    Model("Llama, 8 layers of 2048, 1 x 1024 tokens", llama,
          {"batch": 1, "tokens": 1024, **LLAMA}, {"batch": 1, "tokens": 8, **TINY_BERT}),
    Model("Llama, 8 layers of 2048, 8 x 1 token", llama,
          {"batch": 8, "tokens": 1, **LLAMA}, {"batch": 4, "tokens": 1, **TINY_BERT}),
    Model("T5 base, encoder, 16 x 512 tokens", t5,
          {"batch": 16, "tokens": 512, **T5_BASE}, {"batch": 2, "tokens": 8, **TINY_T5}),
    Model("Swin-B, 32 images", timm_model,
          {"name": "swin_base_patch4_window7_224", "batch": 32, "side": 224},
          {"name": "swin_base_patch4_window7_224", "batch": 1, "side": 56, "embed_dim": 16,
           "depths": (1, 1), "num_heads": (1, 2), "num_classes": 8}),
    Model("Mixer-B, 64 images", timm_model,
          {"name": "mixer_b16_224", "batch": 64, "side": 224, "num_classes": 0},
          {"name": "mixer_s32_224", "batch": 1, "side": 32, "num_classes": 0}),
    Model("DeiT3-B, 64 images", timm_model,
          {"name": "deit3_base_patch16_224", "batch": 64, "side": 224},
          {"name": "deit3_base_patch16_224", "batch": 1, "side": 32, "embed_dim": 32, "depth": 1,
           "num_heads": 2}),
    Model("wav2vec 2.0 base, 8 x 5 s", wav2vec2,
          {"batch": 8, "samples": 80000}, {"batch": 1, "samples": 400, **TINY_WAV2VEC2}),
    Model("GPT-2, 6 layers, training step, 8 x 512 tokens", gpt2,
          {"batch": 8, "tokens": 512, "n_layer": 6},
          {"batch": 2, "tokens": 8, "n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 64}),
    Model("MLP 1024-4096-4096-256, training step, 4096 rows", mlp,
          {"rows": 4096, "widths": (1024, 4096, 4096, 256)}, {"rows": 8, "widths": (4, 16, 16, 4)}),
    Model("GCN, 60,000 nodes, 600,000 edges", gcn,
          {"nodes": 60000, "edges": 600000, "width": 512, "outputs": 64},
          {"nodes": 12, "edges": 40, "width": 8, "outputs": 4}),
    Model("e3nn tensor product, 8192 rows", tensor_product,
          {"rows": 8192, "irreps": "64x0e+32x1o+16x2e", "other": "1x0e+1x1o+1x2e"},
          {"rows": 8, "irreps": "4x0e+4x1o", "other": "1x0e+1x1o"}),
    Model("Gaussian process, 8192 points", GaussianProcess,
          {"observations": 8192, "predictions": 4096, "features": 784},
          {"observations": 48, "predictions": 8, "features": 12}),
)  # fmt: skip
"""Random weights everywhere."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Which sizes of the models, and those of the GPT that is trained."""

    models: str
    curve: tuple[int, int, int, int, int, int]
    """Sequences of a batch, tokens of a sequence, vocabulary, layers, heads, width."""


FULL = Sizes("full", (32, 256, 128, 6, 6, 384))
TINY = Sizes("tiny", (2, 8, 128, 1, 2, 16))
"""For tests."""


def workloads(sizes: Sizes, device: str) -> Iterator[tuple[str, Callable[[], Workload]]]:
    """The names of the workloads, and functions that make them, so that each can be freed. Such a
    function raises ImportError if the library is missing."""

    def maker(model: Model) -> Callable[[], Workload]:
        def make() -> Workload:
            torch.manual_seed(0)
            with torch.device(device):
                return model.make(**getattr(model, sizes.models))

        return make

    for model in MODELS:
        yield model.name, maker(model)


def relative_error(found: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> float:
    """The relative error of all floating-point outputs together (Frobenius norms)."""
    error = norm = 0.0
    for mine, right in zip(found, exact, strict=True):
        if mine.is_floating_point():
            error += float((mine.double() - right).square().sum())
            norm += float(right.square().sum())
    return math.sqrt(error / norm)


def losses(
    text: str, sizes: Sizes, steps: int, device: str, *, seed: int, exact: bool
) -> list[float]:
    """The loss at each step of a small GPT that learns a text of ASCII characters.

    The seed determines the initial weights, and the batches with their order. `exact` computes in
    float64.
    """
    batch, tokens, vocabulary, *rest = sizes.curve
    torch.manual_seed(seed)
    with torch.device(device):
        model = GPT(tokens, vocabulary, *rest)
    kind = torch.float64 if exact else torch.float32
    model.to(kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    data = torch.frombuffer(bytearray(text, "ascii", "replace"), dtype=torch.uint8).long()
    begins = torch.randint(
        len(data) - tokens, (steps, batch, 1), generator=torch.Generator().manual_seed(seed)
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
