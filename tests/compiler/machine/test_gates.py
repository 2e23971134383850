from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from machine_samples import binary

from attnc.codegen.targets import capability
from attnc.compiler.machine.gates import GATES, judge
from attnc.compiler.machine.mix import Mix

MIX = Mix(289, 8, {"wait": 2}, {"LDGSTS.128": 4, "LDS.32": 7}, {})


def mix(**changes: Any) -> Mix:
    return dataclasses.replace(MIX, **changes)


def shut(kernel: dict[str, Any], loop: Mix = MIX, target: str = "sm_90") -> dict[str, str]:
    return {finding.gate: finding.reason for finding in judge(binary(**kernel), loop, capability(target))}


def test_good_code_passes_everywhere() -> None:
    for target in ("sm_80", "sm_90", "sm_100", "gfx942"):
        assert shut({"shared": 32768}, target=target) == {}


def test_spills_are_told_apart_by_place() -> None:
    assert shut({"spill_stores": 8, "spill_loads": 12}) == {
        "spills": "8 bytes of a thread stored and 12 loaded, none of it in the main loop"
    }
    inside = shut({"spill_loads": 12, "stack": 16}, mix(kinds={"local": 5}))
    assert inside == {
        "spills": "0 bytes of a thread stored and 12 loaded, 5 instructions of the main loop",
        "stack": "16 bytes of a thread",
    }


@pytest.mark.parametrize(
    ("gate", "fits", "target"),
    [
        ("shared", {"shared": 227 << 10}, "sm_90"),
        ("shared", {"shared": 99 << 10}, "sm_120"),
        ("shared", {"shared": 64 << 10}, "gfx942"),
        ("tensor_memory", {"tensor_memory": 512}, "sm_100"),
        ("registers", {"registers": 128, "threads": 512}, "sm_90"),
        ("registers", {"registers": 512, "threads": 256}, "gfx942"),
    ],
)
def test_what_just_fits(gate: str, fits: dict[str, int], target: str) -> None:
    field = next(iter(fits))
    assert shut({"shared": 0} | fits, target=target) == {}
    assert list(shut({"shared": 0} | fits | {field: fits[field] + 1}, target=target)) == [gate]


def test_a_loop_without_products() -> None:
    assert shut({}, mix(matrix=0)) == {"matrix": "no HGMMA or QGMMA among 289 instructions of the main loop"}


@pytest.mark.parametrize("loads", [{"LDGSTS.64": 4}, {"LDG.128": 4, "LDS.128": 4}, {}])
def test_narrow_loads(loads: dict[str, int]) -> None:
    assert list(shut({}, mix(loads=loads))) == ["loads"]
    assert shut({}, mix(loads=loads), "gfx942") == {}
    assert shut({}, mix(loads=loads | {"UTMALDG": 2})) == {}


def test_products_that_wait_for_each_other() -> None:
    waits = mix(kinds={"wait": 8})
    assert shut({}, waits) == {"serialised": "8 waits for 8 matrix instructions in the main loop"}
    assert shut({}, mix(kinds={"wait": 7})) == {}
    assert shut({}, waits, "gfx942") == {}  # s_waitcnt is for memory
    assert shut({"warnings": ("C7511 serialised", "C7515 too")}) == {"serialised": "C7511 serialised; C7515 too"}


def test_every_gate_has_a_sentence() -> None:
    assert all(gate.__doc__ for gate in GATES.values())


def test_other_targets_have_no_gates() -> None:
    with pytest.raises(ValueError, match="cpu"):
        judge(binary(), MIX, capability("cpu"))
