"""Each family equals transformers' model of the same weights, padding and windows included."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import model_weights as weights
import pytest
import torch
from torch import Tensor, nn

from attnc.models import bloom, falcon, gpt2, layers, llama, mistral, t5, vit, whisper

Pair = tuple[nn.Module, nn.Module]


def llama_pair() -> Pair:
    from transformers import LlamaConfig, LlamaForCausalLM

    ours = llama.tiny()
    theirs = LlamaForCausalLM(LlamaConfig(**llama_sizes(ours.config), attn_implementation="eager"))
    return ours, weights.take(ours, theirs, weights.LLAMA)


def mistral_pair() -> Pair:
    from transformers import MistralConfig, MistralForCausalLM

    ours = mistral.tiny()
    sizes = llama_sizes(ours.config) | {"sliding_window": ours.config.window}
    theirs = MistralForCausalLM(MistralConfig(**sizes, attn_implementation="eager"))
    return ours, weights.take(ours, theirs, weights.LLAMA)


def llama_sizes(config: llama.Config) -> dict[str, object]:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.theta},
        "tie_word_embeddings": False,
    }


def gpt2_pair() -> Pair:
    from transformers import GPT2Config, GPT2LMHeadModel

    ours = gpt2.tiny()
    c = ours.config
    config = GPT2Config(
        vocab_size=c.vocab_size, n_positions=c.max_positions, n_embd=c.width, n_layer=c.layers, n_head=c.heads
    )
    config._attn_implementation = "eager"
    return ours, weights.take(ours, GPT2LMHeadModel(config), weights.GPT2)


def bloom_pair(heads: int) -> Pair:
    from transformers import BloomConfig, BloomForCausalLM

    ours = bloom.Bloom(replace(bloom.TINY, width=16 * heads, heads=heads)).eval()
    c = ours.config
    config = BloomConfig(vocab_size=c.vocab_size, hidden_size=c.width, n_layer=c.layers, n_head=heads)
    config._attn_implementation = "eager"
    return ours, weights.take(ours, BloomForCausalLM(config), weights.BLOOM)


def falcon_pair() -> Pair:
    from transformers import FalconConfig, FalconForCausalLM

    ours = falcon.tiny()
    c = ours.config
    config = FalconConfig(
        vocab_size=c.vocab_size, hidden_size=c.width, num_hidden_layers=c.layers, num_attention_heads=c.heads
    )
    assert config.multi_query and config.parallel_attn and not (config.alibi or config.new_decoder_architecture)
    config._attn_implementation = "eager"
    return ours, weights.take(ours, FalconForCausalLM(config), weights.FALCON)


DECODERS = {
    "gpt2": gpt2_pair,
    "llama": llama_pair,
    "mistral": mistral_pair,
    "bloom": lambda: bloom_pair(4),
    "bloom of six heads": lambda: bloom_pair(6),
    "bloom of eleven heads": lambda: bloom_pair(11),
    "falcon": falcon_pair,
}


@pytest.mark.parametrize("pair", DECODERS.values(), ids=DECODERS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_a_decoder_equals_transformers(pair: Callable[[], Pair], padded: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = pair()
    ids, mask = torch.randint(0, 256, (2, 21)), padding(2, 21, padded)
    with torch.no_grad():
        found = ours(ids, mask)
        expected = theirs(input_ids=ids, attention_mask=mask, use_cache=False).logits
    assert close(found[mask.bool()], expected[mask.bool()])


def test_slopes_of_other_head_counts() -> None:
    assert bloom.slopes(8) == [2.0**-i for i in range(1, 9)]
    assert bloom.slopes(3) == [2.0**-4, 2.0**-8, 2.0**-2]


@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_t5_equals_transformers(padded: bool) -> None:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    ours = t5.tiny()
    c = ours.config
    config = T5Config(
        vocab_size=c.vocab_size,
        d_model=c.width,
        d_kv=c.head_dim,
        d_ff=c.hidden,
        num_layers=c.layers,
        num_heads=c.heads,
        relative_attention_num_buckets=c.buckets,
        relative_attention_max_distance=c.max_distance,
        layer_norm_epsilon=c.eps,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )
    config._attn_implementation = "eager"
    theirs = weights.take(ours, T5ForConditionalGeneration(config), weights.T5, deviation=0.125)
    inputs = {"input_ids": torch.randint(0, 256, (2, 37)), "attention_mask": padding(2, 37, padded)}
    inputs["decoder_input_ids"] = torch.randint(0, 256, (2, 21))
    with torch.no_grad():
        assert close(ours(**inputs), theirs(**inputs, use_cache=False).logits)


@pytest.mark.parametrize("causal", [False, True])
def test_buckets_are_those_of_t5(causal: bool) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    bias = t5.RelativeBias(t5.Config(), causal)
    distances = torch.arange(-300, 300)
    expected = T5Attention._relative_position_bucket(distances, bidirectional=not causal)
    assert torch.equal(bias.bucket(distances), expected)


def test_vit_equals_transformers() -> None:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    ours = vit.tiny()
    c = ours.config
    config = ViTConfig(
        hidden_size=c.width,
        num_hidden_layers=c.layers,
        num_attention_heads=c.heads,
        intermediate_size=c.hidden,
        image_size=c.image,
        patch_size=c.patch,
    )
    config._attn_implementation = "eager"
    theirs = weights.take(ours, ViTModel(config, add_pooling_layer=False), weights.VIT)
    pixels = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert close(ours(pixels), theirs(pixels).last_hidden_state)


def test_whisper_equals_transformers() -> None:
    """But for the sinusoids, whose slowest frequency is a little lower in whisper itself."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    ours = whisper.tiny()
    c = ours.config
    config = WhisperConfig(
        vocab_size=c.vocab_size,
        d_model=c.width,
        num_mel_bins=c.mels,
        encoder_layers=c.layers,
        decoder_layers=c.layers,
        encoder_attention_heads=c.heads,
        decoder_attention_heads=c.heads,
        encoder_ffn_dim=c.hidden,
        decoder_ffn_dim=c.hidden,
        max_source_positions=15,
        max_target_positions=c.max_positions,
        pad_token_id=0,
    )
    config._attn_implementation = "eager"
    theirs = weights.take(ours, WhisperForConditionalGeneration(config), weights.WHISPER, deviation=0.125)
    sinusoids = layers.sinusoids(15, c.width, torch.float32, torch.device("cpu"))
    theirs.get_encoder().embed_positions.weight.data.copy_(sinusoids)
    inputs = {"input_features": torch.randn(2, c.mels, 30), "decoder_input_ids": torch.randint(0, 256, (2, 9))}
    with torch.no_grad():
        assert close(ours(**inputs), theirs(**inputs, use_cache=False).logits)


def padding(batch: int, length: int, padded: bool) -> Tensor:
    mask = torch.ones(batch, length, dtype=torch.int64)
    if padded:
        mask[-1, length * 2 // 3 :] = 0
    return mask


def close(found: Tensor, expected: Tensor) -> bool:
    """Logits of these weights reach about 50; float32 keeps 7 digits."""
    return bool((found - expected).abs().max() < 1e-5 * expected.abs().max())
