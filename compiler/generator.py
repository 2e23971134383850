"""``attnc.Generator``: a causal decoder served with paged keys and values, without a line of its code changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor, nn

from attnc.codegen.paged_plan import STORES
from attnc.compiler.derive.capture import EncoderInput
from attnc.compiler.derive.entry import Verify, derive_program
from attnc.compiler.derive.past.roles import ModelCache
from attnc.compiler.derive.program import DerivedProgram
from attnc.compiler.derive.streams import Pages
from attnc.runtime.engine import Engine
from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.encoder import EncoderCache
from attnc.runtime.kv.specs import GroupSpec
from attnc.runtime.requests import Finish, Output
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.scheduler import Limits

STORE_NAMES = {"int8": "i8", "fp8": "f8e4m3", "int4": "i4", **{name: name for name in STORES}}
"""What a user calls a store → its name."""
CACHE_BYTES = 1 << 30


class Tokenizer(Protocol):
    """Text to ids and back, as the ``tokenizers`` and ``transformers`` libraries have it."""

    def encode(self, text: str) -> Any: ...

    def decode(self, ids: Sequence[int]) -> str: ...


@dataclass(frozen=True)
class Generation:
    """What came of one prompt."""

    tokens: tuple[int, ...]
    text: str
    """Empty without a tokenizer."""
    logprobs: tuple[float, ...]
    """Of each token, where asked for."""
    finish: Finish
    detail: str = ""
    """What stood in the way of a request that was refused or failed."""


class Generator:
    """Generates from a causal decoder.

    The model is traced, proved to work token by token, and turned into a program over pages (``program``); requests of
    any length run together in it. Raises NotDerivable, with a code, the operator and its source line, for a model that
    has no such program.

    ``kv``: how keys and values are stored: ``f32``, ``bf16``, ``f16``, ``int8``, ``fp8``, ``int4``, two of them as
    ``int8/int4`` (keys, values), or None for the model's own dtype. ``cache_bytes``: memory for pages; at least one
    request of ``max_length`` fits in any case. ``encoder``: what an encoder-decoder's encoder reads, where that isn't
    known from a Hugging Face config; the prompt is then the decoder's. ``cache``: how the model keeps keys and values
    of its own, where the names of its inputs don't tell; its cache is taken out, and pages are put in its place.
    ``batch_invariant``: logits have the same bits whatever requests run together and however prompts are cut; refused
    for models with products that can't keep that. ``verify="numeric"``: random tokens are run through the model's graph
    in float64 and through the program, as a prefill, in chunks and one by one; NumericError where a row differs.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Tokenizer | None = None,
        *,
        max_length: int | None = None,
        token_input: str | None = None,
        encoder: Mapping[str, EncoderInput] | None = None,
        cache: ModelCache | None = None,
        kv: str | None = None,
        page_size: int = 16,
        cache_bytes: int = CACHE_BYTES,
        limits: Limits | None = None,
        stop_tokens: Sequence[int] = (),
        batch_invariant: bool = False,
        verify: Verify | None = None,
    ) -> None:
        pages = Pages(page_size, *stores(kv))
        self.program: DerivedProgram = derive_program(
            model,
            max_length=max_length,
            token_input=token_input,
            encoder=encoder,
            pages=pages,
            cache=cache,
            batch_invariant=batch_invariant,
            verify=verify,
        )
        self.tokenizer = tokenizer
        self.stop_tokens = tuple(stop_tokens)
        self.engine = Engine(
            self.program,
            KVCache(self.program.groups, pages_for(self.program.groups, self.program.max_length, cache_bytes)),
            encoder=_encoder_cache(self.program.encoder_groups, cache_bytes),
            detokenizer=tokenizer,
            limits=limits,
        )

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        params: SamplingParams | None = None,
        *,
        inputs: Sequence[Mapping[str, Tensor]] | None = None,
        **settings: Any,
    ) -> list[Generation]:
        """All of what follows each prompt, in order; ``settings`` are fields of SamplingParams.

        ``inputs``: for each prompt what its encoder reads, by name, with a batch of 1.
        """
        chosen = self._params(params, settings)
        given = [None] * len(prompts) if inputs is None else inputs
        ids = [self._add(prompt, chosen, read) for prompt, read in zip(prompts, given, strict=True)]
        made: dict[int, list[Output]] = {number: [] for number in ids}
        while any(not outputs or outputs[-1].finish is None for outputs in made.values()):
            for output in self.engine.step():
                made[output.request].append(output)
        return [_generation(made[number]) for number in ids]

    def stream(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams | None = None,
        *,
        inputs: Mapping[str, Tensor] | None = None,
        **settings: Any,
    ) -> Iterator[Output]:
        """The outputs of one prompt as they come; closing the iterator, once begun, cancels the request."""
        return self.engine.stream(self._add(prompt, self._params(params, settings), inputs))

    def _add(self, prompt: str | Sequence[int], params: SamplingParams, inputs: Mapping[str, Tensor] | None) -> int:
        encoded = self.program.encode(inputs) if inputs is not None else None
        return self.engine.add(self._ids(prompt), params, encoded)

    def _params(self, params: SamplingParams | None, settings: dict[str, Any]) -> SamplingParams:
        chosen = replace(params or SamplingParams(), **settings)
        return replace(chosen, stop_tokens=(*chosen.stop_tokens, *self.stop_tokens))

    def _ids(self, prompt: str | Sequence[int]) -> Sequence[int]:
        if not isinstance(prompt, str):
            return prompt
        if self.tokenizer is None:
            raise ValueError("a prompt of text needs a tokenizer: Generator(model, tokenizer), or give token ids")
        found = self.tokenizer.encode(prompt)
        ids: Sequence[int] = getattr(found, "ids", found)
        return ids


def stores(kv: str | None) -> tuple[str | None, str | None]:
    """The stores of keys and values that ``kv`` names. Raises ValueError for a name that is none."""
    if kv is None:
        return None, None
    names = kv.split("/")
    if len(names) > 2 or any(name not in STORE_NAMES for name in names):
        raise ValueError(f"kv={kv!r}: give one of {', '.join(STORE_NAMES)}, or two as int8/int4 (keys/values)")
    return STORE_NAMES[names[0]], STORE_NAMES[names[-1]]


def pages_for(groups: Sequence[GroupSpec], max_length: int, cache_bytes: int) -> dict[str, int]:
    """Pages of each layer group's pool: all can hold as many tokens, one request of ``max_length`` at least."""
    per_token = sum(group.page_bytes / group.page_size for group in groups)
    tokens = max(max_length, int(cache_bytes / per_token))
    return {group.name: group.pages(tokens) + 1 for group in groups}


def _encoder_cache(groups: Sequence[GroupSpec], cache_bytes: int) -> EncoderCache | None:
    if not groups:
        return None
    (group,) = groups
    return EncoderCache(group, pages_for(groups, 1, cache_bytes)[group.name])


def _generation(outputs: Sequence[Output]) -> Generation:
    last = outputs[-1]
    assert last.finish is not None
    return Generation(
        tuple(output.token for output in outputs if output.token is not None),
        "".join(output.text for output in outputs),
        tuple(output.logprob for output in outputs if output.logprob is not None),
        last.finish,
        last.detail,
    )
