"""What the store holds: one folder per build, described and checked by its ``meta.json``.

An entry folder holds the text that was compiled, the library, and ``meta.json`` with the SHA-256 of each of them.
``meta.json`` is written last and the folder appears by rename, so a folder without it, or one whose files disagree
with it, is broken.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnc.runtime.toolchain import Toolchain

META = "meta.json"
ENTRY_VERSION = 1


@dataclass(frozen=True)
class BuildSpec:
    """Everything a build depends on."""

    kind: str
    """``kernel`` or ``launcher``."""
    name: str
    """For people: the front of the folder's name."""
    files: Mapping[str, str]
    """Text files of the entry, by name."""
    source: str
    """The name in ``files`` of the text to compile."""
    library: str
    """Name of the library to make."""
    flags: tuple[str, ...]
    toolchain: Toolchain
    includes: tuple[Path, ...] = ()
    """Include folders. Where they are doesn't count; what they hold does, through ``depends``."""
    locations: tuple[str, ...] = ()
    """Flags that only say where something is (``-L…``): passed on, not part of the key."""
    depends: Mapping[str, str] = field(default_factory=dict)
    """Other facts of the key: header digests, ABI versions."""

    @property
    def digest(self) -> str:
        """Hex SHA-256 of all that decides what the library is."""
        facts = {
            "version": ENTRY_VERSION,
            "kind": self.kind,
            "files": dict(self.files),
            "source": self.source,
            "library": self.library,
            "flags": self.flags,
            "toolchain": self.toolchain.id,
            "depends": dict(self.depends),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    @property
    def folder(self) -> str:
        """The entry's folder name: readable prefix and short digest."""
        readable = "".join(c if c.isalnum() or c in "_.-" else "_" for c in self.name)[:48]
        return f"{readable}-{self.digest[:16]}"


@dataclass(frozen=True)
class Entry:
    """A complete, verified build."""

    path: Path
    meta: Mapping[str, Any]

    @property
    def library(self) -> Path:
        return self.path / str(self.meta["library"])

    @property
    def bytes(self) -> int:
        return sum(f.stat().st_size for f in self.path.iterdir() if f.is_file())

    @property
    def age(self) -> float:
        """Seconds since it was built."""
        return max(0.0, time.time() - float(self.meta["created"]))


def write_meta(folder: Path, spec: BuildSpec) -> None:
    """Describe a finished build folder. Raises OSError."""
    meta = {
        "version": ENTRY_VERSION,
        "digest": spec.digest,
        "kind": spec.kind,
        "name": spec.name,
        "library": spec.library,
        "flags": spec.flags,
        "toolchain": spec.toolchain.id,
        "cpu": spec.toolchain.cpu,
        "depends": dict(spec.depends),
        "created": time.time(),
        "files": {name: _sha256(folder / name) for name in (*spec.files, spec.library)},
    }
    (folder / META).write_text(json.dumps(meta, indent=1, sort_keys=True))


def read_entry(folder: Path, digest: str | None = None) -> Entry | None:
    """The entry in ``folder`` if every file is as its meta.json says (and its key is ``digest``, if given).

    None for an absent, partial, altered or unreadable one; never raises for the content of files.
    """
    try:
        meta = json.loads((folder / META).read_text())
        files: dict[str, str] = meta["files"]
        if meta["version"] != ENTRY_VERSION or meta["library"] not in files or not isinstance(meta["created"], float):
            return None
        if digest is not None and meta["digest"] != digest:
            return None
        whole = all(_sha256(folder / name) == expected for name, expected in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Entry(folder, meta) if whole else None


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
