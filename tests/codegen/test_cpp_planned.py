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
from attnc.ir.index_terms import axis
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


@pytest.mark.parametrize("name", MASKS)
def test_planned_masks(build: Build, name: str) -> None:
    lengths = {"q": size("S"), "k": size("S")}
    mask = MaskSet.of(MASKS[name], lengths)
    tiles = segments(mask, ("b", "h"), 32, 32, lengths["q"], lengths["k"]).segments
    plan = replace(make_plan(), mask=lower(MASKS[name]), segments=tiles, dead_rows="zero", returns_lse=True)
    generator = torch.Generator().manual_seed(1)
    for s in (1, 24, 33, 64, 131, 200) if build.language == "c++" else (1, 33, 131):
        check(build(plan), *(torch.randn(1, 2, s, 16, generator=generator) for _ in range(3)))
