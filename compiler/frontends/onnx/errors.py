"""What can be wrong with an ONNX model, and what merely has no form here."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attnc.compiler.frontends.onnx.node import Node


class OnnxError(Exception):
    """A model that is wrong or can't be read; the message says what was being done, which node, and what to do."""


class TorchRefuses(OnnxError):
    """A node whose form torch refuses for its inputs: the model is wrong, or the form is."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.node = node


class NoForm(Exception):
    """An op that has no form in torch, or none for these inputs: it is left to onnxruntime. The message says why."""


def wrong(node: Node, what: str) -> OnnxError:
    """The error for a node whose inputs or attributes break the operator's specification."""
    return OnnxError(f"importing {node}: {what}")
