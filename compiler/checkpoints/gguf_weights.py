"""The tensors of a GGUF file by the names and in the layout of a transformers model, dequantised to float32.

Names and layouts are undone by transformers' own code, which is not its public API: all use of it is here and in
``gguf_config.py``. It puts back llama.cpp's order of rotary features, norm weights stored plus one, transposed and
merged matrices; but it skips a tensor it doesn't know, and leaves one it doesn't find at random. Both are errors here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from attnc.compiler.checkpoints.errors import CheckpointError
from attnc.compiler.checkpoints.gguf_header import Header, TensorEntry


def convert_weights(path: Path, header: Header, raw: dict[str, Any], model: Any) -> dict[str, np.ndarray]:
    """The values of every parameter and kept buffer of ``model``, tied ones once.

    ``raw`` is the dictionary the config was made from. Raises CheckpointError for a tensor without a place in the
    model, one that is missing or misshapen, one stored in an unknown way, and a file that is cut.
    """
    found, unknown = _translate(header, raw, model, _dequantised(path, header))
    if unknown:
        kind = type(model).__name__
        raise CheckpointError(f"{path}: {len(unknown)} tensors have no place in a {kind}, such as {unknown[0]}")
    weights = {}
    for name, shape in _wanted(model).items():
        if name not in found:
            raise CheckpointError(f"{path}: has no tensor for {name} of a {type(model).__name__}")
        if found[name].shape != shape:
            raise CheckpointError(f"{path}: {name} is of shape {found[name].shape} where the model has {shape}")
        weights[name] = np.ascontiguousarray(found[name], dtype=np.float32)
    return weights


def _translate(
    header: Header, raw: dict[str, Any], model: Any, tensors: Iterator[tuple[str, np.ndarray]]
) -> tuple[dict[str, Any], list[str]]:
    """Values by the model's names, and the GGUF names that mean nothing to it."""
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor, get_gguf_hf_weights_map

    kind: Any = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)
    processor = kind(config=raw)
    names = get_gguf_hf_weights_map(model, processor)
    parsed: dict[str, dict[str, Any]] = {"tensors": {}}
    unknown = []
    for name, values in tensors:
        done = processor.process(values, name, tensor_key_mapping=names, parsed_parameters=parsed)
        if done.name in names:
            parsed["tensors"][names[done.name]] = done.weights
        elif done.name is not None:  # None: the processor put it where it belongs
            unknown.append(name)
    return parsed["tensors"], unknown


def _wanted(model: Any) -> dict[str, tuple[int, ...]]:
    """Name and shape of each tensor of the model's state, a shared one under its first name."""
    first: dict[int, tuple[str, tuple[int, ...]]] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        first.setdefault(id(value), (name, tuple(value.shape)))
    return dict(first.values())


def _dequantised(path: Path, header: Header) -> Iterator[tuple[str, np.ndarray]]:
    """Name and float32 values of each tensor; a bar shows progress on a terminal."""
    from gguf import GGMLQuantizationType, dequantize
    from transformers.utils.logging import tqdm

    data = np.memmap(path, dtype=np.uint8, mode="r")
    for tensor in tqdm(header.tensors, desc=f"dequantising {path.name}", disable=None):
        try:
            kind = GGMLQuantizationType(tensor.kind)
            yield tensor.name, dequantize(_stored(data, tensor, kind), kind)
        except (NotImplementedError, ValueError) as error:
            raise CheckpointError(f"{path}: {tensor.name}: {error}") from error


def _stored(data: np.ndarray, tensor: TensorEntry, kind: Any) -> np.ndarray:
    """The bytes of a tensor, its rows along the last dimension. Raises ValueError where the file is cut."""
    from gguf import quant_shape_to_byte_shape

    shape = quant_shape_to_byte_shape(tensor.shape, kind)
    stop = tensor.start + int(np.prod(shape, dtype=object))
    if stop > len(data):
        raise ValueError(f"the file has {len(data)} bytes and the tensor ends at {stop}: it is cut")
    return data[tensor.start : stop].reshape(shape)
