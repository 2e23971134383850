"""Plain JSON read with an eye on its types: whatever is missing or of another kind is one sentence."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from attnc.runtime.artifact.container import Malformed

T = TypeVar("T")

_SHA256 = re.compile(r"[0-9a-f]{64}")
_DIGEST = re.compile(r"0|[1-9]\d{0,18}", re.ASCII)
LONGEST = 1 << 16
"""Characters a name or a text of a manifest may have."""


def parse(text: bytes | str) -> Any:
    """The value of a JSON text. Raises Malformed; ``NaN`` and infinities are no JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"it is no JSON: {error}") from error


def dump(data: Any) -> str:
    """Canonical JSON with a line for each value, to be read by people as well."""
    return json.dumps(data, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def field(data: Any, key: str, kind: type[T]) -> T:
    """The value of a key, of this kind. Raises Malformed."""
    if not isinstance(data, dict) or key not in data:
        raise Malformed(f"it has no {key!r}")
    return typed(data[key], kind, key)


def typed(value: Any, kind: type[T], what: str) -> T:
    """``value``, if it is of this kind; a bool is no int. Raises Malformed."""
    if type(value) is not kind:
        raise Malformed(f"{what!r} is of type {type(value).__name__}, not {kind.__name__}")
    if isinstance(value, str) and (len(value) > LONGEST or not value.isprintable()):
        raise Malformed(f"{what!r} is no short line of text")
    return value


def strings(data: Any, key: str) -> tuple[str, ...]:
    """A list of texts."""
    return tuple(typed(item, str, key) for item in field(data, key, list))


def natural(data: Any, key: str) -> int:
    """A whole number from 0 to 2⁶³ − 1."""
    value = field(data, key, int)
    if not 0 <= value < 1 << 63:
        raise Malformed(f"{key!r} is {value}")
    return value


def optional(data: Any, key: str, kind: type[T]) -> T | None:
    """As :func:`field`; null is None."""
    return None if isinstance(data, dict) and key in data and data[key] is None else field(data, key, kind)


def sha256(data: Any, key: str) -> str:
    """A SHA-256 in hexadecimal."""
    value = field(data, key, str)
    if not _SHA256.fullmatch(value):
        raise Malformed(f"{key!r} is no SHA-256")
    return value


def digest(value: Any, what: str) -> int:
    """The digest of a plan: 63 bits as a decimal string."""
    text = typed(value, str, what)
    if not _DIGEST.fullmatch(text) or int(text) >= 1 << 63:
        raise Malformed(f"{what!r} is no digest of a plan: {text!r}")
    return int(text)


def _refuse(text: str) -> Any:
    raise ValueError(f"{text} is no number of JSON")
