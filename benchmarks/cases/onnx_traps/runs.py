"""Run a model compiled and in onnxruntime."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import onnxruntime
import torch
from onnx import ModelProto

from attnc.compiler.driver import compile_graph
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.importer import import_onnx
from attnc.compiler.frontends.onnx.model import read_model
from attnc.compiler.frontends.onnx.module import OnnxModule
from attnc.compiler.host.exported import capture_exported
from attnc.compiler.options import Options
from benchmarks.cases.onnx_traps.graph import Array
from benchmarks.cases.onnx_traps.pairs import LENGTHS, Pair

TOLERANCE = 2e-5
"""Of the greatest number, or of 1."""
DIFFERENT = 1e-2
"""From here on two answers are taken to be of different meaning."""


@dataclass(frozen=True)
class Outcome:
    """What one model did: the greatest error at each size, how many attentions were fused, why others were not."""

    answers: tuple[list[Array], ...]
    errors: tuple[float, ...]
    fused: int
    codes: tuple[str, ...]

    @property
    def right(self) -> bool:
        return all(error <= TOLERANCE for error in self.errors)


def error(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The greatest difference over the greatest number, or over 1; infinite where shapes or NaN differ.

    Where onnxruntime has NaN, of a row that sees nothing, 0 is right too.
    """
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return math.inf
        dead = numpy.isnan(b)
        if numpy.isnan(a[~dead]).any() or not (numpy.isnan(a[dead]) | (a[dead] == 0)).all():
            return math.inf
        if not dead.all():
            worst = max(worst, float(numpy.abs(a - b)[~dead].max() / max(1.0, numpy.abs(b[~dead]).max())))
    return worst


def by_onnxruntime(model: ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """What onnxruntime answers, its own rewriting left out."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    made: list[Array] = session.run(None, inputs)
    return made


def in_eager(model: ModelProto, inputs: dict[str, Array]) -> list[Array]:
    """What the imported operators answer, called one by one. Raises NoForm."""
    module = OnnxModule(read_model(model))
    with torch.no_grad():
        return [x.numpy() for x in module(**{module.arguments[k]: torch.from_numpy(v) for k, v in inputs.items()})]


def compiled(pair: Pair, side: str, seed: int = 0) -> Outcome:
    """Compile one side of a pair with symbolic sizes and run it at :data:`LENGTHS`. Raises NoForm."""
    model = pair.model(side)
    imported = import_onnx(model)
    exported = capture_exported(imported.program)
    made = compile_graph(exported.graph_module, Options.make({"host": "aten"}), name="trap")
    program = exported.finished(made.module)
    answers, errors = [], []
    for place, lengths in enumerate(LENGTHS):
        inputs = pair.inputs(lengths, seed + place)
        named = {imported.module.arguments[name]: torch.from_numpy(value) for name, value in inputs.items()}
        with torch.no_grad():
            answers.append([x.numpy() for x in exported.call(program, (), named)])
        errors.append(error(answers[-1], by_onnxruntime(model, inputs)))
    codes = tuple(site.code for site in made.report.sites if not site.fused)
    return Outcome(tuple(answers), tuple(errors), made.report.fused, codes)


def judged(pair: Pair, side: str) -> str:
    """What is wrong with one side of a pair, empty where nothing is."""
    try:
        outcome = compiled(pair, side)
    except NoForm as reason:
        return "" if side == "trap" else f"{pair.name}: the twin has no form: {reason}"
    if side == "trap" and pair.random:
        twins = [by_onnxruntime(pair.model("twin"), pair.inputs(lengths, i)) for i, lengths in enumerate(LENGTHS)]
        alike = any(error(ours, theirs) < DIFFERENT for ours, theirs in zip(outcome.answers, twins, strict=True))
        return f"{pair.name}: the trap answers as its twin does" if alike else ""
    if not outcome.right:
        return f"{pair.name}: the {side} is wrong by {max(outcome.errors):.1e}"
    if side == "twin" and outcome.fused != pair.attentions:
        return f"{pair.name}: {outcome.fused} fused in the twin; left: {', '.join(outcome.codes)}"
    return ""


def differs(pair: Pair) -> bool:
    """Whether onnxruntime's answers to trap and twin differ."""
    for place, lengths in enumerate(LENGTHS):
        inputs = pair.inputs(lengths, place)
        trap, twin = (by_onnxruntime(pair.model(side), inputs)[:1] for side in ("trap", "twin"))
        if error(trap, twin) > DIFFERENT:
            return True
    return False
