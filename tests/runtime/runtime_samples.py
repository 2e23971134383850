"""Hand-written plans, with a slow hand-written kernel behind the C ABI for the ones that have no side but padding."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from attnc.codegen.plan import Instr, KernelPlan, Program, Segment, Side
from attnc.codegen.source import Source, headers_digest

F32_MIN = torch.finfo(torch.float32).min


def const(value: float | bool, dtype: str) -> Instr:
    return Instr("const", dtype, (), value)


def axis(name: str) -> Instr:
    return Instr("axis", "i64", (), name)


def load(side: int, dtype: str, *args: int) -> Instr:
    return Instr("load", dtype, args, side)


QK = Instr("qk", "f32")
SCALED: Program = (QK, const(0.25, "f32"), Instr("mul", "f32", (0, 1)))
CAUSAL: Program = (axis("k"), axis("q"), Instr("le", "b1", (0, 1)))
PADDED: Program = (axis("b"), axis("k"), load(0, "b1", 0, 1))
WHOLE = Segment(
    lo=(const(0, "i64"),),
    hi=(Instr("size", "i64", (), "|k|"), const(15, "i64"), Instr("add", "i64", (0, 1)), const(16, "i64"),
        Instr("floordiv", "i64", (2, 3))),
    needs_mask=True,
)  # fmt: skip


def filled(mask: Program, fill: float) -> Program:
    """``where(mask, qk * 0.25, fill)``."""
    base = len(SCALED)
    moved = tuple(dataclasses.replace(i, args=tuple(a + base for a in i.args)) for i in mask)
    at = base + len(moved)
    return (*SCALED, *moved, const(fill, "f32"), Instr("where", "f32", (at - 1, base - 1, at)))


def plan(**changes: Any) -> KernelPlan:
    """Plain multi-head attention in f32, with the given fields changed."""
    base = KernelPlan(
        target="cpu",
        dtypes=("f32", "f32", "f32", "f32"),
        outer=("b", "h"),
        q_axes=("b", "h", "q", "d"),
        k_axes=("b", "h", "k", "d"),
        v_axes=("b", "h", "k", "e"),
        out_axes=("b", "q", "h", "e"),
        sides=(),
        sizes=(),
        score=SCALED,
        visible=SCALED,
        mask=None,
        segments=(dataclasses.replace(WHOLE, needs_mask="mask" in changes),),
        block_m=16,
        block_n=16,
        dead_rows="none",
        returns_lse=True,
    )
    return dataclasses.replace(base, **changes)


PLAIN = plan()
CAUSAL_PLAN = plan(mask=CAUSAL, score=filled(CAUSAL, float("-inf")))
PADDED_PLAN = plan(
    mask=PADDED, score=filled(PADDED, F32_MIN), sides=(Side("b1", 2),), dead_rows="as_written", returns_lse=False
)
PADDED_ZERO = dataclasses.replace(PADDED_PLAN, score=filled(PADDED, float("-inf")), dead_rows="zero", returns_lse=True)
ADDITIVE = plan(
    score=(*SCALED, axis("b"), axis("q"), axis("k"), load(0, "f32", 3, 4, 5), Instr("add", "f32", (2, 6))),
    visible=(*SCALED, axis("b"), axis("q"), axis("k"), load(0, "f32", 3, 4, 5), Instr("add", "f32", (2, 6))),
    sides=(Side("f32", 3),),
)
GROUPED = plan(outer=("b", "h", "g"), q_axes=("b", "h", "g", "q", "d"), out_axes=("b", "q", "h", "g", "e"))


def operands(
    p: KernelPlan, lengths: dict[str, int], *, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        torch.randn([lengths[a] for a in axes], generator=generator, dtype=torch.float64).to(dtype)
        for axes in (p.q_axes, p.k_axes, p.v_axes)
    )
    return q, k, v


LENGTHS = {"b": 2, "h": 3, "g": 2, "q": 7, "k": 9, "d": 4, "e": 5}

_KERNEL = r"""
#include "attnc/abi.h"
#include <cmath>
#include <vector>
// One work item is one (b, h, q) row; outputs in b q h e order.
static inline bool visible(const attnc_args* a, int64_t b, int64_t q, int64_t k) { return VISIBLE; }
static float at(const attnc_tensor& t, int64_t i, int64_t j, int64_t k, int64_t l) {
  return ((const float*)t.data)[i * t.strides[0] + j * t.strides[1] + k * t.strides[2] + l * t.strides[3]];
}
static void body(void* state, int64_t begin, int64_t end) {
  const attnc_args* a = (const attnc_args*)state;
  const int64_t H = a->q.sizes[1], Q = a->q.sizes[2], D = a->q.sizes[3], K = a->k.sizes[2], E = a->v.sizes[3];
  for (int64_t i = begin; i < end; i++) {
    const int64_t q = i % Q, h = i / Q % H, b = i / Q / H;
    std::vector<double> p(K);
    std::vector<bool> seen(K);
    double top = -INFINITY, total = 0;
    bool alive = false;
    for (int64_t k = 0; k < K; k++) alive |= (seen[k] = visible(a, b, q, k));
    const bool all = !alive && DEAD_AS_WRITTEN;
    for (int64_t k = 0; k < K; k++) {
      double s = 0;
      for (int64_t d = 0; d < D; d++) s += (double)at(a->q, b, h, q, d) * at(a->k, b, h, k, d);
      p[k] = all ? 0 : seen[k] ? s * 0.25 : -INFINITY;
      if (p[k] > top) top = p[k];
    }
    for (int64_t k = 0; k < K; k++) total += p[k] = top == -INFINITY ? 0 : std::exp(p[k] - top);
    float* out = (float*)a->out.data + b * a->out.strides[0] + q * a->out.strides[1] + h * a->out.strides[2];
    for (int64_t e = 0; e < E; e++) {
      double sum = 0;
      for (int64_t k = 0; k < K; k++) sum += p[k] * at(a->v, b, h, k, e);
      out[e] = total == 0 ? 0 : sum / total;
    }
    if (a->lse.data)
      ((float*)a->lse.data)[b * a->lse.strides[0] + q * a->lse.strides[1] + h * a->lse.strides[2]] =
          total == 0 ? -INFINITY : top + std::log(total);
  }
}
ATTNC_EXPORT int32_t attnc_shape(const attnc_args* a, int64_t* out, int64_t* lse) {
  if (a->q.sizes[3] != a->k.sizes[3] || a->k.sizes[2] != a->v.sizes[2]) return 1;
  const int64_t o[] = {a->q.sizes[0], a->q.sizes[2], a->q.sizes[1], a->v.sizes[3]};
  for (int i = 0; i < 4; i++) out[i] = o[i];
  for (int i = 0; i < 3; i++) lse[i] = o[i];
  return 0;
}
ATTNC_EXPORT int32_t attnc_run(const attnc_args* a) {
  const int64_t n = a->q.sizes[0] * a->q.sizes[1] * a->q.sizes[2];
  if (a->parallel) a->parallel(n, body, (void*)a); else body((void*)a, 0, n);
  return 0;
}
ATTNC_EXPORT const char* attnc_status(int32_t code) { return code == 1 ? "operands disagree about an axis" : "fine"; }
ATTNC_EXPORT uint64_t attnc_plan_digest(void) { return DIGEST; }
"""

_VISIBLE = {
    PLAIN.digest: "true",
    CAUSAL_PLAN.digest: "k <= q",
    PADDED_PLAN.digest: "((const bool*)a->side->data)[b * a->side->strides[0] + k * a->side->strides[1]]",
}
_VISIBLE[PADDED_ZERO.digest] = _VISIBLE[PADDED_PLAN.digest]


def source(p: KernelPlan, name: str = "sample", extra: str = "") -> Source:
    """The slow kernel of one of PLAIN, CAUSAL_PLAN, PADDED_PLAN, PADDED_ZERO; ``extra`` makes it another text."""
    holes = {
        "VISIBLE": _VISIBLE[p.digest],
        "DEAD_AS_WRITTEN": str(int(p.dead_rows == "as_written")),
        "DIGEST": f"{p.digest}ull",
    }
    head = "".join(f"#define {hole} {text}\n" for hole, text in holes.items())
    return Source(
        language="c++",
        name=name,
        text=head + _KERNEL + extra,
        plan=p.digest,
        flags=("-O1", "-std=c++17", "-shared", "-fPIC"),
        headers=headers_digest(),
    )
