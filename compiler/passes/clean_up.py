"""Remove what nobody reads any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnc.compiler.passes.base import Context
from attnc.ir.graph import Graph
from attnc.ir.rewriter import erase_dead


@dataclass(frozen=True)
class CleanUp:
    """Dead ops without effects go; random draws and effects stay where they are."""

    name: ClassVar[str] = "clean-up"

    def run(self, graph: Graph, context: Context) -> bool:
        return erase_dead(graph) > 0
