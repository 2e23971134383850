"""The torch.compile backend: options, reports, fall-backs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attnc
from attnc.compiler import api, driver
from attnc.compiler.codedoc import document
from attnc.compiler.inspection.folder import read_dump
from attnc.compiler.options import OptionError, Options
from attnc.compiler.report import Report, fused_count, reports
from attnc.compiler.verify import NumericError
from attnc.ir import parse_graph

ROOT = Path(__file__).parents[2]


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    keep = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril()
    return ((q @ k.mT) / math.sqrt(q.shape[-1])).masked_fill(~keep, -math.inf).softmax(-1) @ v


def qkv(length: int = 20) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 3, length, 16, generator=generator) for _ in range(3))
    return q, k, v


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()


def run(function: Any, *args: Any, **options: Any) -> tuple[Any, Report]:
    with torch.no_grad():
        result = torch.compile(function, backend=attnc.backend(host="aten", **options))(*args)
    return result, reports()[-1]


def test_the_name_is_enough() -> None:
    before = fused_count()
    with torch.no_grad():
        ours = torch.compile(causal, backend="attnc", options={"host": "aten"})(*qkv())
    torch.testing.assert_close(ours, causal(*qkv()))
    assert fused_count() == before + 1


def test_mode_is_accepted() -> None:
    assert Options.make({"host": "aten"}, "max-autotune").host == "aten"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"hots": "aten"}, "unknown attnc option 'hots'.*host"), ({"host": "gpu"}, "host='gpu'.*'inductor', 'aten'")],
)
def test_a_wrong_option_names_the_right_ones(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        attnc.backend(**options)


def test_environment_sets_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_HOST", "aten")
    assert Options.make().host == "aten"
    assert Options.make({"host": "inductor"}).host == "inductor"


def test_disable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_DISABLE", "1")
    result, report = run(causal, *qkv())
    torch.testing.assert_close(result, causal(*qkv()))
    assert [note.code for note in report.notes] == ["ATTNC-DISABLED"] and not report.sites


def test_the_site_says_what_was_found() -> None:
    _, report = run(causal, *qkv(300))
    (site,) = report.sites
    assert site.fused and site.kind == "MHA" and site.mask == "k <= q" and site.mask_name == "causal"
    assert site.where.endswith(f"test_backend.py:{causal.__code__.co_firstlineno + 2}")
    assert "softmax(-1) @ v" in site.line
    assert sum(site.tiles.values()) == pytest.approx(1) and site.tiles["skip"] > 0
    assert site.flops == 2 * 3 * (300 * 301 // 2) * 2 * (16 + 16)
    assert "#include <attnc/" in report.kernels[site.kernel]
    assert any("masked pairs hold the fill" in line for line in site.certificate)


def test_report_round_trips_as_json() -> None:
    _, report = run(causal, *qkv())
    again = Report.from_json(report.to_json())
    assert again.sites == report.sites and again.notes == report.notes
    assert json.loads(report.to_json())["total"] == 1
    with pytest.raises(ValueError, match="version"):
        Report.from_json('{"version": 99}')


def test_report_shows_formulas_as_they_are() -> None:
    def padded(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
        return (q @ k.mT).masked_fill(~keep[:, None, None], -math.inf).softmax(-1) @ v

    _, report = run(padded, *qkv(), torch.ones(2, 20, dtype=torch.bool))
    assert report.sites[0].mask == "keep[b, k] != 0"
    assert "keep[b, k] != 0" in str(report) and "keep[b, k] != 0" in report._repr_html_()


def test_an_unfused_softmax_names_the_line_and_the_remedy() -> None:
    def returned(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        weights = (q @ k.mT).softmax(-1)
        return weights @ v, weights

    _, report = run(returned, *qkv())
    (site,) = report.sites
    assert site.code == "ATTNC-WEIGHTS-USED" and "need_weights=False" in site.remedy
    assert site.where.endswith(f"test_backend.py:{returned.__code__.co_firstlineno + 1}")


def test_a_dense_bias_is_noted() -> None:
    bias = torch.randn(20, 20)
    _, report = run(lambda q, k, v, b: (q @ k.mT + b).softmax(-1) @ v, *qkv(), bias)
    assert [note.code for note in report.notes] == ["ATTNC-DENSE-SIDE"]


def test_dump(tmp_path: Path) -> None:
    _, report = run(causal, *qkv(), dump_ir=str(tmp_path), verify="structure")
    (folder,) = tmp_path.iterdir()
    names = sorted(file.name for file in folder.iterdir())
    assert names[0] == "00_captured.ir" and "03_fuse-attention.ir" in names and "report.json" in names
    for file in folder.glob("*.ir"):
        parse_graph(file.read_text())
    assert "attn.attention" in (folder / "03_fuse-attention.ir").read_text()
    site = report.sites[0]
    origin, versions, *text = (folder / f"{site.kernel}.cpp").read_text().splitlines(keepends=True)
    assert origin == f"// {report.name}: attention 0 at {site.where}\n"
    assert versions.startswith("// written with attnc ") and f"torch {torch.__version__}" in versions
    assert "".join(text) == report.kernels[site.kernel]


def test_a_dump_for_a_gpu(tmp_path: Path) -> None:
    class Causal(torch.nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return causal(q, k, v)

    program = api.compile(Causal(), qkv(), options={"dump_ir": str(tmp_path), "target": "sm_90"})
    ((kernel, text),) = program.report.kernels.items()
    (path,) = tmp_path.glob("*/*.py")
    assert path.stem == kernel and path.read_text().endswith(text)
    assert path.read_text().startswith(f"# {program.report.name}: attention 0 at ")
    (dump,) = read_dump(tmp_path)
    assert dump.kernels == {kernel: text}


def test_a_dump_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="cannot write IR dumps"):
        result, report = run(causal, *qkv(), dump_ir=str(tmp_path / "file"))
    torch.testing.assert_close(result, causal(*qkv()))
    assert report.notes[0].code == "ATTNC-HOST-INTERNAL"


def test_numeric_verification_passes_and_catches() -> None:
    class Corrupting:
        name = "corrupting"

        def run(self, graph: Any, context: Any) -> bool:
            import dataclasses

            for op in graph.ops:
                if op.name == "attn.attention":
                    spec = op.attrs["spec"]
                    op.attrs["spec"] = dataclasses.replace(
                        spec, visible=spec.visible.args[0], score=spec.visible.args[0]
                    )
            return True

    module = torch.export.export(Causal(), qkv(), strict=False).run_decompositions({}).graph_module
    options = Options.make({"host": "aten", "verify": "numeric"})
    driver.compile_graph(module, options, example_inputs=list(qkv()))
    original = driver.run_pipeline

    def broken(graph: Any, context: Any, **kwargs: Any) -> Any:
        from attnc.compiler.passes.pipeline import PIPELINE

        return original(graph, context, passes=(*PIPELINE[:4], Corrupting()), **kwargs)

    driver.run_pipeline = broken  # type: ignore[assignment]
    try:
        with pytest.raises(NumericError, match=r"pass corrupting.*attn\.attention"):
            driver.compile_graph(module, options, example_inputs=list(qkv()))
    finally:
        driver.run_pipeline = original


class Causal(torch.nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return causal(q, k, v)


def test_an_internal_error_leaves_the_model_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("attnc.compiler.backend.compile_graph", fail)
    with pytest.warns(RuntimeWarning, match="internal error.*planted"):
        result, report = run(causal, *qkv())
    torch.testing.assert_close(result, causal(*qkv()))
    assert [note.code for note in report.notes] == ["ATTNC-HOST-INTERNAL"]


def test_export_program_runs_at_other_lengths() -> None:
    length = torch.export.Dim("S", min=2, max=64)
    program = attnc.compile(Causal(), qkv(), dynamic_shapes=({2: length},) * 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(program(*qkv(33)), causal(*qkv(33)))
    assert program.report.sites[0].shape == "b=2 h=3 q=S d=16 k=S e=16"
    assert "1/1" in repr(program)


def test_a_graph_from_text_compiles_and_runs() -> None:
    program = attnc.compile(Causal(), qkv())
    again = attnc.compile(parse_graph(str(program.graph)))
    torch.testing.assert_close(again(*qkv())[0], causal(*qkv()))


def test_code_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "codes.md").read_text(encoding="utf-8")
    assert page == document(), "run `python -m attnc.compiler.codedoc docs/codes.md`"


def test_every_code_in_the_sources_is_registered() -> None:
    import re

    from attnc.compiler.codes import CODES

    used = set()
    for file in (ROOT / "compiler").rglob("*.py"):
        used |= set(re.findall(r'"(ATTNC-[A-Z0-9-]+)"', file.read_text(encoding="utf-8")))
    assert used == set(CODES)


def test_without_a_compiler_attention_is_right_and_said_to_be_slow(tmp_path: Path) -> None:
    """In a process of its own: the route to a kernel is chosen once per process."""
    program = """
import torch, attnc
from attnc.compiler.report import reports

def f(q, k, v):
    return (q @ k.mT).softmax(-1) @ v

x = [torch.randn(2, 3, 9, 8) for _ in range(3)]
with torch.no_grad():
    ours = torch.compile(f, backend=attnc.backend(host="aten"))(*x)
torch.testing.assert_close(ours, f(*x))
print([note.code for note in reports()[-1].notes], reports()[-1].fused)
"""
    environment = {
        **os.environ,
        "ATTNC_CACHE_DIR": str(tmp_path),
        "CXX": str(tmp_path / "none"),
        "PYTHONWARNINGS": "default",
    }
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "['ATTNC-NO-COMPILER'] 1"
    assert done.stderr.count("RuntimeWarning: attnc:") == 1, done.stderr
