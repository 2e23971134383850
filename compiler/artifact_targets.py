"""Kernels of an artifact: for each target the plans of all attentions, their sources and their machine code."""

from __future__ import annotations

import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from attnc.codegen.emit import emit
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.codegen.targets import Capability, capability
from attnc.compiler.planning.plan import plan_attention
from attnc.compiler.unsavable import NotSavable
from attnc.ir.values import Op
from attnc.runtime import kernels, launcher
from attnc.runtime.abi import LAUNCHER_ABI
from attnc.runtime.artifact.manifest import BASE, Binary, Kernel
from attnc.runtime.entry import Entry
from attnc.runtime.errors import BuildError, ToolchainMissing
from attnc.runtime.toolchain import Toolchain, cpu_id, find_toolchain

_X86 = ("bmi1", "bmi2", "avx2", "fma", "f16c", "movbe", "abm")
PROCESSORS: dict[str, tuple[str | None, tuple[str, ...]]] = {
    "cpu": (None, ()),
    "cpu-sse2": ("x86_64", ()),
    "cpu-avx2": ("x86_64", _X86),
    "cpu-avx512": ("x86_64", (*_X86, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    "cpu-neon": ("aarch64", ("asimd",)),
}
"""Target → architecture (None: any, it is built for the machine at hand) and processor flags that a build needs."""


@dataclass
class Kernels:
    """Collects what goes into the file. ``plans``: base plan → target → plan."""

    plans: dict[int, dict[str, int]] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    binaries: list[Binary] = field(default_factory=list)
    entries: dict[str, bytes] = field(default_factory=dict)
    """Content by name: plans, sources, machine code and its records."""

    def add_source(self, plan: KernelPlan, source: Source) -> None:
        """A plan and its source, once."""
        known = capability(plan.target)
        machine, features = PROCESSORS.get(plan.target, (known.gpu.backend if known.gpu else None, ()))
        kernel = Kernel(
            plan.digest, plan.target, source.name, source.language, source.flags, source.headers, machine, features
        )
        if kernel not in self.kernels:
            self.kernels.append(kernel)
            self.entries[f"plans/{plan.digest}.json"] = plan.to_json().encode()
            self.entries[kernel.source] = source.text.encode()

    def add_binary(self, binary: Binary, content: bytes) -> None:
        """Machine code, once."""
        if binary.entry not in self.entries:
            self.binaries.append(binary)
            self.entries[binary.entry] = content


def collect(ops: list[Op], base: Mapping[int, tuple[KernelPlan, Source]], targets: tuple[str, ...]) -> Kernels:
    """The kernels of these attentions for the targets. ``base``: plan and source that the program calls, by digest.

    Raises NotSavable where a target has none.
    """
    found = Kernels()
    for op in ops:
        digest: int = op.meta["plan"]
        if digest in found.plans:
            continue
        plan, source = base[digest]
        if source.language != "c++":
            raise NotSavable(
                "ATTNC-ARTIFACT-TARGET",
                f"the program was compiled for {plan.target}; compile it for cpu and name {plan.target} as a target",
            )
        found.add_source(plan, source)
        found.plans[digest] = {BASE: digest, **{target: _add(found, op, plan, target) for target in targets}}
    if any(binary.machine == platform.machine() for binary in found.binaries):
        _add_launcher(found)
    return found


def _add(found: Kernels, op: Op, base: KernelPlan, target: str) -> int:
    """Plan, source and machine code of one attention for one target; the plan's digest."""
    try:
        known = capability(target)
        if known.gpu is not None:
            return _add_gpu(found, op, known)
        if known.language != "c++":
            raise ValueError(f"{target} has no machine code")
        plan = base if base.target == target else plan_attention(op, target)
        source = emit(plan)
        found.add_source(plan, source)
        _add_cpu(found, plan, source)
    except (ValueError, BuildError) as error:
        raise NotSavable("ATTNC-ARTIFACT-TARGET", f"{target}: {error}") from error
    return plan.digest


def _add_cpu(found: Kernels, plan: KernelPlan, source: Source) -> None:
    """The library of a kernel; none where no compiler is: it is built, or done without, where it is loaded."""
    machine, features = PROCESSORS[plan.target]
    if machine not in (None, platform.machine()):
        raise ValueError(f"its kernels are for {machine}, this machine is {platform.machine()}")
    try:
        entry, toolchain = kernels.source_entry(plan, source), find_toolchain(_cxx())
    except ToolchainMissing:
        return
    found.add_binary(
        Binary(
            entry=f"binaries/{plan.target}/{source.name}_{plan.digest}.so",
            target=plan.target,
            plan=plan.digest,
            machine=platform.machine(),
            cpu=cpu_id() if machine is None else None,
            features=features,
            abi=0,
            toolchain=_version(toolchain),
        ),
        _library(entry),
    )


def _add_launcher(found: Kernels) -> None:
    try:
        entry, toolchain = launcher.obtain(), find_toolchain(_cxx())
    except (ToolchainMissing, BuildError):
        return  # kernels are called from Python then: every call takes longer, with a warning
    name, machine = f"binaries/launcher-{platform.machine()}.so", platform.machine()
    binary = Binary(name, "launcher", None, machine, None, (), LAUNCHER_ABI, _version(toolchain))
    found.add_binary(binary, _library(entry))


def _add_gpu(found: Kernels, op: Op, target: Capability) -> int:
    """A kernel compiled ahead of time. Raises NotSavable where Triton is missing or refuses."""
    from attnc.compiler.machine.build import CompileFailure
    from attnc.compiler.machine.package import package
    from attnc.compiler.machine.select import select

    assert target.gpu is not None
    try:
        done = select(op, target)
    except (CompileFailure, RuntimeError) as error:
        raise NotSavable("ATTNC-ARTIFACT-TARGET", str(error)) from error
    name = f"{done.source.name}_{done.plan.digest}"
    with tempfile.TemporaryDirectory(prefix="attnc-") as folder:
        record = package(done, name, Path(folder))
        suffix = "cubin" if target.gpu.backend == "cuda" else "hsaco"
        code = record.with_suffix(f".{suffix}").read_bytes()
        text = record.read_bytes()
    found.add_source(done.plan, done.source)
    entry = f"binaries/{target.name}/{name}.{suffix}"
    arch = str(target.gpu.arch)
    binary = Binary(entry, target.name, done.plan.digest, target.gpu.backend, None, (arch,), 0, _triton())
    found.add_binary(binary, code)
    found.entries[f"binaries/{target.name}/{name}.json"] = text
    return done.plan.digest


def _cxx() -> str | None:
    from attnc.runtime import config

    return config.current().cxx


def _library(entry: Entry) -> bytes:
    return entry.library.read_bytes()


def _version(toolchain: Toolchain) -> str:
    """Without the folder it lies in."""
    return toolchain.version


def _triton() -> str:
    from importlib.metadata import version

    return f"triton {version('triton')}"
