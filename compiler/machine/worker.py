"""Compiles one kernel and exits: a script that :mod:`attnc.compiler.machine.build` runs in a process of its own.

LLVM and MLIR end the process on what they cannot compile, print to the file descriptors what was wrong, and Triton
takes its settings from the environment when it is first imported. None of that may reach the process of the user. The
script imports nothing of attnc, so that it costs no more than Triton itself.

It reads ``kernel.py`` and ``request.json`` in the folder it is given and writes ``reply.json``, ``code`` (the machine
code) and ``assembly``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path[:0] = sys.argv[2:]  # where another Triton lies than the environment's

import triton  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource, CompilationError  # noqa: E402

METADATA = ("name", "num_warps", "shared", "tmem_size", "global_scratch_size", "profile_scratch_size")
"""What a reply tells of a kernel; None where the target knows no such thing."""


def function(path: Path, name: str) -> Any:
    """The Triton function of a module. It stays a file while it is compiled: Triton reads its source."""
    spec = importlib.util.spec_from_file_location("kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return getattr(module, name)


def source(path: Path, request: dict[str, Any]) -> Any:
    """The kernel with its types, constants and what it may take for granted."""
    kernel = function(path, request["kernel"])
    attributes = {(kernel.arg_names.index(name),): [["tt.divisibility", 16]] for name in request["aligned"]}
    return ASTSource(kernel, request["signature"], request["constants"], attributes)


def settle(folder: Path) -> None:
    """Triton's settings: all files in one folder, no line numbers in the machine code, and what ptxas says."""
    tempfile.tempdir = str(folder)
    triton.knobs.cache.dir = str(folder / "cache")
    triton.knobs.compilation.disable_line_info = True
    triton.knobs.nvidia.dump_ptxas_log = True


def words(error: BaseException) -> str:
    """What is wrong. Triton wraps an error once for each call of a helper and quotes all of the kernel before it."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, CompilationError):
        place = getattr(error.node, "lineno", "?")
        return f"line {place} of the function: {error.error_message or type(error).__name__}"
    text, _, _ = str(error).partition("Repro command:")
    return f"{type(error).__name__}: {text}"


def boxes(metadata: Any) -> list[dict[str, Any]]:
    """How hardware copies the tiles of each tensor descriptor that the kernel is given, in order."""
    described = getattr(metadata, "tensordesc_meta", None) or ()
    return [{"block": list(one["block_size"]), "swizzle": int(one["swizzle"])} for one in described]


def build(folder: Path) -> dict[str, Any]:
    """Compile, write the results and say what they are."""
    request = json.loads((folder / "request.json").read_text())
    settle(folder)
    with contextlib.redirect_stdout(io.StringIO()) as log:
        target = GPUTarget(*request["target"])
        made = triton.compile(source(folder / "kernel.py", request), target=target, options=request["options"])
    code, assembly = ("cubin", "ptx") if target.backend == "cuda" else ("hsaco", "amdgcn")
    (folder / "code").write_bytes(made.asm[code])
    (folder / "assembly").write_text(made.asm[assembly])
    facts = {name: getattr(made.metadata, name, None) for name in METADATA}
    return facts | {"log": log.getvalue(), "descriptors": boxes(made.metadata)}


def answer(folder: Path) -> dict[str, Any]:
    """The reply, whatever happens short of the end of the process."""
    if triton.knobs.runtime.interpret:
        return {"unusable": "TRITON_INTERPRET is set, and the interpreter makes no machine code; unset it"}
    try:
        return build(folder)
    except Exception as error:
        return {"failed": words(error).replace(f"{folder}/", "")}


def main() -> None:
    """Answer the request in the folder named by the first argument."""
    folder = Path(sys.argv[1])
    (folder / "reply.json").write_text(json.dumps(answer(folder)))


if __name__ == "__main__":
    main()
