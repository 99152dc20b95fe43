"""A small transformer with the products of `invariant`: the logits of a request do not depend on
the other requests of its batch, and a training step can be repeated."""

import math

import pytest

from sgemm_kernels import _core

torch = pytest.importorskip("torch", minversion="2.10")

import sgemm_kernels.torch as ours  # noqa: E402

GPU = torch.cuda.is_available() and _core._cuda_problem() is None
PLACES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not GPU, reason="needs a GPU"))]
TOKENS, WORDS, WIDTH, HEADS = 12, 50, 256, 4  # the last layer divides K = 1024 into slices


class Block(torch.nn.Module):
    """Attention and two layers, with products that `enable` takes over."""

    def __init__(self):
        super().__init__()
        self.of_attention, self.of_layers = (torch.nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.out = torch.nn.Linear(WIDTH, WIDTH)
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        shape = (*x.shape[:2], HEADS, WIDTH // HEADS)
        q, k, v = (
            part.reshape(shape).transpose(1, 2)
            for part in self.qkv(self.of_attention(x)).chunk(3, dim=-1)
        )
        scores = q @ k.mT / math.sqrt(WIDTH // HEADS)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        attention = torch.softmax(scores.masked_fill(later, -torch.inf), -1)
        x = x + self.out((attention @ v).transpose(1, 2).reshape(x.shape))
        return x + self.layers(self.of_layers(x))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.places = torch.nn.Embedding(TOKENS, WIDTH)
        self.blocks = torch.nn.Sequential(Block(), Block())
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.logits = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens):
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        return self.logits(self.norm(self.blocks(x)))


@pytest.fixture(params=PLACES)
def place(request):
    """Where PyTorch's products are those of `invariant`."""
    ours.dispatch_override(request.param.upper(), "invariant", 0.0)
    ours.stats(reset=True)
    yield request.param
    calls = ours.stats(reset=True)
    ours.disable()
    assert calls, "no product was taken over"


@pytest.fixture
def model(place):
    torch.manual_seed(1)
    return Model().to(place)


def requests(count, place):
    return torch.randint(WORDS, (count, TOKENS), generator=torch.Generator().manual_seed(2)).to(
        place
    )


def test_a_request_has_the_same_logits_in_every_batch(model, place):
    tokens = requests(64, place)
    with torch.no_grad():
        alone = {i: model(tokens[i : i + 1])[0] for i in (0, 1, 15, 63)}
        for count in (2, 16, 64):
            logits = model(tokens[-count:])
            for i, expected in alone.items():
                if i >= 64 - count:
                    assert torch.equal(logits[i - 64 + count], expected), (count, i)


def test_a_training_step_can_be_repeated(model, place):
    tokens = requests(4, place)
    first = {name: value.clone() for name, value in model.state_dict().items()}
    states = []
    for _ in range(2):
        model.load_state_dict(first)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        logits = model(tokens[:, :-1])
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
        states.append({name: value.clone() for name, value in model.state_dict().items()})
    for name, value in states[0].items():
        assert torch.equal(value, states[1][name]), name
        assert name.endswith("bias") or not torch.equal(value, first[name]), name
