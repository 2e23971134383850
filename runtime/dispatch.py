"""Typed doors to ``torch.library``, whose methods carry no annotations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch

NAMESPACE = "attnc"


class OpLibrary:
    """Definitions and kernels in torch's dispatcher, under our namespace; they last as long as this object."""

    def __init__(self, kind: Literal["FRAGMENT", "IMPL"], namespace: str = NAMESPACE) -> None:
        self.namespace = namespace
        self.library = torch.library.Library(namespace, kind)  # type: ignore[no-untyped-call]

    def define(self, schema: str) -> None:
        """Declare an op, one that takes operands of any strides: Inductor then copies none to make strides fit."""
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
        self.library.define(schema, tags=tags)  # type: ignore[no-untyped-call]

    def kernel(self, name: str, function: Callable[..., Any], key: str = "CompositeExplicitAutograd") -> None:
        """Give an op a kernel; the default key stands for every device that has none of its own."""
        self.library.impl(name, function, key)  # type: ignore[no-untyped-call]

    def fake(self, name: str, function: Callable[..., Any]) -> None:
        """Give an op its shapes and dtypes, for tracing."""
        torch.library.register_fake(f"{self.namespace}::{name}", function, lib=self.library)

    def dispatched(self, name: str, mode: type, function: Callable[..., Any]) -> None:
        """Say what an op is under a dispatch mode: ``function(mode, op, types, args, kwargs)``."""
        torch.library.register_torch_dispatch(f"{self.namespace}::{name}", mode, function, lib=self.library)

    def autograd(self, name: str, backward: Callable[..., Any], setup_context: Callable[..., Any]) -> None:
        """Give an op its gradient."""
        torch.library.register_autograd(
            f"{self.namespace}::{name}", backward, setup_context=setup_context, lib=self.library
        )
