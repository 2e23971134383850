"""Says of each attention of a model whether it ran fused, and if not, why: reports against the ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from attnc.compiler.codes import CODES
from attnc.compiler.report import Site
from benchmarks.coverage.results import DEAD_CODE, GRAPH_BREAK, NOT_REPORTED, Left
from benchmarks.coverage.truth import Truth
from benchmarks.coverage.watch import Break, Graph, shortened


class Attribution(NamedTuple):
    """Where a model's attentions went."""

    fused: int
    left: tuple[Left, ...]
    """Together with ``fused`` all of the model's sites."""
    beyond: tuple[Left, ...]
    """Attentions, fused or refused, that attnc sees beyond those of the ground-truth rule."""


def attribute(truth: Truth, ran: int, graphs: Sequence[Graph], breaks: Sequence[Break]) -> Attribution:
    """Match what happened to a model's sites, by count alone; ``ran`` attentions were seen to run fused.

    Refusals are taken in order, each as often as its graph ran, until everything that isn't fused has a reason. What
    no refusal explains was in a graph that went to the host, or in none.
    """
    fused = min(ran, truth.sites)
    refusals = list(_refusals(graphs))
    left = Counter(refusals[: truth.sites - fused])
    if dead := min(truth.dead, truth.sites - fused - left.total()):
        left[Left(DEAD_CODE, "no output depends on it")] += dead
    if unseen := truth.sites - fused - left.total():
        left[_unseen(graphs, breaks)] += unseen
    beyond = Counter(refusals[truth.sites - fused :])
    if ran > fused:
        beyond[Left("ATTNC-FUSED", "fused")] += ran - fused
    return Attribution(fused, _grouped(left), _grouped(beyond))


def downgrades(graphs: Sequence[Graph]) -> tuple[Left, ...]:
    """The notes of level ``downgrade``, each as often as its graph ran; alike ones once."""
    found: Counter[Left] = Counter()
    for graph in graphs:
        for note in graph.report.notes:
            if CODES[note.code].level == "downgrade":
                found[Left(note.code, shortened(note.message), shortened(note.where))] += graph.runs
    return _grouped(found)


def _grouped(found: Counter[Left]) -> tuple[Left, ...]:
    return tuple(replace(entry, sites=count) for entry, count in found.items())


def _refusals(graphs: Sequence[Graph]) -> Iterator[Left]:
    for graph in graphs:
        for site in graph.report.sites:
            if site.attention and not site.fused:
                yield from [_refusal(site)] * graph.runs


def _refusal(site: Site) -> Left:
    return Left(site.code, shortened(site.reason), shortened(site.where), site.line.strip())


def _unseen(graphs: Sequence[Graph], breaks: Sequence[Break]) -> Left:
    """Why attentions are in no report: a graph left whole to the host, else a graph break."""
    for graph in graphs:
        for note in graph.report.notes:
            if CODES[note.code].level == "host":
                return Left(note.code, shortened(note.message), shortened(note.where))
    if breaks:
        return Left(GRAPH_BREAK, *breaks[0])
    return Left(NOT_REPORTED, "no report mentions it")
