"""Finds stop strings in text that comes in pieces, and holds text back while it could still become one."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until one of ``stops`` is complete.

    The stop string that is complete first ends the text; of several complete at once the longest. Which one that is
    doesn't depend on how the text was cut into pieces.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, piece: str) -> tuple[str, bool]:
        """More text: what can be passed on now, and whether a stop string was found.

        The text before a stop string is passed on, the stop string and what follows it is not. Push nothing after.
        """
        self._held += piece
        found = [(start + len(stop), start) for stop in self._stops if (start := self._held.find(stop)) >= 0]
        passed = min(found)[1] if found else len(self._held) - self._open()
        text, self._held = self._held[:passed], "" if found else self._held[passed:]
        return text, bool(found)

    def close(self) -> str:
        """The text that was held back: no more will come."""
        text, self._held = self._held, ""
        return text

    def _open(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1)
        ends = range(min(longest - 1, len(self._held)), 0, -1)
        return next((n for n in ends if any(stop.startswith(self._held[-n:]) for stop in self._stops)), 0)
