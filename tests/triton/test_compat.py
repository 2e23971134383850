"""Every repair against torch, which computes bf16 itself. Stock fails nearly all of these in silence."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.triton.versions import VERSIONS
from tests.triton.worker import Worker, WorkerError, interpreted

SHAPES = [(16, 16, 16), (32, 64, 16), (128, 16, 64)]
ODD = 77
"""No power of two, so that masked lanes take part."""


def kernel(name: str) -> str:
    return f"tests.triton.kernels:{name}"


def bf16(*shape: int) -> Tensor:
    """Numbers of many sizes and both signs."""
    return (torch.randn(shape) * torch.exp2(torch.randint(-4, 5, shape).float())).bfloat16()


def same(left: Tensor, right: Tensor) -> bool:
    """Equal bit by bit, but for which NaN and which zero."""
    return left.dtype == right.dtype and torch.equal(left.isnan(), right.isnan()) and not wrong(left, right).any()


def wrong(left: Tensor, right: Tensor) -> Tensor:
    return (left != right) & ~left.isnan()


def nearest_bf16(exact: Tensor) -> Tensor:
    """float64 to bf16 by comparing neighbours, to even at a tie: rounds once, unlike torch, which goes by float32."""
    middle = exact.bfloat16().view(torch.int16)
    candidates = torch.stack([middle - 1, middle, middle + 1])
    distance = (candidates.view(torch.bfloat16).double() - exact).abs().nan_to_num(nan=torch.inf)
    rank = distance * 2 + (candidates & 1).double() * distance.amin(0) * 1e-9
    return candidates.gather(0, rank.argmin(0, keepdim=True))[0].view(torch.bfloat16)


NEEDED = {"3.6.0": {"maxnum", "bf16 constants", "index"}, "3.7.1": {"maxnum", "bf16 constants"}, "3.9.0": set()}


def test_only_what_a_version_needs_is_repaired(interpreter: Worker) -> None:
    everywhere = {"arithmetic", "fma", "casts", "dot", "reductions", "atomics"}
    assert set(interpreter.call(kernel("applied"))) == everywhere | NEEDED[interpreter.version]


def test_the_guard_notices_a_missing_layer(interpreter: Worker) -> None:
    with pytest.raises(WorkerError, match="RuntimeError: triton_compat is not installed"):
        interpreter.call(kernel("guard_with_stock_dot"))
    interpreter.call("tests.triton.triton_compat:guard")


def test_a_method_that_is_gone_is_named(interpreter: Worker) -> None:
    with pytest.raises(WorkerError, match=rf"triton {interpreter.version} has no InterpreterBuilder.create_fma"):
        interpreter.call(kernel("require_without"), "create_fma")
    interpreter.call("tests.triton.triton_compat:require")


def test_the_layer_refuses_a_process_that_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.triton import triton_compat

    monkeypatch.setenv("TRITON_INTERPRET", "1")  # too late: triton is imported
    with pytest.raises(RuntimeError, match="set TRITON_INTERPRET=1 before"):
        triton_compat.install()
    assert triton_compat.applied == []


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_dot(interpreter: Worker, dtype: torch.dtype, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
    exact = 1 + a.double() @ b.double()
    torch.testing.assert_close(interpreter.call(kernel("dot"), a, b).double(), exact, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_dot_keeps_nan(interpreter: Worker, dtype: torch.dtype) -> None:
    a = torch.randn(16, 16)
    a[3, 5] = torch.nan
    result = interpreter.call(kernel("dot"), a.to(dtype), torch.ones(16, 16).to(dtype))
    assert result[3].isnan().all() and result.isnan().sum() == 16


OPERATIONS = {
    "add": lambda x, y, z: x + y,
    "sub": lambda x, y, z: x - y,
    "mul": lambda x, y, z: x * y,
    "div": lambda x, y, z: (x.float() / y.float()).bfloat16(),
    "neg": lambda x, y, z: -x,
    "abs": lambda x, y, z: x.abs(),
    "constant": lambda x, y, z: x * torch.tensor(1.7).bfloat16() + torch.tensor(0.3).bfloat16(),
    "full": lambda x, y, z: x + torch.tensor(-2.6).bfloat16(),
    "fma": lambda x, y, z: nearest_bf16(x.double() * y.double() + z.double()),
    "where": lambda x, y, z: torch.where(x < y, x, z),
    "maximum": torch.fmax,
    "minimum": torch.fmin,
    "propagating": torch.maximum,
}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def operation(name: str, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    made = OPERATIONS[name]
    return made(x, y) if name in ("maximum", "minimum", "propagating") else made(x, y, z)


@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_on_bf16(interpreter: Worker, name: str) -> None:
    x, y, z = bf16(3, ODD)
    if name in ("maximum", "minimum", "propagating", "where", "add"):
        x[::7] = torch.nan
        y[::5] = torch.nan
    found = interpreter.call(kernel("elementwise"), name, x, y, z, torch.bfloat16)
    assert same(found, operation(name, x, y, z))


@pytest.mark.parametrize("name", COMPARISONS)
def test_comparisons_of_bf16(interpreter: Worker, name: str) -> None:
    """As bits, a negative number is above every positive one."""
    x, y = bf16(2, ODD)
    x[::7], y[::5] = torch.nan, torch.nan
    y[::3] = x[::3]
    x[1], y[1] = 0.0, -0.0
    found = interpreter.call(kernel("elementwise"), name, x, y, x, torch.bool)
    assert torch.equal(found, getattr(torch, name)(x, y))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_fma_rounds_once(interpreter: Worker, dtype: torch.dtype) -> None:
    """x² - round(x²) is what the rounding lost, not 0."""
    x = torch.randn(ODD).to(dtype)
    square = x * x
    found = interpreter.call(kernel("elementwise"), "fma", x, x, -square, dtype)
    exact = x.double() * x.double() - square.double()
    torch.testing.assert_close(found, exact.to(dtype), rtol=0, atol=0)
    assert found.count_nonzero() > ODD / 2


@pytest.mark.parametrize("name", ["maximum", "minimum", "propagating"])
def test_maximum_of_a_number_and_nan(interpreter: Worker, name: str) -> None:
    x, y = torch.tensor([torch.nan, 1.0, 2.0, torch.nan]), torch.tensor([1.0, torch.nan, 1.0, torch.nan])
    found = interpreter.call(kernel("elementwise"), name, x, y, x, torch.float32)
    assert same(found, operation(name, x, y, x))


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_arithmetic_on_fp8_is_refused(interpreter: Worker, dtype: torch.dtype) -> None:
    x = torch.randn(16).to(dtype)
    with pytest.raises(WorkerError, match=r"arithmetic on fp8.*cast it first"):
        interpreter.call(kernel("elementwise"), "add", x, x, x, dtype)


def test_atomic_arithmetic_on_bf16_is_refused(interpreter: Worker) -> None:
    with pytest.raises(WorkerError, match="atomic arithmetic on bf16"):
        interpreter.call(kernel("atomic_add"), bf16(1))


def test_sums_of_bf16(interpreter: Worker) -> None:
    x = bf16(8, 64)
    rows = interpreter.call(kernel("reduce"), "sum", x, torch.bfloat16)
    assert same(rows, x.float().sum(1).bfloat16())
    total = interpreter.call(kernel("reduce"), "all", x, torch.bfloat16)
    torch.testing.assert_close(total, x.double().sum().bfloat16()[None], rtol=2**-7, atol=0.1)


@pytest.mark.parametrize("name", ["max", "min"])
def test_maxima_of_bf16(interpreter: Worker, name: str) -> None:
    x = bf16(8, 64)
    x[0] = -x[0].abs()
    assert same(interpreter.call(kernel("reduce"), name, x, torch.bfloat16), getattr(x, "a" + name)(1))


def test_argmax_of_bf16(interpreter: Worker) -> None:
    x = bf16(8, 64)
    index = interpreter.call(kernel("reduce"), "argmax", x, torch.int32)
    assert same(x.gather(1, index[:, None].long())[:, 0], x.amax(1))


def test_scans_of_bf16(interpreter: Worker) -> None:
    x = bf16(4, 16)
    found = interpreter.call(kernel("reduce"), "cumsum", x, torch.bfloat16)
    torch.testing.assert_close(found.double(), x.double().cumsum(1), rtol=2**-8, atol=1e-3)


def test_a_reduction_of_ones_own(interpreter: Worker) -> None:
    x = (1 + torch.randn(4, 8) / 8).bfloat16()
    expected = x[:, 0]
    for column in x[:, 1:].T:
        expected = expected * column
    assert same(interpreter.call(kernel("reduce"), "product", x, torch.bfloat16), expected)


FLOATS = [torch.float16, torch.float32, torch.float64]
INTEGERS = [torch.int8, torch.int32, torch.bool]
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def given(dtype: torch.dtype) -> Tensor:
    """Numbers of a dtype, the troublesome ones among them, none outside any range."""
    if dtype == torch.bool:
        return torch.tensor([True, False, True])
    if not dtype.is_floating_point:
        return torch.randint(-128, 128, (ODD,)).to(dtype)
    special = [0.0, -0.0, torch.nan, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -1 - 2.0**-8, 2.0**-9, 100.0]
    return torch.cat([torch.tensor(special), torch.randn(ODD)]).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_casts_to_bf16(interpreter: Worker, dtype: torch.dtype) -> None:
    x = given(dtype)
    expected = x.bfloat16()
    if dtype == torch.float64:
        expected[~x.isnan()] = nearest_bf16(x[~x.isnan()])
    assert same(interpreter.call(kernel("cast"), x, torch.bfloat16), expected)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS, ids=str)
def test_casts_from_bf16(interpreter: Worker, dtype: torch.dtype) -> None:
    x = given(torch.bfloat16)
    x = x if dtype.is_floating_point else x[~x.isnan()]
    assert same(interpreter.call(kernel("cast"), x, dtype), x.to(dtype))


@pytest.mark.parametrize("fp8", FP8, ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.bfloat16], ids=str)
def test_casts_to_and_from_fp8(interpreter: Worker, dtype: torch.dtype, fp8: torch.dtype) -> None:
    x = given(dtype)
    small = interpreter.call(kernel("cast"), x, fp8)
    assert same(small.float(), x.to(fp8).float())
    assert same(interpreter.call(kernel("cast"), small, dtype), x.to(fp8).to(dtype))


def test_float64_to_bf16_rounds_once(interpreter: Worker) -> None:
    x = torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64)
    assert interpreter.call(kernel("cast"), x, torch.bfloat16).item() == 1 + 2.0**-7


def test_fp8_saturates(interpreter: Worker) -> None:
    x = torch.tensor([1e6, -torch.inf])
    assert interpreter.call(kernel("cast"), x, torch.float8_e4m3fn).float().tolist() == [448, -448]
    assert interpreter.call(kernel("cast"), x, torch.float8_e5m2).float().tolist() == [57344, -57344]


def test_a_cast_can_round_towards_zero(interpreter: Worker) -> None:
    x = torch.tensor([1 + 2.0**-8 + 2.0**-9, -1 - 2.0**-8 - 2.0**-9])
    assert interpreter.call(kernel("cast"), x, torch.bfloat16, "rtz").tolist() == [1, -1]
    assert interpreter.call(kernel("cast"), x, torch.bfloat16, "rtne").tolist() == [1 + 2.0**-7, -1 - 2.0**-7]


@pytest.mark.parametrize(("start", "end"), [(0, 9), (3, 4), (5, 5)])
def test_bounds_of_a_loop_may_be_tensors(interpreter: Worker, start: int, end: int) -> None:
    x = torch.randn(16)
    found = interpreter.call(kernel("loop"), x, start, end)
    torch.testing.assert_close(found[0], x[start:end].sum() + x[start:end:2].sum())


@pytest.mark.parametrize("shown", [0, 1])
def test_a_mask_may_have_a_scalar_part(interpreter: Worker, shown: int) -> None:
    x = torch.randn(32)
    expected = torch.where((torch.arange(32) < 11) & (shown > 0), x, -1.0)
    assert torch.equal(interpreter.call(kernel("mask"), x, 11, shown), expected)


def test_tensor_descriptors_of_bf16(interpreter: Worker) -> None:
    x = bf16(39, 32)
    assert same(interpreter.call(kernel("descriptors"), x), x * 1.5)


def tf32(x: Tensor) -> Tensor:
    """float32 rounded to 10 bits, ties away."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def test_tf32_is_modelled_when_asked(interpreter: Worker) -> None:
    a, b = torch.randn(32, 64), torch.randn(64, 32)
    cut_a, cut_b = ((x.view(torch.int32) & ~0x1FFF).view(torch.float32).double() for x in (a, b))
    found = interpreter.call(kernel("dot"), a, b, "tf32", round_tf32=True)
    torch.testing.assert_close(found.double(), 1 + cut_a @ cut_b, rtol=1e-5, atol=1e-5)
    plain = interpreter.call(kernel("dot"), a, b, "tf32")
    torch.testing.assert_close(plain.double(), 1 + a.double() @ b.double(), rtol=1e-5, atol=1e-5)
    assert (found - plain).abs().max() > 1e-3


def test_three_tf32_products(interpreter: Worker) -> None:
    """The product of the two rests is left out: one element shows it, and a whole product stays close to float32."""
    a = torch.zeros(16, 16)
    a[0, 0] = 1 + 3 * 2.0**-13
    found = interpreter.call(kernel("dot"), a, a, "tf32x3", round_tf32=True)
    assert found[0, 0] - 1 == 1 + 3 * 2.0**-12
    x, y = torch.randn(32, 64), torch.randn(64, 32)
    (xh, xl), (yh, yl) = ((tf32(t).double(), tf32(t - tf32(t)).double()) for t in (x, y))
    found = interpreter.call(kernel("dot"), x, y, "tf32x3", round_tf32=True)
    torch.testing.assert_close(found.double(), 1 + xh @ yh + xh @ yl + xl @ yh, rtol=1e-5, atol=1e-5)


def test_three_tf32_products_keep_infinity(interpreter: Worker) -> None:
    a = torch.ones(16, 16)
    a[2, 3] = torch.inf
    found = interpreter.call(kernel("dot"), a, torch.ones(16, 16), "tf32x3", round_tf32=True)
    assert found[2].isinf().all() and (found[[0, 1, 3]] == 17).all()


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_stock_is_wrong_in_silence(version: str) -> None:
    """Why there are repairs. When this fails a version has learnt bf16, and repairs can go."""
    stock = interpreted(version, repaired=False)
    x, y = torch.randn(2, 16, 16).bfloat16()
    assert (stock.call("tests.triton.kernels:dot", x, y) - x.float() @ y.float()).abs().max() > 1e6
    assert not same(stock.call("tests.triton.kernels:elementwise", "mul", *bf16(3, 16), torch.bfloat16), x[0] * y[0])
    with pytest.raises(WorkerError, match="triton_compat is not installed"):
        stock.call("tests.triton.triton_compat:guard")
    stock.close()
