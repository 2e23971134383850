"""ONNX's own node tests: which of them the importer's ATen forms answer, and which onnxruntime does.

``python -m benchmarks.onnx_suite [--part I --parts N] [--only TEXT]`` runs the cases that the onnx wheel makes, prints
shares and the operators left to onnxruntime, and writes build/onnx_suite/native.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

import numpy
import onnx
import onnxruntime
import torch
from onnx.backend.test.loader import load_node_model_tests

from attnc.compiler.frontends.onnx.dtypes import from_array, to_array
from attnc.compiler.frontends.onnx.errors import NoForm
from attnc.compiler.frontends.onnx.model import Port, read_model
from attnc.compiler.frontends.onnx.module import OnnxModule
from benchmarks.accept.runner import ROOT
from benchmarks.remembered import remembered

FOLDER = ROOT / "build" / "onnx_suite"


@dataclass(frozen=True)
class Outcome:
    """How a case went: ``right``, ``wrong`` (so is an error), or ``left`` with the reasons by operator."""

    verdict: str
    detail: str = ""
    left: dict[str, str] = field(default_factory=dict)


@cache
def cases() -> dict[str, Any]:
    """Every case of the wheel, by name: ``model``, ``data_sets``, ``rtol``, ``atol``."""
    return {case.name: case for case in load_node_model_tests()}


def names(part: int, parts: int) -> list[str]:
    """The names of a part of the cases."""
    return sorted(cases())[part::parts]


def natively(case: Any) -> Outcome:
    """A case answered by ATen forms alone."""
    model = read_model(case.model)
    module = OnnxModule(model)
    try:
        for given, wanted in case.data_sets:
            inputs = [_tensor(port, _array(entry)) for port, entry in zip(model.inputs, given, strict=True)]
            with torch.no_grad():
                found = module(*inputs)
            if module.trace.left:
                break
            if detail := differences([to_array(tensor) for tensor in found], wanted, case.rtol, case.atol):
                return Outcome("wrong", detail)
    except NoForm as reason:
        return Outcome("left", str(reason))
    except Exception as error:
        if not module.trace.left:
            return Outcome("wrong", f"{type(error).__name__}: {error}")
    left = {node.op: why for node, why in module.trace.left.items()}
    return Outcome("left", "", left) if left else Outcome("right")


def _tensor(port: Port, given: Any) -> torch.Tensor:
    if port.kind != "tensor_type":
        raise NoForm(f"the input {port.name!r} is {port.kind}")
    return from_array(numpy.asarray(given), port.number)


def _array(entry: Any) -> Any:
    """An input or output as numpy has it: rare types stand in the cases as protos."""
    if isinstance(entry, list | tuple):
        return [_array(item) for item in entry]
    return onnx.numpy_helper.to_array(entry) if isinstance(entry, onnx.TensorProto) else entry


def in_onnxruntime(case: Any) -> Outcome:
    """A case in onnxruntime on the CPU: ``right``, ``wrong``, or ``left`` where it can't run it.

    Types that numpy lacks go in and come out as wider ones, by casts around the model.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    model = widened(case.model)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for given, wanted in case.data_sets:
            arrays = [_wide(_array(entry)) for entry in given]
            named = {port.name: array for port, array in zip(model.graph.input, arrays, strict=True)}
            found = session.run(None, named)
            if detail := differences(found, [_wide(_array(entry)) for entry in wanted], case.rtol, case.atol):
                return Outcome("wrong", detail)
    except Exception as error:
        return Outcome("left", str(error)[:200])
    return Outcome("right")


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with a cast at each input and output of a type that numpy lacks."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    for place, port in enumerate(model.graph.input):
        if wide := _WIDER.get(port.type.tensor_type.elem_type):
            graph.input[place].name = f"{port.name}__wide"
            graph.input[place].type.tensor_type.elem_type = wide
            narrow = port.type.tensor_type.elem_type
            graph.node.insert(0, onnx.helper.make_node("Cast", [f"{port.name}__wide"], [port.name], to=narrow))
    for place, port in enumerate(model.graph.output):
        if wide := _WIDER.get(port.type.tensor_type.elem_type):
            graph.output[place].name = f"{port.name}__wide"
            graph.output[place].type.tensor_type.elem_type = wide
            graph.node.append(onnx.helper.make_node("Cast", [port.name], [f"{port.name}__wide"], to=wide))
    return made


def _wide(array: Any) -> Any:
    """What :func:`widened` wants for an array, or gives."""
    if isinstance(array, list | tuple) or array is None:
        return array
    array = numpy.asarray(array)
    wide = next((w for n, w in _WIDER.items() if onnx.helper.tensor_dtype_to_np_dtype(n) == array.dtype), None)
    return array if wide is None else array.astype(onnx.helper.tensor_dtype_to_np_dtype(wide))


_WIDER = {
    **dict.fromkeys((16, 17, 18, 19, 20, 23, 24), onnx.TensorProto.FLOAT),
    **dict.fromkeys((21, 25), onnx.TensorProto.UINT8),
    **dict.fromkeys((22, 26), onnx.TensorProto.INT8),
}
"""Of ONNX's numbers of element types that numpy lacks, one that holds all their values."""


def differences(found: Sequence[Any], wanted: Sequence[Any], rtol: float, atol: float) -> str:
    """What differs beyond the tolerance, types and shapes included; empty where nothing does."""
    if len(found) != len(wanted):
        return f"{len(found)} outputs, not {len(wanted)}"
    return next((text for f, w in zip(found, wanted, strict=True) if (text := _difference(f, w, rtol, atol))), "")


def _difference(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    wanted = _array(wanted)
    if isinstance(wanted, list | tuple):
        return differences(found, wanted, rtol, atol) if isinstance(found, list | tuple) else "no sequence"
    if wanted is None or found is None:
        return "" if found is wanted else "one of them is nothing"
    found, wanted = numpy.asarray(found), numpy.asarray(wanted)
    if found.shape != wanted.shape:
        return f"shape {found.shape}, not {wanted.shape}"
    if wanted.dtype.kind in "OUS":
        return "" if found.tolist() == wanted.tolist() else "other texts"
    if found.dtype != wanted.dtype:
        return f"{found.dtype}, not {wanted.dtype}"
    if found.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)
    if found.dtype.kind not in "biufc":
        found, wanted = found.astype(numpy.float32), wanted.astype(numpy.float32)
    try:
        numpy.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:300]
    return ""


def peers(part: int, parts: int) -> dict[str, Outcome]:
    """What onnxruntime makes of a part of the cases; kept in a file by its version and onnx's."""
    file = FOLDER / f"onnxruntime-{onnxruntime.__version__}-{onnx.__version__}-{part}-of-{parts}.json"
    found = remembered(file, lambda: {name: asdict(in_onnxruntime(cases()[name])) for name in names(part, parts)})
    return {name: Outcome(**entry) for name, entry in found.items()}


def judge(chosen: Iterable[str]) -> dict[str, Outcome]:
    """The named cases by their ATen forms."""
    return {name: natively(cases()[name]) for name in chosen}


def table(ours: dict[str, Outcome], theirs: dict[str, Outcome]) -> list[str]:
    """Shares, what is wrong, and the operators left with how many cases each and a reason."""
    passed = [name for name in ours if theirs[name].verdict == "right"]
    of_passed = Counter(ours[name].verdict for name in passed)
    lines = [
        f"{len(ours)} cases: {dict(Counter(o.verdict for o in ours.values()))}",
        f"{len(passed)} that onnxruntime passes: {dict(of_passed)}, "
        f"{of_passed['right'] / max(len(passed), 1):.1%} natively",
        *(
            f"WRONG {name}: {o.detail} (onnxruntime: {theirs[name].verdict})"
            for name, o in ours.items()
            if o.verdict == "wrong"
        ),
    ]
    reasons = Counter(_reason(outcome) for outcome in ours.values() if outcome.verdict == "left")
    return [*lines, *(f"{count:5} {reason}" for reason, count in reasons.most_common())]


def _reason(outcome: Outcome) -> str:
    """The first operator without a form, and why."""
    return next((f"{op}: {why}" for op, why in outcome.left.items()), outcome.detail)


def part(index: str, count: str) -> dict[str, object]:
    """A part of the cases, for an acceptance run. Raises AssertionError for one that is wrong."""
    chosen = names(int(index), int(count))
    ours, theirs = judge(chosen), peers(int(index), int(count))
    wrong = {name: outcome.detail for name, outcome in ours.items() if outcome.verdict == "wrong"}
    assert not wrong, wrong
    passed = [name for name in chosen if theirs[name].verdict == "right"]
    native = sum(ours[name].verdict == "right" for name in passed)
    return {"cases": len(chosen), "passed by onnxruntime": len(passed), "natively": native}


def main() -> int:
    """See the module's text."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    arguments = parser.parse_args()
    chosen = [name for name in names(arguments.part, arguments.parts) if arguments.only in name]
    ours, theirs = judge(chosen), peers(arguments.part, arguments.parts)
    FOLDER.mkdir(parents=True, exist_ok=True)
    record = {name: {**asdict(outcome), "onnxruntime": asdict(theirs[name])} for name, outcome in ours.items()}
    (FOLDER / "native.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(ours, theirs)))
    return int(any(outcome.verdict == "wrong" for outcome in ours.values()))


if __name__ == "__main__":
    sys.exit(main())
