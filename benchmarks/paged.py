"""Decode attention over pages: a new token for each of several long requests, against reading the bytes and SDPA.

Keys and values lie in shuffled pages and are larger than any cache. SDPA has them dense, one tensor for all requests,
which is kinder to it than a server could be.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnc.codegen.cpp.paged import emit_paged
from attnc.compiler.planning.paged import plan_paged
from attnc.ir import parse_graph
from attnc.runtime import paged
from attnc.runtime.kv.specs import GroupSpec, StreamSpec
from attnc.runtime.kv.storage import PageStorage
from benchmarks.timing import interleaved

REQUESTS, HEADS, FEATURES, PAGE = 8, 4, 128, 16
STORES = ("f32", "bf16", "i8", "f8e4m3", "i4")
GRAPH = """graph @g(
    %q: f32[1, {heads}, {group}, S, {d}], %k: f32[1, {heads}, S, {d}], %v: f32[1, {heads}, S, {d}]
  ) sizes(S in [1, inf]) {{
  %o: f32[1, S, {heads}, {group}, {d}] = attn.attention(%q, %k, %v, [], []) {{
    q = [b, h, g, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, q, h, g, e]
    qk = f32
    score = where(k <= q, qk * {scale}, -inf)
    visible = qk * {scale}
    mask = k <= q
    fill = minus_inf
    softmax = plain f32
    out_dtype = f32
  }}
  return %o
}}"""
"""Axis g: query heads that share a key/value head."""


@dataclass(frozen=True)
class Prepared:
    """One step of attention over pages, ready to run."""

    bytes: int
    """Of the pages it reads, scales too."""
    run: Callable[[], Tensor]


def prepare(group: int, length: int, store: str) -> Prepared:
    """REQUESTS of ``length`` keys each, random, in shuffled pages of ``store``."""
    text = GRAPH.format(heads=HEADS, group=group, d=FEATURES, scale=FEATURES**-0.5)
    op = next(op for op in parse_graph(text).ops if op.name == "attn.attention")
    plan = plan_paged(op, batch="b", page_size=PAGE, k_store=store, v_store=store)
    digest = paged.register_paged(plan, emit_paged(plan))
    each = length // PAGE
    spec = StreamSpec(HEADS, FEATURES, store, "f32")
    storage = PageStorage(GroupSpec("all", PAGE, None, {"site": (spec, spec)}), 1 + REQUESTS * each)
    table = (torch.randperm(REQUESTS * each, dtype=torch.int32) + 1).view(REQUESTS, each)
    slots = (table[..., None].long() * PAGE + torch.arange(PAGE)).flatten()
    rows = torch.randn(2, len(slots), HEADS, FEATURES)
    storage.write("site", rows[0], rows[1], slots)
    keys, values = storage.sites["site"]
    q = torch.randn(1, HEADS, group, REQUESTS, FEATURES)
    start = torch.arange(REQUESTS + 1, dtype=torch.int32)
    context = torch.full((REQUESTS,), length - 1, dtype=torch.int32)
    held = sum(t.nbytes for stream in (keys, values) for t in (stream.pages, stream.scale) if t is not None)
    attend = torch.ops.attnc.paged_attention.default
    pages = keys.pages, values.pages, keys.scale, values.scale
    return Prepared(held, partial(attend, q, *pages, table, start, context, [], digest, []))


def dense(group: int, length: int, dtype: torch.dtype) -> Callable[[], Tensor]:
    """SDPA over as many keys and values, dense."""
    q = torch.randn(REQUESTS, HEADS * group, 1, FEATURES, dtype=dtype)
    k, v = (torch.randn(REQUESTS, HEADS, length, FEATURES, dtype=dtype) for _ in range(2))
    return partial(scaled_dot_product_attention, q, k, v, enable_gqa=group > 1)


def measure(group: int, length: int, runs: int) -> Table:
    """Medians, and the share of the speed at which a sum reads the same bytes."""
    prepared = {store: prepare(group, length, store) for store in STORES}
    contenders: dict[str, Callable[[], object]] = {store: given.run for store, given in prepared.items()}
    contenders |= {f"read {store}": torch.ones(given.bytes // 4).sum for store, given in prepared.items()}
    contenders |= {"sdpa f32": dense(group, length, torch.float32), "sdpa bf16": dense(group, length, torch.bfloat16)}
    with torch.no_grad():
        times = interleaved(contenders, runs)
    table = Table("what", "MB", "ms", "of the read's speed", title=f"{group} query heads a key, {length} keys")
    for name, timing in times.items():
        if name in prepared:
            share = f"{times[f'read {name}'].median / timing.median:.0%}"
            table.add_row(name, f"{prepared[name].bytes / 1e6:.0f}", f"{timing.ms:.2f}", share)
        elif name.startswith("sdpa"):
            table.add_row(name, "", f"{timing.ms:.2f}", "")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paged", description=__doc__)
    parser.add_argument("--groups", nargs="+", type=int, default=(1, 4))
    parser.add_argument("--length", type=int, default=8192, help="keys of each request")
    parser.add_argument("--runs", type=int, default=7)
    wanted = parser.parse_args()
    console = Console()
    console.print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; medians of {wanted.runs} rounds")
    for group in wanted.groups:
        console.print(measure(group, wanted.length, wanted.runs))


if __name__ == "__main__":
    main()
