"""From a compiled graph to a host program: the bits of the graph at every size, and what the program says of itself."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnc
from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.host.exported import capture_exported
from attnc.compiler.host.to_fx import export_graph
from attnc.compiler.host.to_program import to_program
from attnc.ir.graph import Graph
from attnc.ir.parser import parse_graph
from attnc.runtime.host_program import HostProgram
from benchmarks.cases.transformers import family

Sizes = tuple[dict[str, Tensor], ...]


def dims(**bounds: tuple[int, int]) -> dict[str, Any]:
    return {name: torch.export.Dim(name, min=lo, max=hi) for name, (lo, hi) in bounds.items()}


def graphs(model: nn.Module, inputs: Mapping[str, Tensor], shapes: Any) -> tuple[torch.fx.GraphModule, Graph]:
    """The model's graph through import and export, without passes, with its state and its writes in it."""
    captured = capture_exported(torch.export.export(model, (), dict(inputs), dynamic_shapes=shapes, strict=False))
    graph = import_graph(captured.graph_module)
    return captured.finished(export_graph(graph)), graph


def same_bits(module: torch.fx.GraphModule, graph: Graph, sizes: Sizes) -> HostProgram:
    """Convert, go through JSON, and run both ways at each size; what is written must come out equal as well."""
    program, constants = to_program(module, graph)
    program = HostProgram.from_json(program.to_json())
    bound = program.bind({name: tensor.clone() for name, tensor in constants.items()})
    for inputs in sizes:
        theirs, ours = copy.deepcopy(list(inputs.values())), copy.deepcopy(list(inputs.values()))
        with torch.no_grad():
            wanted = module(*theirs)
        found = bound(*ours)
        assert len(wanted) == len(found)
        for a, b in zip(
            (*wanted, *theirs, *constants.values()), (*found, *ours, *bound.constants.values()), strict=True
        ):
            assert a is b or (torch.equal(a, b) if isinstance(a, Tensor) else a == b), program.to_json()
    return program


class Lengths(nn.Module):
    """Arithmetic on lengths, negative numbers among it."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Any, ...]:
        length, half = x.shape[1], x.shape[1] // 2
        wide = torch.sym_max(length - 7, 2) + (length * 3) % 5
        padded = x.new_full((x.shape[0], wide, -(-length // 4)), -half)
        rows = y.new_zeros(half * 2 + length % 2 + 1, 3)
        return padded, rows, x * -(length // 3) + length**2 * 0.5, length - 3 * half


def test_sizes_become_programs() -> None:
    sizes = dims(B=(2, 9), S=(9, 40))
    shapes = {"x": {0: sizes["B"], 1: sizes["S"]}, "y": {0: sizes["S"], 1: sizes["B"]}}
    given = tuple({"x": torch.randn(b, s), "y": torch.randn(s, b)} for b, s in ((3, 11), (2, 9), (9, 40), (5, 13)))
    program = same_bits(*graphs(Lengths(), given[0], shapes), given)
    assert [(s.name, s.input, s.dim, s.lo, s.hi) for s in program.sizes] == [("B", 0, 0, 2, 9), ("S", 0, 1, 9, 40)]
    assert not any(step.op.startswith("aten.sym_") for step in program.steps)
    tokens = {token for value in program.values for token in value}
    assert tokens >= {"S", ".floordiv", ".mod", ".max"} and "B" in tokens


class Cache(nn.Module):
    """A cache of rows that is written in the graph, a counter, and an input that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(2, 8, 4))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.project = nn.Linear(4, 4)

    def forward(self, x: Tensor, log: Tensor) -> tuple[Tensor, ...]:
        at = torch.arange(x.shape[1]) + self.seen
        self.rows.index_copy_(1, at % 8, self.project(x))
        self.seen.add_(x.shape[1])
        log.mul_(2).add_(self.rows.sum())
        return self.rows[:, :3], log.view(-1), x + self.rows.mean(1, keepdim=True)


def test_writes_stay_where_they_were() -> None:
    """With gradients on, a buffer is written past autograd, by a function a program must not need."""
    given = tuple({"x": torch.randn(2, n, 4), "log": torch.randn(3, 2)} for n in (3, 5, 2, 7))
    shapes = {"x": {1: torch.export.Dim("S", min=2, max=8)}, "log": None}
    program = same_bits(*graphs(Cache(), given[0], shapes), given)
    assert [step.op for step in program.steps].count("aten.copy_.default") == 3
    assert {type(step.args[0]).__name__ for step in program.steps if step.op == "aten.copy_.default"} == {
        "Constant",
        "Register",
    }


def test_bound_to_the_module_s_own_state_it_writes_there() -> None:
    given = {"x": torch.randn(2, 3, 4), "log": torch.randn(3, 2)}
    model = Cache()
    with torch.no_grad():
        program, constants = to_program(*graphs(model, given, None))
    program.bind(constants)(*given.values())
    assert int(model.seen) == 3 and torch.equal(model.rows[:, :3], model.project(given["x"]))


class Tied(nn.Module):
    """Tied weights, twin buffers of equal content, and results that come in tuples and lists."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11)
        self.head.weight = self.table.weight
        self.register_buffer("one", torch.ones(6))
        self.register_buffer("other", torch.ones(6))

    def forward(self, ids: Tensor) -> tuple[Tensor, ...]:
        x = self.table(ids) * self.one + self.other
        a, _, c = x.split([1, 2, 3], dim=-1)
        values, _ = torch.topk(c, 2)
        _, where = x.max(-1)
        return self.head(x), a + values, where, self.table.weight.sum()


def test_a_shared_constant_is_stored_once() -> None:
    given = ({"ids": torch.randint(11, (2, 3))}, {"ids": torch.randint(11, (2, 3))})
    program = same_bits(*graphs(Tied(), given[0], None), given)
    assert [c.shape for c in program.constants].count((11, 6)) == 1
    assert len(program.constants) == 4  # with the bias and two buffers that are equal but not one
    ((values, _),) = (step.results for step in program.steps if step.op == "aten.max.dim")  # type: ignore[misc]
    assert values is None


class Chain(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for _ in range(6):
            x = x.exp().neg()
        return x.view(-1)


def test_every_register_is_freed_after_its_last_reader() -> None:
    given = {"x": torch.randn(3, 2)}
    program = same_bits(*graphs(Chain(), given, None), (given,))
    assert [len(step.frees) for step in program.steps] == [0, *[1] * 12]
    last = {leaf.index for leaf in program.outputs}  # type: ignore[union-attr]
    written = {step.results for step in program.steps}
    freed = [register for step in program.steps for register in step.frees]
    assert len(freed) == len(set(freed)) and written - last == set(freed)


class Chosen(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        picked = x[x > 0]
        return picked * 2, x.new_ones(picked.shape[0] * 2 + 1)


def test_a_length_that_depends_on_data() -> None:
    given = tuple({"x": torch.randn(n)} for n in (9, 30, 4))
    program = same_bits(*graphs(Chosen(), given[0], {"x": {0: torch.export.Dim("N", min=2, max=64)}}), given)
    assert any(isinstance(token, str) and token[0] == "#" for value in program.values for token in value)


class Half(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x.view(2, -1).sum(0) + y[1:]


def test_dimensions_that_depend_on_each_other() -> None:
    half = torch.export.Dim("H", min=3, max=20)
    given = tuple({"x": torch.randn(2 * h), "y": torch.randn(h + 1)} for h in (5, 3, 20))
    module, graph = graphs(Half(), given[0], {"x": {0: 2 * half}, "y": {0: half + 1}})
    bound = same_bits(module, graph, given).bind({})
    for x, y in ((10, 7), (8, 6)):
        with pytest.raises(ValueError, match=f"input [xy]: dimension 0 is ({x}|{y}), not"):
            bound(torch.randn(x), torch.randn(y))


def test_programs_from_text() -> None:
    """A graph that torch never traced: integers as inputs, no example values."""
    graph = parse_graph(
        """graph @text(%x: f32[B, S], %s: int<S>, %scale: float) sizes(B in [1, 8], S in [2, inf]) {
          %n: int<B> = aten.sym_size.int(%x, 0)
          %m: int = py.mul(%n, %s)
          %f: float = py.add(%scale, 1)
          %left: int = py.mod(%m, -7)
          %down: int = py.floordiv(%left, 4)
          %flat: f32[B*S] = aten.view.default(%x, [%m])
          %y: f32[B*S] = aten.mul.Scalar(%flat, %f)
          return %y, %m, %left, %down
        }""",
        source="text",
    )
    program, _ = to_program(export_graph(graph), graph)
    x = torch.randn(3, 5)
    y, *numbers = HostProgram.from_json(program.to_json()).bind({})(x, 5, 2.5)
    assert torch.equal(y, x.flatten() * 3.5) and numbers == [15, -6, -2]
    with pytest.raises(ValueError, match=r"input s is 4, not 5 \(S = 5 from input x: dimension 1\)"):
        program.bind({})(x, 4, 2.5)


def test_what_is_no_operator_is_refused() -> None:
    text = "graph @text(%x: f32[3]) { %y: f32[3] = torch.nn.functional.relu(%x) return %y }"
    graph = parse_graph(text, source="text")
    with pytest.raises(ValueError, match=r"%y calls torch\.nn\.functional\.relu, which is no operator"):
        to_program(export_graph(graph), graph)


def compiled(name: str, implementation: str = "eager") -> tuple[attnc.Program, Callable[..., dict[str, Tensor]]]:
    """A model of the benchmarks, compiled with dynamic batch and lengths."""
    chosen = family(name)
    named = dims(B=(2, 16), S=(2, 100), T=(2, 120))
    per_dim = (named["B"], named["S"])
    shapes = {
        key: {axis: named["T"] if axis and key == "decoder_input_ids" else per_dim[axis] for axis in axes}
        for key, axes in chosen.dynamic.items()
    }
    model = chosen.model(implementation)
    return attnc.compile(model, kwargs=chosen.inputs(3, 17), dynamic_shapes=shapes), chosen.inputs


def whole_model(name: str, implementation: str = "eager") -> HostProgram:
    program, inputs = compiled(name, implementation)
    sizes = tuple(inputs(b, s, seed=s) for b, s in ((3, 17), (2, 2), (5, 33), (2, 97)))
    return same_bits(program.module, program.graph, sizes)


@pytest.mark.slow
def test_a_decoder() -> None:
    program = whole_model("attnc-gpt2")
    assert [size.name for size in program.sizes] == ["B", "S"]
    assert [given.name for given in program.inputs] == ["input_ids", "attention_mask"]
    assert sum(step.op == "attnc.attention.default" for step in program.steps) == 2


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "bert"])
def test_models_of_transformers(name: str, implementation: str) -> None:
    program = whole_model(name, implementation)
    assert sum(step.op == "attnc.attention.default" for step in program.steps) == family(name).sites


@pytest.mark.slow
@pytest.mark.parametrize("name", ["attnc-llama", "attnc-mistral", "attnc-bert", "attnc-t5", "attnc-transformer"])
def test_models_of_ours(name: str) -> None:
    program = whole_model(name)
    assert sum(step.op == "attnc.attention.default" for step in program.steps) == family(name).sites
