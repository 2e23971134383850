"""Which target an attention's device has, and what is said of devices that have none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnc.compiler.planning import target as planning
from attnc.compiler.planning.target import device_target


class Properties:
    gcnArchName = "gfx942:sramecc+:xnack-"  # noqa: N815 - the name torch gives it


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Pretends that a GPU of a kind is at hand."""
    planning._gpu_target.cache_clear()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def pretend(capability: tuple[int, int] | None) -> None:
        monkeypatch.setattr(torch.version, "hip", None if capability else "7.0")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Properties())

    yield pretend
    planning._gpu_target.cache_clear()


def test_cpu() -> None:
    assert device_target("cpu") == "cpu"


@pytest.mark.parametrize(
    ("capability", "expected"), [((9, 0), "sm_90"), ((8, 7), "sm_86"), ((10, 3), "sm_100"), (None, "gfx942")]
)
def test_gpus(gpu: Any, capability: tuple[int, int] | None, expected: str) -> None:
    gpu(capability)
    assert device_target("cuda:0") == expected


def test_an_old_gpu_is_refused_by_name(gpu: Any) -> None:
    gpu((7, 5))
    with pytest.raises(ValueError, match=r"no kernels for sm_75; it does for .*sm_90"):
        device_target("cuda:0")


def test_another_kind_of_device_is_refused() -> None:
    with pytest.raises(ValueError, match="no kernel for device xpu:0"):
        device_target("xpu:0")
