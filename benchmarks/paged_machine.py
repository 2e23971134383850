"""Machine code of the kernels of paged attention: compiled without a GPU, judged by the gates, and shown as a table.

``python -m benchmarks.paged_machine [TARGET …]`` prints a line for each kernel; :func:`part` and :func:`verdict` are
for acceptance runs. What was measured of the sources at hand is kept in ``build/``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnc.codegen.source import kv_write_source
from attnc.codegen.targets import Capability, capability
from attnc.codegen.triton.kv_write import launch_kv_write
from attnc.codegen.triton.paged import MERGE, emit_paged, launch_paged, plan_tilings
from attnc.compiler.machine.build import CompileFailure, compile_kernel
from attnc.compiler.machine.report import analyse
from attnc.compiler.planning.paged import plan_paged
from attnc.ir import parse_graph
from attnc.ir.values import Op
from benchmarks.accept.runner import ROOT, source_digest
from benchmarks.remembered import remembered

GATED = ("sm_80", "sm_90", "sm_100")
"""Targets whose kernels must pass every gate."""
STORES = ("f32", "bf16", "f16", "i8", "f8e4m3", "i4")
KINDS = {
    "causal": ("k <= q", "qk * 0.088"),
    "window": ("(k <= q) & (k - q > -1024)", "qk * 0.088"),
    "softcap": ("k <= q", "tanh(qk * 0.088 / 50.0) * 50.0"),
}


@dataclass(frozen=True)
class Row:
    """One kernel for one target: ``tile`` is ``decode``, ``prefill``, ``merge`` or ``write``."""

    target: str
    tile: str
    store: str
    page_size: int = 64
    head_dim: int = 128
    kind: str = "causal"

    @property
    def dtype(self) -> str:
        """Of queries."""
        return self.store if self.store in ("f32", "f16") else "bf16"

    @property
    def file(self) -> Path:
        """Where what was measured of these sources lies."""
        name = "-".join(str(value) for value in dataclasses.astuple(self))
        return ROOT / "build" / "paged-machine" / source_digest()[:16] / f"{name}.json"


def rows(target: str) -> Iterator[Row]:
    """Every store with both tiles; other pages, head dimensions and formulas in decoding."""
    yield from (Row(target, tile, store) for store in STORES for tile in ("decode", "prefill", "write"))
    yield from (Row(target, "decode", store, page_size=p) for store in ("bf16", "i8") for p in (16, 32, 128))
    yield from (Row(target, "decode", "bf16", head_dim=d) for d in (64, 80, 96, 256))
    yield from (Row(target, "decode", "bf16", kind=kind) for kind in KINDS if kind != "causal")
    yield Row(target, "merge", "bf16")


def attention(row: Row) -> Op:
    """Four query heads on each key/value head."""
    mask, score = KINDS[row.kind]
    d, dtype = row.head_dim, row.dtype
    text = f"""graph @g(%q: {dtype}[8, 4, S, {d}], %k: {dtype}[8, S, {d}], %v: {dtype}[S, 8, {d}])
      sizes(S in [1, inf]) {{
      %o: {dtype}[S, 8, 4, {d}] = attn.attention(%q, %k, %v, [], []) {{
        q = [h, g, q, d], k = [h, k, d], v = [k, h, e], out = [q, h, g, e]
        qk = f32
        score = where({mask}, {score}, -inf)
        visible = {score}
        mask = {mask}
        fill = minus_inf
        softmax = plain f32
        out_dtype = {dtype}
      }}
      return %o
    }}"""
    return next(op for op in parse_graph(text).ops if op.name == "attn.attention")


def measure(row: Row) -> dict[str, Any]:
    """Compile a row's kernel, or read what an earlier run found. A store that a target has not is a reason."""
    return remembered(row.file, lambda: {**asdict(row), **_compiled(row)})


def _compiled(row: Row) -> dict[str, Any]:
    try:
        return _figures(row)
    except ValueError as error:
        return {"refused": str(error)}
    except CompileFailure as failure:
        return {"failure": failure.reason}


def _figures(row: Row) -> dict[str, Any]:
    target = with_small_products(capability(row.target))
    if row.tile == "write":
        launch, text = launch_kv_write(row.target, row.store, row.dtype, row.head_dim), kv_write_source().text
    else:
        plan = plan_paged(
            attention(row), batch=None, page_size=row.page_size, k_store=row.store, v_store=row.store, target=row.target
        )
        text, tiling = emit_paged(plan).text, plan_tilings(plan)[-1 if row.tile == "prefill" else 0]
        launch = launch_paged(plan, tiling, *([MERGE] if row.tile == "merge" else []))
    report = analyse(compile_kernel(text, launch, target), target)
    gates = [gate for gate in report.gates if gate.gate not in _waived(row)]
    return {**report.as_dict(), "gates": [asdict(gate) for gate in gates], "tiling": dict(launch.constants)}


def with_small_products(target: Capability) -> Capability:
    """The target with the matrix instructions that serve few rows: a tile of 16 is too small for the widest."""
    assert target.gpu is not None
    matrix = tuple(dict.fromkeys((*target.gpu.matrix, "HMMA", "IMMA")))
    return dataclasses.replace(target, gpu=dataclasses.replace(target.gpu, matrix=matrix))


def _waived(row: Row) -> tuple[str, ...]:
    """Gates that ask for what a kernel has no use for: writing and merging have no products and no pages to copy."""
    return ("matrix", "loads") if row.tile in ("write", "merge") else ()


def part(target: str, index: str, count: str) -> dict[str, object]:
    """A part of a target's kernels, for an acceptance run. Raises AssertionError for one that can't be compiled."""
    found = [measure(row) for row in list(rows(target))[int(index) :: int(count)]]
    failed = [f"{_name(f)}: {f['failure']}" for f in found if "failure" in f]
    assert not failed, f"{target}: {failed}"
    return {"kernels": len(found), "refused": sum("refused" in f for f in found)}


def verdict() -> dict[str, object]:
    """Judge what parts have measured. Raises AssertionError with what is wrong."""
    found = [measure(row) for target in GATED for row in rows(target)]
    wrong = [f"{_name(f)}: {f['failure']}" for f in found if "failure" in f]
    compiled = [f for f in found if "gates" in f]
    wrong += [f"{_name(f)}: {g['gate']}: {g['reason']}" for f in compiled for g in f["gates"]]
    refused = {(f["target"], f["store"]) for f in found if "refused" in f}
    if refused != {("sm_80", "f8e4m3")}:
        wrong.append(f"refused: {refused}")
    assert not wrong, "; ".join(wrong)
    return {"kernels": len(compiled), "refused": len(found) - len(compiled)}


def _name(f: dict[str, Any]) -> str:
    return f"{f['target']} {f['tile']} {f['kind']} {f['store']} d{f['head_dim']} page {f['page_size']}"


def line(f: dict[str, Any]) -> str:
    """One kernel for people."""
    if "gates" not in f:
        return f"{_name(f)}: {f.get('refused') or f.get('failure')}"
    loads = ", ".join(f"{count} {load}" for load, count in sorted(f["loads"].items()))
    shut = "; ".join(f"{g['gate']}: {g['reason']}" for g in f["gates"]) or "all gates passed"
    return (
        f"{_name(f)}: {f['registers']} registers, {f['spills']} B spills, {f['stack']} stack, {f['shared']} shared; "
        f"loop of {f['length']} with {f['tensor_core']} products, {loads}; {shut}"
    )


def main() -> int:
    """Measure and print the kernels of the targets named, or of all gated ones."""
    for target in sys.argv[1:] or GATED:
        for row in rows(target):
            print(line(measure(row)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
