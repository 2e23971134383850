"""The parameters of an emitted kernel: what a call passes beside the operands, and what the text calls it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnc.codegen.plan import KernelPlan
from attnc.codegen.ranges import LENGTH
from attnc.codegen.triton.dims import parts
from attnc.codegen.triton.expressions import element_type
from attnc.codegen.triton.launch import Parameter
from attnc.codegen.triton.programs import Names

_OPERANDS = {"q": "Q", "k": "K", "v": "V", "out": "Out", "lse": "Lse"}


@dataclass(frozen=True)
class Layout:
    """Names of everything a kernel of ``plan`` is given, in order."""

    plan: KernelPlan

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of each operand's dimensions."""
        plan = self.plan
        lse = tuple(a for a in plan.out_axes if a != "e")
        return {"q": plan.q_axes, "k": plan.k_axes, "v": plan.v_axes, "out": plan.out_axes, "lse": lse}

    @property
    def outer(self) -> tuple[str, ...]:
        """The outer index, a variable for each axis."""
        return tuple(f"i_{axis}" for axis in self.plan.outer)

    @property
    def lengths(self) -> dict[str, str]:
        """Names of axis lengths, by axis."""
        return {"q": "q_len", "k": "k_len", **{axis: f"n_{axis}" for axis in self.plan.outer}}

    @property
    def sizes(self) -> dict[str, str]:
        """Names of the plan's run-time sizes."""
        return {s: f"size_{s}" if s.isidentifier() else f"size_{i}" for i, s in enumerate(self.plan.sizes)}

    def stride(self, operand: str, axis: str) -> str:
        """The stride of one dimension: ``row`` for q or k, ``col`` for d or e, else the axis's name."""
        return f"{operand}_{ {'q': 'row', 'k': 'row', 'd': 'col', 'e': 'col'}.get(axis, 'of_' + axis) }"

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(f"t{i}" for i in range(len(self.plan.sides)))

    @property
    def side_strides(self) -> tuple[str, ...]:
        return tuple(f"t{i}_{dim}" for i, side in enumerate(self.plan.sides) for dim in range(side.rank))

    @property
    def strides(self) -> tuple[str, ...]:
        """Strides of q, k, v, out and lse."""
        return tuple(self.stride(operand, axis) for operand, axes in self.axes.items() for axis in axes)

    @property
    def frame(self) -> tuple[str, ...]:
        """What formulas read: side operands with their strides, lengths, named sizes."""
        return (*self.sides, *self.side_strides, *self.lengths.values(), *self.sizes.values())

    @property
    def run_time(self) -> tuple[str, ...]:
        """Every parameter after the operands."""
        return (*self.sides, *self.strides, *self.frame[len(self.sides) :])

    def names(self, **axes: str) -> Names:
        """What a formula may read, with the axes that are no outer ones given."""
        outer = dict(zip(self.plan.outer, self.outer, strict=True))
        sizes = {**{f"|{axis}|": name for axis, name in self.lengths.items()}, **self.sizes}
        return Names({**outer, **axes}, sizes, self.plan.sides)

    def tile_names(self, **axes: str) -> Names:
        """The same for tile bounds, whose axes count tiles of queries (``tq``) and of keys (``tk``)."""
        counts = {"tq": (0, LENGTH[1] // self.plan.block_m), "tk": (0, LENGTH[1] // self.plan.block_n)}
        return replace(self.names(**axes), ranges=counts)

    def start(self, operand: str) -> str:
        """Where an operand begins for one outer index."""
        terms = [
            f"tl.cast(i_{axis}, tl.int64) * {self.stride(operand, axis)}"
            for axis in self.axes[operand]
            if axis in self.plan.outer
        ]
        return " + ".join([_OPERANDS[operand], *terms])

    def index(self, operand: str) -> tuple[str, ...]:
        """The outer index in the tensor descriptor of k or v."""
        return tuple(f"i_{axis}" for axis in self.axes[operand] if axis in self.plan.outer)

    def parameters(self, described: bool = False) -> tuple[Parameter, ...]:
        """Signature of the kernel for code compiled ahead of time.

        Operands are assumed to begin at addresses that are multiples of 16 bytes, with contiguous features and with
        other strides that are multiples of 16 elements: the layout of every projection whose head dimension is one.

        ``described``: k and v are tensor descriptors, whose other strides are multiples of 16 bytes; the kernel reads
        none of theirs.
        """
        sides = [Parameter(f"t{i}", f"*{element_type(s.dtype)}", "aligned") for i, s in enumerate(self.plan.sides)]
        by_descriptor = ("k", "v") if described else ()
        operands = [self._operand(operand, operand in by_descriptor) for operand in _OPERANDS]
        free = ("lse", *by_descriptor)
        strides = [self._stride(operand, axis, free) for operand, axes in self.axes.items() for axis in axes]
        rest = [Parameter(name, "i32") for name in self.frame[len(sides) :]]
        return (*operands, *sides, *strides, *rest)

    def _operand(self, operand: str, described: bool) -> Parameter:
        kind = element_type(dict(zip(_OPERANDS, (*self.plan.dtypes, "f32"), strict=True))[operand])
        if not described:
            return Parameter(_OPERANDS[operand], f"*{kind}", "aligned")
        length = self.plan.head_dim if operand == "k" else self.plan.value_dim
        assert length is not None  # compiling ahead of time needs it anyway
        tile = [*(1 for _ in self.index(operand)), self.plan.block_n, parts(length)[0]]
        return Parameter(_OPERANDS[operand], f"tensordesc<{kind}{tile}>")

    def _stride(self, operand: str, axis: str, free: tuple[str, ...]) -> Parameter:
        name = self.stride(operand, axis)
        if axis in ("d", "e"):
            return Parameter(name, "i32", "one")
        return Parameter(name, "i32", "nothing" if operand in free else "aligned")
