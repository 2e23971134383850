"""Parameters as Triton's own machine code declares them, against the layout they are packed in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_fakes import record_of

from attnc.runtime.gpu.arguments import layout
from attnc.runtime.gpu.binary import read, write
from attnc.runtime.gpu.cuda import ELEMENT_TYPES
from attnc.runtime.gpu.record import Box

KERNELS = """
import triton
import triton.language as tl


@triton.jit
def scale(x, y, flags, rows, offset, step, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at * step, mask=at < rows, other=0.0) * factor
    tl.store(y + at * step + offset, value.to(tl.bfloat16), mask=at < rows)
    tl.store(flags + at, at == rows)


@triton.jit
def copy(tiles, out, step, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = tiles.load([0, 0])
    tl.store(out + tl.arange(0, ROWS)[:, None] * step + tl.arange(0, COLUMNS)[None, :], tile)
"""

COMPILE = """
import json, sys
sys.path.insert(0, sys.argv[1])
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST as HOST
from triton.compiler import ASTSource
import kernels

TYPES = dict(x="*bf16", y="*bf16", flags="*i1", rows="i32", offset="i64", step="constexpr", factor="fp32")
ALIGNED = {(i,): [["tt.divisibility", 16]] for i in (0, 1)}
found = {}

def compiled(name, function, types, constants, aligned, target):
    types = {**types, **{constant: "constexpr" for constant in constants}}
    kernel = triton.compile(ASTSource(function, types, constants, aligned), target=target, options={"num_warps": 4})
    meta = kernel.metadata
    suffix, text = ("cubin", "ptx") if target.backend == "cuda" else ("hsaco", "amdgcn")
    open(f"{sys.argv[1]}/{name}.code", "wb").write(kernel.asm[suffix])
    boxes = [{**box, "elem_type": HOST[box["elem_type"]]} for box in meta.tensordesc_meta or ()]
    found[name] = {"text": kernel.asm[text], "kernel": meta.name, "shared": meta.shared, "boxes": boxes}

sm_90 = GPUTarget("cuda", 90, 32)
compiled("scale", kernels.scale, TYPES, dict(step=1, BLOCK=128), ALIGNED, sm_90)
compiled("scale_amd", kernels.scale, TYPES, dict(step=1, BLOCK=128), ALIGNED, GPUTarget("hip", "gfx942", 64))
for kind in sys.argv[2:]:
    types = dict(tiles=f"tensordesc<{kind}[64, 128]>", out=f"*{kind}", step="i64")
    compiled(f"copy_{kind}", kernels.copy, types, dict(ROWS=64, COLUMNS=128), {}, sm_90)
json.dump(found, sys.stdout)
"""

SCALE = [
    ("x", "*bf16", "aligned"),
    ("y", "*bf16", "aligned"),
    ("flags", "*i1"),
    ("rows", "i32"),
    ("offset", "i64"),
    ("step", "i32", "one"),
    ("factor", "fp32"),
]
KINDS = ("bf16", "fp16", "fp32", "fp8e4nv", "fp8e5", "i8", "u8", "i32")
BYTES = {"b8": 1, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "f32": 4, "f64": 8}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Triton says of each kernel, and its machine code, compiled in a process of its own, for no GPU here."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "kernels.py").write_text(KERNELS)
    (folder / "compile.py").write_text(COMPILE)
    settings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    settings["TRITON_CACHE_DIR"] = str(folder / "cache")
    command = [sys.executable, str(folder / "compile.py"), str(folder), *KINDS]
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return {name: {**facts, "code": (folder / f"{name}.code").read_bytes()} for name, facts in found.items()}


def ptx_sizes(text: str) -> list[int]:
    """Bytes of each ``.param`` of the entry, in order."""
    head = text.split(".entry", 1)[1].split("{", 1)[0]
    sizes = []
    for line in (line.strip().rstrip(",") for line in head.splitlines()):
        if line.startswith(".param"):
            kind = next(word[1:] for word in line.split() if word[1:] in BYTES)
            count = int(line.split("[")[1].rstrip("])")) if "[" in line else 1
            sizes.append(BYTES[kind] * count)
    return sizes


def test_parameters_are_those_of_the_ptx(compiled: dict[str, Any]) -> None:
    facts = compiled["scale"]
    placed = layout(record_of(facts["code"], SCALE))
    assert ptx_sizes(facts["text"]) == list(placed.sizes) == [8, 8, 8, 4, 8, 4, 8, 8]
    passed = [(name, kind) for name, kind, *_ in SCALE]  # a stride of 1 that is passed would shift all behind it
    assert ptx_sizes(facts["text"]) != list(layout(record_of(facts["code"], passed)).sizes)


def test_parameters_are_those_of_amd_s_code(compiled: dict[str, Any]) -> None:
    """Its metadata lists each argument with its size and its offset, which is our own."""
    facts = compiled["scale_amd"]
    arguments = facts["text"].split(".args:", 1)[1].split(".group_segment", 1)[0]
    listed = {
        key: [int(line.split()[-1]) for line in arguments.splitlines() if f".{key}:" in line]
        for key in ("size", "offset")
    }
    placed = layout(record_of(facts["code"], SCALE, backend="hip", arch="gfx942"))
    assert (listed["size"], listed["offset"]) == (list(placed.sizes), list(placed.offsets))


@pytest.mark.parametrize("kind", KINDS)
def test_a_descriptor_is_passed_as_the_ptx_wants(kind: str, compiled: dict[str, Any]) -> None:
    facts = compiled[f"copy_{kind}"]
    parameters = [("tiles", f"tensordesc<{kind}[64, 128]>"), ("out", f"*{kind}"), ("step", "i64")]
    placed = layout(record_of(facts["code"], parameters))
    assert ptx_sizes(facts["text"]) == list(placed.sizes) == [128, 4, 4, 8, 8, 8, 8, 8, 8]


@pytest.mark.parametrize("kind", KINDS)
def test_element_types_are_those_triton_would_encode(kind: str, compiled: dict[str, Any]) -> None:
    (box,) = compiled[f"copy_{kind}"]["boxes"]
    assert box["elem_type"] == ELEMENT_TYPES[kind]
    assert not box["fp4_padded"]


def test_real_machine_code_is_packaged(compiled: dict[str, Any], tmp_path: Path) -> None:
    facts = compiled["copy_bf16"]
    boxes = tuple(Box(tuple(box["block_size"]), box["swizzle"]) for box in facts["boxes"])
    parameters = [("tiles", "tensordesc<bf16[64, 128]>"), ("out", "*bf16"), ("step", "i64")]
    record = record_of(facts["code"], parameters, kernel=facts["kernel"], shared=facts["shared"], descriptors=boxes)
    write(tmp_path, record, facts["code"], "# a kernel\n")
    found = read(tmp_path, record.name)
    assert found.code.startswith(b"\x7fELF")
    assert found.record == record
    assert found.record.shared >= 64 * 128 * 2
    assert found.record.descriptors == (Box((64, 64), 3),)
