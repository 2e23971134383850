"""Operators on one element, or on elements at the same place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnc.compiler.frontends.onnx.dtypes import dtype_of
from attnc.compiler.frontends.onnx.errors import NoForm, wrong
from attnc.compiler.frontends.onnx.known import Constant, Sizes, Value, is_scalar, materialise, number, untraced
from attnc.compiler.frontends.onnx.node import Node
from attnc.compiler.frontends.onnx.ops.float8 import FLOAT8, to_float8
from attnc.compiler.frontends.onnx.table import ALL, op

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs,
    "Acos": torch.acos,
    "Acosh": torch.acosh,
    "Asin": torch.asin,
    "Asinh": torch.asinh,
    "Atan": torch.atan,
    "Atanh": torch.atanh,
    "BitwiseNot": torch.bitwise_not,
    "Ceil": torch.ceil,
    "Cos": torch.cos,
    "Cosh": torch.cosh,
    "Erf": torch.erf,
    "Exp": torch.exp,
    "Floor": torch.floor,
    "IsNaN": torch.isnan,
    "Log": torch.log,
    "Neg": torch.neg,
    "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal,
    "Relu": torch.relu,
    "Round": torch.round,
    "Sigmoid": torch.sigmoid,
    "Sign": torch.sign,
    "Sin": torch.sin,
    "Sinh": torch.sinh,
    "Softplus": F.softplus,
    "Softsign": F.softsign,
    "Sqrt": torch.sqrt,
    "Tan": torch.tan,
    "Tanh": torch.tanh,
    "HardSwish": F.hardswish,
    "Mish": F.mish,
}
for _name, _function in _UNARY.items():
    op(_name)(lambda node, x, _function=_function: _function(x))


def pair(a: Value, b: Value) -> tuple[Any, Any]:
    """Two operands; one that is a single constant number and adds no dimension comes as a Python number."""
    if is_scalar(b) and isinstance(a, Tensor) and len(b.shape) <= a.dim():  # type: ignore[union-attr]
        return a, number(b, "an operand")
    if is_scalar(a) and isinstance(b, Tensor) and len(a.shape) <= b.dim():  # type: ignore[union-attr]
        return number(a, "an operand"), b
    return materialise(a), materialise(b)


def alike(node: Node, *values: Value) -> None:
    """Raise OnnxError for operands of different types, which ONNX never converts."""
    typed = [value for value in values if isinstance(value, Tensor | Constant | Sizes)]
    types = [str(value.dtype).removeprefix("torch.") for value in typed]
    if len(set(types)) > 1:
        named = ", ".join(f"{name!r} is {dtype}" for name, dtype in zip(node.inputs, types, strict=False))
        hint = ""
        if node.op == "Add" and "bool" in types:
            hint = "; a mask of booleans is no number: the exporter should have written Where(mask, 0, -inf)"
        raise wrong(node, f"its inputs have different types: {named}{hint}")


_BINARY: dict[str, tuple[Callable[[Any, Any], Tensor], Callable[[Any, Any], Tensor]]] = {
    "Add": (torch.add, torch.add),
    "Sub": (torch.sub, torch.rsub),
    "Mul": (torch.mul, torch.mul),
    "Equal": (torch.eq, torch.eq),
    "Less": (torch.lt, torch.gt),
    "LessOrEqual": (torch.le, torch.ge),
    "Greater": (torch.gt, torch.lt),
    "GreaterOrEqual": (torch.ge, torch.le),
}
"""Functions of (tensor, tensor or number), and of (tensor, number) where the number is the first operand."""
_BITWISE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "And": torch.logical_and,
    "Or": torch.logical_or,
    "Xor": torch.logical_xor,
    "BitwiseAnd": torch.bitwise_and,
    "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor,
}


def _enter_binary(name: str, function: Callable[[Any, Any], Tensor], swapped: Callable[[Any, Any], Tensor]) -> None:
    @op(name, known=ALL)
    def form(node: Node, a: Value, b: Value) -> Tensor:
        alike(node, a, b)
        x, y = pair(a, b)
        return function(x, y) if isinstance(x, Tensor) else swapped(y, x)


def _enter_bitwise(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @op(name)
    def form(node: Node, a: Tensor, b: Tensor) -> Tensor:
        alike(node, a, b)
        return function(a, b)


for _name, _two in _BINARY.items():
    _enter_binary(_name, *_two)
for _name, _bits in _BITWISE.items():
    _enter_bitwise(_name, _bits)


@op("Div", known=ALL)
def divide(node: Node, a: Value, b: Value) -> Tensor:
    """A quotient; of integers rounded toward zero."""
    alike(node, a, b)
    if materialise(a).dtype.is_floating_point or materialise(a).dtype.is_complex:
        x, y = pair(a, b)
        return torch.div(x, y) if isinstance(x, Tensor) else torch.reciprocal(y) if x == 1 else materialise(a) / y
    return torch.div(materialise(a), materialise(b), rounding_mode="trunc")


@op("Mod")
def modulo(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """The remainder: with the sign of the divisor, or of the dividend where ``fmod`` is set."""
    alike(node, a, b)
    return torch.fmod(a, b) if node.get("fmod", 0) else torch.remainder(a, b)


@op("Pow", known=ALL)
def power(node: Node, a: Value, b: Value) -> Tensor:
    """A power, in the type of the base."""
    x = materialise(a)
    if is_scalar(b) and len(b.shape) <= x.dim():  # type: ignore[union-attr]
        exponent = number(b, "the exponent")
        exponent = int(exponent) if float(exponent).is_integer() else exponent
        return torch.pow(x, exponent).to(x.dtype)
    y = materialise(b)
    if not x.is_floating_point() and y.is_floating_point():
        return torch.pow(x.to(torch.float64), y.to(torch.float64)).to(x.dtype)
    return torch.pow(x, y.to(x.dtype) if x.is_floating_point() else y).to(x.dtype)


@op("BitShift")
def bit_shift(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Bits moved to the left or right."""
    return a << b if node.get("direction") == "LEFT" else a >> b


def _enter_variadic(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @op(name)
    def form(node: Node, *values: Tensor) -> Tensor:
        alike(node, *values)
        total = values[0]
        for value in values[1:]:
            total = function(total, value)
        return total / len(values) if name == "Mean" else total


_VARIADIC: dict[str, Callable[..., Tensor]] = {
    "Max": torch.maximum,
    "Min": torch.minimum,
    "Sum": torch.add,
    "Mean": torch.add,
}
for _name, _many in _VARIADIC.items():
    _enter_variadic(_name, _many)


@op("Where", known=ALL)
def where(node: Node, condition: Value, x: Value, y: Value) -> Tensor:
    """An element of x where the condition holds, else of y."""
    alike(node, x, y)
    return torch.where(materialise(condition), materialise(x), materialise(y))


@op("OptionalHasElement", known=ALL, stored=True)
def has_element(node: Node, x: Value = None) -> Constant:
    """Whether there is a value at all."""
    with untraced():
        return Constant(torch.tensor(x is not None))


@op("Identity", "OptionalGetElement", known=ALL, stored=True)
def identity(node: Node, x: Value) -> Value:
    """The input."""
    return x


@op("Cast", stored=True)
def cast(node: Node, x: Tensor) -> Tensor:
    """Another element type. Raises NoForm for types torch lacks."""
    return _converted(node, x, dtype_of(node.get("to")))


@op("CastLike", known=ALL, stored=True)
def cast_like(node: Node, x: Value, like: Value) -> Tensor | Constant:
    """The element type of another tensor; a constant stays one, whatever the other tensor is."""
    dtype = like.dtype if isinstance(like, Constant | Sizes) else materialise(like).dtype
    if isinstance(x, Constant):
        with untraced():
            return Constant(_converted(node, x.tensor, dtype))
    return _converted(node, materialise(x), dtype)


def _converted(node: Node, x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.dtype == dtype:
        return x
    if dtype in FLOAT8:
        return to_float8(x, dtype, saturate=bool(node.get("saturate", 1)))
    return x != 0 if dtype == torch.bool else x.to(dtype)


@op("BitCast", stored=True)
def bit_cast(node: Node, x: Tensor) -> Tensor:
    """The same bits as another type of the same size."""
    dtype = dtype_of(node.get("to"))
    if dtype.itemsize != x.dtype.itemsize or (dtype == torch.bool and x.dtype != torch.bool):
        raise NoForm(f"the bits of {x.dtype} as {dtype}")
    return x.view(dtype)


@op("IsInf")
def is_infinite(node: Node, x: Tensor) -> Tensor:
    """Whether elements are infinite, of either sign or one."""
    negative, positive = node.get("detect_negative", 1), node.get("detect_positive", 1)
    if negative and positive:
        return torch.isinf(x)
    if not (negative or positive):
        return torch.zeros_like(x, dtype=torch.bool)
    return x == (math.inf if positive else -math.inf)


@op("Clip", since=11, known=ALL)
def clip(node: Node, x: Value, low: Value = None, high: Value = None) -> Tensor:
    """Elements between two bounds; the upper one wins where they cross."""
    made = materialise(x)
    for bound, function, scalar in ((low, torch.maximum, "min"), (high, torch.minimum, "max")):
        if bound is None:
            continue
        if is_scalar(bound):
            made = torch.clamp(made, **{scalar: number(bound, "a bound")})
        else:
            made = function(made, materialise(bound))
    return made


@op("Gelu")
def gelu(node: Node, x: Tensor) -> Tensor:
    """x·Φ(x), with erf or by the tanh approximation."""
    return F.gelu(x, approximate=node.get("approximate", "none"))


@op("Elu")
def elu(node: Node, x: Tensor) -> Tensor:
    """alpha·(eˣ − 1) below zero."""
    return F.elu(x, node.get("alpha", 1.0))


@op("Celu")
def celu(node: Node, x: Tensor) -> Tensor:
    """max(0, x) + min(0, alpha·(e^(x/alpha) − 1))."""
    return F.celu(x, node.get("alpha", 1.0))


@op("Selu")
def selu(node: Node, x: Tensor) -> Tensor:
    """gamma·x above zero, gamma·alpha·(eˣ − 1) below."""
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return torch.mul(torch.where(x > 0, x, torch.expm1(x) * alpha), gamma)


@op("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> Tensor:
    """alpha·x below zero."""
    return F.leaky_relu(x, node.get("alpha", 0.01))


@op("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> Tensor:
    """x above alpha, else 0."""
    return torch.where(x > node.get("alpha", 1.0), x, torch.zeros_like(x))


@op("PRelu")
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    """slope·x below zero."""
    return torch.where(x < 0, x * slope, x)


@op("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    """max(0, min(1, alpha·x + beta))."""
    return torch.clamp(x * node.get("alpha", 0.2) + node.get("beta", 0.5), 0, 1)


@op("Swish")
def swish(node: Node, x: Tensor) -> Tensor:
    """x·σ(alpha·x)."""
    alpha = node.get("alpha", 1.0)
    return F.silu(x) if alpha == 1 else x * torch.sigmoid(alpha * x)


@op("Shrink")
def shrink(node: Node, x: Tensor) -> Tensor:
    """x moved by bias toward zero outside of ±lambd, else 0."""
    bias, lambd = node.get("bias", 0.0), node.get("lambd", 0.5)
    return torch.where(x < -lambd, x + bias, torch.where(x > lambd, x - bias, torch.zeros_like(x))).to(x.dtype)


@op("Dropout", until=11)
def old_dropout(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    """The input; before operator set 12 nothing says otherwise."""
    return (x, torch.ones_like(x, dtype=torch.bool)) if node.makes(1) else (x,)


@op("Dropout", since=12, known=(1, 2))
def dropout(node: Node, x: Tensor, ratio: Value = None, training: Value = None) -> tuple[Tensor, ...]:
    """The input: nothing is dropped when a model only answers. Raises NoForm in training mode."""
    if training is not None and number(training, "training_mode"):
        raise NoForm("it drops elements at random")
    return (x, torch.ones_like(x, dtype=torch.bool)) if node.makes(1) else (x,)
