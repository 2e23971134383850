"""Where the features of keys and values come from, seen through layout: a product with a weight, or one row for all.

Multi-head latent attention (DeepSeek-V2, https://arxiv.org/abs/2405.04434, section 2.1) expands one small vector of
each token to the keys and values of all heads. Read backward from the attention, its keys are features of W·c, for a c
that all heads share, beside rotated features that all heads share too.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.compiler.derive.known import Known, is_static
from attnc.compiler.fuse.layout import tensor_type
from attnc.ir.values import Arg, Op, Value

_SAME = frozenset(f"aten.{n}" for n in ("alias.default", "clone.default", "detach.default", "contiguous.default"))
_ORDERS = frozenset(("aten.transpose.int", "aten.permute.default", "aten.unsqueeze.default", "aten.expand.default"))
_VIEWS = frozenset(f"aten.{n}.default" for n in ("view", "reshape", "_unsafe_view"))
_END = 1 << 31


@dataclass(frozen=True)
class Part:
    """Features ``lo … hi`` of an operand.

    Without ``weight`` they are features ``offset …`` of ``value``. With it, those of head h are rows ``h · per_head +
    offset …`` of weight @ value.
    """

    lo: int
    hi: int
    value: Value
    offset: int
    weight: Value | None = None
    per_head: int = 0

    @property
    def size(self) -> int:
        return self.hi - self.lo


def parts_of(value: Value) -> list[Part]:
    """The parts of all features (the last dimension) of a value, in order."""
    return _walk(value, 0, features(value), 0)


def features(value: Value) -> int:
    """The length of the last dimension, which is static."""
    length = tensor_type(value).shape[-1]
    assert isinstance(length, int)
    return length


def _walk(value: Value, lo: int, hi: int, at: int) -> list[Part]:
    """Parts of features lo … hi of a value, which stand from ``at`` on in the operand."""
    op = value.op
    found = None if op is None else _through(op, value, lo, hi, at)
    return [Part(at, at + hi - lo, value, lo)] if found is None else found


def _through(op: Op, value: Value, lo: int, hi: int, at: int) -> list[Part] | None:
    """The same through the op that made the value; None where it does more than rearrange."""
    last = _rank(value) - 1
    first = op.args[0] if op.args else None
    if op.name in _SAME and isinstance(first, Value):
        return _walk(first, lo, hi, at)
    if op.name in _ORDERS and isinstance(first, Value):
        return _walk(first, lo, hi, at) if _keeps_last(op, value, first) else None
    if op.name in _VIEWS and isinstance(first, Value):
        return _viewed(value, first, lo, hi, at)
    if op.name == "aten.slice.Tensor" and isinstance(first, Value) and _dim(op.arg(1, "dim", 0), last) == last:
        return _sliced(op, first, lo, hi, at)
    if op.name == "py.getitem" and isinstance(first, Value) and first.op is not None:
        return _split(first.op, op.args[1], lo, hi, at)
    if op.name == "aten.cat.default" and _dim(op.arg(1, "dim", 0), last) == last and isinstance(first, tuple):
        return _joined(first, lo, hi, at)
    if op.name == "aten.copy.default" and isinstance(op.args[1], Value) and features(op.args[1]) == features(value):
        return _walk(op.args[1], lo, hi, at)
    if op.name == "aten.slice_scatter.default" and _dim(op.arg(2, "dim", 0), last) == last:
        return _put(op, lo, hi, at)
    return None


def _rank(value: Value) -> int:
    return tensor_type(value).rank


def _dim(dim: Arg, last: int) -> int:
    return dim % (last + 1) if isinstance(dim, int) else -1


def _keeps_last(op: Op, value: Value, source: Value) -> bool:
    """Whether the last dimension stays where it is, as long as it is."""
    if op.name == "aten.transpose.int":
        rank = _rank(value)
        return rank - 1 not in {_dim(a, rank - 1) for a in op.args[1:3]}
    if op.name == "aten.permute.default":
        order = op.args[1]
        return isinstance(order, tuple) and _dim(order[-1], _rank(value) - 1) == _rank(value) - 1
    if op.name == "aten.unsqueeze.default" and _dim(op.args[1], _rank(value) - 1) == _rank(value) - 1:
        return False
    return features(source) == features(value)


def _viewed(value: Value, source: Value, lo: int, hi: int, at: int) -> list[Part] | None:
    """A view that keeps the features, or one that cuts a product's rows into heads."""
    if features(source) == features(value):
        return _walk(source, lo, hi, at)
    op = source.op
    if op is None or op.name != "aten.linear.default" or len(op.args) > 2:
        return None
    x, weight = op.args
    assert isinstance(x, Value) and isinstance(weight, Value)
    return [Part(at, at + hi - lo, x, lo, weight, features(value))] if features(source) % features(value) == 0 else None


def _sliced(op: Op, source: Value, lo: int, hi: int, at: int) -> list[Part] | None:
    start, step = op.arg(2, "start") or 0, op.arg(4, "step", 1)
    if not isinstance(start, int) or step != 1:
        return None
    start += features(source) if start < 0 else 0
    return _walk(source, lo + start, hi + start, at)


def _split(op: Op, index: Arg, lo: int, hi: int, at: int) -> list[Part] | None:
    """One of the pieces of a split along the features."""
    source = op.args[0]
    if (
        not isinstance(source, Value)
        or not isinstance(index, int)
        or op.name.split(".")[1] not in ("split", "split_with_sizes")
    ):
        return None
    if _dim(op.arg(2, "dim", 0), _rank(source) - 1) != _rank(source) - 1:
        return None
    sizes = op.args[1]
    if isinstance(sizes, int):
        start = index * sizes
    elif isinstance(sizes, tuple) and all(isinstance(n, int) for n in sizes):
        start = sum(n for n in sizes[:index] if isinstance(n, int))
    else:
        return None
    return _walk(source, lo + start, hi + start, at)


def _joined(pieces: tuple[Arg, ...], lo: int, hi: int, at: int) -> list[Part]:
    found: list[Part] = []
    start = 0
    for piece in pieces:
        assert isinstance(piece, Value)
        end = start + features(piece)
        a, b = max(lo, start), min(hi, end)
        if a < b:
            found += _walk(piece, a - start, b - start, at + a - lo)
        start = end
    return found


def _put(op: Op, lo: int, hi: int, at: int) -> list[Part] | None:
    """Features of a tensor into which a part was written."""
    base, part = op.args[:2]
    start, end = op.arg(3, "start") or 0, op.arg(4, "end")
    if not (isinstance(base, Value) and isinstance(part, Value) and isinstance(start, int)):
        return None
    stop = features(base) if end is None or not isinstance(end, int) or end >= _END else end
    spans = ((lo, min(hi, start), base, 0), (max(lo, start), min(hi, stop), part, start), (max(lo, stop), hi, base, 0))
    found: list[Part] = []
    for a, b, source, shift in spans:
        if a < b:
            found += _walk(source, a - shift, b - shift, at + a - lo)
    return found


def is_shared(known: Known) -> bool:
    """Whether a token has one row of features, which all heads share."""
    heads = [dim for dim in known.dims[:-1] if dim and is_static(dim)]
    return not heads
