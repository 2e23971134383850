"""Machine code of every kind of kernel for every GPU: compiled, judged by the gates, and written up.

``python -m benchmarks.machine`` measures what is missing for the sources at hand and writes docs/kernels.json and
docs/kernels.md. The figures are read from machine code; nothing is run on a GPU.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnc.codegen.targets import CAPABILITIES, capability
from attnc.compiler.machine.build import CompileFailure, compile_kernel
from attnc.compiler.machine.plans import variant_attention
from attnc.compiler.machine.report import analyse
from attnc.compiler.machine.select import Selected, select
from attnc.compiler.machine.variants import VARIANTS
from attnc.runtime.abi import DTYPES
from benchmarks.accept.runner import ROOT, source_digest, surroundings
from benchmarks.remembered import remembered

TARGETS = tuple(name for name, c in CAPABILITIES.items() if c.gpu is not None)
GATED = ("sm_80", "sm_90", "sm_100")
"""Targets whose kernels must pass every gate."""
OLDEST = "3.6.0"
"""A second Triton for plain causal kernels."""


@dataclass(frozen=True)
class Row:
    """One kernel for one target."""

    target: str
    variant: str
    head_dim: int
    dtype: str

    @property
    def file(self) -> Path:
        """Where what was measured of these sources lies."""
        name = f"{self.target}-{self.variant}-{self.head_dim}-{self.dtype}.json"
        return ROOT / "build" / "machine" / source_digest()[:16] / name


def rows(target: str) -> Iterator[Row]:
    """Every kind at head dimension 128; causal at the others."""
    yield from (Row(target, variant, 128, "bf16") for variant in VARIANTS)
    yield from (Row(target, "causal", d, dtype) for d in (40, 64, 80, 96, 256) for dtype in ("bf16", "f16"))
    yield Row(target, "causal", 64, "f32")


def measure(row: Row) -> dict[str, Any]:
    """Compile a row's kernel, or read what an earlier run found."""
    return remembered(row.file, lambda: {**asdict(row), **_compiled(row)})


def _compiled(row: Row) -> dict[str, Any]:
    attention = variant_attention(VARIANTS[row.variant], row.target, row.head_dim, DTYPES[row.dtype])
    try:
        return _figures(select(attention.op, capability(row.target)))
    except CompileFailure as failure:
        return {"failure": failure.reason}


def _figures(done: Selected) -> dict[str, Any]:
    figures = done.as_dict()
    scores = done.tuning.block_m * done.tuning.block_n // done.binary.threads
    others = figures["length"] - figures["tensor_core"]
    return {**figures, "others_per_score": round(others / scores, 2)}


def part(target: str, index: str, count: str) -> dict[str, object]:
    """A part of a target's kernels, for an acceptance run. Raises AssertionError for one that can't be compiled."""
    found = [measure(row) for row in list(rows(target))[int(index) :: int(count)]]
    failed = {f"{f['variant']} {f['head_dim']} {f['dtype']}": f["failure"] for f in found if "failure" in f}
    assert not failed, f"{target}: {failed}"
    return {"kernels": len(found), "all gates passed": sum(not f["gates"] for f in found)}


def oldest(target: str) -> dict[str, object]:
    """Plain causal kernels of the same source with another Triton. Raises AssertionError where a gate is shut."""
    from tests.triton.versions import ensure

    attention = variant_attention(VARIANTS["causal"], target, 128, DTYPES["bf16"])
    done = select(attention.op, capability(target))
    binary = compile_kernel(done.source.text, done.launch, capability(target), triton=ensure(OLDEST))
    report = analyse(binary, capability(target))
    assert not report.gates, f"{target} with Triton {OLDEST}: {report.gates}"
    assert target != "sm_90" or (report.non_matrix_per_matrix or 99) <= 34, report
    return {"registers": report.registers, "others per matrix": report.non_matrix_per_matrix or 0.0}


def verdict() -> dict[str, object]:
    """Judge everything that parts have measured and write docs/kernels.*. Raises AssertionError with what is wrong."""
    found = {target: [measure(row) for row in rows(target)] for target in TARGETS}
    write(found)
    shut = [
        f"{target} {f['variant']} {f['head_dim']} {f['dtype']}: {g['gate']}: {g['reason']}"
        for target in GATED
        for f in found[target]
        for g in f["gates"]
    ]
    assert not shut, "; ".join(shut)
    for target in GATED:
        causal, cross = (_of(found[target], name) for name in ("causal", "cross"))
        plain = next(f["mask_signature"] for f in _in_both_forms(cross) if _copies(f) == _copies(causal))
        masked = causal["mask_signature"]
        assert masked == plain, f"{target}: the loop without a mask has {masked}, that of a kernel without one {plain}"
    causal = _of(found["sm_90"], "causal")
    assert causal["non_matrix_per_matrix"] <= 34, causal["non_matrix_per_matrix"]
    return {"kernels": sum(map(len, found.values())), "targets": len(found), "causal": causal["non_matrix_per_matrix"]}


def _of(found: list[dict[str, Any]], variant: str, head_dim: int = 128) -> dict[str, Any]:
    return next(f for f in found if f["variant"] == variant and f["head_dim"] == head_dim)


def write(found: dict[str, list[dict[str, Any]]]) -> None:
    """docs/kernels.json and docs/kernels.md."""
    record = {**surroundings(), "kernels": [f for target in found.values() for f in target]}
    (ROOT / "docs" / "kernels.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (ROOT / "docs" / "kernels.md").write_text(table(found), encoding="utf-8")


def table(found: dict[str, list[dict[str, Any]]]) -> str:
    """The main loops of all kinds against plain causal, a table for each target."""
    lines = [
        "# Machine code of the Triton kernels",
        "",
        "Written by `python -m benchmarks.machine` from code compiled without a GPU; nothing here is a time. Figures",
        "are the main loop's: matrix instructions, other instructions for each of them and for each score of a thread,",
        "the latter against plain causal attention. A kernel with no word under `gates` passes every one of them.",
        "",
    ]
    for target, kernels in found.items():
        base = _of(kernels, "causal").get("others_per_score", 0)
        lines += [f"## {target}", "", *_HEAD, *(_line(f, base) for f in kernels), ""]
    return "\n".join([*lines, *_forms(found)])


def _forms(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Plain causal kernels in both forms, where a target has two."""
    lines = [
        "## Pointers and descriptors",
        "",
        "The tile that was chosen for plain causal attention, with keys and values read through pointers and through",
        "tensor descriptors, which are in use where they take fewer registers and no more instructions.",
        "",
        "| target | head dim | copies | in use | registers | shared | loop | matrix | others/matrix | gates |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for target, kernels in found.items():
        for head_dim in (64, 128):
            forms = _in_both_forms(_of(kernels, "causal", head_dim))
            lines += [_form_line(target, head_dim, f, f is forms[0]) for f in forms if len(forms) == 2]
    return [*lines, ""]


def _in_both_forms(f: dict[str, Any]) -> list[dict[str, Any]]:
    """A kernel and, where there is one, the other form of the same tile."""
    if "failure" in f:
        return []
    other = {**f["config"], "described": not f["config"]["described"]}
    return [f, *(d for d in f["discarded"] if d["config"] == other)]


def _copies(figures: dict[str, Any]) -> str:
    """By what a kernel's keys and values are copied."""
    return "descriptors" if figures["config"]["described"] else "pointers"


def _form_line(target: str, head_dim: int, f: dict[str, Any], used: bool) -> str:
    if "registers" not in f:
        return f"| {target} | {head_dim} | {_copies(f)} | {f['reason']} | | | | | | |"
    names = ("registers", "shared", "length", "tensor_core", "non_matrix_per_matrix")
    cells = [target, head_dim, _copies(f), "yes" if used else "", *(f[name] for name in names)]
    cells.append(", ".join(g["gate"] for g in f["gates"]))
    return f"| {' | '.join(str(cell) for cell in cells)} |"


_HEAD = (
    "| kernel | head dim | dtype | tile | warps | stages | copies | registers | spills | shared | loop | matrix "
    "| others/matrix | others/score | against causal | gates |",
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
)


def _line(f: dict[str, Any], base: float) -> str:
    if "failure" in f:
        return f"| {f['variant']} | {f['head_dim']} | {f['dtype']} | {f['failure']} | | | | | | | | | | | | |"
    config, score, copies = f["config"], f["others_per_score"], _copies(f)
    against = f"{100 * (score / base - 1):+.0f} %" if base and f["head_dim"] == 128 else ""
    cells = [
        f["variant"], f["head_dim"], f["dtype"], f"{config['block_m']}×{config['block_n']}", config["num_warps"],
        config["num_stages"], copies, f["registers"], f["spills"], f["shared"], f["length"], f["tensor_core"],
        f["non_matrix_per_matrix"], score, against, ", ".join(g["gate"] for g in f["gates"]),
    ]  # fmt: skip
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main() -> int:
    """Measure everything and write it up."""
    for target in TARGETS:
        for row in rows(target):
            print(_line(measure(row), 0), flush=True)
    print(json.dumps(verdict()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
