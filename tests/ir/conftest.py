"""Texts that several tests start from."""

from __future__ import annotations

import pytest

GQA = """graph @attend(
    %q: f32[B, 2, 3, S, 16],
    %k: f32[B, 2, S, 16],
    %v: f32[B, 2, S, 8],
    %pad: i64[B, S],
    %bias: f32[3, S],
    %n: int<S>
  ) sizes(B in [1, 64], S in [2, inf]) {
  %o: f32[B, S, 2, 3, 8], %l: f32[B, S, 2, 3] = attn.attention(%q, %k, %v, [%pad, %bias], [%n]) {
    q = [b, h, g, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, q, h, g, e]
    sizes = [S]
    qk = f32
    score = where((k <= q) & (t0[b, k] != 0), qk * 0.25 + t1[g, k], -1000000000.0)
    visible = qk * 0.25 + t1[g, k]
    mask = (k <= q) & (t0[b, k] != 0) & (k < S)
    fill = finite(-1000000000.0)
    softmax = sink f32
    sink = t1[g, 0]
    out_dtype = f32
    lse = True
  }  loc("model.py":7 "o = attend(q, k, v)" in "layers.0")
  return %o, %l
}
"""


@pytest.fixture
def gqa() -> str:
    """A grouped attention with padding, a bias, a sink and lse; verifies."""
    return GQA
