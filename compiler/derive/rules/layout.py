"""Operators that rearrange: views, permutations, broadcasts, joins of static dimensions."""

from __future__ import annotations

import dataclasses

from attnc.compiler.derive.known import TOKEN_AXIS, Dims, Kind, Known, is_static
from attnc.compiler.derive.refusal import MIXES, NO_RULE
from attnc.compiler.derive.rules.pointwise import joined
from attnc.compiler.derive.step import Rule, Step
from attnc.ir.types import Dim
from attnc.ir.values import Value


def moved(known: Known, dims: Dims) -> Known:
    """The same values in other places."""
    return dataclasses.replace(known, dims=dims)


def view(step: Step) -> Known:
    """A split or merge of axes in their order; one that cuts or turns a named axis is refused."""
    known = step.tensor(0)
    dims = step.axes.regroup(known.dims, step.shape)
    if dims is None and known.kind is Kind.UNIFORM and not known.symbolic:
        dims = step.label()
    if dims is None:
        shown = ", ".join("·".join(map(str, dim)) or "1" for dim in known.dims)
        raise step.refuse(MIXES, f"the view [{shown}] → {list(step.shape)} cuts a named axis or reorders axes")
    return moved(known, dims)


def transpose(step: Step) -> Known:
    """Two dimensions in each other's place."""
    known = step.tensor(0)
    rank = len(known.dims)
    a, b = step.dim(1, "dim0", rank), step.dim(2, "dim1", rank)
    order = list(range(rank))
    order[a], order[b] = b, a
    return moved(known, tuple(known.dims[i] for i in order))


def permute(step: Step) -> Known:
    """Dimensions in another order."""
    known = step.tensor(0)
    return moved(known, tuple(known.dims[i] for i in step.dims(1, "dims", len(known.dims))))


def reversed_dims(step: Step) -> Known:
    """Dimensions in the opposite order."""
    known = step.tensor(0)
    return moved(known, known.dims[::-1])


def unsqueeze(step: Step) -> Known:
    """A new dimension of length 1."""
    known = step.tensor(0)
    place = step.dim(1, "dim", len(known.dims) + 1)
    return moved(known, (*known.dims[:place], (), *known.dims[place:]))


def squeeze(step: Step) -> Known:
    """Of given dimensions; of all that happen to be 1 it would depend on the batch and the number of tokens."""
    known = step.tensor(0)
    if step.op.name == "aten.squeeze.default":
        if known.symbolic:
            raise step.refuse(MIXES, "squeeze() without a dimension changes its result where B or S is 1")
        return moved(known, tuple(dim for dim in known.dims if dim))
    asked = step.dims(1, "dim", len(known.dims))
    if any(isinstance(atom, str) for d in asked for atom in known.dims[d]):
        raise step.refuse(MIXES, "squeeze of requests or tokens changes its result where there is one of them")
    gone = [d for d in asked if not known.dims[d]]
    return moved(known, tuple(dim for d, dim in enumerate(known.dims) if d not in gone))


def expand(step: Step) -> Known:
    """New places along dimensions of length 1. A token's value may not be spread over tokens or requests."""
    known = step.tensor(0)
    fresh = len(step.shape) - len(known.dims)
    old: Dims = ((),) * fresh + known.dims
    dims = tuple(o or step.label((n,))[0] for o, n in zip(old, step.shape, strict=True))
    spread = {a for o, n in zip(old, dims, strict=True) if not o for a in n if isinstance(a, str)}
    if known.kind is Kind.TOKEN and spread:
        raise step.refuse(MIXES, f"a token's value is spread along {', '.join(sorted(spread))}")
    if known.role is not None and spread:
        raise step.refuse(MIXES, f"{known.role.value} is spread along {', '.join(sorted(spread))}")
    return moved(known, dims)


def repeat(step: Step) -> Known:
    """``repeat`` puts the copies in front of the axis, row-major."""
    known = step.tensor(0)
    counts = step.op.arg(1, "repeats")
    assert isinstance(counts, tuple)
    fresh = len(counts) - len(known.dims)
    old: Dims = ((),) * fresh + known.dims
    added = [step.axes.atoms(_length(step, count)) for count in counts]
    if any(a is None for a in added):
        raise step.refuse(NO_RULE, "a number of repetitions that is no named size")
    if known.kind is Kind.TOKEN and any(a and not is_static(a) for a in added):
        raise step.refuse(MIXES, "a token's values are repeated along requests or tokens")
    if known.kind is Kind.POSITION and any(TOKEN_AXIS in (a or ()) for a in added):
        raise step.refuse(MIXES, "positions are repeated along tokens")
    return moved(known, tuple((*(a or ()), *dim) for a, dim in zip(added, old, strict=True)))


def _length(step: Step, arg: object) -> Dim:
    found = step.length(arg) if isinstance(arg, int | Value) else None
    if found is None:
        raise step.refuse(NO_RULE, "a length that is data")
    return found


def repeat_interleave(step: Step) -> Known:
    """Copies behind each element of a static dimension, or of the batch's and heads' where it stands in front."""
    known = step.tensor(0)
    times = step.constant(1, "repeats")
    place = step.constant(2, "dim")
    if not isinstance(times, int) or not isinstance(place, int):
        raise step.refuse(NO_RULE, "repeat_interleave with computed counts, or of all dimensions")
    place %= len(known.dims)
    if TOKEN_AXIS in known.dims[place]:
        raise step.refuse(MIXES, "tokens are repeated")
    if times == 1:
        return known
    return moved(known, (*known.dims[:place], (*known.dims[place], times), *known.dims[place + 1 :]))


def cat(step: Step) -> Known:
    """Along a static dimension."""
    parts = step.op.args[0]
    assert isinstance(parts, tuple)
    known = [step.fact(part) for part in parts]
    rank = len(step.shape)
    place = step.dim(1, "dim", rank)
    along = {str(a) for k in known for a in k.dims[place] if not is_static(k.dims[place])}
    if along:
        axes = ", ".join(sorted(along))
        raise step.refuse(MIXES, f"values are concatenated along {axes}: a past, a prefix or a shift")
    alike = joined(step, [moved(k, (*k.dims[:place], (), *k.dims[place + 1 :])) for k in known], rank)
    return moved(alike, (*alike.dims[:place], *step.label((step.shape[place],)), *alike.dims[place + 1 :]))


def stack(step: Step) -> Known:
    """Along a new, static dimension."""
    parts = step.op.args[0]
    assert isinstance(parts, tuple)
    known = [step.fact(part) for part in parts]
    place = step.dim(1, "dim", len(step.shape))
    alike = joined(step, known, len(step.shape) - 1)
    return moved(alike, (*alike.dims[:place], *step.label((step.shape[place],)), *alike.dims[place:]))


def flip(step: Step) -> Known:
    """Along static dimensions."""
    known = step.tensor(0)
    for place in step.dims(1 if step.op.name.startswith("aten.flip") else 2, "dims", len(known.dims)):
        if not is_static(known.dims[place]):
            raise step.refuse(MIXES, f"the order along {'·'.join(map(str, known.dims[place]))} is changed")
    return known


def pad(step: Step) -> Known:
    """Of static dimensions, with a constant."""
    known = step.tensor(0)
    amounts = step.constant(1, "pad")
    assert isinstance(amounts, tuple)
    for i in range(len(amounts) // 2):
        place = len(known.dims) - 1 - i
        if any(amounts[2 * i : 2 * i + 2]) and not is_static(known.dims[place]):
            raise step.refuse(MIXES, f"{'·'.join(map(str, known.dims[place]))} is padded: values move between tokens")
    dims = tuple(d if not is_static(d) else step.label((n,))[0] for d, n in zip(known.dims, step.shape, strict=True))
    return moved(known, dims)


def as_complex(step: Step) -> Known:
    """The last dimension, of two, becomes one number."""
    known = step.tensor(0)
    return moved(known, known.dims[:-1])


def as_real(step: Step) -> Known:
    """One number becomes a last dimension of two."""
    known = step.tensor(0)
    return moved(known, (*known.dims, (2,)))


RULES: dict[str, Rule] = {
    **{f"aten.{name}": view for name in ("view", "_unsafe_view", "reshape", "flatten", "unflatten", "view_as")},
    "aten.transpose": transpose,
    "aten.permute": permute,
    "aten.t": reversed_dims,
    "aten.numpy_T": reversed_dims,
    "aten.unsqueeze": unsqueeze,
    "aten.squeeze": squeeze,
    "aten.expand": expand,
    "aten.repeat": repeat,
    "aten.repeat_interleave": repeat_interleave,
    "aten.cat": cat,
    "aten.stack": stack,
    "aten.flip": flip,
    "aten.roll": flip,
    "aten.constant_pad_nd": pad,
    "aten.pad": pad,
    "aten.view_as_complex": as_complex,
    "aten.view_as_real": as_real,
}
