"""How a model encodes positions, by the names of the functions its eager forward calls: knows nothing of attnc.

Model code names such functions alike: ``apply_rotary_pos_emb``, ``_relative_position_bucket``, ``build_alibi_tensor``.
Functions that only make frequencies, tables of cosines or buffers are not counted.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from torch import nn

from benchmarks.coverage.compare import run

_ROTATES = re.compile(r"apply_\w*(rotary|rope)|rotate_queries_or_keys|rotary_emb\w*$")
_RELATIVE = re.compile(
    r"alibi|rel_pos|rel_shift|relative_(pos|shift|att|coords)|position_bias|attention_bias(es|_idxs)"
)
_MAKES = re.compile(r"^(__init__|forward|compute_(default|axial|ntk)\w*|get_rope_index)$")
_RELATIVE_CLASS = re.compile(r"^\w*(RelativePositionBias|RelPosBias)\w*\.forward$")


@dataclass
class Positions:
    """What one forward does."""

    rotations: int = 0
    """Calls that rotate a query, a key or both."""
    relative: bool = False
    """Whether a function is called, or a tensor or module held, that makes a bias of relative position."""


def count_positions(model: nn.Module, inputs: Mapping[str, Any]) -> Positions:
    """Run the model once and look at the names of the Python functions it calls and of the state it holds."""
    held = (
        name for names in (model.named_parameters(), model.named_buffers(), model.named_modules()) for name, _ in names
    )
    found = Positions(relative=any(map(_RELATIVE.search, held)))
    kinds: dict[CodeType, str] = {}

    def watch(frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        kind = kinds.get(code)
        if kind is None:
            kind = kinds[code] = _kind(code)
        if kind == "rotates":
            found.rotations += 1
        elif kind == "relative":
            found.relative = True

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        run(model, inputs)
    finally:
        sys.setprofile(before)
    return found


def _kind(code: CodeType) -> str:
    if "/torch/" in code.co_filename:
        return ""
    name = code.co_name
    if _RELATIVE_CLASS.match(code.co_qualname):
        return "relative"
    if _MAKES.match(name):
        return ""
    return "rotates" if _ROTATES.search(name) else "relative" if _RELATIVE.search(name) else ""
