"""``attnc run``: an artifact, a graph in text form or a model, on inputs from a file.

An artifact runs without the compiler: only the runtime is loaded. A graph in text form runs through the reference
interpreter, and a model is compiled first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnc.compiler.cli import dims, source
from attnc.compiler.cli.errors import CliError
from attnc.compiler.cli.inputs import read_npz

if TYPE_CHECKING:
    from torch import Tensor

    from attnc.runtime.artifact.manifest import Port


def run_source(
    src: Annotated[str, typer.Argument(metavar="SRC", help=f"file.attnc, {source.HELP}")],
    example: Annotated[
        Path, typer.Option("--inputs", metavar="FILE", help="An .npz: arrays named as the inputs, or arr_0, arr_1, ….")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the results as .npz.")
    ] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=RANGE", help=dims.HELP)] = None,
) -> None:
    """Run a model on given inputs; print each result's shape, dtype and range."""
    results = _results(src, example, dims.parse_dims(dim or []))
    for name, tensor in results.items():
        typer.echo(f"{name}: {tensor.dtype} {list(tensor.shape)} {_range(tensor)}")
    if output is None:
        return
    import numpy

    from attnc.compiler.cli.output import staged_file

    with staged_file(output) as temporary, temporary.open("wb") as stream:
        numpy.savez(stream, **{name: _to_numpy(tensor) for name, tensor in results.items()})


def _results(src: str, example: Path, ranges: tuple[dims.DimRange, ...]) -> dict[str, Tensor]:
    if src.endswith(".ir"):
        from attnc.compiler.cli.execute import execute

        return execute(source.read_graph(Path(src)), example)
    import torch

    arrays = read_npz(example)
    if src.endswith(source.ARTIFACT):
        from attnc.runtime.artifact.loader import load

        program: Any = load(src)
        ports = program.inputs
    else:
        program = source.compiled(source.load(src, example, ranges))
        ports = program.hosted.inputs
    try:
        results = program.run(named(arrays, ports))
    except (ValueError, TypeError) as error:
        raise CliError(f"running {src}: {error}") from error
    return {name: result for name, result in results.items() if isinstance(result, torch.Tensor)}


def named(arrays: Mapping[str, Tensor], ports: tuple[Port, ...]) -> dict[str, Tensor]:
    """The arrays by the names of inputs; floats in the dtype of theirs, because a file has no bfloat16."""
    from attnc.runtime.host_names import TORCH_DTYPES

    found = {}
    for name, array in arrays.items():
        number = re.fullmatch(r"arr_(\d+)", name)
        place = int(number[1]) if number else -1
        port = ports[place] if 0 <= place < len(ports) else next((p for p in ports if p.name == name), None)
        kind = TORCH_DTYPES.get(port.dtype) if port is not None else None
        is_float = kind is not None and kind.is_floating_point and array.is_floating_point()
        found[name if port is None else port.name] = array.to(kind) if is_float else array
    return found


def _range(tensor: Tensor) -> str:
    """The least and greatest element; ``empty`` where there is none."""
    if tensor.numel() == 0:
        return "empty"
    if tensor.is_complex():
        return f"of magnitude {tensor.abs().min().item():.6g} to {tensor.abs().max().item():.6g}"
    return f"from {tensor.min().item():.6g} to {tensor.max().item():.6g}"


def _to_numpy(tensor: Tensor) -> Any:
    """numpy has no bfloat16: such results are widened to float32, which loses nothing."""
    import torch

    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
