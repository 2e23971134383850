"""Reading ONNX files."""

from __future__ import annotations

import keyword
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.model import identifiers, read_model, read_tensor
from tests.compiler.frontends.onnx.onnx_models import FLOAT, model, node

RNG = np.random.default_rng(7)


def plain(opset: int = 17) -> onnx.ModelProto:
    nodes = [node("MatMul", "x w", "y")]
    weight = RNG.standard_normal((4, 5)).astype(np.float32)
    return model(nodes, {"x": (FLOAT, ["b", None, 4])}, {"y": (FLOAT, None)}, opset, w=weight)


def test_inputs_and_operator_sets() -> None:
    read = read_model(plain())
    assert [(port.name, port.number, port.shape) for port in read.inputs] == [("x", FLOAT, ("b", None, 4))]
    assert read.outputs[0].shape is None
    assert read.versions[""] == 17
    assert [(n.op, n.inputs, n.outputs) for n in read.nodes] == [("MatMul", ("x", "w"), ("y",))]


def test_an_initializer_that_is_an_input_too_is_none() -> None:
    proto = plain()
    proto.graph.input.append(helper.make_tensor_value_info("w", FLOAT, [4, 5]))
    assert [port.name for port in read_model(proto).inputs] == ["x"]


def test_weights_in_a_file_of_their_own_are_mapped(tmp_path: Path) -> None:
    proto = plain()
    weight = onnx.numpy_helper.to_array(proto.graph.initializer[0]).copy()
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    read = read_model(tmp_path / "m.onnx")
    assert read.proto.graph.initializer[0].data_location == TensorProto.EXTERNAL
    np.testing.assert_array_equal(read.tensor("w").numpy(), weight)


@pytest.mark.parametrize("location", ["../m.bin", "/etc/hostname", ""])
def test_weights_outside_of_the_folder_are_refused(location: str, tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(bytes(80))
    folder = tmp_path / "inner"
    folder.mkdir()
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4, 5], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    with pytest.raises(OnnxError, match=r"'w'.*outside"):
        read_tensor(tensor, folder)


@pytest.mark.parametrize("entry", [("offset", "4"), ("offset", "-4"), ("offset", "x")])
def test_weights_that_do_not_fit_their_file(entry: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(bytes(80))
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4, 5], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="m.bin")
    assert read_tensor(tensor, tmp_path).shape == (4, 5)
    tensor.external_data.add(key=entry[0], value=entry[1])
    with pytest.raises(OnnxError, match="'w'"):
        read_tensor(tensor, tmp_path)


def test_a_size_that_would_not_fit_into_memory_is_not_allocated(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(bytes(80))
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[1 << 40, 1 << 40], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="m.bin")
    with pytest.raises(OnnxError, match="ends before"):
        read_tensor(tensor, tmp_path)


@pytest.mark.parametrize("data", [b"", b"no model", b"\x00" * 64])
def test_what_is_no_model(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(OnnxError, match=r"reading .*m\.onnx: not an ONNX model"):
        read_model(path)
    with pytest.raises(OnnxError, match="no such file"):
        read_model(tmp_path / "other.onnx")


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        (TensorProto.BFLOAT16, torch.bfloat16),
        (TensorProto.FLOAT8E4M3FN, torch.float8_e4m3fn),
        (TensorProto.FLOAT8E5M2, torch.float8_e5m2),
        (TensorProto.UINT16, torch.uint16),
    ],
)
def test_element_types_numpy_has_no_name_for(kind: int, dtype: torch.dtype) -> None:
    numbers = [0.0, 1.0, 3.0, 96.0]
    read = read_tensor(helper.make_tensor("t", kind, [2, 2], numbers), None)
    assert read.dtype == dtype
    assert read.to(torch.float32).flatten().tolist() == numbers


def test_element_types_torch_lacks() -> None:
    with pytest.raises(NoForm, match="STRING"):
        read_tensor(helper.make_tensor("t", TensorProto.STRING, [1], [b"a"]), None)
    with pytest.raises(NoForm, match="INT4"):
        read_tensor(helper.make_tensor("t", TensorProto.INT4, [2], [1, -3]), None)


def test_functions_of_the_model_are_inlined() -> None:
    twice = helper.make_function(
        "mine", "Twice", ["a"], ["c"], [node("Add", "a a", "c")], [helper.make_opsetid("", 17)]
    )
    proto = model([node("Relu", "x", "h")], {"x": (FLOAT, [3])}, {"y": (FLOAT, [3])})
    proto.graph.node.append(helper.make_node("Twice", ["h"], ["y"], domain="mine"))
    proto.functions.append(twice)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    assert [n.op for n in read_model(proto).nodes] == ["Relu", "Add"]


def test_identifiers_are_unlike_each_other() -> None:
    made = identifiers(["a.b", "a_b", "a/b", "1", "", "forward", "as"], taken=["forward"])
    assert len(set(made.values())) == 7
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in made.values())
    assert made["forward"] != "forward"
