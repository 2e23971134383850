"""What an artifact says of itself: frozen records and their JSON, versioned. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from attnc.runtime.artifact.container import Malformed
from attnc.runtime.artifact.reading import (
    digest,
    dump,
    field,
    natural,
    optional,
    parse,
    sha256,
    strings,
    typed,
)

FORMAT = "attnc-artifact"
VERSION = 1
MANIFEST, PROGRAM, GRAPH, WEIGHTS = "manifest.json", "program.json", "graph.ir", "weights.safetensors"
LANGUAGES = ("c++", "triton")
BASE = "base"
"""In place of a target: the plan that the program names."""


@dataclass(frozen=True)
class Entry:
    """Another entry of the file."""

    size: int
    """In bytes."""
    sha256: str


@dataclass(frozen=True)
class Port:
    """An input or an output. For people: what has to hold is in the program."""

    name: str
    dtype: str
    """``f32``, ``i64``, …; ``int``, ``float``, ``bool`` for a number, ``any`` for what nothing reads, ``none``."""
    shape: tuple[str, ...]
    """Each dimension as a formula over named sizes; ``?`` where it depends on data."""
    mutated: bool = False
    """An input that is written in place."""


@dataclass(frozen=True)
class Bounds:
    """Of a named size, inclusive; None: unbounded."""

    name: str
    lo: int
    hi: int | None


@dataclass(frozen=True)
class Kernel:
    """The source of a plan for one target."""

    plan: int
    target: str
    name: str
    language: str
    """``c++`` or ``triton``."""
    flags: tuple[str, ...]
    headers: str
    """SHA-256 of the templates the text includes; empty where it includes none."""
    machine: str | None
    """What it can be built for: ``x86_64``, ``aarch64``, ``cuda``, ``hip``; None: any processor."""
    features: tuple[str, ...]
    """Flags of a processor that its build needs."""

    @property
    def source(self) -> str:
        """The entry of its text."""
        return f"kernels/{self.name}_{self.plan}{'.cpp' if self.language == 'c++' else '.py'}"


@dataclass(frozen=True)
class Binary:
    """Machine code of a kernel, or of the launcher, and the machines that run it."""

    entry: str
    target: str
    plan: int | None
    """None: the launcher."""
    machine: str
    """``x86_64``, ``aarch64``; ``cuda`` or ``hip``."""
    cpu: str | None
    """The only kind of processor that runs it (:func:`~attnc.runtime.toolchain.cpu_id`); None: any with features."""
    features: tuple[str, ...]
    """Flags of a processor that it needs; of a GPU its architecture."""
    abi: int
    """Of the launcher's interface: 0 for kernels."""
    toolchain: str


@dataclass(frozen=True)
class Manifest:
    """All of it. Entries other than the manifest, by name."""

    name: str
    attnc: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    sizes: tuple[Bounds, ...]
    targets: tuple[str, ...]
    attentions: tuple[Mapping[str, int], ...]
    """For each plan the program calls, the plan for each target, under ``base`` the one the program names."""
    kernels: tuple[Kernel, ...]
    binaries: tuple[Binary, ...]
    blobs: tuple[str, ...]
    """Entries that steps name in an argument."""
    entries: Mapping[str, Entry]

    def to_json(self) -> str:
        """Canonical JSON."""
        return dump(
            {
                "format": FORMAT,
                "version": VERSION,
                "name": self.name,
                "attnc": self.attnc,
                "inputs": [asdict(port) for port in self.inputs],
                "outputs": [{k: v for k, v in asdict(port).items() if k != "mutated"} for port in self.outputs],
                "sizes": [asdict(bounds) for bounds in self.sizes],
                "targets": self.targets,
                "attentions": [{key: str(plan) for key, plan in one.items()} for one in self.attentions],
                "kernels": [{**asdict(kernel), "plan": str(kernel.plan)} for kernel in self.kernels],
                "binaries": [_binary_json(binary) for binary in self.binaries],
                "blobs": self.blobs,
                "entries": {name: asdict(entry) for name, entry in self.entries.items()},
            }
        )

    @staticmethod
    def from_json(text: bytes) -> Manifest:
        """The manifest of a text. Raises Malformed on another format or version, or where a part is of another kind."""
        data = parse(text)
        if field(data, "format", str) != FORMAT:
            raise Malformed("it is of another format")
        if (version := field(data, "version", int)) != VERSION:
            raise Malformed(f"it is of version {version}, this build of attnc reads {VERSION}: compile the model again")
        return Manifest(
            name=field(data, "name", str),
            attnc=field(data, "attnc", str),
            inputs=tuple(_port(item, field(item, "mutated", bool)) for item in field(data, "inputs", list)),
            outputs=tuple(_port(item) for item in field(data, "outputs", list)),
            sizes=tuple(_bounds(item) for item in field(data, "sizes", list)),
            targets=strings(data, "targets"),
            attentions=tuple(_attention(item) for item in field(data, "attentions", list)),
            kernels=tuple(_kernel(item) for item in field(data, "kernels", list)),
            binaries=tuple(_binary(item) for item in field(data, "binaries", list)),
            blobs=strings(data, "blobs"),
            entries={name: _entry(item) for name, item in field(data, "entries", dict).items()},
        )

    def target_plan(self, plan: int, target: str) -> int | None:
        """The plan for a target in place of ``plan``, which the program names; None where there is none."""
        return next((one.get(target) for one in self.attentions if one["base"] == plan), None)


def _binary_json(binary: Binary) -> dict[str, Any]:
    return {**asdict(binary), "plan": None if binary.plan is None else str(binary.plan)}


def _port(data: Any, mutated: bool = False) -> Port:
    return Port(field(data, "name", str), field(data, "dtype", str), strings(data, "shape"), mutated)


def _bounds(data: Any) -> Bounds:
    return Bounds(field(data, "name", str), field(data, "lo", int), optional(data, "hi", int))


def _attention(data: Any) -> dict[str, int]:
    found = {key: digest(value, key) for key, value in typed(data, dict, "attentions").items()}
    if "base" not in found:
        raise Malformed("an attention has no 'base'")
    return found


def _kernel(data: Any) -> Kernel:
    language, name = field(data, "language", str), field(data, "name", str)
    if language not in LANGUAGES or not name.isidentifier() or not name.isascii():
        raise Malformed(f"a kernel is called {name!r} and written in {language!r}")
    plan = digest(field(data, "plan", str), "plan")
    return Kernel(
        plan=plan,
        target=field(data, "target", str),
        name=name,
        language=language,
        flags=strings(data, "flags"),
        headers=field(data, "headers", str),
        machine=optional(data, "machine", str),
        features=strings(data, "features"),
    )


def _binary(data: Any) -> Binary:
    plan = optional(data, "plan", str)
    return Binary(
        entry=field(data, "entry", str),
        target=field(data, "target", str),
        plan=None if plan is None else digest(plan, "plan"),
        machine=field(data, "machine", str),
        cpu=optional(data, "cpu", str),
        features=strings(data, "features"),
        abi=natural(data, "abi"),
        toolchain=field(data, "toolchain", str),
    )


def _entry(data: Any) -> Entry:
    return Entry(natural(data, "size"), sha256(data, "sha256"))
