"""On a GPU an attention is a user's Triton kernel to AOTAutograd and Inductor, shown on tensors without data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import triton
from torch import Tensor
from torch._functorch import config as functorch
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails
from torch._functorch.aot_autograd import aot_module_simplified
from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_functional
from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code
from torch._library.triton import triton_ops_to_kernels
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from attnc.codegen.targets import capability
from attnc.codegen.triton.emitter import launch
from attnc.compiler.machine.build import compile_kernel
from attnc.compiler.machine.plans import variant_attention
from attnc.compiler.machine.variants import VARIANTS
from attnc.runtime import inlined, kernels
from attnc.runtime.ops import attention
from attnc.runtime.triton_kernels import module_of


class Hopper:
    """As much of Triton's driver as naming the target takes: the mutation analysis asks for it."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(triton.runtime.driver, "_active", Hopper())
    monkeypatch.setattr(triton.runtime.driver, "_default", Hopper())
    yield
    kernel_side_table.reset_table()


def plan_of(variant: str, target: str) -> int:
    plan: int = variant_attention(VARIANTS[variant], target, 64, torch.bfloat16).op.meta["plan"]
    return plan


def forward(plan: int) -> Callable[..., Any]:
    def run(q: Tensor, k: Tensor, v: Tensor, *side: Tensor) -> tuple[Tensor]:
        out, _ = attention(q * 2, k, v, list(side), plan, [])
        return (out + 1,)

    return run


def functional(plan: int, *shapes: tuple[int, ...], dynamic: bool = False, device: str = "cuda") -> torch.fx.Graph:
    """The graph that AOTAutograd hands to Inductor."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    sizes = [DimDynamic.DUCK, DimDynamic.STATIC, DimDynamic.DUCK, DimDynamic.STATIC]
    context = StatelessSymbolicContext(dynamic_sizes=sizes)
    found: list[torch.fx.GraphModule] = []

    def keep(module: torch.fx.GraphModule, inputs: Any) -> Any:
        found.append(module)
        return lambda *args: None

    whole = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in shapes]
    with mode, torch.no_grad():
        made = [mode.from_tensor(x, symbolic_context=context) if dynamic else x for x in whole]
        args = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device) for x in made]
        module = torch.fx.experimental.proxy_tensor.make_fx(forward(plan), tracing_mode="real")(*args)
        aot_module_simplified(module, args, keep)
    return found[0].graph


def the_launch(graph: torch.fx.Graph) -> torch.fx.Node:
    assert not [node for node in graph.nodes if node.target is attention]
    (node,) = [node for node in graph.nodes if node.target is triton_kernel_wrapper_functional]
    return node


def test_the_op_becomes_a_launch_that_writes_its_results_only() -> None:
    plan = plan_of("causal", "sm_90")
    node = the_launch(functional(plan, (2, 4, 100, 64), (2, 4, 100, 64), (2, 4, 100, 64)))
    source = kernels.triton_source(plan)
    assert source is not None
    kernel = kernel_side_table.get_kernel(node.kwargs["kernel_idx"])
    assert getattr(kernel, "fn", kernel).__name__ == module_of(source).prefill.__name__
    assert node.kwargs["tensors_to_clone"] == ["Out"]
    (rows,) = {grid[0] for grid in node.kwargs["grid"]}
    assert rows == 2 * 4 * -(-100 // module_of(source).BLOCK_M.value)


def test_lengths_stay_symbols() -> None:
    shape = (3, 4, 100, 64)
    node = the_launch(functional(plan_of("causal", "sm_90"), shape, shape, shape, dynamic=True))
    ((programs, *_),) = node.kwargs["grid"]
    assert isinstance(programs, torch.fx.Node)
    assert len(programs.meta["val"].node.expr.free_symbols) == 2  # batch and length
    assert isinstance(node.kwargs["kwargs"]["q_len"], torch.fx.Node)


def test_what_runs_elsewhere_stays_an_op() -> None:
    shape = (2, 4, 100, 64)
    graph = functional(plan_of("causal", "cpu"), shape, shape, shape, device="cpu")
    assert [node.target for node in graph.nodes].count(attention) == 1


def test_a_saved_program_holds_no_kernel() -> None:
    shape = (2, 4, 100, 64)
    with functorch.patch(decompose_custom_triton_ops=False):  # as torch.export does
        graph = functional(plan_of("causal", "sm_90"), shape, shape, shape)
    assert [node.target for node in graph.nodes].count(attention) == 1


def test_the_cache_knows_a_graph_by_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(triton_ops_to_kernels, "attnc::attention", [])
    plan = plan_of("window", "sm_90")
    graph = torch.fx.Graph()
    graph.output(graph.call_function(attention, tuple(graph.placeholder(n) for n in "qkv")))
    module = torch.fx.GraphModule({}, graph)

    def known() -> list[str]:
        details = AOTAutogradCacheDetails.__new__(AOTAutogradCacheDetails)
        return details.get_triton_source_codes_from_gm(module)

    assert known() == []
    inlined.announce(plan)
    inlined.announce(plan)
    (text,) = known()
    assert "def prefill(" in text and "def seen(" in text


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["causal", "sinks"])
def test_inductors_copy_of_a_kernel_is_whole(variant: str) -> None:
    """Inductor copies the functions and constants a kernel uses into a file of its own: that text compiles."""
    plan = kernels.resolve(plan_of(variant, "sm_90"))
    source = kernels.triton_source(plan.digest)
    assert source is not None
    copied = user_defined_triton_kernel_transitive_closure_source_code(module_of(source).prefill)
    text = f"import triton\nimport triton.language as tl\n\n\n@triton.jit\n{copied}"
    binary = compile_kernel(text, launch(plan), capability("sm_90"))
    assert binary.code
