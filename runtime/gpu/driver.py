"""The vendor's driver library through ctypes: load machine code, find its function, launch it.

CUDA and HIP have the same calls under other names; :class:`Api` holds the names. ctypes and not a binding package:
PyTorch has loaded the very library already, and tests can put another in its place. The device, its context and the
stream are PyTorch's, so that launches are ordered with its own.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from attnc.runtime.gpu.arguments import Arguments, Layout, TensorDescriptor, layout
from attnc.runtime.gpu.binary import verify_code
from attnc.runtime.gpu.record import BinaryRecord, Box

_ADVICE = {
    **dict.fromkeys(
        ("cuModuleLoadData", "hipModuleLoadData"),
        " The driver may be older than the compiler that wrote the code: update it, or compile the kernel again.",
    ),
    **dict.fromkeys(
        ("cuLaunchKernel", "hipModuleLaunchKernel"),
        " Errors of earlier work on the device show here too: run with CUDA_LAUNCH_BLOCKING=1 to tell.",
    ),
}
"""Call → what to do when it fails."""

PLAIN_SHARED = 48 << 10
"""Bytes of shared memory a function may use without asking."""


class DriverMissing(RuntimeError):
    """The vendor's driver library isn't on this machine, or is too old to have a call that is needed."""


class DriverError(RuntimeError):
    """A call of the driver failed; ``code`` is the number it returned."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Api:
    """What one vendor calls its library, and the calls in it whose C signatures the vendors share."""

    vendor: str
    libraries: tuple[str, ...]
    """Tried in order; one that the process has loaded goes first."""
    load: str
    function: str
    launch: str
    error_name: str
    error_text: str


@dataclass(frozen=True)
class Place:
    """Where a launch goes."""

    device: torch.device
    arch: int | str
    """As in :attr:`BinaryRecord.arch`."""
    stream: int
    """Handle; 0 is the default stream."""


@dataclass(frozen=True)
class Loaded:
    """A kernel on one device, for the life of the process."""

    function: int
    layout: Layout


class Driver:
    """A vendor's driver. Threads may share it. Raises DriverMissing when made where the library isn't.

    ``library``: path or name of another library than the vendor's own.
    """

    api: ClassVar[Api]

    def __init__(self, library: str | None = None) -> None:
        names = (library,) if library else self.api.libraries
        self._library = open_library(self.api.vendor, names)
        handle = ctypes.POINTER(ctypes.c_void_p)
        text = ctypes.POINTER(ctypes.c_char_p)
        self._load = self.bind(self.api.load, handle, ctypes.c_char_p)
        self._function = self.bind(self.api.function, handle, ctypes.c_void_p, ctypes.c_char_p)
        self._launch = self.bind(
            self.api.launch, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
        )
        self._error_name = self.bind(self.api.error_name, ctypes.c_int, text)
        self._error_text = self.bind(self.api.error_text, ctypes.c_int, text)
        self._loaded: dict[tuple[int | None, str, str], Loaded] = {}
        self._archs: dict[int, int | str] = {}
        self._lock = threading.Lock()

    def place(self) -> Place | None:
        """PyTorch's current device and stream; None where it sees no device of this vendor."""
        if not self._archs and not (self.is_torch() and torch.cuda.is_available()):
            return None
        index = torch.cuda.current_device()
        if index not in self._archs:
            self._archs[index] = self.arch(index)
        stream = int(torch.cuda.current_stream(index).cuda_stream)
        return Place(torch.device("cuda", index), self._archs[index], stream)

    def is_torch(self) -> bool:
        """Whether this process's PyTorch is built for this vendor."""
        raise NotImplementedError

    def arch(self, index: int) -> int | str:
        """Of a device, as in :attr:`BinaryRecord.arch`."""
        raise NotImplementedError

    def make_current(self, place: Place) -> None:
        """Give the calling thread the context that PyTorch uses on ``place``, where it has none yet."""

    def allow_shared(self, function: int, size: int, doing: str) -> None:
        """Let a function use ``size`` bytes of shared memory, more than :data:`PLAIN_SHARED`."""

    def encode_tensor_map(self, element: str, value: TensorDescriptor, box: Box) -> bytes:
        """The tensor map of a descriptor, 128 bytes. Raises DriverError, and ValueError where the vendor has none."""
        raise ValueError(f"{self.api.vendor} devices take no tensor descriptors")

    def load(self, place: Place, record: BinaryRecord, code: bytes) -> Loaded:
        """The kernel on ``place``, loaded when first asked for. The place's context has to be current.

        Raises BinaryError where ``code`` is damaged, and DriverError.
        """
        key = (place.device.index, record.code_sha256, record.kernel)
        found = self._loaded.get(key)
        if found is None:
            with self._lock:
                found = self._loaded.get(key) or self._loaded.setdefault(key, self._load_new(record, code))
        return found

    def launch(
        self,
        loaded: Loaded,
        record: BinaryRecord,
        grid: tuple[int, int, int],
        arguments: Arguments,
        stream: int,
    ) -> None:
        """Queue one launch of ``grid`` programs on ``stream``. Raises DriverError for what the driver sees at once."""
        block = (record.threads, 1, 1)
        code = self._launch(loaded.function, *grid, *block, record.shared, stream, arguments.pointers, None)
        if code:
            raise self.error(code, self.api.launch, f"launching {_described(record)}, grid {grid}")

    def bind(self, name: str, *types: Any) -> Callable[..., int]:
        """A call of the library that returns an error number. Raises DriverMissing where it has no such call."""
        try:
            call = getattr(self._library, name)
        except AttributeError as error:
            raise DriverMissing(
                f"the {self.api.vendor} driver library {self._library._name} has no {name}: it is too old. "
                f"Install a newer driver."
            ) from error
        call.argtypes, call.restype = types, ctypes.c_int
        return call  # type: ignore[no-any-return]

    def check(self, code: int, name: str, doing: str) -> None:
        """Raises DriverError unless ``code``, returned by the call ``name``, is 0."""
        if code:
            raise self.error(code, name, doing)

    def error(self, code: int, name: str, doing: str) -> DriverError:
        """The error of the call ``name``, in the driver's own words."""
        words = [_words(call, code) for call in (self._error_name, self._error_text)]
        said = ": ".join(word for word in words if word) or "an error it has no name for"
        advice = _ADVICE.get(name, "")
        return DriverError(f"{doing}: {name} returned {code}, {said}.{advice}", code)

    def _load_new(self, record: BinaryRecord, code: bytes) -> Loaded:
        verify_code(record, code)
        doing = f"loading {_described(record)}"
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self._load(ctypes.byref(module), code), self.api.load, doing)
        self.check(self._function(ctypes.byref(function), module, record.kernel.encode()), self.api.function, doing)
        if record.shared > PLAIN_SHARED:
            self.allow_shared(function.value or 0, record.shared, doing)
        return Loaded(function.value or 0, layout(record))


def open_library(vendor: str, names: tuple[str, ...]) -> ctypes.CDLL:
    """The first of ``names`` that is loaded already, else the first that loads. Raises DriverMissing."""
    for mode in (os.RTLD_NOW | os.RTLD_NOLOAD, os.RTLD_NOW):
        for name in names:
            try:
                return ctypes.CDLL(name, mode)
            except OSError as error:
                said = str(error)
    raise DriverMissing(f"the {vendor} driver library isn't on this machine ({said}). Install the driver of the GPU.")


def _described(record: BinaryRecord) -> str:
    shared = f"{record.shared} bytes of shared memory"
    return f"the kernel {record.name} ({record.kernel}, compiled for {record.target}, {shared})"


def _words(call: Callable[..., int], code: int) -> str:
    text = ctypes.c_char_p()
    return "" if call(code, ctypes.byref(text)) or text.value is None else text.value.decode(errors="replace")
