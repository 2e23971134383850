"""Reading an ONNX file: structure, operator sets, inputs and weights; those outside of the file are mapped."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto
from torch import Tensor

from attnc.compiler.frontends.onnx.dtypes import from_array
from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError
from attnc.compiler.frontends.onnx.node import Node, read_node

OLDEST = 11
"""The oldest operator set of ai.onnx that is known here; of older ones, what still means the same in it."""

Dimension = int | str | None
"""A length, the name or formula of one, or nothing said."""


@dataclass(frozen=True)
class Port:
    """An input or output of a model: ``number`` is ONNX's of its element type; ``shape`` None where no rank is said."""

    name: str
    number: int
    shape: tuple[Dimension, ...] | None
    kind: str = "tensor_type"
    """What it is: ``tensor_type``, ``sequence_type``, ``optional_type``, …"""


@dataclass(eq=False)
class Model:
    """An ONNX model, functions inlined."""

    name: str
    proto: ModelProto
    """Nodes and types; the content of weights may lie outside of it."""
    folder: Path | None
    """Where weights outside of the file lie."""
    versions: Mapping[str, int]
    """Operator set of each domain; ai.onnx is ''."""
    inputs: tuple[Port, ...]
    """Those the caller gives: none that an initializer stands for."""
    outputs: tuple[Port, ...]
    nodes: tuple[Node, ...]
    _tensors: dict[str, TensorProto] = field(default_factory=dict, repr=False)

    @property
    def initializers(self) -> Iterable[str]:
        """The names of all weights and constants."""
        return self._tensors

    def proto_of(self, name: str) -> TensorProto:
        """An initializer as it stands in the file."""
        return self._tensors[name]

    def tensor(self, name: str) -> Tensor:
        """An initializer's numbers. Raises OnnxError where they are missing, NoForm where torch has no such type."""
        return read_tensor(self._tensors[name], self.folder)


def read_model(source: str | Path | ModelProto | bytes) -> Model:
    """A model from a file, its bytes, or a ModelProto.

    Raises OnnxError for what is no ONNX model, and for weights that lie outside of the model's folder.
    """
    proto, folder, name = _load(source)
    if not proto.HasField("graph") or not (proto.graph.output or proto.graph.node):
        raise OnnxError(f"reading {name}: not an ONNX model (it has no graph)")
    if proto.functions:
        proto = _inlined(proto, name)
    versions = {"" if item.domain == "ai.onnx" else item.domain: item.version for item in proto.opset_import}
    graph = proto.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    return Model(
        name=name,
        proto=proto,
        folder=folder,
        versions=versions,
        inputs=tuple(_port(info) for info in graph.input if info.name not in tensors),
        outputs=tuple(_port(info) for info in graph.output),
        nodes=tuple(read_node(node, versions) for node in graph.node),
        _tensors=tensors,
    )


def _load(source: str | Path | ModelProto | bytes) -> tuple[ModelProto, Path | None, str]:
    if isinstance(source, ModelProto):
        return source, None, source.graph.name or "model"
    if isinstance(source, bytes):
        return _parse(source, "the bytes of a model"), None, "model"
    path = Path(source)
    if not path.is_file():
        raise OnnxError(f"reading {path}: no such file")
    return _parse(path.read_bytes(), str(path)), path.parent, str(path)


def _parse(data: bytes, name: str) -> ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise OnnxError(f"reading {name}: not an ONNX model ({error})") from error


def _inlined(proto: ModelProto, name: str) -> ModelProto:
    try:
        return onnx.inliner.inline_local_functions(proto)
    except Exception as error:
        raise OnnxError(f"reading {name}: inlining the model's own functions: {error}") from error


def _port(info: onnx.ValueInfoProto) -> Port:
    kind = info.type.WhichOneof("value") or "tensor_type"
    if kind != "tensor_type":
        return Port(info.name, 0, None, kind)
    tensor = info.type.tensor_type
    if not tensor.HasField("shape"):
        return Port(info.name, tensor.elem_type, None)
    return Port(info.name, tensor.elem_type, tuple(_dimension(dim) for dim in tensor.shape.dim))


def _dimension(dim: Any) -> Dimension:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value)
    return str(dim.dim_param) or None if kind == "dim_param" else None


def read_tensor(proto: TensorProto, folder: Path | None) -> Tensor:
    """The numbers of a TensorProto; those outside of the file are mapped.

    Raises OnnxError where they are missing or lie outside of ``folder``, NoForm for element types torch lacks.
    """
    if proto.data_location == TensorProto.EXTERNAL:
        return from_array(_mapped(proto, folder), proto.data_type)
    if proto.data_type == TensorProto.STRING:
        raise NoForm("torch has no element type STRING")
    try:
        array = onnx.numpy_helper.to_array(proto)
    except Exception as error:
        raise OnnxError(f"reading the initializer {proto.name!r}: {error}") from error
    return from_array(array, proto.data_type)


def _mapped(proto: TensorProto, folder: Path | None) -> numpy.ndarray[Any, Any]:
    """The array of a tensor whose bytes lie in a file of their own."""
    what = f"reading the initializer {proto.name!r}"
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(f"{what}: its numbers lie in {location!r}; read the model from its file, not from memory")
    path = (folder / location).resolve()
    if not location or not path.is_relative_to(folder.resolve()):
        raise OnnxError(f"{what}: {location!r} lies outside of the model's folder")
    dtype = onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)
    shape = tuple(proto.dims)
    count = int(numpy.prod(shape, dtype=object)) if shape else 1
    try:
        offset = int(entries.get("offset", 0))
        size = path.stat().st_size
        if offset < 0 or min(shape, default=0) < 0 or offset + count * dtype.itemsize > size:
            raise OnnxError(f"{what}: {location} ends before its {count} elements of {dtype} at byte {offset}")
        if not count:
            return numpy.empty(shape, dtype)
        return numpy.memmap(path, dtype, mode="c", offset=offset, shape=shape or (1,)).reshape(shape)
    except (OSError, ValueError) as error:
        raise OnnxError(f"{what}: {location}: {error}") from error


def identifiers(names: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """A Python identifier for each name, unlike each other and those taken."""
    used, made = set(taken), {}
    for name in names:
        wanted = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "x"
        wanted = f"x_{wanted}" if wanted[0].isdigit() else wanted
        candidate, count = wanted, 0
        while candidate in used or keyword.iskeyword(candidate):
            count += 1
            candidate = f"{wanted}_{count}"
        used.add(candidate)
        made[name] = candidate
    return made
