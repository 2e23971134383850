"""Mutated inputs and buffers are written back, aliases and strides as in eager."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnc.compiler.host.identity import identity_backend

ALIASES = {
    "add_": lambda x, y: (x.add_(1), x)[1],
    "view out": lambda x, y: (x.add_(1), x.view(-1))[1],
    "intermediate in place": lambda x, y: (x * 2).add_(y),
    "view add_": lambda x, y: (x.view(-1).add_(1), x * 2)[1],
    "index_copy_": lambda x, y: x.index_copy_(0, torch.tensor([0, 2]), y[:2]),
    "copy_ and slice out": lambda x, y: (x.copy_(y), x[1:, :2])[1],
    "slice copy_": lambda x, y: (x[:, 1:3].copy_(y[:, 1:3]), x + 1)[1],
    "outputs alias each other": lambda x, y: (lambda z: (z, z.t(), z[0]))(x * 2),
    "input returned": lambda x, y: (x, x.view(2, 8), x + y),
    "t_": lambda x, y: (x.t_(), x * 2)[1],
    "unsqueeze_": lambda x, y: (x.unsqueeze_(0), x * 2)[1],
    "two inputs one value": lambda x, y: (lambda z: (x.copy_(z), y.copy_(z), z + 1)[2])(x * y),
    "copied then zeroed": lambda x, y: (x.copy_(y), y.zero_(), x + 1)[2],
    "swap": lambda x, y: (lambda t: (x.copy_(y), y.copy_(t), x - y)[2])(x.clone()),
    "split add_": lambda x, y: (lambda parts: (parts[0].add_(1), parts[1]))(x.split(2)),
    "unbind": lambda x, y: (x.mul_(2), x.unbind(0))[1],
    "transposed write": lambda x, y: (x.copy_(y.t()), y.add_(1), x + y)[2],
    "nothing": lambda x, y: x @ y,
}


@pytest.mark.parametrize("name", ALIASES)
def test_aliases(same, name):
    outcome = same(lambda: (ALIASES[name], (torch.randn(4, 4), torch.randn(4, 4))), calls=1 if "_" == name[-1] else 2)
    assert outcome.codes == []


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        return x + self.count


def test_counter_is_the_same_buffer(same):
    made = []

    def make():
        module = Counter()
        made.append((module, module.count))
        return module, (torch.randn(3),)

    same(make, calls=3)
    for module, buffer in made:
        assert module.count is buffer and buffer.item() == 3


class Cache(nn.Module):
    """A static cache as Hugging Face writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 8, 4))
        self.register_buffer("length", torch.zeros(1, dtype=torch.int64))

    def forward(self, new):
        position = torch.arange(new.shape[1]) + self.length
        self.keys.index_copy_(1, position, new)
        self.length.add_(new.shape[1])
        return self.keys.sum(1), self.keys[:, :2]


def test_static_cache(same):
    outcome = same(lambda: (Cache(), (torch.randn(2, 2, 4),)), calls=3)
    assert outcome.codes == [] and len(outcome.captures) == 1
    assert sorted(outcome.captures[0].signature.hidden) == sorted(outcome.captures[0].signature.mutated)


def test_static_cache_stays_in_the_graph_on_inductor(same):
    assert same(lambda: (Cache(), (torch.randn(2, 2, 4),)), host="inductor").codes == []


def test_batch_norm_trains():
    results = []
    x = torch.randn(5, 3)
    for backend in (None, identity_backend("aten")):
        norm, leaf = nn.BatchNorm1d(3), x.clone().requires_grad_()
        statistics = norm.running_mean
        call = torch.compile(norm, backend=backend) if backend else norm
        for _ in range(2):
            call(leaf).pow(2).sum().backward()
        assert norm.running_mean is statistics
        results.append((leaf.grad, norm.weight.grad, norm.running_mean, norm.running_var, norm.num_batches_tracked))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b, a)


def leaf_under_no_grad(w, x):
    with torch.no_grad():
        w.sub_(x.detach())
    return w * x


def intermediate_under_no_grad(w, x):
    y = w * x
    with torch.no_grad():
        y[:2] += 1
    return y * x


def through_detach(w, x):
    y = w * x
    y.detach().mul_(2)
    return y * 3


@pytest.mark.parametrize("function", [leaf_under_no_grad, intermediate_under_no_grad, through_detach])
def test_writes_autograd_does_not_see_go_to_the_host(same_gradients, function):
    if function is leaf_under_no_grad:
        x = torch.randn(3, requires_grad=True)
        outcome = same_gradients(lambda w: function(w.view(3), x), torch.randn(3, requires_grad=True))
    else:
        outcome = same_gradients(function, torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))
    assert set(outcome.codes) == {"ATTNC-HOST-HIDDEN-WRITE"}


def test_writes_to_values_made_without_gradients_are_taken(same_gradients):
    def function(x):
        with torch.no_grad():
            y = x.exp()
            y.add_(1)
            y[:1] = 0
        return x * y

    assert same_gradients(function, torch.randn(3, requires_grad=True)).codes == []


def test_input_written_with_gradients(same_gradients):
    def step(x, y):
        z = x * 1
        z.mul_(y)
        buffer = torch.zeros(3)
        buffer.copy_(z)
        return buffer * 2

    same_gradients(step, torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True))


def test_overlapping_writes_go_to_the_host(same):
    def make():
        base = torch.randn(6)
        return (lambda a, b: (a.add_(1), b * 2)[1]), (base[:4], base[2:])

    assert set(same(make).codes) == {"ATTNC-HOST-OVERLAPPING-WRITES"}
