"""One captured graph through the compiler: import, passes, dump, kernels, export. The only composer."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from attnc.compiler.dump import Dump
from attnc.compiler.frontends.torch.importer import import_graph
from attnc.compiler.hints import size_hints, user_names
from attnc.compiler.host.lower_rope import RopeProgram
from attnc.compiler.host.rope_kernel import Rotations
from attnc.compiler.host.to_fx import Expanded, Lowered, export_graph
from attnc.compiler.options import Options
from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.passes.pipeline import run_pipeline
from attnc.compiler.report import Note, Report
from attnc.compiler.verify import NumericCheck
from attnc.ir.graph import Graph
from attnc.ir.values import Op
from attnc.runtime import Config, configure, kernel, register_plan
from attnc.runtime.kernels import runs_on_gpu


@dataclass
class Compiled:
    """A rewritten graph, ready for a host, with its IR and its report."""

    module: torch.fx.GraphModule
    graph: Graph
    report: Report
    context: Context = field(repr=False)


def compile_graph(
    module: torch.fx.GraphModule,
    options: Options,
    *,
    name: str = "graph",
    training: bool = False,
    example_inputs: list[Any] | None = None,
) -> Compiled:
    """Compile one functional ATen graph: :func:`compile_ir` of its IR.

    ``training`` routes attention through the op that has gradients. ``example_inputs`` (one per graph input) are used
    by ``verify="numeric"`` only. Raises BuildError where the C++ compiler rejects a kernel, VerifyError and
    NumericError where a check fails.
    """
    start = time.perf_counter()
    graph = import_graph(module, name=name)
    seconds = time.perf_counter() - start
    compiled = compile_ir(graph, options, name=name, training=training, example_inputs=example_inputs)
    compiled.report.seconds = {"import": seconds, **compiled.report.seconds}
    return compiled


def compile_ir(
    graph: Graph,
    options: Options,
    *,
    name: str = "graph",
    training: bool = False,
    example_inputs: list[Any] | None = None,
) -> Compiled:
    """Compile a graph in place; see :func:`compile_graph`."""
    configure(Config(cache_dir=options.store_root, cxx=options.cxx))
    context = Context(options.target, size_hints(graph), user_names=user_names(graph))
    report = Report(name=name, host=options.host)
    dump = Dump(options.dump_ir) if options.dump_ir else None
    if dump:
        dump.graph(graph)
    numeric = (
        NumericCheck(graph, example_inputs) if options.verify == "numeric" and example_inputs is not None else None
    )

    def after(position: int, step: Pass, current: Graph) -> None:
        if dump:
            dump.after(position, step, current)
        if numeric:
            numeric.after(step.name, current)

    report.seconds.update(run_pipeline(graph, context, after=after, check=options.verify is not None))
    report.seconds["build"] = _build(context)
    report.sites, report.notes, report.ropes = context.sites, context.notes, context.ropes
    report.kernels = {context.kernel_name(plan): source.text for plan, (_, source) in context.kernels.items()}
    if training and context.kernels:
        report.notes.append(
            Note("ATTNC-TRAINING-RECOMPUTE", "gradients are enabled: the backward pass recomputes scores")
        )
    ropes = Rotations(RopeProgram(complex_products=options.host == "aten"), options.target, training)
    rewritten = export_graph(graph, lambda op: lower(op, training, ropes))
    report.kernels |= ropes.texts()
    if dump:
        dump.finish(context, report)
    return Compiled(rewritten, graph, report, context)


def lower(op: Op, training: bool, ropes: Rotations) -> Lowered | Expanded:
    """What an ``attn.*`` op becomes on the host."""
    if op.name == "attn.rope":
        return ropes.lower(op)
    return lower_attention(op, training)


def lower_attention(op: Op, training: bool) -> Lowered:
    """The custom-op call of an ``attn.attention`` that has a plan."""
    import attnc.runtime.ops as ops  # registers the ops: only once a graph has an attention

    q, k, v, sides, sizes = op.args
    target = ops.attention_train if training else ops.attention
    return Lowered(target, (q, k, v, sides, op.meta["plan"], sizes))


def _build(context: Context) -> float:
    """Build every kernel (or find it in the store); the seconds it took."""
    start = time.perf_counter()
    for plan, source in context.kernels.values():
        digest = register_plan(plan, source)
        if kernel(digest) is None and source.language == "c++":
            context.notes.append(Note("ATTNC-NO-COMPILER", f"{source.name} runs on plain torch operators"))
        if runs_on_gpu(digest) and torch.cuda.is_available():
            from attnc.runtime.inlined import announce  # imports Inductor's side of torch

            announce(digest)
    return time.perf_counter() - start
