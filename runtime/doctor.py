"""Facts about this machine that decide what runs, with a remedy for each that is amiss."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from typing import Literal, NamedTuple

from attnc.runtime import config, toolchain
from attnc.runtime.errors import ToolchainMissing
from attnc.runtime.store import Store

Status = Literal["ok", "warning", "error"]


class Fact(NamedTuple):
    """One line of ``attnc doctor``."""

    name: str
    status: Status
    detail: str
    remedy: str = ""
    """What to do about it; empty where nothing is amiss."""


def examine() -> list[Fact]:
    """Every fact, in the order they are shown. Builds the launcher if it isn't built (seconds); never raises."""
    return [check() for check in CHECKS]


def _python() -> Fact:
    return Fact("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")


def _torch() -> Fact:
    import torch

    return Fact("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")


def _triton() -> Fact:
    version = installed("triton")
    if version is None:
        return Fact("triton", "warning", "not installed: no GPU kernels", "pip install triton")
    return Fact("triton", "ok", version)


def _compiler() -> Fact:
    try:
        found = toolchain.find_toolchain(config.current().cxx)
    except ToolchainMissing as error:
        return Fact("C++ compiler", "error", str(error), "Install g++ or clang++, or set CXX.")
    return Fact("C++ compiler", "ok", f"{' '.join(found.command)}: {found.version}")


def _isa() -> Fact:
    names = toolchain.isa()
    if not names:
        return Fact("vector extensions", "warning", "none known here: kernels use the compiler's baseline")
    return Fact("vector extensions", "ok", names)


def _store() -> Fact:
    store = Store(config.current().cache_dir)
    problem = store.problem()
    if problem is not None:
        remedy = "Set ATTNC_CACHE_DIR to a folder you can write."
        return Fact("build store", "warning", f"{store.root} can't be written: {problem}", remedy)
    entries = store.ls()
    size = sum(entry.bytes for entry in entries) / 1e6
    return Fact("build store", "ok", f"{store.root}: {len(entries)} entries, {size:.1f} MB")


def _route() -> Fact:
    from attnc.runtime.routes import route

    name, reason = route()
    if name == "launcher":
        return Fact("calls", "ok", "C++ launcher")
    meaning = {"ctypes": "from Python (about 0.1 ms a call)", "aten": "no kernels: plain torch operators"}[name]
    return Fact("calls", "warning", f"{meaning}; {reason}", "See the C++ compiler above.")


def _onnxruntime() -> Fact:
    cpu, gpu = installed("onnxruntime"), installed("onnxruntime-gpu")
    if cpu and gpu:
        remedy = "pip uninstall onnxruntime onnxruntime-gpu, then install the one you want."
        return Fact("onnxruntime", "error", f"onnxruntime {cpu} and onnxruntime-gpu {gpu} share one folder", remedy)
    if not (cpu or gpu):
        return Fact("onnxruntime", "ok", "not installed (needed for ONNX files only)")
    return Fact("onnxruntime", "ok", cpu or f"{gpu} (gpu)")


def installed(distribution: str) -> str | None:
    """The version of an installed distribution, None where it isn't there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


CHECKS: tuple[Callable[[], Fact], ...] = (_python, _torch, _triton, _compiler, _isa, _store, _route, _onnxruntime)
