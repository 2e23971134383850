"""Machine code of an emitted Triton kernel, made ahead of time: no driver and no GPU is needed.

Each kernel is compiled in a process of its own (:mod:`attnc.compiler.machine.worker` says why). Nothing is left behind:
not in Triton's cache, not beside the sources.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnc.codegen.targets import Capability, Gpu
from attnc.codegen.triton.launch import Launch
from attnc.compiler.machine.resources import Resources, from_amdgcn, from_ptxas
from attnc.runtime.gpu.record import Box

WORKER = Path(__file__).with_name("worker.py")
TIMEOUT = 600.0
"""Seconds one kernel may take."""
WORDS = 400
"""Characters of a compiler's words that a reason keeps."""


class CompileFailure(RuntimeError):
    """A compiler could not make machine code of a kernel for a target: ``reason`` holds its words in one line."""

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"{target}: {reason}")
        self.target = target
        self.reason = reason


@dataclass(frozen=True)
class Binary:
    """A compiled kernel and what it needs to run."""

    kernel: str
    """The function's name in the machine code."""
    target: str
    code: bytes
    """A cubin or hsaco."""
    assembly: str
    """PTX or AMD assembly."""
    shared: int
    """Bytes of shared memory, to be asked for at launch."""
    num_warps: int
    threads: int
    """Of one program: a block."""
    global_scratch: int
    """Bytes of global memory for each program, as the second last parameter of the machine code."""
    profile_scratch: int
    """Bytes, as the last parameter; 0 but for profilers."""
    registers: int
    """32-bit registers of one thread; on AMD accumulators included."""
    spill_stores: int
    """Bytes of one thread."""
    spill_loads: int
    stack: int
    """Bytes of local memory of one thread, spills included."""
    tensor_memory: int = 0
    """Columns of tensor memory (sm_100)."""
    warnings: tuple[str, ...] = ()
    """Of ptxas, C75xx: wgmma instructions that wait for each other."""
    descriptors: tuple[Box, ...] = ()
    """How the tiles of each tensor descriptor among the parameters are copied, in order."""


def compile_kernel(text: str, launch: Launch, target: Capability, triton: Path | None = None) -> Binary:
    """Compile ``launch.kernel`` of the Python module ``text`` for a GPU.

    ``triton``: a folder that holds another Triton than the environment's.

    Products and sums are contracted to fused ones (``enable_fp_fusion``), as a launch of the same kernel by Triton 3.7
    does by default. It is said here and not left to the default or to ``TRITON_DEFAULT_FP_FUSION``, because versions
    of Triton differ in it, and it decides on both the rounding of a score and the length of the loop. Line numbers are
    left out, so the same text gives the same machine code.

    Raises SyntaxError where the text is no Python, ValueError where the target is no GPU or ``launch`` does not fit the
    function, CompileFailure where a compiler refuses, RuntimeError where Triton is missing or ``TRITON_INTERPRET`` is
    set.
    """
    gpu = target.gpu
    if gpu is None:
        raise ValueError(f"{target.name} has no machine code of Triton kernels")
    check_arguments(text, launch)
    with tempfile.TemporaryDirectory(prefix="attnc-triton-") as name:
        folder = Path(name)
        (folder / "kernel.py").write_text(text, encoding="utf-8")
        (folder / "request.json").write_text(json.dumps(request(launch, gpu)), encoding="utf-8")
        reply = run(folder, target.name, triton)
        code, assembly = (folder / "code").read_bytes(), (folder / "assembly").read_text(encoding="utf-8")
    needs = from_ptxas(reply["log"], reply["name"]) if gpu.backend == "cuda" else from_amdgcn(assembly)
    return binary(reply, code, assembly, needs, target.name, gpu)


def check_arguments(text: str, launch: Launch) -> None:
    """Raise ValueError unless the kernel's arguments are the parameters, then the constants of ``launch``."""
    functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == launch.kernel]
    if not functions:
        raise ValueError(f"the text defines no function {launch.kernel}")
    arguments = [argument.arg for argument in functions[-1].args.args]
    wanted = [*(parameter.name for parameter in launch.parameters), *launch.constants]
    if arguments != wanted:
        raise ValueError(f"{launch.kernel} takes {', '.join(arguments)}; the launch gives {', '.join(wanted)}")


def request(launch: Launch, gpu: Gpu) -> dict[str, Any]:
    """What the worker is asked, ready for JSON."""
    ones = {p.name: 1 for p in launch.parameters if p.assumed == "one"}
    constants = {**ones, **launch.constants}
    types = {p.name: p.type for p in launch.parameters}
    return {
        "kernel": launch.kernel,
        "signature": types | dict.fromkeys(constants, "constexpr"),
        "constants": constants,
        "aligned": [p.name for p in launch.parameters if p.assumed == "aligned"],
        "options": {"num_warps": launch.num_warps, "num_stages": launch.num_stages, "enable_fp_fusion": True},
        "target": [gpu.backend, gpu.arch, gpu.warp_size],
    }


def run(folder: Path, target: str, triton: Path | None = None) -> dict[str, Any]:
    """Let the worker answer. Raises CompileFailure and RuntimeError as :func:`compile_kernel` says."""
    # -P: modules beside the worker hide no others
    command = [sys.executable, "-P", str(WORKER), str(folder), *([str(triton)] if triton is not None else [])]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        raise CompileFailure(target, f"no result after {TIMEOUT:.0f} s") from None
    answer = folder / "reply.json"
    if not answer.exists():
        raise unanswered(target, done)
    reply: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "unusable" in reply:
        raise RuntimeError(reply["unusable"])
    if "failed" in reply:
        raise CompileFailure(target, one_line(reply["failed"], *complaints(done.stderr)))
    return reply


def unanswered(target: str, done: subprocess.CompletedProcess[str]) -> RuntimeError:
    """Why there is no reply: Triton is missing, or a compiler ended the process."""
    last = done.stderr.strip().splitlines()[-1:]
    if last and last[0].startswith(("ModuleNotFoundError", "ImportError")):
        return RuntimeError(f"kernels of {target} need Triton: {last[0]}")
    words = complaints(done.stderr) or last
    return CompileFailure(target, one_line(f"the compiler ended with status {done.returncode}", *words))


def complaints(stderr: str) -> list[str]:
    """The lines in which MLIR and LLVM say what is wrong, without places; each once."""
    found = re.findall(r"(?:error|LLVM ERROR): (.*)", stderr)
    return list(dict.fromkeys(text.strip() for text in found))


def one_line(*words: str) -> str:
    """Several texts in one line of bounded length."""
    text = "; ".join(" ".join(word.split()) for word in words)
    return text if len(text) <= WORDS else text[: WORDS - 1] + "…"


def binary(reply: dict[str, Any], code: bytes, assembly: str, needs: Resources, target: str, gpu: Gpu) -> Binary:
    """All that was learned, in one record."""
    return Binary(
        kernel=reply["name"],
        target=target,
        code=code,
        assembly=assembly,
        shared=reply["shared"],
        num_warps=reply["num_warps"],
        threads=reply["num_warps"] * gpu.warp_size,
        global_scratch=reply["global_scratch_size"] or 0,
        profile_scratch=reply["profile_scratch_size"] or 0,
        tensor_memory=reply["tmem_size"] or 0,
        descriptors=tuple(Box(tuple(box["block"]), box["swizzle"]) for box in reply["descriptors"]),
        **dataclasses.asdict(needs),
    )
