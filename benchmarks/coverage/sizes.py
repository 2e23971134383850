"""The table of small values: what each configuration field becomes in a tiny model."""

from __future__ import annotations

from typing import Any

BATCH, LENGTH = 2, 16
TARGET_LENGTH = 12
VOCABULARY = 128

_BY_VALUE: tuple[tuple[float, str], ...] = (
    # widths of the residual stream and of the hidden layers
    (
        64,
        "hidden_size d_model n_embd n_embed d_embed dim embed_dim emb_dim embedding_size word_embed_proj_dim model_dim "
        "encoder_hidden_size decoder_hidden_size cross_attention_hidden_size decoder_embed_dim out_hidden_size "
        "vision_hidden_size lstm_dim lru_width",
    ),
    (
        128,
        "hidden_dim intermediate_size intermediate_dim encoder_intermediate_size decoder_intermediate_size d_ff ff_dim "
        "dim_ff dff ffn_dim encoder_ffn_dim decoder_ffn_dim ffn_hidden_size feed_forward_size n_inner d_inner",
    ),
    (32, "projection_dim"),
    (2, "expansion_ratio mamba_expand"),
    # depth
    (
        2,
        "num_hidden_layers n_layer n_layers num_layers layers depth n_blocks num_blocks num_block encoder_layers "
        "decoder_layers num_encoder_layers num_decoder_layers encoder_num_layers decoder_num_layers encoder_n_layers "
        "encoder_num_hidden_layers decoder_num_hidden_layers",
    ),
    (1, "num_hidden_groups first_k_dense_replace"),
    # heads
    (
        4,
        "num_attention_heads attention_heads n_head n_heads num_heads heads encoder_attention_heads "
        "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads encoder_num_attention_heads "
        "decoder_num_attention_heads index_n_heads mamba_num_heads linear_num_value_heads linear_num_key_heads",
    ),
    (
        2,
        "num_key_value_heads num_kv_heads n_head_kv encoder_num_key_value_heads decoder_num_key_value_heads "
        "num_global_key_value_heads",
    ),
    (
        16,
        "head_dim global_head_dim head_size attention_head_size d_head dim_head d_kv kv_channels index_head_dim "
        "mamba_head_dim mamba_d_head linear_key_head_dim linear_value_head_dim",
    ),
    # latent attention
    (32, "q_lora_rank"),
    (16, "kv_lora_rank qk_nope_head_dim v_head_dim"),
    (8, "qk_rope_head_dim index_topk"),
    (24, "qk_head_dim"),
    # positions and windows
    (
        128,
        "max_position_embeddings max_2d_position_embeddings max_encoder_position_embeddings "
        "max_decoder_position_embeddings max_source_positions max_target_positions max_sequence_length max_seq_len "
        "n_positions n_ctx seq_length max_length",
    ),
    (8, "sliding_window local_attention attention_chunk_size window_attn"),
    # experts
    (4, "num_experts num_local_experts n_routed_experts moe_num_experts"),
    (2, "num_experts_per_tok num_experts_per_token top_k moe_topk moe_k"),
    (
        32,
        "moe_intermediate_size shared_expert_intermediate_size shared_intermediate_size expert_ffn_hidden_size "
        "ffn_dim_moe",
    ),
    (1, "n_group topk_group moe_num_shared_experts n_shared_experts num_shared_experts"),
    # states of recurrent layers
    (8, "mamba_d_state mamba_n_heads state_size ssm_state_size time_step_rank"),
    (1, "mamba_n_groups n_groups"),
    # images, video, sound
    (32, "image_size"),
    (8, "patch_size"),
    (3, "num_channels"),
    (2, "num_frames tubelet_size"),
    (5, "num_queries"),
    (80, "num_mel_bins"),
    (16, "num_conv_pos_embeddings hidden_size_per_layer_input embed_dim_per_layer"),
    (4, "num_conv_pos_embedding_groups"),
    # vocabulary
    (VOCABULARY, "vocab_size vocab_size_per_layer_input"),
    # weights large enough that scores are of order 1 and a wrong mask shows
    (0.1, "initializer_range init_std"),
)

SMALL: dict[str, Any] = {
    name: int(value) if value == int(value) else value for value, names in _BY_VALUE for name in names.split()
}
"""Field → value. A field that the configuration doesn't have, or has as None, is left alone."""

EVEN_IF_NONE = frozenset({"num_key_value_heads"})
"""Fields that get their small value although the default is None."""

TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "sep_token_id": 2}
"""Special tokens that lie outside the small vocabulary move here; any other gets an id of :func:`spare_token`."""


def spare_token(name: str) -> int:
    """An id near the end of the vocabulary, the same for the same name; text inputs never hold it."""
    return 100 + sum(map(ord, name)) % 20
