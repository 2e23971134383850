"""What a pass is and what it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source, file_names
from attnc.compiler.report import Note, Rope, Site
from attnc.ir.graph import Graph
from attnc.ir.types import Dim


@dataclass
class Context:
    """What passes learn and pass on: sites for the report, notes, the kernels to build.

    ``hints`` gives each named size a typical value (the length seen when compiling); only costs and tile shares use it.
    """

    target: str | None = None
    """What kernels are emitted for; None: for the device of each attention."""
    hints: dict[str, int] = field(default_factory=dict)
    user_names: dict[str, str] = field(default_factory=dict)
    """Graph input → the name its user knows it by, for formulas in reports."""
    sites: list[Site] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ropes: list[Rope] = field(default_factory=list)
    kernels: dict[int, tuple[KernelPlan, Source]] = field(default_factory=dict)
    """Plan digest → plan and source."""

    def kernel_name(self, plan: int) -> str:
        """A name for a kernel that no other of this graph has."""
        return file_names({digest: source for digest, (_, source) in self.kernels.items()})[plan]

    def value_of(self, dim: Dim) -> int | None:
        """A dimension at the hinted sizes; None where a size has no hint."""
        if isinstance(dim, int):
            return dim
        value = dim.subs({s: self.hints[s.name] for s in dim.free_symbols if s.name in self.hints})
        return int(value) if value.is_Integer else None


class Pass(Protocol):
    """A rewrite of a whole graph: a frozen dataclass whose fields are its options."""

    name: ClassVar[str]

    def run(self, graph: Graph, context: Context) -> bool:
        """Rewrite ``graph`` in place; True where anything changed."""
        ...
