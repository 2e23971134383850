"""Small models for artifacts: what is hard to save, each in a few lines. Compiled in processes of their own too."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Grouped(nn.Module):
    """Causal attention of four query heads on two key heads, with a padding mask, tied weights and nested results."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.table = nn.Embedding(37, 32)
        self.q, self.k, self.v = nn.Linear(32, 32), nn.Linear(32, 16), nn.Linear(32, 16)
        self.head = nn.Linear(32, 37, bias=False)
        self.head.weight = self.table.weight
        self.to(dtype)

    def forward(self, ids: Tensor, mask: Tensor) -> dict[str, Any]:
        batch, length = ids.shape
        x = self.table(ids)
        q = self.q(x).view(batch, length, 4, 8).transpose(1, 2)
        k, v = (f(x).view(batch, length, 2, 8).transpose(1, 2).repeat_interleave(2, dim=1) for f in (self.k, self.v))
        at = torch.arange(length)
        visible = (at[None, :] <= at[:, None]) & (mask[:, None, None, :] != 0)
        scores = (q @ k.transpose(-1, -2)) * 8**-0.5
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(-1)
        x = x + (weights @ v).transpose(1, 2).reshape(batch, length, 32)
        return {"logits": self.head(x), "hidden": (x, [x.mean(1), None]), "length": length + 1}


class Cached(nn.Module):
    """Writes a buffer and an input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8, 4))

    def forward(self, x: Tensor, cache: Tensor) -> Tensor:
        self.seen[: x.shape[0]] += x
        cache[:, 1:3] = x[:, :2]
        return self.seen.sum(0) + cache.sum()


class Pair(NamedTuple):
    first: Tensor
    rest: tuple[Tensor, Tensor]


class Fields(nn.Module):
    """No attention; results in a named tuple, one of them an input."""

    def forward(self, x: Tensor) -> Pair:
        return Pair(F.gelu(x), (x, x.sum(-1)))


class Branches(nn.Module):
    """Control flow, which a host program has no form for."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,))


class Wide(nn.Module):
    """A constant that no safetensors file holds."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("wave", torch.randn(3, dtype=torch.complex128))

    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(self.wave * x).sum(-1)


def inputs(batch: int, length: int, seed: int = 0) -> dict[str, Tensor]:
    """Of :class:`Grouped`: the last row is padded on the left."""
    made = torch.Generator().manual_seed(seed)
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, : length // 3] = 0
    return {"ids": torch.randint(37, (batch, length), generator=made), "mask": mask}


def dims() -> dict[str, Any]:
    """Dynamic shapes of :class:`Grouped`."""
    b, s = torch.export.Dim("B", min=2, max=16), torch.export.Dim("S", min=2, max=128)
    return {"ids": {0: b, 1: s}, "mask": {0: b, 1: s}}


def grouped(dtype: torch.dtype = torch.float32) -> Any:
    """The compiled model, the same weights each time."""
    import attnc

    torch.manual_seed(0)
    model = Grouped(dtype).eval()
    return attnc.compile(model, kwargs=inputs(3, 7), dynamic_shapes=dims(), name="folder/grouped")
