"""The page in a browser: drawn, searched, folded, read, with no error. Needs a Chromium on PATH."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from attnc.compiler.backend import backend
from attnc.compiler.inspection.folder import read_dump
from attnc.compiler.inspection.page import page
from attnc.compiler.report import Report
from attnc.ir import Graph
from benchmarks.cases.transformers import family

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --virtual-time-budget=60000"
).split()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no chromium on PATH")]

DRIVER = """
<script>
const errors = [];
window.addEventListener("error", (event) => errors.push(String(event.message)));
window.addEventListener("load", async () => {
  const wait = (ms) => new Promise((done) => setTimeout(done, ms));
  let result;
  try { result = await (async () => { %s })(); } catch (error) { errors.push(String(error.stack)); }
  const out = document.createElement("pre");
  out.id = "result";
  out.textContent = JSON.stringify({ result, errors });
  document.body.append(out);
});
</script></body>
"""


@pytest.fixture
def text(
    tmp_path: Path, model: Callable[..., str], parsed: Callable[[str], Graph], dumped: Callable[..., Report]
) -> str:
    dumped(parsed(model(4, code="p = soft<b>max(scores)")), tmp_path / "dump", {"S": 40})
    return page(read_dump(tmp_path / "dump"), "test")


def drive(text: str, folder: Path, script: str, fragment: str = "") -> Any:
    """What ``script`` returns when run in the page, which must raise no error."""
    file = folder / "index.html"
    file.write_text(text.replace("</body>", DRIVER % script), encoding="utf-8")
    assert BROWSER is not None
    done = subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri() + fragment],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    found = re.search(r'<pre id="result">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    answer = json.loads(html.unescape(found[1]))
    assert answer["errors"] == []
    return answer["result"]


ROWS = """const rows = (kind) => [...document.querySelectorAll(".row" + kind)].map((row) => row.innerText);
const folds = () => [...document.querySelectorAll(".fold")].map((fold) => fold.innerText);
const named = (label) => [...document.querySelectorAll(".pass")].find((p) => p.innerText.includes(label));
"""


def test_passes_are_drawn_as_differences(text: str, tmp_path: Path) -> None:
    found = drive(text, tmp_path, ROWS + "return [rows('.add'), rows('.del').length, folds().length];")
    added, gone, folds = found
    assert sum("attn.attention(" in row for row in added) == 4
    assert gone >= 4 * 5 and folds >= 1
    assert any("model.py:10" in row and "p = soft<b>max(scores)" in row and "layers.0" in row for row in added)


def test_folds_open_and_close(text: str, tmp_path: Path) -> None:
    script = """
    const captured = named("captured");
    const counts = [captured.querySelectorAll(".row").length];
    captured.open = true; await wait(50);
    counts.push(captured.querySelectorAll(".row").length);
    captured.querySelector(".fold").click();
    counts.push(captured.querySelectorAll(".row").length);
    document.getElementById("unfold").click();
    counts.push(folds().length);
    document.getElementById("fold").click();
    counts.push(rows("").length);
    return counts;"""
    closed, folded, opened, folds, hidden = drive(text, tmp_path, ROWS + script)
    assert (closed, folds, hidden) == (0, 0, 0)
    assert folded == 0 and opened == 4 + 4 * 7 + 2


def test_search_finds_marks_and_walks(text: str, tmp_path: Path) -> None:
    script = """
    const find = document.getElementById("find");
    find.value = "l2c layers.2"; find.dispatchEvent(new Event("input")); await wait(300);
    const found = document.getElementById("found").innerText;
    const marks = [...new Set([...document.querySelectorAll("mark")].map((m) => m.innerText))].sort();
    document.getElementById("next").click();
    const first = document.querySelector(".row.current").innerText;
    const inside = document.querySelector(".row.current").closest(".pass").innerText.slice(0, 11);
    document.getElementById("previous").click();
    const last = document.querySelector(".row.current").closest(".pass").innerText;
    find.value = "no such op"; find.dispatchEvent(new Event("input")); await wait(300);
    return [found, marks, first, inside, last.split("\\n")[0], document.getElementById("found").innerText];"""
    found, marks, first, inside, last, nothing = drive(text, tmp_path, ROWS + script)
    assert re.match(r"00_captured 2 · 01_canonicalize 2 · ", found)
    assert marks == ["l2c", "layers.2"]
    assert "%l2c" in first and "layers.2" in first and inside == "00_captured"
    assert "fuse-attention" in last and nothing == "nothing found"


def test_a_search_in_the_address(text: str, tmp_path: Path) -> None:
    script = "return [document.getElementById('find').value, document.querySelector('.row.current').innerText];"
    value, current = drive(text, tmp_path, ROWS + script, "#q=softmax%20layers.3")
    assert value == "softmax layers.3" and "%l3p" in current


def test_a_site_leads_to_its_op_and_an_attention_to_its_kernel(text: str, tmp_path: Path) -> None:
    script = """
    document.querySelector("#site-0-1 button").click();
    const op = document.querySelector(".row.current").innerText;
    const button = [...document.querySelectorAll(".row.add button")][2];
    const beside = button.closest(".row").innerText;
    button.click();
    const side = document.getElementById("side"), picture = side.querySelector("svg.mask").getBoundingClientRect();
    const shown = [side.hidden, side.innerText, picture.width, picture.height];
    side.querySelector("button").click();
    return [op, beside, ...shown, side.hidden,
      [...document.querySelectorAll("table.sites use")].map((u) => u.getBBox().width)];"""
    op, beside, hidden, side, width, height, closed, drawn = drive(text, tmp_path, ROWS + script)
    assert "model.py:11" in op and "%attention_2" in beside
    assert not hidden and closed and width > 100 and height > 100
    assert "#include" in side and "softmax at model.py:12" in side and "causal" in side
    assert all(size > 0 for size in drawn)


def minilm() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    from attnc.models import build
    from attnc.models.minilm import tokenize

    return build("minilm"), dict(tokenize(["A sentence.", "Another one, somewhat longer than the first."]))


def gemma() -> tuple[nn.Module, dict[str, torch.Tensor]]:
    chosen = family("gemma3")
    return chosen.model(), chosen.inputs(2, 33)


@pytest.mark.parametrize(("make", "sites", "ropes"), [(minilm, 6, 0), (gemma, 2, 4)], ids=["minilm", "gemma"])
def test_the_page_of_a_model(
    make: Callable[[], tuple[nn.Module, dict[str, torch.Tensor]]], sites: int, ropes: int, tmp_path: Path
) -> None:
    """Every op is found by search; every site shows its picture and its certificate."""
    model, inputs = make()
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend(host="aten", dump_ir=str(tmp_path / "dump")))(**inputs)
    script = """
    const data = JSON.parse(document.getElementById("data").textContent);
    const search = (text) => findRows(data.rows, data.places, text.split("\\n")[0].slice(0, 200));
    const lost = data.rows.filter(([text], i) => !search(text).has(i));
    const calls = data.rows.flatMap(([text]) => [...text.matchAll(/= ([a-z]+\\.[\\w.]+)\\(/g)]);
    const ops = [...new Set(calls.map((call) => call[1]))];
    const find = document.getElementById("find"), unseen = [];
    for (const op of ops) {
      find.value = op; find.dispatchEvent(new Event("input")); await wait(300);
      document.getElementById("next").click();
      const current = document.querySelector(".row.current");
      if (!current || !current.innerText.includes(op) || !current.querySelector("mark")) unseen.push(op);
    }
    const shown = [...document.querySelectorAll("table.sites tr[id]")].map((row) => {
      const details = row.querySelector("details");
      details.open = true;
      return [row.querySelector("use").getBBox().width, details.innerText, details.getBoundingClientRect().height];
    });
    return [data.rows.length, lost, ops, unseen, shown];"""
    count, lost, ops, unseen, shown = drive(page(read_dump(tmp_path / "dump"), "a model"), tmp_path, ROWS + script)
    assert count > 100 and lost == []
    assert {"attn.attention", "aten.softmax.int", *["attn.rope"][:ropes]} <= set(ops) and unseen == []
    assert len(shown) == sites
    assert all(width > 0 and height > 30 and "softmax at" in words for width, words, height in shown)
