"""Attentions in the text form of the IR, their paged plans, and random batches of requests over shuffled pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnc.codegen.paged_plan import PagedPlan
from attnc.compiler.planning.paged import plan_paged
from attnc.ir import parse_graph
from attnc.ir.values import Op
from attnc.runtime import paged, paged_reference
from attnc.runtime.abi import DTYPES
from attnc.runtime.kv.specs import StreamSpec
from attnc.runtime.kv.storage import StreamPages

DTYPE_OF = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class Kind:
    """What is asked of an attention: formulas, and shapes of float side operands by axis names or numbers."""

    mask: str = "k <= q"
    visible: str = "qk * 0.125"
    sides: tuple[tuple[str | int, ...], ...] = ()
    softmax: str = "plain f32"
    sink: str | None = None
    weight: str | None = None


KINDS = {
    "causal": Kind(),
    "window": Kind("(k <= q) & (k - q > -70)"),
    "short window": Kind("(k <= q) & (k - q > -9)"),
    "chunked": Kind("(k <= q) & (k // 50 == q // 50)"),
    "dilated": Kind("(k <= q) & ((q - k) % 3 == 0)"),
    "global and local": Kind("(k <= q) & ((k < 4) | (k - q > -33))"),
    "alibi": Kind(visible="qk * 0.125 + t0[h] * f32(k - q)", sides=(("h",),)),
    "softcap": Kind(visible="tanh(qk * 0.125 / 5.0) * 5.0"),
    "relative table": Kind(visible="qk * 0.125 + t0[h, min(q - k, 60) * where(k <= q, 1, 0)]", sides=(("h", 61),)),
    "sinks": Kind(softmax="sink f32", sink="t0[h]", sides=(("h",),)),
    "plus one": Kind(softmax="plus_one f32"),
    "weight": Kind(weight="t0[h]", sides=(("h",),)),
}


@dataclass(frozen=True)
class Case:
    """An attention over pages."""

    kind: str = "causal"
    heads: int = 2
    group: int = 1
    head_dim: int = 40
    value_dim: int = 40
    dtype: str = "f32"
    k_store: str = "f32"
    v_store: str = "f32"
    page_size: int = 32
    cross: bool = False
    batch: str | None = "b"

    def op(self) -> Op:
        """The ``attn.attention`` of whole sequences."""
        kind = KINDS[self.kind]
        b, length = ("b, ", "B, ") if self.batch else ("", "")
        g, groups = ("g, ", f"{self.group}, ") if self.group > 1 else ("", "")
        keys = "T" if self.cross else "S"
        mask = "True" if self.cross else kind.mask
        score = kind.visible if self.cross else f"where({mask}, {kind.visible}, -inf)"
        shapes = [", ".join(str(self.heads if n == "h" else n) for n in side) for side in kind.sides]
        entries = [
            f"q = [{b}h, {g}q, d], k = [{b}h, k, d], v = [{b}k, h, e], out = [{b}q, h, {g}e]",
            "qk = f32",
            f"score = {score}",
            f"visible = {kind.visible}",
            f"mask = {mask}",
            "fill = minus_inf",
            *([f"weight = {kind.weight}"] if kind.weight else []),
            f"softmax = {kind.softmax}",
            *([f"sink = {kind.sink}"] if kind.sink else []),
            f"out_dtype = {self.dtype}",
        ]
        text = f"""graph @g(
            %q: {self.dtype}[{length}{self.heads}, {groups}S, {self.head_dim}],
            %k: {self.dtype}[{length}{self.heads}, {keys}, {self.head_dim}],
            %v: {self.dtype}[{length}{keys}, {self.heads}, {self.value_dim}]
            {"".join(f", %t{i}: f32[{shape}]" for i, shape in enumerate(shapes))}
          ) sizes(B in [1, 64], S in [1, inf], T in [1, inf]) {{
          %o: {self.dtype}[{length}S, {self.heads}, {groups}{self.value_dim}] = attn.attention(%q, %k, %v,
            [{", ".join(f"%t{i}" for i in range(len(shapes)))}], []) {{
            {chr(10).join(entries)}
          }}
          return %o
        }}"""
        return next(op for op in parse_graph(text).ops if op.name == "attn.attention")

    def plan(self) -> PagedPlan:
        return plan_paged(
            self.op(),
            batch=self.batch,
            page_size=self.page_size,
            k_store=self.k_store,
            v_store=self.v_store,
            causal=not self.cross,
        )


@dataclass
class Requests:
    """Keys and values of some requests, of which any part can be cached and the rest be new."""

    case: Case
    lengths: tuple[int, ...]
    seed: int = 0
    scale: float = 1.0
    q: list[Tensor] = field(init=False)
    k: list[Tensor] = field(init=False)
    v: list[Tensor] = field(init=False)
    sides: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        case, generator = self.case, torch.Generator().manual_seed(self.seed)
        dtype = DTYPE_OF[case.dtype]

        def random(*shape: int) -> Tensor:
            return (torch.randn(*shape, generator=generator) * self.scale).to(dtype)

        self.q = [random(n, case.heads, case.group, case.head_dim) for n in self.lengths]
        self.k = [random(n, case.heads, case.head_dim) for n in self.lengths]
        self.v = [random(n, case.heads, case.value_dim) for n in self.lengths]
        shapes = KINDS[case.kind].sides
        self.sides = [torch.randn([case.heads if n == "h" else int(n) for n in s], generator=generator) for s in shapes]


@dataclass
class Pools:
    """Pages of K and V, poisoned, and which pages each request has: shuffled, never the null page."""

    case: Case
    tables: Tensor
    k_pages: Tensor
    k_scale: Tensor | None
    v_pages: Tensor
    v_scale: Tensor | None

    @staticmethod
    def of(requests: Requests, spare: int = 3, seed: int = 1) -> Pools:
        case = requests.case
        counts = [-(-n // case.page_size) for n in requests.lengths]
        width, total = max([*counts, 1]), sum(counts) + spare + 1
        ids = torch.randperm(total - 1, generator=torch.Generator().manual_seed(seed)) + 1
        tables, used = torch.zeros(len(counts), width + 1, dtype=torch.int32), 0
        for n, count in enumerate(counts):
            tables[n, :count] = ids[used : used + count].int()
            used += count
        made = [
            empty_pages(store, total, case.heads, case.page_size, features)
            for store, features in ((case.k_store, case.head_dim), (case.v_store, case.value_dim))
        ]
        pools = Pools(case, tables, made[0][0], made[0][1], made[1][0], made[1][1])
        pools.poison(slice(None))
        return pools

    def poison(self, pages: object) -> None:
        """NaN in these pages, or extreme codes with NaN as their scales."""
        for x in (self.k_pages, self.v_pages):
            cells = x.view(torch.uint8) if x.dtype is torch.float8_e4m3fn else x
            cells[pages] = float("nan") if x.dtype.is_floating_point and cells is x else 0x7F
        for scale in (self.k_scale, self.v_scale):
            if scale is not None:
                scale[pages] = float("nan")

    def slots(self, n: int, begin: int, end: int) -> Tensor:
        positions = torch.arange(begin, end)
        page = self.tables[n, positions // self.case.page_size].long()
        return page * self.case.page_size + positions % self.case.page_size

    def write(self, requests: Requests, n: int, begin: int, end: int) -> None:
        """Keys ``begin`` to ``end`` of request n, by the op."""
        slots = self.slots(n, begin, end)
        paged.kv_write(requests.k[n][begin:end], self.k_pages, self.k_scale, slots)
        paged.kv_write(requests.v[n][begin:end], self.v_pages, self.v_scale, slots)


Step = Sequence[tuple[int, int, int]]
"""(request, context, new tokens) of each request of a step."""


@dataclass(frozen=True)
class Arguments:
    """What a step hands to the op, but for plan, sides and sizes."""

    q: Tensor
    table: Tensor
    start: Tensor
    context: Tensor


def arguments(requests: Requests, pools: Pools, step: Step) -> Arguments:
    case = requests.case
    rows = [requests.q[n][0 if case.cross else c :][:new] for n, c, new in step]
    q = torch.cat(rows).permute(1, 2, 0, 3)  # [heads, group, T, d]
    q = q if case.group > 1 else q.squeeze(1)
    start = torch.tensor([0, *(new for _, _, new in step)]).cumsum(0).int()
    context = torch.tensor([c for _, c, _ in step], dtype=torch.int32)
    return Arguments(q[None] if case.batch else q, pools.tables[[n for n, _, _ in step]], start, context)


def attend(requests: Requests, pools: Pools, step: Step, plan: int) -> Tensor:
    """The op's result for one step, whose keys are written: ``[T, heads, group, e]``."""
    a = arguments(requests, pools, step)
    out = paged.paged_attention(
        a.q, pools.k_pages, pools.v_pages, pools.k_scale, pools.v_scale, a.table, a.start, a.context, requests.sides,
        plan, [],
    )  # fmt: skip
    return out.reshape(a.q.shape[-2], requests.case.heads, requests.case.group, requests.case.value_dim)


def expected(requests: Requests, pools: Pools, step: Step, plan: PagedPlan, dtype: torch.dtype) -> Tensor:
    """The same by torch operators in ``dtype``."""
    a = arguments(requests, pools, step)
    out = paged_reference.paged_attention(
        plan, a.q, (pools.k_pages, pools.v_pages), (pools.k_scale, pools.v_scale), a.table, a.start, a.context,
        requests.sides, [], dtype=dtype,
    )  # fmt: skip
    return out.reshape(a.q.shape[-2], requests.case.heads, requests.case.group, requests.case.value_dim)


def without_kernel(case: Case) -> tuple[PagedPlan, int]:
    """A plan that runs on torch operators."""
    plan = case.plan()
    return plan, paged.register_paged(plan, None)


def out_dtype(case: Case) -> torch.dtype:
    return DTYPES[case.dtype]


def empty_pages(store: str, total: int, heads: int, page_size: int, features: int) -> tuple[Tensor, Tensor | None]:
    """Pages and scales of one stream, zeros."""
    made = StreamPages.zeros(StreamSpec(heads, features, store, "f32"), total, page_size, torch.device("cpu"))
    return made.pages, made.scale
