"""GGUF files: the same model comes back, it is kept in the cache, and what would be lost is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from attnc.compiler.checkpoints import CheckpointError, load_checkpoint
from attnc.compiler.checkpoints.gguf import as_folder
from attnc.compiler.checkpoints.gguf_config import empty_model
from attnc.compiler.checkpoints.gguf_header import Header, TensorEntry
from attnc.compiler.cli import hf
from tests.compiler.checkpoints import tiny

QUICK = ("bloom", "gemma3", "gpt2", "llama", "qwen3moe")
"""One of each kind: weights that llama.cpp regroups, adds one to, transposes, permutes and splits."""

FAMILIES = [pytest.param(one, marks=[] if one in QUICK else [pytest.mark.slow]) for one in tiny.FAMILIES]


def state(path: Path) -> dict[str, tuple[int, int]]:
    """When and how large each file below ``path`` was written."""
    return {str(f): (f.stat().st_mtime_ns, f.stat().st_size) for f in sorted(path.rglob("*")) if f.is_file()}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    made, path = tiny.model("llama"), tmp_path_factory.mktemp("gguf") / "tiny-llama.gguf"
    tiny.write_gguf(path, "llama", made)
    return path, made


@pytest.fixture(scope="module")
def made_once(llama: tuple[Path, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds the folder of ``llama``."""
    store = tmp_path_factory.mktemp("made")
    as_folder(llama[0], store)
    return store


@pytest.fixture
def store(made_once: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(made_once, tmp_path / "store"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_comes_back_bit_for_bit(family: str, tmp_path: Path) -> None:
    made = tiny.model(family)
    tiny.write_gguf(tmp_path / "m.gguf", family, made)
    loaded = load_checkpoint(tmp_path / "m.gguf", store=tmp_path / "store").model
    assert not loaded.training
    assert {value.dtype for value in loaded.parameters()} == {torch.float32}
    assert torch.equal(tiny.logits(loaded), tiny.logits(made))


@pytest.mark.parametrize("kind", ["BF16", "Q8_0", "Q5_1"])
def test_stored_values_are_dequantised_as_the_gguf_package_does(kind: str, tmp_path: Path) -> None:
    made = tiny.model("gemma2")
    tiny.write_gguf(tmp_path / "m.gguf", "gemma2", made, kind)
    loaded = load_checkpoint(tmp_path / "m.gguf", store=tmp_path / "store").model
    stored = tiny.dequantised("gemma2", made, kind)
    back = tiny.tensors("gemma2", loaded)
    assert back.keys() == stored.keys()
    for name, values in back.items():
        near = {"rtol": 1e-6, "atol": 1e-6} if name.endswith("norm.weight") else {"rtol": 0, "atol": 0}  # + 1 − 1
        np.testing.assert_allclose(values, stored[name], **near, err_msg=name)
    assert not torch.equal(tiny.logits(loaded), tiny.logits(made))


def test_tokenizer_ends_and_name_come_from_the_metadata(llama: tuple[Path, Any], tmp_path: Path) -> None:
    path, made = llama
    template = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}{% endfor %}"
    tiny.write_gguf(
        tmp_path / "chatty.v2.gguf",
        "llama",
        made,
        **{"tokenizer.chat_template": template, "tokenizer.ggml.eot_token_id": 7, "tokenizer.ggml.add_bos_token": True},
    )
    plain = load_checkpoint(path, store=tmp_path / "store")
    chatty = load_checkpoint(tmp_path / "chatty.v2.gguf", store=tmp_path / "store")
    assert (plain.name, chatty.name) == ("tiny-llama", "chatty.v2")
    assert (plain.eos_token_ids, chatty.eos_token_ids) == ((1,), (1, 7))
    assert (plain.chat_template, chatty.chat_template) == (None, template)
    assert plain.tokenizer and chatty.tokenizer
    expected = tiny.tokenizer()(tiny.UNSEEN)["input_ids"]
    assert plain.tokenizer.encode(tiny.UNSEEN) == expected
    assert plain.tokenizer.decode([0, *expected, 1]) == tiny.UNSEEN
    assert chatty.tokenizer.chat([{"role": "user", "content": "fox"}]) == [0, *plain.tokenizer.encode("user: fox")]
    with pytest.raises(CheckpointError, match="no chat template"):
        plain.tokenizer.chat([{"role": "user", "content": "fox"}])


def test_a_file_without_a_tokenizer_gives_none(llama: tuple[Path, Any], tmp_path: Path) -> None:
    tiny.write_gguf(tmp_path / "m.gguf", "llama", llama[1], **{"tokenizer.ggml.model": "none"})
    loaded = load_checkpoint(tmp_path / "m.gguf", store=tmp_path / "store")
    assert (loaded.tokenizer, loaded.chat_template, loaded.eos_token_ids) == (None, None, (1,))


def test_the_cache_is_used_wherever_the_file_lies(llama: tuple[Path, Any], store: Path, tmp_path: Path) -> None:
    path, _ = llama
    before = state(store)
    first = as_folder(path, store)
    os.link(path, tmp_path / path.name)
    assert as_folder(tmp_path / path.name, store) == first
    assert state(store) == before
    assert sorted(f.name for f in first.parent.iterdir()) == [".lock", first.name]


@pytest.mark.parametrize(
    ("file", "damage"),
    [("model.safetensors", "cut"), ("model.safetensors", "gone"), ("tokenizer.json", "cut"), ("manifest.json", "cut")],
)
def test_a_damaged_entry_is_made_anew(file: str, damage: str, llama: tuple[Path, Any], store: Path) -> None:
    (folder,) = (store / "checkpoints").glob("tiny-llama-*")
    whole = {f.name: f.read_bytes() for f in folder.iterdir()}
    if damage == "cut":
        os.truncate(folder / file, len(whole[file]) - 3)
    else:
        (folder / file).unlink()
    assert as_folder(llama[0], store) == folder
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == whole


def test_other_content_is_not_taken_for_it(llama: tuple[Path, Any], store: Path, tmp_path: Path) -> None:
    other, twin = tiny.model("llama", seed=5), tmp_path / llama[0].name
    tiny.write_gguf(twin, "llama", other)
    assert torch.equal(tiny.logits(load_checkpoint(twin, store=store).model), tiny.logits(other))


def test_an_entry_of_another_version_is_made_anew(llama: tuple[Path, Any], store: Path) -> None:
    folder = as_folder(llama[0], store)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["origin"]["transformers"] = "4.0.0"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    before = state(folder)
    assert as_folder(llama[0], store) == folder
    assert not state(folder).items() & before.items()


def test_a_conversion_that_died_is_swept_away(llama: tuple[Path, Any], store: Path) -> None:
    folder = as_folder(llama[0], store)
    (folder / "config.json").unlink()
    left = folder.with_name(f".{folder.name}.tmp")
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    as_folder(llama[0], store)
    assert sorted(f.name for f in folder.parent.iterdir()) == [".lock", folder.name]


def test_a_cache_that_cannot_be_written_says_so(llama: tuple[Path, Any], tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file, not a folder")
    with pytest.raises(CheckpointError, match="set ATTNC_CACHE_DIR"):
        as_folder(llama[0], tmp_path / "store")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"general.architecture": "rwkv7"}, "GGUF files of rwkv7 are not read; those of bloom, .* are"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type = yarn can't be said in a llama"),
        ({"llama.rope.dimension_count": 8}, "of shape|can't be said"),
        ({"llama.attention.sliding_window": 64}, "llama.attention.sliding_window = 64 can't be said"),
        ({"llama.expert_count": 8}, "llama.expert_count = 8 can't be said"),
        ({"llama.attention.head_count": 3}, "its metadata make no llama|of shape"),
        ({"llama.block_count": 2}, "tensors have no place in a LlamaForCausalLM, such as blk.2"),
        ({"llama.block_count": 4}, "has no tensor for model.layers.3"),
        ({"llama.feed_forward_length": 95}, r"of shape \(96, 64\) where the model has \(95, 64\)|of shape"),
        ({"llama.embedding_length": "wide"}, "its metadata make no llama"),
        ({"split.count": 2}, "one of 2 parts"),
    ],
)
def test_what_would_be_lost_or_wrong_is_refused(
    changed: dict[str, Any], message: str, llama: tuple[Path, Any], tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    tiny.write_gguf(path, "llama", llama[1], **changed)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint(path, store=tmp_path / "store")
    assert str(path) in str(caught.value)
    assert not [f for f in (tmp_path / "store").rglob("*") if f.name not in ("checkpoints", ".lock")]


def test_harmless_properties_are_not_refused(llama: tuple[Path, Any], tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    harmless = {
        "llama.rope.scaling.type": "none",
        "llama.attention.sliding_window": 128,
        "llama.vocab_size": tiny.WORDS,
    }
    tiny.write_gguf(path, "llama", llama[1], **harmless)
    loaded = load_checkpoint(path, store=tmp_path / "store").model
    assert torch.equal(tiny.logits(loaded), tiny.logits(llama[1]))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "layers", "width", "scale"), [("gemma2", 46, 4608, 144), ("gemma3", 62, 5376, 168)])
def test_large_gemmas_scale_queries_by_their_width(family: str, layers: int, width: int, scale: int) -> None:
    """As their published configs say; heads are of 128."""
    properties = {
        "embedding_length": width,
        "block_count": layers,
        "attention.head_count": 32,
        "attention.head_count_kv": 16,
        "attention.key_length": 128,
    }
    metadata = {"general.architecture": family, **{f"{family}.{key}": value for key, value in properties.items()}}
    header = Header(metadata, (TensorEntry("token_embd.weight", (256, width), 0, 0),))
    model, _ = empty_model(Path("27b.gguf"), header)
    assert (model.config.query_pre_attn_scalar, model.config.head_dim) == (scale, 128)


def test_an_extra_tensor_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frequency factors of Llama 3 are such a tensor; transformers' own loader skips them."""
    made = tiny.model("llama")
    more = {**tiny.tensors("llama", made), "rope_freqs.weight": np.ones(8, np.float32)}
    monkeypatch.setattr(tiny, "tensors", lambda family, made: more)
    tiny.write_gguf(tmp_path / "m.gguf", "llama", made)
    with pytest.raises(
        CheckpointError, match=r"1 tensors have no place in a LlamaForCausalLM, such as rope_freqs\.weight"
    ):
        load_checkpoint(tmp_path / "m.gguf", store=tmp_path / "store")


def test_a_cut_file_is_refused(llama: tuple[Path, Any], tmp_path: Path) -> None:
    whole = llama[0].read_bytes()
    path = tmp_path / "m.gguf"
    for length in (0, 3, 23, 24, 1000, len(whole) // 2, len(whole) - 64):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"m\.gguf: .*(not a GGUF file|it is cut)"):
            load_checkpoint(path, store=tmp_path / "store")


def test_commands_take_a_file(llama: tuple[Path, Any]) -> None:
    loaded = hf.load(llama[0])
    assert not loaded.config.use_cache
    assert torch.equal(tiny.logits(loaded), tiny.logits(llama[1]))


def test_a_folder_with_one_file_is_that_file(llama: tuple[Path, Any], tmp_path: Path) -> None:
    os.link(llama[0], tmp_path / "a.gguf")
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')  # as repositories have
    assert load_checkpoint(tmp_path, store=tmp_path / "store").name == tmp_path.name
    os.link(llama[0], tmp_path / "b.gguf")
    with pytest.raises(CheckpointError, match=r"holds 2 GGUF files; name one of a\.gguf, b\.gguf"):
        load_checkpoint(tmp_path, store=tmp_path / "store")


def test_the_gguf_package_knows_every_kind_we_number() -> None:
    """The header gives a number; the package must still give it this meaning."""
    assert [gguf.GGMLQuantizationType(n).name for n in (0, 1, 2, 8, 12, 14, 30)] == [
        "F32", "F16", "Q4_0", "Q8_0", "Q4_K", "Q6_K", "BF16",
    ]  # fmt: skip
