"""Keys are turned before they are kept in few bits: scores stay, and large features no longer take all the codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnc.compiler.derive.entry import derive_program
from attnc.compiler.derive.rotation import matrices
from attnc.compiler.derive.streams import Pages
from attnc.runtime.kv.quantise import decode, encode
from attnc.runtime.scoring import forced_logits


@pytest.mark.parametrize("features", [1, 2, 7, 40, 80, 96, 128, 256])
def test_scores_stay_as_they_are(features: int) -> None:
    keys, queries = matrices(features)
    assert torch.equal(keys @ queries.T, torch.eye(features))
    for dtype in (torch.bfloat16, torch.float16):
        assert torch.equal(keys.to(dtype).float(), keys) and torch.equal(queries.to(dtype).float(), queries)
    assert all(torch.equal(a, b) for a, b in zip(matrices(features), (keys, queries), strict=True))


@pytest.mark.parametrize("features", [64, 96, 256])
def test_features_beside_large_ones_are_kept(features: int) -> None:
    """Two large ones, half a row apart: rotary embedding pairs them."""
    keys, queries = matrices(features)
    rows = torch.randn(50, features, generator=torch.Generator().manual_seed(features))
    rows[:, [3, 3 + features // 2]] *= 30

    def error(x: Tensor) -> float:
        return (x - rows).square().mean().item()

    turned = decode(*encode(rows @ keys, "i8"), features) @ queries.T
    assert error(turned) < 0.3 * error(decode(*encode(rows, "i8"), features))


class Decoder(nn.Module):
    """One causal attention whose scores decide much, its queries with features first where ``swapped``."""

    def __init__(self, swapped: bool, keep: Callable[[Tensor], Tensor] = lambda x: x) -> None:
        super().__init__()
        self.swapped, self.keep = swapped, keep
        self.tokens, self.qkv, self.head = nn.Embedding(20, 24), nn.Linear(24, 72, bias=False), nn.Linear(24, 20)
        random = torch.Generator().manual_seed(3)
        for weight in self.parameters():
            weight.data = torch.randn(weight.shape, generator=random)
        self.eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        q, k, v = self.qkv(F.layer_norm(self.tokens(input_ids), (24,))).chunk(3, -1)
        k, places = self.keep(k), torch.arange(input_ids.shape[1])
        scores = (torch.einsum("bdq,bkd->bqk", q.mT.contiguous(), k) if self.swapped else q @ k.mT) / 12
        scores = scores.masked_fill(places > places[:, None], -torch.inf)
        logits: Tensor = self.head(scores.softmax(-1) @ v)
        return logits


TOKENS = torch.randint(20, (30,), generator=torch.Generator().manual_seed(1)).tolist()


def turned(x: Tensor) -> Tensor:
    keys, queries = matrices(24)
    return decode(*encode(x @ keys, "i8"), 24) @ queries.T


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
def test_queries_are_turned_with_their_keys(swapped: bool) -> None:
    program = derive_program(Decoder(swapped), max_length=30, pages=Pages(16, "i8", "f32"))
    logits = torch.cat(list(forced_logits(program, TOKENS, 7)))
    with torch.no_grad():
        expected = Decoder(swapped, turned)(torch.tensor([TOKENS[:-1]]))[0]
        plain = Decoder(swapped)(torch.tensor([TOKENS[:-1]]))[0]
    assert (logits - expected).abs().max() < 0.02 * (plain - expected).abs().max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "values", "matrices"),
    [(None, None, 0), ("bf16", "i8", 0), ("f8e4m3", None, 0), ("i4", "i8", 0), ("i8", "i4", 2)],
)
def test_only_keys_of_8_bit_integers_are_turned(keys: str | None, values: str | None, matrices: int) -> None:
    program = derive_program(Decoder(False), max_length=30, pages=Pages(16, keys, values))
    made = [op.result.name for op in program.graphs.step.ops if op.name == "ir.constant"]
    assert sum(name.startswith("turn") for name in made) == matrices
