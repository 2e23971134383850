"""One causal decoder: how it is made, called and exported, and what it says greedily."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases.transformers import VOCABULARY

Build = Callable[[str], nn.Module]
"""Makes a model with the attention ``eager`` or ``sdpa``; our own models ignore which."""
BATCH = 64
"""The largest batch a decoder is exported with."""


@dataclass(frozen=True)
class Source:
    """What an encoder reads: token ids [B, T], or frames of sound or pixels [B, *shape]."""

    name: str = "input_ids"
    shape: tuple[int, ...] = ()
    """Of one row of frames or pixels; empty for token ids."""
    grows: int | None = 1
    """The dimension that is as long as the caller wants; None: every row has one shape."""
    mask: bool = False
    """The model needs an ``attention_mask`` [B, T] beside the ids: ones."""

    def inputs(self, batch: int, length: int, vocabulary: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Fresh random keyword arguments."""
        if not self.shape:
            ids = torch.randint(3, vocabulary, (batch, length), generator=generator)
            return {self.name: ids, **({"attention_mask": torch.ones_like(ids)} if self.mask else {})}
        shape = [batch, *self.shape]
        if self.grows is not None:
            shape[self.grows] = length
        return {self.name: torch.randn(shape, generator=generator)}


@dataclass(frozen=True)
class Decoder:
    """A decoder with random weights: tokens in, logits [B, S, vocabulary] out."""

    name: str
    build: Build
    limit: int
    """The largest length it may be exported with: where a model guards on its longest, one less."""
    tokens: str = "input_ids"
    """The input that holds the decoder's tokens."""
    source: Source | None = None
    vocabulary: int = VOCABULARY

    def make(self, implementation: str = "eager") -> nn.Module:
        """The model in eval mode in float32, the same weights each time."""
        torch.manual_seed(0)
        return stirred(self.build(implementation).float()).eval()

    def inputs(self, batch: int, length: int, seed: int = 0, source_length: int = 19) -> dict[str, Tensor]:
        """Fresh random keyword arguments: the tokens int64 [batch, length], and what the encoder reads."""
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(3, self.vocabulary, (batch, length), generator=generator)
        source = self.source.inputs(batch, source_length, self.vocabulary, generator) if self.source else {}
        return {**source, self.tokens: ids}

    def logits(self, model: nn.Module, ids: Tensor, **source: Tensor) -> Tensor:
        """[B, S, vocabulary] of ids int64 [B, S], everything computed anew; ``source``: what the encoder reads."""
        with torch.no_grad():
            return said(model(**source, **{self.tokens: ids}, **fixed(model)))

    def dynamic(self) -> dict[str, dict[int, Any]]:
        """``dynamic_shapes`` of :meth:`inputs`: batch B, length S up to the limit, encoder length E."""
        batch, length = torch.export.Dim("B", min=2, max=BATCH), torch.export.Dim("S", min=2, max=self.limit)
        shapes: dict[str, dict[int, Any]] = {self.tokens: {0: batch, 1: length}}
        for name in self.inputs(2, 2).keys() - {self.tokens}:
            assert self.source
            grows = {} if self.source.grows is None else {self.source.grows: torch.export.Dim("E", min=4, max=128)}
            shapes[name] = {0: batch, **grows}
        return shapes


def fixed(model: nn.Module) -> dict[str, Any]:
    """Keyword arguments that are no tensors: no cache, where the model has one."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def said(output: Any) -> Tensor:
    """The logits in what a model returns: a tensor, or the first field of an output of Hugging Face's library."""
    logits = output if isinstance(output, Tensor) else output[0]
    assert isinstance(logits, Tensor)
    return logits


def export(decoder: Decoder, model: nn.Module) -> torch.export.ExportedProgram:
    """``model`` exported without a cache, batch and length dynamic; an encoder has a length of its own."""
    inputs, constant = decoder.inputs(3, 37), fixed(model)
    shapes = {**decoder.dynamic(), **dict.fromkeys(constant)}
    with torch.no_grad():
        return torch.export.export(
            model,
            (),
            {**inputs, **constant},
            dynamic_shapes={name: shapes[name] for name in (*inputs, *constant)},
            strict=False,
        )


def stirred(model: nn.Module) -> nn.Module:
    """``model`` with all trained weights drawn anew, in place: nothing hides behind zeros and ones.

    Matrices get standard deviation 1/√fan_in, so that scores are of order 1; vectors (norms, biases, sinks) are moved
    by 0.1; a stored vector of zeros (a bias that isn't trained) becomes random.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad and parameter.dim() >= 2:
                parameter.normal_(0.0, _fan_in(parameter) ** -0.5, generator=generator)
            elif parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
        for buffer in model.buffers():
            if buffer.is_floating_point() and not buffer.any():
                buffer.normal_(0.0, 0.1, generator=generator)
    return model


def _fan_in(parameter: Tensor) -> int:
    """Inputs of one output: the last dimension, and of a convolution (a kernel last) the channels as well."""
    convolution = parameter.dim() == 4 or parameter.shape[-1] < 8
    return parameter[0].numel() if convolution else parameter.shape[-1]


@dataclass(frozen=True)
class Greedy:
    """What a model says when the likeliest token is taken each time; all of it by full recompute."""

    tokens: tuple[int, ...]
    logits: Tensor
    """[steps, vocabulary]: what each token was chosen from."""

    @property
    def margins(self) -> Tensor:
        """[steps]: how far each token was ahead of the second. Below the error allowed, another is right as well."""
        best = self.logits.topk(2).values
        return best[:, 0] - best[:, 1]


def greedy(
    decoder: Decoder, model: nn.Module, prompt: Tensor, steps: int, source: Mapping[str, Tensor] | None = None
) -> Greedy:
    """``steps`` tokens after ``prompt`` int64 [L]; ``source``: one row [1, …] of what the encoder reads."""
    ids, rows = prompt[None], []
    for _ in range(steps):
        rows.append(decoder.logits(model, ids, **(source or {}))[0, -1])
        ids = torch.cat((ids, rows[-1].argmax()[None, None]), 1)
    return Greedy(tuple(ids[0, len(prompt) :].tolist()), torch.stack(rows))
