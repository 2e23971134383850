"""Tiny random-weight models of Hugging Face transformers: (model, keyword inputs) by model type."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

transformers.logging.set_verbosity_error()

TEXT = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
DECODER = {**TEXT, "num_hidden_layers": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "head_dim": 8}
MOE = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
AUDIO = {"conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2], "num_feat_extract_layers": 2}

CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", DECODER),
    "mistral": ("MistralForCausalLM", {**DECODER, "sliding_window": 6}),
    "gemma3_text": ("Gemma3ForCausalLM", {**DECODER, "sliding_window": 6}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 64}),
    "bert": ("BertModel", dict(**TEXT, max_position_embeddings=64)),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4},
    ),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        {**TEXT, **MOE, "num_key_value_heads": 2, "shared_expert_intermediate_size": 16},
    ),
    "phi": ("PhiForCausalLM", dict(**TEXT, num_key_value_heads=4, max_position_embeddings=64)),
    "vit": ("ViTModel", {**TEXT, "image_size": 16, "patch_size": 4}),
    "swin": (
        "SwinModel",
        {"image_size": 16, "patch_size": 2, "embed_dim": 8, "depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        {
            "vocab_size": 64,
            "d_model": 32,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 4,
            "decoder_attention_heads": 4,
            "encoder_ffn_dim": 48,
            "decoder_ffn_dim": 48,
            "num_mel_bins": 8,
            "max_source_positions": 16,
            "max_target_positions": 32,
        },
    ),
    "deberta-v2": (
        "DebertaV2Model",
        dict(
            **TEXT,
            relative_attention=True,
            pos_att_type=["c2p", "p2c"],
            position_buckets=8,
            share_att_key=True,
            norm_rel_ebd="layer_norm",
            position_biased_input=False,
        ),
    ),
    "mixtral": ("MixtralForCausalLM", {**DECODER, **MOE}),
    "bloom": ("BloomForCausalLM", {"vocab_size": 64, "hidden_size": 32, "n_layer": 2, "n_head": 4}),
    "clip": (
        "CLIPModel",
        {
            "text_config": {**TEXT, "projection_dim": 16, "max_position_embeddings": 32, "eos_token_id": 2},
            "vision_config": {**TEXT, "image_size": 16, "patch_size": 4, "projection_dim": 16},
            "projection_dim": 16,
        },
    ),
    "longformer": ("LongformerModel", dict(**TEXT, attention_window=[8], max_position_embeddings=64)),
    "wav2vec2": (
        "Wav2Vec2Model",
        {**TEXT, **AUDIO, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4, "mask_time_prob": 0.0},
    ),
    "mpt": (
        "MptForCausalLM",
        {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 4, "expansion_ratio": 2, "max_seq_len": 64},
    ),
    "big_bird": (
        "BigBirdModel",
        dict(**TEXT, attention_type="block_sparse", block_size=4, num_random_blocks=1, max_position_embeddings=64),
    ),
    "xlnet": ("XLNetModel", {"vocab_size": 64, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "d_head": 8}),
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
IMAGES = ("vit", "swin", "clip")


def build(model_type: str, attention: str = "eager") -> tuple[torch.nn.Module, dict[str, Any]]:
    """The model in eval mode, and inputs for two sequences (padded where the model takes a mask)."""
    class_name, settings = CONFIGS[model_type]
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**settings)
    for target in (config, getattr(config, "text_config", None)):
        for key, value in TOKENS.items() if target is not None else ():
            setattr(target, key, value)
    torch.manual_seed(0)
    model = model_class._from_config(config, attn_implementation=attention).eval()
    return model, inputs(model_type, config)


def inputs(model_type: str, config: Any) -> dict[str, Any]:
    """Keyword inputs of batch 2."""
    generator = torch.Generator().manual_seed(0)

    def ids(length: int) -> torch.Tensor:
        return torch.randint(3, 64, (2, length), generator=generator)

    if model_type == "whisper":
        return {
            "input_features": torch.randn(2, 8, 32, generator=generator),
            "decoder_input_ids": ids(7),
            "use_cache": False,
        }
    if model_type == "wav2vec2":
        return {"input_values": torch.randn(2, 400, generator=generator)}
    images = {"pixel_values": torch.randn(2, 3, 16, 16, generator=generator)} if model_type in IMAGES else {}
    if images and model_type != "clip":
        return images
    length = 48 if model_type == "big_bird" else 16
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, -3:] = 0
    text = {"input_ids": ids(length), "attention_mask": mask, **images}
    if model_type == "t5":
        text["decoder_input_ids"] = ids(7)
    if hasattr(config, "use_cache"):
        config.use_cache = False
    return text
