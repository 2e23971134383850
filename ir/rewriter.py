"""Changes to a graph that keep it valid: insert, replace, erase what nobody reads, restore order, dominance.

Nothing here knows an op by name; what may be erased or moved is ``ir.ops.effects``'s.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from attnc.ir.graph import Graph
from attnc.ir.graphview import Node, to_networkx
from attnc.ir.ops import REGISTRY
from attnc.ir.ops.effects import is_effect, is_pure
from attnc.ir.types import Type
from attnc.ir.values import Arg, Location, Op, Value


class Rewriter:
    """Edits one graph; ``changed`` says whether any edit was made."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.changed = False

    def insert_before(
        self,
        anchor: Op,
        name: str,
        args: Iterable[Arg],
        result_types: Iterable[Type] | None = None,
        *,
        kwargs: Mapping[str, Arg] | None = None,
        attrs: Mapping[str, Any] | None = None,
        names: Iterable[str] | None = None,
        loc: Location | None = None,
    ) -> Op:
        """A new op before ``anchor``, with its location unless ``loc`` is given.

        Without ``result_types`` the op's declaration infers them. Raises ValueError where it can't.
        """
        args = tuple(args)
        types = tuple(result_types) if result_types is not None else infer_types(name, args, attrs or {})
        self.changed = True
        return self.graph.create(
            name, args, types, kwargs=kwargs, attrs=attrs, names=names, loc=loc or anchor.loc, before=anchor
        )

    def replace(self, op: Op, values: Sequence[Value]) -> None:
        """Make users of ``op``'s results read ``values``, and erase ``op`` unless it has side effects.

        Raises ValueError where the counts differ.
        """
        if len(values) != len(op.results):
            raise ValueError(f"replacing {op.name}: {len(values)} values for {len(op.results)} results")
        for old, new in zip(op.results, values, strict=True):
            self.graph.replace_uses(old, new)
        if is_pure(op) and not any(result in values for result in op.results):
            self.graph.erase(op)
        self.changed = True

    def replace_value(self, old: Value, new: Value) -> None:
        """Make every user of ``old`` read ``new``."""
        self.graph.replace_uses(old, new)
        self.changed = True

    def erase_dead(self) -> int:
        """Erase pure ops nobody reads, and those that become so; the number erased."""
        erased = erase_dead(self.graph)
        self.changed |= bool(erased)
        return erased


def infer_types(name: str, args: tuple[Arg, ...], attrs: Mapping[str, Any]) -> tuple[Type, ...]:
    """Result types by an op's declaration. Raises ValueError where it is not declared or has no rule."""
    definition = REGISTRY.get(name)
    if definition is None or definition.infer is None:
        raise ValueError(f"{name} has no declared result rule; give its result types")
    return definition.infer(args, attrs)


def erase_dead(graph: Graph) -> int:
    """Erase pure ops nobody reads, last first; ops with side effects and random ops stay. The number erased."""
    outputs = set(graph.output_values())
    kept: list[Op] = []
    for op in reversed(graph.ops):
        read = any(value.uses or value in outputs for value in op.results)
        if read or not is_pure(op):
            kept.append(op)
        else:
            op.set_args((), {})
    erased = len(graph.ops) - len(kept)
    graph.ops = kept[::-1]
    return erased


def is_ordered(graph: Graph) -> bool:
    """Whether every op stands below the producers of what it reads."""
    defined = set(graph.inputs)
    for op in graph.ops:
        if not defined.issuperset(op.operands):
            return False
        defined.update(op.results)
    return True


def sort_ops(graph: Graph) -> None:
    """Restore order after insertions: the stable topological order, side effects kept in theirs.

    Raises ValueError where values depend on each other in a cycle.
    """
    place = {op: i for i, op in enumerate(graph.ops)}
    waiting = {op: _requirements(op, place) for op in graph.ops}
    effects = [op for op in graph.ops if is_effect(op)]
    for before, after in pairwise(effects):
        waiting[after].add(before)
    users: dict[Op, list[Op]] = {op: [] for op in graph.ops}
    for op, needed in waiting.items():
        for producer in needed:
            users[producer].append(op)
    ready = [place[op] for op, needed in waiting.items() if not needed]
    heapq.heapify(ready)
    order: list[Op] = []
    while ready:
        op = graph.ops[heapq.heappop(ready)]
        order.append(op)
        for user in users[op]:
            waiting[user].discard(op)
            if not waiting[user]:
                heapq.heappush(ready, place[user])
    if len(order) != len(graph.ops):
        stuck = next(op for op, needed in waiting.items() if needed)
        raise ValueError(f"graph @{graph.name} has a cycle through {stuck.name}")
    graph.ops = order


def _requirements(op: Op, place: Collection[Op]) -> set[Op]:
    return {value.op for value in op.operands if value.op is not None and value.op in place}


def dominators(graph: Graph) -> dict[Node, Node | None]:
    """The immediate dominator of each op and input along data flow.

    Every path from an input or an op without operands to the node passes there. None where there is no such node.
    """
    view = to_networkx(graph)
    return _dominators(view, [n for n in view if view.in_degree(n) == 0])


def postdominators(graph: Graph) -> dict[Node, Node | None]:
    """The immediate post-dominator of each op and input; None where there is none.

    Every path from the node to an output or to an op nobody reads passes there.
    """
    view = to_networkx(graph)
    ends = {v.op or v for v in graph.output_values()} | {n for n in view if view.out_degree(n) == 0}
    return _dominators(view.reverse(copy=True), [n for n in view if n in ends])


def _dominators(view: Any, roots: Sequence[Node]) -> dict[Node, Node | None]:
    import networkx

    entry = object()
    view.add_edges_from((entry, root) for root in roots)
    found = networkx.immediate_dominators(view, entry)
    return {node: None if found[node] is entry else found[node] for node in view if node is not entry}
