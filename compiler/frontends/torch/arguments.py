"""Arguments: FX trees to IR trees, and back.

The IR has tuples, values, plain constants and literals. What it has no form for (lists as opposed to tuples, dicts,
slices, host objects) is kept in a *template*, the FX tree without its nodes: the way back reads the shape of the tree
from there and its leaves from the IR, so an unchanged argument comes back exactly and a changed one is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from attnc.compiler.frontends.torch.dtypes import from_literal, literal
from attnc.ir.values import Arg, Literal, Value

OBJECT = "object"
"""Literal kind of a host object that only the template holds."""


def to_ir(arg: Any, value_of: Callable[[torch.fx.Node], Value]) -> Arg:
    """The IR tree of an FX argument."""
    if isinstance(arg, torch.fx.Node):
        return value_of(arg)
    if arg is None or isinstance(arg, bool | int | float | complex | str):
        return arg
    if isinstance(arg, tuple | list):
        return tuple(to_ir(item, value_of) for item in arg)
    if isinstance(arg, dict):
        return tuple((str(key), to_ir(item, value_of)) for key, item in arg.items())
    if isinstance(arg, slice):
        return tuple(to_ir(item, value_of) for item in (arg.start, arg.stop, arg.step))
    return literal(arg) or Literal(OBJECT, type(arg).__name__)


def template(arg: Any) -> Any:
    """The FX tree with each node replaced by None, so that it does not keep its graph alive."""
    return torch.fx.node.map_arg(arg, lambda node: None)


def to_fx(arg: Arg, node_of: Callable[[Value], Any], like: Any = None) -> Any:
    """The FX tree of an IR argument; ``like`` is its template where it came from FX.

    Raises ValueError for a host object literal without a template.
    """
    if isinstance(arg, Value):
        return node_of(arg)
    if isinstance(arg, Literal):
        return _object(arg, like)
    if not isinstance(arg, tuple):
        return arg
    if isinstance(like, dict) and all(isinstance(item, tuple) and len(item) == 2 for item in arg):
        return {item[0]: to_fx(item[1], node_of, like.get(item[0])) for item in arg if isinstance(item, tuple)}
    if isinstance(like, slice):
        return slice(*(to_fx(a, node_of, b) for a, b in zip(arg, (like.start, like.stop, like.step), strict=True)))
    likes = [*like[: len(arg)]] if isinstance(like, tuple | list) else []
    likes += [None] * (len(arg) - len(likes))
    items = [to_fx(a, node_of, b) for a, b in zip(arg, likes, strict=True)]
    return tuple(items) if isinstance(like, tuple) else items


def _object(arg: Literal, like: Any) -> Any:
    if arg.kind != OBJECT:
        return from_literal(arg)
    if like is None or type(like).__name__ != arg.text:
        raise ValueError(f"the {arg.text} this argument stands for is not known: the op has lost its frontend metadata")
    return like
