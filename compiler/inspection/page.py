"""One self-contained page of a dump: sites, masks, kernels, and every pass as a diff against the pass before.

The file needs nothing else, and a policy in it forbids it to ask for anything. Passes travel as data (``listing.py``)
and are drawn by ``page.js`` when opened, so that the page of a deep model stays small; all other parts are plain HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from attnc.compiler.codes import CODES
from attnc.compiler.inspection.folder import Attention, GraphDump
from attnc.compiler.inspection.listing import Listing, pass_data
from attnc.compiler.inspection.svg import symbol
from attnc.compiler.report import Note, Report, Site

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
KEY = ("skipped", "hidden pair", "masked pair by pair", "whole tile")
"""What the classes of cells are, in their order."""
HEADS = ("#", "where", "kind and mask", "tiles: skip / partial / full", "result")


def page(dumps: Sequence[GraphDump], title: str) -> str:
    """The text of the page. Raises PrintError where a graph has no text form."""
    listing = Listing()
    kernels = _Kernels()
    graphs, sections = [], []
    for number, dump in enumerate(dumps):
        links = {a.value: _links(number, a, kernels.add(dump, a.kernel)) for a in dump.attentions}
        graphs.append({"id": f"graph-{number}", "attentions": links, "passes": pass_data(listing, dump.passes)})
        sections.append(_section(number, dump, kernels))
    data = {"rows": listing.rows, "places": listing.places, "graphs": graphs}
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
        f"<style>{_resource('page.css')}</style></head>\n<body>{_toolbar(title)}<main>{''.join(sections)}"
        f"<h2>kernels</h2>{kernels.html() or '<p>none</p>'}</main>"
        '<aside id="side" hidden></aside><noscript><p>Passes are drawn by a script.</p></noscript>\n'
        f'<script type="application/json" id="data">{_embedded(data)}</script>\n'
        f"<script>{_resource('page.js')}</script></body></html>\n"
    )


class _Kernels:
    """Kernel texts, each once for the whole page."""

    def __init__(self) -> None:
        self._ids: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}

    def add(self, dump: GraphDump, name: str) -> str:
        """The element id of a kernel; empty where the dump lacks it."""
        text = dump.kernels.get(name)
        if text is None:
            return ""
        names = self._names.setdefault(text, [])
        if name not in names:
            names.append(name)
        return self._ids.setdefault(text, f"kernel-{len(self._ids)}")

    def html(self) -> str:
        return "".join(
            f'<details class="kernel" id="{key}"><summary>{escape(", ".join(self._names[text]))}</summary>'
            f"<pre>{escape(text)}</pre></details>"
            for text, key in self._ids.items()
        )


def _resource(name: str) -> str:
    return files("attnc.compiler.inspection").joinpath(name).read_text(encoding="utf-8")


def _embedded(data: Any) -> str:
    """JSON that can't end its script element, whatever a source line holds."""
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _links(number: int, attention: Attention, kernel: str) -> dict[str, str]:
    site = "" if attention.site is None else f"site-{number}-{attention.site}"
    return {"site": site, "kernel": kernel}


def _toolbar(title: str) -> str:
    return (
        f"<header><div><h1>{escape(title)}</h1>"
        '<input id="find" type="search" placeholder="find an op, a type, a file:line, a module" aria-label="find">'
        '<button id="previous" title="shift+enter">previous</button><button id="next" title="enter">next</button>'
        '<button id="unfold">unfold all</button><button id="fold">fold all</button><span id="found"></span>'
        "</div></header>"
    )


def _section(number: int, dump: GraphDump, kernels: _Kernels) -> str:
    report = dump.report
    parts = [f"<section><h2>{escape(dump.name)}</h2>", _summary(dump)]
    if dump.pictures:
        symbols = "".join(symbol(picture, f"picture-{number}-{i}") for i, picture in enumerate(dump.pictures))
        parts.append(f'<svg width="0" height="0" style="position:absolute">{symbols}</svg>')
    if report is not None and report.sites:
        parts.append(_site_table(number, dump, report.sites, kernels))
    parts += [_note(note) for note in report.notes] if report else []
    parts.append(f'<h2>passes</h2><div id="graph-{number}"></div></section>')
    return "".join(parts)


def _summary(dump: GraphDump) -> str:
    if dump.report is None:
        return f'<p class="bad">The compile did not finish; the last pass written is {escape(dump.passes[-1][0])}.</p>'
    report: Report = dump.report
    seconds = ", ".join(f"{escape(step)} {time:.2f} s" for step, time in report.seconds.items())
    share = f"{report.fused} of {report.total} attentions fused"
    return f'<p>{share}; host {escape(report.host)} <span class="dim">{seconds}</span></p>'


def _note(note: Note) -> str:
    remedy = CODES[note.code].remedy if note.code in CODES else ""
    where = f" ({escape(note.where)})" if note.where else ""
    text = f"<code>{escape(note.code)}</code> {escape(note.message)}{where}"
    return f'<p class="note">{text} <span class="dim">{escape(remedy)}</span></p>'


def _site_table(number: int, dump: GraphDump, sites: Sequence[Site], kernels: _Kernels) -> str:
    key = "".join(f'<span><i class="k{i}"></i>{text}</span>' for i, text in enumerate(KEY))
    heads = "".join(f"<th>{head}</th>" for head in HEADS)
    found = {a.site: a for a in dump.attentions}
    rows = "".join(_site_row(number, dump, site, found.get(site.index), kernels) for site in sites)
    return f'<p class="key dim">{key}</p><table class="sites"><tr>{heads}</tr>{rows}</table>'


def _site_row(number: int, dump: GraphDump, site: Site, attention: Attention | None, kernels: _Kernels) -> str:
    lost = bool(dump.attentions) and attention is None
    mask = f"{escape(site.kind)} <b>{escape(site.mask_name)}</b><br><code>{escape(site.mask)}</code>"
    cells = (
        str(site.index),
        _where(site),
        f'<div class="about">{mask}</div>',
        f'<div class="about">{_tiles(number, dump, site, attention)}</div>',
        f'<div class="about">{_result(site, lost)}{_details(site)}</div>{_kernel_link(dump, attention, kernels)}',
    )
    return f'<tr id="site-{number}-{site.index}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _where(site: Site) -> str:
    place = site.where.rsplit("/", 1)[-1]
    found = escape(f"{place} {site.module}".strip())
    return (
        f'<button data-find="{found}" title="{escape(site.where)}">{escape(place)}</button> {escape(site.module)}'
        f"<br><code>{escape(site.line)}</code>"
    )


def _tiles(number: int, dump: GraphDump, site: Site, attention: Attention | None) -> str:
    shares = " / ".join(f"{site.tiles.get(name, 0):.0%}" for name in ("skip", "partial", "full")) if site.tiles else ""
    if attention is None or attention.picture is None:
        return shares
    caption = escape(dump.pictures[attention.picture].caption())
    drawn = f'<use href="#picture-{number}-{attention.picture}"/>'
    return f'<svg class="mask" role="img" aria-label="{caption}"><title>{caption}</title>{drawn}</svg>{shares}'


def _result(site: Site, lost: bool) -> str:
    """``lost``: the last graph has no attention of this site."""
    if site.fused and lost:
        return '<span class="bad">fused, but the last graph has no attention of it</span>'
    if site.fused:
        return '<span class="good">fused</span>'
    style = "bad" if site.attention else "dim"
    lines = (f"<i>{name}</i> {escape(text)}" if name else escape(text) for name, text in site.advice.items())
    return f'<span class="{style}"><code>{escape(site.code)}</code></span><br>{"<br>".join(lines)}'


def _details(site: Site) -> str:
    if not site.fused:
        return ""
    facts = "".join(f"<li><code>{escape(fact)}</code></li>" for fact in _facts(site))
    reasons = "".join(f"<li>{escape(line)}</li>" for line in site.certificate)
    return f"<details><summary>score and certificate</summary><ul>{facts}</ul><ol>{reasons}</ol></details>"


def _facts(site: Site) -> Iterator[str]:
    yield f"score {site.score}"
    yield site.shape
    if site.flops:
        yield f"{site.flops:,} FLOPs, {site.bytes:,} bytes, {site.flops / max(site.bytes, 1):.1f} FLOPs a byte"


def _kernel_link(dump: GraphDump, attention: Attention | None, kernels: _Kernels) -> str:
    key = kernels.add(dump, attention.kernel) if attention else ""
    return f'<a href="#{key}">{escape(attention.kernel)}</a>' if attention and key else ""
