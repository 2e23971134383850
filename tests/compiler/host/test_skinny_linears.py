"""Linear layers of a host program over packed weights: which, how often packed, and the same results."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from attnc.compiler.host.skinny_linears import SKINNY, every_weight, pack_linears
from attnc.runtime import skinny
from attnc.runtime.host_program import ConstantInfo, HostProgram, Input, NamedSize, Step
from attnc.runtime.host_steps import Arg, Constant, Register

SHAPES = {"w": (33, 20), "turned": (20, 33), "b": (33,), "wide_b": (1, 33), "deep": (2, 20, 33)}
X, W, T, B = Register(0), Constant("w"), Constant("turned"), Constant("b")


def program(*steps: tuple[str, tuple[Arg, ...]], dtype: str = "f32", outputs: tuple[Arg, ...] = ()) -> HostProgram:
    """x [M, 20] through each step by itself; all results are outputs, and then ``outputs``."""
    return HostProgram(
        (NamedSize("M", 0, 0),),
        (Input("x", dtype, (("M",), (20,))),),
        tuple(ConstantInfo(name, dtype, shape) for name, shape in SHAPES.items()),
        (),
        tuple(Step(op, args, (), i + 1) for i, (op, args) in enumerate(steps)),
        (*(Register(i + 1) for i in range(len(steps))), *outputs),
    )


def weights(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {name: torch.randn(shape).to(dtype) for name, shape in SHAPES.items()}


LINEARS: tuple[tuple[str, tuple[Arg, ...]], ...] = (
    ("aten.linear.default", (X, W, B)),
    ("aten.linear.default", (X, W)),
    ("aten.linear.default", (X, W, None)),
    ("aten.addmm.default", (B, X, T)),
    ("aten.mm.default", (X, T)),
    ("aten.matmul.default", (X, T)),
)


def test_every_form_is_packed_once_a_weight_and_gives_the_same() -> None:
    given, constants = program(*LINEARS), weights()
    packed, held = pack_linears(given, constants, every_weight)
    packed = HostProgram.from_json(packed.to_json())
    assert [step.op for step in packed.steps] == [SKINNY] * 6
    assert set(held) == {info.name for info in packed.constants} == {"b", "w:panels", "turned:turned_panels"}
    for rows in (1, 5, 40):
        x = torch.randn(rows, 20)
        for found, wanted in zip(packed.bind(held)(x), given.bind(constants)(x), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(skinny.unpack(skinny.Packed(held["turned:turned_panels"], 33)), constants["turned"].mT)


def test_bfloat16_is_packed_as_it_is() -> None:
    constants = weights(torch.bfloat16)
    packed, held = pack_linears(program(LINEARS[0], dtype="bf16"), constants, every_weight)
    x = torch.randn(3, 20).bfloat16()
    (found,) = packed.bind(held)(x)
    wide = functional.linear(x.double(), constants["w"].double(), constants["b"].double())
    assert found.dtype is held["w:panels"].dtype is torch.bfloat16
    torch.testing.assert_close(found.double(), wide, rtol=2**-8, atol=1e-4)


def test_a_weight_that_something_else_reads_stays() -> None:
    other = ("aten.embedding.default", (W, Constant("b")))
    for given in (program(LINEARS[1], other), program(LINEARS[1], outputs=(W,))):
        packed, held = pack_linears(given, weights(), every_weight)
        assert packed.steps[0].op == SKINNY and {"w", "w:panels"} <= set(held)


@pytest.mark.parametrize(
    ("step", "dtype"),
    [
        (("aten.linear.default", (X, X)), "f32"),
        (("aten.linear.default", (W, W)), "f32"),
        (("aten.addmm.default", (Register(0), X, T)), "f32"),
        (("aten.addmm.default", (Constant("wide_b"), X, T)), "f32"),
        (("aten.matmul.default", (X, Constant("deep"))), "f32"),
        (("aten.mul.Tensor", (X, W)), "f32"),
        (LINEARS[0], "f16"),
    ],
)
def test_what_the_op_does_not_take_is_left(step: tuple[str, tuple[Arg, ...]], dtype: str) -> None:
    given = program(step, dtype=dtype)
    packed, held = pack_linears(given, weights(torch.float16 if dtype == "f16" else torch.float32), every_weight)
    assert packed.steps == given.steps and not any("panels" in name for name in held)


def test_a_scaled_product_is_left() -> None:
    given = program(LINEARS[3])
    scaled = replace(given, steps=(replace(given.steps[0], kwargs=(("alpha", 2),)),))
    assert pack_linears(scaled, weights(), every_weight)[0].steps == scaled.steps


def test_who_chooses_sees_weights_as_features_by_depth() -> None:
    seen: list[tuple[int, ...]] = []
    given = program(*LINEARS)
    packed, held = pack_linears(given, weights(), lambda w: seen.append(tuple(w.shape)) or False)
    assert seen == [(33, 20), (33, 20)] and packed.steps == given.steps
    assert set(held) == {"w", "turned", "b"}
