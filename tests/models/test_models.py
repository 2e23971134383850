"""What the reference models promise: shapes, causality, windows, padding, reproducible weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from attnc import models
from attnc.models import bigbird, gpt2, layers, llama, longformer, mistral, sparse

DECODERS = ["bloom", "bloom-six", "falcon", "gpt2", "llama", "mistral", "sparse"]
ENCODERS = ["bert", "bigbird", "longformer"]


def changed_rows(model: nn.Module, ids: Tensor, changed: Tensor) -> list[int]:
    """Positions of the one sequence at which the output differs."""
    different: list[int] = (run(model, ids) != run(model, changed)).any(dim=-1)[0].nonzero().flatten().tolist()
    return different


def run(model: nn.Module, ids: Tensor, mask: Tensor | None = None) -> Tensor:
    with torch.no_grad():
        output: Tensor = model(ids, mask)
    return output


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_example_inputs_run(name: str) -> None:
    model = models.build(name)
    inputs = model.example_inputs(batch=3, length=9)
    assert inputs["attention_mask"].sum(dim=1).tolist() == [9, 8, 7]
    output = run(model, inputs["input_ids"], inputs["attention_mask"])
    assert output.shape == (3, 9, 64 if name in ENCODERS else 256)
    assert output.isfinite().all()


@pytest.mark.parametrize("name", DECODERS)
def test_a_later_token_changes_nothing_earlier(name: str) -> None:
    model = models.build(name)
    ids = torch.arange(12)[None] * 7 % 256
    changed = ids.clone()
    changed[0, 8] += 1
    before, after = run(model, ids), run(model, changed)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


def test_the_window_ends() -> None:
    model = mistral.Mistral(mistral.replace(mistral.TINY, window=3, layers=1))
    layers.seeded(model)
    ids = torch.arange(10)[None]
    changed = ids.clone()
    changed[0, 2] += 1
    assert changed_rows(model, ids, changed) == [2, 3, 4]


def test_a_stride_reaches_far() -> None:
    config = sparse.Config(max_positions=32, width=64, layers=1, heads=4, stride=4)
    model = layers.seeded(sparse.SparseTransformer(config))
    ids = torch.arange(16)[None]
    changed = ids.clone()
    changed[0, 3] += 1
    assert changed_rows(model, ids, changed) == [3, 4, 5, 6, 7, 11, 15]


def test_global_tokens_see_and_are_seen() -> None:
    model = layers.seeded(longformer.Longformer(replace(longformer.TINY, layers=1, window=2, global_tokens=1)))
    ids = torch.arange(12)[None]
    for place, rows in ((6, [0, 4, 5, 6, 7, 8]), (0, list(range(12)))):
        changed = ids.clone()
        changed[0, place] += 100
        assert changed_rows(model, ids, changed) == rows


@pytest.mark.parametrize("length", [2, 33, 64, 131])
def test_blocks_of_bigbird(length: int) -> None:
    model = bigbird.tiny()
    visible = model.pattern(length, torch.device("cpu"))[0, 0]
    size, last = model.block, (length - 1) // model.block
    for query in range(0, length, 3):
        own = query // size
        blocks = {own - 1, own, own + 1, 0, last, *model.drawn[:, own].tolist()}
        seen = {key for key in range(length) if own in (0, last) or key // size in blocks}
        assert set(visible[query].nonzero().flatten().tolist()) == seen


@pytest.mark.parametrize("name", [*DECODERS, *ENCODERS])
def test_padding_is_not_seen(name: str) -> None:
    model = models.build(name)
    ids = torch.arange(1, 9)[None]
    mask = torch.ones(1, 8, dtype=torch.int64)
    mask[0, 6:] = 0
    changed = ids.clone()
    changed[0, 6:] = 200
    assert torch.equal(run(model, ids, mask)[:, :6], run(model, changed, mask)[:, :6])


def test_left_padding_stays_finite() -> None:
    mask = torch.ones(1, 8, dtype=torch.int64)
    mask[0, :3] = 0
    assert run(llama.tiny(), torch.arange(8)[None], mask).isfinite().all()


@pytest.mark.parametrize("name", [n for n in models.names() if n != "minilm" and not n.endswith("small")])
def test_weights_are_reproducible(name: str) -> None:
    first, second = models.build(name).state_dict(), models.build(name).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_bfloat16_runs() -> None:
    output = run(gpt2.tiny().to(torch.bfloat16), torch.arange(8)[None])
    assert output.dtype == torch.bfloat16 and output.isfinite().all()


def test_attend_is_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 8, generator=generator) for _ in range(3))
    visible = torch.rand(2, 1, 5, 5, generator=generator) < 0.7
    visible[..., 0] = True
    expected = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=0.3)
    torch.testing.assert_close(layers.attend(q, k, v, visible, 0.3), expected)


def test_a_mistral_needs_a_window() -> None:
    with pytest.raises(ValueError, match="window is None"):
        mistral.Mistral(llama.TINY)


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match="models:gpt5: no such model; there are bert, "):
        models.build("gpt5")
    assert models.names() == tuple(sorted(models.names()))
