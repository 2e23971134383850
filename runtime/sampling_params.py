"""What a request asks for: how tokens are chosen, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

COLDEST = 1e-4
"""The lowest temperature that is not greedy: below it scores leave the range of float32."""


@dataclass(frozen=True)
class SamplingParams:
    """Settings of one request. The default is greedy: the most probable token, the lowest id among equals.

    Raises ValueError, with every setting that is wrong, where one is of the wrong type or out of range.
    """

    temperature: float = 0.0
    """0 is greedy, and top_k, top_p, min_p and seed have no effect; else logits are divided by it, at least 1e-4."""
    top_k: int | None = None
    """Draw from the k most probable tokens."""
    top_p: float = 1.0
    """Draw from the fewest tokens that hold this share of the probability, in (0, 1]."""
    min_p: float = 0.0
    """Draw from tokens at least this many times as probable as the most probable one, in [0, 1]."""
    repetition_penalty: float = 1.0
    """Divides positive logits and multiplies negative ones of tokens in the prompt or generated; 1 is none."""
    seed: int | None = None
    """0 … 2⁶⁴ − 1; equal seeds give equal tokens. None: a new one for each request."""
    max_new_tokens: int = 128
    stop: tuple[str, ...] = ()
    """Texts that end the generation as soon as one is complete; it is left out of the text."""
    stop_tokens: tuple[int, ...] = ()
    """Ids that end the generation (end of text, end of turn); reported as a token, left out of the text."""
    logprobs: int | None = None
    """How many top log-probabilities to report for each token; 0: only the token's own; None: none."""

    def __post_init__(self) -> None:
        problems = [*self._of_the_draw(), *self._of_the_end()]
        if problems:
            raise ValueError("sampling parameters: " + "; ".join(problems))

    def _of_the_draw(self) -> Iterator[str]:
        if not (_real(self.temperature) and (self.temperature == 0 or self.temperature >= COLDEST)):
            yield f"temperature is 0 (greedy) or at least {COLDEST}, not {self.temperature!r}"
        if self.top_k is not None and not (_whole(self.top_k) and self.top_k >= 1):
            yield f"top_k is a whole number from 1 on or None, not {self.top_k!r}"
        if not (_real(self.top_p) and 0 < self.top_p <= 1):
            yield f"top_p is above 0 and at most 1, not {self.top_p!r}"
        if not (_real(self.min_p) and 0 <= self.min_p <= 1):
            yield f"min_p is from 0 to 1, not {self.min_p!r}"
        if not (_real(self.repetition_penalty) and self.repetition_penalty > 0):
            yield f"repetition_penalty is above 0, not {self.repetition_penalty!r}"
        if self.seed is not None and not (_whole(self.seed) and 0 <= self.seed < 2**64):
            yield f"seed is a whole number from 0 to 2**64 - 1 or None, not {self.seed!r}"

    def _of_the_end(self) -> Iterator[str]:
        if not (_whole(self.max_new_tokens) and self.max_new_tokens >= 1):
            yield f"max_new_tokens is a whole number from 1 on, not {self.max_new_tokens!r}"
        if not (isinstance(self.stop, tuple) and all(isinstance(text, str) and text for text in self.stop)):
            yield f"stop is a tuple of texts that aren't empty, not {self.stop!r}"
        if not (isinstance(self.stop_tokens, tuple) and all(_whole(token) for token in self.stop_tokens)):
            yield f"stop_tokens is a tuple of whole numbers, not {self.stop_tokens!r}"
        if self.logprobs is not None and not (_whole(self.logprobs) and self.logprobs >= 0):
            yield f"logprobs is a whole number from 0 on or None, not {self.logprobs!r}"


def _real(value: object) -> bool:
    """A finite number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
