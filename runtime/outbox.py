"""Outputs on their way to a reader: the stream of their request, or whoever calls for all the others."""

from __future__ import annotations

from collections import deque

from attnc.runtime.requests import Output


class Outbox:
    """Keeps outputs in the order they were made until they are taken."""

    def __init__(self) -> None:
        self._loose: deque[Output] = deque()
        self._streams: dict[int, deque[Output]] = {}

    @property
    def empty(self) -> bool:
        """Whether ``take`` has nothing to give."""
        return not self._loose

    def put(self, output: Output) -> None:
        self._streams.get(output.request, self._loose).append(output)

    def take(self) -> list[Output]:
        """All outputs of requests without a stream; they are given once."""
        taken = list(self._loose)
        self._loose.clear()
        return taken

    def knows(self, request: int) -> bool:
        """Whether a request has a stream, or outputs that wait to be taken."""
        return request in self._streams or any(output.request == request for output in self._loose)

    def claim(self, request: int) -> deque[Output]:
        """The stream of a request: what waits and will come. Raises KeyError where it has been claimed."""
        if request in self._streams:
            raise KeyError(f"streaming request {request}: it has a stream already")
        stream = self._streams[request] = deque(output for output in self._loose if output.request == request)
        self._loose = deque(output for output in self._loose if output.request != request)
        return stream

    def release(self, request: int) -> None:
        """Close the stream of a request; what it holds is dropped."""
        del self._streams[request]
