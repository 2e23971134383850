"""Keys and values that encoders gave: written once for a request, read by each of its steps, freed when it ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping, Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.specs import GroupSpec, RaggedBatch
from attnc.runtime.kv.storage import PageStorage

Rows = Mapping[str, tuple[Tensor, Tensor]]
"""For each site, by name: keys and values [E, heads, features] of one request."""


class EncoderCache:
    """Pages of one layer group that requests fill when they are admitted. Nothing is shared between requests."""

    def __init__(
        self, group: GroupSpec, num_pages: int, device: torch.device | str = "cpu", debug: bool = False
    ) -> None:
        self.group = group
        self._cache = KVCache((group,), {group.name: num_pages}, device=device, debug=debug)
        self._salt = count()

    @property
    def storage(self) -> PageStorage:
        """The page tensors."""
        return self._cache.storage[self.group.name]

    def admit(self, seq: Hashable, rows: Rows) -> None:
        """Keep what the encoder gave for a request. Raises OutOfPages, nothing changed."""
        places = list(range(len(next(iter(rows.values()))[0])))
        self._cache.admit(seq, places, salt=next(self._salt).to_bytes(8, "little"))  # equal inputs aren't looked for
        try:
            self._cache.reserve(seq, len(places))
        except BaseException:
            self._cache.free(seq)
            raise
        slots = self._cache.batch([(seq, len(places))]).slots[self.group.name]
        for site, (keys, values) in rows.items():
            self.storage.write(site, keys, values, slots)
        self._cache.commit(seq, places)

    def free(self, seq: Hashable) -> None:
        """Give a request's pages back."""
        self._cache.free(seq)

    def joined(self, batch: RaggedBatch, requests: Sequence[Hashable]) -> RaggedBatch:
        """``batch``, of these requests in this order, with their encoders' tables and lengths."""
        tables = [self._cache.table(seq)[self.group.name] for seq in requests]
        padded = np.zeros((len(tables), max(map(len, tables), default=0)), dtype=np.int32)
        for row, table in zip(padded, tables, strict=True):
            row[: len(table)] = table
        lengths = np.array([self._cache.length(seq) for seq in requests], dtype=np.int32)
        device = self.storage.device
        return dataclasses.replace(
            batch,
            block_table={**batch.block_table, self.group.name: torch.from_numpy(padded).to(device)},
            encoder_len=torch.from_numpy(lengths).to(device),
        )
