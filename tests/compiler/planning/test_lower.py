"""Lowering to programs: shape of the code, and values against direct evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

from attnc.codegen.plan import Instr, Program
from attnc.compiler.planning.lower import lower
from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.types import DType, size

q, k, b = ix.axis("q"), ix.axis("k"), ix.axis("b")
S, P = size("S"), size("|q|")


def text(program: Program) -> str:
    return "; ".join(
        f"{i.op}.{i.dtype}{list(i.args) or ''}{'' if i.value is None else f'({i.value})'}" for i in program
    )


@pytest.mark.parametrize(
    ("expr", "code"),
    [
        (k <= q, "axis.i64(k); axis.i64(q); le.b1[0, 1]"),
        (k - q > -16, "axis.i64(k); axis.i64(q); sub.i64[0, 1]; const.i64(-16); gt.b1[2, 3]"),
        (sympy.floor((k + S) / 4), "size.i64(S); axis.i64(k); add.i64[0, 1]; const.i64(4); floordiv.i64[2, 3]"),
        (sympy.Mod(k, 4), "axis.i64(k); const.i64(4); mod.i64[0, 1]"),
        (sympy.Ne(ix.load("t3", b, k), 0), "axis.i64(b); axis.i64(k); load.i64[0, 1](3); const.i64(0); ne.b1[2, 3]"),
        (-k, "axis.i64(k); neg.i64[0]"),
        (P, "size.i64(|q|)"),
        (sympy.true, "const.b1(True)"),
    ],
)
def test_code(expr: sympy.Basic, code: str) -> None:
    assert text(lower(expr)) == code


def test_common_subexpressions_are_shared() -> None:
    row = sympy.floor((q + S) / 64)
    program = lower((k <= row) & (row - k < 7))
    assert sum(i.op == "floordiv" for i in program) == 1
    assert len(set(program)) == len(program)


def test_a_score_shares_indices_and_keeps_dtypes() -> None:
    node = sc.parse(
        "where((k <= q) & (t0[b, k] != 0), f32(qk) * 0.125 + f32(k - q) * t1[b, k - q], -inf)",
        {"qk": DType.BF16, "t0": DType.B1, "t1": DType.F32},
        "bqk",
    )
    program = lower(node)
    assert sum(i == Instr("axis", "i64", (), "k") for i in program) == 1
    assert sum(i.op == "sub" for i in program) == 1
    assert [i.dtype for i in program if i.op in ("qk", "cast", "mul", "where")] == [
        "bf16",
        "f32",
        "f32",
        "f32",
        "f32",
        "f32",
    ]
    assert [(i.dtype, i.value) for i in program if i.op == "load"] == [("i64", 0), ("f32", 1)]
    assert program[-1].op == "where"


def test_the_result_is_last_even_where_it_was_made_earlier() -> None:
    node = sc.where(
        sc.compare("gt", sc.qk(DType.F32), sc.const(0, DType.F32)), sc.qk(DType.F32), sc.const(1, DType.F32)
    )
    for root in (node, node.args[0], node.args[1]):
        assert lower(root)[-1].op == root.op


@pytest.mark.parametrize(
    "expr",
    [
        ix.where(k < 3, k * k * S, sympy.Max(q, k) - sympy.Abs(q - 2 * k)),
        sympy.floor((3 * k - q) / 4) + sympy.Mod(k - q, 3),
        sympy.Or(k / 2 <= q - 1, sympy.Not(sympy.Eq(k, q) | (k > S))),
        sympy.floor((k + q) / S) - sympy.Mod(q, S),
        ix.load("t0", sympy.Min(k, q)) * 2 - 1,
    ],
)
def test_values(expr: sympy.Basic, run_program: Callable[..., Any]) -> None:
    side = np.array([4, -1, 7, 0, 2, 9])
    program = lower(expr)
    for i in range(6):
        for j in range(6):
            expected = ix.evaluate(expr, ix.Env({"q": i, "k": j}, {"S": 3}, {"t0": side}))
            assert run_program(program, {"q": i, "k": j}, {"S": 3}, {0: side}) == expected


@pytest.mark.parametrize("expr", [k / 2, sympy.sqrt(k), k + sympy.Rational(1, 2), ix.load("mask", k)])
def test_what_is_no_integer_is_refused(expr: sympy.Basic) -> None:
    with pytest.raises(ValueError, match="lowering"):
        lower(expr)
