"""Words and figures for people: the report's site of a match or a refusal, and the certificate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import sympy

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.match import Match, kind_of
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.passes.base import Context
from attnc.compiler.planning.cost import attention_cost
from attnc.compiler.planning.plan import Formulas, formulas
from attnc.compiler.planning.target import target_of
from attnc.compiler.report import Note, Site
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.attention import AttentionSpec
from attnc.ir.types import Dim, DType
from attnc.ir.values import Location, Op, Value


def refused_site(index: int, op: Op, reject: Reject) -> Site:
    """The site of a softmax left to the host."""
    reason = reject.reason
    if reject.op is not None and reject.op is not op and reject.op.loc.file:
        reason = f"{reason} (at {reject.op.loc})"
    return Site(index, False, reject.code, str(op.loc), op.loc.code, op.loc.module, reason)


def site_of(index: int, match: Match, spec: AttentionSpec, sides: list[Value], context: Context) -> Site:
    """The site of a matched attention; tile shares, FLOPs and bytes at the lengths seen when compiling."""
    lengths = match.names_to_lengths()
    target = target_of(match.result, context.target)
    parts = formulas(spec, lengths, target, tensor_type(match.k.peeled().value).dtype.value)
    loc = match.root.loc
    names = {f"t{i}": context.user_names.get(side.name, side.name) for i, side in enumerate(sides)}
    if parts.note:
        context.notes.append(Note("ATTNC-TILE-GUARDS", parts.note, str(loc)))
    tiles, flops, moved = _figures(match, parts, lengths, context)
    return Site(
        index=index,
        fused=True,
        code="ATTNC-FUSED",
        where=str(loc),
        line=loc.code,
        module=loc.module,
        kind=kind_of(match),
        mask=ix.show(sc.rename_loads(sc.index(spec.mask, DType.B1), names).value) if parts.mask else "true",
        mask_name=parts.mask_set.describe(),
        score=score_text(spec, sides, context),
        shape=" ".join(f"{name}={lengths[name]}" for name in dict.fromkeys((*spec.q_axes, *spec.v_axes))),
        tiles=tiles,
        flops=flops,
        bytes=moved,
        certificate=certificate(match, spec),
    )


def score_text(spec: AttentionSpec, sides: Sequence[Value], context: Context) -> str:
    """The visible score with side operands under the names their user knows."""
    names = {f"t{i}": context.user_names.get(side.name, side.name) for i, side in enumerate(sides)}
    return sc.show(sc.rename_loads(spec.visible, names))


def note_dense_side(context: Context, side: Value, loc: Location, why: str) -> None:
    """Say once that a side operand is read in full, O(S²), and why it has no shorter form."""
    name = context.user_names.get(side.name, side.name)
    text = f"{name} is read for every query and key" + (f"; no formula: {why}" if why else "")
    note = Note("ATTNC-DENSE-SIDE", text, str(loc))
    if note not in context.notes:
        context.notes.append(note)


def certificate(match: Match, spec: AttentionSpec) -> tuple[str, ...]:
    """Why the rewrite is right: each step with its side condition."""
    producer = match.result.op
    assert producer is not None  # a match replaces the result of an op
    lines = [f"softmax at {match.root.loc} over axis k; the weights have one reader, {producer.name}"]
    lines += dict.fromkeys(match.steps)
    lines.append(
        f"q{list(spec.q_axes)} · k{list(spec.k_axes)} summed over d; v{list(spec.v_axes)} summed over k".replace(
            "'", ""
        )
    )
    if spec.mask is not True and str(spec.mask) != "True":
        fill = "−inf" if spec.fill.value is None else f"{spec.fill.value:g}"
        bound = "" if spec.fill.value is None else f"; holds while |score| < {abs(spec.fill.value) / 2 - 104:g}"
        lines.append(f"masked pairs hold the fill {fill} and add nothing to a row with a visible key{bound}")
    if spec.softmax != "plain":
        logit = "0" if spec.sink is None else sc.show(spec.sink)
        lines.append(f"the denominator has one more term, exp({logit})")
    if spec.weight is not None:
        lines.append(f"weights times {sc.show(spec.weight)} after normalisation")
    return tuple(lines)


def dense_sides(spec: AttentionSpec, sides: Sequence[Value]) -> list[Value]:
    """The side operands with a dimension for queries and one for keys: read in full, O(S²)."""
    nodes = list(sc.walk(spec.visible))
    formulas = [spec.mask, *(node.value for node in nodes if node.op == "index")]
    reads = [node.value for node in nodes if node.op == "load"]
    reads += [(load.name, load.indices) for formula in formulas for load in ix.loads(formula)]
    dense = {name for name, indices in reads if _covers_pairs(indices)}
    return [side for i, side in enumerate(sides) if f"t{i}" in dense]


def _covers_pairs(indices: tuple[sympy.Expr, ...]) -> bool:
    axes = [ix.axes_of(index) for index in indices]
    return any("q" in a for a in axes) and any("k" in a and "q" not in a for a in axes)


def _figures(
    match: Match, parts: Formulas, lengths: dict[str, Dim], context: Context
) -> tuple[dict[str, float], int, int]:
    """Tile shares, FLOPs and bytes at the hinted sizes; empty where a size has no hint."""
    known = {name: context.value_of(length) for name, length in lengths.items()}
    if any(value is None for value in known.values()):
        return {}, 0, 0
    numbers = {name: value for name, value in known.items() if value is not None}
    mask = parts.mask_set
    outer = {name: number for name, number in numbers.items() if name not in ("q", "k", "d", "e")}
    in_k = {match.names[axis] for axis in match.k.axes()}
    shares = mask.tile_shares(context.hints, numbers["q"], numbers["k"], parts.block_m, parts.block_n)
    cost = attention_cost(
        mask,
        context.hints,
        numbers["q"],
        numbers["k"],
        outer=math.prod(outer.values()),
        kv_outer=math.prod(number for name, number in outer.items() if name in in_k),
        head_dim=numbers["d"],
        value_dim=numbers["e"],
        bytes_per_element=tensor_type(match.q.value).dtype.bits // 8,
    )
    return dict(zip(("skip", "partial", "full"), shares, strict=True)), cost.flops, cost.bytes
