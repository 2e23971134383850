"""What kernels can be emitted for: one frozen record per target, and the tile sizes that suit it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
class Gpu:
    """What machine code for one kind of GPU is compiled for and has to fit.

    Sources: the tables of compute capabilities in NVIDIA's CUDA programming guide; AMD's CDNA instruction set guides.
    """

    backend: Literal["cuda", "hip"]
    arch: int | str
    """Triton's name: 90, ``gfx942``."""
    shared: int
    """Bytes of shared memory one program may use."""
    shared_per_core: int
    """Bytes of shared memory of a multiprocessor or compute unit."""
    warps_per_core: int
    programs_per_core: int
    matrix: tuple[str, ...]
    """What its matrix instructions' names begin with."""
    precision: Literal["tf32x3", "ieee"]
    """Of products of float32: three TF32 products (error about 2⁻²²) where matrix units have TF32, else exact ones."""
    warp_size: int = 32
    registers_per_core: int = 1 << 16
    """32-bit registers, over all lanes."""
    registers_per_thread: int = 255
    reserved_shared: int = 1024
    """Bytes of shared memory the system takes for each program."""
    tensor_memory_access: bool = False
    """Tiles can be copied by descriptor (TMA)."""
    float8: bool = False
    """It converts from and to float8_e4m3fn."""


@dataclass(frozen=True)
class Capability:
    """One target: how its kernels are compiled and what its tiles have to fit."""

    name: str
    language: Literal["c++", "triton"]
    flags: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("f32", "bf16", "f16")
    """Of q, k, v and out, in any combination."""
    rows: int = 6
    """C++: rows of the register tile (MR in ``attnc/vector.h``)."""
    cache: int = 128 << 10
    """C++: bytes a packed block of keys and values may take."""
    gpu: Gpu | None = None
    """None for CPUs, and for kernels that run in Triton's interpreter."""


def _cpu(name: str, march: str, rows: int = 6) -> Capability:
    return Capability(name, "c++", (*CPP_FLAGS, f"-march={march}"), rows=rows)


def _sm(arch: int, shared: int, warps: int, programs: int, *matrix: str) -> Capability:
    """``shared``: KiB of a multiprocessor; one program may use all but one of them."""
    gpu = Gpu(
        "cuda", arch, (shared - 1) << 10, shared << 10, warps, programs, matrix, "tf32x3",
        tensor_memory_access=arch >= 90, float8=arch >= 89,
    )  # fmt: skip
    return Capability(f"sm_{arch}", "triton", gpu=gpu)


def _gfx(arch: str, shared: int) -> Capability:
    """``shared``: KiB of local data share. A lane has 512 registers, of which 256 are accumulators' too."""
    gpu = Gpu(
        "hip", arch, shared << 10, shared << 10, 32, 32, ("v_mfma",), "ieee",
        warp_size=64, registers_per_core=4 * 512 * 64, registers_per_thread=512, reserved_shared=0,
        float8=arch == "gfx950",
    )  # fmt: skip
    return Capability(arch, "triton", gpu=gpu)


CAPABILITIES = {
    c.name: c
    for c in (
        _cpu("cpu", "native"),
        _cpu("cpu-sse2", "x86-64"),
        _cpu("cpu-avx2", "haswell"),
        _cpu("cpu-avx512", "skylake-avx512", rows=8),
        _cpu("cpu-neon", "armv8-a", rows=8),
        Capability("triton-interpret", "triton"),
        _sm(80, 164, 64, 32, "HMMA"),
        _sm(86, 100, 48, 16, "HMMA"),
        _sm(89, 100, 48, 24, "HMMA", "QMMA"),
        _sm(90, 228, 64, 32, "HGMMA", "QGMMA"),
        _sm(100, 228, 64, 32, "UTCHMMA", "UTCQMMA"),
        _sm(120, 100, 48, 24, "HMMA", "QMMA"),
        _gfx("gfx90a", 64),
        _gfx("gfx942", 64),
        _gfx("gfx950", 160),
    )
}


def capability(target: str) -> Capability:
    """The record of a target. Raises ValueError with the known names where there is none."""
    try:
        return CAPABILITIES[target]
    except KeyError:
        raise ValueError(f"unknown target {target!r}; known: {', '.join(sorted(CAPABILITIES))}") from None


def tile_sizes(target: Capability, head_dim: int, value_dim: int) -> tuple[int, int]:
    """(block_m, block_n) of a C++ kernel.

    Eight strips of rows; 128 keys, measured best for head dimensions 32 to 128 (fewer keys rescale and reload the
    accumulator more often, more keys waste work on the edges of a mask). Halved while a packed block of keys and values
    exceeds a quarter of a common L2 cache.
    """
    width = head_dim + value_dim
    block_n = 128
    while block_n > 32 and block_n * width * 4 > target.cache:
        block_n //= 2
    return 8 * target.rows, block_n
