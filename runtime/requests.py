"""A request on its way through the engine, and what it gives out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from attnc.runtime.sampling import Row, Sampled
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.text import Transcript

Finish = Literal["stop", "length", "cancelled", "refused", "failed"]
"""Why a request ended: a stop token or string; max_new_tokens; on demand; pages can't be had; the logits were no
distribution."""


class RequestRefused(ValueError):
    """A request that can't be run, whatever else is running: ill-formed, too long, or too large for the cache."""


@dataclass(frozen=True)
class Output:
    """One more token of a request, or its end, or both."""

    request: int
    token: int | None
    """None where the request ended without one: cancelled, refused or failed."""
    text: str
    """What can be added to the text now; pieces joined are the text. Often empty while a character is incomplete or a
    stop string may be beginning."""
    logprob: float | None = None
    """Log-probability of the token under the model, if asked for: before penalty, temperature and filters."""
    top: tuple[tuple[int, float], ...] = ()
    """(id, log-probability) of the most probable tokens, as many as asked for, best first."""
    finish: Finish | None = None
    """Set on the last output of a request."""
    detail: str = ""
    """What stood in the way of one that was refused or failed."""


@dataclass(eq=False)
class Request:
    """One request: its tokens, and how many of them are in the cache."""

    id: int
    """Rising in order of arrival; the name of its sequence in the cache."""
    params: SamplingParams
    seed: int
    tokens: list[int]
    """The prompt and what was generated."""
    transcript: Transcript
    salt: bytes = b""
    """Prefixes are shared with requests of the same salt only: keys depend on more than tokens behind an encoder."""
    cached: int = 0
    """Leading tokens whose keys and values are in the cache."""
    prompt_length: int = field(init=False)

    def __post_init__(self) -> None:
        self.prompt_length = len(self.tokens)

    @property
    def generated(self) -> int:
        """How many tokens it has generated."""
        return len(self.tokens) - self.prompt_length

    @property
    def pending(self) -> int:
        """Tokens to compute before its next one is due; at least 1."""
        return len(self.tokens) - self.cached

    @property
    def row(self) -> Row:
        """What its next token is drawn by."""
        return Row(self.params, self.seed, self.generated, self.tokens)

    def take(self, sampled: Sampled) -> Output:
        """Append the next token. Changes no token where the detokenizer raises."""
        ended = sampled.token in self.params.stop_tokens
        text, matched = ("", False) if ended else self.transcript.push(sampled.token)
        finish: Finish | None = None
        if ended or matched:
            finish = "stop"
        elif self.generated + 1 == self.params.max_new_tokens:
            finish = "length"
        if finish and not matched:
            text += self.transcript.close()
        self.tokens.append(sampled.token)
        return Output(self.id, sampled.token, text, sampled.logprob, sampled.top, finish)
