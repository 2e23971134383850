"""From a compiled program to ``model.attnc``: :mod:`attnc.runtime.artifact` says what is in the file.

The same program gives the same bytes, whatever the process, folder and clock: entries are sorted, JSON is canonical,
and nothing is written that names a place or a time.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath
from typing import BinaryIO

from torch import Tensor

import attnc
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.compiler.artifact_targets import Kernels, collect
from attnc.compiler.cli.output import staged_file
from attnc.compiler.hosted import Hosted
from attnc.compiler.unsavable import NotSavable
from attnc.ir.diagnostics import PrintError
from attnc.ir.graph import Graph
from attnc.ir.printer import print_graph
from attnc.runtime.artifact import weights
from attnc.runtime.artifact.manifest import GRAPH, MANIFEST, PROGRAM, WEIGHTS, Entry, Manifest
from attnc.runtime.artifact.writer import Chunk, ContainerWriter

Content = tuple[int, Iterable[Chunk]]
"""Size in bytes, and the bytes."""


def save(
    path: Path,
    name: str,
    hosted: Hosted,
    graph: Graph,
    kernels: Mapping[int, tuple[KernelPlan, Source]],
    targets: tuple[str, ...],
    blobs: Mapping[str, bytes] | None = None,
) -> None:
    """Write an artifact; it appears whole or not at all.

    ``kernels``: plan and source of each plan the program calls. ``blobs``: content of entries that steps name in an
    argument (``onnx/<sha256>.onnx``). Raises NotSavable.
    """
    found = collect([op for op in graph.ops if op.name == "attn.attention"], kernels, targets)
    label = PurePath(name).name or name
    contents = _contents(label, hosted, graph, {**found.entries, **(blobs or {})})
    with staged_file(path) as temporary, temporary.open("r+b") as stream:
        _write(stream, label, hosted, found, targets, tuple(sorted(blobs or {})), contents)


def _contents(label: str, hosted: Hosted, graph: Graph, others: Mapping[str, bytes]) -> dict[str, Content]:
    """Every entry but the manifest."""
    try:
        header, tensors = weights.parts(hosted.constants, hosted.program.constants)
        named = copy.copy(graph)
        named.name = label
        text = print_graph(named, locations=False)
    except ValueError as error:
        raise NotSavable("ATTNC-ARTIFACT-CONSTANT", str(error)) from error
    except PrintError as error:
        raise NotSavable("ATTNC-ARTIFACT-OP", str(error)) from error
    size = len(header) + sum(tensor.nbytes for tensor in tensors)
    plain = {PROGRAM: hosted.program.to_json().encode(), GRAPH: text.encode(), **others}
    return {WEIGHTS: (size, _weights(header, tensors)), **{name: (len(data), (data,)) for name, data in plain.items()}}


def _weights(header: bytes, tensors: list[Tensor]) -> Iterator[Chunk]:
    yield header
    for tensor in tensors:
        yield from weights.chunks(tensor)


def _write(
    stream: BinaryIO,
    label: str,
    hosted: Hosted,
    found: Kernels,
    targets: tuple[str, ...],
    blobs: tuple[str, ...],
    contents: Mapping[str, Content],
) -> None:
    writer = ContainerWriter(stream)
    written = [writer.add(name, chunks, size) for name, (size, chunks) in sorted(contents.items())]
    manifest = Manifest(
        name=label,
        attnc=attnc.__version__,
        inputs=hosted.inputs,
        outputs=hosted.outputs,
        sizes=hosted.sizes,
        targets=targets,
        attentions=tuple(found.plans.values()),
        kernels=tuple(sorted(found.kernels, key=lambda kernel: (kernel.target, kernel.plan))),
        binaries=tuple(sorted(found.binaries, key=lambda binary: binary.entry)),
        blobs=blobs,
        entries={entry.name: Entry(entry.size, entry.sha256) for entry in written},
    )
    text = manifest.to_json().encode()
    writer.add(MANIFEST, (text,), len(text))
    writer.finish()
