"""Walking, substitution and exact simplification of score formulas."""

from __future__ import annotations

from collections.abc import Mapping

import sympy

from attnc.ir import index_simplify as simplifier
from attnc.ir import index_terms as ix
from attnc.ir import score_nodes as sn
from attnc.ir.score_nodes import Node
from attnc.ir.types import DType


def walk(root: Node) -> list[Node]:
    """Every node once, operands before users, the root last."""
    order: dict[Node, None] = {}
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))
    return list(order)


def rebuild(node: Node, args: tuple[Node, ...]) -> Node:
    """The same operation on other operands, through its constructor."""
    if node.op in sn.FUNCTIONS:
        return sn.unary(node.op, *args)
    if node.op in sn.ARITHMETIC:
        x, y = args
        return sn.binary(node.op, x, y, node.dtype)
    if node.op in sn.COMPARISONS:
        return sn.compare(node.op, *args)
    if node.op in sn.LOGIC:
        return sn.logical(node.op, *args)
    if node.op == "where":
        return sn.where(*args)
    return sn.cast(args[0], node.dtype) if node.op == "cast" else node


def substitute(root: Node, mapping: Mapping[Node, Node]) -> Node:
    """``root`` with each node of ``mapping`` replaced, not entered. Raises ValueError where a dtype would change."""
    done: dict[Node, Node] = {}
    for node, replacement in mapping.items():
        if node.dtype is not replacement.dtype:
            raise ValueError(f"substituting {node.op}: {replacement.dtype.value} for {node.dtype.value}")
        done[node] = replacement
    for node in walk(root):
        if node not in done:
            args = tuple(done[a] for a in node.args)
            done[node] = node if args == node.args else rebuild(node, args)
    return done[root]


def substitute_index(root: Node, mapping: Mapping[sympy.Symbol, sympy.Expr]) -> Node:
    """``root`` with axes or sizes replaced by index expressions, simultaneously, in ``index`` and ``load`` nodes."""
    leaves: dict[Node, Node] = {}
    for node in walk(root):
        if node.op == "index":
            leaves[node] = sn.index(node.value.xreplace(dict(mapping)), node.dtype)
        elif node.op == "load":
            name, indices = node.value
            leaves[node] = sn.load(name, tuple(i.xreplace(dict(mapping)) for i in indices), node.dtype)
    return substitute(root, leaves)


def simplify(root: Node, ranges: simplifier.Ranges | None = None) -> Node:
    """An equal formula, bit for bit. The rewrites, each exact for every value, NaN and infinities included:

    index expressions by ``ir.index.simplify``; ``where`` with a constant condition or equal branches; ``and``/``or``
    with a constant operand, or twice the same; ``not not x``; ``where(~c, a, b)``; a float cast to a wider float and
    back.
    """
    done: dict[Node, Node] = {}
    for node in walk(root):
        if node.op == "index":
            done[node] = sn.index(simplifier.simplify(node.value, ranges or {}), node.dtype)
        elif node.op == "load":
            name, indices = node.value
            done[node] = sn.load(name, tuple(simplifier.simplify(i, ranges or {}) for i in indices), node.dtype)
        else:
            args = tuple(done[a] for a in node.args)
            done[node] = _reduce(node if args == node.args else rebuild(node, args))
    return done[root]


def _reduce(node: Node) -> Node:
    match node.op, node.args:
        case "where", (Node(op="const", value=value), then, otherwise):
            return then if value else otherwise
        case "where", (_, then, otherwise) if then is otherwise:
            return then
        case "where", (Node(op="not", args=(condition,)), then, otherwise):
            return sn.where(condition, otherwise, then)
        case "and" | "or", (x, y) if x is y:
            return x
        case "and" | "or", (x, y) if x.op == "const" or y.op == "const":
            constant, other = (x, y) if x.op == "const" else (y, x)
            return constant if constant.value == (node.op == "or") else other
        case "not", (Node(op="not", args=(inner,)),):
            return inner
        case "not", (Node(op="const", value=value),):
            return sn.const(not value, DType.B1)
        case "cast", (Node(op="cast", args=(inner,)) as wide,) if inner.dtype is node.dtype and _contains(
            wide.dtype, inner.dtype
        ):
            return inner
    return node


def _contains(wide: DType, narrow: DType) -> bool:
    """True where every value of ``narrow`` is exact in ``wide``, both floats."""
    exact = {DType.F64: {DType.F32, DType.F16, DType.BF16}, DType.F32: {DType.F16, DType.BF16}}
    return narrow in exact.get(wide, set())


def uses_qk(root: Node) -> bool:
    """True where the formula reads the product Q·K."""
    return any(node.op == "qk" for node in walk(root))


def side_names(root: Node) -> set[str]:
    """Names of the side operands read, by loads and by index expressions."""
    names = {node.value[0] for node in walk(root) if node.op == "load"}
    return names | {load.name for expr in index_exprs(root) for load in ix.loads(expr)}


def index_exprs(root: Node) -> list[sympy.Basic]:
    """The index expressions of a formula, those of its loads included."""
    exprs: list[sympy.Basic] = []
    for node in walk(root):
        if node.op == "index":
            exprs.append(node.value)
        elif node.op == "load":
            exprs.extend(node.value[1])
    return exprs


def axes_of(root: Node) -> set[str]:
    """Names of the axes a formula depends on."""
    return set().union(*(ix.axes_of(e) for e in index_exprs(root)))


def sizes_of(root: Node) -> set[str]:
    """Names of the sizes a formula depends on."""
    return set().union(*(ix.sizes_of(e) for e in index_exprs(root)))


def rename_loads(root: Node, names: Mapping[str, str]) -> Node:
    """``root`` with side operands renamed; names absent from ``names`` stay."""
    renaming = {sympy.Symbol(old): sympy.Symbol(new) for old, new in names.items()}

    def renamed(expr: sympy.Basic) -> sympy.Basic:
        heads = {
            load: load.xreplace({load.args[0]: renaming.get(load.args[0], load.args[0])}) for load in ix.loads(expr)
        }
        return expr.xreplace(heads) if heads else expr

    leaves: dict[Node, Node] = {}
    for node in walk(root):
        if node.op == "index":
            leaves[node] = sn.index(renamed(node.value), node.dtype)
        elif node.op == "load":
            name, indices = node.value
            leaves[node] = sn.load(names.get(name, name), tuple(renamed(i) for i in indices), node.dtype)
    return substitute(root, leaves)
