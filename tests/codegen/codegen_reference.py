"""Attention by definition, in float64 over all pairs, from a plan's programs; and hand-made plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from codegen_build import Kernel
from codegen_interpreted import Interpreted
from codegen_programs import K_LEN, Q_LEN, TQ, Array, Expr, K, Q, const, evaluate, maximum, minimum, program, qk

from attnc.codegen.plan import KernelPlan, Segment, Side


def reference(
    plan: KernelPlan,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    side: Sequence[torch.Tensor] = (),
    sizes: Sequence[int] = (),
    single: bool = False,
) -> tuple[Array, Array]:
    """(out, lse) in the plan's order of axes. ``single``: everything in float32, as eager would."""
    real = np.float32 if single else np.float64
    lengths: dict[str, int] = {}
    for x, axes in ((q, plan.q_axes), (k, plan.k_axes), (v, plan.v_axes)):
        lengths.update(zip(axes, x.shape, strict=True))
    outer = plan.outer
    spread = lambda x, axes, last: _arrange(x.double().numpy().astype(real), axes, (*outer, *last))  # noqa: E731
    qs, ks, vs = spread(q, plan.q_axes, "qd"), spread(k, plan.k_axes, "kd"), spread(v, plan.v_axes, "ke")
    shape = (*(lengths[a] for a in outer), lengths["q"], lengths["k"])
    with np.errstate(all="ignore"):
        env: dict[str, Array] = {"qk": np.broadcast_to(np.matmul(qs, np.swapaxes(ks, -1, -2)), shape)}
        for place, name in enumerate((*outer, "q", "k")):
            env[name] = np.arange(lengths[name]).reshape([-1 if i == place else 1 for i in range(len(shape))])
            env[f"|{name}|"] = lengths[name]
        env |= dict(zip(plan.sizes, sizes, strict=True))
        env |= {f"t{i}": (x.double() if x.dtype.is_floating_point else x).numpy() for i, x in enumerate(side)}
        weights, lse = _softmax(plan, env, shape, single)
        if plan.weight is not None:
            weights = weights * evaluate(plan.weight, env, single).astype(real)
        out = np.matmul(weights, np.broadcast_to(vs, (*shape[:-2], *vs.shape[-2:])))
    order = (*outer, "q")
    return _arrange(out, (*order, "e"), plan.out_axes), _arrange(lse, order, [a for a in plan.out_axes if a != "e"])


def _softmax(plan: KernelPlan, env: Mapping[str, Array], shape: tuple[int, ...], single: bool) -> tuple[Array, Array]:
    real = np.float32 if single else np.float64
    score = np.broadcast_to(evaluate(plan.visible, env, single), shape).astype(real)
    visible = np.broadcast_to(True if plan.mask is None else evaluate(plan.mask, env), shape)
    score[~visible] = -np.inf
    dead = ~visible.any(-1) if shape[-1] else np.ones(shape[:-1], bool)
    zero = dead if plan.dead_rows == "zero" or not shape[-1] else np.zeros_like(dead)
    if plan.dead_rows == "as_written":
        written = np.broadcast_to(evaluate(plan.score, env, as_written=True), shape).astype(real)
        score = np.where(dead[..., None], written, score)
    sink = np.full((*shape[:-1], 1), -np.inf, real)
    if plan.softmax != "plain":
        value = evaluate(plan.sink, {**env, "k": 0}) if plan.sink is not None else np.asarray(0.0)
        sink = np.broadcast_to(value, sink.shape).astype(real)
    top = np.max(np.concatenate([score, sink], -1), -1, keepdims=True)
    shift = np.where(zero[..., None] & (top == -np.inf), real(0), top)
    weights = np.exp(score - shift)
    total = weights.sum(-1, keepdims=True) + np.exp(sink - shift)
    lse = (shift + np.log(total))[..., 0]
    return np.where(zero[..., None], real(0), weights / total), lse


def _arrange(x: Array, axes: Sequence[str], wanted: Sequence[str]) -> Array:
    """Transposed to ``wanted``; axes that x lacks become length 1."""
    x = np.transpose(x, [axes.index(a) for a in wanted if a in axes])
    return np.expand_dims(x, [i for i, a in enumerate(wanted) if a not in axes])


def check(
    kernel: Kernel | Interpreted,
    *operands: torch.Tensor,
    side: Sequence[torch.Tensor] = (),
    sizes: Sequence[int] = (),
    threads: bool = False,
    eps: float = 2**-23,
) -> None:
    """Out and lse against the reference: at most twice eager's error and four units of the output dtype.

    A Triton kernel's are as close to those of the C++ kernel of the same plan.
    """
    got = kernel(*operands, side=side, sizes=sizes, threads=threads)
    exact = reference(kernel.plan, *operands, side=side, sizes=sizes)
    eager = reference(kernel.plan, *operands, side=side, sizes=sizes, single=True)
    other_kernel = kernel.twin if isinstance(kernel, Interpreted) else None
    twin = got if other_kernel is None else other_kernel(*operands, side=side, sizes=sizes)
    for ours, other, wanted, theirs, unit in zip(got, twin, exact, eager, (eps, 2**-23), strict=True):
        if ours is not got[1] or kernel.plan.returns_lse:
            both = np.isfinite(wanted) & np.isfinite(theirs)
            scale = np.abs(wanted[both]).max(initial=0.0) or 1.0
            allowed = 2 * np.abs(theirs[both] - wanted[both]).max(initial=0.0) / scale + 4 * unit
            compare(ours, wanted, allowed)
            compare(ours, other.double().numpy(), allowed)


def compare(got: torch.Tensor, expected: Array, tolerance: float) -> None:
    """max|got − expected| / max|expected| ≤ tolerance where finite; elsewhere equal (0 may stand for NaN)."""
    x, y = got.double().numpy(), np.asarray(expected, dtype=np.float64)
    assert x.shape == y.shape
    finite = np.isfinite(y)
    assert np.isfinite(x[finite]).all(), "not finite where the reference is"
    others_x, others_y = x[~finite], y[~finite]
    same = (others_x == others_y) | (np.isnan(others_y) & (np.isnan(others_x) | (others_x == 0)))
    assert same.all(), f"{others_x[~same][:4]} where the reference has {others_y[~same][:4]}"
    if finite.any():
        error, scale = np.abs(x[finite] - y[finite]).max(), np.abs(y[finite]).max()
        assert error <= tolerance * (scale or 1.0), f"error {error:.3g} against {scale:.3g}"


# -- plans


def bshd(*last: str) -> tuple[str, ...]:
    return ("b", "h", *last)


def tiles(lo: Expr, hi: Expr, masked: bool, **more: Any) -> Segment:
    more = {name: program(x) if isinstance(x, Expr) else x for name, x in more.items()}
    return Segment(program(lo), program(hi), masked, **more)


def up(x: Expr, n: int) -> Expr:
    return (x + (n - 1)) // n


def all_tiles(block_n: int, masked: bool) -> tuple[Segment, ...]:
    return (tiles(const(0), up(K_LEN, block_n), masked),)


def causal_tiles(bm: int, bn: int, more: bool = False) -> tuple[Segment, ...]:
    """Of k <= q + |k| − |q|: whole tiles, then the diagonal's; all masked where there are ``more`` conditions."""
    first = TQ * bm + K_LEN - Q_LEN
    full = maximum((first + 1) // bn, const(0))
    return tiles(const(0), full, more), tiles(full, up(minimum(first + bm, K_LEN), bn), True)


def window_tiles(bm: int, bn: int, window: int) -> tuple[Segment, ...]:
    """Of q − window < k <= q: left edge, whole tiles, diagonal."""
    first = TQ * bm
    lo = maximum(first - window + 1, const(0)) // bn
    hi = up(minimum(first + bm, K_LEN), bn)
    whole_lo = minimum(maximum(up(maximum(first + bm - window, const(0)), bn), lo), hi)
    whole_hi = minimum(maximum((first + 1) // bn, whole_lo), hi)
    return tiles(lo, whole_lo, True), tiles(whole_lo, whole_hi, False), tiles(whole_hi, hi, True)


CAUSAL = K <= Q + K_LEN - Q_LEN


def make_plan(
    visible: Expr | None = None,
    mask: Expr | None = None,
    segments: tuple[Segment, ...] | None = None,
    score: Expr | None = None,
    sides: Sequence[tuple[str, int]] = (),
    weight: Expr | None = None,
    sink: Expr | None = None,
    dtype: str = "f32",
    **more: Any,
) -> KernelPlan:
    """A plan over b, h, run-time dimensions, score qk / 8, tiles of 32 × 32, all masked, unless told otherwise."""
    visible = qk * 0.125 if visible is None else visible
    block_n = more.get("block_n", 32)
    plan = KernelPlan(
        target="cpu",
        dtypes=(dtype,) * 4,
        outer=("b", "h"),
        q_axes=bshd("q", "d"),
        k_axes=bshd("k", "d"),
        v_axes=bshd("k", "e"),
        out_axes=bshd("q", "e"),
        sides=tuple(Side(*s) for s in sides),
        sizes=(),
        score=program(visible if score is None else score),
        visible=program(visible),
        mask=None if mask is None else program(mask),
        segments=all_tiles(block_n, mask is not None) if segments is None else segments,
        block_m=32,
        block_n=block_n,
        dead_rows="none",
        weight=None if weight is None else program(weight),
        sink=None if sink is None else program(sink),
    )
    return replace(plan, **more)
