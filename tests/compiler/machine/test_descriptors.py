"""Machine code of emitted kernels whose keys and values come by tensor descriptors."""

from __future__ import annotations

import pytest
import torch

from attnc.codegen.plan import KernelPlan
from attnc.codegen.targets import capability
from attnc.codegen.triton.emitter import emit, launch
from attnc.compiler.machine.build import Binary, compile_kernel
from attnc.compiler.machine.plans import variant_attention
from attnc.compiler.machine.report import analyse
from attnc.compiler.machine.variants import VARIANTS
from attnc.compiler.planning.plan import plan_attention
from attnc.runtime.gpu.record import Box

pytestmark = pytest.mark.slow


def plan(target: str, variant: str, head_dim: int) -> KernelPlan:
    attention = variant_attention(VARIANTS[variant], target, head_dim, torch.bfloat16)
    return plan_attention(attention.op, target)


def compiled(of: KernelPlan, described: bool) -> Binary:
    return compile_kernel(emit(of).text, launch(of, described), capability(of.target))


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("target", ["sm_90", "sm_100"])
def test_tiles_are_copied_by_descriptor_alone(target: str, head_dim: int) -> None:
    """It passes every gate, takes no more registers than pointers do, and copies nothing in any other way."""
    of = plan(target, "causal", head_dim)
    pointers, descriptors = compiled(of, False), compiled(of, True)
    found, other = (analyse(binary, capability(target)) for binary in (descriptors, pointers))
    assert found.gates == other.gates == ()
    assert found.loads["UTMALDG"] > 0 and not any(load.startswith("LDGSTS") for load in found.loads)
    assert other.loads["LDGSTS.128"] > 0 and "UTMALDG" not in other.loads
    assert found.registers <= other.registers
    assert found.tensor_core == other.tensor_core
    columns = 64 if of.dtypes[1] == "bf16" else 32
    assert descriptors.descriptors == (Box((*[1] * (len(of.k_axes) - 2), of.block_n, columns), 3),) * 2
    assert pointers.descriptors == ()


@pytest.mark.parametrize("variant", ["window", "gqa", "mqa", "dense-mask", "cross"])
def test_every_kind_compiles(variant: str) -> None:
    of = plan("sm_90", variant, 128)
    assert not analyse(compiled(of, True), capability("sm_90")).gates
