"""An emitted kernel: its text, what it was made from, how it is to be compiled. Standard library only."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from attnc.codegen.plan import content_hash

SUFFIXES = {"c++": ".cpp", "triton": ".py"}
"""Of a file that holds a source, by language."""
COMMENTS = {"c++": "//", "triton": "#"}
"""What begins a line of comment, by language."""
INCLUDE_DIR = Path(__file__).parent / "cpp" / "include"
"""The folder a C++ build passes with ``-I``."""
KV_WRITE = Path(__file__).parent / "triton" / "kernels" / "kv_write.py"
"""The Triton module that writes rows into pages, whole as it is: no plan stands behind it."""


@dataclass(frozen=True)
class Source:
    """One translation unit.

    ``headers`` is the SHA-256 of the templates the text includes, so that a changed template is another source. The
    include folder itself is no part of it: a digest is the same on every machine.
    """

    language: str
    """``c++`` or ``triton``."""
    name: str
    """For people: file names begin with it. Letters, digits and underscores."""
    text: str
    plan: int
    """:attr:`KernelPlan.digest <attnc.codegen.plan.KernelPlan.digest>` of the plan."""
    flags: tuple[str, ...] = ()
    """Compiler flags but for include folders, input and output."""
    headers: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of every field, in hexadecimal."""
        fields = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(fields.encode()).hexdigest()


def kv_write_source() -> Source:
    """The module with ``write(x, pages, scale, slots)``, a Triton kernel for every store, dtype and size."""
    text = KV_WRITE.read_text(encoding="utf-8")
    return Source("triton", "kv_write", text, content_hash(text))


def file_names(sources: Mapping[int, Source]) -> dict[int, str]:
    """For each source a name that no other here has: its own, with a number where several share it."""
    names: dict[int, str] = {}
    seen: Counter[str] = Counter()
    for key, source in sources.items():
        seen[source.name] += 1
        names[key] = f"{source.name}_{seen[source.name]}" if seen[source.name] > 1 else source.name
    return names


def headers_digest(folder: Path = INCLUDE_DIR) -> str:
    """SHA-256 of names and bytes of every file below ``folder``. Raises FileNotFoundError where there is none."""
    files = sorted(p for p in folder.rglob("*.h"))
    if not files:
        raise FileNotFoundError(f"no kernel templates below {folder}; the installation of attnc is incomplete")
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
