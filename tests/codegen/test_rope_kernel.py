"""The rotation kernel in Triton's interpreter against the definition, and what its machine code looks like."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.codegen.targets import capability
from attnc.codegen.triton.rope import RopePlan, emit_rope, launch_rope
from attnc.compiler.machine import amdgcn, sass
from attnc.compiler.machine.build import Binary, compile_kernel
from attnc.runtime.abi import DTYPES
from benchmarks.policy import judge
from tests.triton.worker import WorkerError, interpreted, poisoned

F64 = torch.float64
INDICES = (("i64", "f32"),)
"""One position, as models have it, and its frequencies."""
MORE = (
    poisoned("rotate")
    + """

def checked(lead, begin, seed):
    x, *others = operands(lead, begin, torch.Generator().manual_seed(seed))
    return measure(poisoned(x, *others), naive(x, *others))
"""
)


@dataclass(frozen=True)
class Case:
    """A plan and the operands it is tried with.

    ``lead``: lengths of x's dimensions but for features; ``shapes`` of positions, or of tables without features;
    ``stored``: x's dimensions as they lie in memory.
    """

    lead: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    begin: int = 0
    stored: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> RopePlan:
        rank = len(self.lead) + 1
        known = {
            "dtypes": ("f32", "f32"),
            "features": 16,
            "rotary_dim": 16,
            "style": "half",
            "terms": (("i64", "f32"),),
        }
        known |= {"tables": (), "order": tuple(range(rank)), "heads": self.heads, "target": "triton-interpret"}
        return RopePlan(rank=rank, **known | self.settings)

    @property
    def heads(self) -> tuple[int, ...]:
        lead = len(self.lead)
        return tuple(d for d in range(lead) if all(d < lead - len(s) or s[d - lead] == 1 for s in self.shapes))

    def operands(self) -> tuple[Tensor, list[Tensor], list[Tensor], list[Tensor]]:
        plan = self.plan
        shape, stored = (*self.lead, plan.features), self.stored or tuple(range(plan.rank))
        x = torch.randn([shape[d] for d in stored]).to(DTYPES[plan.dtypes[0]])
        x = x.permute([stored.index(d) for d in range(plan.rank)])
        pairs = list(zip(plan.terms, self.shapes, strict=False))
        positions = [(self.begin + torch.rand(s) * 999).to(DTYPES[dtypes[0]]) for dtypes, s in pairs]
        exponents = torch.linspace(0, 1, plan.rotary_dim // 2, dtype=F64)
        frequencies = [(1e-4**exponents * (1 + 0.1 * i)).to(DTYPES[dtypes[1]]) for i, (dtypes, _) in enumerate(pairs)]
        tables = [torch.randn(*s, n).to(DTYPES[d]) for (d, n), s in zip(plan.tables, self.shapes, strict=False)]
        return x, positions, frequencies, tables


def given(*dtypes: str, width: int = 8, **settings: Any) -> dict[str, Any]:
    return {"terms": (), "tables": tuple((d, width) for d in dtypes), **settings}


def sized(x: str, result: str, features: int, rotary_dim: int | None = None, **settings: Any) -> dict[str, Any]:
    return {"dtypes": (x, result), "features": features, "rotary_dim": rotary_dim or features, **settings}


INTERLEAVED = {"style": "interleaved"}
MODEL = {"stored": (0, 2, 1, 3), "settings": {"order": (0, 2, 1, 3)}}
"""[B, H, S, D] as a projection leaves it in memory."""
CASES: dict[str, Case] = {
    "halves": Case((2, 3, 37), ((37,),), **MODEL),
    "neighbours": Case((2, 5, 37), ((37,),), settings=INTERLEAVED),
    "a position for each sequence": Case((2, 3, 37), ((2, 1, 37),), stored=(2, 0, 3, 1)),
    "heads behind the length": Case((2, 37, 3), ((37, 1),), settings=INTERLEAVED | {"order": (3, 0, 1, 2)}),
    "tokens of several sequences": Case((70, 9), ((70, 1),), settings=sized("bf16", "bf16", 64)),
    "a position for each row": Case((2, 3, 7), ((2, 3, 7),), settings={"dtypes": ("f16", "f16")}),
    "late halves": Case((3, 67), ((67,),), 999_000, settings=sized("f32", "f32", 128)),
    "late neighbours in half": Case(
        (3, 67),
        ((3, 67),),
        999_000,
        settings=sized("f16", "f16", 80, **INTERLEAVED),
    ),
    "some features": Case((2, 3, 11), ((11,),), settings=sized("bf16", "f32", 100, 20)),
    "some neighbours": Case((2, 3, 11), ((11,),), stored=(3, 1, 0, 2), settings=INTERLEAVED | {"rotary_dim": 6}),
    "rows and columns": Case((2, 3, 4, 5), ((4, 1), (5,)), settings={"terms": (("i64", "f32"), ("i32", "f32"))}),
    "three positions": Case((2, 3, 11), ((2, 1, 11),) * 3, 5000, settings={"terms": INDICES * 3, "rounded": True}),
    "float64 positions": Case((3, 37), ((37,),), 999_000, settings={"terms": (("f64", "f32"),)}),
    "float64 frequencies, one term rounded": Case(
        (3, 37), ((37,), (1,)), 99_000, settings={"terms": (("i64", "f64"), ("bf16", "f32")), "rounded": True}
    ),
    "a factor": Case((3, 37), ((37,),), settings=sized("f16", "f32", 16, factor=1.1386294, terms=(("u8", "bf16"),))),
    "tables of pairs": Case((2, 3, 37), ((37,), (2, 1, 37)), settings=given("f32", "bf16", **INTERLEAVED)),
    "tables of features": Case((2, 3, 37), ((37,),) * 2, settings=given("f32", "f32", width=16, factor=0.5)),
    "tables of neighbours": Case((5, 9, 4), ((9, 1), (1,)), settings=given("f16", "f16", width=16, **INTERLEAVED)),
    "one table of pairs, one of features": Case(
        (7, 5),
        ((7, 1), (7, 1)),
        settings=sized("bf16", "bf16", 16, terms=(), tables=(("f32", 16), ("bf16", 8))),
    ),
    "float64": Case((3, 37), ((37,),), 999_000, settings={"dtypes": ("f64", "f64"), "terms": (("i64", "f64"),)}),
    "a wider result": Case((3, 37), ((37,),), settings={"dtypes": ("f32", "f64")}),
    "one token": Case((4, 9, 1), ((1,),), 77, **MODEL),
    "one pair": Case((2, 3), ((3,),), settings={"features": 3, "rotary_dim": 2}),
    "one row": Case((), ((),), 12),
    "no token": Case((2, 3, 0), ((0,),)),
    "no head": Case((0, 5), ((5,),) * 2, settings=given("f32", "f32")),
}


def rotation(
    plan: RopePlan, x: Tensor, positions: list[Tensor], frequencies: list[Tensor], tables: list[Tensor],
    dtype: torch.dtype, exact: bool = False,
) -> Tensor:  # fmt: skip
    """By definition, with waves and products in ``dtype``; ``exact``: angles too are in float64, where not rounded."""
    half = plan.rotary_dim // 2
    sides = (slice(0, 2 * half, 2), slice(1, 2 * half, 2))
    if plan.style == "half":
        sides = (slice(0, half), slice(half, 2 * half))
    waves = tables
    if not tables:
        total = torch.zeros(())
        for p, f in zip(positions, frequencies, strict=True):
            wide = exact or F64 in (p.dtype, f.dtype)
            term = p.to(F64 if wide else torch.float32)[..., None] * f.to(F64 if wide else torch.float32)
            total = total + (term.float() if plan.rounded else term)
        if dtype is F64:
            total = total.double()
        waves = [total.cos(), total.sin()]
    (c0, s0), (c1, s1) = (
        [(w[..., side] if w.shape[-1] > half else w).to(dtype) * plan.factor for w in waves] for side in sides
    )
    result = x.to(dtype).clone()
    a, b = (result[..., side].clone() for side in sides)
    result[..., sides[0]] = a * c0 - b * s0
    result[..., sides[1]] = b * c1 + a * s1
    return result


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str) -> None:
    """Within the numerics policy; and near what cosines and sines of the angles themselves give, however late."""
    torch.manual_seed(len(name))
    case = CASES[name]
    plan, operands = case.plan, case.operands()
    ours = interpreted().run(emit_rope(plan).text + MORE, "poisoned", *operands)
    assert ours.dtype == DTYPES[plan.dtypes[1]] and ours.shape == operands[0].shape
    dense = torch.empty([ours.shape[d] for d in plan.order]).permute([plan.order.index(d) for d in range(plan.rank)])
    assert ours.stride() == dense.stride()
    if not ours.numel():
        return
    sharp = rotation(plan, *operands, F64)
    verdict = judge(ours, rotation(plan, *operands, ours.dtype), rotation(plan, *operands, F64, exact=True))
    assert verdict.passed, str(verdict)
    real = F64 if ours.dtype is F64 else torch.float32
    allowed = torch.finfo(ours.dtype).eps + 8 * torch.finfo(real).eps
    assert (ours.double() - sharp).abs().max() <= allowed * sharp.abs().max()


def test_positions_may_have_any_strides() -> None:
    case = Case((2, 3, 37), ((2, 1, 37),))
    x, (position,), frequencies, _ = case.operands()
    text = emit_rope(case.plan).text
    plain = interpreted().run(text, "rotate", x, [position], frequencies)
    apart = torch.stack([position, position + 1], -1)[..., 0]
    assert not apart.is_contiguous()
    spread = torch.stack([frequencies[0], frequencies[0]], -1)[:, 0]
    assert torch.equal(interpreted().run(text, "rotate", x, [apart], [spread]), plain)
    one = position[:1].expand(2, 1, 37)
    assert torch.equal(
        interpreted().run(text, "rotate", x, [one], frequencies),
        interpreted().run(text, "rotate", x, [one.contiguous()], frequencies),
    )


WRONG = {
    "x is float16": lambda x, p, f: (x.half(), [p], [f]),
    "too few features": lambda x, p, f: (x[..., :8], [p], [f]),
    "no position": lambda x, p, f: (x, [], []),
    "a frequency too few": lambda x, p, f: (x, [p], [f[:-1]]),
    "positions of another length": lambda x, p, f: (x, [p[1:]], [f]),
    "positions that differ between heads": lambda x, p, f: (x, [p.expand(3, 37)], [f]),
}


@pytest.mark.parametrize("name", WRONG)
def test_operands_of_another_plan_are_refused(name: str) -> None:
    case = CASES["halves"]
    x, (position,), (frequency,), _ = case.operands()
    with pytest.raises(WorkerError, match="ValueError"):
        interpreted().run(emit_rope(case.plan).text, "rotate", *WRONG[name](x, position, frequency))


@pytest.mark.parametrize(
    "changes",
    [{"target": "cpu"}, {"dtypes": ("f32", "f8e5m2")}, {"terms": (("c64", "f32"),)}, {"terms": (("i64", "i64"),)}],
)
def test_plans_without_a_kernel(changes: dict[str, Any]) -> None:
    case = CASES["halves"]
    with pytest.raises(ValueError, match=r"rope kernels|no Triton kernels"):
        emit_rope(Case(case.lead, case.shapes, settings=changes).plan)


def test_a_digest_is_of_everything_in_a_plan() -> None:
    plans = [case.plan for case in CASES.values()]
    assert len({plan.digest for plan in plans}) == len(set(plans))
    assert emit_rope(plans[0]).plan == plans[0].digest == CASES["halves"].plan.digest


MUTANTS = {
    "turned the other way": ("halves", r"x \* c0 - y \* s0", "x * c0 + y * s0"),
    "quarter turns": ("halves", r"\(quarter & 2\)", "(quarter & 1)"),
    "π to 25 bits": ("late halves", r"1\.5893254773528197e-08", "0.0"),
    "frequencies of neighbours": (
        "neighbours",
        r"f0 \+ wide",
        "f0 + wide // 2",
    ),
    "a row too few": ("halves", r"row < rows\)", "row < rows - 1)"),
    "a head too few": ("neighbours", r"first \+ EACH, heads\)", "first + EACH, heads - 1)"),
    "features left out": ("some features", r"rest\.to\(", "(rest * 0.5).to("),
    "no second position": ("rows and columns", r"a0 \+ a1", "a0 + a0"),
    "one table for both features": (
        "tables of features",
        r"sin1 = entries\(sin, sin_at, pair \+ HALF",
        "sin1 = entries(sin, sin_at, pair",
    ),
    "no factor": ("a factor", r"c, s = c \* FACTOR, s \* FACTOR", "c, s = c, s"),
}
"""What is wrong → (case, what its kernel has, what stands there instead)."""


@pytest.mark.parametrize("name", MUTANTS)
def test_modules_check_themselves(name: str) -> None:
    case, pattern, instead = MUTANTS[name]
    lead, begin = CASES[case].lead, CASES[case].begin
    text = emit_rope(CASES[case].plan).text + MORE
    error, allowed = interpreted().run(text, "checked", lead, begin, 1)
    assert error <= allowed
    wrong, found = re.subn(pattern, instead, text)
    assert found
    error, allowed = interpreted().run(wrong, "checked", lead, begin, 1)
    assert error > 2 * allowed


@pytest.mark.slow
def test_modules_are_programs(tmp_path: Path) -> None:
    """With nothing but torch and Triton, and with the interpreter as it comes."""
    text = emit_rope(CASES["some features"].plan).text
    for wrong in (False, True):
        path = tmp_path / f"rope_{wrong}.py"
        path.write_text(text.replace("y * s0", "y * c0") if wrong else text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(path), "--begin", "4000"], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        assert done.returncode == wrong, done.stderr[-2000:]
        assert done.stdout.startswith("WRONG" if wrong else "ok")


GPU = sized("bf16", "bf16", 128)
MACHINE = {
    "halves": GPU,
    "neighbours": GPU | INTERLEAVED,
    "float32": sized("f32", "f32", 128, terms=INDICES * 2),
    "tables": GPU | given("bf16", "bf16", width=128),
}


def compiled(name: str, target: str) -> Binary:
    plan = Case((2, 3, 37), ((37,),), settings=MACHINE[name] | {"target": target}).plan
    return compile_kernel(emit_rope(plan).text, launch_rope(plan), capability(target))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "gfx942"])
@pytest.mark.parametrize("name", MACHINE)
def test_machine_code(name: str, target: str) -> None:
    """No register is spilled, nothing lies in local memory, and x is read and written 16 bytes at a time."""
    binary = compiled(name, target)
    assert (binary.spill_stores, binary.spill_loads, binary.stack) == (0, 0, 0)
    if target == "gfx942":
        names = [one.name for one in amdgcn.parse(binary.assembly).instructions]
        loads, stores = (sum(n.startswith(f"global_{w}_dwordx4") for n in names) for w in ("load", "store"))
    else:
        names = [one.name for one in sass.parse(sass.disassemble(binary.code)).instructions]
        loads, stores = (sum(n.startswith(w) and ".128" in n for n in names) for w in ("LDG", "STG"))
    assert loads >= 2 and stores >= 2, sorted(set(names))
