"""Operators of ai.onnx in their ATen forms against onnxruntime: random inputs, odd sizes, symbolic sizes traced."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from attnc.compiler.frontends.onnx.dtypes import TO_TORCH, to_array
from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.importer import import_onnx
from attnc.compiler.frontends.onnx.model import read_model
from attnc.compiler.frontends.onnx.module import OnnxModule
from attnc.compiler.frontends.onnx.ops.float8 import FLOAT8, to_float8

Feeds = dict[str, Any]
SIZES = (3, 5)
"""The example's length of what is symbolic, and another."""


@dataclass(frozen=True)
class Case:
    """One node. ``feeds`` are its inputs at a length; those of ``fixed`` are constants of the model."""

    op: str
    feeds: Callable[[np.random.Generator, int], Feeds]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    order: tuple[str, ...] = ()
    """The node's inputs, empty for one left out; by default the feeds, then what is fixed."""
    static: bool = False
    """Has a form for known sizes alone."""
    atol: float = 2e-5


def floats(*shape: int) -> Callable[[np.random.Generator, int], Feeds]:
    """One input x; a length of −1 is the symbolic one."""
    return lambda rng, n: {"x": rng.standard_normal([n if d < 0 else d for d in shape]).astype(np.float32)}


def many(**kinds: tuple[tuple[int, ...], str]) -> Callable[[np.random.Generator, int], Feeds]:
    """Inputs by name: shape, type, and for integers all of the type's range."""

    def made(rng: np.random.Generator, n: int) -> Feeds:
        return {k: drawn(rng, [n if d < 0 else d for d in shape], kind) for k, (shape, kind) in kinds.items()}

    return made


def drawn(rng: np.random.Generator, shape: list[int], kind: str) -> Any:
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    bounds = np.iinfo(dtype)
    return rng.integers(bounds.min, bounds.max, shape, dtype=dtype, endpoint=True)


def weight(*shape: int, seed: int = 5) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) / 3).astype(np.float32)


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


F = np.float32
RNN = {"w": weight(2, 12, 5), "r": weight(2, 12, 4), "b": weight(2, 24)}
QUANT = {"scale": np.array(0.043, F), "zero": np.array(7, np.int8)}
CASES = {
    "conv-1d": Case("Conv", floats(-1, 4, 13), {"strides": [2], "pads": [1, 2]}, {"w": weight(6, 4, 3)}),
    "conv-2d-groups": Case(
        "Conv", floats(-1, 6, 9, 11), {"group": 3, "dilations": [1, 2]}, {"w": weight(9, 2, 3, 3), "b": weight(9)}
    ),
    "conv-same": Case(
        "Conv", floats(2, 3, -1, 11), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}, {"w": weight(5, 3, 2, 4)}
    ),
    "conv-3d": Case("Conv", floats(-1, 2, 5, 6, 7), {"auto_pad": "SAME_UPPER"}, {"w": weight(3, 2, 2, 3, 2)}),
    "conv-transpose": Case(
        "ConvTranspose",
        floats(-1, 4, 5, 7),
        {"strides": [2, 3], "pads": [1, 0, 0, 2], "output_padding": [1, 2], "group": 2},
        {"w": weight(4, 3, 3, 2), "b": weight(6)},
    ),
    "conv-transpose-shape": Case(
        "ConvTranspose", floats(-1, 2, 5, 7), {"strides": [3, 2], "output_shape": [16, 14]}, {"w": weight(2, 3, 3, 3)}
    ),
    "conv-transpose-same": Case(
        "ConvTranspose", floats(2, 3, -1), {"strides": [2], "auto_pad": "SAME_UPPER"}, {"w": weight(3, 4, 5)}
    ),
    "conv-integer": Case(
        "ConvInteger",
        many(x=((-1, 2, 7, 5), "uint8")),
        {"pads": [1, 0, 2, 1]},
        {
            "w": np.arange(-27, 27, dtype=np.int8).reshape(3, 2, 3, 3)[..., ::-1].copy().astype(np.uint8),
            "z": np.array(9, np.uint8),
        },
    ),
    "max-pool": Case(
        "MaxPool", floats(-1, 3, 9, 10), {"kernel_shape": [3, 2], "strides": [2, 3], "ceil_mode": 1}, outputs=2
    ),
    "max-pool-dilated": Case(
        "MaxPool", floats(2, 3, -1, 9), {"kernel_shape": [2, 3], "dilations": [1, 2], "pads": [1, 0, 0, 2]}
    ),
    "max-pool-columns": Case(
        "MaxPool", floats(2, 3, 7, 9), {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "storage_order": 1}, outputs=2
    ),
    "average-pool": Case("AveragePool", floats(-1, 3, 9, 8), {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, opset=19),
    "average-pool-uneven": Case(
        "AveragePool",
        floats(-1, 3, 9, 8),
        {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 2], "ceil_mode": 1},
        opset=19,
    ),
    "average-pool-whole": Case(
        "AveragePool",
        floats(2, 3, 10, 11),
        {"kernel_shape": [3, 3], "pads": [1, 0, 1, 2], "strides": [2, 2], "ceil_mode": 1, "count_include_pad": 1},
        opset=19,
    ),
    "average-pool-3d": Case(
        "AveragePool", floats(-1, 2, 5, 6, 7), {"kernel_shape": [2, 2, 3], "dilations": [1, 2, 1]}, opset=19
    ),
    "lp-pool": Case("LpPool", floats(-1, 3, 9), {"kernel_shape": [3], "p": 3, "pads": [1, 1]}, opset=18),
    "global-pools": Case("GlobalAveragePool", floats(-1, 3, 5, 6)),
    "global-max": Case("GlobalMaxPool", floats(-1, 3, -1)),
    "resize-linear": Case(
        "Resize", floats(-1, 3, 9, 7), {"mode": "linear"}, {"s": np.array([1, 1, 1.7, 0.6], F)}, order=("x", "", "s")
    ),
    "resize-cubic": Case(
        "Resize",
        floats(-1, 3, 9, 7),
        {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1},
        {"s": ints(3, 3, 5, 16)},
        order=("x", "", "", "s"),
        static=True,
    ),
    "resize-antialias": Case(
        "Resize",
        floats(2, 3, 19, 17),
        {"mode": "linear", "antialias": 1},
        {"s": np.array([1, 1, 0.4, 0.7], F)},
        order=("x", "", "s"),
        opset=18,
    ),
    "resize-corners": Case(
        "Resize",
        floats(2, 3, 6, 7),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        {"s": ints(2, 3, 11, 20)},
        order=("x", "", "", "s"),
    ),
    "resize-crop": Case(
        "Resize",
        floats(2, 3, 6, 7),
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 5.0},
        {"r": np.array([0, 0, 0.3, -0.2, 1, 1, 0.9, 0.8], F), "s": ints(2, 3, 5, 8)},
        order=("x", "r", "", "s"),
    ),
    "resize-nearest": Case(
        "Resize",
        floats(-1, 2, -1, 7),
        {"nearest_mode": "floor", "coordinate_transformation_mode": "asymmetric"},
        {"s": np.array([1, 1, 2, 3], F)},
        order=("x", "", "s"),
    ),
    "resize-symbolic": Case(
        "Resize", floats(1, 2, -1, -1), {"mode": "linear"}, {"s": np.array([1, 1, 2, 2], F)}, order=("x", "", "s")
    ),
    "grid-sample": Case(
        "GridSample",
        lambda rng, n: {**floats(-1, 3, 6, 7)(rng, n), "g": rng.uniform(-1.3, 1.3, (n, 4, 5, 2)).astype(F)},
        {"mode": "cubic", "padding_mode": "reflection"},
        opset=20,
    ),
    "grid-sample-3d": Case(
        "GridSample",
        lambda rng, n: {**floats(-1, 2, 4, 5, 6)(rng, n), "g": rng.uniform(-1.3, 1.3, (n, 3, 4, 5, 3)).astype(F)},
        {"mode": "linear", "padding_mode": "border", "align_corners": 1},
        opset=20,
    ),
    "quantize": Case("QuantizeLinear", lambda rng, n: {"x": (rng.standard_normal((n, 5)) * 4).astype(F)}, {}, QUANT),
    "quantize-axis": Case(
        "QuantizeLinear",
        lambda rng, n: {"x": (rng.standard_normal((n, 5, 2)) * 9).astype(F)},
        {"axis": 1},
        {"scale": np.array([0.1, 0.02, 0.3, 1, 2], F), "zero": np.array([0, 9, 200, 1, 128], np.uint8)},
    ),
    "dequantize-blocks": Case(
        "DequantizeLinear",
        many(x=((4, 7), "int16")),
        {"axis": 1, "block_size": 3},
        {"scale": weight(4, 3), "zero": np.arange(12, dtype=np.int16).reshape(4, 3)},
    ),
    "dynamic-quantize": Case("DynamicQuantizeLinear", floats(-1, 7), outputs=3),
    "matmul-integer": Case(
        "MatMulInteger",
        many(x=((-1, 5), "uint8"), y=((5, 4), "int8")),
        {},
        {"a": np.array(3, np.uint8), "b": np.array(-2, np.int8)},
    ),
    "q-matmul": Case(
        "QLinearMatMul",
        many(x=((-1, 5), "uint8")),
        {},
        {
            "s": np.array(0.02, F),
            "z": np.array(120, np.uint8),
            "w": np.arange(-10, 10, dtype=np.int8).reshape(5, 4),
            "t": np.array(0.05, F),
            "u": np.array(1, np.int8),
            "v": np.array(0.4, F),
            "o": np.array(99, np.uint8),
        },
    ),
    "lstm": Case(
        "LSTM",
        floats(7, -1, 5),
        {"hidden_size": 4, "direction": "bidirectional"},
        {"w": weight(2, 16, 5), "r": weight(2, 16, 4), "b": weight(2, 32)},
        outputs=3,
    ),
    "lstm-lengths": Case(
        "LSTM",
        floats(7, 3, 5),
        {"hidden_size": 4, "direction": "reverse"},
        {
            "w": weight(1, 16, 5),
            "r": weight(1, 16, 4),
            "b": weight(1, 32),
            "l": np.array([7, 2, 5], np.int32),
            "h": weight(1, 3, 4),
            "c": weight(1, 3, 4, seed=6),
            "p": weight(1, 12),
        },
        outputs=3,
    ),
    "gru": Case("GRU", floats(6, -1, 5), {"hidden_size": 4, "direction": "bidirectional"}, RNN, outputs=2),
    "gru-after": Case(
        "GRU",
        floats(6, -1, 5),
        {"hidden_size": 4, "direction": "bidirectional", "linear_before_reset": 1},
        RNN,
        outputs=2,
    ),
    "rnn": Case(
        "RNN",
        floats(6, -1, 5),
        {"hidden_size": 4, "activations": ["Relu"]},
        {"w": weight(1, 4, 5), "r": weight(1, 4, 4), "b": weight(1, 8)},
        outputs=2,
    ),
    "dft": Case(
        "DFT", floats(-1, 9, 2), {}, {"l": np.array(12, np.int64), "a": np.array(1, np.int64)}, opset=20, atol=1e-4
    ),
    "dft-onesided": Case("DFT", floats(-1, 9, 1), {"onesided": 1, "axis": 1}, opset=17, atol=1e-4),
    "stft": Case(
        "STFT",
        floats(2, -1, 1),
        {},
        {"s": np.array(1, np.int64), "w": weight(3)},
        opset=17,
        atol=1e-4,
        order=("x", "s", "w"),
    ),
    "mel": Case(
        "MelWeightMatrix",
        lambda rng, n: {},
        {},
        {
            "a": np.array(8, np.int64),
            "b": np.array(64, np.int64),
            "c": np.array(8192, np.int64),
            "d": np.array(0, F),
            "e": np.array(4096, F),
        },
        opset=17,
    ),
    "hann": Case("HannWindow", lambda rng, n: {}, {"periodic": 0}, {"a": np.array(11, np.int64)}, opset=17),
    "mvn": Case("MeanVarianceNormalization", floats(-1, 3, 5, 4)),
    "batch-norm-training": Case(
        "BatchNormalization",
        floats(-1, 4, 5),
        {"training_mode": 1, "momentum": 0.8},
        {"s": weight(4), "b": weight(4, seed=6), "m": weight(4, seed=7), "v": np.abs(weight(4, seed=8))},
        outputs=3,
    ),
    "col2im": Case(
        "Col2Im", floats(-1, 12, 15), {"strides": [2, 1]}, {"a": ints(6, 6), "b": ints(2, 2)}, opset=18, static=True
    ),
    "trilu-data": Case("Trilu", lambda rng, n: {**floats(-1, 6)(rng, n), "k": np.array(-1, np.int64)}),
    "pad-data": Case(
        "Pad",
        lambda rng, n: {**floats(-1, 6)(rng, n), "v": np.array(2.5, F)},
        {},
        {"p": ints(1, 0, 0, -2)},
        order=("x", "p", "v"),
    ),
    "cumsum-data": Case(
        "CumSum", lambda rng, n: {**floats(-1, 6, 2)(rng, n), "a": np.array(-2, np.int64)}, {"exclusive": 1}
    ),
    "split-depth": Case("SpaceToDepth", floats(-1, 3, 6, 4), {"blocksize": 2}),
    "softmax-11": Case("Softmax", floats(-1, 3, 4), {"axis": 1}, opset=11),
    "cast-saturate": Case("Cast", floats(-1, 7), {"to": onnx.TensorProto.INT32}),
    "lrn": Case("LRN", floats(-1, 5, 3, 2), {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 1.5}),
    "group-norm": Case(
        "GroupNormalization", floats(-1, 6, 5), {"num_groups": 3}, {"s": weight(6), "b": weight(6, seed=6)}
    ),
}
for _op in ("Add", "Sub", "Mul", "Div", "Mod", "Less", "GreaterOrEqual", "Equal", "BitwiseXor", "BitShift", "Max"):
    for _kind in ("uint16", "uint32", "uint64"):
        if not (_op == "Max" and _kind == "uint16"):  # onnxruntime has none
            CASES[f"{_op}-{_kind}"] = Case(
                _op,
                lambda rng, n, kind=_kind, op=_op: {
                    "x": drawn(rng, [n, 9], kind),
                    "y": drawn(rng, [9], kind) % 15 if op == "BitShift" else np.maximum(drawn(rng, [9], kind), 1),
                },
                {"direction": "RIGHT"} if _op == "BitShift" else {},
            )


def model_of(case: Case, feeds: Feeds, other: Feeds | None = None) -> onnx.ModelProto:
    """A model of the node; dimensions that differ between the two inputs are symbolic."""
    value, kind = onnx.helper.make_tensor_value_info, onnx.helper.np_dtype_to_tensor_dtype
    inputs = [
        value(
            name,
            kind(a.dtype),
            [
                d if other is None or d == e else f"{name}_{i}"
                for i, (d, e) in enumerate(zip(a.shape, a.shape if other is None else other[name].shape, strict=True))
            ],
        )
        for name, a in feeds.items()
    ]
    order = case.order or (*feeds, *case.fixed)
    names = [f"out{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(case.op, order, names, **case.attributes)
    constants = [onnx.numpy_helper.from_array(np.asarray(a), name) for name, a in case.fixed.items()]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names]
    graph = onnx.helper.make_graph([node], "one", inputs, outputs, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", case.opset)], ir_version=10)
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def by_onnxruntime(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return list(onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds))


def in_eager(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    module = OnnxModule(read_model(model))
    return [to_array(t) for t in module(*(torch.from_numpy(np.asarray(a)) for a in feeds.values()))]


def agree(found: list[Any], wanted: list[Any], atol: float) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=atol)


@pytest.mark.parametrize("name", CASES)
def test_eager(name: str) -> None:
    """The form itself, at two sizes."""
    case, rng = CASES[name], np.random.default_rng(len(name))
    for n in SIZES if not case.static else SIZES[:1]:
        feeds = case.feeds(rng, n)
        model = model_of(case, feeds)
        agree(in_eager(model, feeds), by_onnxruntime(model, feeds), case.atol)


TRACED = (
    "conv-same",
    "conv-transpose",
    "max-pool",
    "average-pool-uneven",
    "resize-linear",
    "resize-nearest",
    "resize-symbolic",
    "grid-sample",
    "quantize-axis",
    "q-matmul",
    "lstm",
    "stft",
    "lrn",
    "trilu-data",
    "cumsum-data",
    "BitShift-uint64",
    "Div-uint64",
)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if i < 2 else [pytest.mark.slow]) for i, n in enumerate(TRACED)]
)
def test_traced(name: str) -> None:
    """Exported with symbolic sizes, run at others than the example's."""
    case, rng = CASES[name], np.random.default_rng(len(name))
    example, other = (case.feeds(rng, n) for n in (SIZES[0], 6))
    model = model_of(case, example, other)
    imported = import_onnx(model, inputs={k: torch.from_numpy(np.asarray(v)) for k, v in example.items()})
    assert not imported.left
    run = imported.program.module()
    for feeds in (example, other):
        given = {imported.module.arguments[k]: torch.from_numpy(np.asarray(v)) for k, v in feeds.items()}
        agree([to_array(t) for t in run(**given)], by_onnxruntime(model, feeds), case.atol)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("saturate", [True, False])
def test_float8_of_every_half(dtype: torch.dtype, saturate: bool) -> None:
    """All numbers of float16, and float32 halfway between numbers of float8, as ml_dtypes rounds them."""
    halves = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.float16)
    named = onnx.helper.tensor_dtype_to_np_dtype({v: k for k, v in TO_TORCH.items()}[dtype])
    steps = np.sort(np.arange(256, dtype=np.uint8).view(named).astype(np.float32))
    between = torch.from_numpy((steps[1:] + steps[:-1]) / 2)
    for x in (halves, between, between * (1 + 2**-20)):
        ours = to_array(to_float8(x, dtype, saturate=saturate)).astype(np.float32)
        wide = x.to(torch.float32).numpy()
        greatest = torch.finfo(dtype).max
        theirs = (np.clip(wide, -greatest, greatest) if saturate else wide).astype(named).astype(np.float32)
        np.testing.assert_array_equal(ours, theirs)


def test_float8_of_double_is_left() -> None:
    with pytest.raises(NoForm, match="rounds twice"):
        to_float8(torch.ones(2, dtype=torch.float64), torch.float8_e5m2, saturate=True)


LEFT = {
    "nearest-tie": (
        Case(
            "Resize",
            floats(1, 1, 40, 5),
            {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"s": np.array([1, 1, 0.1, 1], F)},
            order=("x", "", "s"),
        ),
        "depends on how coordinates are rounded",
    ),
    "resize-integers": (
        Case(
            "Resize",
            many(x=((1, 1, 5, 5), "uint8")),
            {"mode": "linear"},
            {"s": np.array([1, 1, 2, 2], F)},
            order=("x", "", "s"),
        ),
        "integers",
    ),
    "quantize-half": (
        Case(
            "QuantizeLinear",
            many(x=((3, 4), "float16")),
            {},
            {"s": np.array(0.1, np.float16), "z": np.array(0, np.int8)},
        ),
        "rounding isn't said",
    ),
    "long-lstm": (
        Case(
            "LSTM",
            floats(65, 2, 5),
            {"hidden_size": 4},
            {"w": weight(1, 16, 5), "r": weight(1, 16, 4)},
            order=("x", "w", "r"),
        ),
        "65 steps",
    ),
    "clipped-gru": (
        Case(
            "GRU",
            floats(5, 2, 5),
            {"hidden_size": 4, "clip": 0.5},
            {"w": weight(1, 12, 5), "r": weight(1, 12, 4)},
            order=("x", "w", "r"),
        ),
        "clipped",
    ),
    "shape-data": (
        Case("Reshape", lambda rng, n: {**floats(4, 6)(rng, n), "s": ints(8, 3)}),
        "known only when the model runs",
    ),
    "one-side-of-complex": (Case("DFT", floats(2, 9, 2), {"onesided": 1, "axis": 1}, opset=17), "one side"),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    """What isn't certain has no form, and says why."""
    case, reason = LEFT[name]
    feeds = case.feeds(np.random.default_rng(1), 3)
    module = OnnxModule(read_model(model_of(case, feeds)))
    with contextlib.suppress(RuntimeError):  # of onnxruntime, which may lack it too
        module(*(torch.from_numpy(np.asarray(a)) for a in feeds.values()))
    (why,) = module.trace.left.values()
    assert re.search(reason, why), why


def test_old_meaning_is_left() -> None:
    """Before operator set 11 only what means the same."""
    x = onnx.helper.make_tensor_value_info("x", 1, [2, 3])
    y = onnx.helper.make_empty_tensor_value_info("y")

    def module(op: str, **attributes: Any) -> OnnxModule:
        graph = onnx.helper.make_graph([onnx.helper.make_node(op, ["x"], ["y"], **attributes)], "old", [x], [y])
        return OnnxModule(read_model(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 9)])))

    given = torch.tensor([[1.0, -2, 3], [-1, 0.5, 7]])
    torch.testing.assert_close(module("Abs")(given)[0], given.abs())
    clip = module("Clip", min=0.0, max=1.0)
    torch.testing.assert_close(clip(given)[0], given.clamp(0, 1))
    assert "operator set 9" in next(iter(clip.trace.left.values()))


def test_loop_is_written_out() -> None:
    """A Loop of known count; one that stops by data is left."""
    helper, one = onnx.helper, onnx.numpy_helper.from_array(np.array(1.0, F), "one")
    info = helper.make_tensor_value_info
    for stop, text in (("keep", ""), ("less", "whether it goes on")):
        nodes = [
            helper.make_node("Identity", ["going"], ["keep"]),
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
            helper.make_node("Less", ["sum", "one"], ["less"]),
        ]
        body = helper.make_graph(
            nodes,
            "body",
            [info("i", 7, []), info("going", 9, []), info("state", 1, [2])],
            [info(stop, 9, []), info("next", 1, [2]), info("sum", 1, [])],
            [one],
        )
        loop = helper.make_node("Loop", ["count", "true", "x"], ["last", "sums"], body=body)
        graph = helper.make_graph(
            [loop],
            "loop",
            [info("x", 1, [2])],
            [info("last", 1, [2]), info("sums", 1, [None])],
            [onnx.numpy_helper.from_array(np.array(4), "count"), onnx.numpy_helper.from_array(np.array(True), "true")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        feeds = {"x": np.array([0.1, -0.4], F)}
        if not text:
            agree(in_eager(model, feeds), by_onnxruntime(model, feeds), 1e-6)
            continue
        module = OnnxModule(read_model(model))
        module(torch.from_numpy(feeds["x"]))
        assert text in next(iter(module.trace.left.values()))


@pytest.mark.parametrize(
    ("op", "kinds", "words"),
    [
        ("Add", ("float32", "bool"), "float32.*bool.*mask of booleans"),
        ("Conv", ("float32", "float16"), "float32.*float16"),
        ("MatMul", ("float32", "int64"), "float32.*int64"),
    ],
)
def test_wrong_types_are_named(op: str, kinds: tuple[str, str], words: str) -> None:
    """An invalid model is an error that names the node, its inputs and their types."""
    shape = (1, 2, 3, 3)
    case = Case(op, many(x=(shape, kinds[0]), y=(shape, kinds[1])))
    feeds = case.feeds(np.random.default_rng(2), 3)
    model = model_of(case, feeds)
    model.graph.node[0].name = "the/one"
    with pytest.raises(OnnxError, match=f"{op}, node 'the/one'.*'x'.*'y'") as caught:
        in_eager(model, feeds)
    assert re.search(words, str(caught.value))


def test_known_sizes_stay_numbers_while_traced() -> None:
    """Arithmetic on lengths the model says leaves a number in the graph, no data."""
    helper = onnx.helper
    nodes = [
        helper.make_node("Shape", ["x"], ["length"], start=1),
        helper.make_node("Cast", ["length"], ["real"], to=1),
        helper.make_node("Sqrt", ["real"], ["root"]),
        helper.make_node("Mul", ["x", "root"], ["y"]),
    ]
    x, y = helper.make_tensor_value_info("x", 1, [3, 7]), helper.make_tensor_value_info("y", 1, [3, 7])
    graph = helper.make_graph(nodes, "sizes", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = {"x": np.random.default_rng(3).standard_normal((3, 7)).astype(F)}
    program = import_onnx(model).program
    agree([to_array(program.module()(x=torch.from_numpy(feeds["x"]))[0])], by_onnxruntime(model, feeds), 1e-6)
    assert not any("item" in str(node.target) for node in program.graph.nodes)
