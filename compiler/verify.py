"""``verify="numeric"``: after every pass, the same numbers. Names the first pass and value that moved.

Both graphs run in float64 (every float dtype and cast widened, constants keep their stored values), so that only a
change of meaning shows, not rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from attnc.compiler.interpreter import Interpreter
from attnc.ir.graph import Graph
from attnc.ir.values import Value

TOLERANCE = 1e-7
"""Largest difference allowed, over the largest magnitude of the reference; float64 rounding is far below."""


class NumericError(Exception):
    """A pass changed a number. The message names the pass, the value and the size of the change."""


class NumericCheck:
    """Compares the graph's outputs with those before the first pass, and finds the value that moved since the last."""

    def __init__(self, graph: Graph, inputs: Sequence[Any]) -> None:
        self.inputs = list(inputs)
        self.outputs, self.known = self._run(graph)

    def after(self, step: str, graph: Graph) -> None:
        """Raises NumericError where the graph now computes something else."""
        outputs, values = self._run(graph)
        for index, (ours, reference) in enumerate(zip(outputs, self.outputs, strict=True)):
            error = difference(ours, reference)
            if error > TOLERANCE:
                place = self._first_moved(graph, values)
                raise NumericError(
                    f"verifying pass {step}: output {index} differs by {error:.3g} of its largest magnitude; the first "
                    f"value that moved is {place}. The rewrite is wrong for these inputs: please report the IR dump."
                )
        self.known = values

    def _run(self, graph: Graph) -> tuple[list[Any], dict[str, Any]]:
        interpreter = Interpreter(graph, wide=True)
        with torch.no_grad():
            outputs = interpreter.run([x.clone() if isinstance(x, torch.Tensor) else x for x in self.inputs])
        return outputs, {value.name: result for value, result in interpreter.values.items()}

    def _first_moved(self, graph: Graph, values: dict[str, Any]) -> str:
        for op in graph.ops:
            for value in op.results:
                if _moved(value, values, self.known):
                    return f"%{value.name} = {op.name} at {op.loc}"
        return "a graph output only"


def difference(ours: Any, reference: Any) -> float:
    """max|ours − reference| / max|reference| over the reference's finite elements; inf where only ours is not finite.

    A NaN in the reference (a dead row) accepts NaN or 0. Anything but tensors compares by equality.
    """
    if not isinstance(ours, torch.Tensor) or not isinstance(reference, torch.Tensor):
        return 0.0 if ours == reference else float("inf")
    if ours.shape != reference.shape:
        return float("inf")
    if not reference.is_floating_point():
        return 0.0 if torch.equal(ours, reference) else float("inf")
    finite = torch.isfinite(reference)
    kept, wanted = ours.double()[finite], reference.double()[finite]
    if not torch.isfinite(kept).all():
        return float("inf")
    if kept.numel() == 0:
        return 0.0
    scale = wanted.abs().max().item()
    error = (kept - wanted).abs().max().item()
    return error / scale if scale else error


def _moved(value: Value, values: dict[str, Any], known: dict[str, Any]) -> bool:
    before, now = known.get(value.name), values.get(value.name)
    if not isinstance(before, torch.Tensor) or not isinstance(now, torch.Tensor):
        return False
    return difference(now, before) > TOLERANCE
