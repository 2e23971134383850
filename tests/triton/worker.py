"""Triton's interpreter for tests, in a process of its own: ``interpreted().run(module_text, "attention", q, k, v)``.

A test's process may have imported triton for the compiler, as Inductor does, and one process can't do both. It also
lets the same test run under another Triton, which lies in a folder (see ``versions.py``).
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.triton.messages import Failure, Job, pack, unpack
from tests.triton.versions import PINNED, ROOT, ensure

PATIENCE = 300.0
"""Seconds a job may take."""


class WorkerError(RuntimeError):
    """A job failed. ``kind`` is the exception's class there, or "died" or "timeout"; the text has the traceback."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind} in the interpreter's process\n{text}")
        self.kind = kind


def poisoned(function: str) -> str:
    """Text for an emitted module: ``poisoned``, which calls ``function`` with new tensors filled with NaN."""
    return f"""

def poisoned(*operands):
    torch.use_deterministic_algorithms(True)
    try:
        return {function}(*operands)
    finally:
        torch.use_deterministic_algorithms(False)
"""


POISONED = poisoned("attention")
"""Attention into results that are NaN before the kernel writes them."""


def interpreted(version: str = PINNED, *, round_tf32: bool = False, repaired: bool = True) -> Worker:
    """The worker of this process for a version and a mode; the same one each time, ended with this process."""
    return shared(version, round_tf32, repaired)


@functools.cache
def shared(version: str, round_tf32: bool, repaired: bool) -> Worker:
    worker = Worker(version, round_tf32=round_tf32, repaired=repaired)
    atexit.register(worker.close)
    return worker


class Worker:
    """An interpreter's process, started by its first job, and started again by the job after its death.

    ``repaired=False`` leaves the interpreter as it is; only the tests of the repairs want that.
    """

    def __init__(self, version: str = PINNED, *, round_tf32: bool = False, repaired: bool = True) -> None:
        self.version = version
        self.modes = ["repaired"] * repaired + ["tf32"] * round_tf32
        self.process: subprocess.Popen[bytes] | None = None
        self.pipe: Connection
        self.scratch: tempfile.TemporaryDirectory[str]

    def run(self, module_text: str, function: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call ``function`` of a module given as its text.

        Arguments and result are copied, tensors with their strides: a write to an argument is not seen here.

        Raises:
            WorkerError: the call raised, the process died (a wild pointer kills it), or it took too long.
        """
        return self.perform(Job(function, args, kwargs, text=module_text))

    def call(self, target: str, /, *args: Any, **kwargs: Any) -> Any:
        """Call ``package.module:function`` as it is importable from the root of the repository; see ``run``."""
        module, function = target.split(":")
        return self.perform(Job(function, args, kwargs, module=module))

    def perform(self, job: Job) -> Any:
        data = pack(job)
        if self.process is None:
            self.start()
        try:
            self.pipe.send_bytes(data)
        except OSError:
            raise self.death("died") from None
        return self.receive()

    def receive(self) -> Any:
        try:
            if not self.pipe.poll(PATIENCE):
                raise self.death("timeout")
            result = unpack(self.pipe.recv_bytes())
        except (EOFError, ConnectionError):
            raise self.death("died") from None
        if isinstance(result, Failure):
            raise WorkerError(result.kind, result.text)
        return result

    def start(self) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="attnc-interpreter-")
        self.pipe, theirs = Pipe()
        command = [sys.executable, "-m", "tests.triton.child", str(theirs.fileno()), self.scratch.name, *self.modes]
        with theirs, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=self.environment(), pass_fds=[theirs.fileno()], stdout=log, stderr=log
            )
        try:
            found = self.receive()
        except WorkerError:
            self.close()
            raise
        assert found == self.version, f"asked for triton {self.version}, got {found}"

    def environment(self) -> dict[str, str]:
        """This process's, with the mode and, first on the path, the version's folder."""
        folder = ensure(self.version)
        path = [str(folder)] if folder else []
        path += [part for part in (os.environ.get("PYTHONPATH"),) if part]
        return os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}

    def death(self, kind: str) -> WorkerError:
        """End what is left of the process; the error to raise."""
        assert self.process is not None
        if kind == "timeout":
            self.process.kill()
        code = self.process.wait()
        error = WorkerError(kind, f"exit {code}\n{self.log.read_text(errors='replace')[-4000:]}")
        self.close()
        return error

    def close(self) -> None:
        """End the process, if there is one."""
        if self.process is None:
            return
        self.pipe.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None
        self.scratch.cleanup()

    @property
    def log(self) -> Path:
        """What the process prints."""
        return Path(self.scratch.name) / "output.txt"
