"""Writes the page of one paged plan: its constants and formulas, for the template ``attnc/paged.h``."""

from __future__ import annotations

import dataclasses

from attnc.codegen.cpp.emitter import (
    constants,
    page_struct,
    score_functors,
    segment_mask,
    segment_ranges,
    sink_function,
    status_function,
    status_texts,
)
from attnc.codegen.cpp.expressions import c_type
from attnc.codegen.describe import check_plan, head_lines, kernel_name
from attnc.codegen.paged_plan import PAGED_PLAN_VERSION, PagedPlan
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source, headers_digest
from attnc.codegen.targets import capability

EMITTER_VERSION = 1
_SCALED = {"i8": "Int8", "f8e4m3": "Float8", "i4": "Int4"}
_KINDS = {"NoMask": "FULL", "Residual": "RESIDUAL", "Mask": "MASKED"}


def emit_paged(plan: PagedPlan) -> Source:
    """The C++ source of a paged plan. Raises ValueError where the plan asks for what the template has not."""
    attention, target = plan.attention, capability(plan.attention.target)
    if target.language != "c++":
        raise ValueError(f"paged attention has kernels for CPUs, none for {target.name}")
    if attention.dead_rows == "as_written" or attention.returns_lse:
        raise ValueError("paged attention has no second pass over hidden keys, and returns no log-sum-exp")
    check_plan(attention, target.dtypes)
    page = page_struct(_body(plan, dataclasses.replace(attention, block_m=8 * target.rows)))
    status = status_function(status_texts(attention) | _statuses(plan))
    text = "\n".join(
        [_head(plan), "#include <attnc/paged_entry.h>", "", page, status, "ATTNC_PAGED_ENTRY(attnc::Page)", ""]
    )
    name = f"paged_{kernel_name(attention)}"
    return Source("c++", name, text, plan.digest, target.flags, headers_digest())


def _head(plan: PagedPlan) -> str:
    attention, *lines = head_lines(plan.attention, f"emitter {EMITTER_VERSION}")
    lines = [
        attention.replace("Attention kernel", "Paged kernel of"),
        f"Pages of {plan.page_size} keys, K in {plan.k_store}, V in {plan.v_store}; splits of {plan.split} keys; paged "
        f"plan version {PAGED_PLAN_VERSION}, digest {plan.digest}.",
        *lines,
    ]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _body(plan: PagedPlan, attention: KernelPlan) -> list[str]:
    """``attention`` has the rows of a tile of this kernel."""
    masks = [segment_mask(attention, s) for s in attention.segments]
    axes = attention.outer
    return [
        *constants(attention, plan.digest),
        f"static constexpr int64_t page_size = {plan.page_size}, split = {plan.split};",
        f"static constexpr bool causal = {'true' if plan.causal else 'false'};",
        f"static constexpr int batch_axis = {-1 if plan.batch is None else axes.index(plan.batch)};",
        *(f"typedef {_store(store)} {n}_store;" for n, store in (("k", plan.k_store), ("v", plan.v_store))),
        *(
            f"static constexpr int {n}_heads[] = {{{', '.join(str(axes.index(a)) for a in plan.kv_axes(n)) or '-1'}}};"
            for n in "kv"
        ),
        "",
        *(f"typedef NoMask {name};" for name in _absent(attention)),
        *score_functors(attention),
        *segment_ranges(attention),
        f"static constexpr int64_t segment_step[] = {{{', '.join(str(s.step) for s in attention.segments) or '1'}}};",
        f"static constexpr uint8_t segment_kind[] = {{{', '.join(_KINDS[m] for m in masks) or 'FULL'}}};",
        *_guard(attention),
        *sink_function(attention),
    ]


def _absent(attention: KernelPlan) -> list[str]:
    """Masks that the plan has not, which the template names all the same."""
    residual = any(s.residual for s in attention.segments) and attention.residual is not None
    return [name for name, there in (("Mask", attention.mask is not None), ("Residual", residual)) if not there]


def _guard(attention: KernelPlan) -> list[str]:
    """Whether a row visits a tile of a segment's range."""
    guarded = [i for i, s in enumerate(attention.segments) if s.guard is not None and s.guard_scope == "tile"]
    return [
        "static bool guard(int segment, const Frame& f, int64_t tq, int64_t tk) {",
        *(f"  if (segment == {i}) return guard{i}(f, tq, tk);" for i in guarded),
        "  (void)segment, (void)f, (void)tq, (void)tk;",
        "  return true;",
        "}",
    ]


def _store(store: str) -> str:
    return _SCALED[store] if store in _SCALED else f"Plain<{c_type(store)}>"


def _statuses(plan: PagedPlan) -> dict[int, str]:
    """Texts of the template's own statuses, and of those that mean something else for pages."""
    attention = plan.attention
    heads = {n: " · ".join(plan.kv_axes(n)) or "1" for n in "kv"}
    return {
        2: f"k pages: not {plan.k_store} [pages, {heads['k']}, {plan.page_size}, d] with unit stride",
        3: f"v pages: not {plan.v_store} [pages, {heads['v']}, {plan.page_size}, e] with unit stride",
        4: f"the result: rank or dtype is not the plan's {attention.dtypes[3]}[{', '.join(attention.out_axes)}]",
        11: "scales: absent where a store has them, given where it has none, or of another shape or dtype",
        12: "block table: not i32 [requests, pages], shorter than a request, or it names a page that is not there",
        13: "query_start or context_len: not dense i32, of other lengths, or not from 0 to q's tokens in order",
        14: f"the batch axis {plan.batch} of q is not 1 long",
    }
