"""Which pass moved a number, and which op of it: the graph run in the reference interpreter after every pass.

A pass is judged by the graph's outputs, against those of the captured graph, as in ``compiler/verify.py``. Its first
wrong op is then looked for among values that should not have changed: those that kept their name, and those that took
the place of another in the arguments of an op that stayed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from attnc.compiler.hints import size_hints, user_names
from attnc.compiler.interpreter import Interpreter
from attnc.compiler.passes.base import Context, Pass
from attnc.compiler.passes.pipeline import PIPELINE, run_pipeline
from attnc.compiler.verify import TOLERANCE, difference
from attnc.ir.graph import Graph
from attnc.ir.printer import print_op
from attnc.ir.values import Location, Op, Value, walk_values

ROUNDING = {torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""Largest difference allowed of floats computed as written, by dtype, over the largest magnitude."""

Key = tuple[str, int]
"""A reader's first result (empty: the graph's outputs) and the place among what it reads."""


@dataclass(frozen=True)
class Move:
    """The first op that computes something else."""

    inputs: str
    """The name of the input set that shows it."""
    place: int
    """The pass's place in the pipeline, from 1."""
    step: str
    op: str
    loc: Location
    detail: str
    """How far off, and at which index; or the error it raises."""


@dataclass
class Finding:
    """What a bisection found: nothing where ``move`` is None."""

    sets: list[str]
    passes: int
    left_out: list[str] = field(default_factory=list)
    """Input sets that the captured graph itself doesn't take, with its error."""
    move: Move | None = None

    def lines(self) -> Iterator[str]:
        """For a terminal."""
        yield from (f"left out: {text}" for text in self.left_out)
        if self.move is None:
            yield f"nothing moved: {self.passes} passes, {len(self.sets)} sets of inputs"
            yield from (f"  {name}" for name in self.sets if len(self.sets) > 1)
            return
        move = self.move
        yield f"pass {move.step} ({move.place} of {self.passes}) moved a number, with inputs: {move.inputs}"
        yield f"  {move.op}"
        module = f"  in {move.loc.module}" if move.loc.module else ""
        yield f"  {move.loc}  {move.loc.code}{module}"
        yield f"  {move.detail}"


@dataclass
class _Run:
    """One evaluation of a graph."""

    outputs: list[Any]
    values: dict[str, Any]
    """By value name."""


class _Found(Exception):
    def __init__(self, move: Move) -> None:
        self.move = move


def bisect_passes(
    graph: Graph, sets: Mapping[str, Sequence[Any]], *, wide: bool = True, passes: tuple[Pass, ...] | None = None
) -> Finding:
    """Run ``passes`` (the pipeline) over ``graph`` in place and compare after each, on every named set of inputs.

    ``wide``: every float is float64; else floats are as the graph has them and rounding is let pass. Stops at the first
    pass that moved a number. Raises VerifyError where a pass breaks the graph's structure.
    """
    passes = PIPELINE if passes is None else passes
    finding = Finding([], len(passes))
    probes: list[_Probe] = []
    for name, inputs in sets.items():
        try:
            probe = _Probe(name, graph, inputs, wide)
        except Exception as error:  # whatever an operator raises: the model doesn't take such inputs
            finding.left_out.append(f"{name}: {_first_line(error)}")
            continue
        if any(map(_has_numbers, probe.reference)):
            probes.append(probe)
            finding.sets.append(name)
        else:
            finding.left_out.append(f"{name}: every result of the model itself is NaN or inf")

    def after(position: int, step: Pass, current: Graph) -> None:
        for probe in probes:
            probe.after(position, step, current)

    context = Context(hints=size_hints(graph), user_names=user_names(graph))
    try:
        run_pipeline(graph, context, passes=passes, after=after, check=True)
    except _Found as found:
        finding.move = found.move
    return finding


class _Probe:
    """One set of inputs through all passes."""

    def __init__(self, name: str, graph: Graph, inputs: Sequence[Any], wide: bool) -> None:
        self.name, self.inputs, self.wide = name, inputs, wide
        self.before = self._run(Interpreter(graph, wide=wide))
        self.reference = self.before.outputs
        self.reads = _reads(graph)

    def _run(self, machine: Interpreter) -> _Run:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            outputs = machine.run([x.clone() if isinstance(x, torch.Tensor) else x for x in self.inputs])
        return _Run(outputs, {value.name: result for value, result in machine.values.items()})

    def after(self, position: int, step: Pass, graph: Graph) -> None:
        """Raises _Found where the graph now computes something else, or fails."""
        machine = Interpreter(graph, wide=self.wide)
        try:
            now = self._run(machine)
        except Exception as error:  # the captured graph ran on these inputs: failing is a wrong rewrite
            op = next(op for op in graph.ops if any(result not in machine.values for result in op.results))
            raise _Found(self._move(position, step, op, f"raises {_first_line(error)}")) from error
        for index, (ours, reference) in enumerate(zip(now.outputs, self.reference, strict=True)):
            if self._differ(ours, reference):
                raise _Found(self._locate(position, step, graph, now, index))
        self.before, self.reads = now, _reads(graph)

    def _locate(self, position: int, step: Pass, graph: Graph, now: _Run, index: int) -> Move:
        output = f"output {index} {describe(now.outputs[index], self.reference[index])}"
        replaced = self._replaced(graph)
        for op in graph.ops:
            for value in op.results:
                for name in (value.name, *replaced.get(value.name, ())):
                    known, ours = self.before.values.get(name), now.values.get(value.name)
                    if _comparable(ours, known) and self._differ(ours, known):
                        return self._move(position, step, op, f"{describe(ours, known)}; {output}")
        producer = next((v.op for v in walk_values(graph.outputs[index]) if v.op), None)
        return self._move(position, step, producer, output)

    def _replaced(self, graph: Graph) -> dict[str, list[str]]:
        """Value → the values of the graph before whose place it took."""
        found: dict[str, list[str]] = {}
        for key, name in _reads(graph).items():
            old = self.reads.get(key, name)
            if old != name:
                found.setdefault(name, []).append(old)
        return found

    def _move(self, position: int, step: Pass, op: Op | None, detail: str) -> Move:
        text = print_op(op, locations=False).split("\n")[0] if op else "an input of the graph"
        return Move(self.name, position + 1, step.name, text, op.loc if op else Location(), detail)

    def _differ(self, ours: Any, reference: Any) -> bool:
        allowed = TOLERANCE
        if not self.wide and isinstance(reference, torch.Tensor):
            allowed = ROUNDING.get(reference.dtype, TOLERANCE)
        return difference(ours, reference) > allowed


def _reads(graph: Graph) -> dict[Key, str]:
    """What each op, and the graph's result, reads at which place."""
    readers: list[tuple[str, list[Value]]] = [(op.results[0].name, op.operands) for op in graph.ops if op.results]
    readers.append(("", graph.output_values()))
    return {(name, place): value.name for name, values in readers for place, value in enumerate(values)}


def _has_numbers(output: Any) -> bool:
    return not (isinstance(output, torch.Tensor) and output.is_floating_point()) or bool(torch.isfinite(output).any())


def _comparable(ours: Any, known: Any) -> bool:
    return isinstance(ours, torch.Tensor) and isinstance(known, torch.Tensor) and ours.shape == known.shape


def describe(ours: Any, reference: Any) -> str:
    """The size and place of the largest difference, counted as :func:`~attnc.compiler.verify.difference` does."""
    if not _comparable(ours, reference):
        shapes = (list(x.shape) if isinstance(x, torch.Tensor) else x for x in (reference, ours))
        return "was {}, is {}".format(*shapes)
    finite = (
        torch.isfinite(reference) if reference.is_floating_point() else torch.ones_like(reference, dtype=torch.bool)
    )
    gap = torch.where(finite, (ours.double() - reference.double()).abs(), 0.0).nan_to_num(torch.inf, torch.inf)
    index = [int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)]
    was, now = (x[tuple(index)].item() for x in (reference, ours))
    share = difference(ours, reference)
    size = f"differs by {share:.3g} of its largest magnitude" if reference.is_floating_point() else "differs"
    return f"{size}, most at {index}: was {was:.6g}, is {now:.6g}"


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
