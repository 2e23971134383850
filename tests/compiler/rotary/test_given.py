"""Cosines and sines that are inputs of the graph: taken as they are, whatever numbers they hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.compiler.interpreter import Interpreter
from attnc.ir import parse_graph
from attnc.ir.types import DType

B, H, S, D = 2, 3, 7, 8
Program = Callable[[Tensor, Tensor, Tensor], Any]


def twice(x: Tensor) -> Tensor:
    return torch.cat((x, x), dim=-1)


def turn(x: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((-high, low), dim=-1)


def parts(make: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Program:
    """Both halves by a formula of (low, high, cos, sin)."""
    return lambda x, c, s: torch.cat(make(*x.exp().chunk(2, dim=-1), c[:, None], s[:, None]), dim=-1)


def rotated(low: Tensor, high: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    return low * c - high * s, high * c + low * s


def neighbours(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """As openai_privacy_filter writes it."""
    x = x.exp()
    return torch.stack(rotated(x[..., ::2], x[..., 1::2], c[:, None], s[:, None]), dim=-1).flatten(-2)


def parted(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    """As longcat_flash writes it: the first half of whole tables, and neighbours stored as halves."""
    x, (c, s) = x.exp(), (table[..., : table.shape[-1] // 2].unsqueeze(1) for table in (c, s))
    return torch.cat(rotated(x[..., ::2], x[..., 1::2], c, s), dim=-1)


def partial(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
    head, tail = x[..., : c.shape[-1]], x[..., c.shape[-1] :]
    return torch.cat((head * c[:, None] + turn(head) * s[:, None], tail), dim=-1)


PAIRS, WHOLE = (B, S, D // 2), (B, S, D)
SPELLINGS: dict[str, tuple[Program, tuple[int, ...], str, int]] = {
    "whole tables": (lambda x, c, s: x * c[:, None] + turn(x) * s[:, None], WHOLE, "half", D),
    "one sequence for all": (lambda x, c, s: x * c + turn(x) * s, (S, D), "half", D),
    "one row for each sequence": (lambda x, c, s: x * c[:, None] + turn(x) * s[:, None], (1, S, D), "half", D),
    "tables repeated for both halves": (
        lambda x, c, s: x * twice(c)[:, None] + turn(x) * twice(s)[:, None],
        PAIRS,
        "half",
        D,
    ),
    "halves apart": (parts(rotated), PAIRS, "half", D),
    "the other way": (parts(lambda a, b, c, s: (a * c + b * s, b * c - a * s)), PAIRS, "half", D),
    "neighbours": (neighbours, PAIRS, "interleaved", D),
    "neighbours of whole tables": (
        lambda x, c, s: x * c[:, None] + torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2) * s[:, None],
        WHOLE,
        "interleaved",
        D,
    ),
    "neighbours stored apart": (parted, WHOLE, "interleaved", D),
    "some features": (partial, (B, S, 4), "half", 4),
    "a factor": (lambda x, c, s: x * (c[:, None] * 1.25) + turn(x) * (s[:, None] * 1.25), WHOLE, "half", D),
    "later rows": (lambda x, c, s: x * c[2 : 2 + S] + turn(x) * s[2 : 2 + S], (S + 2, D), "half", D),
}


def inputs(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Tables of any numbers: nothing may rest on c² + s² = 1, or on equal entries for both features of a pair."""
    return torch.randn(B, H, S, D), torch.randn(shape), torch.randn(shape)


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str, turned: Any) -> None:
    program, shape, style, rotary_dim = SPELLINGS[name]
    outcome = turned(program, *inputs(shape))
    (rope,) = outcome.ropes
    assert (rope.attrs["style"], rope.attrs["rotary_dim"]) == (style, rotary_dim)
    assert rope.args[1:3] == ((), ()) and len(rope.args[3]) == 2
    (told,) = outcome.context.ropes
    assert told.given and "cosines and sines given" in told.kind
    assert outcome.reasons == []
    outcome.check()


def test_queries_and_keys_share_their_tables(turned: Any) -> None:
    def run(q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> Tensor:
        q, k = q.exp(), k.exp()
        return (q * c + turn(q) * s) @ (k * c + turn(k) * s).mT

    outcome = turned(run, torch.randn(B, H, S, D), torch.randn(B, 1, S, D), torch.randn(S, D), torch.randn(S, D))
    first, second = outcome.ropes
    assert first.args[3] == second.args[3]
    assert [str(node.target) for node in outcome.module.graph.nodes].count("aten.neg.default") == 1
    outcome.check()


def test_one_tensor_holds_cosines_and_sines(turned: Any) -> None:
    outcome = turned(lambda x, t: x * t[:, 0] + turn(x) * t[:, 1], torch.randn(B, H, S, D), torch.randn(S, 2, D))
    assert len(outcome.ropes) == 1
    outcome.check()


def test_tables_wider_than_x(turned: Any) -> None:
    def run(x: Tensor, c: Tensor, s: Tensor) -> Tensor:
        x = x.half()
        return x * c + turn(x) * s

    outcome = turned(run, *inputs((S, D)))
    assert outcome.ropes[0].result.type.dtype is DType.F32
    outcome.check()


def test_tables_without_a_rotation_go_unmentioned(turned: Any) -> None:
    outcome = turned(lambda x, c, s: x * c + x.roll(1) * s, *inputs((S, D)))
    assert outcome.ropes == [] and outcome.reasons == []


def test_two_inputs_that_may_be_tables(turned: Any) -> None:
    """x is only multiplied, too: which of both is the table stays open, and both are left alone."""
    program = lambda x, c, s: torch.cat(rotated(*x.chunk(2, dim=-1), c, s), dim=-1)  # noqa: E731
    assert turned(program, *inputs((S, D // 2))).ropes == []
    (rope,) = turned(lambda x, c, s: program(x + 0.0, c, s), *inputs((S, D // 2))).ropes
    assert len(rope.args[3]) == 2


def test_an_empty_list_of_tables_is_none() -> None:
    text = """graph @f(%x: f32[3, 8], %p: i64[3], %w: f32[4]) {
  %y: f32[3, 8] = attn.rope(%x, [%p], [%w]TABLES) {style = "half", rotary_dim = 8, attention_factor = 1.0, ROUNDED}
  return %y
}
"""
    args = [torch.randn(3, 8), torch.arange(3), torch.rand(4)]
    (without,), (empty,) = (
        Interpreter(parse_graph(text.replace("TABLES", tables).replace("ROUNDED", "rounded = False"))).run(args)
        for tables in ("", ", []")
    )
    assert torch.equal(without, empty)


def test_gradients_reach_the_tables(turned: Any) -> None:
    program, x, c, s = SPELLINGS["whole tables"][0], *inputs(WHOLE)
    leaves = [t.requires_grad_() for t in (x, c, s)]
    outcome = turned(program, x, c, s)
    assert len(outcome.ropes) == 1
    weights = torch.randn(B, H, S, D)
    expected = torch.autograd.grad((program(x, c, s) * weights).sum(), leaves)
    found = torch.autograd.grad((outcome.module(x, c, s)[0] * weights).sum(), leaves)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


REFUSED: dict[str, tuple[Program, Program, tuple[int, ...]]] = {
    "a reflection": (
        parts(lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
        parts(lambda a, b, c, s: (a * c + b * s, b * c - a * s)),
        PAIRS,
    ),
    "the table is a sine of an input": (
        lambda x, c, s: x * c.cos() + turn(x) * s.sin(),
        lambda x, c, s: x * c.contiguous() + turn(x) * s.clone(),
        (S, D),
    ),
    "a computed sine beside given cosines": (
        lambda x, c, s: x * c + turn(x) * (s + 0.0),
        lambda x, c, s: x * c + turn(x) * (s * 1.0),
        (S, D),
    ),
    "sines in another order": (
        lambda x, c, s: x * c + turn(x) * torch.cat((s[:, 1:], s[:, :1]), dim=-1),
        lambda x, c, s: x * c + turn(x) * torch.cat((s[:, :1], s[:, 1:]), dim=-1),
        (S, D),
    ),
    "sines of another table in one feature": (
        lambda x, c, s: x * c + turn(x) * torch.cat((s[:, :-1], c[:, -1:]), dim=-1),
        lambda x, c, s: x * c + turn(x) * torch.cat((s[:, :-1], s[:, -1:]), dim=-1),
        (S, D),
    ),
    "a table without its gradient": (
        lambda x, c, s: x * c + turn(x) * s.detach(),
        lambda x, c, s: x * c + turn(x) * s.contiguous(),
        (S, D),
    ),
    "a factor on the sines alone": (
        lambda x, c, s: x * c + turn(x) * (s * 2.0),
        lambda x, c, s: x * (c * 2.0) + turn(x) * (s * 2.0),
        (S, D),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_trap(name: str, turned: Any) -> None:
    trap, _, shape = REFUSED[name]
    outcome = turned(trap, *inputs(shape))
    assert outcome.ropes == []
    outcome.check()


@pytest.mark.parametrize("name", REFUSED)
def test_twin(name: str, turned: Any) -> None:
    _, twin, shape = REFUSED[name]
    outcome = turned(twin, *inputs(shape))
    assert len(outcome.ropes) == 1
    outcome.check()
