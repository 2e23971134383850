"""Builds and loads the C++ launcher, and feeds its table of plans on demand."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
from pathlib import Path
from typing import Any

import torch

from attnc.codegen.source import INCLUDE_DIR
from attnc.runtime import kernels
from attnc.runtime.abi import LAUNCHER_ABI, PlanRecord, Resolver, plan_record
from attnc.runtime.entry import BuildSpec, Entry
from attnc.runtime.errors import BuildError
from attnc.runtime.toolchain import Toolchain

SOURCE = Path(__file__).parent / "csrc" / "launcher.cpp"
FLAGS = (
    "-O2",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-DTORCH_TARGET_VERSION=0x020b000000000000",  # torch 2.11, the oldest we take
    "-ltorch_cpu",
)


def launcher_spec(toolchain: Toolchain) -> BuildSpec:
    """What building the launcher with ``toolchain`` for the torch of this process depends on."""
    torch_root = Path(torch.__file__).parent
    abi = INCLUDE_DIR / "attnc" / "abi.h"
    return BuildSpec(
        kind="launcher",
        name="launcher",
        files={"launcher.cpp": SOURCE.read_text()},
        source="launcher.cpp",
        library="launcher.so",
        flags=FLAGS,
        toolchain=toolchain,
        includes=(INCLUDE_DIR, torch_root / "include"),
        locations=(
            f"-L{torch_root / 'lib'}",
            f"-ffile-prefix-map={torch_root}=torch",
            f"-ffile-prefix-map={INCLUDE_DIR}=attnc",
        ),
        depends={
            "abi": str(LAUNCHER_ABI),
            "torch": torch.__version__,
            "paths": "mapped",  # launchers of earlier versions hold paths of the machine that built them
            "abi.h": hashlib.sha256(abi.read_bytes()).hexdigest(),
        },
    )


def obtain() -> Entry:
    """The launcher's entry in the store, built where it isn't there. Raises ToolchainMissing and BuildError."""
    return kernels.library_entry(launcher_spec, f"launcher-{LAUNCHER_ABI}-torch{torch.__version__}")


def load() -> ctypes.CDLL:
    """Load the launcher, which registers the CPU kernel of ``attnc::attention``; its schema must be defined.

    Once per process. One that was offered is taken before one is built. Raises ToolchainMissing when it isn't built and
    can't be, BuildError when building or loading fails.
    """
    library = _opened()
    library.attnc_register.argtypes = [ctypes.c_int64, ctypes.POINTER(PlanRecord)]
    callback = Resolver(functools.partial(_resolve, library))
    library.attnc_set_resolver(callback)
    _keep_alive.append(callback)
    _loaded.append(library)
    return library


_keep_alive: list[object] = []
_offered: list[Path] = []
_loaded: list[ctypes.CDLL] = []


def offer(library: Path) -> None:
    """A launcher that was built elsewhere for this kind of machine and :data:`LAUNCHER_ABI`: spares building one."""
    _offered.append(library)


def renew(plan: int) -> None:
    """Let calls of a plan reach the kernel it has by now, where they went to torch operators before."""
    for library in _loaded:
        _register(library, plan)


def _opened() -> ctypes.CDLL:
    for path in _offered:
        with contextlib.suppress(OSError, AttributeError):  # of another C++ library or torch: ours is built instead
            library = ctypes.CDLL(str(path))
            library.attnc_register, library.attnc_set_resolver  # noqa: B018 - whether it has them
            return library
    built = obtain()
    try:
        return ctypes.CDLL(str(built.library))
    except OSError as error:
        raise BuildError(f"loading the launcher {built.library}: {error}") from error


def _resolve(library: ctypes.CDLL, key: int, message: Any, capacity: int) -> int:
    """The launcher's callback for an unknown plan: registers it from this process's table or the store."""
    try:
        _register(library, key)
    except Exception as error:  # crosses into C++: handed over as text and raised there
        text = f"{type(error).__name__}: {error}".encode()[: capacity - 1]
        ctypes.memmove(message, text + b"\0", len(text) + 1)
        return 1
    return 0


def _register(library: ctypes.CDLL, key: int) -> None:
    kernel = kernels.kernel(key)
    plan = kernels.resolve(key)
    if kernel is None:
        record = plan_record(plan, None, None, None)
    else:
        record = plan_record(plan, kernel.run, kernel.shape, kernel.status)
    if library.attnc_register(key, ctypes.byref(record)) != 0:
        raise ValueError(f"plan {key} has operands of more dimensions than the launcher takes")
