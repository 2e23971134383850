"""The manifest: canonical, plain, and read with an eye on every type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import artifact_samples as samples
import pytest

from attnc.runtime.artifact.container import Malformed
from attnc.runtime.artifact.manifest import Entry, Manifest

MADE = samples.manifest({"binaries/cpu/kernel.so": b"", "binaries/launcher.so": b""}, entries={"a": Entry(3, "0" * 64)})


def test_it_comes_back() -> None:
    text = MADE.to_json()
    assert Manifest.from_json(text.encode()) == MADE and Manifest.from_json(text.encode()).to_json() == text


def test_it_is_plain_json() -> None:
    """No number needs more than 53 bits, as readers in other languages have it."""
    numbers = [value for value in leaves(json.loads(MADE.to_json())) if isinstance(value, int)]
    assert numbers and all(abs(number) < 1 << 53 for number in numbers)


def leaves(data: Any) -> Iterator[Any]:
    if isinstance(data, dict | list):
        for item in data.values() if isinstance(data, dict) else data:
            yield from leaves(item)
    else:
        yield data


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON value."""
    if path:
        yield path
    if isinstance(data, dict | list):
        for key in data if isinstance(data, dict) else range(len(data)):
            yield from places(data[key], (*path, key))


OTHERS = (None, True, -1, 1.5, "text\n", [], [[]], {}, 1 << 70)


@pytest.mark.parametrize("path", list(places(json.loads(MADE.to_json()))), ids=str)
def test_another_type_anywhere_is_told_or_means_the_same(path: tuple[Any, ...]) -> None:
    """Each place in turn holds something else: reading raises Malformed, or gives a manifest of the right types."""
    for other in OTHERS:
        data = json.loads(MADE.to_json())
        inner = data
        for key in path[:-1]:
            inner = inner[key]
        was, inner[path[-1]] = inner[path[-1]], other
        try:
            found = Manifest.from_json(json.dumps(data).encode())
        except Malformed:
            continue
        assert type(other) is type(was) or other is None or was is None
        assert json.loads(found.to_json()) == data


FIELDS = [path for path in places(json.loads(MADE.to_json())) if isinstance(path[-1], str)]


@pytest.mark.parametrize("path", [path for path in FIELDS if path[0] not in ("entries", "attentions")], ids=str)
def test_a_field_that_is_missing(path: tuple[Any, ...]) -> None:
    data = json.loads(MADE.to_json())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    with pytest.raises(Malformed, match=f"no '{path[-1]}'"):
        Manifest.from_json(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100000, "no JSON"),
        (b"[]", "no 'format'"),
        (b'{"format": "zip"}', "another format"),
        (b'{"format": "attnc-artifact", "version": 2}', "version 2, this build of attnc reads 1: compile"),
        (b'{"format": "attnc-artifact", "version": 1, "name": NaN}', "NaN is no number"),
        (b'{"format": "attnc-artifact", "version": 1' + b"0" * 5000 + b"}", "no JSON"),
    ],
)
def test_texts_that_are_none(text: bytes, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        Manifest.from_json(text)
