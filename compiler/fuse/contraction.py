"""Contractions: every op that multiplies and sums two tensors, in one form.

A contraction names, for each operand dimension and each result dimension, a label; a label in both operands and not in
the result is summed.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.fuse.axes import LayoutError, is_one
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.types import TensorType
from attnc.ir.values import Arg, Op, Value


@dataclass(frozen=True)
class Contraction:
    """``result[result_labels] = alpha · Σ left[left_labels] · right[right_labels] + beta · addend``."""

    left: Value
    right: Value
    left_labels: tuple[str, ...]
    right_labels: tuple[str, ...]
    result_labels: tuple[str, ...]
    addend: Value | None = None
    alpha: Arg = 1
    beta: Arg = 1

    @property
    def summed(self) -> tuple[str, ...]:
        """The labels summed over, in the left operand's order."""
        kept = set(self.result_labels)
        return tuple(name for name in self.left_labels if name not in kept)


def contraction(op: Op) -> Contraction | None:
    """The contraction an op performs, or None where it is none (or one this form doesn't cover)."""
    if op.name in ("aten.matmul.default", "aten.bmm.default", "aten.mm.default", "aten.matmul.out"):
        return _matmul(op.args[0], op.args[1])
    if op.name == "aten.baddbmm.default":
        addend = op.args[0]
        return _matmul(
            op.args[1],
            op.args[2],
            addend=addend if isinstance(addend, Value) else None,
            alpha=op.arg(4, "alpha", 1),
            beta=op.arg(3, "beta", 1),
        )
    if op.name == "aten.einsum.default":
        return _einsum(op)
    return None


def _matmul(left: Arg, right: Arg, addend: Value | None = None, alpha: Arg = 1, beta: Arg = 1) -> Contraction | None:
    if not isinstance(left, Value) or not isinstance(right, Value):
        return None
    if not isinstance(left.type, TensorType) or not isinstance(right.type, TensorType):
        return None
    if left.type.rank < 2 or right.type.rank < 2:
        return None
    batch = max(left.type.rank, right.type.rank) - 2
    names = tuple(f"b{i}" for i in range(batch))
    return Contraction(
        left,
        right,
        (*names[batch - left.type.rank + 2 :], "m", "s"),
        (*names[batch - right.type.rank + 2 :], "s", "n"),
        (*names, "m", "n"),
        addend,
        alpha,
        beta,
    )


def _einsum(op: Op) -> Contraction | None:
    equation, operands = op.args[0], op.args[1]
    if not isinstance(equation, str) or not isinstance(operands, tuple) or len(operands) != 2:
        return None
    left, right = operands
    if "->" not in equation or not isinstance(left, Value) or not isinstance(right, Value):
        return None
    inputs, result = equation.replace(" ", "").split("->")
    texts = inputs.split(",")
    counts = [_hidden(text, tensor_type(x).rank) for text, x in zip(texts, (left, right), strict=True)]
    first, second = (_labels(text, count) for text, count in zip(texts, counts, strict=True))
    kept = _labels(result, max(counts))
    once = all(len(set(labels)) == len(labels) for labels in (first, second, kept))
    shared = set(first) & set(second)
    if not once or any(name not in shared and name not in kept for name in first + second):
        return None
    if len(first) != tensor_type(left).rank or len(second) != tensor_type(right).rank:
        return None
    return Contraction(left, right, first, second, kept)


def _hidden(text: str, rank: int) -> int:
    """How many dimensions the ellipsis of an einsum operand stands for."""
    return rank - len(text.replace("...", "")) if "..." in text else 0


def _labels(text: str, count: int) -> tuple[str, ...]:
    """One label for each dimension; those of an ellipsis are counted from the right, as they broadcast."""
    before, dots, after = text.partition("...")
    hidden = tuple(f"...{i}" for i in reversed(range(count))) if dots else ()
    return (*before, *hidden, *after)


def lengths_agree(form: Contraction, op: Op) -> None:
    """Raise LayoutError where a summed dimension has length 1 on one side only (a broadcast sum)."""
    left, right = tensor_type(form.left).shape, tensor_type(form.right).shape
    for name in form.summed:
        a, b = left[form.left_labels.index(name)], right[form.right_labels.index(name)]
        if is_one(a) != is_one(b):
            error = LayoutError(f"{op.name} broadcasts the dimension it sums over")
            error.op = op
            raise error
