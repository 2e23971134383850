"""IR dumps: one numbered file per pass, the kernels beside them, the report last."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.report import Report
from attnc.ir.graph import Graph
from attnc.ir.printer import print_graph

_graphs = itertools.count()


class Dump:
    """Writes one graph's files into ``folder/graph_NN/``. Every file appears whole, by rename."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder) / f"graph_{next(_graphs):02d}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OSError(f"attnc: cannot write IR dumps to {self.folder}: {error}. Choose another folder.") from error

    def graph(self, graph: Graph, label: str = "captured", position: int = -1) -> None:
        """One IR file, e.g. ``02_fuse-attention.ir``; position −1 is the graph before any pass."""
        write_atomic(self.folder / f"{position + 1:02d}_{label}.ir", print_graph(graph))

    def after(self, position: int, step: Pass, graph: Graph) -> None:
        """The callback of :func:`~attnc.compiler.passes.pipeline.run_pipeline`."""
        self.graph(graph, step.name, position)

    def finish(self, context: Context, report: Report) -> None:
        """The kernels and the report."""
        for plan, source in context.kernels.values():
            write_atomic(self.folder / f"{source.name}.cpp", source.text)
            write_atomic(self.folder / f"{source.name}.plan.json", plan.to_json())
        write_atomic(self.folder / "report.json", report.to_json())


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
