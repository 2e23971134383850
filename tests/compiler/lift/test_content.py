"""Constants a graph holds: lifted where their whole content follows a formula, loaded otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnc.compiler.lift import Lifter
from attnc.ir.graph import Graph
from attnc.ir.index import Env, axis, evaluate, show
from attnc.ir.types import DType, TensorType

DTYPES = {torch.bool: DType.B1, torch.int64: DType.I64, torch.float32: DType.F32, torch.bfloat16: DType.BF16}
ONES = torch.ones(6, 6)
BROKEN = ONES.bool().tril()
BROKEN[4, 5] = True


def constant(tensor):
    """A graph of one constant, its lifter and its value."""
    graph = Graph("g", constants={"c": tensor})
    type_ = TensorType(DTYPES[tensor.dtype], tuple(tensor.shape))
    value = graph.create("ir.constant", (), (type_,), attrs={"name": "c"}).result
    return graph, Lifter(graph), value


CONTENTS = [
    (torch.arange(7), "i"),
    (torch.arange(5, 40, 3), "3*i + 5"),
    (torch.arange(12).reshape(3, 4), "4*i + j"),
    (torch.full((3, 4), 2), "2"),
    (ONES.bool(), "True"),
    (ONES.bool().tril(), "j - i <= 0"),
    (ONES.bool().tril()[None, None], "n - m <= 0"),
    (ONES.bool().tril() ^ ONES.bool().tril(-3), "(j - i <= 0) & (j - i >= -2)"),
    (torch.eye(5).bool(), None),
    (torch.tensor(3), "3"),
]


@pytest.mark.parametrize(("tensor", "text"), CONTENTS)
def test_formula_of_content(tensor, text):
    _, lifter, value = constant(tensor)
    names = "ijmn"[: tensor.dim()]
    formula = lifter.index(value, tuple(axis(n) for n in names))
    env = Env(axes=dict(zip(names, np.ogrid[tuple(slice(n) for n in tensor.shape)], strict=True)))
    np.testing.assert_array_equal(np.broadcast_to(evaluate(formula, env), tensor.shape), tensor.numpy())
    if text is not None:
        assert show(formula) == text


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cases_of_float_content(dtype):
    tensor = torch.full((6, 6), float("-inf"), dtype=dtype).triu(1)
    _, lifter, value = constant(tensor)
    cases = lifter.cases(value, (axis("q"), axis("k")))
    assert [(show(c), v) for c, v in cases] == [("k - q <= 0", 0.0), ("True", float("-inf"))]


@pytest.mark.parametrize("tensor", [BROKEN, torch.tensor([1, 2, 4]), torch.tensor([0.5, float("nan")])])
def test_other_content_is_refused(tensor):
    _, lifter, value = constant(tensor)
    assert lifter.index(value, tuple(axis(n) for n in "ij"[: tensor.dim()])) is None
    assert "follows no formula" in lifter.reason(value)


def test_a_user_loads_other_content():
    graph, lifter, value = constant(torch.tensor([1, 2, 4]))
    above = graph.create("aten.gt.Scalar", (value, 1), (TensorType(DType.B1, (3,)),)).result
    assert show(lifter.index(above, (axis("k"),))) == f"{value.name}[k] > 1"


def test_a_payload_without_content_is_loaded():
    graph, lifter, value = constant(torch.ones(3, dtype=torch.int64))
    graph.constants["c"] = None
    assert lifter.index(value, (axis("k"),)) is None
