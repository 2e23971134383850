"""What is read off a model's signature about a cache of its own."""

from __future__ import annotations

import pytest
from torch import Tensor, nn

from attnc.compiler.derive.past.roles import InputRole, ModelCache, cache_of
from attnc.compiler.derive.refusal import NotDerivable


class Bare(nn.Module):
    def forward(self, input_ids: Tensor) -> Tensor:
        return input_ids


class Past(nn.Module):
    def forward(self, input_ids: Tensor, past_key_values: object = None) -> Tensor:
        return input_ids


class Switched(nn.Module):
    """The cache can be turned off, so it is."""

    def forward(self, input_ids: Tensor, past_key_values: object = None, use_cache: bool = True) -> Tensor:
        return input_ids


class Placed(nn.Module):
    def forward(self, input_ids: Tensor, cache_position: Tensor) -> Tensor:
        return input_ids


class Odd(nn.Module):
    def forward(self, input_ids: Tensor, cache_position: Tensor, where: Tensor) -> Tensor:
        return input_ids


@pytest.mark.parametrize("model", [Bare(), Switched()])
def test_a_model_without_a_cache(model: nn.Module) -> None:
    assert cache_of(model, None, "input_ids") is None


def test_a_past_is_known_by_its_name() -> None:
    assert cache_of(Past(), None, "input_ids") == ModelCache("past_key_values")


def test_a_cache_that_is_asked_for_is_used() -> None:
    given = ModelCache("past_key_values")
    assert cache_of(Switched(), given, "input_ids") == given


def test_positions_are_known_by_their_name() -> None:
    found = cache_of(Placed(), None, "input_ids")
    assert found is not None and found.past is None and found.roles == {"cache_position": InputRole.POSITIONS}


def test_an_unknown_input_must_be_named() -> None:
    with pytest.raises(NotDerivable, match="where"):
        cache_of(Odd(), None, "input_ids")
    found = cache_of(Odd(), ModelCache(roles={"where": InputRole.POSITIONS}), "input_ids")
    assert found is not None and set(found.roles) == {"cache_position", "where"}
