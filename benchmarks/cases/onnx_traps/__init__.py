"""Pairs of small ONNX models that differ in one node, one attribute or one constant.

The trap looks like its twin to who matches chains of nodes. It must answer as onnxruntime does, fused by its own
meaning or not at all; the twin must answer right and be fused.
"""

from __future__ import annotations

from benchmarks.cases.onnx_traps import heads, layouts, masks, operators, positions, scores, softmaxes
from benchmarks.cases.onnx_traps.pairs import Pair

__all__ = ["PAIRS", "Pair"]

PAIRS: list[Pair] = [
    *masks.PAIRS,
    *positions.PAIRS,
    *scores.PAIRS,
    *softmaxes.PAIRS,
    *heads.PAIRS,
    *layouts.PAIRS,
    *operators.PAIRS,
]
