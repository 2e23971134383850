"""Score masks of unmodified Hugging Face models, captured by Dynamo with dynamic batch and length."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
import torch
from torch._functorch.aot_autograd import aot_export_module

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.lift import Lifter
from attnc.ir.graph import Graph
from attnc.ir.index import axis, show
from attnc.ir.types import TensorType
from attnc.ir.values import Value

transformers = pytest.importorskip("transformers")

DECODER = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaModel", DECODER),
    "mistral": ("MistralModel", {**DECODER, "sliding_window": 16}),
    "gemma3": (
        "Gemma3TextModel",
        {**DECODER, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]},
    ),
    "bert": (
        "BertModel",
        {
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
        },
    ),
    "gpt2": ("GPT2Model", {"vocab_size": 64, "n_embd": 32, "n_layer": 1, "n_head": 4}),
    "t5": ("T5Model", {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}),
    "whisper": (
        "WhisperModel",
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
        },
    ),
}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "use_cache": False}
CAUSAL, WINDOW = "(k <= q)", "(k <= q) & (k > q - 16)"
PAD = "(PAD[b, k] != 0)"

CASES = [
    pytest.param("llama", "eager", False, ["k <= q"], marks=pytest.mark.slow),
    ("llama", "eager", True, [f"{CAUSAL} & {PAD}"]),
    pytest.param("llama", "sdpa", True, [f"{CAUSAL} & {PAD}"], marks=pytest.mark.slow),
    pytest.param("mistral", "eager", True, [f"{WINDOW} & {PAD}"], marks=pytest.mark.slow),
    ("mistral", "sdpa", False, [WINDOW]),
    pytest.param("gemma3", "eager", True, [f"{WINDOW} & {PAD}", f"{CAUSAL} & {PAD}"], marks=pytest.mark.slow),
    pytest.param("bert", "eager", True, ["PAD[b, k] != 0"], marks=pytest.mark.slow),
    pytest.param("bert", "sdpa", True, ["PAD[b, k] != 0"], marks=pytest.mark.slow),
    pytest.param("gpt2", "eager", True, [f"{CAUSAL} & {PAD}"], marks=pytest.mark.slow),
    pytest.param("whisper", "eager", True, [f"{CAUSAL} & {PAD}"], marks=pytest.mark.slow),
    pytest.param("t5", "eager", True, ["PAD[b, k] != 0", "k <= q", "PAD[b, k] != 0"], marks=pytest.mark.slow),
]


def capture(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Graph:
    found: list[Graph] = []

    def backend(gm: torch.fx.GraphModule, args: list[Any]) -> Any:
        exported, _ = aot_export_module(gm, list(args), trace_joint=False, pre_dispatch=True)
        found.append(import_graph(exported))
        return gm.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend)(**inputs)
    torch._dynamo.reset()
    (graph,) = found
    return graph


def build(name: str, attention: str, padded: bool) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    class_name, settings = MODELS[name]
    model_class = getattr(transformers, class_name)
    config = model_class.config_class(**settings)
    for key, value in TOKENS.items():
        setattr(config, key, value)
    model = model_class._from_config(config, attn_implementation=attention).eval()
    ids = torch.randint(3, 64, (2, 21))
    inputs = {"input_ids": ids}
    mask = "attention_mask"
    if name == "t5":
        inputs["decoder_input_ids"] = torch.randint(3, 64, (2, 13))
    if name == "whisper":
        inputs = {"input_features": torch.randn(2, 8, 32), "decoder_input_ids": ids}
        mask = "decoder_attention_mask"
    if padded:
        inputs[mask] = torch.ones(2, 21, dtype=torch.int64)
    for tensor in inputs.values():
        if not tensor.is_floating_point():
            for d in (0, 1):
                torch._dynamo.maybe_mark_dynamic(tensor, d)
    return model, inputs


def score_masks(graph: Graph) -> Iterator[Value]:
    """What is added to scores before each softmax, or given to SDPA as its mask."""
    for op in graph.ops:
        if op.name == "aten.scaled_dot_product_attention.default" and isinstance(op.arg(3, "attn_mask"), Value):
            yield op.arg(3, "attn_mask")
        value = op.args[0] if op.name == "aten.softmax.int" else None
        while isinstance(value, Value) and value.op is not None and value.op.name in THROUGH:
            if value.op.name == "aten.add.Tensor":
                yield value.op.args[1]
            value = value.op.args[0]


THROUGH = ("aten.add.Tensor", "aten._to_copy.default", "aten.type_as.default")


def formula(graph: Graph, lifter: Lifter, mask: Value) -> str | None:
    """The condition under which a score counts, with ``PAD`` for the padding mask; None where there is none."""
    assert isinstance(mask.type, TensorType)
    coords = tuple(axis(n) for n in "bhqk"[-mask.type.rank :])
    if not mask.type.dtype.is_float:
        visible = lifter.index(mask, coords)
    else:
        cases = lifter.cases(mask, coords)
        if cases is None or len(cases) != 2:
            return None
        (visible, kept), (_, dropped) = cases
        assert (kept, dropped) == (0.0, torch.finfo(torch.float32).min)
    padding = {v.name for v in graph.inputs if isinstance(v.type, TensorType) and v.type.dtype.value == "i64"}
    return re.sub(rf"\b({'|'.join(padding)})\[", "PAD[", show(visible))


@pytest.mark.parametrize(
    ("name", "attention", "padded", "expected"), CASES, ids=["-".join(map(str, c[:3])) for c in CASES]
)
def test_masks(name, attention, padded, expected):
    graph = capture(*build(name, attention, padded))
    lifter = Lifter(graph)
    masks = list(dict.fromkeys(score_masks(graph)))
    found = [text for text in (formula(graph, lifter, m) for m in masks) if text is not None]
    assert found == expected
