"""The custom ops. Importing this module registers them; nothing is built before the first call.

    attnc::attention(Tensor q, Tensor k, Tensor v, Tensor?[] side, int plan, SymInt[] sizes) -> (Tensor out, Tensor lse)

``plan`` is a digest (:mod:`attnc.runtime.kernels`), ``sizes`` the plan's named sizes. out: dimensions
``plan.out_axes``, contiguous; lse: float32, the same without ``e``, or of size 0 where the plan doesn't return it.
Operands may have any strides. Nothing is mutated, no result aliases an operand.

``attention`` has no autograd formula, so inference never pays for one; ``attention_train`` is the same op with one
(:mod:`attnc.runtime.training`). ``attention_python`` is the same op for plans without a C++ kernel: their kernel is in
Triton, or there is none and plain torch operators compute it. Where the kernel is for a GPU, AOTAutograd sees its
launch in place of the op (:mod:`attnc.runtime.inlined`).

``attention`` starts with a kernel for any device that chooses a route on its first call; from then on the CPU key,
which comes before it, has the launcher's kernel or a Python one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from attnc.runtime import inlined, kernels, paged, reference, rope, routes, skinny, training
from attnc.runtime.abi import DTYPES
from attnc.runtime.dispatch import OpLibrary
from attnc.runtime.program import SizeArg
from attnc.runtime.triton_kernels import attention_of

ARGUMENTS = "(Tensor q, Tensor k, Tensor v, Tensor?[] side, int plan, SymInt[] sizes)"
RESULTS = "(Tensor out, Tensor lse)"

_library = OpLibrary("FRAGMENT")


def _attention_first(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    devices = {tensor.device.type for tensor in (q, k, v, *side) if tensor is not None}
    on_gpu = kernels.runs_on_gpu(plan)
    if devices != {"cuda" if on_gpu else "cpu"}:
        target = kernels.resolve(plan).target
        raise RuntimeError(
            f"attnc::attention, plan {plan}: operands are on {', '.join(sorted(devices))}, the plan was compiled for "
            f"{target}. Move them, or compile the model again with inputs on that device."
        )
    if on_gpu:
        return _attention_python(q, k, v, side, plan, sizes)
    routes.route()
    out, lse = torch.ops.attnc.attention.default(q, k, v, side, plan, sizes)
    return out, lse


def _attention_python(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    source = kernels.triton_source(plan)
    with torch.no_grad():
        if source is not None:
            given = [tensor for tensor in side if tensor is not None]
            return attention_of(source, kernels.resolve(plan).target)(q, k, v, given, sizes)
        return reference.attention(kernels.resolve(plan), q, k, v, side, sizes)


def _attention_train(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[int]
) -> tuple[Tensor, Tensor]:
    out, lse = torch.ops.attnc.attention.default(q, k, v, side, plan, sizes)
    return out, lse


def _fake_attention(
    q: Tensor, k: Tensor, v: Tensor, side: Sequence[Tensor | None], plan: int, sizes: Sequence[SizeArg]
) -> tuple[Tensor, Tensor]:
    decided = kernels.resolve(plan)
    lengths = reference.axis_lengths(decided, q, k, v)
    out_shape = [lengths[axis] for axis in decided.out_axes]
    lse_shape = [lengths[axis] for axis in decided.out_axes if axis != "e"] if decided.returns_lse else [0]
    out = q.new_empty(out_shape, dtype=DTYPES[decided.dtypes[3]])
    return out, q.new_empty(lse_shape, dtype=torch.float32)


for _name, _implementation in (
    ("attention", _attention_first),
    ("attention_train", _attention_train),
    ("attention_python", _attention_python),
):
    _library.define(f"{_name}{ARGUMENTS} -> {RESULTS}")
    _library.kernel(_name, _implementation)
    _library.fake(_name, _fake_attention)

attention = torch.ops.attnc.attention.default
attention_train = torch.ops.attnc.attention_train.default
attention_python = torch.ops.attnc.attention_python.default
kv_write, paged_attention = paged.kv_write, paged.paged_attention
skinny_linear = skinny.skinny_linear

training.register(_library)
inlined.register(_library)
rope.register(_library)
