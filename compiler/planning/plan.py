"""From ``attn.attention`` to a :class:`~attnc.codegen.plan.KernelPlan`."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Literal

from attnc.codegen.describe import reads_pairs
from attnc.codegen.plan import KernelPlan, Program, Segment, Side
from attnc.codegen.targets import capability
from attnc.codegen.triton.tuning import Demand
from attnc.compiler.planning.lower import lower
from attnc.compiler.planning.segments import segments
from attnc.compiler.planning.target import DEFAULT, blocks
from attnc.ir import score as sc
from attnc.ir.attention import AttentionSpec
from attnc.ir.mask import MaskSet
from attnc.ir.types import Dim, TensorType
from attnc.ir.values import Op, Value


@dataclass(frozen=True)
class Formulas:
    """The programs of one attention and what isl proved of its mask."""

    score: Program
    visible: Program
    mask: Program | None
    residual: Program | None
    weight: Program | None
    sink: Program | None
    segments: tuple[Segment, ...]
    block_m: int
    block_n: int
    alive: bool
    """Every query row is proved to see a key."""
    mask_set: MaskSet
    note: str = ""
    """Why tiles are not at most three runs, where they aren't."""


def formulas(
    spec: AttentionSpec,
    lengths: dict[str, Dim],
    target: str = DEFAULT,
    dtype: str = "f32",
    tile: tuple[int, int] | None = None,
) -> Formulas:
    """Lower the formulas of an attention whose keys have ``dtype``, for tiles that suit ``target``.

    ``tile``: (block_m, block_n), where they are given. Raises ValueError for a term kernels cannot compute.
    """
    order_free = dataclasses.replace(spec, out_axes=tuple(sorted(spec.out_axes)))
    return _formulas(order_free, tuple(sorted(lengths.items())), target, dtype, tile)


@functools.lru_cache(maxsize=256)
def _formulas(
    spec: AttentionSpec, lengths: tuple[tuple[str, Dim], ...], target: str, dtype: str, tile: tuple[int, int] | None
) -> Formulas:
    size = dict(lengths)
    block_m, block_n = tile or blocks(capability(target), demand(spec, size, dtype))
    outer = outer_axes(spec)
    mask = MaskSet.of(spec.mask, {name: size[name] for name in (*outer, "q", "k")})
    apart = capability(target).language == "c++"
    tiles = segments(mask, outer, block_m, block_n, size["q"], size["k"], residual_apart=apart)
    return Formulas(
        score=lower(spec.score),
        visible=lower(spec.visible),
        mask=None if mask.visible_everywhere else lower(spec.mask),
        residual=lower(mask.residual_expr) if any(s.residual for s in tiles.segments) else None,
        weight=None if spec.weight is None else lower(spec.weight),
        sink=None if spec.sink is None else lower(spec.sink),
        segments=tiles.segments,
        block_m=block_m,
        block_n=block_n,
        alive=mask.rows_alive(),
        mask_set=mask,
        note=tiles.note,
    )


def demand(spec: AttentionSpec, lengths: dict[str, Dim], dtype: str) -> Demand:
    """What the attention asks of a kernel; a head dimension that isn't static counts as 128."""
    d, e = (_static(lengths[axis]) for axis in ("d", "e"))
    visible, mask, weight = (None if f is None else lower(f) for f in (spec.visible, spec.mask, spec.weight))
    assert visible is not None  # every attention has a score
    return Demand(128 if d is None else d, 128 if e is None else e, dtype, reads_pairs(visible, mask, weight))


def op_demand(op: Op) -> Demand:
    """What an ``attn.attention`` op asks of a kernel."""
    return demand(op.attrs["spec"], axis_lengths(op), _type(op.operands[1]).dtype.value)


def op_formulas(op: Op, target: str = DEFAULT, tile: tuple[int, int] | None = None) -> Formulas:
    """The formulas of an ``attn.attention`` op. Raises ValueError for a term kernels cannot compute."""
    return formulas(op.attrs["spec"], axis_lengths(op), target, _type(op.operands[1]).dtype.value, tile)


def plan_attention(op: Op, target: str = DEFAULT, tile: tuple[int, int] | None = None) -> KernelPlan:
    """The kernel plan of an ``attn.attention`` op for ``target``; ``tile``: (block_m, block_n), where given."""
    spec: AttentionSpec = op.attrs["spec"]
    lengths = axis_lengths(op)
    types = [_type(value) for value in op.operands[:3]]
    parts = op_formulas(op, target, tile)
    sides = op.args[3]
    assert isinstance(sides, tuple)
    side_types = [_type(value) for value in sides if isinstance(value, Value)]
    return KernelPlan(
        target=target,
        dtypes=(types[0].dtype.value, types[1].dtype.value, types[2].dtype.value, spec.out_dtype.value),
        outer=outer_axes(spec),
        q_axes=spec.q_axes,
        k_axes=spec.k_axes,
        v_axes=spec.v_axes,
        out_axes=spec.out_axes,
        sides=tuple(Side(t.dtype.value, t.rank) for t in side_types),
        sizes=spec.sizes,
        score=parts.score,
        visible=parts.visible,
        mask=parts.mask,
        residual=parts.residual,
        segments=parts.segments,
        block_m=parts.block_m,
        block_n=parts.block_n,
        dead_rows=dead_rows(spec, parts),
        weight=parts.weight,
        softmax=_softmax_form(spec),
        sink=parts.sink,
        head_dim=_static(lengths["d"]),
        value_dim=_static(lengths["e"]),
        returns_lse=spec.returns_lse,
    )


def dead_rows(spec: AttentionSpec, parts: Formulas) -> Literal["none", "zero", "as_written"]:
    """How a row without a visible key is computed.

    A loaded float bias may hold −inf anywhere, so a formula that loads one never proves a row alive where the source
    guards dead rows. The fill class says the rest: −inf gives 0, a finite fill the second pass.
    """
    loads_bias = any(node.op == "load" for node in sc.walk(spec.score))
    if parts.alive and not (spec.dead_rows == "zero" and loads_bias):
        return "none"
    return "zero" if spec.fill.value is None else "as_written"


def _softmax_form(spec: AttentionSpec) -> Literal["plain", "sink", "plus_one"]:
    if spec.sink is not None:
        return "sink"
    return "plus_one" if spec.softmax == "plus_one" else "plain"


def outer_axes(spec: AttentionSpec) -> tuple[str, ...]:
    """The outer axes in loop order: those of q as they stand, then any only K, V or the result has."""
    named = (*spec.q_axes, *spec.k_axes, *spec.v_axes, *spec.out_axes)
    shared_last = sorted(
        dict.fromkeys(name for name in named if name not in ("q", "k", "d", "e")),
        key=lambda name: name not in spec.k_axes,
    )
    return tuple(shared_last)


def axis_lengths(op: Op) -> dict[str, Dim]:
    """The length of every axis of an attention, from its operands' types."""
    spec: AttentionSpec = op.attrs["spec"]
    lengths: dict[str, Dim] = {}
    for axes, value in zip((spec.q_axes, spec.k_axes, spec.v_axes), op.operands[:3], strict=True):
        for name, length in zip(axes, _type(value).shape, strict=True):
            lengths.setdefault(name, length)
    for name, length in zip(spec.out_axes, _type(op.results[0]).shape, strict=True):
        lengths.setdefault(name, length)
    return lengths


def _type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _static(length: Dim) -> int | None:
    return length if isinstance(length, int) else None
