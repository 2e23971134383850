from __future__ import annotations

import math

import pytest
import torch
from runtime_samples import QK, axis, const, load
from torch import Tensor

from attnc.codegen.plan import Instr, Program
from attnc.runtime.program import _LEAVES, _OPS, Env, evaluate

OPS = set(
    "qk const axis size load add sub mul div neg abs min max pow floordiv mod cast tanh exp exp2 log sqrt rsqrt "
    "sigmoid erf floor ceil sin cos lt le gt ge eq ne and or not where isnan".split()
)


def env(**changes: object) -> Env:
    fields = {
        "grid": ("b", "q", "k"),
        "ranges": {"b": (0, 2), "q": (3, 5), "k": (0, 4)},
        "sizes": {"s": 7, "|k|": 4},
        "sides": (),
        "compute": torch.float64,
        "device": torch.device("cpu"),
    }
    return Env(**{**fields, **changes})  # type: ignore[arg-type]


def value(program: Program, **changes: object) -> object:
    result: object = evaluate(program, env(**changes)).tolist()
    return result


def test_every_operation_of_a_plan_is_known() -> None:
    assert {*_LEAVES, *_OPS, "load"} == OPS


def test_unknown_operation() -> None:
    with pytest.raises(ValueError, match="unknown operation 'gamma'"):
        evaluate((Instr("gamma", "f32"),), env())


def test_axes_span_their_dimension_and_chunk() -> None:
    assert evaluate((axis("q"),), env()).shape == (1, 2, 1)
    assert evaluate((axis("q"),), env()).flatten().tolist() == [3, 4]
    difference = evaluate((axis("q"), axis("k"), Instr("sub", "i64", (0, 1))), env())
    assert difference.shape == (1, 2, 4)
    assert difference[0].tolist() == [[3, 2, 1, 0], [4, 3, 2, 1]]


@pytest.mark.parametrize(
    ("op", "dtype", "args", "expected"),
    [
        ("floordiv", "i64", (-7, 2), -4),
        ("floordiv", "i64", (7, -2), -4),
        ("mod", "i64", (-7, 3), 2),
        ("mod", "i64", (7, -3), -2),
        ("div", "f32", (7, 2), 3.5),
        ("div", "f32", (1, 3), 1 / 3),
        ("pow", "f32", (2.0, -2.0), 0.25),
        ("min", "i64", (3, 5), 3),
        ("max", "f32", (3.5, 5.0), 5.0),
        ("exp2", "f32", (3.0,), 8.0),
        ("rsqrt", "f32", (4.0,), 0.5),
        ("sigmoid", "f32", (0.0,), 0.5),
        ("erf", "f32", (0.5,), math.erf(0.5)),
        ("cast", "i64", (-2.7,), -2),
        ("cast", "b1", (0.5,), True),
        ("cast", "f32", (True,), 1.0),
        ("floor", "f32", (-2.5,), -3.0),
        ("ceil", "f32", (-2.5,), -2.0),
        ("isnan", "b1", (math.nan,), True),
        ("and", "b1", (True, False), False),
        ("or", "b1", (True, False), True),
        ("not", "b1", (True,), False),
        ("where", "f32", (True, 1.0, 2.0), 1.0),
    ],
)
def test_operations(op: str, dtype: str, args: tuple[float, ...], expected: float) -> None:
    kinds = {bool: "b1", int: "i64", float: "f64"}
    leaves = tuple(const(a, kinds[type(a)]) for a in args)
    assert value((*leaves, Instr(op, dtype, tuple(range(len(args)))))) == pytest.approx(expected, abs=1e-15)


def test_a_constant_is_what_its_dtype_holds() -> None:
    assert value((const(0.1, "f32"),)) == torch.tensor(0.1, dtype=torch.float32).double().item()
    assert value((const(-1e30, "f16"),)) == -math.inf


def test_sizes() -> None:
    assert value((Instr("size", "i64", (), "s"),)) == 7
    assert value((Instr("size", "i64", (), "|k|"),)) == 4


SIDE = torch.arange(24.0).reshape(2, 3, 4)


@pytest.mark.parametrize(
    "indices",
    [
        (axis("b"), const(2, "i64"), axis("k")),
        (axis("b"), const(0, "i64"), const(1, "i64")),
        (const(1, "i64"), const(7, "i64"), axis("k")),
    ],
)
def test_load_by_axes_and_constants(indices: Program) -> None:
    loaded = evaluate((*indices, load(0, "f32", 0, 1, 2)), env(sides=(SIDE,)))
    grid = [i.expand(2, 2, 4) for i in (evaluate((index,), env()) for index in indices)]
    expected = SIDE[grid[0], grid[1].clamp(max=2), grid[2]]
    assert loaded.dim() in (0, 3)
    assert torch.equal(loaded.expand(2, 2, 4), expected.double())


def test_load_of_an_axis_orders_dimensions_by_the_grid() -> None:
    side = torch.arange(8.0).reshape(4, 2)  # [k, b]
    loaded = evaluate((axis("k"), axis("b"), load(0, "f32", 0, 1)), env(sides=(side,)))
    assert torch.equal(loaded, side.T.reshape(2, 1, 4).double())


def test_load_by_computed_index_is_clamped() -> None:
    side = torch.tensor([10, 20, 30])
    program = (axis("k"), const(2, "i64"), Instr("mul", "i64", (0, 1)), load(0, "i64", 2))
    assert evaluate(program, env(sides=(side,))).flatten().tolist() == [10, 30, 30, 30]
    program = (axis("k"), const(2, "i64"), Instr("sub", "i64", (0, 1)), load(0, "i64", 2))
    assert evaluate(program, env(sides=(side,))).flatten().tolist() == [10, 10, 10, 20]


def test_load_of_a_scalar() -> None:
    assert value((load(0, "f32"),), sides=(torch.tensor(1.5),)) == [[[1.5]]]


FILLED_TWICE: Program = (QK, const(torch.finfo(torch.float16).min, "f16"), Instr("add", "f16", (0, 1)),
                         Instr("add", "f16", (2, 1)))  # fmt: skip


def qk(dtype: torch.dtype) -> Tensor:
    return torch.tensor([1.0, -2.0]).view(1, 1, 2).to(dtype)


@pytest.mark.parametrize("compute", [torch.float32, torch.float64])
def test_as_written_sums_of_fills_overflow_as_in_the_source(compute: torch.dtype) -> None:
    written = evaluate(FILLED_TWICE, env(qk=qk(compute), compute=compute, as_written=True))
    assert written.flatten().tolist() == [-math.inf, -math.inf]
    assert evaluate(FILLED_TWICE, env(qk=qk(compute), compute=compute)).isfinite().all()


@pytest.mark.parametrize("compute", [torch.float32, torch.float64])
def test_as_written_a_sum_that_rounds_back_does_not_overflow(compute: torch.dtype) -> None:
    written = evaluate(FILLED_TWICE[:3], env(qk=qk(compute), compute=compute, as_written=True))
    assert written.isfinite().all()


def test_as_written_rounds_each_result_to_its_dtype() -> None:
    program = (QK, const(256.0, "f16"), Instr("add", "bf16", (0, 1)))
    written = evaluate(program, env(qk=qk(torch.float32), compute=torch.float32, as_written=True))
    assert written.dtype is torch.bfloat16
    assert written.flatten().tolist() == [256.0, 254.0]  # 257 has no bfloat16


def test_qk_must_be_given() -> None:
    with pytest.raises(ValueError, match="q·k"):
        evaluate((QK,), env())
