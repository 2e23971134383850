"""Turns a request's tokens into text as they come, and ends it at a stop string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from attnc.runtime.stops import StopMatcher

CONTEXT = 6
"""Tokens of the prompt that are decoded along, so that the first new one is read as a continuation."""

BROKEN = "\ufffd"
"""What a decoder writes for bytes that are no character, or not yet."""


class Detokenizer(Protocol):
    """Turns tokens into text.

    More tokens may change nothing in the text of the tokens before but characters U+FFFD at its end, which stand for
    a character whose bytes haven't all come. So a tokenizer's cleaning up of spaces has to be off.
    """

    def decode(self, ids: Sequence[int]) -> str: ...


class TextStream:
    """Text of the tokens pushed so far, in pieces that no later token changes.

    A decoder reads a token in the light of the ones before (a leading space, the bytes of a character), and decoding
    all tokens again for each new one would take quadratic time. So a window is decoded: the tokens of the last piece,
    and what came since.
    """

    def __init__(self, detokenizer: Detokenizer, prompt: Sequence[int]) -> None:
        self._detokenizer = detokenizer
        self._window = list(prompt[-CONTEXT:])
        self._old = len(self._window)
        """Tokens of the window whose text is out."""
        self._sent = len(self._decode(self._window).rstrip(BROKEN))
        """Characters of the window's text that are out."""

    def push(self, token: int) -> str:
        """The text that one more token settles. Changes nothing where the decoder raises."""
        window = [*self._window, token]
        text = self._decode(window)
        settled = text.rstrip(BROKEN)
        piece = settled[self._sent :]
        sent, old = max(self._sent, len(settled)), self._old
        if piece and settled == text:
            window = window[old:]
            sent, old = len(self._decode(window)), len(window)
        self._window, self._sent, self._old = window, sent, old
        return piece

    def close(self) -> str:
        """The text that is still open, incomplete characters included: no more tokens will come."""
        piece = self._decode(self._window)[self._sent :]
        self._sent += len(piece)
        return piece

    def _decode(self, ids: Sequence[int]) -> str:
        return self._detokenizer.decode(ids) if ids else ""


class Transcript:
    """The text a request gives out: that of its tokens up to the first stop string; none without a detokenizer."""

    def __init__(self, detokenizer: Detokenizer | None, prompt: Sequence[int], stops: Sequence[str]) -> None:
        self._stream = None if detokenizer is None else TextStream(detokenizer, prompt)
        self._matcher = StopMatcher(stops)

    def push(self, token: int) -> tuple[str, bool]:
        """Text to give out after one more token, and whether a stop string is complete."""
        return ("", False) if self._stream is None else self._matcher.push(self._stream.push(token))

    def close(self) -> str:
        """The rest of the text, held back so far."""
        if self._stream is None:
            return ""
        text, stopped = self._matcher.push(self._stream.close())
        return text if stopped else text + self._matcher.close()
