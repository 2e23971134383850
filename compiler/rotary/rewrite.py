"""From a proved rotation to ``attn.rope``: positions and frequencies as operands, made once and shared."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

import sympy
import torch

from attnc.compiler.frontends.torch.dtypes import TO_TORCH
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.rotary.given import Table
from attnc.compiler.rotary.operands import Entries, Operands, Run, runs_of
from attnc.compiler.rotary.proof import Rotation
from attnc.compiler.rotary.turns import Ones, Pad, Position
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, DType, TensorType, as_dim, contiguous_strides
from attnc.ir.values import Arg, Literal, Op, Value

_MADE = ("arange.default", "full.default")
"""Operators that make a tensor of integers, on the device of the rotation."""


@dataclass
class Rewrite:
    """Rewrites rotations of one graph, in execution order; equal operands are made once."""

    graph: Graph
    unrecorded: Collection[Op] = ()
    """Ops that run with gradients off."""
    made: dict[object, Value] = field(default_factory=dict)

    def apply(self, rotation: Rotation, operands: Operands) -> Op:
        """Put ``attn.rope`` in the place of a rotation's result."""
        before = rotation.result.op
        assert before is not None
        kind = tensor_type(rotation.result)
        positions = tuple(self._position(p, cut, kind.device, before) for p, cut, _ in operands.turns)
        frequencies = tuple(self._frequencies(e, cut, kind.device, before) for _, cut, e in operands.turns)
        tables = tuple(self._table(table, before) for table in rotation.given)
        op = self.graph.create(
            "attn.rope",
            (rotation.x, positions, frequencies, *((tables,) if tables else ())),
            (kind,),
            attrs={
                "style": rotation.style,
                "rotary_dim": rotation.rotary_dim,
                "attention_factor": rotation.factor,
                "rounded": rotation.rounded,
            },
            loc=before.loc,
            before=before,
            names=("rope",),
        )
        op.meta = {
            **before.meta,
            "complex": rotation.is_complex,
            "recorded": before not in self.unrecorded,
            "tables": rotation.origin.meta.get("fx", {}) if rotation.origin is not None else {},
        }
        result = self._parted(op.result, before) if rotation.parted else op.result
        self.graph.replace_uses(rotation.result, result)
        return op

    def _parted(self, turned: Value, before: Op) -> Value:
        """The first feature of every pair of neighbours, then the second one of each."""
        *lead, count = tensor_type(turned).shape
        assert isinstance(count, int)  # features are enumerated
        shape = (*lead, count // 2, 2)
        pairs = self._view(before, "unflatten.int", (turned, -1, shape[-2:]), shape)
        *outer, step, one = contiguous_strides(shape)
        kind = replace(tensor_type(pairs), shape=(*lead, 2, count // 2), strides=(*outer, one, step))
        sides = self.graph.create("aten.transpose.int", (pairs, -2, -1), (kind,), loc=before.loc, before=before)
        return self._view(before, "flatten.using_ints", (sides.result, -2, -1), (*lead, count))

    def _table(self, table: Table, before: Op) -> Value:
        """Given cosines or sines, broadcast to x as they are."""
        if table not in self.made:
            value = self._aligned(table.position, "", before)
            *lead, features = tensor_type(value).shape
            if (table.first, table.stride, table.count) != (0, 1, features):
                end = table.first + (table.count - 1) * table.stride + 1
                args = (value, -1, table.first, end, table.stride)
                value = self._view(before, "slice.Tensor", args, (*lead, table.count))
            if table.negated:
                value = self._view(before, "neg.default", (value,), tensor_type(value).shape)
            self.made[table] = value
        return self.made[table]

    def _position(self, position: Position, cut: bool, device: str, before: Op) -> Value:
        key = (position, cut)
        if key not in self.made:
            self.made[key] = self._detached(self._aligned(position, device, before), cut, before)
        return self.made[key]

    def _aligned(self, position: Position, device: str, before: Op) -> Value:
        """The positions with a dimension for each place from the outermost used one on."""
        value = position.value
        if isinstance(value, int):
            value = self._op(before, "arange.default", (value,), (value,), DType.I64, device)
        elif isinstance(value, Ones):
            value = self._op(before, "full.default", ((value.length,), 1), (value.length,), DType.I64, device)
        for dim, cut in position.windows:
            shape = tensor_type(value).shape
            shape = (*shape[:dim], cut.length, *shape[dim + 1 :])
            value = self._view(before, "slice.Tensor", (value, dim, *cut.bounds, cut.step), shape)
        places = list(position.places)
        for dim, index in reversed(position.fixed):
            shape = tensor_type(value).shape
            value = self._view(before, "select.int", (value, dim, index), (*shape[:dim], *shape[dim + 1 :]))
            del places[dim]
        for dim in reversed(range(len(places))):
            if places[dim] is None:
                shape = tensor_type(value).shape
                value = self._view(before, "squeeze.dim", (value, dim), (*shape[:dim], *shape[dim + 1 :]))
                del places[dim]
        kept = [place for place in places if place is not None]
        for pad in position.pads:
            value = self._padded(value, kept.index(pad.place), pad, before)
        return self._spread(value, kept, before)

    def _padded(self, value: Value, dim: int, pad: Pad, before: Op) -> Value:
        shape = tensor_type(value).shape
        whole = as_dim(sympy.sympify(shape[dim]) + pad.before + pad.after)
        around = (*(0, 0) * (len(shape) - 1 - dim), pad.before, pad.after)
        return self._view(before, "constant_pad_nd.default", (value, around), (*shape[:dim], whole, *shape[dim + 1 :]))

    def _spread(self, value: Value, places: list[int], before: Op) -> Value:
        """Dimensions in order, and one of length 1 for each place not used."""
        order = tuple(sorted(range(len(places)), key=lambda dim: -places[dim]))
        if order != tuple(range(len(places))):
            shape = tensor_type(value).shape
            value = self._view(before, "permute.default", (value, order), tuple(shape[dim] for dim in order))
        for dim, place in enumerate(range(max(places, default=-1), -1, -1)):
            if place not in places:
                shape = tensor_type(value).shape
                value = self._view(before, "unsqueeze.default", (value, dim), (*shape[:dim], 1, *shape[dim:]))
        return value

    def _frequencies(self, entries: Entries, cut: bool, device: str, before: Op) -> Value:
        key = (entries, cut)
        if key not in self.made:
            self.made[key] = self._detached(self._gathered(entries, device, before), cut, before)
        return self.made[key]

    def _gathered(self, entries: Entries, device: str, before: Op) -> Value:
        """One frequency for each pair: a tensor as it is, a slice of one, or zeros with slices written in."""
        if any(entry and entry[0].value is None for entry in entries):
            rounded = any(entry and entry[0].rounded for entry in entries)
            return self._constant(
                [entry[0].number * entry[1] if entry else 0.0 for entry in entries], rounded, device, before
            )
        count, sources = len(entries), runs_of(entries)
        whole = len(sources) == 1 and len(sources[0][2]) == 1 and sources[0][2][0].count == count
        result: Value | None = None
        for source, scale, runs in sources:
            assert source is not None
            flat = self._scaled(self._flat(source, before), scale, before)
            for run in runs:
                part = self._part(flat, run, before)
                if whole:
                    return part
                if result is None:
                    kind = tensor_type(flat)
                    result = self._op(before, "new_zeros.default", (flat, (count,)), (count,), kind.dtype, device)
                end = run.start + (run.count - 1) * run.step + 1
                args = (result, part, 0, run.start, end, run.step)
                result = self._op(before, "slice_scatter.default", args, (count,), tensor_type(result).dtype, device)
        assert result is not None  # a position turns something
        return result

    def _flat(self, value: Value, before: Op) -> Value:
        shape = tensor_type(value).shape
        if len(shape) == 1:
            return value
        count = 1
        for n in shape:
            assert isinstance(n, int)
            count *= n
        return self._view(before, "reshape.default", (value, (count,)), (count,))

    def _scaled(self, value: Value, scale: float, before: Op) -> Value:
        if scale == 1.0:
            return value
        kind = tensor_type(value)
        return self._op(before, "mul.Tensor", (value, scale), kind.shape, kind.dtype, kind.device)

    def _part(self, flat: Value, run: Run, before: Op) -> Value:
        if (run.first, run.stride, run.count) == (0, 1, tensor_type(flat).shape[0]):
            return flat
        end = run.first + (run.count - 1) * run.stride + 1
        return self._view(before, "slice.Tensor", (flat, 0, run.first, end, run.stride), (run.count,))

    def _constant(self, numbers: list[float], rounded: bool, device: str, before: Op) -> Value:
        dtype = DType.F32 if rounded else DType.F64
        payload = torch.tensor(numbers, dtype=TO_TORCH[dtype], device=device)
        kind = TensorType(dtype, (len(numbers),), device)
        return self.graph.add_constant("rope_frequencies", payload, kind, before=before)

    def _detached(self, value: Value, cut: bool, before: Op) -> Value:
        """The value without its gradient, where the source computes the angle with gradients off."""
        kind = tensor_type(value)
        if not cut or not kind.dtype.is_float:
            return value
        return self._view(before, "detach.default", (value,), kind.shape)

    def _view(self, before: Op, name: str, args: tuple[Arg, ...], shape: tuple[Dim, ...]) -> Value:
        first = args[0]
        assert isinstance(first, Value)
        kind = tensor_type(first)
        return self._op(before, name, args, shape, kind.dtype, kind.device)

    def _op(
        self, before: Op, name: str, args: tuple[Arg, ...], shape: tuple[Dim, ...], dtype: DType, device: str
    ) -> Value:
        kwargs = {"device": Literal("device", device)} if name in _MADE else {}
        types = (TensorType(dtype, shape, device),)
        return self.graph.create(f"aten.{name}", args, types, kwargs=kwargs, loc=before.loc, before=before).result
