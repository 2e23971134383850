from __future__ import annotations

import pytest
from codegen_programs import K_LEN, Expr, K, Q, axis, call, cast, const, load, program, qk

from attnc.codegen.formula import formula

X = load(0, "f32", axis("b"), K)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (qk * 0.125, "qk * 0.125"),
        ((K <= Q + K_LEN - 3) & (K - Q > -16), "(k <= q + |k| - 3) & (k - q > -16)"),
        (Q - (K - 1), "q - (k - 1)"),
        ((Q - K) * 2 + K * 3, "(q - k) * 2 + k * 3"),
        (~(K < Q) | (K // 4).eq(Q % 4), "~(k < q) | (k // 4 == q % 4)"),
        (-(cast(K, "f32") + qk), "-(f32(k) + qk)"),
        (call("tanh", qk / 50.0) * 50.0, "tanh(qk / 50) * 50"),
        ((X + 1.0) * 2.0, "(t0[b, k] + 1) * 2"),
        (call("pow", qk + 1.0, const(2.0)), "(qk + 1) ** 2"),
        (call("where", K < Q, qk, const(float("-inf")), dtype="f32"), "where(k < q, qk, -inf)"),
    ],
)
def test_formula(expression: Expr, text: str) -> None:
    assert formula(program(expression)) == text


def test_what_is_used_twice_gets_a_name() -> None:
    square = qk + 1.0
    assert formula(program(square * square)) == "x2 = qk + 1; x2 * x2"
