"""The kernel that writes pages, in the interpreter: bit for bit what plain torch makes of the same rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnc.codegen.source import kv_write_source
from attnc.codegen.targets import capability
from attnc.codegen.triton.kv_write import check_stores, launch_kv_write
from attnc.compiler.machine.build import check_arguments
from attnc.runtime.kv.specs import StreamSpec
from attnc.runtime.kv.storage import StreamPages, write_rows
from tests.triton.worker import WorkerError, interpreted

STORES = ("f32", "bf16", "f16", "i8", "f8e4m3", "i4")
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
RETURNING = """

def returning(x, pages, scale, slots):
    write(x, pages, scale, slots)
    return pages, scale
"""
TOKENS, HEADS, PAGES, PAGE = 21, 3, 5, 16


def rows(features: int, dtype: torch.dtype) -> Tensor:
    """[TOKENS, HEADS, features], heads outermost in memory: numbers of many sizes, zeros, ties, NaN and infinities."""
    x = torch.randn(HEADS, TOKENS, features) * torch.randn(HEADS, TOKENS, 1).exp()
    x[:, 3], x[:, 4] = 0.0, -0.0
    x[:, 5, 0], x[:, 6, -1], x[:, 7, features // 2] = float("nan"), float("inf"), float("-inf")
    x[:, 8] *= 1e-30
    x[:, 9] *= 1e4
    x[:, 10] = torch.tensor([1.0, -1.0]).repeat(features)[:features]
    x[:, 11] = torch.arange(features) % 16 - 7.5  # halves after division by −7.5 / −8
    return x.to(dtype).transpose(0, 1)


def empty(store: str, features: int) -> StreamPages:
    made = StreamPages.zeros(StreamSpec(HEADS, features, store, "f32"), PAGES, PAGE, torch.device("cpu"))
    made.poison(torch.arange(PAGES))
    return made


def bits(x: Tensor) -> Tensor:
    """As integers; every NaN is one."""
    whole = x.view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.element_size()])
    return (
        whole.masked_fill(x.float().isnan(), -1 if x.element_size() > 1 else 0x7F) if x.is_floating_point() else whole
    )


def check(store: str, features: int, dtype: torch.dtype) -> None:
    wanted, found = empty(store, features), empty(store, features)
    x, slots = rows(features, dtype), torch.randperm(PAGES * PAGE)[:TOKENS]
    write_rows(x, wanted.pages, wanted.scale, slots)
    pages, scale = interpreted().run(
        kv_write_source().text + RETURNING, "returning", x, found.pages, found.scale, slots
    )
    assert torch.equal(bits(pages), bits(wanted.pages)), f"{store} of {dtype}, {features} features"
    assert (scale is None) == (wanted.scale is None)
    if wanted.scale is not None:
        assert torch.equal(bits(scale), bits(wanted.scale)), f"{store} of {dtype}, {features} features: scales"


@pytest.mark.parametrize("store", STORES)
def test_bits(store: str) -> None:
    torch.manual_seed(0)
    for features, dtype in zip((40, 33, 96), DTYPES, strict=True):
        check(store, features, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_bits_of_every_size(store: str) -> None:
    torch.manual_seed(1)
    for features in (1, 2, 7, 31, 32, 39, 64, 80, 128, 200, 256):
        for dtype in DTYPES:
            check(store, features, dtype)


def test_no_tokens() -> None:
    made = empty("i8", 40)
    pages, _ = interpreted().run(
        kv_write_source().text + RETURNING, "returning", torch.zeros(0, HEADS, 40), made.pages, made.scale,
        torch.zeros(0, dtype=torch.int64),
    )  # fmt: skip
    assert torch.equal(pages, made.pages)


REFUSED = {
    "heads": (lambda x, m: (x[:, :1], m.pages, m.scale), "does not fit"),
    "features": (lambda x, m: (x[..., :39], m.pages, m.scale), "does not fit"),
    "no scales": (lambda x, m: (x, m.pages, None), "scales None"),
    "scales of another shape": (lambda x, m: (x, m.pages, m.scale[:, :, :8]), "scales"),
    "pages of integers": (lambda x, m: (x, m.pages.int(), m.scale), "pages are torch.int32"),
    "strided features": (lambda x, m: (x, m.pages.transpose(2, 3).contiguous().transpose(2, 3), m.scale), "contiguous"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_operands_that_do_not_fit(name: str) -> None:
    change, reason = REFUSED[name]
    operands = change(torch.zeros(TOKENS, HEADS, 40), empty("i8", 40))
    with pytest.raises(WorkerError, match=f"ValueError: .*{reason}"):
        interpreted().run(kv_write_source().text, "write", *operands, torch.arange(TOKENS))


@pytest.mark.parametrize("store", STORES)
def test_signature(store: str) -> None:
    check_arguments(kv_write_source().text, launch_kv_write("sm_90", store, "bf16", 80))


def test_stores_that_a_gpu_has_not() -> None:
    for target in ("sm_80", "sm_86", "gfx90a", "gfx942"):
        with pytest.raises(ValueError, match=f"f8e4m3 on {target}"):
            check_stores(capability(target), ("i8", "f8e4m3"))
    for target in ("sm_89", "sm_90", "sm_100", "sm_120", "gfx950", "triton-interpret"):
        check_stores(capability(target), STORES)
    with pytest.raises(ValueError, match="cpu has no Triton kernels"):
        launch_kv_write("cpu", "f32", "f32", 64)
