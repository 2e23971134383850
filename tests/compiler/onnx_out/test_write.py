"""Attentions replaced in an ONNX file: right in stock onnxruntime, and only where the operator means the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from attnc.compiler.onnx_out.emit import emit_onnx
from tests.compiler.frontends.onnx.onnx_models import BOOL, FLOAT, model, node, onnxruntime_says

H, D, E = 3, 8, 5
Q, K, V = (FLOAT, ["b", H, "s", D]), (FLOAT, ["b", H, "t", D]), (FLOAT, ["b", H, "t", E])
PADDING = (FLOAT, ["b", 1, 1, "t"])
INF = np.float32(np.inf)


@dataclass(frozen=True)
class Case:
    """An attention between its two products: from ``scores`` to ``w``."""

    between: Callable[[], list[NodeProto]]
    constants: dict[str, Any]
    mask: tuple[int, list[Any]] | None = None
    kept: str = ""
    """Why it stays; empty where it is replaced."""
    outputs: tuple[str, ...] = ("y",)

    def build(self, opset: int = 17) -> ModelProto:
        nodes = [
            node("Transpose", "k", "kt", perm=[0, 1, 3, 2]),
            node("MatMul", "q kt", "scores"),
            *self.between(),
            node("MatMul", "w v", "y"),
        ]
        inputs = {"q": Q, "k": K, "v": V} | ({"m": self.mask} if self.mask else {})
        return model(nodes, inputs, dict.fromkeys(self.outputs, (FLOAT, None)), opset, **self.constants)


def softmax(source: str, target: str = "w") -> NodeProto:
    return node("Softmax", source, target, axis=-1)


CASES = {
    "plain": Case(lambda: [node("Mul", "scores c", "z"), softmax("z")], {"c": np.float32(0.31)}),
    "no scale": Case(lambda: [softmax("scores")], {}),
    "number first": Case(lambda: [node("Mul", "c scores", "z"), softmax("z")], {"c": np.ones((1, 1), "f")}),
    "added": Case(
        lambda: [node("Div", "scores c", "z"), node("Add", "z m", "x"), softmax("x")], {"c": np.float32(2.5)}, PADDING
    ),
    "added first": Case(lambda: [node("Add", "m scores", "x"), softmax("x")], {}, (FLOAT, ["s", "t"])),
    "two terms": Case(
        lambda: [node("Add", "scores m", "x"), node("Add", "x p", "z"), softmax("z")],
        {"p": np.linspace(-1, 1, H, dtype="f").reshape(H, 1, 1)},
        PADDING,
    ),
    "per head": Case(lambda: [node("Add", "scores m", "x"), softmax("x")], {}, (FLOAT, ["b", H, "s", "t"])),
    "selected": Case(
        lambda: [
            node("Where", "m scores f", "x"),
            softmax("x", "a"),
            node("IsNaN", "a", "n"),
            node("Where", "n o a", "w"),
        ],
        {"f": -INF, "o": np.float32(0)},
        (BOOL, ["b", 1, "s", "t"]),
    ),
    "selected, bare": Case(lambda: [node("Where", "m scores f", "x"), softmax("x")], {"f": -INF}, (BOOL, ["s", "t"])),
    "scale after a term": Case(
        lambda: [node("Add", "scores m", "x"), node("Mul", "x c", "z"), softmax("z")],
        {"c": np.float32(0.5)},
        PADDING,
        "a term is added before the scale",
    ),
    "finite fill": Case(
        lambda: [node("Where", "m scores f", "x"), softmax("x")],
        {"f": np.float32(-10000)},
        (BOOL, ["b", 1, "s", "t"]),
        "masked scores are replaced by something else",
    ),
    "weights out": Case(lambda: [softmax("scores")], {}, None, "ATTNC-WEIGHTS-USED", outputs=("y", "w")),
    "scores out": Case(
        lambda: [node("Mul", "scores c", "z"), softmax("z")],
        {"c": np.float32(0.5)},
        None,
        "is read elsewhere too",
        outputs=("y", "z"),
    ),
    "capped": Case(lambda: [node("Tanh", "scores", "z"), softmax("z")], {}, None, "Tanh stands between"),
    "scale by row": Case(
        lambda: [node("Mul", "scores m", "z"), softmax("z")],
        {},
        (FLOAT, ["s", 1]),
        "something that is no constant number",
    ),
    "guard with one": Case(
        lambda: [
            node("Where", "m scores f", "x"),
            softmax("x", "a"),
            node("IsNaN", "a", "n"),
            node("Where", "n o a", "w"),
        ],
        {"f": -INF, "o": np.float32(1)},
        (BOOL, ["b", 1, "s", "t"]),
        "ATTNC-",
    ),
}


def feed(case: Case, b: int, s: int, t: int, rng: np.random.Generator) -> dict[str, Any]:
    sizes = {"b": b, "s": s, "t": t}
    made = {}
    for name, (_, shape) in ({"q": Q, "k": K, "v": V} | ({"m": case.mask} if case.mask else {})).items():
        made[name] = rng.standard_normal([sizes.get(dim, dim) for dim in shape]).astype(np.float32)
    if case.mask and case.mask[0] == BOOL:
        made["m"] = made["m"] > -0.3
        made["m"][..., 0, :] = False  # a row that sees no key
    elif case.mask == PADDING:
        made["m"] = np.where(made["m"] > 0.4, np.finfo(np.float32).min, np.float32(0))
        made["m"][0] = np.finfo(np.float32).min
    return made


OTHER_SETS = [("plain", 11), ("selected", 13), ("selected", 21), ("two terms", 23)]
FAST = ("selected", "finite fill")
EVERY = [pytest.param(name, 17, marks=[] if name in FAST else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize(("name", "opset"), [*EVERY, *(pytest.param(*c, marks=pytest.mark.slow) for c in OTHER_SETS)])
def test_replaced_exactly_or_kept_with_a_reason(name: str, opset: int) -> None:
    case = CASES[name]
    proto = case.build(opset)
    made = emit_onnx(proto)
    ops = [n.op_type for n in made.proto.graph.node]
    if case.kept:
        assert [case.kept in reason for _, reason in made.kept] == [True]
        assert made.proto == proto
        return
    assert len(made.replaced) == 1
    assert ops.count("MultiHeadAttention") == 1
    assert not {"Softmax", "MatMul", "IsNaN"}.intersection(ops)
    rng = np.random.default_rng(len(name))
    for b, s, t in ((1, 1, 1), (2, 7, 7), (3, 5, 9)):
        given = feed(case, b, s, t, rng)
        for found, wanted in zip(onnxruntime_says(made.proto, given), onnxruntime_says(proto, given), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_a_mask_is_widened_once_for_all_layers() -> None:
    nodes, value = [], "q"
    for i in range(3):
        nodes += [
            node("Transpose", "k", f"kt{i}", perm=[0, 1, 3, 2]),
            node("MatMul", f"{value} kt{i}", f"s{i}"),
            node("Add", f"s{i} m", f"x{i}"),
            softmax(f"x{i}", f"w{i}"),
            node("MatMul", f"w{i} k", f"y{i}"),
        ]
        value = f"y{i}"
    proto = model(nodes, {"q": Q, "k": K, "m": PADDING}, {"y2": (FLOAT, None)})
    made = emit_onnx(proto)
    ops = [n.op_type for n in made.proto.graph.node]
    assert (ops.count("MultiHeadAttention"), ops.count("Expand")) == (3, 1)
    rng = np.random.default_rng(5)
    given = {
        "q": rng.standard_normal((2, H, 4, D)).astype("f"),
        "k": rng.standard_normal((2, H, 6, D)).astype("f"),
        "m": rng.standard_normal((2, 1, 1, 6)).astype("f"),
    }
    np.testing.assert_allclose(
        onnxruntime_says(made.proto, given)[0], onnxruntime_says(proto, given)[0], rtol=2e-5, atol=2e-6
    )


def test_nothing_else_is_touched() -> None:
    case = CASES["plain"]
    proto = case.build()
    proto.graph.node.insert(0, node("Relu", "q", "unused_elsewhere"))
    proto.graph.output.append(type(proto.graph.output[0])(name="unused_elsewhere"))
    made = emit_onnx(proto).proto
    assert made.graph.node[0] == proto.graph.node[0]
    assert list(made.graph.input) == list(proto.graph.input)
    assert list(made.graph.output) == list(proto.graph.output)
    assert made.ir_version == proto.ir_version
