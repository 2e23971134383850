"""The build store: libraries on disk, safe under concurrent processes and sudden death.

Protocol of :meth:`Store.obtain`: load; else lock, load again, build in a temporary folder, rename. A library is only
loaded from a folder whose hashes agree; a broken one is built anew. Locks are ``flock``: the kernel drops them when
their process dies, and a dead builder leaves only a temporary folder, removed by the next builder of that entry.

    <root>/v1/entries/<name>-<digest>/  plan.json kernel.cpp kernel.so meta.json
              plans/<plan digest>.json   plan and source, so that a fresh process can build what an op names
              built/<name>.json          the newest entry of a name, for machines whose compiler has gone
              libraries/<sha256>.so      machine code that came in an artifact
              failed/<name>-<digest>/    the last source a compiler rejected, and what it said
              locks/  tmp/
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnc.runtime.build import compile_library
from attnc.runtime.entry import BuildSpec, Entry, read_entry, write_meta
from attnc.runtime.errors import BuildError

LAYOUT = "v1"
_private_lock = threading.Lock()
_private: dict[Path, Path] = {}
"""Unwritable root → this process's stand-in."""


@dataclass(frozen=True)
class Cleared:
    """What :meth:`Store.clear` removed."""

    entries: int
    bytes: int
    in_use: int
    """Entries left alone because another process was building them."""


@dataclass(frozen=True)
class Store:
    """The build store under ``root``. Making one touches nothing on disk.

    Where ``root`` can't be written, one RuntimeWarning says so and builds go to a temporary folder of this process,
    removed when it ends; what ``root`` already holds is still read.
    """

    root: Path

    @property
    def path(self) -> Path:
        """The folder of this layout version; nothing outside it is ever touched."""
        return self.root / LAYOUT

    def load(self, spec: BuildSpec) -> Entry | None:
        """The verified entry of ``spec``, or None. Never raises for what is on disk."""
        for base in self._bases():
            entry = read_entry(base / "entries" / spec.folder, spec.digest)
            if entry is not None:
                return entry
        return None

    def obtain(self, spec: BuildSpec, timeout: float = 120.0) -> Entry:
        """The entry of ``spec``, built if it isn't there or is broken. Blocks while another process builds it.

        Raises BuildError when the compiler fails: its stderr is in ``stderr``, the source stays at ``source``.
        """
        found = self.load(spec)
        if found is not None:
            return found
        try:
            return _build(self._writable(), spec, timeout)
        except OSError as error:  # disk full, or the folder became unwritable under us
            return _build(self._stand_in(error), spec, timeout)

    def remember(self, name: str, entry: Entry) -> None:
        """Note ``entry`` as the newest of ``name``, for :meth:`recall`."""
        self.write_record("built", name, {"entry": entry.path.name})

    def recall(self, name: str, cpu: str) -> Entry | None:
        """The newest verified entry of ``name``, if it was built for ``cpu``; needs no compiler."""
        record = self.read_record("built", name)
        for base in self._bases() if record else ():
            entry = read_entry(base / "entries" / str((record or {}).get("entry")))
            if entry is not None and entry.meta["cpu"] == cpu:
                return entry
        return None

    def write_record(self, kind: str, name: str, data: dict[str, Any]) -> None:
        """Write a small checked JSON record, atomically. The same data twice writes once."""
        if self.read_record(kind, name) == data:
            return
        body = json.dumps(data, sort_keys=True)
        text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "data": data})
        try:
            _write_atomically(self._writable() / kind / f"{name}.json", text.encode())
        except OSError as error:
            _write_atomically(self._stand_in(error) / kind / f"{name}.json", text.encode())

    def read_record(self, kind: str, name: str) -> dict[str, Any] | None:
        """The record written by :meth:`write_record`; None where absent or damaged. The private copy wins."""
        for base in reversed(self._bases()):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                found = json.loads((base / kind / f"{name}.json").read_text())
                body = json.dumps(found["data"], sort_keys=True)
                if hashlib.sha256(body.encode()).hexdigest() == found["sha256"]:
                    return dict(found["data"])
        return None

    def keep_library(self, sha256: str, content: bytes | memoryview) -> Path:
        """A file that holds ``content``, which has this SHA-256; written where it isn't there or is damaged."""
        name = f"{sha256}.so"
        for base in self._bases():
            with contextlib.suppress(OSError):
                if hashlib.sha256((base / "libraries" / name).read_bytes()).hexdigest() == sha256:
                    return base / "libraries" / name
        try:
            path = self._writable() / "libraries" / name
            _write_atomically(path, content)
        except OSError as error:
            path = self._stand_in(error) / "libraries" / name
            _write_atomically(path, content)
        return path

    def ls(self) -> list[Entry]:
        """Every whole entry, newest first. ``meta`` has kind and name; ``bytes`` and ``age`` say size and seconds."""
        folders = [f for base in self._bases() for f in _children(base / "entries")]
        entries = [entry for folder in folders if (entry := read_entry(folder)) is not None]
        return sorted(entries, key=lambda entry: (entry.age, entry.path.name))

    def clear(self) -> Cleared:
        """Remove all entries, records and leftovers, except what another process is building at the moment.

        Raises OSError when a folder can't be removed. Libraries in use stay mapped in the processes that loaded them.
        """
        removed = size = in_use = 0
        for base in self._bases():
            for folder in _children(base / "entries"):
                with _lock(base, _short(folder.name), wait=False) as held:
                    if not held:
                        in_use += 1
                        continue
                    size += sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
                    _remove(base, folder)
                    removed += 1
            for leftover in _children(base / "tmp"):
                with _lock(base, _short(leftover.name), wait=False) as held:
                    if held:
                        shutil.rmtree(leftover, ignore_errors=True)
            for kind in ("plans", "built", "failed", "libraries"):
                shutil.rmtree(base / kind, ignore_errors=True)
        return Cleared(removed, size, in_use)

    def problem(self) -> str | None:
        """Why the store can't be written, or None. Creates its folders."""
        try:
            _prepare(self.path)
            with tempfile.TemporaryFile(dir=self.path / "tmp"):
                return None
        except OSError as error:
            return _reason(error)

    def _bases(self) -> tuple[Path, ...]:
        private = _private.get(self.root)
        return (self.path, private) if private else (self.path,)

    def _writable(self) -> Path:
        if self.root not in _private:
            problem = self.problem()
            if problem is None:
                return self.path
            return self._stand_in(OSError(problem))
        return _private[self.root]

    def _stand_in(self, error: OSError) -> Path:
        """This process's temporary store; warns when first needed."""
        with _private_lock:
            if self.root not in _private:
                folder = Path(tempfile.mkdtemp(prefix="attnc-store-"))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                _prepare(folder)
                _private[self.root] = folder
                warnings.warn(
                    f"attnc: the build store {self.root} can't be written ({_reason(error)}); kernels of this process "
                    f"go to a temporary folder and will be built again next time. Set ATTNC_CACHE_DIR to a folder you "
                    f"can write.",
                    RuntimeWarning,
                    stacklevel=4,
                )
            return _private[self.root]


def _build(base: Path, spec: BuildSpec, timeout: float) -> Entry:
    final = base / "entries" / spec.folder
    with _lock(base, spec.digest[:16]):
        entry = read_entry(final, spec.digest)  # another process may have built it while we waited
        if entry is not None:
            return entry
        for stale in (base / "tmp").glob(f"*-{spec.digest[:16]}"):  # we hold the lock: its builder is dead
            shutil.rmtree(stale, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(dir=base / "tmp", prefix="build-", suffix=f"-{spec.digest[:16]}"))
        try:
            _compile(base, folder, spec, timeout)
            if final.exists():
                _remove(base, final)
            os.rename(folder, final)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        entry = read_entry(final, spec.digest)
        if entry is None:
            raise OSError(f"{final} changed while it was written")
        return entry


def _compile(base: Path, folder: Path, spec: BuildSpec, timeout: float) -> None:
    for name, text in spec.files.items():
        (folder / name).write_text(text)
    flags = (*spec.flags, *(f"-I{path}" for path in spec.includes), *spec.locations)
    try:
        compile_library(spec.toolchain, folder / spec.source, folder / spec.library, flags, timeout)
    except BuildError as error:
        raise _kept(base, folder, spec, error) from error
    write_meta(folder, spec)


def _kept(base: Path, folder: Path, spec: BuildSpec, error: BuildError) -> BuildError:
    """The same error, with its source moved to where it survives the temporary folder."""
    kept = base / "failed" / spec.folder
    try:
        shutil.rmtree(kept, ignore_errors=True)
        kept.parent.mkdir(exist_ok=True)
        (folder / "stderr.txt").write_text(error.stderr)
        os.rename(folder, kept)
    except OSError:
        return BuildError(str(error), stderr=error.stderr)
    message = str(error).replace(str(folder), str(kept))
    return BuildError(message, stderr=error.stderr, source=kept / spec.source)


@contextlib.contextmanager
def _lock(base: Path, digest: str, *, wait: bool = True) -> Iterator[bool]:
    """Hold the lock of the entries whose digest starts alike; yields whether it is held.

    Lock files are never removed (removing one under a waiter would let two in), so there are at most 256.
    """
    with open(base / "locks" / digest[:2], "a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True  # closing the file releases the lock


def _prepare(base: Path) -> None:
    for name in ("entries", "plans", "built", "locks", "tmp"):
        (base / name).mkdir(parents=True, exist_ok=True)


def _remove(base: Path, folder: Path) -> None:
    """Take an entry away by rename first, so that nobody sees half of it. Needs its lock."""
    aside = Path(tempfile.mkdtemp(dir=base / "tmp", prefix="old-", suffix=f"-{_short(folder.name)}"))
    os.rename(folder, aside / "entry")
    shutil.rmtree(aside)


def _write_atomically(path: Path, content: bytes | memoryview) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
        os.replace(temporary, path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _children(folder: Path) -> list[Path]:
    try:
        return sorted(child for child in folder.iterdir() if child.is_dir())
    except OSError:
        return []


def _short(folder_name: str) -> str:
    return folder_name.rsplit("-", 1)[-1]


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
