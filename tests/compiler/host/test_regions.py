"""Autocast, grad-mode and checkpoint regions, dropout and random numbers: same results, same gradients."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch.utils import checkpoint as ckpt

from attnc.compiler.frontends.torch import private
from attnc.compiler.host.identity import identity_backend
from attnc.compiler.host.pipeline import prepare


def targets(gm):
    return [node.target for node in gm.graph.nodes if node.op == "call_function"]


def simple(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
    return y.float() * 2


def nested(x):
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            z = x @ x
        with torch.autocast("cpu", enabled=False):
            w = x @ x
        y = F.linear(x, z.float())
        s = torch.softmax(y, -1) @ x
        c = torch.cat([s, x])
        f = F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None])
        e = torch.einsum("ij,kj->ik", x, w)
    return c.float().sum() + f.float() + e.float() + F.layer_norm(x, (4,))


def small_integers():
    """Products and sums of these are exact in bfloat16, so that the order of rounding can't matter."""
    return torch.randint(-3, 4, (4, 4)).float().requires_grad_()


def test_autocast(same_gradients):
    outcome = same_gradients(simple, small_integers(), rtol=0, atol=0)
    assert outcome.codes == [] and outcome.ours.dtype == torch.float32


def test_autocast_becomes_casts(same_gradients):
    outcome = same_gradients(nested, torch.randn(4, 4, requires_grad=True), rtol=2e-2, atol=2e-2)
    found = targets(outcome.captures[0].graph_module)
    assert private.enter_autocast not in found and private.exit_autocast not in found
    assert torch.ops.aten._to_copy.default in found
    torch.testing.assert_close(outcome.ours, outcome.eager, rtol=0, atol=0)


def test_a_cast_made_without_gradients_is_not_used_with_them(same_gradients):
    def function(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                z = x @ w
            return (x @ w + z).float()

    same_gradients(function, torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True), rtol=1e-2)


def test_what_converts_inside_keeps_a_region():
    def function(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = torch.cond(x.sum() > 0, lambda t: t @ t, lambda t: t @ t.t(), (x,))
            z = x @ x
        return y.float() + z.float()

    x, seen = small_integers(), []
    out = torch.compile(function, backend=identity_backend("aten", seen))(x)
    out.sum().backward()
    # Written out: cond under autocast has wrong gradients in eager.
    plain = x.detach().clone().requires_grad_()
    want = (plain @ plain if plain.sum() > 0 else plain @ plain.t()) + plain @ plain
    want.sum().backward()
    assert torch.equal(out, want) and torch.equal(x.grad, plain.grad)
    nodes = [n for n in seen[0].graph_module.graph.nodes if n.op == "call_function"]
    entry = next(i for i, n in enumerate(nodes) if n.target is private.enter_autocast)
    assert seen[0].notes == [] and nodes[entry + 1].target is torch.ops.higher_order.cond
    assert nodes[entry + 2].target is private.exit_autocast
    assert [n.target for n in nodes].count(private.enter_autocast) == 1


def test_disabled_autocast_within_ambient_autocast(same):
    def function(x):
        with torch.autocast("cpu", enabled=False):
            y = x @ x
        return y, x @ x, torch.softmax(x @ x, -1)

    with torch.autocast("cpu", torch.bfloat16):
        outcome = same(lambda: (function, (torch.randn(4, 4),)))
    assert [t.dtype for t in outcome.ours[:2]] == [torch.float32, torch.bfloat16]
    assert torch.ops.aten._to_copy.default in targets(outcome.captures[0].graph_module)


def test_ambient_autocast_trains(same_gradients):
    with torch.autocast("cpu", torch.bfloat16):
        same_gradients(lambda x: (x @ x).exp(), torch.randn(4, 4, requires_grad=True), rtol=1e-2)


def test_autocast_state_survives_a_failed_capture(same):
    def function(x):
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            y = F.dropout(x @ x, 0.5, training=True)
            y[y > 0] = 0
        return y

    outcome = same(lambda: (function, (torch.randn(4, 4),)))
    assert set(outcome.codes) == {"ATTNC-HOST-FROZEN-STORAGE"}
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled()


def test_no_grad_regions(same_gradients):
    def function(x):
        with torch.no_grad():
            y = x.exp()
        z = x * y
        with torch.no_grad():
            y = z * 3
            with torch.enable_grad():
                w = y * x.sin()
        return w + z + y

    assert same_gradients(function, torch.randn(4, requires_grad=True)).codes == []


def body(t):
    return torch.softmax((t @ t).sin().cos().exp().sin(), -1).sin().cos()


def test_checkpoint_keeps_its_tags(same_gradients):
    outcome = same_gradients(
        lambda x: ckpt.checkpoint(body, x, use_reentrant=False) * 2, torch.randn(4, 4, requires_grad=True)
    )
    tagged = [n for n in outcome.captures[0].graph_module.graph.nodes if "recompute" in n.meta]
    assert outcome.codes == [] and len(tagged) == 8 and all("ac_graph_id" in n.meta for n in tagged)


def test_nested_checkpoint_with_dropout_and_autocast(same_gradients):
    def inner(t):
        return ckpt.checkpoint(body, t, use_reentrant=False)

    def function(x):
        with torch.autocast("cpu", torch.bfloat16):
            return ckpt.checkpoint(lambda t: inner(t @ t).float() + t, x, use_reentrant=False)

    assert same_gradients(function, torch.randn(4, 4, requires_grad=True), rtol=2e-2, atol=2e-2).codes == []


def test_checkpoint_saves_less():
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    def outputs_of_forward(function):
        counts = []

        def forward(gm, args):
            counts.append(len(gm.graph.output_node().args[0]))
            return _boxed(gm)

        def backend(gm, args):
            captured = prepare(gm, args)
            assert captured.graph_module is not None
            aot = aot_autograd(
                fw_compiler=forward,
                bw_compiler=lambda g, a: _boxed(g),
                partition_fn=min_cut_rematerialization_partition,
            )
            return aot(captured.graph_module, args)

        torch._dynamo.reset()
        torch.compile(function, backend=backend)(torch.randn(4, 4, requires_grad=True)).sum().backward()
        return counts[0]

    def chain(t):
        return torch.softmax(torch.softmax(torch.softmax(t @ t, -1) @ t, -1) @ t, -1) @ t

    plain = outputs_of_forward(lambda x: chain(x) * 2)
    recomputed = outputs_of_forward(lambda x: ckpt.checkpoint(chain, x, use_reentrant=False) * 2)
    assert recomputed < plain


def _boxed(gm):
    from functorch.compile import make_boxed_func

    return make_boxed_func(gm.forward)


def policy(context, op, *args, **kwargs):
    return ckpt.CheckpointPolicy.PREFER_RECOMPUTE


def test_checkpoint_with_a_policy_goes_to_the_host(same_gradients):
    contexts = functools.partial(ckpt.create_selective_checkpoint_contexts, policy)
    outcome = same_gradients(
        lambda x: ckpt.checkpoint(torch.sin, x, use_reentrant=False, context_fn=contexts),
        torch.randn(4, requires_grad=True),
    )
    assert set(outcome.codes) == {"ATTNC-HOST-CHECKPOINT-POLICY"}


def test_eval_dropout_then_in_place(same):
    def function(x, m):
        y = F.dropout(x * 1, 0.1, training=False)
        y[m] = 0
        z = F.dropout(x * 1, p=0.0)
        return y, z.add_(1)

    outcome = same(lambda: (function, (torch.randn(4, 3), torch.randn(4, 3) > 0)))
    assert outcome.codes == []


def test_eval_dropout_returns_its_input(same):
    assert same(lambda: ((lambda x: F.dropout(x, 0.5, False).add_(1)), (torch.randn(3),))).codes == []


def test_train_dropout_draws_eagers_numbers(same):
    outcome = same(lambda: ((lambda x: F.dropout(x, 0.5) + torch.rand(8) + torch.rand_like(x)), (torch.randn(8),)))
    assert torch.ops.aten.dropout.default in targets(outcome.captures[0].graph_module)


def test_cond_is_carried(same_gradients):
    def function(x):
        return torch.cond(x.sum() > 0, lambda t: t.sin() * 2, lambda t: t.cos(), (x,))

    assert same_gradients(function, torch.ones(3, requires_grad=True)).codes == []
    assert same_gradients(function, -torch.ones(3, requires_grad=True)).codes == []


def test_inductor_trains_an_autocast_region(same_gradients):
    same_gradients(simple, small_integers(), host="inductor", rtol=0, atol=0)


def test_identity_backend_leaves_the_graph_alone():
    before = []

    def backend(gm, args):
        before.append(gm.code)
        call = identity_backend("aten")(gm, args)
        before.append(gm.code)
        return call

    torch.compile(lambda x: simple(F.dropout(x, training=False)), backend=backend)(torch.randn(4, 4))
    assert before[0] == before[1]
