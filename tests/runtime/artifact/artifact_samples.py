"""An artifact written by hand: a projection, a causal attention by a slow kernel, a table that is written in place."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import runtime_samples
import torch
from torch import Tensor

from attnc.runtime import kernels, launcher
from attnc.runtime.abi import LAUNCHER_ABI
from attnc.runtime.artifact import weights
from attnc.runtime.artifact.container import Container
from attnc.runtime.artifact.manifest import (
    BASE,
    GRAPH,
    MANIFEST,
    PROGRAM,
    WEIGHTS,
    Binary,
    Bounds,
    Entry,
    Kernel,
    Manifest,
    Port,
)
from attnc.runtime.artifact.writer import ContainerWriter
from attnc.runtime.host_program import ConstantInfo, HostProgram, Input, NamedSize, Step
from attnc.runtime.host_steps import Constant, Register, Size
from attnc.runtime.toolchain import cpu_id

PLAN = runtime_samples.CAUSAL_PLAN
TENSOR = (("B",), (3,), ("S",), (4,))


def program() -> HostProgram:
    """(x, counts) → attention of x with its projection, halved; S + 1; counts, raised in place; a counter of calls."""
    attention = (Register(0), Register(2), Register(0), (), PLAN.digest, ())
    return HostProgram(
        sizes=(NamedSize("B", 0, 0, 1, 9), NamedSize("S", 0, 2, 2, None)),
        inputs=(Input("x", "f32", TENSOR), Input("counts", "i64", (("B",),))),
        constants=(
            ConstantInfo("w", "f32", (4, 4)),
            ConstantInfo("bias", "f32", (4,)),
            ConstantInfo("row", "f32", (3,)),
            ConstantInfo("calls", "i64", ()),
            ConstantInfo("none", "bf16", (0, 7)),
        ),
        values=(("S", 1, ".add"), ("S",), ("B",)),
        steps=(
            Step("aten.linear.default", (Register(0), Constant("w"), Constant("bias")), (), 2),
            Step("attnc.attention.default", attention, (), (3, None), (2,)),
            Step("aten.mul.Tensor", (Register(3), 0.5), (), 4, (3,)),
            Step("aten.add_.Scalar", (Register(1), Size(1)), (), None),
            Step("aten.add_.Scalar", (Constant("calls"), 1), (), None),
            Step("aten.add.Tensor", (Constant("calls"), Constant("row")), (), 5),
        ),
        outputs=(Register(4), Size(0), Register(1), Register(5)),
    )


def constants(seed: int = 0) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return {
        "w": torch.randn(4, 4, generator=made),
        "bias": torch.randn(4, generator=made),
        "row": torch.randn(3, generator=made),
        "calls": torch.tensor(5),
        "none": torch.empty(0, 7, dtype=torch.bfloat16),
    }


def inputs(batch: int, length: int, seed: int = 1) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(batch, 3, length, 4, generator=made), "counts": torch.arange(batch)}


def wanted(x: Tensor, counts: Tensor, calls: int = 6) -> dict[str, Any]:
    """What the program computes, by plain torch in float64."""
    held = constants()
    k = torch.nn.functional.linear(x.double(), held["w"].double(), held["bias"].double())
    scores = (x.double() @ k.transpose(-1, -2)) * 0.25
    length = x.shape[2]
    hidden = torch.ones(length, length).triu(1).bool()
    out = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ x.double()
    return {
        "out": out.transpose(1, 2) * 0.5,
        "longer": length + 1,
        "counts": counts + length,
        "calls": held["row"] + calls,
    }


def manifest(stored: Mapping[str, bytes], *, target: str = "cpu", **changes: Any) -> Manifest:
    kernel = kernel_record()
    binaries = [
        Binary(name, target, None if "launcher" in name else PLAN.digest, platform.machine(),
               None if "launcher" in name else cpu_id(), (), LAUNCHER_ABI if "launcher" in name else 0, "g++")
        for name in sorted(stored) if name.startswith("binaries/")
    ]  # fmt: skip
    made = Manifest(
        name="sample",
        attnc="0.1.0",
        inputs=(Port("x", "f32", ("B", "3", "S", "4")), Port("counts", "i64", ("B",), True)),
        outputs=(
            Port("out", "f32", ("B", "S", "3", "4")),
            Port("longer", "int", ()),
            Port("counts", "i64", ("B",)),
            Port("calls", "f32", ("3",)),
        ),
        sizes=(Bounds("B", 1, 9), Bounds("S", 2, None)),
        targets=(target,),
        attentions=({BASE: PLAN.digest, target: PLAN.digest},),
        kernels=(kernel,),
        binaries=tuple(binaries),
        blobs=(),
        entries={},
    )
    return dataclasses.replace(made, **changes)


def kernel_record() -> Kernel:
    source = runtime_samples.source(PLAN)
    return Kernel(PLAN.digest, "cpu", source.name, source.language, source.flags, source.headers, None, ())


def contents(*, binary: bool = True) -> dict[str, bytes]:
    """Every entry but the manifest."""
    source = runtime_samples.source(PLAN)
    header, tensors = weights.parts(constants(), program().constants)
    found = {
        PROGRAM: program().to_json().encode(),
        GRAPH: b"graph @sample() {\n  return\n}\n",
        WEIGHTS: header + b"".join(bytes(chunk) for tensor in tensors for chunk in weights.chunks(tensor)),
        f"plans/{PLAN.digest}.json": PLAN.to_json().encode(),
        kernel_record().source: source.text.encode(),
    }
    if binary:
        kernels.register_plan(PLAN, source)
        built = kernels.kernel(PLAN.digest)
        assert built is not None
        found["binaries/cpu/kernel.so"] = (built.path / "kernel.so").read_bytes()
        found[f"binaries/launcher-{platform.machine()}.so"] = launcher.obtain().library.read_bytes()
    return found


def write(
    path: Path,
    *,
    binary: bool = True,
    edit: Callable[[dict[str, bytes]], None] | None = None,
    edit_manifest: Callable[[dict[str, Any]], None] | None = None,
    **changes: Any,
) -> Path:
    """The sample; ``edit`` changes entries before they are hashed, ``edit_manifest`` the JSON of the manifest."""
    entries = contents(binary=binary)
    if edit:
        edit(entries)
    return write_entries(path, entries, edit_manifest, **changes)


def write_entries(
    path: Path,
    entries: Mapping[str, bytes],
    edit_manifest: Callable[[dict[str, Any]], None] | None = None,
    **changes: Any,
) -> Path:
    with path.open("w+b") as stream:
        writer = ContainerWriter(stream)
        written = [writer.add(name, (entries[name],), len(entries[name])) for name in sorted(entries)]
        hashes = {entry.name: Entry(entry.size, entry.sha256) for entry in written}
        data = json.loads(manifest(entries, **{"entries": hashes, **changes}).to_json())
        if edit_manifest:
            edit_manifest(data)
        text = json.dumps(data, sort_keys=True).encode()
        writer.add(MANIFEST, (text,), len(text))
        writer.finish()
    return path


def entries_of(path: Path) -> dict[str, bytes]:
    """Every entry but the manifest of a file."""
    container = Container(path)
    return {name: bytes(container.view(name)) for name in container.entries if name != MANIFEST}


def same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Equal to rounding of float32; whole numbers exactly."""
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, Tensor):
            tolerance = 0.0 if not value.is_floating_point() else 1e-6
            actual = torch.as_tensor(found[name]).double()  # torch.testing would need sympy
            assert torch.allclose(actual, value.double(), atol=tolerance, rtol=tolerance), name
        else:
            assert found[name] == value
