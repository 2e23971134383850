"""Fixtures of the host tests: one thread, a fresh Dynamo, and the identity backend compared with eager."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from attnc.compiler.host.identity import identity_backend
from attnc.compiler.host.pipeline import Captured


@pytest.fixture(autouse=True)
def fresh_dynamo() -> Iterator[None]:
    torch.set_num_threads(1)
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@dataclass
class Outcome:
    """A function run in eager and through the pipeline."""

    eager: Any
    ours: Any
    captures: list[Captured]

    @property
    def codes(self) -> list[str]:
        return [note.code for captured in self.captures for note in captured.notes]


def _leaves(tree: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(tree)


def _storage_pattern(tensors: list[torch.Tensor]) -> list[int]:
    """Which tensors share storage: each tensor's index of the first one with the same storage."""
    pointers = [t.untyped_storage().data_ptr() for t in tensors]
    return [pointers.index(p) for p in pointers]


@pytest.fixture
def same() -> Callable[..., Outcome]:
    """Run ``make()`` → (function, inputs) in eager and through the pipeline, twice each, and compare everything.

    Results, strides, inputs and module buffers after the call, and which of them share storage.
    """

    def check(make: Callable[[], tuple[Any, tuple[Any, ...]]], *, host: str = "aten", calls: int = 2) -> Outcome:
        runs, captures = [], []
        for compiled in (False, True):
            torch.manual_seed(1)
            function, inputs = make()
            call = torch.compile(function, backend=identity_backend(host, captures)) if compiled else function
            torch.manual_seed(2)
            for _ in range(calls):
                out = call(*inputs)
            held = [*function.buffers()] if isinstance(function, torch.nn.Module) else []
            runs.append((out, [t for t in (*_leaves(out), *inputs, *held) if isinstance(t, torch.Tensor)]))
        (eager, eager_all), (ours, ours_all) = runs
        assert len(eager_all) == len(ours_all)
        exact = host == "aten"
        for a, b in zip(eager_all, ours_all, strict=True):
            torch.testing.assert_close(b, a, rtol=0 if exact else None, atol=0 if exact else None, equal_nan=True)
            assert a.stride() == b.stride()
        assert _storage_pattern(eager_all) == _storage_pattern(ours_all)
        return Outcome(eager, ours, captures)

    return check


@pytest.fixture
def same_gradients() -> Callable[..., Outcome]:
    """Run ``function(*leaves)`` both ways, backward of the sum of its results, and compare results and gradients."""

    def check(
        function: Callable[..., Any], *leaves: torch.Tensor, host: str = "aten", rtol: float = 1e-5, atol: float = 1e-6
    ) -> Outcome:
        results, captures = [], []
        for compiled in (False, True):
            inputs = [leaf.detach().clone().requires_grad_(leaf.requires_grad) for leaf in leaves]
            call = torch.compile(function, backend=identity_backend(host, captures)) if compiled else function
            torch.manual_seed(3)
            out = call(*inputs)
            sum(o.float().sum() for o in _leaves(out) if o.requires_grad).backward()
            results.append((out, [i.grad for i in inputs]))
        (eager, eager_grads), (ours, our_grads) = results
        for a, b in zip([*_leaves(eager), *eager_grads], [*_leaves(ours), *our_grads], strict=True):
            torch.testing.assert_close(b, a, rtol=rtol, atol=atol)
        return Outcome(eager, ours, captures)

    return check
