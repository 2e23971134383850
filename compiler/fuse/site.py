"""Matching: from a softmax or an SDPA call to a :class:`Match`, or a Reject that says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import sympy

from attnc.compiler.fuse.axes import Axis, Coords, LayoutError, is_one, resolve
from attnc.compiler.fuse.builder import ScoreBuilder
from attnc.compiler.fuse.contraction import Contraction, lengths_agree
from attnc.compiler.fuse.forms import SoftmaxForm
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.match import Match, Operand, name_axes
from attnc.compiler.fuse.reach import Reach
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.softmax import Weights, divided_product, follow_weights
from attnc.compiler.lift.lifter import Lifter
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, DType
from attnc.ir.values import Op, Value

MORE_KEYS = "Nothing: a single weight is 1, and the result is V."
Attempt = Callable[[Callable[[Axis], sympy.Symbol], Lifter | None], Match]


def settle(attempt: Attempt, axes: Iterable[Axis], lifter: Lifter) -> Match:
    """Run a match until no view splits an axis any more: first for layouts only, then with names and formulas.

    Names are given to axes that are whole; a view found late that splits one starts over. Each round splits an axis,
    and a dimension has finitely many factors, so this ends.
    """
    roots = list(axes)

    def count() -> int:
        return sum(len(axis.leaves()) for axis in roots)

    while True:
        before = count()
        try:
            names = attempt(_temporary_names(), None).names
            match = attempt(_given_names(names), lifter) if count() == before else None
        except (Reject, LayoutError):
            if count() == before:
                raise
            continue  # it may have compared an axis with its parts
        if match is not None and count() == before:
            return match


def match_softmax(graph: Graph, form: SoftmaxForm, lifter: Lifter, values: dict[str, Value], reaches: Reach) -> Match:
    """The attention round a softmax. Raises Reject."""
    op, scores = form.root, form.scores
    shape = tensor_type(scores).shape
    check_lengths(op, shape)
    if is_one(shape[form.axis]):
        raise Reject("ATTNC-SINGLE-KEY", "the softmax runs over a single key", op, edit=MORE_KEYS)
    roots = score_axes(shape, form.axis)
    key = roots[form.axis]

    def attempt(symbol: Callable[[Axis], sympy.Symbol], active: Lifter | None) -> Match:
        coords: Coords = resolve(tuple(() if is_one(axis.length) else (axis,) for axis in roots))
        builder = ScoreBuilder(key, symbol, active, values, reaches, steps=list(form.steps))
        # Before the score: a softmax that is no attention is told apart by where its weights go.
        weights = follow_weights(graph, form, coords, builder)
        if not builder.reaches(scores):
            raise _unreached(scores, reaches, op)
        score = builder.hidden(builder.build(scores, coords, form.dtype), form.masks, coords)
        sink = _sink(form, builder, coords, key)
        if builder.product is None:
            raise Reject("ATTNC-NOT-ATTENTION", "the scores do not come from a contraction of Q and K", op)
        product = builder.product
        for side in builder.sides:
            if depends_on((side,), product.op):
                raise Reject("ATTNC-SCORE-CONDITION", "a mask or bias is computed from the scores themselves", side.op)
        q, k = Operand(product.q, product.q_coords).peeled(), Operand(product.k, product.k_coords).peeled()
        v, feature, out_coords = _value_operand(weights, key)
        result, out_coords = divided_product(graph, form, weights.op.result, out_coords, coords, key)
        rows = tuple(axis for dim in resolve(coords) for axis in dim if axis is not key)
        names = name_axes(rows, key, product.d, feature, q, k, v)
        check_axes(rows, op, q, k, v)
        return Match(
            root=op,
            result=result,
            q=q,
            k=k,
            v=v,
            out_coords=resolve(out_coords),
            rows=rows,
            key=key,
            contracted=product.d,
            feature=feature,
            score=score,
            sides=builder.sides,
            softmax_dtype=form.dtype,
            names=names,
            weight=weights.factor,
            sink=sink,
            zero_dead_rows=weights.zero_dead_rows,
            steps=builder.steps,
        )

    try:
        return settle(attempt, roots, lifter)
    except LayoutError as error:
        raise Reject("ATTNC-LAYOUT", str(error), error.op or op) from error


def _unreached(scores: Value, reaches: Reach, op: Op) -> Reject:
    blocker = reaches.blocker(scores)
    if blocker is None:
        return Reject("ATTNC-NOT-ATTENTION", "the scores do not come from a contraction of Q and K", op)
    return Reject("ATTNC-SCORE-OP", f"{blocker.name} between Q·Kᵀ and the softmax is not understood", blocker)


def _sink(form: SoftmaxForm, builder: ScoreBuilder, coords: Coords, key: Axis) -> sc.Node | None:
    """The logit of the denominator's extra term, which the key doesn't index."""
    if form.sink is None:
        return None
    row = tuple(() if key in dim else dim for dim in coords if form.sink_keepdim or key not in dim)
    return builder.aside(form.sink, row, DType.F32)


def check_lengths(op: Op, shape: tuple[Dim, ...]) -> None:
    """Leave empty tensors to the host. Raises Reject."""
    if any(n == 0 for n in shape):
        edit = "Nothing: no row or no key is there."
        raise Reject("ATTNC-EMPTY", "a dimension of the scores has length 0", op, edit=edit)


def score_axes(shape: tuple[Dim, ...], at: int) -> list[Axis]:
    """One axis for each dimension of the scores. The first of three or more is a batch, the last two are positions."""
    rank = len(shape)
    hints = ["k" if i == at else "b" if i == 0 and rank > 2 else "h" for i in range(rank)]
    return [Axis(n, hints[i], atomic=i == at) for i, n in enumerate(shape)]


def _value_operand(weights: Weights, key: Axis) -> tuple[Operand, Axis, Coords]:
    """V with its axes, the feature axis, and the coordinates of the contraction's result."""
    form, op = weights.form, weights.op
    on_left = form.left is weights.value
    lengths_agree(form, op)
    if on_left and form.right is weights.value:
        edit = "Multiply the weights by V alone: w @ v; a second pass is an attention of its own."
        raise Reject("ATTNC-CONTRACTION", "the weights are multiplied by themselves", op, edit=edit)
    value = form.right if on_left else form.left
    p_labels, v_labels = (form.left_labels, form.right_labels)[:: 1 if on_left else -1]
    if form.addend is not None or form.alpha != 1:
        raise Reject("ATTNC-CONTRACTION", f"{op.name} adds to P·V", op, edit="Write bmm, and add to its result.")
    where = dict(zip(p_labels, weights.coords, strict=True))
    if len(form.summed) != 1 or where[form.summed[0]] != (key,):
        edit = _summing_edit(form, p_labels)
        raise Reject("ATTNC-CONTRACTION", "the contraction after the softmax does not sum over the keys", op, edit=edit)
    own = [name for name in v_labels if name not in where]
    if len(own) != 1:
        edit = "Flatten V's features into one dimension, and view the result."
        edit = edit if own else "Give V a feature: v[..., None]."
        raise Reject("ATTNC-CONTRACTION", f"V has {len(own)} dimensions of its own, expected one", op, edit=edit)
    shape = tensor_type(value).shape
    feature = Axis(shape[v_labels.index(own[0])], "e", atomic=True)
    where[own[0]] = (feature,)
    coords = tuple(
        where[name] if name == own[0] or not is_one(n) else () for name, n in zip(v_labels, shape, strict=True)
    )
    for name, n in zip(v_labels, shape, strict=True):
        if not is_one(n) and not where[name]:
            edit = "Give Q or K that dimension before the product (q.expand), or move it into V's features."
            raise Reject("ATTNC-CONTRACTION", "V has a batch dimension that the weights lack", op, edit=edit)
    return Operand(value, coords).peeled(), feature, tuple(where[name] for name in form.result_labels)


def _summing_edit(form: Contraction, labels: tuple[str, ...]) -> str:
    """What to do where the contraction after the softmax does not sum over the keys."""
    if len(form.summed) != 1:
        return "Sum over the keys alone after the softmax."
    back = labels.index(form.summed[0]) - len(labels)
    if back < -2:
        return "Mix no weights of other heads into each other: take this product out, or mix the results after P·V."
    return f"Let softmax and P·V run over one dimension: softmax(dim={back}), as this product sums over it."


def check_axes(rows: tuple[Axis, ...], op: Op, *operands: Operand) -> None:
    """Raise Reject where only a mask or bias has a batch dimension: the kernel loops over those of Q, K and V."""
    known = {axis for operand in operands for axis in operand.axes()}
    if any(axis not in known for axis in rows):
        edit = "Run the attention once for each index of that dimension, and stack the results."
        raise Reject("ATTNC-LAYOUT", "the scores have a dimension that neither Q, K nor V has", op, edit=edit)


def depends_on(values: Iterable[Value], source: Op) -> bool:
    """Whether any of the values is computed from ``source``."""
    seen: set[Op] = set()
    stack = [value.op for value in values]
    while stack:
        op = stack.pop()
        if op is source:
            return True
        if op is not None and op not in seen:
            seen.add(op)
            stack.extend(operand.op for operand in op.operands)
    return False


def _temporary_names() -> Callable[[Axis], sympy.Symbol]:
    names: dict[Axis, sympy.Symbol] = {}
    return lambda axis: names.setdefault(axis, ix.axis(f"_{len(names)}"))


def _given_names(names: dict[Axis, str]) -> Callable[[Axis], sympy.Symbol]:
    """The names of whole axes; a part of an axis split only now gets one for the rest of this round."""
    parts: dict[Axis, sympy.Symbol] = {}
    return lambda axis: ix.axis(names[axis]) if axis in names else parts.setdefault(axis, ix.axis(f"part{len(parts)}"))
