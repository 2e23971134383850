"""RNN, GRU and LSTM, written out step by step over a short known length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.control import MOST_STEPS
from attnc.compiler.frontends.onnx.table import op

Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]
_ACTIVATIONS: dict[str, Activation] = {
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "relu": torch.relu,
    "softsign": F.softsign,
    "softplus": F.softplus,
}


@dataclass(frozen=True)
class Weights:
    """One direction's: ``w`` for the input and ``r`` for the state, [gates·hidden, …], and their biases."""

    w: Tensor
    r: Tensor
    w_bias: Tensor | None
    r_bias: Tensor | None

    def gates(self, x: Tensor, count: int) -> Sequence[Tensor]:
        """The input's part of each gate."""
        parts: Sequence[Tensor] = F.linear(x, self.w, self.w_bias).chunk(count, -1)
        return parts

    def of_state(self, h: Tensor, count: int) -> Sequence[Tensor]:
        """The state's part of each gate."""
        parts: Sequence[Tensor] = F.linear(h, self.r, self.r_bias).chunk(count, -1)
        return parts


def _activations(node: Node, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """Each direction's. Raises NoForm for those with parameters."""
    if node.get("activation_alpha") or node.get("activation_beta") or node.get("clip"):
        raise NoForm("activations with parameters, or clipped")
    names = [name.lower() for name in node.get("activations") or list(defaults) * directions]
    if any(name not in _ACTIVATIONS for name in names) or len(names) != len(defaults) * directions:
        raise NoForm(f"activations {', '.join(names)}")
    return [[_ACTIVATIONS[n] for n in names[i * len(defaults) :][: len(defaults)]] for i in range(directions)]


def _run(
    node: Node,
    x: Tensor,
    parts: tuple[Tensor, Tensor, Tensor | None],
    lengths: Tensor | None,
    states: Sequence[Tensor | None],
    defaults: Sequence[str],
    cell: Callable[[Weights, list[Activation], int], Step],
) -> tuple[Tensor, ...]:
    """All directions' outputs [length, directions, batch, hidden] and last states [directions, batch, hidden]."""
    if node.get("layout", 0):
        x = x.transpose(0, 1)
        states = [None if state is None else state.transpose(0, 1) for state in states]
    steps = x.shape[0]
    if not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
        raise NoForm(f"a sequence of {'symbolic length' if not isinstance(steps, int) else f'{steps} steps'}")
    w, r, b = parts
    directions, hidden = int(w.shape[0]), int(r.shape[-1])
    functions = _activations(node, defaults, directions)
    outputs, lasts = [], []
    for place in range(directions):
        biases: Any = (None, None) if b is None else b[place].chunk(2)
        step = cell(Weights(w[place], r[place], *biases), functions[place], place)
        zero = torch.zeros((x.shape[1], hidden), dtype=x.dtype)
        start = tuple(zero if state is None else state[place] for state in states)
        backward = node.get("direction", "forward") == "reverse" or place == 1
        made, last = _direction(x, lengths, start, step, backward=backward)
        outputs.append(made)
        lasts.append(last)
    along = 2 if node.get("layout", 0) else 1
    whole = torch.stack([torch.stack(made) for made in outputs], 1)
    whole = whole.permute(2, 0, 1, 3) if along == 2 else whole
    ends = [torch.stack(parts, 1 if along == 2 else 0) for parts in zip(*lasts, strict=True)]
    return (whole, *ends)


def _direction(
    x: Tensor, lengths: Tensor | None, state: State, step: Step, *, backward: bool
) -> tuple[list[Tensor], State]:
    """The outputs of each step, zero beyond a sequence's length, and its last state."""
    count = int(x.shape[0])
    outputs: list[Tensor | None] = [None] * count
    for place in reversed(range(count)) if backward else range(count):
        new = step(x[place], state)
        shown = new[0]
        if lengths is not None:
            there = (lengths > place).unsqueeze(-1)
            new = tuple(torch.where(there, after, before) for after, before in zip(new, state, strict=True))
            shown = torch.where(there, shown, torch.zeros_like(shown))
        outputs[place], state = shown, new
    return [output for output in outputs if output is not None], state


@op("RNN")
def rnn(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """h' = f(W·x + R·h)."""

    def cell(weights: Weights, functions: list[Activation], place: int) -> Step:
        def step(now: Tensor, state: State) -> State:
            return (functions[0](weights.gates(now, 1)[0] + weights.of_state(state[0], 1)[0]),)

        return step

    return _run(node, x, (w, r, b), lengths, [h], ["tanh"], cell)


@op("GRU")
def gru(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """h' = (1 − z)·n + z·h with gates z (update), r (reset) and n (new)."""
    after = bool(node.get("linear_before_reset", 0))

    def cell(weights: Weights, functions: list[Activation], place: int) -> Step:
        gate, new = functions
        rows = weights.r.shape[0] // 3

        def step(now: Tensor, state: State) -> State:
            (before,) = state
            x_update, x_reset, x_new = weights.gates(now, 3)
            h_update, h_reset, h_new = weights.of_state(before, 3)
            update, reset = gate(x_update + h_update), gate(x_reset + h_reset)
            if after:
                inner = reset * h_new
            else:
                bias = None if weights.r_bias is None else weights.r_bias[2 * rows :]
                inner = F.linear(reset * before, weights.r[2 * rows :], bias)
            return ((1 - update) * new(x_new + inner) + update * before,)

        return step

    return _run(node, x, (w, r, b), lengths, [h], ["sigmoid", "tanh"], cell)


@op("LSTM")
def lstm(
    node: Node,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """c' = f·c + i·g, h' = o·tanh(c'), with gates in the order i, o, f, g; peepholes let gates see c."""
    if node.get("input_forget", 0):
        raise NoForm("coupled input and forget gates")

    def cell(weights: Weights, functions: list[Activation], place: int) -> Step:
        gate, candidate, shown = functions
        seen = None if peepholes is None else peepholes[place].chunk(3)

        def step(now: Tensor, state: State) -> State:
            before, memory = state
            pairs = zip(weights.gates(now, 4), weights.of_state(before, 4), strict=True)
            i, o, f, g = (ours + theirs for ours, theirs in pairs)
            if seen is not None:
                i, f = i + seen[0] * memory, f + seen[2] * memory
            memory = gate(f) * memory + gate(i) * candidate(g)
            o = o if seen is None else o + seen[1] * memory
            return (gate(o) * shown(memory), memory)

        return step

    return _run(node, x, (w, r, b), lengths, [h, c], ["sigmoid", "tanh", "tanh"], cell)
