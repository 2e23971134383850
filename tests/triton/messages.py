"""What goes through the pipe between a test and an interpreter's process: jobs, answers and the tensors in them.

``torch.save`` keeps what a kernel must see: strides, offsets, and which tensors share memory.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Job:
    """A call of ``function`` in a module given as its text, or by its name."""

    function: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    text: str | None = None
    module: str | None = None


@dataclass(frozen=True)
class Failure:
    """An exception in the other process: its class's name, and the traceback."""

    kind: str
    text: str


def pack(message: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(message, buffer)
    return buffer.getvalue()


def unpack(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), weights_only=False)
