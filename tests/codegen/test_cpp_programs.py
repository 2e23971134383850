"""Every op of a formula, on vectors of keys and on scalars: read through the weight, with identity values."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from codegen_interpreted import LATER, Build
from codegen_programs import (
    Array,
    Expr,
    K,
    Q,
    axis,
    call,
    cast,
    const,
    evaluate,
    load,
    maximum,
    minimum,
    program,
    qk,
    size,
    where,
)  # fmt: skip
from codegen_reference import causal_tiles, make_plan, tiles

from attnc.codegen.cpp.emitter import emit
from attnc.codegen.cpp.expressions import C_TYPES, EXPRESSIONS, c_type, expression
from attnc.codegen.fold import fold_scale, is_qk
from attnc.codegen.plan import KernelPlan
from attnc.codegen.targets import capability

KEYS, ROWS = 21, 11
X, Y = load(1, "f32", Q, K), load(2, "f32", K)  # vectors of keys
U, V = load(1, "f32", Q, const(3)), load(2, "f32", const(2))  # scalars
SIDES = [("i64", 0), ("f32", 2), ("f32", 1), ("i64", 1)]
N = size("n")
BIG = load(3, "i64", K)


def operands() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(ROWS, KEYS, generator=generator) * 3
    x[0, :6] = torch.tensor([float("nan"), 0.0, -0.0, float("inf"), -float("inf"), 1e-4])
    big = torch.randint(-(1 << 40), 1 << 40, (KEYS,), generator=generator)
    return [x, torch.randn(KEYS, generator=generator), big]


def run_all(build: Build, expressions: list[Expr], tolerance: float = 2e-6) -> None:
    """Evaluates each expression at every (q, k); NaN is read as 777.

    One kernel holds many, of which the number in t0 picks one: compiling costs most in C++, each op in the interpreter.
    """
    several = 6 if build.language == "triton" else len(expressions)
    for first in range(0, len(expressions), several):
        run_some(build, expressions[first : first + several], tolerance)


def run_some(build: Build, expressions: list[Expr], tolerance: float) -> None:
    root: Expr = const(0.0)
    pick = load(0, "i64")
    for i, e in enumerate(expressions):
        root = where(pick.eq(i), cast(e, "f32"), root)
    limited = minimum(maximum(root, const(-1e30)), const(1e30))
    plan = make_plan(
        qk, weight=where(call("isnan", root, dtype="b1"), const(777.0), limited), sides=SIDES, sizes=("n",)
    )
    kernel = build(plan, "-O1") if build.language == "c++" else build.alone(plan)
    q, k, v = torch.zeros(1, 1, ROWS, 4), torch.zeros(1, 1, KEYS, 4), torch.eye(KEYS)[None, None] * KEYS
    env: dict[str, Array] = {"q": np.arange(ROWS)[:, None], "k": np.arange(KEYS)[None], "n": 13}
    env |= {f"t{i + 1}": (t.double() if t.is_floating_point() else t).numpy() for i, t in enumerate(operands())}
    for i, e in enumerate(expressions):
        wanted = np.broadcast_to(np.asarray(evaluate(program(e), env), dtype=np.float64), (ROWS, KEYS))
        wanted = np.where(np.isnan(wanted), 777, np.clip(wanted, -1e30, 1e30))
        got = kernel(q, k, v, [torch.tensor(i), *operands()], [13])[0][0, 0].double().numpy()
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance * 0.1, err_msg=f"{e.op}, number {i}")


@LATER
def test_float_functions(build: Build) -> None:
    functions = ("tanh", "exp", "exp2", "sigmoid", "erf", "floor", "ceil", "sin", "cos", "abs", "neg")
    positive = call("abs", X) + 1e-3
    vectors = [call(f, X) for f in functions] + [call(f, positive) for f in ("log", "sqrt", "rsqrt")]
    scalars = [call(f, U) for f in functions] + [call(f, call("abs", U)) for f in ("log", "sqrt", "rsqrt")]
    wide = [call("exp", X * 16.0), call("tanh", X * 1e-3), call("log", X)]
    run_all(build, [*vectors, *scalars, *wide])


@LATER
def test_float_arithmetic(build: Build) -> None:
    pairs = [(X, Y), (X, V), (U, Y), (U, V), (X, const(0.7)), (const(-2.5), Y)]
    ops = ("add", "sub", "mul", "div", "min", "max", "floordiv")
    run_all(build, [call(op, a, b) for op in ops for a, b in pairs])
    compares = ("lt", "le", "gt", "ge", "eq", "ne")
    logic = [call(op, a, b, dtype="b1") for op in compares for a, b in [*pairs, (X, X)]]
    logic += [
        (X < Y) & (Y > 0.0),
        (X < V) | (U < V),
        ~(X < Y),
        ~(U < V),
        (U < V) & (X < Y),
        call("isnan", X, dtype="b1"),
    ]
    run_all(build, [*logic, where(X < Y, X, V), where(U < V, X, Y), where(U < V, U, V), where(X < V, const(1.0), U)])
    more = [call("mod", Y, V), call("mod", U, V), call("mod", X, Y), call("pow", Y, const(3.0))]
    run_all(build, [*more, call("pow", call("abs", Y), const(0.3))])


def test_a_power_with_a_computed_exponent(build: Build) -> None:
    """Triton has no such function: a logarithm, with C's special cases of whole exponents and negative bases."""
    run_all(build, [call("pow", call("abs", Y), V), call("pow", Y, call("floor", V * 3.0)), call("pow", const(2.5), V)])


@LATER
def test_a_power_with_a_whole_exponent(build: Build) -> None:
    run_all(build, [call("pow", Y, const(n)) for n in (0.0, -1.0, -2.0, 9.0, 11.0)])


@LATER
def test_integers(build: Build) -> None:
    pairs = [
        (K, Q),
        (Q, K),
        (K - Q, N),
        (K, const(4)),
        (K - 10, const(4)),
        (K - 10, const(-3)),
        (Q - 5, const(3)),
        (Q - 5, N),
        (BIG, K + 1),
    ]
    arithmetic = [call(op, a, b) for op in ("add", "sub", "mul", "min", "max", "floordiv", "mod") for a, b in pairs]
    more = [
        BIG % 97,
        (BIG // (1 << 33)) % 7,
        abs_of(BIG) % 1001,
        abs_of(K - Q),
        abs_of(Q - 7),
        -(K - Q),
        call("pow", K, const(2)),
    ]
    run_all(build, [*[e % 1000003 for e in arithmetic], *more])
    compares = [call(op, a, b, dtype="b1") for op in ("lt", "le", "gt", "ge", "eq", "ne") for a, b in pairs]
    bits = [cast(K % 2, "b1"), cast(Q % 2, "b1"), cast(K % 3, "b1") & cast(Q % 3, "b1"), cast(BIG, "b1")]
    sums = [
        cast(K > Q, "i64") + cast(Q > 3, "i64"),
        call("add", K > 3, Q > 3, dtype="b1"),
        call("mul", K > 3, Q > 3, dtype="b1"),
    ]
    run_all(build, [*compares, *bits, *sums, where(K > Q, K, BIG) % 1009, where(Q > N, Q, N), where(BIG > 0, K, Q)])
    casts = [cast(Y * 3.0, "i64"), cast(V * 3.0, "i64"), cast(cast(X > 0.0, "f32"), "i64"), cast(K, "f32") / 3.0]
    run_all(build, [*casts, call("div", K, const(7), dtype="f32"), cast(Q, "f32") * 0.5])


def abs_of(e: Expr) -> Expr:
    return call("abs", e)


@pytest.mark.parametrize("lanes", ["contiguous", "strided", "gathered", "scalar"])
def test_loads_of_every_dtype(build: Build, lanes: str) -> None:
    """Sums of one load per dtype, read in bounds: each tensor ends where the last key does."""
    index = {"contiguous": K, "strided": K, "gathered": call("min", K * 1, (K // 2) * 2 + 1), "scalar": Q}[lanes]
    numbers = list(C_TYPES)
    root: Expr = const(0.0)
    for i, name in enumerate(numbers):
        root = root + cast(load(i, name, index), "f32")
    plan = make_plan(qk, weight=root, sides=[(name, 1) for name in numbers])
    torch_dtypes = [
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8,
        torch.bool,
    ]  # fmt: skip
    n = 22
    side = [(torch.arange(n) * (i + 3) % 11 - 3 * (t is not torch.uint8)).to(t) for i, t in enumerate(torch_dtypes)]
    if lanes == "strided":
        side = [t.repeat_interleave(2)[::2] for t in side]
    q, k, v = torch.zeros(1, 1, n, 4), torch.zeros(1, 1, n, 4), torch.eye(n)[None, None] * n
    got = build(plan, "-O1")(q, k, v, side)[0][0, 0]
    total = torch.stack([t.float() for t in side]).sum(0)
    at = {"gathered": torch.minimum(torch.arange(n), torch.arange(n) // 2 * 2 + 1)}.get(lanes, torch.arange(n))
    wanted = total[at].expand(n, n) if lanes != "scalar" else total[:, None].expand(n, n)
    torch.testing.assert_close(got, wanted, rtol=1e-6, atol=1e-6)


# -- texts


def test_expression_table() -> None:
    assert expression("add", "a", "b") == "a + b"
    assert expression("where", "c", "a", "b") == "where(c, a, b)"
    with pytest.raises(ValueError, match="cannot write op 'lgamma'"):
        expression("lgamma", "a")
    with pytest.raises(ValueError, match="do not read c64"):
        c_type("c64")
    leaves = {"qk", "const", "axis", "size", "load", "cast"}
    documented = set(
        "add sub mul div neg abs min max pow floordiv mod tanh exp exp2 log sqrt rsqrt sigmoid erf floor ceil sin cos "
        "lt le gt ge eq ne and or not where isnan".split()
    )
    assert set(EXPRESSIONS) == documented and not leaves & set(EXPRESSIONS)


def test_fold_takes_every_constant_on_the_way() -> None:
    factor, rest = fold_scale(program(call("tanh", cast(qk * 0.5, "bf16") / 4.0) * 30.0))
    assert factor == 0.125 and [i.op for i in rest] == ["qk", "tanh", "const", "mul"]
    factor, rest = fold_scale(program(-(qk * 0.5)))
    assert factor == -0.5 and is_qk(rest)


@pytest.mark.parametrize(
    "score",
    [qk * qk, qk * load(0, "f32", K), const(2.0) / qk, qk * float("inf"), qk * 0.0, where(qk > 0.0, qk, qk * 2.0)],
)
def test_fold_leaves_what_is_no_factor(score: Expr) -> None:
    assert fold_scale(program(score)) == (1.0, program(score))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"visible": program(call("lgamma", qk))}, "cannot write op 'lgamma'"),
        ({"visible": program(qk + cast(axis("x"), "f32"))}, "axis 'x' is not known"),
        ({"visible": program(qk + cast(size("s9"), "f32"))}, "size 's9' is not among"),
        ({"visible": program(qk + load(0, "f32", K))}, "load of side operand 0, the plan has 0"),
        ({"segments": (tiles(K, const(1), False),)}, "axis 'k' is not known"),
        ({"q_axes": ("b", "q", "d", "x")}, "not outer axes"),
        ({"k_axes": ("b", "h", "d")}, "missing"),
        ({"outer": ("b", "h", "z")}, "in no operand"),
        ({"dtypes": ("f64", "f32", "f32", "f32")}, "no kernels for f64"),
        ({"block_n": 0}, "must be positive"),
        ({"softmax": "sink"}, "without a sink"),
        ({"target": "abacus"}, "unknown target 'abacus'"),
    ],
)
def test_refusals(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        emit(replace(make_plan(), **change))


def test_source_digest_covers_plan_headers_and_flags() -> None:
    source = emit(make_plan())
    assert source.plan == make_plan().digest and source.flags == capability("cpu").flags
    others = [
        emit(make_plan(block_m=12)),
        replace(source, headers="0"),
        replace(source, flags=("-O0",)),
        emit(make_plan(target="cpu-avx2")),
    ]
    assert len({s.digest for s in (source, *others)}) == 5
    assert emit(make_plan()).digest == source.digest


def test_emitting_loads_only_the_standard_library() -> None:
    heavy = ("torch", "numpy", "sympy", "attnc.ir")
    code = f"import sys, attnc.codegen.plan, attnc.codegen.source; print([m for m in {heavy} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def golden_plan() -> KernelPlan:
    bias = load(0, "bf16", axis("h"), Q - K + size("|k|") - 1)
    mask = (K <= Q) & (load(1, "i64", axis("b"), K).ne(0))
    return make_plan(
        call("tanh", qk * 0.125 / 50.0) * 50.0 + bias, mask, causal_tiles(24, 32, more=True),
        sides=[("bf16", 2), ("i64", 2)], head_dim=64, value_dim=64, dtype="bf16", dead_rows="zero", block_m=24,
        softmax="sink", sink=load(0, "bf16", axis("h"), const(0)),
    )  # fmt: skip


def test_golden_page() -> None:
    """The emitted text; ATTNC_UPDATE_GOLDEN=1 rewrites it."""
    path = Path(__file__).parent / "golden_page.cpp"
    text = emit(golden_plan()).text
    if os.environ.get("ATTNC_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
