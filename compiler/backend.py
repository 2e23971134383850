"""The ``torch.compile`` backend ``attnc``."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from attnc.compiler import options as settings
from attnc.compiler.codes import CODES
from attnc.compiler.driver import compile_graph
from attnc.compiler.host.hosts import run_host
from attnc.compiler.host.notes import Note as HostNote
from attnc.compiler.host.pipeline import Captured, finish, prepare
from attnc.compiler.options import Options
from attnc.compiler.report import Note, Report, record

Backend = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]

_count = itertools.count()


def attnc_backend(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """``torch.compile(model, backend="attnc", options={...})``.

    Attention that attnc understands becomes its kernels; everything else, and every graph that can't be captured, runs
    on the host. See :class:`~attnc.compiler.options.Options` for the options. Raises OptionError for an unknown one.
    """
    return _compile(gm, example_inputs, Options.make(options, mode))


def backend(**options: Any) -> Backend:
    """A ``torch.compile`` backend with its options bound: ``torch.compile(model, backend=attnc.backend(host="aten"))``.

    Raises OptionError for an unknown option.
    """
    chosen = Options.make(options)
    return lambda gm, example_inputs: _compile(gm, example_inputs, chosen)


def _compile(gm: torch.fx.GraphModule, args: Sequence[Any], options: Options) -> Callable[..., Any]:
    report = Report(name=f"graph {next(_count)}", host=options.host)
    if settings.disabled():
        report.notes.append(Note("ATTNC-DISABLED", CODES["ATTNC-DISABLED"].cause))
        record(report)
        return run_host(gm, args, options.host)
    captured = prepare(gm, args)
    module = None
    if captured.graph_module is not None:
        module, report = _rewritten(captured, args, options, report)
    run = finish(captured, module, args, options.host)
    report.notes += [_note(note) for note in captured.notes]
    record(report)
    return run


def _rewritten(
    captured: Captured, args: Sequence[Any], options: Options, report: Report
) -> tuple[torch.fx.GraphModule | None, Report]:
    """The captured graph after the passes; None where an internal error leaves it to the host."""
    assert captured.graph_module is not None
    try:
        compiled = compile_graph(
            captured.graph_module,
            options,
            name=report.name,
            training=_needs_grad(args),
            example_inputs=list(args) if options.verify == "numeric" and _concrete(args) else None,
        )
    except Exception as error:
        if settings.debug():
            raise
        text = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"attnc: an internal error; the model runs on the host without fused attention: {text.splitlines()[0]}. "
            "Set ATTNC_DEBUG=1 to see it raised.",
            RuntimeWarning,
            stacklevel=2,
        )
        report.notes.append(Note("ATTNC-HOST-INTERNAL", text))
        return None, report
    return compiled.module, compiled.report


def _needs_grad(args: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(a, torch.Tensor) and a.requires_grad for a in args)


def _concrete(args: Sequence[Any]) -> bool:
    """Whether the example inputs hold data: neither fake tensors nor symbolic sizes."""
    return all(type(a) in (torch.Tensor, torch.nn.Parameter, int, float, bool) for a in args)


def _note(note: HostNote) -> Note:
    return Note(note.code, note.message, str(note.where) if note.where.file else "")
