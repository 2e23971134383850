"""Which of two forms of a kernel is taken, and what is said of the other."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, cast

import pytest
from machine_samples import binary

from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import capability
from attnc.codegen.triton.launch import Launch, Parameter
from attnc.codegen.triton.tuning import Tuning
from attnc.compiler.machine import select as module
from attnc.compiler.machine.build import CompileFailure
from attnc.compiler.machine.gates import Finding
from attnc.compiler.machine.occupancy import Occupancy
from attnc.compiler.machine.report import KernelReport
from attnc.compiler.machine.select import Selected, better, select
from attnc.ir.values import Op

TILES = (Tuning(128, 128, 8, 3), Tuning(128, 64, 8, 3))
REPORT = KernelReport(
    name="prefill", target="sm_90", registers=208, spills=0, stack=0, shared=131072, occupancy=Occupancy(1, "shared"),
    length=355, tensor_core=12, non_matrix_per_matrix=28.58, mufu=34, loads={}, mask_signature={}, gates=(),
)  # fmt: skip
SPILLS = Finding("spills", "8 bytes")


def done(described: bool = False, tile: Tuning = TILES[0], **figures: Any) -> Selected:
    kind = "tensordesc<bf16[64, 64]>" if described else "*bf16"
    how = Launch("prefill", (Parameter("K", kind),), {}, 8, 3)
    report = dataclasses.replace(REPORT, **figures)
    return Selected(cast(KernelPlan, None), cast(Source, None), how, tile, binary(), report, ())


@pytest.mark.parametrize(
    ("pointers", "descriptors", "by_descriptor"),
    [
        ({}, {"registers": 168}, True),
        ({}, {"registers": 168, "non_matrix_per_matrix": 28.0}, True),
        ({}, {}, False),
        ({}, {"registers": 200, "non_matrix_per_matrix": 28.59}, False),
        ({}, {"registers": 209, "non_matrix_per_matrix": 20.0}, False),
        ({}, {"registers": 168, "gates": (SPILLS,)}, False),
        ({"gates": (SPILLS,)}, {"registers": 255, "non_matrix_per_matrix": 40.0}, True),
        ({"gates": (SPILLS,)}, {"registers": 168, "gates": (SPILLS,)}, True),
        ({"gates": (SPILLS,)}, {"registers": 255, "gates": (SPILLS,)}, False),
    ],
)
def test_the_better_form(pointers: dict[str, Any], descriptors: dict[str, Any], by_descriptor: bool) -> None:
    assert better(done(**pointers), done(True, **descriptors)).launch.described is by_descriptor


def test_a_later_tile_is_better_for_its_gates_only() -> None:
    assert better(done(), done(tile=TILES[1], registers=100)).tuning == TILES[0]
    assert better(done(gates=(SPILLS, SPILLS)), done(tile=TILES[1], gates=(SPILLS,))).tuning == TILES[1]


Kernels = dict[tuple[int, bool], Selected | str]
"""What compiling a tile in a form gives, by the tile's keys; a text is a compiler's words."""


def chosen(monkeypatch: pytest.MonkeyPatch, kernels: Kernels, describable: bool = True) -> Selected:
    def compiled(plan: object, target: object, tuning: Tuning, described: bool) -> Selected:
        found = kernels.pop((tuning.block_n, described))
        if isinstance(found, str):
            raise CompileFailure("sm_90", found)
        return found

    monkeypatch.setattr(module, "candidates", lambda target, demand: TILES)
    monkeypatch.setattr(module, "op_demand", lambda op: None)
    monkeypatch.setattr(module, "plan_attention", lambda op, target, tile: None)
    monkeypatch.setattr(module, "describable", lambda plan: describable)
    monkeypatch.setattr(module, "_compiled", compiled)
    return select(cast(Op, None), capability("sm_90"))


def test_both_forms_of_the_first_good_tile_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other tile."""
    best = chosen(
        monkeypatch, {(128, False): done(), (128, True): done(True, registers=168, non_matrix_per_matrix=28.5)}
    )
    assert best.launch.described and best.report.registers == 168
    (other,) = best.discarded
    assert (other.tuning, other.described) == (TILES[0], False)
    assert other.reason == (
        "208 registers, 28.58 other instructions per product by pointers; "
        "168 registers, 28.5 other instructions per product by descriptors"
    )
    data = best.as_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["config"] == {"block_m": 128, "block_n": 128, "num_warps": 8, "num_stages": 3, "described": True}
    assert data["discarded"][0]["config"] == {**data["config"], "described": False}
    assert (data["discarded"][0]["registers"], data["discarded"][0]["gates"]) == (208, [])


def test_a_tile_that_shuts_a_gate_in_both_forms_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    best = chosen(
        monkeypatch,
        {
            (128, False): done(gates=(SPILLS,)),
            (128, True): "PassManager::run failed",
            (64, False): done(tile=TILES[1]),
            (64, True): done(True, TILES[1], registers=210),
        },
    )
    assert (best.tuning, best.launch.described) == (TILES[1], False)
    reasons = {(d.tuning.block_n, d.described): d.reason for d in best.discarded}
    assert reasons.pop((64, True)).startswith("210 registers")
    assert reasons == {(128, True): "PassManager::run failed", (128, False): "spills: 8 bytes"}


def test_a_plan_without_descriptors_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    best = chosen(monkeypatch, {(128, False): done()}, describable=False)
    assert best.discarded == ()


def test_nothing_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Kernels = {(n, form): f"{n} {form}" for n in (128, 64) for form in (False, True)}
    with pytest.raises(CompileFailure, match="sm_90: 128 False; 128 True; 64 False; 64 True"):
        chosen(monkeypatch, refused)
