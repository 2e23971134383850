"""The ``attn`` ops over pages of keys and values, which :mod:`attnc.compiler.derive` makes.

Pages and block tables are those of PagedAttention (Kwon et al. 2023, https://arxiv.org/abs/2309.06180).
"""

from __future__ import annotations

from collections.abc import Iterator

from attnc.ir.attention import KEY, QUERY, AttentionSpec
from attnc.ir.opdef import Attribute, OpDef, Operand, Result, Trait
from attnc.ir.ops.attention_rules import formula_problems, spec_problems
from attnc.ir.types import TensorType
from attnc.ir.values import Op, Value

KV_WRITE = OpDef(
    name="attn.kv_write",
    summary="new rows of keys or values into pages",
    operands=(
        Operand("x", "tensor", "float[T, heads, features]"),
        Operand("pages", "tensor", "[pages, heads, page_size, features], written to"),
        Operand("scale", "any", "of quantised pages their scales, written to; else None"),
        Operand("slots", "tensor", "i64[T], page · page_size + place of each row"),
    ),
    results=(Result("nothing", "none"),),
    traits=frozenset({Trait.EFFECT}),
    doc="Row t of `x` goes to slot `slots[t]`, quantised as the pages are.",
)


def _verify_paged(op: Op) -> Iterator[str]:
    spec: AttentionSpec = op.attrs["spec"]
    yield from spec_problems(spec) or formula_problems(op, spec)
    q = _type(op.args[0])
    if q.rank != len(spec.q_axes):
        yield f"q has rank {q.rank} but {len(spec.q_axes)} axes [{', '.join(spec.q_axes)}]"
        return
    for name, arg in (("k_pages", op.args[1]), ("v_pages", op.args[2])):
        if _type(arg).rank != 4:
            yield f"{name} must have the dimensions page, head, slot, feature"
    table, start, context = (_type(arg) for arg in op.args[5:8])
    if (table.rank, start.rank, context.rank) != (2, 1, 1):
        yield "block_table must have rank 2, query_start and context_len rank 1"
    if spec.returns_lse:
        yield "an attention over pages returns no log-sum-exp"
    if QUERY not in spec.out_axes or KEY not in spec.k_axes:
        yield "queries and keys must have positions"


def _type(arg: object) -> TensorType:
    assert isinstance(arg, Value) and isinstance(arg.type, TensorType)  # the signature was checked
    return arg.type


PAGED_ATTENTION = OpDef(
    name="attn.paged_attention",
    summary="attention of a ragged batch of new tokens over pages",
    operands=(
        Operand("q", "tensor", "queries of all requests, dimensions named by q_axes; axis q is the T new tokens"),
        Operand(
            "k_pages", "tensor", "[pages, heads, page_size, features]; heads are the outer axes of k_axes, row-major"
        ),
        Operand("v_pages", "tensor", "the same of values, by v_axes"),
        Operand("sides", "tensors", "tensors that formulas load, t0, t1, … in this order"),
        Operand("sizes", "list", "host ints, the values of the spec's sizes in this order"),
        Operand("block_table", "tensor", "i32[N, P], the pages of each request in order; page 0 is none"),
        Operand("query_start", "tensor", "i32[N + 1], where each request's new tokens begin"),
        Operand("context_len", "tensor", "i32[N], keys of each request before its new tokens"),
        Operand("k_scale", "any", "scales of quantised keys, else None", optional=True),
        Operand("v_scale", "any", "scales of quantised values, else None", optional=True),
    ),
    attributes=(Attribute("spec", AttentionSpec, "as of attn.attention, without a batch axis"),),
    results=(Result("out", "the result in out_axes order, contiguous, dtype out_dtype"),),
    traits=frozenset({Trait.EFFECT}),  # it reads what attn.kv_write has written before it
    verify=_verify_paged,
    doc=(
        "The attention of `spec` for each request by itself. Row r of request n is query position "
        "`q = context_len[n] + r − query_start[n]`; its keys are positions 0 to `context_len[n]` + its new tokens, of "
        "which k is in slot `k % page_size` of page `block_table[n, k // page_size]`. Formulas are evaluated at these "
        "absolute positions."
    ),
)

OPS: tuple[OpDef, ...] = (KV_WRITE, PAGED_ATTENTION)
