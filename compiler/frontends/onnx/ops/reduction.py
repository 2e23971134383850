"""Operators that reduce dimensions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.known import Value, ints
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.table import op

Reduce = Callable[[Tensor, list[int], bool], Tensor]


def _prod(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in sorted((d % x.dim() for d in dims), reverse=True):
        x = torch.prod(x, dim, keepdim=keep)
    return x


def _mean(x: Tensor, dims: list[int], keep: bool) -> Tensor:
    if x.is_floating_point() or x.is_complex():
        return torch.mean(x, dims, keepdim=keep)
    return torch.div(torch.sum(x, dims, keepdim=keep), _count(x, dims), rounding_mode="trunc").to(x.dtype)


def _count(x: Tensor, dims: list[int]) -> int:
    count = 1
    for dim in dims:
        count = count * x.shape[dim]
    return count


def _extreme(x: Tensor, dims: list[int], keep: bool, largest: bool) -> Tensor:
    if _is_empty(x, dims):
        return _of_nothing(x, dims, keep, largest)
    return torch.amax(x, dims, keepdim=keep) if largest else torch.amin(x, dims, keepdim=keep)


def _is_empty(x: Tensor, dims: list[int]) -> bool:
    return any(isinstance(x.shape[d], int) and x.shape[d] == 0 for d in dims)


def _of_nothing(x: Tensor, dims: list[int], keep: bool, largest: bool) -> Tensor:
    """The extreme of no element: the type's least (greatest) number."""
    if x.dtype == torch.bool:
        bound: float = not largest
    elif x.is_floating_point():
        bound = float("-inf") if largest else float("inf")
    else:
        bound = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
    return torch.full_like(torch.sum(x, dims, keepdim=keep), bound, dtype=x.dtype)


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": lambda x, dims, keep: torch.sum(x, dims, keepdim=keep, dtype=x.dtype),
    "ReduceMean": _mean,
    "ReduceProd": lambda x, dims, keep: _prod(x, dims, keep).to(x.dtype),
    "ReduceMax": lambda x, dims, keep: _extreme(x, dims, keep, largest=True),
    "ReduceMin": lambda x, dims, keep: _extreme(x, dims, keep, largest=False),
    "ReduceL1": lambda x, dims, keep: torch.sum(torch.abs(x), dims, keepdim=keep, dtype=x.dtype),
    "ReduceL2": lambda x, dims, keep: torch.sqrt(torch.sum(x * x, dims, keepdim=keep).to(_float(x))).to(x.dtype),
    "ReduceLogSum": lambda x, dims, keep: torch.log(torch.sum(x, dims, keepdim=keep).to(_float(x))).to(x.dtype),
    "ReduceLogSumExp": lambda x, dims, keep: torch.logsumexp(x.to(_float(x)), dims, keepdim=keep).to(x.dtype),
    "ReduceSumSquare": lambda x, dims, keep: torch.sum(x * x, dims, keepdim=keep, dtype=x.dtype),
}


def _float(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.float64


def _enter(name: str, reduce: Reduce) -> None:
    @op(name, known=(1,))
    def form(node: Node, x: Tensor, axes: Value = None) -> Tensor:
        given = node.get("axes") if axes is None else [int(a) for a in ints(axes, "axes")]
        if not given and node.get("noop_with_empty_axes", 0):
            return _of_elements(name, x, reduce)
        dims = [d % x.dim() for d in given] if given else list(range(x.dim()))
        if not dims:
            return _of_elements(name, x, reduce)
        return reduce(x, dims, bool(node.get("keepdims", 1)))


def _of_elements(name: str, x: Tensor, reduce: Reduce) -> Tensor:
    """Each element reduced alone."""
    return reduce(x.unsqueeze(-1), [-1], False)


for _name, _reduce in _REDUCTIONS.items():
    _enter(_name, _reduce)


@op("ArgMax", "ArgMin")
def argument(node: Node, x: Tensor) -> Tensor:
    """Where the greatest (least) element is; the first of equal ones, or the last."""
    find = torch.argmax if node.op == "ArgMax" else torch.argmin
    dim, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    if not node.get("select_last_index", 0):
        return find(x, dim, keepdim=keep)
    return torch.rsub(find(x.flip(dim), dim, keepdim=keep), x.shape[dim] - 1)


@op("TopK", known=(1,))
def top_k(node: Node, x: Tensor, k: Value) -> tuple[Tensor, Tensor]:
    """The greatest (least) elements and their places; of equal ones the first."""
    (count,) = ints(k, "k")
    dim, largest = node.get("axis", -1), bool(node.get("largest", 1))
    values, places = torch.sort(x, dim=dim, descending=largest, stable=True)
    return values.narrow(dim, 0, count), places.narrow(dim, 0, count)
