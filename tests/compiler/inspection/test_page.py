"""The page: self-contained, whole, and small for a deep model."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from attnc.compiler.inspection.folder import read_dump
from attnc.compiler.inspection.page import page
from attnc.compiler.report import Report
from attnc.ir import Graph

Model = Callable[..., str]
Parsed = Callable[[str], Graph]
Dumped = Callable[..., Report]
VOID = {"meta", "br", "input", "path", "use"}
NASTY = r"x = '</script><script>alert(1)</script>' # <!-- & \u2028 %"


class Page(HTMLParser):
    """Elements by id, text by element, and whether every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.texts: dict[str, str] = {}
        self._open: list[str] = []
        self.feed(text)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [str(value) for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.stack.append(tag)
            self._open.append(str(dict(attrs).get("id") or tag))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for name in self._open:
            self.texts[name] = self.texts.get(name, "") + data

    @property
    def data(self) -> Any:
        return json.loads(self.texts["data"])


def made(folder: Path) -> Page:
    return Page(page(read_dump(folder), "a <title>"))


def test_the_page_has_every_part_and_asks_for_nothing(
    tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped
) -> None:
    dumped(parsed(model(2)), tmp_path, {"S": 40})
    found = made(tmp_path)
    assert len(found.ids) == len(set(found.ids))
    assert {"site-0-0", "site-0-1", "kernel-0", "picture-0-0", "graph-0", "data", "find", "side"} <= set(found.ids)
    references = [v for _, attrs in found.tags for k, v in attrs.items() if k in ("src", "href", "action", "data")]
    assert references and all(str(v).startswith("#") and str(v)[1:] in found.ids for v in references)
    assert not {"link", "img", "iframe", "object", "base", "form"} & {tag for tag, _ in found.tags}
    assert "url(" not in found.texts["style"] and "@import" not in found.texts["style"]
    policy = next(a["content"] for t, a in found.tags if t == "meta" and "http-equiv" in a)
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def test_sites_masks_and_certificates(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    text = model(2).replace("return %l1y", "return %l1y, %l1p")
    report = dumped(parsed(text), tmp_path, {"S": 40})
    found = made(tmp_path)
    fused, refused = report.sites
    row = found.texts["site-0-0"]
    assert "causal" in row and "k <= q" in row and "fused" in row and "p = softmax(scores)" in row
    assert all(line in row for line in fused.certificate) and fused.kernel in row
    other = found.texts["site-0-1"]
    assert all(text in other for text in (refused.code, refused.reason, *refused.advice.values()))
    assert refused.nearest == "softmax(qk * 0.25)·V, causal, MHA" and "output_attentions=False" in refused.edit
    assert refused.blocker == "aten.softmax.int at model.py:11: p = softmax(scores)"
    uses = [attrs["href"] for tag, attrs in found.tags if tag == "use"]
    assert uses == ["#picture-0-0"]
    kernel = next(tmp_path.glob("*/*.cpp"))
    origin, _, text = kernel.read_text().split("\n", 2)
    assert origin.startswith("// ") and "attention 0 at model.py:" in origin
    assert text in found.texts["kernel-0"]


def test_rows_carry_their_source_and_attentions_their_kernel(
    tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped
) -> None:
    dumped(parsed(model(2)), tmp_path, {"S": 40})
    data = made(tmp_path).data
    (graph,) = data["graphs"]
    assert [p["label"] for p in graph["passes"]] == [file.stem for file in sorted(tmp_path.glob("*/*.ir"))]
    assert graph["attentions"]["attention_1"] == {"site": "site-0-1", "kernel": "kernel-0"}
    text, place = next(row for row in data["rows"] if row[0].startswith("%l1p"))
    assert "aten.softmax.int" in text and data["places"][place] == ["model.py", 11, "p = softmax(scores)", "layers.1"]


def test_what_looks_like_markup_is_text(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    quoted = json.dumps(NASTY)[1:-1]
    dumped(parsed(model(1, code=quoted)), tmp_path, {"S": 40})
    found = made(tmp_path)
    assert sum(tag == "script" for tag, _ in found.tags) == 2
    assert NASTY in found.texts["site-0-0"]
    assert NASTY in {place[2] for place in found.data["places"]}
    assert found.texts["title"].startswith("a <title>")


def test_a_compile_that_failed_still_has_its_passes(
    tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped
) -> None:
    dumped(parsed(model(1)), tmp_path, {"S": 40}, finish=False)
    found = made(tmp_path)
    assert "The compile did not finish; the last pass written is" in found.texts["main"]
    assert len(found.data["graphs"][0]["passes"]) == len(list(tmp_path.glob("*/*.ir")))


def test_several_graphs_share_kernels(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    for name in ("one", "two"):
        dumped(parsed(model(1, name=name)), tmp_path, {"S": 40})
    dumped(parsed(model(1, name="three", window=5)), tmp_path, {"S": 40})
    found = made(tmp_path)
    assert [name for name in found.ids if name.startswith("kernel-")] == ["kernel-0", "kernel-1"]
    assert [g["id"] for g in found.data["graphs"]] == ["graph-0", "graph-1", "graph-2"]


def test_layers_are_written_once(tmp_path: Path, model: Model, parsed: Parsed, dumped: Dumped) -> None:
    """32 layers, every pass: the page is smaller than the passes it shows."""
    dumped(parsed(model(32)), tmp_path, {"S": 40})
    text = page(read_dump(tmp_path), "deep")
    passes = sum(file.stat().st_size for file in tmp_path.glob("*/*.ir"))
    assert len(text.encode()) < passes / 2
    found = Page(text)
    assert [name for name in found.ids if name.startswith(("kernel-", "picture-"))] == ["picture-0-0", "kernel-0"]


@pytest.mark.slow
def test_a_deep_llama_stays_below_five_megabytes(tmp_path: Path, dumped: Dumped) -> None:
    """32 layers of a real decoder, with their strides and source lines."""
    import torch

    from attnc.compiler.frontends.torch.importer import import_graph
    from attnc.compiler.host.exported import capture_exported
    from attnc.models import llama

    model = llama.Llama(dataclasses.replace(llama.TINY, layers=32))
    inputs = model.example_inputs(batch=2, length=16)
    graph = import_graph(capture_exported(torch.export.export(model, (), inputs, strict=False)).graph_module)
    report = dumped(graph, tmp_path, {})
    assert (report.fused, report.total) == (32, 32)
    assert len(page(read_dump(tmp_path), "llama").encode()) < 5_000_000
