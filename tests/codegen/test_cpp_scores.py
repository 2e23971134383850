"""Scores, masks, softmax forms and dead rows, in C++ and in Triton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from codegen_build import Kernel, KernelError
from codegen_interpreted import Build
from codegen_programs import K_LEN, Q_LEN, TK, TQ, K, Q, axis, call, cast, const, load, program, qk, size, where
from codegen_reference import CAUSAL, all_tiles, causal_tiles, check, make_plan, reference, tiles

from attnc.codegen.plan import KernelPlan, Segment

B, H = axis("b"), axis("h")
LOWEST = {"f32": -3.4028234663852886e38, "bf16": -3.3895313892515355e38, "f16": -65504.0}
NAN, INF = float("nan"), float("inf")


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def qkv(s: int, t: int, d: int = 16, dtype: torch.dtype = torch.float32, b: int = 2, h: int = 2) -> list[torch.Tensor]:
    return [randn(b, h, s, d, dtype=dtype), *(randn(b, h, t, d, dtype=dtype, seed=i) for i in (1, 2))]


def left_padding(t: int, *pads: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.stack([(torch.arange(t) >= p).to(dtype) for p in pads])


# -- masks and biases


def test_padding_and_causal(build: Build) -> None:
    """An int64 key mask; values that are only non-zero above bit 32 still count."""
    mask = CAUSAL & load(0, "i64", B, K).ne(0)
    segments = causal_tiles(32, 32, more=True)
    kernel = build(make_plan(mask=mask, segments=segments, sides=[("i64", 2)], dead_rows="zero", returns_lse=True))
    for s in (1, 9, 33, 97):
        check(kernel, *qkv(s, s), side=[left_padding(s, 0, s // 2) << 33])
    wide = left_padding(97 * 3, 5, 60).reshape(2, 97, 3).permute(0, 2, 1)[:, 1]
    check(kernel, *qkv(97, 97), side=[wide])


def test_a_side_that_is_too_short_is_refused(build: Build) -> None:
    """A mask shorter than the keys would be read past its end."""
    mask = load(0, "i64", B, K).ne(0)
    kernel = build(make_plan(mask=mask, sides=[("i64", 2)], dead_rows="zero"))
    for side in (torch.ones(2, 32, dtype=torch.int64), torch.ones(1, 33, dtype=torch.int64)):
        with kernel.refuses("a side operand is shorter than the axis that indexes it", "is shorter than axis"):
            kernel(*qkv(5, 33), side=[side])
    check(kernel, *qkv(5, 33), side=[torch.ones(3, 40, dtype=torch.int64)])


def test_boolean_mask_over_pairs(build: Build) -> None:
    mask = load(0, "b1", B, const(0), Q, K)
    kernel = build(make_plan(mask=mask, sides=[("b1", 4)], dead_rows="zero", returns_lse=True))
    for s, t in ((1, 1), (33, 70), (65, 31)):
        dense = randn(2, 1, s, t) > 0.5
        dense[:, :, 0] = False
        check(kernel, *qkv(s, t), side=[dense])
        check(kernel, *qkv(s, t), side=[dense.transpose(2, 3).contiguous().transpose(2, 3)])


def test_additive_mask_and_softcap(build: Build) -> None:
    cap = call("tanh", qk * 0.25 / 5.0) * 5.0
    kernel = build(make_plan(cap + load(0, "f32", B, H, Q, K), sides=[("f32", 4)], returns_lse=True))
    for s, t in ((1, 7), (33, 70), (64, 64)):
        check(kernel, *qkv(s, t), side=[randn(2, 2, s, t)])
        bias = torch.where(randn(2, 2, s, t) > 0, 0.0, -INF)
        bias[..., 0] = 0
        check(kernel, *qkv(s, t), side=[bias])


def test_alibi_and_relative_table(build: Build) -> None:
    """-slope[h] · (q - k), and a table read backwards at q - k + |k| - 1."""
    slope, table = load(0, "f32", H), load(1, "bf16", H, Q - K + K_LEN - 1)
    kernel = build(make_plan(qk * 0.25 - slope * cast(Q - K, "f32") + table, sides=[("f32", 1), ("bf16", 2)]))
    for s, t in ((1, 9), (40, 77)):
        check(kernel, *qkv(s, t), side=[torch.tensor([0.5, 0.03]), randn(2, s + t, dtype=torch.bfloat16)])


def test_documents_and_gathers(build: Build) -> None:
    """doc[q] == doc[k]; a bias gathered at bucket[k // 3] and at a loaded index; a named size in the mask."""
    bias = load(1, "f32", K // 3) + load(1, "f32", load(0, "i32", B, K) % 5) + load(1, "f32", load(2, "i64", K))
    mask = load(0, "i32", B, Q).eq(load(0, "i32", B, K)) & (K < size("limit"))
    plan = make_plan(qk + bias, mask, sides=[("i32", 2), ("f32", 1), ("i64", 1)], sizes=("limit",), dead_rows="zero")
    s = 75
    side = [torch.arange(s).div(20, rounding_mode="floor").int().repeat(2, 1), randn(200), torch.randint(200, (s,))]
    check(build(plan), *qkv(s, s), side=side, sizes=[70])
    check(build(plan), *qkv(s, s), side=side, sizes=[3])
    with build(plan).refuses(
        "side operands: expected 3: i32 of rank 2, f32 of rank 1, i64 of rank 1",
        "side operand 0 is torch.int64 of rank 1, expected torch.int32 of rank 2",
    ):
        build(plan)(*qkv(s, s), side=side[::-1], sizes=[3])


def test_a_size_that_is_too_large_is_refused(build_cpp: Callable[..., Kernel]) -> None:
    """C++ only: an emitted module leaves it to what calls it."""
    kernel = build_cpp(make_plan(mask=K < size("limit"), sizes=("limit",), dead_rows="zero"))
    with pytest.raises(KernelError, match="a length or size is 2"):
        kernel(*qkv(5, 5), sizes=[1 << 30])


def test_loaded_position_against_keys(build: Build) -> None:
    """k <= position[q], positions of any int64 value."""
    kernel = build(make_plan(mask=load(0, "i64", Q) >= K, sides=[("i64", 1)], dead_rows="zero"))
    positions = torch.tensor([0, 5, -1, -(1 << 40), 1 << 40, 31, 32, 63, 1 << 31, -(1 << 31)])
    check(kernel, *qkv(10, 64), side=[positions])


def test_tile_guards(build: Build) -> None:
    """Two segments over the same tiles, one masked and one not, told apart by a guard of each tile."""
    whole = TK * 32 + 32 <= TQ * 32 + K_LEN - Q_LEN + 1
    live = TK * 32 < TQ * 32 + K_LEN - Q_LEN + 32
    every = (const(0), (K_LEN + 31) // 32)
    segments = (
        tiles(*every, True, guard=live & ~whole, guard_scope="tile"),
        tiles(*every, False, guard=whole, guard_scope="tile"),
    )
    for s, t in ((1, 1), (97, 130), (130, 130)):
        check(build(make_plan(mask=CAUSAL, segments=segments)), *qkv(s, t))


def test_segment_guard_over_an_outer_axis(build: Build) -> None:
    """Head 0 is causal, head 1 sees everything."""
    mask = CAUSAL | H.eq(1)
    causal = tuple(replace(s, guard=program(H.eq(0))) for s in causal_tiles(32, 32))
    full: tuple[Segment, ...] = tuple(replace(s, guard=program(H.eq(1))) for s in all_tiles(32, False))
    check(build(make_plan(mask=mask, segments=(*causal, *full))), *qkv(60, 70))


# -- softmax forms


def test_sink_weight_and_lse(build: Build) -> None:
    weight = where(load(1, "b1", B, Q, K), const(1.25), const(0.0)) * load(2, "f32", H)
    plan = make_plan(
        None, CAUSAL, causal_tiles(32, 32), weight=weight, softmax="sink", sink=load(0, "bf16", H),
        sides=[("bf16", 1), ("b1", 3), ("f32", 1)], returns_lse=True,
    )  # fmt: skip
    for s in (1, 33, 64):
        side = [torch.tensor([0.5, -2.0]).bfloat16(), randn(2, s, s) > -1, torch.tensor([0.3, 2.0])]
        check(build(plan), *qkv(s, s), side=side)


def test_plus_one_with_dead_rows(build: Build) -> None:
    mask = load(0, "b1", B, K) & CAUSAL
    plan = make_plan(None, mask, softmax="plus_one", sides=[("b1", 2)], dead_rows="zero", returns_lse=True)
    for s in (3, 40):
        check(build(plan), *qkv(s, s), side=[left_padding(s, 2, s, dtype=torch.bool)])


# -- dead rows


def written_plan(dtype: str) -> KernelPlan:
    """Hugging Face's eager mask: where(visible, 0, lowest) added to the scaled scores, in the model's dtype."""
    mask = CAUSAL & load(0, "i64", B, K).ne(0)
    score = cast(qk * 0.25, dtype)
    fill = where(mask, const(0.0, dtype), const(LOWEST[dtype], dtype))
    return make_plan(
        score,
        mask,
        causal_tiles(32, 32, more=True),
        score + fill,
        [("i64", 2)],
        dtype=dtype,
        dead_rows="as_written",
        returns_lse=True,
    )


@pytest.mark.parametrize(("name", "dtype", "eps"), [("f32", torch.float32, 2**-23), ("f16", torch.float16, 2**-11)])
def test_dead_rows_as_written(build: Build, name: str, dtype: torch.dtype, eps: float) -> None:
    """In f32 the fill absorbs the score: the mean of all keys. In f16, 65504 + score may stay below infinity."""
    kernel = build(written_plan(name))
    for s in (1, 5, 33, 70):
        for pads in ((0, s), (s // 2, 1), (s, s)):
            check(kernel, *qkv(s, s, dtype=dtype), side=[left_padding(s, *pads)], eps=eps)
    if isinstance(kernel, Kernel):  # 5 s in Triton's interpreter
        check(kernel, *qkv(600, 600, 64, dtype=dtype), side=[left_padding(600, 500, 3)], eps=eps, threads=True)


def test_fill_sums_that_overflow(build: Build) -> None:
    """lowest + lowest is -inf in the source's dtype: keys filled once are averaged, keys filled twice are out."""
    for name, dtype, eps in (("f32", torch.float32, 2**-23), ("f16", torch.float16, 2**-11)):
        lowest, zero = const(LOWEST[name], name), const(0.0, name)
        padding = load(0, "i64", B, K).ne(0)
        score = cast(qk * 0.25, name)
        written = (score + where(CAUSAL, zero, lowest)) + where(padding, zero, lowest)
        segments = causal_tiles(32, 32, more=True)
        plan = make_plan(score, CAUSAL & padding, segments, written, [("i64", 2)], dtype=name, dead_rows="as_written")
        for s in (5, 40):
            check(build(plan), *qkv(s, s, dtype=dtype), side=[left_padding(s, s // 2, s)], eps=eps)


def test_dead_rows_join_a_sink(build: Build) -> None:
    plan = replace(written_plan("f32"), softmax="sink", sink=program(load(1, "f32", H)))
    plan = replace(plan, sides=(*plan.sides, replace(plan.sides[0], dtype="f32", rank=1)))
    check(build(plan), *qkv(33, 33), side=[left_padding(33, 9, 33), torch.tensor([0.5, -1.0])])


def test_unmasked_plan_with_dead_rows_zero(build: Build) -> None:
    """No segment covers a tile: its rows are dead."""
    mask = Q >= 32
    segment = replace(all_tiles(32, False)[0], guard=program(TQ >= 1))
    plan = make_plan(mask=mask, segments=(segment,), dead_rows="zero", returns_lse=True)
    check(build(plan), *qkv(50, 40))


# -- what is not finite


def test_nan_behind_the_mask_is_contained(build: Build) -> None:
    kernel = build(make_plan(mask=CAUSAL, segments=causal_tiles(32, 32)))
    q, k, v = qkv(40, 40)
    clean = kernel(q, k, v)[0]
    k[:, :, 30:] = NAN
    k[:, :, 35:] = INF
    assert torch.equal(kernel(q, k, v)[0][:, :, :30], clean[:, :, :30])


@pytest.mark.parametrize("dead_rows", ["none", "zero"])
def test_visible_nan_and_infinity_give_nan(build: Build, dead_rows: str) -> None:
    kernel = build(make_plan(mask=CAUSAL, segments=causal_tiles(32, 32), dead_rows=dead_rows))
    for bad in (torch.tensor(NAN), torch.tensor(-1, dtype=torch.int32).view(torch.float32)):
        q, k, v = qkv(40, 40)
        k[0, 0, 10] = bad
        out = kernel(q, k, v)[0]
        assert out[0, 0, 10:].isnan().all() and not out[0, 0, :10].isnan().any() and not out[1].isnan().any()
        q[1, 1, 0] = bad
        assert kernel(q, k, v)[0][1, 1, 0].isnan().all()
    q, k, v = qkv(40, 40)
    q[..., 0], k[0, 0, 10, 0] = 1.0, INF
    assert kernel(q, k, v)[0][0, 0, 10:].isnan().all()
    k[0, 0, 10, 0] = -INF  # a weight of exactly 0
    check(kernel, q, k, v)


def test_large_scores(build: Build) -> None:
    """Scores of ±1e4 and of one sign: nothing overflows, nothing is lost to a clamp."""
    kernel = build(make_plan(returns_lse=True))
    q, k, v = qkv(33, 70)
    check(kernel, q * 300, k * 300, v)
    check(kernel, q.abs() * 100, -k.abs() * 100, v)
    expected, _ = reference(kernel.plan, q * 1e4, k * 1e4, v)
    assert np.isfinite(expected).all() and kernel(q * 1e4, k * 1e4, v)[0].isfinite().all()
