"""One attention of a decoder: the proof that a row reads its own request's past only, and how far back.

What is proved here, of ``attn.attention``: queries, keys and values are the same tokens (or keys are the encoder's);
visible pairs have k ≤ q, by isl; every row sees a key; formulas are free of the total length; what they load are
constants and functions of position. Conditions 3, 4, 5 and 11 of the soundness list in docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from attnc.compiler.derive.known import BATCH, DIFFERENCE, TOKEN_AXIS, Dims, Kind, Known, Role, is_static
from attnc.compiler.derive.refusal import ATTENTION, LENGTH, MIXES, MIXES_BATCH, NOT_CAUSAL
from attnc.compiler.derive.shift import is_fill_test, without_shift
from attnc.compiler.derive.step import Step
from attnc.compiler.planning.plan import axis_lengths
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import KEY, QUERY, AttentionSpec
from attnc.ir.mask import MaskSet
from attnc.ir.values import Op, Value

_POSITIONS = (ix.axis(KEY), ix.axis(QUERY))


@dataclass(frozen=True)
class SiteFacts:
    """What is proved of one attention."""

    op: Op
    spec: AttentionSpec
    """The op's, without what a softmax doesn't see (:mod:`attnc.compiler.derive.shift`)."""
    result: Known
    batch: str | None
    """The axis that stands for the request; None where no operand has one."""
    window: int | None
    """A row reads no key more than this many positions back, itself included; None: all of them."""
    cross: bool
    """Keys and values are the encoder's."""
    tokens: sympy.Symbol
    """The number of tokens, S."""
    ramps: tuple[Value, ...] = ()
    """Tables that must rise by the same amount from each key to the next: scores read their ends, which differ for two
    total lengths by a number for each row, and a softmax doesn't see that."""

    @property
    def in_step(self) -> list[Value]:
        """The operands that are computed in every step where keys and values are the encoder's."""
        sides = self.op.args[3]
        assert isinstance(sides, tuple)
        return [value for value in (self.op.args[0], *sides) if isinstance(value, Value)]


def site_of(step: Step) -> SiteFacts:
    """The facts of an attention. Raises NotDerivable."""
    spec = without_shift(step.op.attrs["spec"], step.axes.tokens.name)
    q, k, v = (step.fact(value) for value in step.op.args[:3])
    cross = k.kind is Kind.REQUEST and v.kind is Kind.REQUEST
    batch = _batch_axis(step, spec, (q, k, v))
    _check_operand(step, "queries", q, spec.q_axes, QUERY, TOKEN_AXIS, Kind.TOKEN)
    for name, known, axes in (("keys", k, spec.k_axes), ("values", v, spec.v_axes)):
        axis, kind = (None, Kind.REQUEST) if cross else (TOKEN_AXIS, Kind.TOKEN)
        _check_operand(step, name, known, axes, KEY, axis, kind)
    check_sizes(step)
    ramps = _check_sides(step, spec)
    _check_formulas(step, spec, batch, _index_parts(spec))
    mask = MaskSet.of(spec.mask, axis_lengths(step.op))
    window = None if cross else _causal_window(step, mask)
    _check_rows(step, spec, mask)
    result = Known(Kind.TOKEN, result_dims(step, spec, (q, k, v)))
    return SiteFacts(step.op, spec, result, batch, window, cross, step.axes.tokens, ramps)


def encoder_result(step: Step) -> Known:
    """The result of an attention within the encoder. Raises NotDerivable where requests might be mixed."""
    spec: AttentionSpec = step.op.attrs["spec"]
    operands = tuple(step.fact(value) for value in step.op.args[:3])
    batch = _batch_axis(step, spec, operands)
    if any(known.kind is not Kind.REQUEST for known in operands):
        raise step.refuse(ATTENTION, "queries of the encoder, keys or values of something else")
    for name, known, axes in zip(("queries", "keys", "values"), operands, _axes(spec), strict=True):
        _check_operand(step, name, known, axes, "", None, Kind.REQUEST)
    _check_encoder_sides(step, spec, batch)
    return Known(Kind.REQUEST, result_dims(step, spec, operands))


def _axes(spec: AttentionSpec) -> tuple[tuple[str, ...], ...]:
    return spec.q_axes, spec.k_axes, spec.v_axes


def _check_encoder_sides(step: Step, spec: AttentionSpec, batch: str | None) -> None:
    """What scores load has the batch where they read it at their own request; no formula computes with its number."""
    sides = step.op.args[3]
    assert isinstance(sides, tuple)
    for number, value in enumerate(sides):
        known = step.fact(value)
        if known.role is not None or known.kind not in (Kind.UNIFORM, Kind.REQUEST):
            raise step.refuse(ATTENTION, "the encoder's scores read something of the decoder's")
        for index in _loads(spec, f"t{number}"):
            if any((BATCH in dim) != (str(i) == batch) for dim, i in zip(known.dims, index, strict=True)):
                raise step.refuse(MIXES_BATCH, "the encoder's scores read another request's values")
    _check_formulas(step, spec, batch, [spec.mask, *_computed(spec)])


def check_sizes(step: Step) -> None:
    """The sizes that formulas name are what the graph calls so."""
    spec: AttentionSpec = step.op.attrs["spec"]
    given = step.op.args[4]
    assert isinstance(given, tuple)
    if any(str(step.length(arg)) != name for name, arg in zip(spec.sizes, given, strict=True)):
        raise step.refuse(LENGTH, "a size of the formulas is given another value")


def _batch_axis(step: Step, spec: AttentionSpec, operands: tuple[Known, ...]) -> str | None:
    """The one axis that is the batch in every operand that has it."""
    named = {
        name
        for axes, known in zip((spec.q_axes, spec.k_axes, spec.v_axes), operands, strict=True)
        for name, dim in zip(axes, known.dims, strict=True)
        if BATCH in dim
    }
    if len(named) > 1:
        raise step.refuse(
            ATTENTION, f"the batch is another axis in queries, keys and values: {', '.join(sorted(named))}"
        )
    return next(iter(named), None)


def _check_operand(
    step: Step, what: str, known: Known, axes: tuple[str, ...], own: str, atom: str | None, kind: Kind
) -> None:
    """Raises NotDerivable unless an operand is of ``kind`` and its axes are what they are called."""
    if known.kind is not kind:
        raise step.refuse(ATTENTION, f"the {what} are no data of the tokens they stand for")
    for name, dim in zip(axes, known.dims, strict=True):
        if name == own and atom is not None and dim != (atom,):
            raise step.refuse(MIXES, f"the {what}' positions are {_show(dim)}, not tokens")
        if (name != own or atom is None) and not is_static(dim) and dim != (BATCH,):
            raise step.refuse(MIXES, f"axis {name} of the {what} is {_show(dim)}")


def _show(dim: tuple[int | str, ...]) -> str:
    return "·".join(map(str, dim)) or "1"


def _check_sides(step: Step, spec: AttentionSpec) -> tuple[Value, ...]:
    """Check what formulas load; the tables that must be ramps."""
    sides = step.op.args[3]
    assert isinstance(sides, tuple)
    ramps = []
    for number, value in enumerate(sides):
        known = step.fact(value)
        assert isinstance(value, Value)
        if known.role is Role.SUFFIX and known.source is not None:
            _check_suffix(step, spec, number, known)
            ramps.append(known.source)
        elif known.role is not None or known.kind > Kind.POSITION:
            raise step.refuse(*_side_reason(known, value))
        if BATCH in known.symbolic:
            raise step.refuse(ATTENTION, f"%{value.name}, which the scores read, has a batch axis")
        if DIFFERENCE in known.symbolic:
            _check_difference(step, spec, number, known)
    return tuple(ramps)


def _check_suffix(step: Step, spec: AttentionSpec, number: int, known: Known) -> None:
    """The end of a table must be read by key and only be added to the score, under a plain softmax."""
    side = f"t{number}"
    place = known.having(TOKEN_AXIS)[0]
    by_key = all(
        index[place] == ix.axis(KEY)
        and not any(sympy.sympify(i).has(*_POSITIONS) for d, i in enumerate(index) if d != place)
        for index in _loads(spec, side)
    )
    others = (spec.weight, spec.sink)
    if not by_key or spec.softmax != "plain" or any(f is not None and side in sc.side_names(f) for f in others):
        raise step.refuse(LENGTH, "the end of a table, as long as the sequence, is read by more than the key")
    if not _adds(spec.visible, side):
        raise step.refuse(LENGTH, "the end of a table, as long as the sequence, is more than added to the scores")


def _adds(node: sc.Node, side: str) -> bool:
    """Whether a score is something without a side operand, plus its element."""
    inside = [side in sc.side_names(arg) for arg in node.args]
    match node.op:
        case "load":
            return bool(node.value[0] == side)
        case "add":
            return sum(inside) == 1 and _adds(node.args[inside.index(True)], side)
        case "sub":
            return inside == [True, False] and _adds(node.args[0], side)
        case "where":
            return is_fill_test(node) and _adds(node.args[2], side)
    return False


def _side_reason(known: Known, value: Value) -> tuple[str, str]:
    if known.kind is Kind.LENGTH:
        return LENGTH, f"%{value.name}, which the scores read, depends on the total length"
    return ATTENTION, f"%{value.name}, which the scores read, is data of single tokens"


def _check_difference(step: Step, spec: AttentionSpec, number: int, known: Known) -> None:
    """A table of differences must be read at k − q + S − 1."""
    place = known.having(DIFFERENCE)[0]
    middle = step.axes.tokens - 1
    for load in _loads(spec, f"t{number}"):
        if sympy.expand(load[place] - (ix.axis(KEY) - ix.axis(QUERY) + middle)) != 0:
            raise step.refuse(LENGTH, "a table of relative positions is read at something else than k − q")


def _loads(spec: AttentionSpec, side: str) -> list[tuple[sympy.Expr, ...]]:
    """The index tuples at which formulas read a side operand."""
    found = []
    for formula in _formulas(spec):
        for node in sc.walk(formula):
            if node.op == "load" and node.value[0] == side:
                found.append(tuple(node.value[1]))
    for expr in _index_parts(spec):
        found += [load.indices for load in ix.loads(expr) if load.name == side]
    return found


def _formulas(spec: AttentionSpec) -> list[sc.Node]:
    return [f for f in (spec.score, spec.visible, spec.weight, spec.sink) if f is not None]


def _computed(spec: AttentionSpec) -> list[sympy.Basic]:
    """The index expressions that formulas compute with, those of their loads left out."""
    return [node.value for formula in _formulas(spec) for node in sc.walk(formula) if node.op == "index"]


def _index_parts(spec: AttentionSpec) -> list[sympy.Basic]:
    return [spec.mask, *(expr for formula in _formulas(spec) for expr in sc.index_exprs(formula))]


def _check_formulas(step: Step, spec: AttentionSpec, batch: str | None, parts: list[sympy.Basic]) -> None:
    """No formula may know the request's number, nor the total length but where a table of differences is read."""
    if batch is not None and any(ix.axis(batch) in _bare(expr).free_symbols for expr in parts):
        raise step.refuse(MIXES_BATCH, "the scores depend on the number of the request in the batch")
    differences = _differences(step)
    for expr in (spec.mask, *_computed(spec), *_float_indices(spec, differences)):
        sized = {n for n in ix.sizes_of(_without_loads(expr, differences)) if n != str(step.axes.encoder)}
        if sized:
            raise step.refuse(LENGTH, f"the formula {ix.show(expr)} depends on {', '.join(sorted(sized))}")


def _differences(step: Step) -> frozenset[str]:
    """Names of the side operands that are tables of differences; where they are read was checked."""
    sides = step.op.args[3]
    assert isinstance(sides, tuple)
    return frozenset(f"t{i}" for i, side in enumerate(sides) if DIFFERENCE in step.fact(side).symbolic)


def _float_indices(spec: AttentionSpec, without: frozenset[str]) -> list[sympy.Basic]:
    """The index expressions at which formulas read float tensors, but for some."""
    loads = (node for formula in _formulas(spec) for node in sc.walk(formula) if node.op == "load")
    return [index for node in loads if node.value[0] not in without for index in node.value[1]]


def _without_loads(expr: sympy.Basic, names: frozenset[str]) -> sympy.Basic:
    """An index expression without what it loads from some tensors."""
    return sympy.sympify(expr).replace(lambda e: isinstance(e, ix.Load) and e.name in names, lambda e: sympy.Integer(0))


def _bare(expr: sympy.Basic) -> sympy.Basic:
    """An index expression without what it loads."""
    return sympy.sympify(expr).replace(lambda e: isinstance(e, ix.Load), lambda e: sympy.Integer(0))


def _causal_window(step: Step, mask: MaskSet) -> int | None:
    """How many keys back a row can see. Raises NotDerivable where a key behind its query may be visible."""
    if not mask.is_causal():
        raise step.refuse(NOT_CAUSAL, f"a key after its query may be visible: the mask is {ix.show(mask.expr)}")
    return mask.reach()


def _check_rows(step: Step, spec: AttentionSpec, mask: MaskSet) -> None:
    """A row without a visible key would read all keys of the sequence where its fill is finite."""
    if spec.fill.value is not None and not mask.rows_alive():
        raise step.refuse(ATTENTION, "a row without a visible key would average over all keys: its fill is finite")


def result_dims(step: Step, spec: AttentionSpec, operands: tuple[Known, ...]) -> Dims:
    """The axes of an attention's result, from those of its operands."""
    axis: dict[str, tuple[int | str, ...]] = {}
    for axes, known in zip((spec.q_axes, spec.k_axes, spec.v_axes), operands, strict=True):
        for name, dim in zip(axes, known.dims, strict=True):
            axis[name] = axis.get(name) or dim
    unknown = [name for name in spec.out_axes if name not in axis]
    if unknown:
        raise step.refuse(ATTENTION, f"axes of the result that no operand has: {', '.join(unknown)}")
    return tuple(axis[name] for name in spec.out_axes)
