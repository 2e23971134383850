"""Programs as formulas, for the head of an emitted file. Standard library only."""

from __future__ import annotations

from attnc.codegen.plan import Instr, Program

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "&", "or": "|",
}  # fmt: skip
_LONG = 60


def formula(program: Program) -> str:
    """One line; a subexpression used twice is named first: ``x3 = t0[b, k]; qk + x3 * x3``."""
    uses = [0] * len(program)
    for instr in program:
        for a in instr.args:
            uses[a] += 1
    texts: list[str] = []
    named: list[str] = []
    for i, instr in enumerate(program):
        text = _instr(instr, [texts[a] for a in instr.args])
        if instr.args and i + 1 < len(program) and (uses[i] > 1 or len(text) > _LONG):
            named.append(f"x{i} = {_bare(text)}")
            text = f"x{i}"
        texts.append(text)
    return "; ".join([*named, _bare(texts[-1])])


def _instr(instr: Instr, args: list[str]) -> str:
    if instr.op in _INFIX:
        return f"({args[0]} {_INFIX[instr.op]} {args[1]})"
    match instr.op:
        case "qk":
            return "qk"
        case "const":
            return f"{instr.value:.9g}" if isinstance(instr.value, float) else str(instr.value)
        case "axis" | "size":
            return str(instr.value)
        case "load":
            return f"t{instr.value}[{', '.join(_bare(a) for a in args)}]"
        case "cast":
            return f"{instr.dtype}({_bare(args[0])})"
        case "neg":
            return f"-{args[0]}"
        case "not":
            return f"~{args[0]}"
        case op:
            return f"{op}({', '.join(_bare(a) for a in args)})"


def _bare(text: str) -> str:
    """Without the parentheses that enclose the whole of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
