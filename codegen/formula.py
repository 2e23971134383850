"""Programs as formulas, for the head of an emitted file. Standard library only."""

from __future__ import annotations

from attnc.codegen.plan import Instr, Program

_INFIX = {
    "lt": ("<", 1), "le": ("<=", 1), "gt": (">", 1), "ge": (">=", 1), "eq": ("==", 1), "ne": ("!=", 1),
    "or": ("|", 2), "and": ("&", 3), "add": ("+", 4), "sub": ("-", 4),
    "mul": ("*", 5), "div": ("/", 5), "floordiv": ("//", 5), "mod": ("%", 5), "pow": ("**", 7),
}  # fmt: skip
"""Sign and binding strength, as Python's: comparisons bind least, so they stand in parentheses around ``&``."""
_UNARY, _ATOM = 6, 9
_LONG = 60


def formula(program: Program) -> str:
    """One line; a subexpression used twice is named first: ``x3 = t0[b, k] + 1; qk + x3 * x3``."""
    uses = [0] * len(program)
    for instr in program:
        for a in instr.args:
            uses[a] += 1
    texts: list[tuple[str, int]] = []
    named: list[str] = []
    for i, instr in enumerate(program):
        text, strength = _instr(instr, [texts[a] for a in instr.args])
        if instr.args and i + 1 < len(program) and (uses[i] > 1 or len(text) > _LONG):
            named.append(f"x{i} = {text}")
            text, strength = f"x{i}", _ATOM
        texts.append((text, strength))
    return "; ".join([*named, texts[-1][0]])


def _instr(instr: Instr, args: list[tuple[str, int]]) -> tuple[str, int]:
    """Text and binding strength."""
    if instr.op in _INFIX and len(args) == 2:
        sign, strength = _INFIX[instr.op]
        loose = strength + (strength == 1)  # a comparison of comparisons is not a chain
        return f"{_within(args[0], loose)} {sign} {_within(args[1], strength + 1)}", strength
    inner = ", ".join(text for text, _ in args)
    match instr.op:
        case "const":
            text = f"{instr.value:.9g}" if isinstance(instr.value, float) else str(instr.value)
            return text, _UNARY if text.startswith("-") else _ATOM
        case "qk":
            return "qk", _ATOM
        case "axis" | "size":
            return str(instr.value), _ATOM
        case "load":
            return f"t{instr.value}[{inner}]", _ATOM
        case "cast":
            return f"{instr.dtype}({inner})", _ATOM
        case "neg" | "not":
            return f"{'-' if instr.op == 'neg' else '~'}{_within(args[0], _UNARY)}", _UNARY
        case op:
            return f"{op}({inner})", _ATOM


def _within(arg: tuple[str, int], strength: int) -> str:
    """An operand, in parentheses where it binds less than ``strength``."""
    text, own = arg
    return text if own >= strength else f"({text})"
