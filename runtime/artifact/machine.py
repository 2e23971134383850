"""What this machine runs of an artifact: which machine code, and what can be built here."""

from __future__ import annotations

import functools
import platform

from attnc.codegen.source import headers_digest
from attnc.runtime.abi import LAUNCHER_ABI
from attnc.runtime.artifact.manifest import Binary, Kernel
from attnc.runtime.toolchain import cpu_features, cpu_id


def runs_here(binary: Binary) -> bool:
    """Whether a processor's machine code is for the one of this machine: of its architecture, with all it needs."""
    if binary.machine != platform.machine() or binary.abi != (LAUNCHER_ABI if binary.plan is None else 0):
        return False
    return binary.cpu == cpu_id() if binary.cpu is not None else _supports(binary.features)


def builds_here(kernel: Kernel) -> bool:
    """Whether a source can be built for this processor: it is in C++, and was emitted for the templates at hand."""
    if kernel.language != "c++" or kernel.headers != headers_digest():
        return False
    return kernel.machine in (None, platform.machine()) and _supports(kernel.features)


def _supports(features: tuple[str, ...]) -> bool:
    return set(features) <= _features()


@functools.cache
def _features() -> frozenset[str]:
    return cpu_features()
