"""Operators along dimensions: sums, norms, softmaxes, sorts. Over tokens or requests they mix."""

from __future__ import annotations

import dataclasses

from attnc.compiler.derive.known import BATCH, ENCODER_AXIS, Dims, Kind, Known, Role, is_static
from attnc.compiler.derive.refusal import LENGTH, MIXES, MIXES_BATCH
from attnc.compiler.derive.rules.pointwise import joined
from attnc.compiler.derive.step import Rule, Step
from attnc.ir.types import Dim, TupleType
from attnc.ir.values import Value

SAME_SHAPE = "softmax _softmax log_softmax _log_softmax _safe_softmax cumsum cumprod logcumsumexp cummax cummin".split()
REDUCED = (
    "mean sum amax amin any all var std prod logsumexp argmax argmin linalg_vector_norm norm var_mean std_mean max min "
    "median count_nonzero nansum"
).split()
_NAMES = {"B": "requests", "S": "tokens", "D": "differences of positions"}
FIRST_DIM_ARG = {"aten.linalg_vector_norm": 2, "aten.norm": 2}


def _dims_of(step: Step, known: Known) -> tuple[int, ...]:
    """The dimensions an operator goes along; all where none are given."""
    name = step.op.name.rpartition(".")[0]
    place = FIRST_DIM_ARG.get(name, 1)
    given = step.op.arg(place, "dim")
    if isinstance(given, bool):  # unbiased of var.default
        given = None
    rank = len(known.dims)
    return tuple(range(rank)) if given is None or given == () else step.dims(place, "dim", rank)


def _along(step: Step, known: Known, places: tuple[int, ...]) -> Kind:
    """What a result depends on. Raises NotDerivable where tokens or requests would be mixed."""
    named = [atom for place in places for atom in known.dims[place] if isinstance(atom, str)]
    if all(atom[0] == ENCODER_AXIS for atom in named):
        return max(known.kind, Kind.REQUEST) if named else known.kind
    if known.kind <= Kind.LENGTH:
        return Kind.LENGTH
    code = MIXES_BATCH if set(named) == {BATCH} else MIXES
    axes = " and ".join(_NAMES.get(atom, "routed slots") for atom in named)
    raise step.refuse(code, f"{_short(step)} over {axes}")


def _short(step: Step) -> str:
    return step.op.name.split(".")[1]


def same_shape(step: Step) -> Known:
    """Softmax and running sums along a static dimension.

    A running sum along ``S`` is prefix-stable: over a constant it numbers the positions.
    """
    known = step.tensor(0)
    places = _dims_of(step, known)
    if known.role is Role.COUNT and "cumsum" in step.op.name:
        return Known(known.kind, known.dims, Role.OFFSET, known.source)
    running = "cum" in step.op.name
    if running and known.kind <= Kind.POSITION and known.dims[places[0]] == ("S",):
        return Known(Kind.POSITION, known.dims)
    return dataclasses.replace(known, kind=_along(step, known, places))


def reduced(step: Step) -> Known | tuple[Known, ...]:
    """A reduction; the result of several is alike."""
    known = step.tensor(0)
    places = _dims_of(step, known)
    kind = _along(step, known, places)
    keeps = len(step.shape) == len(known.dims)
    dims: Dims = tuple(() if i in places else d for i, d in enumerate(known.dims) if keeps or i not in places)
    made = Known(kind, dims, None, known.source)
    return made if len(step.shapes) == 1 and not _is_tuple(step) else (made,) * len(step.shapes)


def _is_tuple(step: Step) -> bool:
    return isinstance(step.op.results[0].type, TupleType)


def norm(step: Step) -> Known | tuple[Known, ...]:
    """Layer and RMS norms over the last dimensions, with constant weights."""
    known = step.tensor(0, "input")
    shape = step.op.arg(1, "normalized_shape")
    assert isinstance(shape, tuple)
    rank = len(known.dims)
    kind = _along(step, known, tuple(range(rank - len(shape), rank)))
    _constant_weights(step)
    known = dataclasses.replace(known, kind=kind)
    if not _is_tuple(step):
        return known
    short = dataclasses.replace(known, dims=(*known.dims[: rank - len(shape)], *((),) * len(shape)))
    return (known, short, short)


def _constant_weights(step: Step) -> None:
    if any(k.kind is not Kind.UNIFORM for k in step.tensors()[1:]):
        raise step.refuse(MIXES, "the weights of a norm are data")


def group_norm(step: Step) -> Known:
    """Over the channels of each place: only where no named axis stands behind the channels."""
    known = step.tensor(0, "input")
    if any(not is_static(d) for d in known.dims[1:]):
        raise step.refuse(MIXES, "group_norm over tokens")
    _constant_weights(step)
    return known


def sort(step: Step) -> tuple[Known, ...]:
    """Values and places of a sort or of the largest k along a static dimension."""
    known = step.tensor(0)
    rank = len(known.dims)
    topk = "topk" in step.op.name or "kthvalue" in step.op.name
    place = step.dim(2 if topk else _sort_dim(step), "dim", rank, -1)
    if step.sized_scalars():
        raise step.refuse(LENGTH, "the number of the largest is a size")
    kind = _along(step, known, (place,))
    return tuple(Known(kind, _cut(step, known, place, shape), None, known.source) for shape in step.shapes)


def _sort_dim(step: Step) -> int:
    return 2 if step.op.name.endswith(".stable") else 1


def _cut(step: Step, known: Known, place: int, shape: tuple[Dim, ...]) -> Dims:
    return (*known.dims[:place], *step.label((shape[place],)), *known.dims[place + 1 :])


def diff(step: Step) -> Known:
    """Differences of neighbours along a static dimension; along ``S`` those of a function of position are one.

    ``diff(x, prepend=p)`` has x's length; packed-sequence detection of model libraries is written that way.
    """
    known = step.tensor(0)
    place = step.dim(2, "dim", len(known.dims), -1)
    operands = step.tensors()
    if all(is_static(k.dims[place]) for k in operands):
        beside = [Known(k.kind, (*k.dims[:place], (), *k.dims[place + 1 :]), None, k.source) for k in operands]
        return dataclasses.replace(
            found := joined(step, beside, len(known.dims)), dims=_cut(step, found, place, step.shape)
        )
    before = step.op.arg(3, "prepend")
    if known.dims[place] == ("S",) and isinstance(before, Value) and len(operands) == 2 and step.op.arg(1, "n", 1) == 1:
        first = step.fact(before)
        if max(known.kind, first.kind) <= Kind.POSITION and first.dims[place] == ():
            return Known(Kind.POSITION, known.dims)
    raise step.refuse(MIXES, "differences of neighbouring tokens")


RULES: dict[str, Rule] = {
    **{f"aten.{name}": same_shape for name in SAME_SHAPE},
    **{f"aten.{name}": reduced for name in REDUCED},
    **{f"aten.{name}": norm for name in ("layer_norm", "rms_norm", "native_layer_norm", "_fused_rms_norm")},
    "aten.group_norm": group_norm,
    **{f"aten.{name}": sort for name in ("topk", "sort")},
    "aten.diff": diff,
}
