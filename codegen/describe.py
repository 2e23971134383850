"""What every emitter does with a plan before it writes: checks it, names it, puts it in words."""

from __future__ import annotations

from collections.abc import Iterable

from attnc.codegen.formula import formula
from attnc.codegen.op_kinds import kind_of
from attnc.codegen.plan import PLAN_VERSION, Instr, KernelPlan, Program, Segment


def check_plan(plan: KernelPlan, dtypes: Iterable[str]) -> None:
    """Raises ValueError for operands without their axes, dtypes outside ``dtypes``, and blocks that aren't positive."""
    for axes, role, needed in (
        (plan.q_axes, "q", "qd"),
        (plan.k_axes, "k", "kd"),
        (plan.v_axes, "v", "ke"),
        (plan.out_axes, "out", "qe"),
    ):
        missing = [a for a in needed if a not in axes]
        unknown = [a for a in axes if a not in plan.outer and a not in needed]
        if missing or unknown or len(set(axes)) != len(axes):
            raise ValueError(f"{role} has axes {axes}: missing {missing}, not outer axes {unknown}, or one twice")
    absent = [a for a in plan.outer if a not in (*plan.q_axes, *plan.k_axes, *plan.v_axes) or a not in plan.out_axes]
    if absent:
        raise ValueError(f"outer axes {absent} are in no operand, or not in the output")
    refused = [d for d in plan.dtypes if d not in dtypes]
    if refused:
        raise ValueError(f"target {plan.target} has no kernels for {', '.join(refused)}")
    if plan.block_m < 1 or plan.block_n < 1 or any(s.step < 1 for s in plan.segments):
        raise ValueError("block_m, block_n and segment steps must be positive")
    if plan.softmax == "sink" and plan.sink is None:
        raise ValueError("softmax 'sink' without a sink formula")


def kernel_name(plan: KernelPlan) -> str:
    """A name for files: dtype, head dimensions, whether it masks."""
    d, e = plan.head_dim or "n", plan.value_dim or "n"
    dims = f"d{d}" if plan.head_dim == plan.value_dim else f"d{d}_{e}"
    return f"flash_{plan.dtypes[0]}_{dims}{'_masked' if plan.mask is not None else ''}"


def head_lines(plan: KernelPlan, emitter: str) -> list[str]:
    """The head of an emitted file: operands, formulas, key tiles, and the plan itself as JSON."""
    return [
        f"Attention kernel {kernel_name(plan)}, written by attnc (plan version {PLAN_VERSION}, {emitter}).",
        "",
        f"  q[{', '.join(plan.q_axes)}]  k[{', '.join(plan.k_axes)}]  v[{', '.join(plan.v_axes)}]"
        f"  ->  out[{', '.join(plan.out_axes)}]",
        *(f"  {name:8} {formula(p)}" for name, p in named_formulas(plan)),
        f"  softmax  {plan.softmax}; dead rows: {plan.dead_rows}",
        *(f"  keys     {segment_text(s)}" for s in plan.segments),
        "",
        f"plan: {plan.to_json()}",
    ]


def named_formulas(plan: KernelPlan) -> list[tuple[str, Program]]:
    """The formulas a kernel evaluates, by name."""
    named = (("score", plan.visible), ("mask", plan.mask), ("weight", plan.weight), ("sink", plan.sink))
    written = [("written", plan.score)] if plan.dead_rows == "as_written" else []
    return [(n, p) for n, p in (*named, ("residual", plan.residual)) if p is not None] + written


def segment_text(s: Segment) -> str:
    """One run of key tiles in words."""
    guard = f" if {formula(s.guard)} ({s.guard_scope})" if s.guard is not None else ""
    step = f" step {s.step}" if s.step != 1 else ""
    masked = "masked by the residual" if s.residual else "masked" if s.needs_mask else "unmasked"
    return f"tiles {formula(s.lo)} .. {formula(s.hi)}{step}, {masked}{guard}"


def reads_pairs(visible: Program, mask: Program | None, weight: Program | None) -> bool:
    """Whether a formula loads a value for every query and key."""
    programs = [p for p in (visible, mask, weight) if p is not None]
    return any(instr.op == "load" and {"q", "k"} <= _axes(p, instr) for p in programs for instr in p)


def loads_bias(plan: KernelPlan) -> bool:
    """Whether the score reads floats by query or key: a bias, which may hide keys by the lowest number there is."""
    program = plan.visible
    return any(i.op == "load" and kind_of(i.dtype) == "f" and {"q", "k"} & _axes(program, i) for i in program)


def _axes(program: Program, instr: Instr) -> set[str]:
    """The axes that the index of a load depends on."""
    found, todo = set(), list(instr.args)
    while todo:
        step = program[todo.pop()]
        todo += step.args
        if step.op == "axis":
            found.add(str(step.value))
    return found


def side_reads(plan: KernelPlan) -> list[tuple[int, int, str]]:
    """(side, dimension, axis) wherever a formula reads a side operand's dimension at the position of an axis itself.

    Such a dimension must be as long as the axis. Computed indices are in range for every program that is valid.
    """
    found = {
        (int(instr.value), dim, str(program[arg].value))
        for _, program in named_formulas(plan)
        for instr in program
        if instr.op == "load" and instr.value is not None
        for dim, arg in enumerate(instr.args)
        if program[arg].op == "axis"
    }
    return sorted(found)
