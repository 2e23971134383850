"""What has no exact formula is refused, with the operator and the reason; operands of what is lifted are loaded."""

from __future__ import annotations

import sympy
import torch

from attnc.compiler.lift import Lifter
from attnc.ir.graph import Graph
from attnc.ir.index import axis, show
from attnc.ir.types import DType, ScalarType, TensorType, size
from attnc.ir.values import Location

X = torch.tensor([[1, 1, 0, 3, 1], [0, 1, 1, 1, 2], [1, 0, 0, 0, 7]])


def positions(x):
    return torch.arange(x.shape[1])


def test_float_data_is_refused(refused):
    assert "no transfer function" in refused(lambda x: x.float().exp() > 1, X)


def test_a_running_sum_of_data_is_refused_but_loaded_by_its_user(exact, refused):
    assert "aten.cumsum" in refused(lambda x: x.cumsum(1), X)
    assert exact(lambda x: x.cumsum(1) <= 3, X) == "cumsum[i, j] <= 3"


def test_wide_data_is_not_cast_to_a_narrow_dtype(exact, refused):
    assert "may not fit i32" in refused(lambda x: x.to(torch.int32), X)
    assert exact(lambda x: x.to(torch.int32) == 1, X) == "to[i, j] == 1"
    assert exact(lambda x: x.to(torch.int32) + x.shape[1], X) is not None


def test_bytes_that_may_wrap_are_refused(refused, exact):
    byte = torch.tensor([200, 100, 3], dtype=torch.uint8)
    assert "may overflow u8" in refused(lambda x: x + x, byte)
    assert exact(lambda x: x.to(torch.int64) + x.to(torch.int64), byte) == "2*x_1[i]"


def test_positions_a_float_may_not_hold_are_refused(refused, exact):
    assert "may not be exact in bf16" in refused(lambda x: positions(x).to(torch.bfloat16) <= 4, X).replace(
        "_to_copy", ""
    )
    assert exact(lambda x: positions(x).float() <= 4, X) == "i <= 4"
    assert exact(lambda x: positions(x).to(torch.bfloat16) <= 4, X, symbolic=False) == "True"


def test_a_fraction_of_positions_is_refused(refused):
    assert "position" in refused(lambda x: positions(x).float() * 0.5, X)
    assert "quotient" in refused(lambda x: positions(x) / 2, X)


def test_a_divisor_that_may_be_zero_is_refused(refused):
    assert "may be 0" in refused(lambda x: torch.div(positions(x) + 7, x + 9, rounding_mode="floor"), X)


def test_nan_is_refused(refused):
    assert "NaN" in refused(lambda x: torch.full((2,), float("nan")), X)
    assert "NaN" in refused(lambda x: torch.full((2,), float("inf")) - torch.full((2,), float("inf")), X)


def test_a_write_through_a_mask_is_refused(refused):
    assert "a write at several indices" in refused(lambda x: torch.index_put(x, (x > 1,), x[0, 0]), X)


def test_size_cap(refused, exact):
    def nested(x):
        for i in range(6):
            x = torch.where(x > i, x * 2 - i, x + 1)
        return x

    assert "more than" in refused(nested, X, max_nodes=60)
    assert "where" in exact(lambda x: nested(x) <= 0, X, max_nodes=60)


def test_a_long_chain_ends(refused):
    def chain(x):
        total = x.float().exp()
        for _ in range(300):
            total = total + 1.0
        return total

    assert "deep" in refused(chain, X)


def test_reason_names_the_users_line_and_is_empty_for_a_formula():
    graph = Graph("g", sizes={})
    x = graph.add_input("x", TensorType(DType.F32, (size("S"),)))
    where = Location("model.py", 12)
    taken = graph.create("aten.exp.default", (x,), (x.type,), loc=where).result
    fine = graph.create("aten.arange.default", (4,), (TensorType(DType.I64, (4,)),)).result
    lifter = Lifter(graph)
    assert lifter.index(taken, (axis("k"),)) is None
    assert lifter.reason(taken) == "aten.exp.default (model.py:12): no transfer function"
    assert lifter.reason(fine) == ""


def test_ranges_of_the_caller_decide():
    graph = Graph("g")
    keys = graph.create("aten.arange.default", (size("S"),), (TensorType(DType.I64, (size("S"),)),)).result
    low = graph.create("aten.lt.Scalar", (keys, 8), (TensorType(DType.B1, (size("S"),)),)).result
    lifter, k = Lifter(graph), axis("k")
    assert show(lifter.index(low, (k,))) == "k < 8"
    assert lifter.index(low, (k,), {k: (0, 7)}) is sympy.true
    assert lifter.index(low, (k + 8,)) is sympy.false


def test_host_integers_are_followed():
    graph = Graph("g")
    b = graph.add_input("x", TensorType(DType.I64, (size("B"), size("S"))))
    length = graph.create("aten.sym_size.int", (b, 1), (ScalarType("int"),)).result
    start = graph.create("py.sub", (length, 1), (ScalarType("int"),)).result
    values = graph.create("aten.arange.start", (start, 9), (TensorType(DType.I64, (size("S"),)),)).result
    assert show(Lifter(graph).index(values, (axis("k"),))) == "S + k - 1"
