"""Damaged artifacts, and a child process for each that must end in an error told or in the right result."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import artifact_samples as samples

MEMORY = 2 << 30
"""Bytes of address space a child may take beyond what it starts with."""
SECONDS = 60
Mutation = Callable[[random.Random, bytes, Path], bytes]


def truncated(draw: random.Random, data: bytes, place: Path) -> bytes:
    """Cut off at the end, at the front, or in between."""
    begin, end = sorted(draw.sample(range(len(data)), 2))
    return draw.choice([data[:begin], data[begin:], data[:begin] + data[end:]])


def flipped(draw: random.Random, data: bytes, place: Path) -> bytes:
    """A few bits of the whole file."""
    found = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        found[draw.randrange(len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def at_the_end(draw: random.Random, data: bytes, place: Path) -> bytes:
    """A bit of what describes the entries: the manifest and the directory."""
    found = bytearray(data)
    found[draw.randrange(len(found) - 6000, len(found))] ^= 1 << draw.randrange(8)
    return bytes(found)


def swapped(draw: random.Random, data: bytes, place: Path) -> bytes:
    """The contents of two entries, with hashes to match."""
    place.write_bytes(data)
    entries = samples.entries_of(place)
    a, b = draw.sample(sorted(entries), 2)
    return rewritten(place, {**entries, a: entries[b], b: entries[a]})


def cut_entry(draw: random.Random, data: bytes, place: Path) -> bytes:
    """Part of an entry, with hashes to match."""
    place.write_bytes(data)
    entries = samples.entries_of(place)
    name = draw.choice([name for name in sorted(entries) if not name.endswith(".so")])
    return rewritten(place, {**entries, name: entries[name][: draw.randrange(len(entries[name]))]})


def flipped_entry(draw: random.Random, data: bytes, place: Path) -> bytes:
    """A bit of the weights' header or of a text, with hashes to match."""
    place.write_bytes(data)
    entries = samples.entries_of(place)
    name = draw.choice(["weights.safetensors", "program.json", f"plans/{samples.PLAN.digest}.json"])
    found = bytearray(entries[name])
    found[draw.randrange(min(len(found), 300))] ^= 1 << draw.randrange(8)
    return rewritten(place, {**entries, name: bytes(found)})


def edited(draw: random.Random, data: bytes, place: Path) -> bytes:
    """A value of the program's or the weights' JSON is another, with hashes to match."""
    place.write_bytes(data)
    entries = samples.entries_of(place)
    if draw.random() < 0.3:
        header = entries["weights.safetensors"]
        length = int.from_bytes(header[:8], "little")
        text = json.dumps(changed(draw, json.loads(header[8 : 8 + length]))).encode()
        entries["weights.safetensors"] = len(text).to_bytes(8, "little") + text + header[8 + length :]
    else:
        entries["program.json"] = json.dumps(changed(draw, json.loads(entries["program.json"]))).encode()
    return rewritten(place, entries)


def edited_manifest(draw: random.Random, data: bytes, place: Path) -> bytes:
    """A value of the manifest is another."""
    place.write_bytes(data)

    def edit(found: dict[str, Any]) -> None:
        found.update(changed(draw, found))

    return samples.write_entries(place, samples.entries_of(place), edit).read_bytes()


MUTATIONS: tuple[Mutation, ...] = (
    truncated, flipped, at_the_end, swapped, cut_entry, flipped_entry, edited, edited, edited, edited_manifest,
)  # fmt: skip


def rewritten(place: Path, entries: dict[str, bytes]) -> bytes:
    return samples.write_entries(place, entries).read_bytes()


def changed(draw: random.Random, data: Any) -> Any:
    """JSON with one value in it replaced, left out or doubled."""
    places = list(containers(data))
    inner = draw.choice([container for container in places if container])
    key = draw.choice(sorted(inner)) if isinstance(inner, dict) else draw.randrange(len(inner))
    kind = draw.random()
    if kind < 0.15:
        del inner[key]
    elif kind < 0.25 and isinstance(inner, list):
        inner.append(inner[key])
    else:
        others = [None, True, -1, 0, 3, 99, 1 << 40, 1 << 62, 10**400, 1.5, "", "S", ".pow", "#2", "x" * 500, [], {}]
        others += [{"register": 77}, {"size": 1 << 50}, {"constant": "w"}, {"float": "nan"}, {"dtype": "f64"}, [[]] * 9]
        others += ["aten.empty.memory_format", "aten.as_strided.default", "aten.index.Tensor", "aten.full.default"]
        inner[key] = draw.choice(others)
    return data


def containers(data: Any) -> Iterator[Any]:
    if isinstance(data, dict | list):
        yield data
        for item in data.values() if isinstance(data, dict) else data:
            yield from containers(item)


def judged(path: Path) -> str:
    """``refused``, ``right``, ``other`` or ``fails when run`` (an exception that says why), of one file."""
    from attnc.runtime.artifact.loader import load
    from attnc.runtime.errors import ArtifactError, BuildError

    try:
        program = load(path)
    except (ArtifactError, BuildError) as error:
        assert str(path) in str(error) or isinstance(error, BuildError)
        return "refused"
    try:
        found = program.run(samples.inputs(2, 5))
    except (
        ValueError,
        TypeError,
        RuntimeError,
        IndexError,
        ArithmeticError,
        NotImplementedError,
        MemoryError,
    ) as error:
        assert str(error)
        return "fails when run"
    try:
        samples.same(found, samples.wanted(**samples.inputs(2, 5)))
    except (AssertionError, RuntimeError, ValueError, TypeError):
        return "other"
    return "right"


def in_a_child(path: Path) -> str:
    """What :func:`judged` says, or how the child ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        pages = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (pages + MEMORY, pages + MEMORY))
        signal.alarm(SECONDS)
        try:
            verdict = judged(path)
        except BaseException:
            verdict = f"UNTOLD {traceback.format_exc()}"
        os.write(writer, verdict.encode()[:60000])
        os._exit(0)
    os.close(writer)
    said = b"".join(iter(lambda: os.read(reader, 65536), b"")).decode(errors="replace")
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return said if said and status == 0 else f"ENDED {status}"


def main(sample: str, folder: str, count: str, seed: str) -> None:
    """Mutate the sample, judge each, and print a line of JSON for each."""
    import warnings

    import attnc.runtime.artifact.loader
    import attnc.runtime.ops  # noqa: F401 - loaded once, before the forks

    warnings.simplefilter("ignore")
    data, place = Path(sample).read_bytes(), Path(folder)
    for i in range(int(count)):
        draw = random.Random(int(seed) * 1_000_003 + i)
        mutation = MUTATIONS[i % len(MUTATIONS)]
        path = place / f"{i}.attnc"
        path.write_bytes(mutation(draw, data, place / "scratch"))
        start = time.perf_counter()
        verdict = in_a_child(path)
        line = {"i": i, "mutation": mutation.__name__, "verdict": verdict, "seconds": time.perf_counter() - start}
        print(json.dumps(line), flush=True)
        path.unlink()


if __name__ == "__main__":
    main(*sys.argv[1:])
