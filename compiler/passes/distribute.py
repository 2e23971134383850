"""Give each softmax a product with V of its own where a sum of several is multiplied with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.contraction import contraction
from attnc.compiler.fuse.forms import SOFTMAXES
from attnc.compiler.fuse.layout import LAYOUT_OPS, tensor_type
from attnc.compiler.fuse.written_out import EXP
from attnc.compiler.passes.base import Context
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType
from attnc.ir.values import Op, Value, map_values

SUMS = frozenset(name for name, kind in pw.BINARY.items() if kind in ("add", "sub"))
SCALES = frozenset(name for name, kind in pw.BINARY.items() if kind in ("mul", "div"))


@dataclass(frozen=True)
class Distribute:
    """``(a − λ·b) @ V`` becomes ``a @ V − (λ·b) @ V`` where a and b come from two softmaxes (Differential Transformer,
    Ye et al. 2024, https://arxiv.org/abs/2410.05258).

    Side conditions: the contraction is linear in the sum and adds nothing; the sum has both terms' shape and one
    reader; each term has one softmax behind it, through scales, casts and layout ops that nothing else reads.
    """

    name: ClassVar[str] = "distribute"

    def run(self, graph: Graph, context: Context) -> bool:
        changed = False
        pending = [op for op in graph.ops if contraction(op) is not None]
        while pending:
            op = pending.pop()
            terms = _terms(graph, op)
            if terms is not None:
                pending += _split(graph, op, *terms)
                changed = True
        return changed


def _terms(graph: Graph, op: Op) -> tuple[Value, list[Op], Op] | None:
    """The contraction's operand, the casts before it (nearest last) and the sum behind them."""
    form = contraction(op)
    if form is None or form.addend is not None or form.left is form.right:
        return None
    for operand in (form.left, form.right):
        casts: list[Op] = []
        value = operand
        while value.op is not None and pw.is_float_cast(value.op) and _read_once(graph, value):
            casts.insert(0, value.op)
            value = value.op.operands[0]
        if value.op is not None and value.op.name in SUMS and _read_once(graph, value) and _sums_weights(graph, value):
            return operand, casts, value.op
    return None


def _sums_weights(graph: Graph, value: Value) -> bool:
    op = value.op
    if op is None or len(op.operands) != 2 or not all(_like(x, value) for x in op.operands):
        return False
    roots = [_softmax_behind(graph, operand) for operand in op.operands]
    return None not in roots and roots[0] is not roots[1]


def _like(x: Value, y: Value) -> bool:
    return isinstance(x.type, TensorType) and x.type.shape == tensor_type(y).shape


def _softmax_behind(graph: Graph, value: Value) -> Op | None:
    """The one softmax (or exponential) a term is made of; a sum of terms answers with its first."""
    while _read_once(graph, value) and (op := value.op) is not None:
        if op.name in SOFTMAXES or op.name == EXP:
            return op
        if op.name in SUMS and _sums_weights(graph, value):
            return _softmax_behind(graph, op.operands[0])
        if op.name in SCALES:
            behind = [x for x in op.operands if _like(x, value) and _softmax_behind(graph, x) is not None]
            if len(behind) != 1:
                return None
            value = behind[0]
        elif op.name in LAYOUT_OPS or pw.is_float_cast(op) or pw.is_identity_dropout(op):
            value = op.operands[0]
        else:
            return None
    return None


def _read_once(graph: Graph, value: Value) -> bool:
    """Read once, or, as exponentials are, by their sum too."""
    return (len(value.users) == 1 or (value.op is not None and value.op.name == EXP)) and (
        value not in graph.output_values()
    )


def _split(graph: Graph, op: Op, operand: Value, casts: list[Op], total: Op) -> list[Op]:
    """Two contractions and their sum in place of one; returns the contractions."""
    products = [_product(graph, op, operand, casts, term) for term in total.operands]
    kind = tensor_type(op.result)
    results = iter(product.result for product in products)
    args = tuple(next(results) if isinstance(arg, Value) else arg for arg in total.args)
    combined = graph.create(total.name, args, (kind,), kwargs=total.kwargs, loc=total.loc, before=op)
    graph.replace_uses(op.result, combined.result)
    for unread in (op, *reversed(casts), total):
        graph.erase(unread)
    return products


def _product(graph: Graph, op: Op, operand: Value, casts: list[Op], term: Value) -> Op:
    """The contraction with ``term`` in the place of the sum."""
    for cast in casts:
        kind = TensorType(tensor_type(cast.result).dtype, tensor_type(term).shape, tensor_type(term).device)
        term = graph.create(
            cast.name, (term, *cast.args[1:]), (kind,), kwargs=cast.kwargs, loc=cast.loc, before=op
        ).result
    args = tuple(map_values(arg, lambda value: term if value is operand else value) for arg in op.args)
    return graph.create(op.name, args, (tensor_type(op.result),), kwargs=op.kwargs, loc=op.loc, before=op)
