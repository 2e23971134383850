from __future__ import annotations

import math
import threading
from typing import Any

import pytest
import runtime_samples as samples
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from attnc.codegen.plan import Instr, KernelPlan
from attnc.runtime import kernels, ops, reference
from attnc.runtime.routes import route

F64 = torch.float64
LENGTHS = samples.LENGTHS


def register(plan: KernelPlan) -> int:
    return kernels.register_plan(plan, samples.source(plan))


def mask() -> Tensor:
    result = torch.ones(2, 9, dtype=torch.bool)
    result[0, :3] = False
    result[1] = False
    return result


def operands(plan: KernelPlan, **lengths: int) -> tuple[Tensor, Tensor, Tensor]:
    return samples.operands(plan, {**LENGTHS, **lengths})


@pytest.mark.parametrize("name", ["PLAIN", "CAUSAL_PLAN", "PADDED_PLAN", "PADDED_ZERO"])
def test_eager_call(name: str) -> None:
    plan: KernelPlan = getattr(samples, name)
    side = [mask()] if plan.sides else []
    q, k, v = operands(plan)
    out, lse = ops.attention(q, k, v, side, register(plan), [])
    expected, expected_lse = reference.attention(plan, q, k, v, side, [], dtype=F64)
    assert route().name == "launcher"
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-6, rtol=1e-6)
    assert out.is_contiguous()


def test_any_strides_give_the_same_bits() -> None:
    key = register(samples.PADDED_ZERO)
    q, k, v = operands(samples.PADDED_ZERO)
    expected, expected_lse = ops.attention(q, k, v, [mask()], key, [])
    odd = [
        q.mT.contiguous().mT,
        k.transpose(1, 2).contiguous().transpose(1, 2),
        torch.stack([v, v], -1)[..., 0],
    ]
    out, lse = ops.attention(*odd, [mask().T.contiguous().T], key, [])
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)
    broadcast = k[:, :1].expand(-1, 3, -1, -1)
    assert torch.equal(
        ops.attention(q, broadcast, v, [mask()], key, [])[0],
        ops.attention(q, broadcast.contiguous(), v, [mask()], key, [])[0],
    )


@pytest.mark.parametrize("empty", ["b", "q", "k", "e"])
def test_empty_axes(empty: str) -> None:
    q, k, v = operands(samples.PADDED_ZERO, **{empty: 0})
    side = [torch.ones(q.shape[0], k.shape[2], dtype=torch.bool)]
    out, lse = ops.attention(q, k, v, side, register(samples.PADDED_ZERO), [])
    assert out.shape == (q.shape[0], q.shape[2], 3, v.shape[3])
    assert out.eq(0).all()
    assert lse.shape == out.shape[:3]


def test_a_plan_without_kernel_runs_on_the_reference() -> None:
    key = kernels.register_plan(samples.ADDITIVE, None)
    q, k, v = operands(samples.ADDITIVE)
    bias = torch.randn(2, 7, 9)
    out, lse = ops.attention(q, k, v, [bias], key, [])
    expected, expected_lse = reference.attention(samples.ADDITIVE, q, k, v, [bias], [])
    assert route().name == "launcher"
    assert torch.equal(out, expected)
    assert torch.equal(lse, expected_lse)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_torch_threads_are_used(threads: int) -> None:
    """The same bits on any number of threads, each row done once."""
    before = torch.get_num_threads()
    q, k, v = operands(samples.CAUSAL_PLAN, b=4, q=50, k=50)
    key = register(samples.CAUSAL_PLAN)
    expected, _ = ops.attention(q, k, v, [], key, [])
    try:
        torch.set_num_threads(threads)
        assert torch.equal(ops.attention(q, k, v, [], key, [])[0], expected)
    finally:
        torch.set_num_threads(before)


def test_calls_from_many_threads() -> None:
    key = register(samples.CAUSAL_PLAN)
    q, k, v = operands(samples.CAUSAL_PLAN)
    expected, _ = ops.attention(q, k, v, [], key, [])
    wrong: list[int] = []

    def work() -> None:
        for _ in range(50):
            if not torch.equal(ops.attention(q, k, v, [], key, [])[0], expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


Change = Any


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q.double(), k, v, [mask()], []), "q is a 4-dimensional tensor of f64.*4 dimensions of f32"),
        (lambda q, k, v: (q[0], k, v, [mask()], []), "q is a 3-dimensional tensor of f32.*4 dimensions of f32"),
        (lambda q, k, v: (q, k.cfloat(), v, [mask()], []), "k is .* a dtype kernels do not take"),
        (lambda q, k, v: (q, k, v, [mask().int()], []), "side tensor 0 is a 2-dimensional tensor of i32.*b1"),
        (lambda q, k, v: (q, k, v, [None], []), "side tensor 0 is missing"),
        (lambda q, k, v: (q, k, v, [], []), "expects 1 side tensors and 0 sizes, got 0 and 0"),
        (lambda q, k, v: (q, k, v, [mask()], [3]), "expects 1 side tensors and 0 sizes, got 1 and 1"),
        (
            lambda q, k, v: (q, k[..., :3], v, [mask()], []),
            r"disagree about an axis .*q \[2, 3, 7, 4\], k \[2, 3, 9, 3",
        ),
    ],
)
def test_operands_that_do_not_fit(change: Change, message: str) -> None:
    key = register(samples.PADDED_PLAN)
    q, k, v, side, sizes = change(*operands(samples.PADDED_PLAN))
    with pytest.raises(RuntimeError, match=message):
        ops.attention(q, k, v, side, key, sizes)


def test_unknown_plan() -> None:
    q, k, v = operands(samples.PLAIN)
    with pytest.raises(
        RuntimeError, match=r"PlanMissing: .*plan 12345 is neither registered .*compile the model again"
    ):
        ops.attention(q, k, v, [], 12345, [])


def test_operands_on_another_device() -> None:
    _q, k, v = operands(samples.PLAIN)
    key = register(samples.PLAIN)
    fake_cuda = torch.empty(2, 3, 7, 4, device="meta")
    assert ops.attention(fake_cuda, fake_cuda, fake_cuda, [], key, [])[0].is_meta
    with pytest.raises(RuntimeError, match="operands are on cpu, meta, the plan was compiled for cpu"):
        ops._attention_first(fake_cuda, k, v, [], key, [])


@pytest.mark.parametrize("op", [ops.attention, ops.attention_train, ops.attention_python])
def test_opcheck(op: torch._ops.OpOverload[..., Any]) -> None:
    checks = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    key = register(samples.PADDED_ZERO)
    torch.library.opcheck(op, (*operands(samples.PADDED_ZERO), [mask()], key, []), test_utils=checks)
    without_lse = register(samples.PADDED_PLAN)
    torch.library.opcheck(op, (*operands(samples.PADDED_PLAN), [mask()], without_lse, []), test_utils=checks)


def test_opcheck_of_training() -> None:
    key = register(samples.CAUSAL_PLAN)
    inputs = [t.requires_grad_() for t in operands(samples.CAUSAL_PLAN)]
    torch.library.opcheck(ops.attention_train, (*inputs, [], key, []))


def test_fake_shapes_stay_symbolic() -> None:
    key = register(samples.PADDED_ZERO)
    inputs = (*operands(samples.PADDED_ZERO, b=11, q=13), torch.ones(11, 9, dtype=torch.bool))
    traced = make_fx(lambda q, k, v, m: ops.attention(q, k, v, [m], key, []), tracing_mode="symbolic")(*inputs)
    graph: Any = traced.graph
    q, _k, v = [node.meta["val"] for node in graph.nodes if node.op == "placeholder"][:3]
    out, lse = (node.meta["val"] for node in graph.output_node().args[0])
    assert isinstance(out.shape[1], torch.SymInt)
    assert [str(n) for n in out.shape] == [str(n) for n in (q.shape[0], q.shape[2], q.shape[1], v.shape[3])]
    assert [str(n) for n in lse.shape] == [str(n) for n in out.shape[:3]]
    assert (out.dtype, lse.dtype) == (torch.float32, torch.float32)


def test_fake_without_lse() -> None:
    q, k, v = (t.to("meta") for t in operands(samples.PADDED_PLAN))
    _, lse = ops.attention(q, k, v, [mask().to("meta")], register(samples.PADDED_PLAN), [])
    assert lse.shape == (0,)


def eager(q: Tensor, k: Tensor, v: Tensor, side: Tensor) -> Tensor:
    """PADDED_ZERO by plain operators."""
    scores = (q @ k.mT * 0.25).masked_fill(~side[:, None, None], -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(~side.any(-1)[:, None, None, None], 0.0)
    out: Tensor = (weights @ v).transpose(1, 2)
    return out


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_inside_compile_without_recompilation(backend: str) -> None:
    key = register(samples.PADDED_ZERO)
    compiled = torch.compile(
        lambda q, k, v, m: ops.attention(q * 2, k, v, [m], key, [])[0] + 1,
        backend=backend,
        fullgraph=True,
        dynamic=True,
    )
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for b, n in ((2, 9), (3, 4), (5, 17)):
            q, k, v = operands(samples.PADDED_ZERO, b=b, q=n, k=n + 2)
            side = torch.ones(b, n + 2, dtype=torch.bool).tril(1)
            expected = eager(q.double() * 2, k.double(), v.double(), side) + 1
            torch.testing.assert_close(compiled(q, k, v, side).double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("compile_it", [False, True])
def test_gradients_against_eager_float64(compile_it: bool) -> None:
    key = register(samples.PADDED_ZERO)

    def step(q: Tensor, k: Tensor, v: Tensor, m: Tensor) -> Tensor:
        out: Tensor = ops.attention_train(q, k, v, [m], key, [])[0]
        return out.sin()

    torch._dynamo.reset()
    run: Any = torch.compile(step, backend="aot_eager", fullgraph=True, dynamic=True) if compile_it else step
    inputs = [t.requires_grad_() for t in operands(samples.PADDED_ZERO)]
    grad = torch.randn(2, 7, 3, 5)
    found = torch.autograd.grad(run(*inputs, mask()), inputs, grad)
    wide = [t.detach().double().requires_grad_() for t in inputs]
    side = mask()
    alive = side.any(-1)[:, None, None, None]
    scores = (wide[0] @ wide[1].mT * 0.25).masked_fill(~side[:, None, None], -math.inf).masked_fill(~alive, 0.0)
    expected = (torch.softmax(scores, -1) @ wide[2]).masked_fill(~alive, 0.0).transpose(1, 2).sin()
    for a, b in zip(found, torch.autograd.grad(expected, wide, grad.double()), strict=True):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)
        assert a.dtype is torch.float32


def test_gradients_of_a_bias_and_of_some_operands_only() -> None:
    key = kernels.register_plan(samples.ADDITIVE, None)
    q, k, v = operands(samples.ADDITIVE)
    bias = torch.randn(2, 7, 9, requires_grad=True)
    k.requires_grad_()
    out, lse = ops.attention_train(q, k, v, [bias], key, [])
    assert not lse.requires_grad
    grad = torch.randn_like(out)
    found = torch.autograd.grad(out, (k, bias), grad)
    wide_k, wide_bias = k.detach().double().requires_grad_(), bias.detach().double().requires_grad_()
    expected = torch.softmax(q.double() @ wide_k.mT * 0.25 + wide_bias[:, None], -1) @ v.double()
    for a, b in zip(
        found, torch.autograd.grad(expected.transpose(1, 2), (wide_k, wide_bias), grad.double()), strict=True
    ):
        torch.testing.assert_close(a.double(), b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("train", [False, True])
def test_symbolic_sizes(train: bool) -> None:
    """A window of half the query length, a size argument that stays symbolic through AOTAutograd."""
    window = (samples.axis("q"), samples.axis("k"), Instr("sub", "i64", (0, 1)), Instr("abs", "i64", (2,)),
              Instr("size", "i64", (), "w"), Instr("lt", "b1", (3, 4)))  # fmt: skip
    plan = samples.plan(mask=window, score=samples.filled(window, -math.inf), sizes=("w",), returns_lse=False)
    key = kernels.register_plan(plan, None)
    op = ops.attention_train if train else ops.attention
    torch._dynamo.reset()

    def windowed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        out: Tensor = op(q, k, v, [], key, [q.shape[2] // 2])[0]
        return out

    compiled = torch.compile(windowed, backend="aot_eager", fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for n in (6, 9):
            q, k, v = (t.requires_grad_(train) for t in operands(plan, q=n, k=n))
            near = (torch.arange(n)[:, None] - torch.arange(n)).abs() < n // 2
            expected = functional.scaled_dot_product_attention(q, k, v, near, scale=0.25).transpose(1, 2)
            out = compiled(q, k, v)
            torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
            if train:
                grads = [torch.autograd.grad(o.square().sum(), (q, k, v)) for o in (out, expected)]
                torch.testing.assert_close(grads[0], grads[1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("chunk", [1, 3, None])
def test_backward_chunks_add_up(chunk: int | None) -> None:
    from attnc.runtime.training import backward_in_chunks

    key = register(samples.CAUSAL_PLAN)
    inputs = operands(samples.CAUSAL_PLAN)
    grad = torch.randn(2, 7, 3, 5)
    found = backward_in_chunks(grad, inputs, key, [], [True, False, True], chunk)
    expected = backward_in_chunks(grad, inputs, key, [], [True, True, True], 7)
    assert len(found) == 2
    torch.testing.assert_close(found, [expected[0], expected[2]])


def test_second_derivatives_are_refused_clearly() -> None:
    inputs = [t.requires_grad_() for t in operands(samples.PLAIN)]
    out, _ = ops.attention_train(*inputs, [], register(samples.PLAIN), [])
    (grad,) = torch.autograd.grad(out.sum(), inputs[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(grad.sum(), inputs)
