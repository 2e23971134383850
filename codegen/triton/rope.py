"""The plan of one rotary embedding, and the Triton module that does it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnc.codegen.plan import content_hash
from attnc.codegen.source import Source
from attnc.codegen.targets import capability
from attnc.codegen.triton.expressions import element_type
from attnc.codegen.triton.launch import Launch, Parameter
from attnc.codegen.triton.tuning import BYTES

ROPE_VERSION = 1
FLOATS = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16"}
"""What x, the result, frequencies and tables may be, and what torch and Triton call it."""
_INTEGERS = {"i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "u8": "uint8", "b1": "bool"}
_TEMPLATE = Path(__file__).parent / "kernels" / "rope.py"
_WARPS = 4
_EACH = 4
"""Heads of one program: their rows share an angle's cosine and sine, and more of them would be fewer programs."""
_LANE = 16
"""Bytes of x for each lane of a tile: the widest load."""
_INTERPRETED = 4096
"""Pairs of a tile in the interpreter, whose cost goes with the number of programs."""


@dataclass(frozen=True)
class RopePlan:
    """One ``attn.rope``, but for sizes and strides."""

    target: str
    dtypes: tuple[str, str]
    """x, result."""
    rank: int
    """Of x."""
    heads: tuple[int, ...]
    """Dimensions of x that no angle depends on, the last one excepted."""
    features: int
    """Length of x's last dimension."""
    rotary_dim: int
    style: Literal["half", "interleaved"]
    terms: tuple[tuple[str, str], ...]
    """(position, inv_freq) dtypes, for each term of the angle."""
    tables: tuple[tuple[str, int], ...]
    """(dtype, features) of the cosines and the sines given instead of terms."""
    order: tuple[int, ...]
    """The result's dimensions, the outermost in memory first."""
    factor: float = 1.0
    rounded: bool = False
    """Each position · frequency is rounded to float32."""
    version: int = ROPE_VERSION

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> int:
        """63-bit content hash, stable over processes: the custom op's ``plan`` argument."""
        return content_hash(self.to_json())

    @property
    def name(self) -> str:
        """A name for files: style, dtype, features."""
        turned = f"{self.rotary_dim}of" if self.rotary_dim < self.features else ""
        return f"rope_{self.style}_{self.dtypes[0]}_d{turned}{self.features}"


def emit_rope(plan: RopePlan) -> Source:
    """The Python module of a plan: a Triton kernel and ``rotate(x, positions, inv_freqs, tables)``, which launches it.

    Raises ValueError as :func:`check_rope` does.
    """
    check_rope(plan)
    head = [
        f"# Rotation {plan.name}, written by attnc (plan version {ROPE_VERSION}).",
        "#",
        f"# plan: {plan.to_json()}",
    ]
    text = re.sub(r'\A""".*?"""\n', "", _TEMPLATE.read_text(encoding="utf-8"), flags=re.DOTALL)
    constants = "\n".join([*_constants(plan), "", "", *_row_starts(plan), *_head_starts(plan), *_waves(plan)])
    text = re.sub(r"^CONSTANTS\b.*\n\n", lambda _: constants, text, flags=re.MULTILINE)
    real = "tl.float64" if plan.dtypes[1] == "f64" else "tl.float32"
    names = {
        "PARAMETERS": ", ".join(_names(plan)),
        "STARTS": ", ".join(f"{name}_at" for name in _placed(plan)),
        "REAL": real,
        "ELEMENT": f"tl.{FLOATS[plan.dtypes[1]]}",
    }
    text = re.sub(rf"\b({'|'.join(names)})\b", lambda found: names[found[1]], text)
    return Source("triton", plan.name, "\n".join([*head, text]), plan.digest)


def launch_rope(plan: RopePlan) -> Launch:
    """How the kernel of :func:`emit_rope` is compiled ahead of time.

    x and the result are assumed to begin at addresses that are multiples of 16 bytes and to have contiguous features,
    with other strides that are multiples of 16 elements; frequencies and tables to be contiguous.
    """
    apart = {"out_col"} if plan.order[-1] != plan.rank - 1 else set()
    one = {name for name in _names(plan) if name.endswith("_col")} - apart
    strides = {f"{name}_{dim}" for name in ("x", "out") for dim in range(plan.rank - 1)}
    pointers = dict(zip(("X", "Out", *_operands(plan)), (*plan.dtypes, *_dtypes(plan)), strict=True))
    found = [Parameter(name, f"*{element_type(dtype)}", "aligned") for name, dtype in pointers.items()]
    for name in _names(plan)[len(pointers) - 2 :]:
        found.append(Parameter(name, "i32", "one" if name in one else "aligned" if name in strides else "nothing"))
    return Launch("rope", tuple(found), {}, _WARPS, 1)


def check_rope(plan: RopePlan) -> None:
    """Raise ValueError for a target without Triton kernels and for dtypes that kernels do not read."""
    if capability(plan.target).language != "triton":
        raise ValueError(f"{plan.target} has no Triton kernels")
    floats = (*plan.dtypes, *(frequency for _, frequency in plan.terms), *(dtype for dtype, _ in plan.tables))
    refused = {d for d in floats if d not in FLOATS} | {p for p, _ in plan.terms if p not in FLOATS | _INTEGERS}
    if refused:
        raise ValueError(f"rope kernels do not read {', '.join(sorted(refused))}")


# -- names of what a call gives the kernel


def _placed(plan: RopePlan) -> list[str]:
    """Operands that differ from row to row: positions, or tables."""
    return ["cos", "sin"] if plan.tables else [f"p{i}" for i in range(len(plan.terms))]


def _operands(plan: RopePlan) -> list[str]:
    """Pointers beside x and the result, in the order of the op's arguments."""
    return [*_placed(plan), *(f"f{i}" for i in range(len(plan.terms)))]


def _dtypes(plan: RopePlan) -> list[str]:
    positions, frequencies = ([term[i] for term in plan.terms] for i in (0, 1))
    return [*positions, *frequencies, *(dtype for dtype, _ in plan.tables)]


def _counts(plan: RopePlan) -> list[str]:
    return [*(f"n{dim}" for dim in range(plan.rank - 1)), "rows", "heads", "chunks"]


def _row_dims(plan: RopePlan) -> list[int]:
    return [dim for dim in range(plan.rank - 1) if dim not in plan.heads]


def _names(plan: RopePlan) -> list[str]:
    """Every parameter after x and the result."""
    strides = [f"{name}_{dim}" for name in ("x", "out") for dim in (*range(plan.rank - 1), "col")]
    for name in _placed(plan):
        column = f"{name}_col" if plan.tables else f"{name.replace('p', 'f')}_col"
        strides += [*(f"{name}_{dim}" for dim in _row_dims(plan)), column]
    return [*_operands(plan), *_counts(plan), *strides]


# -- what stands above the kernel


def _constants(plan: RopePlan) -> list[str]:
    half, rest = plan.rotary_dim // 2, plan.features - plan.rotary_dim
    pairs, rest_block = _power(half), _power(rest)
    gpu = capability(plan.target).gpu
    size = BYTES["f64" if plan.dtypes[1] == "f64" else plan.dtypes[0]]
    tile = _INTERPRETED if gpu is None else _WARPS * gpu.warp_size * _LANE // size
    values = {
        "INTERLEAVED": plan.style == "interleaved",
        "HALF": half,
        "PAIRS": pairs,
        "REST": rest,
        "REST_BLOCK": rest_block,
        "ROWS": max(1, tile // max(pairs, rest_block // 2)),
        "EACH": _EACH if plan.heads else 1,
        "FACTOR": plan.factor,
    }
    return [
        *(f"{name} = tl.constexpr({value})" for name, value in values.items()),
        f"RANK, FEATURES, ROUNDED, NUM_WARPS = {plan.rank}, {plan.features}, {plan.rounded}, {_WARPS}",
        f"HEADS = {plan.heads!r}",
        f"ROW_DIMS = {_row_dims(plan)!r}",
        f"ORDER = {plan.order!r}",
        f"COUNTS = {_counts(plan)!r}",
        f"X_DTYPE, OUT_DTYPE = {_torch(plan.dtypes[0])}, {_torch(plan.dtypes[1])}",
        f"POSITIONS = [{', '.join(_torch(p) for p, _ in plan.terms)}]",
        f"INV_FREQS = [{', '.join(_torch(f) for _, f in plan.terms)}]",
        f"TABLES = [{', '.join(_torch(dtype) for dtype, _ in plan.tables)}]",
        f"WIDTHS = {[width for _, width in plan.tables]!r}",
    ]


def _power(length: int) -> int:
    """The least power of two that is not below ``length``."""
    return 1 << max(0, length - 1).bit_length()


def _torch(dtype: str) -> str:
    return f"torch.{(FLOATS | _INTEGERS)[dtype]}"


def _function(name: str, parameters: str, doc: str, lines: Iterable[str]) -> list[str]:
    return ["@triton.jit", f"def {name}({parameters}):", f'    """{doc}"""', *(f"    {line}" for line in lines), "", ""]


def _row_starts(plan: RopePlan) -> list[str]:
    doc = "Where rows begin in x, in the result and in operands, in elements."
    return _starts("row_starts", "row", doc, _row_dims(plan), ("x", "out", *_placed(plan)))


def _head_starts(plan: RopePlan) -> list[str]:
    doc = "Where a head begins in x and in the result, behind the start of a row."
    return _starts("head_starts", "head", doc, plan.heads, ("x", "out"))


def _starts(name: str, flat: str, doc: str, dims: Sequence[int], operands: Sequence[str]) -> list[str]:
    """A function from a flat index over dimensions, the last one running fastest, to a start for each operand."""
    lines = []
    for dim in reversed(dims[1:]):
        lines += [f"i{dim} = tl.cast({flat} % n{dim}, tl.int64)", f"{flat} = {flat} // n{dim}"]
    lines += [f"i{dim} = tl.cast({flat}, tl.int64)" for dim in dims[:1]]
    sums = [" + ".join(f"i{dim} * {operand}_{dim}" for dim in dims) for operand in operands]
    return _function(
        name,
        f"{flat}, PARAMETERS",
        doc,
        [*lines, f"return {', '.join(s or f'tl.cast({flat} * 0, tl.int64)' for s in sums)}"],
    )


def _waves(plan: RopePlan) -> list[str]:
    """Cosine and sine for the first and for the second features of pairs."""
    lines = _given(plan) if plan.tables else _computed(plan)
    doc = "Cosines and sines of the first features of pairs, then of the second ones, for each row and pair."
    return _function("waves", "STARTS, PARAMETERS", doc, ["pair = tl.arange(0, PAIRS)", *lines])


def _given(plan: RopePlan) -> list[str]:
    features = ("2 * pair", "2 * pair + 1") if plan.style == "interleaved" else ("pair", "pair + HALF")
    lines = ["inside = (pair < HALF)[None, :]"]
    for (_, width), name in zip(plan.tables, _placed(plan), strict=True):
        whole = width == plan.rotary_dim
        for i, feature in enumerate(features):
            read = f"entries({name}, {name}_at, {feature if whole else 'pair'}, {name}_col, inside)"
            lines.append(f"{name}{i} = {read if whole or i == 0 else f'{name}0'}")
    return [*lines, "return cos0, sin0, cos1, sin1"]


def _computed(plan: RopePlan) -> list[str]:
    lines = ["wide = tl.cast(pair, tl.int64)"]
    for i, dtypes in enumerate(plan.terms):
        wide = "f64" in dtypes
        real = "tl.float64" if wide else "tl.float32"
        lines += [
            f"position{i} = tl.load(p{i} + p{i}_at).to({real})",
            f"frequency{i} = tl.load(f{i} + wide * f{i}_col, mask=pair < HALF, other=0.0).to({real})",
            f"a{i} = product(position{i}, frequency{i}){'.to(tl.float32)' if wide and plan.rounded else ''}",
        ]
    total = " + ".join(f"a{i}" for i in range(len(plan.terms)))
    if plan.dtypes[1] == "f64":
        lines += [f"angle = ({total}).to(tl.float64)", "c, s = tl.cos(angle) * FACTOR, tl.sin(angle) * FACTOR"]
        return [*lines, "return c, s, c, s"]
    lines += [f"c, s = cos_sin(({total}).to(tl.float64))", "c, s = c * FACTOR, s * FACTOR"]
    return [*lines, "return c, s, c, s"]
