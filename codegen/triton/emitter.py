"""Writes the module of one plan: its constants and formulas, the kernel, and what launches it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from attnc.codegen.describe import check_plan, head_lines, kernel_name, loads_bias, reads_pairs, side_reads
from attnc.codegen.fold import is_qk, single_precision
from attnc.codegen.formula import formula
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import Capability, capability
from attnc.codegen.triton.descriptors import describable, preferred
from attnc.codegen.triton.dims import parts
from attnc.codegen.triton.formulas import (
    LOG2_E,
    expand,
    function,
    row_function,
    row_names,
    scored,
    sink_function,
    statements,
    template,
    tile_functions,
    tile_result,
)
from attnc.codegen.triton.launch import Launch
from attnc.codegen.triton.parameters import Layout
from attnc.codegen.triton.programs import Page, float_literal
from attnc.codegen.triton.reference import reference_text
from attnc.codegen.triton.segments import segment_functions, segment_lines
from attnc.codegen.triton.tuning import Demand, Tuning, tuning

EMITTER_VERSION = 1
KERNEL = "prefill"
_IMPORTS = """\
import argparse
import math
import os
import statistics
import sys

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is loaded
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

"""
DEAD_ROWS = {"none": 0, "zero": 1, "as_written": 2}
_TORCH_TYPES = {
    "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16",
    "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "b1": "bool",
}  # fmt: skip


def emit(plan: KernelPlan) -> Source:
    """The Python module of a plan: a Triton kernel and ``attention(q, k, v, sides, sizes)``, which launches it.

    Raises ValueError where the plan asks for what the kernel has not: operands without their axes, unknown ops, axes or
    sizes in formulas, dtypes outside the target's.
    """
    target = capability(plan.target)
    check_plan(plan, target.dtypes)
    layout = Layout(plan)
    head = "\n".join(f"# {line}".rstrip() for line in head_lines(plan, f"Triton emitter {EMITTER_VERSION}"))
    text = "\n".join(
        [
            head,
            _IMPORTS,
            template("formulas"),
            *_page(plan, layout, target),
            *_host_constants(plan, layout),
            template("descriptors"),
            "",
            template("sides"),
            "",
            template("host"),
            "",
            template("naive"),
            "",
            reference_text(plan),
            template("check"),
        ]
    )
    return Source("triton", kernel_name(plan), text, plan.digest)


def launch(plan: KernelPlan, described: bool = False) -> Launch:
    """How the kernel of :func:`emit` is compiled ahead of time.

    ``described``: keys and values come as tensor descriptors. Raises ValueError where a head dimension isn't known, or
    where the plan has no descriptors.
    """
    if plan.head_dim is None or plan.value_dim is None:
        raise ValueError("compiling ahead of time needs head dimensions that are known")
    if described and not describable(plan):
        raise ValueError(f"a kernel for {plan.target} whose keys and values have no tensor descriptors")
    (d_high, d_low), (e_high, e_low) = parts(plan.head_dim), parts(plan.value_dim)
    constants = {
        "D": plan.head_dim, "D_HIGH": d_high, "D_LOW": d_low,
        "E": plan.value_dim, "E_HIGH": e_high, "E_LOW": e_low,
    }  # fmt: skip
    chosen = plan_tuning(plan)
    return Launch(KERNEL, Layout(plan).parameters(described), constants, chosen.num_warps, chosen.num_stages)


def plan_tuning(plan: KernelPlan) -> Tuning:
    """The compile options of a plan's kernel; head dimensions that aren't known count as 128."""
    d, e = (128 if x is None else x for x in (plan.head_dim, plan.value_dim))
    demand = Demand(d, e, plan.dtypes[1], reads_pairs(plan.visible, plan.mask, plan.weight))
    return tuning(capability(plan.target), plan.block_m, plan.block_n, demand)


# -- constants and formulas


def _page(plan: KernelPlan, layout: Layout, target: Capability) -> list[str]:
    unit, visible = scored(plan)
    page = Page(layout.names(q="rows", k="keys"), precise="f32" in plan.dtypes)
    functions = tile_functions(plan, page, visible)
    lists = {"FRAME": layout.frame, "OUTER": layout.outer, "ROW": row_names(page, functions)}
    lines = [
        *_constants(plan, target, unit, is_qk(visible)),
        *_outer_function(plan, layout),
        *row_function(page, functions),
        *functions,
        *sink_function(plan, layout),
        *(_written(plan, layout) if plan.dead_rows == "as_written" else ()),
        *segment_functions(plan, layout),
    ]
    indices = {f"{operand.upper()}_INDEX": layout.index(operand) for operand in ("k", "v")}
    kernel = _kernel(plan, layout, {"PARAMETERS": layout.run_time, **indices, **lists})
    return [expand("\n".join(lines), lists), template("product"), "", kernel]


def _constants(plan: KernelPlan, target: Capability, unit: float, plain: bool) -> list[str]:
    precision = target.gpu.precision if target.gpu is not None else "ieee"
    values = {
        "BLOCK_M": plan.block_m,
        "BLOCK_N": plan.block_n,
        "PRECISION": repr(precision),
        "SCORE_UNIT": float_literal(single_precision(unit)),
        "LOG2_E": float_literal(single_precision(LOG2_E)),
        "PLAIN_SCORE": plain,
        "BOUNDED_SCORE": not loads_bias(plan),
        "HAS_WEIGHT": plan.weight is not None,
        "HAS_SINK": plan.softmax != "plain",
        "DEAD_ROWS": DEAD_ROWS[plan.dead_rows],
        "RETURNS_LSE": plan.returns_lse,
    }
    return [*(f"{name} = tl.constexpr({value})" for name, value in values.items()), "", ""]


def _outer_function(plan: KernelPlan, layout: Layout) -> list[str]:
    """``outer_index``: the place of a flat index on every outer axis, the last one running fastest."""
    if not plan.outer:
        return []
    lines = []
    for axis in reversed(plan.outer):
        lines += [f"i_{axis} = flat % n_{axis}", f"flat = flat // n_{axis}"]
    return function("outer_index", ("flat", "FRAME"), [*lines, f"return {', '.join(layout.outer)}"])


def _written(plan: KernelPlan, layout: Layout) -> list[str]:
    """The score as the source wrote it, each float rounded to its dtype, for rows that see no key."""
    page = Page(layout.names(q="rows", k="keys"), precise=True)
    lines = page.write(plan.score, "f", rounded=True)
    text = [*statements(page.row), *statements(lines.tile), f"return {tile_result(plan.score, lines)}"]
    return function("written", ("qk", "rows", "keys", "OUTER", "FRAME"), text, formula(plan.score))


# -- the kernel


def _kernel(plan: KernelPlan, layout: Layout, lists: Mapping[str, Sequence[str]]) -> str:
    indent = "    "
    segments = "\n".join(indent + line for line in segment_lines(plan, plan_tuning(plan).num_stages))
    text = re.sub(rf"^{indent}SEGMENTS\b.*$", lambda _: segments, template("prefill"), flags=re.MULTILINE)
    for operand in ("q", "k", "v", "out", "lse"):
        text = re.sub(rf"\b{operand.upper()}_AT\b", layout.start(operand), text)
    return expand(text, lists)


# -- what launches it


def _host_constants(plan: KernelPlan, layout: Layout) -> list[str]:
    chosen = plan_tuning(plan)
    static = {a: n for a, n in (("d", plan.head_dim), ("e", plan.value_dim)) if n is not None}
    sides = ", ".join(f"({torch_type(s.dtype)}, {s.rank})" for s in plan.sides)
    return [
        f"AXES = {layout.axes!r}",
        f"OUTER_AXES = {plan.outer!r}",
        f"STATIC = {static!r}",
        f"SIDES = [{sides}]",
        f"SIDE_READS = {side_reads(plan)!r}",
        f"NUM_SIZES = {len(plan.sizes)}",
        f"DESCRIPTORS = {preferred(plan)}",
        f"OUT_DTYPE = {torch_type(plan.dtypes[3])}",
        f"NUM_WARPS, NUM_STAGES = {chosen.num_warps}, {chosen.num_stages}",
        "",
        "",
    ]


def torch_type(dtype: str) -> str:
    """A dtype as the text names torch's."""
    return f"torch.{_TORCH_TYPES[dtype]}"
