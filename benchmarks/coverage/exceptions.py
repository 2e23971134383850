"""Models measured in another way than the rest, and positions that ``attn.rope`` or an O(S) table can't hold."""

from __future__ import annotations

_PRODUCT = "queries are multiplied by embeddings of relative positions: the bias depends on the content"
_INPUT = "the bias depends on where things stand on the page, or on segments: on inputs"
_CHOICE = "its bias is over a window's compression; what is dense is a choice of keys made by content"
_SHIFTED = "the bias is a table; what is dense is the mask of shifted windows"

CAPTURED = frozenset(("deberta", "higgs_audio_v2", "jetmoe"))
"""Models that run with Dynamo's ``capture_scalar_outputs`` and ``capture_dynamic_output_shape_ops`` on.

Without these switches of torch's, an ``item()`` or a ``nonzero()`` of theirs ends the graph before every attention.
"""

UNROTATED: dict[str, str] = {}
"""Models that rotate queries and keys without an ``attn.rope``."""

CONTENT: dict[str, str] = {
    **dict.fromkeys(("deberta", "deberta-v2", "sew-d", "prophetnet", "xlnet", "funnel"), _PRODUCT),
    **dict.fromkeys(("fastspeech2_conformer", "fastspeech2_conformer_with_hifigan", "wav2vec2-conformer"), _PRODUCT),
    **dict.fromkeys(("inkling2_text", "inkling2_loop_text"), _PRODUCT),
    **dict.fromkeys(("sam_vision_model", "sam_hq_vision_model"), _PRODUCT),
    **dict.fromkeys(("cpmant", "layoutlmv3"), _INPUT),
    **dict.fromkeys(("swin", "swinv2", "swin2sr", "donut-swin", "maskformer-swin"), _SHIFTED),
    "deepseek_v4": _CHOICE,
    "levit": "the model keeps the gathered bias in a cache of its own, and hands it in as an input",
}
"""Models whose relative bias is read as a dense tensor."""
