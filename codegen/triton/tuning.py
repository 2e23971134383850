"""Tiles and compile options of a kernel for a target."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.codegen.targets import Capability, Gpu
from attnc.codegen.triton.dims import parts

BYTES = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Tuning:
    """``block_m`` queries against ``block_n`` keys; ``num_stages`` tiles of keys and values are in flight."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class Demand:
    """What a kernel asks of registers and shared memory: head dimensions, the dtype of its keys, and ``pairs``:
    whether a formula loads a value for every query and key, which costs an address and a value in registers each.
    """

    head_dim: int
    value_dim: int
    dtype: str
    pairs: bool = False


INTERPRETED = Tuning(64, 64, 4, 1)
"""For the interpreter, whose cost goes with the number of tiles."""

_SHAPES = (
    (128, 128, 8),
    (128, 64, 8),
    (128, 32, 8),
    (64, 64, 8),
    (64, 32, 8),
    (32, 32, 4),
    (16, 32, 4),
    (16, 16, 4),
)
_REGISTERS = 96
"""Of a thread of eight warps of 32, for accumulator and scores; what compiled kernels had left without spilling."""


def candidates(target: Capability, demand: Demand) -> tuple[Tuning, ...]:
    """What is worth compiling, best guess first.

    Measured on compiled kernels: 128 queries want 8 warps (4 spill and serialise matrix instructions); pipeline stages
    change shared memory and little else; 128 × 128 at head dimension 128 leaves no register for a mask. float32 splits
    its operands in two; matrix instructions before Hopper's take queries from registers.
    """
    if target.gpu is None:
        return (INTERPRETED,)
    d, e, size = sum(parts(demand.head_dim)), sum(parts(demand.value_dim)), BYTES[demand.dtype]
    found = []
    for block_m, block_n, warps in _SHAPES:
        stages = (target.gpu.shared // size - block_m * d) // (block_n * (d + e))
        if stages >= 1 and _fits(target.gpu, demand, block_m, block_n, warps * 32):
            found.append(Tuning(block_m, block_n, warps, min(stages, 3)))
    return tuple(found) or (Tuning(16, 16, 4, 1),)


def _fits(gpu: Gpu, demand: Demand, block_m: int, block_n: int, threads: int) -> bool:
    """Whether a thread has registers for its share of the tile."""
    d, e = sum(parts(demand.head_dim)), sum(parts(demand.value_dim))
    single = demand.dtype in ("f32", "f64")
    split = bool(parts(demand.head_dim)[1] or parts(demand.value_dim)[1])
    tile = block_m * (e + block_n * (2 if demand.pairs else 1)) // threads + 16 * split
    if (demand.pairs or single) and "UTCHMMA" in gpu.matrix and tile > _REGISTERS // 2:
        return False
    if tile > max(_REGISTERS * 2 // 3 if single else _REGISTERS, e // 2 + 16):
        return False
    if "HMMA" not in gpu.matrix:
        return True
    queries = block_m * d // threads * 2 if single else block_m * d // (threads * 2)
    return tile + queries + 16 * (demand.pairs or single) <= _REGISTERS + 32


def tuning(target: Capability, block_m: int, block_n: int, demand: Demand) -> Tuning:
    """The compile options of a kernel with these blocks."""
    known = {(t.block_m, t.block_n): t for t in candidates(target, demand)}
    return known.get((block_m, block_n), Tuning(block_m, block_n, 8 if block_m >= 128 else 4, 2))
