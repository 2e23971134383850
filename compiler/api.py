"""The Python API: compile or explain a model through ``torch.export``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from attnc.compiler.driver import Compiled, compile_graph, compile_ir
from attnc.compiler.host.exported import Exported, capture_exported
from attnc.compiler.onnx_api import Whole, compile_onnx, example_of, is_onnx
from attnc.compiler.options import Options
from attnc.compiler.report import Report, record, reports
from attnc.ir.graph import Graph

if TYPE_CHECKING:
    from attnc.compiler.onnx_api import OnnxSource

__all__ = ["Program", "compile", "explain", "reports"]


class Program:
    """A compiled model: call it like the model.

    ``graph`` is its IR, ``report`` what was done, ``kernel_names`` the name of each of its kernels by plan.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        done: Compiled,
        exported: Exported | None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.graph = done.graph
        self.report = done.report
        self.kernel_names = {plan: done.context.kernel_name(plan) for plan in done.context.kernels}
        self._exported = exported
        self._names = dict(names or {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on inputs of the example's structure; a graph from text takes its inputs in order, returns a tuple."""
        if self._exported is None:
            return self.module(*args)
        if self._names:
            kwargs = {self._names.get(name, name): value for name, value in kwargs.items()}
        return self._exported.call(self.module, args, kwargs)

    def __repr__(self) -> str:
        return f"<attnc.Program {self.report.name}: {self.report.fused}/{self.report.total} attentions fused>"


class WholeProgram(Program):
    """An ONNX model that onnxruntime runs whole, because torch can't hold it; its report says why."""

    def __init__(self, whole: Whole) -> None:
        self.module = torch.fx.GraphModule({}, torch.fx.Graph())
        self.graph = Graph(whole.report.name)
        self.report = whole.report
        self.kernel_names = {}
        self.model = whole.model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on inputs by name, or in order; see :class:`~attnc.runtime.onnx_whole.OnnxruntimeModel`."""
        return self.model(**dict(zip(self.model.inputs, args, strict=False)), **kwargs)


def compile(
    model: torch.nn.Module | Graph | OnnxSource,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Program:
    """Compile a model ahead of time.

    ``args``, ``kwargs``, ``dynamic_shapes`` are ``torch.export``'s; sizes not named there are fixed. The rest of the
    model runs through ATen. A :class:`~attnc.ir.graph.Graph` is compiled as it is. An ONNX model (a path, bytes or a
    ModelProto) has sizes of its own; ``kwargs`` may hold example inputs by name, ``dynamic_shapes`` a length for the
    examples or bounds by a size's name. Raises OptionError for an unknown option,
    OnnxError for a wrong ONNX model, and whatever ``torch.export`` raises for a model it can't export.
    """
    chosen = Options.make({"host": "aten", **(options or {})})
    if isinstance(model, Graph):
        done = compile_ir(model, chosen, name=name or model.name)
        record(done.report)
        return Program(done.module, done, None)
    if is_onnx(model):
        found = compile_onnx(model, chosen, inputs=example_of(args, kwargs or {}), sizes=dynamic_shapes, name=name)
        if isinstance(found, Whole):
            return WholeProgram(found)
        captured, done = found
        return Program(captured.exported.finished(done.module), done, captured.exported, captured.inputs)
    exported = capture_exported(
        torch.export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
    )
    done = compile_graph(exported.graph_module, chosen, name=name or type(model).__name__)
    record(done.report)
    return Program(exported.finished(done.module), done, exported)


def explain(
    model: torch.nn.Module | Graph | OnnxSource,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """What attnc finds in a model: the report of :func:`compile`."""
    return compile(model, args, kwargs, dynamic_shapes=dynamic_shapes, name=name, options=options).report
