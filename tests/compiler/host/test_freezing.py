"""Inductor's freezing option: parameters are attributes before capture, and attributes again on the host."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._inductor import config

from attnc.compiler.host.identity import identity_backend


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("scale", torch.full((8,), 2.0))

    def forward(self, x):
        return torch.softmax(self.linear(x) * self.scale, -1)


@pytest.mark.parametrize("host", ["aten", "inductor"])
def test_frozen_parameters_are_bound_again(host):
    model, x, seen, exported = Model().eval(), torch.randn(3, 8), [], []
    with torch.no_grad(), config.patch(freezing=True):
        backend = identity_backend(host, seen, lambda before, graph, after: exported.append((graph, after)))
        call = torch.compile(model, backend=backend)
        for _ in range(2):
            torch.testing.assert_close(call(x), model(x))
    (captured,), ((graph, after),) = seen, exported
    assert captured.notes == []
    assert {t.data_ptr() for t in captured.signature.state.values()} == {
        t.data_ptr() for t in (model.linear.weight, model.linear.bias, model.scale)
    }
    assert len(graph.inputs) == 4 and len(after.graph.find_nodes(op="placeholder")) == 1
    frozen = [getattr(after, node.target) for node in after.graph.find_nodes(op="get_attr")]
    assert any(each is model.linear.weight for each in frozen)
