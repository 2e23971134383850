"""NVIDIA's driver: contexts, shared memory beyond 48 KiB, and tensor maps."""

from __future__ import annotations

import ctypes

import torch

from attnc.runtime.gpu.arguments import MAP_BYTES, Aligned, TensorDescriptor
from attnc.runtime.gpu.driver import Api, Driver, Place
from attnc.runtime.gpu.record import Box

_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""``CU_FUNC_ATTRIBUTE_…`` of ``cuda.h``."""
_INTERLEAVE_NONE = 0
_L2_PROMOTION_128B = 2
_OUTSIDE = {"zero": 0, "nan": 1}
"""``CU_TENSOR_MAP_FLOAT_OOB_FILL_…``."""

ELEMENT_TYPES = {
    "i8": 0,
    "u8": 0,
    "fp8e4nv": 0,
    "fp8e5": 0,
    "i32": 3,
    "i64": 5,
    "fp16": 6,
    "fp32": 7,
    "fp64": 8,
    "bf16": 9,
}
"""Triton's element type → ``CU_TENSOR_MAP_DATA_TYPE_…``; bytes have no sign there."""


class Cuda(Driver):
    """``libcuda``; PyTorch initialises it."""

    api = Api(
        vendor="CUDA",
        libraries=("libcuda.so.1",),
        load="cuModuleLoadData",
        function="cuModuleGetFunction",
        launch="cuLaunchKernel",
        error_name="cuGetErrorName",
        error_text="cuGetErrorString",
    )

    def __init__(self, library: str | None = None) -> None:
        super().__init__(library)
        handle = ctypes.POINTER(ctypes.c_void_p)
        self._current = self.bind("cuCtxGetCurrent", handle)
        self._set_current = self.bind("cuCtxSetCurrent", ctypes.c_void_p)
        self._device = self.bind("cuDeviceGet", ctypes.POINTER(ctypes.c_int), ctypes.c_int)
        self._primary = self.bind("cuDevicePrimaryCtxRetain", handle, ctypes.c_int)
        self._set_attribute = self.bind("cuFuncSetAttribute", ctypes.c_void_p, ctypes.c_int, ctypes.c_int)

    def is_torch(self) -> bool:
        return torch.version.cuda is not None

    def arch(self, index: int) -> int:
        major, minor = torch.cuda.get_device_capability(index)
        return 10 * major + minor

    def make_current(self, place: Place) -> None:
        """A thread that has called nothing of CUDA yet has no context, and PyTorch gives it none before it must."""
        context, device = ctypes.c_void_p(), ctypes.c_int()
        doing = f"making the context of {place.device} current"
        self.check(self._current(ctypes.byref(context)), "cuCtxGetCurrent", doing)
        if not context.value:
            self.check(self._device(ctypes.byref(device), place.device.index), "cuDeviceGet", doing)
            self.check(self._primary(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain", doing)
            self.check(self._set_current(context), "cuCtxSetCurrent", doing)

    def allow_shared(self, function: int, size: int, doing: str) -> None:
        code = self._set_attribute(function, _MAX_DYNAMIC_SHARED_SIZE_BYTES, size)
        self.check(code, "cuFuncSetAttribute", doing)

    def encode_tensor_map(self, element: str, value: TensorDescriptor, box: Box) -> bytes:
        """CUDA counts dimensions from the innermost, strides in bytes, and knows no stride of the innermost."""
        rank = len(value.shape)
        width = value.base.element_size()
        encoded = Aligned(MAP_BYTES)
        encode = self.bind("cuTensorMapEncodeTiled", *_ENCODE)
        code = encode(
            encoded.address,
            ELEMENT_TYPES[element],
            rank,
            value.base.data_ptr(),
            (ctypes.c_uint64 * rank)(*reversed(value.shape)),
            (ctypes.c_uint64 * rank)(*(width * stride for stride in reversed(value.strides[:-1]))),
            (ctypes.c_uint32 * rank)(*reversed(box.block)),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            _INTERLEAVE_NONE,
            box.swizzle,
            _L2_PROMOTION_128B,
            _OUTSIDE[value.outside],
        )
        doing = f"describing a tensor of shape {value.shape}, strides {value.strides}, boxes of {box.block} {element}"
        self.check(code, "cuTensorMapEncodeTiled", doing)
        return ctypes.string_at(encoded.address, MAP_BYTES)


_ENCODE = (
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    *[ctypes.c_int] * 4,
)
"""Of ``cuTensorMapEncodeTiled``: map, element type, rank, address, sizes, strides, box, steps, four enumerations."""
