"""Parts of an ONNX model that onnxruntime runs.

    onnx::region(Tensor[] inputs, str model) -> Tensor[]

``model`` is the digest of an ONNX model registered in this process. Inputs and outputs are those of that model, in its
order, contiguous on the CPU. onnxruntime is imported by the first call. Nothing is mutated, no result aliases an
operand, and there is no autograd formula. Raises RuntimeError for a model nobody registered, and where onnxruntime
isn't installed or refuses the model.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from attnc.runtime.dispatch import OpLibrary
from attnc.runtime.host_program import HostProgram

OPERATOR = "onnx.region.default"
SCHEMA = "region(Tensor[] inputs, str model) -> Tensor[]"

Place = tuple[int, int]
"""An input and one of its dimensions."""


@dataclass(frozen=True)
class RegionOutput:
    """The type of one output: each dimension is a number, that of an input, or known only once it has run (None)."""

    dtype: torch.dtype
    shape: tuple[int | Place | None, ...]


@dataclass(frozen=True)
class Region:
    """A registered model: its bytes, and the types of its outputs where something traces it."""

    model: bytes
    outputs: tuple[RegionOutput, ...] = ()


_regions: dict[str, Region] = {}


def register_region(region: Region) -> str:
    """Make a model callable; returns its digest."""
    digest = hashlib.sha256(region.model).hexdigest()[:32]
    _regions[digest] = region
    return digest


def region_of(digest: str) -> Region:
    """The registered model. Raises RuntimeError where there is none."""
    if digest not in _regions:
        raise RuntimeError(f"onnx::region: no model {digest} is registered in this process; load its artifact again")
    return _regions[digest]


def region_blobs(program: HostProgram) -> dict[str, bytes]:
    """The models that a program's regions name, by their entry in an artifact."""
    digests = {str(step.args[1]) for step in program.steps if step.op == OPERATOR}
    return {entry_of(digest): region_of(digest).model for digest in sorted(digests)}


def entry_of(digest: str) -> str:
    """Where an artifact has a model."""
    return f"onnx/{digest}.onnx"


@functools.lru_cache(maxsize=256)
def _session(digest: str, threads: int) -> Any:
    return open_session(region_of(digest).model, threads)


def open_session(model: str | bytes, threads: int) -> Any:
    """A session of onnxruntime on a model's bytes, or its path. Raises RuntimeError where there can be none."""
    try:
        import onnxruntime
    except ImportError as error:
        raise RuntimeError(
            "a part of this model runs in onnxruntime, which is not installed; pip install onnxruntime"
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise RuntimeError(f"onnxruntime refuses the model: {error}") from error


_BITS = {
    torch.bfloat16: (torch.uint16, 16),
    torch.float8_e4m3fn: (torch.uint8, 17),
    torch.float8_e5m2: (torch.uint8, 19),
}
"""Types numpy lacks: the integers of their bits, and ONNX's number of the type."""


def to_value(x: Tensor) -> Any:
    """A tensor as onnxruntime takes it."""
    import onnxruntime

    x = x.detach().contiguous()
    if x.dtype in _BITS:
        integers, number = _BITS[x.dtype]
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(integers).numpy(), number)
    return onnxruntime.OrtValue.ortvalue_from_numpy(x.numpy())


def from_value(value: Any) -> Tensor:
    """A result of onnxruntime as a tensor."""
    if not value.is_tensor():
        raise RuntimeError("onnx::region: an output is no tensor")
    kind = value.element_type()
    for dtype, (_, number) in _BITS.items():
        if kind == number:
            return from_dlpack(value._ortvalue.to_dlpack()).view(dtype)
    return torch.from_numpy(value.numpy())


def run_region(inputs: Sequence[Tensor], model: str) -> list[Tensor]:
    """Run a registered model on tensors."""
    session = _session(model, torch.get_num_threads())
    names = [given.name for given in session.get_inputs()]
    feeds = dict(zip(names, map(to_value, inputs), strict=True))
    values = session.run_with_ort_values([given.name for given in session.get_outputs()], feeds)
    return [from_value(value) for value in values]


def _fake(inputs: Sequence[Tensor], model: str) -> list[Tensor]:
    context = torch.library.get_ctx()
    made = []
    for output in region_of(model).outputs:
        shape = [
            context.new_dynamic_size() if dim is None else dim if isinstance(dim, int) else inputs[dim[0]].shape[dim[1]]
            for dim in output.shape
        ]
        made.append(torch.empty(shape, dtype=output.dtype))
    return made


_library = OpLibrary("FRAGMENT", "onnx")
_library.define(SCHEMA)
_library.kernel("region", run_region, "CPU")
_library.kernel("region", run_region, "BackendSelect")  # where no input says which backend
_library.fake("region", _fake)

region = torch.ops.onnx.region.default
