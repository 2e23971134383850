"""Kernels of paged attention: numbers against float64 on what pages hold, bits against other batches, refusals."""

from __future__ import annotations

import dataclasses
import itertools
import random

import pytest
import torch
from paged_samples import KINDS, Case, Pools, Requests, Step, attend, expected, out_dtype
from torch import Tensor

from attnc.codegen.cpp.paged import emit_paged
from attnc.codegen.paged_plan import PagedPlan
from attnc.runtime import paged
from benchmarks.policy import judge


def build(case: Case, level: str = "-O1") -> tuple[PagedPlan, int]:
    """The plan with its kernel, compiled at ``level`` where only the numbers matter."""
    plan = case.plan()
    source = emit_paged(plan)
    flags = tuple(level if flag == "-O3" else flag for flag in source.flags)
    return plan, paged.register_paged(plan, dataclasses.replace(source, flags=flags))


def check(requests: Requests, pools: Pools, step: Step, plan: PagedPlan, digest: int) -> None:
    """One step within the numerics policy, with one thread and with several."""
    exact = expected(requests, pools, step, plan, torch.float64)
    eager = expected(requests, pools, step, plan, torch.float32).to(out_dtype(requests.case))
    assert exact.isfinite().all()
    for threads in (1, 3):
        with_threads(threads)
        verdict = judge(attend(requests, pools, step, digest), eager, exact)
        assert verdict.passed, f"{requests.case}, {step}: {verdict}"


def with_threads(count: int) -> None:
    torch.set_num_threads(count)


@pytest.fixture(autouse=True)
def threads_as_before() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def run(case: Case, lengths: tuple[int, ...] = (1, 70, 300, 1100), level: str = "-O1") -> None:
    """Prefill, chunks and single tokens, each request's keys written just before; cross attention over all of them."""
    plan, digest = build(case, level)
    requests = Requests(case, lengths)
    pools = Pools.of(requests)
    if case.cross:
        for n, length in enumerate(lengths):
            pools.write(requests, n, 0, length)
        check(
            requests,
            pools,
            [(n, length, min(length, 1 + 40 * (n % 2))) for n, length in enumerate(lengths)],
            plan,
            digest,
        )
        return
    for part in (0.0, 0.6), (0.6, 0.98), (0.98, 1.0):
        bounds = [(round(n * part[0]), round(n * part[1])) for n in lengths]
        step = [(n, begin, end - begin) for n, (begin, end) in enumerate(bounds) if end > begin]
        for n, context, new in step:
            pools.write(requests, n, context, context + new)
        check(requests, pools, step, plan, digest)
    last = [(n, length - 1, 1) for n, length in enumerate(lengths)]
    check(requests, pools, last, plan, digest)


COVERING = [
    Case("global and local", group=3, head_dim=64, value_dim=40, k_store="i8", v_store="i4", page_size=16),
    Case("alibi", dtype="bf16", k_store="bf16", v_store="f8e4m3", head_dim=39, value_dim=23, page_size=128),
    Case("sinks", heads=1, group=9, dtype="f16", k_store="i4", v_store="f16", head_dim=80, value_dim=96, page_size=64),
]


@pytest.mark.parametrize("case", COVERING, ids=str)
def test_numbers(case: Case) -> None:
    run(case, (1, 60, 530))


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [16, 32, 64, 128])
@pytest.mark.parametrize("store", ["f32", "bf16", "f16", "i8", "f8e4m3", "i4"])
def test_numbers_of_every_kind(store: str, page_size: int) -> None:
    dtype = store if store in ("bf16", "f16") else "f32"
    for kind, group in itertools.product(KINDS, (1, 4)):
        run(Case(kind, group=group, dtype=dtype, k_store=store, v_store=store, page_size=page_size))


@pytest.mark.slow
@pytest.mark.parametrize("dims", [(40, 40), (64, 64), (80, 96), (96, 80), (256, 256), (7, 5), (63, 127), (192, 128)])
@pytest.mark.parametrize("store", ["f32", "i8", "i4"])
def test_numbers_of_head_dimensions(store: str, dims: tuple[int, int]) -> None:
    for kind in ("causal", "softcap"):
        run(Case(kind, group=2, head_dim=dims[0], value_dim=dims[1], k_store=store, v_store=store))
    run(Case(cross=True, head_dim=dims[0], value_dim=dims[1], k_store=store, v_store=store))


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [1, 7, 48, 200])
def test_numbers_of_odd_pages(page_size: int) -> None:
    run(Case("window", group=2, page_size=page_size))


# -- bits


def bits(x: Tensor) -> Tensor:
    return x.view(torch.int16 if x.element_size() == 2 else torch.int32)


def compare_mixes(case: Case, mixes: int, level: str = "-O3") -> None:
    """Every row of random mixes (requests, chunks, order, threads) has the bits it has in one whole prefill."""
    _, digest = build(case, level)
    lengths = (3, 40, 130, 700, 1100)
    requests = Requests(case, lengths, scale=1.5)
    pools = Pools.of(requests)
    for n, length in enumerate(lengths):
        pools.write(requests, n, 0, length)
    with_threads(1)
    whole = [bits(attend(requests, pools, [(n, 0, length)], digest)) for n, length in enumerate(lengths)]
    rng = random.Random(7)
    for _ in range(mixes):
        step = []
        for n in rng.sample(range(len(lengths)), rng.randint(1, len(lengths))):
            context = rng.randrange(lengths[n])
            new = rng.choice([1, 1, 2, 5, 16, 33, 100, 700])
            step.append((n, context, min(new, lengths[n] - context)))
        with_threads(rng.choice([1, 2, 4]))
        wanted = torch.cat([whole[n][context : context + new] for n, context, new in step])
        got = bits(attend(requests, pools, step, digest))
        differ = (got != wanted).flatten(1).any(1).nonzero().flatten().tolist()
        assert not differ, f"rows {differ[:8]} of {step}"


def test_bits_do_not_depend_on_the_batch() -> None:
    compare_mixes(Case("window", group=3), 12, "-O1")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("group", [1, 4, 20])
@pytest.mark.parametrize("kind", ["causal", "window", "global and local", "alibi", "sinks", "chunked"])
def test_bits_of_every_kind(kind: str, group: int, dtype: str) -> None:
    compare_mixes(Case(kind, group=group, dtype=dtype, k_store=dtype, v_store=dtype, head_dim=72, value_dim=56), 50)


@pytest.mark.slow
@pytest.mark.parametrize("store", ["i8", "f8e4m3", "i4"])
def test_bits_of_quantised_pages(store: str) -> None:
    compare_mixes(Case("window", group=2, k_store=store, v_store=store), 50)


def test_later_keys_do_not_reach_a_row() -> None:
    """Infinite and NaN values of a request's later tokens, in the same block, strip and vector."""
    case = Case("window", group=3)
    _, digest = build(case)
    requests = Requests(case, (140,))
    pools = Pools.of(requests)
    pools.write(requests, 0, 0, 140)
    alone = attend(requests, pools, [(0, 0, 133)], digest)
    requests.v[0][133:], requests.k[0][134:] = float("inf"), float("nan")
    pools.write(requests, 0, 133, 140)
    assert torch.equal(bits(attend(requests, pools, [(0, 0, 140)], digest)[:133]), bits(alone))
    assert alone.isfinite().all()


# -- traps


def test_shared_pages_and_dropped_pages() -> None:
    """Two requests with the same pages; behind the window table entries are 0 and page 0 is poisoned."""
    case = Case("window", group=3)
    _, digest = build(case)
    requests = Requests(case, (200, 200))
    requests.k[1][:96], requests.v[1][:96] = requests.k[0][:96], requests.v[0][:96]
    pools = Pools.of(requests)
    for n in (0, 1):
        pools.write(requests, n, 0, 200)
    step = [(0, 190, 10), (1, 199, 1), (1, 60, 40)]
    apart = attend(requests, pools, step, digest)
    pools.tables[1, :3] = pools.tables[0, :3]
    assert torch.equal(attend(requests, pools, step, digest), apart)
    step, apart = step[:2], apart[:11]
    pools.tables[:, :3] = 0
    assert torch.equal(attend(requests, pools, step, digest), apart)


def test_operands_that_do_not_fit() -> None:
    case = Case("window", group=3)
    _, digest = build(case)
    requests = Requests(case, (40, 8))
    pools = Pools.of(requests)
    for n in (0, 1):
        pools.write(requests, n, 0, requests.lengths[n])
    step = [(0, 30, 10), (1, 0, 8)]
    attend(requests, pools, step, digest)
    wrong = pools.tables.clone()
    wrong[0, 0] = 1000
    for broken, reason in (
        (dataclasses.replace(pools, k_pages=pools.k_pages.half()), "k pages: not f32"),
        (dataclasses.replace(pools, v_pages=pools.v_pages[:, :1]), "v pages: not f32"),
        (dataclasses.replace(pools, k_scale=torch.zeros(9, 2, 32)), "scales: absent where"),
        (dataclasses.replace(pools, tables=pools.tables.long()), "block table"),
        (dataclasses.replace(pools, tables=pools.tables[:, :1]), "block table"),
        (dataclasses.replace(pools, tables=wrong), "names a page that is not there"),
    ):
        with pytest.raises(RuntimeError, match=reason):
            attend(requests, broken, step, digest)
    with pytest.raises(RuntimeError, match="context_len"):
        attend(requests, pools, [(0, -1, 10)], digest)
    requests.sides.append(torch.zeros(2))
    with pytest.raises(RuntimeError, match="side operands: expected 0"):
        attend(requests, pools, step, digest)


def test_a_batch_without_tokens() -> None:
    case = Case("window", group=3)
    _, digest = build(case)
    requests = Requests(case, (40,))
    pools = Pools.of(requests)
    assert attend(requests, pools, [(0, 30, 0)], digest).shape == (0, 2, 3, 40)
