"""Unmodified encoder-decoders of Hugging Face's library: tiny."""

from __future__ import annotations

from typing import Any

from benchmarks.cases.decoders.language import LIMIT, hugging_face
from benchmarks.cases.decoders.record import Decoder, Source
from benchmarks.cases.transformers import VOCABULARY, WHISPER

SPECIAL: dict[str, Any] = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": LIMIT,
    **SPECIAL,
}
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 24,
    "decoder_start_token_id": 0,
}
FRAMES = 2 * WHISPER["max_source_positions"]
"""Whisper takes sound of this length only."""


def _pair(name: str, config: str, model: str, limit: int, source: Source, **settings: Any) -> Decoder:
    return Decoder(name, hugging_face(config, model, **settings), limit, "decoder_input_ids", source)


PAIRS: tuple[Decoder, ...] = (
    _pair("t5", "T5Config", "T5ForConditionalGeneration", LIMIT, Source(), **T5),
    _pair("bart", "BartConfig", "BartForConditionalGeneration", LIMIT, Source(), **BART),
    _pair("marian", "MarianConfig", "MarianMTModel", LIMIT, Source(), **BART),
    _pair(
        "whisper",
        "WhisperConfig",
        "WhisperForConditionalGeneration",
        WHISPER["max_target_positions"],
        Source("input_features", (WHISPER["num_mel_bins"], FRAMES), None),
        **WHISPER,
    ),
)
"""Decoders that read an encoder: of text, or of sound."""
