"""The analysis of a whole graph: rules applied in order, and the conditions on inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import sympy

from attnc.compiler.derive.axes import Axes
from attnc.compiler.derive.guard import check_operands, checked, failed
from attnc.compiler.derive.known import BATCH, TOKEN_AXIS, Kind, Known
from attnc.compiler.derive.refusal import DATA_SIZE, INPUT, NO_RULE, RANDOM, STATE, NotDerivable
from attnc.compiler.derive.rules import rule_of
from attnc.compiler.derive.site import SiteFacts, site_of
from attnc.compiler.derive.step import Fact, Step
from attnc.ir.graph import Graph
from attnc.ir.ops.effects import is_pure
from attnc.ir.types import Dim, NoneType, ScalarType, TensorType, TupleType, same_dim
from attnc.ir.values import Op, Value

Found: TypeAlias = "Known | tuple[Known, ...]"
"""What is known of an op's result, or of each."""


@dataclass(frozen=True)
class Analysis:
    """What is known of every value, and of every attention."""

    graph: Graph
    axes: Axes
    tokens: Value
    """The input of token ids, i64[B, S]."""
    logits: Value
    facts: Mapping[Value, Fact]
    sites: tuple[SiteFacts, ...]

    def known(self, value: Value) -> Known | None:
        """What is known of a tensor; None for anything else, and where nothing is."""
        found = self.facts.get(value)
        return found if isinstance(found, Known) else None


def analyse(graph: Graph, tokens: str, state: Iterable[str], encoder: Iterable[str] = ()) -> Analysis:
    """Prove that a graph works token by token but for attention.

    ``tokens`` names the input of token ids, ``encoder`` those of the encoder, ``state`` those that are weights and
    buffers. The first output is taken as the logits. Raises NotDerivable.
    """
    ids = _input(graph, tokens)
    encoded = [_input(graph, name) for name in encoder]
    axes = _axes(graph, ids, encoded)
    facts: dict[Value, Fact] = {}
    weights = set(state)
    for value in graph.inputs:
        kind = Kind.UNIFORM if value.name in weights else Kind.REQUEST if value in encoded else None
        facts[value] = _input_fact(value, Kind.TOKEN if value is ids else kind, axes)
    for op in graph.ops:
        _visit(op, axes, facts)
    logits = graph.output_values()[0]
    _check_output(facts, logits)
    return Analysis(graph, axes, ids, logits, facts, _sites(graph, axes, facts, logits))


def _input(graph: Graph, name: str) -> Value:
    found = next((value for value in graph.inputs if value.name == name), None)
    if found is None:
        raise NotDerivable(INPUT, f"the program has no input {name!r}")
    return found


def _axes(graph: Graph, ids: Value, encoded: list[Value]) -> Axes:
    kind = ids.type
    if not isinstance(kind, TensorType) or kind.rank != 2 or not kind.dtype.is_int:
        raise NotDerivable(INPUT, f"%{ids.name} is no i64[B, S]")
    batch, tokens = kind.shape
    if not isinstance(batch, sympy.Symbol) or not isinstance(tokens, sympy.Symbol):
        raise NotDerivable(INPUT, f"the batch and the length of %{ids.name} don't vary: {list(kind.shape)}")
    others = {s for v in encoded if isinstance(v.type, TensorType) for n in v.type.shape for s in _symbols(n)} - {batch}
    if len(others) > 1 or tokens in others:
        raise NotDerivable(INPUT, f"the encoder's inputs vary in {sorted(map(str, others))}; they may have one length")
    longest = graph.sizes[tokens.name].hi if tokens.name in graph.sizes else None
    return Axes(batch, tokens, next(iter(others), None), longest)


def _symbols(length: Dim) -> set[sympy.Symbol]:
    return set() if isinstance(length, int) else length.free_symbols


def _input_fact(value: Value, kind: Kind | None, axes: Axes) -> Fact:
    if not isinstance(value.type, TensorType):
        return Known(Kind.UNIFORM, ())
    dims = axes.label(value.type.shape)
    if dims is None or kind is None:
        return NotDerivable(INPUT, f"nothing is known of the input %{value.name}")
    return Known(kind, dims)


def _visit(op: Op, axes: Axes, facts: dict[Value, Fact]) -> None:
    """Apply the rule of one op; its refusal becomes the fact of its results."""
    if isinstance(op.results[0].type, ScalarType | NoneType) if op.results else True:
        facts.update(dict.fromkeys(op.results, scalar_fact(op, facts)))
        return
    enter(op, attempted(Step(op, axes, facts), _apply), facts)


def attempted(step: Step, apply: Callable[[Step], Found]) -> Found | NotDerivable:
    """What ``apply`` finds of an op's results, of axes as long as they are; or why nothing is known of them."""
    try:
        found = apply(step)
        _check_shapes(step, found)
    except NotDerivable as refusal:
        return refusal
    except Exception as error:  # an op in a form its rule was not written for: nothing is known of it
        return failed(step, error)
    return found


def enter(op: Op, found: Found | NotDerivable, facts: dict[Value, Fact]) -> None:
    """Enter what was found of an op's results; a refusal becomes the fact of each."""
    if isinstance(found, NotDerivable):
        facts.update(dict.fromkeys(op.results, found))
    elif isinstance(found, tuple) and len(op.results) > 1:
        facts.update(zip(op.results, found, strict=True))
    else:
        unknown = NotDerivable(NO_RULE, "nothing is known of its further results", op)
        facts.update({op.results[0]: found, **dict.fromkeys(op.results[1:], unknown)})


def scalar_fact(op: Op, facts: Mapping[Value, Fact]) -> Fact:
    """What is known of a number on the host: it is a size, unless it is read out of data."""
    if op.name != "aten.sym_size.int" and not all(_is_constant(facts.get(value)) for value in op.operands):
        return NotDerivable(DATA_SIZE, "a number on the host is read out of data", op)
    return Known(Kind.UNIFORM, ())


def _is_constant(fact: Fact | None) -> bool:
    return isinstance(fact, Known) and fact.kind is Kind.UNIFORM


def _apply(step: Step) -> Known | tuple[Known, ...]:
    op = step.op
    for value in op.operands:
        if isinstance(found := step.facts[value], NotDerivable):
            raise found
    if op.name == "ir.constant":
        return Known(Kind.UNIFORM, step.label())
    if op.name == "py.getitem":
        return part(step)
    rule = rule_of(op.name)
    if rule is not None:
        check_operands(step)
        return checked(step, rule(step))
    if not is_pure(op):
        code = STATE if "_" == op.name.split(".")[1][-1] or "copy" in op.name else RANDOM
        raise step.refuse(code, "an operator with a side effect, or that draws random numbers")
    return constant_result(step)


def part(step: Step) -> Known:
    """One element of a tuple."""
    parts, index = step.op.args
    found = step.facts[parts]  # type: ignore[index]
    assert isinstance(found, tuple) and isinstance(index, int)
    return found[index]


def constant_result(step: Step) -> Known | tuple[Known, ...]:
    """Any operator on constants of static shape gives a constant."""
    operands = step.tensors()
    if (
        not step.sized_scalars()
        and all(k.kind is Kind.UNIFORM and k.role is None and not k.symbolic for k in operands)
        and operands
    ):
        found = tuple(Known(Kind.UNIFORM, step.label(shape)) for shape in step.shapes)
        if not any(known.symbolic for known in found):
            return found if isinstance(step.op.results[0].type, TupleType) else found[0]
    raise step.refuse(NO_RULE, "no rule says whether it keeps tokens apart")


def _check_shapes(step: Step, found: Known | tuple[Known, ...]) -> None:
    """The axes a rule gives must have the lengths of the result: a check of the rules themselves."""
    facts = found if isinstance(found, tuple) else (found,)
    for known, shape in zip(facts, step.shapes, strict=False):
        lengths = [sympy.Mul(*map(step.axes.length, dim)) for dim in known.dims]
        if len(lengths) != len(shape) or not all(map(same_dim, lengths, shape)):
            raise step.refuse(NO_RULE, f"its axes {known.dims} don't fit its shape {list(shape)}")


def _check_output(facts: Mapping[Value, Fact], logits: Value) -> None:
    found = facts[logits]
    if isinstance(found, NotDerivable):
        raise found
    if not isinstance(found, Known) or not _are_logits(found):
        raise NotDerivable(INPUT, f"the first output, %{logits.name}, is no [B, S, vocabulary] of tokens", logits.op)


def _are_logits(known: Known) -> bool:
    """[B, S, vocabulary] of tokens."""
    if known.kind is not Kind.TOKEN or len(known.dims) != 3:
        return False
    return known.dims[:2] == ((BATCH,), (TOKEN_AXIS,)) and not any(isinstance(a, str) for a in known.dims[2])


def _sites(graph: Graph, axes: Axes, facts: Mapping[Value, Fact], logits: Value) -> tuple[SiteFacts, ...]:
    """The attentions of tokens that the logits depend on, in order."""
    needed = _ancestors(logits)
    found = [op for op in graph.ops if op.name == "attn.attention" and op in needed]
    return tuple(site_of(Step(op, axes, facts)) for op in found if _is_of_tokens(facts[op.results[0]]))


def _is_of_tokens(fact: Fact) -> bool:
    return isinstance(fact, Known) and fact.kind is Kind.TOKEN


def _ancestors(value: Value) -> set[Op]:
    found: set[Op] = set()
    waiting = [value]
    while waiting:
        op = waiting.pop().op
        if op is not None and op not in found:
            found.add(op)
            waiting += op.operands
    return found
