"""The worker: texts in, tensors back, and what is seen of a job that fails."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.triton import worker
from tests.triton.versions import PINNED
from tests.triton.worker import Worker, WorkerError, interpreted

ATTENTION = (Path(__file__).parent / "attention_module.py").read_text(encoding="utf-8")
PLAIN = """
import os
import torch

calls = []

def count(x):
    calls.append(x)
    return len(calls)

def describe(x, *, scale):
    return x.stride(), x.storage_offset(), x.dtype, scale

def fill(x):
    return x.fill_(7), os.environ["TRITON_INTERPRET"]

def fail():
    print("said before it fails")
    raise KeyError("nothing of that name")

def die():
    print("said before it dies", flush=True)
    os._exit(3)

def sleep():
    import time
    time.sleep(60)
"""


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """Result and log-sum-exp in float64."""
    scores = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v.double(), scores.logsumexp(-1)


@pytest.mark.parametrize(("s_q", "s_k", "causal"), [(77, 77, True), (33, 130, False)])
def test_a_module_given_as_text(interpreter: Worker, s_q: int, s_k: int, causal: bool) -> None:
    q, k, v = torch.randn(s_q, 64).bfloat16(), *torch.randn(2, s_k, 64).bfloat16()
    out, lse = interpreter.run(ATTENTION, "attention", q, k, v, causal=causal)
    exact, exact_lse = attention(q, k, v, causal)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), exact, atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(lse.double(), exact_lse, atol=1e-4, rtol=1e-5)


def test_a_text_is_one_module() -> None:
    assert [interpreted().run(PLAIN, "count", 0) for _ in range(2)] == [1, 2]
    assert interpreted().run(PLAIN + "\n", "count", 0) == 1


def test_strides_arrive_and_writes_stay_there() -> None:
    x = torch.arange(24.0).reshape(4, 6)[1:, ::2].T
    assert interpreted().run(PLAIN, "describe", x, scale=3) == (x.stride(), x.storage_offset(), x.dtype, 3)
    filled, mode = interpreted().run(PLAIN, "fill", x)
    assert mode == "1" and (filled == 7).all() and not (x == 7).all()
    assert os.environ.get("TRITON_INTERPRET") is None


def test_a_failure_has_the_traceback_and_the_worker_goes_on() -> None:
    with pytest.raises(WorkerError, match="nothing of that name") as caught:
        interpreted().run(PLAIN, "fail")
    assert caught.value.kind == "KeyError" and "in fail" in str(caught.value)
    with pytest.raises(WorkerError, match="no attribute 'absent'"):
        interpreted().run(PLAIN, "absent")
    assert interpreted().call("operator:add", 2, 3) == 5


def test_a_worker_is_shared() -> None:
    assert interpreted() is interpreted(PINNED) is not interpreted(PINNED, round_tf32=True)


@pytest.mark.slow
def test_a_worker_starts_again_after_a_death(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Worker()
    with pytest.raises(WorkerError, match=r"(?s)exit 3.*said before it dies") as caught:
        mine.run(PLAIN, "die")
    assert caught.value.kind == "died"
    assert mine.run(PLAIN, "count", 0) == 1
    monkeypatch.setattr(worker, "PATIENCE", 0.5)
    with pytest.raises(WorkerError) as caught:
        mine.run(PLAIN, "sleep")
    assert caught.value.kind == "timeout" and mine.process is None
    mine.close()


@pytest.mark.slow
def test_a_worker_that_rounds_tf32() -> None:
    mine = Worker(round_tf32=True)
    a = torch.full((16, 16), 1 + 2.0**-11)
    assert (mine.call("tests.triton.kernels:dot", a, a, "tf32") == 17).all()
    assert (mine.call("tests.triton.kernels:dot", a, a, "ieee") > 17.01).all()
    mine.close()


def test_torch_comes_from_the_environment(interpreter: Worker) -> None:
    assert interpreter.call("importlib.metadata:version", "torch") == importlib.metadata.version("torch")
    assert interpreter.call("importlib.metadata:version", "triton") == interpreter.version
