"""The model that every pair is made of: a small decoder whose parts can be replaced one at a time.

Axis letters: B batch, S tokens, H heads, D features of a head, W = H·D, V vocabulary. Written naively: nothing here is
prepared for an analysis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH, HEADS, EXPERTS, VOCABULARY, LIMIT = 16, 2, 4, 32, 64
FEATURES = WIDTH // HEADS
FILL = -1e9

Part = Callable[..., Tensor]
"""Takes the net first."""


class Net(nn.Module):
    """Token and position embedding, one attention, an MLP, and logits; ``parts`` replace its own.

    A stock of weights stands ready for the parts; which of them are used depends on the parts.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__()
        self.parts = parts
        self.severed = False
        """Every query sees its own key only: what is left of a memory isn't attention."""
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LIMIT, WIDTH)
        self.norm, self.last = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.square = nn.Parameter(torch.empty(WIDTH, WIDTH))
        self.kernel = nn.Parameter(torch.empty(WIDTH, WIDTH, 3))
        self.prefix = nn.Parameter(torch.empty(3, WIDTH))
        self.slopes = nn.Parameter(torch.empty(HEADS, 1, 1))
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.Parameter(torch.empty(EXPERTS, WIDTH, WIDTH))

    def forward(self, input_ids: Tensor) -> Tensor:
        """Logits [B, S, V] of input_ids int64 [B, S]."""
        x = self.parts.before(self, self.parts.embed(self, input_ids))
        x = x + self.out(self.parts.merge(self, self.attend(self.norm(x))))
        x = self.parts.after(self, x)
        x = x + self.down(F.gelu(self.up(self.last(x))))
        logits: Tensor = self.head(x)
        return logits

    def read(self, ids: Tensor) -> Tensor:
        """Token embedding [..., W] of ids [...]."""
        x: Tensor = self.tokens(ids)
        return x

    def place(self, positions: Tensor) -> Tensor:
        """Position embedding [..., W] of positions [...]."""
        x: Tensor = self.places(positions)
        return x

    def route(self, x: Tensor) -> Tensor:
        """What the router says of x [..., W] for each expert [..., E]."""
        logits: Tensor = self.router(x)
        return logits

    def attend(self, x: Tensor) -> Tensor:
        """Attention [B, H, S, D] of x [B, S, W]."""
        q, k, v = (self.parts.split(self, part) for part in self.qkv(x).chunk(3, dim=-1))
        q, k, v = self.parts.query(self, q), self.parts.key(self, k), self.parts.value(self, v)
        scores = self.parts.score(self, q @ k.transpose(-2, -1) * FEATURES**-0.5)
        return self.parts.mix(self, self.parts.weigh(self, self.parts.mask(self, scores)), v)


def embed(net: Net, ids: Tensor) -> Tensor:
    """[B, S, W] of ids [B, S]."""
    return net.read(ids) + net.place(torch.arange(ids.shape[1]))


def split(net: Net, x: Tensor) -> Tensor:
    """[B, S, W] to [B, H, S, D]."""
    return x.view(x.shape[0], x.shape[1], HEADS, FEATURES).transpose(1, 2)


def merge(net: Net, x: Tensor) -> Tensor:
    """[B, H, S, D] to [B, S, W]."""
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], WIDTH)


def hide(net: Net, scores: Tensor, visible: Tensor, fill: float = FILL) -> Tensor:
    """Scores [B, H, S, S] with ``fill`` where a key isn't visible, bool, broadcastable to them."""
    if net.severed:
        q, k = grid(scores)
        visible = visible & (k == q)
    return scores.masked_fill(~visible, fill)


def grid(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of queries [S, 1] and keys [1, S] of scores [..., S, S]."""
    at = torch.arange(scores.shape[-1])
    return at[:, None], at[None, :]


def causal(net: Net, scores: Tensor) -> Tensor:
    """Scores [B, H, S, S] without those of later keys."""
    q, k = grid(scores)
    return hide(net, scores, k <= q)


def same(net: Net, x: Tensor) -> Tensor:
    """``x`` as it is."""
    return x


@dataclass(frozen=True)
class Parts:
    """What stands at each place of a net."""

    embed: Part = embed
    """ids [B, S] to [B, S, W]."""
    before: Part = same
    """The stream [B, S, W] before attention."""
    split: Part = split
    """Each of q, k and v [B, S, W] to [B, H, S, D]."""
    query: Part = same
    """[B, H, S, D], before the scores; as ``key`` and ``value``."""
    key: Part = same
    value: Part = same
    score: Part = same
    """Scaled scores [B, H, S, S]."""
    mask: Part = causal
    """Scores [B, H, S, S] with fills where a key may not be seen."""
    weigh: Part = lambda net, scores: scores.softmax(-1)
    """Masked scores to weights, both [B, H, S, S]."""
    mix: Part = lambda net, weights, v: weights @ v
    """Weights [B, H, S, S] and v [B, H, S, D] to [B, H, S, D]."""
    merge: Part = merge
    """[B, H, S, D] to [B, S, W]."""
    after: Part = same
    """The stream [B, S, W] after attention."""


def net(parts: Parts) -> Net:
    """A net with reproducible weights: of order 1/√fan_in, and vectors moved from zero and one."""
    made = Net(parts).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
            else:
                parameter.normal_(0.0, 1.0 if parameter.shape[-1] == 1 else WIDTH**-0.5, generator=generator)
        made.tokens.weight *= WIDTH**0.5
        made.places.weight *= WIDTH**0.5
    return made
