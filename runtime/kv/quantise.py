"""How rows of keys and values become what a page stores, and back, in plain torch.

| store | element | scale | for | value |
|---|---|---|---|---|
| f32, bf16, f16 | itself, rounded to nearest | none | | element |
| i8 | −127 … 127 | f32, max|x| / 127 | a row of one head | scale · element |
| f8e4m3 | float8_e4m3fn | f32, max|x| / 448 | a row of one head | scale · element |
| i4 | −8 … 7, two in a byte, the first in the low half | f16, x* / −8 | 32 features | scale · element |

x* is the element of largest magnitude, with its sign, the first of equal ones: it becomes −8, so all sixteen codes are
used. An element of the other sign and nearly its size would be +8 and becomes 7. Elements are round(x / scale), halves
to even, with the scale as it is stored. A scale is 0 where all elements are (or where it is too small to be stored),
and so are the elements then.

A row or group of 32 that holds a NaN or an infinity reads back as NaN, all of it. i4 values beyond 8 · 65504, which no
float16 scale reaches, are cut to that.

Error of a finite element, but for float32's own rounding and scales below the smallest normal number of their type:
i8 scale / 2; f8e4m3 the larger of |x| / 16 and scale / 1024; i4 |scale| / 2, and |scale| for what would be more than
7.5 scales and became 7 (1.004 |scale|, since float16 rounds the scale by up to 2⁻¹¹).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from attnc.codegen.paged_plan import I4_GROUP, page_width, scale_groups

ELEMENTS = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i8": torch.int8,
    "f8e4m3": torch.float8_e4m3fn,
    "i4": torch.uint8,
}
"""Store → dtype of its page tensors."""
STORE_OF = {dtype: store for store, dtype in ELEMENTS.items()}
LARGEST = {"i8": 127.0, "f8e4m3": 448.0}
"""Largest element of the stores that scale a row by its maximum."""
I4_LOW, I4_HIGH = -8, 7
F16_LARGEST = 65504.0


def row_shape(store: str, features: int) -> tuple[int, ...]:
    """Dimensions of one encoded row: two features of i4 share a byte."""
    return (page_width(store, features),)


def scale_shape(store: str, features: int) -> tuple[int, ...] | None:
    """Dimensions of one row's scales; None for stores of floats."""
    groups = scale_groups(store, features)
    return None if groups is None else (groups,) if groups else ()


def scale_dtype(store: str) -> torch.dtype:
    """Dtype of a store's scales."""
    return torch.float16 if store == "i4" else torch.float32


def encode(x: Tensor, store: str) -> tuple[Tensor, Tensor | None]:
    """``(elements, scales)`` of rows x [..., features], any float dtype; no scales for stores of floats."""
    if store == "i4":
        return _encode_i4(x.float())
    if store in LARGEST:
        return _encode_by_maximum(x.float(), store)
    return x.to(ELEMENTS[store]), None


def decode(elements: Tensor, scales: Tensor | None, features: int) -> Tensor:
    """Rows [..., features], float32, of what ``encode`` made of them."""
    if scales is None:
        return elements.float()
    if elements.dtype is torch.uint8:
        return _decode_i4(elements, scales, features)
    return elements.float() * scales.unsqueeze(-1)


def _encode_by_maximum(x: Tensor, store: str) -> tuple[Tensor, Tensor]:
    largest = LARGEST[store]
    scales = x.abs().amax(-1) / largest
    # A scale that is subnormal is coarse, so that quotients may pass the largest element.
    scaled = _quotient(x, scales.unsqueeze(-1)).clamp(-largest, largest)
    return (_integers(scaled) if store == "i8" else scaled).to(ELEMENTS[store]), scales


def _encode_i4(x: Tensor) -> tuple[Tensor, Tensor]:
    features = x.shape[-1]
    groups = F.pad(x, (0, -features % I4_GROUP)).reshape(*x.shape[:-1], -(-features // I4_GROUP), I4_GROUP)
    extreme = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    finite = (extreme / I4_LOW).clamp(-F16_LARGEST, F16_LARGEST)
    scales = torch.where(extreme.isinf(), torch.nan, finite).to(torch.float16)
    codes = _integers(_quotient(groups, scales.float()).clamp(I4_LOW, I4_HIGH)).to(torch.int8).view(torch.uint8)
    nibbles = codes.flatten(-2)[..., : features + features % 2] & 0xF
    return nibbles[..., 0::2] | nibbles[..., 1::2] << 4, scales.squeeze(-1)


def _decode_i4(elements: Tensor, scales: Tensor, features: int) -> Tensor:
    codes = torch.stack((elements & 0xF, elements >> 4), -1).flatten(-2)[..., :features].float()
    signed = torch.where(codes > I4_HIGH, codes - 16, codes)
    return signed * scales.float().repeat_interleave(I4_GROUP, -1)[..., :features]


def _quotient(x: Tensor, scale: Tensor) -> Tensor:
    return x / torch.where(scale == 0, 1.0, scale)


def _integers(x: Tensor) -> Tensor:
    """Rounded; 0 for NaN, which no integer stands for: its scale is not finite, and says it."""
    return x.round().nan_to_num(0.0)
