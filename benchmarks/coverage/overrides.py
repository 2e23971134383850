"""What single model types need beside the table of small values: fields that must agree with each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Fields = dict[str, Any]

_TABLE: dict[str, Fields] = {}


def overrides(model_type: str) -> Fields:
    """Fields of this model type's configuration, made afresh for each call."""
    return {n: v() if callable(v) else v for n, v in _TABLE.get(model_type, {}).items()}


def _set(model_types: str, **fields: Any) -> None:
    for name in model_types.split():
        _TABLE.setdefault(name, {}).update(fields)


def _resnet(*stages: str) -> Callable[[], Any]:
    """A tiny convolutional backbone that gives these stages."""

    def make() -> Any:
        from transformers import ResNetConfig

        sizes: Fields = {"embedding_size": 16, "hidden_sizes": [16, 16, 16, 32], "depths": [1, 1, 1, 1]}
        return ResNetConfig(**{**sizes, "out_features": list(stages)})

    return make


# decoders
_set("falcon", num_kv_heads=4, new_decoder_architecture=False, multi_query=True)
_set("deepseek_v2 deepseek_v3", head_dim=8, num_key_value_heads=4)
_set("deepseek_v2", topk_method="greedy", num_experts_per_tok=2, n_routed_experts=4)
_set("phi stablelm persimmon", num_key_value_heads=4)
_set("olmo", num_key_value_heads=4)
_set("gpt_neo", attention_types=[[["global", "local"], 1]], window_size=8)
_set("mpt", max_seq_len=128)
_set("gptj codegen", rotary_dim=8)
_set("xlnet", d_head=16)
_set("hunyuan_v1_dense ministral", head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
_set(
    "gemma3n_text",
    intermediate_size=[128, 128],
    num_kv_shared_layers=0,
    activation_sparsity_pattern=[0.0, 0.0],
    laurel_rank=8,
    altup_num_inputs=2,
)

# encoders
_set("longformer led", attention_window=[8, 8])
_set("led", max_encoder_position_embeddings=128)
_set("big_bird bigbird_pegasus", attention_type="block_sparse", block_size=4, num_random_blocks=1)
_set("funnel", block_sizes=[1, 1], num_decoder_layers=1, d_head=16, n_head=4)
_set("albert electra", embedding_size=32)
_set("mobilebert", embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32)
_set("canine", num_hash_buckets=64, num_hash_functions=4, local_transformer_stride=8, type_vocab_size=4)
_set("convbert", embedding_size=64, conv_kernel_size=3)
_set("squeezebert", embedding_size=64)
_set("luke", entity_vocab_size=64, entity_emb_size=64)
_set("lilt", hidden_size=96, num_attention_heads=4, channel_shrink_ratio=4)
_set("layoutlmv3", coordinate_size=10, shape_size=12, input_size=32)
_set("xmod", default_language="en_XX")
_set("lxmert", l_layers=1, x_layers=1, r_layers=1, visual_feat_dim=32)
_set("deberta deberta-v2", relative_attention=True, pos_att_type=["c2p", "p2c"], position_biased_input=False)
_set("deberta", max_relative_positions=-1)
_set("deberta-v2", position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm")
_set(
    "perceiver",
    num_latents=8,
    d_latents=64,
    num_self_attends_per_block=2,
    num_self_attention_heads=4,
    num_cross_attention_heads=4,
    num_blocks=1,
)

# encoder-decoders
_set("prophetnet", num_encoder_attention_heads=4, num_decoder_attention_heads=4, ngram=2)
_set(
    "time_series_transformer",
    prediction_length=4,
    context_length=8,
    lags_sequence=[1, 2, 3],
    num_time_features=1,
    d_model=64,
)

# vision
_set(
    "swin swinv2 donut-swin maskformer-swin",
    image_size=32,
    patch_size=2,
    embed_dim=16,
    depths=[1, 2],
    num_heads=[2, 4],
    window_size=4,
)
_set("swin2sr", image_size=32, patch_size=1, embed_dim=16, depths=[1, 2], num_heads=[2, 4], window_size=4)
_set("mobilevit levit", image_size=128)  # with less, the last stages have a single key
_set("dpt", neck_hidden_sizes=[16, 16, 32, 32])
_set("sam_vision_model sam_hq_vision_model", output_channels=64, global_attn_indexes=[1])
_set("detr conditional_detr dab-detr", use_timm_backbone=False, backbone=None, backbone_config=_resnet("stage4"))
_set(
    "deformable_detr",
    use_timm_backbone=False,
    backbone=None,
    backbone_config=_resnet("stage2", "stage3", "stage4"),
    num_feature_levels=4,
)

# sound
_set("whisper", num_mel_bins=16, max_source_positions=16, max_target_positions=64)
_set(
    "speech_to_text",
    conv_channels=32,
    input_feat_per_channel=16,
    max_source_positions=64,
    max_target_positions=64,
)
_set(
    "wav2vec2 hubert wavlm data2vec-audio unispeech unispeech-sat sew sew-d wav2vec2-conformer wav2vec2-bert",
    conv_dim=[32, 32, 32],
    conv_kernel=[10, 3, 3],
    conv_stride=[5, 2, 2],
    num_feat_extract_layers=3,
    mask_time_prob=0.0,
    layerdrop=0.0,
)
_set("data2vec-audio", conv_pos_kernel_size=5, num_conv_pos_embedding_groups=4, num_conv_pos_embeddings=2)
_set("sew sew-d", squeeze_factor=2)
_set(
    "audio-spectrogram-transformer",
    max_length=32,
    num_mel_bins=32,
    patch_size=8,
    frequency_stride=8,
    time_stride=8,
)
