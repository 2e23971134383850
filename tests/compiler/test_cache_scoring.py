"""A text scored with quantised caches, against the model computed whole with its keys and values rounded likewise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnc.compiler.cache_report import CacheReport, CacheRow
from attnc.compiler.cache_scoring import score_caches
from attnc.compiler.derive.capture import Captured, capture
from attnc.compiler.derive.program import program_of
from attnc.compiler.derive.rotation import matrices
from attnc.compiler.derive.streams import Pages
from attnc.compiler.generator import stores
from attnc.runtime.kv.quantise import decode, encode
from attnc.runtime.scoring import forced_logits
from benchmarks.policy import judge, reference

VOCABULARY, HEADS, FEATURES, LENGTH = 47, 2, 40, 70
WIDTH = HEADS * FEATURES
Keep = Callable[[Tensor], Tensor]


class Decoder(nn.Module):
    """Two layers whose attention decides much. ``keys``, ``values``: what becomes of them before they are read."""

    def __init__(self, keys: Keep = lambda x: x, values: Keep = lambda x: x) -> None:
        super().__init__()
        self.keys, self.values = keys, values
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY)
        random = torch.Generator().manual_seed(6)
        for weight in self.parameters():
            weight.data = torch.randn(weight.shape, generator=random) * (
                0.1 if weight.shape == (VOCABULARY, WIDTH) else 0.25
            )
        self.eval()

    def forward(self, input_ids: Tensor) -> Tensor:
        length = input_ids.shape[1]
        places = torch.arange(length)
        x = self.tokens(input_ids) + self.places(places)
        for qkv in self.qkv:
            q, k, v = qkv(F.layer_norm(x, (WIDTH,))).unflatten(-1, (3, HEADS, FEATURES)).permute(2, 0, 3, 1, 4)
            scores = q @ self.keys(k).transpose(-2, -1) * FEATURES**-0.5
            scores = scores.masked_fill(places > places[:, None], -torch.inf)
            x = x + (scores.softmax(-1) @ self.values(v)).transpose(1, 2).flatten(2)
        logits: Tensor = self.head(x)
        return logits


def rounded(store: str) -> Keep:
    """Through a store and back."""
    return lambda x: decode(*encode(x, store), x.shape[-1]).to(x.dtype)


def turned(store: str) -> Keep:
    """The same for keys: those of int8 are turned before, and back."""
    of_keys, of_queries = matrices(FEATURES)
    return (lambda x: rounded(store)(x @ of_keys) @ of_queries.T) if store == "i8" else rounded(store)


TOKENS = torch.randint(VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(2)).tolist()
IDS = torch.tensor([TOKENS[:-1]])


@cache
def captured() -> Captured:
    return capture(Decoder(), longest=LENGTH)


@cache
def scored(kv: str | None) -> Tensor:
    """Logits by pages."""
    program = program_of(captured(), Pages(16, *stores(kv)), LENGTH)
    return torch.cat(list(forced_logits(program, TOKENS, 9)))


@cache
def whole(kv: str) -> Tensor:
    """Logits without pages, the same rounding done to all keys and values."""
    keys, values = map(str, stores(kv))
    with torch.no_grad():
        logits: Tensor = Decoder(turned(keys), rounded(values))(IDS)[0]
    return logits


def error(a: Tensor, b: Tensor) -> float:
    return (a - b).abs().max().item()


def test_without_rounding_logits_are_those_of_the_model() -> None:
    model = Decoder()
    with torch.no_grad():
        verdict = judge(scored(None), model(IDS)[0], reference(model, {"input_ids": IDS})[0])
    assert verdict.passed, str(verdict)


SLOW = [pytest.param(*pair, marks=pytest.mark.slow) for pair in (("int8", "int4"), ("fp8", "int8"), ("int4", "int8"))]


@pytest.mark.parametrize(("kv", "other"), [("int8/int4", "int4/int8"), *SLOW])
def test_with_rounding_logits_are_those_of_rounded_keys_and_values(kv: str, other: str) -> None:
    """To a few hundredths of what the rounding does: float32 may move an element across a boundary of codes."""
    lost = error(whole(kv), scored(None))
    assert lost > 1e-3
    assert error(whole(kv), scored(kv)) < 0.05 * lost
    assert error(whole(other), scored(kv)) > 0.5 * lost


@cache
def report() -> CacheReport:
    return score_caches(Decoder(), TOKENS, ("int8/int4",), name="tiny", max_length=LENGTH)


def test_a_report_has_the_figures_of_its_logits() -> None:
    targets = torch.tensor(TOKENS[1:])
    own = scored(None).double().log_softmax(-1)
    losses = F.nll_loss(own, targets, reduction="none")
    assert report().tokens == len(targets)
    for row, kv in zip(report().rows, (None, "int8/int4"), strict=True):
        logits = scored(kv).double().log_softmax(-1)
        lost = F.nll_loss(logits, targets, reduction="none")
        assert row.perplexity == pytest.approx(lost.mean().exp().item(), rel=1e-5)
        assert row.change == pytest.approx((lost.mean() - losses.mean()).exp().item() - 1, abs=1e-5)
        spread = (lost - losses).std(correction=0).item() / len(targets) ** 0.5
        assert row.change_error == pytest.approx((1 + row.change) * spread, abs=1e-5)
        assert row.largest_error == pytest.approx(error(scored(kv), scored(None)), rel=1e-5)
        assert row.mean_error == pytest.approx((scored(kv) - scored(None)).abs().mean().item(), rel=1e-4)
        divergence = F.kl_div(logits, own, log_target=True, reduction="none").sum(-1).mean().item()
        assert row.divergence == pytest.approx(divergence, abs=1e-6)
        assert row.same_token == pytest.approx((logits.argmax(-1) == own.argmax(-1)).double().mean().item())


def test_the_first_row_is_the_model_as_it_is() -> None:
    own, *others = report().rows
    assert own.kv == "f32 (own)"
    assert (own.change, own.largest_error, own.divergence, own.same_token) == (0.0, 0.0, 0.0, 1.0)
    assert all(row.largest_error > 0 for row in others)


def test_bytes_and_capacity() -> None:
    """Two layers, two heads of 40: int8 with a float32 scale, int4 with two float16 ones (groups of 32 and 8)."""
    bytes_of = {"f32 (own)": 160.0, "int8/int4": (44 + 24) / 2}
    for row in report().rows:
        assert row.token_bytes == 4 * 2 * bytes_of[row.kv]
        assert row.capacity == pytest.approx(80 / bytes_of[row.kv])


@pytest.mark.parametrize(("change", "warned"), [(0.029, 0), (-0.029, 0), (0.031, 1), (-0.031, 1), (math.nan, 1)])
def test_a_change_either_way_is_a_change(change: float, warned: int) -> None:
    row = CacheRow("int4", 9.0, change, 0.0, 0.0, 0.0, 0.0, 1.0, 8, 3.5)
    assert len(CacheReport("m", 5, (row,)).notes) == warned


@pytest.mark.slow
def test_what_changes_perplexity_too_much_is_warned_of() -> None:
    found = score_caches(Decoder(), TOKENS, ("int8", "int4"), max_length=LENGTH)
    _, int8, int4 = found.rows
    assert abs(int8.change) < 0.03 < abs(int4.change)
    assert [(note.code, note.message.split()[0]) for note in found.notes] == [("ATTNC-KV-PERPLEXITY", "int4")]
    assert "--kv int8" in found.notes[0].message


@pytest.mark.slow
def test_the_beginning_of_a_long_text_is_scored() -> None:
    short = score_caches(Decoder(), TOKENS, ("int8",), max_length=20)
    assert short.tokens == 20
    lost = F.cross_entropy(scored("int8")[:20], torch.tensor(TOKENS[1:21]))
    assert short.rows[1].perplexity == pytest.approx(lost.exp().item(), rel=1e-5)


def test_json_holds_everything() -> None:
    data = json.loads(report().to_json())
    assert (data["version"], data["name"], data["tokens"]) == (1, "tiny", LENGTH - 1)
    assert tuple(CacheRow(**row) for row in data["rows"]) == report().rows
    assert [note["message"] for note in data["notes"]] == [note.message for note in report().notes]


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="int7"):
        score_caches(Decoder(), TOKENS, ("int7",))
    with pytest.raises(ValueError, match="1 token is no text"):
        score_caches(Decoder(), TOKENS[:1])
