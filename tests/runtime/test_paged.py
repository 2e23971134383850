"""The ops of paged attention without kernels: what is written, what it means, how plans are found."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from paged_samples import KINDS, Case, Pools, Requests, arguments, attend, empty_pages, expected, without_kernel
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from attnc.codegen.paged_plan import STORES
from attnc.codegen.source import Source
from attnc.runtime import paged, paged_reference, reference
from attnc.runtime.errors import PlanMissing
from attnc.runtime.kv.quantise import STORE_OF, decode

# -- writing


def stored(row: list[float], store: str) -> list[float]:
    """One token of one head as its page gives it back: by definition, number by number."""
    if store in ("i8", "f8e4m3"):
        scale = float(torch.tensor(max(map(abs, row))) / (127.0 if store == "i8" else 448.0))
        numbers = [torch.tensor(x) / scale if scale else torch.tensor(0.0) for x in row]
        kept = [float(n.round()) if store == "i8" else float(n.to(torch.float8_e4m3fn).float()) for n in numbers]
        return [float(torch.tensor(scale) * n) for n in kept]
    if store != "i4":
        return (
            torch.tensor(row).to({"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[store]).tolist()
        )
    given: list[float] = []
    for begin in range(0, len(row), 32):
        part = row[begin : begin + 32]
        scale = float((torch.tensor(max(part, key=abs)) / -8).half())
        given += [scale * min(7, max(-8, round(float(torch.tensor(x) / scale)))) if scale else 0.0 for x in part]
    return given


@pytest.mark.parametrize("features", [1, 35, 64])
@pytest.mark.parametrize("store", STORES)
def test_what_is_written_is_read_back(store: str, features: int) -> None:
    """Rows of zeros, of one outlier, and of mixed magnitudes; into scattered slots of a strided operand."""
    x = torch.randn(features, 2, 5, generator=torch.Generator().manual_seed(features)).permute(2, 1, 0) * 3
    x[1] = 0
    x[2, :, 0] = -900.0
    pages, scale = empty_pages(store, 4, 2, 8, features)
    assert STORE_OF[pages.dtype] == store
    slots = torch.tensor([31, 8, 9, 17, 0])
    paged.kv_write(x, pages, scale, slots)
    cells = pages.view(torch.uint8) if store == "f8e4m3" else pages
    for t, slot in enumerate(slots.tolist()):
        where = (slot // 8, slice(None), slot % 8)
        got = decode(cells[where].view(pages.dtype), None if scale is None else scale[where], features)
        torch.testing.assert_close(
            got, torch.tensor([stored(x[t, h].tolist(), store) for h in (0, 1)]), rtol=3e-7, atol=0
        )
    untouched = [s for s in range(32) if s not in slots.tolist()]
    assert not cells.transpose(1, 2).flatten(0, 1)[untouched].view(torch.uint8).any()


@pytest.mark.parametrize("store", STORES)
def test_no_rows_write_nothing(store: str) -> None:
    pages, scale = empty_pages(store, 2, 3, 4, 6)
    paged.kv_write(torch.randn(0, 3, 6), pages, scale, torch.zeros(0, dtype=torch.int64))
    assert not pages.float().any()


@pytest.mark.parametrize("store", ["i8", "f8e4m3", "i4"])
def test_a_nan_is_no_number_afterwards(store: str) -> None:
    pages, scale = empty_pages(store, 2, 1, 4, 32)
    x = torch.ones(1, 1, 32)
    x[0, 0, 3] = math.nan
    paged.kv_write(x, pages, scale, torch.tensor([5]))
    assert scale is not None
    assert decode(pages[1, :, 1], scale[1, :, 1], 32).isnan().any()


def test_writes_that_do_not_fit() -> None:
    pages, scale = empty_pages("i8", 2, 3, 4, 6)
    slots = torch.tensor([4])
    with pytest.raises(ValueError, match="i8 without scales"):
        paged.kv_write(torch.ones(1, 3, 6), pages, None, slots)
    with pytest.raises(ValueError, match="does not fit i8 pages"):
        paged.kv_write(torch.ones(1, 3, 5), pages, scale, slots)
    with pytest.raises(ValueError, match=r"pages of torch\.int16"):
        paged.kv_write(torch.ones(1, 3, 6), pages.to(torch.int16), None, slots)


# -- what it means


def dense(case: Case, requests: Requests, n: int) -> Tensor:
    """Request n as a whole sequence by the reference of ``attnc::attention``: [T, heads, group, e]."""
    plan = case.plan().attention
    q = requests.q[n].permute(1, 2, 0, 3)
    q = q if case.group > 1 else q.squeeze(1)
    k, v = requests.k[n].transpose(0, 1), requests.v[n]
    q, k, v = (x[None] if case.batch else x for x in (q, k, v))
    out, _ = reference.attention(plan, q, k, v, requests.sides, [], dtype=torch.float64)
    return out.reshape(-1, case.heads, case.group, case.value_dim)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "case", [Case(page_size=16), Case(group=3, batch=None, heads=1, value_dim=24)], ids=["mha", "gqa"]
)
def test_steps_give_what_whole_sequences_give(kind: str, case: Case) -> None:
    """Prefill, chunks and single tokens of three requests, over poisoned pages."""
    case = dataclasses.replace(case, kind=kind)
    plan, digest = without_kernel(case)
    requests = Requests(case, (1, 70, 131))
    pools = Pools.of(requests)
    whole = [dense(case, requests, n) for n in range(3)]
    for step in ([(2, 0, 100)], [(1, 0, 69), (2, 100, 30), (0, 0, 1)], [(2, 130, 1), (1, 69, 1)]):
        for n, context, new in step:
            pools.write(requests, n, context, context + new)
        wanted = torch.cat([whole[n][context : context + new] for n, context, new in step])
        got = expected(requests, pools, step, plan, torch.float64)
        torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(attend(requests, pools, step, digest).double(), wanted, rtol=2e-5, atol=2e-5)


def test_cross_attention_reads_what_is_cached() -> None:
    case = Case(cross=True, group=2)
    plan, _ = without_kernel(case)
    requests = Requests(case, (40, 33))
    pools = Pools.of(requests)
    for n, length in enumerate(requests.lengths):
        pools.write(requests, n, 0, length)
    got = expected(requests, pools, [(1, 33, 5), (0, 40, 1), (0, 0, 2)], plan, torch.float64)
    torch.testing.assert_close(got[:5], dense(case, requests, 1)[:5], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(got[5:6], dense(case, requests, 0)[:1], rtol=1e-12, atol=1e-12)
    assert not got[6:].any(), "no keys: zeros"


def test_two_requests_share_a_page_and_dropped_pages_are_not_read() -> None:
    case = Case("short window", page_size=16)
    _, digest = without_kernel(case)
    requests = Requests(case, (50, 50))
    requests.k[1][:32], requests.v[1][:32] = requests.k[0][:32], requests.v[0][:32]
    pools = Pools.of(requests)
    for n in (0, 1):
        pools.write(requests, n, 0, 50)
    step = [(0, 40, 10), (1, 49, 1)]
    apart = attend(requests, pools, step, digest)
    pools.tables[1, :2] = pools.tables[0, :2]
    assert torch.equal(attend(requests, pools, step, digest), apart)
    pools.tables[0, 0] = pools.tables[1, :2] = 0
    pools.poison(0)
    assert torch.equal(attend(requests, pools, step, digest), apart)


# -- tracing


def test_shapes_are_traced_for_any_number_of_tokens() -> None:
    case = Case(group=2, k_store="i4", v_store="i4", head_dim=35, value_dim=37)
    _, digest = without_kernel(case)
    requests = Requests(case, (20,))
    pools = Pools.of(requests)
    a = arguments(requests, pools, [(0, 0, 20)])

    def step(q: Tensor, x: Tensor, slots: Tensor, pages: Tensor, scale: Tensor, v: Tensor, v_scale: Tensor) -> Tensor:
        paged.kv_write(x, pages, scale, slots)
        return paged.paged_attention(q, pages, v, scale, v_scale, a.table, a.start, a.context, [], digest, [])

    graph = make_fx(step, tracing_mode="symbolic", _allow_non_fake_inputs=True)(
        a.q, requests.k[0], pools.slots(0, 0, 20), pools.k_pages, pools.k_scale, pools.v_pages, pools.v_scale
    )
    found = {str(node.target): node for node in graph.graph.nodes if node.op == "call_function"}
    assert "attnc.kv_write.default" in found
    shape = found["attnc.paged_attention.default"].meta["val"].shape
    assert (shape[0], shape[-1]) == (1, 37)
    assert isinstance(shape[1], torch.SymInt)


# -- plans


def test_a_plan_is_found_in_the_store() -> None:
    plan, digest = without_kernel(Case(page_size=8))
    paged._known.clear()
    assert paged.resolve_paged(digest) == plan
    assert paged.paged_kernel(digest) is None
    with pytest.raises(PlanMissing, match="plan 12345 is neither"):
        paged.resolve_paged(12345)


def test_a_source_of_another_plan_is_refused() -> None:
    plan = Case(page_size=8).plan()
    with pytest.raises(ValueError, match="its source is of plan 7"):
        paged.register_paged(plan, Source("c++", "x", "", plan=7))


def test_operands_that_do_not_fit() -> None:
    case = Case(k_store="i8")
    plan, digest = without_kernel(case)
    requests = Requests(case, (4,))
    pools = Pools.of(requests)
    for broken, reason in (
        (dataclasses.replace(pools, k_scale=None), "i8 pages without scales"),
        (dataclasses.replace(pools, v_pages=pools.v_pages.half()), "v_pages are torch.float16"),
        (dataclasses.replace(pools, v_scale=pools.k_scale), "f32 pages with scales"),
    ):
        with pytest.raises(ValueError, match=reason):
            attend(requests, broken, [(0, 0, 4)], digest)
    requests.sides.append(torch.zeros(2))
    with pytest.raises(ValueError, match="expects 0 side tensors"):
        attend(requests, pools, [(0, 0, 4)], digest)
    assert paged_reference.result_shape(plan, torch.zeros(1, 2, 4, 40), pools.v_pages) == [1, 4, 2, 40]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["causal", "window", "chunked", "alibi", "softcap", "sinks", "gqa", "mqa", "cross"])
def test_variants_as_modules_write_them(name: str) -> None:
    """The variants that GPUs' kernels are compiled for, found by the compiler, against eager on whole sequences."""
    from attnc.compiler.machine.plans import variant_attention
    from attnc.compiler.machine.variants import VARIANTS, Model
    from attnc.compiler.planning.paged import plan_paged

    variant = VARIANTS[name]
    model = Model(variant)
    op = variant_attention(variant, "cpu", 32, torch.float32).op
    q, k, v, *sides = variant.inputs(32, torch.float64, batch=1)
    spec = op.attrs["spec"]
    plan = plan_paged(op, batch=spec.q_axes[0], page_size=16, causal=not variant.cross)
    keys, pools = k.shape[2], []
    for x in (k, v):
        pages, _ = empty_pages("f32", keys // 16 + 2, variant.kv_heads, 16, 32)
        paged.kv_write(x[0].transpose(0, 1).float(), pages, None, torch.arange(keys) + 16)
        pools.append(pages)
    table = torch.arange(1, keys // 16 + 2, dtype=torch.int32)[None]
    lengths = dict(zip(spec.q_axes, (1, *_outer(spec, variant.kv_heads), 96, 32), strict=True))
    asked = q.reshape([lengths[a] for a in spec.q_axes])
    asked = asked.narrow(spec.q_axes.index("q"), 50, 46) if not variant.cross else asked
    start = torch.tensor([0, asked.shape[spec.q_axes.index("q")]], dtype=torch.int32)
    context = torch.tensor([keys if variant.cross else 50], dtype=torch.int32)
    got = paged_reference.paged_attention(
        plan, asked.double(), (pools[0], pools[1]), (None, None), table, start, context, sides, [], dtype=torch.float64
    )
    order = [a for a in spec.q_axes if a != "d"] + ["e"]
    got = got.permute([spec.out_axes.index(a) for a in order]).reshape(1, 4, -1, 32)
    wanted = model(q.float().double(), k.float().double(), v.float().double(), *sides)
    torch.testing.assert_close(got, wanted[:, :, -got.shape[2] :], rtol=1e-6, atol=1e-6)


def _outer(spec: object, kv_heads: int) -> tuple[int, ...]:
    """Lengths of the outer axes of q but for the batch: heads, or kv heads and groups."""
    count = len(spec.q_axes) - 3  # type: ignore[attr-defined]
    return (4,) if count == 1 else (kv_heads, 4 // kv_heads)
