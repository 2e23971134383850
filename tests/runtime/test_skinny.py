"""attnc::skinny_linear: its sums, its bits, its operands, and what happens without a compiler."""

from __future__ import annotations

import dataclasses
import platform
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from attnc.runtime import skinny, skinny_choice
from attnc.runtime.build import compile_library
from attnc.runtime.toolchain import find_toolchain, isa

Script = Callable[..., Any]
F32, BF16 = torch.float32, torch.bfloat16
RUN = 64  # DEPTH in csrc/skinny.h


@pytest.fixture(autouse=True)
def built(configured: None) -> None:
    assert skinny.available()


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def exact(x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The result in float64, and how far from it rounding may lead: (result, bound), both [M, N].

    A product goes through at most RUN + K / RUN + 2 roundings of float32, each of half a unit in the last place, and
    the whole then through the one of its dtype.
    """
    wide = x.double(), weight.double(), torch.zeros(weight.shape[0]).double() if bias is None else bias.double()
    result, sizes = functional.linear(*wide), functional.linear(*(t.abs() for t in wide))
    steps = min(x.shape[-1], RUN) + x.shape[-1] // RUN + 2
    error = 1.01 * steps * 2.0**-24 * sizes
    return result, error + (2.0**-8 * (result.abs() + error) if x.dtype is BF16 else 0)


@pytest.mark.parametrize("features", [1, 16, 161])
@pytest.mark.parametrize("depth", [1, 7, 64, 640, 641])
@pytest.mark.parametrize("stored", [F32, BF16])
@pytest.mark.parametrize("given", [F32, BF16])
def test_against_float64(features: int, depth: int, stored: torch.dtype, given: torch.dtype) -> None:
    weight = torch.randn(features, depth).to(stored)
    weight[:, -1] = 1
    packed = skinny.pack(weight)
    assert packed.panels.dtype is stored
    for rows in (*range(1, 18), 35):
        x = torch.randn(rows, depth).to(given)
        x[:, -1] = 1
        for bias in (None, torch.randn(features).to(stored if rows % 2 else F32)):
            found = skinny.linear(x, packed, bias)
            wanted, limit = exact(x, weight, bias)
            assert found.dtype is given and found.shape == wanted.shape and found.is_contiguous()
            assert ((found.double() - wanted).abs() <= limit).all()
            if given is F32:  # a bound that lets one missing product pass would show nothing
                assert ((found.double() - (wanted - 1)).abs() > limit).all()


@pytest.mark.parametrize("stored", [F32, BF16])
def test_bits_of_a_row_do_not_depend_on_the_others(threads: int, stored: torch.dtype) -> None:
    packed, bias = skinny.pack(torch.randn(301, 641).to(stored)), torch.randn(301)
    x = torch.randn(40, 641)
    torch.set_num_threads(1)
    alone = torch.cat([skinny.linear(row[None], packed, bias) for row in x])
    torch.set_num_threads(threads)
    assert len({tuple(row.tolist()) for row in alone}) == 40
    for rows in (*range(1, 18), 39, 40):
        assert torch.equal(skinny.linear(x[:rows], packed, bias), alone[:rows])
        assert torch.equal(skinny.linear(x[-rows:], packed, bias), alone[-rows:])
    order = torch.randperm(40)
    assert torch.equal(skinny.linear(x[order], packed, bias), alone[order])


def test_any_strides_give_the_same_bits() -> None:
    packed, bias = skinny.pack(torch.randn(37, 70)), torch.randn(74)
    x = torch.randn(2, 3, 5, 70)
    expected = skinny.linear(x, packed, bias[::2])
    assert expected.shape == (2, 3, 5, 37)
    for other in (
        x.transpose(0, 2).contiguous().transpose(0, 2),
        x.mT.contiguous().mT,
        torch.stack([x, x], -1)[..., 0],
        torch.cat([x, x], -1)[..., 70:],
    ):
        assert torch.equal(skinny.linear(other, packed, bias[::2].contiguous()), expected)
    assert torch.equal(skinny.linear(x[1, 2, 3], packed, bias[::2]), expected[1, 2, 3])
    broadcast = skinny.linear(x[:1, :1, :1].expand(4, 2, 6, -1), packed, bias[::2])
    assert torch.equal(broadcast, expected[:1, :1, :1].expand(4, 2, 6, -1))
    narrow = x.bfloat16()
    strided = torch.stack([narrow, narrow], -1)[..., 1]
    assert torch.equal(skinny.linear(strided, packed), skinny.linear(narrow, packed))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_stay_where_they_are(value: float) -> None:
    weight, x = torch.randn(35, 66), torch.randn(11, 66)
    clean = skinny.linear(x, skinny.pack(weight))
    x[4, 65] = value
    weight[33, 2] = value
    found = skinny.linear(x, skinny.pack(weight))
    touched = torch.zeros(11, 35, dtype=torch.bool)
    touched[4], touched[:, 33] = True, True
    assert not found[touched].isfinite().any()
    assert torch.equal(found[~touched], clean[~touched])


@pytest.mark.parametrize(("rows", "features", "depth"), [(0, 5, 7), (3, 0, 7), (3, 5, 0), (0, 0, 0)])
def test_empty_operands(rows: int, features: int, depth: int) -> None:
    packed, bias = skinny.pack(torch.randn(features, depth)), torch.randn(features)
    x = torch.randn(2, rows, depth)
    assert torch.equal(skinny.linear(x, packed, bias), functional.linear(x, torch.zeros(features, depth), bias))


@pytest.mark.parametrize("features", [1, 16, 31, 48])
def test_packing(features: int) -> None:
    weight = torch.randn(9, features).T
    packed = skinny.pack(weight.requires_grad_())
    assert packed.panels.shape == (-(-features // 16), 9, 16) and not packed.panels.requires_grad
    assert torch.equal(skinny.unpack(packed), weight)
    padding = packed.panels.mT.flatten(0, 1)[features:]
    assert padding.eq(0).all() and packed.panels[0, 8, features // 16] == weight[features // 16, 8]


def test_packing_refuses_what_has_no_kernel() -> None:
    with pytest.raises(ValueError, match=r"shape \(5, 7\) and torch.float16: .* takes .* float32 or bfloat16"):
        skinny.pack(torch.ones(5, 7).half())
    with pytest.raises(ValueError, match=r"shape \(7,\)"):
        skinny.pack(torch.ones(7))


@pytest.mark.parametrize("op", [skinny.skinny_linear, skinny._first], ids=["kernel", "first"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.ones(3, 8)}, "x has 8 features, packed was made for 7"),
        ({"x": torch.ones(())}, "x has no dimension, packed was made for 7"),
        ({"x": torch.ones(3, 7).double()}, "x is neither float32 nor bfloat16"),
        ({"packed": torch.ones(3, 7, 16).half()}, "packed is neither float32 nor bfloat16"),
        ({"packed": torch.ones(33, 7)}, r"packed is not what pack\(\) returns"),
        ({"packed": torch.ones(3, 16, 7).mT}, r"packed is not what pack\(\) returns"),
        ({"out_features": 49}, "packed has 3 panels of 16 features, which is not what 49 features need"),
        ({"out_features": -1}, "packed has 3 panels"),
        ({"bias": torch.ones(32)}, r"bias is not of shape \[33\]"),
        ({"bias": torch.ones(1, 33)}, r"bias is not of shape \[33\]"),
        ({"bias": torch.ones(33).long()}, "bias is neither float32 nor bfloat16"),
    ],
)
def test_operands_that_do_not_fit(op: Callable[..., Tensor], change: dict[str, Any], message: str) -> None:
    right = {"x": torch.ones(3, 7), "packed": torch.ones(3, 7, 16), "bias": torch.ones(33), "out_features": 33}
    assert op(*right.values()).eq(8).all()
    with pytest.raises(RuntimeError, match=f"attnc::skinny_linear: {message}"):
        op(*(right | change).values())


def test_calls_from_many_threads() -> None:
    packed, x = skinny.pack(torch.randn(100, 300)), torch.randn(8, 300)
    expected = skinny.linear(x, packed)
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(1 for _ in range(50) if not torch.equal(skinny.linear(x, packed), expected))

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_opcheck() -> None:
    checks = ("test_schema", "test_faketensor")
    packed = skinny.pack(torch.randn(33, 7))
    arguments = (torch.randn(2, 3, 7), packed.panels, torch.randn(33), 33)
    torch.library.opcheck(skinny.skinny_linear, arguments, test_utils=checks)


def test_fake_rows_stay_symbolic() -> None:
    panels = skinny.pack(torch.randn(33, 7)).panels
    inputs = torch.randn(5, 7), panels
    traced = make_fx(lambda x, panels: skinny.skinny_linear(x, panels, None, 33), tracing_mode="symbolic")(*inputs)
    graph: Any = traced.graph
    given = next(node.meta["val"] for node in graph.nodes if node.op == "placeholder")
    found = next(node.meta["val"] for node in graph.nodes if node.target is skinny.skinny_linear)
    assert isinstance(found.shape[0], torch.SymInt)
    assert [str(n) for n in found.shape] == [str(given.shape[0]), "33"]


def test_inside_compile_without_recompilation() -> None:
    packed = skinny.pack(torch.randn(33, 7))
    compiled = torch.compile(
        lambda x: skinny.linear(x * 2, packed) + 1, backend="aot_eager", fullgraph=True, dynamic=True
    )
    torch._dynamo.reset()
    with torch._dynamo.config.patch(error_on_recompile=True):
        for rows in (2, 5, 16):
            x = torch.randn(rows, 7)
            assert torch.equal(compiled(x), skinny.linear(x * 2, packed) + 1)


def test_the_choice_is_measured_once_and_weighs_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[torch.Size] = []
    times = {8: [1.0, 2.0], 256: [40.0, 10.0]}

    def seconds(ours: Callable[[], Tensor], library: Callable[[], Tensor]) -> list[float]:
        torch.testing.assert_close(ours(), library())
        asked.append(library().shape)
        return times[library().shape[0]]

    monkeypatch.setattr(skinny_choice, "seconds", seconds)
    monkeypatch.setattr(skinny_choice, "WEIGHTS", 40 * 9 * 4)
    skinny_choice._faster.cache_clear()
    weight = torch.randn(33, 9)
    assert skinny_choice.chosen(weight) and skinny_choice.chosen(weight)
    assert asked == [(8, 33), (256, 33)]
    times[256] = [43.0, 10.0]  # 32 + 43 against 64 + 10
    assert not skinny_choice.chosen(weight.bfloat16()) and not skinny_choice.chosen(torch.randn(99, 9))
    assert asked[2:] == [(8, 33), (256, 33), (8, 40), (256, 40)]
    assert skinny_choice.chosen(weight)
    assert not skinny_choice.chosen(weight.double()) and not skinny_choice.chosen(weight.to("meta"))
    skinny_choice._faster.cache_clear()


def test_the_choice_can_be_forced() -> None:
    weight = torch.randn(33, 9).double()
    with skinny_choice.forced(True):
        assert skinny_choice.chosen(weight)
        with skinny_choice.forced(False):
            assert not skinny_choice.chosen(weight.float())
        assert skinny_choice.chosen(weight)
    assert not skinny_choice.chosen(weight)


def test_the_faster_one_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skinny_choice, "CACHE", 1 << 20)
    x, y = torch.randn(8, 64), torch.randn(700, 700)
    short, long = skinny_choice.seconds(lambda: x + 1, lambda: y @ y)
    assert 0 < short < long


PREAMBLE = """
import torch, warnings
from attnc.runtime import skinny, skinny_choice
weight, bias, x = torch.randn(33, 70), torch.randn(33), torch.randn(5, 70)
packed = skinny.pack(weight)
def check():
    found = skinny.linear(x, packed, bias)
    wanted = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-5)
    narrow = skinny.linear(x.bfloat16(), skinny.pack(weight.bfloat16()))
    wanted = torch.nn.functional.linear(x.bfloat16().double(), weight.bfloat16().double())
    torch.testing.assert_close(narrow.double(), wanted, atol=0.1, rtol=0.01)
    assert narrow.dtype is torch.bfloat16
"""
RECORDED = """
with warnings.catch_warnings(record=True) as w:
    warnings.simplefilter("always")
    check(), check(), skinny_choice.chosen(weight)
print(skinny.available(), skinny_choice.chosen(weight), len(w), *(x.message for x in w))
"""


def test_no_compiler_at_all(script: Script, tmp_path: Path) -> None:
    done = script(PREAMBLE + RECORDED, CXX="no-such-compiler", ATTNC_CACHE_DIR=str(tmp_path / "empty"))
    assert done.stdout.startswith("False False 1 attnc: no kernel can be built")


def test_a_kernel_that_does_not_build(script: Script) -> None:
    done = script(PREAMBLE + "skinny.FLAGS += ('-include', 'no_such_header.h')\n" + RECORDED)
    assert done.stdout.startswith("False False 1 attnc: attnc::skinny_linear can't be built or loaded, torch's linear")


def test_a_compiler_that_has_gone_leaves_what_it_built(script: Script) -> None:
    text = PREAMBLE + "warnings.simplefilter('error')\ncheck()\nassert skinny.available()\n"
    script(text)
    script(text, CXX="no-such-compiler")


BITS = """
alone = torch.cat([skinny.linear(row[None], packed, bias) for row in x])
assert torch.equal(skinny.linear(x, packed, bias), alone)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels of x86-64")
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "x86-64-v4"])
def test_other_vector_extensions(level: str, script: Script, tmp_path: Path) -> None:
    flags = tuple(f"-march={level}" if flag.startswith("-march") else flag for flag in skinny.FLAGS)
    needed = {"x86-64-v3": "avx2", "x86-64-v4": "avx512f"}.get(level, "")
    if needed in isa():
        script(PREAMBLE + f"skinny.FLAGS = {flags}\ncheck()\nassert skinny.available()\n" + BITS)
        return
    spec = dataclasses.replace(skinny.skinny_spec(find_toolchain()), flags=flags)
    for name, text in spec.files.items():
        (tmp_path / name).write_text(text)
    options = (*flags, *(f"-I{path}" for path in spec.includes), *spec.locations)
    compile_library(spec.toolchain, tmp_path / spec.source, tmp_path / spec.library, options)
