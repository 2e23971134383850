"""SRC: every kind resolves to a model with inputs, and whatever doesn't says why."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest
import torch

from attnc.compiler.cli import source
from attnc.compiler.cli.dims import parse_dims
from attnc.compiler.cli.errors import CliError
from attnc.compiler.cli.inputs import read_npz, split

MODULE = """
import torch
from torch import nn

class Square(nn.Module):
    def forward(self, x, y=None):
        return x * x if y is None else x * y

class Ready(Square):
    def example_inputs(self, batch=2, length=16):
        return {"x": torch.zeros(batch, length, dtype=torch.int64)}

bare = Square
instance = Ready()
number = 3

def pair():
    return Square(), (torch.ones(3),)

def triple():
    return Square(), (torch.ones(3),), {"y": torch.ones(3)}

def function():
    return (lambda x: x + 1), (torch.ones(3),)

def nothing():
    return None

def misfit():
    return Square(), (1, 2, 3)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module ``subjects`` in the working directory, where SRC looks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "subjects", raising=False)
    (tmp_path / "subjects.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import no_such_package_anywhere\n")


def test_a_model_by_name() -> None:
    subject = source.load("models:llama", None)
    assert type(subject.model).__name__ == "Llama"
    assert subject.kwargs["input_ids"].shape == (2, 16)
    assert subject.dynamic_shapes is None


def test_dims_reach_inputs_and_shapes() -> None:
    subject = source.load("models:bert", None, parse_dims(["B=3..8", "S=2..12"]))
    assert subject.kwargs["input_ids"].shape == (3, 12)
    assert subject.dynamic_shapes is not None
    assert sorted(subject.dynamic_shapes["attention_mask"]) == [0, 1]


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [("instance", 0, {"x"}), ("pair", 1, set()), ("triple", 1, {"y"}), ("function", 1, set())],
)
def test_a_factory(name: str, args: int, kwargs: set[str]) -> None:
    subject = source.load(f"subjects:{name}", None)
    assert callable(subject.model)
    assert len(subject.args) == args and set(subject.kwargs) == kwargs


def test_inputs_from_a_file(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "x.npz", numpy.ones((4, 5), numpy.float32), y=numpy.ones(5, numpy.float32))
    subject = source.load("subjects:bare", tmp_path / "x.npz")
    assert subject.args[0].shape == (4, 5) and subject.kwargs["y"].shape == (5,)


@pytest.mark.parametrize(
    ("src", "message"),
    [
        ("missing.onnx", r"reading missing\.onnx: no such file"),
        ("model.pt2", "does not read exported programs"),
        ("model.attnc", "is compiled already; attnc run and attnc inspect"),
        ("nowhere", "no such file, folder or model"),
        ("missing.ir", r"reading missing\.ir: no such file"),
        ("models:gpt5", "no such model; there are bert"),
        ("subjects:absent", "module subjects has no absent"),
        ("subjects:", "has no name after the colon"),
        ("subjects:number", "is of type int"),
        ("subjects:nothing", "returned NoneType"),
        ("subjects:bare", "no example inputs; give --inputs"),
        ("subjects:misfit", "the inputs don't fit"),
        ("absent.module:f", r"no module absent\.module on the path"),
        ("broken:f", "it needs no_such_package_anywhere"),
    ],
)
def test_what_cannot_be_read_says_why(src: str, message: str) -> None:
    with pytest.raises(CliError, match=message):
        source.load(src, None)


TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}


def test_a_hugging_face_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    subject = source.load(str(tmp_path), None, parse_dims(["S=5"]))
    assert type(subject.model).__name__ == "LlamaForCausalLM"
    assert subject.kwargs["input_ids"].shape == (2, 5)
    with torch.no_grad():
        assert subject.model(**subject.kwargs).past_key_values is None


def test_the_weights_of_a_folder_are_read(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    saved = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in TINY.items() if k != "architectures"}))
    saved.save_pretrained(tmp_path / "saved")
    subject = source.load(str(tmp_path / "saved"), None)
    assert isinstance(subject.model, torch.nn.Module)
    assert torch.equal(subject.model.state_dict()["lm_head.weight"], saved.state_dict()["lm_head.weight"])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (None, "a folder without config.json"),
        ("{", "not JSON"),
        ("{}", "names no architecture"),
        ('{"architectures": ["NoSuchModel"]}', "has no NoSuchModel"),
    ],
)
def test_a_folder_that_is_none(tmp_path: Path, config: str | None, message: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config)
    with pytest.raises(CliError, match=message):
        source.load(str(folder), None)


def test_npz_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="no such file"):
        read_npz(tmp_path / "absent.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(CliError, match=r"not an \.npz of numeric arrays"):
        read_npz(tmp_path / "text.npz")
    numpy.save(tmp_path / "single.npy", numpy.ones(3))
    with pytest.raises(CliError, match=r"not an \.npz of numeric arrays"):
        read_npz(tmp_path / "single.npy")
    numpy.savez(tmp_path / "objects.npz", x=numpy.array([{}], dtype=object))
    with pytest.raises(CliError, match=r"not an \.npz of numeric arrays"):
        read_npz(tmp_path / "objects.npz")


def test_positional_arrays_are_numbered_from_zero() -> None:
    with pytest.raises(CliError, match=r"are numbered \[1\]"):
        split({"arr_1": torch.ones(1)})
