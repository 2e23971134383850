"""Plans through emitted kernels, and the life of a plan over processes, compilers and versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import runtime_samples as samples
import torch

from attnc.codegen.cpp.emitter import emit
from attnc.codegen.plan import KernelPlan
from attnc.codegen.source import Source
from attnc.runtime import config, kernels, ops, reference
from attnc.runtime.errors import BuildError, PlanMissing
from attnc.runtime.store import Store

Script = Callable[..., Any]


@pytest.mark.parametrize("name", ["CAUSAL_PLAN", "PADDED_PLAN", "ADDITIVE", "GROUPED"])
def test_emitted_kernels(name: str) -> None:
    plan = dataclasses.replace(getattr(samples, name), block_n=32)  # not the sample's digest: another kernel
    lengths = {**samples.LENGTHS, "q": 40, "k": 70, "d": 24, "e": 17}
    q, k, v = samples.operands(plan, lengths)
    side = {
        "PADDED_PLAN": [torch.arange(70) >= torch.tensor([[3], [99]])],
        "ADDITIVE": [torch.randn(2, 40, 70)],
    }.get(name, [])
    key = kernels.register_plan(plan, emit(plan))
    out, lse = ops.attention(q, k, v, side, key, [])
    expected, expected_lse = reference.attention(plan, q, k, v, side, [], dtype=torch.float64)
    torch.testing.assert_close(out.double(), expected, atol=2e-6, rtol=1e-5)
    torch.testing.assert_close(lse.double(), expected_lse, atol=2e-6, rtol=1e-5)


def fresh(name: str) -> KernelPlan:
    """A plan no other test registers."""
    return dataclasses.replace(samples.PLAIN, block_m=1000 + sum(map(ord, name)))


def source_of(plan: KernelPlan, text: str = "") -> Source:
    model = samples.source(samples.PLAIN)
    body = model.text.replace(f"{samples.PLAIN.digest}ull", f"{plan.digest}ull")
    return dataclasses.replace(model, plan=plan.digest, text=body + text)


def test_an_entry_holds_plan_source_and_library() -> None:
    plan = fresh("entry")
    loaded = kernels.kernel(kernels.register_plan(plan, source_of(plan)))
    assert loaded is not None
    assert {f.name for f in loaded.path.iterdir()} == {"plan.json", "kernel.cpp", "kernel.so", "meta.json"}
    assert KernelPlan.from_json((loaded.path / "plan.json").read_text()) == plan
    assert loaded.path.name.startswith("sample-")
    assert kernels.resolve(plan.digest) == plan


def test_a_source_for_another_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="written for plan"):
        kernels.register_plan(fresh("other"), samples.source(samples.PLAIN))


def test_a_source_that_does_not_compile() -> None:
    plan = fresh("broken")
    with pytest.raises(BuildError, match="no_such_thing") as caught:
        kernels.register_plan(plan, source_of(plan, "int x = no_such_thing;"))
    assert caught.value.source is not None and caught.value.source.exists()
    with pytest.raises(PlanMissing):
        kernels.resolve(plan.digest)
    kernels.register_plan(plan, source_of(plan))  # a better source may follow
    assert kernels.kernel(plan.digest) is not None


def test_a_library_of_another_plan_is_not_called() -> None:
    plan = fresh("mislabelled")
    wrong = dataclasses.replace(source_of(plan), text=samples.source(samples.PLAIN).text)
    with pytest.raises(BuildError, match="it says it is of plan"):
        kernels.register_plan(plan, wrong)


PREAMBLE = """
import dataclasses, warnings, sys
import torch
import runtime_samples as samples
from attnc.runtime import config, kernels, ops, reference
from attnc.runtime.routes import route
q, k, v = samples.operands(samples.CAUSAL_PLAN, samples.LENGTHS)
key = samples.CAUSAL_PLAN.digest
def check():
    out, lse = ops.attention(q, k, v, [], key, [])
    expected, expected_lse = reference.attention(samples.CAUSAL_PLAN, q, k, v, [], [], dtype=torch.float64)
    torch.testing.assert_close(out.double(), expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(lse.double(), expected_lse, atol=1e-6, rtol=1e-6)
    print("route", *route())
"""
REGISTER = "kernels.register_plan(samples.CAUSAL_PLAN, samples.source(samples.CAUSAL_PLAN))\n"
RECORDED = "with warnings.catch_warnings(record=True) as w:\n    warnings.simplefilter('always')\n"
CONFIGURE = "config.configure(dataclasses.replace(config.default_config(), {}))\n"


def test_a_fresh_process_finds_plan_and_kernel_in_the_store(script: Script) -> None:
    kernels.register_plan(samples.CAUSAL_PLAN, samples.source(samples.CAUSAL_PLAN))
    quiet = "warnings.simplefilter('error')\nimport attnc.runtime.store as s\ns.compile_library = None\n"
    done = script(PREAMBLE + quiet + "check()\nassert 'attnc.compiler' not in sys.modules")
    assert done.stdout.startswith("route launcher")


def test_a_fresh_process_rebuilds_a_damaged_kernel(script: Script, tmp_path: Path) -> None:
    root = str(tmp_path / "own")
    script(PREAMBLE + REGISTER, ATTNC_CACHE_DIR=root)
    (entry,) = (e for e in Store(Path(root)).ls() if e.meta["kind"] == "kernel")
    entry.library.write_bytes(entry.library.read_bytes()[:2000])
    script(PREAMBLE + CONFIGURE.format("route='ctypes'") + "check()", ATTNC_CACHE_DIR=root)
    assert [e.path for e in Store(Path(root)).ls()] == [entry.path]


def test_the_ctypes_route(script: Script) -> None:
    done = script(PREAMBLE + CONFIGURE.format("route='ctypes'") + REGISTER + "torch.set_num_threads(3)\ncheck()\n" + """
import pytest
with pytest.raises(ValueError, match="k is torch.float64"):
    ops.attention(q, k.double(), v, [], key, [])
with pytest.raises(ValueError, match="axis d"):
    ops.attention(q, k[..., :3], v, [], key, [])
kernels.register_plan(samples.ADDITIVE, None)
bias = torch.randn(2, 7, 9)
out, _ = ops.attention(q, k, v, [bias], samples.ADDITIVE.digest, [])
assert torch.equal(out, reference.attention(samples.ADDITIVE, q, k, v, [bias], [])[0])
""")  # fmt: skip
    assert done.stdout.startswith("route ctypes")


def test_a_launcher_that_does_not_build(script: Script, tmp_path: Path) -> None:
    sabotage = "from attnc.runtime import launcher\nlauncher.FLAGS += ('-include', 'no_such_header.h')\n"
    done = script(
        PREAMBLE + sabotage + RECORDED + f"    {REGISTER}    check()\n    check()\nprint(*(x.message for x in w))"
    )
    assert done.stdout.startswith("route ctypes")
    assert done.stdout.count("attnc: the C++ launcher can't be built") == 1


def test_no_compiler_at_all(script: Script, tmp_path: Path) -> None:
    done = script(
        PREAMBLE + RECORDED + f"    {REGISTER}    check()\n    check()\nprint(len(w), *(x.message for x in w))",
        CXX="no-such-compiler",
        ATTNC_CACHE_DIR=str(tmp_path / "empty"),
    )
    first, second, warned = done.stdout.splitlines()
    assert first == second and first.startswith("route aten looking for a C++ compiler: no-such-compiler")
    assert warned.startswith("1 attnc: no kernel can be built, attention runs on plain torch operators")


def test_a_compiler_that_has_gone_leaves_what_it_built(script: Script) -> None:
    """Launcher and kernel come from the store; a plan that was never built runs on the reference, with a warning."""
    kernels.register_plan(samples.CAUSAL_PLAN, samples.source(samples.CAUSAL_PLAN))
    ops.attention(*samples.operands(samples.CAUSAL_PLAN, samples.LENGTHS), [], samples.CAUSAL_PLAN.digest, [])
    done = script(
        PREAMBLE + "warnings.simplefilter('error')\ncheck()\nwarnings.simplefilter('always')\n"
        "plan = dataclasses.replace(samples.PLAIN, block_m=77)\n"
        "source = dataclasses.replace(samples.source(samples.PLAIN), plan=plan.digest)\n"
        "new = kernels.register_plan(plan, source)\n"
        "out, _ = ops.attention(q, k, v, [], new, [])\n"
        "assert torch.equal(out, reference.attention(plan, q, k, v, [], [])[0])\n",
        CXX="no-such-compiler",
    )
    assert done.stdout.startswith("route launcher")
    assert done.stderr.count("no kernel can be built") == 1


def test_a_source_of_another_version(shared_store: Path, script: Script) -> None:
    """Headers have changed since a plan was stored: what was built then serves, nothing else is built."""
    plan = fresh("version")
    old = dataclasses.replace(source_of(plan), headers="0" * 64)
    text = (
        "import dataclasses, pytest, torch\nimport runtime_samples as samples\n"
        "from attnc.codegen.plan import KernelPlan\nfrom attnc.runtime import kernels\n"
        "from attnc.runtime.errors import PlanMissing\n"
    )
    kernels.register_plan(plan, old, build=False)
    script(
        text + f"with pytest.raises(PlanMissing, match='another version of attnc'):\n    kernels.kernel({plan.digest})"
    )
    script(
        text + "kernels.headers_digest = lambda: '0' * 64\n"
        f"assert kernels.kernel({plan.digest}) is not None\n"
        "kernels._kernels.clear()\nkernels.headers_digest = lambda: '1' * 64\n"
        f"assert kernels.kernel({plan.digest}) is not None"
    )


def test_unknown_plans_say_what_to_do() -> None:
    with pytest.raises(PlanMissing, match=r"neither registered .* nor in the store .* compile the model again"):
        kernels.resolve(1)


def test_default_configuration_reads_two_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_CACHE_DIR", "/somewhere")
    monkeypatch.setenv("CXX", "clang++")
    assert config.default_config() == config.Config(cache_dir=Path("/somewhere"), cxx="clang++")
    monkeypatch.delenv("ATTNC_CACHE_DIR")
    monkeypatch.delenv("CXX")
    assert config.default_config() == config.Config(cache_dir=Path.home() / ".cache" / "attnc")


REPLAY = """
import torch._dynamo.utils as utils
from torch._dynamo.utils import counters
{register}
def model(q, k, v):
    return ops.attention(q, k, v, [], key, [])[0].transpose(1, 2)  # nothing that Inductor would compile in C++
compiled = torch.compile(model, fullgraph=True)
with torch.no_grad():
    out = compiled(q, k, v)
expected, _ = reference.attention(samples.CAUSAL_PLAN, q, k, v, [], [], dtype=torch.float64)
torch.testing.assert_close(out.double(), expected.transpose(1, 2), atol=1e-6, rtol=1e-6)
print(route().name, counters["inductor"]["fxgraph_cache_hit"])
"""


def test_inductor_replays_from_its_cache_in_a_fresh_process(script: Script, tmp_path: Path) -> None:
    caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    first = script(PREAMBLE + REPLAY.format(register=REGISTER), **caches)
    second = script(PREAMBLE + REPLAY.format(register=""), **caches)
    assert first.stdout.split() == ["launcher", "0"]
    assert second.stdout.split() == ["launcher", "1"]
