"""Would a refused softmax fuse without the op that blocks it? Tried on a copy of the graph.

For each refusal the copy is changed in one place, then matched again: by what it then is, the report can say what the
program nearly was, and what would be in the way next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from attnc.compiler.codes import CODES
from attnc.compiler.fuse import pointwise as pw
from attnc.compiler.fuse.axes import is_one
from attnc.compiler.fuse.contraction import contraction
from attnc.compiler.fuse.find import Finder
from attnc.compiler.fuse.forms import SOFTMAXES, same_shape, softmax_axis
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.nearest import NearMiss, Refusal, cited, edit_of, form_of, place, stages
from attnc.compiler.fuse.reach import Reach
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.sdpa import SDPA
from attnc.compiler.fuse.site import depends_on
from attnc.compiler.fuse.written_out import DIVIDES, SUMS, summed_axis
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType
from attnc.ir.values import Arg, Op, Value, map_values


def near_misses(graph: Graph, refused: Mapping[int, Refusal], user_names: Mapping[str, str]) -> dict[int, NearMiss]:
    """What each refused attention nearly was; a softmax that is none has no entry."""
    left = {index: refusal for index, refusal in refused.items() if CODES[refusal.reject.code].level == "left"}
    if not left:
        return {}
    copy = Copy.of(graph)
    roots = {index: copy.change(refusal) for index, refusal in left.items()}
    find = Finder(copy.graph)
    return {index: _near_miss(refusal, roots[index], find, user_names) for index, refusal in left.items()}


def _near_miss(refusal: Refusal, changed: Op | None, find: Finder, user_names: Mapping[str, str]) -> NearMiss:
    """``changed``: the softmax in the changed copy; None where nothing could be changed."""
    match, edit, reject = refusal.reject.match, edit_of(refusal), refusal.reject
    form = "" if match is None else form_of(match, user_names)
    if match is None and changed is not None:
        try:
            found = find(changed)
            form = "" if found is None else form_of(found.match, user_names)
        except Reject as other:
            form = "" if other.match is None else form_of(other.match, user_names)
            at = "" if other.op is None or not other.op.loc.file else f" (at {place(other.op.loc)})"
            edit += f" Next in the way: {other.code}, {other.reason}{at}."
    return NearMiss(form or stages(refusal), cited(reject.op or refusal.root), edit)


@dataclass
class Copy:
    """A graph copied op by op; ``values`` and ``ops`` lead from the original to the copy."""

    graph: Graph
    values: dict[Value, Value] = field(default_factory=dict)
    ops: dict[Op, Op] = field(default_factory=dict)

    @staticmethod
    def of(graph: Graph) -> Copy:
        """Values keep their names; constants and regions are shared."""
        copy = Copy(Graph(graph.name, sizes=dict(graph.sizes), constants=graph.constants))
        for value in graph.inputs:
            copy.values[value] = copy.graph.add_input(value.name, value.type)
        for op in graph.ops:
            copy._add(op)
        copy.graph.outputs = tuple(copy._mapped(arg) for arg in graph.outputs)
        return copy

    def _add(self, op: Op) -> None:
        made = self.graph.create(
            op.name,
            tuple(self._mapped(arg) for arg in op.args),
            [value.type for value in op.results],
            kwargs={name: self._mapped(arg) for name, arg in op.kwargs.items()},
            attrs=op.attrs,
            loc=op.loc,
            names=[value.name for value in op.results],
        )
        made.regions, made.meta = op.regions, op.meta
        self.ops[op] = made
        self.values.update(zip(op.results, made.results, strict=True))

    def _mapped(self, arg: Arg) -> Arg:
        return map_values(arg, self.values.__getitem__)

    def change(self, refusal: Refusal) -> Op | None:
        """Take what blocks a refused softmax out of the copy. Returns the softmax, None where that has no meaning."""
        change, root, value = _CHANGES.get(refusal.reject.code), self.ops[refusal.root], refusal.reject.value
        if change is None:
            return None
        read = None if value is None else self.values[value]
        return change(_Place(self.graph, root, self.ops[refusal.blocker], read))


@dataclass(frozen=True)
class _Place:
    graph: Graph
    root: Op
    blocker: Op
    value: Value | None


def _pass_over(at: _Place) -> Op | None:
    """Read the op's operand instead of its result, where both have one type; the op then reads nothing."""
    result, reaches = _tensor_result(at.blocker), Reach()
    for operand in at.blocker.operands if result is not None else ():
        carries = depends_on((operand,), at.root) or reaches(operand)
        if result is not None and carries and _same_type(operand, result):
            at.graph.replace_uses(result, operand)
            at.blocker.set_args((), {})
            return at.root
    return None


def _tensor_result(op: Op) -> Value | None:
    """The result of an op, the first of several."""
    if len(op.results) == 1 and not isinstance(op.result.type, TensorType):
        first = (user for user in op.result.users if user.name == "py.getitem" and user.args[1] == 0)
        return next((user.result for user in first), None)
    return op.results[0] if op.results else None


def _same_type(a: Value, b: Value) -> bool:
    if not isinstance(a.type, TensorType) or not isinstance(b.type, TensorType):
        return False
    return same_shape(a, b) and a.type.dtype is b.type.dtype


def _without_dropout(at: _Place) -> Op | None:
    if at.blocker.name != SDPA:
        return _pass_over(at)
    args, kwargs = at.blocker.args, {name: arg for name, arg in at.blocker.kwargs.items() if name != "dropout_p"}
    at.blocker.set_args(args if len(args) <= 4 else (*args[:4], 0.0, *args[5:]), kwargs)
    return at.root


def _unread(at: _Place) -> Op | None:
    """Give every reader of the weights but the way to V, the outputs among them, a tensor from elsewhere."""
    value = at.value
    kept = None if value is None else next((u for u in value.users if u is not at.blocker and _carries(u)), None)
    if value is None or kept is None:
        return None
    elsewhere = at.graph.add_input("weights", value.type)
    for user in value.users:
        if user is not kept:
            _reread(user, value, elsewhere)
    at.graph.outputs = tuple(map_values(a, lambda v: elsewhere if v is value else v) for a in at.graph.outputs)
    return at.root


def _carries(op: Op, depth: int = 4) -> bool:
    """Whether the weights may reach V through ``op``."""
    if contraction(op) is not None:
        return True
    return depth > 0 and any(_carries(user, depth - 1) for value in op.results for user in value.users)


def _reread(op: Op, old: Value, new: Value) -> None:
    def swap(value: Value) -> Arg:
        return new if value is old else value

    op.set_args(
        tuple(map_values(a, swap) for a in op.args), {name: map_values(a, swap) for name, a in op.kwargs.items()}
    )


def _unconditional(at: _Place) -> Op | None:
    """Pass over what reads a condition, or another side operand, that was computed from the scores."""
    readers = [user for value in at.blocker.results for user in value.users if user.name in pw.POINTWISE]
    passed = [_pass_over(_Place(at.graph, at.root, user, None)) for user in readers]
    return at.root if any(passed) else None


def _over_summed(at: _Place) -> Op | None:
    """Let the softmax run over what P·V sums; a product that mixes the weights of heads is passed over."""
    form = contraction(at.blocker)
    if form is None or at.root.name not in SOFTMAXES or at.root.result not in (form.left, form.right):
        return _pass_over(at)
    labels = form.left_labels if form.left is at.root.result else form.right_labels
    dim = labels.index(form.summed[0]) if len(form.summed) == 1 else 0
    if dim < len(labels) - 2:
        return _pass_over(at)
    if dim == softmax_axis(at.root):
        return None
    at.root.set_args((at.root.args[0], dim, *at.root.args[2:]))
    return at.root


def _as_softmax(at: _Place) -> Op | None:
    """A softmax operator in place of exponentials and their division, before or after the product with V."""
    e, shifted = at.root.result, at.root.operands[0]
    total = next((user for user in e.users if user.name in SUMS), None)
    axis = None if total is None else summed_axis(total)
    if axis is None:
        return None
    softmax = at.graph.create("aten.softmax.int", (_unshifted(shifted, axis), axis), (e.type,), loc=at.root.loc)
    for user in e.users:
        if user.name in DIVIDES and user.args[0] is e and same_shape(user.result, e):
            at.graph.replace_uses(user.result, softmax.result)
        elif contraction(user) is not None:
            _reread(user, e, softmax.result)
    return softmax if softmax.result.uses else None


def _unshifted(scores: Value, axis: int) -> Value:
    """The scores before one number of each row was subtracted."""
    op = scores.op
    if op is None or op.name != "aten.sub.Tensor" or len(op.operands) != 2:
        return scores
    left, row = op.operands
    shape = tensor_type(row).shape
    return left if same_shape(left, scores) and (not shape or is_one(shape[axis])) else scores


_CHANGES: dict[str, Callable[[_Place], Op | None]] = {
    "ATTNC-SCORE-OP": _pass_over,
    "ATTNC-SCORE-CONDITION": _unconditional,
    "ATTNC-WEIGHTS-OP": _pass_over,
    "ATTNC-WEIGHTS-USED": _unread,
    "ATTNC-DROPOUT": _without_dropout,
    "ATTNC-CONTRACTION": _over_summed,
    "ATTNC-SOFTMAX-FORM": _as_softmax,
}
