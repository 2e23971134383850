"""``attn.rope`` on its way to the host: one kernel where that pays, else torch operators.

On a GPU a kernel reads x once, writes it once, and computes cosines and sines in registers, once for several heads. The
operators read x and a copy with swapped features, and two tables of cosines and sines. Inductor fuses some of that, and
could at best fuse all of it into what is computed before; but a matrix product is before, which ends in memory anyway.
So GPUs get the kernel whatever the host is, and so does Triton's interpreter, which stands for one. CPUs have none.

The kernel has no gradient. A graph that is compiled for training keeps the operators, which have one for x, positions,
frequencies and tables alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from attnc.codegen.source import Source, file_names
from attnc.codegen.targets import capability
from attnc.codegen.triton.rope import RopePlan, check_rope, emit_rope
from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.arguments import to_fx
from attnc.compiler.fuse.layout import tensor_type
from attnc.compiler.fuse.rewrite import memory_order
from attnc.compiler.host.lower_rope import RopeProgram
from attnc.compiler.host.metadata import carried
from attnc.compiler.host.to_fx import Expanded
from attnc.compiler.planning.target import target_of
from attnc.ir.types import TensorType
from attnc.ir.values import Arg, Op, walk_values
from attnc.runtime.rope import RopeKernel, register_rope


@dataclass
class Rotations:
    """The rotations of one graph on their way to the host. ``target``: what the options ask for."""

    program: RopeProgram
    target: str | None = None
    training: bool = False
    kernels: dict[int, Source] = field(default_factory=dict)
    """Kernels of this graph, by the digest of their plans."""

    def lower(self, op: Op) -> Expanded:
        """The nodes one ``attn.rope`` becomes."""
        plan = None if self.training else rope_plan(op, self.target)
        if plan is None:
            return Expanded(lambda emit, of: self.program.run(op, emit, of))
        if plan.digest not in self.kernels:
            self.kernels[plan.digest] = emit_rope(plan)
            register_rope(RopeKernel(self.kernels[plan.digest], plan.target, plan.dtypes[1], plan.order))
        return Expanded(lambda emit, of: _call(op, plan.digest, of))

    def texts(self) -> dict[str, str]:
        """Name → emitted source text."""
        return {name: self.kernels[digest].text for digest, name in file_names(self.kernels).items()}


def rope_plan(op: Op, wanted: str | None) -> RopePlan | None:
    """The plan of an ``attn.rope``'s kernel for a target, else its device's; None where it has none.

    It has none on CPUs, for operands on several devices, for a number of features that isn't known, and for dtypes
    that kernels do not read.
    """
    kinds = [tensor_type(value) for value in walk_values(op.args)]
    features = kinds[0].shape[-1]
    if not isinstance(features, int) or len({kind.device for kind in kinds}) > 1:
        return None
    try:
        target = target_of(op.result, wanted)
        if capability(target).language != "triton":
            return None
        plan = _plan(op, target, features)
        check_rope(plan)
    except ValueError:
        return None
    return plan


def _plan(op: Op, target: str, features: int) -> RopePlan:
    (x,), positions, frequencies, tables = (_kinds(arg) for arg in (*op.args, ())[:4])
    lead = x.rank - 1
    read = [*(kind.shape for kind in positions), *(kind.shape[:-1] for kind in tables)]
    return RopePlan(
        target=target,
        dtypes=(x.dtype.value, tensor_type(op.result).dtype.value),
        rank=x.rank,
        heads=tuple(d for d in range(lead) if all(d < lead - len(s) or s[d - lead] == 1 for s in read)),
        features=features,
        rotary_dim=op.attrs["rotary_dim"],
        style=op.attrs["style"],
        terms=tuple((p.dtype.value, f.dtype.value) for p, f in zip(positions, frequencies, strict=True)),
        tables=tuple((kind.dtype.value, _length(kind)) for kind in tables),
        order=memory_order(op.result),
        factor=float(op.attrs["attention_factor"]),
        rounded=bool(op.attrs["rounded"]),
    )


def _kinds(arg: Arg) -> list[TensorType]:
    return [tensor_type(value) for value in walk_values(arg)]


def _length(table: TensorType) -> int:
    features = table.shape[-1]
    assert isinstance(features, int)  # rotary_dim or half of it: the op was verified
    return features


def _call(op: Op, plan: int, of: Any) -> torch.fx.Node:
    """One node that calls ``attnc::rope``, with its example value."""
    import attnc.runtime.ops  # noqa: F401 - registers the op: only once a graph has a rotation with a kernel

    x, positions, frequencies, tables = (to_fx(arg, of) for arg in (*op.args, ())[:4])
    arguments = (x, list(positions), list(frequencies), list(tables), plan)
    node: torch.fx.Node = x.graph.create_node(
        "call_function", torch.ops.attnc.rope.default, arguments, name=op.result.name
    )
    node.meta = carried(op.meta.get("origin", op.meta.get("fx", {})))
    if all(isinstance(n.meta.get("val"), FakeTensor) for n in node.all_input_nodes):
        examples = torch.fx.node.map_arg(arguments, lambda n: n.meta["val"])
        with private.quiet_guards(x.meta["val"].fake_mode), torch.no_grad():
            node.meta["val"] = torch.ops.attnc.rope.default(*examples)
    return node
