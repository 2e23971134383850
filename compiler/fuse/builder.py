"""From a softmax input to a score DAG: walk backward over pointwise and layout ops to the one contraction Q·Kᵀ.

Everything met on the way becomes a node; everything that ends the walk becomes an index formula (when the lifter can
say what it is) or a load of a side operand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import sympy

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import Axis, Coords, LayoutError, broadcast, resolve
from attnc.compiler.fuse.contraction import Contraction, contraction, lengths_agree
from attnc.compiler.fuse.layout import LAYOUT_OPS, tensor_type, to_input
from attnc.compiler.fuse.reach import Reach
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.lift.lifter import Lifter
from attnc.ir import score as sc
from attnc.ir.index import Load
from attnc.ir.types import DType, ScalarType
from attnc.ir.values import Arg, Op, Value

ITEMS = frozenset(("aten.item.default", "aten._local_scalar_dense.default"))
"""Operators that read the one element of a tensor."""


@dataclass
class Product:
    """The contraction Q·Kᵀ: each operand with the coordinates of its dimensions; ``d`` runs over the summed one."""

    op: Op
    q: Value
    q_coords: Coords
    k: Value
    k_coords: Coords
    d: Axis
    coords: Coords
    """Where the score reads the contraction's result."""


@dataclass
class ScoreBuilder:
    """Builds the score of one site.

    ``symbol`` names an axis in formulas; ``lifter`` is None in the first, layout-only walk, which finds every split of
    an axis before names are given.
    """

    key: Axis
    symbol: Callable[[Axis], sympy.Symbol]
    lifter: Lifter | None
    values: dict[str, Value]
    reaches: Reach = field(default_factory=Reach)
    product: Product | None = None
    sides: list[Value] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)
    contracted: dict[Op, Axis] = field(default_factory=dict)
    _memo: dict[tuple[Value, Coords], sc.Node] = field(default_factory=dict)

    def build(self, arg: Arg, coords: Coords, dtype: DType) -> sc.Node:
        """The node of an argument: a number (of ``dtype``), or a tensor read at ``coords``."""
        if isinstance(arg, bool | int | float):
            return sc.const(float(arg) if dtype.is_float else arg, dtype)
        if not isinstance(arg, Value):
            raise Reject("ATTNC-SCORE-OP", f"an argument {arg!r} that is not a number or a tensor")
        if isinstance(arg.type, ScalarType):
            return self._host_scalar(arg, dtype)
        coords = resolve(broadcast(coords, tensor_type(arg).shape))
        key = (arg, coords)
        if key not in self._memo:
            self._memo[key] = self._tensor(arg, coords)
        return self._memo[key]

    def aside(self, arg: Arg, coords: Coords, dtype: DType) -> sc.Node:
        """The node of an argument that is no part of the score: a contraction behind it stays in the graph."""
        if isinstance(arg, Value) and self.reaches(arg):
            return self._whole(arg, coords)
        return self.build(arg, coords, dtype)

    def hidden(self, score: sc.Node, masks: Iterable[tuple[Value, bool]], coords: Coords) -> sc.Node:
        """The score with −inf wherever a mask (value, where it hides) hides the pair."""
        blocked = sc.const(-math.inf, score.dtype)
        for value, hides in masks:
            condition = self.condition(value, coords)
            score = sc.where(condition, blocked, score) if hides else sc.where(condition, score, blocked)
        return score

    def _tensor(self, value: Value, coords: Coords) -> sc.Node:
        if not self.reaches(value):
            return self._leaf(value, coords)
        op = value.op
        assert op is not None  # only a produced value reaches a contraction
        form = contraction(op)
        if form is not None:
            return self._contract(op, form, coords)
        return self._pointwise(op, coords)

    # -- the spine ---------------------------------------------------------------------------------------------------

    def _pointwise(self, op: Op, coords: Coords) -> sc.Node:
        if op.name in LAYOUT_OPS:
            value, inner = to_input(op, coords)
            self.steps.append(f"{op.name}: index map, no arithmetic")
            return self.build(value, inner, tensor_type(value).dtype)
        dtype = tensor_type(op.result).dtype

        def operand(arg: Arg) -> sc.Node:
            return self.build(arg, coords, dtype)

        if pw.is_identity_dropout(op):
            return operand(op.args[0])
        if op.name in pw.CASTS:
            return sc.cast(operand(op.args[0]), dtype)
        if op.name in pw.UNARY:
            return sc.unary(pw.UNARY[op.name], operand(op.args[0]))
        if op.name in pw.BINARY:
            return self._binary(op, coords, dtype)
        if op.name in pw.CLAMPS:
            node = operand(op.args[0])
            for bound, kind in zip(pw.clamp_bounds(op), ("max", "min"), strict=True):
                node = node if bound is None else sc.binary(kind, node, operand(bound), dtype)
            return node
        if op.name in pw.WHERES:
            condition = self.condition(op.args[0], coords)
            return sc.where(condition, sc.cast(operand(op.args[1]), dtype), sc.cast(operand(op.args[2]), dtype))
        if op.name in pw.FILLS:
            condition = self.condition(op.args[1], coords)
            return sc.where(condition, sc.cast(operand(op.args[2]), dtype), operand(op.args[0]))
        raise Reject("ATTNC-SCORE-OP", f"{op.name} between Q·Kᵀ and the softmax is not understood", op)

    def _binary(self, op: Op, coords: Coords, dtype: DType) -> sc.Node:
        kind = pw.BINARY[op.name]
        left, right = self._both(op, coords, dtype)
        if kind == "rsub":
            kind, left, right = "sub", right, left
        alpha = op.arg(2, "alpha", 1)
        if kind in ("add", "sub") and alpha != 1:
            right = sc.binary("mul", right, self.build(alpha, coords, dtype), dtype)
        return sc.binary(kind, left, right, dtype)

    def _both(self, op: Op, coords: Coords, dtype: DType) -> tuple[sc.Node, sc.Node]:
        """Both operands. One whose layout doesn't fit is loaded as it is, where the other one holds Q·Kᵀ.

        So are biases computed over the rows and columns of an image (Li et al. 2022, arXiv:2112.01526): their view cuts
        the key axis.
        """
        found = [self._attempt(arg, coords, dtype) for arg in op.args[:2]]
        refused = [node for node in found if isinstance(node, LayoutError)]
        if refused and (self.product is None or len(refused) > 1):
            raise refused[0]
        left, right = (
            self._whole(arg, coords) if isinstance(node, LayoutError) else node
            for arg, node in zip(op.args[:2], found, strict=True)
        )
        if refused:
            self.steps.append(f"{op.name}: an operand of another layout, kept in the graph and loaded")
        return left, right

    def _attempt(self, arg: Arg, coords: Coords, dtype: DType) -> sc.Node | LayoutError:
        """The node of an operand, or why it has none; then nothing of the attempt is left."""
        product, sides, steps, known = self.product, len(self.sides), len(self.steps), len(self._memo)
        try:
            return self.build(arg, coords, dtype)
        except LayoutError as error:
            self.product = product
            del self.sides[sides:], self.steps[steps:]
            for key in list(self._memo)[known:]:
                del self._memo[key]
            return error

    def _contract(self, op: Op, form: Contraction, coords: Coords) -> sc.Node:
        if self.product is not None and self.product.op is not op:
            self.steps.append(f"{op.name}: a second contraction, kept in the graph and loaded")
            return self._load(op.result, coords)
        if self.product is not None and resolve(self.product.coords) != coords:
            edit = "Compute the copy by a product of its own (k @ q.mT): it is then a bias."
            raise Reject("ATTNC-CONTRACTION", "the scores meet a rearranged copy of themselves", op, edit=edit)
        lengths_agree(form, op)
        if len(form.summed) != 1:
            reason = f"{op.name} sums over {len(form.summed)} dimensions, expected one"
            edit = "Flatten the dimensions that are summed, in Q and in K, and sum over the one that results."
            raise Reject("ATTNC-CONTRACTION", reason, op, edit=edit)
        d = self._contracted_axis(op, form)
        where = dict(zip(form.result_labels, coords, strict=True)) | {form.summed[0]: (d,)}
        left = self._operand(form.left, form.left_labels, where, d)
        right = self._operand(form.right, form.right_labels, where, d)
        in_left, in_right = (any(self.key in dim for dim in c) for c in (left, right))
        if not in_left and not in_right:
            self.steps.append(f"{op.name}: the same for every key, kept in the graph and loaded")
            return self._load(op.result, coords)
        if in_left and in_right:
            edit = "Let one operand of Q·Kᵀ have the keys, the other the queries."
            raise Reject(
                "ATTNC-CONTRACTION", "both operands of the contraction depend on the key position", op, edit=edit
            )
        q, k = ((form.right, right), (form.left, left)) if in_left else ((form.left, left), (form.right, right))
        self.product = Product(op, q[0], q[1], k[0], k[1], d, coords)
        dtype = tensor_type(op.result).dtype
        node = sc.qk(dtype)
        if form.alpha != 1:
            node = sc.binary("mul", node, self.build(form.alpha, coords, dtype), dtype)
        if form.addend is not None and form.beta != 0:
            addend = self.build(form.addend, coords, dtype)
            if form.beta != 1:
                addend = sc.binary("mul", addend, self.build(form.beta, coords, dtype), dtype)
            node = sc.binary("add", addend, node, dtype)
        return node

    def _contracted_axis(self, op: Op, form: Contraction) -> Axis:
        if op not in self.contracted:
            length = tensor_type(form.left).shape[form.left_labels.index(form.summed[0])]
            self.contracted[op] = Axis(length, "d", atomic=True)
        return self.contracted[op]

    @staticmethod
    def _operand(value: Value, labels: tuple[str, ...], where: dict[str, tuple[Axis, ...]], d: Axis) -> Coords:
        coords = tuple(where[name] for name in labels)
        kept = broadcast(coords, tensor_type(value).shape)
        return tuple(c if d in c else k for c, k in zip(coords, kept, strict=True))

    # -- leaves ------------------------------------------------------------------------------------------------------

    def _host_scalar(self, value: Value, dtype: DType) -> sc.Node:
        """A size as a formula; a number read from a tensor of one element is loaded from there.

        The latter is how Dynamo passes the float attributes of a module where sizes are dynamic.
        """
        assert isinstance(value.type, ScalarType)
        held = value.op.args[0] if value.op is not None and value.op.name in ITEMS else None
        if value.type.kind == "float" and isinstance(held, Value) and tensor_type(held).rank == 0:
            return sc.cast(self._load(held, ()), dtype)
        if value.type.kind != "int" or value.type.expr is None:
            reason, edit = f"%{value.name} is a host number known only at run time", "Keep it a tensor: no item()."
            raise Reject("ATTNC-SCORE-OP", reason, value.op, edit=edit)
        return sc.cast(sc.index(sympy.sympify(value.type.expr), DType.I64), dtype)

    def _leaf(self, value: Value, coords: Coords) -> sc.Node:
        dtype = tensor_type(value).dtype
        if not dtype.is_float:
            expr = self._lift(value, coords)
            return sc.index(expr, dtype) if expr is not None else self._load(value, coords)
        node = self._cases(value, coords, dtype) or self._constant(value, dtype) or self._gathered(value, coords)
        return node or self._entered(value, coords) or self._load(value, coords)

    def _constant(self, value: Value, dtype: DType) -> sc.Node | None:
        op = value.op
        if op is not None and op.name in ("aten.scalar_tensor.default", "aten.full.default"):
            number = op.args[0] if op.name == "aten.scalar_tensor.default" else op.args[1]
            if isinstance(number, int | float):
                return sc.const(float(number), dtype)
        return None

    def _cases(self, value: Value, coords: Coords, dtype: DType) -> sc.Node | None:
        """A tensor of few exact values, such as an additive mask, as nested selects."""
        cases = self.lifter.cases(value, self.indices(coords), self.ranges(coords)) if self.lifter else None
        if not cases:
            return None
        node = sc.const(cases[-1][1], dtype)
        for condition, number in reversed(cases[:-1]):
            node = sc.where(sc.index(self._own(condition), DType.B1), sc.const(number, dtype), node)
        return node

    def _gathered(self, value: Value, coords: Coords) -> sc.Node | None:
        """A row of a float table at an index that is a formula: loaded from the table, not from the gathered tensor."""
        op = value.op
        if op is None or op.name != "aten.embedding.default" or not isinstance(op.args[1], Value):
            return None
        table, positions = op.args[0], op.args[1]
        row = self._lift(positions, coords[:-1])
        if row is None or row.has(Load) or not isinstance(table, Value):
            return None
        return sc.load(self._side(table), (row, *self.indices(coords[-1:])), tensor_type(value).dtype)

    def _entered(self, value: Value, coords: Coords) -> sc.Node | None:
        """A dense tensor computed pointwise from smaller ones, such as slope·(k − q): the kernel computes it."""
        op = value.op
        if op is None or self.lifter is None or self._rank(coords) < 2:
            return None
        if op.name not in pw.POINTWISE and op.name not in LAYOUT_OPS:
            return None
        try:
            node = self._pointwise(op, coords)
        except (Reject, LayoutError):
            return None
        names = {self.symbol(axis) for dim in coords for axis in dim}
        dense = [any(part.op == "load" and names <= _free_symbols(part) for part in sc.walk(arg)) for arg in node.args]
        if not any(dense) and not (node.op == "load" and names <= _free_symbols(node)):
            return node
        masked = node.op == "add" and any(arg.op == "where" and not d for arg, d in zip(node.args, dense, strict=True))
        return node if masked and sum(dense) == 1 else None  # a bias and a mask in one tensor: each is read apart

    @staticmethod
    def _rank(coords: Coords) -> int:
        return sum(len(dim) for dim in coords)

    def condition(self, arg: Arg, coords: Coords) -> sc.Node:
        """The boolean node of a select's condition."""
        if not isinstance(arg, Value):
            raise Reject("ATTNC-SCORE-OP", f"a condition {arg!r} that is not a tensor")
        if self.reaches(arg):
            raise Reject("ATTNC-SCORE-CONDITION", f"%{arg.name} selects by the scores themselves", arg.op)
        coords = resolve(broadcast(coords, tensor_type(arg).shape))
        expr = self._lift(arg, coords)
        if expr is not None:
            return sc.index(expr, DType.B1)
        op = arg.op
        if op is not None and op.name in pw.AND | pw.OR:
            kind = "and" if op.name in pw.AND else "or"
            return sc.logical(kind, *(self.condition(a, coords) for a in op.args[:2]))
        if op is not None and op.name in pw.NOT:
            return sc.logical("not", self.condition(op.args[0], coords))
        if op is not None and op.name in LAYOUT_OPS:
            return self.condition(*to_input(op, coords))
        return self._load(arg, coords)

    def _lift(self, value: Value, coords: Coords) -> sympy.Basic | None:
        if self.lifter is None:
            return None
        expr = self.lifter.index(value, self.indices(coords), self.ranges(coords))
        return None if expr is None else self._own(expr)

    def _own(self, expr: sympy.Basic) -> sympy.Basic:
        """The expression with loads renamed from IR values to this site's side operands."""
        return expr.replace(
            lambda e: isinstance(e, Load),
            lambda e: Load(sympy.Symbol(self._side(self.values[e.args[0].name])), *e.args[1:]),
        )

    def _whole(self, arg: Arg, coords: Coords) -> sc.Node:
        """A tensor, read where it broadcasts to ``coords``, whatever it is computed from."""
        assert isinstance(arg, Value)  # a number has no layout
        return self._load(arg, resolve(broadcast(coords, tensor_type(arg).shape)))

    def _load(self, value: Value, coords: Coords) -> sc.Node:
        """Read the tensor itself, behind whatever layout ops only rearrange or broadcast it."""
        while value.op is not None and value.op.name in LAYOUT_OPS:
            try:
                value, coords = to_input(value.op, coords)
            except LayoutError:
                break
            coords = resolve(coords)
        return sc.load(self._side(value), self.indices(coords), tensor_type(value).dtype)

    def _side(self, value: Value) -> str:
        if value not in self.sides:
            self.sides.append(value)
        return f"t{self.sides.index(value)}"

    def indices(self, coords: Coords) -> tuple[sympy.Expr, ...]:
        """One integer expression per dimension, from its axes in row-major order."""
        result = []
        for dim in coords:
            expr: sympy.Expr = sympy.Integer(0)
            for axis in dim:
                expr = expr * sympy.sympify(axis.length) + self.symbol(axis)
            result.append(expr)
        return tuple(result)

    def ranges(self, coords: Coords) -> dict[sympy.Symbol, tuple[sympy.Expr, sympy.Expr]]:
        """Inclusive bounds of each axis symbol."""
        return {self.symbol(axis): (sympy.Integer(0), sympy.sympify(axis.length) - 1) for dim in coords for axis in dim}


def _free_symbols(node: sc.Node) -> set[sympy.Basic]:
    _, indices = node.value
    return {symbol for index in indices for symbol in index.free_symbols}
