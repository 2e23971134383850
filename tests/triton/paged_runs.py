"""Kernels of paged attention in the interpreter's process, beside torch's answer in float64 on what pages hold."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from attnc.codegen.paged_plan import PagedPlan
from attnc.codegen.triton.paged import emit_paged
from attnc.runtime.abi import DTYPES
from benchmarks.policy import Verdict, judge
from tests.runtime.paged_samples import Case, Pools, Requests, Step, arguments, expected
from tests.triton.versions import PINNED
from tests.triton.worker import POISONED, interpreted

TARGET = "triton-interpret"
Forced = tuple[tuple[int, int, int], int]
"""A tiling (rows, warps, stages) and how many splits are cut."""


def for_interpreter(plan: PagedPlan) -> PagedPlan:
    """The same plan, for Triton's interpreter."""
    return dataclasses.replace(plan, attention=dataclasses.replace(plan.attention, target=TARGET))


def attend(
    text: str, requests: Requests, pools: Pools, step: Step, forced: Forced | None = None, version: str = PINNED
) -> Tensor:
    """The emitted module's result for one step, whose keys are written: ``[T, heads, group, e]``."""
    a, case = arguments(requests, pools, step), requests.case
    out = interpreted(version).run(
        text + POISONED, "poisoned", a.q, pools.k_pages, pools.v_pages, pools.k_scale, pools.v_scale, a.table, a.start,
        a.context, requests.sides, [], forced,
    )  # fmt: skip
    return out.reshape(a.q.shape[-2], case.heads, case.group, case.value_dim)


def verdict(
    text: str,
    plan: PagedPlan,
    requests: Requests,
    pools: Pools,
    step: Step,
    forced: Forced | None = None,
    version: str = PINNED,
) -> Verdict:
    """One step judged by the numerics policy."""
    exact = expected(requests, pools, step, plan, torch.float64)
    eager = expected(requests, pools, step, plan, torch.float32).to(DTYPES[requests.case.dtype])
    assert exact.isfinite().all()
    return judge(attend(text, requests, pools, step, forced, version), eager, exact)


def check(case: Case, lengths: tuple[int, ...] = (1, 60, 530), version: str = PINNED) -> None:
    """Prefill, a chunk and single tokens of requests over shuffled pages, with tiles of both heights.

    Raises AssertionError where a step is out of bounds.
    """
    plan = for_interpreter(case.plan())
    text = emit_paged(plan).text
    requests = Requests(case, lengths)
    pools = Pools.of(requests)
    for n, length in enumerate(lengths):
        pools.write(requests, n, 0, length)
    for step, forced in steps(case, lengths, plan.split):
        found = verdict(text, plan, requests, pools, step, forced, version)
        assert found.passed, f"{case}, {step}, {forced}: {found}"


def steps(case: Case, lengths: tuple[int, ...], split: int) -> list[tuple[Step, Forced | None]]:
    """Steps, with what is forced in them: one token each, cut into splits; a mix of single tokens and chunks."""
    last, cut = len(lengths) - 1, ((16, 4, 1), -(-max(lengths) // split))
    if case.cross:
        ragged = [(n, length, min(length, 1 + 20 * (n % 2))) for n, length in enumerate(lengths)]
        return [(ragged, None), ([(last, lengths[last], 1)], cut)]
    single = [(n, length - 1, 1) for n, length in enumerate(lengths)]
    mixed = [(n, max(0, length - 30), min(30, length)) if n % 2 else single[n] for n, length in enumerate(lengths)]
    return [(single, cut), (mixed, None)]
