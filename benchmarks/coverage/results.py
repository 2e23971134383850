"""What is kept of one measured model."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Unsupported|NotBuilt)\b")

_ENTRIES = ("left", "beyond", "downgrades")

LIST = Path(__file__).with_name("models.json")
"""The committed list of model types; it may only grow."""

Outcome = Literal["measured", "failed", "crashed", "stopped"]
"""``failed``: an exception; ``crashed``: the process died; ``stopped``: it ran past its limit."""

GRAPH_BREAK = "GRAPH-BREAK"
"""The code of attentions in code that Dynamo left to Python, so that attnc never saw them."""
DEAD_CODE = "DEAD-CODE"
"""The code of attentions whose result no output depends on: tracing leaves them out."""
NOT_REPORTED = "NOT-REPORTED"
"""The code of attentions that no report mentions, for no known reason."""


@dataclass(frozen=True)
class Listed:
    """What the committed list says of a model type."""

    family: str
    sites: int


@dataclass(frozen=True)
class Left:
    """Attentions left to the host, and why: a code of attnc's, or one of this harness's."""

    code: str
    reason: str
    where: str = ""
    """The model's ``file:line``."""
    line: str = ""
    """The source text there."""
    sites: int = 1


@dataclass(frozen=True)
class Result:
    """One model. Of one that wasn't measured, ``sites`` is the committed list's figure, all of them left."""

    model: str
    family: str
    outcome: Outcome
    listed: int
    sites: int
    """Attentions by the ground-truth rule."""
    fused: int = 0
    """Attentions that ran fused, at most ``sites``."""
    left: tuple[Left, ...] = ()
    """Together ``sites - fused`` attentions."""
    beyond: tuple[Left, ...] = ()
    """Attentions, fused or refused, that attnc sees and the rule doesn't."""
    native: int = 0
    """Calls of SDPA in the model's own eager form; no sites."""
    reported: int = 0
    """Fused attentions by attnc's reports, each report as often as its graph ran."""
    ran: int = 0
    """Fused attentions by the profiler; SDPA's are among them here and above."""
    rotations: int = 0
    """Calls of the model's own functions that rotate queries and keys, by their names."""
    ropes: int = 0
    """Rotations proved by attnc, each as often as its graph ran."""
    relative: bool = False
    """Whether the model has a bias of relative position, by the names of its functions and tensors."""
    downgrades: tuple[Left, ...] = ()
    """What attnc could do but not well, ``sites`` times: rotations left unproved, dense biases."""
    captured: bool = False
    """Measured with the switches that let Dynamo capture ``item()`` and ``nonzero()``."""
    graphs: int = 0
    breaks: tuple[str, ...] = ()
    """Why Dynamo broke the graph, each reason once."""
    right: bool | None = None
    """Whether every output is within the numerics policy; None where there is none to judge."""
    verdict: str = ""
    blind: bool = False
    """The policy would not have noticed an error planted in every softmax."""
    seconds: float = 0.0
    detail: str = ""
    """The end of what a failed or crashed process printed."""

    @property
    def done(self) -> bool:
        """Whether running it again would give the same: a crash or a time limit may be the machine's doing."""
        return self.outcome in ("measured", "failed")

    def to_dict(self) -> dict[str, Any]:
        """JSON fields; those at their default are left out."""
        plain = dataclasses.asdict(self)
        for name in _ENTRIES:
            plain[name] = tuple({k: v for k, v in entry.items() if v != ""} for entry in plain[name])
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        return {name: value for name, value in plain.items() if value != defaults[name]}

    @staticmethod
    def from_dict(fields: dict[str, Any]) -> Result:
        """Read :meth:`to_dict`'s fields. Raises TypeError for others."""
        tuples = {name: tuple(Left(**entry) for entry in fields.get(name, ())) for name in _ENTRIES}
        return Result(**{**fields, **tuples, "breaks": tuple(fields.get("breaks", ()))})


def lost(model: str, family: str, sites: int, outcome: Outcome, detail: str, seconds: float = 0.0) -> Result:
    """A model of which nothing is known but that its measurement did not come to an end."""
    left = Left(outcome.upper(), _last_words(detail), sites=sites)
    return Result(model, family, outcome, sites, sites, left=(left,), seconds=seconds, detail=detail)


def _last_words(detail: str) -> str:
    """The error at the end of a traceback, else the last line."""
    lines = detail.strip().splitlines() or [""]
    return next((line for line in reversed(lines) if _ERROR.match(line)), lines[-1])


def listed() -> dict[str, Listed]:
    """The committed list, by model type."""
    return {name: Listed(**entry) for name, entry in json.loads(LIST.read_text(encoding="utf-8")).items()}
