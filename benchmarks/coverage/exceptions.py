"""Models that encode positions in a way that ``attn.rope`` or a table of O(S) entries can't hold, and why."""

from __future__ import annotations

_BREAK = "a graph break parts its cosines and sines from the rotation, which reads them as inputs"
_ROUNDED = "its table holds waves of angles that float32 has rounded; attn.rope would turn by the exact ones"
_PRODUCT = "queries are multiplied by embeddings of relative positions: the bias depends on the content"
_INPUT = "the bias depends on where things stand on the page, or on segments: on inputs"
_CHOICE = "its bias is over a window's compression; what is dense is a choice of keys made by content"
_SHIFTED = "the bias is a table; what is dense is the mask of shifted windows"

UNROTATED: dict[str, str] = {
    **dict.fromkeys(("higgs_audio_v2", "jetmoe", "longcat_flash", "openai_privacy_filter"), _BREAK),
    **dict.fromkeys(("codegen", "gptj"), _ROUNDED),
}
"""Models that rotate queries and keys without an ``attn.rope``."""

CONTENT: dict[str, str] = {
    **dict.fromkeys(("deberta-v2", "sew-d", "prophetnet", "xlnet", "funnel"), _PRODUCT),
    **dict.fromkeys(("fastspeech2_conformer", "fastspeech2_conformer_with_hifigan", "wav2vec2-conformer"), _PRODUCT),
    **dict.fromkeys(("inkling2_text", "inkling2_loop_text"), _PRODUCT),
    **dict.fromkeys(("sam_vision_model", "sam_hq_vision_model"), _PRODUCT),
    **dict.fromkeys(("cpmant", "layoutlmv3"), _INPUT),
    **dict.fromkeys(("swin", "swinv2", "swin2sr", "donut-swin", "maskformer-swin"), _SHIFTED),
    "deepseek_v4": _CHOICE,
    "levit": "the model keeps the gathered bias in a cache of its own, and hands it in as an input",
}
"""Models whose relative bias is read as a dense tensor."""
