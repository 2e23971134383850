"""A packaged kernel on disk: ``NAME.cubin`` or ``NAME.hsaco``, ``NAME.py`` (its Triton source) and ``NAME.json``.

Files appear by rename and the JSON comes last: it holds the digests of the other two, so a kernel that was half
written, altered or mixed with another is told by reading it. The digests show integrity, not origin: machine code is
as trusted as a program.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from pathlib import Path
from typing import NamedTuple

from attnc.runtime.gpu.record import BinaryError, BinaryRecord

_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


class Packaged(NamedTuple):
    """A kernel as it was written, in the order :func:`~attnc.runtime.gpu.launch.launch` takes it."""

    record: BinaryRecord
    code: bytes
    """The cubin or hsaco."""
    source: str


def sha256(content: bytes | str) -> str:
    """In hexadecimal; of a text, that of its UTF-8."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


def write(folder: Path, record: BinaryRecord, code: bytes, source: str) -> Path:
    """Package a kernel in ``folder``, which is made if need be; returns the path of its JSON.

    Raises ValueError where the record's name is none for a file or its digests are not those of ``code`` and
    ``source``, and OSError.
    """
    where = f"packaging the kernel {record.name}"
    if not _NAME.fullmatch(record.name):
        raise ValueError(
            f"{where}: a name of files is letters, digits, '_', '-' and '.', and begins with none of the last two"
        )
    problem = _mismatch(record, code, source)
    if problem:
        raise ValueError(f"{where}: {problem}; make the record from what is to be written")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record.name}.json"
    _replace(path.with_name(f"{record.name}.{record.suffix}"), code)
    _replace(path.with_name(f"{record.name}.py"), source.encode())
    _replace(path, record.to_json().encode())
    return path


def read(folder: Path, name: str) -> Packaged:
    """The kernel ``name`` packaged in ``folder``, whole. Raises BinaryError for what is missing, damaged or too new."""
    path = folder / f"{name}.json"
    record = _record(path, name)
    code = _bytes(path, f"{name}.{record.suffix}")
    source = _text(path, f"{name}.py")
    problem = _mismatch(record, code, source)
    if problem:
        raise _error(path, f"{problem}: a file was altered or is of another kernel")
    return Packaged(record, code, source)


def verify_code(record: BinaryRecord, code: bytes) -> None:
    """Raises BinaryError unless ``code`` is what the record is about: drivers read past the end of damaged code."""
    if sha256(code) != record.code_sha256:
        raise BinaryError(
            f"loading the kernel {record.name} for {record.target}: its machine code ({len(code)} bytes) is not what "
            f"its record describes. Compile the kernel again."
        )


def _record(path: Path, name: str) -> BinaryRecord:
    try:
        record = BinaryRecord.from_json(_text(path, path.name))
    except ValueError as error:
        raise _error(path, str(error)) from error
    if record.name != name:
        raise _error(path, f"it describes {record.name!r}")
    return record


def _mismatch(record: BinaryRecord, code: bytes, source: str) -> str | None:
    if sha256(code) != record.code_sha256:
        return f"the digest of {record.name}.{record.suffix} is not the recorded one"
    if sha256(source) != record.source_sha256:
        return f"the digest of {record.name}.py is not the recorded one"
    return None


def _bytes(path: Path, name: str) -> bytes:
    try:
        return path.with_name(name).read_bytes()
    except OSError as error:
        raise _error(path, f"{name} can't be read ({error.strerror})") from error


def _text(path: Path, name: str) -> str:
    try:
        return _bytes(path, name).decode()
    except UnicodeDecodeError as error:
        raise _error(path, f"{name} is no UTF-8 text") from error


def _error(path: Path, problem: str) -> BinaryError:
    return BinaryError(f"reading the packaged kernel {path}: {problem}. Compile the kernel again.")


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
