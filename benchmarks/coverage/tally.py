"""Adds results up: by family, and by what stood in the way."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.coverage.results import Left, Result

FAMILIES = ("decoder", "encoder", "encdec", "multimodal", "vision", "audio", "other")
_OPERATOR = re.compile(r"\b(?:aten|attn|prims)\.\w+")
_VARIABLE = re.compile(r"%[\w.]+|-?\b\d[\w.+]*")


@dataclass
class Row:
    """The figures of some models."""

    models: int = 0
    sites: int = 0
    fused: int = 0
    left: Counter[str] = field(default_factory=Counter)
    """Attentions left, by code."""

    def add(self, result: Result) -> None:
        self.models += 1
        self.sites += result.sites
        self.fused += result.fused
        for left in result.left:
            self.left[left.code] += left.sites

    @property
    def share(self) -> float:
        """Fused attentions of all, 0 to 1."""
        return self.fused / self.sites if self.sites else 0.0


@dataclass
class Obstacle:
    """Attentions left for one code and one operator (or one reason that names none)."""

    code: str
    what: str
    sites: int = 0
    models: list[str] = field(default_factory=list)
    example: str = ""
    """Reason and place of the first."""


def total(results: Iterable[Result]) -> Row:
    """The figures of all results."""
    row = Row()
    for result in results:
        row.add(result)
    return row


def by_family(results: Sequence[Result]) -> dict[str, Row]:
    """The figures of each family that occurs, known families first."""
    names = dict.fromkeys((*FAMILIES, *sorted({result.family for result in results})))
    rows = {name: total(r for r in results if r.family == name) for name in names}
    return {name: row for name, row in rows.items() if row.models}


def obstacles(results: Iterable[Result]) -> list[Obstacle]:
    """What stood in the way, most attentions first."""
    found: dict[tuple[str, str], Obstacle] = {}
    for result in results:
        for left in result.left:
            key = left.code, subject(left.reason)
            place = f" ({left.where})" if left.where else ""
            obstacle = found.setdefault(key, Obstacle(*key, example=left.reason + place))
            obstacle.sites += left.sites
            if result.model not in obstacle.models:
                obstacle.models.append(result.model)
    return sorted(found.values(), key=lambda o: (-o.sites, o.code, o.what))


def _kinds(entries: Iterable[Left]) -> str:
    return ", ".join(f"{entry.sites} {entry.code}" for entry in entries)


def subject(reason: str) -> str:
    """The operator a reason names, else the reason without names and numbers of this graph."""
    named = _OPERATOR.search(reason)
    return named.group() if named else _VARIABLE.sub("…", reason)


@dataclass(frozen=True)
class Complaints:
    """Models with which something is wrong, by what it is."""

    ended: list[str]
    """Failed, crashed or stopped."""
    wrong: list[str]
    """An output is outside the numerics policy."""
    differing: list[str]
    """The counted attentions are not the list's."""
    misreported: list[str]
    """Reports and profiler disagree on how many attentions ran fused."""
    unjudged: list[str]
    """There is no output or no reference to judge by."""
    beyond: list[str]
    """attnc sees more attentions than the ground-truth rule counts, so one of them may hide one that is left."""
    blind: list[str]
    """A planted error would not have been noticed."""
    unrotated: list[str]
    """The model rotates queries and keys, and attnc proved no rotation."""
    dense: list[str]
    """The model has a bias of relative position, and attnc reads a dense tensor for it."""

    @property
    def any(self) -> bool:
        return bool(self.ended or self.wrong or self.differing or self.misreported)


def complaints(results: Iterable[Result]) -> Complaints:
    """Collect them."""
    found = Complaints([], [], [], [], [], [], [], [], [])
    for result in results:
        if result.outcome != "measured":
            found.ended.append(f"{result.model} ({result.outcome})")
            continue
        if result.right is False:
            found.wrong.append(f"{result.model} ({result.verdict})")
        if result.right is None:
            found.unjudged.append(f"{result.model} ({result.verdict})")
        if result.reported != result.ran:
            found.misreported.append(f"{result.model} ({result.reported} reported, {result.ran} ran)")
        if result.sites != result.listed:
            found.differing.append(f"{result.model} ({result.sites}, the list says {result.listed})")
        if result.beyond:
            found.beyond.append(f"{result.model} ({_kinds(result.beyond)})")
        if result.blind:
            found.blind.append(result.model)
        if result.rotations and not result.ropes:
            found.unrotated.append(result.model)
        if result.relative and any(left.code == "ATTNC-DENSE-SIDE" for left in result.downgrades):
            found.dense.append(result.model)
    return found
