"""Keys and values by tensor descriptors: the same numbers as by pointers, and pointers where hardware can't copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from codegen_programs import Expr, K, Q, axis, cast, const, load, qk, where
from codegen_reference import CAUSAL, causal_tiles, make_plan, window_tiles

from attnc.codegen.plan import KernelPlan
from attnc.codegen.triton.descriptors import describable, preferred
from attnc.codegen.triton.emitter import emit, launch
from tests.triton.versions import OTHERS, PINNED
from tests.triton.worker import interpreted

BOTH = """

DESCRIPTORS = True


def both(*operands):
    \"\"\"(descriptors among the arguments, out, lse) of a call by pointers and of one that may use descriptors.\"\"\"
    global DESCRIPTORS
    torch.use_deterministic_algorithms(True)  # fills new tensors with NaN
    found = []
    for DESCRIPTORS in (False, True):
        found.append((described(*operands), *attention(*operands)))
    torch.use_deterministic_algorithms(False)
    return found


def described(*operands):
    arguments = by_descriptor(*prepared(*operands)[3])
    return sum(isinstance(argument, TensorDescriptor) for argument in arguments)
"""
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
HEADS = {"b": 2, "h": 1, "g": 3}
BEHIND = {"q": 40, "k": 40, "d": 8, "e": 8}


def plan(dtype: str = "bf16", d: int = 64, e: int | None = None, **more: Any) -> KernelPlan:
    """For sm_90, with tiles that suit the interpreter."""
    settings: dict[str, Any] = {"block_m": 32, "block_n": 32, "target": "sm_90", "returns_lse": True}
    return make_plan(dtype=dtype, head_dim=d, value_dim=d if e is None else e, **settings | more)


def groups(**more: Any) -> KernelPlan:
    """Three heads of queries for each of keys, whose axes are in another order than a descriptor's."""
    return plan(
        outer=("b", "h", "g"),
        q_axes=("b", "q", "h", "g", "d"),
        k_axes=("b", "k", "h", "d"),
        v_axes=("b", "h", "k", "e"),
        out_axes=("b", "q", "h", "g", "e"),
        **more,
    )


def hidden(mask: Expr) -> dict[str, Any]:
    """Rows without a key are as the source wrote them."""
    score = cast(qk, "f32") * 0.125
    return {"visible": score, "score": where(mask, score, const(-3.4e38, "f32")), "dead_rows": "as_written"}


KEEP = load(0, "i64", axis("b"), K).ne(0)
CASES: dict[str, tuple[Callable[[], KernelPlan], dict[str, int]]] = {
    "causal": (lambda: plan(mask=CAUSAL, segments=causal_tiles(32, 32)), {"q": 45, "k": 45, "b": 1}),
    "groups": (lambda: groups(mask=CAUSAL, segments=causal_tiles(32, 32), e=128), {"q": 35, "k": 71, "b": 1, "h": 2}),
    "window": (
        lambda: plan("f16", 128, mask=(K <= Q) & (K > Q - 20), segments=window_tiles(32, 32, 20)),
        {"q": 67, "k": 67, "b": 1},
    ),
    "cross": (lambda: plan("f32", 24, 16), {"q": 5, "k": 69}),
    "one key": (lambda: plan("f16"), {"q": 3, "k": 1}),
    "whole tiles": (lambda: plan(), {"q": 32, "k": 64, "b": 1}),
    "dead rows": (lambda: plan(mask=KEEP, sides=[("i64", 2)], **hidden(KEEP)), {"q": 9, "k": 37}),
}
SOON = ("causal", "groups", "cross", "dead rows")
EACH = [pytest.param(PINNED, case, marks=() if case in SOON else pytest.mark.slow) for case in CASES]
EVERY = EACH + [pytest.param(version, case, marks=pytest.mark.slow) for version in OTHERS for case in CASES]


def operands(of: KernelPlan, lengths: dict[str, int]) -> list[torch.Tensor]:
    """q, k, v. What lies behind their rows and columns is NaN."""
    found = []
    for axes, dtype in zip((of.q_axes, of.k_axes, of.v_axes), of.dtypes, strict=False):
        shape = [{**HEADS, "d": of.head_dim or 0, "e": of.value_dim or 0, **lengths}[a] for a in axes]
        room = [n + BEHIND.get(a, 0) for a, n in zip(axes, shape, strict=True)]
        whole = torch.full(room, float("nan"), dtype=DTYPES[dtype])
        whole[tuple(slice(n) for n in shape)] = torch.randn(shape).to(whole.dtype)
        found.append(whole[tuple(slice(n) for n in shape)])
    return found


def text(of: KernelPlan) -> str:
    """A module that uses descriptors wherever it can."""
    return emit(of).text + BOTH


@pytest.mark.parametrize(("version", "case"), EVERY)
def test_both_forms_give_the_same_bits(version: str, case: str) -> None:
    make, lengths = CASES[case]
    of = make()
    tensors = operands(of, lengths)
    keep = torch.rand(lengths.get("b", HEADS["b"]), lengths["k"]) < 0.5
    keep[0] = False
    sides = [keep.long()] if of.sides else []
    pointers, descriptors = interpreted(version).run(text(of), "both", *tensors, sides)
    assert (pointers[0], descriptors[0]) == (0, 2)
    for ours, theirs in zip(descriptors[1:], pointers[1:], strict=True):
        assert torch.isfinite(ours).all()
        assert torch.equal(ours, theirs)


Layout = Callable[[torch.Tensor], torch.Tensor]
"""Keys or values [2, 1, 37, 64] of bf16, laid out anew."""


def skipping(elements: int, row: int = 64) -> Layout:
    """From an element of the storage on, with rows that many elements apart."""

    def laid_out(x: torch.Tensor) -> torch.Tensor:
        batch, heads, rows, _ = x.shape
        strides = (heads * rows * row, rows * row, row, 1)
        found = torch.zeros(elements + batch * strides[0], dtype=x.dtype).as_strided(x.shape, strides, elements)
        return found.copy_(x)

    return laid_out


def one_batch(stride: int) -> Layout:
    return lambda x: x[:1].as_strided((1, *x.shape[1:]), (stride, *x.stride()[1:]))


def across(x: torch.Tensor) -> torch.Tensor:
    return x.mT.contiguous().mT


COPIED: dict[str, Layout] = {
    "contiguous": lambda x: x.contiguous(),
    "from 16 bytes on": skipping(8),
    "rows of 144 bytes": skipping(0, 72),
    "heads within rows": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "a stride below 2^40 bytes": one_batch((1 << 39) - 8),
}
NOT_COPIED: dict[str, Layout] = {
    "from 8 bytes on": skipping(4),
    "rows of 136 bytes": skipping(0, 68),
    "features apart": across,
    "one batch for all": lambda x: x[:1].expand(2, -1, -1, -1),
    "a stride of 2^40 bytes": one_batch(1 << 39),
    "no rows": lambda x: x[:, :, :0],
}


def counted(of: KernelPlan, k: torch.Tensor, v: torch.Tensor) -> int:
    """Descriptors among the arguments of a launch."""
    q = torch.zeros(k.shape[0], k.shape[1], 5, k.shape[3], dtype=k.dtype)
    found: int = interpreted().run(text(of), "described", q, k, v)
    return found


@pytest.mark.parametrize("which", ["k", "v"])
def test_a_layout_that_hardware_copies_or_not(which: str) -> None:
    """It takes both to be copied."""
    other = torch.randn(2, 1, 37, 64).bfloat16()
    found = {}
    for name, layout in {**COPIED, **NOT_COPIED}.items():
        laid_out = layout(torch.randn(2, 1, 37, 64).bfloat16())
        beside = other[: laid_out.shape[0], :, : laid_out.shape[2]]
        found[name] = counted(plan(), *((laid_out, beside) if which == "k" else (beside, laid_out)))
    assert found == dict.fromkeys(COPIED, 2) | dict.fromkeys(NOT_COPIED, 0)


@pytest.mark.parametrize(
    ("dtype", "length", "copied"), [("f32", 20, 2), ("bf16", 20, 0), ("bf16", 24, 2), ("bf16", 80, 0)]
)
def test_head_dimensions(dtype: str, length: int, copied: int) -> None:
    """Rows of 80 bytes are copied and rows of 40 are not; 80 columns are no power of two. None of them is static."""
    of = make_plan(dtype=dtype, target="sm_90")
    k, v = (torch.randn(2, 1, 7, length).to(DTYPES[dtype]) for _ in range(2))
    assert counted(of, k, v) == copied


@pytest.mark.parametrize("layout", ["from 8 bytes on", "one batch for all"])
def test_what_is_not_copied_is_read_all_the_same(layout: str) -> None:
    of = plan(mask=CAUSAL, segments=causal_tiles(32, 32))
    q, k, v = (torch.randn(2, 1, 37, 64).bfloat16() for _ in range(3))
    laid_out = NOT_COPIED[layout](k)
    copied = laid_out.clone(memory_format=torch.contiguous_format)
    (count, out, lse) = interpreted().run(text(of), "both", q, laid_out, v)[1]
    same_count, same_out, same_lse = interpreted().run(text(of), "both", q, copied, v)[1]
    assert (count, same_count) == (0, 2)
    assert torch.equal(out, same_out) and torch.equal(lse, same_lse)


# -- what is compiled ahead of time


def test_a_launch_with_descriptors() -> None:
    """Keys in another order of axes; a dimension of queries' alone is none of theirs. No stride of theirs matters."""
    of = groups(e=128, block_n=64)
    how, pointers = launch(of, described=True), launch(of)
    types = {parameter.name: parameter.type for parameter in how.parameters}
    assert (types["K"], types["V"]) == ("tensordesc<bf16[1, 1, 64, 64]>", "tensordesc<bf16[1, 1, 64, 128]>")
    assert how.described and not pointers.described
    assert [p.name for p in how.parameters] == [p.name for p in pointers.parameters]
    assumed = {parameter.name: parameter.assumed for parameter in how.parameters}
    assert [assumed[n] for n in ("q_row", "k_row", "v_of_h", "k_col", "K")] == [
        "aligned", "nothing", "nothing", "one", "nothing",
    ]  # fmt: skip
    assert how.constants == pointers.constants


@pytest.mark.parametrize(
    ("of", "copied"),
    [
        (plan(), True),
        (plan(target="sm_100"), True),
        (plan(d=256), True),
        (plan(target="sm_80"), False),
        (plan(target="gfx942"), False),
        (plan(target="triton-interpret"), False),
        (plan(d=80), False),
        (plan(e=96), False),
        (plan(d=512), False),
        (plan(outer=tuple("abch"), k_axes=tuple("abckd"), v_axes=tuple("chke")), True),
        (plan(outer=tuple("abch"), k_axes=tuple("abckd"), v_axes=tuple("abchke")), False),
    ],
)
def test_which_plans_have_descriptors(of: KernelPlan, copied: bool) -> None:
    assert describable(of) is copied
    if not copied:
        with pytest.raises(ValueError, match=f"{of.target} whose keys and values have no tensor descriptors"):
            launch(of, described=True)


@pytest.mark.parametrize(
    ("of", "used"),
    [
        (plan(d=128), True),
        (plan("f16", 128), True),
        (plan(d=64, e=128), True),
        (plan(d=64), False),
        (plan(d=256), False),
        (plan("f32", 128), False),
        (plan(d=128, e=96), False),
        (plan(d=128, target="sm_100"), False),
        (plan(d=128, target="sm_80"), False),
        (make_plan(dtype="bf16", target="sm_90"), False),
    ],
)
def test_which_plans_are_launched_with_descriptors(of: KernelPlan, used: bool) -> None:
    assert preferred(of) is used
    if used:
        assert describable(of)
    assert f"\nDESCRIPTORS = {used}\n" in emit(of).text


@pytest.mark.parametrize(("head_dim", "used"), [(128, 2), (64, 0)])
def test_a_module_launches_as_it_says(head_dim: int, used: int) -> None:
    """Without a test's own word for it."""
    text = emit(plan(d=head_dim)).text + BOTH.replace("DESCRIPTORS = True", "", 1)
    q, k, v = (torch.randn(1, 1, 5, head_dim).bfloat16() for _ in range(3))
    assert interpreted().run(text, "described", q, k, v) == used
