"""Unmodified decoders of Hugging Face's library: tiny, every window and chunk 8 long."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from benchmarks.cases.decoders.record import Build, Decoder
from benchmarks.cases.transformers import GROUPED, TEXT, VOCABULARY

LIMIT = 256
"""Positions a model has."""
WINDOW = 8
EXPERTS: dict[str, Any] = {"num_experts_per_tok": 2, "num_local_experts": 4}
GPT: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LIMIT}
FALCON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": LIMIT,
    "new_decoder_architecture": False,
}
SCALED: dict[str, Any] = {**GROUPED, "query_pre_attn_scalar": 16, "final_logit_softcapping": 10.0}
"""Gemma: scores divided by the root of the head's features, as the others do it."""


def hugging_face(config: str, model: str, **settings: Any) -> Build:
    """A builder of a model class by its configuration class and settings."""

    def build(implementation: str) -> nn.Module:
        library = importlib.import_module("transformers")
        chosen = getattr(library, config)(**settings)
        chosen._attn_implementation = implementation
        built: nn.Module = getattr(library, model)(chosen)
        return built

    return build


def _causal(name: str, family: str, limit: int = LIMIT, config: str = "Config", **settings: Any) -> Decoder:
    return Decoder(name, hugging_face(f"{family}{config}", f"{family}ForCausalLM", **settings), limit)


LANGUAGE: tuple[Decoder, ...] = (
    _causal("llama", "Llama", **GROUPED),
    _causal("mistral", "Mistral", **GROUPED, sliding_window=WINDOW),
    _causal("mixtral", "Mixtral", **GROUPED, **EXPERTS),
    _causal("qwen2", "Qwen2", **GROUPED),
    _causal("qwen3", "Qwen3", **GROUPED),
    _causal("qwen3_moe", "Qwen3Moe", **GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
    _causal("gemma2", "Gemma2", **SCALED, attn_logit_softcapping=5.0, sliding_window=WINDOW),
    _causal(
        "gemma3",
        "Gemma3",
        config="TextConfig",
        **SCALED,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
    ),
    _causal("phi", "Phi", **TEXT),
    _causal("phi3", "Phi3", **GROUPED, pad_token_id=0, sliding_window=WINDOW),
    Decoder("gpt2", hugging_face("GPT2Config", "GPT2LMHeadModel", **GPT), LIMIT),
    _causal(
        "gpt_neo",
        "GPTNeo",
        LIMIT - 1,
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=WINDOW,
        max_position_embeddings=LIMIT,
    ),
    _causal("gptj", "GPTJ", **GPT, rotary_dim=8),
    _causal("gpt_neox", "GPTNeoX", **TEXT),
    _causal("bloom", "Bloom", vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4),
    _causal("mpt", "Mpt", LIMIT - 1, vocab_size=VOCABULARY, d_model=64, n_layers=2, n_heads=4, max_seq_len=LIMIT),
    _causal("falcon", "Falcon", **FALCON, multi_query=True, alibi=False),
    _causal("falcon_alibi", "Falcon", **FALCON, multi_query=False, alibi=True),
    _causal(
        "opt",
        "OPT",
        vocab_size=VOCABULARY,
        hidden_size=64,
        word_embed_proj_dim=64,
        ffn_dim=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=LIMIT,
    ),
    _causal("olmo2", "Olmo2", **GROUPED),
    _causal("cohere", "Cohere", **GROUPED, logit_scale=0.5),
    _causal("codegen", "CodeGen", **GPT, rotary_dim=8),
    _causal("starcoder2", "Starcoder2", **GROUPED, sliding_window=WINDOW),
    _causal("stablelm", "StableLm", **GROUPED),
    _causal("biogpt", "BioGpt", **TEXT),
    _causal(
        "xglm",
        "XGLM",
        vocab_size=VOCABULARY,
        d_model=64,
        ffn_dim=96,
        num_layers=2,
        attention_heads=4,
        max_position_embeddings=LIMIT,
    ),
    _causal(
        "granite",
        "Granite",
        **GROUPED,
        embedding_multiplier=3.0,
        attention_multiplier=0.2,
        residual_multiplier=0.5,
        logits_scaling=2.0,
    ),
    _causal("glm4", "Glm4", **GROUPED, pad_token_id=0),
    _causal(
        "llama4",
        "Llama4",
        config="TextConfig",
        **GROUPED,
        num_local_experts=4,
        intermediate_size_mlp=96,
        attention_chunk_size=WINDOW,
        no_rope_layers=[1, 0],  # the second layer sees everything, without rotation and scaled by position
        floor_scale=WINDOW,
    ),
    _causal("gpt_oss", "GptOss", **GROUPED, **EXPERTS, sliding_window=WINDOW),
    _causal(
        "deepseek_v3",
        "DeepseekV3",
        **TEXT,
        num_key_value_heads=4,
        kv_lora_rank=16,
        q_lora_rank=24,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=16,
        first_k_dense_replace=1,
        moe_intermediate_size=32,
        n_routed_experts=8,
        n_shared_experts=1,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
    ),
)
"""Decoders of tokens only."""
