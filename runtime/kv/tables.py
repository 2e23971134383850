"""The block table: which page holds a position of a sequence. Knows no tensors and no policy.

As in PagedAttention (Kwon et al. 2023, arXiv 2309.06180, section 4.2): position p stands in page
``table[p // page_size]``, slot ``p % page_size``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnc.runtime.kv.specs import NULL_PAGE


class BlockTable:
    """Page ids of one sequence in one group. Grows at the end; from its start on, entries become NULL_PAGE."""

    def __init__(self, pages: Sequence[int] = (), start: int = 0) -> None:
        self._ids = np.array(pages, dtype=np.int32)
        self._count = len(pages)
        self._start = start

    def __len__(self) -> int:
        return self._count

    @property
    def ids(self) -> NDArray[np.int32]:
        """All entries, as a view."""
        return self._ids[: self._count]

    @property
    def live(self) -> list[int]:
        """The pages it holds: those that weren't given back."""
        pages: list[int] = self.ids[self._start :].tolist()
        return pages

    @property
    def held(self) -> int:
        """How many pages it holds."""
        return self._count - self._start

    def extend(self, pages: Sequence[int]) -> None:
        end = self._count + len(pages)
        if end > len(self._ids):
            grown = np.zeros(max(end, 2 * self._count), dtype=np.int32)
            grown[: self._count] = self.ids
            self._ids = grown
        self._ids[self._count : end] = pages
        self._count = end

    def replace(self, index: int, page: int) -> None:
        self._ids[index] = page

    def give_back(self, before: int) -> list[int]:
        """Null the entries before an index; the pages they held."""
        given: list[int] = self.ids[self._start : before].tolist()
        self._ids[self._start : before] = NULL_PAGE
        self._start = max(self._start, before)
        return given

    def fork(self, count: int) -> BlockTable:
        """A copy of the first ``count`` entries."""
        return BlockTable(self._ids[:count].tolist(), self._start)
