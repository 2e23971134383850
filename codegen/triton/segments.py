"""The loops over key tiles: one call of ``run_tiles`` for each run of tiles, and the functions that say where runs are.

Keys of a tile all exist only up to the last whole tile, ``k_len // BLOCK_N``. What is behind it is one tile at most,
and is computed with bounds: by the masked run that follows where that one starts where this one ends, as under a causal
mask, else by a loop of its own. Masked runs beside an unmasked one are short, so they have bounds throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnc.codegen.describe import segment_text
from attnc.codegen.plan import KernelPlan, Segment
from attnc.codegen.triton.parameters import Layout
from attnc.codegen.triton.programs import Page

_CALL = """\
m, l, o, o_low = run_tiles(
    {begin}, {end}, {step}, tq, m, l, o, o_low, q, q_low, k_at, k_low_at, v_at, v_low_at, k_row, v_row, rows,
    ROW, OUTER, FRAME, SCORE_UNIT, {kind}, {guard}, {stages}, D, D_HIGH, D_LOW, E, E_HIGH, E_LOW,
)"""


def segment_functions(plan: KernelPlan, layout: Layout) -> list[str]:
    """``run0``, ``run1``, …: the first tile and the one after the last; ``guard``: whether a tile is visited."""
    lines: list[str] = []
    for i, segment in enumerate(plan.segments):
        page = Page(layout.tile_names(tq="tq"), precise=True)
        lo, hi = (page.write(p, "i").result.text for p in (segment.lo, segment.hi))
        if segment.guard is not None and segment.guard_scope == "segment":
            hi = f"tl.where({page.write(segment.guard, 'b').result.text}, {hi}, {lo})"
        lines += [
            "@triton.jit",
            f"def run{i}(tq, OUTER, FRAME):",
            f'    """{segment_text(segment)}"""',
            *(f"    {name} = {text}" for name, text in page.row),
            "    tiles = (k_len + BLOCK_N - 1) // BLOCK_N",
            f"    return tl.cast(tl.maximum({lo}, 0), tl.int32), tl.cast(tl.minimum({hi}, tiles), tl.int32)",
            "",
            "",
        ]
    return lines + _guards(plan, layout)


def _guards(plan: KernelPlan, layout: Layout) -> list[str]:
    guarded = [(i, s.guard) for i, s in enumerate(plan.segments) if s.guard is not None and s.guard_scope == "tile"]
    lines = ["@triton.jit", "def guard(RUN: tl.constexpr, tile, tq, OUTER, FRAME):"]
    if not guarded:
        return [*lines, "    return True", "", ""]
    for n, (i, program) in enumerate(guarded):
        page = Page(layout.tile_names(tq="tq", tk="tile"), precise=True)
        result = page.write(program, "b").result.text
        lines += [
            f"    {'if' if n == 0 else 'elif'} RUN == {i}:",
            *(f"        {name} = {text}" for name, text in page.row),
            f"        holds = {result}",
        ]
    return [*lines, "    return holds", "", ""]


@dataclass(frozen=True)
class _Loop:
    begin: str
    end: str
    step: int
    kind: str
    guard: int
    tail: bool = False
    """One tile at most, so it isn't pipelined: a second pipelined loop that may run no tile can make Triton 3.7 wait
    for the first one's last product behind it, which serialises Hopper's matrix instructions (C7515 of ptxas).
    """


def segment_lines(plan: KernelPlan, stages: int) -> list[str]:
    """Statements of the kernel that visit every run, with ``stages`` tiles in flight."""
    lines = [f"run{i}_begin, run{i}_end = run{i}(tq, OUTER, FRAME)" for i in range(len(plan.segments))]
    lines.append("whole = k_len // BLOCK_N")
    for i, segment in enumerate(plan.segments):
        for loop in _loops(plan, i, segment):
            lines += _CALL.format(**vars(loop), stages=1 if loop.tail else stages).splitlines()
    return lines


def _loops(plan: KernelPlan, i: int, segment: Segment) -> list[_Loop]:
    begin, end = f"run{i}_begin", f"run{i}_end"
    guard = i if segment.guard is not None and segment.guard_scope == "tile" else -1
    if segment.needs_mask and plan.mask is not None:
        before = plan.segments[i - 1] if i else None
        first = begin
        if before is not None and _continues(plan, before, segment):
            first = f"tl.minimum({begin}, tl.maximum(run{i - 1}_begin, whole))"
        if any(not s.needs_mask for s in plan.segments):
            return [_Loop(first, end, segment.step, "MASKED", guard)]
        inside = _Loop(begin, f"tl.minimum({end}, whole)", segment.step, "INSIDE", guard)
        return [inside, _tail(i, segment, "MASKED", guard)]
    loops = [_Loop(begin, f"tl.minimum({end}, whole)", segment.step, "WHOLE", guard)]
    after = plan.segments[i + 1] if i + 1 < len(plan.segments) else None
    if after is None or not _continues(plan, segment, after):
        loops.append(_tail(i, segment, "EDGE", guard))
    return loops


def _tail(i: int, segment: Segment, kind: str, guard: int) -> _Loop:
    """The tile behind the whole ones, where it is of this run."""
    begin, end = f"run{i}_begin", f"run{i}_end"
    reached = f"({begin} <= whole) & ((whole - {begin}) % {segment.step} == 0)"
    return _Loop(f"tl.where({reached}, whole, {end})", end, segment.step, kind, guard, tail=True)


def _continues(plan: KernelPlan, first: Segment, second: Segment) -> bool:
    """Whether a masked run takes up every tile from where an unmasked one ends."""
    plain = (first.step, second.step, first.guard, second.guard) == (1, 1, None, None)
    masked = plan.mask is not None and not first.needs_mask and second.needs_mask
    return plain and masked and first.hi == second.lo
