"""Size expressions become values: computed once, right at run time."""

from __future__ import annotations

import operator

import pytest
import sympy
import torch

from attnc.compiler.frontends.torch.names import resolve
from attnc.compiler.host.sizes import NoSizeValue, materialize, materialize_all
from attnc.ir.graph import Graph
from attnc.ir.types import DType, ScalarType, TensorType, size
from attnc.ir.values import Value

B, S = size("B"), size("S")


def graph() -> Graph:
    made = Graph()
    made.add_input("s", ScalarType("int", S))
    made.add_input("x", TensorType(DType.F32, (B, S, 8)))
    made.create("aten.sin.default", [made.inputs[1]], [made.inputs[1].type])
    return made


def run(made: Graph, arg, b: int, s: int) -> int:
    env: dict[Value, object] = {made.inputs[0]: s, made.inputs[1]: torch.zeros(b, s, 8)}
    for op in made.ops:
        if op.name != "aten.sin.default":
            env[op.result] = resolve(op.name)(*(env[a] if isinstance(a, Value) else a for a in op.args))
    return env[arg] if isinstance(arg, Value) else arg


EXPRESSIONS = [
    B * S,
    B * S + 2 * S - 3,
    S**2 * B,
    sympy.floor((S + 3) / 4),
    sympy.floor(S * B / 3) * 2,
    sympy.Mod(S + B, 4),
    sympy.Max(S, B, 5) - sympy.Min(S, 2 * B),
    sympy.floor(S / B),
    7 - S,
]


@pytest.mark.parametrize("expr", EXPRESSIONS, ids=str)
def test_value_equals_the_expression(expr):
    made = graph()
    sin = made.ops[0]
    arg = materialize(made, expr, sin)
    assert made.ops[-1] is sin
    for b, s in ((2, 3), (3, 17), (5, 8)):
        assert run(made, arg, b, s) == expr.subs({B: b, S: s})


def test_values_are_shared():
    made = graph()
    sin = made.ops[0]
    first = materialize(made, B * S * 4, sin)
    count = len(made.ops)
    assert materialize(made, B * S * 4, sin) is first
    materialize_all(made, (B * S, 4 * B * S + 1), sin)
    assert len(made.ops) == count + 1
    assert [op.name for op in made.ops].count("aten.sym_size.int") == 1


def test_a_value_below_is_not_used():
    made = graph()
    materialize(made, B * S)
    count = len(made.ops)
    materialize(made, B * S, made.ops[0])
    assert len(made.ops) > count


def test_literals_and_inputs_make_no_ops():
    made = graph()
    assert materialize(made, 7) == 7 and materialize(made, sympy.Integer(7)) == 7
    assert materialize(made, S) is made.inputs[0]
    assert len(made.ops) == 1


def test_shifted_integer_input():
    made = Graph()
    made.add_input("n", ScalarType("int", size("n_from_0") - 1))
    arg = materialize(made, size("n_from_0"))
    assert isinstance(arg, Value) and arg.op.args == (made.inputs[0], 1)


@pytest.mark.parametrize("expr", [size("T"), sympy.sqrt(S), sympy.Piecewise((1, S > 3), (2, True))], ids=str)
def test_what_cannot_be_computed_is_named(expr):
    with pytest.raises(NoSizeValue, match=r"has the size T|has no Python form"):
        materialize(graph(), expr)


def test_python_names_are_pythons_functions():
    assert resolve("py.floordiv") is operator.floordiv
