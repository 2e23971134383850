"""Import then export is the identity, over real models, and over the text form."""

from __future__ import annotations

import pytest
import torch

from attnc.compiler.host.identity import identity_backend
from attnc.compiler.host.to_fx import export_graph
from attnc.ir.parser import parse_graph
from attnc.ir.printer import print_graph
from attnc.ir.verifier import verify

FAST = ["llama", "bert", "gpt2", "t5", "whisper", "vit"]
SLOW = """mistral gemma3_text qwen2_moe phi swin deberta-v2 mixtral bloom clip longformer wav2vec2 mpt big_bird
xlnet""".split()


def record(node):
    target = str(node.target) if node.op in ("get_attr", "placeholder", "output") else node.target
    return node.op, node.name, target, str(node.args), str(node.kwargs)


def assert_identical(before, graph, after):
    """Node for node: names, targets, arguments, metadata; and the printed code."""
    ours, theirs = list(after.graph.nodes), list(before.graph.nodes)
    assert [record(node) for node in ours] == [record(node) for node in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert a.meta.keys() == b.meta.keys() and all(a.meta[key] is b.meta[key] for key in b.meta), a.name
        if a.op == "get_attr":
            assert getattr(after, a.target) is getattr(before, b.target)
    assert after.code == before.code


def assert_text_round_trip(before, graph, after):
    """The text parses to a graph with the same text and, with constants and metadata given back, the same FX code."""
    verify(graph)
    text = print_graph(graph)
    parsed = parse_graph(text)
    assert print_graph(parsed) == text
    parsed.constants.update(graph.constants)
    parsed.meta = graph.meta
    for op, origin in zip(parsed.ops, graph.ops, strict=True):
        op.meta = origin.meta
    assert_identical(before, parsed, export_graph(parsed))


def check(tiny_models, model_type, *, dynamic):
    model, inputs = tiny_models.build(model_type)
    if dynamic:
        for name, value in inputs.items():
            if name.endswith(("_ids", "_mask")):
                torch._dynamo.maybe_mark_dynamic(value, 0)
                torch._dynamo.maybe_mark_dynamic(value, 1)
    seen, graphs = [], []

    def visit(before, graph, after):
        assert_identical(before, graph, after)
        assert_text_round_trip(before, graph, after)
        graphs.append(graph)

    with torch.no_grad():
        want = model(**inputs)
        got = torch.compile(model, backend=identity_backend("aten", seen, visit))(**inputs)
    assert [note for captured in seen for note in captured.notes] == []
    assert graphs
    torch.testing.assert_close(got[0], want[0], rtol=0, atol=0, equal_nan=True)
    return graphs


@pytest.mark.parametrize("model_type", ["gpt2", "vit"])
def test_identity(tiny_models, model_type):
    graphs = check(tiny_models, model_type, dynamic=True)
    names = {op.name for graph in graphs for op in graph.ops}
    assert "aten.softmax.int" in names and "aten.matmul.default" in names


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("model_type", FAST + SLOW)
def test_identity_of_every_model(tiny_models, model_type, dynamic):
    check(tiny_models, model_type, dynamic=dynamic)


def test_identity_of_llama_named_and_located(tiny_models):
    (graph,) = check(tiny_models, "llama", dynamic=True)
    assert {"B", "S"} <= graph.sizes.keys() and graph.sizes["S"].lo == 2
    softmax = [op for op in graph.ops if op.name == "aten.softmax.int"]
    assert [op.loc.module for op in softmax] == ["model.layers.0.self_attn", "model.layers.1.self_attn"]
    assert softmax[0].loc.file.endswith("modeling_llama.py") and "softmax" in softmax[0].loc.code
    assert [str(d) for d in softmax[0].result.type.shape] == ["B", "4", "S", "S"]


def test_one_graph_serves_every_size(tiny_models):
    model, _ = tiny_models.build("llama")
    graphs = []
    call = torch.compile(model, backend=identity_backend("aten", visit=lambda *each: graphs.append(each[1])))
    with torch.no_grad():
        for batch, length in ((2, 16), (3, 17), (2, 33), (5, 7)):
            ids = torch.randint(3, 64, (batch, length))
            mask = torch.ones_like(ids)
            for value in (ids, mask):
                torch._dynamo.mark_dynamic(value, 0)
                torch._dynamo.mark_dynamic(value, 1)
            arguments = {"input_ids": ids, "attention_mask": mask, "use_cache": False}
            torch.testing.assert_close(call(**arguments).logits, model(**arguments).logits, rtol=0, atol=0)
    assert len(graphs) == 1
