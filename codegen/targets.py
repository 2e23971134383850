"""What kernels can be emitted for: one frozen record per target, and the tile sizes that suit it."""

from __future__ import annotations

from dataclasses import dataclass

CPP_FLAGS = (
    "-O3",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",  # ISO mode turns it off in GCC
    "-Wno-psabi",
)
"""Never ``-ffast-math``: infinities and NaN carry meaning here."""


@dataclass(frozen=True)
class Capability:
    """One target: how its kernels are compiled and what its tiles have to fit."""

    name: str
    language: str
    flags: tuple[str, ...]
    dtypes: tuple[str, ...] = ("f32", "bf16", "f16")
    """Of q, k, v and out, in any combination."""
    rows: int = 6
    """Rows of the register tile (MR in ``attnc/vector.h``)."""
    cache: int = 128 << 10
    """Bytes a packed block of keys and values may take."""


CAPABILITIES = {
    c.name: c
    for c in (
        Capability("cpu", "c++", (*CPP_FLAGS, "-march=native")),
        Capability("cpu-sse2", "c++", (*CPP_FLAGS, "-march=x86-64")),
        Capability("cpu-avx2", "c++", (*CPP_FLAGS, "-march=haswell")),
        Capability("cpu-avx512", "c++", (*CPP_FLAGS, "-march=skylake-avx512"), rows=8),
        Capability("cpu-neon", "c++", (*CPP_FLAGS, "-march=armv8-a"), rows=8),
    )
}


def capability(target: str) -> Capability:
    """The record of a target. Raises ValueError with the known names where there is none."""
    try:
        return CAPABILITIES[target]
    except KeyError:
        raise ValueError(f"unknown target {target!r}; known: {', '.join(sorted(CAPABILITIES))}") from None


def tile_sizes(target: Capability, head_dim: int | None, value_dim: int | None) -> tuple[int, int]:
    """(block_m, block_n) of a kernel; a dimension that is not static counts as 128.

    Eight strips of rows; 128 keys, measured best for head dimensions 32 to 128 (fewer keys rescale and reload the
    accumulator more often, more keys waste work on the edges of a mask). Halved while a packed block of keys and values
    exceeds a quarter of a common L2 cache.
    """
    width = (128 if head_dim is None else head_dim) + (128 if value_dim is None else value_dim)
    block_n = 128
    while block_n > 32 and block_n * width * 4 > target.cache:
        block_n //= 2
    return 8 * target.rows, block_n
