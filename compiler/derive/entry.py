"""From a model to its derived program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import nn

from attnc.compiler.derive.capture import EncoderInput
from attnc.compiler.derive.past.capture import captured
from attnc.compiler.derive.past.roles import ModelCache
from attnc.compiler.derive.program import DerivedProgram, program_of
from attnc.compiler.derive.streams import Pages
from attnc.compiler.derive.verify import verify_numeric

Verify = Literal["numeric"]
"""How a derived program is checked: by its logits at every token, however a prompt is cut."""


def derive_program(
    model: nn.Module,
    *,
    max_length: int | None = None,
    token_input: str | None = None,
    encoder: Mapping[str, EncoderInput] | None = None,
    pages: Pages | None = None,
    cache: ModelCache | None = None,
    batch_invariant: bool = False,
    verify: Verify | None = None,
) -> DerivedProgram:
    """The incremental program of a causal decoder.

    Raises NotDerivable with a code, the op and the user's line; with ``verify`` also NumericError.
    """
    found = captured(model, token_input=token_input, longest=max_length, encoder=encoder, cache=cache)
    program = program_of(found, pages or Pages(), max_length, batch_invariant=batch_invariant)
    if verify == "numeric":
        verify_numeric(program, found)
    return program
