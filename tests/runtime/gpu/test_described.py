"""A kernel whose keys and values come by tensor descriptors: compiled, packaged, read back and launched."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_fakes import Fake
from test_compiled import ptx_sizes

from attnc.codegen.targets import capability
from attnc.codegen.triton.emitter import emit, launch, plan_tuning
from attnc.compiler.machine.build import compile_kernel
from attnc.compiler.machine.package import package
from attnc.compiler.machine.plans import variant_attention
from attnc.compiler.machine.report import analyse
from attnc.compiler.machine.select import Selected
from attnc.compiler.machine.variants import VARIANTS
from attnc.compiler.planning.plan import plan_attention
from attnc.runtime.gpu import launch as gpu
from attnc.runtime.gpu.arguments import TensorDescriptor, Value, layout
from attnc.runtime.gpu.binary import Packaged, read
from attnc.runtime.gpu.record import Parameter

pytestmark = pytest.mark.slow

HEADS, KEYS, ROW = 2, 69, 72
LENGTHS = {"q_len": 50, "k_len": KEYS, "n_b": 3, "n_h": HEADS, "n_g": 2}


@pytest.fixture(scope="module")
def selected() -> Selected:
    target = capability("sm_90")
    plan = plan_attention(variant_attention(VARIANTS["gqa"], "sm_90", 64, torch.bfloat16).op, "sm_90")
    source, how = emit(plan), launch(plan, described=True)
    binary = compile_kernel(source.text, how, target)
    return Selected(plan, source, how, plan_tuning(plan), binary, analyse(binary, target), ())


@pytest.fixture
def packaged(selected: Selected, tmp_path: Path) -> Packaged:
    package(selected, "gqa_sm_90", tmp_path)
    return read(tmp_path, "gqa_sm_90")


def described(parameter: Parameter, row: int = ROW) -> TensorDescriptor:
    """[3, HEADS, KEYS, 64] of bf16, its heads within rows that are ``row`` elements of a head apart."""
    base = torch.zeros(3 * KEYS * HEADS * row, dtype=torch.bfloat16)
    strides = (KEYS * HEADS * row, row, HEADS * row, 1)
    return TensorDescriptor(base, (3, HEADS, KEYS, 64), strides, parameter.tile)


def values(found: Packaged, row: int = ROW) -> list[Any]:
    """Of one launch: strides of 16, but for those of features."""

    def value(parameter: Parameter) -> Value:
        if parameter.is_descriptor:
            return described(parameter, row)
        if parameter.is_pointer:
            return torch.zeros(16, dtype=torch.float32 if parameter.element == "fp32" else torch.bfloat16)
        return 1 if parameter.assumed == "one" else LENGTHS.get(parameter.name, 16)

    return [value(parameter) for parameter in found.record.parameters]


def no_jit(source: str, grid: tuple[int, ...], values: Sequence[Value]) -> None:
    raise AssertionError("the machine code was to be used")


def test_what_is_packed_is_what_the_machine_code_reads(selected: Selected, packaged: Packaged) -> None:
    assert ptx_sizes(selected.binary.assembly) == list(layout(packaged.record).sizes)
    assert [p.name for p in packaged.record.parameters if p.is_descriptor] == ["K", "V"]
    assert packaged.record.descriptors == selected.binary.descriptors


def test_a_launch_encodes_a_tensor_map_of_keys_and_one_of_values(packaged: Packaged, cuda: Fake) -> None:
    record, code, source = packaged
    given = values(packaged)
    cuda.expect(code, layout(record).sizes)
    gpu.launch(record, code, source, (6,), given, no_jit, cuda.on_cpu())
    maps = [call for call in cuda.calls() if call[0] == "cuTensorMapEncodeTiled"]
    assert [call[3] for call in maps] == [str(v.base.data_ptr()) for v in given if isinstance(v, TensorDescriptor)]
    for call in maps:
        assert call[1:3] == ["9", "4"]  # bf16, rank
        assert call[4:7] == [
            struct.pack("<4Q", 64, KEYS, HEADS, 3).hex(),
            struct.pack("<3Q", 2 * HEADS * ROW, 2 * ROW, 2 * KEYS * HEADS * ROW).hex(),
            struct.pack("<4I", 64, record.parameters[1].tile[-2], 1, 1).hex(),
        ]
        assert call[8:] == ["0", "3", "2", "0"]  # not interleaved, swizzle of 128 bytes, promotion, zeros outside
    assert cuda.calls()[-1][0] == "cuLaunchKernel"


def test_other_rows_are_left_to_triton(packaged: Packaged, cuda: Fake) -> None:
    record, code, source = packaged
    asked: list[str] = []
    with pytest.warns(RuntimeWarning, match="K has strides .* all but the last must be multiples of 16 bytes"):
        gpu.launch(record, code, source, (6,), values(packaged, 68), lambda s, g, v: asked.append(s), cuda.on_cpu())
    assert asked == [source]
