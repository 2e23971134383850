"""Hugging Face folders as checkpoints: model, tokenizer and end tokens; damage is named."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from attnc.compiler.checkpoints import CheckpointError, load_checkpoint
from attnc.compiler.cli import hf
from tests.compiler.checkpoints import tiny

TEMPLATE = (
    "{% for m in messages %}{{ m.role }}> {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}bot>{% endif %}"
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("hf") / "tiny-llama"
    return folder, tiny.hf_folder(folder, chat_template=TEMPLATE)


@pytest.fixture
def copied(saved: tuple[Path, Any], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "copy"))


def test_a_checkpoint_is_whole(saved: tuple[Path, Any]) -> None:
    folder, made = saved
    loaded = load_checkpoint(str(folder))
    assert (loaded.name, loaded.chat_template, loaded.eos_token_ids) == ("tiny-llama", TEMPLATE, (1,))
    assert not loaded.model.training
    assert torch.equal(tiny.logits(loaded.model), tiny.logits(made))
    assert loaded.tokenizer is not None
    expected = tiny.tokenizer()(tiny.UNSEEN)["input_ids"]
    assert loaded.tokenizer.encode(tiny.UNSEEN) == expected
    assert loaded.tokenizer.decode([*expected, 1]) == tiny.UNSEEN
    chat = loaded.tokenizer.chat([{"role": "user", "content": "fox"}, {"role": "bot", "content": "dog"}])
    assert loaded.tokenizer.decode(chat) == "user> fox\nbot> dog\nbot>"


def test_the_generation_config_says_what_ends_a_text(copied: Path) -> None:
    file = copied / "generation_config.json"
    file.write_text(json.dumps({"eos_token_id": [9, 1]}))
    assert load_checkpoint(copied).eos_token_ids == (9, 1)
    file.unlink()
    config = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps({**config, "eos_token_id": 5}))
    assert load_checkpoint(copied).eos_token_ids == (5,)
    (copied / "config.json").write_text(json.dumps({**config, "eos_token_id": None}))
    assert load_checkpoint(copied).eos_token_ids == (1,)  # the tokenizer's


def test_a_bare_tokenizer_file_is_taken_at_its_word(copied: Path) -> None:
    (copied / "tokenizer_config.json").unlink()
    loaded = load_checkpoint(copied)
    assert loaded.tokenizer is not None
    assert loaded.tokenizer.encode(tiny.UNSEEN) == tiny.tokenizer()(tiny.UNSEEN)["input_ids"]


def test_a_folder_without_a_tokenizer_gives_none(copied: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    (copied / "chat_template.jinja").unlink()
    loaded = load_checkpoint(copied)
    assert (loaded.tokenizer, loaded.chat_template) == (None, None)


def test_a_template_that_refuses_is_an_error_of_the_checkpoint(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text("{{ raise_exception('only users may speak') }}")
    tokenizer = load_checkpoint(copied).tokenizer
    assert tokenizer is not None
    with pytest.raises(CheckpointError, match="only users may speak"):
        tokenizer.chat([{"role": "system", "content": "fox"}])


def test_a_missing_tensor_is_no_random_one(copied: Path) -> None:
    weights = load_file(copied / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lack 1 tensors of the model, such as model\.layers\.1\.mlp\.up_proj"):
        load_checkpoint(copied)


@pytest.mark.parametrize("length", [0, 5, 2000, -100])
def test_cut_weights_are_named(length: int, copied: Path) -> None:
    file = copied / "model.safetensors"
    os.truncate(file, length if length >= 0 else file.stat().st_size + length)
    with pytest.raises(CheckpointError, match=f"loading the weights of {copied}"):
        load_checkpoint(copied)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("config.json", "{", "not JSON"),
        ("config.json", "{}", "names no architecture"),
        ("config.json", '{"architectures": ["Nonesuch"]}', "has no Nonesuch"),
        ("config.json", '{"architectures": ["LlamaForCausalLM"]}', "config.json: "),
        ("config.json", None, "a folder without config.json"),
        ("tokenizer.json", "{}", "loading the tokenizer of"),
    ],
)
def test_a_damaged_file_is_named(file: str, text: str | None, message: str, copied: Path) -> None:
    if text is None:
        (copied / file).unlink()
    else:
        (copied / file).write_text(text)
    with pytest.raises(CheckpointError, match=message):
        load_checkpoint(copied)


def test_what_is_no_checkpoint_is_named(copied: Path, tmp_path: Path) -> None:
    (copied / "model.safetensors").unlink()
    for path, message in (
        (copied, r"holds no weights: neither \*\.safetensors"),
        (tmp_path / "nowhere", "no such file or folder"),
        (copied / "config.json", "not a checkpoint"),
    ):
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(path)


def test_commands_take_a_folder_without_weights(copied: Path, saved: tuple[Path, Any]) -> None:
    with_weights = hf.load(copied)
    assert torch.equal(tiny.logits(with_weights), tiny.logits(saved[1]))
    (copied / "model.safetensors").unlink()
    random = hf.load(copied)
    assert type(random) is type(with_weights)
    assert not random.training and not random.config.use_cache
    assert not torch.equal(tiny.logits(random), tiny.logits(saved[1]))
