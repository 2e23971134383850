"""The fused encoder operators are written out, and compute what the operators compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnc.compiler.frontends.torch.fastpath import encoder_layer, multi_head_attention
from attnc.compiler.host.identity import identity_backend

aten = torch.ops.aten
CAUSAL = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
PADDING = torch.zeros(2, 5, dtype=torch.bool)
PADDING[1, 3:] = True
DEAD = PADDING.clone()
DEAD[0] = True
PER_HEAD = torch.rand(2, 2, 5, 5, generator=torch.Generator().manual_seed(0)) > 0.5
PER_HEAD[..., 0] = False
MASKS = {
    "none": (None, None),
    "source": (CAUSAL, 0),
    "padding": (PADDING, 1),
    "dead rows": (DEAD, 1),
    "per head": (PER_HEAD, 2),
    "float": (CAUSAL.float().masked_fill(CAUSAL, float("-inf")), 0),
}


def weights(generator_seed=0):
    generator = torch.Generator().manual_seed(generator_seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator) / 4

    return draw(48, 16), draw(48), draw(16, 16), draw(16), draw(16), draw(16), draw(16), draw(16), draw


def assert_close(ours, theirs):
    """Equal where theirs is finite; ours is finite everywhere, also in the rows without a visible key."""
    assert ours.isfinite().all() and theirs[1].isfinite().all()
    torch.testing.assert_close(torch.where(theirs.isfinite(), ours, theirs), theirs, equal_nan=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("use_gelu", [False, True])
def test_encoder_layer(mask, norm_first, use_gelu):
    qkv_w, qkv_b, out_w, out_b, n1w, n1b, n2w, n2b, draw = weights()
    x = draw(2, 5, 16) * 4
    head = (x, 16, 2, qkv_w, qkv_b, out_w, out_b, use_gelu, norm_first, 1e-5, n1w, n1b, n2w, n2b)
    arguments = (*head, draw(32, 16), draw(32), draw(16, 32), draw(16), *MASKS[mask])
    assert_close(encoder_layer(*arguments), aten._transformer_encoder_layer_fwd.default(*arguments))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_multi_head_attention_with_weights(mask, average, cross):
    qkv_w, qkv_b, out_w, out_b, *_, draw = weights()
    x = draw(2, 5, 16) * 4
    key = draw(2, 5, 16) if cross else x
    value = key + 1 if cross else x
    arguments = (x, key, value, 16, 2, qkv_w, qkv_b, out_w, out_b, MASKS[mask][0], True, average, MASKS[mask][1])
    ours, theirs = multi_head_attention(*arguments), aten._native_multi_head_attention.default(*arguments)
    assert_close(ours[0], theirs[0])
    assert_close(ours[1], theirs[1])


def test_calls_it_does_not_describe_are_left():
    qkv_w, qkv_b, out_w, out_b, *_, draw = weights()
    x = draw(2, 5, 16)
    head = (x, x, x, 16, 2, qkv_w, qkv_b, out_w, out_b)
    assert multi_head_attention(*head, need_weights=False) is NotImplemented
    assert multi_head_attention(*head, CAUSAL, True, True, None) is NotImplemented


class Wrapped(nn.Module):
    def __init__(self, norm_first):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=norm_first, activation="gelu")

    def forward(self, x):
        return self.layer(x, src_mask=CAUSAL, src_key_padding_mask=PADDING)


@pytest.mark.parametrize("norm_first", [False, True])
def test_compiled_layer_shows_its_attention(norm_first):
    model, graphs = Wrapped(norm_first).eval(), []
    call = torch.compile(model, backend=identity_backend("aten", visit=lambda *each: graphs.append(each[1])))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(call(x), model(x))
    names = [op.name for op in graphs[0].ops]
    assert "aten._transformer_encoder_layer_fwd.default" not in names
    (sdpa,) = [op for op in graphs[0].ops if op.name == "aten.scaled_dot_product_attention.default"]
    assert sdpa.loc.file == __file__ and "self.layer(x" in sdpa.loc.code and sdpa.loc.module == "layer"


def test_operators_traced_directly_are_written_out():
    qkv_w, qkv_b, out_w, out_b, *_, draw = weights()
    graphs = []

    def function(x):
        return aten._native_multi_head_attention(x, x, x, 16, 2, qkv_w, qkv_b, out_w, out_b)

    x = draw(2, 5, 16)
    with torch.no_grad():
        ours = torch.compile(function, backend=identity_backend("aten", visit=lambda *e: graphs.append(e[1])))(x)
        theirs = function(x)
    torch.testing.assert_close(ours[0], theirs[0])
    torch.testing.assert_close(ours[1], theirs[1])
    assert "aten._safe_softmax.default" in [op.name for op in graphs[0].ops]
