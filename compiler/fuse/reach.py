"""Which values are scores: a contraction lies behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.contraction import contraction
from attnc.compiler.fuse.layout import LAYOUT_OPS
from attnc.ir.types import TensorType
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Reach:
    """Whether a contraction lies behind a value through pointwise and layout ops only; remembers its answers."""

    known: dict[Value, bool] = field(default_factory=dict)

    def __call__(self, value: Value) -> bool:
        known, stack = self.known, [value]
        while stack:
            top = stack[-1]
            if top in known:
                stack.pop()
                continue
            op = top.op
            if op is None or not isinstance(top.type, TensorType):
                known[top] = False
            elif contraction(op) is not None:
                known[top] = True
            elif op.name in pw.POINTWISE or op.name in LAYOUT_OPS or pw.is_identity_dropout(op):
                pending = [v for v in op.operands if v not in known]
                if pending:
                    stack.extend(pending)
                    continue
                known[top] = any(known[v] for v in op.operands)
            else:
                known[top] = False
            stack.pop()
        return known[value]

    def blocker(self, value: Value) -> Op | None:
        """Of a value that isn't reached, the op nearest to it that hides a contraction; None where there is none.

        Only ops that carry scores over are looked through; a projection or a normalisation ends the search.
        """
        seen: set[Value] = set()
        queue = [value]
        for current in queue:
            op = current.op
            if op is None or current in seen or len(seen) > 40:
                continue
            seen.add(current)
            passes = op.name in pw.POINTWISE or op.name in LAYOUT_OPS or op.name in CARRIERS or op.name == "py.getitem"
            if not passes:
                continue
            if op.name in CARRIERS and any(isinstance(x.type, TensorType) and self(x) for x in op.operands):
                return op
            queue += op.operands
        return None


CARRIERS = frozenset(
    f"aten.{name}"
    for name in (
        "cat.default", "stack.default", "gather.default", "slice.Tensor", "select.int", "index.Tensor", "pad.default",
        "constant_pad_nd.default", "roll.default", "flip.default", "as_strided.default", "index_put.default",
        "slice_scatter.default", "copy.default", "softplus.default", "relu.default", "pow.Tensor_Scalar",
        "convolution.default", "conv2d.default", "layer_norm.default", "cumsum.default", "unfold.default",
        "sort.default", "topk.default", "round.default", "floor.default", "ceil.default", "tril.default",
        "triu.default", "dropout.default", "native_dropout.default", "silu.default", "gelu.default",
        "reciprocal.default",
    )
)  # fmt: skip
"""Ops that may stand between Q·Kᵀ and a softmax and have no place in the score language."""
