"""Evaluates a plan's formulas on torch tensors, all coordinates at once.

Every value is a tensor that broadcasts against the grid of an :class:`Env`: one dimension per axis, length 1 where
the value doesn't depend on that axis. Plain differentiable torch operators throughout.

Two ways with floats. *Computed*: every float is of one compute dtype, whatever the source wrote; what kernels do for
ordinary rows. *As written*: each result is rounded to the dtype its instruction names, so that sums of fills overflow
as in the source; rows without a visible key depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnc.codegen.plan import Instr, Program
from attnc.runtime.abi import DTYPES

SizeArg = int | torch.SymInt


@dataclass(frozen=True)
class Env:
    """What a program may refer to."""

    grid: tuple[str, ...]
    """Axis names, in the order of the grid's dimensions."""
    ranges: Mapping[str, tuple[int, int]]
    """Axis → the half-open range of coordinates that is evaluated."""
    sizes: Mapping[str, SizeArg]
    sides: Sequence[Tensor]
    compute: torch.dtype
    """Dtype of computed floats: float32, or float64."""
    device: torch.device
    qk: Tensor | None = None
    """The product Σ_d q·k over the grid, of dtype ``compute``."""
    as_written: bool = False
    """Round each float to the dtype its instruction names (with ``compute`` float64: only let it overflow there)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the grid's dimensions."""
        return tuple(end - begin for begin, end in (self.ranges[axis] for axis in self.grid))

    def axis(self, name: str) -> Tensor:
        """Coordinates of an axis, int64, shaped to broadcast over the grid."""
        begin, end = self.ranges[name]
        shape = [-1 if axis == name else 1 for axis in self.grid]
        return torch.arange(begin, end, device=self.device).view(shape)


def evaluate(program: Program, env: Env) -> Tensor:
    """The result of ``program``, broadcastable over the grid of ``env``.

    Raises KeyError for an axis or size that ``env`` lacks, ValueError for an unknown operation.
    """
    values: list[Tensor] = []
    for instr in program:
        args = [values[i] for i in instr.args]
        target = DTYPES[instr.dtype]
        if env.as_written and target.is_floating_point:  # else a scalar operand would not promote
            args = [a.to(torch.promote_types(a.dtype, target)) if a.is_floating_point() else a for a in args]
        if instr.op == "load":
            value = _load(env, program, instr, args)
        elif instr.op in _LEAVES:
            value = _LEAVES[instr.op](env, instr)
        elif instr.op in _OPS:
            value = _OPS[instr.op](*args)
        else:
            raise ValueError(f"evaluating a formula: unknown operation {instr.op!r}; the plan is from another version")
        values.append(_typed(value, instr.dtype, env))
    return values[-1]


def _typed(value: Tensor, dtype: str, env: Env) -> Tensor:
    """``value`` in the dtype its instruction has under ``env``."""
    target = DTYPES[dtype]
    if not target.is_floating_point:
        return value.to(target)
    if not env.as_written:
        return value.to(env.compute)
    if env.compute is torch.float64:
        return _overflow(value.double(), target)
    return value.to(target)


def _overflow(value: Tensor, dtype: torch.dtype) -> Tensor:
    """``value`` with ±inf where rounding to ``dtype`` would give it; otherwise unrounded."""
    info = torch.finfo(dtype)
    if dtype is torch.float64:
        return value
    half_ulp = info.eps * 2.0 ** math.floor(math.log2(info.max)) / 2
    limit = info.max + half_ulp
    return torch.where(value.abs() >= limit, torch.copysign(torch.full_like(value, math.inf), value), value)


def _load(env: Env, program: Program, instr: Instr, indices: list[Tensor]) -> Tensor:
    """The side tensor at ``indices``, clamped into range: a masked coordinate may point outside."""
    side = env.sides[int(instr.value or 0)]
    direct = _direct_load(env, side, [program[i] for i in instr.args])
    if direct is not None:
        return direct
    if not indices:
        return side
    inside = [index.clamp(0, max(0, length - 1)) for index, length in zip(indices, side.shape, strict=True)]
    return side[tuple(inside)]


def _direct_load(env: Env, side: Tensor, indices: list[Instr]) -> Tensor | None:
    """A load by constants and distinct axes is a view; anything else (None) needs a gather."""
    axes = [index.value for index in indices if index.op == "axis"]
    if len(set(axes)) != len(axes) or any(index.op not in ("axis", "const") for index in indices):
        return None
    for dim, index in reversed(list(enumerate(indices))):
        if index.op == "const":
            if not 0 <= int(index.value or 0) < side.shape[dim]:
                return None
            side = side.select(dim, int(index.value or 0))
        else:
            begin, end = env.ranges[str(index.value)]
            if end > side.shape[dim]:
                return None
            side = side.narrow(dim, begin, end - begin)
    order = sorted(range(len(axes)), key=lambda i: env.grid.index(str(axes[i])))
    lengths = {axes[i]: side.shape[i] for i in order}
    return side.permute(order).reshape([lengths.get(axis, 1) for axis in env.grid])


def _const(env: Env, instr: Instr) -> Tensor:
    """A number as the source's dtype holds it, so that computing wider doesn't change it."""
    wide = torch.float64 if isinstance(instr.value, float) else None
    return torch.tensor(instr.value, dtype=wide, device=env.device).to(DTYPES[instr.dtype])


def _size(env: Env, instr: Instr) -> Tensor:
    return torch.tensor(int(env.sizes[str(instr.value)]), device=env.device)


def _qk(env: Env, instr: Instr) -> Tensor:
    if env.qk is None:
        raise ValueError("evaluating a formula: it reads q·k, which has no value here")
    return env.qk


_LEAVES: dict[str, Callable[[Env, Instr], Tensor]] = {
    "qk": _qk,
    "const": _const,
    "axis": lambda env, instr: env.axis(str(instr.value)),
    "size": _size,
}


def _div(a: Tensor, b: Tensor) -> Tensor:
    """A true quotient; of two integers in float64, which the caller rounds."""
    return a.double() / b if not (a.is_floating_point() or b.is_floating_point()) else a / b


def _floordiv(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b, rounding_mode="floor")


_OPS: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": _div,
    "neg": torch.neg,
    "abs": torch.abs,
    "min": torch.minimum,
    "max": torch.maximum,
    "pow": torch.pow,
    "floordiv": _floordiv,
    "mod": torch.remainder,
    "cast": lambda a: a,
    "tanh": torch.tanh,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid,
    "erf": torch.erf,
    "floor": torch.floor,
    "ceil": torch.ceil,
    "sin": torch.sin,
    "cos": torch.cos,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
    "eq": torch.eq,
    "ne": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "not": torch.logical_not,
    "where": torch.where,
    "isnan": torch.isnan,
}
