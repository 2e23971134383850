"""Weights: the safetensors format, byte for byte, and headers that lie."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from attnc.runtime.artifact import weights
from attnc.runtime.artifact.container import Malformed
from attnc.runtime.host_names import TORCH_DTYPES, dtype_name
from attnc.runtime.host_program import ConstantInfo


def tensors() -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(3)
    found = {f"t.{name}": torch.randint(0, 2, (3, 5), generator=made).to(TORCH_DTYPES[name]) for name in weights.DTYPES}
    return {
        **found,
        "big": torch.randn(64, 33, generator=made),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(3, 0, 2),
        "conjugated": torch.randn(4, dtype=torch.complex64, generator=made).conj(),
        "ünï": torch.arange(7),
    }


def infos(held: dict[str, Tensor]) -> tuple[ConstantInfo, ...]:
    return tuple(ConstantInfo(name, dtype_name(t.dtype), tuple(t.shape)) for name, t in held.items())


def written(held: dict[str, Tensor]) -> bytes:
    header, ordered = weights.parts(held, infos(held))
    return header + b"".join(bytes(chunk) for tensor in ordered for chunk in weights.chunks(tensor))


def aligned(content: bytes) -> memoryview:
    """The content where an artifact has it: at a multiple of 64 bytes."""
    whole = bytearray(len(content) + 64)
    start = -torch.frombuffer(whole, dtype=torch.uint8).data_ptr() % 64
    whole[start : start + len(content)] = content
    return memoryview(whole)[start : start + len(content)]


def bits(tensor: Tensor) -> bytes:
    plain = tensor.resolve_conj().contiguous()
    return plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""


def test_what_is_written_is_read_by_safetensors_and_by_us() -> None:
    held = tensors()
    content = written(held)
    theirs, ours = safetensors.torch.load(content), weights.read(aligned(content), infos(held))
    assert theirs.keys() == ours.keys() == held.keys()
    for name, tensor in held.items():
        for found in (theirs[name], ours[name]):
            assert (found.dtype, found.shape, bits(found)) == (tensor.dtype, tensor.shape, bits(tensor))


def test_tensors_begin_where_torch_s_do_and_share_the_memory() -> None:
    held = tensors()
    memory = aligned(written(held))
    found = weights.read(memory, infos(held))
    assert all(t.data_ptr() % 64 == 0 for t in found.values() if t.numel())
    found["big"][0, 0] = 77
    assert float(weights.read(memory, infos(held))["big"][0, 0]) == 77


def test_the_order_is_that_of_names() -> None:
    held = tensors()
    assert written(held) == written(dict(reversed(held.items())))


def test_a_dtype_without_a_place() -> None:
    held = {"w": torch.zeros(2, dtype=torch.complex128)}
    with pytest.raises(ValueError, match="the constant w is of c128"):
        weights.parts(held, infos(held))


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    def apply(content: bytes) -> bytes:
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + content[8 + length :]

    return apply


def offsets(*ends: Any) -> Callable[[bytes], bytes]:
    return edited(lambda header: header["big"].update(data_offsets=list(ends)))


def shape(*extents: Any) -> Callable[[bytes], bytes]:
    return edited(lambda header: header["big"].update(shape=list(extents)))


EDITS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing": (lambda content: b"", "header is cut off"),
    "cut off": (lambda content: content[:-1], "big|lies in bytes"),
    "longer": (lambda content: content + b"\0", "the tensors have"),
    "length huge": (lambda content: b"\xff" * 8 + content[8:], "header is cut off"),
    "length short": (lambda content: (5).to_bytes(8, "little") + content[8:], "no JSON"),
    "no JSON": (lambda content: content.replace(b"{", b"(", 1), "no JSON"),
    "nan": (edited(lambda header: header["big"].update(shape=[float("nan")])), "no JSON"),
    "deep": (lambda content: (200000).to_bytes(8, "little") + b"[" * 200000 + content, "no JSON"),
    "a list": (lambda content: (2).to_bytes(8, "little") + b"[]" + content, "not dict"),
    "one missing": (edited(lambda header: header.pop("big")), "don't agree on the tensors big"),
    "one more": (edited(lambda header: header.update(more=header["big"])), "don't agree on the tensors more"),
    "outside": (offsets(0, 1 << 62), "lies in bytes"),
    "negative": (offsets(-4, 8444), "lies in bytes"),
    "backwards": (offsets(8448, 0), "lies in bytes"),
    "hole": (offsets(4, 8448), "begins at byte"),
    "three ends": (offsets(0, 1, 2), "lies in bytes"),
    "ends no numbers": (offsets("0", "1"), "of type str"),
    "ends bools": (offsets(False, True), "of type bool"),
    "shape huge": (shape(1 << 62, 33), r"the program wants f32\[64, 33\]"),
    "shape other": (shape(33, 64), r"the program wants f32\[64, 33\]"),
    "shape float": (shape(64.0, 33), "of type float"),
    "dtype": (edited(lambda header: header["big"].update(dtype="F64")), r"is F64\[64, 33\]"),
    "no dtype": (edited(lambda header: header["big"].pop("dtype")), "no 'dtype'"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_headers_that_lie(edit: str) -> None:
    held = {"big": torch.randn(64, 33)}
    change, message = EDITS[edit]
    with pytest.raises(Malformed, match=message):
        weights.read(aligned(change(written(held))), infos(held))
