"""Masks the way models write them, and what they become."""

from __future__ import annotations

import pytest
import torch

IDS = torch.tensor([[5, 3, 1, 1, 0, 0], [4, 2, 2, 1, 1, 0], [1, 1, 1, 1, 1, 1]])
PADDING = IDS > 0
MIN = torch.finfo(torch.float32).min
HALF_MIN = torch.finfo(torch.bfloat16).min


def query(x):
    return torch.arange(x.shape[1])[:, None]


def key(x):
    return torch.arange(x.shape[1])[None, :]


def chunked(x):
    return (key(x) <= query(x)) & (key(x) // 4 == query(x) // 4)


def prefix(x):
    return (key(x) <= query(x)) | (key(x) < 3)


def global_and_local(x):
    return ((query(x) - key(x)).abs() <= 2) | (key(x) < 1) | (query(x) < 1)


def strided(x):
    return (query(x) - key(x)) % 3 == 0


def vmap_style_padding(x):
    batch, rows, columns = torch.arange(x.shape[0])[:, None, None], query(x)[None], key(x)[None]
    return (columns <= rows) & (x > 0)[batch, columns]


def additive_inverted(x):
    """The mask is subtracted from one and scaled by the least float."""
    return (1.0 - (x > 0)[:, None, :].to(torch.float32)) * MIN


def additive_half(x):
    return (1.0 - (x > 0).to(torch.bfloat16)) * HALF_MIN


def outer_product(x):
    seen = (x > 0).to(torch.int64)
    return (seen[:, None, :] * seen[:, :, None]).to(torch.bool)


def masked_fill_of_zeros(x):
    return torch.zeros(x.shape).masked_fill(x.eq(0), float("-inf"))


def cast_back_to_bool(x):
    additive = torch.where(key(x) <= query(x), 0.0, MIN)
    return torch.zeros_like(additive).masked_fill(additive.to(torch.bool), MIN)


def triangle_of_infinity(x):
    return torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)


def sum_of_two_masks(x):
    causal = torch.where(key(x) <= query(x), 0.0, -1000.0)
    window = torch.where(query(x) - key(x) < 2, 0.0, -1000.0)
    return causal + window


def folded_heads(x):
    """Batch and heads merged into one dimension, as bmm wants it."""
    mask = (key(x) <= query(x)) & (x > 0)[:, None, :]
    return mask[:, None].expand(-1, 4, -1, -1).reshape(-1, x.shape[1], x.shape[1])


def packed_positions(x):
    """A new sequence starts where positions don't go up by one: never, for an arange."""
    positions = torch.arange(x.shape[1])[None].expand(x.shape[0], -1)
    starts = torch.diff(positions, prepend=positions[:, :1] - 1, dim=-1) != 1
    sequence = starts.cumsum(-1)
    return (sequence[:, :, None] == sequence[:, None, :]) & (key(x) <= query(x))


def packed_data(x):
    """The same of positions that are data: sequence numbers are loaded."""
    starts = torch.diff(x, prepend=x[:, :1] - 1, dim=-1) != 1
    sequence = starts.cumsum(-1)
    return sequence[:, :, None] == sequence[:, None, :]


def cache_prefix(x):
    """Four cached keys in front, always visible."""
    old = torch.ones_like(x[:, :4])
    return torch.cat([old, x], dim=1) != 0


IDIOMS = [
    (chunked, "(j <= i) & (j // 4 == i // 4)"),
    (prefix, "(j < 3) | (j <= i)"),
    (global_and_local, "(i < 1) | (j < 1) | (i - j <= 2) & (j - i <= 2)"),
    (strided, "(i - j) % 3 == 0"),
    (vmap_style_padding, "(m <= j) & (x_1[i, m] > 0)"),
    (additive_inverted, "0 if x_1[i, m] > 0; -3.40282e+38 if True"),
    (additive_half, "0 if x_1[i, j] > 0; -3.38953e+38 if True"),
    (outer_product, "(x_1[i, j] > 0) & (x_1[i, m] > 0)"),
    (masked_fill_of_zeros, "-inf if x_1[i, j] == 0; 0 if True"),
    (cast_back_to_bool, "-3.40282e+38 if j > i; 0 if True"),
    (triangle_of_infinity, "-inf if j - i >= 1; 0 if True"),
    (sum_of_two_masks, "where((j <= i) & (i - j < 2), 0, where((j <= i) | (i - j < 2), -1000, -2000))"),
    (folded_heads, "(m <= j) & (x_1[i // 4, m] > 0)"),
    (packed_positions, "m <= j"),
    (packed_data, "cumsum[i, j] == cumsum[i, m]"),
    (cache_prefix, "(j < 4) | (j >= 4) & (x_1[i, max(0, j - 4)] != 0)"),
]


@pytest.mark.parametrize(("program", "text"), IDIOMS, ids=[p.__name__ for p, _ in IDIOMS])
def test_idiom(exact, program, text):
    assert exact(program, IDS) == text
