"""One attention of a step: new keys and values go to pages, and queries read them there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnc.codegen.paged_plan import PagedPlan
from attnc.compiler.derive.absorb import Latent
from attnc.compiler.derive.emit import Emit
from attnc.compiler.derive.parts import Part
from attnc.compiler.derive.refusal import ATTENTION, NotDerivable
from attnc.compiler.derive.rotation import TURNED, matrices
from attnc.compiler.derive.site import SiteFacts
from attnc.compiler.derive.streams import NEW, Batch, PagedSite, Pages, Stream, group_of, page_inputs
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.planning.paged import plan_paged
from attnc.ir.attention import CONTRACTED, FEATURE, KEY, QUERY, AttentionSpec
from attnc.ir.graph import Graph
from attnc.ir.score import side_names
from attnc.ir.types import Dim, DType, NoneType, TensorType
from attnc.ir.values import Op, Value
from attnc.runtime.abi import DTYPES

Fold = Callable[[Part, int], Value]
"""The rows of a part's weight, [heads, features, size of c], as an input of the step; given the number of heads."""


@dataclass
class Paging:
    """Makes the paged attentions of one step graph."""

    graph: Graph
    batch: Batch
    pages: Pages
    sizes: dict[str, Dim]
    """What sizes that formulas name stand for."""
    sites: list[PagedSite] = field(default_factory=list)
    encoded: list[Value] = field(default_factory=list)
    """Keys and values of attentions that read the encoder, in the graph that runs once for a request."""
    turns: list[tuple[Tensor, Value]] = field(default_factory=list)
    """Matrices that keys and queries are turned by, and the constants that hold them."""

    def whole(self, facts: SiteFacts, q: Value, k: Value, v: Value, sides: tuple[Value, ...]) -> Value:
        """The result of an attention that caches its keys and values."""
        emit, spec = Emit(self.graph, facts), facts.spec
        rows = [emit.rows(k, spec.k_axes, CONTRACTED), emit.rows(v, spec.v_axes, FEATURE)]
        if self.pages.key_store in TURNED:
            of_keys, of_queries = matrices(_features(rows[0]))
            rows[0] = self._turned(emit, rows[0], 2, of_keys)
            q = self._turned(emit, q, spec.q_axes.index(CONTRACTED), of_queries)
        return self._over(emit, q, rows, self._written(emit, rows), sides)

    def _turned(self, emit: Emit, value: Value, place: int, matrix: Tensor) -> Value:
        """x · matrix along the dimension ``place``, that of features."""
        last = tensor_type(value).rank - 1
        value = emit.swapped(value, place, last)
        weight = self._constant(matrix.T.contiguous(), tensor_type(value))
        turned = emit.shaped("aten.linear.default", (value, weight), value, tensor_type(value).shape)
        return emit.swapped(turned, place, last)

    def _constant(self, matrix: Tensor, like: TensorType) -> Value:
        """A constant of another tensor's dtype; equal ones are one."""
        matrix = matrix.to(DTYPES[like.dtype.value])
        found = (v for m, v in self.turns if m.dtype == matrix.dtype and torch.equal(m, matrix))
        value = next(found, None)
        if value is None:
            kind = TensorType(like.dtype, tuple(matrix.shape), like.device)
            value = self.graph.add_constant("turn", matrix, kind)
            self.turns.append((matrix, value))
        return value

    def cross(
        self, facts: SiteFacts, q: Value, given: tuple[Value, Value], apart: Emit, sides: tuple[Value, ...]
    ) -> Value:
        """The result of an attention that reads the encoder's keys and values, which ``apart`` makes rows of."""
        emit, spec = Emit(self.graph, facts), facts.spec
        rows = [apart.rows(given[0], spec.k_axes, CONTRACTED), apart.rows(given[1], spec.v_axes, FEATURE)]
        self.encoded += rows
        return self._over(emit, q, rows, self._held(emit, rows), sides)

    def latent(
        self, facts: SiteFacts, found: Latent, q: Value, cached: list[Value], sides: tuple[Value, ...], fold: Fold
    ) -> Value:
        """The result of an attention that caches what its keys and values are made of.

        ``cached``: the step's values of c and of each shared part.
        """
        emit, spec = Emit(self.graph, facts), facts.spec
        rows = emit.joined([_flat(emit, value, part) for value, part in zip(cached, _cached(found), strict=True)], 1)
        rows = emit.shaped("aten.unsqueeze.default", (rows, 1), rows, (NEW, 1, found.features))
        pages, scales = self._written(emit, [rows])
        values = emit.part(pages[0], 3, 0, found.size)
        bare = _one_head(_of_one_request(spec, facts.batch), found.head)
        features = {CONTRACTED: found.features, FEATURE: found.size}
        asked = _absorbed_query(emit, found, emit.dropped(q, spec.q_axes), bare.q_axes, fold)
        out = self._read(emit, bare, asked, ([pages[0], values], [scales[0]] * 2), sides, features)
        return emit.restored(_expanded(emit, found, out, bare.out_axes, fold), spec.out_axes)

    def _over(
        self,
        emit: Emit,
        q: Value,
        rows: list[Value],
        held: tuple[list[Value], list[Value | None]],
        sides: tuple[Value, ...],
    ) -> Value:
        """The result of an attention over pages that hold rows of keys and of values."""
        spec, batch = emit.facts.spec, emit.facts.batch
        features = {CONTRACTED: _features(rows[0]), FEATURE: _features(rows[1])}
        out = self._read(emit, _of_one_request(spec, batch), emit.dropped(q, spec.q_axes), held, sides, features)
        return emit.restored(out, spec.out_axes)

    def _written(self, emit: Emit, rows: list[Value]) -> tuple[list[Value], list[Value | None]]:
        """Pages and scales that hold new rows [T, heads, features]: of keys and values, or of both in one."""
        held = self._held(emit, rows)
        for value, pages, scale in zip(rows, *held, strict=True):
            emit.op("attn.kv_write", (value, pages, scale, self.batch.slots[self.sites[-1].group]), NoneType())
        return held

    def _held(self, emit: Emit, rows: list[Value]) -> tuple[list[Value], list[Value | None]]:
        """Pages and scales for rows like these."""
        name, group = f"site{len(self.sites)}", group_of(emit.facts)
        wanted = (self.pages.key_store, self.pages.value_store)
        parts = ("k", "v") if len(rows) == 2 else ("kv",)
        streams = tuple(
            _stream(value, store, f"{name}_{part}") for value, store, part in zip(rows, wanted, parts, strict=False)
        )
        made = [page_inputs(self.graph, stream, self.pages.page_size) for stream in streams]
        self.sites.append(PagedSite(name, group, emit.facts.window, streams))
        return [pages for pages, _ in made], [scale for _, scale in made]

    def _read(
        self,
        emit: Emit,
        spec: AttentionSpec,
        q: Value,
        held: tuple[list[Value], list[Value | None]],
        sides: tuple[Value, ...],
        features: dict[str, int],
    ) -> Value:
        """The attention op and its plan; the site learns what must be finite."""
        site, (pages, scales) = self.sites[-1], held
        lengths = dict(zip(spec.q_axes, tensor_type(q).shape, strict=True)) | features
        kind = TensorType(spec.out_dtype, tuple(lengths[a] for a in spec.out_axes), tensor_type(q).device)
        keys = self.batch.encoder_len if emit.facts.cross else self.batch.context_len
        assert keys is not None
        where = (self.batch.block_table[site.group], self.batch.query_start, keys)
        given = tuple(self.sizes[s] for s in spec.sizes)
        out = emit.op("attn.paged_attention", (q, *pages, sides, given, *where, *scales), kind, spec=spec)
        assert out.op is not None
        heads = _key_heads(emit.facts) | lengths
        out.op.meta["plan"] = self._plan(emit.facts, spec, heads, sides, (tensor_type(q).dtype, site.streams))
        read = side_names(spec.visible)
        biases = (side.name for i, side in enumerate(sides) if f"t{i}" in read and tensor_type(side).dtype.is_float)
        self.sites[-1] = dataclasses.replace(site, finite=tuple(biases))
        return out

    def _plan(
        self,
        facts: SiteFacts,
        spec: AttentionSpec,
        lengths: dict[str, Dim],
        sides: tuple[Value, ...],
        types: tuple[DType, tuple[Stream, ...]],
    ) -> PagedPlan:
        """The kernel plan. Raises NotDerivable where no paged kernel can hold the attention.

        A guard for rows that see no key is left out: the mask shows every row itself, and no bias may hide it
        (:attr:`PagedSite.finite`).
        """
        spec = dataclasses.replace(spec, dead_rows="source")
        dtype, streams = types
        axes = (spec.q_axes, spec.k_axes, spec.v_axes, spec.out_axes)
        dtypes = (dtype, streams[0].dtype, streams[-1].dtype, spec.out_dtype)
        whole = {**lengths, QUERY: facts.tokens, KEY: facts.tokens}
        q, k, v, out = (
            Value(name, TensorType(d, tuple(whole[a] for a in names)))
            for name, d, names in zip(("q", "k", "v", "out"), dtypes, axes, strict=True)
        )
        op = Op("attn.attention", (q, k, v, sides, spec.sizes), {}, (out,), {"spec": spec}, loc=facts.op.loc)
        stores = {"k_store": streams[0].store, "v_store": streams[-1].store}
        try:
            return plan_paged(op, batch=None, page_size=self.pages.page_size, causal=not facts.cross, **stores)
        except ValueError as error:
            raise NotDerivable(ATTENTION, str(error), facts.op) from error


def _key_heads(facts: SiteFacts) -> dict[str, Dim]:
    """Lengths of the axes of keys."""
    keys = facts.op.args[1]
    assert isinstance(keys, Value)
    return dict(zip(facts.spec.k_axes, tensor_type(keys).shape, strict=True))


def _features(rows: Value) -> int:
    features = tensor_type(rows).shape[-1]
    assert isinstance(features, int)
    return features


def _stream(rows: Value, store: str | None, name: str) -> Stream:
    kind = tensor_type(rows)
    heads, features = kind.shape[1:]
    assert isinstance(heads, int) and isinstance(features, int)
    return Stream(heads, features, kind.dtype, store or kind.dtype.value, name)


def _of_one_request(spec: AttentionSpec, batch: str | None) -> AttentionSpec:
    """The attention of one request: no batch axis."""
    q, k, v, out = (
        tuple(a for a in axes if a != batch) for axes in (spec.q_axes, spec.k_axes, spec.v_axes, spec.out_axes)
    )
    return dataclasses.replace(spec, q_axes=q, k_axes=k, v_axes=v, out_axes=out)


def _one_head(spec: AttentionSpec, head: str) -> AttentionSpec:
    """The attention whose keys and values all heads share."""
    k, v = (tuple(a for a in axes if a != head) for axes in (spec.k_axes, spec.v_axes))
    return dataclasses.replace(spec, k_axes=k, v_axes=v)


def _cached(found: Latent) -> list[Part]:
    """What is cached, in order: all of c, then the shared parts."""
    return [Part(0, found.size, found.source, 0), *found.shared]


def _flat(emit: Emit, value: Value, part: Part) -> Value:
    """[T, features] of a value that has one row of features for each token."""
    rank = tensor_type(value).rank
    value = emit.part(value, rank - 1, part.offset, part.offset + part.size)
    return emit.shaped("aten.reshape.default", (value, (-1, part.size)), value, (NEW, part.size))


def _absorbed_query(emit: Emit, found: Latent, q: Value, axes: tuple[str, ...], fold: Fold) -> Value:
    """Queries for what is cached: Wᵀq, then q's own features for the shared parts."""
    place = axes.index(CONTRACTED)
    heads = tensor_type(q).shape[axes.index(found.head)]
    assert isinstance(heads, int)
    products = []
    for part in found.products:
        weight = fold(part, heads)
        products.append(_by_head(emit, emit.part(q, place, part.lo, part.hi), axes, CONTRACTED, weight, found))
    absorbed = products[0]
    for more in products[1:]:
        absorbed = emit.shaped("aten.add.Tensor", (absorbed, more), absorbed, tensor_type(absorbed).shape)
    return emit.joined([absorbed, *(emit.part(q, place, part.lo, part.hi) for part in found.shared)], place)


def _by_head(emit: Emit, x: Value, axes: tuple[str, ...], summed: str, weight: Value, found: Latent) -> Value:
    """Σ over ``summed`` of x · weight [heads, summed, size of c], head by head."""
    letters = {axis: chr(ord("a") + i) for i, axis in enumerate(axes)}
    left, right = "".join(letters[a] for a in axes), f"{letters[found.head]}{letters[summed]}z"
    shape = tuple(found.size if a == summed else n for a, n in zip(axes, tensor_type(x).shape, strict=True))
    equation = f"{left},{right}->{left.replace(letters[summed], 'z')}"
    return emit.shaped("aten.einsum.default", (equation, (x, weight)), x, shape)


def _expanded(emit: Emit, found: Latent, out: Value, axes: tuple[str, ...], fold: Fold) -> Value:
    """U · (P·c): the values' weight on results over c, head by head."""
    letters = {axis: chr(ord("a") + i) for i, axis in enumerate(axes)}
    heads = tensor_type(out).shape[axes.index(found.head)]
    assert isinstance(heads, int)
    left = "".join(letters[a] for a in axes)
    right = f"{letters[found.head]}z{letters[FEATURE]}"
    shape = tuple(found.values.size if a == FEATURE else n for a, n in zip(axes, tensor_type(out).shape, strict=True))
    equation = f"{left},{right}->{left.replace(letters[FEATURE], 'z')}"
    weight = fold(found.values, heads)
    return emit.dense(emit.shaped("aten.einsum.default", (equation, (out, weight)), out, shape))
