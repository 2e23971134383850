"""What has to be known about a kernel's machine code to launch it, and its versioned JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

RECORD_VERSION = 1

Backend = Literal["cuda", "hip"]
Assumed = Literal["nothing", "aligned", "one"]
Constant = int | float | bool | str | None


class BinaryError(RuntimeError):
    """A packaged kernel that isn't there, is damaged, or was written by another version."""


@dataclass(frozen=True)
class Parameter:
    """One run-time parameter of the kernel's function, in order.

    ``type`` is Triton's name of it: ``*bf16``, ``i32``, ``fp32``, ``tensordesc<bf16[128, 64]>``.
    """

    name: str
    type: str
    assumed: Assumed = "nothing"
    """What the machine code takes for granted: that the value (an address in bytes, a number) is a multiple of 16, or
    that it is 1. A parameter assumed to be 1 is none of the machine code."""

    @property
    def is_pointer(self) -> bool:
        return self.type.startswith("*")

    @property
    def is_descriptor(self) -> bool:
        return self.type.startswith("tensordesc<")

    @property
    def element(self) -> str:
        """Triton's name of the elements a pointer or descriptor leads to: ``bf16``."""
        return self.type.removeprefix("tensordesc<").removeprefix("*").split("[")[0]

    @property
    def tile(self) -> tuple[int, ...]:
        """A descriptor's block shape, in elements."""
        inside = self.type.split("[", 1)[1].split("]", 1)[0]
        return tuple(int(size) for size in inside.split(","))


@dataclass(frozen=True)
class Scratch:
    """Device memory a launch brings: ``program`` and ``profile`` bytes per program, aligned to ``align`` bytes."""

    program: int = 0
    align: int = 1
    profile: int = 0


@dataclass(frozen=True)
class Box:
    """How the hardware copies the tiles of one descriptor: ``block_size`` and ``swizzle`` of Triton's metadata."""

    block: tuple[int, ...]
    """In elements, outermost first; a tile may take several."""
    swizzle: int
    """A ``CUtensorMapSwizzle``."""


@dataclass(frozen=True)
class BinaryRecord:
    """One kernel compiled for one target."""

    name: str
    """Of the files; letters, digits, ``_``, ``-`` and ``.``."""
    kernel: str
    """The function's name in the machine code."""
    target: str
    """Name of the capability: ``sm_90``."""
    backend: Backend
    arch: int | str
    """Of the only devices that run it: 90, ``gfx942``."""
    shared: int
    """Bytes of shared memory of a program."""
    num_warps: int
    threads: int
    """Of a program: warps times 32 or 64."""
    plan: int
    """:attr:`KernelPlan.digest <attnc.codegen.plan.KernelPlan.digest>`."""
    code_sha256: str
    source_sha256: str
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict, hash=False)
    """What was fixed when it was compiled."""
    scratch: Scratch = Scratch()
    descriptors: tuple[Box, ...] = ()
    """One per parameter that is a descriptor, in order."""

    def __post_init__(self) -> None:
        wanted = sum(parameter.is_descriptor for parameter in self.parameters)
        if wanted != len(self.descriptors):
            raise ValueError(f"{self.name}: {wanted} parameters are descriptors, {len(self.descriptors)} are described")

    @property
    def suffix(self) -> str:
        """Of the file of machine code."""
        return "cubin" if self.backend == "cuda" else "hsaco"

    def to_json(self) -> str:
        """Sorted keys, one line each."""
        scratch = self.scratch
        data = {
            **dataclasses.asdict(self),
            "version": RECORD_VERSION,
            "constants": dict(self.constants),
            "scratch": {"global": scratch.program, "global_align": scratch.align, "profile": scratch.profile},
        }
        return json.dumps(data, indent=1, sort_keys=True, allow_nan=False) + "\n"

    @staticmethod
    def from_json(text: str) -> BinaryRecord:
        """The record written by :meth:`to_json`. Raises ValueError on another version or a malformed text."""
        data = _typed(json.loads(text), dict, "the text")
        version = data.pop("version", None)
        if version != RECORD_VERSION:
            raise ValueError(f"it is of version {version!r}, this build of attnc reads {RECORD_VERSION}")
        plain = {key: _field(data, key, kind) for key, kind in _PLAIN.items()}
        backend = _one_of(get_args(Backend), _field(data, "backend", str), "backend")
        return BinaryRecord(
            **plain,
            backend=backend,
            parameters=tuple(_parameter(p) for p in _field(data, "parameters", list)),
            constants=_field(data, "constants", dict),
            scratch=_scratch(_field(data, "scratch", dict)),
            descriptors=tuple(_box(d) for d in _field(data, "descriptors", list)),
        )


_PLAIN: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("name", "kernel", "target", "code_sha256", "source_sha256"), str),
    **dict.fromkeys(("shared", "num_warps", "threads", "plan"), int),
    "arch": (int, str),
}


def _typed(value: Any, kind: type | tuple[type, ...], what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"{what} is {value!r}")
    return value


def _field(data: dict[str, Any], key: str, kind: type | tuple[type, ...]) -> Any:
    if key not in data:
        raise ValueError(f"it has no {key!r}")
    return _typed(data[key], kind, repr(key))


def _one_of(known: tuple[str, ...], value: str, what: str) -> Any:
    if value not in known:
        raise ValueError(f"{what!r} is {value!r}, not one of {', '.join(known)}")
    return value


def _parameter(data: Any) -> Parameter:
    fields = _typed(data, dict, "a parameter")
    assumed = _one_of(get_args(Assumed), _field(fields, "assumed", str), "assumed")
    return Parameter(_field(fields, "name", str), _field(fields, "type", str), assumed)


def _scratch(data: dict[str, Any]) -> Scratch:
    return Scratch(*(_field(data, key, int) for key in ("global", "global_align", "profile")))


def _box(data: Any) -> Box:
    fields = _typed(data, dict, "a descriptor")
    block = tuple(_typed(size, int, "a size of a block") for size in _field(fields, "block", list))
    return Box(block, _field(fields, "swizzle", int))
