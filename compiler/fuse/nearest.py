"""What a refused softmax nearly was, in words: the form, the op that blocks it and an edit that would help.

A refusal knows where its match stopped. The edit is the one given there, else the one for the op
(:mod:`attnc.compiler.fuse.edits`), else the remedy of the code. Whether it is enough is tried in
:mod:`attnc.compiler.fuse.trial`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sympy

from attnc.compiler.codes import CODES
from attnc.compiler.fuse.contraction import contraction
from attnc.compiler.fuse.edits import EDITS
from attnc.compiler.fuse.masking import readable, split
from attnc.compiler.fuse.match import Match, kind_of
from attnc.compiler.fuse.reject import Reject
from attnc.compiler.fuse.rewrite import ranges_of
from attnc.compiler.fuse.sdpa import SDPA
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.mask import MaskSet
from attnc.ir.types import DType, TensorType
from attnc.ir.values import Location, Op

LONGEST = 200
"""Characters of a score formula shown in full."""


@dataclass(frozen=True)
class Refusal:
    """A softmax or SDPA call that was left, and why."""

    root: Op
    reject: Reject

    @property
    def blocker(self) -> Op:
        return self.reject.op or self.root


@dataclass(frozen=True)
class NearMiss:
    """Texts of a report's site."""

    form: str
    blocker: str
    edit: str


def cited(op: Op) -> str:
    """An op with the user's line: ``aten.round.default at model.py:9: w = w.round()``."""
    return f"{op.name} at {place(op.loc)}: {op.loc.code}" if op.loc.file else op.name


def place(loc: Location) -> str:
    """``model.py:9``, without its folders."""
    return str(loc).rsplit("/", 1)[-1]


def edit_of(refusal: Refusal) -> str:
    """What to change: as the refusal says, else by code and op, else the remedy of the code."""
    reject = refusal.reject
    packet = refusal.blocker.name.removeprefix("aten.").removeprefix("native_").split(".")[0]
    return reject.edit or EDITS.get((reject.code, packet), "") or CODES[reject.code].remedy


def form_of(match: Match, user_names: Mapping[str, str]) -> str:
    """What a match computes: ``softmax(qk * 0.25)·V, causal, GQA(4)``."""
    names = {f"t{i}": user_names.get(side.name, side.name) for i, side in enumerate(match.sides)}
    masked, ranges = split(match.score), ranges_of(match)
    score = "−inf" if masked.visible is None else _shown(sc.simplify(masked.visible, ranges), names)
    parts = [f"softmax({score})·V", _mask(match, readable(ix.simplify(masked.mask, ranges)), names), kind_of(match)]
    if match.weight is not None:
        parts.append(f"weights times {_shown(sc.simplify(match.weight, ranges), names)}")
    if match.sink is not None:
        parts.append(f"one more term in the denominator, exp({_shown(sc.simplify(match.sink, ranges), names)})")
    return ", ".join(part for part in parts if part)


def _shown(node: sc.Node, names: Mapping[str, str]) -> str:
    text = sc.show(sc.rename_loads(node, dict(names)))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _mask(match: Match, mask: sympy.Basic, names: Mapping[str, str]) -> str:
    if mask is sympy.true:
        return ""
    if mask is sympy.false:
        return "every key hidden"
    lengths = {name: n for name, n in match.names_to_lengths().items() if name not in ("d", "e")}
    formula = sc.rename_loads(sc.index(mask, DType.B1), dict(names)).value
    return MaskSet.of(formula, lengths).describe()


def stages(refusal: Refusal) -> str:
    """How far an attention is recognised where it has no form: ``Q·Kᵀ (m.py:8), softmax (m.py:9), no P·V``."""
    if refusal.root.name == SDPA:
        return "softmax(scale·Q·Kᵀ)·V, in one call"
    before = next((op for op in _nearby(refusal.root, ahead=False) if contraction(op) is not None), None)
    after = next((op for op in _nearby(refusal.root, ahead=True) if contraction(op) is not None), None)
    found = [("Q·Kᵀ", before), ("softmax", refusal.root), ("P·V", after)]
    return ", ".join(f"no {name}" if op is None else f"{name} ({place(op.loc)})" for name, op in found)


def _nearby(root: Op, ahead: bool, most: int = 60) -> Iterator[Op]:
    """Ops before or after ``root``, nearest first, along tensors."""
    seen, queue = {root}, [root]
    for op in queue:
        values = op.results if ahead else op.operands
        near: list[Op | None] = (
            [u for v in values for u in v.users] if ahead else [v.op for v in values if _is_tensor(v.type)]
        )
        for other in near:
            if other is not None and other not in seen and len(seen) < most:
                seen.add(other)
                queue.append(other)
                yield other


def _is_tensor(kind: object) -> bool:
    return isinstance(kind, TensorType)
