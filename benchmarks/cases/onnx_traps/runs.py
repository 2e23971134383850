"""Run a model compiled and in onnxruntime."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Outcome:
    """What one model did: the greatest error at each size, how many attentions were fused, why others were not."""

    errors: tuple[float, ...]
    fused: int
    codes: tuple[str, ...]

    @property
    def right(self) -> bool:
        return all(error <= TOLERANCE for error in self.errors)


def error(ours: Sequence[Array], theirs: Sequence[Array]) -> float:
    """The greatest difference over the greatest number, or over 1; infinite where shapes or NaN differ."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype or not numpy.array_equal(numpy.isnan(a), numpy.isnan(b)):
            return float("inf")
        if b.size and not numpy.isnan(b).all():
            worst = max(worst, float(numpy.nanmax(numpy.abs(a - b)) / max(1.0, numpy.nanmax(numpy.abs(b)))))
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
    errors = []
    for place, lengths in enumerate(LENGTHS):
        inputs = pair.inputs(lengths, seed + place)
        named = {imported.module.arguments[name]: torch.from_numpy(value) for name, value in inputs.items()}
        with torch.no_grad():
            ours = [x.numpy() for x in exported.call(program, (), named)]
        errors.append(error(ours, by_onnxruntime(model, inputs)))
    codes = tuple(site.code for site in made.report.sites if not site.fused)
    return Outcome(tuple(errors), made.report.fused, codes)


def refused(pair: Pair) -> bool:
    """Whether a trap is left to onnxruntime."""
    try:
        import_onnx(pair.model("trap"))
    except NoForm:
        return True
    return False
