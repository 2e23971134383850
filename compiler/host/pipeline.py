"""From a Dynamo graph to functional ATen and back to a host: ``prepare``, then passes, then ``finish``.

Neither raises for the user's model: what can't be captured, or fails on the way back, is run by the host from the
graph as Dynamo gave it, and a note says why.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from attnc.compiler.frontends.torch import private
from attnc.compiler.frontends.torch.fastpath import DECOMPOSITIONS
from attnc.compiler.frontends.torch.importer import ImportFailure, check_importable
from attnc.compiler.host import notes
from attnc.compiler.host.autocast import (
    Setting,
    ambient_autocast,
    autocast_off,
    explicit_casts,
    modes_restored,
    real_autocast,
)
from attnc.compiler.host.checkpoint import inline_checkpoint
from attnc.compiler.host.copies import differentiable_copies
from attnc.compiler.host.dropout import drop_eval_dropout
from attnc.compiler.host.freezing import unlift
from attnc.compiler.host.hosts import Host, run_host
from attnc.compiler.host.known import hold_known
from attnc.compiler.host.mutation import put_back
from attnc.compiler.host.notes import Note
from attnc.compiler.host.refuse import cannot_take
from attnc.compiler.host.signature import Signature, SignatureMismatch, dynamo_signature
from attnc.compiler.host.vmaps import write_out_vmaps


@dataclass(eq=False)
class Captured:
    """A captured graph; ``graph_module`` is None where the host takes the original as it is."""

    original: torch.fx.GraphModule
    graph_module: torch.fx.GraphModule | None
    signature: Signature
    notes: list[Note] = field(default_factory=list)
    ambient: tuple[Setting, ...] = ()
    """Autocast settings in force outside; the captured graph has their casts written out."""


def prepare(gm: torch.fx.GraphModule, args: Sequence[Any]) -> Captured:
    """Functional ATen before dispatch, with every autocast written as casts. ``gm`` is left as it is. Never raises."""
    work = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
    write_out_vmaps(work)
    refusal = cannot_take(work, args)
    if refusal is not None:
        return Captured(gm, None, Signature(), [refusal])
    ambient = ambient_autocast()
    try:
        drop_eval_dropout(work)
        real_autocast(work)
        inline_checkpoint(work)
        with modes_restored():
            exported, torch_signature = private.aot_export(work, args, DECOMPOSITIONS)
        signature = dynamo_signature(gm, exported, torch_signature)
        hold_known(gm, exported, args, signature)
        explicit_casts(exported, ambient)
        check_importable(exported)
    except private.RestartAnalysis:
        raise
    except Exception as error:
        return Captured(gm, None, Signature(), [_failure(error)])
    return Captured(gm, exported, signature, ambient=ambient)


def finish(
    captured: Captured, gm_new: torch.fx.GraphModule | None, args: Sequence[Any], host: Host
) -> Callable[..., Any]:
    """The callable for Dynamo: ``gm_new`` (the captured graph after the passes) on the host.

    A failure on the way is noted on ``captured``, and the host gets the original graph.
    """
    if captured.graph_module is None or gm_new is None:
        return run_host(captured.original, args, host)
    try:
        put_back(gm_new, captured.signature)
        unlift(gm_new, captured.signature)
        if torch.is_grad_enabled():
            differentiable_copies(gm_new)
        compiled = autocast_off(lambda: run_host(gm_new, args, host), captured.ambient)()
    except private.RestartAnalysis:
        raise
    except Exception as error:
        captured.notes.append(Note(notes.FINISH_FAILED, first_line(error)))
        return run_host(captured.original, args, host)
    return autocast_off(compiled, captured.ambient)


def _failure(error: Exception) -> Note:
    text = str(error)
    if isinstance(error, ImportFailure):
        return Note(notes.SIZES, f"a shape is no expression over positive sizes: {text}")
    if isinstance(error, SignatureMismatch):
        return Note(notes.MUTATION, text)
    if "aliased inputs that are mutated" in text:
        return Note(notes.OVERLAPPING_WRITES, "two inputs overlap in memory and one of them is written")
    if "frozen storage" in text:
        return Note(notes.FROZEN_STORAGE, "a dropout's result is written in place")
    return Note(notes.EXPORT_FAILED, first_line(error))


def first_line(error: Exception) -> str:
    """The error's type and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
