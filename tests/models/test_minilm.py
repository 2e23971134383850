"""MiniLM with its real weights, against transformers' own BERT."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from attnc.models import minilm
from attnc.models.bert import Bert

SENTENCES = ["A cat sits on the mat.", "A kitten is resting on a rug.", "The stock market fell sharply today."]


@pytest.fixture(scope="module")
def model() -> Bert:
    return minilm.load()


def test_equals_transformers(model: Bert) -> None:
    from transformers import BertModel

    theirs = BertModel.from_pretrained(minilm.folder(), attn_implementation="eager").eval()
    inputs = minilm.tokenize(SENTENCES)
    assert int(inputs["attention_mask"].sum()) < inputs["attention_mask"].numel(), "no padding: the mask goes untested"
    with torch.no_grad():
        ours = model(**inputs)
        expected = theirs(**inputs).last_hidden_state
    real = inputs["attention_mask"].bool()
    assert (ours - expected)[real].abs().max() < 1e-5


def test_similar_sentences_are_closer(model: Bert) -> None:
    vectors = minilm.encode(model, SENTENCES)
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(3))
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.5
    assert similarity[0, 2] < 0.2
    assert similarity[1, 2] < 0.2


def test_padding_does_not_change_a_sentence(model: Bert) -> None:
    alone = minilm.encode(model, SENTENCES[:1])
    torch.testing.assert_close(minilm.encode(model, SENTENCES)[:1], alone, atol=1e-5, rtol=0)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "gpt2", "hidden_act": "gelu_new"}')
    with pytest.raises(ValueError, match="gpt2, gelu_new"):
        minilm.load(tmp_path)
