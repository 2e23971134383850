"""A driver that only writes down what it is asked, a PyTorch that sees a GPU, and records of made-up kernels."""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from attnc.runtime.gpu.binary import sha256
from attnc.runtime.gpu.cuda import Cuda
from attnc.runtime.gpu.driver import Driver, Place
from attnc.runtime.gpu.hip import Hip
from attnc.runtime.gpu.record import BinaryRecord, Box, Parameter

MODULE, FUNCTION = 0x1111222233334444, 0x5555666677778888
STREAM = 0x7F12_3456_789A
FLAGS = {"cuda": [], "old": ["-DOLD"], "hip": ["-DHIP", "-D__HIP_PLATFORM_AMD__"]}
SOURCE = "# a kernel\n"


def build(source: Path, folder: Path, name: str) -> Path:
    """Compile the fake driver against the vendor's header, which Triton brings."""
    spec = importlib.util.find_spec("triton")
    assert spec is not None and spec.origin is not None
    headers = Path(spec.origin).parent / "backends" / ("amd" if name == "hip" else "nvidia") / "include"
    library = folder / f"{name}.so"
    flags = ["-Wall", "-Werror", "-shared", "-fPIC", "-pthread", *FLAGS[name], f"-isystem{headers}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(library)], check=True)
    return library


class Fake:
    """The library of ``fake_driver.c``, and a PyTorch that sees devices of its vendor."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.fake_log.restype = ctypes.c_char_p
        self.fail("", 0)
        self.expect(b"", [])
        self.context(0xC0)
        vendor = "hip" if path.stem == "hip" else "cuda"
        for name in ("cuda", "hip"):
            monkeypatch.setattr(torch.version, name, "13.0" if name == vendor else None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        self._monkeypatch = monkeypatch
        self.device(3, STREAM)

    def device(self, index: int, stream: int, capability: tuple[int, int] = (9, 0)) -> None:
        """PyTorch's current device and stream from now on; it is asked for no other."""
        facts = {
            "get_device_capability": capability,
            "get_device_properties": SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-"),
            "current_stream": SimpleNamespace(cuda_stream=stream),
        }
        self._monkeypatch.setattr(torch.cuda, "current_device", lambda: index)
        for name, fact in facts.items():
            self._monkeypatch.setattr(torch.cuda, name, {index: fact}.__getitem__)

    def fail(self, call: str, code: int) -> None:
        """Forget all calls; ``call`` returns ``code`` from now on."""
        self.library.fake_reset(call.encode(), code)

    def expect(self, code: bytes, sizes: Sequence[int]) -> None:
        """Write down that many bytes of the code that is loaded, and of each parameter of a launch."""
        self.library.fake_expect(ctypes.c_size_t(len(code)), (ctypes.c_size_t * (len(sizes) + 1))(*sizes, 0))

    def context(self, handle: int) -> None:
        self.library.fake_context(ctypes.c_void_p(handle))

    def calls(self) -> list[list[str]]:
        """One list per call: its name, then its arguments."""
        return [line.split() for line in self.library.fake_log().decode().splitlines()]

    def driver(self) -> Driver:
        return Hip(self.path) if self.path.endswith("hip.so") else Cuda(self.path)

    def on_cpu(self) -> Driver:
        """A driver whose device is the CPU, so that tensors of a test are on it."""
        driver = self.driver()
        places = driver.place

        def place() -> Place | None:
            found = places()
            return found and dataclasses.replace(found, device=torch.device("cpu"))

        driver.place = place  # type: ignore[method-assign]
        return driver


def record_of(code: bytes, parameters: Sequence[tuple[str, ...]], **changes: Any) -> BinaryRecord:
    """The record of a kernel for sm_90. Parameters: name, type and what is assumed."""
    listed = tuple(Parameter(*parameter) for parameter in parameters)  # type: ignore[arg-type]
    fields: dict[str, Any] = {
        "name": "flash_bf16",
        "kernel": "flash",
        "target": "sm_90",
        "backend": "cuda",
        "arch": 90,
        "shared": 0,
        "num_warps": 4,
        "threads": 128,
        "plan": (1 << 63) - 25,
        "code_sha256": sha256(code),
        "source_sha256": sha256(SOURCE),
        "parameters": listed,
        "descriptors": (Box((64, 64), 3),) * sum(p.is_descriptor for p in listed),
    }
    return BinaryRecord(**{**fields, **changes})
