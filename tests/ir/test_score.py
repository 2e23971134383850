"""Score formulas: interning, promotion, text, evaluation, exact rewrites."""

from __future__ import annotations

import copy
import math
import pickle

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from attnc.ir import index as ix
from attnc.ir import score as sc
from attnc.ir.types import DType, size

F64, F32, F16, BF16, I64, I32, B1 = DType.F64, DType.F32, DType.F16, DType.BF16, DType.I64, DType.I32, DType.B1
q, k, b = ix.axis("q"), ix.axis("k"), ix.axis("b")
DTYPES = {"qk": BF16, "t0": B1, "t1": F32, "t2": BF16, "t3": I64}
CAUSAL = sc.index(k <= q, B1)


def parse(text: str) -> sc.Node:
    return sc.parse(text, DTYPES, "bqk", "SP")


floats = st.recursive(
    st.sampled_from(
        [
            sc.qk(BF16),
            sc.load("t1", (b, k), F32),
            sc.load("t2", (k - q + 3,), BF16),
            sc.index(k - q, F32),
            sc.index(k - q, I64),
            sc.const(0.1, F32),
            sc.const(-0.5, BF16),
            sc.const(-math.inf, F32),
            sc.const(-0.0, F32),
            sc.const(3, F64),
            sc.index(ix.load("t3", b), I32),
        ]
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["add", "sub", "mul", "div", "min", "max", "pow"]), inner, inner).map(
            lambda x: sc.binary(*x)
        ),
        st.tuples(st.sampled_from(["neg", "tanh", "exp", "sqrt", "abs", "sigmoid"]), inner).map(lambda x: sc.unary(*x)),
        st.tuples(inner, st.sampled_from([F32, BF16, F16, F64])).map(lambda x: sc.cast(*x)),
        st.tuples(st.sampled_from(["lt", "ge", "eq", "ne"]), inner, inner, inner).map(
            lambda x: sc.where(sc.logical("and", CAUSAL, sc.compare(x[0], x[1], x[2])), x[3], x[1])
        ),
        st.tuples(inner, inner).map(
            lambda x: sc.where(sc.logical("not", sc.logical("or", sc.unary("isnan", x[0]), CAUSAL)), x[1], x[0])
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(floats)
def test_text_reads_back_the_same_node(node: sc.Node) -> None:
    assert parse(sc.show(node)) is node


@pytest.mark.parametrize(
    "text",
    [
        "where((k <= q) & (t0[b, k] != 0), tanh(f32(qk * 0.125) / 50.0) * 50.0, -inf)",
        "f32(qk) * 0.125 + f32(k - q) * t1[b]",
        "qk - 1.0 - (qk - 2.0)",
        "f64(f32(0.1))",
        "f32(0.25)",
        "-(qk + 1.0) ** 2.0",
        "qk ** (-0.5)",
        "-bf16(0.5) * qk",
        "where(~isnan(qk), qk, 0.0)",
        "(k <= q) & (qk > 0.0) | (qk == 1.0)",
        "min(qk, 1.0) % 2.0 // 3.0",
        "i32(k) + 1",
    ],
)
def test_formulas_are_printed_as_written(text: str) -> None:
    assert sc.show(parse(text)) == text


def test_equal_nodes_are_one_object() -> None:
    node = sc.binary("add", sc.qk(F32), sc.const(1, F32))
    assert sc.binary("add", sc.qk(F32), sc.const(1, F32)) is node
    assert copy.deepcopy(node) is node
    assert pickle.loads(pickle.dumps(node)) is node
    assert sc.const(0.0, F32) is not sc.const(-0.0, F32)
    assert sc.const(math.nan, F32) is sc.const(math.nan, F32)


@pytest.mark.parametrize(
    ("x", "y", "result"),
    [
        (BF16, F16, F32),
        (BF16, F32, F32),
        (I64, F16, F16),
        (B1, I32, I32),
        (DType.U8, DType.I8, DType.I16),
        (F32, F64, F64),
    ],
)
def test_promotion_is_torchs(x: DType, y: DType, result: DType) -> None:
    assert sc.promote(x, y) is result
    assert sc.promote(y, x) is result


def test_integer_formulas_over_indices_are_one_node() -> None:
    node = sc.compare("le", sc.binary("add", sc.index(k, I64), sc.const(2, I64)), sc.index(q, I64))
    assert node is sc.index(k + 2 <= q, B1)
    assert sc.logical("and", node, sc.load("t0", (b, k), B1)) is sc.index(
        (k + 2 <= q) & sympy.Ne(ix.load("t0", b, k), 0), B1
    )
    assert sc.binary("div", sc.index(k, I64), sc.index(q, I64)).dtype is F32


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("0.5", "has no dtype"), ("qk +", "column"), ("qk + z", "'z'"), ("foo(qk)", "foo"), ("f32(qk, 1)", "2 operands")],
)
def test_errors_name_the_place(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match="reading score") as caught:
        parse(text)
    assert complaint in str(caught.value)


def test_boolean_arithmetic_is_refused() -> None:
    with pytest.raises(ValueError, match="booleans"):
        sc.binary("add", CAUSAL, CAUSAL)


ENV = ix.Env(
    {"b": 1, "q": np.arange(3)[:, None], "k": np.arange(4)[None, :]},
    {"S": 4, "P": 1},
    {
        "t0": np.array([[1, 1, 1, 1], [0, 1, 1, 1]], bool),
        "t1": np.linspace(-1, 1, 8).reshape(2, 4).astype(np.float32),
        "t2": np.arange(9).astype(np.float32) / 4,
        "t3": np.array([5, 6]),
    },
    np.arange(12).reshape(3, 4) / 3,
)


def test_evaluation_of_a_masked_softcapped_score() -> None:
    node = parse("where((k <= q) & (t0[b, k] != 0), tanh(f32(qk) / 2.0) * 2.0, -inf)")
    visible = np.array([[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0]], bool)
    assert ENV.qk is not None
    expected = np.where(visible, np.tanh(ENV.qk / 2) * 2, -np.inf)
    np.testing.assert_allclose(sc.evaluate(node, ENV), expected, rtol=1e-12)


def test_as_written_rounds_each_step_and_exact_does_not() -> None:
    node = sc.binary("mul", sc.qk(BF16), sc.const(0.1, BF16))
    written, exact = sc.evaluate(node, ENV, exact=False), sc.evaluate(node, ENV)
    assert ENV.qk is not None
    np.testing.assert_array_equal(exact, ENV.qk * 0.1)
    assert (np.asarray(written, np.float32).view(np.uint32) & 0xFFFF == 0).all()
    assert 0 < np.abs(written - exact).max() < 0.02


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, np.nan, np.inf, -3.4e38, -3.39e38], np.float32)
    rounded = sc.evaluate(sc.qk(BF16), ix.Env(qk=values), exact=False)
    np.testing.assert_array_equal(
        rounded, np.array([1, 1 + 2**-6, 1 + 2**-7, np.nan, np.inf, -np.inf, -3.3895314e38], np.float32)
    )


@settings(max_examples=40, deadline=None)
@given(floats)
def test_simplify_keeps_every_bit(node: sc.Node) -> None:
    ranges = {q: (0, 2), k: (0, 3), b: (1, 1)}
    for exact in (True, False):
        before, after = (sc.evaluate(n, ENV, exact) for n in (node, sc.simplify(node, ranges)))
        np.testing.assert_array_equal(np.broadcast_to(before, (3, 4)), np.broadcast_to(after, (3, 4)))


@pytest.mark.parametrize(
    ("text", "simple"),
    [
        ("where(k < S, qk, 0.0)", "qk"),
        ("where(~(qk > 0.0), qk, 0.0)", "where(qk > 0.0, 0.0, qk)"),
        ("bf16(f32(qk))", "qk"),
        ("f16(f32(qk))", "f16(f32(qk))"),
        ("where((k < S) & (qk > 0.0), qk, 0.0)", "where(qk > 0.0, qk, 0.0)"),
        ("qk + 0.0", "qk + 0.0"),
        ("qk * 0.0", "qk * 0.0"),
    ],
)
def test_simplify_does_only_what_is_exact(text: str, simple: str) -> None:
    assert sc.show(sc.simplify(parse(text), {k: (0, size("S") - 1)})) == simple


def test_substitution() -> None:
    node = parse("f32(qk) * 0.5 + t1[b, k]")
    assert sc.show(sc.substitute(node, {sc.qk(BF16): parse("qk + 1.0")})) == "f32(qk + 1.0) * 0.5 + t1[b, k]"
    assert sc.show(sc.substitute_index(node, {b: sympy.Integer(0)})) == "f32(qk) * 0.5 + t1[0, k]"
    assert (
        sc.show(sc.rename_loads(parse("where(t0[b, k] != 0, t1[b, k], 0.0)"), {"t0": "mask"}))
        == "where(mask[b, k] != 0, t1[b, k], 0.0)"
    )
    with pytest.raises(ValueError, match="f32 for bf16"):
        sc.substitute(node, {sc.qk(BF16): sc.qk(F32)})


def test_what_a_formula_reads() -> None:
    node = parse("where((t0[b, k] != 0) & (k < S), f32(qk) + t1[b, q], 0.0)")
    assert sc.uses_qk(node) and not sc.uses_qk(parse("f32(k)"))
    assert sc.side_names(node) == {"t0", "t1"}
    assert sc.axes_of(node) == {"b", "k", "q"} and sc.sizes_of(node) == {"S"}


def test_a_deep_formula_needs_no_recursion() -> None:
    node = sc.qk(F32)
    for _ in range(5000):
        node = sc.unary("neg", node)
    assert len(sc.walk(node)) == 5001
    assert repr(node) == "Node(neg, f32, 1 args)"
    assert float(sc.evaluate(node, ix.Env(qk=np.array(2.0)))) == 2.0
