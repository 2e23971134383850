"""SRC: what a command works on.

``file.onnx`` · ``file.ir`` · ``pkg.module:factory`` · ``models:NAME`` · a Hugging Face folder · ``file.gguf``. A
factory is called without arguments and returns a model, or (model, args), or (model, args, kwargs).
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnc.compiler.cli.dims import DimRange, dynamic_shapes, example_sizes
from attnc.compiler.cli.errors import CliError
from attnc.compiler.cli.inputs import read_npz, split

if TYPE_CHECKING:
    from torch import nn

    from attnc.compiler.api import Program
    from attnc.ir.graph import Graph

HELP = "file.onnx, file.ir, pkg.module:factory, models:NAME, a Hugging Face folder, or file.gguf."
UNREAD = {".pt2": "exported programs"}
ARTIFACT = ".attnc"
"""Of a file that is compiled already."""


@dataclass(frozen=True)
class Subject:
    """A model and the example inputs it is compiled for; a graph has its types instead."""

    name: str
    model: nn.Module | Graph | Path
    """A path is that of an ONNX file."""
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    dynamic_shapes: dict[str, Any] | None = None


def load(src: str, inputs: Path | None, ranges: tuple[DimRange, ...] = ()) -> Subject:
    """What SRC names: a model with its example inputs, or the graph of a ``.ir`` file.

    Raises CliError for a source that can't be read, a name that can't be found, and a model whose inputs nobody gave;
    ParseError and VerifyError for the text of a graph.
    """
    if src.endswith(".ir"):
        return Subject(src, read_graph(Path(src)))
    if src.endswith(".onnx"):
        return _onnx(src, inputs, ranges)
    return resolve(src, inputs, ranges)


def _onnx(src: str, inputs: Path | None, ranges: tuple[DimRange, ...]) -> Subject:
    """An ONNX file: its sizes have names of its own, its inputs too."""
    if not Path(src).is_file():
        raise CliError(f"reading {src}: no such file")
    sizes = {given.name: given.lo if given.fixed else (given.lo, given.hi) for given in ranges}
    kwargs = {} if inputs is None else dict(read_npz(inputs))
    return Subject(src, Path(src), (), kwargs, sizes or None)


def hold_constants(subject: Subject, inputs: Path | None) -> None:
    """Give a graph the constants its text lacks, from the arrays of a file. Raises CliError where one is missing."""
    from attnc.compiler.cli.execute import constants
    from attnc.ir.graph import Graph

    graph = subject.model
    if isinstance(graph, Graph):
        graph.constants.update(constants(graph, read_npz(inputs) if inputs else {}))


def compiled(subject: Subject, options: Mapping[str, Any] | None = None) -> Program:
    """The subject, compiled. Raises whatever compiling raises."""
    from attnc.compiler import api

    return api.compile(
        subject.model, subject.args, subject.kwargs, dynamic_shapes=subject.dynamic_shapes, name=subject.name,
        options=options,
    )  # fmt: skip


def read_graph(path: Path) -> Graph:
    """The verified graph of a ``.ir`` file.

    Raises CliError for a file that can't be read, ParseError and VerifyError for its text.
    """
    from attnc.ir.parser import parse_graph
    from attnc.ir.verifier import verify

    if not path.is_file():
        raise CliError(f"reading {path}: no such file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CliError(f"reading {path}: not a text file ({error.reason} at byte {error.start})") from error
    graph = parse_graph(text, source=str(path))
    verify(graph)
    return graph


def resolve(src: str, inputs: Path | None, ranges: tuple[DimRange, ...] = ()) -> Subject:
    """The model SRC names, with its example inputs. Raises CliError as :func:`load` does."""
    model, args, kwargs = _load(src, ranges, given=inputs is not None)
    if inputs is not None:
        args, kwargs = split(read_npz(inputs))
    elif not args and not kwargs:
        raise CliError(f"{src}: no example inputs; give --inputs file.npz, or let the factory return (model, args)")
    named = _by_name(src, model, args, kwargs)
    return Subject(src, model, args, kwargs, dynamic_shapes(ranges, named) if ranges else None)


def _load(src: str, ranges: tuple[DimRange, ...], *, given: bool) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    path = Path(src)
    if path.suffix == ARTIFACT:
        raise CliError(f"{src}: is compiled already; attnc run and attnc inspect take such a file")
    if path.suffix in UNREAD:
        raise CliError(f"{src}: this version does not read {UNREAD[path.suffix]}; sources are {HELP}")
    sizes = example_sizes(ranges)
    if src.startswith("models:"):
        from attnc import models

        try:
            return _with_examples(models.build(src.removeprefix("models:")), sizes)
        except (ValueError, FileNotFoundError) as error:
            raise CliError(str(error)) from error
    if path.is_dir() or path.suffix == ".gguf":
        from attnc.compiler.cli import hf

        model = hf.load(path)
        return model, (), {} if given else hf.example_inputs(model, **sizes)
    if ":" in src:
        return _unpack(src, _find(src), sizes)
    raise CliError(f"{src}: no such file, folder or model; sources are {HELP}")


def _find(src: str) -> Any:
    """The object ``pkg.module:name`` names; modules of the working directory are found too."""
    module_name, _, attribute = src.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise CliError(f"{src}: importing {module_name}: it needs {error.name}, which is not installed") from error
        raise CliError(f"{src}: no module {module_name} on the path or in {Path.cwd()}") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not hasattr(module, attribute):
        raise CliError(f"{src}: module {module_name} has no {attribute or 'name after the colon'}")
    return getattr(module, attribute)


def _unpack(src: str, found: Any, sizes: dict[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    from torch import nn

    if isinstance(found, nn.Module):
        return _with_examples(found, sizes)
    if not callable(found):
        raise CliError(f"{src}: is of type {type(found).__name__}; name a model, or a function that returns one")
    made = found()
    match made:
        case nn.Module():
            return _with_examples(made, sizes)
        case (model, tuple(args)) if callable(model):
            return _as_module(model), args, {}
        case (model, tuple(args), dict(kwargs)) if callable(model):
            return _as_module(model), args, kwargs
    raise CliError(
        f"{src}: returned {type(made).__name__}; return a model, (model, args), or (model, args, kwargs), "
        "with args a tuple and kwargs a dict"
    )


def _as_module(model: Any) -> nn.Module:
    """A plain function as a module, which is what ``torch.export`` takes."""
    from torch import nn

    if isinstance(model, nn.Module):
        return model
    module = nn.Module()
    module.forward = model
    return module


def _with_examples(model: Any, sizes: dict[str, int]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    make = getattr(model, "example_inputs", None)
    return model, (), make(**sizes) if callable(make) else {}


def _by_name(src: str, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The example inputs by argument name; positional ones by number where the model has no Python signature.

    Raises CliError where they don't fit the signature.
    """
    try:
        signature = inspect.signature(getattr(model, "forward", model))
    except ValueError:
        return {**{str(position): value for position, value in enumerate(args)}, **kwargs}
    try:
        return dict(signature.bind(*args, **kwargs).arguments)
    except TypeError as error:
        raise CliError(f"{src}: the inputs don't fit {signature}: {error}") from error
