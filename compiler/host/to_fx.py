"""IR graph → FX graph: what was imported comes back node for node, what passes made is issued by name.

``attn.*`` ops are lowered through a callback, because only the compiler knows what it planned for them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.arguments import to_fx
from attnc.compiler.frontends.torch.names import PYTHON, op_name, resolve
from attnc.compiler.host.metadata import carried
from attnc.ir.graph import Graph
from attnc.ir.types import NoneType
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Lowered:
    """The call an ``attn.*`` op becomes: one node whose tuple result is read per IR result, in order."""

    target: Any
    args: tuple[Any, ...]
    """IR arguments (values included)."""
    single: bool = False
    """The node itself is the only IR result."""


Emit = Callable[..., torch.fx.Node]
"""``emit(aten op without its dialect, *arguments, **keywords)``: one node. ``origin``, metadata it takes over."""


@dataclass(frozen=True)
class Expanded:
    """The nodes an ``attn.*`` op becomes: ``build`` makes them and gives that of the result."""

    build: Callable[[Emit, Callable[[Value], torch.fx.Node]], torch.fx.Node]


Lower = Callable[[Op], Lowered | Expanded]


def export_graph(graph: Graph, lower: Lower | None = None) -> torch.fx.GraphModule:
    """The FX graph of an IR graph.

    ``lower`` says what an ``attn.*`` op becomes. Example values (``meta["val"]``) of new nodes come from running them
    in the fake mode of the import. Raises LookupError for an op torch has no callable for, ValueError for an op that
    lost metadata it needs.
    """
    return _Export(graph, lower).run()


class _Export:
    def __init__(self, graph: Graph, lower: Lower | None) -> None:
        self.graph = graph
        self.lower = lower
        self.fx = torch.fx.Graph()
        self.nodes: dict[Value, torch.fx.Node] = {}
        self.mode = graph.meta.get("fake_mode")

    def run(self) -> torch.fx.GraphModule:
        for value in self.graph.inputs:
            self._input(value)
        for op in self.graph.ops:
            if op.name == "ir.constant":
                self._constant(op)
            elif op.dialect == "attn":
                self._lowered(op)
            else:
                self._call(op)
        self._output()
        used = {str(node.target) for node in self.fx.find_nodes(op="get_attr")}
        root = {key: payload for key, payload in self.graph.constants.items() if key in used}
        return torch.fx.GraphModule(root, self.fx)

    def _input(self, value: Value) -> None:
        known = self.graph.meta.get("inputs", {}).get(value.name, {})
        node = self.fx.create_node(
            "placeholder", known.get("target", value.name), known.get("args", ()), name=value.name
        )
        node.meta = dict(known.get("fx", {}))
        self.nodes[value] = node

    def _constant(self, op: Op) -> None:
        key = str(op.attrs["name"])
        node = self.fx.create_node("get_attr", key, name=op.result.name)
        node.meta = dict(op.meta.get("fx", {}))
        if "fx" not in op.meta and isinstance(payload := self.graph.constants[key], torch.Tensor):
            node.meta["val"] = self.mode.from_tensor(payload) if self.mode is not None else payload
        self.nodes[op.result] = node

    def _call(self, op: Op) -> None:
        like_args, like_kwargs = op.meta.get("template", ((), {}))
        likes = [*like_args, *[None] * len(op.args)]
        args = tuple(to_fx(a, self.nodes.__getitem__, like) for a, like in zip(op.args, likes, strict=False))
        kwargs = {key: to_fx(a, self.nodes.__getitem__, like_kwargs.get(key)) for key, a in op.kwargs.items()}
        target = op.meta["target"] if _imported(op) else resolve(op.name)
        node = self.fx.create_node("call_function", target, args, kwargs, name=op.results[0].name)
        node.meta = _meta(op)
        self._fill(node, op)
        self.nodes[op.results[0]] = node

    def _lowered(self, op: Op) -> None:
        if self.lower is None:
            raise LookupError(f"{op.name} at {op.loc}: no lowering was given for it")
        call = self.lower(op)
        if isinstance(call, Expanded):
            self._expanded(op, call)
            return
        args = tuple(to_fx(a, self.nodes.__getitem__) for a in call.args)
        whole = self.fx.create_node("call_function", call.target, args, name=f"{op.results[0].name}_call")
        whole.meta = _meta(op)
        self._fill(whole, op)
        if call.single:
            self.nodes[op.results[0]] = whole
            return
        for position, value in enumerate(op.results):
            part = self.fx.create_node("call_function", PYTHON["getitem"], (whole, position), name=value.name)
            part.meta = _meta(op)
            if isinstance(whole.meta.get("val"), tuple | list):
                part.meta["val"] = whole.meta["val"][position]
            self.nodes[value] = part

    def _expanded(self, op: Op, call: Expanded) -> None:
        meta = _meta(op)

        def emit(name: str, *args: Any, origin: dict[str, Any] | None = None, **kwargs: Any) -> torch.fx.Node:
            label = f"{op.result.name}_{name.split('.')[0]}"
            node = self.fx.create_node("call_function", resolve(f"aten.{name}"), args, kwargs, name=label)
            node.meta = meta.copy() if origin is None else carried(origin)
            self._fill(node, op)
            return node

        self.nodes[op.result] = call.build(emit, self.nodes.__getitem__)

    def _fill(self, node: torch.fx.Node, op: Op) -> None:
        """``meta["val"]`` of a node that was not imported with one."""
        if "val" in node.meta or _imported(op) or self.mode is None or isinstance(op.results[0].type, NoneType):
            return
        inputs = [n.meta.get("val") for n in node.all_input_nodes]
        if any(value is None for value in inputs):
            return
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        tensors = isinstance(node.target, torch._ops.OpOverload)
        with private.quiet_guards(self.mode), self.mode if tensors else nullcontext(), torch.no_grad():
            node.meta["val"] = _callable(node)(*args, **kwargs)

    def _output(self) -> None:
        known = self.graph.meta.get("output", {})
        like = known.get("template", ())
        results = to_fx(self.graph.outputs, self.nodes.__getitem__, like if isinstance(like, tuple | list) else ())
        node = self.fx.create_node("output", "output", (results,), name=known.get("name", "output"))
        node.meta = dict(known.get("fx", {}))


def _meta(op: Op) -> dict[str, Any]:
    """The node's metadata: what was imported, else what still holds of the op it replaces (``Op.meta["origin"]``)."""
    if _imported(op):
        return dict(op.meta["fx"])
    origin = op.meta.get("origin", op.meta.get("fx", {}))
    return carried(origin)


def _callable(node: torch.fx.Node) -> Callable[..., Any]:
    assert callable(node.target)
    return node.target


def _imported(op: Op) -> bool:
    """Whether the op is still the call it was imported as."""
    return "target" in op.meta and op_name(op.meta["target"]) == op.name
