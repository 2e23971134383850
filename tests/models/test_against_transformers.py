"""Each decoder family equals transformers' model of the same weights, padding and window included."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from attnc.models import gpt2, llama, mistral


def mapped(model: nn.Module, rules: list[tuple[str, str]], stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our state dict read from theirs, names rewritten by the first rule that matches whole."""
    state = {}
    for name in model.state_dict():
        target = next(re.sub(pattern, to, name) for pattern, to in rules if re.fullmatch(pattern, name))
        state[name] = stored[target]
    return state


LLAMA_RULES = [
    (r"tokens\.weight", "model.embed_tokens.weight"),
    (r"norm\.weight", "model.norm.weight"),
    (r"head\.weight", "lm_head.weight"),
    (r"blocks\.(\d+)\.attention\.([qkv])\.weight", r"model.layers.\1.self_attn.\2_proj.weight"),
    (r"blocks\.(\d+)\.attention\.out\.weight", r"model.layers.\1.self_attn.o_proj.weight"),
    (r"blocks\.(\d+)\.attention_norm\.weight", r"model.layers.\1.input_layernorm.weight"),
    (r"blocks\.(\d+)\.mlp_norm\.weight", r"model.layers.\1.post_attention_layernorm.weight"),
    (r"blocks\.(\d+)\.(gate|up|down)\.weight", r"model.layers.\1.mlp.\2_proj.weight"),
]
GPT2_RULES = [
    (r"tokens\.weight", "transformer.wte.weight"),
    (r"positions\.weight", "transformer.wpe.weight"),
    (r"norm\.(weight|bias)", r"transformer.ln_f.\1"),
    (r"blocks\.(\d+)\.attention\.qkv\.(weight|bias)", r"transformer.h.\1.attn.c_attn.\2"),
    (r"blocks\.(\d+)\.attention\.out\.(weight|bias)", r"transformer.h.\1.attn.c_proj.\2"),
    (r"blocks\.(\d+)\.attention_norm\.(weight|bias)", r"transformer.h.\1.ln_1.\2"),
    (r"blocks\.(\d+)\.mlp_norm\.(weight|bias)", r"transformer.h.\1.ln_2.\2"),
    (r"blocks\.(\d+)\.up\.(weight|bias)", r"transformer.h.\1.mlp.c_fc.\2"),
    (r"blocks\.(\d+)\.down\.(weight|bias)", r"transformer.h.\1.mlp.c_proj.\2"),
]


def llama_pair() -> tuple[nn.Module, nn.Module]:
    from transformers import LlamaConfig, LlamaForCausalLM

    ours = llama.tiny()
    theirs = LlamaForCausalLM(LlamaConfig(**llama_sizes(ours.config), attn_implementation="eager"))
    return ours, take(ours, theirs, LLAMA_RULES)


def mistral_pair() -> tuple[nn.Module, nn.Module]:
    from transformers import MistralConfig, MistralForCausalLM

    ours = mistral.tiny()
    sizes = llama_sizes(ours.config) | {"sliding_window": ours.config.window}
    theirs = MistralForCausalLM(MistralConfig(**sizes, attn_implementation="eager"))
    return ours, take(ours, theirs, LLAMA_RULES)


def gpt2_pair() -> tuple[nn.Module, nn.Module]:
    from transformers import GPT2Config, GPT2LMHeadModel

    ours = gpt2.tiny()
    c = ours.config
    config = GPT2Config(
        vocab_size=c.vocab_size, n_positions=c.max_positions, n_embd=c.width, n_layer=c.layers, n_head=c.heads
    )
    config._attn_implementation = "eager"
    theirs = GPT2LMHeadModel(config)
    return ours, take(ours, theirs, GPT2_RULES)


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


def take(ours: nn.Module, theirs: nn.Module, rules: list[tuple[str, str]]) -> nn.Module:
    """Give ``ours`` the random weights of ``theirs``; returns ``theirs`` in eval mode."""
    stored = theirs.state_dict()
    # transformers' GPT-2 keeps its matrices as [in, out].
    turned = {k: v.T if re.search(r"\.h\.\d+\.(attn|mlp)\.c_\w+\.weight", k) else v for k, v in stored.items()}
    with torch.no_grad():
        for value in stored.values():
            if value.dim() >= 2:
                value.normal_(0.0, 0.25)
    ours.load_state_dict(mapped(ours, rules, turned))
    return theirs.eval()


@pytest.mark.parametrize("pair", [gpt2_pair, llama_pair, mistral_pair], ids=["gpt2", "llama", "mistral"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_equals_transformers(pair: Callable[[], tuple[nn.Module, nn.Module]], padded: bool) -> None:
    torch.manual_seed(0)
    ours, theirs = pair()
    ids = torch.randint(0, 256, (2, 21))
    mask = torch.ones(2, 21, dtype=torch.int64)
    if padded:
        mask[1, 15:] = 0
    with torch.no_grad():
        found = ours(ids, mask)
        expected = theirs(input_ids=ids, attention_mask=mask, use_cache=False).logits
    real = mask.bool()
    # Logits of these weights reach about 50; float32 keeps 7 digits.
    assert (found - expected)[real].abs().max() < 1e-5 * expected.abs().max()
