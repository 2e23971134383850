"""A derived program that runs: graphs made callable, tables computed, attentions planned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.codegen.emit import emit, emit_paged
from attnc.codegen.paged_plan import PagedPlan
from attnc.compiler.derive.analysis import analyse
from attnc.compiler.derive.capture import Captured
from attnc.compiler.derive.refusal import ATTENTION, INPUT, LENGTH, MIXES_BATCH, NO_RULE, NotDerivable
from attnc.compiler.derive.rewrite import Derived, derive
from attnc.compiler.derive.streams import ENCODER, PagedSite, Pages
from attnc.compiler.host.freezing import unlift
from attnc.compiler.host.lower_rope import RopeProgram
from attnc.compiler.host.rope_kernel import Rotations
from attnc.compiler.host.signature import Signature
from attnc.compiler.host.skinny_linears import Choose, every_weight, pack_linears
from attnc.compiler.host.to_fx import Expanded, Lower, Lowered, export_graph
from attnc.compiler.host.to_program import to_program
from attnc.compiler.planning.plan import plan_attention
from attnc.ir.graph import Graph
from attnc.ir.types import TensorType
from attnc.ir.values import Op
from attnc.runtime import ops, paged, register_plan, skinny
from attnc.runtime.host_bound import Bound
from attnc.runtime.kv.specs import GroupSpec, RaggedBatch, StreamSpec
from attnc.runtime.kv.storage import PageStorage
from attnc.runtime.skinny_choice import chosen

_PRODUCTS = frozenset(
    "linear addmm mm matmul bmm baddbmm addbmm einsum tensordot _grouped_mm grouped_mm_fallback convolution".split()
)
"""Operators whose sums libraries cut by the number of rows."""
_HIDES = 1e30
"""A bias this far below zero may be meant to hide a key."""


@dataclass(eq=False)
class DerivedProgram:
    """A decoder over ragged tokens and pages: a :class:`~attnc.runtime.step_program.StepProgram`.

    ``graphs``: its IR; ``plans``: the plan of each attention, in order.
    """

    graphs: Derived
    groups: tuple[GroupSpec, ...]
    encoder_groups: tuple[GroupSpec, ...]
    """The layer group that holds what comes from the encoder; empty without one."""
    vocabulary: int
    max_length: int
    tokens: str
    """What the model calls its input of token ids."""
    plans: tuple[PagedPlan, ...]
    _step: Bound
    _encoder: Bound | None

    def encode(self, inputs: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
        """Keys and values [E, heads, features] that one request's encoder gives, by site; inputs have a batch of 1."""
        if self._encoder is None:
            return {}
        found = self._encoder(*(inputs[given.name] for given in self._encoder.program.inputs))
        sites = [site.name for site in self.graphs.sites if site.group == ENCODER]
        return {name: (found[2 * i], found[2 * i + 1]) for i, name in enumerate(sites)}

    def step(self, token_ids: Tensor, batch: RaggedBatch, storage: Mapping[str, PageStorage], rows: Tensor) -> Tensor:
        """Logits [R, vocabulary] of the wanted rows; see StepProgram."""
        given = {
            self.tokens: token_ids[None],
            "positions": batch.positions,
            "rows": rows,
            "query_start": batch.query_start,
            "context_len": batch.context_len,
            **{f"block_table_{name}": table for name, table in batch.block_table.items()},
            **{f"slots_{name}": slots for name, slots in batch.slots.items()},
        }
        if batch.encoder_len is not None:
            given["encoder_len"] = batch.encoder_len
        for site in self.graphs.sites:
            for stream, held in zip(site.streams, storage[site.group].sites[site.name], strict=True):
                given[stream.input] = held.pages
                if held.scale is not None:
                    given[f"{stream.input}_scale"] = held.scale
        logits: Tensor = self._step(*(given[place.name] for place in self._step.program.inputs))[0][0]
        return logits


def program_of(
    captured: Captured, pages: Pages, max_length: int | None = None, *, batch_invariant: bool = False
) -> DerivedProgram:
    """The program of a captured model. Raises NotDerivable.

    ``batch_invariant``: each row's bits are the same whatever runs beside it. Linear layers are then
    ``attnc::skinny_linear`` where torch's is faster too, and other products are refused.
    """
    analysis = analyse(captured.graph, captured.tokens, captured.state, captured.encoder)
    if captured.shortest > 2:
        raise NotDerivable(INPUT, f"the model takes no fewer than {captured.shortest} tokens, a step may have one")
    longest = min(max_length or captured.longest, captured.longest)
    graphs = derive(analysis, longest, pages)
    fixed = {**captured.state, **_folded(graphs, captured)}
    _check_biases(graphs, fixed)
    plans: list[PagedPlan] = []
    ropes = _rotations()

    def lower(op: Op) -> Lowered | Expanded:
        if op.name == "attn.paged_attention":
            plans.append(op.meta["plan"])
        return _lower(op, ropes)

    step = _bound(graphs.step, lower, fixed, every_weight if batch_invariant else chosen)
    if batch_invariant:
        _check_rows(step)
    encoder = _bound(graphs.encoder, lower, fixed) if graphs.encoder.outputs else None
    logits = analysis.logits.type
    assert isinstance(logits, TensorType) and isinstance(logits.shape[-1], int)
    groups = _groups(graphs.sites, pages)
    return DerivedProgram(
        graphs,
        tuple(g for g in groups if g.name != ENCODER),
        tuple(g for g in groups if g.name == ENCODER),
        logits.shape[-1],
        longest,
        captured.tokens,
        tuple(plans),
        step,
        encoder,
    )


def _bound(graph: Graph, lower: Lower, fixed: Mapping[str, Tensor], pack: Choose | None = None) -> Bound:
    """A graph as a program that runs, over the weights, tables and constants it reads; weights packed as chosen."""
    module = export_graph(graph, lower)
    named = {value.name for value in graph.inputs}
    unlift(module, Signature(state={name: tensor for name, tensor in fixed.items() if name in named}))
    program, constants = to_program(module, graph)
    if pack is not None:
        program, constants = pack_linears(program, constants, pack)
    return program.bind(constants)


def _check_rows(step: Bound) -> None:
    """Raises NotDerivable where the bits of a row may depend on the rows beside it."""
    product = next((s.op for s in step.program.steps if s.op.split(".")[1] in _PRODUCTS), None)
    if product is not None:
        raise NotDerivable(MIXES_BATCH, f"batch_invariant: the bits of {product} may depend on how many rows it has")
    if not skinny.available():
        raise NotDerivable(MIXES_BATCH, "batch_invariant: attnc::skinny_linear has no kernel here; see attnc doctor")


def _rotations() -> Rotations:
    return Rotations(RopeProgram(complex_products=True), "cpu")


def _folded(graphs: Derived, captured: Captured) -> dict[str, Tensor]:
    """Tables and constants, computed."""
    if not graphs.folded:
        return {}
    ropes = _rotations()
    run = _bound(graphs.once, lambda op: _lower(op, ropes), captured.state)
    ids = torch.zeros(1, graphs.max_length, dtype=torch.int64)
    try:
        return dict(zip(graphs.folded, run(*(ids for _ in run.program.inputs)), strict=True))
    except (IndexError, RuntimeError) as error:
        raise NotDerivable(INPUT, f"it can't number the positions of {graphs.max_length} tokens: {error}") from error


def _check_biases(graphs: Derived, fixed: Mapping[str, Tensor]) -> None:
    """Raises NotDerivable where a bias might hide a row's own key."""
    for site in graphs.sites:
        for name in site.finite:
            if not bool((fixed[name].abs() < _HIDES).all()):
                raise NotDerivable(ATTENTION, f"%{name}, which scores read, holds numbers that hide keys")
    for name in graphs.ramps:
        if not _is_ramp(fixed[name]):
            raise NotDerivable(LENGTH, f"%{name}, whose end scores read, does not rise evenly from key to key")


def _is_ramp(table: Tensor) -> bool:
    """Whether a table is a·j + b along its last dimension, but for the rounding of its dtype."""
    exact = table.double()
    step = (exact[..., -1:] - exact[..., :1]) / max(1, table.shape[-1] - 1)
    line = exact[..., :1] + step * torch.arange(table.shape[-1], dtype=torch.float64)
    return bool(((exact - line).abs() <= 2 * torch.finfo(table.dtype).eps * exact.abs().amax(-1, keepdim=True)).all())


def _lower(op: Op, ropes: Rotations) -> Lowered | Expanded:
    if op.name == "attn.kv_write":
        return Lowered(paged.kv_write, op.args, single=True)
    if op.name == "attn.paged_attention":
        q, k, v, sides, sizes, table, start, context, *scales = op.args
        k_scale, v_scale = scales or (None, None)
        plan: PagedPlan = op.meta["plan"]
        digest = paged.register_paged(plan, emit_paged(plan))
        args = (q, k, v, k_scale, v_scale, table, start, context, sides, digest, sizes)
        return Lowered(paged.paged_attention, args, single=True)
    if op.name == "attn.attention":
        whole = plan_attention(op, "cpu")
        register_plan(whole, emit(whole))
        return Lowered(ops.attention, (*op.args[:4], whole.digest, op.args[4]))
    if op.name == "attn.rope":
        return ropes.lower(op)
    raise NotDerivable(NO_RULE, "has no lowering in a derived program", op)


def _groups(sites: tuple[PagedSite, ...], pages: Pages) -> tuple[GroupSpec, ...]:
    windows = {site.group: site.window for site in sites}
    return tuple(
        GroupSpec(name, pages.page_size, window, {s.name: _streams(s) for s in sites if s.group == name})
        for name, window in windows.items()
    )


def _streams(site: PagedSite) -> tuple[StreamSpec, ...]:
    return tuple(StreamSpec(s.heads, s.features, s.store, s.dtype.value) for s in site.streams)
