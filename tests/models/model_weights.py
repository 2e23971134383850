"""Our parameters' names in transformers' models, by family, and a way to share random weights."""

from __future__ import annotations

import re

import torch
from torch import Tensor, nn

Rules = list[tuple[str, str]]
"""Pattern for one of our names, and theirs; the first that matches whole counts."""

LLAMA: Rules = [
    (r"tokens\.weight", "model.embed_tokens.weight"),
    (r"norm\.weight", "model.norm.weight"),
    (r"head\.weight", "lm_head.weight"),
    (r"blocks\.(\d+)\.attention\.([qkv])\.weight", r"model.layers.\1.self_attn.\2_proj.weight"),
    (r"blocks\.(\d+)\.attention\.out\.weight", r"model.layers.\1.self_attn.o_proj.weight"),
    (r"blocks\.(\d+)\.attention_norm\.weight", r"model.layers.\1.input_layernorm.weight"),
    (r"blocks\.(\d+)\.mlp_norm\.weight", r"model.layers.\1.post_attention_layernorm.weight"),
    (r"blocks\.(\d+)\.(gate|up|down)\.weight", r"model.layers.\1.mlp.\2_proj.weight"),
]
GPT2: Rules = [
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
_BLOOM_AND_FALCON: Rules = [
    (r"tokens\.weight", "transformer.word_embeddings.weight"),
    (r"norm\.(weight|bias)", r"transformer.ln_f.\1"),
    (r"blocks\.(\d+)\.attention\.qkv\.(weight|bias)", r"transformer.h.\1.self_attention.query_key_value.\2"),
    (r"blocks\.(\d+)\.attention\.out\.(weight|bias)", r"transformer.h.\1.self_attention.dense.\2"),
    (r"blocks\.(\d+)\.mlp\.up\.(weight|bias)", r"transformer.h.\1.mlp.dense_h_to_4h.\2"),
    (r"blocks\.(\d+)\.mlp\.down\.(weight|bias)", r"transformer.h.\1.mlp.dense_4h_to_h.\2"),
]
BLOOM: Rules = [
    *_BLOOM_AND_FALCON,
    (r"tokens_norm\.(weight|bias)", r"transformer.word_embeddings_layernorm.\1"),
    (r"blocks\.(\d+)\.attention_norm\.(weight|bias)", r"transformer.h.\1.input_layernorm.\2"),
    (r"blocks\.(\d+)\.mlp_norm\.(weight|bias)", r"transformer.h.\1.post_attention_layernorm.\2"),
]
FALCON: Rules = [
    *_BLOOM_AND_FALCON,
    (r"blocks\.(\d+)\.norm\.(weight|bias)", r"transformer.h.\1.input_layernorm.\2"),
]
T5: Rules = [
    (r"tokens\.weight", "shared.weight"),
    (r"head\.weight", "lm_head.weight"),
    (r"(\w+)_bias\.table\.weight", r"\1.block.0.layer.0.SelfAttention.relative_attention_bias.weight"),
    (r"(\w+)_norm\.weight", r"\1.final_layer_norm.weight"),
    (r"(\w+)\.(\d+)\.attention\.([qkv])\.weight", r"\1.block.\2.layer.0.SelfAttention.\3.weight"),
    (r"(\w+)\.(\d+)\.attention\.out\.weight", r"\1.block.\2.layer.0.SelfAttention.o.weight"),
    (r"(\w+)\.(\d+)\.attention_norm\.weight", r"\1.block.\2.layer.0.layer_norm.weight"),
    (r"(\w+)\.(\d+)\.cross\.([qkv])\.weight", r"\1.block.\2.layer.1.EncDecAttention.\3.weight"),
    (r"(\w+)\.(\d+)\.cross\.out\.weight", r"\1.block.\2.layer.1.EncDecAttention.o.weight"),
    (r"(\w+)\.(\d+)\.cross_norm\.weight", r"\1.block.\2.layer.1.layer_norm.weight"),
    (r"encoder\.(\d+)\.mlp\.gate\.weight", r"encoder.block.\1.layer.1.DenseReluDense.wi_0.weight"),
    (r"encoder\.(\d+)\.mlp\.up\.weight", r"encoder.block.\1.layer.1.DenseReluDense.wi_1.weight"),
    (r"encoder\.(\d+)\.mlp\.down\.weight", r"encoder.block.\1.layer.1.DenseReluDense.wo.weight"),
    (r"encoder\.(\d+)\.mlp_norm\.weight", r"encoder.block.\1.layer.1.layer_norm.weight"),
    (r"decoder\.(\d+)\.mlp\.gate\.weight", r"decoder.block.\1.layer.2.DenseReluDense.wi_0.weight"),
    (r"decoder\.(\d+)\.mlp\.up\.weight", r"decoder.block.\1.layer.2.DenseReluDense.wi_1.weight"),
    (r"decoder\.(\d+)\.mlp\.down\.weight", r"decoder.block.\1.layer.2.DenseReluDense.wo.weight"),
    (r"decoder\.(\d+)\.mlp_norm\.weight", r"decoder.block.\1.layer.2.layer_norm.weight"),
]
VIT: Rules = [
    (r"embed\.(weight|bias)", r"embeddings.patch_embeddings.projection.\1"),
    (r"class_token", "embeddings.cls_token"),
    (r"positions", "embeddings.position_embeddings"),
    (r"norm\.(weight|bias)", r"layernorm.\1"),
    (r"blocks\.(\d+)\.attention\.([qkv])\.(weight|bias)", r"layers.\1.attention.\2_proj.\3"),
    (r"blocks\.(\d+)\.attention\.out\.(weight|bias)", r"layers.\1.attention.o_proj.\2"),
    (r"blocks\.(\d+)\.attention_norm\.(weight|bias)", r"layers.\1.layernorm_before.\2"),
    (r"blocks\.(\d+)\.mlp_norm\.(weight|bias)", r"layers.\1.layernorm_after.\2"),
    (r"blocks\.(\d+)\.mlp\.up\.(weight|bias)", r"layers.\1.mlp.fc1.\2"),
    (r"blocks\.(\d+)\.mlp\.down\.(weight|bias)", r"layers.\1.mlp.fc2.\2"),
]
WHISPER: Rules = [
    (r"encoder\.first\.(weight|bias)", r"model.encoder.conv1.\1"),
    (r"encoder\.second\.(weight|bias)", r"model.encoder.conv2.\1"),
    (r"tokens\.weight", "model.decoder.embed_tokens.weight"),
    (r"positions\.weight", "model.decoder.embed_positions.weight"),
    (r"encoder\.norm\.(weight|bias)", r"model.encoder.layer_norm.\1"),
    (r"norm\.(weight|bias)", r"model.decoder.layer_norm.\1"),
    (r"(encoder|decoder)(?:\.blocks)?\.(\d+)\.attention\.([qkv])\.(.*)", r"model.\1.layers.\2.self_attn.\3_proj.\4"),
    (r"(encoder|decoder)(?:\.blocks)?\.(\d+)\.attention\.out\.(.*)", r"model.\1.layers.\2.self_attn.out_proj.\3"),
    (r"(encoder|decoder)(?:\.blocks)?\.(\d+)\.attention_norm\.(.*)", r"model.\1.layers.\2.self_attn_layer_norm.\3"),
    (r"decoder\.(\d+)\.cross\.([qkv])\.(.*)", r"model.decoder.layers.\1.encoder_attn.\2_proj.\3"),
    (r"decoder\.(\d+)\.cross\.out\.(.*)", r"model.decoder.layers.\1.encoder_attn.out_proj.\2"),
    (r"decoder\.(\d+)\.cross_norm\.(.*)", r"model.decoder.layers.\1.encoder_attn_layer_norm.\2"),
    (r"(encoder|decoder)(?:\.blocks)?\.(\d+)\.mlp\.up\.(.*)", r"model.\1.layers.\2.fc1.\3"),
    (r"(encoder|decoder)(?:\.blocks)?\.(\d+)\.mlp\.down\.(.*)", r"model.\1.layers.\2.fc2.\3"),
    (r"(encoder|decoder)(?:\.blocks)?\.(\d+)\.mlp_norm\.(.*)", r"model.\1.layers.\2.final_layer_norm.\3"),
]


def take(ours: nn.Module, theirs: nn.Module, rules: Rules, deviation: float = 0.25) -> nn.Module:
    """Draw the weights of ``theirs`` and give them to ``ours``; returns ``theirs`` in eval mode.

    A bias that theirs lacks is 0. Biases and scales of norms are drawn too.
    """
    stored = theirs.state_dict()
    with torch.no_grad():
        for name, value in stored.items():
            value.normal_(0.0, deviation)
            if value.dim() == 1 and name.endswith("weight"):
                value += 1.0
        for name, value in ours.state_dict().items():
            value.copy_(_theirs(name, rules, stored, value))
    return theirs.eval()


def _theirs(name: str, rules: Rules, stored: dict[str, Tensor], ours: Tensor) -> Tensor:
    """Their value of one of our names, in our shape."""
    target = next(re.sub(pattern, to, name) for pattern, to in rules if re.fullmatch(pattern, name))
    if target not in stored and name.endswith("bias"):
        return torch.zeros_like(ours)
    value = stored[target]
    # transformers' GPT-2 keeps its matrices as [in, out]
    return value.T if re.search(r"\.(attn|mlp)\.c_\w+\.weight", target) else value.reshape(ours.shape)
