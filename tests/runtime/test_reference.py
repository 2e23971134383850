from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import runtime_samples as samples
import torch
from torch import Tensor
from torch.nn import functional

from attnc.codegen.plan import Instr, KernelPlan, Side
from attnc.runtime.reference import Problem, attention

F64 = torch.float64


def dense(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0, scale: float = 0.25) -> tuple[Tensor, Tensor]:
    """``(out, lse)`` in b h q e order; operands b h · ·, float64."""
    scores = q.double() @ k.double().mT * scale + bias
    return torch.softmax(scores, -1) @ v.double(), torch.logsumexp(scores, -1)


def operands(plan: KernelPlan, **lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    return samples.operands(plan, {**samples.LENGTHS, **lengths})


@pytest.mark.parametrize("chunk", [None, 1, 3, 100])
def test_plain(chunk: int | None) -> None:
    q, k, v = operands(samples.PLAIN)
    out, lse = attention(samples.PLAIN, q, k, v, [], [], dtype=F64, chunk=chunk)
    expected, expected_lse = dense(q, k, v)
    torch.testing.assert_close(out, expected.transpose(1, 2))
    torch.testing.assert_close(lse, expected_lse.transpose(1, 2))
    assert out.is_contiguous()


@pytest.mark.parametrize("chunk", [None, 2])
def test_causal(chunk: int | None) -> None:
    q, k, v = operands(samples.CAUSAL_PLAN)
    out, _ = attention(samples.CAUSAL_PLAN, q, k, v, [], [], dtype=F64, chunk=chunk)
    bias = torch.zeros(7, 9, dtype=F64).masked_fill(~torch.ones(7, 9, dtype=torch.bool).tril(), -math.inf)
    torch.testing.assert_close(out, dense(q, k, v, bias)[0].transpose(1, 2))


def padding() -> Tensor:
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[0, 4:] = True  # the other batch row has no visible key
    return mask


def test_padding_with_a_finite_fill_attends_everywhere_in_dead_rows() -> None:
    q, k, v = operands(samples.PADDED_PLAN)
    out, lse = attention(samples.PADDED_PLAN, q, k, v, [padding()], [], dtype=F64)
    scores = torch.where(padding()[:, None, None], q.double() @ k.double().mT * 0.25, samples.F32_MIN)
    torch.testing.assert_close(out, (torch.softmax(scores, -1) @ v.double()).transpose(1, 2))
    assert lse.shape == (0,)


def test_a_row_whose_visible_keys_all_score_minus_infinity_is_dead() -> None:
    """A loaded bias can hide what the mask leaves: the row is computed as written, as the kernel does."""
    hidden = dataclasses.replace(samples.PADDED_PLAN, visible=(samples.const(-math.inf, "f32"),))
    q, k, v = operands(hidden)
    out, _ = attention(hidden, q, k, v, [padding()], [], dtype=F64)
    expected, _ = attention(samples.PADDED_PLAN, q, k, v, [padding()], [], dtype=F64)
    torch.testing.assert_close(out, expected)


def test_padding_guarded_to_zero() -> None:
    q, k, v = operands(samples.PADDED_ZERO)
    out, lse = attention(samples.PADDED_ZERO, q, k, v, [padding()], [])
    assert out[1].eq(0).all()
    assert lse[1].eq(-math.inf).all()
    bias = torch.zeros(2, 1, 1, 9, dtype=F64).masked_fill(~padding()[:, None, None], -math.inf)
    torch.testing.assert_close(out[0].double(), dense(q, k, v, bias)[0].transpose(1, 2)[0], atol=1e-6, rtol=1e-6)


def test_the_denominator_of_a_dead_row_is_its_sink() -> None:
    plan = dataclasses.replace(samples.PADDED_ZERO, softmax="sink", sink=(samples.const(0.75, "f32"),))
    q, k, v = operands(plan)
    out, lse = attention(plan, q, k, v, [padding()], [])
    assert out[1].eq(0).all()
    assert lse[1].eq(0.75).all()
    assert lse[0].gt(0.75).all()


def test_dead_row_whose_fills_all_overflow_is_zero() -> None:
    once = samples.PADDED_PLAN.score
    last = len(once) - 1
    twice = (*once, samples.const(samples.F32_MIN, "f32"), Instr("add", "f32", (last, last + 1)))
    q, k, v = operands(samples.PADDED_PLAN)
    out, _ = attention(dataclasses.replace(samples.PADDED_PLAN, score=twice), q, k, v, [padding()], [], dtype=F64)
    assert out[1].eq(0).all()
    assert out[0].ne(0).all()


def test_additive_bias() -> None:
    q, k, v = operands(samples.ADDITIVE)
    bias = torch.randn(2, 7, 9)
    out, _ = attention(samples.ADDITIVE, q, k, v, [bias], [], dtype=F64, chunk=2)
    torch.testing.assert_close(out, dense(q, k, v, bias[:, None].double())[0].transpose(1, 2))


def test_grouped_heads() -> None:
    q, k, v = operands(samples.GROUPED)
    out, lse = attention(samples.GROUPED, q, k, v, [], [], dtype=F64)
    expected, expected_lse = dense(q.flatten(1, 2), k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))
    torch.testing.assert_close(out.flatten(2, 3), expected.transpose(1, 2))
    torch.testing.assert_close(lse.flatten(2, 3), expected_lse.transpose(1, 2))


def test_sink_and_plus_one() -> None:
    sinks = torch.tensor([0.5, -1.0, 2.0])
    plan = samples.plan(
        softmax="sink", sink=(samples.axis("h"), samples.load(0, "f32", 0)), sides=(Side("f32", 1),), mask=None
    )
    q, k, v = operands(plan)
    scores = q.double() @ k.double().mT * 0.25
    for tested, sides, logit in ((plan, [sinks], sinks), (samples.plan(softmax="plus_one"), [], torch.zeros(3))):
        out, lse = attention(tested, q, k, v, sides, [], dtype=F64)
        wide = torch.cat([scores, logit.double().view(1, 3, 1, 1).expand(2, 3, 7, 1)], -1)
        torch.testing.assert_close(out, (wide.softmax(-1)[..., :-1] @ v.double()).transpose(1, 2))
        torch.testing.assert_close(lse, wide.logsumexp(-1).transpose(1, 2))


def test_weight_is_outside_the_denominator() -> None:
    plan = samples.plan(weight=(samples.axis("h"), samples.load(0, "f32", 0)), sides=(Side("f32", 1),))
    q, k, v = operands(plan)
    factors = torch.tensor([0.0, 1.0, 2.0])
    out, _ = attention(plan, q, k, v, [factors], [], dtype=F64)
    torch.testing.assert_close(out, (dense(q, k, v)[0] * factors.view(3, 1, 1)).transpose(1, 2))


def test_named_sizes() -> None:
    """A window of ``w`` keys, w given at run time."""
    window = (samples.axis("q"), samples.axis("k"), Instr("sub", "i64", (0, 1)), Instr("abs", "i64", (2,)),
              Instr("size", "i64", (), "w"), Instr("lt", "b1", (3, 4)))  # fmt: skip
    plan = samples.plan(mask=window, score=samples.filled(window, -math.inf), sizes=("w",))
    q, k, v = operands(plan)
    out, _ = attention(plan, q, k, v, [], [2], dtype=F64)
    near = (torch.arange(7)[:, None] - torch.arange(9)).abs() < 2
    bias = torch.zeros(7, 9, dtype=F64).masked_fill(~near, -math.inf)
    torch.testing.assert_close(out, dense(q, k, v, bias)[0].transpose(1, 2))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_accumulates_in_float32(dtype: torch.dtype) -> None:
    name = {torch.bfloat16: "bf16", torch.float16: "f16"}[dtype]
    plan = samples.plan(dtypes=(name,) * 4)
    q, k, v = (t.to(dtype) for t in operands(plan))
    out, lse = attention(plan, q, k, v, [], [])
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(out, dense(q, k, v)[0].transpose(1, 2).to(dtype), atol=1e-6, rtol=0.01)
    torch.testing.assert_close(lse, dense(q, k, v)[1].transpose(1, 2).float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("empty", ["b", "q", "k", "e"])
def test_empty_axes(empty: str) -> None:
    plan = samples.PADDED_ZERO
    q, k, v = operands(plan, **{empty: 0})
    mask = torch.ones(q.shape[0], k.shape[2], dtype=torch.bool)
    out, lse = attention(plan, q, k, v, [mask], [])
    assert out.shape == (q.shape[0], q.shape[2], 3, v.shape[3])
    assert out.eq(0).all()
    if empty == "k":
        assert lse.eq(-math.inf).all()


def test_strides_do_not_matter() -> None:
    q, k, v = operands(samples.PLAIN)
    expected, _ = attention(samples.PLAIN, q, k, v, [], [])
    q, k, v = (t.mT.contiguous().mT for t in (q, k, v))
    assert not any(t.is_contiguous() for t in (q, k, v))
    torch.testing.assert_close(attention(samples.PLAIN, q, k, v, [], [])[0], expected)


def test_gradients_equal_eager() -> None:
    mask = padding()
    q, k, v = (t.double().requires_grad_() for t in operands(samples.PADDED_ZERO))
    out, _ = attention(samples.PADDED_ZERO, q, k, v, [mask], [], dtype=F64, chunk=3)
    grad = torch.randn(out.shape, dtype=F64)
    found = torch.autograd.grad(out, (q, k, v), grad)
    bias = torch.zeros(2, 1, 1, 9, dtype=F64).masked_fill(~mask[:, None, None], -math.inf)
    bias[1] = 0
    alive = torch.tensor([1.0, 0.0], dtype=F64).view(2, 1, 1, 1)
    expected = (functional.scaled_dot_product_attention(q, k, v, bias, scale=0.25) * alive).transpose(1, 2)
    for a, b in zip(found, torch.autograd.grad(expected, (q, k, v), grad), strict=True):
        torch.testing.assert_close(a, b)


def test_default_chunks_bound_the_scores() -> None:
    q, k, v = (torch.empty(size, device="meta") for size in ((1, 4, 5000, 8), (1, 4, 5000, 8), (1, 4, 5000, 8)))
    chunks = Problem.of(samples.PLAIN, q, k, v, [], [], None).chunks(None)
    assert chunks[0][0] == 0 and chunks[-1][1] == 5000
    assert all(a[1] == b[0] for a, b in itertools.pairwise(chunks))
    assert max(end - begin for begin, end in chunks) * 4 * 5000 * 4 <= 8 << 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q[0], k, v, [], []), "q has 3 dimensions, the plan has 4"),
        (lambda q, k, v: (q, k[..., :3], v, [], []), "axis d is 4 long in one operand and 3 in k"),
        (lambda q, k, v: (q, k, v[:, :, 1:], [], []), "axis k is 9 long in one operand and 8 in v"),
        (lambda q, k, v: (q, k, v, [q], []), "expects 0 side tensors and 0 sizes, got 1 and 0"),
        (lambda q, k, v: (q, k, v, [], [1]), "expects 0 side tensors and 0 sizes, got 0 and 1"),
        (lambda q, k, v: (q, k.double(), v, [], []), r"k is torch.float64, the plan was compiled for f32"),
    ],
)
def test_operands_that_do_not_fit(change: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        attention(samples.PLAIN, *change(*operands(samples.PLAIN)))  # type: ignore[operator]
