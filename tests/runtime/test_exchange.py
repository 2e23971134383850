"""Values in and out: numpy, torch, DLPack; sharing, copying, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch

from attnc.runtime.exchange import run_named, run_ordered
from attnc.runtime.host_bound import Bound
from attnc.runtime.host_program import HostProgram, Input, NamedSize, Step
from attnc.runtime.host_steps import Register


@pytest.fixture(scope="module")
def bound() -> Bound:
    """(x, n, scale, unread, log) → x · scale, x as bf16, n; log is raised in place."""
    program = HostProgram(
        (NamedSize("N", 0, 0, 1, 8),),
        (
            Input("x", "f32", (("N",), (2,))),
            Input("n", "int"),
            Input("scale", "float"),
            Input("unread", "any"),
            Input("log", "i64", (("N",),)),
        ),
        (),
        (),
        (
            Step("aten.mul.Scalar", (Register(0), Register(2)), (), 5),
            Step("aten.to.dtype", (Register(0), 15), (), 6),
            Step("aten.add_.Scalar", (Register(4), 1), (), None),
        ),
        (Register(5), Register(6), Register(1)),
    )
    return program.bind({})


NAMES = ("scaled", "short", "n")
WRITTEN = frozenset({"log"})


def call(bound: Bound, x: Any, log: Any = None, **more: Any) -> dict[str, Any]:
    given = {"x": x, "n": 3, "scale": 0.5, "log": numpy.arange(len(x)) if log is None else log, **more}
    return run_named(bound, NAMES, given, WRITTEN)


class Foreign:
    """An array of another library."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


def test_numpy_in_numpy_out(bound: Bound) -> None:
    x = numpy.random.default_rng(0).standard_normal((5, 2), dtype=numpy.float32)
    found = call(bound, x)
    assert {name: type(value) for name, value in found.items()} == {
        "scaled": numpy.ndarray, "short": numpy.ndarray, "n": int,
    }  # fmt: skip
    assert numpy.array_equal(found["scaled"], x * numpy.float32(0.5))
    assert found["short"].dtype == numpy.float32  # numpy has no bfloat16
    assert numpy.array_equal(found["short"], torch.from_numpy(x).bfloat16().float().numpy())


def test_torch_or_anything_else_gives_torch(bound: Bound) -> None:
    x = torch.randn(3, 2)
    for given in (x, Foreign(x)):
        found = call(bound, given, torch.arange(3))["scaled"]
        assert isinstance(found, torch.Tensor) and torch.equal(found, x * 0.5)
    assert isinstance(call(bound, x)["short"], torch.Tensor)  # the log was numpy's, x was not
    assert call(bound, x)["short"].dtype == torch.bfloat16


def test_strided_reversed_and_frozen_arrays(bound: Bound) -> None:
    base = numpy.random.default_rng(1).standard_normal((12, 7), dtype=numpy.float32)
    frozen = base[:6, :2].copy()
    frozen.flags.writeable = False
    misaligned = numpy.frombuffer(bytearray(4 * 12 + 1), numpy.uint8)[1:].view(numpy.float32).reshape(6, 2)
    for x in (base[:5, 1:3], base[::2, ::4], base[5::-1, ::-4], numpy.asfortranarray(base[:4, :2]), frozen, misaligned):
        assert numpy.array_equal(call(bound, x)["scaled"], x * numpy.float32(0.5))


def test_what_is_written_is_the_caller_s(bound: Bound) -> None:
    for log in (numpy.arange(4), torch.arange(4), numpy.arange(12)[::3]):
        before = log.copy() if isinstance(log, numpy.ndarray) else log.clone()
        call(bound, torch.zeros(4, 2), log)
        assert (log == before + 1).all()
    frozen = numpy.arange(4)
    frozen.flags.writeable = False
    for log in (frozen, numpy.arange(4)[::-1]):
        with pytest.raises(ValueError, match="input log is written by the program"):
            call(bound, torch.zeros(4, 2), log)


@pytest.mark.parametrize("number", [3, numpy.int64(3), numpy.array(3), numpy.array([3]), torch.tensor(3)])
def test_numbers(bound: Bound, number: Any) -> None:
    found = call(bound, torch.zeros(1, 2), n=number, scale=numpy.float32(2))
    assert found["n"] == 3 and type(found["n"]) is int


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": None}, "input x is a NoneType"),
        ({"x": [[1.0, 2.0]]}, "input x is a list; give a numpy array"),
        ({"x": numpy.zeros((3, 2))}, "input x is a tensor of f64, the program takes f32"),
        ({"x": numpy.zeros((3, 2), ">f4")}, "input x is an array of >f4"),
        ({"x": numpy.array([["a", "b"]])}, "input x is an array of <U1"),
        ({"x": numpy.zeros(3, numpy.float32)}, "input x has 1 dimensions, the program takes 2"),
        ({"x": numpy.zeros((3, 3), numpy.float32)}, "input x: dimension 1 is 3, not 2"),
        ({"x": numpy.zeros((9, 2), numpy.float32), "log": numpy.arange(9)}, "the program was made for 1 to 8"),
        ({"log": numpy.arange(7)}, r"input log: dimension 0 is 7, not 3 \(N = 3 from input x: dimension 0\)"),
        ({"n": 2.0}, "input n is a float, the program takes int"),
        ({"n": True}, "input n is a bool, the program takes int"),
        ({"n": numpy.arange(2)}, "input n is a ndarray"),
        ({"more": 1, "other": 2}, "more, other unknown; its inputs are x, n, scale, unread, log"),
    ],
)
def test_what_is_refused(bound: Bound, change: dict[str, Any], message: str) -> None:
    given = {"x": numpy.zeros((3, 2), numpy.float32), "n": 3, "scale": 0.5, "log": numpy.arange(3), **change}
    with pytest.raises((ValueError, TypeError), match=message):
        run_named(bound, NAMES, given, WRITTEN)


def test_names_and_order(bound: Bound) -> None:
    with pytest.raises(ValueError, match="running the program: n, log missing; its inputs are"):
        run_named(bound, NAMES, {"x": torch.zeros(3, 2), "scale": 0.5})
    with pytest.raises(ValueError, match=r"it takes 5 inputs \(x, n, scale, unread, log\), not 2"):
        run_ordered(bound, (torch.zeros(3, 2), 3))
    assert run_ordered(bound, (torch.zeros(3, 2), 3, 1.0, object(), torch.arange(3)))[2] == 3
