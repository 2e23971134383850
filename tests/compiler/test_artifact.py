"""Saving: what goes into an artifact, what can't, and that the file runs elsewhere with the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import attnc
from attnc.ir.parser import parse_graph
from attnc.runtime.artifact.container import Container
from attnc.runtime.gpu.binary import sha256
from attnc.runtime.gpu.record import BinaryRecord
from benchmarks.cases.transformers import family

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # artifact_models, here and in the processes that tests start

import artifact_models as models  # noqa: E402


@pytest.fixture(scope="module")
def grouped() -> attnc.Program:
    program: attnc.Program = models.grouped()
    return program


def same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        equal = numpy.array_equal(found[name], value, equal_nan=True) if isinstance(value, numpy.ndarray) else None
        assert found[name] == value if equal is None else equal, name


def arrays(given: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in given.items()}


def test_a_round_trip(grouped: attnc.Program, tmp_path: Path) -> None:
    grouped.save(tmp_path / "model.attnc")
    assert [path.name for path in tmp_path.iterdir()] == ["model.attnc"]
    loaded = attnc.load(tmp_path / "model.attnc")
    assert (loaded.name, loaded.target, loaded.notes) == ("grouped", "cpu", ())
    assert [f"{port.name} {port.dtype} {', '.join(port.shape)}" for port in (*loaded.inputs, *loaded.outputs)] == [
        "ids i64 B, S", "mask i64 B, S", "logits f32 B, S, 37", "hidden.0 f32 B, S, 32", "hidden.1.0 f32 B, 32",
        "hidden.1.1 none ", "length int ",
    ]  # fmt: skip
    for batch, length in ((2, 2), (5, 3), (16, 128), (3, 37)):
        given = arrays(models.inputs(batch, length, seed=length))
        found = loaded.run(given)
        same(found, grouped.run(given))
        assert found["length"] == length + 1 and found["hidden.1.1"] is None
        whole = grouped(**models.inputs(batch, length, seed=length))
        assert numpy.array_equal(found["hidden.1.0"], whole["hidden"][1][0].detach().numpy())


def test_the_sizes_are_held_to_their_bounds(grouped: attnc.Program, tmp_path: Path) -> None:
    grouped.save(tmp_path / "model.attnc")
    loaded = attnc.load(tmp_path / "model.attnc")
    for batch, length, message in ((17, 4, "2 to 16"), (2, 129, "2 to 128"), (2, 1, "2 to 128")):
        with pytest.raises(ValueError, match=f"the program was made for {message}"):
            loaded.run(models.inputs(batch, length))
    with pytest.raises(ValueError, match=r"mask: dimension 1 is 5, not 4 \(S = 4 from input ids: dimension 1\)"):
        loaded.run({**models.inputs(2, 4), "mask": torch.ones(2, 5, dtype=torch.int64)})


@pytest.mark.slow
def test_what_is_in_it(grouped: attnc.Program, tmp_path: Path) -> None:
    grouped.save(tmp_path / "model.attnc", targets=("cpu", "cpu-sse2"))
    names = list(Container(tmp_path / "model.attnc").entries)
    assert names[-1] == "manifest.json" and names[:-1] == sorted(names[:-1])
    assert [name.split("/")[0] for name in names].count("plans") == len({n for n in names if n.startswith("kernels/")})
    for folder in ("binaries/cpu/", "binaries/cpu-sse2/", "binaries/launcher"):
        assert any(name.startswith(folder) and name.endswith(".so") for name in names)
    data = (tmp_path / "model.attnc").read_bytes()
    (table,) = (tensor for tensor in grouped.hosted.constants.values() if tensor.shape == (37, 32))
    assert data.count(table.numpy().tobytes()) == 1  # tied
    for secret in (str(tmp_path), str(Path.home()), str(Path(attnc.__file__).parent), str(HERE)):
        assert secret.encode() not in data, secret
    for secret in (sys.prefix, str(Path(torch.__file__).parent)):
        assert secret.encode() not in data, secret


@pytest.mark.slow
def test_another_target_of_this_machine(grouped: attnc.Program, tmp_path: Path) -> None:
    grouped.save(tmp_path / "model.attnc", targets=("cpu-sse2",))
    loaded, given = attnc.load(tmp_path / "model.attnc"), models.inputs(3, 20)
    assert loaded.target == "cpu-sse2"
    for name, value in grouped.run(given).items():
        if isinstance(value, Tensor):
            assert torch.allclose(loaded.run(given)[name], value, atol=1e-5)


@pytest.mark.slow
def test_a_gpu_s_machine_code_is_packed_beside(tmp_path: Path) -> None:
    """It is made without a GPU; here the file runs on the processor, by its machine code or on torch operators."""
    for targets in (("cpu", "sm_80"), ("sm_80",)):
        program = models.grouped(torch.float16)
        program.save(tmp_path / "model.attnc", targets=targets)
        container = Container(tmp_path / "model.attnc")
        (code,) = (name for name in container.entries if name.endswith(".cubin"))
        record = BinaryRecord.from_json(container.text(code.replace(".cubin", ".json")))
        assert record.target == "sm_80" and record.code_sha256 == sha256(bytes(container.view(code)))
        source = f"kernels/{Path(code).stem}.py"
        assert (
            record.source_sha256 == sha256(container.text(source)) and f"plans/{record.plan}.json" in container.entries
        )
        loaded, given = attnc.load(tmp_path / "model.attnc"), models.inputs(3, 20)
        assert loaded.target == ("cpu" if "cpu" in targets else "base")
        assert torch.equal(loaded.run(given)["logits"], program.run(given)["logits"])


def test_two_compilations_give_the_same_bytes(grouped: attnc.Program, tmp_path: Path) -> None:
    grouped.save(tmp_path / "a.attnc")
    models.grouped().save(tmp_path / "b.attnc")
    assert (tmp_path / "a.attnc").read_bytes() == (tmp_path / "b.attnc").read_bytes()


SAVE = """
import sys
sys.path.insert(0, {here!r})
import artifact_models
artifact_models.grouped().save("model.attnc", targets=("cpu", "cpu-sse2"))
"""


@pytest.mark.slow
def test_two_processes_give_the_same_bytes(tmp_path: Path) -> None:
    """Other hash seeds, folders, stores, users' names of the clock; each builds its kernels and its launcher itself."""
    files = []
    for seed, zone in (("1", "UTC"), ("77", "Asia/Tokyo")):
        folder = tmp_path / ("a" * int(seed))
        folder.mkdir()
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone, "ATTNC_CACHE_DIR": str(folder / "store")}
        subprocess.run([sys.executable, "-c", SAVE.format(here=str(HERE))], cwd=folder, env=environment, check=True)
        files.append((folder / "model.attnc").read_bytes())
    assert files[0] == files[1]


@pytest.mark.slow
def test_bfloat16(tmp_path: Path) -> None:
    program = models.grouped(torch.bfloat16)
    program.save(tmp_path / "model.attnc")
    given = models.inputs(4, 19)
    found, wanted = attnc.load(tmp_path / "model.attnc").run(given), program.run(given)
    assert found["logits"].dtype == torch.bfloat16 and torch.equal(found["logits"], wanted["logits"])


def test_what_is_written_in_place(tmp_path: Path) -> None:
    torch.manual_seed(0)
    rows = torch.export.Dim("N", min=2, max=8)
    example = {"x": torch.randn(3, 4), "cache": torch.zeros(3, 5)}
    program = attnc.compile(models.Cached(), kwargs=example, dynamic_shapes={"x": {0: rows}, "cache": {0: rows}})
    program.save(tmp_path / "model.attnc")
    loaded, eager = attnc.load(tmp_path / "model.attnc"), models.Cached()
    assert [(port.name, port.mutated) for port in loaded.inputs] == [("x", False), ("cache", True)]
    for n in (2, 8, 5, 5):
        x, mine, theirs = torch.randn(n, 4), torch.ones(n, 5), torch.ones(n, 5)
        wanted = eager(x, theirs)
        (found,) = loaded.run({"x": x.numpy(), "cache": mine.numpy()}).values()
        assert numpy.allclose(found, wanted.numpy(), atol=1e-5) and torch.equal(mine, theirs)
    assert (
        int(program.module.seen.sum() if hasattr(program.module, "seen") else 0) == 0
    )  # the compiled one's is its own


def test_fields_and_aliases(tmp_path: Path) -> None:
    program = attnc.compile(models.Fields(), (torch.randn(3, 4),), name="fields")
    program.save(tmp_path / "model.attnc")
    loaded, x = attnc.load(tmp_path / "model.attnc"), torch.randn(3, 4)
    found = loaded.run({"x": x})
    assert list(found) == ["first", "rest.0", "rest.1"] and found["rest.0"] is x
    assert torch.equal(found["first"], nn.functional.gelu(x)) and (loaded.target, loaded.notes) == ("cpu", ())


def test_a_graph_from_text(tmp_path: Path) -> None:
    graph = parse_graph(
        """graph @text(%x: f32[B, S], %n: int<S>, %scale: float) sizes(B in [1, 8], S in [2, inf]) {
          %y: f32[B, S] = aten.mul.Scalar(%x, %scale)
          %z: f32[S] = aten.sum.dim_IntList(%y, [0])
          return %y, %z, %n, %y
        }""",
        source="text",
    )
    attnc.compile(graph).save(tmp_path / "text.attnc")
    loaded, x = attnc.load(tmp_path / "text.attnc"), numpy.random.default_rng(0).random((3, 5), numpy.float32)
    found = loaded.run({"x": x, "n": 5, "scale": 2.0})
    assert list(found) == ["y", "z", "n", "y_1"] and numpy.array_equal(found["y"], x * 2) and found["n"] == 5
    with pytest.raises(ValueError, match="input n is 4, not 5"):
        loaded.run({"x": x, "n": 4, "scale": 2.0})


def unsavable(model: nn.Module, *args: Any, **options: Any) -> Callable[[Path], None]:
    return lambda path: attnc.compile(model, args, **options).save(path)


def grouped_for(*targets: str) -> Callable[[Path], None]:
    return lambda path: models.grouped().save(path, targets=targets)


@pytest.mark.parametrize(
    ("attempt", "code", "message"),
    [
        (unsavable(models.Branches(), torch.ones(3)), "ATTNC-ARTIFACT-OP", r"(cond|get_attr).*artifact_models\.py:\d+"),
        (unsavable(models.Wide(), torch.ones(3)), "ATTNC-ARTIFACT-CONSTANT", "wave is of c128"),
        pytest.param(
            grouped_for("cpu", "cpu-neon"),
            "ATTNC-ARTIFACT-TARGET",
            "cpu-neon: its kernels are for aarch64",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            grouped_for("triton-interpret"),
            "ATTNC-ARTIFACT-TARGET",
            "triton-interpret has no machine code",
            marks=pytest.mark.slow,
        ),
        pytest.param(grouped_for("cpu9"), "ATTNC-ARTIFACT-TARGET", "unknown target 'cpu9'", marks=pytest.mark.slow),
    ],
)
def test_what_can_not_be_saved(tmp_path: Path, attempt: Callable[[Path], None], code: str, message: str) -> None:
    with pytest.raises(attnc.NotSavable, match=message) as caught:
        attempt(tmp_path / "model.attnc")
    assert caught.value.code == code and list(tmp_path.iterdir()) == []


def test_nothing_is_half_written(grouped: attnc.Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.attnc").write_bytes(b"before")
    monkeypatch.setattr("attnc.runtime.artifact.writer.ContainerWriter.finish", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        grouped.save(tmp_path / "model.attnc")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


ELSEWHERE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"sympy", "islpy", "onnx", "onnxruntime", "triton", "transformers", "networkx",
                                  "typer", "rich"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
import warnings
warnings.simplefilter("error")
import numpy, torch, attnc
torch.set_num_threads(int(sys.argv[1]))
program = attnc.load("model.attnc")
for i in range(int(sys.argv[2])):
    with numpy.load(f"in{i}.npz") as given:
        numpy.savez(f"out{i}.npz", **{k: v for k, v in program.run(dict(given)).items() if v is not None})
"""


def elsewhere(folder: Path, calls: int) -> None:
    """Run the artifact of a folder where nothing of the compiler is, with an empty PATH."""
    environment = {"PATH": "", "ATTNC_CACHE_DIR": str(folder / "empty"), "PYTHONPATH": os.pathsep.join(sys.path[:1])}
    command = [sys.executable, "-c", ELSEWHERE, str(torch.get_num_threads()), str(calls)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "attnc-llama", "attnc-mistral", "attnc-bert", "attnc-gpt2", "attnc-t5", "attnc-vit", "attnc-whisper",
        "attnc-bloom", "attnc-falcon", "llama", "gemma3", "bert", "gpt2", "whisper",
    ],
)  # fmt: skip
def test_models_have_the_same_bits_elsewhere(name: str, tmp_path: Path) -> None:
    chosen = family(name)
    size = {0: torch.export.Dim("B", min=2, max=16), 1: torch.export.Dim("S", min=2, max=100)}
    target = torch.export.Dim("T", min=2, max=60)
    shapes = {
        key: {axis: target if axis and key == "decoder_input_ids" else size[axis] for axis in axes}
        for key, axes in chosen.dynamic.items()
    }
    program = attnc.compile(chosen.model(), kwargs=chosen.inputs(3, 17), dynamic_shapes=shapes, name=name)
    program.save(tmp_path / "model.attnc")
    sizes = ((3, 17), (2, 2), (5, 33))
    wanted = []
    for i, (batch, length) in enumerate(sizes):
        given = arrays(chosen.inputs(batch, length, seed=i))
        numpy.savez(tmp_path / f"in{i}.npz", **given)
        wanted.append({key: value for key, value in program.run(given).items() if value is not None})
    elsewhere(tmp_path, len(sizes))
    for i, expected in enumerate(wanted):
        with numpy.load(tmp_path / f"out{i}.npz") as found:
            same(dict(found), {key: numpy.asarray(value) for key, value in expected.items()})
    calls = [step.op for step in program.hosted.program.steps]
    assert calls.count("attnc.attention.default") == chosen.sites
