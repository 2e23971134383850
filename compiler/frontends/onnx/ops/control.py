"""Operators that hold graphs: branches whose condition is known, and loops of few steps, written out.

A form here is called with what runs a graph: its inputs by name in, its outputs out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.known import Constant, Value, ints, materialise, number, untraced
from attnc.compiler.frontends.onnx.node import Node

Run = Callable[[Any, dict[str, Any]], tuple[Any, ...]]
"""Runs a graph with the values given; those around it are added."""

MOST_STEPS = 64
"""Longer loops are not written out."""


def branch(node: Node, inputs: list[Value], run: Run) -> tuple[Any, ...]:
    """The branch of an If whose condition is known."""
    condition = inputs[0]
    if not isinstance(condition, Constant):
        raise NoForm("the condition is known only when the model runs")
    with untraced():
        graph = node.get("then_branch" if bool(condition.tensor.reshape(-1)[0]) else "else_branch")
    return run(graph, {})


def _constant(entry: int | bool) -> Constant:
    with untraced():
        return Constant(torch.tensor(entry))


def loop(node: Node, inputs: list[Value], run: Run) -> tuple[Any, ...]:
    """A Loop of few steps whose condition is known at each."""
    graph = node.get("body")
    most = None if inputs[0] is None else ints(inputs[0], "how often it runs")[0]
    going: Value = _constant(True) if len(inputs) < 2 or inputs[1] is None else inputs[1]
    states, names = list(inputs[2:]), [info.name for info in graph.input]
    collected: list[list[Value]] = [[] for _ in graph.output[1 + len(states) :]]
    step = 0
    while most is None or step < most:
        if not bool(number(going, "whether it goes on")):
            break
        if step == MOST_STEPS:
            raise NoForm(f"more than {MOST_STEPS} steps")
        given = [_constant(step), going, *states]
        going, *made = run(graph, dict(zip(names, given, strict=True)))
        states = made[: len(states)]
        for place, value in enumerate(made[len(states) :]):
            collected[place].append(value)
        step += 1
    if collected and not step:
        raise NoForm("it runs no step, and the shape of what it collects isn't said")
    return (*states, *(torch.stack([materialise(value) for value in values]) for values in collected))


def scan(node: Node, inputs: list[Value], run: Run) -> tuple[Any, ...]:
    """A Scan over few slices."""
    graph, count = node.get("body"), node.get("num_scan_inputs")
    states = list(inputs[: len(inputs) - count])
    series = [materialise(value) for value in inputs[len(states) :]]
    outputs = len(graph.output) - len(states)
    axes = [a % x.dim() for a, x in zip(node.get("scan_input_axes") or [0] * count, series, strict=True)]
    steps = series[0].shape[axes[0]]
    if not isinstance(steps, int) or not 0 < steps <= MOST_STEPS:
        raise NoForm(f"{'a symbolic number' if not isinstance(steps, int) else steps} of steps")
    names = [info.name for info in graph.input]
    backward = node.get("scan_input_directions") or [0] * count
    collected: list[list[Tensor]] = [[] for _ in range(outputs)]
    for step in range(steps):
        slices = [
            x.select(axis, steps - 1 - step if back else step)
            for x, axis, back in zip(series, axes, backward, strict=True)
        ]
        made = run(graph, dict(zip(names, [*states, *slices], strict=True)))
        states = list(made[: len(states)])
        for place, value in enumerate(made[len(states) :]):
            collected[place].append(materialise(value))
    return (*states, *_joined(node, collected))


def _joined(node: Node, collected: list[list[Tensor]]) -> list[Tensor]:
    """What the steps gave, along an axis of its own each."""
    axes = node.get("scan_output_axes") or [0] * len(collected)
    backward = node.get("scan_output_directions") or [0] * len(collected)
    return [
        torch.stack(values[::-1] if back else values, axis)
        for values, axis, back in zip(collected, axes, backward, strict=True)
    ]


FORMS: Mapping[str, Callable[[Node, list[Value], Run], tuple[Any, ...]]] = {"If": branch, "Loop": loop, "Scan": scan}
