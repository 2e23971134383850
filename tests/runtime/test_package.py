from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import attnc.runtime
from attnc.runtime import doctor

Script = Callable[..., Any]

LOADED = """
import sys
before = set(sys.modules)
{}
print(*sorted(m for m in set(sys.modules) - before))
"""


def loaded(script: Script, statement: str) -> set[str]:
    return set(script(LOADED.format(statement)).stdout.split())


def test_importing_the_package_does_no_work() -> None:
    text = LOADED.format("import attnc.runtime")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    assert not {m for m in modules if m.split(".")[0] in ("torch", "numpy", "sympy")}
    assert {m for m in modules if m.startswith("attnc.")} <= {"attnc.runtime"}


def test_the_runtime_needs_no_compiler(script: Script) -> None:
    """torch loads sympy by itself; our IR, isl and the emitter are not needed to run."""
    modules = loaded(
        script, "import attnc.runtime.ops, attnc.runtime.doctor, attnc.runtime.direct; from attnc.runtime import route"
    )
    assert "attnc.runtime.ops" in modules
    ours = {m for m in modules if m.startswith("attnc.")}
    assert not {m for m in ours if not m.startswith("attnc.runtime")} - {
        "attnc.codegen", "attnc.codegen.paged_plan", "attnc.codegen.plan", "attnc.codegen.source",
    }  # fmt: skip
    assert "islpy" not in modules


def test_importing_ops_builds_nothing(script: Script, tmp_path: object) -> None:
    script(f"import attnc.runtime.ops, pathlib\nassert not pathlib.Path({str(tmp_path)!r}, 'none').exists()",
           ATTNC_CACHE_DIR=f"{tmp_path}/none")  # fmt: skip


def test_public_names() -> None:
    for name in attnc.runtime.__all__:
        assert getattr(attnc.runtime, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = attnc.runtime.nothing


def test_doctor_on_a_healthy_machine() -> None:
    facts = {fact.name: fact for fact in doctor.examine()}
    assert list(facts) == [
        "python", "torch", "triton", "C++ compiler", "vector extensions", "build store", "calls", "onnxruntime",
    ]  # fmt: skip
    assert facts["C++ compiler"].status == facts["build store"].status == facts["calls"].status == "ok"
    assert facts["calls"].detail == "C++ launcher"


def test_doctor_sees_two_onnxruntimes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda name: "1.2.3")
    fact = doctor._onnxruntime()
    assert fact.status == "error"
    assert "share one folder" in fact.detail
    assert "uninstall" in fact.remedy
    monkeypatch.setattr(doctor, "installed", lambda name: "1.2.3" if name == "onnxruntime-gpu" else None)
    assert doctor._onnxruntime().status == "ok"


def test_doctor_without_compiler_or_store(script: Script, tmp_path: object) -> None:
    text = (
        "import warnings; warnings.simplefilter('ignore')\nfrom attnc.runtime import doctor\n"
        "for f in doctor.examine():\n    print(f.status, f.name, '|', f.remedy)"
    )
    lines = script(text, CXX="no-such-compiler", ATTNC_CACHE_DIR="/proc/none").stdout.splitlines()
    assert "error C++ compiler | Install g++ or clang++, or set CXX." in lines
    assert "warning build store | Set ATTNC_CACHE_DIR to a folder you can write." in lines
    assert "warning calls | See the C++ compiler above." in lines
