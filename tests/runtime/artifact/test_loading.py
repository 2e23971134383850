"""Loading: with machine code, from source, on torch operators; what doesn't fit together is refused."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import artifact_samples as samples
import numpy
import pytest
import runtime_samples
import torch

from attnc.runtime.artifact.describe import describe
from attnc.runtime.artifact.loader import load
from attnc.runtime.errors import ArtifactError
from attnc.runtime.onnx_region import entry_of

Made = Callable[..., Path]
Script = Callable[..., Any]


@pytest.mark.parametrize(("batch", "length"), [(1, 2), (3, 5), (9, 33), (2, 2)])
def test_it_runs_at_any_length(made: Made, batch: int, length: int) -> None:
    program = load(made())
    assert program.target == "cpu" and program.notes == ()
    given = samples.inputs(batch, length)
    expected = samples.wanted(**given)
    samples.same(program.run(given), expected)
    again = samples.inputs(batch, length)
    found = program(*(again[name].numpy() for name in ("x", "counts")))
    assert all(isinstance(value, numpy.ndarray) for value in found if not isinstance(value, int))
    samples.same(dict(zip(expected, found, strict=True)), {**expected, "calls": expected["calls"] + 1})


def test_its_state_is_its_own(made: Made) -> None:
    path = made()
    before = path.read_bytes()
    first, second = load(path), load(path)
    for calls in (6, 7, 8):
        given = samples.inputs(2, 4)
        samples.same(first.run(given), samples.wanted(**samples.inputs(2, 4), calls=calls))
    samples.same(second.run(samples.inputs(2, 4)), samples.wanted(**samples.inputs(2, 4)))
    assert path.read_bytes() == before


def test_what_it_says_of_itself(made: Made) -> None:
    program = load(made())
    assert repr(program) == "<attnc.LoadedProgram sample(x: f32[B, 3, S, 4], counts: i64[B]) on cpu>"
    found = describe(made())
    assert json.loads(json.dumps(found)) == found
    assert found["sizes"] == [{"name": "B", "lo": 1, "hi": 9}, {"name": "S", "lo": 2, "hi": None}]
    assert found["inputs"][1] == {"name": "counts", "type": "i64[B]", "written_in_place": True}
    (attention,) = found["attentions"]
    assert (attention["count"], attention["machine_code"], attention["runs_here"]) == (1, True, True)
    assert {"name": "aten.add_.Scalar", "count": 2} in found["operators"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(10, 3, 4, 4), "counts": torch.arange(10)}, "made for 1 to 9"),
        ({"x": torch.zeros(2, 3, 1, 4)}, "dimension 2 is 1; the program was made for at least 2"),
        ({"x": torch.zeros(2, 3, 4, 4).double()}, "input x is a tensor of f64"),
        ({"counts": torch.arange(3)}, "input counts: dimension 0 is 3, not 2"),
        ({"y": 1}, "y unknown; its inputs are x, counts"),
    ],
)
def test_wrong_inputs(made: Made, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(made()).run({**samples.inputs(2, 4), **change})


RUN = """
import sys, warnings
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"sympy", "islpy", "onnx", "triton", "transformers", "networkx", "typer", "rich"}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Blocker())
import artifact_samples as samples, attnc
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    program = attnc.load(PATH, OPTIONS)
    given = samples.inputs(3, 21)
    found = program.run(given)
samples.same(found, samples.wanted(**samples.inputs(3, 21)))
from attnc.runtime import routes
import hashlib
print(program.target, routes.route().name, hashlib.sha256(found["out"].numpy().tobytes()).hexdigest())
print([code for code, _ in program.notes], len(told), *(str(w.message) for w in told))
"""


def run(script: Script, path: Path, options: str = "", **variables: str) -> tuple[str, str, str, str]:
    """Target, route, hash of a result, and what was said, of a fresh process."""
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    text = f"import sys\nsys.path[:0] = {folders!r}\n"
    done = script(text + RUN.replace("PATH", repr(str(path))).replace("OPTIONS", options), **variables)
    first, said = done.stdout.splitlines()
    return (*first.split(), said)


def test_without_a_compiler_it_has_the_same_bits(made: Made, script: Script, tmp_path: Path) -> None:
    path = made()
    given = samples.inputs(3, 21)
    here = load(path).run(given)["out"]
    bare = {"PATH": "", "ATTNC_CACHE_DIR": str(tmp_path / "store")}
    target, route, digest, said = run(script, path, **bare)
    assert (target, route, said) == ("cpu", "launcher", "[] 0")
    again = run(script, path, PATH="", ATTNC_CACHE_DIR="/proc/none")  # where the store can't be written
    assert again[2] == digest and "can't be written" in again[3]
    assert not list((tmp_path / "store" / "v1").glob("plans/*"))  # nothing is left for other graphs
    assert hashlib.sha256(here.numpy().tobytes()).hexdigest() == digest


@pytest.mark.slow
def test_without_a_launcher_kernels_are_called_from_python(made: Made, script: Script, tmp_path: Path) -> None:
    name = f"binaries/launcher-{platform.machine()}.so"
    path = made(edit=lambda entries: entries.pop(name))
    bare = {"PATH": "", "ATTNC_CACHE_DIR": str(tmp_path / "store")}
    target, route, digest, said = run(script, path, **bare)
    assert (target, route) == ("cpu", "ctypes") and said.startswith("[] 1 attnc: the C++ launcher can't be built")
    assert digest == run(script, made(), **bare)[2]


@pytest.mark.slow
def test_without_machine_code(made: Made, script: Script, tmp_path: Path) -> None:
    path = made(binary=False)
    target, route, digest, said = run(script, path, ATTNC_CACHE_DIR=str(tmp_path / "a"))
    assert (target, said) == ("cpu", "[] 0")  # built from its source
    bare = {"PATH": "", "ATTNC_CACHE_DIR": str(tmp_path / "b")}
    target, route, other, said = run(script, path, **bare)
    assert (target, route) == ("cpu", "aten") and other != digest
    assert said.startswith("['ATTNC-NO-COMPILER']") and "ATTNC-NO-COMPILER: attention of model.attnc runs on" in said


def test_native_false_uses_no_code_of_the_file(made: Made, script: Script, tmp_path: Path) -> None:
    """Machine code and source that would end the process, were they used."""

    def sabotage(entries: dict[str, bytes]) -> None:
        for name in entries:
            if name.startswith(("binaries", "kernels")):
                entries[name] = b"#error this is used\n"

    path = made(edit=sabotage)
    store = tmp_path / "store"
    target, route, _, said = run(script, path, "native=False", ATTNC_CACHE_DIR=str(store), PATH="")
    assert (target, route) == ("base", "aten") and said.startswith("['ATTNC-NO-COMPILER']")
    assert not list(store.rglob("*.so"))


@pytest.mark.slow
def test_machine_code_for_another_processor(made: Made, script: Script, tmp_path: Path) -> None:
    """It is never loaded: it would be refused, if it were."""

    def foreign(fields: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        return lambda data: [binary.update(fields) for binary in data["binaries"]] and None

    def spoil(entries: dict[str, bytes]) -> None:
        for name in entries:
            if name.startswith("binaries"):
                entries[name] = b"nothing"

    for i, fields in enumerate(
        ({"cpu": "x86_64-00000000"}, {"machine": "riscv64"}, {"cpu": None, "features": ["avx9"]}, {"abi": 77})
    ):
        path = made(edit=spoil, edit_manifest=foreign(fields))
        _, route, _, said = run(script, path, PATH="", ATTNC_CACHE_DIR=str(tmp_path / f"store{i}"))
        assert route == "aten" and said.startswith("['ATTNC-NO-COMPILER'] ")


@pytest.mark.slow
def test_source_for_another_version_or_processor(made: Made, script: Script, tmp_path: Path) -> None:
    def other(fields: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
        return lambda data: data["kernels"][0].update(fields)

    for i, fields in enumerate(({"headers": "0" * 64}, {"machine": "riscv64"}, {"features": ["avx9"]})):
        path = made(binary=False, edit_manifest=other(fields))
        target, _, _, said = run(script, path, ATTNC_CACHE_DIR=str(tmp_path / f"store{i}"))
        assert target == "base" and "has no machine code for this processor" in said


@pytest.mark.slow
def test_machine_code_is_kept_in_the_store_and_repaired(made: Made, script: Script, tmp_path: Path) -> None:
    path, store = made(), tmp_path / "store"
    bare = {"PATH": "", "ATTNC_CACHE_DIR": str(store)}
    _, _, digest, _ = run(script, path, **bare)
    kept = sorted((store / "v1" / "libraries").iterdir())
    assert len(kept) == 2 and all(file.suffix == ".so" for file in kept)
    content = [file.read_bytes() for file in kept]
    for file in kept:
        file.write_bytes(file.read_bytes()[:3000])
    assert run(script, path, **bare)[2] == digest
    assert [file.read_bytes() for file in kept] == content


def plan_entry() -> str:
    return f"plans/{samples.PLAN.digest}.json"


def program_edit(change: Callable[[Any], Any]) -> Callable[[dict[str, bytes]], None]:
    def edit(entries: dict[str, bytes]) -> None:
        data = json.loads(entries["program.json"])
        change(data)
        entries["program.json"] = json.dumps(data).encode()

    return edit


def step(place: int, **fields: Any) -> Callable[[dict[str, bytes]], None]:
    return program_edit(lambda data: data["steps"][place].update(fields))


NESTED: Any = 1
for _ in range(40):
    NESTED = [NESTED]

EDITS: dict[str, tuple[Callable[[dict[str, bytes]], Any], str]] = {
    "no program": (lambda e: e.pop("program.json"), "manifest.json: it names the entry program.json"),
    "no weights": (lambda e: e.pop("weights.safetensors"), "manifest.json: it names the entry weights.safetensors"),
    "no plan": (lambda e: e.pop(plan_entry()), "manifest.json: it names the entry plans/"),
    "no source": (lambda e: e.pop(samples.kernel_record().source), "manifest.json: it names the entry kernels/"),
    "program no JSON": (lambda e: e.update({"program.json": b"{"}), "program.json: malformed host program"),
    "program no text": (lambda e: e.update({"program.json": b"\xff"}), "program.json: it is no UTF-8 text"),
    "program version": (program_edit(lambda d: d.update(version=9)), "program.json: host program version 9"),
    "plan no JSON": (lambda e: e.update({plan_entry(): b"[" * 99999}), "plans/.*RecursionError"),
    "another plan": (
        lambda e: e.update({plan_entry(): runtime_samples.PLAIN.to_json().encode()}),
        "it holds the plan",
    ),
    "register out of range": (step(0, args=[{"register": 99}]), "step 0, aten.linear.default: register 99 is read"),
    "an operator that writes files": (
        step(3, op="aten.save.default", args=[{"register": 1}, "/tmp/secret"]),
        "may not call aten.save.default",
    ),
    "an operator that resizes": (step(3, op="aten.resize_.default", args=[{"register": 1}, [9]]), "may not call"),
    "results to write to": (step(3, op="aten.add.out", args=[{"register": 1}, 1]), "may not call aten.add.out"),
    "an operator of pages": (step(3, op="attnc.kv_write.default"), "program calls attnc.kv_write.default, which none"),
    "an unknown operator": (step(3, op="aten.nothing.default"), "has no operator aten.nothing.default"),
    "an attention of no plan": (step(1, args=[{"register": 0}]), "an attention names no plan"),
    "an attention of another plan": (
        step(1, args=[{"register": 0}] * 3 + [[], 12345, []]),
        "its attentions are not those of program.json",
    ),
    "deep lists": (step(3, args=[{"register": 1}, NESTED]), "lists within lists"),
    "another constant": (
        program_edit(lambda d: d["constants"][0].update(name="v")),
        "no constant is named 'w'",
    ),
    "constant huge": (
        program_edit(lambda d: d["constants"][0].update(shape=[1 << 40, 1 << 40])),
        r"weights.safetensors: tensor w is F32\[4, 4\]",
    ),
    "constant dtype": (program_edit(lambda d: d["constants"][0].update(dtype="f64")), "the program wants f64"),
    "constant no dtype": (program_edit(lambda d: d["constants"][0].update(dtype="float128")), "the program wants"),
    "input renamed": (program_edit(lambda d: d["inputs"][0].update(name="y")), "its inputs are not those of"),
    "output more": (program_edit(lambda d: d["outputs"].append(None)), "has 4 outputs, program.json has 5"),
    "size tokens": (
        program_edit(lambda d: d["values"].__setitem__(0, ["S", *["S", ".mul"] * 4000])),
        "more than 4096",
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_parts_that_do_not_fit(made: Made, edit: str) -> None:
    change, message = EDITS[edit]
    with pytest.raises(ArtifactError, match=message) as caught:
        load(made(edit=change))
    assert str(caught.value).startswith("loading ") and str(caught.value).endswith("again.")


MANIFEST_EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "size": (lambda d: d["entries"]["graph.ir"].update(size=1), "graph.ir has 29 bytes, not 1"),
    "hash": (lambda d: d["entries"]["graph.ir"].update(sha256="0" * 64), "graph.ir: its content is not what"),
    "unnamed": (lambda d: d["entries"].pop("graph.ir"), "graph.ir is in the file and not in the manifest"),
    "missing": (lambda d: d["entries"].update(x={"size": 1, "sha256": "0" * 64}), "x is not in the file"),
    "binary": (lambda d: d["binaries"][0].update(entry="graph.so"), "it names the entry graph.so"),
    "binary of another plan": (lambda d: d["binaries"][0].update(plan="77"), "which has no kernel"),
    "blob": (lambda d: d["blobs"].append("onnx/a.onnx"), "it names the entry onnx/a.onnx"),
    "outputs alike": (lambda d: d["outputs"][1].update(name="out"), "it has 3 outputs"),
    "rank": (lambda d: d["inputs"][0].update(shape=["B"]), "its inputs are not those of"),
    "attention": (lambda d: d.update(attentions=[]), "its attentions are not those of"),
    "later version": (lambda d: d.update(version=2), "version 2, this build of attnc reads 1"),
}


@pytest.mark.parametrize("edit", MANIFEST_EDITS)
def test_a_manifest_that_does_not_fit(made: Made, edit: str) -> None:
    change, message = MANIFEST_EDITS[edit]
    with pytest.raises(ArtifactError, match=message) as caught:
        load(made(edit_manifest=change))
    assert "entry " in str(caught.value) and caught.value.entry in ("manifest.json", "graph.ir")


def test_a_blob_has_the_name_of_its_content(made: Made) -> None:
    right = entry_of(hashlib.sha256(b"x").hexdigest()[:32])
    for name in (right, "onnx/a.onnx"):
        path = made(edit=lambda e, n=name: e.update({n: b"x"}), edit_manifest=lambda d, n=name: d["blobs"].append(n))
        if name == right:
            assert load(path).target == "cpu"
        else:
            with pytest.raises(ArtifactError, match=r"entry onnx/a\.onnx: its name is not that of its content"):
                load(path)


def test_sizes_that_are_no_numbers_of_this_world(made: Made) -> None:
    """A power that would not end is an error when it is asked for."""
    edit = program_edit(lambda d: d["values"].__setitem__(0, ["S", 10**18, ".pow"]))
    program = load(made(edit=edit))
    with pytest.raises(OverflowError, match=r"a size is 4\*\*1000000000000000000"):
        program.run(samples.inputs(2, 4))


def test_a_source_that_a_compiler_rejects(made: Made, script: Script, tmp_path: Path) -> None:
    name = samples.kernel_record().source
    path = made(binary=False, edit=lambda e: e.update({name: b"#error never\n"}))
    text = (
        f"import pytest, attnc\nfrom attnc.runtime.errors import BuildError\n"
        f"with pytest.raises(BuildError, match='never'):\n    attnc.load({str(path)!r})\n"
    )
    script(text, ATTNC_CACHE_DIR=str(tmp_path / "store"))
