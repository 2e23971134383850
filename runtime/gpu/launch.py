"""One call of a packaged kernel: its machine code where that fits device and values, else its source through a JIT."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence

import torch

from attnc.runtime.gpu.arguments import Arguments, TensorDescriptor, Value, numbers
from attnc.runtime.gpu.assumptions import check_assumptions
from attnc.runtime.gpu.cuda import Cuda
from attnc.runtime.gpu.driver import Driver, DriverMissing, Place
from attnc.runtime.gpu.hip import Hip
from attnc.runtime.gpu.record import Backend, BinaryRecord

Jit = Callable[[str, tuple[int, ...], Sequence[Value]], None]
"""``(source, grid, values)``: compiles the source for these values and launches it."""

_told: set[str] = set()


def launch(
    record: BinaryRecord,
    code: bytes,
    source: str,
    grid: tuple[int, ...],
    values: Sequence[Value],
    jit: Jit,
    driver: Driver | None = None,
) -> None:
    """Queue a kernel on PyTorch's current device and stream.

    ``grid``: programs in up to three dimensions; nothing is launched where one is 0. ``values``: one per parameter of
    the record. Where the machine code can't be used, one RuntimeWarning per kernel says why, and ``jit`` is called.
    ``driver`` None is the vendor's own. Raises BinaryError, DriverError, and what ``check_assumptions`` raises.
    """
    if len(grid) > 3:
        raise ValueError(f"the kernel {record.name}: a grid has up to three dimensions, not {grid}")
    if 0 in grid:
        return
    reason = _run(record, code, grid, values, driver)
    if reason is not None:
        _tell(record, reason)
        jit(source, grid, values)


@functools.cache
def driver_of(backend: Backend) -> Driver:
    """The vendor's driver, opened once. Raises DriverMissing."""
    return Cuda() if backend == "cuda" else Hip()


def _run(
    record: BinaryRecord, code: bytes, grid: tuple[int, ...], values: Sequence[Value], driver: Driver | None
) -> str | None:
    """Launch the machine code, or say why it can't be used."""
    try:
        driver = driver or driver_of(record.backend)
    except DriverMissing as error:
        return str(error)
    place = driver.place()
    if place is None:
        return f"PyTorch sees no {driver.api.vendor} device"
    reason = _arch(record, place) or check_assumptions(record, values) or _elsewhere(record, values, place)
    if reason is not None:
        return reason
    driver.make_current(place)
    loaded = driver.load(place, record, code)
    scratch = record.scratch
    memory = [_memory(size, scratch.align, grid, place) for size in (scratch.program, scratch.profile)]
    packed = numbers(record, values, [address for _, address in memory], driver.encode_tensor_map)
    driver.launch(loaded, record, _three(grid), Arguments(loaded.layout, packed), place.stream)
    return None


def _arch(record: BinaryRecord, place: Place) -> str | None:
    return None if place.arch == record.arch else f"{place.device} is of architecture {place.arch}"


def _elsewhere(record: BinaryRecord, values: Sequence[Value], place: Place) -> str | None:
    for parameter, value in zip(record.parameters, values, strict=True):
        tensor = value.base if isinstance(value, TensorDescriptor) else value
        if isinstance(tensor, torch.Tensor) and tensor.device != place.device:
            return f"{parameter.name} is on {tensor.device}, the current device is {place.device}"
    return None


def _memory(size: int, align: int, grid: tuple[int, ...], place: Place) -> tuple[torch.Tensor | None, int]:
    """``size`` bytes for each program, and their address. PyTorch reuses them for later work of the stream only."""
    if size == 0:
        return None, 0
    block = torch.empty(size * math.prod(grid) + align - 1, dtype=torch.uint8, device=place.device)
    return block, block.data_ptr() + -block.data_ptr() % align


def _three(grid: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


def _tell(record: BinaryRecord, reason: str) -> None:
    if record.code_sha256 not in _told:
        _told.add(record.code_sha256)
        warnings.warn(
            f"attnc: the kernel {record.name} can't use its machine code for {record.target} and is compiled by Triton "
            f"instead: {reason}. Said once for this kernel.",
            RuntimeWarning,
            stacklevel=3,
        )
