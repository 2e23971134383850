"""Takes a constant factor out of a score, to be multiplied into q once instead of into every score.

``qk * 0.125`` becomes 0.125 and ``qk``; ``tanh(qk * 0.125 / 50) * 50`` becomes 0.0025 and ``tanh(qk) * 50``. Side
condition: every use of qk passes through the factor. Casts on the way are identities: kernels compute floats in f32.
"""

from __future__ import annotations

import math
import struct
from dataclasses import replace

from attnc.codegen.op_kinds import kind_of
from attnc.codegen.plan import Instr, Program, live


def fold_scale(program: Program) -> tuple[float, Program]:
    """(factor, rest) with program(qk) = rest(factor · qk)."""
    leaves = [i for i, instr in enumerate(program) if instr.op == "qk"]
    if len(leaves) != 1:
        return 1.0, program
    at, factor = leaves[0], 1.0
    while (step := _step(program, at)) is not None:
        user, multiplier = step
        if not math.isfinite(factor * multiplier) or factor * multiplier == 0:
            break
        at, factor = user, factor * multiplier
    return factor, _without_dead((*program[:at], Instr("qk", "f32"), *program[at + 1 :]))


def fold_result(program: Program) -> tuple[float, Program]:
    """(factor, rest) with program(qk) = factor · rest(qk) and the factor positive.

    ``tanh(qk) * 50`` becomes 50 and ``tanh(qk)``. Casts around the result are identities, as in :func:`fold_scale`.
    """
    at, factor = len(program) - 1, 1.0
    while True:
        instr = program[at]
        if instr.op == "cast" and kind_of(program[instr.args[0]].dtype) == "f":
            at = instr.args[0]
            continue
        if instr.op not in ("mul", "div"):
            break
        constants = [(a, _constant(program, a)) for a in instr.args]
        place, value = constants[1] if constants[1][1] is not None else constants[0]
        if value is None or not 0 < value < math.inf or (instr.op == "div" and place != instr.args[1]):
            break
        at = instr.args[0] if place == instr.args[1] else instr.args[1]
        factor = factor * value if instr.op == "mul" else factor / value
    return factor, _without_dead(program[: at + 1])


def is_qk(program: Program) -> bool:
    """Whether the result is qk itself."""
    return program[-1].op == "qk"


def _step(program: Program, at: int) -> tuple[int, float] | None:
    users = [(i, instr) for i, instr in enumerate(program) if at in instr.args]
    if len(users) != 1:
        return None
    position, user = users[0]
    if user.op == "cast" and user.dtype in ("f64", "f32", "f16", "bf16"):
        return position, 1.0
    if user.op == "neg":
        return position, -1.0
    if user.op not in ("mul", "div") or (user.op == "div" and user.args[0] != at):
        return None
    other = user.args[1] if user.args[0] == at else user.args[0]
    value = _constant(program, other)
    if value is None or (user.op == "div" and value == 0):
        return None
    return position, value if user.op == "mul" else 1.0 / value


def _constant(program: Program, at: int) -> float | None:
    instr = program[at]
    if instr.op == "cast":
        return _constant(program, instr.args[0])
    return float(instr.value) if instr.op == "const" and isinstance(instr.value, int | float) else None


def single_precision(value: float) -> float:
    """The nearest float32; an infinity on overflow."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _without_dead(program: Program) -> Program:
    order = live(program)
    place = {old: new for new, old in enumerate(order)}
    return tuple(replace(program[i], args=tuple(place[a] for a in program[i].args)) for i in order)
