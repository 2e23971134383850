"""One attention, matched but not yet rewritten."""

from __future__ import annotations

from dataclasses import dataclass, field

from attnc.compiler.fuse.axes import Axis, Coords, LayoutError, resolve
from attnc.compiler.fuse.layout import LAYOUT_OPS, tensor_type, to_input
from attnc.compiler.fuse.pointwise import CASTS, is_plain_cast
from attnc.ir import score as sc
from attnc.ir.types import Dim, DType
from attnc.ir.values import Op, Value

HALF = (DType.BF16, DType.F16)


@dataclass
class Operand:
    """A tensor and the axes of each of its dimensions."""

    value: Value
    coords: Coords

    def peeled(self) -> Operand:
        """The tensor behind every view, broadcast, copy and exact up-cast, with its own coordinates."""
        value, coords = self.value, resolve(self.coords)
        while (op := value.op) is not None:
            try:
                if op.name in LAYOUT_OPS:
                    value, coords = to_input(op, coords)
                elif _is_upcast(op):
                    value = op.operands[0]
                else:
                    break
            except LayoutError:
                break
            coords = resolve(coords)
        return Operand(value, resolve(coords))

    def axes(self) -> list[Axis]:
        return [leaf for dim in resolve(self.coords) for leaf in dim]


@dataclass
class Match:
    """What a softmax (or an SDPA call) means: operands over axes, the score, and where the result goes.

    ``rows``: the score's axes but for the key, outermost first. ``result``: the value the attention replaces.
    """

    root: Op
    result: Value
    q: Operand
    k: Operand
    v: Operand
    out_coords: Coords
    rows: tuple[Axis, ...]
    key: Axis
    contracted: Axis
    feature: Axis
    score: sc.Node
    sides: list[Value]
    softmax_dtype: DType
    names: dict[Axis, str]
    weight: sc.Node | None = None
    sink: sc.Node | None = None
    zero_dead_rows: bool = False
    steps: list[str] = field(default_factory=list)

    @property
    def query(self) -> Axis | None:
        """The query-position axis; None where there is a single query row."""
        return next((axis for axis, name in self.names.items() if name == "q"), None)

    def names_to_lengths(self) -> dict[str, Dim]:
        """The length of every axis by name; a missing query axis has length 1."""
        return {"q": 1} | {name: axis.length for axis, name in self.names.items()}


def _is_upcast(op: Op) -> bool:
    """A cast from a half type to float32: exact, and the kernel computes in float32 anyway."""
    if op.name not in CASTS or not is_plain_cast(op) or tensor_type(op.result).dtype is not DType.F32:
        return False
    return tensor_type(op.operands[0]).dtype in HALF


def name_axes(
    rows: tuple[Axis, ...], key: Axis, d: Axis, e: Axis, q: Operand, k: Operand, v: Operand
) -> dict[Axis, str]:
    """Give every axis its name: ``q``, ``k``, ``d``, ``e``; ``b…``, ``h…`` for outer axes, ``g…`` where K lacks it."""
    in_q, in_k, in_v = (set(operand.axes()) for operand in (q, k, v))
    positions = [axis for axis in rows if axis in in_q and axis not in in_k and axis not in in_v]
    names = {key: "k", d: "d", e: "e"}
    if positions:
        names[positions[-1]] = "q"
    taken: dict[str, int] = {}
    for axis in rows:
        if axis in names:
            continue
        stem = axis.hint if axis in in_k or axis.hint == "b" else "g"
        count = taken.get(stem, 0)
        taken[stem] = count + 1
        names[axis] = stem if count == 0 else f"{stem}{count}"
    return names


def kind_of(match: Match) -> str:
    """``MHA``, ``GQA(g)`` or ``MQA(g)`` (g query heads for each K/V head), with ``cross`` where lengths differ."""
    in_k = set(match.k.axes())
    shared = [a for a in match.rows if a in in_k and a.hint == "h"]
    grouped = [a for a in match.rows if a not in in_k and a.hint == "h" and a is not match.query]
    size: object = 1
    for axis in grouped:
        size = size * axis.length  # type: ignore[operator]
    kind = "MHA" if not grouped else f"GQA({size})" if shared else f"MQA({size})"
    query = match.query
    crossed = query is not None and query.length != match.key.length
    return f"{kind} cross" if crossed else kind
