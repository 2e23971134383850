"""The linear layer of few rows, for decoding: the one operator outside attention that has a kernel of ours.

    attnc::skinny_linear(Tensor x, Tensor packed, Tensor? bias, int out_features) -> Tensor

x: [..., K] f32 or bf16, any strides. packed: :attr:`Packed.panels`, f32 or bf16 whatever x is. bias: [out_features],
f32 or bf16. Result: [..., out_features], contiguous, in x's dtype. Sums are in float32; each row's bits depend on that
row and the weights alone, not on how many rows there are, where the row stands and how many threads work. Any number
of rows is taken, and the weights are read from memory once for all of them; only for up to about 8 is that all it
costs. There is no autograd formula. Raises RuntimeError for operands that don't fit.

Where the kernel can't be built, torch's own linear does the work, slower, and the promise about bits doesn't hold.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from attnc.codegen.source import INCLUDE_DIR, headers_digest
from attnc.runtime import kernels
from attnc.runtime.dispatch import OpLibrary
from attnc.runtime.entry import BuildSpec
from attnc.runtime.errors import BuildError, ToolchainMissing
from attnc.runtime.toolchain import Toolchain

PANEL = 16
"""Output features side by side in packed weights, on every machine (``PANEL`` in ``csrc/skinny.h``)."""
DTYPES = (torch.float32, torch.bfloat16)
SCHEMA = "skinny_linear(Tensor x, Tensor packed, Tensor? bias, int out_features) -> Tensor"
CSRC = Path(__file__).parent / "csrc"
FLAGS = (
    "-O3",
    "-std=c++17",
    "-march=native",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",  # fuses multiply_add where the compiler has no builtin for it
    "-Wno-psabi",
    "-DTORCH_TARGET_VERSION=0x020b000000000000",  # torch 2.11, the oldest we take
    "-ltorch_cpu",
)


class Packed(NamedTuple):
    """Weights as ``attnc::skinny_linear`` reads them."""

    panels: Tensor
    """[ceil(out_features / 16), K, 16]: 16 output features side by side, zeros beyond the last one."""
    out_features: int


def pack(weight: Tensor) -> Packed:
    """A copy of ``weight`` [N, K], f32 or bf16, in panels of the same dtype. Raises ValueError for any other."""
    if weight.dim() != 2 or weight.dtype not in DTYPES:
        raise ValueError(
            f"packing a weight of shape {tuple(weight.shape)} and {weight.dtype}: attnc::skinny_linear takes "
            f"[out_features, in_features] in float32 or bfloat16"
        )
    features, depth = weight.shape
    whole, rest = divmod(features, PANEL)
    weight = weight.detach()
    panels = weight.new_empty(whole + (rest > 0), depth, PANEL)
    panels[:whole] = weight[: whole * PANEL].reshape(whole, PANEL, depth).mT
    if rest:
        panels[whole] = functional.pad(weight[whole * PANEL :].mT, (0, PANEL - rest))
    return Packed(panels, features)


def unpack(packed: Packed) -> Tensor:
    """The weight [N, K] that was packed."""
    return packed.panels.mT.flatten(0, 1)[: packed.out_features]


def linear(x: Tensor, packed: Packed, bias: Tensor | None = None) -> Tensor:
    """``attnc::skinny_linear`` of x [..., K]: [..., out_features] in x's dtype."""
    result: Tensor = skinny_linear(x, packed.panels, bias, packed.out_features)
    return result


@functools.cache
def available() -> bool:
    """Whether the op has its kernel here. The first call loads it, and builds it where it isn't built (seconds).

    Gives one RuntimeWarning where it has none.
    """
    try:
        entry = kernels.library_entry(skinny_spec, f"skinny-torch{torch.__version__}")
        ctypes.CDLL(str(entry.library))  # which registers the CPU kernel
    except ToolchainMissing as error:
        kernels.warn_no_toolchain(str(error))
        return False
    except (BuildError, OSError) as error:
        warnings.warn(
            f"attnc: attnc::skinny_linear can't be built or loaded, torch's linear does its work: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def skinny_spec(toolchain: Toolchain) -> BuildSpec:
    """What building the op's kernel with ``toolchain`` for the torch of this process depends on."""
    torch_root = Path(torch.__file__).parent
    return BuildSpec(
        kind="skinny",
        name="skinny",
        files={name: (CSRC / name).read_text() for name in ("skinny.cpp", "skinny.h")},
        source="skinny.cpp",
        library="skinny.so",
        flags=FLAGS,
        toolchain=toolchain,
        includes=(INCLUDE_DIR, torch_root / "include"),
        locations=(f"-L{torch_root / 'lib'}",),
        depends={"torch": torch.__version__, "headers": headers_digest()},
    )


def _first(x: Tensor, packed: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    """Reached on any device, and on CPUs until the kernel is loaded."""
    _check(x, packed, bias, out_features)
    if x.device.type == "cpu" and available():
        return linear(x, Packed(packed, out_features), bias)
    with torch.no_grad():
        weight = unpack(Packed(packed, out_features)).float()
        wide = functional.linear(x.float(), weight, None if bias is None else bias.float())
        return wide.to(x.dtype).contiguous()


def _fake(x: Tensor, packed: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    _check(x, packed, bias, out_features)
    return x.new_empty([*x.shape[:-1], out_features])


def _check(x: Tensor, packed: Tensor, bias: Tensor | None, out_features: int) -> None:
    """The checks of ``csrc/skinny.cpp``, for the ways that don't lead there."""
    given = {"x": x, "packed": packed, **({} if bias is None else {"bias": bias})}
    for name, tensor in given.items():
        _require(tensor.device == x.device, f"{name} is on {tensor.device}, x on {x.device}; move it there")
        _require(tensor.dtype in DTYPES, f"{name} is neither float32 nor bfloat16; convert it")
    _require(
        packed.dim() == 3 and packed.shape[2] == PANEL and packed.is_contiguous(),
        "packed is not what pack() returns, a contiguous tensor [panels, K, 16]",
    )
    _require(
        packed.shape[0] == -(-out_features // PANEL),
        f"packed has {packed.shape[0]} panels of 16 features, which is not what {out_features} features need",
    )
    found = "no dimension" if x.dim() < 1 else f"{x.shape[-1]} features"
    fits = x.dim() >= 1 and x.shape[-1] == packed.shape[1]
    _require(fits, f"x has {found}, packed was made for {packed.shape[1]}")
    fits = bias is None or (bias.dim() == 1 and bias.shape[0] == out_features)
    _require(fits, f"bias is not of shape [{out_features}]")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RuntimeError(f"attnc::skinny_linear: {otherwise}")


_library = OpLibrary("FRAGMENT")
_library.define(SCHEMA)
_library.kernel("skinny_linear", _first)
_library.fake("skinny_linear", _fake)

skinny_linear = torch.ops.attnc.skinny_linear.default
