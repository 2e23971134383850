"""What a kernel does, decided: frozen, JSON-serialisable, standard library only.

A plan holds no closures, no strides and no lengths. Formulas are :class:`Program` s: straight-line code whose
instructions refer to earlier ones by index, so common subexpressions are shared and no recursion is needed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

PLAN_VERSION = 2

Number = int | float | bool


@dataclass(frozen=True)
class Instr:
    """One instruction. ``args`` are indices of earlier instructions.

    ops (value in brackets):
      leaves       qk · const[number] · axis[name] · size[name] · load[side index] (args: one index per side dimension)
      arithmetic   add sub mul div neg abs min max pow floordiv mod (floor, sign of the divisor) · cast
      functions    tanh exp exp2 log sqrt rsqrt sigmoid erf floor ceil sin cos
      logic        lt le gt ge eq ne · and or not · where (condition, then, else) · isnan
    ``dtype`` is the dtype of the result *as the source wrote it*; kernels may compute floats in f32 throughout,
    except where :attr:`KernelPlan.score` is evaluated for a dead row.
    """

    op: str
    dtype: str
    args: tuple[int, ...] = ()
    value: Number | str | None = None


Program = tuple[Instr, ...]
"""Instructions in order; the last one is the result."""


def live(program: Program) -> list[int]:
    """The places of the instructions that the result depends on, in order."""
    found = {len(program) - 1}
    for i in range(len(program) - 1, -1, -1):
        if i in found:
            found.update(program[i].args)
    return sorted(found)


@dataclass(frozen=True)
class Side:
    """A side operand: its dtype and rank. Index expressions in ``load`` say how it is read."""

    dtype: str
    rank: int


@dataclass(frozen=True)
class Segment:
    """Key tiles ``lo, lo+step, … < hi`` of one query tile.

    Programs over axes ``tq`` (query tile index), outer axes and sizes; ``tk`` too in a guard of scope ``tile``.
    ``guard`` None means always. ``needs_mask``: some pair of some tile may be masked; where ``residual`` holds, only by
    the plan's residual mask.
    """

    lo: Program
    hi: Program
    needs_mask: bool
    step: int = 1
    guard: Program | None = None
    guard_scope: Literal["segment", "tile"] = "segment"
    residual: bool = False


@dataclass(frozen=True)
class KernelPlan:
    """One attention kernel.

    ``*_axes`` name each operand dimension (see ``ir.attention``): ``q``, ``k`` positions, ``d`` contracted, ``e``
    value feature, anything else an outer axis. ``outer`` orders the outer loops. Sizes of axes are read from the
    operands at run time (q first, then k, v); ``sizes`` names the run-time size arguments that programs use. A
    broadcast is an absent axis, never a stride 0.
    """

    target: str
    dtypes: tuple[str, str, str, str]
    """q, k, v, out."""
    outer: tuple[str, ...]
    q_axes: tuple[str, ...]
    k_axes: tuple[str, ...]
    v_axes: tuple[str, ...]
    out_axes: tuple[str, ...]
    sides: tuple[Side, ...]
    sizes: tuple[str, ...]
    score: Program
    """As written, fills included: the dead-row path."""
    visible: Program
    """Where the mask holds: the ordinary path."""
    mask: Program | None
    """Boolean; None where every pair is visible."""
    segments: tuple[Segment, ...]
    block_m: int
    block_n: int
    dead_rows: Literal["none", "zero", "as_written"]
    """``none``: every row is proved alive; ``zero``: out 0, lse −inf; ``as_written``: second pass over all keys."""
    weight: Program | None = None
    softmax: Literal["plain", "sink", "plus_one"] = "plain"
    sink: Program | None = None
    head_dim: int | None = None
    """Length of axis d where static; a compile-time constant of the kernel."""
    value_dim: int | None = None
    returns_lse: bool = False
    residual: Program | None = None
    """The part of the mask that tile ranges know nothing of: what it loads, such as padding."""
    version: int = PLAN_VERSION

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces; non-finite floats as strings."""
        return json.dumps(_encode(dataclasses.asdict(self)), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @staticmethod
    def from_json(text: str) -> KernelPlan:
        """The plan written by :meth:`to_json`. Raises ValueError on another version or a malformed text."""
        try:
            data = json.loads(text)
            if data["version"] != PLAN_VERSION:
                raise ValueError(f"plan version {data['version']}, this build reads {PLAN_VERSION}")
            return KernelPlan(
                **{
                    **data,
                    **{
                        k: tuple(data[k])
                        for k in ("dtypes", "outer", "q_axes", "k_axes", "v_axes", "out_axes", "sizes")
                    },
                    "sides": tuple(Side(**s) for s in data["sides"]),
                    "segments": tuple(_segment(s) for s in data["segments"]),
                    **{k: _program(data[k]) for k in ("score", "visible", "mask", "weight", "sink", "residual")},
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"malformed plan: {error}") from error

    @property
    def digest(self) -> int:
        """63-bit content hash, stable over processes: the custom op's ``plan`` argument."""
        return content_hash(self.to_json())


def content_hash(text: str) -> int:
    """63 bits of a text's SHA-256: what an op's ``plan`` argument can hold."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def _encode(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    if isinstance(value, dict):
        return {k: _encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(v) for v in value]
    return value


def _program(data: Any) -> Program:
    if data is None:
        return None  # type: ignore[return-value]
    return tuple(Instr(i["op"], i["dtype"], tuple(i["args"]), _number(i["value"])) for i in data)


def _number(value: Any) -> Any:
    return float(value["float"]) if isinstance(value, dict) else value


def _segment(data: dict[str, Any]) -> Segment:
    programs = {k: _program(data[k]) for k in ("lo", "hi", "guard")}
    return Segment(**{**data, **programs})
