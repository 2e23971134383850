"""What is left of a distribution before a token is drawn: temperature, top-k, top-p, min-p, repetition penalty.

Every function takes scores f32[R, W], one setting for each row (None: the row stays as it is), and returns scores of
the same shape with −inf where a token is ruled out. They write nothing in place. Each row is computed from itself
alone. Thresholds and ties are those of the processors in transformers: what equals a threshold is kept by top-k and
min-p; of equals at the border of top-p the ones with the higher ids are kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Setting = float | int | None


def temper(scores: Tensor, temperatures: Sequence[float | None]) -> Tensor:
    """``scores`` divided by the temperature (> 0); a quotient beyond float32 becomes its largest number."""
    limit = torch.finfo(scores.dtype).max
    return _on_rows(scores, temperatures, lambda part, t: (part / t).clamp(max=limit))


def keep_top_k(scores: Tensor, counts: Sequence[int | None]) -> Tensor:
    """The k (≥ 1) highest scores of a row, and those equal to the last of them; all where k ≥ W."""
    return _on_rows(scores, [k if k is None else min(k, scores.shape[-1]) for k in counts], _top_k)


def keep_top_p(scores: Tensor, masses: Sequence[float | None]) -> Tensor:
    """The fewest most probable tokens whose probabilities add up to at least p; never none."""
    return _on_rows(scores, [p if p is None else 1.0 - p for p in masses], _top_p)


def keep_min_p(scores: Tensor, shares: Sequence[float | None]) -> Tensor:
    """Tokens at least ``share`` (0 … 1) times as probable as the most probable one."""
    return _on_rows(scores, shares, _min_p)


def penalize(scores: Tensor, seen: Sequence[Iterable[int]], penalties: Sequence[float | None]) -> Tensor:
    """Positive scores of the ``seen`` tokens divided by the penalty (> 0), negative ones multiplied (Keskar 2019).

    A token counts once, however often it was seen. Raises IndexError for an id outside 0 … W − 1.
    """
    entries = [(row, token, p) for row, p in enumerate(penalties) if p is not None for token in set(seen[row])]
    if not entries:
        return scores
    rows, tokens, factors = zip(*entries, strict=True)
    at = torch.tensor(rows, device=scores.device), torch.tensor(tokens, device=scores.device)
    factor = torch.tensor(factors, dtype=scores.dtype, device=scores.device)
    old = scores[at]
    return scores.index_put(at, torch.where(old < 0, old * factor, old / factor))


def _on_rows(scores: Tensor, settings: Sequence[Setting], rule: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """``rule(part, column)`` on the rows that have a setting; ``column`` [r, 1] holds their settings."""
    active = [row for row, setting in enumerate(settings) if setting is not None]
    if not active:
        return scores
    chosen = [settings[row] for row in active]
    dtype = torch.int64 if all(isinstance(setting, int) for setting in chosen) else scores.dtype
    column = torch.tensor(chosen, dtype=dtype, device=scores.device)[:, None]
    if len(active) == len(settings):
        return rule(scores, column)
    index = torch.tensor(active, device=scores.device)
    return scores.index_copy(0, index, rule(scores[index], column))


def _top_k(scores: Tensor, k: Tensor) -> Tensor:
    best = scores.topk(int(k.max())).values
    return scores.masked_fill(scores < best.gather(1, k - 1), -math.inf)


def _top_p(scores: Tensor, rest: Tensor) -> Tensor:
    """Drops the least probable tokens as long as they add up to no more than ``rest`` = 1 − p."""
    ordered, index = scores.sort(stable=True)
    dropped = ordered.softmax(-1).cumsum(-1) <= rest
    dropped[:, -1] = False
    return scores.masked_fill(dropped.scatter(1, index, dropped), -math.inf)


def _min_p(scores: Tensor, share: Tensor) -> Tensor:
    probabilities = scores.softmax(-1)
    return scores.masked_fill(probabilities < share * probabilities.amax(-1, keepdim=True), -math.inf)
