"""The user's source line and module path of an FX node, from the metadata tracing leaves on it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import torch

from attnc.ir.values import Location

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in [^\n]*\n?(?P<code>[^\n]*)')
_ROOT = re.compile(r"^L\['[^']*'\](\[[^\]]*\])*\.?")
_TORCH = str(Path(torch.__file__).parent) + "/"


PLACE = "attnc_place"
"""Key among a node's custom marks: (file, text, module path) of what isn't Python source."""


def location(meta: dict[str, Any]) -> Location:
    """File, line and source text of the innermost frame outside torch (else in it), and the module path.

    A frontend whose source is no Python marks the nodes with it instead (``PLACE``).
    """
    if place := (meta.get("custom") or {}).get(PLACE):
        file, code, module = place
        return Location(file=file, line=0, code=code, module=module)
    file, line, code = _user_frame(str(meta.get("stack_trace") or ""))
    return Location(file=file, line=line, code=code, module=_module(meta.get("nn_module_stack")))


@cache
def _user_frame(trace: str) -> tuple[str, int, str]:
    every = list(_FRAME.finditer(trace))
    frames = [m for m in every if not m["file"].startswith((_TORCH, "<"))] or every
    if not frames:
        return "", 0, ""
    code = frames[-1]["code"].strip()
    return frames[-1]["file"], int(frames[-1]["line"]), "" if code.startswith("File ") else code


def _module(stack: Any) -> str:
    """``L['self'].model.layers.0.attn`` → ``model.layers.0.attn``; torch.export's paths have no prefix."""
    if not stack:
        return ""
    path = str(list(stack.values())[-1][0])
    return _ROOT.sub("", path).replace("._modules['", ".").replace("']", "").strip(".")
