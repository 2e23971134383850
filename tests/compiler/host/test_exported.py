"""torch.export programs: functional, stateful, named by the user's dimensions."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.host.exported import capture_exported
from attnc.compiler.host.to_fx import export_graph
from attnc.ir.graph import SizeInfo


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(2))
        self.register_buffer("scale", torch.ones(2), persistent=False)

    def forward(self, x, y):
        self.steps.add_(1)
        with torch.no_grad():
            z = x.sin()
        with torch.autocast("cpu", torch.bfloat16):
            t = self.linear(z)
        x.mul_(2)
        return {"a": t.float() + self.scale.sum() + torch.tensor(3.0), "steps": self.steps, "y": y[0]}


def export(model, *, strict):
    batch = torch.export.Dim("batch", max=10)
    shapes = {"x": {0: batch}, "y": (None,)}
    return torch.export.export(model, (torch.randn(3, 4), (torch.ones(2),)), dynamic_shapes=shapes, strict=strict)


def test_program_runs_and_keeps_its_state():
    torch.manual_seed(0)
    model = Model()
    program = export(model, strict=False)
    captured = capture_exported(program)
    graph = import_graph(captured.graph_module)
    assert graph.sizes == {"batch": SizeInfo(2, 10)}
    module = captured.finished(export_graph(graph))
    reference = Model()
    reference.load_state_dict(model.state_dict())
    with torch.no_grad():
        for rows in (2, 5):
            x = torch.randn(rows, 4)
            a, b = x.clone(), x.clone()
            want, got = reference(a, (torch.ones(2),)), captured.call(module, (b, (torch.ones(2),)), {})
            assert want.keys() == got.keys()
            for key in want:
                torch.testing.assert_close(got[key], want[key])
            torch.testing.assert_close(a, b)


def test_wrong_inputs_are_named():
    captured = capture_exported(export(Model(), strict=False))
    with pytest.raises(ValueError, match="it was exported with"):
        captured.call(captured.graph_module, (torch.randn(3, 4),), {})


def test_encoder_layer_is_written_out():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        program = torch.export.export(layer, (x,))
        captured = capture_exported(program)
        graph = import_graph(captured.graph_module)
        names = [op.name for op in graph.ops]
        assert "aten._transformer_encoder_layer_fwd.default" not in names
        assert "aten.scaled_dot_product_attention.default" in names
        module = captured.finished(export_graph(graph))
        torch.testing.assert_close(captured.call(module, (x,), {}), layer(x))
