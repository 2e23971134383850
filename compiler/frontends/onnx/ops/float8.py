"""Rounding to float8."""

from __future__ import annotations

import torch
from torch import Tensor

from attnc.compiler.frontends.onnx.errors import NoForm

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
_EXACT = (torch.float32, torch.float16, torch.bfloat16)


def to_float8(x: Tensor, dtype: torch.dtype, *, saturate: bool) -> Tensor:
    """x in float8, rounded to the nearest (even) number.

    What is out of range, infinities too, becomes the greatest number, or without ``saturate`` what torch makes of it:
    infinity for e5m2, else NaN. Raises NoForm for types float32 doesn't hold.
    """
    if x.dtype not in _EXACT:
        raise NoForm(f"a cast from {str(x.dtype).removeprefix('torch.')} to float8 rounds twice")
    if saturate:
        greatest = torch.finfo(dtype).max
        x = torch.clamp(x.to(torch.float32), -greatest, greatest)
    return x.to(torch.float32).to(dtype)
