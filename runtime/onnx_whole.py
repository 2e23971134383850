"""An ONNX model that onnxruntime runs whole: one with inputs or outputs torch can't hold (sequences, strings)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import torch
from torch import Tensor

from attnc.runtime.onnx_region import open_session, to_value


class OnnxruntimeModel:
    """Call it with the inputs by name: tensors, lists of tensors for sequences, numpy arrays for strings.

    Returns the outputs in order: tensors, lists, and numpy arrays for strings. Raises RuntimeError where onnxruntime
    refuses the model or the inputs.
    """

    def __init__(self, source: str | bytes) -> None:
        self._session = open_session(source, torch.get_num_threads())
        self.inputs = [given.name for given in self._session.get_inputs()]
        self.outputs = [given.name for given in self._session.get_outputs()]

    def __call__(self, **inputs: Any) -> tuple[Any, ...]:
        if unknown := [name for name in inputs if name not in self.inputs]:
            raise RuntimeError(f"the model has no input {unknown[0]!r}; its inputs are {', '.join(self.inputs)}")
        feeds = {name: _passed(value) for name, value in inputs.items()}
        try:
            found = self._session.run(self.outputs, feeds)
        except Exception as error:
            raise RuntimeError(f"onnxruntime says {error}") from error
        return tuple(_returned(value) for value in found)


def _passed(value: Any) -> Any:
    if isinstance(value, Tensor):
        return to_value(value).numpy() if value.dtype != torch.bfloat16 else to_value(value)
    return [_passed(item) for item in value] if isinstance(value, list) else value


def _returned(value: Any) -> Any:
    if isinstance(value, list):
        return [_returned(item) for item in value]
    if isinstance(value, Mapping) or not isinstance(value, numpy.ndarray) or value.dtype.kind not in "biufc":
        return value
    return torch.from_numpy(value)
