"""FX graph → host program: a flat list of operator calls that runs without the compiler.

Shapes and arithmetic on them become size programs, elements of tuples become registers, and equal constants become one.
The FX graph and not the IR is read, because there attentions and rotations are already the calls they became, and
writes to inputs are in their places.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from attnc.compiler.frontends.torch.dtypes import literal
from attnc.compiler.frontends.torch.importer import SOURCE
from attnc.compiler.frontends.torch.names import op_name
from attnc.compiler.host.fx_numbers import Numbers
from attnc.compiler.host.mutation import hidden_copy_
from attnc.compiler.host.program_constants import Constants
from attnc.compiler.host.size_programs import InputSizes
from attnc.ir.graph import Graph
from attnc.ir.types import Dim, ScalarType, TensorType, Type
from attnc.ir.values import Location
from attnc.runtime.host_liveness import with_frees
from attnc.runtime.host_names import allowed
from attnc.runtime.host_program import HostProgram, Input, Results, Step
from attnc.runtime.host_steps import Arg, Constant, Literal, Register

_DROPPED = ("torch.set_grad_enabled",)
"""What means nothing to a program, which has no gradients."""


def to_program(module: torch.fx.GraphModule, graph: Graph) -> tuple[HostProgram, dict[str, torch.Tensor]]:
    """The program of a graph and its constants by name, which share the module's memory where they are contiguous.

    ``module`` is a graph as ``export_graph`` makes it, with or without ``put_back`` and ``unlift``; its attributes are
    the constants. ``graph`` is the IR it came from: its inputs say types and named sizes. No two constants are one
    tensor. Raises ValueError for what a program has no form for: control flow, autocast regions, arguments that are no
    plain values, a tuple that isn't taken apart.
    """
    return _Conversion(module, graph).run()


class _Conversion:
    def __init__(self, module: torch.fx.GraphModule, graph: Graph) -> None:
        self.module = module
        self.graph = graph
        self.types = {value.name: value.type for value in graph.inputs}
        self.placeholders = module.graph.find_nodes(op="placeholder")
        self.places = {node: place for place, node in enumerate(self.placeholders)}
        shapes = [(_user_name(node), _dims(self._type(node))) for node in self.placeholders]
        self.sizes = InputSizes(shapes, graph.sizes)
        self.constants = Constants()
        self.registers: dict[Node, int] = {}
        self.tuples: dict[Node, dict[int, int]] = {}
        """Node with several results → index of a result → its register."""
        self.numbers = Numbers()
        self.steps: list[Step] = []
        self.count = 0

    def run(self) -> tuple[HostProgram, dict[str, torch.Tensor]]:
        visit: dict[str, Callable[[Node], None]] = {
            "placeholder": self._placeholder,
            "get_attr": lambda node: None,
            "call_function": self._call,
            "output": lambda node: None,
        }
        for node in self.module.graph.nodes:
            if node.op not in visit:
                raise ValueError(f"making a host program: %{node.name} is a {node.op} node of {node.target}")
            try:
                visit[node.op](node)
            except ValueError as error:
                raise ValueError(f"{error}{self._place(node)}") from error
        results = self.module.graph.output_node().args[0]
        outputs = tuple(self._arg(item) for item in (results if isinstance(results, tuple | list) else (results,)))
        return self._program(outputs), self.constants.tensors

    def _program(self, outputs: tuple[Arg, ...]) -> HostProgram:
        program = HostProgram(
            tuple(self.sizes.named),
            tuple(self._input(i, node) for i, node in enumerate(self.placeholders)),
            self.constants.infos(),
            self.numbers.values,
            tuple(self.steps),
            outputs,
        )
        return replace(program, steps=with_frees(program))

    def _place(self, node: Node) -> str:
        """Where the user wrote it, for a message."""
        loc = next((op.loc for op in self.graph.ops for value in op.results if value.name == node.name), Location())
        return "" if loc == Location() else f" (at {loc}{f' in `{loc.code}`' if loc.code else ''})"

    def _type(self, node: Node) -> Type:
        if node.name not in self.types:
            raise ValueError(f"making a host program: %{node.name} is no input of the IR graph")
        return self.types[node.name]

    def _input(self, i: int, node: Node) -> Input:
        type = self._type(node)
        shape = tuple(self.sizes.program((i, d)) for d in range(len(_dims(type))))
        if isinstance(type, TensorType):
            return Input(_user_name(node), type.dtype.value, shape)
        if isinstance(type, ScalarType):
            return Input(_user_name(node), type.kind, shape)
        if node.users:
            raise ValueError(f"making a host program: input {_user_name(node)} is no tensor and no number: {type}")
        return Input(_user_name(node), "any")

    def _placeholder(self, node: Node) -> None:
        self.registers[node] = self.count
        if isinstance(type := self._type(node), ScalarType):
            is_size = type.kind == "int"
            self.numbers.known[node] = self.sizes.program((self.count, 0)) if is_size else (f"#{self.count}",)
        self.count += 1

    def _call(self, node: Node) -> None:
        target: Any = torch.ops.aten.copy_.default if node.target is hidden_copy_ else node.target
        if target is operator.getitem and node.args[0] in self.tuples:
            self._element(node)
        elif isinstance(target, torch._ops.OpOverload):
            if not self._dimension(node):
                self._step(node, target)
        elif (name := op_name(target)).startswith("py."):
            self.numbers.compute(node, name.removeprefix("py."))
        elif name not in _DROPPED:
            raise ValueError(f"making a host program: %{node.name} calls {name}, which is no operator")

    def _element(self, node: Node) -> None:
        whole, index = node.args
        assert isinstance(whole, Node) and isinstance(index, int)
        self.registers[node] = self.tuples[whole][index]

    def _dimension(self, node: Node) -> bool:
        """Whether the node reads a dimension of an input: then it is known by its size program."""
        if node.target != torch.ops.aten.sym_size.int or node.args[0] not in self.places:
            return False
        tensor, dim = node.args
        assert isinstance(tensor, Node) and isinstance(dim, int)
        self.numbers.known[node] = self.sizes.program((self.places[tensor], dim % len(_dims(self._type(tensor)))))
        return True

    def _step(self, node: Node, target: torch._ops.OpOverload[Any, Any]) -> None:
        if not allowed(target, op_name(target)):
            raise ValueError(f"making a host program: %{node.name} calls {op_name(target)}, which none may call")
        args = tuple(self._arg(arg) for arg in node.args)
        kwargs = tuple((key, self._arg(arg)) for key, arg in node.kwargs.items())
        self.steps.append(Step(op_name(target), args, kwargs, self._results(node, target)))

    def _results(self, node: Node, target: torch._ops.OpOverload[Any, Any]) -> Results:
        """Registers for what is read of a call's results."""
        returns = target._schema.returns
        if not node.users:
            return None
        if len(returns) != 1 or isinstance(returns[0].type, torch.ListType):
            return self._tuple(node)
        self.registers[node] = register = self._register()
        if not isinstance(returns[0].type, torch.TensorType):
            self.numbers.known[node] = (f"#{register}",)
        return register

    def _tuple(self, node: Node) -> tuple[int | None, ...]:
        if any(user.target is not operator.getitem for user in node.users):
            raise ValueError(f"making a host program: the results of %{node.name} are used as one tuple")
        indices = {user.args[1] for user in node.users}
        self.tuples[node] = {index: self._register() for index in sorted(i for i in indices if isinstance(i, int))}
        return tuple(self.tuples[node].get(index) for index in range(max(self.tuples[node]) + 1))

    def _register(self) -> int:
        self.count += 1
        return self.count - 1

    def _arg(self, arg: Any) -> Arg:
        if isinstance(arg, Node):
            return self._read(arg)
        if isinstance(arg, tuple | list):
            return tuple(self._arg(item) for item in arg)
        if isinstance(arg, float) and not math.isfinite(arg):
            return Literal("float", repr(arg))
        if arg is None or isinstance(arg, bool | int | float | str):
            return arg
        if (known := literal(arg)) is not None:
            return Literal(known.kind, known.text)
        raise ValueError(f"making a host program: an argument is a {type(arg).__name__}: {arg}")

    def _read(self, node: Node) -> Arg:
        if node.op == "get_attr":
            return self._constant(node)
        return self.numbers.argument(node) if node in self.numbers.known else Register(self.registers[node])

    def _constant(self, node: Node) -> Constant:
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        if not isinstance(found, torch.Tensor):
            raise ValueError(f"making a host program: constant {node.target} is a {type(found).__name__}, not a tensor")
        return Constant(self.constants.add(str(node.meta.get(SOURCE, node.target)), found))


def _user_name(node: Node) -> str:
    return str(node.meta.get(SOURCE, node.name))


def _dims(type: Type) -> tuple[Dim | None, ...]:
    """The dimensions a size may be read from; None where the IR has no expression for it."""
    if isinstance(type, TensorType):
        return type.shape
    return (type.expr,) if isinstance(type, ScalarType) and type.kind == "int" else ()
