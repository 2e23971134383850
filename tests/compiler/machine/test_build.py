from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

import machine_samples as samples
import pytest

from attnc.codegen.targets import capability
from attnc.codegen.triton.launch import Launch, Parameter
from attnc.compiler.machine.build import Binary, CompileFailure, compile_kernel, complaints, one_line

LINE = """
import triton
import triton.language as tl

@triton.jit
def line(X, N: tl.constexpr):
    at = tl.arange(0, N)
    {body}
"""
LAUNCH = Launch("line", (Parameter("X", "*fp32", "aligned"),), {"N": 16}, num_warps=1, num_stages=1)


def line(body: str) -> str:
    return LINE.format(body=body)


def reason(body: str, target: str = "sm_90") -> str:
    with pytest.raises(CompileFailure) as failure:
        compile_kernel(line(body), LAUNCH, capability(target))
    assert failure.value.target == target
    assert "\n" not in failure.value.reason
    return failure.value.reason


def test_a_kernel_becomes_machine_code(hopper: Binary) -> None:
    assert (hopper.kernel, hopper.target) == ("flash", "sm_90")
    assert hopper.code[:4] == b"\x7fELF"
    assert ".target sm_90a" in hopper.assembly
    assert ".loc" not in hopper.assembly
    assert (hopper.num_warps, hopper.threads) == (8, 256)
    assert 0 < hopper.registers <= 255
    assert hopper.shared >= 2 * 2 * 64 * 64 * 2  # two stages of K and V
    assert (hopper.global_scratch, hopper.profile_scratch, hopper.tensor_memory) == (0, 0, 0)


def test_parameters_of_the_machine_code(hopper: Binary) -> None:
    """All but the one taken for 1, then two addresses of scratch memory."""
    taken = sum(parameter.assumed != "one" for parameter in samples.launch().parameters)
    assert hopper.assembly.count(".param .") == taken + 2


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (dataclasses.replace(LAUNCH, kernel="lines"), "no function lines"),
        (dataclasses.replace(LAUNCH, constants={"M": 16}), "takes X, N; the launch gives X, M"),
        (dataclasses.replace(LAUNCH, parameters=()), "takes X, N; the launch gives N"),
    ],
)
def test_a_launch_of_another_kernel(launch: Launch, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        compile_kernel(line("pass"), launch, capability("sm_90"))


@pytest.mark.parametrize("target", ["cpu", "triton-interpret"])
def test_targets_without_machine_code(target: str) -> None:
    with pytest.raises(ValueError, match=target):
        compile_kernel(line("pass"), LAUNCH, capability(target))


def test_an_error_in_the_kernel_is_named_in_one_line() -> None:
    assert reason("tl.store(X + at, missing)").endswith("NameError('missing is not defined')")


def test_words_of_compilers() -> None:
    stderr = (
        "k.py:3:2: error: failed to legalize\nnote: x\nLLVM ERROR: no registers\nk.py:4:2: error: failed to legalize\n"
    )
    assert complaints(stderr) == ["failed to legalize", "no registers"]
    assert one_line("a\n  b", "c") == "a b; c"
    assert len(one_line("x" * 5000)) == 400


@pytest.mark.slow
def test_the_interpreter_makes_no_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET") as error:
        compile_kernel(line("pass"), LAUNCH, capability("sm_90"))
    assert not isinstance(error.value, CompileFailure)


@pytest.mark.slow
def test_the_same_text_gives_the_same_machine_code(hopper: Binary) -> None:
    again = compile_kernel(samples.TEXT, samples.launch(), capability("sm_90"))
    assert again == hopper


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by a kernel that compiles nor by one that ptxas refuses."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    (tmp_path / "temporary").mkdir()
    compile_kernel(line("tl.store(X + at, 1.0)"), LAUNCH, capability("sm_90"))
    assembly = "tl.inline_asm_elementwise('nonsense $0, $1;', '=r,r', [at], tl.int32, True, 1)"
    words = reason(f"tl.store(X + at, {assembly}.to(tl.float32))")
    assert "Not a name of any known instruction: 'nonsense'" in words
    assert str(tmp_path) not in words
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
def test_a_compiler_that_dies() -> None:
    with pytest.raises(CompileFailure, match="ended with status -6"):
        compile_kernel("import os\nos.abort()\n" + line("pass"), LAUNCH, capability("gfx942"))


@pytest.mark.slow
def test_assembly_that_amd_refuses() -> None:
    assembly = "tl.inline_asm_elementwise('nonsense $0, $1', '=v,v', [at], tl.int32, True, 1)"
    assert "invalid instruction" in reason(f"tl.store(X + at, {assembly}.to(tl.float32))", "gfx942")
