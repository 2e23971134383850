"""A text scored with several caches of keys and values, beside the cache in the model's own dtype.

All programs are derived from one capture and read the text in lockstep, so no logits but those of a step are kept.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from attnc.compiler.cache_report import CacheReport, CacheRow
from attnc.compiler.derive.capture import capture
from attnc.compiler.derive.program import DerivedProgram, program_of
from attnc.compiler.derive.streams import Pages
from attnc.compiler.generator import stores
from attnc.runtime.kv.specs import GroupSpec
from attnc.runtime.scoring import CHUNK, chosen, forced_logits, perplexity

QUANTISED = ("int8", "fp8", "int8/int4", "int4")
"""What is compared unless something else is asked for."""


def score_caches(
    model: nn.Module,
    tokens: Sequence[int],
    kvs: Sequence[str] = QUANTISED,
    *,
    name: str = "",
    max_length: int | None = None,
    page_size: int = 16,
) -> CacheReport:
    """Score ``tokens`` with keys and values kept in the model's own dtype and as each of ``kvs`` says.

    ``kvs``: names as ``Generator`` takes them. Of a text longer than ``max_length``, or than the model takes, the
    beginning is scored. Raises NotDerivable as ``Generator`` does, and ValueError for a name that is none, fewer than
    two tokens, or a model that reads an encoder, for which a text alone says nothing.
    """
    wanted = [(None, None), *map(stores, kvs)]
    if len(tokens) < 2:
        raise ValueError(f"{len(tokens)} token{'s are' if not tokens else ' is'} no text: there is nothing to score")
    captured = capture(model, longest=max_length)
    if captured.encoder:
        raise ValueError(f"{type(model).__name__} reads an encoder: a text alone can't be scored")
    programs = [program_of(captured, Pages(page_size, *names), max_length) for names in wanted]
    fed = min(len(tokens) - 1, programs[0].max_length)
    tallies = _read(programs, list(tokens[: fed + 1]))
    own = torch.cat(tallies[0].likelihoods).double()
    each = zip((_own(programs[0]), *kvs), programs, tallies, strict=True)
    rows = tuple(_row(kv, program, tally, own) for kv, program, tally in each)
    return CacheReport(name or type(model).__name__, fed, rows)


def manual() -> str:
    """Text to score that every Python brings along: of its manual, what objects are and which types there are.

    Raises ModuleNotFoundError where Python was installed without it.
    """
    from pydoc_data.topics import topics

    return "\n".join(topics[name] for name in ("objects", "types"))


class _Tally:
    """Sums over the places of a text, for one store."""

    def __init__(self) -> None:
        self.likelihoods: list[Tensor] = []
        self.largest = torch.zeros(())
        self.mean = self.divergence = self.same = 0.0

    def add(self, own: Tensor, logits: Tensor, targets: Tensor) -> None:
        """Add rows of ``own`` and this store's logits [rows, vocabulary], and the tokens they judge."""
        self.likelihoods.append(chosen(logits, targets))
        errors = torch.where(logits == own, 0.0, (logits - own).abs())  # where both hide a token by −inf: none
        self.largest = torch.maximum(self.largest, errors.max())  # NaN stays
        self.mean += float(errors.mean(-1).sum())
        self.divergence += float(_divergence(own.log_softmax(-1), logits.log_softmax(-1)).sum())
        self.same += float((logits.argmax(-1) == own.argmax(-1)).sum())


def _read(programs: Sequence[DerivedProgram], tokens: list[int]) -> list[_Tally]:
    """What the first program's logits differ by from each one's, in lockstep."""
    tallies = [_Tally() for _ in programs]
    targets = [torch.tensor(tokens[i : i + CHUNK]) for i in range(1, len(tokens), CHUNK)]
    for judged, *steps in zip(targets, *(forced_logits(program, tokens) for program in programs), strict=True):
        own, *_ = steps = [logits.float() for logits in steps]
        for tally, logits in zip(tallies, steps, strict=True):
            tally.add(own, logits, judged)
    return tallies


def _row(kv: str, program: DerivedProgram, tally: _Tally, own: Tensor) -> CacheRow:
    """The means of a tally; ``own`` [places]: log-likelihoods in the model's own dtype."""
    likelihoods, places = torch.cat(tally.likelihoods).double(), len(own)
    lost = own - likelihoods
    change = float(torch.expm1(lost.mean()))
    size = token_bytes(program.groups)
    return CacheRow(
        kv,
        perplexity=perplexity(likelihoods),
        change=change,
        change_error=(1 + change) * float(lost.std(correction=0)) / math.sqrt(places),
        largest_error=float(tally.largest),
        mean_error=tally.mean / places,
        divergence=tally.divergence / places,
        same_token=tally.same / places,
        token_bytes=size,
        capacity=token_bytes(program.groups, "bf16") / size,
    )


def token_bytes(groups: Sequence[GroupSpec], store: str | None = None) -> int:
    """Bytes of one token in all layers, scales included; ``store``: if all were kept in that."""
    streams = [stream for group in groups for site in group.sites.values() for stream in site]
    return sum(dataclasses.replace(stream, store=store or stream.store).token_bytes for stream in streams)


def _own(program: DerivedProgram) -> str:
    """What the model's own dtype is called: of several, each once."""
    found = [s.store for group in program.groups for site in group.sites.values() for s in site]
    return f"{'/'.join(dict.fromkeys(found))} (own)"


def _divergence(own: Tensor, other: Tensor) -> Tensor:
    """KL of rows of log-probabilities [rows, vocabulary] → [rows]; a token that is hidden adds nothing."""
    return (own.exp() * (own - other).masked_fill(own == -math.inf, 0.0)).sum(-1)
