"""The interpreter's process: ``python -m tests.triton.child FD FOLDER [repaired] [tf32]``; ``worker.py`` starts it.

TRITON_INTERPRET=1 has to be set before triton is first imported, and stays for good: hence a process of its own.
"""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import importlib.util
import sys
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import torch
import triton

from tests.triton.messages import Failure, Job, pack, unpack


def main(fd: str, folder: str, *modes: str) -> None:
    """Answer jobs until the other end of the pipe is closed. The first answer is triton's version."""
    faulthandler.enable()
    torch.set_num_threads(1)
    with Connection(int(fd)) as connection:
        connection.send_bytes(greeting(modes))
        while True:
            try:
                job = connection.recv_bytes()
            except EOFError:
                return
            connection.send_bytes(answer(job, Path(folder)))


def greeting(modes: tuple[str, ...]) -> bytes:
    try:
        if "repaired" in modes:
            from tests.triton import triton_compat

            triton_compat.install(round_tf32="tf32" in modes)
            triton_compat.guard()
        return pack(triton.__version__)
    except Exception as error:
        return pack(failure(error))


def answer(data: bytes, folder: Path) -> bytes:
    """The packed result of a packed job, or its failure."""
    try:
        return pack(perform(unpack(data), folder))
    except Exception as error:
        return pack(failure(error))


def failure(error: Exception) -> Failure:
    return Failure(type(error).__name__, "".join(traceback.format_exception(error)))


def perform(job: Job, folder: Path) -> object:
    module = load(job.text, folder) if job.text is not None else importlib.import_module(job.module or "")
    return getattr(module, job.function)(*job.args, **job.kwargs)


def load(text: str, folder: Path) -> ModuleType:
    """The module of a text, once for each text. A file, because the interpreter reads a kernel's source again."""
    name = "emitted_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    if name not in sys.modules:
        path = folder / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]


if __name__ == "__main__":
    main(*sys.argv[1:])
