"""Programs as Triton: what depends on no key is computed once for a tile of queries, everything else for each tile.

A value is a block whose shape follows from the axes it depends on: a scalar, ``[BLOCK_M, 1]`` (queries),
``[1, BLOCK_N]`` (keys) or ``[BLOCK_M, BLOCK_N]``. Floats are float32. Integers carry an interval and use 32 bits where
they provably fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from attnc.codegen.fold import single_precision
from attnc.codegen.op_kinds import BOOLEAN_ARITHMETIC, COMPARES, FLOAT_FUNCTIONS, Kind, kind_of
from attnc.codegen.plan import Instr, Program, Side, live
from attnc.codegen.ranges import INDEX, INT64, LENGTH, SIZE, STORED, Range, fits_int32, int_range
from attnc.codegen.triton.expressions import expression

_ROUNDED = {"f16": "tl.float16", "bf16": "tl.bfloat16"}


@dataclass(frozen=True)
class Val:
    """A computed value: ``text`` is a name or a literal."""

    text: str
    kind: Kind
    keys: bool = False
    """Depends on the key: computed for each tile of keys."""
    range: Range = INT64
    wide: bool = False
    """An integer of 64 bits."""
    const: float | int | bool | None = None


@dataclass(frozen=True)
class Names:
    """What a formula may read, and what it is called in the text."""

    axes: Mapping[str, str]
    sizes: Mapping[str, str]
    """Named sizes, and lengths as ``|axis|``."""
    sides: tuple[Side, ...]
    ranges: Mapping[str, Range] = field(default_factory=dict)
    """What an axis may be, where it isn't a position."""


@dataclass
class Page:
    """The statements of the formulas of one kernel: ``row`` runs once for a tile of queries."""

    names: Names
    precise: bool
    """Functions keep float32's relative error; without it what is enough for results of 16 bits."""
    row: list[tuple[str, str]] = field(default_factory=list)
    """(name, expression)."""
    known: dict[str, Val] = field(default_factory=dict)

    def write(self, program: Program, kind: Kind, rounded: bool = False) -> Lines:
        """The statements of ``program``, its result brought to ``kind``; those for each tile are in the result.

        ``rounded``: each float is rounded to the dtype the source gave it. Raises ValueError for an unknown op, axis,
        size or side operand.
        """
        return _Writer(self, rounded).write(program, kind)


@dataclass(frozen=True)
class Lines:
    """Statements of one program that run for each tile of keys, and its result."""

    tile: list[tuple[str, str]]
    result: Val


class _Writer:
    def __init__(self, page: Page, rounded: bool) -> None:
        self.page = page
        self.rounded = rounded
        self.tile: list[tuple[str, str]] = []
        self.known: dict[str, Val] = {}

    def write(self, program: Program, kind: Kind) -> Lines:
        values: dict[int, Val] = {}
        for i in live(program):
            values[i] = self.instr(program[i], [values[a] for a in program[i].args])
        return Lines(self.tile, self.coerce(values[len(program) - 1], kind))

    # -- one instruction

    def instr(self, instr: Instr, args: list[Val]) -> Val:
        kind = kind_of(instr.dtype)
        value = self.value(instr, kind, args)
        if self.rounded and value.kind == "f" and instr.dtype in _ROUNDED:
            text = f"{self.block(value)}.to({_ROUNDED[instr.dtype]}).to(tl.float32)"
            return self.define(text, "f", value.keys)
        return value

    def value(self, instr: Instr, kind: Kind, args: list[Val]) -> Val:
        match instr.op:
            case "const":
                return _const(instr)
            case "qk":
                return Val("qk", "f", keys=True)
            case "axis":
                return self.axis(str(instr.value))
            case "size":
                return self.size(str(instr.value))
            case "load":
                return self.load(instr, args)
            case "cast":
                return self.coerce(args[0], kind)
            case "where":
                return self.where(kind, *args)
            case "and" | "or" | "not":
                return self.apply(instr.op, "b", [self.coerce(a, "b") for a in args])
            case "isnan":
                return self.apply("isnan", "b", [self.materialise(self.coerce(args[0], "f"))])
            case op if op in COMPARES:
                return self.compare(op, *args)
            case op if op in FLOAT_FUNCTIONS or kind == "f":
                return self.coerce(self.floats(op, args), kind)
            case op if kind == "i":
                return self.integers(op, args)
            case op:
                return self.booleans(op, args)

    def define(self, text: str, kind: Kind, keys: bool, range: Range = INT64, wide: bool = False) -> Val:
        """A named value; an equal expression is computed once."""
        found = self.known.get(text) or self.page.known.get(text)
        if found is not None:
            return found
        name = f"x{len(self.tile)}" if keys else f"r{len(self.page.row)}"
        value = Val(name, kind, keys, range, wide)
        if keys:
            self.tile.append((name, text))
            self.known[text] = value
        else:
            self.page.row.append((name, text))
            self.page.known[text] = value
        return value

    def apply(self, op: str, kind: Kind, args: list[Val], range: Range = INT64, wide: bool = False) -> Val:
        if op == "tanh":
            op = "tanh_close" if self.page.precise else "tanh_fast"
        text = expression(op, *(a.text for a in args), floats=kind == "f")
        return self.define(text, kind, any(a.keys for a in args), range, wide)

    # -- leaves

    def axis(self, name: str) -> Val:
        if name not in self.page.names.axes:
            raise ValueError(f"axis {name!r} is not known here; known: {', '.join(self.page.names.axes)}")
        return Val(self.page.names.axes[name], "i", name == "k", self.page.names.ranges.get(name, INDEX))

    def size(self, name: str) -> Val:
        if name not in self.page.names.sizes:
            raise ValueError(f"size {name!r} is not among the plan's sizes: {', '.join(self.page.names.sizes)}")
        return Val(self.page.names.sizes[name], "i", False, LENGTH if name.startswith("|") else SIZE)

    def load(self, instr: Instr, args: list[Val]) -> Val:
        number, sides = instr.value, self.page.names.sides
        if not isinstance(number, int) or not 0 <= number < len(sides):
            raise ValueError(f"load of side operand {number!r}, the plan has {len(sides)}")
        side = sides[number]
        if len(args) != side.rank:
            raise ValueError(f"load of t{number} with {len(args)} indices, it has rank {side.rank}")
        terms = [(f"tl.cast({self.coerce(a, 'i').text}, tl.int64) * t{number}_{i}", a.keys) for i, a in enumerate(args)]
        base = " + ".join([f"t{number}", *(text for text, keys in terms if not keys)])
        varying = [text for text, keys in terms if keys]
        if not varying:
            return self.loaded(base, side.dtype, False)
        if base != f"t{number}":
            base = self.define(base, "i", False).text
        return self.loaded(" + ".join([base, *varying]), side.dtype, True)

    def loaded(self, pointer: str, dtype: str, keys: bool) -> Val:
        kind, text = kind_of(dtype), f"tl.load({pointer})"
        if kind == "f" and dtype != "f32":
            text += ".to(tl.float32)"
        if kind == "i" and dtype not in ("i32", "i64"):
            text += ".to(tl.int32)"
        return self.define(text, kind, keys, STORED.get(dtype, INT64), dtype == "i64")

    # -- operators by kind

    def floats(self, op: str, args: list[Val]) -> Val:
        operands = [self.coerce(a, "f") for a in args]
        if op == "pow":
            return self.power("f", *operands)
        folded = _fold(op, operands)
        if folded is not None:
            return folded
        if len(operands) == 1 or all(a.const is not None for a in operands):
            operands[0] = self.materialise(operands[0])
        return self.apply(op, "f", operands)

    def power(self, kind: Kind, base: Val, exponent: Val) -> Val:
        """Small whole exponents by multiplication; a fraction by logarithm, which makes NaN of a negative base."""
        number = exponent.const
        if number is not None and float(number).is_integer() and 1 <= number <= 8:
            value = base
            for _ in range(int(number) - 1):
                value = self.apply("mul", "f", [value, base]) if kind == "f" else self.integers("mul", [value, base])
            return value
        if kind == "i":
            raise ValueError(f"a power of integers with the exponent {exponent.text} cannot be written in Triton")
        if number is None or float(number).is_integer():
            return self.apply("pow", "f", [self.materialise(base), self.materialise(exponent)])
        return self.define(f"tl.exp2({exponent.text} * tl.log2({self.block(base)}))", "f", base.keys)

    def integers(self, op: str, args: list[Val]) -> Val:
        operands = [self.coerce(a, "i") for a in args]
        if op == "div":
            raise ValueError("op 'div' with an integer result; write floordiv")
        if op == "pow":
            return self.power("i", *operands)
        values = int_range(op, [a.range for a in operands])
        wide = any(a.wide for a in operands) or not fits_int32(values)
        text = _divided(op, operands) or expression(op, *(self.widened(a) if wide else a.text for a in operands))
        return self.define(text, "i", any(a.keys for a in operands), values, wide)

    def widened(self, value: Val) -> str:
        return value.text if value.wide or value.const is not None else f"tl.cast({value.text}, tl.int64)"

    def booleans(self, op: str, args: list[Val]) -> Val:
        if op not in BOOLEAN_ARITHMETIC:
            raise ValueError(f"op {op!r} has no meaning on truth values")
        name = BOOLEAN_ARITHMETIC[op]
        return self.apply(name, "b", [self.coerce(a, "b") for a in args])

    def compare(self, op: str, a: Val, b: Val) -> Val:
        kind: Kind = "f" if "f" in (a.kind, b.kind) else "i"
        operands = [self.coerce(a, kind), self.coerce(b, kind)]
        if all(o.const is not None for o in operands):
            operands[0] = self.materialise(operands[0])
        text = expression(op, *(o.text for o in operands))
        return self.define(text, "b", any(o.keys for o in operands))

    def where(self, kind: Kind, condition: Val, a: Val, b: Val) -> Val:
        operands = [self.coerce(condition, "b"), self.coerce(a, kind), self.coerce(b, kind)]
        values = (min(x.range[0] for x in operands[1:]), max(x.range[1] for x in operands[1:]))
        wide = kind == "i" and (any(x.wide for x in operands[1:]) or not fits_int32(values))
        return self.apply("where", kind, operands, values, wide)

    # -- conversions

    def coerce(self, value: Val, kind: Kind) -> Val:
        if value.kind == kind:
            return value
        if value.const is not None:
            return _literal(value.const, kind)
        if kind == "b":
            return self.define(f"{value.text} != 0", "b", value.keys)
        if kind == "f":
            return self.define(f"tl.cast({value.text}, tl.float32)", "f", value.keys)
        if value.kind == "b":
            return self.define(f"tl.cast({value.text}, tl.int32)", "i", value.keys, (0, 1))
        return self.define(f"tl.cast({value.text}, tl.int64)", "i", value.keys, INT64, True)

    def materialise(self, value: Val) -> Val:
        """A constant as a block, where an op needs one."""
        return value if value.const is None else self.define(self.block(value), value.kind, False, value.range)

    def block(self, value: Val) -> str:
        dtype = {"f": "tl.float32", "i": "tl.int64", "b": "tl.int1"}[value.kind]
        return value.text if value.const is None else f"tl.full([1, 1], {value.text}, {dtype})"


def _divided(op: str, args: list[Val]) -> str | None:
    """Division where it is simpler than in general: by a power of two, or of numbers that aren't negative."""
    if op not in ("floordiv", "mod"):
        return None
    number, divisor = args[0], args[1]
    power = divisor.const
    if isinstance(power, int) and power > 0 and power & (power - 1) == 0:
        return f"{number.text} >> {power.bit_length() - 1}" if op == "floordiv" else f"{number.text} & {power - 1}"
    if number.range[0] >= 0 and divisor.range[0] > 0:
        return f"{number.text} // {divisor.text}" if op == "floordiv" else f"{number.text} % {divisor.text}"
    return None


def _const(instr: Instr) -> Val:
    if not isinstance(instr.value, int | float):
        raise ValueError(f"constant without a number: {instr.value!r}")
    return _literal(instr.value, kind_of(instr.dtype))


def _literal(value: float | int | bool, kind: Kind) -> Val:
    if kind == "b":
        return Val(str(bool(value)), "b", const=bool(value))
    if kind == "i":
        number = int(value)
        return Val(
            _signed(str(number)), "i", range=(number, number), wide=not fits_int32((number, number)), const=number
        )
    single = single_precision(float(value))
    return Val(float_literal(single), "f", const=single)


def _fold(op: str, args: list[Val]) -> Val | None:
    """Arithmetic of two constants, rounded to float32."""
    numbers = [float(a.const) for a in args if a.const is not None]
    if len(numbers) != len(args) or op not in ("add", "sub", "mul", "neg"):
        return None
    a, b = numbers[0], numbers[-1]
    return _literal({"add": a + b, "sub": a - b, "mul": a * b, "neg": -a}[op], "f")


def float_literal(value: float) -> str:
    """Python text of a float."""
    return _signed(repr(value)) if math.isfinite(value) else f'float("{value}")'


def _signed(text: str) -> str:
    return f"({text})" if text.startswith("-") else text
