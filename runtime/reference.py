"""Attention as a plan describes it, by plain torch operators.

Serves three purposes: the route where no kernel can be built, the forward that training differentiates, and (in
float64) what kernels are tested against. Query rows go in chunks, so memory is O(chunk · keys) beside the operands.

Per row, with s the score, M the visible keys, and all keys in M where the row has no visible key and the plan says
``as_written``:

    m = max_{k∈M} s_k    p_k = exp(s_k − m)    l = Σ_{k∈M} p_k (+ exp(sink − m))    out = Σ_{k∈M} (p_k / l) w_k v_k
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attnc.codegen.plan import KernelPlan
from attnc.runtime.abi import DTYPES
from attnc.runtime.program import Env, SizeArg, evaluate

CHUNK_BYTES = 8 << 20
"""Bytes of one score chunk when the caller gives no chunk."""


def axis_lengths(plan: KernelPlan, q: Tensor, k: Tensor, v: Tensor) -> dict[str, int]:
    """The length of every axis, read from the operands (q first). Symbolic lengths stay symbolic.

    Raises ValueError when an operand's rank is not the plan's, or two operands disagree about an axis (RuntimeError
    where that is found out symbolically).
    """
    lengths: dict[str, int] = {}
    for name, operand, axes in (("q", q, plan.q_axes), ("k", k, plan.k_axes), ("v", v, plan.v_axes)):
        if operand.dim() != len(axes):
            raise ValueError(
                f"attnc::attention: {name} has {operand.dim()} dimensions, the plan has {len(axes)} ({', '.join(axes)})"
            )
        for axis, length in zip(axes, operand.shape, strict=True):
            known = lengths.setdefault(axis, length)
            if isinstance(known, torch.SymInt) or isinstance(length, torch.SymInt):
                torch._check(known == length)
            elif known != length:
                raise ValueError(
                    f"attnc::attention: axis {axis} is {lengths[axis]} long in one operand and {length} in {name}; "
                    f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
                )
    return lengths


def attention(
    plan: KernelPlan,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sides: Sequence[Tensor | None],
    sizes: Sequence[SizeArg],
    *,
    dtype: torch.dtype | None = None,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """``(out, lse)`` of one attention.

    out: dimensions ``plan.out_axes``, contiguous, of the plan's dtype; lse: float32, the same without ``e``, or of
    size 0 where the plan doesn't return it (a row without visible keys has −inf, or its sink). Floats are computed in
    float32 (float64 for float64 operands). ``dtype=torch.float64`` computes in, and returns, float64. ``chunk``: query
    rows at a time; default by CHUNK_BYTES. Differentiable in q, k, v and float sides. Raises ValueError for operands
    that don't fit the plan.
    """
    problem = Problem.of(plan, q, k, v, sides, sizes, dtype)
    out = q.new_empty([problem.lengths[a] for a in plan.out_axes], dtype=dtype or DTYPES[plan.dtypes[3]])
    lse_axes = [a for a in plan.out_axes if a != "e"]
    lse = q.new_empty([problem.lengths[a] for a in lse_axes] if plan.returns_lse else [0], dtype=dtype or torch.float32)
    for begin, end in problem.chunks(chunk):
        piece, piece_lse = problem.rows(begin, end)
        out.narrow(plan.out_axes.index("q"), begin, end - begin).copy_(piece)
        if plan.returns_lse:
            lse.narrow(lse_axes.index("q"), begin, end - begin).copy_(piece_lse)
    return out, lse


@dataclasses.dataclass(frozen=True)
class Problem:
    """One attention with checked operands, ready to be computed in row chunks."""

    plan: KernelPlan
    q: Tensor
    k: Tensor
    v: Tensor
    sides: tuple[Tensor, ...]
    lengths: Mapping[str, int]
    sizes: Mapping[str, SizeArg]
    compute: torch.dtype

    @staticmethod
    def of(
        plan: KernelPlan,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sides: Sequence[Tensor | None],
        sizes: Sequence[SizeArg],
        dtype: torch.dtype | None,
    ) -> Problem:
        """Raises ValueError for operands that don't fit the plan."""
        lengths = axis_lengths(plan, q, k, v)
        given = tuple(side for side in sides if side is not None)
        if len(given) != len(plan.sides) or len(sizes) != len(plan.sizes):
            raise ValueError(
                f"attnc::attention: expects {len(plan.sides)} side tensors and {len(plan.sizes)} sizes, "
                f"got {len(given)} and {len(sizes)}"
            )
        for name, tensor, expected in (
            *zip("qkv", (q, k, v), plan.dtypes, strict=False),
            *((f"side tensor {i}", t, s.dtype) for i, (t, s) in enumerate(zip(given, plan.sides, strict=True))),
        ):
            if dtype is None and tensor.dtype is not DTYPES[expected]:
                raise ValueError(f"attnc::attention: {name} is {tensor.dtype}, the plan was compiled for {expected}")
        compute = dtype or (torch.float64 if "f64" in plan.dtypes else torch.float32)
        named = dict(zip(plan.sizes, sizes, strict=True))
        named |= {f"|{axis}|": length for axis, length in lengths.items()}
        return Problem(plan, q, k, v, given, lengths, named, compute)

    @property
    def grid(self) -> tuple[str, ...]:
        """Dimensions of a score chunk: the outer axes, then q and k."""
        operands = (*self.plan.q_axes, *self.plan.k_axes, *self.plan.v_axes)
        outer = dict.fromkeys((*self.plan.outer, *(a for a in operands if a not in ("q", "k", "d", "e"))))
        return (*outer, "q", "k")

    @functools.cached_property
    def _keys(self) -> Tensor:
        """k in the compute dtype, converted once for all chunks."""
        return self.k.to(self.compute)

    @functools.cached_property
    def _values(self) -> Tensor:
        return self.v.to(self.compute)

    def chunks(self, chunk: int | None) -> list[tuple[int, int]]:
        """Row ranges, in order; none for zero rows."""
        rows = self.lengths["q"]
        if chunk is None:
            per_row = self.compute.itemsize
            for axis in self.grid:
                per_row *= max(1, self.lengths[axis]) if axis != "q" else 1
            chunk = max(1, CHUNK_BYTES // per_row)
        return [(begin, min(begin + chunk, rows)) for begin in range(0, rows, chunk)]

    def rows(self, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """``(out, lse)`` of query rows ``begin`` to ``end``, of the compute dtype, in ``plan.out_axes`` order."""
        plan, grid = self.plan, self.grid
        q = self.q.narrow(plan.q_axes.index("q"), begin, end - begin).to(self.compute)
        env = Env(
            grid=grid,
            ranges={axis: (0, self.lengths[axis]) for axis in grid} | {"q": (begin, end)},
            sizes=self.sizes,
            sides=self.sides,
            compute=self.compute,
            device=q.device,
            qk=_contract(q, plan.q_axes, self._keys, plan.k_axes, grid),
        )
        score, counted = self._scores(env)
        weights, lse = self._softmax(env, score, counted)
        if plan.weight is not None:
            weights = weights * evaluate(plan.weight, env)
        out = _einsum(weights.expand(env.shape), grid, self._values, plan.v_axes, plan.out_axes)
        return out, self._lse_layout(lse)

    def _scores(self, env: Env) -> tuple[Tensor, Tensor | None]:
        """The score, and which keys count (None: all of them)."""
        plan = self.plan
        visible = evaluate(plan.visible, env).expand(env.shape)
        if plan.mask is None:
            return visible, None
        mask = evaluate(plan.mask, env).expand(env.shape)
        if plan.dead_rows != "as_written":
            return visible, mask
        # A loaded bias may hide, by −inf, every key that the mask leaves: such a row is dead too.
        alive = (mask & (visible != -torch.inf)).any(-1, keepdim=True)
        if bool(alive.all()):
            return visible, mask
        written = evaluate(plan.score, dataclasses.replace(env, as_written=True)).to(self.compute)
        return torch.where(alive, visible, written), mask | ~alive

    def _softmax(self, env: Env, score: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights over the last dimension, 0 where not counted or nothing counts; and the log of their denominator."""
        if counted is not None:
            score = score.masked_fill(~counted, -torch.inf)
        top = _row_max(score.detach())
        sink = self._sink(env)
        if sink is not None:
            top = torch.maximum(top, sink.detach())
        top = torch.where(top == -torch.inf, 0.0, top)
        weights = torch.exp(score - top)
        total = weights.sum(-1, keepdim=True)
        if sink is not None:
            total = total + torch.exp(sink - top)
        empty = total == 0
        lse = torch.where(empty, -torch.inf, top + torch.log(torch.where(empty, 1.0, total)))
        return weights / torch.where(empty, 1.0, total), lse.squeeze(-1)

    def _sink(self, env: Env) -> Tensor | None:
        """The extra logit of the denominator, with a last dimension of 1."""
        if self.plan.softmax == "plus_one":
            return torch.zeros((), dtype=self.compute, device=self.q.device)
        return evaluate(self.plan.sink, env) if self.plan.sink is not None else None

    def _lse_layout(self, lse: Tensor) -> Tensor:
        axes = tuple(axis for axis in self.plan.out_axes if axis != "e")
        rows = self.grid[:-1]
        return lse.permute([rows.index(axis) for axis in axes])


def _row_max(score: Tensor) -> Tensor:
    if score.shape[-1] == 0:
        return score.new_full((*score.shape[:-1], 1), -torch.inf)
    return score.amax(-1, keepdim=True)


def _contract(q: Tensor, q_axes: Sequence[str], k: Tensor, k_axes: Sequence[str], grid: Sequence[str]) -> Tensor:
    """Σ_d q·k over the grid; dimensions of axes that neither has are 1 long."""
    present = [axis for axis in grid if axis in q_axes or axis in k_axes]
    product = _einsum(q, q_axes, k, k_axes, present)
    shape = dict(zip(present, product.shape, strict=True))
    return product.reshape([shape.get(axis, 1) for axis in grid])


def _einsum(a: Tensor, a_axes: Sequence[str], b: Tensor, b_axes: Sequence[str], out_axes: Sequence[str]) -> Tensor:
    """``torch.einsum`` by axis names."""
    letter = {axis: chr(ord("a") + i) for i, axis in enumerate(dict.fromkeys((*a_axes, *b_axes, *out_axes)))}
    terms = ["".join(letter[axis] for axis in axes) for axes in (a_axes, b_axes, out_axes)]
    return torch.einsum(f"{terms[0]},{terms[1]}->{terms[2]}", a, b)
