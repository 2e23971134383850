from __future__ import annotations

import itertools
import random

import pytest

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.specs import GroupSpec
from attnc.runtime.requests import Request, RequestRefused
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.scheduler import Chunk, Limits, Scheduler, most_pages
from attnc.runtime.text import Transcript


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""


class Queue:
    """A scheduler over a cache of one group, and what an engine does around it without a model."""

    def __init__(
        self, pages: int = 100, limits: Limits | None = None, window: int | None = None, page_size: int = 4
    ) -> None:
        self.cache = KVCache([GroupSpec("only", page_size, window, {})], {"only": pages + 1})
        self.limits = limits or Limits(64, 8, 16)
        self.scheduler = Scheduler(self.cache, self.limits)
        self.ids = itertools.count()
        self.live: dict[int, tuple[Request, int]] = {}
        """By id: a request and the tokens it will have at its end."""

    def add(self, prompt: int, new: int = 1, same: bool = False) -> Request:
        """A request of ``prompt`` tokens that are its own, or those of all others that are the ``same``."""
        first = 0 if same else 1000 * (1 + next(self.ids))
        tokens = list(range(first, first + prompt))
        request = Request(len(self.live), SamplingParams(), 0, tokens, Transcript(None, tokens, ()))
        self.live[request.id] = request, prompt + new
        self.scheduler.add(request)
        return request

    def step(self) -> dict[int, int]:
        """Run one step; the tokens computed by request. Requests leave when they are complete."""
        chunks = self.scheduler.plan()
        self.check(chunks)
        if chunks:
            self.cache.batch([(chunk.request.id, len(chunk.tokens)) for chunk in chunks])
        self.scheduler.commit(chunks)
        for chunk in chunks:
            if chunk.due:
                chunk.request.tokens.append(5000 + len(chunk.request.tokens))
                if len(chunk.request.tokens) == self.live[chunk.request.id][1]:
                    self.scheduler.remove(chunk.request)
        return {chunk.request.id: len(chunk.tokens) for chunk in chunks}

    def check(self, chunks: list[Chunk]) -> None:
        """What every plan has to be."""
        assert sum(len(chunk.tokens) for chunk in chunks) <= self.limits.max_tokens
        assert len({chunk.request for chunk in chunks}) == len(chunks) <= self.scheduler.running
        assert self.scheduler.running <= self.limits.max_requests
        for chunk in chunks:
            request, size = chunk.request, len(chunk.tokens)
            assert 1 <= size <= self.limits.chunk
            assert chunk.tokens == request.tokens[request.cached : request.cached + size]
            assert request.cached == self.cache.length(request.id)
            assert chunk.due == (request.cached + size == len(request.tokens))

    @property
    def done(self) -> bool:
        return not self.scheduler.running and not self.scheduler.waiting

    @property
    def held(self) -> int:
        return self.cache.stats().pages


@pytest.mark.parametrize("wrong", [{"max_tokens": 3, "max_requests": 4}, {"max_requests": 0}, {"chunk": 0}])
def test_limits_that_would_starve_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="1 <= max_requests <= max_tokens"):
        Limits(**wrong)
    assert Limits(1, 1, 1).max_tokens == 1


def test_decodes_first_then_prompts_in_order_in_chunks() -> None:
    queue = Queue(limits=Limits(12, 4, 8))
    queue.add(3, new=9), queue.add(20, new=2), queue.add(30, new=2), queue.add(5, new=2)
    assert queue.step() == {0: 3, 1: 8, 2: 1}
    assert list(queue.step().items()) == [(0, 1), (1, 8), (2, 3)]
    assert list(queue.step().items()) == [(0, 1), (1, 4), (2, 7)]
    assert list(queue.step().items()) == [(0, 1), (1, 1), (2, 8), (3, 2)], "1 has its last token now"
    assert list(queue.step().items()) == [(0, 1), (2, 8), (3, 3)]


def test_no_more_requests_than_allowed() -> None:
    queue = Queue(limits=Limits(64, 2, 16))
    for _ in range(3):
        queue.add(4, new=2)
    assert queue.step() == {0: 4, 1: 4}
    assert (queue.scheduler.running, queue.scheduler.waiting) == (2, 1)
    assert queue.step() == {0: 1, 1: 1}
    assert queue.step() == {2: 4}


def test_the_youngest_is_preempted_and_goes_to_the_head_of_the_queue() -> None:
    queue = Queue(pages=6, limits=Limits(64, 3, 16))
    requests = [queue.add(8, new=5) for _ in range(3)]
    queue.add(1)
    assert queue.step() == {0: 8, 1: 8, 2: 8}
    assert queue.step() == {0: 1, 1: 1}, "two pages of the third are now theirs"
    assert (queue.cache.preemptions, requests[2].cached, queue.scheduler.waiting) == (1, 0, 2)
    assert [queue.step() for _ in range(2)] == [{0: 1, 1: 1}] * 2, "nobody is admitted, and 3 not before 2"
    assert queue.step() == {0: 1, 1: 1} and queue.held == 0
    assert len(requests[2].tokens) == 9, "what it had generated is kept"
    assert queue.step() == {2: 9, 3: 1}


def test_the_youngest_waits_rather_than_preempts_itself() -> None:
    queue = Queue(pages=5, limits=Limits(64, 2, 16))
    queue.add(7, new=9), queue.add(12, new=3)
    assert queue.step() == {0: 7, 1: 12}
    assert queue.step() == {0: 1}, "no page for a thirteenth token"
    assert queue.step() == {0: 1} and queue.cache.preemptions == 1, "its pages went to the older one"


def test_a_chunk_shrinks_to_what_has_room() -> None:
    queue = Queue(pages=6, limits=Limits(64, 2, 8))
    request = queue.add(20)
    assert queue.step() == {0: 8}
    queue.cache.admit("other", list(range(12)))
    queue.cache.reserve("other", 12)
    assert queue.step() == {0: 4}
    queue.cache.free("other")
    assert queue.step() == {0: 8} and request.generated == 1


def test_a_request_that_can_never_go_on_is_refused() -> None:
    """Somebody else holds the pages, so what was checked at its beginning doesn't hold."""
    queue = Queue(pages=4)
    queue.cache.admit("other", list(range(8)))
    queue.cache.reserve("other", 8)
    early = queue.add(7, new=3)
    assert queue.step() == {early.id: 7} and queue.step() == {early.id: 1}
    assert queue.step() == {} and queue.done
    ((refused, reason),) = queue.scheduler.refused
    assert refused is early and reason == "the cache has no page for token 8, and no other request to take one from"
    queue.scheduler.refused.clear()
    late = queue.add(9)
    assert queue.step() == {} and queue.done
    ((refused, reason),) = queue.scheduler.refused
    assert refused is late and "needs 3 more pages, but only 2 of 4" in reason
    queue.cache.free("other")
    assert queue.held == 0


def test_cancelled_requests_leave_nothing() -> None:
    queue = Queue(limits=Limits(16, 2, 8))
    requests = [queue.add(12, new=3) for _ in range(4)]
    queue.step()
    for request in (requests[3], requests[0]):
        queue.scheduler.remove(request)
    with pytest.raises(ValueError):
        queue.scheduler.remove(requests[0])
    assert queue.step() == {1: 4, 2: 8}
    for request in requests[1:3]:
        queue.scheduler.remove(request)
    assert queue.done and queue.held == 0 and queue.scheduler.plan() == []


def test_a_cached_prefix_is_not_computed_again() -> None:
    queue = Queue()
    queue.add(15, same=True)
    assert queue.step() == {0: 15} and queue.held == 0
    queue.add(13, same=True), queue.add(12, same=True), queue.add(15)
    assert queue.step() == {1: 1, 2: 4, 3: 15}, "a whole prompt is never taken from the cache"


def test_restart_gives_everything_back_and_loses_no_one() -> None:
    queue = Queue(limits=Limits(16, 3, 8))
    requests = [queue.add(6, new=3) for _ in range(4)]
    queue.step()
    queue.scheduler.plan()
    queue.scheduler.restart()
    assert queue.held == 0 and queue.scheduler.waiting == 4 and queue.cache.preemptions == 0
    assert all(request.cached == 0 for request in requests)
    assert queue.step() == {0: 3, 1: 3, 2: 2}, "in the old order; full pages were kept"


def test_nothing_starves() -> None:
    """Short requests come without end, yet a long prompt gets a token in each step, and every decode as well."""
    queue = Queue(limits=Limits(4, 4, 3))
    for _ in range(3):
        queue.add(2, new=6)
    long = queue.add(40, new=2)
    steps = 0
    while long.pending > 1 or long.generated == 0:
        before = long.cached
        computed = queue.step()
        steps += 1
        if before or long.id in computed:
            assert long.cached > before
        queue.add(2, new=6)
    assert steps < 60
    while long in queue.scheduler._running:
        assert long.id in queue.step()


@pytest.mark.parametrize("seed", range(6))
def test_any_mix_ends(seed: int) -> None:
    """The oldest gets a token in each step, none overtakes in being admitted, and all are complete at the end."""
    draw = random.Random(seed)
    window = draw.choice([None, 3, 9])
    limits = Limits(draw.randint(6, 40), draw.randint(1, 6), draw.choice([1, 7, 64]))
    queue = Queue(draw.randint(12, 30), limits, window, draw.choice([1, 2, 4]))
    room = queue.cache.stats().groups["only"].free
    size = queue.cache.groups[0].page_size
    todo = 60
    while todo or not queue.done:
        for _ in range(min(todo, draw.choice([0, 0, 1, 3]))):
            most = min(60, room * size) if window is None else 60
            prompt = draw.randint(1, most - 1)
            queue.add(prompt, draw.randint(1, min(20, most - prompt)), same=draw.random() < 0.3)
            todo -= 1
        if queue.done:
            continue
        computed = queue.step()
        assert not queue.scheduler.refused
        running = [request.id for request in queue.scheduler._running]
        waiting = [request.id for request in queue.scheduler._waiting]
        assert running + waiting == sorted(running + waiting)
        assert min(computed) == min([*computed, *running, *waiting]), "the oldest goes on"
        if draw.random() < 0.05 and running:
            request = queue.live[draw.choice(running + waiting)][0]
            queue.live[request.id] = request, len(request.tokens)
            queue.scheduler.remove(request)
    assert queue.held == 0
    assert all(len(request.tokens) == end for request, end in queue.live.values())


def test_what_fits_in_the_empty_cache_is_known_beforehand() -> None:
    """Against a cache that holds one sequence while it grows token by token."""
    draw = random.Random(4)
    for _ in range(60):
        window, size, tokens = draw.choice([None, 1, 2, 3, 7, 16]), draw.choice([1, 2, 4, 5]), draw.randint(1, 50)
        group = GroupSpec("only", size, window, {})
        cache = KVCache([group], {"only": 60})
        cache.admit(0, range(tokens))
        held = 0
        for token in range(tokens):
            cache.reserve(0, 1)
            held = max(held, cache.stats().pages)
            cache.commit(0, [token])
        assert most_pages(group, tokens) == held, (window, size, tokens)


def test_too_large_a_request_is_refused_beforehand() -> None:
    queue = Queue(pages=5)
    queue.scheduler.check(20)
    with pytest.raises(RequestRefused, match=r"a request of 21 tokens needs 6 pages of 4 tokens .* the cache has 5"):
        queue.scheduler.check(21)
    Queue(pages=5, window=16).scheduler.check(10**6)
    with pytest.raises(RequestRefused):
        Queue(pages=4, window=16).scheduler.check(100)
