"""From logits to tokens: what a request asks for, and the draw.

The order is that of transformers' ``generate``: repetition penalty, temperature, top-k, top-p, min-p, then a draw from
what is left. The draw takes one number u in (0, 1) for each token: the first token whose cumulated probability passes
u. u is a hash of the request's seed and the token's place among the generated ones, so a request's stream of numbers
doesn't depend on its neighbours, on preemption, on the device or on torch.

All rows of a step are computed together, and each row's result depends on that row alone.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from attnc.runtime.filters import keep_min_p, keep_top_k, keep_top_p, penalize, temper
from attnc.runtime.sampling_params import SamplingParams

SHORTLIST = 512
"""Rows with a smaller top-k are drawn from their best 512 tokens: sorting a whole vocabulary takes far longer."""


@dataclass(frozen=True)
class Row:
    """One row of logits, and what its request wants of it."""

    params: SamplingParams
    seed: int
    """0 … 2⁶⁴ − 1."""
    index: int
    """How many tokens the request has generated before this one."""
    seen: Sequence[int]
    """Ids of prompt and generated tokens; read only under a repetition penalty."""


@dataclass(frozen=True)
class Sampled:
    """A token, with the log-probabilities the request asked for.

    These are of the model's own distribution: the logits as they came, before penalty, temperature and filters.
    """

    token: int
    logprob: float | None = None
    """Of the token itself; None where the request asked for none."""
    top: tuple[tuple[int, float], ...] = ()
    """(id, log-probability) of the most probable tokens, best first."""


def sample(logits: Tensor, rows: Sequence[Row]) -> list[Sampled | None]:
    """A token for each row of ``logits`` [R, vocabulary], of any float dtype.

    None for a row that is no distribution: it holds NaN or +inf, or nothing but −inf. Raises ValueError where the
    rows are not as many as logits.
    """
    if logits.dim() != 2 or logits.shape[0] != len(rows):
        raise ValueError(f"sampling: {len(rows)} rows are wanted, the logits have shape {list(logits.shape)}")
    if not rows:
        return []
    scores = logits.float()
    proper = scores.amax(-1).isfinite()
    if not proper.all():
        scores = scores.masked_fill(~proper[:, None], 0.0)
    tokens = _choose(scores, rows)
    found = _describe(scores, tokens, rows)
    return [one if good else None for one, good in zip(found, proper.tolist(), strict=True)]


def uniform(seed: int, index: int) -> float:
    """The number in (0, 1) that draws token ``index`` of a request: an odd multiple of 2⁻⁵³."""
    digest = blake2b(struct.pack("<QQ", seed, index), digest_size=8).digest()
    return float((int.from_bytes(digest, "little") >> 12) * 2 + 1) * 2.0**-53


def _choose(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Token ids i64[R]."""
    penalties = [None if row.params.repetition_penalty == 1 else row.params.repetition_penalty for row in rows]
    scores = penalize(scores, [row.seen for row in rows], penalties)
    tokens = scores.argmax(-1)
    drawn = [place for place, row in enumerate(rows) if row.params.temperature > 0]
    if drawn:
        tokens[drawn] = _draw(scores[drawn], [rows[place] for place in drawn])
    return tokens


def _draw(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Token ids i64[R] drawn at temperatures above 0."""
    scores = temper(scores, [None if row.params.temperature == 1 else row.params.temperature for row in rows])
    tokens = torch.empty(len(rows), dtype=torch.int64, device=scores.device)
    short, ids = _shortlists(scores, rows)
    if short:
        part = scores[short].gather(1, ids)
        tokens[short] = ids.gather(1, _pick(part, [rows[place] for place in short])[:, None])[:, 0]
    full = sorted(set(range(len(rows))) - set(short))
    if full:
        tokens[full] = _pick(scores[full], [rows[place] for place in full])
    return tokens


def _shortlists(scores: Tensor, rows: Sequence[Row]) -> tuple[list[int], Tensor]:
    """Rows whose top-k lies within a short list, ties included, and their ids i64[r, SHORTLIST] in rising order."""
    limits = {place: row.params.top_k for place, row in enumerate(rows) if row.params.top_k is not None}
    places = [place for place, k in limits.items() if k < SHORTLIST < scores.shape[-1]]
    if not places:
        return [], torch.empty(0, SHORTLIST, dtype=torch.int64, device=scores.device)
    values, ids = scores[places].topk(SHORTLIST)
    last = torch.tensor([limits[place] - 1 for place in places], device=scores.device)
    whole = values[:, -1] < values.gather(1, last[:, None])[:, 0]
    kept = [place for place, inside in zip(places, whole.tolist(), strict=True) if inside]
    return kept, ids[whole].sort().values


def _pick(scores: Tensor, rows: Sequence[Row]) -> Tensor:
    """Columns i64[R] drawn from ``scores`` [R, W] after the filters."""
    params = [row.params for row in rows]
    scores = keep_top_k(scores, [one.top_k for one in params])
    scores = keep_top_p(scores, [one.top_p if one.top_p < 1 else None for one in params])
    scores = keep_min_p(scores, [one.min_p if one.min_p > 0 else None for one in params])
    mass = scores.double().softmax(-1).cumsum(-1)
    u = torch.tensor([uniform(row.seed, row.index) for row in rows], dtype=torch.float64, device=scores.device)
    return torch.searchsorted(mass, u[:, None] * mass[:, -1:], right=True)[:, 0]


def _describe(scores: Tensor, tokens: Tensor, rows: Sequence[Row]) -> list[Sampled]:
    """The tokens with their log-probabilities under ``scores``, for the rows that want any."""
    found = [Sampled(token) for token in tokens.tolist()]
    wanted = {place: row.params.logprobs for place, row in enumerate(rows) if row.params.logprobs is not None}
    if not wanted:
        return found
    places = list(wanted)
    logs = scores[places].log_softmax(-1)
    own = logs.gather(1, tokens[places][:, None])[:, 0].tolist()
    values, ids = logs.topk(min(max(wanted.values()), logs.shape[-1]))
    for place, logprob, best, names in zip(places, own, values.tolist(), ids.tolist(), strict=True):
        top = tuple(zip(names, best, strict=True))[: wanted[place]]
        found[place] = Sampled(found[place].token, logprob, top)
    return found
