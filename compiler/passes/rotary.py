"""Replace every proved rotation of features by ``attn.rope``, with the position as an operand."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.pointwise import CASTS
from attnc.compiler.passes.base import Context
from attnc.compiler.report import Note, Rope
from attnc.compiler.rotary.find import Found, find_rotations
from attnc.compiler.rotary.proof import Rotation
from attnc.compiler.rotary.rearranging import REARRANGING
from attnc.compiler.rotary.rewrite import Rewrite
from attnc.ir.graph import Graph
from attnc.ir.values import Op, Value

_PASSED = REARRANGING | CASTS
"""Ops an attention may read a rotation through."""


@dataclass(frozen=True)
class Rotary:
    """Prove every rotation first, then rewrite: proofs are about a graph that doesn't change.

    Side conditions: every element of the result is x·cos a ∓ x′·sin a of one x; both features of a pair turn by the
    same angle; the angle is a sum of position · frequency; one factor for all. Rotations of different x are left apart
    whatever their positions. Cosines and sines that are inputs of the graph become operands as they are: then the
    first condition is all there is to show.
    """

    name: ClassVar[str] = "rotary"

    def run(self, graph: Graph, context: Context) -> bool:
        found = find_rotations(graph)
        rewrite = Rewrite(graph, found.unrecorded)
        ropes = {rewrite.apply(*proved): proved[0] for proved in found.rotations}
        readers = _readers(graph, ropes) if ropes else {}
        context.ropes += [_described(op, rotation, readers.get(op, "")) for op, rotation in ropes.items()]
        context.notes += _notes(found)
        return bool(ropes)


def _described(op: Op, rotation: Rotation, site: str) -> Rope:
    return Rope(
        where=str(op.loc),
        style=rotation.style,
        rotary_dim=rotation.rotary_dim,
        features=int(tensor_type(rotation.x).shape[-1]),
        positions=len(op.args[1]) if isinstance(op.args[1], tuple) else 0,
        attention_factor=rotation.factor,
        rounded=rotation.rounded,
        given=bool(rotation.given),
        site=site,
    )


def _readers(graph: Graph, ropes: dict[Op, Rotation]) -> dict[Op, str]:
    """For each rotation the attention that reads it, as ``0 q``: the site's number and the operand."""
    found: dict[Op, str] = {}
    for op in graph.ops:
        if op.name == "attn.attention" and "site" in op.meta:
            for name, operand in zip("qk", op.args, strict=False):
                rope = _behind(operand) if isinstance(operand, Value) else None
                if rope in ropes:
                    found.setdefault(rope, f"{op.meta['site']} {name}")
    return found


def _behind(value: Value) -> Op | None:
    """The rotation behind views, casts and joins: a cache holds rotated keys beside the new ones."""
    while (op := value.op) is not None and op.name != "attn.rope":
        parts = op.args[0] if op.name == "aten.cat.default" else op.args[:1]
        last = parts[-1] if op.name in _PASSED and isinstance(parts, tuple) and parts else None
        if not isinstance(last, Value):
            return None
        value = last
    return op


def _place(op: Op) -> str:
    return str(op.loc) if op.loc.file else ""


def _notes(found: Found) -> list[Note]:
    """One note for each reason, however many layers share it."""
    counts = Counter(refusal.reason for refusal in found.refusals)
    first = {refusal.reason: refusal.op for refusal in reversed(found.refusals)}
    return [
        Note("ATTNC-ROPE-UNPROVED", reason + (f" ({count} times)" if count > 1 else ""), _place(first[reason]))
        for reason, count in counts.items()
    ]
