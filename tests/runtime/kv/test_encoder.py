"""What encoders gave: each request reads its own, equal inputs or not, and gives its pages back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.encoder import EncoderCache
from attnc.runtime.kv.pool import OutOfPages
from attnc.runtime.kv.specs import GroupSpec, StreamSpec

SPEC = StreamSpec(2, 8, "f32", "f32")
GROUP = GroupSpec("encoder", 4, None, {"first": (SPEC, SPEC), "second": (SPEC, SPEC)})


def rows(length: int, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return {
        site: (torch.randn(length, 2, 8, generator=generator), torch.randn(length, 2, 8, generator=generator))
        for site in GROUP.sites
    }


def test_requests_read_their_own() -> None:
    cache = EncoderCache(GROUP, 20, debug=True)
    given = {0: rows(9, 0), 1: rows(1, 1), 2: rows(17, 2), 3: rows(9, 3)}
    for seq, one in given.items():
        cache.admit(seq, one)
    self_attention = KVCache((GroupSpec("full", 4, None, {"a": (SPEC, SPEC)}),), {"full": 20})
    for seq in given:
        self_attention.admit(seq, [seq])
        self_attention.reserve(seq, 1)
    order = [2, 0, 3, 1]
    batch = cache.joined(self_attention.batch([(seq, 1) for seq in order]), order)
    assert batch.encoder_len is not None and batch.encoder_len.tolist() == [17, 9, 9, 1]
    assert set(batch.block_table) == {"full", "encoder"}
    for row, seq in enumerate(order):
        for site, pair in given[seq].items():
            found = cache.storage.gather(site, batch.block_table["encoder"][row], len(pair[0]))
            assert all(map(torch.equal, found, pair))


def test_too_little_room_changes_nothing() -> None:
    cache = EncoderCache(GROUP, 6, debug=True)  # five pages, one of them the null page's neighbour
    cache.admit("a", rows(12, 0))
    with pytest.raises(OutOfPages):
        cache.admit("b", rows(12, 1))
    cache.admit("b", rows(8, 1))
    cache.free("a")
    cache.admit("c", rows(12, 2))
