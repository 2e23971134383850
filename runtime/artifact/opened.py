"""An artifact, opened and checked: its manifest, its program, its plans. Nothing of it has run yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.runtime.artifact import weights
from attnc.runtime.artifact.container import Container, Malformed
from attnc.runtime.artifact.manifest import GRAPH, MANIFEST, PROGRAM, WEIGHTS, Kernel, Manifest, Port
from attnc.runtime.host_program import HostProgram
from attnc.runtime.host_steps import Arg

ATTENTION = "attnc.attention.default"
OURS = (ATTENTION,)
"""Operators of attnc that a program of an artifact may call: they check what they are given."""
PLAN = 4
"""Place of the plan among that op's arguments."""
_BROKEN = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    ArithmeticError,
    RecursionError,
    SyntaxError,
    MemoryError,
)
"""What reading damaged data may raise; each is told as an ArtifactError."""


@dataclass(frozen=True)
class Opened:
    """A whole artifact whose parts fit each other."""

    container: Container
    manifest: Manifest
    program: HostProgram

    def constants(self) -> dict[str, Tensor]:
        """The program's tensors, of the mapped file. Raises ArtifactError."""
        with reading(self.container, WEIGHTS):
            return weights.read(self.container.view(WEIGHTS), self.program.constants)

    def plan(self, digest: int) -> KernelPlan:
        """A plan by its digest. Raises ArtifactError."""
        entry = f"plans/{digest}.json"
        with reading(self.container, entry):
            plan = KernelPlan.from_json(self.container.text(entry))
            if plan.digest != digest:
                raise Malformed(f"it holds the plan {plan.digest}")
        return plan

    def source(self, kernel: Kernel) -> Source:
        """A kernel's source. Raises ArtifactError."""
        text = self.container.text(kernel.source)
        return Source(kernel.language, kernel.name, text, kernel.plan, kernel.flags, kernel.headers)


@contextmanager
def reading(container: Container, entry: str) -> Iterator[None]:
    """Errors of the block as ArtifactError about an entry."""
    try:
        yield
    except _BROKEN as error:
        text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise container.error(text, entry) from error


def open_artifact(path: str | Path) -> Opened:
    """Read and check a file: structure, version, hashes, and that its parts fit. Raises ArtifactError."""
    container = Container(Path(path))
    content = container.checked(MANIFEST)
    with reading(container, MANIFEST):
        manifest = Manifest.from_json(content)
        _check_entries(container, manifest)
        _check_references(manifest)
    for name, entry in manifest.entries.items():
        if hashlib.sha256(container.view(name)).hexdigest() != entry.sha256:
            raise container.error("its content is not what the manifest says", name)
    with reading(container, PROGRAM):
        program = HostProgram.from_json(container.text(PROGRAM))
    with reading(container, MANIFEST):
        _check_program(manifest, program)
    return Opened(container, manifest, program)


def _check_entries(container: Container, manifest: Manifest) -> None:
    there = {name: stored.size for name, stored in container.entries.items() if name != MANIFEST}
    named = {name: entry.size for name, entry in manifest.entries.items()}
    for name in sorted(there.keys() ^ named.keys()):
        raise Malformed(f"{name} is {'not in the file' if name in named else 'in the file and not in the manifest'}")
    for name, size in named.items():
        if there[name] != size:
            raise Malformed(f"{name} has {there[name]} bytes, not {size}")


def _check_references(manifest: Manifest) -> None:
    wanted = {PROGRAM, GRAPH, WEIGHTS, *manifest.blobs, *(binary.entry for binary in manifest.binaries)}
    for kernel in manifest.kernels:
        wanted |= {kernel.source, f"plans/{kernel.plan}.json"}
    wanted |= {f"plans/{plan}.json" for one in manifest.attentions for plan in one.values()}
    for name in sorted(wanted - manifest.entries.keys()):
        raise Malformed(f"it names the entry {name}, which there is not")
    planned = {kernel.plan for kernel in manifest.kernels}
    for binary in manifest.binaries:
        if binary.plan is not None and binary.plan not in planned:
            raise Malformed(f"the binary {binary.entry} is of the plan {binary.plan}, which has no kernel")


def _check_program(manifest: Manifest, program: HostProgram) -> None:
    """The manifest's account of a program: names, dtypes and ranks of inputs, number of outputs, plans."""
    inputs = [(given.name, given.dtype, len(given.shape) if _is_tensor(given.dtype) else 0) for given in program.inputs]
    if [(port.name, port.dtype, len(port.shape)) for port in manifest.inputs] != inputs:
        raise Malformed(f"its inputs are not those of {PROGRAM}")
    names = [port.name for port in manifest.outputs]
    if len(names) != len(program.outputs) or len(set(names)) != len(names):
        raise Malformed(f"it has {len(set(names))} outputs, {PROGRAM} has {len(program.outputs)}")
    foreign = sorted({step.op for step in program.steps if step.op.startswith("attnc.")} - set(OURS))
    if foreign:
        raise Malformed(f"its program calls {', '.join(foreign)}, which none of an artifact may")
    called = {plan_of(step.args) for step in program.steps if step.op == ATTENTION}
    if called != {one["base"] for one in manifest.attentions}:
        raise Malformed(f"its attentions are not those of {PROGRAM}")


def plan_of(args: tuple[Arg, ...]) -> int:
    """The plan an attention's arguments name. Raises Malformed."""
    plan = args[PLAN] if len(args) > PLAN else None
    if type(plan) is not int:
        raise Malformed("an attention names no plan")
    return plan


def _is_tensor(dtype: str) -> bool:
    return dtype not in ("int", "float", "bool", "any")


def described(port: Port) -> str:
    """``f32[B, S]``."""
    return f"{port.dtype}[{', '.join(port.shape)}]" if _is_tensor(port.dtype) and port.dtype != "none" else port.dtype
