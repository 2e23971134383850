"""Kernels in Triton: emitted modules, written to the store and imported. Triton is loaded with the first of them."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from torch import Tensor

from attnc.codegen.source import Source
from attnc.runtime import config
from attnc.runtime.errors import BuildError

INTERPRETED = "triton-interpret"
"""The target whose kernels run in Triton's interpreter, on CPU tensors: for tests and for people who debug a kernel."""

Attention = Callable[[Tensor, Tensor, Tensor, Sequence[Tensor], Sequence[int]], tuple[Tensor, Tensor]]

_lock = threading.Lock()
_modules: dict[str, ModuleType] = {}


def attention_of(source: Source, target: str) -> Attention:
    """The ``attention(q, k, v, sides, sizes)`` of an emitted module, which launches its kernel.

    Raises BuildError where the module can't be imported, and where ``target`` is the interpreter's and Triton was not
    told so when it was loaded.
    """
    check_mode(target)
    function: Attention = module_of(source).attention
    return function


def check_mode(target: str) -> None:
    """Raises BuildError where ``target`` is the interpreter's and Triton was not told so when it was loaded."""
    import triton

    interpreting = bool(triton.knobs.runtime.interpret)
    if interpreting != (target == INTERPRETED):
        raise BuildError(
            f"a kernel for {target} in a process {'with' if interpreting else 'without'} TRITON_INTERPRET=1: Triton "
            f"decides once, when it is loaded, whether kernels are interpreted. Start the process "
            f"{'without it' if interpreting else 'with TRITON_INTERPRET=1'}."
        )


def module_of(source: Source) -> ModuleType:
    """An emitted module, imported once. Raises BuildError where it can't be."""
    with _lock:
        if source.digest not in _modules:
            _modules[source.digest] = _import(source)
        return _modules[source.digest]


def _import(source: Source) -> ModuleType:
    name = f"attnc_kernel_{source.name}_{source.digest[:16]}"
    path = _written(config.current().cache_dir / "v1" / "triton", f"{name}.py", source.text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Inductor and tracebacks look it up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BuildError(f"importing the emitted kernel {path}: {error}") from error
    return module


def _written(folder: Path, name: str, text: str) -> Path:
    """``folder/name`` holding ``text``; in a temporary folder of this process where the store can't be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, part = tempfile.mkstemp(dir=folder, suffix=".part")
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="attnc-"))
        descriptor, part = tempfile.mkstemp(dir=folder, suffix=".part")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(part, folder / name)
    return folder / name
