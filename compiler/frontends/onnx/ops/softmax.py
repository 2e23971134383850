"""Softmax and its kin, and what is summed up along an axis."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.known import Value, number
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import op


def _hardmax(x: Tensor, dim: int) -> Tensor:
    return F.one_hot(x.argmax(dim), x.shape[dim]).movedim(-1, dim).to(x.dtype)


_FORMS = {
    "Softmax": lambda x, dim: torch.softmax(x, dim),
    "LogSoftmax": lambda x, dim: torch.log_softmax(x, dim),
    "Hardmax": _hardmax,
}


def _enter(name: str) -> None:
    form = _FORMS[name]

    @op(name, since=13)
    def along_axis(node: Node, x: Tensor) -> Tensor:
        return form(x, node.get("axis", -1))

    @op(name, until=12)
    def flattened(node: Node, x: Tensor) -> Tensor:
        """Before operator set 13 all dimensions from ``axis`` on are one."""
        axis = node.get("axis", 1)
        axis = axis + x.dim() if axis < 0 else axis
        if axis == x.dim() - 1:
            return form(x, -1)
        return form(x.flatten(axis), -1).reshape(x.shape)


for _name in _FORMS:
    _enter(_name)


@op("CumSum", "CumProd", known=(1,))
def cumulative(node: Node, x: Tensor, axis: Value) -> Tensor:
    """Sums (products) of the elements so far, the element itself left out where ``exclusive`` is set."""
    if not isinstance(axis, Tensor):
        return _along(node, x, int(number(axis, "the axis")))
    made, chosen = _along(node, x, 0), torch.remainder(axis.reshape(()), x.dim())
    for dim in range(1, x.dim()):
        made = torch.where(chosen == dim, _along(node, x, dim), made)
    return made


def _along(node: Node, x: Tensor, dim: int) -> Tensor:
    backward, whole = node.get("reverse", 0), node.get("exclusive", 0)
    given = x.flip(dim) if backward else x
    along = torch.cumsum if node.op == "CumSum" else torch.cumprod
    made = along(given, dim).to(x.dtype)
    if whole:
        first = torch.full_like(given.narrow(dim, 0, 1), 0 if node.op == "CumSum" else 1)
        made = torch.cat((first, made.narrow(dim, 0, made.shape[dim] - 1)), dim)
    return made.flip(dim) if backward else made
