"""A plan's formulas once more, on float64 tensors: what an emitted module checks its own kernel against.

Written from the programs alone, one line for each instruction, and by nothing that writes the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from attnc.codegen.formula import formula
from attnc.codegen.op_kinds import ARITHMETIC, BOOLEAN_ARITHMETIC, COMPARES, FLOAT_FUNCTIONS, INFIX, Kind, kind_of
from attnc.codegen.plan import Instr, KernelPlan, Program

_OPS: dict[str, str] = {
    **ARITHMETIC,
    "abs": "torch.abs({0})",
    "min": "torch.minimum({0}, {1})",
    "max": "torch.maximum({0}, {1})",
    "pow": "{0} ** {1}",
    "floordiv": "{0} // {1}",
    "mod": "{0} % {1}",
    "cast": "{0}",
    **INFIX,
    "not": "~{0}",
    "where": "torch.where({0}, {1}, {2})",
    "isnan": "torch.isnan({0})",
    **{name: f"torch.{name}({{0}})" for name in FLOAT_FUNCTIONS},
}
_CONVERTED: dict[Kind, str] = {"f": "{0}.double()", "i": "{0}.long()", "b": "({0} != 0)"}


def reference_text(plan: KernelPlan) -> str:
    """``FORMULAS``: a function for each formula of the plan, by name; and what random operands are made from.

    A function takes the grid (``at``: qk, axes, sizes, side operands) and ``rounded(x, dtype)``, which makes a float of
    what the source gave a dtype. Raises ValueError for an unknown op or dtype.
    """
    programs = _programs(plan)
    dtypes = ", ".join(f'"{name}": FLOATS["{dtype}"]' for name, dtype in zip("qkv", plan.dtypes[:3], strict=True))
    named = ", ".join(f'"{name}": {name}_formula' for name in programs)
    lines = [
        *(line for name, program in programs.items() for line in _function(f"{name}_formula", program)),
        f"FORMULAS = {{{named}}}",
        f"SIDE_ROLES = {_roles(plan, programs)!r}",
        f"SIZES = {plan.sizes!r}",
        f"OPERAND_DTYPES = {{{dtypes}}}",
    ]
    return "\n".join([*lines, "", ""])


def _programs(plan: KernelPlan) -> dict[str, Program]:
    sink = plan.sink if plan.softmax == "sink" else (Instr("const", "f32", value=0.0),)
    programs = {
        "score": plan.visible,
        "mask": plan.mask,
        "weight": plan.weight,
        "sink": sink if plan.softmax != "plain" else None,
        "written": plan.score if plan.dead_rows == "as_written" else None,
    }
    return {name: program for name, program in programs.items() if program is not None}


def _function(name: str, program: Program) -> list[str]:
    body = [f"x{i} = {_line(program, instr)}" for i, instr in enumerate(program)]
    head = [f"def {name}(at, rounded):", f'    """{formula(program)}"""']
    return [*head, *(f"    {line}" for line in body), f"    return x{len(program) - 1}", "", ""]


def _line(program: Program, instr: Instr) -> str:
    """One instruction; a float in the dtype the source gave it, as ``rounded`` takes that."""
    kind = kind_of(instr.dtype)
    text, found = _value(program, instr, kind)
    text = text if found == kind else _CONVERTED[kind].format(f"({text})")
    return f'rounded({text}, "{instr.dtype}")' if kind == "f" else text


def _value(program: Program, instr: Instr, kind: Kind) -> tuple[str, Kind]:
    """The text of an instruction and the kind it has in torch."""
    match instr.op:
        case "const":
            return f"at.number({_number(instr.value, kind)})", kind
        case "qk":
            return "at.qk", "f"
        case "axis" | "size":
            return f'at.{instr.op}("{instr.value}")', "i"
        case "load":
            indices = [_operand(program, a, "i") for a in instr.args]
            return f"at.load({', '.join([str(instr.value), *indices])})", kind
    if instr.op not in _OPS:
        raise ValueError(f"cannot write op {instr.op!r} in torch: no entry in attnc.codegen.triton.reference")
    op, kinds, result = _signature(program, instr, kind)
    return _OPS[op].format(*(_operand(program, a, k) for a, k in zip(instr.args, kinds, strict=True))), result


def _signature(program: Program, instr: Instr, kind: Kind) -> tuple[str, list[Kind], Kind]:
    """(op, kinds of the operands, kind of the result) of an instruction that computes."""
    op, given = instr.op, [kind_of(program[a].dtype) for a in instr.args]
    if op in ("and", "or", "not"):
        return op, ["b"] * len(given), "b"
    if op == "isnan":
        return op, ["f"], "b"
    if op in COMPARES:
        return op, ["f" if "f" in given else "i"] * 2, "b"
    if op == "cast":
        return op, [kind], kind
    if op == "where":
        return op, ["b", kind, kind], kind
    if op in FLOAT_FUNCTIONS:
        return op, ["f"] * len(given), "f"
    return BOOLEAN_ARITHMETIC[op] if kind == "b" else op, [kind] * len(given), kind


def _operand(program: Program, at: int, kind: Kind) -> str:
    return f"x{at}" if kind_of(program[at].dtype) == kind else _CONVERTED[kind].format(f"x{at}")


def _number(value: object, kind: Kind) -> str:
    if not isinstance(value, int | float):
        raise ValueError(f"constant without a number: {value!r}")
    number = {"f": float, "i": int, "b": bool}[kind](value)
    return repr(number) if math.isfinite(number) else f'float("{number}")'


# -- what side operands are for


def _roles(plan: KernelPlan, programs: dict[str, Program]) -> tuple[str, ...]:
    """Per side: ``index`` (of another load), ``position`` (compared with one), ``flag`` (else), ``number`` (floats)."""
    indices = {side for p in programs.values() for i in p if i.op == "load" for side in _loads(p, i.args)}
    positions = {side for p in programs.values() for side in _compared(p)}
    flags = set(_loads(plan.mask, (len(plan.mask) - 1,))) if plan.mask is not None else set()

    def role(number: int, kind: Kind) -> str:
        if number in indices:
            return "index"
        if kind == "i" and number in positions:
            return "position"
        return "number" if kind == "f" and number not in flags else "flag"

    return tuple(role(i, kind_of(side.dtype)) for i, side in enumerate(plan.sides))


def _loads(program: Program, roots: Iterable[int]) -> Iterator[int]:
    """Side operands whose elements the values of ``roots`` are computed from; not those that only index others."""
    return (int(leaf.value or 0) for leaf in _leaves(program, roots) if leaf.op == "load")


def _leaves(program: Program, roots: Iterable[int]) -> list[Instr]:
    """Leaves and loads that ``roots`` are computed from, without what indexes a load."""
    reached = set(roots)
    for at in range(len(program) - 1, -1, -1):
        if at in reached and program[at].op != "load":
            reached.update(program[at].args)
    return [program[at] for at in reached if program[at].op == "load" or not program[at].args]


def _compared(program: Program) -> Iterator[int]:
    """Side operands that are compared with something computed from an axis."""
    for instr in program:
        if instr.op in COMPARES:
            for one, other in (instr.args, instr.args[::-1]):
                if any(leaf.op == "axis" for leaf in _leaves(program, (other,))):
                    yield from _loads(program, (one,))
