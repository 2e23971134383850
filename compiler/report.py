"""What attnc did to one graph: every softmax, fused or not, with its code, place, formula and certificate."""

from __future__ import annotations

import dataclasses
import html
import io
import json
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnc.compiler.codes import CODES

REPORT_VERSION = 1


@dataclass(frozen=True)
class Note:
    """Something about the whole graph or one op: a fall-back, a downgrade."""

    code: str
    message: str
    where: str = ""


@dataclass(frozen=True)
class Site:
    """One softmax or SDPA call."""

    index: int
    fused: bool
    code: str
    where: str
    """The user's ``file:line``."""
    line: str = ""
    """The source text there."""
    module: str = ""
    reason: str = ""
    nearest: str = ""
    """What a refused attention nearly was: its form without what blocks it, else how far it was recognised."""
    blocker: str = ""
    """The op that blocks it and the user's line: ``aten.round.default at model.py:9: w = w.round()``."""
    edit: str = ""
    """What to change there."""
    kind: str = ""
    """``MHA``, ``GQA(4)``, ``MQA(8)``, with ``cross`` where query and key lengths differ."""
    mask: str = ""
    """The formula, True where a key is visible; side operands by their graph names."""
    mask_name: str = ""
    """The mask's name among people: ``causal``, ``sliding window 16``, …"""
    score: str = ""
    shape: str = ""
    """Axes and lengths, e.g. ``b=B h=4 q=S k=S d=64``."""
    tiles: dict[str, float] = field(default_factory=dict)
    """Shares of tiles by class, ``skip``, ``partial``, ``full``, at the lengths seen when compiling."""
    flops: int = 0
    bytes: int = 0
    kernel: str = ""
    certificate: tuple[str, ...] = ()

    @property
    def attention(self) -> bool:
        """False for a softmax that is no attention."""
        return CODES[self.code].level != "other"

    @property
    def remedy(self) -> str:
        return "" if self.fused else CODES[self.code].remedy

    @property
    def advice(self) -> dict[str, str]:
        """What a refusal says, by heading: the reason, then form, blocker and edit, or the remedy of the code."""
        if self.fused:
            return {}
        said = {"": self.reason, "nearest": self.nearest, "blocked by": self.blocker, "edit": self.edit or self.remedy}
        return {heading: text for heading, text in said.items() if text}


@dataclass(frozen=True)
class Rope:
    """One proved rotary embedding."""

    where: str
    style: str
    """``half`` or ``interleaved``."""
    rotary_dim: int
    features: int
    positions: int = 1
    """How many positions its angles depend on: 1, or 2 and more in vision models."""
    attention_factor: float = 1.0
    rounded: bool = False
    """Angles are rounded to float32 first, as those of the model's table were."""
    given: bool = False
    """Cosines and sines are inputs of the graph; its positions aren't known."""
    site: str = ""
    """The attention that reads it: number of the site and operand, ``0 q``."""

    @property
    def kind(self) -> str:
        """Words for people, the same for rotations that differ in place only."""
        part = "" if self.rotary_dim == self.features else f" of {self.features}"
        several = f", {self.positions} positions" if self.positions > 1 else ""
        factor = f", factor {self.attention_factor:g}" if self.attention_factor != 1.0 else ""
        rounded = ", angles of float32" if self.rounded else ""
        given = ", cosines and sines given" if self.given else ""
        return f"{self.style}, {self.rotary_dim}{part} features{several}{factor}{rounded}{given}"


@dataclass
class Report:
    """What happened to one graph. ``total`` counts attentions, not every softmax."""

    name: str
    host: str = ""
    sites: list[Site] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    ropes: list[Rope] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall time of each compile step."""
    kernels: dict[str, str] = field(default_factory=dict)
    """Kernel name → emitted source text."""

    @property
    def fused(self) -> int:
        return sum(site.fused for site in self.sites)

    @property
    def total(self) -> int:
        return sum(site.attention for site in self.sites)

    def to_json(self) -> str:
        """Versioned JSON; kernel texts are left out (they lie in the dump and the store)."""
        data = dataclasses.asdict(self)
        del data["kernels"]
        return json.dumps({"version": REPORT_VERSION, "fused": self.fused, "total": self.total, **data}, indent=2)

    @staticmethod
    def from_json(text: str) -> Report:
        """Read :meth:`to_json`'s text. Raises ValueError on another version."""
        data: dict[str, Any] = json.loads(text)
        if data.pop("version", None) != REPORT_VERSION:
            raise ValueError(f"not a report of version {REPORT_VERSION}")
        del data["fused"], data["total"]
        sites = [Site(**{**s, "certificate": tuple(s["certificate"])}) for s in data.pop("sites")]
        ropes = [Rope(**r) for r in data.pop("ropes", [])]
        return Report(sites=sites, notes=[Note(**n) for n in data.pop("notes")], ropes=ropes, **data)

    def table(self) -> Table:
        """The sites as a rich table."""
        title = Text(f"{self.name}: {self.fused}/{self.total} attentions fused (host {self.host})")
        table = Table(title=title, title_justify="left", expand=False)
        for heading in ("#", "where", "kind", "mask", "tiles skip/partial/full", "result"):
            table.add_column(heading, overflow="fold")
        for site in self.sites:
            cells = (str(site.index), _place(site), site.kind, _mask(site), _tiles(site))
            table.add_row(*map(Text, cells), _result(site))  # Text: a formula's [b, k] is no markup
        return table

    def rope_lines(self) -> list[str]:
        """Proved rotations of one kind as a line: how many, and which operands of which sites they are."""
        kinds: dict[str, list[Rope]] = {}
        for rope in self.ropes:
            kinds.setdefault(rope.kind, []).append(rope)
        return [_ropes(kind, ropes) for kind, ropes in kinds.items()]

    def render(self, console: Console | None = None) -> None:
        """Print the table and the notes."""
        console = console or Console()
        console.print(self.table())
        for line in self.rope_lines():
            console.print(Text("rope", style="green").append(f" {line}", style="default"))
        for note in self.notes:
            where = f" ({note.where})" if note.where else ""
            console.print(Text(note.code, style="yellow").append(f" {note.message}{where}", style="default"))

    def __str__(self) -> str:
        buffer = io.StringIO()
        self.render(Console(file=buffer, width=160))
        return buffer.getvalue()

    def _repr_html_(self) -> str:
        rows = "".join(
            "<tr>" + "".join(f"<td>{_lines(str(cell))}</td>" for cell in cells) + "</tr>"
            for cells in ((s.index, _place(s), s.kind, _mask(s), _tiles(s), _result(s).plain) for s in self.sites)
        )
        heads = "".join(f"<th>{h}</th>" for h in ("#", "where", "kind", "mask", "tiles", "result"))
        notes = "".join(f"<p><code>{html.escape(n.code)}</code> {html.escape(n.message)}</p>" for n in self.notes)
        title = html.escape(f"{self.name}: {self.fused}/{self.total} attentions fused")
        return f"<b>{title}</b><table><tr>{heads}</tr>{rows}</table>{notes}"


def _ropes(kind: str, ropes: list[Rope]) -> str:
    reads = [r.site.split() for r in ropes if r.site]
    operands = " and ".join(sorted({operand for _, operand in reads}, reverse=True))
    sites = ", ".join(dict.fromkeys(number for number, _ in reads))
    where = f": {operands} of {sites}" if reads else ""
    return f"{len(ropes)} rotation{'s' if len(ropes) != 1 else ''} proved ({kind}){where}"


def _place(site: Site) -> str:
    place = site.where.rsplit("/", 1)[-1]
    return f"{place}\n{site.module}" if site.module else place


def _mask(site: Site) -> str:
    return f"{site.mask_name}\n{site.mask}" if site.mask_name and site.mask_name != site.mask else site.mask


def _tiles(site: Site) -> str:
    if not site.tiles:
        return ""
    return " / ".join(f"{site.tiles[k]:.0%}" for k in ("skip", "partial", "full"))


def _result(site: Site) -> Text:
    if site.fused:
        return Text(f"fused\n{site.kernel}", style="green")
    style = "red" if site.attention else "dim"
    lines = [f"{heading}: {text}" if heading else text for heading, text in site.advice.items()]
    return Text("\n".join((site.code, *lines)), style=style)


def _lines(text: str) -> str:
    return html.escape(text).replace("\n", "<br>")


_REPORTS: list[Report] = []


def record(report: Report) -> None:
    """Remember a report for :func:`reports`."""
    _REPORTS.append(report)


def reports() -> list[Report]:
    """The reports of every graph compiled in this process, oldest first."""
    return list(_REPORTS)


def fused_count() -> int:
    """Attentions fused in this process so far."""
    return sum(report.fused for report in _REPORTS)
