"""Emitted Triton modules: written to the store, imported once, refused where Triton runs in the other mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.codegen.source import Source
from attnc.runtime import config
from attnc.runtime.errors import BuildError
from attnc.runtime.triton_kernels import attention_of

MODULE = "def attention(*args):\n    return args\n"


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(config, "_current", config.Config(cache_dir=tmp_path))
    return tmp_path


def test_a_module_is_imported_once_from_the_store(store: Path) -> None:
    source = Source("triton", "sample", MODULE, 1)
    assert attention_of(source, "sm_90") is attention_of(source, "sm_90")
    (path,) = (store / "v1" / "triton").iterdir()
    assert path.read_text() == MODULE


def test_the_interpreter_has_to_be_asked_for_before_triton_is_loaded() -> None:
    with pytest.raises(BuildError, match="Start the process with TRITON_INTERPRET=1"):
        attention_of(Source("triton", "sample", MODULE, 2), "triton-interpret")


def test_a_broken_module_is_named() -> None:
    with pytest.raises(BuildError, match=r"importing the emitted kernel .*broken"):
        attention_of(Source("triton", "broken", "1 / 0\n", 3), "sm_90")
