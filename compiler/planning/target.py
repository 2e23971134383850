"""Which target the kernels of an attention are emitted for: what the options ask, else what its device is."""

from __future__ import annotations

import functools

from attnc.codegen.targets import CAPABILITIES, Capability, capability, tile_sizes
from attnc.codegen.triton.tuning import Demand, candidates
from attnc.ir.types import TensorType
from attnc.ir.values import Value

DEFAULT = "cpu"


def target_of(result: Value, wanted: str | None) -> str:
    """``wanted``, else the target of the device of an attention's result. Raises ValueError where there is none."""
    assert isinstance(result.type, TensorType)
    return capability(wanted).name if wanted is not None else device_target(result.type.device)


def device_target(device: str) -> str:
    """The target of a device (``cpu``, ``cuda:0``). Raises ValueError where kernels can't be emitted for it."""
    kind = device.partition(":")[0]
    if kind == "cpu":
        return DEFAULT
    if kind != "cuda":
        raise ValueError(f"no kernel for device {device}: attnc emits kernels for CPUs, CUDA and HIP devices")
    return _gpu_target(device)


@functools.cache
def _gpu_target(device: str) -> str:
    import torch

    if not torch.cuda.is_available():
        raise ValueError(f"no kernel for device {device}: it isn't at hand, so its kind isn't known; say target=")
    if torch.version.hip:
        name = torch.cuda.get_device_properties(device).gcnArchName.partition(":")[0]
        known = {name: name for name in CAPABILITIES if name.startswith("gfx")}
    else:
        major, minor = torch.cuda.get_device_capability(device)
        name = f"sm_{major}{minor}"
        known = {name: name for name in CAPABILITIES if name.startswith("sm_")} | _RELATED
    if name not in known:
        raise ValueError(f"attnc emits no kernels for {name}; it does for {', '.join(sorted(known))}")
    return known[name]


_RELATED = {"sm_87": "sm_86", "sm_103": "sm_100", "sm_121": "sm_120"}
"""GPUs whose kernels are planned as those of another one; Triton compiles them for the GPU at hand."""


def blocks(target: Capability, demand: Demand) -> tuple[int, int]:
    """(block_m, block_n) of a kernel: queries and keys of a tile."""
    if target.language == "c++":
        return tile_sizes(target, demand.head_dim, demand.value_dim)
    best = candidates(target, demand)[0]
    return best.block_m, best.block_n
