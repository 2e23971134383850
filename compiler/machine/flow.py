"""Control flow of machine code: basic blocks, natural loops and the loop that does the work.

The same for all machines: :mod:`.sass` and :mod:`.amdgcn` read the texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class Instruction:
    """One instruction."""

    name: str
    """With its modifiers: ``LDGSTS.E.BYPASS.128``, ``v_mfma_f32_32x32x8_bf16``."""
    operands: str = ""
    guard: str = ""
    """The predicate it runs under, ``@!P0``; empty where it always runs."""
    targets: tuple[str, ...] = ()
    """Labels it may jump to."""
    falls: bool = True
    """Whether the next instruction may follow."""


@dataclass(frozen=True)
class Program:
    """A kernel's instructions in order. ``labels`` gives the index of the instruction after each label."""

    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int]


@dataclass(frozen=True)
class Block:
    """Instructions ``start`` to ``stop`` (exclusive), which run one after the other."""

    start: int
    stop: int
    successors: tuple[int, ...]
    """Indices of the blocks that may follow."""


def blocks(program: Program) -> tuple[Block, ...]:
    """The basic blocks in order; the first is the entry."""
    code, count = program.instructions, len(program.instructions)
    ends = {at + 1 for at, one in enumerate(code) if one.targets or not one.falls}
    starts = sorted({0, *program.labels.values(), *ends} - {count})
    at = {start: index for index, start in enumerate(starts)}
    made = []
    for start, stop in pairwise([*starts, count]):
        last = code[stop - 1]
        follows = [program.labels[label] for label in last.targets if label in program.labels]
        follows += [stop] if last.falls else []
        made.append(Block(start, stop, tuple(at[f] for f in dict.fromkeys(follows) if f in at)))
    return tuple(made)


def reach(edges: Mapping[int, Iterable[int]], start: int, without: int | None = None) -> set[int]:
    """What can be reached from ``start``, itself included, by ways that avoid one node."""
    found: set[int] = set()
    open_ = [start] if start != without else []
    while open_:
        node = open_.pop()
        if node not in found:
            found.add(node)
            open_ += [n for n in edges.get(node, ()) if n != without]
    return found


def loops(flow: Sequence[Block]) -> tuple[frozenset[int], ...]:
    """The natural loops, as sets of blocks: those of one header are one loop.

    An edge u → h closes a loop if every way from the entry to u passes h; the loop is h and all that reaches u without
    h.
    """
    after = {index: block.successors for index, block in enumerate(flow)}
    live = reach(after, 0)
    before: dict[int, list[int]] = {}
    for node in live:
        for successor in after[node]:
            before.setdefault(successor, []).append(node)
    found: dict[int, set[int]] = {}
    for header, tails in before.items():
        outside = reach(after, 0, without=header)
        for tail in tails:
            if tail not in outside:
                found.setdefault(header, {header}).update(reach(before, tail, without=header))
    return tuple(frozenset(found[header]) for header in sorted(found))


def main_loop(program: Program, matrix: tuple[str, ...]) -> tuple[Instruction, ...]:
    """The innermost loop with the most instructions whose names begin with one of ``matrix``.

    Of several one whose loads run ahead, because the loop over the last tile isn't pipelined; then the shortest,
    because that is the loop without a mask. Without such a loop the longest one, and without any the whole program.
    """
    flow = blocks(program)
    bodies = {loop: body(program, flow, loop) for loop in loops(flow)} if flow else {}
    counts = {loop: sum(one.name.startswith(matrix) for one in text) for loop, text in bodies.items()}
    working = [loop for loop, count in counts.items() if count]
    inner = [loop for loop in working if not any(other < loop for other in working)]
    if inner:
        return bodies[min(inner, key=lambda loop: (-counts[loop], not _runs_ahead(bodies[loop]), len(bodies[loop])))]
    return max(bodies.values(), key=len, default=program.instructions)


def _runs_ahead(text: Iterable[Instruction]) -> bool:
    return any(one.name.startswith(("LDGSTS", "UTMALDG", "UBLKCP")) for one in text)


def body(program: Program, flow: Sequence[Block], loop: Iterable[int]) -> tuple[Instruction, ...]:
    """The instructions of a loop in the order of the text."""
    ranges = [(flow[index].start, flow[index].stop) for index in sorted(loop)]
    return tuple(one for start, stop in ranges for one in program.instructions[start:stop])
