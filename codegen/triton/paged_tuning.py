"""Tiles and compile options of kernels of paged attention."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.codegen.targets import Capability
from attnc.codegen.triton.dims import parts
from attnc.codegen.triton.tuning import Demand


@dataclass(frozen=True)
class Tiling:
    """Rows of a tile, and how the kernel with such tiles is compiled."""

    block_m: int
    num_warps: int
    num_stages: int


def block_keys(target: Capability, demand: Demand) -> int:
    """Keys of a block where pages ask for nothing else."""
    if target.gpu is None:
        return 64
    return 32 if _large(demand) else 64


def tilings(target: Capability, demand: Demand, quantised: bool, gathered: bool) -> tuple[Tiling, ...]:
    """For tiles of few rows, as decoding has, and of many, as prefill has; in this order. In float32 few serve both.
    ``gathered``: pages are shorter than blocks, so that each key has an address of its own.

    Measured on compiled kernels: with 4 warps those that convert numbers spill, and so do many rows, since a tile has
    an accumulator for its split and one for all; at a head dimension of 128 it depends on the GPU. With 8 warps ptxas
    keeps gathered keys, and heads wider than that, to 128 registers, and spills. Products of float32 take three of
    each operand's parts.
    """
    if target.gpu is None:
        return (Tiling(16, 4, 1), Tiling(64, 4, 1))
    large = _large(demand)
    width = max(demand.head_dim, demand.value_dim)
    slim = not quantised and demand.dtype != "f32" and (gathered or width <= 64 or width > 128)
    few = Tiling(16, 4 if slim else 8, 2 if large else 3)
    if demand.dtype == "f32":
        return (few,)
    small_products = not {"HGMMA", "UTCHMMA"} & set(target.gpu.matrix)
    return few, Tiling(32 if large or small_products else 64, 8, 2)


def _large(demand: Demand) -> bool:
    """Whether a key takes more than 256 bytes of a tile that is computed with, or two parts, with pointers of each."""
    split = parts(demand.head_dim)[1] or parts(demand.value_dim)[1]
    return demand.dtype == "f32" or max(demand.head_dim, demand.value_dim) > 128 or bool(split)
