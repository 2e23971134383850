"""Keys turned before they are kept in few bits, and queries with them, so that no feature takes all the codes.

The keys of many models have a few features far larger than the rest, and the scale of a row has to fit those. An
orthogonal matrix R spreads them over all features and leaves scores as they are: (q·R) · (k·R) = q · k. R is a Hadamard
matrix under signs that were drawn once, as in QuaRot (Ashkboos et al. 2024, arXiv 2404.00456). Where the number of
features is no power of two, runs of the greatest power of two that divides it are turned, each by itself.

The elements are powers of two, exact in every dtype: where √n is none, keys are turned by √2·R and queries by R/√2.
"""

from __future__ import annotations

import random

import torch
from torch import Tensor

TURNED = frozenset({"i8"})
"""Stores with one scale for a row of evenly spaced numbers. Floats hold small features beside large ones, and a scale
of i4 is for so few that turning gains nothing (on Gemma 3 270M)."""


def matrices(features: int) -> tuple[Tensor, Tensor]:
    """f32 [features, features] for keys and for queries: K · Qᵀ is the identity."""
    run = features & -features
    turn = torch.ones(1, 1)
    while len(turn) < run:
        turn = torch.cat((torch.cat((turn, turn), 1), torch.cat((turn, -turn), 1)))
    draw = random.Random(0)
    signs = torch.tensor([draw.choice((-1.0, 1.0)) for _ in range(features)])
    whole = torch.kron(torch.eye(features // run), turn) * signs[:, None]
    bits = run.bit_length() - 1
    return whole * 2.0 ** -(bits // 2), whole * 2.0 ** -(bits - bits // 2)
