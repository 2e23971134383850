"""Run an IR graph op by op: the reference every rewrite is compared with.

Host ops run through torch by name; ``attn.attention`` runs on the ATen reference of its plan, never on a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from attnc.compiler.frontends.torch.arguments import to_fx
from attnc.compiler.frontends.torch.dtypes import TO_TORCH
from attnc.compiler.frontends.torch.names import op_name, resolve
from attnc.compiler.host.lower_rope import RopeProgram
from attnc.compiler.planning.plan import plan_attention
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType, Type
from attnc.ir.values import Arg, Op, Value
from attnc.runtime import reference

NARROW = (torch.float32, torch.bfloat16, torch.float16)


class Interpreter:
    """Evaluates a graph and keeps every value it computed."""

    def __init__(self, graph: Graph, *, wide: bool = False) -> None:
        """``wide``: every float, dtype argument and constant becomes float64; stored values stay what they are."""
        self.graph = graph
        self.wide = wide
        self.values: dict[Value, Any] = {}
        self._ropes = self._rope_program()

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        if len(inputs) != len(self.graph.inputs):
            raise ValueError(f"graph @{self.graph.name} takes {len(self.graph.inputs)} inputs, got {len(inputs)}")
        self._ropes = self._rope_program()  # tables of other inputs are of no use
        self.values = {v: self._widened(x) for v, x in zip(self.graph.inputs, inputs, strict=True)}
        for op in self.graph.ops:
            self._step(op)
        return [self._read(output) for output in self.graph.outputs]

    def _step(self, op: Op) -> None:
        if op.name == "ir.constant":
            self.values[op.result] = self._widened(_tensor(self.graph.constants[str(op.attrs["name"])]))
        elif op.name == "attn.attention":
            self.values.update(zip(op.results, self._attention(op), strict=False))
        elif op.name == "attn.rope":
            self.values[op.result] = self._rope(op)
        else:
            target = (
                op.meta["target"] if "target" in op.meta and op_name(op.meta["target"]) == op.name else resolve(op.name)
            )
            args, kwargs = self._call_arguments(op)
            if op.dialect == "onnx":  # onnxruntime takes what the file says, in float64 too
                args = [[_narrowed(x, v.type) for x, v in zip(args[0], op.operands, strict=True)], *args[1:]]
            result = self._widened(target(*args, **kwargs))
            for value in op.results:
                self.values[value] = result

    def _attention(self, op: Op) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v, sides, sizes = (self._read(a) for a in op.args)
        dtype = torch.float64 if self.wide else None
        return reference.attention(plan_attention(op), q, k, v, list(sides), [int(n) for n in sizes], dtype=dtype)

    def _rope_program(self) -> RopeProgram:
        return RopeProgram(rounded=lambda angle: angle.float().double()) if self.wide else RopeProgram()

    def _rope(self, op: Op) -> torch.Tensor:
        def call(name: str, *args: Any, origin: object = None, **kwargs: Any) -> Any:
            return resolve(f"aten.{name}")(*args, **(tree_map(_wide_dtype, kwargs) if self.wide else kwargs))

        result: torch.Tensor = self._ropes.run(op, call, self.values.__getitem__)
        return result

    def _call_arguments(self, op: Op) -> tuple[list[Any], dict[str, Any]]:
        likes, named = op.meta.get("template", ((), {}))
        padded = [*likes, *[None] * (len(op.args) - len(likes))]
        args = [self._read(a, like) for a, like in zip(op.args, padded, strict=True)]
        return args, {key: self._read(a, named.get(key)) for key, a in op.kwargs.items()}

    def _read(self, arg: Arg, like: Any = None) -> Any:
        found = to_fx(arg, self.values.__getitem__, like)
        return tree_map(_wide_dtype, found) if self.wide else found

    def _widened(self, result: Any) -> Any:
        return tree_map(_wide_tensor, result) if self.wide else result


def _narrowed(x: Any, type: Type) -> Any:
    """A tensor in the dtype its value is declared with."""
    return x.to(TO_TORCH[type.dtype]) if isinstance(type, TensorType) else x


def _wide_dtype(leaf: Any) -> Any:
    return torch.float64 if isinstance(leaf, torch.dtype) and leaf in NARROW else leaf


def _wide_tensor(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.dtype in NARROW else leaf


def _tensor(payload: Any) -> Any:
    return payload if isinstance(payload, torch.nn.Module | torch.Tensor) else torch.as_tensor(payload)
