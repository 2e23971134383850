"""Decides which tokens of which requests the next step computes, and keeps the cache's sequences in step with that.

Continuous batching (Orca, Yu et al. 2022): requests join and leave between steps. Prompts are computed in chunks beside
the decodes of others (Sarathi, Agrawal et al. 2023, arXiv 2308.16369). When pages run out, the youngest request gives
back all of its pages and computes its tokens again later (recompute: Kwon et al. 2023, arXiv 2309.06180, section 4.5).

Every running request is older than every waiting one: requests are admitted in order of arrival, and the one preempted
is the youngest, which goes to the head of the queue. So the oldest is never preempted and gets at least one token in
each step (decodes come first, yet there are fewer of them than ``max_tokens`` while a prompt is being computed). It
ends some day, and then the next one is the oldest: nothing starves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.pool import OutOfPages
from attnc.runtime.kv.specs import GroupSpec
from attnc.runtime.requests import Request, RequestRefused


@dataclass(frozen=True)
class Limits:
    """What one step may hold. Raises ValueError unless 1 ≤ max_requests ≤ max_tokens and 1 ≤ chunk."""

    max_tokens: int = 512
    """Tokens computed in one step, over all requests."""
    max_requests: int = 32
    """Requests in the cache at a time."""
    chunk: int = 256
    """Tokens of one prompt computed in one step: larger is faster in all, smaller lets decodes wait less."""

    def __post_init__(self) -> None:
        if not 1 <= self.max_requests <= self.max_tokens or self.chunk < 1:
            raise ValueError(
                f"limits of a step: {self} must have 1 <= max_requests <= max_tokens, so that each request can get a "
                f"token in each step, and chunk >= 1"
            )


@dataclass(frozen=True)
class Chunk:
    """Tokens of one request to compute in a step."""

    request: Request
    tokens: Sequence[int]
    due: bool
    """Whether these are its last ones, so that its next token can be drawn."""


class Scheduler:
    """The queue of requests over one cache. A request added here leaves by ``remove`` only, or by being refused."""

    def __init__(self, cache: KVCache, limits: Limits) -> None:
        self._cache = cache
        self._limits = limits
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        """In order of arrival, like the waiting ones."""
        self._paused = False
        """Nothing is admitted between a preemption and the next time a request leaves: no pages come back before."""
        self.refused: list[tuple[Request, str]] = []
        """Requests that left because no page can be had for them, and why. The reader empties it."""

    @property
    def running(self) -> int:
        """Requests that have a sequence in the cache."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def check(self, tokens: int) -> None:
        """Raise RequestRefused where a request that computes so many tokens would not fit in the empty cache."""
        pools = self._cache.stats().groups
        for group in self._cache.groups:
            pool = pools[group.name]
            total, wanted = pool.in_use + pool.cached + pool.free, most_pages(group, tokens)
            if wanted > total:
                raise RequestRefused(
                    f"a request of {tokens} tokens needs {wanted} pages of {group.page_size} tokens in layer group "
                    f"{group.name!r}, the cache has {total}; lower max_new_tokens, or make the cache with more pages"
                )

    def add(self, request: Request) -> None:
        """Queue a request behind all others; its id is higher than theirs."""
        self._waiting.append(request)

    def remove(self, request: Request) -> None:
        """Take out a request, wherever it is, and free its pages. Raises ValueError for an unknown one."""
        if request in self._running:
            self._running.remove(request)
            self._cache.free(request.id)
            self._paused = False
        else:
            self._waiting.remove(request)

    def plan(self) -> list[Chunk]:
        """The next step, with room reserved in the cache. Empty only where it refused a request or has none that can
        go on; in that case the next plan refuses one.
        """
        lengths: dict[Request, int] = {}
        for request in sorted(self._running, key=lambda one: one.pending > 1):
            if request in self._running:
                self._continue(request, lengths)
        self._admit(lengths)
        return [_chunk(request, length) for request, length in lengths.items()]

    def commit(self, chunks: Sequence[Chunk]) -> None:
        """The chunks of a plan have been computed."""
        for chunk in chunks:
            self._cache.commit(chunk.request.id, chunk.tokens)
            chunk.request.cached += len(chunk.tokens)

    def restart(self) -> None:
        """Free all pages; every running request waits again, in the old order, and will compute its tokens again."""
        while self._running:
            self._requeue()
        self._paused = False

    def _continue(self, request: Request, lengths: dict[Request, int]) -> None:
        """Reserve a running request's next tokens; preempt younger ones where not even one token has room."""
        wanted = self._wanted(request, lengths)
        length = self._reserve(request, wanted)
        while wanted and not length and self._running[-1] is not request:
            lengths.pop(self._preempt(), None)
            length = self._reserve(request, wanted)
        if length:
            lengths[request] = length
        elif wanted and len(self._running) == 1:
            self.remove(request)
            reason = f"the cache has no page for token {request.cached}, and no other request to take one from"
            self.refused.append((request, reason))

    def _admit(self, lengths: dict[Request, int]) -> None:
        """Let waiting requests begin, in order, while the step and the cache have room."""
        while self._waiting and self.running < self._limits.max_requests and not self._paused:
            request = self._waiting[0]
            if not self._wanted(request, lengths):
                return
            try:
                request.cached = self._cache.admit(request.id, request.tokens, request.salt)
            except OutOfPages as error:
                if self._running:
                    return
                self.refused.append((self._waiting.popleft(), str(error)))
                continue
            self._running.append(self._waiting.popleft())
            if length := self._reserve(request, self._wanted(request, lengths)):
                lengths[request] = length

    def _wanted(self, request: Request, lengths: dict[Request, int]) -> int:
        """Tokens that a request may compute in this step."""
        return min(request.pending, self._limits.chunk, self._limits.max_tokens - sum(lengths.values()))

    def _reserve(self, request: Request, number: int) -> int:
        """Room for ``number`` tokens, or half as many, and so on; how many it is, 0 where not one has room."""
        while number:
            try:
                self._cache.reserve(request.id, number)
                return number
            except OutOfPages:
                number //= 2
        return 0

    def _preempt(self) -> Request:
        """Take the pages of the youngest running request; it waits at the head of the queue."""
        self._cache.preemptions += 1
        self._paused = True
        return self._requeue()

    def _requeue(self) -> Request:
        request = self._running.pop()
        self._cache.free(request.id)
        request.cached = 0
        self._waiting.appendleft(request)
        return request


def most_pages(group: GroupSpec, tokens: int) -> int:
    """The most pages a sequence holds in ``group`` while ``tokens`` tokens are computed one by one.

    With L tokens committed and one to come it holds the pages from that of the first key the query at L may read to
    that of L. The number never falls when L grows by a page, so the last page's worth of L has the maximum.
    """
    last = range(max(0, tokens - group.page_size), tokens)
    return max((length // group.page_size - group.first_page(length) + 1 for length in last), default=0)


def _chunk(request: Request, length: int) -> Chunk:
    return Chunk(request, request.tokens[request.cached : request.cached + length], length == request.pending)
