"""What reaches the driver, byte for byte, and when Triton is asked instead."""

from __future__ import annotations

import dataclasses
import random
import struct
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from gpu_fakes import FUNCTION, MODULE, SOURCE, STREAM, Fake, record_of

from attnc.runtime.gpu import launch as module
from attnc.runtime.gpu.arguments import TensorDescriptor, Value
from attnc.runtime.gpu.cuda import Cuda
from attnc.runtime.gpu.driver import Driver, DriverError, DriverMissing
from attnc.runtime.gpu.launch import launch
from attnc.runtime.gpu.record import BinaryError, BinaryRecord, Box, Scratch

PARAMETERS = [
    ("q", "*bf16", "aligned"),
    ("out", "*fp32"),
    ("rows", "i32"),
    ("step", "i64", "aligned"),
    ("inner", "i32", "one"),
    ("scale", "fp32"),
]
SIZES = [8, 8, 4, 8, 4, 8, 8]


@pytest.fixture
def code() -> bytes:
    """Fresh for each test: a kernel's fall-back is told once, by the digest of its code."""
    return random.SystemRandom().randbytes(123)


class Jit:
    """Remembers what it was called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[int, ...], Sequence[Value]]] = []

    def __call__(self, source: str, grid: tuple[int, ...], values: Sequence[Value]) -> None:
        self.calls.append((source, grid, values))


def no_jit(source: str, grid: tuple[int, ...], values: Sequence[Value]) -> None:
    raise AssertionError("the machine code was to be used")


def values() -> list[Any]:
    return [0x7F00_1234_5670, 0x7F00_0000_0004, -7, 1 << 33, 1, 0.1]


def words(*packed: tuple[str, int | float]) -> list[str]:
    return [struct.pack("<" + code, value).hex() for code, value in packed]


def test_every_byte_of_a_launch(cuda: Fake, code: bytes) -> None:
    cuda.expect(code, SIZES)
    record = record_of(code, PARAMETERS, shared=4096)
    launch(record, code, SOURCE, (5, 6), values(), no_jit, cuda.driver())
    bits = words(
        ("Q", 0x7F0012345670), ("Q", 0x7F0000000004), ("i", -7), ("q", 1 << 33), ("f", 0.1), ("Q", 0), ("Q", 0)
    )
    assert cuda.calls() == [
        ["cuModuleLoadData", code.hex()],
        ["cuModuleGetFunction", str(MODULE), "flash"],
        ["cuLaunchKernel", str(FUNCTION), *"5 6 1 128 1 1 4096".split(), str(STREAM), "0", *bits],
    ]


def test_every_byte_of_a_launch_on_amd(hip: Fake, code: bytes) -> None:
    hip.expect(code, SIZES)
    record = record_of(code, PARAMETERS, backend="hip", arch="gfx942", shared=160 << 10, threads=256)
    launch(record, code, SOURCE, (5, 6, 7), values(), no_jit, hip.driver())
    bits = words(
        ("Q", 0x7F0012345670), ("Q", 0x7F0000000004), ("i", -7), ("q", 1 << 33), ("f", 0.1), ("Q", 0), ("Q", 0)
    )
    assert hip.calls() == [
        ["hipModuleLoadData", code.hex()],
        ["hipModuleGetFunction", str(MODULE), "flash"],
        ["hipModuleLaunchKernel", str(FUNCTION), *"5 6 7 256 1 1 163840".split(), str(STREAM), "0", *bits],
    ]


@pytest.mark.parametrize(("shared", "asked"), [(48 << 10, False), ((48 << 10) + 1, True), (227 << 10, True)])
def test_shared_memory_beyond_48_kib_is_asked_for(shared: int, asked: bool, cuda: Fake, code: bytes) -> None:
    launch(record_of(code, [], shared=shared), code, SOURCE, (1,), [], no_jit, cuda.driver())
    wanted = [["cuFuncSetAttribute", str(FUNCTION), "max_dynamic_shared", str(shared)]] if asked else []
    assert [call for call in cuda.calls() if call[0] == "cuFuncSetAttribute"] == wanted
    assert cuda.calls()[-1][8] == str(shared)


def test_a_tensor_map_is_encoded_and_passed_by_value(cuda: Fake, code: bytes) -> None:
    cuda.expect(code, [4, 128, 4, 4, 4, 8, 8, 8, 8, 8])
    record = record_of(code, [("n", "i32"), ("k", "tensordesc<bf16[1, 128, 64]>")], descriptors=(Box((1, 128, 32), 2),))
    base = torch.zeros(4096, dtype=torch.bfloat16)
    k = TensorDescriptor(base, (3, 50, 24), (1600, 32, 1), (1, 128, 64), outside="nan")
    launch(record, code, SOURCE, (2,), [9, k], no_jit, cuda.on_cpu())
    encode, kernel = cuda.calls()[2:]
    assert encode == [
        *("cuTensorMapEncodeTiled", "9", "3", str(base.data_ptr())),  # 9: bf16
        struct.pack("<3Q", 24, 50, 3).hex(),
        struct.pack("<2Q", 64, 3200).hex(),
        struct.pack("<3I", 32, 128, 1).hex(),
        struct.pack("<3I", 1, 1, 1).hex(),
        *("0", "2", "2", "1"),  # not interleaved, swizzle, promotion to 128 bytes, NaN outside
    ]
    encoded = bytes((9 + 3 * i) % 256 for i in range(128)).hex()
    numbers = words(("i", 3), ("i", 50), ("i", 24), ("q", 1600), ("q", 32), ("q", 1), ("Q", 0), ("Q", 0))
    assert kernel[11:] == [*words(("i", 9)), encoded, *numbers]


def test_a_tensor_map_that_can_t_be_made_is_an_error(cuda: Fake, code: bytes) -> None:
    cuda.fail("cuTensorMapEncodeTiled", 1)
    record = record_of(code, [("k", "tensordesc<bf16[64, 64]>")])
    k = TensorDescriptor(torch.zeros(4096, dtype=torch.bfloat16), (64, 64), (64, 1), (64, 64))
    with pytest.raises(DriverError, match=r"shape \(64, 64\), strides \(64, 1\).*cuTensorMapEncodeTiled returned 1"):
        launch(record, code, SOURCE, (2,), [k], no_jit, cuda.on_cpu())


def test_amd_devices_take_no_descriptors(hip: Fake, code: bytes) -> None:
    record = record_of(code, [("k", "tensordesc<bf16[64, 64]>")], backend="hip", arch="gfx942")
    k = TensorDescriptor(torch.zeros(4096, dtype=torch.bfloat16), (64, 64), (64, 1), (64, 64))
    with pytest.raises(ValueError, match="HIP devices take no tensor descriptors"):
        launch(record, code, SOURCE, (2,), [k], no_jit, hip.on_cpu())


def test_scratch_memory_is_brought(cuda: Fake, code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    made, empty = [], torch.empty

    def watched(size: int, **kinds: Any) -> torch.Tensor:
        made.append(empty(size, **kinds))
        return made[-1]

    monkeypatch.setattr(torch, "empty", watched)
    cuda.expect(code, [8, 8])
    record = record_of(code, [], scratch=Scratch(512, 4096, 0))
    launch(record, code, SOURCE, (3, 2), [], no_jit, cuda.on_cpu())
    (block,) = made
    scratch, profile = (int.from_bytes(bytes.fromhex(word), "little") for word in cuda.calls()[-1][11:])
    assert (block.dtype, block.device.type) == (torch.uint8, "cpu")
    assert scratch % 4096 == 0
    assert block.data_ptr() <= scratch
    assert scratch + 3 * 2 * 512 <= block.data_ptr() + block.numel()
    assert profile == 0


def test_a_module_is_loaded_once_per_device_and_code(cuda: Fake, code: bytes) -> None:
    driver, other = cuda.driver(), code[::-1]

    def loads(content: bytes) -> int:
        before = len(cuda.calls())
        launch(record_of(content, []), content, SOURCE, (1,), [], no_jit, driver)
        return sum(call[0] == "cuModuleLoadData" for call in cuda.calls()[before:])

    assert [loads(code), loads(code), loads(other), loads(code)] == [1, 0, 1, 0]
    cuda.device(4, 77)
    assert [loads(code), loads(code)] == [1, 0]
    assert cuda.calls()[-1][9] == "77"


def test_threads_load_a_module_once(cuda: Fake, code: bytes) -> None:
    driver, record = cuda.driver(), record_of(code, [])
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        launch(record, code, SOURCE, (1,), [], no_jit, driver)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [call[0] for call in cuda.calls()]
    assert (names.count("cuModuleLoadData"), names.count("cuLaunchKernel")) == (1, 8)


def test_a_thread_without_a_context_gets_pytorch_s(cuda: Fake, code: bytes) -> None:
    cuda.context(0)
    driver, record = cuda.driver(), record_of(code, [])
    launch(record, code, SOURCE, (1,), [], no_jit, driver)
    assert [call for call in cuda.calls() if "Module" not in call[0]][:3] == [
        ["cuDeviceGet", "3"],
        ["cuDevicePrimaryCtxRetain", "43"],
        ["cuCtxSetCurrent", str(0x7777888800000000 + 43)],
    ]
    assert [call[0] for call in cuda.calls()].index("cuCtxSetCurrent") == 2, "before anything is loaded"
    before = len(cuda.calls())
    launch(record, code, SOURCE, (1,), [], no_jit, driver)
    assert [call[0] for call in cuda.calls()[before:]] == ["cuLaunchKernel"]


@pytest.mark.parametrize("grid", [(0,), (4, 0), (4, 5, 0)])
def test_an_empty_grid_launches_nothing(grid: tuple[int, ...], cuda: Fake, code: bytes) -> None:
    launch(record_of(code, [("n", "i32")]), code, SOURCE, grid, [1], no_jit, cuda.driver())
    assert cuda.calls() == []


def test_a_grid_of_four_dimensions_is_an_error(cuda: Fake, code: bytes) -> None:
    with pytest.raises(ValueError, match="up to three dimensions"):
        launch(record_of(code, []), code, SOURCE, (1, 1, 1, 1), [], no_jit, cuda.driver())


def test_damaged_code_never_reaches_the_driver(cuda: Fake, code: bytes) -> None:
    with pytest.raises(BinaryError, match="machine code"):
        launch(record_of(code, []), code + b"\0", SOURCE, (1,), [], no_jit, cuda.driver())
    assert cuda.calls() == []


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("cuModuleLoadData", "loading the kernel flash_bf16 (flash, compiled for sm_90, 98304 bytes of shared memory)"),
        ("cuModuleGetFunction", "loading the kernel flash_bf16"),
        ("cuFuncSetAttribute", "loading the kernel flash_bf16"),
        ("cuLaunchKernel", "launching the kernel flash_bf16 (flash, compiled for sm_90, 98304 bytes"),
    ],
)
def test_errors_of_the_driver_are_told_in_its_words(call: str, says: str, cuda: Fake, code: bytes) -> None:
    record, driver = record_of(code, [], shared=98304), cuda.driver()
    cuda.fail(call, 209)
    with pytest.raises(DriverError) as caught:
        launch(record, code, SOURCE, (1,), [], no_jit, driver)
    assert says in str(caught.value)
    assert f"{call} returned 209, CUDA_ERROR_FAKE: a fake error" in str(caught.value)
    assert caught.value.code == 209
    cuda.fail("", 0)
    launch(record, code, SOURCE, (1,), [], no_jit, driver)  # nothing half-loaded was kept
    assert cuda.calls()[-1][0] == "cuLaunchKernel"


def test_an_error_without_a_name_is_told(hip: Fake, code: bytes) -> None:
    hip.fail("hipModuleLoadData", 999)
    with pytest.raises(DriverError, match="hipModuleLoadData returned 999, an error it has no name for"):
        launch(record_of(code, [], backend="hip", arch="gfx942"), code, SOURCE, (1,), [], no_jit, hip.driver())


def fell_back(
    record: BinaryRecord, code: bytes, given: list[Value], driver: Driver | None, grid: tuple[int, ...] = (2,)
) -> str:
    """The warning of a launch that goes to the JIT."""
    jit = Jit()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        launch(record, code, SOURCE, grid, given, jit, driver)
        launch(record, code, SOURCE, grid, given, jit, driver)
    assert jit.calls == [(SOURCE, grid, given)] * 2
    (warning,) = seen
    assert warning.category is RuntimeWarning
    assert warning.filename == __file__
    assert str(warning.message).startswith("attnc: the kernel flash_bf16 can't use its machine code for sm_90")
    return str(warning.message)


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (0, 0x7F00_1234_5678, "q begins at an address that is no multiple of 16"),
        (2, 1 << 31, "rows = 2147483648 doesn't fit i32"),
        (3, 24, "step = 24 is no multiple of 16"),
        (4, 2, "inner = 2, the code takes 1 for granted"),
    ],
)
def test_values_the_code_isn_t_for_go_to_triton(place: int, value: int, says: str, cuda: Fake, code: bytes) -> None:
    given = values()
    given[place] = value
    assert says in fell_back(record_of(code, PARAMETERS), code, given, cuda.driver())
    assert cuda.calls() == []


@pytest.mark.parametrize("capability", [(8, 9), (9, 1), (10, 0)])
def test_another_architecture_goes_to_triton(capability: tuple[int, int], cuda: Fake, code: bytes) -> None:
    cuda.device(3, STREAM, capability)
    said = fell_back(record_of(code, []), code, [], cuda.driver())
    assert f"cuda:3 is of architecture {10 * capability[0] + capability[1]}" in said
    assert cuda.calls() == []


def test_amd_s_features_are_no_part_of_the_architecture(hip: Fake, code: bytes) -> None:
    """The device says gfx942:sramecc+:xnack-."""
    record = record_of(code, [], backend="hip", arch="gfx942")
    launch(record, code, SOURCE, (1,), [], no_jit, hip.driver())
    assert hip.calls()[-1][0] == "hipModuleLaunchKernel"
    fell_back(dataclasses.replace(record, arch="gfx950"), code, [], hip.driver())


def test_a_tensor_on_another_device_goes_to_triton(cuda: Fake, code: bytes) -> None:
    record = record_of(code, [("x", "*fp32")])
    assert "x is on cpu, the current device is cuda:3" in fell_back(record, code, [torch.zeros(4)], cuda.driver())


def test_a_pytorch_of_the_other_vendor_goes_to_triton(cuda: Fake, code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "PyTorch sees no CUDA device" in fell_back(record_of(code, []), code, [], cuda.driver())


def test_no_device_goes_to_triton(cuda: Fake, code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "PyTorch sees no CUDA device" in fell_back(record_of(code, []), code, [], cuda.driver())


def test_without_a_driver_triton_is_asked(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(backend: str) -> Driver:
        raise DriverMissing(f"the {backend} driver library isn't on this machine")

    monkeypatch.setattr(module, "driver_of", missing)
    assert "the cuda driver library isn't on this machine" in fell_back(record_of(code, []), code, [], None)


def test_wrong_values_are_no_reason_to_fall_back(cuda: Fake, code: bytes) -> None:
    with pytest.raises(ValueError, match="has 6 parameters, 5 were given"):
        launch(record_of(code, PARAMETERS), code, SOURCE, (1,), values()[:-1], no_jit, cuda.driver())
    with pytest.raises(TypeError, match="parameter rows is of type i32 and was given float"):
        launch(record_of(code, PARAMETERS), code, SOURCE, (1,), [*values()[:2], 1.0, 0, 1, 1], no_jit, cuda.driver())


def test_the_vendor_s_own_library_is_opened_once(cuda: Fake, code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cuda, "api", dataclasses.replace(Cuda.api, libraries=("libattnc-no.so", cuda.path)))
    module.driver_of.cache_clear()
    try:
        launch(record_of(code, []), code, SOURCE, (1,), [], no_jit)
        launch(record_of(code, []), code, SOURCE, (1,), [], no_jit)
    finally:
        module.driver_of.cache_clear()
    assert [call[0] for call in cuda.calls()] == ["cuModuleLoadData", "cuModuleGetFunction", *["cuLaunchKernel"] * 2]
