"""A model without weights for the engine's tests: its logits are a hash of what it reads back through the block tables.

A wrong table, slot, position or context length, or a page that was overwritten or given back too early, changes the
logits, and with them the tokens. ``generate`` is the same model without a cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.specs import GroupSpec, RaggedBatch, StreamSpec
from attnc.runtime.kv.storage import PageStorage
from attnc.runtime.requests import Output, Request
from attnc.runtime.sampling import sample
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.text import Transcript

VOCABULARY = 48
MAX_LENGTH = 400
WINDOW = 5
STREAMS = (StreamSpec(1, 2, "f32", "f32"), StreamSpec(1, 1, "f32", "f32"))
FULL = GroupSpec("full", 4, None, {"site": STREAMS})
NEAR = GroupSpec("near", 2, WINDOW, {"site": STREAMS})

_random = torch.Generator().manual_seed(20)
_PRIMES = torch.randint(1 << 30, (2, MAX_LENGTH), generator=_random)
_LOGITS = torch.randn(4093, VOCABULARY, generator=_random) * 2


def hashed(tokens: Tensor, positions: Tensor, keys: Tensor, row: int) -> Tensor:
    """i64[R] of [R, K] tokens, the positions stored with them, and where they were found; masked tokens are −1."""
    places = (positions.remainder(MAX_LENGTH) * 7 + keys * 3).remainder(MAX_LENGTH)
    return ((tokens + 1) * _PRIMES[row][places]).sum(-1)


def logits_of(tokens: Sequence[int]) -> Tensor:
    """f32[1, VOCABULARY] behind these tokens."""
    ids, at = torch.tensor([list(tokens)]), torch.arange(len(tokens))[None]
    near = ids.masked_fill(at <= len(tokens) - 1 - WINDOW, -1)
    return _LOGITS[(hashed(ids, at, at, 0) + hashed(near, at, at, 1)).remainder(len(_LOGITS))]


class HashProgram:
    """A step program over two layer groups, one with a window. ``fail_at``: steps that raise after writing."""

    groups = (FULL, NEAR)
    vocabulary = VOCABULARY
    max_length = MAX_LENGTH

    def __init__(self, fail_at: Sequence[int] = ()) -> None:
        self.steps: list[tuple[int, int, int]] = []
        """Of each step: requests, tokens, rows."""
        self.fail_at = fail_at

    def step(self, token_ids: Tensor, batch: RaggedBatch, storage: Mapping[str, PageStorage], rows: Tensor) -> Tensor:
        keys = torch.stack([token_ids, batch.positions], -1)[:, None].float()
        for name, pages in storage.items():
            pages.write("site", keys, keys[..., :1], batch.slots[name])
        self.steps.append((len(batch.context_len), len(token_ids), len(rows)))
        if len(self.steps) in self.fail_at:
            raise ArithmeticError("the device fell over")
        request = torch.searchsorted(batch.query_start.long(), rows, right=True) - 1
        query = batch.context_len[request] + rows - batch.query_start[request]
        found = self._read(storage["full"], batch, request, query, 0) + self._read(
            storage["near"], batch, request, query, 1
        )
        return _LOGITS[found.remainder(len(_LOGITS))]

    def _read(self, pages: PageStorage, batch: RaggedBatch, request: Tensor, query: Tensor, row: int) -> Tensor:
        """The hash of the keys that each query may see, fetched through its table."""
        stored, values = (stream.pages for stream in pages.sites["site"])
        table = batch.block_table[pages.group.name].long()[request]
        keys = torch.arange(table.shape[1] * pages.group.page_size).expand(len(request), -1)
        page, slot = table.gather(1, keys // pages.group.page_size), keys % pages.group.page_size
        token, position = stored[page, 0, slot].nan_to_num(-9).long().unbind(-1)
        token = token + (values[page, 0, slot, 0] != token)
        unseen = (keys > query[:, None]) | (keys <= query[:, None] - (pages.group.window or MAX_LENGTH))
        return hashed(token.masked_fill(unseen, -1), position, keys, row)


class ByteText:
    """Every token is a few bytes of UTF-8: letters, blanks, whole characters and parts of some."""

    PIECES = (
        *(bytes([letter]) for letter in b"abcdefghijklmnop .,"),
        *(text.encode() for text in (" the", "ing", "é", "€", "ab", "\n")),
        *(bytes([byte]) for byte in "é€😀".encode()),
        "😀".encode()[:3],
        "€".encode()[1:] + b"x",
    )

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.PIECES[token % len(self.PIECES)] for token in ids).decode(errors="replace")


def make_cache(full: int = 200, near: int = 200) -> KVCache:
    """A cache of so many pages in each group, poisoned where nothing is written."""
    return KVCache(HashProgram.groups, {"full": full + 1, "near": near + 1}, debug=True)


def generate(prompt: Sequence[int], params: SamplingParams, text: ByteText | None = None) -> list[Output]:
    """What a request with these parameters (and a seed) gives out."""
    tokens = list(prompt)
    request = Request(0, params, params.seed or 0, tokens, Transcript(text, tokens, params.stop))
    outputs: list[Output] = []
    while not outputs or outputs[-1].finish is None:
        (sampled,) = sample(logits_of(request.tokens), [request.row])
        assert sampled is not None
        outputs.append(request.take(sampled))
    return outputs


def nothing_held(cache: KVCache) -> bool:
    """Whether no sequence and no page is left in use."""
    stats = cache.stats()
    return stats.sequences == 0 and stats.pages == 0
