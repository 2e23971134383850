"""Writes the page of one plan: its constants and formulas, for the template ``attnc/flash.h``."""

from __future__ import annotations

import re

from attnc.codegen.cpp.expressions import DTYPE_CODES, c_type
from attnc.codegen.cpp.programs import Lines, Scope, float_literal, write_program
from attnc.codegen.describe import check_plan, head_lines, kernel_name, segment_text, side_reads
from attnc.codegen.fold import fold_scale, is_qk
from attnc.codegen.formula import formula
from attnc.codegen.plan import Instr, KernelPlan, Program, Segment
from attnc.codegen.source import Source, headers_digest
from attnc.codegen.targets import capability

EMITTER_VERSION = 1
_LOG2E = 1.4426950408889634
_DEAD_ROWS = {"none": "DEAD_NONE", "zero": "DEAD_ZERO", "as_written": "DEAD_AS_WRITTEN"}
_FIRST_AXIS_STATUS = 16


def emit(plan: KernelPlan) -> Source:
    """The C++ source of a plan.

    Raises ValueError where the plan asks for what the template has not: operands without their axes, unknown ops,
    axes or sizes in formulas, dtypes outside the target's.
    """
    target = capability(plan.target)
    check_plan(plan, target.dtypes)
    text = "\n".join(
        [
            _head(plan),
            "#include <attnc/entry.h>",
            "",
            _page(plan),
            status_function(status_texts(plan)),
            "ATTNC_ENTRY(attnc::Page)",
            "",
        ]
    )
    return Source("c++", kernel_name(plan), text, plan.digest, target.flags, headers_digest())


def _head(plan: KernelPlan) -> str:
    return "\n".join(f"// {line}".rstrip() for line in head_lines(plan, f"emitter {EMITTER_VERSION}"))


# -- the page


def _page(plan: KernelPlan) -> str:
    return page_struct(
        [*constants(plan, plan.digest), "", *score_functors(plan), *_segments(plan), *sink_function(plan)]
    )


def page_struct(body: list[str]) -> str:
    """The page's struct of these lines, in its namespaces."""
    lines = ["struct Page {", *(f"  {line}".rstrip() for line in body), "};"]
    return "\n".join(
        ["namespace attnc {", "namespace {", "", *lines, "", "}  // namespace", "}  // namespace attnc", ""]
    )


def constants(plan: KernelPlan, digest: int) -> list[str]:
    """What the template has to know at compile time; ``digest``: of the plan that the page is emitted for."""
    factor, visible = fold_scale(plan.visible)
    log2_units = is_qk(visible)
    axes = (*plan.outer, "q", "k", "d", "e")
    shared = [a in plan.k_axes or a in plan.v_axes for a in plan.outer]
    codes = [str(DTYPE_CODES[s.dtype]) for s in plan.sides]
    lse_axes = [a for a in plan.out_axes if a != "e"]
    reads = [(side, dim, axes.index(axis)) for side, dim, axis in side_reads(plan)]
    return [
        f"static constexpr uint64_t plan_digest = {digest:#x}u;",
        *(f"typedef {c_type(d)} {n}_t;" for n, d in zip(("q", "k", "v", "out"), plan.dtypes, strict=True)),
        f"static constexpr int num_outer = {len(plan.outer)};  // {' '.join(plan.outer)}",
        *(
            f"static constexpr int {name}_axes[] = {{{', '.join(str(axes.index(a)) for a in used)}}};"
            for name, used in (
                ("q", plan.q_axes), ("k", plan.k_axes), ("v", plan.v_axes), ("out", plan.out_axes), ("lse", lse_axes),
            )
        ),
        f"static constexpr bool kv_axis[] = {{{', '.join(map(_bool, shared)) or 'false'}}};",
        f"static constexpr bool group_axis[] = {{{', '.join(_bool(not s) for s in shared) or 'false'}}};",
        f"static constexpr int num_sides = {len(plan.sides)}, num_sizes = {len(plan.sizes)};",
        f"static constexpr int32_t side_dtype[] = {{{', '.join(codes) or '-1'}}};",
        f"static constexpr int32_t side_rank[] = {{{', '.join(str(s.rank) for s in plan.sides) or '-1'}}};",
        f"static constexpr int num_reads = {len(reads)};",
        f"static constexpr int32_t reads[][3] = {{{', '.join(f'{{{i}, {d}, {a}}}' for i, d, a in reads) or '{0}'}}};",
        f"static constexpr int64_t head_dim = {_dim(plan.head_dim)}, value_dim = {_dim(plan.value_dim)};",
        f"static constexpr int64_t block_m = {plan.block_m}, block_n = {plan.block_n};",
        f"static constexpr bool returns_lse = {_bool(plan.returns_lse)};",
        f"static constexpr DeadRows dead_rows = {_DEAD_ROWS[plan.dead_rows]};",
        f"static constexpr bool log2_units = {_bool(log2_units)};",
        f"static constexpr float q_factor = {float_literal(factor * _LOG2E if log2_units else factor)};",
    ]  # fmt: skip


def score_functors(plan: KernelPlan) -> list[str]:
    """The formulas of one row: the score, masks, the weight's factor."""
    scope, (_, visible) = Scope(plan.outer, plan.sizes, plan.sides), fold_scale(plan.visible)
    lines = ["typedef PlainScore Visible;", ""]
    if not is_qk(visible):
        lines = _struct(
            "Visible", formula(visible), write_program(visible, scope, "f"), "vf", "vf qk, const Keys& keys"
        )
    if plan.mask is not None:
        lines += _mask("Mask", plan.mask, scope)
    if any(s.residual for s in plan.segments) and plan.residual is not None:
        lines += _mask("Residual", plan.residual, scope)
    if plan.weight is not None:
        lines += _struct(
            "Weight", formula(plan.weight), write_program(plan.weight, scope, "f"), "vf", "const Keys& keys"
        )
    else:
        lines += ["typedef NoWeight Weight;", ""]
    if plan.dead_rows == "as_written":
        written = write_program(plan.score, scope, "f", rounded=True)
        lines += _struct("Written", formula(plan.score), written, "vf", "vf qk, const Keys& keys")
    return lines


def _mask(name: str, program: Program, scope: Scope) -> list[str]:
    """The functor of a mask; ``rows_alike``: it hides the same keys of every row."""
    alike = not any(instr.op == "axis" and instr.value == "q" for instr in program)
    lines = _struct(name, formula(program), write_program(program, scope, "b"), "vb", "const Keys& keys")
    return [*lines[:2], f"  static constexpr bool rows_alike = {_bool(alike)};", *lines[2:]]


def _struct(name: str, comment: str, lines: Lines, result: str, parameters: str) -> list[str]:
    """A functor: its constructor computes what one row needs, its call operator W keys."""
    varying = " ".join([*(text for _, _, text in lines.varying), lines.result.text])
    kept = set(re.findall(r"\bx\d+\b", varying)) & {n for _, n, _ in lines.uniform}
    value = lines.result.text if lines.result.lanes else f"{result}_of({lines.result.text})"
    return [
        f"// {comment}",
        f"struct {name} {{",
        "  static constexpr bool identity = false;",
        *(f"  {type} {n};" for type, n, _ in lines.uniform if n in kept),
        f"  {name}(const Frame& f, int64_t q) {{",
        *(f"    {n} = {text};" if n in kept else f"    const {type} {n} = {text};" for type, n, text in lines.uniform),
        "    (void)f, (void)q;",
        "  }",
        f"  {result} operator()({parameters}) const {{",
        *(f"    const {type} {n} = {text};" for type, n, text in lines.varying),
        f"    return {value};",
        "  }",
        "};",
        "",
    ]


def _function(name: str, parameters: tuple[str, ...], program: Program, plan: KernelPlan, kind: str) -> list[str]:
    """A static function of the frame and integer parameters."""
    lines = write_program(program, Scope(plan.outer, plan.sizes, plan.sides, parameters, keys=False), kind)
    result = {"f": "float", "i": "int64_t", "b": "bool"}[kind]
    return [
        f"static {result} {name}(const Frame& f{''.join(f', int64_t {p}' for p in parameters)}) {{",
        f"  (void)f{''.join(f', (void){p}' for p in parameters)};",
        *(f"  const {type} {n} = {text};" for type, n, text in lines.uniform),
        f"  return {lines.result.text};",
        "}",
    ]


def segment_ranges(plan: KernelPlan) -> list[str]:
    """The bounds and the guard of each segment, and the bounds of all of them for a tile."""
    functions: list[str] = []
    ranges: list[str] = []
    for i, s in enumerate(plan.segments):
        functions += [f"// {segment_text(s)}", *_function(f"lo{i}", ("tq",), s.lo, plan, "i")]
        functions += _function(f"hi{i}", ("tq",), s.hi, plan, "i")
        bounds = f"Range{{lo{i}(f, tq), hi{i}(f, tq)}}"
        if s.guard is not None:
            parameters = ("tq",) if s.guard_scope == "segment" else ("tq", "tk")
            functions += _function(f"guard{i}", parameters, s.guard, plan, "b")
            bounds = f"guard{i}(f, tq) ? {bounds} : Range{{0, 0}}" if s.guard_scope == "segment" else bounds
        ranges.append(f"range[{i}] = {bounds};")
    return [
        *functions,
        f"static constexpr int num_segments = {len(plan.segments)};",
        "static void segments(const Frame& f, int64_t tq, Range* range) {",
        *(f"  {line}" for line in ranges),
        "}",
    ]


def segment_mask(plan: KernelPlan, segment: Segment) -> str:
    """The functor that hides keys in a segment."""
    return "NoMask" if plan.mask is None or not segment.needs_mask else "Residual" if segment.residual else "Mask"


def _segments(plan: KernelPlan) -> list[str]:
    """The ranges of segments, and the visit that runs one body per segment."""
    visits: list[str] = []
    for i, s in enumerate(plan.segments):
        guarded = s.guard is not None and s.guard_scope == "tile"
        test = f"[&](int64_t tk) {{ return guard{i}(tile.frame, tile.index, tk); }}"
        test = test if guarded else "[](int64_t) { return true; }"
        blocks = f"visit_blocks<{segment_mask(plan, s)}, {s.step}>"
        visits.append(f"flash.template {blocks}(tile, tile.segment[{i}], begin, end, {test});")
    return [
        *segment_ranges(plan),
        "template <class F>",
        "static void visit(F& flash, typename F::Tile& tile, int64_t begin, int64_t end) {",
        *(f"  {line}" for line in visits),
        "}",
        "",
    ]


def sink_function(plan: KernelPlan) -> list[str]:
    """The extra logit of a row's denominator."""
    has = _bool(plan.softmax != "plain")
    zero = (Instr("const", "f32", value=0.0),)
    program = plan.sink if plan.softmax == "sink" and plan.sink is not None else zero
    return [f"static constexpr bool has_sink = {has};", *_function("sink", ("q",), program, plan, "f")]


# -- small texts


def status_texts(plan: KernelPlan) -> dict[int, str]:
    """What each status code means for this plan."""
    sides = [f"{s.dtype} of rank {s.rank}" for s in plan.sides]
    texts = {
        0: "done",
        **{
            1 + i: f"operand {name}: rank or dtype is not the plan's {dtype}[{', '.join(axes)}]"
            for i, (name, dtype, axes) in enumerate(
                (
                    ("q", plan.dtypes[0], plan.q_axes),
                    ("k", plan.dtypes[1], plan.k_axes),
                    ("v", plan.dtypes[2], plan.v_axes),
                    ("out", plan.dtypes[3], plan.out_axes),
                    ("lse", "f32", tuple(a for a in plan.out_axes if a != "e")),
                )
            )
        },
        6: f"side operands: expected {len(plan.sides)}: {', '.join(sides) or 'none'}",
        7: f"sizes: expected {len(plan.sizes)}: {', '.join(plan.sizes) or 'none'}",
        8: "a length or size is 2^30 or more",
        9: "out of memory",
        10: "a side operand is shorter than the axis that indexes it",
    }
    static = {"d": plan.head_dim, "e": plan.value_dim}
    for i, axis in enumerate((*plan.outer, "q", "k", "d", "e")):
        compiled = f", or differ from the compiled {static[axis]}" if static.get(axis) is not None else ""
        texts[_FIRST_AXIS_STATUS + i] = f"operands disagree on the length of axis {axis}{compiled}"
    return texts


def status_function(texts: dict[int, str]) -> str:
    """``attnc_status`` of these texts."""
    cases = [f'    case {code}: return "{text}";' for code, text in texts.items()]
    head = ["const char* attnc_status(int32_t code) {", "  switch (code) {"]
    return "\n".join([*head, *cases, '    default: return "unknown status";', "  }", "}", ""])


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _dim(value: int | None) -> str:
    return "-1" if value is None else str(value)
