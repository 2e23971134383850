"""Constructs that capture would get wrong reach the host whole, with a code and eager's results."""

from __future__ import annotations

import torch
from torch.testing._internal.two_tensor import TwoTensor

from attnc.compiler.host.identity import identity_backend


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


def test_autograd_function(same_gradients):
    outcome = same_gradients(lambda x: Scaled.apply(x) + x, torch.randn(4, requires_grad=True))
    assert set(outcome.codes) == {"ATTNC-HOST-AUTOGRAD-FUNCTION"}
    note = outcome.captures[0].notes[0]
    assert note.where.file == __file__ and "Scaled.apply" in note.where.code


def test_autograd_function_without_gradients_is_taken(same):
    with torch.no_grad():
        outcome = same(lambda: ((lambda x: Scaled.apply(x) + x), (torch.randn(4),)))
    assert outcome.codes == []


def test_autograd_function_in_a_graph_that_switches_gradients_on(same_gradients):
    def function(x):
        with torch.enable_grad():
            return Scaled.apply(x) + x

    assert set(same_gradients(function, torch.randn(4, requires_grad=True)).codes) == {"ATTNC-HOST-AUTOGRAD-FUNCTION"}


def test_tensor_hook(same_gradients):
    def function(x):
        y = x * 2
        y.register_hook(lambda grad: grad * 3)
        return y

    assert set(same_gradients(function, torch.randn(4, requires_grad=True)).codes) == {"ATTNC-HOST-TENSOR-HOOK"}


def test_functional_grad(same):
    outcome = same(lambda: ((lambda x: torch.func.grad(lambda r: r.sin().sum())(x)), (torch.randn(4),)))
    assert set(outcome.codes) == {"ATTNC-HOST-VMAP"}


def test_tensor_subclass():
    seen = []
    x = TwoTensor(torch.ones(3), torch.full((3,), 2.0))
    out = torch.compile(lambda x: x * 2, backend=identity_backend("aten", seen))(x)
    assert isinstance(out, TwoTensor) and out.b.tolist() == [4, 4, 4]
    assert [note.code for note in seen[0].notes] == ["ATTNC-HOST-TENSOR-SUBCLASS"]


def test_functional_region_inside_checkpoint_is_found(same_gradients):
    from torch.utils.checkpoint import checkpoint

    outcome = same_gradients(
        lambda x: checkpoint(lambda t: Scaled.apply(t).sin(), x, use_reentrant=False),
        torch.randn(4, requires_grad=True),
    )
    assert set(outcome.codes) == {"ATTNC-HOST-AUTOGRAD-FUNCTION"}


def test_a_shape_without_bounds():
    seen = []
    call = torch.compile(lambda x, n: x[:, :n] * 2, backend=identity_backend("aten", seen), dynamic=True)
    x = torch.randn(4, 12)
    for n in (3, 5, 0, -2):
        torch.testing.assert_close(call(x, n), x[:, :n] * 2)
    assert "ATTNC-HOST-SIZES" in {note.code for captured in seen for note in captured.notes}


def test_failed_export_says_so(same, monkeypatch):
    from attnc.compiler.frontends.torch import private

    def fail(*args):
        raise RuntimeError("no such luck\nmore")

    monkeypatch.setattr(private, "aot_export", fail)
    outcome = same(lambda: (torch.sin, (torch.randn(4),)))
    assert set(outcome.codes) == {"ATTNC-HOST-EXPORT-FAILED"}
    assert outcome.captures[0].notes[0].message == "RuntimeError: no such luck"
