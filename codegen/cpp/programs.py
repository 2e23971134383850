"""Programs as C++: what depends on the keys is computed on vectors of keys, everything else once per row.

Kinds of a value: ``f`` float, ``i`` integer, ``b`` truth value. A uniform value is a ``float``, ``int64_t`` or
``bool``; a varying one has lanes ``vf``, ``vi``, ``vl`` or ``vb``. Integers carry an interval: those that provably
fit go to 32-bit lanes, which is what makes masks cheap. Axis lengths and named sizes are below 2^30 (checked at run
time), so a sum of two of them fits.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from attnc.codegen.cpp.expressions import c_type, expression
from attnc.codegen.fold import single_precision
from attnc.codegen.op_kinds import BOOLEAN_ARITHMETIC, COMPARES, FLOAT_FUNCTIONS, kind_of
from attnc.codegen.plan import Instr, Program, Side, live
from attnc.codegen.ranges import INDEX, INT32, INT64, LENGTH, SIZE, STORED, fits_int32, inside_int32, int_range

_UNIFORM = {"f": "float", "i": "int64_t", "b": "bool"}


@dataclass(frozen=True)
class Val:
    """A computed value: ``text`` is a name or a literal."""

    text: str
    kind: str
    lanes: str | None = None
    """``vf``, ``vi``, ``vl``, ``vb``; None where uniform."""
    range: tuple[int, int] = INT64
    const: float | int | bool | None = None
    affine: tuple[int, str] | None = None
    """(c, base): an integer equal to c · k + base, base uniform."""

    @property
    def c_type(self) -> str:
        return self.lanes or _UNIFORM[self.kind]


@dataclass
class Scope:
    """What names mean: outer axes and sizes by place in the frame, side operands, axes that are C++ parameters."""

    outer: tuple[str, ...]
    sizes: tuple[str, ...]
    sides: tuple[Side, ...]
    parameters: tuple[str, ...] = ("q",)
    keys: bool = True
    """Whether axis ``k`` and ``qk`` may occur, as vectors."""


@dataclass
class Lines:
    """Statements of one program: ``uniform`` run once per row, ``varying`` once per vector of keys."""

    uniform: list[tuple[str, str, str]] = field(default_factory=list)
    """(type, name, expression)."""
    varying: list[tuple[str, str, str]] = field(default_factory=list)
    result: Val = field(default_factory=lambda: Val("", "f"))


def write_program(program: Program, scope: Scope, kind: str, rounded: bool = False) -> Lines:
    """The statements of ``program``, its result brought to ``kind``.

    ``rounded``: each float is rounded to the dtype the source gave it. Raises ValueError for an unknown op, axis, size
    or side operand, and for keys where the scope has none.
    """
    return _Writer(scope, rounded).write(program, kind)


class _Writer:
    def __init__(self, scope: Scope, rounded: bool) -> None:
        self.scope = scope
        self.rounded = rounded
        self.lines = Lines()
        self.values: dict[int, Val] = {}
        self.names = 0

    def write(self, program: Program, kind: str) -> Lines:
        for i in live(program):
            args = [self.values[a] for a in program[i].args]
            self.values[i] = self.instr(program[i], args)
        self.lines.result = self.coerce(self.values[len(program) - 1], kind)
        return self.lines

    # -- one instruction

    def instr(self, instr: Instr, args: list[Val]) -> Val:
        kind = kind_of(instr.dtype)
        if instr.op in ("qk", "const", "axis", "size", "load"):
            value = self.leaf(instr, args)
        elif instr.op == "cast":
            value = self.coerce(args[0], kind)
        elif instr.op in COMPARES:
            value = self.compare(instr.op, *args)
        elif instr.op in ("and", "or", "not"):
            value = self.logic(instr.op, args)
        elif instr.op == "where":
            value = self.where(kind, *args)
        elif instr.op == "isnan":
            value = self.logic("isnan", [self.coerce(args[0], "f")], "f")
        elif instr.op in FLOAT_FUNCTIONS or kind == "f":
            value = self.coerce(self.floats(instr.op, args), kind)
        elif kind == "i":
            value = self.integers(instr.op, args)
        else:
            value = self.booleans(instr.op, args)
        if self.rounded and value.kind == "f" and instr.dtype in ("f16", "bf16"):
            return self.define(f"round_{instr.dtype}({value.text})", "f", value.lanes)
        return value

    def define(
        self,
        text: str,
        kind: str,
        lanes: str | None,
        range: tuple[int, int] = INT64,
        affine: tuple[int, str] | None = None,
    ) -> Val:
        name = f"x{self.names}"
        self.names += 1
        value = Val(name, kind, lanes, range, affine=affine if lanes else (0, name))
        (self.lines.varying if lanes else self.lines.uniform).append((value.c_type, name, text))
        return value

    # -- leaves

    def leaf(self, instr: Instr, args: list[Val]) -> Val:
        match instr.op:
            case "const":
                return _const(instr)
            case "qk" if self.scope.keys:
                return Val("qk", "f", "vf")
            case "axis":
                return self.axis(str(instr.value))
            case "size":
                return self.size(str(instr.value))
            case "load":
                return self.load(instr, args)
            case op:
                raise ValueError(f"a tile bound cannot depend on {op}")

    def axis(self, name: str) -> Val:
        if name in self.scope.outer:
            text = f"f.axis[{self.scope.outer.index(name)}]"
        elif name in self.scope.parameters:
            text = name
        elif name == "k" and self.scope.keys:
            return Val("keys.index", "i", "vi", INDEX, affine=(1, "0"))
        else:
            raise ValueError(
                f"axis {name!r} is not known here; known: {', '.join((*self.scope.outer, *self.scope.parameters))}"
            )
        return self.define(text, "i", None, INDEX)

    def size(self, name: str) -> Val:
        lengths = {
            "|q|": "f.q_len",
            "|k|": "f.k_len",
            **{f"|{a}|": f"f.length[{i}]" for i, a in enumerate(self.scope.outer)},
        }
        if name in lengths:
            return self.define(lengths[name], "i", None, LENGTH)
        if name not in self.scope.sizes:
            raise ValueError(f"size {name!r} is not among the plan's sizes: {', '.join(self.scope.sizes) or 'none'}")
        return self.define(f"f.sizes[{self.scope.sizes.index(name)}]", "i", None, SIZE)

    def load(self, instr: Instr, args: list[Val]) -> Val:
        number = instr.value
        if not isinstance(number, int) or not 0 <= number < len(self.scope.sides):
            raise ValueError(f"load of side operand {number!r}, the plan has {len(self.scope.sides)}")
        side = self.scope.sides[number]
        if len(args) != side.rank:
            raise ValueError(f"load of t{number} with {len(args)} indices, it has rank {side.rank}")
        args = [self.coerce(a, "i") for a in args]
        kind, element, view = kind_of(side.dtype), c_type(side.dtype), f"f.side[{number}]"
        spread = STORED.get(side.dtype, INT64)
        affine = all(a.lanes is None or a.affine for a in args)
        terms = [(a.affine or (0, a.text), f"{view}.strides[{i}]") for i, a in enumerate(args) if affine or not a.lanes]
        base = " + ".join([f"(const {element}*){view}.data", *(f"({b}) * {s}" for (_, b), s in terms if b != "0")])
        if all(a.lanes is None for a in args):
            return self.define(f"value_of(*({base}))", kind, None, spread)
        lanes = {"f": "vf", "b": "vb", "i": "vl" if side.dtype == "i64" else "vi"}[kind]
        pointer = self.pointer(f"const {element}*", base)
        if affine:
            step = self.pointer("int64_t", " + ".join(f"{c} * {s}" if c != 1 else s for (c, _), s in terms if c) or "0")
            return self.define(f"load_keys({pointer}, {step}, keys)", kind, lanes, spread)
        offsets = []
        for i, a in enumerate(args):
            if a.lanes:
                stride = self.pointer("int64_t", f"{view}.strides[{i}]")
                offsets.append(f"{self.widen(a)} * {stride}")
        return self.define(f"load_gather({pointer}, {' + '.join(offsets)})", kind, lanes, spread)

    def pointer(self, type: str, text: str) -> str:
        name = f"x{self.names}"
        self.names += 1
        self.lines.uniform.append((type, name, text))
        return name

    # -- operators by kind

    def floats(self, op: str, args: list[Val]) -> Val:
        operands = [self.coerce(a, "f") for a in args]
        lanes = "vf" if any(a.lanes for a in operands) else None
        return self.define(expression(op, *(self.spread(a, lanes) for a in operands)), "f", lanes)

    def integers(self, op: str, args: list[Val]) -> Val:
        operands = [self.coerce(a, "i") for a in args]
        range = int_range(op, [a.range for a in operands])
        affine = _affine(op, operands)
        if all(a.lanes is None for a in operands):
            return self.define(_int_text(op, operands, [a.text for a in operands]), "i", None, range)
        lanes = "vi" if all(fits_int32(r) for r in (range, *(a.range for a in operands))) else "vl"
        return self.define(
            _int_text(op, operands, [self.spread(a, lanes) for a in operands]), "i", lanes, range, affine
        )

    def booleans(self, op: str, args: list[Val]) -> Val:
        if op not in BOOLEAN_ARITHMETIC:
            raise ValueError(f"op {op!r} has no meaning on truth values")
        name = BOOLEAN_ARITHMETIC[op]
        return self.compare(name, *args) if name == "ne" else self.logic(name, args)

    def logic(self, op: str, args: list[Val], kind: str = "b") -> Val:
        operands = [self.coerce(a, kind) for a in args]
        lanes = {"b": "vb", "f": "vf"}[kind] if any(a.lanes for a in operands) else None
        text = self.spread(operands[0], lanes)
        if len(operands) == 1:
            text = expression(op, text)
        for a in operands[1:]:
            text = expression(op, text, self.spread(a, lanes))
        return self.define(text, "b", "vb" if lanes else None)

    def compare(self, op: str, a: Val, b: Val) -> Val:
        kind = "f" if "f" in (a.kind, b.kind) else "i"
        a, b = self.coerce(a, kind), self.coerce(b, kind)
        if not (a.lanes or b.lanes):
            return self.define(expression(op, a.text, b.text), "b", None)
        if kind == "f":
            return self.define(expression(op, self.spread(a, "vf"), self.spread(b, "vf")), "b", "vb")
        lanes = (
            "vi"
            if all(fits_int32(x.range) or (not x.lanes and inside_int32(y.range)) for x, y in ((a, b), (b, a)))
            else "vl"
        )
        return self.define(expression(op, self.spread(a, lanes), self.spread(b, lanes)), "b", "vb")

    def where(self, kind: str, condition: Val, a: Val, b: Val) -> Val:
        condition, a, b = self.coerce(condition, "b"), self.coerce(a, kind), self.coerce(b, kind)
        range = (min(a.range[0], b.range[0]), max(a.range[1], b.range[1]))
        if not (condition.lanes or a.lanes or b.lanes):
            return self.define(expression("where", condition.text, a.text, b.text), kind, None, range)
        lanes = {"f": "vf", "b": "vb", "i": "vi" if fits_int32(range) else "vl"}[kind]
        text = expression("where", condition.text, self.spread(a, lanes), self.spread(b, lanes))
        return self.define(text, kind, lanes, range)

    # -- conversions

    def coerce(self, value: Val, kind: str) -> Val:
        if value.kind == kind:
            return value
        if kind == "b":
            return self.compare(
                "ne", value, Val("0.f" if value.kind == "f" else "int64_t(0)", value.kind, None, (0, 0))
            )
        if not value.lanes:
            range = (0, 1) if value.kind == "b" else INT64
            return self.define(f"{_UNIFORM[kind]}({value.text})", kind, None, range)
        text = f"({value.text} & 1)" if value.kind == "b" else value.text
        if kind == "f":
            return self.define(f"to_vf({text})", "f", "vf")
        return self.define(text, "i", "vi", (0, 1)) if value.kind == "b" else self.define(f"to_vl({text})", "i", "vl")

    def spread(self, value: Val, lanes: str | None) -> str:
        """Text of a value in ``lanes``; a uniform one too large for 32-bit lanes saturates (compare() allows it)."""
        if value.lanes == lanes:
            return value.text
        if value.lanes:
            return f"to_vi({value.text})" if lanes == "vi" else self.widen(value)
        if lanes == "vi":
            return f"vi_of({f'int32_t({value.text})' if fits_int32(value.range) else f'saturate({value.text})'})"
        return f"{lanes}_of({value.text})"

    def widen(self, value: Val) -> str:
        return value.text if value.lanes == "vl" else f"to_vl({value.text})"


def _const(instr: Instr) -> Val:
    kind, value = kind_of(instr.dtype), instr.value
    if not isinstance(value, int | float):
        raise ValueError(f"constant without a number: {value!r}")
    if kind == "b":
        return Val(str(bool(value)).lower(), "b", const=bool(value))
    if kind == "i":
        return Val(
            f"int64_t({int(value)})", "i", None, (int(value), int(value)), int(value), (0, f"int64_t({int(value)})")
        )
    return Val(float_literal(float(value)), "f", const=float(value))


def float_literal(value: float) -> str:
    """A C++ float literal with exactly this value rounded to f32."""
    if value != value:
        return '__builtin_nanf("")'
    single = single_precision(value)
    if single in (float("inf"), float("-inf")):
        return "INF" if single > 0 else "(-INF)"
    text = repr(float(f"{single:.9g}"))
    return f"({text}f)" if single < 0 else f"{text}f"


def _affine(op: str, args: list[Val]) -> tuple[int, str] | None:
    forms = [a.affine for a in args]
    if any(f is None for f in forms):
        return None
    (c, u), *rest = [f for f in forms if f is not None]
    match op:
        case "neg":
            return -c, f"-({u})"
        case "add":
            return c + rest[0][0], f"({u}) + ({rest[0][1]})"
        case "sub":
            return c - rest[0][0], f"({u}) - ({rest[0][1]})"
        case "mul":
            for (c1, u1), other in (((c, u), args[1]), (rest[0], args[0])):
                if isinstance(other.const, int):
                    return c1 * other.const, f"({u1}) * {other.text}"
    return None


def _int_text(op: str, args: list[Val], texts: list[str]) -> str:
    divisor = args[1].const if len(args) > 1 else None
    if op in ("floordiv", "mod") and isinstance(divisor, int) and divisor > 0 and divisor & (divisor - 1) == 0:
        if op == "floordiv":
            return f"shift_div({texts[0]}, {divisor.bit_length() - 1})"
        if divisor <= INT32[1]:
            return f"mask_mod({texts[0]}, {divisor - 1})"
    if op == "div":
        raise ValueError("op 'div' with an integer result; write floordiv")
    return expression(op, *texts)
