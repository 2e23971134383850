"""Formulas as Triton functions: what every emitted kernel calls for scores, masks, weights and sinks.

``height`` is what the text calls the number of rows of a tile.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from attnc.codegen.fold import fold_result, fold_scale, is_qk
from attnc.codegen.formula import formula
from attnc.codegen.op_kinds import Kind
from attnc.codegen.plan import Instr, KernelPlan, Program
from attnc.codegen.triton.parameters import Layout
from attnc.codegen.triton.programs import Lines, Page

LOG2_E = 1.4426950408889634
_KERNELS = Path(__file__).parent / "kernels"


def template(name: str) -> str:
    """The text of a kernel file without its head: what it says about placeholders, and imports."""
    text = (_KERNELS / f"{name}.py").read_text(encoding="utf-8")
    return re.sub(r'\A""".*?"""\n+((import|from) [^\n]*\n|\n)*', "", text, flags=re.DOTALL)


def scored(plan: KernelPlan) -> tuple[float, Program]:
    """(unit, score): the score in log2 units is unit · score. A constant factor around it is in the unit."""
    factor, inner = fold_scale(plan.visible)
    if is_qk(inner) and factor > 0:
        return factor * LOG2_E, inner
    outer, score = fold_result(plan.visible)
    return outer * LOG2_E, score


def function(name: str, parameters: Sequence[str], lines: Sequence[str], comment: str = "") -> list[str]:
    """A ``@triton.jit`` function of these statements."""
    head = [f"def {name}({', '.join(parameters)}):", *([f'    """{comment}"""'] if comment else [])]
    return ["@triton.jit", *head, *(f"    {line}" for line in lines), "", ""]


def tile_functions(plan: KernelPlan, page: Page, visible: Program, height: str = "BLOCK_M") -> list[str]:
    """``visible``, ``seen`` and ``weight``: formulas over a tile of rows and keys, those that the plan has."""

    def written(name: str, parameters: tuple[str, ...], program: Program | None, kind: Kind) -> list[str]:
        return [] if program is None else tile_function(page, name, parameters, program, kind, height)

    return [
        *written("visible", ("qk", "rows", "keys"), visible, "f"),
        *written("seen", ("rows", "keys"), plan.mask, "b"),
        *written("weight", ("rows", "keys"), plan.weight, "f"),
    ]


def tile_function(
    page: Page, name: str, parameters: tuple[str, ...], program: Program, kind: Kind, height: str
) -> list[str]:
    """One formula over a tile."""
    lines = page.write(program, kind)
    text = [*statements(lines.tile), f"return {tile_result(program, lines, height)}"]
    return function(name, (*parameters, "ROW", "OUTER", "FRAME"), text, formula(program))


def tile_result(program: Program, lines: Lines, height: str = "BLOCK_M") -> str:
    """A score has the shape of the tile, whatever it depends on."""
    scores = lines.result.kind == "f" and not any(instr.op == "qk" for instr in program)
    return f"tl.zeros([{height}, BLOCK_N], tl.float32) + {lines.result.text}" if scores else lines.result.text


def statements(lines: Sequence[tuple[str, str]]) -> list[str]:
    """Assignments of (name, expression)."""
    return [f"{name} = {text}" for name, text in lines]


def row_function(page: Page, functions: Sequence[str]) -> list[str]:
    """``row_values``: what the formulas read of a row, computed once."""
    kept = row_names(page, functions)
    if not kept:
        return []
    lines = [*statements(page.row), f"return {', '.join(kept)}"]
    return function("row_values", ("rows", "OUTER", "FRAME"), lines)


def row_names(page: Page, functions: Sequence[str]) -> list[str]:
    """The values of a row that these functions read."""
    read = set(re.findall(r"\br\d+\b", "\n".join(functions)))
    return [name for name, _ in page.row if name in read]


def sink_function(plan: KernelPlan, layout: Layout, height: str = "BLOCK_M") -> list[str]:
    """``sink``: the extra logit of the denominator, for each row; nothing where there is none."""
    if plan.softmax == "plain":
        return []
    program = plan.sink if plan.softmax == "sink" and plan.sink is not None else (Instr("const", "f32", value=0.0),)
    page = Page(layout.names(q="rows"), precise=True)
    result = page.write(program, "f").result.text
    sum_ = f"tl.zeros([{height}, 1], tl.float32) + {result}"
    text = [*statements(page.row), f"return tl.reshape({sum_}, [{height}])"]
    return function("sink", ("rows", "OUTER", "FRAME"), text, formula(program))


def expand(text: str, lists: Mapping[str, Sequence[str]]) -> str:
    """``text`` with the names in capitals written out: lists of names in place, an empty one with its comma gone."""
    for name, items in lists.items():
        if items:
            text = re.sub(rf"\b{name}\b", ", ".join(items), text)
        else:
            text = re.sub(rf"^ *{name} = .*\n", "", text, flags=re.MULTILINE)
            text = re.sub(rf"\b{name}\b, ?|, \b{name}\b", "", text)
    return text
