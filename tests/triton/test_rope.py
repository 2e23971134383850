"""Rotations with a kernel: which get one, and whole programs that call it in the interpreter's process."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import attnc
import attnc.runtime.ops
from attnc.codegen.triton.rope import emit_rope
from attnc.compiler import api
from attnc.compiler.frontends.torch import import_graph
from attnc.compiler.host.lower_rope import RopeProgram
from attnc.compiler.host.rope_kernel import Rotations, rope_plan
from attnc.compiler.host.to_fx import export_graph
from attnc.compiler.interpreter import Interpreter
from attnc.compiler.passes.base import Context
from attnc.compiler.passes.clean_up import CleanUp
from attnc.compiler.passes.rotary import Rotary
from attnc.ir import parse_graph
from attnc.ir.values import Op
from attnc.models import llama
from attnc.runtime import config, rope
from attnc.runtime.errors import BuildError, PlanMissing
from attnc.runtime.rope import RopeKernel, register_rope, resolve_rope
from benchmarks.policy import Verdict, check, judge
from tests.triton.worker import interpreted

TARGET = "triton-interpret"
TEXT = """graph @rotated(%x: bf16[B, 4, S, 64], %p: i64[S], %w: f32[32]) sizes(B in [1, 8], S in [1, inf]) {
  %y: bf16[B, 4, S, 64] = attn.rope(%x, [%p], [%w]) {style = "half", rotary_dim = 64, attention_factor = 1.0, ROUNDED}
  return %y
}
""".replace("ROUNDED", "rounded = False")


def rotated(old: str = "", new: str = "") -> Op:
    """The ``attn.rope`` of the text, a part of which is replaced."""
    assert old in TEXT
    return parse_graph(TEXT.replace(old, new) if old else TEXT).ops[0]


# -- which rotations get a kernel


def test_the_plan_of_a_rotation() -> None:
    plan = rope_plan(rotated(), "sm_90")
    assert plan is not None
    assert (plan.target, plan.dtypes, plan.heads, plan.order) == ("sm_90", ("bf16", "bf16"), (0, 1), (0, 1, 2, 3))
    assert (plan.terms, plan.tables) == ((("i64", "f32"),), ())


def test_no_angle_depends_on_heads() -> None:
    for shape, heads in (("[B, 1, S]", (1,)), ("[B, 4, S]", ()), ("[1, 1, S]", (0, 1)), ("[4, 1]", (0, 2))):
        plan = rope_plan(rotated("i64[S]", f"i64{shape}"), "sm_90")
        assert plan is not None and plan.heads == heads


def test_a_result_in_another_order() -> None:
    kind = "%y: bf16[B, 4, S, 64]"
    plan = rope_plan(rotated(kind, f"{kind} strides(256*S, 64, 256, 1)"), "sm_90")
    assert plan is not None and plan.order == (0, 2, 1, 3)


OPERATORS: dict[str, tuple[str | None, str, str]] = {
    "a CPU": ("cpu", "", ""),
    "a CPU that is at hand": (None, "", ""),
    "a device no kernels are written for": (None, "64]", '64] on "xpu:0"'),
    "operands on two devices": ("sm_90", "f32[32]", 'f32[32] on "cuda:0"'),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_rotations_without_a_kernel(name: str) -> None:
    target, old, new = OPERATORS[name]
    assert rope_plan(rotated(old, new), target) is None


def test_training_keeps_the_operators() -> None:
    op = rotated()
    names: list[str] = []

    def emit(name: str, *args: Any, **kwargs: Any) -> str:
        names.append(name)
        return name

    Rotations(RopeProgram(), "sm_90", training=True).lower(op).build(emit, lambda value: value.name)  # type: ignore[arg-type]
    assert "addcmul.default" in names


# -- the op


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "_current", config.Config(cache_dir=tmp_path))
    monkeypatch.setattr(rope, "_known", {})
    monkeypatch.setattr(rope, "_loaded", {})
    return tmp_path


def registered(target: str = TARGET, order: tuple[int, ...] = (0, 2, 1, 3)) -> int:
    plan = rope_plan(rotated(), target)
    assert plan is not None
    plan = dataclasses.replace(plan, order=order, dtypes=("bf16", "f32"))
    return register_rope(RopeKernel(emit_rope(plan), target, "f32", order))


def test_a_fresh_process_finds_a_kernel_in_the_store(store: Path) -> None:
    digest = registered()
    kernel = resolve_rope(digest)
    rope._known.clear()
    assert resolve_rope(digest) == kernel and resolve_rope(digest) is not kernel
    rope._known.clear()
    (store / "v1" / "plans" / f"{digest}.json").unlink()
    with pytest.raises(PlanMissing, match="compile the model again"):
        resolve_rope(digest)


def test_shapes_are_known_before_it_runs(store: Path) -> None:
    digest = registered()
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = mode.from_tensor(torch.empty(2, 4, 7, 64, dtype=torch.bfloat16), static_shapes=False)
        position, frequency = torch.empty(7, dtype=torch.int64), torch.empty(32)
        out = torch.ops.attnc.rope.default(x, [position], [frequency], [], digest)
    assert out.dtype == torch.float32 and out.shape == (2, 4, 7, 64)
    assert [int(n) for n in out.stride()] == [7 * 256, 64, 256, 1]


def test_calls_that_cannot_run_are_refused(store: Path) -> None:
    operands = torch.zeros(2, 4, 7, 64, dtype=torch.bfloat16), [torch.arange(7)], [torch.ones(32)], []
    with pytest.raises(RuntimeError, match="x is on cpu, the plan was compiled for sm_90"):
        torch.ops.attnc.rope.default(*operands, registered("sm_90"))
    with pytest.raises(BuildError, match="with TRITON_INTERPRET=1"):
        torch.ops.attnc.rope.default(*operands, registered())


# -- programs, in the interpreter's process


def calls(module: torch.fx.GraphModule) -> int:
    return sum(node.target is torch.ops.attnc.rope.default for node in module.graph.nodes)


def spelled(name: str, folder: str) -> tuple[int, Verdict]:
    """Calls of the kernel in a spelling of the rotary pass's tests, and its result judged."""
    from tests.compiler.rotary.conftest import traced
    from tests.compiler.rotary.test_spellings import POSITIONS, SPELLINGS, B, D, H, S

    config.configure(config.Config(cache_dir=Path(folder)))
    torch.manual_seed(0)
    args = torch.randn(B, H, S, D), POSITIONS, SPELLINGS[name].frequencies
    graph = import_graph(traced(SPELLINGS[name].run, *args))
    (exact,) = Interpreter(graph, wide=True).run(args)
    context = Context()
    Rotary().run(graph, context)
    CleanUp().run(graph, context)
    module = export_graph(graph, Rotations(RopeProgram(), TARGET).lower)
    eager, ours = SPELLINGS[name].run(*args), module(*args)[0]
    assert ours.stride() == eager.stride()
    return calls(module), judge(ours, eager, exact)


SOON = ("half_split", "neighbours_joined")
LATER = (
    "complex_numbers", "first_half_of_the_features",
    "attention_factor", "a_class_token_with_angles_of_its_own", "rows_and_columns_after_a_class_token",
    "sections_written_into_a_stack", "neighbours_stored_apart", "turned_the_other_way", "conjugate_numbers",
    "first_quarter_of_the_features", "only_the_slow_frequencies", "positions_divided_by_a_factor",
)  # fmt: skip


@pytest.mark.parametrize("name", [*SOON, *(pytest.param(name, marks=pytest.mark.slow) for name in LATER)])
def test_spelling(name: str, tmp_path: Path) -> None:
    count, verdict = interpreted().call("tests.triton.test_rope:spelled", name, str(tmp_path))
    assert count >= 1
    assert verdict.passed, str(verdict)


def exported(folder: str) -> tuple[int, int, Verdict]:
    """A Llama with symbolic sizes, ahead of time: calls of the kernel, kernels in the report, its result judged."""
    model = llama.tiny().eval()
    shapes = {
        name: {0: torch.export.Dim("B", max=8), 1: torch.export.Dim("S", max=64)} for name in model.example_inputs()
    }
    options = {"target": TARGET, "cache_dir": folder}
    program = api.compile(model, kwargs=model.example_inputs(2, 16), dynamic_shapes=shapes, options=options)
    kernels = sum(name.startswith("rope_") for name in program.report.kernels)
    return calls(program.module), kernels, check(program, model, model.example_inputs(3, 37))


@pytest.mark.slow
def test_a_model_ahead_of_time(tmp_path: Path) -> None:
    found, kernels, verdict = interpreted().call("tests.triton.test_rope:exported", str(tmp_path))
    assert found == 2 * llama.TINY.layers and kernels >= 1
    assert verdict.passed, str(verdict)


def compiled(host: str, dtype: torch.dtype, folder: str) -> tuple[int, Verdict]:
    """A Llama through torch.compile: runs of the op in one call, and the result judged."""
    model = llama.tiny().eval().to(dtype)
    options = {"target": TARGET, "host": host, "cache_dir": folder}
    program = torch.compile(model, backend="attnc", options=options)
    inputs = model.example_inputs(2, 37)
    with torch.no_grad():
        program(**inputs)
        with torch.autograd.profiler.profile() as profile:
            program(**inputs)
    assert any(name.startswith("rope_") for name in attnc.reports()[-1].kernels)
    runs = sum(event.name == "attnc::rope" for event in profile.function_events)
    return runs, check(program, model, inputs)


RUNS = [("aten", torch.float32), ("inductor", torch.float32), ("inductor", torch.bfloat16)]


@pytest.mark.slow
@pytest.mark.parametrize(("host", "dtype"), RUNS, ids=str)
def test_a_model_when_it_is_called(host: str, dtype: torch.dtype, tmp_path: Path) -> None:
    runs, verdict = interpreted().call("tests.triton.test_rope:compiled", host, dtype, str(tmp_path))
    assert runs == 2 * llama.TINY.layers
    assert verdict.passed, str(verdict)


def trained(folder: str) -> tuple[int, float]:
    """Kernels of rotations in a graph with gradients, and how far its gradient is from eager's."""

    def turn(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
        angles = p[:, None] * f
        c, s = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()
        low, high = x.chunk(2, -1)
        return x * c + torch.cat((-high, low), -1) * s

    x, position, frequency = torch.randn(2, 3, 7, 16, requires_grad=True), torch.arange(7.0), torch.rand(8)
    program = torch.compile(turn, backend="attnc", options={"target": TARGET, "host": "aten", "cache_dir": folder})
    found, wanted = (torch.autograd.grad(f(x, position, frequency).cos().sum(), x)[0] for f in (program, turn))
    kernels = sum(name.startswith("rope_") for name in attnc.reports()[-1].kernels)
    assert len(attnc.reports()[-1].ropes) == 1
    return kernels, (found - wanted).abs().max().item()


def test_gradients_go_through_operators(tmp_path: Path) -> None:
    kernels, error = interpreted().call("tests.triton.test_rope:trained", str(tmp_path))
    assert kernels == 0 and error < 1e-5
