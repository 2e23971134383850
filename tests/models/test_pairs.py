"""Models of two inputs: text and text, sound and text, image and text; and ViT."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnc import models
from attnc.models import captioner, transformer, vit, whisper

TEXT = {
    "captioner": "input_ids",
    "t5": "decoder_input_ids",
    "transformer": "decoder_input_ids",
    "whisper": "decoder_input_ids",
}
"""What the decoder reads."""
ENCODERS = ["t5", "transformer"]


def run(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    with torch.no_grad():
        output: Tensor = model(**inputs)
    return output


@pytest.mark.parametrize("name", TEXT)
def test_example_inputs_run(name: str) -> None:
    model = models.build(name)
    output = run(model, model.example_inputs(batch=3, length=9))
    assert output.shape == (3, 9, 256) and output.isfinite().all()


@pytest.mark.parametrize("name", TEXT)
def test_a_later_token_changes_nothing_earlier(name: str) -> None:
    model = models.build(name)
    inputs = model.example_inputs(batch=2, length=12)
    changed = inputs[TEXT[name]].clone()
    changed[:, 8] = (changed[:, 8] + 1) % 256
    before, after = run(model, inputs), run(model, inputs | {TEXT[name]: changed})
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])


@pytest.mark.parametrize("name", TEXT)
def test_the_first_token_sees_all_of_the_other_input(name: str) -> None:
    model = models.build(name)
    inputs = model.example_inputs(batch=2, length=12)
    (other,) = set(inputs) - {TEXT[name], "attention_mask"}
    for place in (0, 7):
        changed = inputs[other].clone()
        changed[..., place] = 3
        assert not torch.equal(run(model, inputs)[:, 0], run(model, inputs | {other: changed})[:, 0])


@pytest.mark.parametrize("name", ENCODERS)
def test_padding_of_the_encoder_is_not_seen(name: str) -> None:
    model = models.build(name)
    inputs = model.example_inputs(batch=3, length=9)
    changed = torch.where(inputs["attention_mask"] == 0, 200, inputs["input_ids"])
    assert not torch.equal(changed, inputs["input_ids"])
    assert torch.equal(run(model, inputs), run(model, inputs | {"input_ids": changed}))


@pytest.mark.parametrize("name", ENCODERS)
def test_the_two_lengths_are_independent(name: str) -> None:
    model = models.build(name)
    inputs = model.example_inputs(batch=2, length=12)
    inputs["decoder_input_ids"] = inputs["decoder_input_ids"][:, :5]
    assert run(model, inputs).shape == (2, 5, 256)


@pytest.mark.parametrize("frames", [30, 31])
def test_sound_of_any_length(frames: int) -> None:
    encoder = whisper.tiny().encoder
    with torch.no_grad():
        assert encoder(torch.randn(2, 8, frames)).shape == (2, (frames + 1) // 2, 64)


def test_the_gate_shuts_the_image_out() -> None:
    model = captioner.tiny()
    for block in model.blocks:
        block.gate.data.zero_()
    inputs = model.example_inputs()
    assert torch.equal(run(model, inputs), run(model, inputs | {"pixel_values": inputs["pixel_values"] + 1}))


def test_patches_are_read_row_by_row() -> None:
    """The pixels of one patch change one row of what enters the blocks."""
    model = vit.ViT(vit.Config(image=32, patch=8, width=64, layers=0, heads=4, hidden=128)).eval()
    pixels = torch.zeros(1, 3, 32, 32)
    changed = pixels.clone()
    changed[0, :, 8:16, 24:] = 1.0  # the second row, the fourth column
    with torch.no_grad():
        different = (model(pixels) != model(changed)).any(dim=-1)[0]
    assert different.nonzero().flatten().tolist() == [1 + 1 * 4 + 3]


def test_blocks_equal_those_of_torch() -> None:
    torch.manual_seed(0)
    model = transformer.tiny()
    c = model.config
    options = {"dropout": 0.0, "activation": functional.relu, "layer_norm_eps": c.eps, "batch_first": True}
    encoder = nn.TransformerEncoderLayer(c.width, c.heads, c.hidden, **options)  # type: ignore[arg-type]
    decoder = nn.TransformerDecoderLayer(c.width, c.heads, c.hidden, **options)  # type: ignore[arg-type]
    copy_block(model.encoder[0], encoder, ("attention",))
    copy_block(model.decoder[0], decoder, ("attention", "cross"))
    x, memory = torch.randn(2, 7, c.width), torch.randn(2, 9, c.width)
    seen = torch.ones(7, 7).tril().bool()
    with torch.no_grad():
        torch.testing.assert_close(model.encoder[0](x, None), encoder(x), atol=1e-5, rtol=1e-5)
        expected = decoder(x, memory, tgt_mask=~seen)
        torch.testing.assert_close(model.decoder[0](x, seen, memory, None), expected, atol=1e-5, rtol=1e-5)


def copy_block(ours: nn.Module, theirs: nn.Module, attentions: tuple[str, ...]) -> None:
    state = ours.state_dict()
    found = {}
    for name, attention in zip(("self_attn", "multihead_attn"), attentions, strict=False):
        for leaf in ("weight", "bias"):
            packed = torch.cat([state[f"{attention}.{part}.{leaf}"] for part in "qkv"])
            found |= {f"{name}.in_proj_{leaf}": packed, f"{name}.out_proj.{leaf}": state[f"{attention}.out.{leaf}"]}
    norms = [*(f"{attention}_norm" for attention in attentions), "mlp_norm"]
    parts = {f"norm{i}": name for i, name in enumerate(norms, 1)} | {"linear1": "mlp.up", "linear2": "mlp.down"}
    for name, part in parts.items():
        found |= {f"{name}.{leaf}": state[f"{part}.{leaf}"] for leaf in ("weight", "bias")}
    theirs.load_state_dict(found)
