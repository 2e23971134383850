from __future__ import annotations

import pytest

from attnc.runtime.kv.pool import OutOfPages, PagePool


def test_the_null_page_is_never_handed_out() -> None:
    pool = PagePool(9, 4)
    assert sorted(pool.allocate(8)) == list(range(1, 9))
    with pytest.raises(OutOfPages):
        pool.allocate(1)
    with pytest.raises(ValueError, match="at least 2"):
        PagePool(1, 4)


def test_a_page_is_free_when_nobody_holds_it() -> None:
    pool = PagePool(3, 4)
    (page,) = pool.allocate(1)
    pool.retain([page])
    pool.release([page])
    assert (pool.count(page), pool.available) == (1, 1)
    pool.release([page])
    assert (pool.count(page), pool.available) == (0, 2)
    with pytest.raises(ValueError, match=f"page {page} is released but not in use"):
        pool.release([page])


def test_a_published_page_is_cached_and_taken_again() -> None:
    pool = PagePool(3, 4)
    (page,) = pool.allocate(1)
    pool.publish(page, b"key")
    pool.release([page])
    stats = pool.stats()
    assert (stats.in_use, stats.cached, stats.free) == (0, 1, 1)
    assert pool.lookup(b"key") == page
    pool.reuse([page])
    assert (pool.count(page), pool.stats().cached, pool.stats().hits) == (1, 0, 1)
    assert pool.lookup(b"other") == 0


def test_free_pages_go_first_then_cached_ones_in_order_of_release() -> None:
    dropped: list[int] = []
    pool = PagePool(5, 4, dropped.extend)
    a, b, c = pool.allocate(3)
    for page in (a, b, c):
        pool.publish(page, str(page).encode())
    pool.release([c, a])
    pool.release([b])
    pool.reuse([c])
    pool.release([c])  # the last now
    (free,) = pool.allocate(1)
    assert free not in (a, b, c) and dropped == []
    assert pool.allocate(2) and dropped == [a, b]
    assert [pool.lookup(str(page).encode()) for page in (a, b, c)] == [0, 0, c]
    assert pool.stats().evictions == 2


def test_an_evicted_page_is_not_found_under_its_old_key() -> None:
    pool = PagePool(2, 4)
    (page,) = pool.allocate(1)
    pool.publish(page, b"old")
    pool.release([page])
    assert pool.allocate(1) == [page]
    assert pool.lookup(b"old") == 0
    pool.publish(page, b"new")
    assert (pool.lookup(b"old"), pool.lookup(b"new")) == (0, page)


def test_the_first_page_of_a_key_keeps_it() -> None:
    dropped: list[int] = []
    pool = PagePool(3, 4, dropped.extend)
    first, second = pool.allocate(2)
    pool.publish(first, b"key")
    pool.publish(second, b"key")
    pool.release([second])
    assert (pool.lookup(b"key"), pool.stats().free, dropped) == (first, 1, [second])


def test_looking_up_does_not_change_the_order_of_eviction() -> None:
    pool = PagePool(3, 4)
    a, b = pool.allocate(2)
    pool.publish(a, b"a")
    pool.publish(b, b"b")
    pool.release([a, b])
    pool.lookup(b"a")
    assert pool.allocate(1) == [a]


@pytest.mark.parametrize(("wanted", "never", "words"), [(3, False, "free or preempt"), (9, True, "with more pages")])
def test_the_error_says_what_was_asked_and_what_there_is(wanted: int, never: bool, words: str) -> None:
    pool = PagePool(5, 4)
    held = pool.allocate(2)
    with pytest.raises(OutOfPages, match=rf"needs {wanted} more pages, but only 2 of 4 .*{words}") as caught:
        pool.allocate(wanted)
    error = caught.value
    assert (error.wanted, error.available, error.total, error.never_fits) == (wanted, 2, 4, never)
    assert (pool.available, [pool.count(page) for page in held]) == (2, [1, 1])
