from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # runtime_samples, here and in the processes that tests start

from attnc.runtime import config, launcher  # noqa: E402


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for the session, launcher included: this process may have loaded one from another store before."""
    store = tmp_path_factory.mktemp("store")
    config.configure(config.Config(cache_dir=store))
    launcher.obtain()
    return store


@pytest.fixture(autouse=True)
def configured(shared_store: Path) -> Iterator[None]:
    """Every test builds in the session's store, never in the user's."""
    config.configure(config.Config(cache_dir=shared_store))
    yield
    config.configure(config.Config(cache_dir=shared_store))


ZYGOTE = """
import json, os, sys, traceback
import torch
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        for stream, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(job[name], os.O_CREAT | os.O_WRONLY), stream)
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        sys.path[:0] = job["path"]
        code = 0
        try:
            exec(compile(job["text"], "<script>", "exec"), {"__name__": "__main__"})
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def zygote() -> Iterator[subprocess.Popen[str]]:
    """A process with torch and nothing of ours loaded, which forks for each script: importing torch takes seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", ZYGOTE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    yield process
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


@dataclass(frozen=True)
class Done:
    """How a script ended."""

    returncode: int
    stdout: str
    stderr: str


Script = Callable[..., Done]


@pytest.fixture
def script(tmp_path: Path, shared_store: Path, zygote: subprocess.Popen[str]) -> Script:
    """Run Python text in a fresh process that has only torch loaded; environment variables by keyword."""

    def run(text: str, **variables: str) -> Done:
        files = {name: str(tmp_path / name) for name in ("stdout", "stderr")}
        for file in files.values():
            Path(file).unlink(missing_ok=True)
        settings = {name: value for name, value in os.environ.items() if name != "CXX"}
        settings |= {"ATTNC_CACHE_DIR": str(shared_store), **variables}
        job = {"text": text, "cwd": str(tmp_path), "env": settings, "path": sys.path, **files}
        assert zygote.stdin is not None and zygote.stdout is not None
        print(json.dumps(job), file=zygote.stdin, flush=True)
        code = int(zygote.stdout.readline())
        done = Done(code, *(Path(file).read_text() for file in files.values()))
        assert done.returncode == 0, done.stderr
        return done

    return run
