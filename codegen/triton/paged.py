"""Writes the module of one paged plan: its constants and formulas, the kernels, and what launches them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attnc.codegen.describe import check_plan, head_lines, kernel_name, loads_bias, side_reads
from attnc.codegen.fold import single_precision
from attnc.codegen.formula import formula
from attnc.codegen.paged_plan import PAGED_PLAN_VERSION, PagedPlan, page_width
from attnc.codegen.plan import KernelPlan, Segment
from attnc.codegen.source import Source
from attnc.codegen.targets import Capability, capability
from attnc.codegen.triton.emitter import DEAD_ROWS, torch_type
from attnc.codegen.triton.formulas import (
    expand,
    function,
    row_function,
    row_names,
    scored,
    sink_function,
    template,
    tile_functions,
)
from attnc.codegen.triton.kv_write import check_stores
from attnc.codegen.triton.launch import Launch
from attnc.codegen.triton.paged_parameters import COUNTS, PagedLayout
from attnc.codegen.triton.paged_tuning import Tiling, tilings
from attnc.codegen.triton.programs import Page, float_literal
from attnc.codegen.triton.segments import segment_functions
from attnc.codegen.triton.tuning import Demand

EMITTER_VERSION = 1
KERNEL, MERGE = "paged", "merge"
_HEIGHT = "rows.shape[0]"
_IMPORTS = """\
import math

import torch
import triton
import triton.language as tl

"""
_STORES = {"i8": 1, "f8e4m3": 1, "i4": 2}
_TORCH_STORES = {
    "f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8", "f8e4m3": "float8_e4m3fn", "i4": "uint8",
}  # fmt: skip


def emit_paged(plan: PagedPlan) -> Source:
    """The Python module of a paged plan: Triton kernels and ``attention(q, k_pages, …)``, which launches them.

    Raises ValueError where the plan asks for what the kernels have not: blocks of keys that are no power of two of at
    least 16, head dimensions that aren't known, a second pass over hidden keys, a store that the target's GPU doesn't
    convert.
    """
    target, attention = capability(plan.attention.target), plan.attention
    check_stores(target, (plan.k_store, plan.v_store))
    if attention.dead_rows == "as_written" or attention.returns_lse:
        raise ValueError("paged attention has no second pass over hidden keys, and returns no log-sum-exp")
    if attention.block_n < 16 or attention.block_n & (attention.block_n - 1):
        raise ValueError(
            f"blocks of {attention.block_n} keys for pages of {plan.page_size}: Triton's are powers of two from 16 on"
        )
    check_plan(attention, target.dtypes)
    layout = PagedLayout(plan)
    head = "\n".join(f"# {line}".rstrip() for line in _head(plan))
    host = [*_host_constants(layout), template("sides"), "", template("paged_host")]
    text = "\n".join([head, _IMPORTS, *_page(layout, target), *host])
    return Source("triton", f"paged_{kernel_name(attention)}", text, plan.digest)


def launch_paged(plan: PagedPlan, tiling: Tiling, kernel: str = KERNEL) -> Launch:
    """How one of the kernels of :func:`emit_paged` is compiled ahead of time."""
    constants = {"BLOCK_M": tiling.block_m, "STAGES": tiling.num_stages}
    return Launch(kernel, PagedLayout(plan).parameters(), constants, tiling.num_warps, tiling.num_stages)


def plan_tilings(plan: PagedPlan) -> tuple[Tiling, ...]:
    """The tilings of a plan's kernel: for few rows of a request, and for many."""
    layout = PagedLayout(plan)
    demand = Demand(layout.head_dim, layout.value_dim, plan.attention.dtypes[0])
    quantised = bool({plan.k_store, plan.v_store} & set(_STORES))
    return tilings(capability(plan.attention.target), demand, quantised, plan.page_size < plan.attention.block_n)


def _head(plan: PagedPlan) -> list[str]:
    attention, *lines = head_lines(plan.attention, f"Triton emitter {EMITTER_VERSION}")
    return [
        attention.replace("Attention kernel", "Paged kernel of"),
        f"Pages of {plan.page_size} keys, K in {plan.k_store}, V in {plan.v_store}; splits of {plan.split} keys; paged "
        f"plan version {PAGED_PLAN_VERSION}, digest {plan.digest}.",
        *lines,
    ]


# -- constants and formulas


def _page(layout: PagedLayout, target: Capability) -> list[str]:
    plan, inner = layout.attention, layout.inner
    unit, visible = scored(plan)
    page = Page(inner.names(q="rows", k="keys"), precise="f32" in plan.dtypes)
    functions = tile_functions(plan, page, visible, _HEIGHT)
    lists: dict[str, Sequence[str]] = {"FRAME": inner.frame, "OUTER": inner.outer, "ROW": row_names(page, functions)}
    lines = [
        template("formulas"),
        *_constants(layout, target, unit),
        *_outer_function(layout),
        *row_function(page, functions),
        *functions,
        *sink_function(plan, inner, _HEIGHT),
        *segment_functions(plan, inner),
        *_visited(plan),
        *_visits(plan),
    ]
    return [
        expand("\n".join(lines), lists),
        template("product"),
        "",
        _kernels(layout, {"PARAMETERS": layout.run_time, **lists}),
    ]


def _constants(layout: PagedLayout, target: Capability, unit: float) -> list[str]:
    plan, attention = layout.plan, layout.attention
    (d_high, d_low), (e_high, e_low) = layout.parts("k"), layout.parts("v")
    values = {
        "PAGE_SIZE": plan.page_size,
        "BLOCK_N": attention.block_n,
        "SPLIT": plan.split,
        "SPLIT_BLOCKS": plan.split // attention.block_n,
        "CAUSAL": plan.causal,
        "K_STORE": _STORES.get(plan.k_store, 0),
        "V_STORE": _STORES.get(plan.v_store, 0),
        "K_WIDTH": page_width(plan.k_store, layout.head_dim),
        "V_WIDTH": page_width(plan.v_store, layout.value_dim),
        "D": layout.head_dim,
        "D_HIGH": d_high,
        "D_LOW": d_low,
        "E": layout.value_dim,
        "E_HIGH": e_high,
        "E_LOW": e_low,
        "PRECISION": repr(target.gpu.precision if target.gpu is not None else "ieee"),
        "SCORE_UNIT": float_literal(single_precision(unit)),
        "BOUNDED_SCORE": not loads_bias(attention),
        "HAS_MASK": attention.mask is not None,
        "HAS_WEIGHT": attention.weight is not None,
        "HAS_SINK": attention.softmax != "plain",
        "DEAD_ROWS": DEAD_ROWS[attention.dead_rows],
        "TESTED": any(map(_tested, attention.segments)),
    }
    return [*(f"{name} = tl.constexpr({value})" for name, value in values.items()), f"COUNTS = {[*COUNTS]!r}", "", ""]


def _outer_function(layout: PagedLayout) -> list[str]:
    """``outer_index``: the place on every outer axis, of a kv head and of a row's query head within its group."""
    lines = []
    for name, axes in (("kv", layout.kv_axes), ("group", layout.group_axes)):
        for axis in reversed(axes):
            lines += [f"i_{axis} = {name} % n_{axis}", f"{name} = {name} // n_{axis}"]
    if not lines:
        return []
    return function("outer_index", ("kv", "group", "FRAME"), [*lines, f"return {', '.join(layout.inner.outer)}"])


def _visited(plan: KernelPlan) -> list[str]:
    """``visited``: the blocks from the first to the last that some row visits, and those that all rows see whole."""
    lines = []
    for i in range(len(plan.segments)):
        lines += [
            f"lo{i}, hi{i} = run{i}(rows, OUTER, FRAME)",
            f"lo{i}, hi{i} = lo{i} + tl.zeros_like(rows), hi{i} + tl.zeros_like(rows)",
            f"first{i} = least(tl.where(lo{i} < hi{i}, lo{i}, 1073741823))",
            f"last{i} = greatest(tl.where(lo{i} < hi{i}, hi{i}, 0))",
        ]
    begin, end = "least(tl.zeros_like(rows))", "least(tl.zeros_like(rows))"
    for i in range(len(plan.segments)):
        begin = f"tl.minimum({begin}, first{i})" if i else "first0"
        end = f"tl.maximum({end}, last{i})" if i else "last0"
    full = _full(plan)
    whole = f"greatest(lo{full}), tl.minimum(least(hi{full}), k_len // BLOCK_N)" if full is not None else "0, 0"
    return [
        *function("least", ("x",), ["return tl.min(tl.min(x, 1), 0)"]),
        *function("greatest", ("x",), ["return tl.max(tl.max(x, 1), 0)"]),
        *function("visited", ("rows", "OUTER", "FRAME"), [*lines, f"return {begin}, {end}, {whole}"]),
    ]


def _visits(plan: KernelPlan) -> list[str]:
    """``visits``: whether some row visits a block, where that isn't known from the ends of runs."""
    if not any(map(_tested, plan.segments)):
        return []
    lines = ["hit = tl.zeros_like(rows)"]
    for i, segment in enumerate(plan.segments):
        conditions = [f"(block >= lo{i})", f"(block < hi{i})"]
        if segment.step != 1:
            conditions.append(f"((block - lo{i}) % {segment.step} == 0)")
        if segment.guard is not None and segment.guard_scope == "tile":
            conditions.append(f"guard({i}, block, rows, OUTER, FRAME)")
        lines += [f"lo{i}, hi{i} = run{i}(rows, OUTER, FRAME)", f"hit = tl.where({' & '.join(conditions)}, 1, hit)"]
    return function("visits", ("block", "rows", "OUTER", "FRAME"), [*lines, "return greatest(hit) > 0"])


def _tested(segment: Segment) -> bool:
    """Whether a segment doesn't visit every block between its ends."""
    return segment.step != 1 or (segment.guard is not None and segment.guard_scope == "tile")


def _full(plan: KernelPlan) -> int | None:
    """The segment whose blocks are all seen whole."""
    plain = (i for i, s in enumerate(plan.segments) if not _tested(s) and (plan.mask is None or not s.needs_mask))
    return next(plain, None)


# -- the kernels

_EDGES = "STAGES if BLOCK_M < 64 else 1"
"""Stages of masked loops beside one that isn't. Not pipelined, a block of keys and values passes through registers, of
which tiles of few rows have too few; for many rows a second pipelined loop can serialise Hopper's products, as in
:mod:`attnc.codegen.triton.segments`."""
_CALL = """\
m, l, o, o_low = run_blocks(
    {begin}, {end}, m, l, o, o_low, q, q_low, K, V, KS, VS, table, k_page, k_slot, v_page, v_slot,
    ks_page, ks_slot, vs_page, vs_slot, rows, ROW, OUTER, FRAME, {kind}, {stages},
)"""


def _kernels(layout: PagedLayout, lists: Mapping[str, Sequence[str]]) -> str:
    indent = " " * 8
    calls = "\n".join(_CALL.format(**run) for run in _runs(layout.attention))
    calls = "\n".join(indent + line for line in calls.splitlines())
    text = re.sub(rf"^{indent}RUNS\b.*$", lambda _: calls, template("paged"), flags=re.MULTILINE)
    names = {
        "Q_AT": layout.row_start("q"),
        "OUT_AT": layout.row_start("out"),
        "K_HEAD": layout.head("k"),
        "V_HEAD": layout.head("v"),
    }
    for name, written in names.items():
        text = re.sub(rf"\b{name}\b", written, text)
    return expand(text, lists)


def _runs(plan: KernelPlan) -> list[dict[str, str]]:
    """The loops of one split. The longest is pipelined: the one over whole blocks, where there is one."""
    full = _full(plan)
    if full is None:
        return [{"begin": "lo", "end": "hi", "kind": "MASKED", "stages": "STAGES"}]
    before = {"begin": "lo", "end": "full_lo", "kind": "MASKED", "stages": _EDGES}
    whole = {"begin": "full_lo", "end": "full_hi", "kind": "WHOLE", "stages": "STAGES"}
    after = {"begin": "full_hi", "end": "hi", "kind": "MASKED", "stages": _EDGES}
    starts = full == 0 and formula(plan.segments[0].lo) == "0"
    return [whole, after] if starts else [before, whole, after]


# -- what launches them


def _host_constants(layout: PagedLayout) -> list[str]:
    plan, attention = layout.plan, layout.attention
    axes = {"q": plan.attention.q_axes, "out": plan.attention.out_axes}
    heads = {n: plan.kv_axes(n) for n in "kv"}
    stores = ", ".join(f"(torch.{_TORCH_STORES[s]}, {_STORES.get(s, 0)})" for s in (plan.k_store, plan.v_store))
    sides = ", ".join(f"({torch_type(s.dtype)}, {s.rank})" for s in attention.sides)
    reads = [(i, dim, axis) for i, dim, axis in side_reads(attention) if axis not in ("q", "k")]
    shapes = ", ".join(f"({t.block_m}, {t.num_warps}, {t.num_stages})" for t in plan_tilings(plan))
    return [
        f"AXES = {axes!r}",
        f"BATCH = {plan.batch!r}",
        f"OUTER_AXES = {attention.outer!r}",
        f"KV_AXES = {layout.kv_axes!r}",
        f"HEAD_AXES = {heads!r}",
        f"STORES = ({stores})",
        f"SIDES = [{sides}]",
        f"SIDE_READS = {reads!r}",
        f"NUM_SIZES = {len(attention.sizes)}",
        f"Q_DTYPE, OUT_DTYPE = {torch_type(attention.dtypes[0])}, {torch_type(attention.dtypes[3])}",
        f"TILINGS = [{shapes}]",
        "",
        "",
    ]
