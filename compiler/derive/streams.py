"""Keys and values as pages: what is kept of every token, layer groups, and the inputs that hold and describe pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnc.codegen.paged_plan import page_width, scale_groups
from attnc.compiler.derive.site import SiteFacts
from attnc.ir.graph import Graph, SizeInfo
from attnc.ir.types import DType, TensorType, size
from attnc.ir.values import Value

NEW, WANTED, REQUESTS = size("T"), size("R"), size("N")
"""Sizes of a step: new tokens, rows whose logits are wanted, requests."""

ELEMENTS = {
    "f32": DType.F32,
    "bf16": DType.BF16,
    "f16": DType.F16,
    "i8": DType.I8,
    "f8e4m3": DType.F8E4M3,
    "i4": DType.U8,
}
"""The dtype of the page tensors of each store."""


@dataclass(frozen=True)
class Pages:
    """How keys and values are kept."""

    page_size: int = 16
    key_store: str | None = None
    """How keys are stored, one of ``codegen.paged_plan.STORES``; None: in the dtype the model computes in."""
    value_store: str | None = None


@dataclass(frozen=True)
class Stream:
    """What is kept of every token for an attention: ``[heads, features]`` of ``dtype``."""

    heads: int
    features: int
    dtype: DType
    store: str
    input: str
    """The input of the step that holds its pages; scales, where the store has some, are ``<input>_scale``."""


@dataclass(frozen=True)
class PagedSite:
    """One attention over pages."""

    name: str
    group: str
    window: int | None
    streams: tuple[Stream, ...]
    """Keys and values; or one stream whose first features are the values too."""
    finite: tuple[str, ...] = ()
    """Inputs of the step that scores read. They must hold no infinity and no fill: one might hide a row's own key."""


@dataclass(frozen=True)
class Batch:
    """The inputs that say where requests' tokens stand: see docs/ir.md, ``attn.paged_attention``."""

    query_start: Value
    context_len: Value
    block_table: dict[str, Value]
    """By layer group."""
    slots: dict[str, Value]
    encoder_len: Value | None
    """i32[N], keys of each request's encoder; None without one."""

    @staticmethod
    def inputs(graph: Graph, sites: Sequence[SiteFacts], device: str) -> Batch:
        """Add the inputs: a block table for each layer group, and a list of slots for those that are written to."""
        names = list(dict.fromkeys(map(group_of, sites)))
        add = graph.add_input
        graph.sizes |= {f"P_{name}": SizeInfo(1) for name in names}
        lengths = TensorType(DType.I32, (REQUESTS,), device)
        slots = TensorType(DType.I64, (NEW,), device)
        start = add("query_start", TensorType(DType.I32, (REQUESTS + 1,), device))
        context = add("context_len", lengths)
        tables = {
            name: add(f"block_table_{name}", TensorType(DType.I32, (REQUESTS, size(f"P_{name}")), device))
            for name in names
        }
        places = {name: add(f"slots_{name}", slots) for name in names if name != ENCODER}
        return Batch(start, context, tables, places, add("encoder_len", lengths) if ENCODER in names else None)


ENCODER = "encoder"
"""The layer group of attentions over the encoder."""


def group_of(site: SiteFacts) -> str:
    """The layer group of an attention: those that see as far back share one."""
    if site.cross:
        return ENCODER
    return "full" if site.window is None else f"window{site.window}"


def page_inputs(graph: Graph, stream: Stream, page_size: int) -> tuple[Value, Value | None]:
    """The inputs that hold the pages of one stream, and their scales where the store has some."""
    count = size(f"N_{stream.input}")
    graph.sizes[count.name] = SizeInfo(1)
    head = (count, stream.heads, page_size)
    kind = TensorType(ELEMENTS[stream.store], (*head, page_width(stream.store, stream.features)))
    pages = graph.add_input(stream.input, kind)
    groups = scale_groups(stream.store, stream.features)
    if groups is None:
        return pages, None
    scales = TensorType(DType.F16, (*head, groups)) if groups else TensorType(DType.F32, head)
    return pages, graph.add_input(f"{stream.input}_scale", scales)
