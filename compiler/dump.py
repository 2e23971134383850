"""IR dumps: one numbered file per pass, the kernels beside them, then the report and what pages are drawn from.

``attnc dump html`` makes a page of a dump; ``compiler/inspection/folder.py`` reads it back.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping
from pathlib import Path

from attnc.codegen.source import COMMENTS, SUFFIXES, Source
from attnc.compiler.inspection.pictures import Album, numeric_sizes
from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.report import Report
from attnc.ir.graph import Graph
from attnc.ir.printer import print_graph
from attnc.runtime.doctor import installed

SITES_VERSION = 1
ORIGIN_LINES = 2
"""Lines above a kernel that say where it is from."""

_graphs = itertools.count()


class Dump:
    """Writes one graph's files into ``folder/graph_NN/``, a new folder. Every file appears whole, by rename."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = _new_folder(Path(folder))
        self._last = Graph()

    def graph(self, graph: Graph, label: str = "captured", position: int = -1) -> None:
        """One IR file, e.g. ``02_fuse-attention.ir``; position −1 is the graph before any pass."""
        self._last = graph
        write_atomic(self.folder / f"{position + 1:02d}_{label}.ir", print_graph(graph))

    def after(self, position: int, step: Pass, graph: Graph) -> None:
        """The callback of :func:`~attnc.compiler.passes.pipeline.run_pipeline`."""
        self.graph(graph, step.name, position)

    def finish(self, context: Context, report: Report) -> None:
        """The kernels, the attentions of the last graph with their pictures, and the report."""
        files = {digest: context.kernel_name(digest) for digest in context.kernels}
        for digest, (plan, source) in context.kernels.items():
            path = self.folder / f"{files[digest]}{SUFFIXES[source.language]}"
            write_atomic(path, _origin(source, files[digest], report) + source.text)
            write_atomic(self.folder / f"{files[digest]}.plan.json", plan.to_json())
        write_atomic(self.folder / "sites.json", _sites(self._last, context, files))
        write_atomic(self.folder / "report.json", report.to_json())


def _origin(source: Source, kernel: str, report: Report) -> str:
    """Comments above a kernel: the graph and the attentions it is of, and the versions that wrote it."""
    sites = ", ".join(f"{site.index} at {site.where}" for site in report.sites if site.kernel == kernel)
    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    mark = COMMENTS[source.language]
    return f"{mark} {report.name}: attention {sites}\n{mark} written with {versions}\n"


@functools.cache
def _versions() -> dict[str, str]:
    found = {name: installed(name) for name in ("attnc", "torch", "triton")}
    return {name: version for name, version in found.items() if version is not None}


def _new_folder(parent: Path) -> Path:
    """``graph_NN`` with the next number that nobody has: an earlier run's files are neither mixed in nor lost."""
    while True:
        folder = parent / f"graph_{next(_graphs):02d}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise OSError(f"attnc: cannot write IR dumps to {folder}: {error}. Choose another folder.") from error


def _sites(graph: Graph, context: Context, files: Mapping[int, str]) -> str:
    """For each attention: the value it makes, the site in the report, the kernel's file, its picture."""
    album = Album(numeric_sizes(graph, context.hints), context.user_names)
    attentions = [
        {
            "value": op.results[0].name,
            "site": op.meta.get("site"),
            "kernel": files.get(op.meta.get("plan", -1), ""),
            "picture": album.add(op),
        }
        for op in graph.ops
        if op.name == "attn.attention"
    ]
    pictures = [dataclasses.asdict(picture) for picture in album.pictures]
    return json.dumps({"version": SITES_VERSION, "attentions": attentions, "pictures": pictures}, indent=1)


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
