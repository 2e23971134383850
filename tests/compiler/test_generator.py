"""``attnc.Generator``: text and tokens from unmodified decoders."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import attnc
from attnc.compiler.derive.capture import EncoderInput
from attnc.compiler.derive.entry import derive_program
from attnc.compiler.generator import pages_for, stores
from attnc.runtime import skinny_choice
from attnc.runtime.engine import Engine
from attnc.runtime.kv.cache import KVCache
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.scheduler import Limits
from benchmarks.cases.decoders import decoder
from benchmarks.cases.refusals import refusal


class Bytes:
    """A tokenizer of bytes."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: list[int]) -> str:
        return bytes(i % 256 for i in ids).decode(errors="replace")


@pytest.fixture(scope="module", autouse=True)
def packed() -> Iterator[None]:
    """Linear layers over packed weights, whatever is faster here."""
    with skinny_choice.forced(True):
        yield


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return decoder("attnc-llama").make()


@pytest.fixture(scope="module")
def generator(model: nn.Module) -> attnc.Generator:
    return attnc.Generator(model, Bytes(), max_length=96, limits=Limits(max_tokens=16, max_requests=4, chunk=7))


def by_full_recompute(model: nn.Module, prompt: list[int], steps: int) -> list[int]:
    ids = torch.tensor([prompt])
    for _ in range(steps):
        with torch.no_grad():
            logits: Tensor = model(ids)
        ids = torch.cat((ids, logits[0, -1].argmax()[None, None]), 1)
    return ids[0, len(prompt) :].tolist()


def test_tokens_are_those_of_full_recompute_alone_and_together(generator: attnc.Generator, model: nn.Module) -> None:
    prompts = [list(range(n, 2 * n)) for n in (3, 1, 20, 9, 33, 2)]
    expected = [by_full_recompute(model, prompt, 12) for prompt in prompts]
    together = generator.generate(prompts, max_new_tokens=12)
    assert [list(made.tokens) for made in together] == expected
    alone = [generator.generate([prompt], max_new_tokens=12)[0] for prompt in prompts]
    assert [made.tokens for made in alone] == [made.tokens for made in together]
    assert {made.finish for made in together} == {"length"}


def test_bits_are_the_same_alone_and_together(model: nn.Module) -> None:
    """As many rows as there are tokens, in steps of 16, of 5 and of 1."""
    prompts = [list(range(n, 2 * n)) for n in (3, 1, 40, 9, 33, 2)]
    program = derive_program(model, max_length=64, batch_invariant=True)
    found = []
    for limits, together in ((Limits(16, 4, 7), 6), (Limits(5, 2, 5), 6), (Limits(64, 8, 64), 1)):
        engine = Engine(program, KVCache(program.groups, pages_for(program.groups, 64, 1 << 20)), limits=limits)
        made: dict[int, list[float]] = {}
        for begin in range(0, 6, together):
            for prompt in prompts[begin : begin + together]:
                engine.add(prompt, SamplingParams(max_new_tokens=8, logprobs=0))
            for output in engine.run():
                assert output.logprob is not None
                made.setdefault(output.request, []).append(output.logprob)
        found.append(made)
    assert found[0] == found[1] == found[2] and len({tuple(row) for row in found[0].values()}) == 6


@pytest.mark.slow
def test_a_model_whose_bits_depend_on_rows_is_refused() -> None:
    with pytest.raises(attnc.NotDerivable, match="batch_invariant: the bits of") as caught:
        derive_program(decoder("mixtral").make(), max_length=32, batch_invariant=True)
    assert caught.value.code == "ATTNC-DERIVE-BATCH"


def test_text_is_streamed(generator: attnc.Generator) -> None:
    pieces = list(generator.stream("To be", max_new_tokens=6))
    whole = generator.generate(["To be"], max_new_tokens=6)[0]
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [piece.token for piece in pieces if piece.token is not None] == list(whole.tokens)


def test_sampling_depends_on_the_seed_only(generator: attnc.Generator) -> None:
    prompts = [[1, 2, 3], [9] * 20, [4, 5]]
    first = generator.generate(prompts, max_new_tokens=8, temperature=1.0, seed=3)
    again = [generator.generate([p], max_new_tokens=8, temperature=1.0, seed=3)[0] for p in prompts]
    other = generator.generate(prompts, max_new_tokens=8, temperature=1.0, seed=4)
    assert [g.tokens for g in first] == [g.tokens for g in again] != [g.tokens for g in other]


def test_a_request_too_long_is_refused_before_it_runs(generator: attnc.Generator) -> None:
    with pytest.raises(ValueError, match="96"):
        generator.generate([[1] * 90], max_new_tokens=8)
    with pytest.raises(ValueError, match="vocabulary"):
        generator.generate([[99999]])


def test_text_needs_a_tokenizer(model: nn.Module) -> None:
    plain = attnc.Generator(model, max_length=32, kv="int8/int4")
    with pytest.raises(ValueError, match="tokenizer"):
        plain.generate(["text"])
    made = plain.generate([[5, 6, 7]], max_new_tokens=4)[0]
    assert len(made.tokens) == 4 and made.text == ""
    keys, values = next(iter(plain.program.groups[0].sites.values()))
    assert (keys.store, values.store) == ("i8", "i4")


def test_a_model_without_an_incremental_form_is_refused() -> None:
    with pytest.raises(attnc.NotDerivable) as caught:
        attnc.Generator(refusal("bidirectional").bad(), max_length=32)
    assert caught.value.code == "ATTNC-DERIVE-NOT-CAUSAL"
    assert "net.py" in str(caught.value)


def test_names_of_stores() -> None:
    assert stores(None) == (None, None)
    assert stores("int8") == ("i8", "i8")
    assert stores("f16/fp8") == ("f16", "f8e4m3")
    for wrong in ("int7", "int8/int8/int8", ""):
        with pytest.raises(ValueError, match="int8"):
            stores(wrong)


def test_one_request_of_the_greatest_length_always_fits(generator: attnc.Generator) -> None:
    pages = pages_for(generator.program.groups, 96, cache_bytes=1)
    assert all(pages[g.name] - 1 >= g.pages(96) for g in generator.program.groups)


@pytest.mark.slow
def test_an_encoder_is_read_by_its_own_request_only() -> None:
    """The prompts are the same: what differs is in the encoders, so a shared prefix would show."""
    pair = decoder("attnc-transformer")
    model = pair.make()
    examples = pair.inputs(3, 37)
    encoder = {name: EncoderInput(x, 1) for name, x in examples.items() if name != pair.tokens}
    generator = attnc.Generator(
        model,
        max_length=48,
        token_input=pair.tokens,
        encoder=encoder,
        limits=Limits(max_tokens=8, max_requests=3, chunk=5),
    )
    prompt = list(range(20))
    sources = [
        {name: x for name, x in pair.inputs(1, 1, seed=i, source_length=n).items() if name != pair.tokens}
        for i, n in enumerate((9, 4, 17))
    ]
    made = generator.generate([prompt] * 3, inputs=sources, max_new_tokens=6, logprobs=0)
    for source, generation in zip(sources, made, strict=True):
        ids, chances = torch.tensor([prompt]), []
        for _ in range(6):
            row = pair.logits(model, ids, **source)[0, -1].log_softmax(-1)
            ids = torch.cat((ids, row.argmax()[None, None]), 1)
            chances.append(row.max().item())
        assert list(generation.tokens) == ids[0, 20:].tolist()
        assert generation.logprobs == pytest.approx(chances, abs=1e-5)
    first, second, third = (generation.logprobs[0] for generation in made)
    assert abs(first - second) > 1e-3 and abs(second - third) > 1e-3
    with pytest.raises(ValueError, match="encoder"):
        generator.generate([prompt], max_new_tokens=6)


@pytest.mark.slow
def test_a_generator_can_be_verified() -> None:
    for name in ("attnc-llama", "deepseek_v3", "t5"):
        pair = decoder(name)
        attnc.Generator(pair.make(), max_length=48, token_input=pair.tokens, verify="numeric")
