"""The script for a machine with a GPU, as far as it goes without one: definitions, layouts, bookkeeping, the bundle."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.compiler.machine.variants import VARIANTS, Model
from benchmarks.gpu import __main__ as session
from benchmarks.gpu import attentions, bundle, check, contenders
from benchmarks.gpu.attentions import Operands
from benchmarks.gpu.rows import OUT_OF_TIME, Rows

SCRIPT = [Path(bundle.__file__).with_name(f"{name}.py") for name in bundle.SCRIPTS]
FLEX_SOON = ("window", "sinks", "relative-table")
"""Variants whose FlexAttention every run of the tests tries."""


def random_operands(name: str, length: int, heads: int = 4, dtype: torch.dtype = torch.float64) -> Operands:
    kv_heads = VARIANTS[name].kv_heads * heads // 4
    return attentions.operands(name, 2, heads, kv_heads, length, 8, dtype, seed=length, strided=length % 2 == 1)


# -- definitions


@pytest.mark.parametrize("name", VARIANTS)
def test_programs_are_the_compilers_variants(name: str) -> None:
    for length in (1, 37, 601):
        given = random_operands(name, length)
        wanted = Model(VARIANTS[name])(*given.all)
        torch.testing.assert_close(attentions.program(name, *given.all), wanted, rtol=1e-12, atol=1e-12)
    last = attentions.program(name, *given.all, first=length // 2)
    torch.testing.assert_close(last, wanted[:, :, length // 2 :], rtol=1e-12, atol=1e-12)


def test_another_variant_gives_something_else() -> None:
    for name in ("window", "chunked", "prefix", "softcap"):
        given = random_operands(name, 601)
        assert (attentions.program("causal", *given.all) - Model(VARIANTS[name])(*given.all)).abs().max() > 1e-4


@pytest.mark.parametrize("name", VARIANTS)
def test_pairs_are_those_of_the_mask(name: str) -> None:
    for length in (1, 23, 256, 257, 511, 512, 513, 1049):
        given = random_operands(name, length)
        keys = given.k.shape[2]
        i, j = torch.arange(length)[:, None], torch.arange(keys)[None]
        seen = VARIANTS[name].visible(i, j, given.sides, Model(VARIANTS[name]).reach)
        counted = int(seen.expand(2, 1, length, keys).sum())
        assert attentions.pairs(name, 2, length, keys, given.sides) == counted
        assert attentions.flops(name, given) == 4 * 8 * 4 * counted


@pytest.mark.parametrize(
    "name", [name if name in FLEX_SOON else pytest.param(name, marks=pytest.mark.slow) for name in VARIANTS]
)
def test_flex_attention_is_told_the_same_variant(name: str) -> None:
    """Its functions run uncompiled, over several blocks."""
    given = random_operands(name, 645, dtype=torch.float32)
    blocks = contenders.block_mask(name, given, compiled=False)
    assert (blocks is None) == (name in attentions.EVERY_PAIR)
    out = contenders.flex_program(name, given)(given.q, given.k, given.v, blocks)
    torch.testing.assert_close(out, attentions.program(name, *given.all), rtol=1e-4, atol=1e-5)


# -- one kernel's checks


KERNEL = {
    "name": "toy", "variant": "causal", "heads": 4, "kv_heads": 4, "head_dim": 8, "dtype": "f32",
    "axes": {"q": list("bhqd"), "k": list("bhkd"), "out": list("bhqe")}, "side": None, "sizes": [],
}  # fmt: skip


def kernel_like(fault: str = "") -> Any:
    """A module whose kernel is the program itself, with a fault."""

    def attention(q: Tensor, k: Tensor, v: Tensor, sides: list[Tensor], sizes: tuple[int, ...]) -> tuple[Tensor, None]:
        out, right = q.new_empty(q.shape), attentions.program("causal", q, k, v, *sides)
        if fault == "raises":
            raise RuntimeError("no such kernel")
        rows = slice(0, -1 if fault == "last row" and q.shape[2] > 1 else None)
        out[:, :, rows] = right[:, :, rows] * (1.001 if fault == "scale" else 1.0)
        return out, None

    return SimpleNamespace(attention=attention)


@pytest.mark.parametrize(("fault", "passed"), [("", [True] * 2), ("last row", [True, False]), ("scale", [False] * 2)])
def test_checks_see_faults(fault: str, passed: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "load", lambda *_: kernel_like(fault))
    rows = list(check.check_kernel(Path(), KERNEL, "cpu", (1, 67)))
    assert [row["passed"] for row in rows] == passed
    assert [row["case"] for row in rows] == ["S=1", "S=67"]
    assert torch.zeros(3).new_empty(0).numel() == 0 and torch.Tensor.new_empty.__name__ == "new_empty"


def test_a_check_that_fails_or_breaks_is_the_exit_status() -> None:
    fine = {"kind": "numerics", "status": "ok", "passed": True}
    assert not check.wrong([fine, {"kind": "numerics", "status": OUT_OF_TIME}, {"kind": "time", "status": "error"}])
    assert check.wrong([fine, {**fine, "passed": False}])
    assert check.wrong([fine, {"kind": "numerics", "status": "error"}])


@pytest.mark.slow
def test_a_kernel_that_ends_its_process_is_a_row(tmp_path: Path) -> None:
    """The process finds no bundle, and a later kernel has no time."""
    kernels = [KERNEL, {**KERNEL, "name": "late"}]
    rows = Rows(tmp_path / "rows.json", 1.0, show=lambda _: None)
    check.check_all(rows, tmp_path / "nowhere", kernels[:1], 1)
    (row,) = rows.rows
    assert (row["kind"], row["kernel"], row["status"]) == ("numerics", "toy", "error")
    assert "manifest.json" in row["error"], row
    over = Rows(tmp_path / "over.json", 0.0, show=lambda _: None)
    check.check_all(over, tmp_path, kernels[1:], 1)
    assert [row["status"] for row in over.rows] == [OUT_OF_TIME]


def test_broken_kernels_are_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "matmul", lambda: [{"tflops": 1.0}])
    monkeypatch.setattr(check, "time_kernel", lambda bundle, kernel, length, naive: [{"contender": "attnc"}])
    rows = Rows(tmp_path / "rows.json", 1.0, show=lambda _: None)
    rows.add({"kind": "numerics", "kernel": "toy", "status": "error"})
    check.time_all(rows, tmp_path, [KERNEL, {**KERNEL, "name": "other"}])
    assert [(row.get("kernel"), row["status"]) for row in rows.rows[2:]] == [
        ("toy", "not run: its checks ended with an error"),
        ("other", "ok"),
    ]


def test_what_matters_most_comes_first() -> None:
    kernels = [{"name": w.name, "variant": w.variant, "head_dim": w.head_dim, "dtype": w.dtype} for w in bundle.KERNELS]
    order = [(kernel["name"], length) for kernel, length, _ in check.schedule(kernels)]
    assert order[:2] == [("causal_bf16_d128", 8192), ("cross_bf16_d128", 8192)]
    assert {name for name, _ in order} == {kernel["name"] for kernel in kernels}
    assert {length for name, length in order[:6]} == {2048, 8192, 16384}


# -- rows and time


def test_rows_are_on_disk_whatever_comes_later(tmp_path: Path) -> None:
    now, shown = [0.0], list[str]()
    path = tmp_path / "out" / "rows.json"
    rows = Rows(path, 1.0, clock=lambda: now[0], show=shown.append)

    def half() -> Iterator[dict[str, Any]]:
        yield {"ms": 1.5}
        assert [row["status"] for row in json.loads(path.read_text())] == ["ok"]
        raise ValueError("the second half")

    rows.run({"kind": "time", "kernel": "a"}, half)
    now[0] = 59.0
    rows.run({"kind": "time", "kernel": "b"}, lambda: [{"status": "skipped"}])
    now[0] = 61.0
    rows.run({"kind": "time", "kernel": "c"}, half)
    found = json.loads(path.read_text())
    assert [(row["kernel"], row["status"]) for row in found] == [
        ("a", "ok"), ("a", "error"), ("b", "skipped"), ("c", "not run: out of time"),
    ]  # fmt: skip
    assert found[1]["error"] == "ValueError: the second half"
    assert shown[0] == "time a: ok; ms 1.5" and len(shown) == 4
    assert [p.name for p in path.parent.iterdir()] == ["rows.json"]


def test_contenders_take_turns() -> None:
    order: list[str] = []
    times = {"slow": iter([9.0, 9.0, 3.0, 5.0, 4.0]), "fast": iter([1.0, 0.001, 2.0, 1.0, 3.0])}
    counted: list[int] = []

    def sample(run: Any, calls: int) -> float:
        counted.append(calls)
        name = run()
        order.append(name)
        return next(times[name])

    found = contenders.timed({"slow": lambda: "slow", "fast": lambda: "fast"}, 3, sample)
    assert order[4:] == ["slow", "fast"] * 3
    assert [(row["ms"], row["low_ms"], row["high_ms"]) for row in found.values()] == [(4.0, 3.0, 5.0), (2.0, 1.0, 3.0)]
    assert (found["slow"]["calls"], found["fast"]["calls"]) == (1, 200) and counted[4:] == [1, 200] * 3


def test_a_contender_that_cannot_run_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    makers = contenders.ways("window", random_operands("window", 5), naive=False)
    assert list(makers) == ["flex"]
    working, rows = contenders.prepared({"good": lambda: {"good": lambda: 1}, "bad": lambda: {"bad": lambda: 1 / 0}})
    assert list(working) == ["good"]
    assert [(row["contender"], row["status"]) for row in rows] == [("bad", "error")]


def test_sdpa_is_the_program_where_it_has_it() -> None:
    from torch.nn.attention import SDPBackend

    for name in (*contenders.PLAIN, "dense-mask"):
        given = random_operands(name, 37, dtype=torch.float32)
        out = contenders.sdpa(name, given, SDPBackend.MATH)()
        torch.testing.assert_close(out, attentions.program(name, *given.all), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="no alibi"):
        contenders.sdpa("alibi", random_operands("alibi", 5), SDPBackend.MATH)


# -- the bundle


def imported(path: Path) -> set[str]:
    """Modules a file imports that aren't of the standard library; of the script's own, the whole name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    tops = {name.split(".")[0] if not name.startswith("benchmarks") else name for name in found}
    return {name for name in tops if name not in sys.stdlib_module_names}


def test_the_script_needs_torch_triton_and_numpy() -> None:
    own = {"benchmarks.gpu", *(f"benchmarks.gpu.{name}" for name in bundle.SCRIPTS)}
    assert {path.name: bad for path in SCRIPT if (bad := imported(path) - own - {"torch", "triton", "numpy"})} == {}
    assert "attnc.codegen.triton.emitter".split(".")[0] in imported(Path(bundle.__file__))


def complete(folder: Path, kernels: tuple[bundle.Wanted, ...]) -> list[dict[str, Any]]:
    """The manifest's kernels, once files, digests and imports are right."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert [row["name"] for row in manifest["kernels"]] == [wanted.name for wanted in kernels]
    for row in manifest["kernels"]:
        assert imported(folder / row["file"]) == {"torch", "triton"}
        assert "def attention(q, k, v, sides=(), sizes=(), out_dtype=None):" in (folder / row["file"]).read_text()
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 20 << 20
    return list(manifest["kernels"])


def laid_out(folder: Path, row: dict[str, Any], length: int, heads: int) -> None:
    """A module's own definition, on operands as the script arranges them, is the variant."""
    module: Any = check.load(folder, row)
    given = attentions.operands(
        row["variant"], 2, heads, attentions.key_heads(row, heads), length, row["head_dim"],
        check.DTYPES[row["dtype"]], seed=length, strided=True,
    ).wide()  # fmt: skip
    q, k, v, sides, sizes = attentions.arranged(row, given)
    for side, (_, rank) in zip(sides, module.SIDES, strict=True):
        assert side.dim() == rank
    axes = module.axis_lengths(q, k, v)
    grid = module.Grid(axes, dict(zip(module.SIZES, sizes, strict=True)), sides, q.device)
    out, _, _ = module.naive(grid, q, k, v)
    order = [(*module.GRID[:-1], "e").index(axis) for axis in module.AXES["out"]]
    found = attentions.restored(row, out.permute(order))
    wanted = attentions.program(row["variant"], *given.all)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_a_small_bundle_is_complete_and_replaces_the_old_one(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    (folder / "old").mkdir(parents=True)
    wanted = (bundle.Wanted("cross", 32, "f32"),)
    size = bundle.make(folder, kernels=wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"] and not (folder / "old").exists()
    assert size < 1 << 20
    (row,) = complete(folder, wanted)
    for length, heads in ((1, 4), (35, 8)):
        laid_out(folder, row, length, heads)


def test_a_bundle_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "bundle"
    (folder / "old").mkdir(parents=True)
    monkeypatch.setattr(bundle, "LIMIT", 10)
    with pytest.raises(ValueError, match="more than 10"):
        bundle.make(folder, kernels=())
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"] and (folder / "old").exists()


@pytest.mark.slow
def test_the_whole_bundle(tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    bundle.make(folder)
    rows = complete(folder, bundle.KERNELS)
    command = [sys.executable, str(folder / "check.py"), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "--minutes" in done.stdout, done.stderr
    assert {row["variant"] for row in rows if row["side"] == "by-offset"} == {"relative-table"}
    for row in rows:
        for length, heads in ((1, 4), (67, 8), (601, 4)):
            laid_out(folder, row, length, heads)


def test_without_a_gpu_the_check_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert session.main() == 0
    assert capsys.readouterr().out == "not run: no GPU\n"
