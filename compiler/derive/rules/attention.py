"""``attn.attention`` is the one place where tokens may meet; ``attn.rope`` turns each by its own position."""

from __future__ import annotations

from attnc.compiler.derive.known import Dims, Kind, Known
from attnc.compiler.derive.refusal import LENGTH
from attnc.compiler.derive.rules.pointwise import joined
from attnc.compiler.derive.site import encoder_result, site_of
from attnc.compiler.derive.step import Rule, Step


def attention(step: Step) -> Known:
    """The result has the query's tokens, once the site is proved to be causal and every token's own.

    Where queries are the encoder's, all of its positions may meet, but no two requests.
    """
    if step.tensor(0, "q").kind is Kind.REQUEST:
        return encoder_result(step)
    return site_of(step).result


def rope(step: Step) -> Known:
    """Positions and tables must stand on x's own tokens."""
    x = step.tensor(0)
    groups = [arg if isinstance(arg, tuple) else () for arg in (step.op.args[1], (*step.op.args, ())[3])]
    positions, tables = ([step.fact(value) for value in group] for group in groups)
    frequencies = step.op.args[2] if isinstance(step.op.args[2], tuple) else ()
    if any(step.fact(value).kind is not Kind.UNIFORM for value in frequencies):
        raise step.refuse(LENGTH, "the frequencies of a rotation are no constants")
    rows = Known(x.kind, x.dims[:-1])
    turned = joined(step, [rows, *positions, *(Known(t.kind, t.dims[:-1]) for t in tables)], len(x.dims) - 1)
    dims: Dims = (*turned.dims, x.dims[-1])
    return Known(turned.kind, dims)


RULES: dict[str, Rule] = {"attn.attention": attention, "attn.rope": rope}
