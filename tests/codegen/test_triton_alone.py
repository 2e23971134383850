"""Emitted Triton modules check themselves, in an environment that has torch, Triton and nothing of this repository."""

from __future__ import annotations

import importlib.metadata
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from codegen_programs import K_LEN, Q_LEN, Expr, K, Q, axis, call, cast, const, evaluate, load, program, qk, size, where
from codegen_reference import CAUSAL, causal_tiles, make_plan, reference, window_tiles

from attnc.codegen.op_kinds import kind_of
from attnc.codegen.plan import KernelPlan
from attnc.codegen.triton.emitter import emit
from attnc.codegen.triton.reference import reference_text

B, H = axis("b"), axis("h")
LOWEST = {"f32": -3.4028234663852886e38, "f16": -65504.0}
SLOPE = load(0, "f32", H)
KEEP = load(0, "i64", B, K).ne(0)

RUNNER = """
import contextlib, io, json, runpy, sys
sys.path.append(sys.argv.pop(1))
found = []
for path, *arguments in json.load(sys.stdin):
    sys.argv = [path, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            found.append((end.code, printed.getvalue()))
    assert "attnc" not in sys.modules
print(json.dumps(found))
"""
"""Runs modules as programs, one after the other: torch is loaded once."""


def plan(**more: Any) -> KernelPlan:
    settings: dict[str, Any] = {"block_m": 32, "block_n": 32, "target": "triton-interpret"}
    return make_plan(**settings | more)


def filled(mask: Expr, dtype: str) -> dict[str, Any]:
    """A mask whose rows without a key are as the source wrote them: the score of every key, with the fill in place."""
    score = cast(qk, dtype) * 0.125
    return {"visible": score, "score": where(mask, score, const(LOWEST[dtype], dtype)), "dead_rows": "as_written"}


def group_axes() -> dict[str, Any]:
    """Three queries' heads for each of the keys'; keys in another order of axes."""
    return {
        "outer": ("b", "h", "g"),
        "q_axes": ("b", "q", "h", "g", "d"),
        "k_axes": ("b", "k", "h", "d"),
        "v_axes": ("b", "h", "k", "e"),
        "out_axes": ("b", "q", "h", "g", "e"),
    }


PLANS: dict[str, Callable[[], KernelPlan]] = {
    "plain": lambda: plan(returns_lse=True),
    "causal": lambda: plan(mask=CAUSAL, segments=causal_tiles(32, 32), returns_lse=True),
    "window": lambda: plan(mask=(K <= Q) & (K > Q - 20), segments=window_tiles(32, 32, 20)),
    "groups": lambda: plan(mask=CAUSAL, segments=causal_tiles(32, 32), head_dim=16, value_dim=16, **group_axes()),
    "bias": lambda: plan(visible=qk * 0.25 + load(0, "f32", B, H, Q, K), sides=[("f32", 4)]),
    "boolean mask": lambda: plan(
        mask=load(0, "b1", B, const(0), Q, K), sides=[("b1", 4)], dead_rows="zero", returns_lse=True
    ),
    "hidden where true": lambda: plan(mask=~load(0, "b1", Q, K), sides=[("b1", 2)], dead_rows="zero"),
    "padding as written": lambda: plan(
        mask=CAUSAL & KEEP,
        segments=causal_tiles(32, 32, more=True),
        sides=[("i64", 2)],
        **filled(CAUSAL & KEEP, "f32"),
    ),
    "sink": lambda: plan(
        mask=CAUSAL, segments=causal_tiles(32, 32), softmax="sink", sink=load(0, "f32", H), sides=[("f32", 1)]
    ),
    "plus one": lambda: plan(mask=KEEP, sides=[("i64", 2)], softmax="plus_one", dead_rows="zero", returns_lse=True),
    "softcap": lambda: plan(visible=call("tanh", qk * 0.125 / 5.0) * 5.0),
    "weight": lambda: plan(weight=load(0, "f32", B, H, Q, K), sides=[("f32", 4)]),
    "alibi": lambda: plan(
        visible=qk * 0.25 - SLOPE * cast(Q - K, "f32"), mask=K <= Q, segments=causal_tiles(32, 32), sides=[("f32", 1)]
    ),
    "two parts": lambda: plan(head_dim=80, value_dim=40),
    "half": lambda: plan(dtype="f16", mask=KEEP, sides=[("i64", 2)], **filled(KEEP, "f16")),
    "brain": lambda: plan(
        mask=KEEP,
        score=cast(qk, "bf16") * 0.125 + where(KEEP, const(0.0, "bf16"), const(-100.0, "bf16")),
        sides=[("i64", 2)],
        dtype="bf16",
        head_dim=16,
        value_dim=16,
        dead_rows="as_written",
    ),
    "tables": lambda: plan(
        visible=qk * 0.25 + load(1, "bf16", H, load(0, "i32", B, K) * 3) + load(2, "f32", Q - K + K_LEN - 1),
        mask=(load(3, "i64", Q) >= K) & (K < size("limit")),
        sides=[("i32", 2), ("bf16", 2), ("f32", 1), ("i64", 1)],
        sizes=("limit",),
        dead_rows="zero",
    ),
}
LENGTHS: dict[str, str] = {
    "plain": "b=1 h=1 q=5 k=70 d=20 e=9",
    "causal": "b=1 h=1 q=40 k=71",
    "window": "b=1 h=1 q=67 k=67",
    "groups": "b=1 h=2 g=2 q=35 k=35",
    "bias": "b=2 h=2 q=9 k=37",
    "sink": "b=1 h=2 q=37 k=37",
    "alibi": "b=1 h=2 q=37 k=37",
}
"""Where they differ from ``b=2 h=1 q=37 k=37``: a call of the kernel takes 0.1 s in the interpreter."""
MORE = {"tables": ["--size", "limit=30", "--seed", "4"], "half": ["--dtype", "float16"]}
SOON = ("causal", "groups", "boolean mask", "padding as written", "brain", "tables")
"""Plans that every run of the tests checks."""

MUTANTS = {
    "diagonal": ("causal", r'(def seen.*?""".*?""".*?) <= ', r"\1 < "),
    "scale": ("causal", r"(SCORE_UNIT = tl.constexpr\()", r"\g<1>1.0001 * "),
    "a key too many": ("plain", r"\(key < k_len\)", "(key <= k_len)"),
    "lse": ("plain", r"natural \+ tl.log\(l\)", "natural"),
    "edge of the window": ("window", r'(def seen.*?""".*?""".*?) > ', r"\1 >= "),
    "a head's keys": ("groups", r"i_h, tl.int64\) \* k_of_h", "i_g, tl.int64) * k_of_h"),
    "dead rows": ("boolean mask", r"tl.where\(dead, 0.0, 1.0 / l\)", "1.0 / l"),
    "no second pass": ("padding as written", r"DEAD_ROWS == 2", "DEAD_ROWS == 3"),
    "and for or": ("padding as written", r'(def seen.*?""".*?""".*?) & ', r"\1 | "),
    "no sink": ("sink", r"HAS_SINK = tl.constexpr\(True\)", "HAS_SINK = tl.constexpr(False)"),
    "no weight": ("weight", r"HAS_WEIGHT = tl.constexpr\(True\)", "HAS_WEIGHT = tl.constexpr(False)"),
    "no second part": ("two parts", r"o_low \* factor", "o_low * 0.5 * factor"),
    "wrong index": ("tables", r"tl.int64\) \* 3\b", "tl.int64) * 2"),
}
"""What is wrong → (plan, what its kernel has, what stands there instead)."""
MUTANTS_SOON = ("diagonal", "scale", "dead rows", "no second pass")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages: torch, triton, numpy and what they require."""
    folder = tmp_path_factory.mktemp("site")
    for distribution in required("torch", "triton", "numpy"):
        for name in {file.parts[0] for file in distribution.files or ()}:
            place = Path(str(distribution.locate_file(name)))
            if place.exists() and not name.startswith((".", "__pycache__")) and not (folder / name).exists():
                (folder / name).symlink_to(place)
    return folder


def required(*names: str) -> Iterator[importlib.metadata.Distribution]:
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            distribution = importlib.metadata.distribution(name)
            yield distribution
            waiting += [re.split(r"[ ;<>=!\[~]", r)[0] for r in distribution.requires or () if ";" not in r]


def run(site: Path, jobs: list[list[str]]) -> list[tuple[int, str]]:
    """(exit status, what it printed) of modules with their arguments."""
    command = [sys.executable, "-I", "-S", "-c", RUNNER, str(site)]
    environment = {"OMP_NUM_THREADS": "1", "PATH": "", "HOME": str(site)}
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [(status, text) for status, text in json.loads(done.stdout)]


def written(folder: Path, name: str, text: str) -> str:
    path = folder / f"{re.sub(r'[^a-z]', '_', name)}.py"
    path.write_text(text, encoding="utf-8")
    return str(path)


def arguments(name: str) -> list[str]:
    lengths = dict(text.split("=") for text in f"b=2 h=1 q=37 k=37 {LENGTHS.get(name, '')}".split())
    return [*(word for axis, n in lengths.items() for word in ("--length", f"{axis}={n}")), *MORE.get(name, ())]


def as_emitted(folder: Path, names: Iterable[str]) -> list[list[str]]:
    return [[written(folder, name, emit(PLANS[name]()).text), *arguments(name)] for name in names]


def with_a_fault(folder: Path, names: Iterable[str]) -> list[list[str]]:
    return [[written(folder, name, mutant(name)), *arguments(MUTANTS[name][0])] for name in names]


def mutant(name: str) -> str:
    """A module whose kernel, and nothing else of it, has one thing wrong."""
    plan_name, pattern, replacement = MUTANTS[name]
    kernel, host, rest = emit(PLANS[plan_name]()).text.partition("\nAXES = ")
    changed = re.sub(pattern, replacement, kernel, flags=re.DOTALL)
    assert changed != kernel, name
    return changed + host + rest


def test_modules_check_themselves_and_see_faults(site: Path, tmp_path: Path) -> None:
    right, wrong = as_emitted(tmp_path, SOON), with_a_fault(tmp_path, MUTANTS_SOON)
    found = run(site, [*right, *wrong])
    expect(dict(zip(SOON, found, strict=False)), 0)
    expect(dict(zip(MUTANTS_SOON, found[len(right) :], strict=True)), 1)
    text = dict(zip(SOON, (line for _, line in found), strict=False))
    for name in ("boolean mask", "padding as written", "brain", "tables"):
        assert "rows without a key" in text[name], text[name]
    assert "lse" in text["causal"] and "limit=30" in text["tables"]
    assert "float32 in Triton's interpreter, which gets bfloat16 wrong" in text["brain"]


def expect(found: dict[str, tuple[int, str]], status: int) -> None:
    begin = "ok: " if status == 0 else "WRONG: "
    assert [(name, *one) for name, one in found.items() if one[0] != status or not one[1].startswith(begin)] == []


@pytest.mark.slow
def test_every_kind_of_plan_checks_itself(site: Path, tmp_path: Path) -> None:
    names = [name for name in PLANS if name not in SOON]
    expect(dict(zip(names, run(site, as_emitted(tmp_path, names)), strict=True)), 0)


@pytest.mark.slow
def test_every_fault_is_seen(site: Path, tmp_path: Path) -> None:
    names = [name for name in MUTANTS if name not in MUTANTS_SOON]
    expect(dict(zip(names, run(site, with_a_fault(tmp_path, names)), strict=True)), 1)


@pytest.mark.slow
def test_a_module_is_a_program(tmp_path: Path) -> None:
    """As a user starts it, with nothing of ours on the path and no variable set; and with a wrong argument."""
    path = written(tmp_path, "alone", emit(PLANS["softcap"]()).text)
    for arguments, status, says in (
        ([], 0, "ok: b=2 h=3 q=67 k=67"),
        (["--length", "x=3"], 2, "axis 'x=3': expected NAME=N, names are b, h, q, k, d, e"),
        (["--length", "q=0"], 2, "axis 'q=0'"),
        (["--size", "s=3"], 2, "size 's=3': expected NAME=N, names are none"),
    ):
        command = [sys.executable, "-I", path, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""}, cwd=tmp_path, check=False)
        assert done.returncode == status and says in done.stdout + done.stderr, done.stdout + done.stderr


# -- the reference in the module, against the tests' own


NOT_INTERPRETED = SimpleNamespace(knobs=SimpleNamespace(runtime=SimpleNamespace(interpret=False)))


def host_part(of: KernelPlan) -> dict[str, Any]:
    """What an emitted module defines but its kernel; run without Triton."""
    text = emit(of).text.partition("\nAXES = ")[2]
    constants = {"DEAD_ROWS": ("none", "zero", "as_written").index(of.dead_rows), "RETURNS_LSE": of.returns_lse}
    names: dict[str, Any] = {name: SimpleNamespace(value=value) for name, value in constants.items()}
    names |= {"torch": torch, "math": math, "triton": NOT_INTERPRETED, "__name__": "host"}
    exec(compile("AXES = " + text, "host", "exec"), names)
    return names


@pytest.mark.parametrize("name", PLANS)
def test_both_references_agree(name: str) -> None:
    of = PLANS[name]()
    module = host_part(of)
    length = {"b": 2, "h": 3, "g": 2, "q": 11, "k": 19 if name in ("plain", "causal", "bias") else 11, "d": 6, "e": 5}
    sizes = dict.fromkeys(of.sizes, 8)
    dtypes = dict.fromkeys("qkv", torch.float32)
    case = module["Case"]({axis: length[axis] for axis in (*of.outer, *"qkde")}, sizes, dtypes, 1, torch.device("cpu"))
    out, lse, dead = module["naive"](case.grid(), *case.operands)
    wanted, wanted_lse = reference(of, *case.operands, case.sides, list(sizes.values()))
    rows = (*of.outer, "q")
    order = [(*rows, "e").index(axis) for axis in of.out_axes]
    assert torch.allclose(out.permute(order), torch.from_numpy(wanted), 1e-12, 1e-12, equal_nan=True)
    order = [rows.index(axis) for axis in of.out_axes if axis != "e"]
    assert torch.allclose(lse.permute(order), torch.from_numpy(wanted_lse), 1e-12, 1e-12)
    assert bool(dead.any()) == (of.dead_rows != "none")


X, N = load(0, "f32", K), load(1, "i32", K)
FLOAT_OPS = ("neg", "abs", "tanh", "exp", "exp2", "sigmoid", "erf", "floor", "ceil", "sin", "cos")
EVERY_OP: dict[str, Expr] = {
    **{op: call(op, X) for op in FLOAT_OPS},
    **{op: call(op, call("abs", X) + 0.5) for op in ("log", "sqrt", "rsqrt")},
    **{op: call(op, X, cast(Q - 3, "f32")) for op in ("add", "sub", "mul", "min", "max")},
    **{op: call(op, X, const(2.5)) for op in ("div", "pow")},
    **{f"integer {op}": call(op, N, Q - 4, dtype="i64") for op in ("add", "sub", "mul", "min", "max")},
    **{f"integer {op}": call(op, N - 5, const(3), dtype="i64") for op in ("floordiv", "mod")},
    **{f"integer {op}": call(op, N - 5, dtype="i64") for op in ("abs", "neg")},
    **{op: call(op, N, Q, dtype="b1") for op in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{f"mixed {op}": call(op, X, Q, dtype="b1") for op in ("lt", "eq")},
    **{op: call(op, N > 3, Q > 1, dtype="b1") for op in ("and", "or")},
    "not": ~(N > 3),
    "where": where(N > 3, X, cast(Q, "f32")),
    "where of integers": where(N > 3, N, Q),
    "isnan": call("isnan", where(N > 3, X, const(float("nan"))), dtype="b1"),
    "quotient of integers": call("div", N, K + 1, dtype="f32"),
    "truth as a number": cast(N > 3, "f32") * 2.0,
    "truth of a number": cast(N - 3, "b1"),
    "number cut off": cast(X * 3.0, "i64"),
    "truth values added": call("add", N > 3, Q > 1, dtype="b1"),
    "truth values multiplied": call("mul", N > 3, Q > 1, dtype="b1"),
    "size": cast(Q_LEN + size("limit"), "f32") + const(float("-inf")),
}


@pytest.mark.parametrize("name", EVERY_OP)
def test_each_op_of_formulas(name: str) -> None:
    """Against an interpreter in numpy, exact and rounded as the source wrote it."""
    expr = EVERY_OP[name]
    of = plan(weight=expr, sides=[("f32", 1), ("i32", 1)], sizes=("limit",))
    module = host_part(of)
    sides = [torch.randn(9, generator=torch.Generator().manual_seed(2)), torch.arange(9, dtype=torch.int32)]
    grid = module["Grid"]({"b": 1, "h": 1, "q": 5, "k": 9}, {"limit": 3}, sides, torch.device("cpu"))
    env = {"q": np.arange(5)[:, None], "k": np.arange(9)[None], "|q|": 5, "limit": 3}
    env |= {"t0": sides[0].double().numpy(), "t1": sides[1].numpy()}
    for rounded in ("exact", "as_written"):
        got = module["FORMULAS"]["weight"](grid, module[rounded])
        wanted = evaluate(program(expr), env, as_written=rounded == "as_written")
        assert got.dtype is {"f": torch.float64, "i": torch.int64, "b": torch.bool}[kind_of(expr.dtype)]
        np.testing.assert_allclose(got.expand(1, 1, 5, 9)[0, 0].numpy(), np.broadcast_to(wanted, (5, 9)), 1e-12, 1e-15)


def test_sides_are_long_enough_and_no_longer() -> None:
    """Nested indices: t0[b, k] is at most 7 here, so that t1 is 22 long at the index 3 · t0 + 0."""
    module = host_part(PLANS["tables"]())
    assert module["SIDE_ROLES"] == ("index", "number", "number", "position")
    length = {"b": 2, "h": 3, "q": 7, "k": 40, "d": 16, "e": 16}
    case = module["Case"](length, {"limit": 40}, dict.fromkeys("qkv", torch.float32), 0, torch.device("cpu"))
    assert [list(side.shape) for side in case.sides] == [[2, 40], [3, 22], [46], [7]]
    assert [side.dtype for side in case.sides] == [torch.int32, torch.bfloat16, torch.float32, torch.int64]


def test_an_op_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot write op 'gamma' in torch"):
        reference_text(plan(weight=call("gamma", X), sides=[("f32", 1)]))
