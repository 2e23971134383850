"""The formats against torch's, where torch has them, and against exact arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.triton.number_formats import E4M3, E5M2, Array, Fp8, cut_tf32, read_bf16, round_tf32, write_bf16

FP8 = [(E4M3, torch.float8_e4m3fn), (E5M2, torch.float8_e5m2)]


def every_bf16() -> Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int16).view(torch.bfloat16)


def bf16(array: Array) -> Tensor:
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)


def same(left: Tensor, right: Tensor) -> bool:
    """Equal, NaN for NaN and sign for sign."""
    return left.dtype == right.dtype and torch.equal(left.isnan(), right.isnan()) and equal_numbers(left, right)


def equal_numbers(left: Tensor, right: Tensor) -> bool:
    there = ~left.isnan()
    return torch.equal(left[there].double(), right[there].double()) and torch.equal(
        left[there].double().signbit(), right[there].double().signbit()
    )


def test_every_bf16_is_read_and_written_back() -> None:
    numbers = read_bf16(every_bf16().view(torch.int16).numpy().view(np.uint16))
    assert same(torch.from_numpy(numbers), every_bf16().float())
    assert same(bf16(write_bf16(numbers)), every_bf16())


def test_float32_rounds_to_nearest_bf16() -> None:
    bits = torch.randint(-(2**31), 2**31, (20_000,), dtype=torch.int64).to(torch.int32)
    ties = (bits & -65536) | 0x8000
    numbers = torch.cat([bits, ties, ties + 1, ties - 1]).view(torch.float32)
    assert same(bf16(write_bf16(numbers.numpy())), numbers.bfloat16())


def test_a_nan_with_a_low_payload_stays_nan() -> None:
    """Cut off, its bits are infinity's."""
    low = torch.tensor([0x7F800001, -0x7FFFFF], dtype=torch.int32).view(torch.float32)
    assert low.isnan().all() and bf16(write_bf16(low.numpy())).isnan().all()


def test_float64_rounds_once() -> None:
    """Just beside the middle of two bf16: by way of float32 it would become the middle."""
    middle = 1 + 2.0**-8
    numbers = np.array([middle, middle + 2.0**-40, middle - 2.0**-40, -middle - 2.0**-40, 1e300, -1e-300, np.inf])
    expected = torch.tensor([1, 1 + 2.0**-7, 1, -1 - 2.0**-7, np.inf, -0.0, np.inf], dtype=torch.bfloat16)
    assert same(bf16(write_bf16(numbers)), expected)


def test_towards_zero_cuts() -> None:
    numbers = torch.randn(10_000)
    cut = (numbers.view(torch.int32) & -65536).view(torch.float32).bfloat16()
    assert same(bf16(write_bf16(numbers.numpy(), toward_zero=True)), cut)
    assert not same(cut, numbers.bfloat16())


@pytest.mark.parametrize(("ours", "torchs"), FP8)
def test_every_fp8_is_read_and_written_back(ours: Fp8, torchs: torch.dtype) -> None:
    bits = np.arange(256, dtype=np.uint8)
    numbers = torch.from_numpy(bits).view(torchs).float()
    assert same(torch.from_numpy(ours.read(bits)), numbers)
    finite = numbers.isfinite().numpy()
    assert np.array_equal(ours.write(numbers.numpy())[finite], bits[finite])


@pytest.mark.parametrize(("ours", "torchs"), FP8)
def test_fp8_rounds_to_nearest(ours: Fp8, torchs: torch.dtype) -> None:
    finite = ours.magnitudes[: ours.largest + 1]
    ties = torch.from_numpy((finite[1:] + finite[:-1]) / 2).float()
    beside = torch.cat([ties, ties.nextafter(torch.tensor(1e9)), ties.nextafter(torch.tensor(0.0))])
    spread = torch.randn(5_000) * torch.exp2(torch.randint(-20, 10, (5_000,)).float())
    numbers = torch.cat([beside, -beside, spread]).clamp(-finite[-1], finite[-1])
    expected = numbers.to(torchs).float()
    assert same(torch.from_numpy(ours.read(ours.write(numbers.numpy()))), expected)


@pytest.mark.parametrize("ours", [E4M3, E5M2])
def test_fp8_saturates_and_keeps_nan(ours: Fp8) -> None:
    largest = ours.magnitudes[ours.largest]
    given = np.array([largest * 1.9, -np.inf, np.inf, np.nan, -1e30, 1e-30])
    expected = np.array([largest, -largest, largest, np.nan, -largest, 0])
    assert np.array_equal(ours.read(ours.write(given)), expected, equal_nan=True)


@pytest.mark.parametrize("ours", [E4M3, E5M2])
def test_fp8_towards_zero(ours: Fp8) -> None:
    finite = ours.magnitudes[: ours.largest + 1]
    between = finite[:-1] + 0.9 * np.diff(finite)
    assert np.array_equal(ours.read(ours.write(-between, toward_zero=True)), -finite[:-1].astype(np.float32))


def test_tf32() -> None:
    ulp = 2.0**-10
    given = np.array([1 + ulp / 2, 1 + ulp * 0.499, -1 - ulp / 2, np.inf, 1 + ulp * 0.9], dtype=np.float32)
    assert round_tf32(given).tolist() == [1 + ulp, 1, -1 - ulp, np.inf, 1 + ulp]
    assert cut_tf32(given).tolist() == [1, 1, -1, np.inf, 1]
    assert np.isnan(round_tf32(np.array([np.nan], dtype=np.float32))).all()
