"""Plans over pages: what they take over from whole sequences, what fits pages, what is refused and why."""

from __future__ import annotations

from typing import Any

import pytest

from attnc.compiler.planning.paged import plan_paged
from attnc.ir import parse_graph
from attnc.ir.values import Op


def attention(
    mask: str = "k <= q",
    visible: str = "qk * 0.125",
    fill: str = "minus_inf",
    sides: str = "",
    keys: str = "S",
    dims: tuple[str, str] = ("64", "64"),
    extra: str = "",
    results: str = "%o: f32[B, S, 2, 3, {e}]",
) -> Op:
    """Grouped heads over any batch and length; ``sides`` are declarations of %t0, …"""
    d, e = dims
    score = visible if mask == "True" else f"where({mask}, {visible}, {'-inf' if fill == 'minus_inf' else '-1e9'})"
    names = [part.split(":")[0].strip() for part in sides.split(";") if part]
    declared = "".join(f", {part}" for part in sides.split(";") if part)
    text = f"""graph @g(%q: f32[B, 2, 3, S, {d}], %k: f32[B, 2, {keys}, {d}], %v: f32[B, 2, {keys}, {e}]{declared})
      sizes(B in [1, 64], S in [1, inf], T in [1, inf], D in [1, inf]) {{
      {results.format(e=e)} = attn.attention(%q, %k, %v, [{", ".join(names)}], []) {{
        q = [b, h, g, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, q, h, g, e]
        qk = f32
        score = {score}
        visible = {visible}
        mask = {mask}
        fill = {fill}
        softmax = plain f32
        out_dtype = f32
        {extra}
      }}
      return %o
    }}"""
    return next(op for op in parse_graph(text).ops if op.name == "attn.attention")


def test_a_causal_attention_is_taken_over() -> None:
    plan = plan_paged(attention(), batch="b", page_size=32, k_store="i8", v_store="i4")
    assert plan.attention.block_m == 1
    assert [s.needs_mask for s in plan.attention.segments] == [False, True]
    assert plan.attention.dead_rows == "none"
    assert (plan.k_store, plan.v_store, plan.page_size, plan.causal) == ("i8", "i4", 32, True)
    assert (plan.kv_axes("k"), plan.kv_axes("v")) == (("h",), ("h",))


def test_segments_are_of_single_rows(run_program: Any) -> None:
    """The blocks of row q are those with a key in its window, by its absolute position."""
    plan = plan_paged(attention("(k <= q) & (k - q > -200)"), batch="b")
    block = plan.attention.block_n
    for q in (0, 1, 127, 128, 199, 200, 327, 328, 5000):
        axes, sizes = {"tq": q}, {"|q|": q + 1, "|k|": q + 1}
        visited: list[int] = []
        for s in plan.attention.segments:
            if s.guard is None or run_program(s.guard, axes, sizes):
                visited += range(run_program(s.lo, axes, sizes), run_program(s.hi, axes, sizes), s.step)
        assert sorted(visited) == list(range(max(0, q - 199) // block, q // block + 1))


def test_stores_are_those_of_the_operands_by_default() -> None:
    plan = plan_paged(attention(), batch="b")
    assert (plan.k_store, plan.v_store) == ("f32", "f32")


@pytest.mark.parametrize("page_size", [1, 7, 16, 20, 32, 48, 64, 100, 128, 192, 200, 256, 1000])
def test_blocks_and_splits_fit_pages(page_size: int) -> None:
    plan = plan_paged(attention(), batch="b", page_size=page_size)
    block = plan.attention.block_n
    assert page_size % block == 0 or block % page_size == 0
    assert plan.split % page_size == plan.split % block == 0
    assert plan.split >= 512


def test_cross_attention_has_keys_of_its_own() -> None:
    plan = plan_paged(attention("True", keys="T"), batch="b", causal=False)
    assert not plan.causal
    assert plan.attention.mask is None


def test_a_row_without_keys_is_zero_where_the_fill_says_so() -> None:
    assert plan_paged(attention("k < q"), batch="b").attention.dead_rows == "zero"


PADDED = "(k <= q) & (t0[b, k] != 0)"


@pytest.mark.parametrize(
    ("given", "asked", "reason"),
    [
        ({"mask": PADDED, "sides": "%t0: i64[B, S]"}, {}, "reads the batch axis b"),
        ({"visible": "qk + t0[b, h, q, k]", "sides": "%t0: f32[B, 2, S, S]"}, {}, "reads the batch axis b"),
        ({"visible": "qk + f32(b)"}, {}, "reads the batch axis b"),
        ({"mask": "(k <= q) | (k < 40)"}, {}, "may see a key that comes after it"),
        ({"mask": "True"}, {}, "may see a key that comes after it"),
        ({"mask": "True", "keys": "T", "visible": "qk + f32(q)"}, {"causal": False}, "reads the query position"),
        ({"mask": "k < q", "fill": "finite(-1e9)"}, {}, "a row may see no key"),
        ({"extra": "lse = True", "results": "%o: f32[B, S, 2, 3, {e}], %l: f32[B, S, 2, 3]"}, {}, "log-sum-exp"),
        ({"dims": ("D", "64")}, {"k_store": "i4"}, "need head dimensions known"),
        ({}, {"k_store": "i2"}, "pages of i2"),
        ({}, {"page_size": 0}, "pages of 0 keys"),
        ({}, {"batch": "n"}, "q and k and v has no batch axis n"),
    ],
)
def test_refused(given: dict[str, Any], asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan_paged(attention(**given), **{"batch": "b", **asked})
