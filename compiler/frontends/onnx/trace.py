"""Running a model's nodes on values: on fakes while ``torch.export`` traces, so that what is left is an ATen graph.

A node whose inputs are all known numbers is computed at once. Integers that depend on sizes are carried as formulas
(:mod:`.arithmetic`). Everything else is called in its ATen form. A node without one is left out together with what
depends on it, until the caller runs it as part of a region (:mod:`.regions`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch import Tensor

from attnc.compiler.frontends.onnx import arithmetic
from attnc.compiler.frontends.onnx.errors import NoForm, OnnxError, TorchRefuses, wrong
from attnc.compiler.frontends.onnx.known import MOST_ELEMENTS, Constant, Sizes, Value, materialise, untraced
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops import bodies, control, entry_of, unsigned
from attnc.compiler.frontends.onnx.place import placed
from attnc.compiler.frontends.torch import private

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


class Missing:
    """The value of a node that was left out."""


MISSING = Missing()
"""Of a node that has no form: it will be part of a region."""
UNTYPED = Missing()
"""Of a region, where it is no tensor of a known rank: what reads it belongs to the region as well."""

Group = tuple[Node, ...]
CallGroup = Callable[[Group, Mapping[str, Any]], Mapping[str, Any]]


def has_form(node: Node) -> bool:
    """Whether an operator has a form for some inputs at least."""
    if entry_of(node.domain, node.op, node.version) is not None or arithmetic.knows(node):
        return True
    return (node.op in control.FORMS and not node.domain) or bodies.has_function(node)


NO_FORM = "the operator has no form in torch"


class Tracer:
    """Calls nodes, and groups of nodes by onnxruntime, in order.

    ``left`` collects the nodes that have no form, with the reason; what reads their results is left out silently.
    """

    def __init__(self, versions: Mapping[str, int], file: str) -> None:
        self.versions = versions
        self.file = file
        self.left: dict[Node, str] = {}

    def run(self, items: Iterable[Node | Group], values: dict[str, Any], call_group: CallGroup | None = None) -> None:
        """Call each item and enter its results in ``values``, by name.

        A node that turns out to have no form is called as a group of its own, so that what follows is seen too.
        """
        for item in items:
            if isinstance(item, Node):
                results = zip(item.outputs, self._results(item, values), strict=False)
                values.update((name, result) for name, result in results if name)
            if call_group is not None and (not isinstance(item, Node) or item in self.left):
                values.update(call_group((item,) if isinstance(item, Node) else item, values))

    def _results(self, node: Node, values: Mapping[str, Any]) -> tuple[Any, ...]:
        inputs = [self._input(node, name, values) for name in node.inputs]
        nothing = (MISSING,) * len(node.outputs)
        if any(value is UNTYPED for value in inputs):
            self.left[node] = "it reads a value of unknown rank"
            return nothing
        if any(value is MISSING for value in inputs):
            return nothing
        try:
            with placed(self.file, node):
                return self.call(node, inputs, values)
        except NoForm as reason:
            self.left[node] = str(reason)
        except OnnxError:
            raise
        except private.DATA_DEPENDENT as error:
            self.left[node] = f"a size in it is data ({str(error).splitlines()[0]})"
        except NotImplementedError as error:
            self.left[node] = f"torch has no kernel for it ({str(error).splitlines()[0]})"
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise TorchRefuses(node, f"importing {node}: {_described(node, inputs)}: {error}") from error
        return nothing

    @staticmethod
    def _input(node: Node, name: str, values: Mapping[str, Any]) -> Any:
        if not name:
            return None
        if name not in values:
            raise wrong(node, f"no node before it makes its input {name!r}")
        return values[name]

    def call(self, node: Node, inputs: list[Value], outer: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results of one node. Raises NoForm where it has no form in torch."""
        if not bodies.is_known_version(node):
            raise NoForm(f"its meaning in operator set {node.version}")
        if node.op in control.FORMS and not node.domain:
            return control.FORMS[node.op](node, inputs, lambda graph, given: self.subgraph(graph, {**outer, **given}))
        if (sizes := arithmetic.apply(node, inputs)) is not None:
            return sizes
        entry = entry_of(node.domain, node.op, node.version)
        if entry is None:
            return self._expanded(node, inputs)
        if not entry.stored:
            entry = unsigned.entry_for(node, inputs, entry)
        if self._is_foldable(node, inputs):
            with untraced():
                return tuple(_known(result) for result in _as_tuple(self._call(entry, node, inputs)))
        return _as_tuple(self._call(entry, node, inputs))

    @staticmethod
    def _call(entry: Any, node: Node, inputs: list[Value]) -> Any:
        given = [
            value
            if entry.known is None or place in entry.known or value is None or isinstance(value, list)
            else materialise(value)
            for place, value in enumerate(inputs)
        ]
        return entry.form(node, *given)

    @staticmethod
    def _is_foldable(node: Node, inputs: list[Value]) -> bool:
        """Whether a node may be computed now: all it reads are small constants, and it draws nothing at random."""
        if node.op in RANDOM or not all(value is None or isinstance(value, Constant) for value in inputs):
            return False
        return sum(math.prod(value.shape) for value in inputs if isinstance(value, Constant)) <= MOST_ELEMENTS

    def subgraph(self, graph: Any, values: dict[str, Any]) -> tuple[Any, ...]:
        """The outputs of a graph inside of a node, which sees the values around it."""
        nodes = bodies.nodes_of(graph, self.versions)
        values |= bodies.constants_of(graph)
        inner = Tracer(self.versions, self.file)
        inner.run(nodes, values)
        return self._outputs(inner, [info.name for info in graph.output], values)

    def _expanded(self, node: Node, inputs: list[Value]) -> tuple[Any, ...]:
        """A node that its operator's specification writes out in other operators."""
        body = bodies.function_of(node, inputs, self.versions)
        if body is None:
            raise NoForm(NO_FORM)
        inner = Tracer(body.versions, self.file)
        values: dict[str, Any] = dict(zip(body.inputs, [*inputs, *[None] * len(body.inputs)], strict=False))
        inner.run(body.nodes, values)
        wanted = [name if node.makes(place) else "" for place, name in enumerate(body.outputs)]
        return self._outputs(inner, wanted, values | {"": None})

    @staticmethod
    def _outputs(inner: Tracer, names: Iterable[str], values: Mapping[str, Any]) -> tuple[Any, ...]:
        if inner.left:
            node, reason = next(iter(inner.left.items()))
            raise NoForm(f"within it {node.op}: {reason}")
        return tuple(values[name] for name in names)


def _as_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _known(result: Any) -> Any:
    """What was computed outside of tracing, as a constant."""
    if isinstance(result, Tensor):
        return Constant(result)
    return [_known(item) for item in result] if isinstance(result, list) else result


def _described(node: Node, inputs: list[Value]) -> str:
    """The inputs of a node by name and type."""
    pairs = zip(node.inputs, inputs, strict=True)
    return ", ".join(f"{name} is {_type(value)}" for name, value in pairs if value is not None) or "no inputs"


def _type(value: Value) -> str:
    if isinstance(value, list):
        return "a sequence"
    if isinstance(value, Tensor | Constant | Sizes):
        return (
            f"{str(value.dtype).removeprefix('torch.')}{[str(d) if not isinstance(d, int) else d for d in value.shape]}"
        )
    return "left out"
