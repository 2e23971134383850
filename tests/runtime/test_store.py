from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from attnc.runtime.entry import BuildSpec, read_entry
from attnc.runtime.errors import BuildError, ToolchainMissing
from attnc.runtime.store import Store
from attnc.runtime.toolchain import find_toolchain

GOOD = 'extern "C" int answer() { return 42; }\n'

WORKER = """
import sys, time
from pathlib import Path
from attnc.runtime.entry import BuildSpec
from attnc.runtime.store import Store
from attnc.runtime.toolchain import find_toolchain
import ctypes
root, names = Path(sys.argv[1]), sys.argv[2:]
for name in names:
    text = 'extern "C" int answer() { return ' + name + '; }'
    flags = ("-O1", "-shared", "-fPIC")
    spec = BuildSpec(
        "kernel", "k" + name, {"kernel.cpp": text}, "kernel.cpp", "kernel.so", flags, find_toolchain()
    )
    entry = Store(root).obtain(spec)
    assert ctypes.CDLL(str(entry.library)).answer() == int(name)
    print(entry.path.name, entry.meta["created"])
"""


def spec(text: str = GOOD, name: str = "sample") -> BuildSpec:
    return BuildSpec(
        kind="kernel",
        name=name,
        files={"kernel.cpp": text, "plan.json": "{}"},
        source="kernel.cpp",
        library="kernel.so",
        flags=("-O1", "-shared", "-fPIC"),
        toolchain=find_toolchain(),
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_making_a_store_touches_nothing(store: Store) -> None:
    assert store.load(spec()) is None
    assert store.ls() == []
    assert not store.root.exists()


def test_obtain_builds_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = store.obtain(spec())
    assert entry.library.exists()
    assert (entry.path / "kernel.cpp").read_text() == GOOD
    monkeypatch.setattr("attnc.runtime.store.compile_library", lambda *a: pytest.fail("built again"))
    assert store.obtain(spec()) == entry
    assert list((store.path / "tmp").iterdir()) == []


@pytest.mark.parametrize("change", ["text", "flags", "toolchain", "depends", "kind"])
def test_everything_that_matters_is_in_the_key(change: str) -> None:
    base = spec()
    changed = {
        "text": lambda: dataclasses.replace(base, files={**base.files, "kernel.cpp": GOOD + "//"}),
        "flags": lambda: dataclasses.replace(base, flags=(*base.flags, "-g")),
        "toolchain": lambda: dataclasses.replace(base, toolchain=dataclasses.replace(base.toolchain, cpu="other")),
        "depends": lambda: dataclasses.replace(base, depends={"headers": "1"}),
        "kind": lambda: dataclasses.replace(base, kind="launcher"),
    }[change]()
    assert changed.digest != base.digest
    assert spec().digest == base.digest


def truncate(folder: Path) -> None:
    library = folder / "kernel.so"
    library.write_bytes(library.read_bytes()[:100])


def flip(folder: Path) -> None:
    library = folder / "kernel.so"
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 0xFF
    library.write_bytes(bytes(data))


def lose_library(folder: Path) -> None:
    (folder / "kernel.so").unlink()


def bad_json(folder: Path) -> None:
    (folder / "meta.json").write_text('{"version": 1,')


def wrong_json(folder: Path) -> None:
    (folder / "meta.json").write_text("[1, 2]")


def no_meta(folder: Path) -> None:
    (folder / "meta.json").unlink()


def other_key(folder: Path) -> None:
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**meta, "digest": "0" * 64}))


def changed_source(folder: Path) -> None:
    (folder / "kernel.cpp").write_text("// edited")


@pytest.mark.parametrize(
    "damage", [truncate, flip, lose_library, bad_json, wrong_json, no_meta, other_key, changed_source]
)
def test_a_broken_entry_is_rebuilt_not_loaded(store: Store, damage: Callable[[Path], None]) -> None:
    entry = store.obtain(spec())
    damage(entry.path)
    assert store.load(spec()) is None
    rebuilt = store.obtain(spec())
    assert rebuilt.path == entry.path
    assert read_entry(rebuilt.path, spec().digest) == rebuilt
    assert [e.path for e in store.ls()] == [entry.path]
    assert list((store.path / "tmp").iterdir()) == []


def test_a_rejected_source_is_kept_with_what_the_compiler_said(store: Store) -> None:
    with pytest.raises(BuildError, match="nonsense") as caught:
        store.obtain(spec("int f() { return nonsense; }"))
    assert "nonsense" in caught.value.stderr
    assert caught.value.source is not None
    assert caught.value.source.read_text() == "int f() { return nonsense; }"
    assert str(caught.value.source) in str(caught.value)
    assert store.ls() == []
    assert list((store.path / "tmp").iterdir()) == []


def test_a_compiler_that_hangs_is_stopped(store: Store, tmp_path: Path) -> None:
    slow = tmp_path / "slow-cxx"
    slow.write_text('#!/bin/sh\n[ "$1" = --version ] && echo slow 1.0 && exit\nexec sleep 60\n')
    slow.chmod(0o755)
    stuck = dataclasses.replace(spec(), toolchain=find_toolchain(str(slow)))
    with pytest.raises(BuildError, match=r"no result after 0\.3 s"):
        store.obtain(stuck, timeout=0.3)


def start(root: Path, *names: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORKER, str(root), *names]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))


def test_four_processes_build_the_same_and_other_entries(store: Store) -> None:
    workers = [start(store.root, *names) for names in (("1", "2"), ("2", "1"), ("1", "3"), ("4", "1"))]
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4, results
    built = {tuple(line.split()) for out, _ in results for line in out.splitlines()}
    assert len(built) == 4  # each entry was built once: all saw the same time
    assert len(store.ls()) == 4


def test_threads_of_one_process_build_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from attnc.runtime import build
    from attnc.runtime import store as module

    builds: list[Path] = []
    original = build.compile_library

    def counted(toolchain: object, source: Path, *rest: object) -> None:
        builds.append(source)
        original(toolchain, source, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "compile_library", counted)
    threads = [threading.Thread(target=store.obtain, args=(spec(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1


def test_a_builder_killed_half_way_leaves_nothing_in_the_way(store: Store, tmp_path: Path) -> None:
    slow = tmp_path / "slow-cxx"
    slow.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec g++ --version\n[ -e "$HANG" ] && exec sleep 30\nexec g++ "$@"\n'
    )
    slow.chmod(0o755)
    hang = tmp_path / "hang"
    hang.touch()
    text = WORKER.replace("find_toolchain()", f"find_toolchain({str(slow)!r})")
    worker = subprocess.Popen(
        [sys.executable, "-c", text, str(store.root), "7"],
        env={**os.environ, "HANG": str(hang)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while not list((store.path / "tmp").glob("build-*/kernel.cpp")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert len(list((store.path / "tmp").iterdir())) == 1  # what it left
    hang.unlink()
    done = subprocess.run([sys.executable, "-c", text, str(store.root), "7"], timeout=60, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert list((store.path / "tmp").iterdir()) == []
    assert len(store.ls()) == 1


def test_an_unwritable_store_warns_once_and_builds_elsewhere(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = Store(blocked / "store")
    with pytest.warns(RuntimeWarning, match="can't be written") as caught:
        entry = store.obtain(spec())
    assert len(caught) == 1
    assert entry.library.exists()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.obtain(spec()) == entry
        store.write_record("plans", "1", {"a": 1})
        assert store.read_record("plans", "1") == {"a": 1}
    assert store.problem() is not None


def test_a_read_only_store_is_still_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = store.obtain(spec())
    monkeypatch.setattr(Store, "problem", lambda self: "Read-only file system")
    assert store.obtain(spec()) == entry


def test_records_are_checked(store: Store) -> None:
    store.write_record("plans", "5", {"plan": "x", "n": [1, 2]})
    assert store.read_record("plans", "5") == {"plan": "x", "n": [1, 2]}
    file = store.path / "plans" / "5.json"
    file.write_text(file.read_text().replace('"x"', '"y"'))
    assert store.read_record("plans", "5") is None
    file.write_text("{")
    assert store.read_record("plans", "5") is None
    store.write_record("plans", "5", {"plan": "x"})
    assert store.read_record("plans", "5") == {"plan": "x"}
    assert [f.name for f in (store.path / "plans").iterdir()] == ["5.json"]


def test_recall_finds_a_build_without_a_compiler(store: Store) -> None:
    entry = store.obtain(spec())
    store.remember("plan-1", entry)
    assert store.recall("plan-1", spec().toolchain.cpu) == entry
    assert store.recall("plan-1", "another cpu") is None
    assert store.recall("plan-2", spec().toolchain.cpu) is None
    truncate(entry.path)
    assert store.recall("plan-1", spec().toolchain.cpu) is None


def test_ls_and_clear(store: Store) -> None:
    first, second = store.obtain(spec()), store.obtain(spec(GOOD + "//", "other"))
    outside = store.root / "mine.txt"
    outside.write_text("kept")
    listed = store.ls()
    assert {e.path for e in listed} == {first.path, second.path}
    assert {e.meta["name"] for e in listed} == {"sample", "other"}
    assert all(e.bytes > 1000 and 0 <= e.age < 600 for e in listed)
    size = sum(e.bytes for e in listed)
    cleared = store.clear()
    assert (cleared.entries, cleared.in_use) == (2, 0)
    assert cleared.bytes == size
    assert store.ls() == []
    assert outside.exists()
    assert store.obtain(spec()).library.exists()


def test_clear_leaves_what_is_being_built(store: Store) -> None:
    from attnc.runtime import store as module

    entry = store.obtain(spec())
    with module._lock(store.path, spec().digest[:16]):
        cleared = store.clear()
    assert (cleared.entries, cleared.in_use) == (0, 1)
    assert entry.library.exists()


def test_a_named_compiler_is_never_replaced(tmp_path: Path) -> None:
    with pytest.raises(ToolchainMissing, match="no-such-compiler"):
        find_toolchain("no-such-compiler")
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ToolchainMissing, match="does not run"):
        find_toolchain(str(broken))


def test_a_compiler_may_have_leading_arguments() -> None:
    found = find_toolchain("g++ -m64")
    assert found.command[1:] == ("-m64",)
    assert found.id != find_toolchain("g++").id
