"""Paged plans as data, and what the emitter writes of them."""

from __future__ import annotations

import dataclasses
import json

import pytest
from codegen_programs import K, Q, program
from codegen_reference import make_plan

from attnc.codegen.cpp.paged import emit_paged
from attnc.codegen.paged_plan import PagedPlan, page_width, scale_groups
from attnc.codegen.plan import KernelPlan


def attention(**changes: object) -> KernelPlan:
    made = make_plan(block_m=1, block_n=32)
    return dataclasses.replace(made, mask=program(K <= Q), dead_rows="none", returns_lse=False, **changes)  # type: ignore[arg-type]


def plan(**changes: object) -> PagedPlan:
    base = PagedPlan(attention(), "b", page_size=16, k_store="i8", v_store="bf16", split=512)
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def test_json_gives_the_same_plan() -> None:
    whole = dataclasses.replace(attention(), score=attention().visible)
    for p in (plan(), plan(causal=False, batch=None), plan(attention=whole, k_store="f8e4m3", v_store="i4")):
        again = PagedPlan.from_json(p.to_json())
        assert again == p
        assert again.digest == p.digest


def test_each_field_counts_in_the_digest() -> None:
    others = [
        plan(batch=None),
        plan(page_size=32),
        plan(k_store="f8e4m3"),
        plan(v_store="f16"),
        plan(split=1024),
        plan(causal=False),
        plan(attention=attention(softmax="plus_one")),
    ]
    digests = {plan().digest, *(p.digest for p in others)}
    assert len(digests) == len(others) + 1
    assert all(0 <= digest < 1 << 63 for digest in digests)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"page_size": 24}, "neither divides"),
        ({"page_size": 0}, "neither divides"),
        ({"split": 48}, "no multiple"),
        ({"k_store": "i2"}, "pages of i2"),
        ({"attention": make_plan(block_m=8, block_n=32)}, "segments of 8 rows"),
    ],
)
def test_plans_that_do_not_fit(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan(**change)


def test_other_texts_are_no_plans() -> None:
    data = json.loads(plan().to_json())
    for broken in (
        {**data, "version": 99},
        {k: v for k, v in data.items() if k != "split"},
        {**data, "more": 1},
        {**data, "attention": {}},
    ):
        with pytest.raises(ValueError, match="plan"):
            PagedPlan.from_json(json.dumps(broken))


def test_widths_and_scales() -> None:
    assert [page_width(s, 35) for s in ("f32", "i8", "i4")] == [35, 35, 18]
    assert [scale_groups(s, 35) for s in ("f32", "i8", "f8e4m3", "i4")] == [None, 0, 0, 2]


def test_the_source_says_what_it_is() -> None:
    p = plan()
    source = emit_paged(p)
    assert (source.plan, source.language) == (p.digest, "c++")
    assert "#include <attnc/paged_entry.h>" in source.text
    assert "typedef Int8 k_store;" in source.text
    assert "typedef Plain<bf16> v_store;" in source.text
    assert "static constexpr int64_t page_size = 16, split = 512;" in source.text
    assert f"plan: {p.attention.to_json()}" in source.text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"dead_rows": "as_written"}, "no second pass"),
        ({"returns_lse": True}, "no log-sum-exp"),
        ({"target": "sm_90"}, "kernels for CPUs"),
        ({"dtypes": ("f64", "f32", "f32", "f32")}, "no kernels for f64"),
    ],
)
def test_what_has_no_kernel(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        emit_paged(plan(attention=dataclasses.replace(attention(), **changes)))  # type: ignore[arg-type]
