"""What a kernel of paged attention does, decided: frozen, JSON-serialisable, standard library only.

Keys and values lie in pages that a block table names, and queries of many requests stand one after the other. A row's
operations stand in one order, whatever else runs beside it:

    keys are cut into splits [i·split, (i+1)·split) at absolute positions; within a split online softmax over blocks of
    ``attention.block_n`` keys; splits are merged in key order.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass

from attnc.codegen.plan import KernelPlan, content_hash

PAGED_PLAN_VERSION = 1
STORES = ("f32", "bf16", "f16", "i8", "f8e4m3", "i4")
"""How pages hold numbers. i8 and f8e4m3 have a scale (f32) for each token and head, i4 one (f16) for each I4_GROUP."""
I4_GROUP = 32
"""Features that share a scale in i4 pages."""


@dataclass(frozen=True)
class PagedPlan:
    """One attention over pages.

    Row r of request n is query position ``q = context_len[n] + r`` where ``causal``; its keys are the positions below
    ``context_len[n] +`` the request's new tokens. Where not ``causal`` (cross attention) keys are those below
    ``context_len[n]``, and no formula reads the query position.
    """

    attention: KernelPlan
    """Axes, formulas, dtypes of q and out. Its segments are of block_m = 1: ``tq`` in them is the query position."""
    batch: str | None
    """The axis that stood for the batch, of length 1 here; None where there was none."""
    page_size: int
    """Keys of a page; divides ``attention.block_n`` or is a multiple of it."""
    k_store: str
    v_store: str
    split: int
    """Keys of a split: a multiple of page_size and of ``attention.block_n``."""
    causal: bool = True
    version: int = PAGED_PLAN_VERSION

    def __post_init__(self) -> None:
        """Raises ValueError for sizes that don't fit each other, an unknown store, and segments of taller tiles."""
        block = self.attention.block_n
        if min(self.page_size, self.split) < 1 or (self.page_size % block and block % self.page_size):
            raise ValueError(f"pages of {self.page_size} keys and blocks of {block}: neither divides the other")
        if self.split % math.lcm(self.page_size, block):
            raise ValueError(f"a split of {self.split} keys is no multiple of pages ({self.page_size}) and {block}")
        if unknown := {self.k_store, self.v_store} - set(STORES):
            raise ValueError(f"pages of {', '.join(sorted(unknown))}; known: {', '.join(STORES)}")
        if self.attention.block_m != 1:
            raise ValueError(f"segments of {self.attention.block_m} rows; a paged plan has them for single rows")

    def kv_axes(self, operand: str) -> tuple[str, ...]:
        """The outer axes that the heads of K's (``k``) or V's (``v``) pages stand for, flattened row-major."""
        axes = self.attention.k_axes if operand == "k" else self.attention.v_axes
        return tuple(a for a in axes if a not in (self.batch, "k", "d", "e"))

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces; the attention as its own JSON."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["attention"] = json.loads(self.attention.to_json())
        return json.dumps(fields, sort_keys=True, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> PagedPlan:
        """The plan written by :meth:`to_json`. Raises ValueError on another version or a malformed text."""
        try:
            data = json.loads(text)
            if data["version"] != PAGED_PLAN_VERSION:
                raise ValueError(f"paged plan version {data['version']}, this build reads {PAGED_PLAN_VERSION}")
            return PagedPlan(**{**data, "attention": KernelPlan.from_json(json.dumps(data["attention"]))})
        except (KeyError, TypeError) as error:
            raise ValueError(f"malformed paged plan: {error}") from error

    @property
    def digest(self) -> int:
        """63-bit content hash, stable over processes: the custom op's ``plan`` argument."""
        return content_hash(self.to_json())


def page_width(store: str, features: int) -> int:
    """Elements of a token and head in a page: two features a byte in i4."""
    return -(-features // 2) if store == "i4" else features


def scale_groups(store: str, features: int) -> int | None:
    """Scales of a token and head: None without scales, 0 where the one has no dimension of its own."""
    if store == "i4":
        return -(-features // I4_GROUP)
    return 0 if store in ("i8", "f8e4m3") else None
