"""Gradients of ``attnc::attention_train``: the backward pass recomputes the attention and differentiates that.

Nothing but the operands is saved. The recomputation is the ATen reference under autograd, one chunk of query rows at
a time, so memory is that of a few chunks of scores beside the gradients themselves. ``lse`` has no gradient, and the
gradient itself can't be differentiated.

    attnc::attention_train_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor?[] side, int plan,
                                    SymInt[] sizes, bool[] needs) -> Tensor[]

``needs`` says for q, k, v and each side whether its gradient is wanted; the results are those, in that order,
contiguous, each of its operand's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnc.runtime import kernels, reference
from attnc.runtime.dispatch import OpLibrary


def backward_in_chunks(
    grad: Tensor,
    operands: tuple[Tensor, ...],
    plan: int,
    sizes: Sequence[int],
    needs: Sequence[bool],
    chunk: int | None = None,
) -> list[Tensor]:
    """Gradients of the operands (q, k, v, sides) that are needed; sums over chunks are of the compute dtype."""
    decided = kernels.resolve(plan)
    compute = torch.float64 if "f64" in decided.dtypes else torch.float32
    leaves = [
        tensor.detach().to(compute).requires_grad_() if need else tensor.detach()
        for tensor, need in zip(operands, needs, strict=True)
    ]
    # The leaves are of the compute dtype, which changes no value: the reference computes in it anyway.
    q, k, v, *sides = leaves
    problem = reference.Problem.of(decided, q, k, v, sides, sizes, compute)
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    totals = [torch.zeros_like(leaf, memory_format=torch.contiguous_format) for leaf in wanted]
    q_dim = decided.out_axes.index("q")
    for begin, end in problem.chunks(chunk):
        with torch.enable_grad():
            out, _ = problem.rows(begin, end)
        piece = grad.narrow(q_dim, begin, end - begin).to(compute)
        for total, part in zip(totals, torch.autograd.grad(out, wanted, piece, allow_unused=True), strict=True):
            if part is not None:
                total += part
    needed = [tensor for tensor, need in zip(operands, needs, strict=True) if need]
    return [total.to(tensor.dtype) for total, tensor in zip(totals, needed, strict=True)]


def _backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    side: Sequence[Tensor | None],
    plan: int,
    sizes: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    return backward_in_chunks(grad, (q, k, v, *(s for s in side if s is not None)), plan, sizes, needs)


def _fake_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    side: Sequence[Tensor | None],
    plan: int,
    sizes: Sequence[int],
    needs: Sequence[bool],
) -> list[Tensor]:
    operands = (q, k, v, *(s for s in side if s is not None))
    return [t.new_empty(t.shape) for t, need in zip(operands, needs, strict=True) if need]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, side, ctx.plan, ctx.sizes = inputs
    if any(s is None for s in side):
        raise ValueError(f"attnc::attention_train, plan {ctx.plan}: a side tensor is missing")
    ctx.save_for_backward(q, k, v, *side)
    ctx.mark_non_differentiable(output[1])


def _gradients(ctx: Any, grad: Tensor, grad_lse: Tensor | None) -> tuple[Any, ...]:
    operands = ctx.saved_tensors
    side_needs = ctx.needs_input_grad[3]
    needs = [*ctx.needs_input_grad[:3], *(side_needs if isinstance(side_needs, list | tuple) else [])]
    needs = [need and tensor.is_floating_point() for need, tensor in zip(needs, operands, strict=True)]
    q, k, v, *side = operands
    found = iter(
        torch.ops.attnc.attention_train_backward.default(grad, q, k, v, side, ctx.plan, list(ctx.sizes), needs)
    )
    if torch.is_grad_enabled():  # create_graph=True
        found = iter(_OnceOnly.apply(sum(needs), *found, grad, *operands))  # type: ignore[no-untyped-call]
    grads = [next(found) if need else None for need in needs]
    # An empty list is a node without leaves to autograd's bookkeeping, a list of ints is one leaf.
    return (*grads[:3], grads[3:], None, None if len(ctx.sizes) else [])


class _OnceOnly(torch.autograd.Function):
    """Passes its first ``count`` tensors through; differentiating them, or what made them, is an error."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor.view_as(tensor) for tensor in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise RuntimeError(
            "differentiating the gradient of attnc::attention_train: attention fused by attnc has first derivatives "
            "only. Run this model with ATTNC_DISABLE=1 (or without the attnc backend) for second derivatives."
        )


def register(library: OpLibrary) -> None:
    """Give ``attnc::attention_train``, already defined, its gradient."""
    library.define(
        "attention_train_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor?[] side, int plan, "
        "SymInt[] sizes, bool[] needs) -> Tensor[]"
    )
    # No autograd formula: torch's wrapper around one would switch autograd off inside, where _backward needs it.
    library.kernel("attention_train_backward", _backward)
    library.fake("attention_train_backward", _fake_backward)
    library.autograd("attention_train", _gradients, _save)
