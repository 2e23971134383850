"""Programs traced and run through the rotary pass, judged in float64 and in their own dtype."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.host.lower_rope import RopeProgram
from attnc.compiler.host.to_fx import Expanded, export_graph
from attnc.compiler.interpreter import Interpreter
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.clean_up import CleanUp
from attnc.compiler.passes.rotary import Rotary
from attnc.ir import parse_graph, print_graph, verify
from attnc.ir.graph import Graph
from attnc.ir.values import Op

Program = Callable[..., Any]
LENGTHS = (5, 6, 7, 9)
"""Sizes that are traced as symbols; features are constants."""


@dataclass
class Outcome:
    """What the pass made of one program; ``wide`` are (before, after) results in float64."""

    graph: Graph
    context: Context
    wide: tuple[Tensor, Tensor]
    plain: tuple[Tensor, Tensor]
    """(Eager, rewritten) results in the program's own dtypes."""
    module: torch.fx.GraphModule

    @property
    def ropes(self) -> list[Op]:
        return [op for op in self.graph.ops if op.name == "attn.rope"]

    @property
    def reasons(self) -> list[str]:
        assert all(note.code == "ATTNC-ROPE-UNPROVED" for note in self.context.notes)
        return [note.message for note in self.context.notes]

    def check(self) -> None:
        """The text reads back; nothing moved: in float64 but for rounding, else by twice eager's own error."""
        before, after = self.wide
        scale = before.abs().max()
        assert (after - before).abs().max() <= 1e-12 * scale
        eager, ours = (x.double() for x in self.plain)
        eps = torch.finfo(self.plain[0].dtype).eps
        assert (ours - before).abs().max() <= 2 * (eager - before).abs().max() + 4 * eps * scale
        assert self.plain[0].dtype == self.plain[1].dtype and self.plain[0].stride() == self.plain[1].stride()


def turned(program: Program, *args: Any, complex_products: bool = True) -> Outcome:
    """Trace with symbolic lengths, run the pass, and run the graph before and after."""
    graph = import_graph(traced(program, *args))
    (before,) = Interpreter(graph, wide=True).run(args)
    context = Context()
    Rotary().run(graph, context)
    CleanUp().run(graph, context)
    verify(graph)
    text = print_graph(graph)
    assert print_graph(parse_graph(text, constants=graph.constants)) == text
    (after,) = Interpreter(graph, wide=True).run(args)
    ropes = RopeProgram(complex_products)
    module = export_graph(graph, lambda op: Expanded(lambda emit, of: ropes.run(op, emit, of)))
    return Outcome(graph, context, (before, after), (program(*args), module(*args)[0]), module)


def traced(program: Program, *args: Tensor) -> torch.fx.GraphModule:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)

    def fake(x: Tensor) -> Tensor:
        dynamic = [DimDynamic.DYNAMIC if n in LENGTHS else DimDynamic.STATIC for n in x.shape]
        return mode.from_tensor(x, symbolic_context=StatelessSymbolicContext(dynamic_sizes=dynamic))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_fx(program, pre_dispatch=True)(*map(fake, args))


@pytest.fixture(name="turned")
def turned_fixture() -> Callable[..., Outcome]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    return turned
