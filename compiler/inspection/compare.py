"""What differs between two graphs, or two dumps, in lines for a terminal. No line means no difference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest

from attnc.compiler.inspection.align import Pair, align
from attnc.compiler.inspection.folder import GraphDump
from attnc.compiler.report import Site
from attnc.ir.constants import show_constant
from attnc.ir.graph import Graph
from attnc.ir.printer import print_op
from attnc.ir.typetext import show_type
from attnc.ir.values import Op, Value, map_values

INDENT = "  "
FIELDS = ("kind", "mask", "score")
"""Fields of a site that are compared beside its result."""


def compare_graphs(left: Graph, right: Graph) -> list[str]:
    """The differences of two graphs: ``-`` and ``+`` are in one only, ``~`` is in both with something changed."""
    return list(_Comparison(left, right).lines())


class _Comparison:
    def __init__(self, left: Graph, right: Graph) -> None:
        self.left, self.right = left, right
        self.pairs = align(left, right)
        self.same: dict[Value, Value] = dict(zip(right.inputs, left.inputs, strict=False))
        """Value of the right graph → the left value it stands for."""
        for pair in self.pairs:
            if pair.left is not None and pair.right is not None:
                self.same |= zip(pair.right.results, pair.left.results, strict=False)

    def lines(self) -> Iterator[str]:
        yield from self._frame()
        for pair in self.pairs:
            if pair.left is None or pair.right is None:
                yield from _shown(pair)
            elif pair.same:
                yield from self._operands(pair.left, pair.right)
            else:
                yield from _changed(pair.left, self._renamed(pair.right))
        outputs = self.left.output_values(), self.right.output_values()
        yield from self._values("the graph's result", *outputs)

    def _frame(self) -> Iterator[str]:
        """What stands around the ops."""
        yield from _differs("sizes", *(repr(g.sizes) for g in (self.left, self.right)))
        for i, (x, y) in enumerate(zip_longest(self.left.inputs, self.right.inputs)):
            yield from _differs(f"input {i}", *(show_type(v.type) if v else "absent" for v in (x, y)))
        texts = [{show_constant(g, name) for name in g.constants} for g in (self.left, self.right)]
        yield from (f"- {text}" for text in sorted(texts[0] - texts[1]))
        yield from (f"+ {text}" for text in sorted(texts[1] - texts[0]))

    def _renamed(self, op: Op) -> Op:
        """An op of the right graph under the left names, for printing."""
        args = tuple(map_values(arg, self._name) for arg in op.args)
        kwargs = {key: map_values(arg, self._name) for key, arg in op.kwargs.items()}
        return dataclasses.replace(op, args=args, kwargs=kwargs, results=tuple(map(self._name, op.results)))

    def _name(self, value: Value) -> Value:
        return Value(self.same[value].name, value.type) if value in self.same else value

    def _operands(self, left: Op, right: Op) -> Iterator[str]:
        yield from self._values(_head(left), left.operands, right.operands)

    def _values(self, reader: str, left: Sequence[Value], right: Sequence[Value]) -> Iterator[str]:
        if len(left) != len(right):
            yield f"~ {reader}: reads {len(left)} values, then {len(right)}"
            return
        for place, (x, y) in enumerate(zip(left, right, strict=True)):
            if self.same.get(y) is not x:
                yield f"~ {reader}: value {place} is %{x.name}, then %{y.name}"


def _shown(pair: Pair) -> Iterator[str]:
    op, sign = (pair.left, "-") if pair.left else (pair.right, "+")
    assert op is not None
    first, *rest = print_op(op, locations=False).split("\n")
    yield f"{sign} {first}{_origin(op)}"
    yield from (f"{sign} {line}" for line in rest)


def _changed(left: Op, right: Op) -> Iterator[str]:
    """The lines of an op that differ."""
    yield f"~ {_head(left)}{_origin(left)}"
    texts = (print_op(op, locations=False).split("\n") for op in (left, right))
    for x, y in zip_longest(*texts):
        if x != y:
            yield from (f"{INDENT}{sign} {line}" for sign, line in (("-", x), ("+", y)) if line is not None)


def _head(op: Op) -> str:
    results = ", ".join(f"%{value.name}" for value in op.results)
    return f"{results} = {op.name}" if results else op.name


def _origin(op: Op) -> str:
    module = f" {op.loc.module}" if op.loc.module else ""
    return f"  ({op.loc}{module})" if op.loc.file else ""


def _differs(what: str, left: str, right: str) -> Iterator[str]:
    if left != right:
        yield f"~ {what}: {left}, then {right}"


# -- dumps ---------------------------------------------------------------------------------------------------------


def compare_dumps(left: Sequence[GraphDump], right: Sequence[GraphDump]) -> list[str]:
    """The differences of two dumps, graph by graph in their order: passes, then sites."""
    lines: list[str] = []
    for x, y in zip_longest(left, right):
        if x is None or y is None:
            only = y if x is None else x
            lines.append(f"graph {only.name}: only in {only.folder}")
        elif found := list(_one_graph(x, y)):
            lines += [f"graph {x.name}" + (f", then {y.name}" if y.name != x.name else ""), *found]
    return lines


def _one_graph(left: GraphDump, right: GraphDump) -> Iterator[str]:
    yield from _passes(left, right)
    yield from _sites(left, right)


def _passes(left: GraphDump, right: GraphDump) -> Iterator[str]:
    """Pass by pass; a difference that the next pass only carries on is told once."""
    first, second = ([label.split("_", 1)[-1] for label, _ in dump.passes] for dump in (left, right))
    before: list[str] = []
    for tag, i, j, m, n in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from (f"{INDENT}pass {label}: only in the first" for label, _ in left.passes[i:j])
            yield from (f"{INDENT}pass {label}: only in the second" for label, _ in right.passes[m:n])
            continue
        for (label, x), (_, y) in zip(left.passes[i:j], right.passes[m:n], strict=True):
            found = compare_graphs(x, y)
            if found and found == before:
                yield f"{INDENT}pass {label}: the same differences"
            elif found:
                yield f"{INDENT}pass {label}: {len(found)} lines"
                yield from (f"{INDENT * 2}{line}" for line in found)
            before = found


def _sites(left: GraphDump, right: GraphDump) -> Iterator[str]:
    if left.report is None or right.report is None:
        if left.report is not right.report:
            yield f"{INDENT}report: only in the {'first' if left.report else 'second'}; the other did not finish"
        return
    sites = left.report.sites, right.report.sites
    first, second = ([(site.module, site.line) for site in group] for group in sites)
    for tag, i, j, m, n in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if tag == "equal" or j - i == n - m:
            for x, y in zip(sites[0][i:j], sites[1][m:n], strict=True):
                yield from _site(x, y, left, right)
        else:
            yield from (f"{INDENT}site {_place(site)}: only in the first, {_result(site)}" for site in sites[0][i:j])
            yield from (f"{INDENT}site {_place(site)}: only in the second, {_result(site)}" for site in sites[1][m:n])


def _site(x: Site, y: Site, left: GraphDump, right: GraphDump) -> Iterator[str]:
    name = f"site {_place(x)}"
    if _result(x) != _result(y):
        yield f"{INDENT}{name}: {_result(x)}, then {_result(y)}"
        return
    for what in FIELDS:
        for line in _differs(f"{name}, {what}", getattr(x, what), getattr(y, what)):
            yield f"{INDENT}{line}"
    (first, text), (second, other) = _kernel(x, left), _kernel(y, right)
    if text != other:
        yield f"{INDENT}~ {name}, kernel: {first}, then {second if first != second else 'another of that name'}"


def _kernel(site: Site, dump: GraphDump) -> tuple[str, str]:
    """The name and the text of a site's kernel."""
    name = next((a.kernel for a in dump.attentions if a.site == site.index), site.kernel)
    return name, dump.kernels.get(name, "")


def _result(site: Site) -> str:
    return "fused" if site.fused else f"{site.code} ({site.reason})"


def _place(site: Site) -> str:
    return " ".join(part for part in (str(site.index), site.module, site.where.rsplit("/", 1)[-1]) if part)
