"""What lies in a dump folder, read back: passes, report, attentions, pictures, kernels.

A dump without a report is one whose compile failed; its passes are read all the same.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnc.codegen.source import SUFFIXES
from attnc.compiler.dump import ORIGIN_LINES, SITES_VERSION
from attnc.compiler.inspection.pictures import Picture
from attnc.compiler.report import Report
from attnc.ir.diagnostics import AttncError
from attnc.ir.graph import Graph
from attnc.ir.parser import parse_graph


class DumpError(AttncError):
    """A folder that is no dump, or a file in it that can't be read."""


@dataclass(frozen=True)
class Attention:
    """An ``attn.attention`` of the last graph."""

    value: str
    """The name of its result."""
    site: int | None
    """Its place among the report's sites."""
    kernel: str
    """The name of its kernel's file, without suffix."""
    picture: int | None
    """Its mask among :attr:`GraphDump.pictures`."""


@dataclass
class GraphDump:
    """The files of one graph."""

    folder: Path
    passes: list[tuple[str, Graph]]
    """``02_fuse-attention`` and the graph after that pass, in order; the first is the captured graph."""
    report: Report | None = None
    attentions: list[Attention] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    kernels: dict[str, str] = field(default_factory=dict)
    """File name without suffix → text, without the lines that say where it is from."""

    @property
    def name(self) -> str:
        return self.report.name if self.report else self.passes[0][1].name


def read_dump(path: Path) -> list[GraphDump]:
    """The graphs of a dump, in the order of their folders; ``path`` may be the folder of one graph.

    Raises DumpError where there is none, and for a file that isn't what the dump writes; ParseError for a broken graph.
    """
    if not path.is_dir():
        raise DumpError(f"reading {path}: no such folder; attnc compile SRC --dump-ir DIR writes one")
    folders = sorted({file.parent for pattern in ("*.ir", "*/*.ir") for file in path.glob(pattern)}, key=_number)
    if not folders:
        raise DumpError(f"reading {path}: no .ir files in it or one folder below; is it a dump?")
    return [_read_graph(folder) for folder in folders]


def read_ir(path: Path) -> Graph:
    """The graph of a file. Raises DumpError for a file that is no text, ParseError for its text."""
    try:
        return parse_graph(path.read_text(encoding="utf-8"), source=str(path))
    except UnicodeDecodeError as error:
        raise DumpError(f"reading {path}: not a text file ({error.reason} at byte {error.start})") from error


def _number(folder: Path) -> tuple[int, str]:
    """``graph_100`` comes after ``graph_99``."""
    match = re.search(r"\d+$", folder.name)
    return int(match[0]) if match else -1, folder.name


def _read_graph(folder: Path) -> GraphDump:
    dump = GraphDump(folder, [(file.stem, read_ir(file)) for file in sorted(folder.glob("*.ir"))])
    sources = sorted(file for suffix in SUFFIXES.values() for file in folder.glob(f"*{suffix}"))
    texts = ((file.stem, file.read_text(encoding="utf-8").split("\n", ORIGIN_LINES)) for file in sources)
    dump.kernels = {name: lines[ORIGIN_LINES] for name, lines in texts if len(lines) > ORIGIN_LINES}
    report, sites = folder / "report.json", folder / "sites.json"
    try:
        if report.is_file():
            dump.report = Report.from_json(report.read_text(encoding="utf-8"))
        if sites.is_file():
            _read_sites(dump, json.loads(sites.read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DumpError(f"reading {folder}: report.json or sites.json is of another version: {error}") from error
    return dump


def _read_sites(dump: GraphDump, data: dict[str, Any]) -> None:
    if data["version"] != SITES_VERSION:
        raise ValueError(f"sites of version {data['version']}, this build reads {SITES_VERSION}")
    dump.attentions = [Attention(**entry) for entry in data["attentions"]]
    dump.pictures = [Picture.from_dict(entry) for entry in data["pictures"]]
