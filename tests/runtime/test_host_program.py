"""Host programs by hand: JSON, checks, size programs, inputs, what may be called, what is freed when."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from attnc.runtime.host_program import ConstantInfo, HostProgram, Input, NamedSize, Step
from attnc.runtime.host_steps import Constant, Literal, Register, Size, evaluate

ROWS = HostProgram(
    sizes=(NamedSize("B", 0, 0, 2, 64), NamedSize("S", 0, 1, 1, None)),
    inputs=(Input("x", "f32", (("B",), ("S",), (4,))), Input("mask", "b1", (("B",), ("S", 2, ".mul")))),
    constants=(ConstantInfo("w", "f32", (6, 4)),),
    values=(("B", "S", ".mul"), ("S", -3, ".add", 5, ".mod"), ("B",), ("S",)),
    steps=(
        Step("aten.linear.default", (Register(0), Constant("w")), (), 2),
        Step("aten.view.default", (Register(2), (Size(0), 2, 3)), (), 3, (2,)),
        Step("aten.topk.default", (Register(3), 2), (("largest", False),), (4, None), (3,)),
        Step("aten.add.Scalar", (Register(4), Size(1)), (), 5, (4,)),
        Step(
            "aten.full.default",
            ((Size(2), 1), Literal("float", "inf")),
            (("dtype", Literal("dtype", "f64")), ("device", Literal("device", "cpu"))),
            6,
        ),
        Step("aten.sum.default", (Register(1),), (), 7),
    ),
    outputs=(Register(5), Register(6), Register(7), Size(3), None, Register(0)),
)


def rows(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(batch, length, 4), torch.rand(batch, 2 * length) > 0.5


def one(op: str, *args: Any, results: Any = 1, values: Any = (), **kwargs: Any) -> HostProgram:
    """A program of one step on an f32 vector of length N."""
    step = Step(op, args, tuple(kwargs.items()), results)
    x = Input("x", "f32", (("N",),))
    return HostProgram((NamedSize("N", 0, 0),), (x,), (), values, (step,), (Register(1),))


@pytest.mark.parametrize(("batch", "length"), [(2, 1), (5, 3), (64, 7), (5, 3)])
def test_it_runs(batch: int, length: int) -> None:
    weights, (x, mask) = torch.randn(6, 4), rows(batch, length)
    top, full, total, size, nothing, given_back = ROWS.bind({"w": weights, "more": weights})(x, mask)
    wanted = torch.topk(torch.nn.functional.linear(x, weights).view(batch * length, 2, 3), 2, largest=False)[0]
    assert torch.equal(top, wanted + (length - 3) % 5)
    assert torch.equal(full, torch.full((batch, 1), float("inf"), dtype=torch.float64))
    assert (int(total), size, nothing) == (int(mask.sum()), length, None)
    assert given_back is x


def test_sizes_are_worked_out_for_each_call() -> None:
    bound, weights = ROWS.bind({"w": torch.eye(6, 4)}), torch.eye(6, 4)
    for length in (3, 9, 3, 4):
        x, mask = rows(3, length)
        product = torch.nn.functional.linear(x, weights).view(-1, 2, 3)
        assert torch.equal(bound(x, mask)[0], product.topk(2, largest=False)[0] + (length - 3) % 5)


def test_json_gives_the_program_back() -> None:
    text = ROWS.to_json()
    again = HostProgram.from_json(text)
    assert again == ROWS and again.to_json() == text and hash(again) == hash(ROWS)
    assert type(again.steps[2].kwargs[0][1]) is bool


def test_reading_a_program_needs_no_torch() -> None:
    code = "import sys; from attnc.runtime.host_program import HostProgram as H; H.from_json(sys.stdin.read())"
    code += "; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], input=ROWS.to_json(), capture_output=True, text=True)
    assert (found.stdout.strip(), found.returncode) == ("False", 0), found.stderr


def set_in(*path: Any) -> Callable[[Any], None]:
    """An edit: the last item of the path is put where the others lead."""
    *keys, last, value = path

    def edit(data: Any) -> None:
        for key in keys:
            data = data[key]
        data[last] = value

    return edit


EDITS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "version": (set_in("version", 7), "version 7, this build reads 1"),
    "no steps": (lambda data: data.pop("steps"), "no 'steps'"),
    "steps no list": (set_in("steps", 3), "not iterable"),
    "step no object": (set_in("steps", 1, 3), "step 1"),
    "register unknown": (
        set_in("steps", 1, "args", 0, {"register": 11}),
        "step 1, aten.view.default: register 11 is read",
    ),
    "register freed": (set_in("steps", 3, "args", 0, {"register": 2}), "register 2 is read before .* or after"),
    "register twice": (set_in("steps", 1, "results", 2), "register 2 is written a second time"),
    "input freed": (set_in("steps", 5, "frees", [1]), "frees register 1"),
    "freed twice": (set_in("steps", 4, "frees", [2]), "frees register 2"),
    "register no number": (set_in("steps", 1, "results", "r2"), "register r2"),
    "constant unknown": (set_in("steps", 0, "args", 1, {"constant": "v"}), "step 0.*no constant is named 'v'"),
    "value unknown": (set_in("steps", 3, "args", 1, {"size": 9}), "step 3.*there is no value 9"),
    "argument unknown": (set_in("steps", 0, "args", 1, {"tensor": "v"}), "step 0.*no argument"),
    "argument with two keys": (set_in("steps", 0, "args", 1, {"register": 0, "size": 0}), "step 0.*no argument"),
    "output unknown": (set_in("outputs", 0, {"register": 20}), "the outputs: register 20"),
    "operator no name": (set_in("steps", 0, "op", "os.system"), "step 0.*library.name.overload"),
    "operator with code": (set_in("steps", 0, "op", "aten.add.Tensor\nimport os"), "library.name.overload"),
    "keyword with code": (set_in("steps", 2, "kwargs", [["a=1, b", 1]]), "no keyword: 'a=1, b'"),
    "keyword reserved": (set_in("steps", 2, "kwargs", [["from", 1]]), "no keyword: 'from'"),
    "operation unknown": (set_in("values", 0, ["B", "S", ".exec"]), "value 0: no operation .exec"),
    "operand missing": (set_in("values", 0, ["B", ".mul"]), "value 0: .mul lacks an operand"),
    "two numbers left": (set_in("values", 0, ["B", "S"]), "value 0.*leaves 2 numbers"),
    "nothing left": (set_in("values", 0, []), "value 0.*leaves 0 numbers"),
    "size unknown": (set_in("values", 0, ["T"]), "value 0: no size 'T'"),
    "token no number": (set_in("values", 0, [None]), "value 0: no size None"),
    "register of a size": (set_in("values", 0, ["#5"]), "step 1.*register 5 is read"),
    "size named by code": (set_in("sizes", 0, "name", "B; x"), "a size is named 'B; x'"),
    "size from nowhere": (set_in("sizes", 0, "dim", 3), "size B is read from dimension 3 of input 0"),
    "size twice": (set_in("sizes", 0, "name", "S"), "two sizes are named S"),
    "bounds no numbers": (set_in("sizes", 0, "lo", "2"), "size B has no bounds"),
    "shape unknown": (set_in("inputs", 0, "shape", 0, ["T"]), "input x: no size 'T'"),
    "shape of a register": (set_in("inputs", 0, "shape", 0, ["#1"]), "input x: its shape reads a register"),
    "dtype no text": (set_in("inputs", 0, "dtype", 3), "x has no dtype"),
    "constant without shape": (set_in("constants", 0, "shape", [6, -4]), "constant w has no shape"),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_malformed_text_is_refused(name: str) -> None:
    edit, message = EDITS[name]
    data = json.loads(ROWS.to_json())
    edit(data)
    with pytest.raises(ValueError, match=message):
        HostProgram.from_json(json.dumps(data))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '{"version": 1}'])
def test_a_text_that_is_no_program_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="malformed host program"):
        HostProgram.from_json(text)


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(1, 9), st.integers(-9, -1))
def test_size_programs_are_python_integers(a: int, b: int, up: int, down: int) -> None:
    names = {"A": a, "B": b}
    cases = {
        ("A", up, ".floordiv", "B", down, ".mod", ".sub"): a // up - b % down,
        ("A", down, ".floordiv", up, ".mod"): a // down % up,
        ("A", "B", ".max", 0, ".min", ".neg"): -min(max(a, b), 0),
        ("A", "B", ".lt", "A", "B", ".ite"): a if a < b else b,
        ("A", 2, ".pow", "B", ".abs", ".mul"): a * a * abs(b),
        ("A", up, ".truediv", ".ceil", "A", up, ".truediv", ".int", ".add"): -(-a // up) + int(a / up),
    }
    assert {program: evaluate(program, names) for program in cases} == cases


@settings(max_examples=20)
@given(st.integers(1, 9), st.integers(0, 9))
def test_numbers_that_steps_leave(length: int, ones: int) -> None:
    """The number of non-zero elements is known only while the program runs; arithmetic on it is done there."""
    steps = (
        Step("aten.nonzero.default", (Register(0),), (), 1),
        Step("aten.sym_size.int", (Register(1), 0), (), 2, (1,)),
        Step("aten.sum.default", (Register(0),), (), 3),
        Step("aten.item.default", (Register(3),), (), 4, (3,)),
        Step("aten.full.default", ((Size(0),), Size(1)), (), 5, (2, 4)),
    )
    values = (("#2", "N", ".add", -2, ".floordiv", ".neg"), ("#4", 0.5, ".mul"))
    program = HostProgram(
        (NamedSize("N", 0, 0),), (Input("x", "f32", (("N",),)),), (), values, steps, (Register(5), Register(5))
    )
    x = (torch.arange(length) < ones).float()
    found = min(ones, length)
    wanted = torch.full((-((found + length) // -2),), found * 0.5)
    assert torch.equal(HostProgram.from_json(program.to_json()).bind({})(x)[0], wanted)


BAD_INPUTS: dict[str, tuple[Callable[[Any, Any], tuple[Any, ...]], str]] = {
    "too few": (lambda x, mask: (x,), r"takes 2 inputs \(x, mask\), not 1"),
    "too many": (lambda x, mask: (x, mask, mask), "takes 2 inputs .* not 3"),
    "dtype": (lambda x, mask: (x.double(), mask), "input x is a tensor of f64, the program takes f32"),
    "dtype of the second": (lambda x, mask: (x, mask.long()), "input mask is a tensor of i64, the program takes b1"),
    "rank": (lambda x, mask: (x[0], mask), "input x has 2 dimensions, the program takes 3"),
    "fixed size": (lambda x, mask: (x[..., :3], mask), "input x: dimension 2 is 3, not 4"),
    "sizes disagree": (
        lambda x, mask: (x, mask[:, 1:]),
        r"input mask: dimension 1 is 9, not 10 \(S = 5 from input x: dimension 1\)",
    ),
    "too small": (
        lambda x, mask: (x[:1], mask[:1]),
        r"input x: dimension 0 is 1; the program was made for 2 to 64 \(B\)",
    ),
    "too large": (lambda x, mask: (x.repeat(40, 1, 1), mask.repeat(40, 1)), "dimension 0 is 120; .* 2 to 64"),
    "open bound": (lambda x, mask: (x[:, :0], mask[:, :0]), r"dimension 1 is 0; .* at least 1 \(S\)"),
    "no tensor": (lambda x, mask: (x, mask.tolist()), "input mask is a list, the program takes a tensor of b1"),
}


@pytest.mark.parametrize("name", BAD_INPUTS)
def test_a_wrong_input_is_named(name: str) -> None:
    spoil, message = BAD_INPUTS[name]
    bound, (x, mask) = ROWS.bind({"w": torch.randn(6, 4)}), rows(3, 5)
    bound(x, mask)  # the shapes are known from here on
    with pytest.raises(ValueError, match=message):
        bound(*spoil(x, mask))
    bound(x, mask)


def test_numbers_as_inputs() -> None:
    inputs = (
        Input("x", "f32", (("N", 1, ".add"),)),
        Input("n", "int", (("N",),)),
        Input("by", "float"),
        Input("o", "any"),
    )
    step = Step("aten.mul.Scalar", (Register(0), Size(0)), (), 4)
    program = HostProgram((NamedSize("N", 1, 0, -1, 9),), inputs, (), (("#2", "N", ".mul"),), (step,), (Register(4),))
    bound, x = program.bind({}), torch.randn(4)
    assert torch.equal(bound(x, 3, 0.5, object())[0], x * 1.5)
    assert torch.equal(bound(x, 3, 0.25, None)[0], x * 0.75)
    for bad, message in (
        ((x, 4, 0.5, None), r"input x: dimension 0 is 4, not 5 \(N = 4 from input n\)"),
        ((x, True, 0.5, None), "input n is a bool, the program takes int"),
        ((x, 3, 1, None), "input by is a int, the program takes float"),
        ((x, 10, 0.5, None), r"input n is 10; the program was made for -1 to 9 \(N\)"),
    ):
        with pytest.raises(ValueError, match=message):
            bound(*bad)


def test_operators_come_from_a_short_list() -> None:
    with pytest.raises(ValueError, match=r"may not call profiler\._record_function_enter\.default"):
        one("profiler._record_function_enter.default", "a").bind({})
    with pytest.raises(ValueError, match=r"may not call aten\.from_file\.default"):
        one("aten.from_file.default", "secret").bind({})
    steps = tuple(
        Step(f"{op}.default", (Register(0),)) for op in ("aten.relu", "aten.nope", "attnc.nothing", "os.path")
    )
    program = HostProgram((), (Input("x", "f32", ()),), (), (), steps[:3], ())
    with pytest.raises(ValueError, match=r"has no operator aten\.nope\.default, attnc\.nothing\.default\. It may"):
        program.bind({})
    with pytest.raises(ValueError, match=r"may not call os\.path\.default$"):
        HostProgram((), (Input("x", "f32", ()),), (), (), steps, ()).bind({})


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("dtype", "f99", "no dtype named f99"),
        ("dtype", "nn", "no dtype named nn"),
        ("device", "gpu9", "gpu9"),
        ("layout", "float32", "no layout named float32"),
        ("memory_format", "load", "no memory_format named load"),
    ],
)
def test_literals_are_looked_at(kind: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        one("aten._to_copy.default", Register(0), dtype=Literal(kind, text)).bind({})


def test_wrong_constants_are_all_named() -> None:
    with pytest.raises(ValueError, match="w is missing"):
        ROWS.bind({})
    program = HostProgram(
        (), (), (ConstantInfo("a", "f32", (2,)), ConstantInfo("b", "i64", ())), (), (), (Constant("a"),)
    )
    with pytest.raises(ValueError, match=r"a is f32\[3\], not f32\[2\]; b is f16\[\], not i64\[\]"):
        program.bind({"a": torch.ones(3), "b": torch.ones((), dtype=torch.float16)})


def test_writes_last() -> None:
    """``copy_`` to a constant and to an input, and a view of the constant that is read afterwards."""
    steps = (
        Step("aten.select.int", (Constant("state"), 0, 1), (), 1),
        Step("aten.add.Tensor", (Constant("state"), Register(0)), (), 2),
        Step("aten.copy_.default", (Constant("state"), Register(2)), (), 3, (2,)),
        Step("aten.copy_.default", (Register(0), Register(3)), (), None, (3,)),
    )
    program = HostProgram(
        (), (Input("x", "f32", ((3,),)),), (ConstantInfo("state", "f32", (3,)),), (), steps, (Register(1),)
    )
    state = torch.nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
    bound, x = program.bind({"state": state}), torch.ones(3)
    (seen,) = bound(x)
    assert state.tolist() == x.tolist() == [2.0, 3.0, 4.0] and float(seen) == 3.0 and not seen.requires_grad
    bound(x)
    assert state.tolist() == x.tolist() == [4.0, 6.0, 8.0] and float(seen) == 6.0


class Alive(TorchDispatchMode):
    """How many results of earlier operators are alive when each operator starts."""

    def __init__(self) -> None:
        super().__init__()
        self.results: list[weakref.ref[torch.Tensor]] = []
        self.counts: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts.append(sum(result() is not None for result in self.results))
        out = func(*args, **(kwargs or {}))
        self.results += [weakref.ref(out)]
        return out


@pytest.mark.parametrize(("frees", "counts"), [(True, [0, 1, 1, 1, 1]), (False, [0, 1, 2, 3, 4])])
def test_what_is_freed_is_gone_before_the_next_step(frees: bool, counts: list[int]) -> None:
    steps = tuple(
        Step("aten.exp.default", (Register(i),), (), i + 1, (i,) if frees and i else ()) for i in range(len(counts))
    )
    program = HostProgram((), (Input("x", "f32", ((2,),)),), (), (), steps, (Register(len(counts)),))
    bound, mode, x = program.bind({}), Alive(), torch.zeros(2)
    with mode:
        bound(x)
    assert mode.counts == counts


def test_an_error_says_which_step() -> None:
    steps = (
        Step("aten.topk.default", (Register(0), 1), (), (1, 2)),
        Step("aten.view.default", (Register(1), (3, 7)), (), 3, (1, 2)),
    )
    program = HostProgram((), (Input("x", "f32", ((4,),)),), (), (), steps, (Register(3),))
    with pytest.raises(RuntimeError, match="shape") as raised:
        program.bind({})(torch.zeros(4))
    assert raised.value.__notes__ == ["in step 1 of a host program: aten.view.default"]
