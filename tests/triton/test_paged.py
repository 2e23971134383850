"""Kernels of paged attention in Triton's interpreter: numbers against float64, bits, batches, refusals."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest
import torch
from torch import Tensor

from attnc.codegen.cpp.paged import emit_paged as emit_cpp
from attnc.codegen.triton.paged import emit_paged, launch_paged, plan_tilings
from attnc.compiler.machine.build import check_arguments
from attnc.compiler.planning.paged import plan_paged
from attnc.runtime import config, paged
from attnc.runtime.errors import BuildError
from benchmarks.policy import judge
from tests.runtime import paged_samples
from tests.runtime.paged_samples import Case, Pools, Requests, Step, expected
from tests.triton.paged_runs import Forced, attend, check, for_interpreter, verdict
from tests.triton.versions import PINNED
from tests.triton.worker import WorkerError, interpreted

LENGTHS = (1, 37, 530)
COVERING = [
    Case("global and local", group=3, head_dim=64, k_store="i8", v_store="i4", page_size=16),
    Case("sinks", heads=1, group=9, dtype="f16", k_store="i4", v_store="i8", head_dim=80, value_dim=96, page_size=64),
    Case("window", heads=1, group=2, dtype="f16", k_store="f8e4m3", v_store="f16", head_dim=128, value_dim=40),
    Case("alibi", heads=1, dtype="bf16", k_store="bf16", v_store="f8e4m3", head_dim=39, value_dim=23, page_size=128),
    Case("softcap", heads=1, dtype="bf16", k_store="i8", v_store="bf16", batch=None, page_size=64),
    Case(heads=1, cross=True, group=2, k_store="bf16", v_store="f32", page_size=16),
    Case(head_dim=64, value_dim=64, page_size=16),
]
LATER = [pytest.param(case, marks=pytest.mark.slow) for case in COVERING[4:]]


@pytest.mark.parametrize("case", [*COVERING[:4], *LATER], ids=str)
def test_numbers(case: Case) -> None:
    check(case, LENGTHS, PINNED)


@pytest.mark.parametrize(
    "case", [COVERING[0], *(pytest.param(c, marks=pytest.mark.slow) for c in COVERING[1:])], ids=str
)
def test_the_same_plan_in_both_languages(case: Case) -> None:
    """One plan as C++ and as Triton: both within the policy, and as near to each other as that says."""
    plan = case.plan()
    source = emit_cpp(plan)
    flags = tuple("-O1" if flag == "-O3" else flag for flag in source.flags)
    digest = paged.register_paged(plan, dataclasses.replace(source, flags=flags))
    requests = Requests(case, LENGTHS)
    pools = written(requests)
    step = [(n, length if case.cross else length - 1, 1) for n, length in enumerate(LENGTHS)]
    exact = expected(requests, pools, step, plan, torch.float64)
    eager = expected(requests, pools, step, plan, torch.float32).to(paged_samples.out_dtype(case))
    native = paged_samples.attend(requests, pools, step, digest)
    ours = attend(emit_paged(for_interpreter(plan)).text, requests, pools, step)
    for result in (native, ours):
        assert (found := judge(result, eager, exact)).passed, str(found)
    assert judge(ours, eager, native.double()).ours <= 2 * judge(native, eager, exact).bound


def written(requests: Requests) -> Pools:
    """Pages that hold every key of the requests."""
    pools = Pools.of(requests)
    for n, length in enumerate(requests.lengths):
        pools.write(requests, n, 0, length)
    return pools


def text_of(case: Case) -> str:
    return emit_paged(for_interpreter(case.plan())).text


# -- bits


def bits(x: Tensor) -> Tensor:
    return x.view(torch.int16 if x.element_size() == 2 else torch.int32)


FEW: tuple[int, int, int] = (16, 4, 1)
"""Tiles of 16 rows."""


def compare_mixes(case: Case, mixes: int, lengths: tuple[int, ...] = (3, 130, 1100)) -> None:
    """Rows have the same bits in random mixes as alone, whether their keys are cut into splits or not.

    Chunks are the same: numpy's products, unlike those of GPUs, differ with a row's place in a tile.
    """
    text, requests, chance = text_of(case), Requests(case, lengths, scale=1.5), random.Random(0)
    pools, splits = written(requests), -(-max(lengths) // case.plan().split)
    assert splits > 1
    for _ in range(mixes):
        step = [(n, begin := chance.randrange(length), chance.randint(1, min(4, length - begin)))
                for n, length in enumerate(lengths)]  # fmt: skip
        chance.shuffle(step)
        together = [bits(attend(text, requests, pools, step, (FEW, cut))) for cut in (0, splits)]
        alone = [bits(attend(text, requests, pools, [one], (FEW, chance.choice((0, splits))))) for one in step]
        assert torch.equal(together[0], torch.cat(alone)) and torch.equal(together[0], together[1]), step


def test_bits_do_not_depend_on_the_batch() -> None:
    compare_mixes(Case("window", heads=1, group=3), 1, (3, 600))


@pytest.mark.slow
@pytest.mark.parametrize("store", ["f32", "bf16", "i8", "i4"])
@pytest.mark.parametrize("kind", ["causal", "global and local", "alibi", "sinks"])
def test_bits_of_every_kind(kind: str, store: str) -> None:
    dtype = "bf16" if store == "bf16" else "f32"
    compare_mixes(Case(kind, group=2, dtype=dtype, k_store=store, v_store=store, head_dim=72, value_dim=56), 3)


# -- batches


def test_requests_of_every_size() -> None:
    """Many requests in one step: none, one, a few and many new tokens, in tiles of both heights."""
    case = Case("short window", heads=1, group=3, page_size=16)
    plan = for_interpreter(case.plan())
    chance = random.Random(1)
    requests = Requests(case, tuple(chance.randint(1, 60) for _ in range(9)))
    pools, text = written(requests), emit_paged(plan).text
    step: Step = [(n, length - new, new) for n, length in enumerate(requests.lengths)
                  for new in [min(length, chance.choice((0, 0, 1, 1, 2, 7, 40)))]]  # fmt: skip
    assert {0, 1} < {new for _, _, new in step}
    forced: list[Forced] = [(FEW, 0), ((64, 4, 1), 0)]
    for shape in forced:
        found = verdict(text, plan, requests, pools, step, shape)
        assert found.passed, f"{step}, {shape}: {found}"


def test_a_batch_without_tokens() -> None:
    case = Case("window", group=3)
    requests = Requests(case, (40,))
    assert attend(text_of(case), requests, written(requests), [(0, 30, 0)]).shape == (0, 2, 3, 40)


def test_a_request_without_keys() -> None:
    """Cross attention to an encoder that gave nothing: rows that see no key are 0."""
    case = Case(cross=True)
    requests = Requests(case, (5, 40))
    out = attend(text_of(case), requests, written(requests), [(0, 0, 3), (1, 40, 2)])
    assert bool((out[:3] == 0).all()) and bool((out[3:] != 0).all())


def test_shared_pages_and_dropped_pages() -> None:
    """Two requests with the same pages; behind the window table entries are 0, and page 0 is poisoned."""
    case = Case("window", group=3)
    text, requests = text_of(case), Requests(case, (200, 200))
    requests.k[1][:96], requests.v[1][:96] = requests.k[0][:96], requests.v[0][:96]
    pools, step = written(requests), [(0, 190, 10), (1, 199, 1)]
    apart = attend(text, requests, pools, step)
    pools.tables[1, :3] = pools.tables[0, :3]
    assert torch.equal(attend(text, requests, pools, step), apart)
    pools.tables[:, :3] = 0
    assert torch.equal(attend(text, requests, pools, step), apart)
    pools.tables[:, 3] = 0  # one that is seen: its keys are zeros, and that shows
    assert not torch.equal(attend(text, requests, pools, step), apart)


# -- the op


def through_the_op(folder: str) -> tuple[Tensor, Tensor]:
    """In the interpreter's process: a step by ``attnc::paged_attention`` and by the emitted module itself."""
    config.configure(config.Config(cache_dir=Path(folder)))
    case = COVERING[2]
    plan = for_interpreter(case.plan())
    digest = paged.register_paged(plan, emit_paged(plan))
    paged._known.clear()  # as a later process finds it
    requests = Requests(case, LENGTHS)
    pools, step = written(requests), [(n, length - 1, 1) for n, length in enumerate(LENGTHS)]
    exact = expected(requests, pools, step, plan, torch.float64)
    return paged_samples.attend(requests, pools, step, digest), exact


def test_the_op_launches_the_kernel(tmp_path: Path) -> None:
    found, exact = interpreted().call("tests.triton.test_paged:through_the_op", str(tmp_path))
    assert (found.double() - exact).abs().max() < 4 * torch.finfo(torch.float16).eps


def test_the_op_where_the_kernel_cannot_run() -> None:
    case = Case(head_dim=64, value_dim=64)
    requests = Requests(case, (20,))
    pools, plan = written(requests), for_interpreter(case.plan())
    with pytest.raises(BuildError, match="with TRITON_INTERPRET=1"):
        paged_samples.attend(requests, pools, [(0, 19, 1)], paged.register_paged(plan, emit_paged(plan)))
    plan = plan_paged(case.op(), batch="b", page_size=32, target="sm_90")
    with pytest.raises(RuntimeError, match="q is on cpu, the plan was compiled for sm_90"):
        paged_samples.attend(requests, pools, [(0, 19, 1)], paged.register_paged(plan, emit_paged(plan)))


# -- refusals


def test_operands_that_do_not_fit() -> None:
    case = Case("alibi", group=3, k_store="i8")
    text, requests = text_of(case), Requests(case, (40, 8))
    pools, step = written(requests), [(0, 30, 10), (1, 0, 8)]
    attend(text, requests, pools, step)
    assert pools.k_scale is not None
    broken = {
        "k pages are": dataclasses.replace(pools, k_pages=pools.k_pages.half()),
        "v pages are": dataclasses.replace(pools, v_pages=pools.v_pages[:, :1]),
        "v scales are": dataclasses.replace(pools, v_scale=pools.k_scale),
        "k scales are None": dataclasses.replace(pools, k_scale=None),
        "block_table, query_start": dataclasses.replace(pools, tables=pools.tables.long()),
    }
    for reason, given in broken.items():
        with pytest.raises(WorkerError, match=f"ValueError: .*{reason}"):
            attend(text, requests, given, step)
    requests.sides[0] = requests.sides[0][:1]
    with pytest.raises(WorkerError, match=r"ValueError: .*shorter than axis h"):
        attend(text, requests, pools, step)
    requests.sides.append(torch.zeros(2))
    with pytest.raises(WorkerError, match=r"ValueError: .*expected 1 side operands"):
        attend(text, requests, pools, step)


def test_plans_that_have_no_kernel() -> None:
    case = Case("window")
    plan = plan_paged(case.op(), batch="b", page_size=48, target="triton-interpret")
    assert plan.attention.block_n == 16
    with pytest.raises(ValueError, match="blocks of 1 keys for pages of 7"):
        emit_paged(plan_paged(case.op(), batch="b", page_size=7, target="triton-interpret"))
    with pytest.raises(ValueError, match="f8e4m3 on sm_80"):
        plan_paged(case.op(), batch="b", v_store="f8e4m3", target="sm_80")
    with pytest.raises(ValueError, match="cpu has no Triton kernels"):
        emit_paged(case.plan())
    unknown = dataclasses.replace(plan.attention, head_dim=None)
    with pytest.raises(ValueError, match="head dimensions that are known"):
        emit_paged(dataclasses.replace(plan, attention=unknown))


@pytest.mark.parametrize("case", COVERING, ids=str)
def test_signature(case: Case) -> None:
    plan = plan_paged(
        case.op(), batch=case.batch, page_size=case.page_size, k_store=case.k_store, v_store=case.v_store,
        causal=not case.cross, target="sm_90",
    )  # fmt: skip
    for tiling in plan_tilings(plan):
        for kernel in ("paged", "merge"):
            check_arguments(emit_paged(plan).text, launch_paged(plan, tiling, kernel))
