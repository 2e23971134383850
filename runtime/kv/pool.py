"""Which pages of a layer group are in use, cached or free. Knows no tensors and no sequences.

Every page is in one of three states:

- *in use*: its count, of sequences that hold it, is at least 1;
- *cached*: nobody holds it, but the index knows it by the key of its content, so a prefix that comes again takes it
  back; cached pages are given to other tokens, the one that was let go of first, once no free page is left;
- *free*: nobody holds it and nothing in it is of use.

Counts and copy-on-write sharing are PagedAttention's (Kwon et al. 2023, arXiv 2309.06180, section 4.3 and 4.4).
Page ids never change, so block tables may keep them. Not safe for use from several threads.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from attnc.runtime.kv.specs import NULL_PAGE
from attnc.runtime.kv.stats import PoolStats

Discard = Callable[[Sequence[int]], None]


class OutOfPages(RuntimeError):
    """A pool has too few pages for what was asked. Nothing was changed.

    ``wanted`` more pages were needed, ``available`` are free or cached, the pool has ``total``. ``never_fits``: not
    even the empty pool would do, so waiting or preempting is of no use.
    """

    def __init__(self, what: str, *, wanted: int, available: int, total: int, never_fits: bool = False) -> None:
        remedy = "make the cache with more pages"
        if not never_fits:
            remedy = f"free or preempt a sequence, or {remedy}"
        even = ", not enough even when all are free" if never_fits else ""
        super().__init__(
            f"{what}: needs {wanted} more pages, but only {available} of {total} are free or cached{even}. "
            f"To go on, {remedy}."
        )
        self.wanted = wanted
        self.available = available
        self.total = total
        self.never_fits = never_fits


class PagePool:
    """Ids, counts and prefix index of ``num_pages`` pages. Ids 1 … num_pages − 1 are handed out, the null page never.

    ``discard`` is called with the ids of pages whose content has just become meaningless: they became free, or were
    evicted.
    """

    def __init__(self, num_pages: int, page_size: int, discard: Discard | None = None) -> None:
        if num_pages < 2:
            raise ValueError(f"a pool of {num_pages} pages: page 0 is never handed out, so at least 2 are needed")
        self.page_size = page_size
        self.total = num_pages - 1
        """Pages that can be handed out."""
        self._discard = discard
        self._counts = [0] * num_pages
        self._free = list(range(num_pages - 1, NULL_PAGE, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._index: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._hits = 0
        self._evictions = 0

    @property
    def available(self) -> int:
        """Pages that can be had now: free and cached ones."""
        return len(self._free) + len(self._cached)

    def count(self, page: int) -> int:
        """How often a page is held."""
        return self._counts[page]

    def allocate(self, number: int) -> list[int]:
        """New pages, held once each; cached ones are evicted when no free one is left. Raises OutOfPages."""
        if number > self.available:
            raise OutOfPages(
                "allocating pages",
                wanted=number,
                available=self.available,
                total=self.total,
                never_fits=number > self.total,
            )
        self._evict(number - len(self._free))
        pages = [self._free.pop() for _ in range(number)]
        for page in pages:
            self._counts[page] = 1
        return pages

    def _evict(self, number: int) -> None:
        """Make cached pages free: they leave the index, so that no prefix finds them any more."""
        pages = [self._cached.popitem(last=False)[0] for _ in range(number)]
        for page in pages:
            del self._index[self._keys.pop(page)]
        self._evictions += len(pages)
        self._free += pages
        self._drop(pages)

    def retain(self, pages: Sequence[int]) -> None:
        """Hold pages once more that are in use."""
        for page in pages:
            self._counts[page] += 1

    def reuse(self, pages: Sequence[int]) -> None:
        """Hold pages that ``lookup`` found, in use or cached."""
        for page in pages:
            if self._counts[page] == 0:
                del self._cached[page]
            self._counts[page] += 1
        self._hits += len(pages)

    def release(self, pages: Sequence[int]) -> None:
        """Hold pages once less. The first one given is the first to be evicted, if the index knows it."""
        unknown = []
        for page in pages:
            if self._counts[page] < 1:
                raise ValueError(f"page {page} is released but not in use")
            self._counts[page] -= 1
            if self._counts[page] == 0:
                if page in self._keys:
                    self._cached[page] = None
                else:
                    unknown.append(page)
        self._free += unknown
        self._drop(unknown)

    def publish(self, page: int, key: bytes) -> None:
        """Enter a full page that is in use in the index. The first page with a key keeps it."""
        if key not in self._index and page not in self._keys:
            self._index[key] = page
            self._keys[page] = key

    def lookup(self, key: bytes) -> int:
        """The page with this key, or NULL_PAGE. Changes nothing, the order of eviction included."""
        return self._index.get(key, NULL_PAGE)

    def stats(self) -> PoolStats:
        return PoolStats(
            in_use=self.total - self.available,
            cached=len(self._cached),
            free=len(self._free),
            hits=self._hits,
            evictions=self._evictions,
        )

    def _drop(self, pages: Sequence[int]) -> None:
        if self._discard is not None and pages:
            self._discard(pages)
