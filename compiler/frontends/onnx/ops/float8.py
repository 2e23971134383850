"""Rounding to float8."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.errors import NoForm

_BEYOND = {
    torch.float8_e4m3fn: (464.0, False, math.nan),
    torch.float8_e4m3fnuz: (248.0, True, math.nan),
    torch.float8_e5m2: (61440.0, True, math.inf),
    torch.float8_e5m2fnuz: (61440.0, True, math.nan),
}
"""Halfway between the greatest number and what would follow it, whether that itself is rounded away from the greatest
number, and what numbers beyond become."""
FLOAT8 = tuple(_BEYOND)
_EXACT = (torch.float32, torch.float16, torch.bfloat16)


def to_float8(x: Tensor, dtype: torch.dtype, *, saturate: bool) -> Tensor:
    """x in float8, rounded to the nearest (even) number.

    What is out of range, infinities too, becomes the greatest number; without ``saturate`` infinity in e5m2 and NaN in
    the others. Raises NoForm for types float32 doesn't hold.
    """
    if x.dtype not in _EXACT:
        raise NoForm(f"a cast from {str(x.dtype).removeprefix('torch.')} to float8 rounds twice")
    wide, greatest = x.to(torch.float32), torch.finfo(dtype).max
    near = torch.clamp(wide, -greatest, greatest).to(dtype)
    if saturate:
        return near
    bound, included, result = _BEYOND[dtype]
    size = torch.abs(wide)
    beyond = torch.copysign(torch.full_like(wide, result), wide).to(dtype)
    return torch.where(size >= bound if included else size > bound, beyond, near)
