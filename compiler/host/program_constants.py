"""The constants of a host program: tensors by name, each stored once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from attnc.compiler.frontends.torch.dtypes import TO_IR
from attnc.runtime.host_program import ConstantInfo


@dataclass
class Constants:
    """Tensors by name, detached and contiguous; equal views of the same memory are one."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    _names: dict[Any, str] = field(default_factory=dict)

    def add(self, wanted: str, tensor: torch.Tensor) -> str:
        """The name of a tensor: of the same one where it is known, else ``wanted``, ``wanted_1``, …"""
        place = tensor.data_ptr()
        key = (place, tensor.dtype, tensor.shape, tensor.stride()) if place else id(tensor)
        if key not in self._names:
            name, count = wanted, 0
            while name in self.tensors:
                count += 1
                name = f"{wanted}_{count}"
            self._names[key] = name
            self.tensors[name] = tensor.detach().contiguous()
        return self._names[key]

    def infos(self) -> tuple[ConstantInfo, ...]:
        """What a program says of them."""
        return tuple(ConstantInfo(n, _dtype(t.dtype), tuple(t.shape)) for n, t in self.tensors.items())


def _dtype(dtype: torch.dtype) -> str:
    return TO_IR[dtype].value if dtype in TO_IR else str(dtype).removeprefix("torch.")
