"""The parameters of an emitted kernel of paged attention, and what the text calls them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from attnc.codegen.paged_plan import PagedPlan, page_width
from attnc.codegen.plan import KernelPlan
from attnc.codegen.triton.dims import LEAST, parts
from attnc.codegen.triton.expressions import element_type
from attnc.codegen.triton.kv_write import STORE_TYPES
from attnc.codegen.triton.launch import Parameter
from attnc.codegen.triton.parameters import Layout

COUNTS = ("requests", "tiles", "splits")
"""Numbers of a step that machine code isn't made for anew."""
_SCALES = {"i8": "fp32", "f8e4m3": "fp32", "i4": "fp16"}
_POINTERS = ("Q", "K", "V", "KS", "VS", "Table", "Starts", "Contexts", "Out", "Parts", "Sums")


@dataclass(frozen=True)
class PagedLayout:
    """Names of everything a kernel of ``plan`` is given, in order."""

    plan: PagedPlan

    @cached_property
    def attention(self) -> KernelPlan:
        """The plan's attention without the batch axis, which is one long and in no formula."""

        def without(axes: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(axis for axis in axes if axis != self.plan.batch)

        plan = self.plan.attention
        return replace(
            plan,
            outer=without(plan.outer),
            q_axes=without(plan.q_axes),
            k_axes=without(plan.k_axes),
            v_axes=without(plan.v_axes),
            out_axes=without(plan.out_axes),
        )

    @cached_property
    def inner(self) -> Layout:
        """What formulas read."""
        return Layout(self.attention)

    @property
    def kv_axes(self) -> tuple[str, ...]:
        """Outer axes of keys or values: a program has one index of them."""
        attention = self.attention
        return tuple(a for a in attention.outer if a in attention.k_axes or a in attention.v_axes)

    @property
    def group_axes(self) -> tuple[str, ...]:
        """Outer axes that only queries have: rows of a tile."""
        return tuple(a for a in self.attention.outer if a not in self.kv_axes)

    @property
    def page_strides(self) -> tuple[str, ...]:
        """Strides of pages and scales."""
        return tuple(f"{name}_{of}" for name in ("k", "v", "ks", "vs") for of in ("page", "of_head", "slot"))

    @property
    def row_strides(self) -> tuple[str, ...]:
        """Strides of q and of the result, without the batch axis."""
        axes = self.inner.axes
        return tuple(self.inner.stride(operand, axis) for operand in ("q", "out") for axis in axes[operand])

    @property
    def run_time(self) -> tuple[str, ...]:
        """Every parameter after the operands."""
        inner = self.inner
        named = [*inner.side_strides, *list(inner.lengths.values())[2:], *inner.sizes.values()]
        return (
            *inner.sides, *self.row_strides, *self.page_strides, "table_row", *named, "groups", "kv_count", *COUNTS,
        )  # fmt: skip

    def row_start(self, operand: str) -> str:
        """Where the rows of q or of the result begin."""
        outer = {axis: f"i_{axis}" for axis in self.attention.outer}
        terms = [
            f"tl.cast({outer[axis]}, tl.int64) * {self.inner.stride(operand, axis)}"
            for axis in self.inner.axes[operand]
            if axis in outer
        ]
        return " + ".join([{"q": "Q", "out": "Out"}[operand], f"token * {operand}_row", *terms])

    def head(self, operand: str) -> str:
        """The kv head of pages of K or V: their axes row-major."""
        text = ""
        for axis in self.plan.kv_axes(operand):
            text = f"({text} * n_{axis} + i_{axis})" if text else f"i_{axis}"
        return text or "kv * 0"

    def parts(self, operand: str) -> tuple[int, int]:
        """Columns of the two parts of keys (``k``) or values: of i4 the first and the second features of bytes."""
        store, length = (self.plan.k_store, self.head_dim) if operand == "k" else (self.plan.v_store, self.value_dim)
        if store != "i4":
            return parts(length)
        width = max(LEAST, 1 << max(0, page_width(store, length) - 1).bit_length())
        return width, width

    @property
    def head_dim(self) -> int:
        """Features of a key. Raises ValueError where that isn't known."""
        return _known(self.attention.head_dim)

    @property
    def value_dim(self) -> int:
        """Features of a value, the same."""
        return _known(self.attention.value_dim)

    def parameters(self) -> tuple[Parameter, ...]:
        """Signature of both kernels for code compiled ahead of time.

        Queries, pages and the result are assumed to begin at addresses that are multiples of 16 bytes, with contiguous
        features and other strides that are multiples of 16 elements; scales to be contiguous from slot to slot.
        """
        dtypes, stores = self.attention.dtypes, {"k": self.plan.k_store, "v": self.plan.v_store}
        kinds = {
            "Q": element_type(dtypes[0]), "Out": element_type(dtypes[3]), "Parts": "fp32", "Sums": "fp32",
            **dict.fromkeys(("Table", "Starts", "Contexts"), "i32"),
            **{n.upper(): STORE_TYPES[store] for n, store in stores.items()},
            **{f"{n.upper()}S": _SCALES.get(store, STORE_TYPES[store]) for n, store in stores.items()},
        }  # fmt: skip
        sides = [Parameter(f"t{i}", f"*{element_type(s.dtype)}", "aligned") for i, s in enumerate(self.attention.sides)]
        operands = [Parameter(name, f"*{kinds[name]}", "aligned") for name in _POINTERS]
        return (*operands, *sides, *(self._number(name) for name in self.run_time[len(sides) :]))

    def _number(self, name: str) -> Parameter:
        if name in ("q_col", "out_col"):
            return Parameter(name, "i32", "one")
        if name in ("ks_slot", "vs_slot"):
            store = self.plan.k_store if name == "ks_slot" else self.plan.v_store
            return Parameter(name, "i32", "nothing" if store == "i4" else "one")
        aligned = name in self.row_strides or (name in self.page_strides and name.startswith(("k_", "v_")))
        return Parameter(name, "i32", "aligned" if aligned else "nothing")


def _known(length: int | None) -> int:
    if length is None:
        raise ValueError("paged attention in Triton needs head dimensions that are known")
    return length
