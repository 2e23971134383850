"""What ``attn.attention`` requires of its operands and attribute, and the types of its results."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from attnc.ir import index, score
from attnc.ir.attention import CONTRACTED, FEATURE, KEY, QUERY, AttentionSpec
from attnc.ir.lexer import is_identifier
from attnc.ir.score import Node
from attnc.ir.types import Dim, DType, ScalarType, TensorType, Type, same_dim
from attnc.ir.values import Arg, Op, Value

RESERVED = frozenset({QUERY, KEY, CONTRACTED, FEATURE})
_OWN = {"q": {QUERY, CONTRACTED}, "k": {KEY, CONTRACTED}, "v": {KEY, FEATURE}, "out": {QUERY, FEATURE}}
_TAKEN = re.compile(r"(qk|t\d+)\Z")
SOFTMAX_FORMS = ("plain", "sink", "plus_one")
DEAD_ROWS = ("source", "zero")


def infer_attention(args: tuple[Arg, ...], attrs: Mapping[str, Any]) -> tuple[Type, ...]:
    """(out, lse?) types: out in the order of ``out_axes``, contiguous; lse f32 without the feature axis.

    Raises ValueError where an axis of the result has no length.
    """
    spec: AttentionSpec = attrs["spec"]
    lengths, device = axis_lengths(args, spec), _tensor(args[0]).device
    missing = [a for a in spec.out_axes if a not in lengths]
    if missing:
        raise ValueError(f"axis {missing[0]} of the result is in none of q, k, v")
    out = TensorType(spec.out_dtype, tuple(lengths[a] for a in spec.out_axes), device)
    if not spec.returns_lse:
        return (out,)
    return out, TensorType(DType.F32, tuple(lengths[a] for a in spec.out_axes if a != FEATURE), device)


def axis_lengths(args: tuple[Arg, ...], spec: AttentionSpec) -> dict[str, Dim]:
    """The length of each axis, read from q first, then k, then v."""
    lengths: dict[str, Dim] = {}
    for arg, axes in zip(args, (spec.q_axes, spec.k_axes, spec.v_axes), strict=False):
        for axis, length in zip(axes, _tensor(arg).shape, strict=False):
            lengths.setdefault(axis, length)
    return lengths


def _tensor(arg: Arg) -> TensorType:
    if isinstance(arg, Value) and isinstance(arg.type, TensorType):
        return arg.type
    raise ValueError("an operand is not a tensor")


def verify_attention(op: Op) -> Iterator[str]:
    """What is wrong with an ``attn.attention``, axes before shapes before formulas."""
    spec: AttentionSpec = op.attrs["spec"]
    yield from spec_problems(spec) or [*_operands(op, spec), *formula_problems(op, spec)]


def spec_problems(spec: AttentionSpec) -> list[str]:
    """What is wrong with the axes and options of an attention."""
    return [*_axis_names(spec), *_options(spec)]


def _axis_names(spec: AttentionSpec) -> Iterator[str]:
    axes = {"q": spec.q_axes, "k": spec.k_axes, "v": spec.v_axes, "out": spec.out_axes}
    for name, own in axes.items():
        if len(set(own)) != len(own):
            yield f"an axis appears twice in {name}[{', '.join(own)}]"
        if set(own) & RESERVED != _OWN[name]:
            wanted = _listed(_OWN[name])
            yield f"{name}[{', '.join(own)}] must have the axes {wanted} and no other reserved one"
    outer = {axis for name in "qkv" for axis in axes[name]} - RESERVED
    if outer != set(spec.out_axes) - RESERVED:
        yield f"outer axes of q, k, v ({_listed(outer)}) and of out ({_listed(set(spec.out_axes) - RESERVED)}) differ"
    for name in (*sorted(outer), *spec.sizes):
        if not is_identifier(name) or keyword.iskeyword(name) or _TAKEN.match(name):
            yield f"{name!r} cannot name an axis or size of an attention"
    for name in sorted({axis for own in axes.values() for axis in own} & set(spec.sizes)):
        yield f"{name!r} names both an axis and a size"
    if len(set(spec.sizes)) != len(spec.sizes):
        yield f"a size appears twice in sizes = [{', '.join(spec.sizes)}]"


def _options(spec: AttentionSpec) -> Iterator[str]:
    if spec.softmax not in SOFTMAX_FORMS:
        yield f"softmax form {spec.softmax!r} is none of {', '.join(SOFTMAX_FORMS)}"
    if spec.dead_rows not in DEAD_ROWS:
        yield f"dead_rows {spec.dead_rows!r} is none of {', '.join(DEAD_ROWS)}"
    if spec.fill.value is not None and not math.isfinite(spec.fill.value):
        yield f"the fill {spec.fill.value} is not finite; minus infinity is Fill(None), in text minus_inf"
    if (spec.softmax == "sink") != (spec.sink is not None):
        yield "the softmax form is sink exactly where a sink formula is given"
    if not spec.softmax_dtype.is_float or not spec.out_dtype.is_float:
        yield f"softmax dtype {spec.softmax_dtype.value} and out dtype {spec.out_dtype.value} must be floats"


def _operands(op: Op, spec: AttentionSpec) -> Iterator[str]:
    lengths: dict[str, Dim] = {}
    for name, arg, axes in zip("qkv", op.args, (spec.q_axes, spec.k_axes, spec.v_axes), strict=False):
        type = _tensor(arg)
        if type.rank != len(axes):
            yield f"{name} has rank {type.rank} but {len(axes)} axes [{', '.join(axes)}]"
            return
        for axis, length in zip(axes, type.shape, strict=True):
            known = lengths.setdefault(axis, length)
            if not same_dim(known, length):
                yield f"axis {axis} has length {length} in {name} and {known} in an earlier operand"
    yield from _results(op, spec)
    sizes = op.args[4]
    assert isinstance(sizes, tuple)
    if len(sizes) != len(spec.sizes):
        yield f"{len(sizes)} size arguments for the {len(spec.sizes)} sizes [{', '.join(spec.sizes)}]"
    if not all(_is_int(s) for s in sizes):
        yield "a size argument is neither an int nor a host int"


def _is_int(arg: Arg) -> bool:
    if isinstance(arg, Value):
        return isinstance(arg.type, ScalarType) and arg.type.kind == "int"
    return isinstance(arg, int) and not isinstance(arg, bool)


def _results(op: Op, spec: AttentionSpec) -> Iterator[str]:
    expected = infer_attention(op.args, op.attrs)
    if len(expected) != len(op.results):
        yield f"{len(op.results)} results, expected {len(expected)}: lse is a result exactly where the spec returns it"
        return
    for name, value, wanted in zip(("out", "lse"), op.results, expected, strict=False):
        assert isinstance(wanted, TensorType)
        if not _fits(value.type, wanted):
            shape = ", ".join(map(str, wanted.shape))
            yield f"{name} must be a contiguous {wanted.dtype.value}[{shape}] on {wanted.device}"


def _fits(type: Type, wanted: TensorType) -> bool:
    return (
        isinstance(type, TensorType)
        and (type.dtype, type.device, type.rank) == (wanted.dtype, wanted.device, wanted.rank)
        and type.is_contiguous
        and all(same_dim(x, y) for x, y in zip(type.shape, wanted.shape, strict=True))
    )


def formula_problems(op: Op, spec: AttentionSpec) -> Iterator[str]:
    """What is wrong with the formulas; side operands are argument 3 of the op."""
    outer = set(spec.out_axes) - RESERVED
    position = outer | {QUERY, KEY}
    if not index.is_boolean(spec.mask):
        yield "the mask is not a truth value"
    yield from _index_formula("mask", spec.mask, op, spec, position)
    yield from _score_formula("score", spec.score, op, spec, position)
    yield from _score_formula("visible", spec.visible, op, spec, position)
    if spec.weight is not None:
        yield from _score_formula("weight", spec.weight, op, spec, position)
    if spec.sink is not None:
        yield from _score_formula("sink", spec.sink, op, spec, outer | {QUERY})
        if score.uses_qk(spec.sink):
            yield "the sink formula reads qk"


def _score_formula(name: str, root: Node, op: Op, spec: AttentionSpec, axes: set[str]) -> Iterator[str]:
    if not root.dtype.is_float:
        yield f"the {name} formula is {root.dtype.value}, not a float"
    for expr in score.index_exprs(root):
        yield from _index_formula(name, expr, op, spec, axes)
    for node in score.walk(root):
        if node.op == "load":
            side, indices = node.value
            yield from _load(name, side, len(indices), node.dtype, op)


def _index_formula(name: str, expr: Any, op: Op, spec: AttentionSpec, axes: set[str]) -> Iterator[str]:
    stray = index.axes_of(expr) - axes
    if stray:
        yield f"the {name} formula uses the axis {_listed(stray)}; it may use {_listed(axes)}"
    undeclared = index.sizes_of(expr) - set(spec.sizes)
    if undeclared:
        yield f"the {name} formula uses the size {_listed(undeclared)}, which sizes = [{', '.join(spec.sizes)}] lacks"
    for load in index.loads(expr):
        yield from _load(name, load.name, len(load.indices), None, op)


def _load(name: str, side: str, rank: int, dtype: DType | None, op: Op) -> Iterator[str]:
    """One load of a side operand; ``dtype`` None stands for integers and booleans."""
    sides = op.args[3]
    assert isinstance(sides, tuple)
    number = int(side[1:]) if re.fullmatch(r"t\d+", side) else len(sides)
    if number >= len(sides):
        yield f"the {name} formula loads {side}, but there are {len(sides)} side operands"
        return
    type = _tensor(sides[number])
    if type.rank != rank:
        yield f"the {name} formula loads {side} with {rank} indices, but its rank is {type.rank}"
    if (dtype is None and type.dtype.is_float) or (dtype is not None and dtype is not type.dtype):
        wanted = "an integer or boolean" if dtype is None else dtype.value
        yield f"the {name} formula loads {side} as {wanted}, but it is {type.dtype.value}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
