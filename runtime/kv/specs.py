"""What a cache holds and what a step is given: streams, layer groups, the ragged batch. No torch is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attnc.codegen.paged_plan import STORES, page_width, scale_groups

if TYPE_CHECKING:
    from torch import Tensor

NULL_PAGE = 0
"""The page that is never handed out; in a block table it stands for a page given back behind a window."""


@dataclass(frozen=True)
class StreamSpec:
    """The keys, or the values, of one attention: per token ``[heads, features]``."""

    heads: int
    features: int
    store: str
    """One of ``codegen.paged_plan.STORES``."""
    dtype: str
    """What the model computes them in, as the IR writes dtypes."""

    def __post_init__(self) -> None:
        if self.heads < 1 or self.features < 1:
            raise ValueError(f"a stream needs heads and features, got {self.heads} heads of {self.features} features")
        if self.store not in STORES:
            raise ValueError(f"a stream can't be stored as {self.store!r}; stores are {', '.join(STORES)}")

    @property
    def token_bytes(self) -> int:
        """Bytes that one token takes, scales included."""
        return self.heads * _row_bytes(self.store, self.features)


@dataclass(frozen=True)
class GroupSpec:
    """Attentions with the same window and page size: one space of page ids, one block table for each request."""

    name: str
    page_size: int
    """Tokens of one page."""
    window: int | None
    """A query at position q never reads keys ≤ q − window; None: every key may be read for ever."""
    sites: Mapping[str, tuple[StreamSpec, ...]]
    """For each attention, by name: its keys and its values, or one stream that is both."""

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise ValueError(f"layer group {self.name!r}: a page of {self.page_size} tokens")
        if self.window is not None and self.window < 1:
            raise ValueError(f"layer group {self.name!r}: a window of {self.window} keys; None is no window")

    @property
    def page_bytes(self) -> int:
        """Bytes that one page takes in all sites, scales included."""
        return self.page_size * sum(s.token_bytes for streams in self.sites.values() for s in streams)

    def pages(self, tokens: int) -> int:
        """Pages that this many tokens touch from position 0 on."""
        return -(-tokens // self.page_size)

    def first_page(self, length: int) -> int:
        """Index of the first page that a query at position ``length`` or later may read.

        The nearest such query is at ``length`` itself and reads keys from length − window + 1 on.
        """
        if self.window is None:
            return 0
        return max(0, length - self.window + 1) // self.page_size


@dataclass(frozen=True)
class RaggedBatch:
    """One step over N requests with T new tokens in all; the tokens of a request stand one after the other."""

    query_start: Tensor
    """i32 [N + 1]: where each request's tokens begin among the T, and T."""
    context_len: Tensor
    """i32 [N]: keys in the cache before this step."""
    block_table: Mapping[str, Tensor]
    """For each layer group, by name: i32 [N, P], the pages of each request, padded with 0."""
    positions: Tensor
    """i64 [T]: absolute position of each new token."""
    slots: Mapping[str, Tensor]
    """For each layer group, by name: i64 [T], page · page_size + offset of where each new token's K and V go."""
    encoder_len: Tensor | None = None
    """i32 [N]: keys that each request's encoder gave; None for models without one."""


def _row_bytes(store: str, features: int) -> int:
    """Bytes of one head's row: its elements, and its scales (f32 for a row of 8-bit ones, f16 for a group of i4)."""
    groups = scale_groups(store, features)
    scales = 0 if groups is None else 2 * groups or 4
    return page_width(store, features) * {"f32": 4, "bf16": 2, "f16": 2}.get(store, 1) + scales
