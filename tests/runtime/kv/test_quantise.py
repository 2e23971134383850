"""Round trips through every store: the error bounds that the module states, and what it says of zeros, NaN and ∞."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnc.codegen.paged_plan import STORES
from attnc.runtime.kv.quantise import ELEMENTS, decode, encode, row_shape, scale_dtype, scale_shape

FEATURES = [1, 2, 31, 32, 33, 40, 80, 96, 128]
F32_ROUNDING = 2.0**-22
"""Relative: two roundings, of the quotient by the scale and of the product with it, with room."""


def rows(seed: int, features: int, number: int = 64) -> Tensor:
    """Rows of many magnitudes, each element too."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(number, 3, features, generator=generator)
    x *= torch.exp2(torch.randint(-6, 7, x.shape, generator=generator))
    return x * torch.exp2(torch.randint(-8, 9, (number, 3, 1), generator=generator))


def round_trip(x: Tensor, store: str) -> tuple[Tensor, Tensor]:
    """What is read back, and the scale of each element (1 without scales), float64."""
    elements, scales = encode(x, store)
    features = x.shape[-1]
    assert elements.dtype is ELEMENTS[store] and elements.shape == (*x.shape[:-1], *row_shape(store, features))
    back = decode(elements, scales, features)
    assert back.shape == x.shape and back.dtype is torch.float32
    if scales is None:
        assert scale_shape(store, features) is None
        return back.double(), torch.ones_like(x).double()
    assert scales.dtype is scale_dtype(store)
    assert scales.shape == (*x.shape[:-1], *(scale_shape(store, features) or ()))
    each = scales.repeat_interleave(32, -1)[..., :features] if store == "i4" else scales.unsqueeze(-1).expand(x.shape)
    return back.double(), each.double()


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_i8_is_off_by_half_a_scale_at_most(dtype: torch.dtype, features: int) -> None:
    x = rows(1, features).to(dtype)
    back, scale = round_trip(x, "i8")
    error = (back - x.double()).abs()
    assert bool((error <= scale / 2 + F32_ROUNDING * x.double().abs()).all())
    assert features < 31 or bool((error > scale / 2.5).any()), "the bound is met"
    torch.testing.assert_close(scale, x.double().abs().amax(-1, True).expand(x.shape) / 127, rtol=1e-6, atol=0)


@pytest.mark.parametrize("features", FEATURES)
def test_f8_is_off_by_a_sixteenth_or_a_1024th_of_the_scale_at_most(features: int) -> None:
    x = rows(2, features)
    back, scale = round_trip(x, "f8e4m3")
    size = x.double().abs()
    bound = torch.maximum(size / 16, scale / 1024) + F32_ROUNDING * size
    assert bool(((back - x.double()).abs() <= bound).all())
    torch.testing.assert_close(scale, size.amax(-1, True).expand(x.shape) / 448, rtol=1e-6, atol=0)


@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("seed", range(4))
def test_i4_is_off_by_half_a_scale_or_one_where_the_other_sign_is_cut(seed: int, features: int) -> None:
    x = rows(3 + seed, features)
    if seed == 0:
        x = -x
    back, scale = round_trip(x, "i4")
    normal = scale.abs() >= 2.0**-14
    assert float(normal.double().mean()) > 0.8
    x, back, scale = x.double()[normal], back[normal], scale[normal]
    quotient = x / scale
    assert float(quotient.min()) >= -8.004 and float(quotient.max()) <= 8.004
    cut = quotient > 7.5
    bound = torch.where(cut, 1.004, 0.5) * scale.abs() + F32_ROUNDING * x.abs()
    assert bool(((back - x).abs() <= bound).all())
    assert features < 31 or bool(cut.any())


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_extreme_of_32_features_becomes_minus_eight_whatever_its_sign(sign: float) -> None:
    x = torch.linspace(-1, 1, 40).repeat(1, 1)
    x[0, 5], x[0, 37] = 4.0 * sign, -2.0 * sign
    elements, scales = encode(x, "i4")
    assert scales is not None and scales.tolist() == [[-0.5 * sign, 0.25 * sign]]
    assert int(elements[0, 2]) >> 4 == 8 and int(elements[0, 18]) >> 4 == 8  # −8 in four bits, in the high half
    back = decode(elements, scales, 40)
    assert (float(back[0, 5]), float(back[0, 37])) == (4.0 * sign, -2.0 * sign)


def test_of_two_extremes_the_first_decides_and_the_other_sign_loses_one_step() -> None:
    x = torch.tensor([[0.0, -8.0, 8.0, 7.4, -7.4], [0.0, 8.0, -8.0, 7.4, -7.4]])
    elements, scales = encode(x, "i4")
    assert scales is not None and scales.tolist() == [[1.0], [-1.0]]
    assert decode(elements, scales, 5).tolist() == [[0, -8, 7, 7, -7], [0, 8, -7, 7, -7]]


def test_two_features_share_a_byte_the_first_in_the_low_half() -> None:
    x = torch.tensor([[-8.0, 1.0, 2.0, 3.0, -1.0]])
    elements, _ = encode(x, "i4")
    assert elements.tolist() == [[0x18, 0x32, 0x0F]]


@pytest.mark.parametrize("features", [1, 33, 80])
@pytest.mark.parametrize("store", STORES)
def test_zeros_stay_zeros(store: str, features: int) -> None:
    back, scale = round_trip(torch.zeros(2, features), store)
    assert not back.any()
    assert store not in ("i8", "f8e4m3", "i4") or not scale.any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("store", ["i8", "f8e4m3", "i4"])
def test_what_cannot_be_scaled_reads_back_as_nan_throughout_its_row_or_group(store: str, bad: float) -> None:
    x = rows(9, 80)[:3]
    whole = decode(*encode(x, store), 80)
    x[1, 2, 40] = bad
    back = decode(*encode(x, store), 80)
    hit = torch.zeros(x.shape, dtype=torch.bool)
    hit[1, 2, 32:64] = True
    if store != "i4":
        hit[1, 2] = True
    assert bool(back[hit].isnan().all())
    assert torch.equal(back[~hit], whole[~hit])


@pytest.mark.parametrize("store", ["f32", "bf16", "f16"])
def test_float_stores_round_and_keep_nan_and_infinity(store: str) -> None:
    x = torch.cat([rows(10, 33).flatten(), torch.tensor([math.nan, math.inf, -math.inf, 1e30])])
    back = decode(*encode(x, store), len(x))
    assert torch.equal(back.nan_to_num(7.0, 8.0, 9.0), x.to(ELEMENTS[store]).float().nan_to_num(7.0, 8.0, 9.0))


def test_i4_values_that_no_float16_scale_reaches_are_cut() -> None:
    x = torch.tensor([[524_000.0] * 33, [-1e30] * 33, [3e38, -3e38, 1.0] * 11])
    back = decode(*encode(x, "i4"), 33)
    assert back[0].tolist() == [8 * 65504.0] * 33 == (-back[1]).tolist()
    assert back[2, :30].tolist() == [8 * 65504.0, -7 * 65504.0, 0.0] * 10


magnitudes = st.floats(-(2.0**16), 2.0**16, width=32)


@settings(max_examples=60)
@given(st.lists(magnitudes, min_size=1, max_size=70), st.sampled_from(["i8", "f8e4m3", "i4"]))
def test_any_finite_row_reads_back_finite_and_no_larger(values: list[float], store: str) -> None:
    """Subnormal scales included: they are coarse, but no element is off by more than the row's largest."""
    x = torch.tensor([values])
    back = decode(*encode(x, store), len(values))
    top = float(x.abs().max())
    assert bool(back.isfinite().all())
    assert float(back.abs().max()) <= top * (1 + 2.0**-10) + 2.0**-21
    assert float((back - x).abs().max()) <= max(top / 7.9, 2.0**-21)


@pytest.mark.parametrize("store", STORES)
def test_rows_are_independent(store: str) -> None:
    x = rows(11, 40)
    elements, scales = encode(x, store)
    for i in (0, 17, 63):
        one, scale = encode(x[i : i + 1], store)
        assert torch.equal(one.view(torch.uint8), elements[i : i + 1].view(torch.uint8))
        assert scale is None or (scales is not None and torch.equal(scale, scales[i : i + 1]))
    empty, scale = encode(x[:0], store)
    assert decode(empty, scale, 40).shape == (0, 3, 40)
