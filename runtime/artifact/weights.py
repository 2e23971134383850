"""Tensors in the safetensors format: a JSON header, then their numbers without gaps.

Tensors whose size is a multiple of 64 bytes come first, so that they begin at such multiples as torch's own do; then
those of wider elements. A tensor that still doesn't begin there is copied when it is loaded: libraries may sum in
another order where memory begins elsewhere, and a loaded model has to give the same bits.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attnc.runtime.artifact.container import Malformed
from attnc.runtime.artifact.layout import ALIGNMENT
from attnc.runtime.artifact.reading import field, parse, typed
from attnc.runtime.host_names import dtype_of
from attnc.runtime.host_program import ConstantInfo

DTYPES = {
    "f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2",
    "i64": "I64", "i32": "I32", "i16": "I16", "i8": "I8", "u64": "U64", "u32": "U32", "u16": "U16", "u8": "U8",
    "b1": "BOOL", "c64": "C64",
}  # fmt: skip
"""A program's name of a dtype → the format's."""
LONGEST_HEADER = 100 << 20
"""In bytes; the safetensors package has the same bound."""
_BYTES = 1 << 24
"""Written at a time."""


def parts(tensors: Mapping[str, Tensor], infos: tuple[ConstantInfo, ...]) -> tuple[bytes, list[Tensor]]:
    """Header and tensors in order. Raises ValueError for a dtype that the format lacks."""
    names = sorted(tensors, key=lambda name: _rank(name, tensors[name]))
    kinds = {info.name: info.dtype for info in infos}
    header: dict[str, Any] = {}
    place = 0
    for name in names:
        if kinds[name] not in DTYPES:
            raise ValueError(f"the constant {name} is of {kinds[name]}, which safetensors files don't hold")
        end = place + tensors[name].nbytes
        shape = list(tensors[name].shape)
        header[name] = {"dtype": DTYPES[kinds[name]], "shape": shape, "data_offsets": [place, end]}
        place = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, [tensors[name] for name in names]


def chunks(tensor: Tensor) -> Iterator[memoryview]:
    """The bytes of a contiguous tensor."""
    if tensor.numel() == 0:
        return
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    bytes_: Any = plain.reshape(-1).view(torch.uint8).numpy()
    raw = memoryview(bytes_)
    for start in range(0, len(raw), _BYTES):
        yield raw[start : start + _BYTES]


def read(content: memoryview, wanted: tuple[ConstantInfo, ...]) -> dict[str, Tensor]:
    """The tensors a program wants, which are all there are; they share the memory where they are aligned.

    Raises Malformed where a header leads outside, or isn't about these tensors.
    """
    data, header = _header(content)
    if header.keys() != {info.name for info in wanted}:
        lacking = sorted({info.name for info in wanted} ^ header.keys())
        raise Malformed(f"the file and its program don't agree on the tensors {', '.join(lacking[:3])}")
    ends = 0
    for name in sorted(header, key=lambda name: header[name]):
        if header[name][0] != ends:
            raise Malformed(f"tensor {name} begins at byte {header[name][0]}, the one before ends at {ends}")
        ends = header[name][1]
    if ends != len(data):
        raise Malformed(f"the tensors have {ends} bytes, the file {len(data)}")
    return {info.name: _tensor(data, info, header[info.name]) for info in wanted}


def _header(content: memoryview) -> tuple[memoryview, dict[str, tuple[int, int, str, tuple[int, ...]]]]:
    length = int.from_bytes(content[:8], "little") if len(content) >= 8 else -1
    if not 0 <= length <= min(len(content) - 8, LONGEST_HEADER):
        raise Malformed("its header is cut off")
    found = typed(parse(bytes(content[8 : 8 + length])), dict, "the header")
    data = content[8 + length :]
    return data, {name: _described(name, entry, len(data)) for name, entry in found.items() if name != "__metadata__"}


def _described(name: str, data: Any, size: int) -> tuple[int, int, str, tuple[int, ...]]:
    """Begin, end, dtype and shape of one tensor."""
    ends = [typed(end, int, "data_offsets") for end in field(data, "data_offsets", list)]
    shape = tuple(typed(extent, int, "shape") for extent in field(data, "shape", list))
    if len(ends) != 2 or not 0 <= ends[0] <= ends[1] <= size or any(extent < 0 for extent in shape):
        raise Malformed(f"tensor {name} has the shape {list(shape)} and lies in bytes {ends} of {size}")
    return ends[0], ends[1], field(data, "dtype", str), shape


def _tensor(data: memoryview, info: ConstantInfo, found: tuple[int, int, str, tuple[int, ...]]) -> Tensor:
    begin, end, dtype, shape = found
    if (DTYPES.get(info.dtype), info.shape) != (dtype, shape):
        raise Malformed(f"tensor {info.name} is {dtype}{list(shape)}, the program wants {info.dtype}{list(info.shape)}")
    kind = dtype_of(info.dtype)
    count = math.prod(shape)
    if count * kind.itemsize != end - begin:
        raise Malformed(f"tensor {info.name} is {dtype}{list(shape)} and has {end - begin} bytes")
    if count == 0:
        return torch.empty(shape, dtype=kind)
    raw = torch.frombuffer(data, dtype=torch.uint8, count=end - begin, offset=begin)
    if raw.data_ptr() % ALIGNMENT:
        raw = raw.clone()
    return raw.view(kind).view(shape)


def _rank(name: str, tensor: Tensor) -> tuple[bool, int, str]:
    return tensor.nbytes % ALIGNMENT != 0, -tensor.element_size(), name
