"""Runs a graph in text form through the reference interpreter.

What a graph's text doesn't hold, parameters above all, comes from the inputs file under the constant's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.compiler.cli.errors import CliError
from attnc.compiler.cli.inputs import read_npz

if TYPE_CHECKING:
    from torch import Tensor

    from attnc.ir.graph import Graph
    from attnc.ir.types import Dim, TensorType
    from attnc.ir.values import Value


def execute(graph: Graph, inputs: Path) -> dict[str, Tensor]:
    """The graph's tensor results by value name.

    Raises CliError for an input or constant that is missing or of the wrong type, and for an op that can't be run.
    """
    import torch

    from attnc.compiler.interpreter import Interpreter

    arrays = read_npz(inputs)
    given = bind(graph, arrays)
    graph.constants.update(constants(graph, arrays))
    machine = Interpreter(graph)
    try:
        with torch.no_grad():
            machine.run(given)
    except (LookupError, ValueError, TypeError, RuntimeError) as error:
        op = next(op for op in graph.ops if any(result not in machine.values for result in op.results))
        raise CliError(f"running %{op.results[0].name} = {op.name} ({op.loc}): {error}") from error
    named = {value.name: machine.values[value] for value in graph.output_values()}
    return {name: result for name, result in named.items() if isinstance(result, torch.Tensor)}


def bind(graph: Graph, arrays: Mapping[str, Tensor]) -> list[Any]:
    """The graph's inputs in order, checked: tensors by name, host scalars from the file or from the tensors' sizes."""
    from attnc.ir.types import ScalarType, TensorType

    sizes: dict[str, int] = {}
    values: dict[Value, Any] = {}
    for value in graph.inputs:
        if isinstance(value.type, TensorType):
            values[value] = _tensor(value.name, value.type, arrays, sizes)
    for value in graph.inputs:
        if isinstance(value.type, ScalarType):
            values[value] = _scalar(value, arrays, sizes)
        elif value not in values:
            raise CliError(f"input %{value.name}: is neither a tensor nor a number; such a graph can't be run alone")
    return [values[value] for value in graph.inputs]


def _tensor(name: str, type: TensorType, arrays: Mapping[str, Tensor], sizes: dict[str, int]) -> Tensor:
    """The array of an input, after its dtype and shape; named sizes are learned and compared."""
    from attnc.compiler.frontends.torch.dtypes import TO_TORCH

    if name not in arrays:
        raise CliError(f"input %{name}: missing; the file holds {', '.join(arrays) or 'nothing'}")
    found = arrays[name]
    wanted = TO_TORCH[type.dtype]
    if found.dtype != wanted and not (found.is_floating_point() and wanted.is_floating_point):
        raise CliError(f"input %{name}: is {found.dtype}, the graph wants {wanted}")
    if found.dim() != type.rank or not all(map(_fits(sizes), type.shape, found.shape)):
        shape = ", ".join(map(str, type.shape))
        known = "".join(f", {k} = {v}" for k, v in sizes.items())
        raise CliError(f"input %{name}: has shape {list(found.shape)}, the graph wants [{shape}]{known}")
    return found.to(wanted)


def _fits(sizes: dict[str, int]) -> Callable[[Dim, int], bool]:
    """Compares a length with a dimension, learning a size where the dimension is its bare name."""
    import sympy

    from attnc.ir.types import size

    def fits(dim: Dim, length: int) -> bool:
        if isinstance(dim, sympy.Symbol):
            return sizes.setdefault(dim.name, length) == length
        if isinstance(dim, int):
            return dim == length
        value = dim.subs({size(name): length for name, length in sizes.items()})
        return bool(value.free_symbols) or int(value) == length

    return fits


def _scalar(value: Value, arrays: Mapping[str, Tensor], sizes: Mapping[str, int]) -> Any:
    from attnc.ir.types import size

    if value.name in arrays:
        return arrays[value.name].item()
    known = getattr(value.type, "expr", None)
    if known is not None:
        import sympy

        number = sympy.sympify(known).subs({size(name): length for name, length in sizes.items()})
        if number.is_Integer:
            return int(number)
    raise CliError(f"input %{value.name}: missing; give a 0-dimensional array of that name")


def constants(graph: Graph, arrays: Mapping[str, Tensor]) -> dict[str, Any]:
    """The graph's constants, from the arrays where those have them. Raises CliError for one without numbers."""
    import numpy
    import torch

    bound = {}
    for name, payload in graph.constants.items():
        if isinstance(payload, numpy.ndarray):
            payload = torch.from_numpy(payload)
        payload = arrays.get(name, payload)
        if payload is None:
            raise CliError(f"constant @{name}: its numbers are not in the graph's text; add an array of that name")
        bound[name] = payload
    return bound
