"""The Python API: compile or explain a model through ``torch.export``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from attnc.compiler.driver import Compiled, compile_graph, compile_ir
from attnc.compiler.host.exported import Exported, capture_exported
from attnc.compiler.host.ports import output_names, unique
from attnc.compiler.hosted import Hosted, host
from attnc.compiler.onnx_api import Whole, compile_onnx, example_of
from attnc.compiler.options import Options
from attnc.compiler.report import Report, record, reports
from attnc.compiler.unsavable import NotSavable
from attnc.ir.graph import Graph
from attnc.ir.values import Value

if TYPE_CHECKING:
    from attnc.compiler.onnx_api import OnnxSource

__all__ = ["Program", "compile", "explain", "reports"]


class Program:
    """A compiled model: call it like the model.

    ``graph`` is its IR, ``report`` what was done, ``kernel_names`` the name of each of its kernels by plan,
    ``output_names`` what :meth:`run` calls its results.
    """

    def __init__(
        self,
        module: torch.fx.GraphModule,
        done: Compiled,
        exported: Exported | None,
        names: Sequence[str] | None = None,
        inputs: Mapping[str, str] | None = None,
    ) -> None:
        self.module = module
        self.graph = done.graph
        self.report = done.report
        self.kernel_names = {plan: done.context.kernel_name(plan) for plan in done.context.kernels}
        self.output_names = _names(done.graph) if exported is None else output_names(exported.out_spec, names)
        self._kernels = done.context.kernels
        self._exported = exported
        self._arguments = dict(inputs or {})

    @cached_property
    def hosted(self) -> Hosted:
        """The program over named inputs and outputs. Raises NotSavable for what has no form in one."""
        return host(self.module, self.graph, self.output_names)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Results by name of inputs by name: numpy arrays, torch tensors, or anything with ``__dlpack__``.

        Results are numpy arrays where all arrays given are, else torch tensors. Raises ValueError and TypeError for
        inputs that aren't what the program takes, NotSavable for a program that can't be run by name.
        """
        return self.hosted.run(inputs)

    def save(self, path: str | Path, *, targets: Sequence[str] = ("cpu",)) -> None:
        """Write the program to a file that :func:`attnc.load` runs without this compiler.

        ``targets``: what machine code of its kernels is for, in the order they are tried: ``cpu`` (processors like this
        machine's), ``cpu-avx2``, ``sm_90``, … Raises NotSavable for a program or a target that a file can't hold.
        """
        from attnc.compiler.artifact import save
        from attnc.runtime.onnx_region import region_blobs

        blobs = region_blobs(self.hosted.program)
        kernels, wanted = self._kernels, tuple(dict.fromkeys(targets))
        save(Path(path), self.report.name, self.hosted, self.graph, kernels, wanted, blobs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on inputs of the example's structure; a graph from text takes its inputs in order, returns a tuple."""
        if self._exported is None:
            return self.module(*args)
        if self._arguments:
            kwargs = {self._arguments.get(name, name): value for name, value in kwargs.items()}
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
        self.output_names = tuple(whole.model.outputs)
        self.model = whole.model

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Results by name of inputs by name."""
        return dict(zip(self.output_names, self.model(**inputs), strict=True))

    def save(self, path: str | Path, *, targets: Sequence[str] = ("cpu",)) -> None:
        """Raises NotSavable: there is nothing compiled to write."""
        reason = f"{self.report.name} is left whole to onnxruntime: ship the ONNX file"
        raise NotSavable("ATTNC-ARTIFACT-WHOLE", reason)

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
    if not isinstance(model, torch.nn.Module):
        found = compile_onnx(model, chosen, inputs=example_of(args, kwargs or {}), sizes=dynamic_shapes, name=name)
        if isinstance(found, Whole):
            return WholeProgram(found)
        captured, done = found
        module = captured.exported.finished(done.module)
        return Program(module, done, captured.exported, captured.outputs, captured.inputs)
    exported = capture_exported(
        torch.export.export(model, args, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False)
    )
    done = compile_graph(exported.graph_module, chosen, name=name or type(model).__name__)
    record(done.report)
    return Program(exported.finished(done.module), done, exported, getattr(model, "output_names", None))


def _names(graph: Graph) -> tuple[str, ...]:
    """What the results of a graph from text are called: as their values."""
    return unique([v.name if isinstance(v, Value) else f"output_{i}" for i, v in enumerate(graph.outputs)])


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
