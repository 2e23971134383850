"""Checks of formulas against executing the program they came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.lift import Lifter
from attnc.ir.graph import Graph
from attnc.ir.index import Env, axis, evaluate, show
from attnc.ir.types import TensorType
from attnc.ir.values import Value

NAMES = "ijmn"


class Recorder(torch.fx.Interpreter):
    """Runs a graph and keeps every value by name: what loads read."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        self.kept[n.name] = result
        return result


@dataclass(repr=False)
class Lifted:
    """One output of a traced program: its formula or cases, and the numbers to compare with."""

    graph: Graph
    lifter: Lifter
    value: Value
    env: Env
    result: torch.Tensor
    formula: Any
    cases: Any

    @property
    def text(self) -> str:
        """The formula, or the cases as ``value if condition`` lines."""
        if self.formula is not None:
            return show(self.formula)
        return "; ".join(f"{value:g} if {show(condition)}" for condition, value in self.cases)

    @property
    def reason(self) -> str:
        return self.lifter.reason(self.value)

    @property
    def lifted(self) -> bool:
        return self.formula is not None or self.cases is not None

    def check(self) -> None:
        """Every element of formula and cases equals the executed one."""
        want = self.result.float().numpy() if self.result.dtype is torch.bfloat16 else self.result.numpy()
        if self.formula is not None:
            got = np.broadcast_to(np.asarray(evaluate(self.formula, self.env)), want.shape)
            np.testing.assert_array_equal(got, want, str(self.formula))
        if self.cases is not None:
            got = np.full(want.shape, np.nan)
            for condition, number in reversed(self.cases):
                got = np.where(evaluate(condition, self.env), number, got)
            np.testing.assert_array_equal(np.broadcast_to(got, want.shape), want, str(self.cases))


def lift(program: Callable[..., torch.Tensor], *args: torch.Tensor, symbolic: bool = True, **options: Any) -> Lifted:
    """Trace ``program``, lift its result and run it."""
    mode = "symbolic" if symbolic else "fake"
    traced = make_fx(program, tracing_mode=mode, pre_dispatch=True)(*args)
    graph = import_graph(traced)
    recorder = Recorder(traced)
    recorder.kept = {}
    result = recorder.run(*args)
    (value,) = graph.output_values()
    lifter = Lifter(graph, **options)
    assert isinstance(value.type, TensorType)
    coords = tuple(axis(n) for n in NAMES[: value.type.rank])
    formula, cases = lifter.index(value, coords), None
    if value.type.dtype.is_float:
        cases = lifter.cases(value, coords)
    grid = np.ogrid[tuple(slice(n) for n in result.shape)]
    env = Env(
        axes=dict(zip(NAMES, grid, strict=False)),
        sizes=_sizes(graph, args),
        sides={n: v.numpy() for n, v in recorder.kept.items() if _is_data(v)},
    )
    return Lifted(graph, lifter, value, env, result, formula, cases)


def _is_data(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is not torch.bfloat16


def _sizes(graph: Graph, args: tuple[torch.Tensor, ...]) -> dict[str, int]:
    """Named sizes that are a whole dimension of an input."""
    found = {}
    for value, tensor in zip(graph.inputs, args, strict=True):
        assert isinstance(value.type, TensorType)
        for dim, length in zip(value.type.shape, tensor.shape, strict=True):
            if not isinstance(dim, int):
                found[str(dim)] = length
    return found


@pytest.fixture(name="lift")
def lift_fixture() -> Callable[..., Lifted]:
    return lift


@pytest.fixture
def exact() -> Callable[..., str]:
    """Lift, compare with execution, and give the formula's text."""

    def run(program: Callable[..., torch.Tensor], *args: torch.Tensor, **options: Any) -> str:
        lifted = lift(program, *args, **options)
        assert lifted.lifted, lifted.reason
        lifted.check()
        return lifted.text

    return run


@pytest.fixture
def refused() -> Callable[..., str]:
    """Lift in vain, and give the reason."""

    def run(program: Callable[..., torch.Tensor], *args: torch.Tensor, **options: Any) -> str:
        lifted = lift(program, *args, **options)
        assert not lifted.lifted, lifted.text
        return lifted.reason

    return run
