"""FX graph → IR graph, one op per node, nothing lost.

Node names are value names. ``Op.meta`` keeps what only torch needs: ``fx`` (the node's metadata), ``target`` (the
callable) and ``template`` (the argument trees, see :mod:`.arguments`). ``Graph.meta`` keeps the metadata of the inputs
and the output, and the fake mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.arguments import template, to_ir
from attnc.compiler.frontends.torch.location import location
from attnc.compiler.frontends.torch.names import op_name
from attnc.compiler.frontends.torch.sizes import DIMS, NoSize, SizeTable, given_names, size_names
from attnc.compiler.frontends.torch.types import type_of
from attnc.ir.graph import Graph
from attnc.ir.types import Type
from attnc.ir.values import Op, Value

SOURCE = "attnc_source"
"""Key of an input's metadata: the name its user knows it by (``input_ids``)."""


class ImportFailure(Exception):
    """A graph the IR cannot hold; the message says which node and why."""


def import_graph(gm: torch.fx.GraphModule, *, name: str = "graph") -> Graph:
    """The IR of a functional ATen graph.

    Raises :class:`ImportFailure` for a node kind that export never leaves (call_module, call_method) or a shape that
    is no expression over positive sizes.
    """
    return _Import(gm, name).run()


def check_importable(gm: torch.fx.GraphModule) -> None:
    """Raises :class:`ImportFailure` where :func:`import_graph` would because of a shape."""
    importer = _Import(gm, "")
    for node in gm.graph.nodes:
        importer._type(node, node.meta.get("val"))


class _Import:
    def __init__(self, gm: torch.fx.GraphModule, name: str) -> None:
        self.gm = gm
        self.graph = Graph(name)
        self.values: dict[torch.fx.Node, Value] = {}
        placeholders = gm.graph.find_nodes(op="placeholder")
        inputs = [(str(node.meta.get(SOURCE, node.name)), node.meta.get("val")) for node in placeholders]
        self.mode = private.fake_mode_of([node.meta.get("val") for node in gm.graph.nodes])
        given: dict[str, str] = {}
        for node in placeholders:
            given |= given_names(node.meta.get("val"), node.meta.get(DIMS, ()))
        self.sizes = SizeTable(size_names(inputs, getattr(self.mode, "shape_env", None)) | given)

    def run(self) -> Graph:
        visit: dict[str, Callable[[torch.fx.Node], None]] = {
            "placeholder": self._placeholder,
            "get_attr": self._constant,
            "call_function": self._call,
            "output": self._output,
        }
        self.graph.meta["inputs"] = {}
        for node in self.gm.graph.nodes:
            if node.op not in visit:
                raise ImportFailure(f"%{node.name}: a {node.op} node of {node.target}")
            visit[node.op](node)
        self.graph.sizes = self.sizes.sizes
        self.graph.meta["fake_mode"] = self.mode
        return self.graph

    def _placeholder(self, node: torch.fx.Node) -> None:
        self.values[node] = self.graph.add_input(node.name, self._type(node, node.meta.get("val")))
        self.graph.meta["inputs"][node.name] = {"fx": dict(node.meta), "target": node.target, "args": node.args}

    def _constant(self, node: torch.fx.Node) -> None:
        key, payload = str(node.target), self._attribute(str(node.target))
        self.graph.constants[key] = payload
        op = self._add(node, "ir.constant", (), self._type(node, node.meta.get("val", payload)))
        op.attrs["name"] = key

    def _call(self, node: torch.fx.Node) -> None:
        op = self._add(node, op_name(node.target), node.args, self._type(node, node.meta.get("val")))
        op.meta["target"] = node.target
        op.meta["template"] = (template(node.args), template(node.kwargs))

    def _output(self, node: torch.fx.Node) -> None:
        results = node.args[0] if isinstance(node.args[0], tuple | list) else (node.args[0],)
        self.graph.outputs = tuple(to_ir(item, self.values.__getitem__) for item in results)
        self.graph.meta["output"] = {"fx": dict(node.meta), "name": node.name, "template": template(node.args[0])}

    def _add(self, node: torch.fx.Node, name: str, args: tuple[Any, ...], type: Type) -> Op:
        op = self.graph.create(
            name,
            [to_ir(item, self.values.__getitem__) for item in args],
            [type],
            kwargs={key: to_ir(item, self.values.__getitem__) for key, item in node.kwargs.items()},
            loc=location(node.meta),
            names=[node.name],
        )
        op.meta["fx"] = dict(node.meta)
        self.values[node] = op.result
        return op

    def _type(self, node: torch.fx.Node, value: Any) -> Type:
        try:
            return type_of(value, self.sizes)
        except NoSize as error:
            raise ImportFailure(f"%{node.name} ({node.target}): {error}") from error

    def _attribute(self, path: str) -> Any:
        found: Any = self.gm
        for part in path.split("."):
            found = getattr(found, part)
        return found
