"""Kernels over the tile ranges that planning computes, for masks of every kind."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sympy
import torch
from codegen_interpreted import Build
from codegen_reference import check, make_plan

from attnc.compiler.planning.lower import lower
from attnc.compiler.planning.segments import segments
from attnc.ir.index_terms import axis, load
from attnc.ir.mask import MaskSet
from attnc.ir.types import size

Q, K = axis("q"), axis("k")
CAUSAL = sympy.Le(K, Q)
MASKS = {
    "causal": CAUSAL,
    "window": sympy.And(CAUSAL, sympy.Gt(K, Q - 50)),
    "chunked": sympy.And(CAUSAL, sympy.Eq(sympy.floor(K / 40), sympy.floor(Q / 40))),
    "prefix": sympy.Or(CAUSAL, sympy.Lt(K, 37)),
    "band": sympy.And(sympy.Lt(K - Q, 20), sympy.Lt(Q - K, 45)),
    "global and local": sympy.And(CAUSAL, sympy.Or(sympy.Lt(K, 4), sympy.Gt(K, Q - 33))),
    "dilated": sympy.And(CAUSAL, sympy.Eq(sympy.Mod(Q - K, 3), 0)),
    "future": sympy.Gt(K, Q),
}


B = axis("b")
LOADED = {
    "padding": sympy.Ne(load("t0", B, K), 0),
    "documents": sympy.Eq(load("t0", B, Q), load("t0", B, K)),
}
"""What tile ranges can't know; the first hides the same keys of every row."""


@pytest.mark.parametrize("affine", ["causal", "prefix", "dilated"])
@pytest.mark.parametrize("loaded", LOADED)
def test_tiles_that_only_a_loaded_mask_hides_from(build: Build, loaded: str, affine: str) -> None:
    """Wholly hidden, wholly visible and mixed tiles; rows hidden from the left; a batch that sees no key at all."""
    lengths = {"q": size("S"), "k": size("S")}
    condition = sympy.And(MASKS[affine], LOADED[loaded])
    mask = MaskSet.of(condition, lengths)
    tiles = segments(mask, ("b", "h"), 32, 32, lengths["q"], lengths["k"], residual_apart=True).segments
    assert {s.residual for s in tiles} == ({False} if affine == "dilated" else {False, True})
    assert all(s.needs_mask for s in tiles)
    plan = replace(
        make_plan(sides=(("i32", 2),)),
        mask=lower(condition),
        residual=lower(mask.residual_expr),
        segments=tiles,
        dead_rows="zero",
        returns_lse=True,
    )
    generator = torch.Generator().manual_seed(1)
    for s in (1, 33, 96, 200):
        q, k, v = (torch.randn(4, 2, s, 16, generator=generator) for _ in range(3))
        position = torch.arange(s)
        rows = (torch.ones(s), position >= s // 3, torch.zeros(s), (position // 40) % 2)
        side = torch.stack([row.to(torch.int32) for row in rows])
        check(build(plan), q, k, v, side=[side])


@pytest.mark.parametrize("name", MASKS)
def test_planned_masks(build: Build, name: str) -> None:
    lengths = {"q": size("S"), "k": size("S")}
    mask = MaskSet.of(MASKS[name], lengths)
    tiles = segments(mask, ("b", "h"), 32, 32, lengths["q"], lengths["k"]).segments
    plan = replace(make_plan(), mask=lower(MASKS[name]), segments=tiles, dead_rows="zero", returns_lse=True)
    generator = torch.Generator().manual_seed(1)
    for s in (1, 24, 33, 64, 131, 200) if build.language == "c++" else (1, 33, 131):
        check(build(plan), *(torch.randn(1, 2, s, 16, generator=generator) for _ in range(3)))
