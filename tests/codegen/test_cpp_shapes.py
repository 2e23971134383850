"""Shapes, layouts, dtypes: what a kernel reads and writes, whatever the score; in C++ and in Triton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from codegen_build import Kernel, KernelError
from codegen_interpreted import Build, both
from codegen_programs import K, Q, const, program, qk
from codegen_reference import CAUSAL, all_tiles, causal_tiles, check, compare, make_plan, window_tiles


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)


def qkv(b: int, h: int, s: int, t: int, d: int, e: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    return (
        randn(b, h, s, d, dtype=dtype),
        randn(b, h, t, d, dtype=dtype, seed=1),
        randn(b, h, t, e, dtype=dtype, seed=2),
    )


PLAIN = make_plan(returns_lse=True)
LENGTHS = [1, 2, 5, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 47, 48, 49, 63, 64, 65, 95, 97, 127, 128, 129, 130]


@both("s", LENGTHS, soon=(1, 31, 32, 33, 65))
def test_lengths(build: Build, s: int) -> None:
    kernel = build(PLAIN)
    check(kernel, *qkv(2, 2, s, s, 16, 16))
    check(kernel, *qkv(1, 1, s, 131 - s, 16, 16))


@both("d", [1, 2, 7, 8, 15, 16, 33, 40, 64, 80, 96, 128, 256, 576], soon=(1, 33, 40, 80, 128))
def test_head_dims(build: Build, d: int) -> None:
    kernel = build(PLAIN)
    check(kernel, *qkv(1, 2, 37, 45, d, d))
    check(kernel, *qkv(1, 2, 9, 70, d, 24))
    check(kernel, *qkv(1, 2, 30, 33, 24, d))


@pytest.mark.parametrize(("d", "e"), [(1, 1), (33, 33), (40, 40), (80, 80), (96, 64), (64, 576)])
def test_static_dims(build: Build, d: int, e: int) -> None:
    kernel = build(make_plan(qk * d**-0.5, head_dim=d, value_dim=e, block_m=16, block_n=16))
    check(kernel, *qkv(1, 2, 29, 50, d, e))
    with kernel.refuses(f"20: .*axis d, or differ from the compiled {d}", f"axis d is {d + 1} long, expected {d}"):
        kernel(*qkv(1, 1, 4, 4, d + 1, e))


def test_no_keys_gives_zero(build: Build) -> None:
    out, lse = build(PLAIN)(*qkv(2, 2, 5, 0, 8, 8))
    assert (out == 0).all() and (lse == float("-inf")).all()


@pytest.mark.parametrize("shape", [(0, 2, 5, 5, 8, 8), (2, 0, 5, 5, 8, 8), (2, 2, 0, 5, 8, 8), (2, 2, 5, 5, 8, 0)])
def test_empty_results(build: Build, shape: tuple[int, ...]) -> None:
    out, _ = build(PLAIN)(*qkv(*shape))
    assert out.numel() == 0


def test_contracted_length_zero_is_the_mean(build: Build) -> None:
    q, k, v = qkv(1, 1, 3, 5, 0, 8)
    out, _ = build(PLAIN)(q, k, v)
    compare(out, v.double().mean(2, keepdim=True).expand(out.shape).numpy(), 2**-22)


def test_strides(build: Build) -> None:
    kernel = build(PLAIN)
    b, h, s, d = 2, 3, 41, 24
    packed = randn(b, s, 3, h, d).permute(2, 0, 3, 1, 4)  # one projection's output, cut
    check(kernel, packed[0], packed[1], packed[2])
    check(kernel, *(x.transpose(2, 3).contiguous().transpose(2, 3) for x in qkv(b, h, s, s, d, d)))
    check(kernel, *(x[..., ::2] for x in qkv(b, h, s, s, 2 * d, 2 * d)))
    check(kernel, *(x[:, :, ::3] for x in qkv(b, h, s, s, d, d)))
    check(kernel, *(randn(b, s, h, d, seed=i).transpose(1, 2) for i in range(3)))


def test_threads(build_cpp: Callable[..., Kernel]) -> None:
    """C++ only, as are its conversions and instruction sets below."""
    operands = qkv(2, 3, 130, 130, 16, 16)
    kernel = build_cpp(PLAIN)
    check(kernel, *operands, threads=True)
    assert torch.equal(kernel(*operands, threads=True)[0], kernel(*operands)[0])


def test_many_key_chunks_and_items(build_cpp: Callable[..., Kernel]) -> None:
    """Longer than one chunk of packed keys (256 KiB) and than one item's rows."""
    check(build_cpp(PLAIN), *qkv(1, 1, 700, 1500, 64, 48), threads=True)


def test_rows_do_not_depend_on_their_company(build_cpp: Callable[..., Kernel]) -> None:
    """A row's result is the same bits alone, in a full tile, and in a longer sequence: C++'s strips of rows."""
    kernel = build_cpp(make_plan(returns_lse=True, block_m=24))
    for e in (8, 16, 40):
        q, k, v = qkv(1, 2, 130, 77, 40, e)
        whole, _ = kernel(q, k, v)
        for first, count in ((0, 1), (23, 1), (24, 1), (129, 1), (3, 2), (5, 3), (6, 4), (7, 5), (8, 6), (11, 25)):
            rows = slice(first, first + count)
            assert torch.equal(kernel(q[:, :, rows], k, v)[0], whole[:, :, rows])


CAUSAL_64 = make_plan(qk * 0.125, CAUSAL, causal_tiles(32, 32), head_dim=64, value_dim=64)


@pytest.mark.parametrize(
    ("s", "t"), [(1, 1), (1, 130), (7, 7), (24, 24), (32, 32), (33, 65), (97, 97), (100, 130), (130, 130)]
)
def test_causal(build: Build, s: int, t: int) -> None:
    check(build(CAUSAL_64), *qkv(1, 2, s, t, 64, 64))


@pytest.mark.parametrize(("bm", "bn"), [(24, 32), (5, 7), (48, 64), (50, 24), (1, 128)])
def test_tile_sizes(build_cpp: Callable[..., Kernel], bm: int, bn: int) -> None:
    """C++ only: blocks of Triton are powers of two."""
    kernel = build_cpp(make_plan(mask=CAUSAL, segments=causal_tiles(bm, bn), block_m=bm, block_n=bn))
    for s in (1, 23, 64, 131):
        check(kernel, *qkv(1, 1, s, s + 3, 16, 16))


@pytest.mark.parametrize("s", [1, 16, 17, 40, 130])
def test_window(build: Build, s: int) -> None:
    mask = (K <= Q) & (K - Q > -16)
    check(build(make_plan(mask=mask, segments=window_tiles(32, 32, 16))), *qkv(1, 2, s, s, 24, 24))


# -- axes


def test_grouped_query_heads(build: Build) -> None:
    axes = {"outer": ("b", "h", "g"), "q_axes": ("b", "h", "g", "q", "d"), "out_axes": ("b", "q", "h", "g", "e")}
    kernel = build(make_plan(mask=CAUSAL, segments=causal_tiles(32, 32), returns_lse=True, **axes))
    q, k, v = randn(2, 2, 3, 61, 16), randn(2, 2, 61, 16), randn(2, 2, 61, 16)
    check(kernel, q, k, v, threads=True)


def test_one_key_head_and_shared_batch(build: Build) -> None:
    """MQA whose keys are the same for the whole batch, dimensions in another order, an axis only the keys have."""
    kernel = build(
        make_plan(
            outer=("b", "h", "n"), q_axes=("q", "b", "d", "h"), k_axes=("k", "d", "n"), v_axes=("e", "k"),
            out_axes=("e", "n", "h", "q", "b"), returns_lse=True,
        )
    )  # fmt: skip
    check(kernel, randn(33, 2, 16, 3), randn(40, 16, 2), randn(24, 40), threads=True)


def test_no_outer_axes(build: Build) -> None:
    plan = make_plan(outer=(), q_axes=("q", "d"), k_axes=("k", "d"), v_axes=("k", "e"), out_axes=("q", "e"))
    check(build(plan), randn(33, 16), randn(40, 16), randn(40, 8))


def test_operands_must_agree(build: Build) -> None:
    kernel = build(PLAIN)
    q, k, v = qkv(2, 2, 5, 6, 8, 8)
    with kernel.refuses("19: .*axis k", "operand v: axis k is 5 long, expected 6"):
        kernel(q, k, v[:, :, :-1])
    with kernel.refuses("axis b", "operand k: axis b is 1 long, expected 2"):
        kernel(q, k[:1], v)
    with kernel.refuses("operand q", "q has 3 dimensions, expected b, h, q, d"):
        kernel(q[0], k, v)
    with kernel.refuses("side operands: expected 0", "expected 0 side operands and 0 sizes, got 1 and 0"):
        kernel(q, k, v, side=[q])
    with kernel.refuses("sizes: expected 0", "expected 0 side operands and 0 sizes, got 0 and 1"):
        kernel(q, k, v, sizes=[3])


def test_operands_have_the_dtypes_of_the_plan(build_cpp: Callable[..., Kernel]) -> None:
    """C++ only: a module in Triton takes others, as for float32 in place of bfloat16."""
    q, k, v = qkv(2, 2, 5, 6, 8, 8)
    with pytest.raises(KernelError, match=r"operand k: rank or dtype is not the plan's f32\[b, h, k, d\]"):
        build_cpp(PLAIN)(q, k.half(), v)


# -- dtypes


@pytest.mark.parametrize(("name", "dtype", "eps"), [("bf16", torch.bfloat16, 2**-8), ("f16", torch.float16, 2**-11)])
def test_sixteen_bits(build: Build, name: str, dtype: torch.dtype, eps: float) -> None:
    kernel = build(make_plan(mask=CAUSAL, segments=causal_tiles(32, 32), dtype=name))
    for s, d in ((1, 8), (63, 33), (97, 64)):
        check(kernel, *qkv(1, 2, s, s, d, d, dtype), eps=eps / 4)
    q, k, v = qkv(1, 2, 50, 50, 24, 24, dtype)
    check(kernel, q.transpose(2, 3).contiguous().transpose(2, 3), k[..., :12].repeat(1, 1, 1, 2), v, eps=eps / 4)


def test_mixed_dtypes(build: Build) -> None:
    q, k, v = qkv(1, 2, 50, 60, 24, 40)
    plan = make_plan(dtypes=("f16", "bf16", "f32", "f32"))
    check(build(plan), q.half(), k.bfloat16(), v)


@pytest.mark.parametrize("target", ["cpu", "cpu-sse2"])
@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("f16", torch.float16)])
def test_conversions_are_exact(build_cpp: Callable[..., Kernel], name: str, dtype: torch.dtype, target: str) -> None:
    """One key and a plain softmax copy v to out: 16-bit patterns survive, floats round as torch rounds them."""
    patterns = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype).reshape(1, 1, 1, -1)
    zero = torch.zeros(1, 1, 1, 8, dtype=dtype)
    out, _ = build_cpp(make_plan(dtype=name, target=target))(zero, zero, patterns)
    assert torch.equal(out.isnan(), patterns.isnan())
    number = ~patterns.isnan()
    assert torch.equal(out[number].float(), patterns[number].float())
    floats = torch.cat([randn(5000) * 10.0**e for e in range(-9, 6)])
    edges = torch.tensor(
        [65504.0, 65519.996, 65520.0, 65536.0, 6.0e-8, 2.9e-8, 3.1e-8, 3.4e38, float("inf"), -float("inf")]
    )
    halfway = (patterns[number].float()[:-1] + patterns[number].float()[1:]) / 2
    v = torch.cat([floats, edges, -edges, halfway[halfway.isfinite()]]).reshape(1, 1, 1, -1)
    plan = make_plan(dtypes=("f32", "f32", "f32", name), target=target)
    out, _ = build_cpp(plan)(zero.float(), zero.float(), v)
    assert torch.equal(out, v.to(dtype))


@pytest.mark.parametrize("target", ["cpu-sse2"])
def test_without_wide_vectors(build_cpp: Callable[..., Kernel], target: str) -> None:
    kernel = build_cpp(make_plan(mask=CAUSAL, segments=causal_tiles(32, 32), target=target))
    for s, d in ((1, 8), (63, 33), (97, 64)):
        check(kernel, *qkv(1, 2, s, s, d, d))


def test_blocks_of_one_segment_with_a_step(build: Build) -> None:
    """Every second tile of 32 keys is visible, given as a stepped segment."""
    mask = (K // 32) % 2
    plain = make_plan(mask=mask.eq(1))
    segment = replace(all_tiles(32, False)[0], lo=program(const(1)), step=2)
    kernel = build(replace(plain, segments=(segment,)))
    check(kernel, *qkv(1, 1, 40, 200, 16, 16))
    check(kernel, *qkv(1, 1, 40, 60, 16, 16))
