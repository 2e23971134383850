"""Where an op of the imported graph comes from: the file and node, kept through tracing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.location import PLACE


@contextmanager
def placed(file: str, node: Node) -> Iterator[None]:
    """Ops traced meanwhile carry the node's name and scope."""
    with private.annotated({PLACE: (file, str(node), node.scope)}):
        yield
