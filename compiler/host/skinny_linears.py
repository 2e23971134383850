"""Linear layers of a host program → ``attnc::skinny_linear`` over weights packed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from attnc.runtime import skinny
from attnc.runtime.host_names import dtype_name
from attnc.runtime.host_program import ConstantInfo, HostProgram, Step
from attnc.runtime.host_steps import Constant, Register, leaves

SKINNY = "attnc.skinny_linear.default"
Choose = Callable[[Tensor], bool]
"""Whether a weight [N, K] is to be packed."""


def every_weight(weight: Tensor) -> bool:
    """Packs them all."""
    return True


@dataclass(frozen=True)
class _Form:
    """Where an operator has its operands, and whether its weight lies [K, N] and not [N, K]."""

    x: int
    weight: int
    bias: int | None
    turned: bool


_FORMS = {
    "aten.linear.default": _Form(0, 1, 2, False),
    "aten.addmm.default": _Form(1, 2, 0, True),
    "aten.mm.default": _Form(0, 1, None, True),
    "aten.matmul.default": _Form(0, 1, None, True),
}


@dataclass(frozen=True)
class _Linear:
    """A layer of constant weights."""

    x: Register
    weight: Constant
    bias: Constant | None
    turned: bool

    @property
    def panels(self) -> str:
        """What its packed weights are called."""
        return f"{self.weight.name}:{'turned_' if self.turned else ''}panels"

    def of(self, constants: Mapping[str, Tensor]) -> Tensor:
        """The weight, [N, K]."""
        held = constants[self.weight.name]
        return held.mT if self.turned else held


def pack_linears(
    program: HostProgram, constants: Mapping[str, Tensor], choose: Choose
) -> tuple[HostProgram, dict[str, Tensor]]:
    """The program with each linear layer packed whose weight [N, K] ``choose`` takes, and its constants.

    Only weights and biases that are constants, float32 or bfloat16, come in question. A weight is packed once however
    many layers share it, and stays among the constants only where something else reads it.
    """
    layers = [_linear(step, constants) for step in program.steps]
    weights = {layer.panels: layer.of(constants) for layer in layers if layer is not None}
    packed = {name: skinny.pack(weight) for name, weight in weights.items() if choose(weight)}
    steps = [
        step if layer is None or layer.panels not in packed else _skinny(step, layer, packed[layer.panels])
        for step, layer in zip(program.steps, layers, strict=True)
    ]
    panels = {name: found.panels for name, found in packed.items()}
    return _with_constants(program, steps, {**constants, **panels})


def _linear(step: Step, constants: Mapping[str, Tensor]) -> _Linear | None:
    """The layer that a step is, where the op takes its operands."""
    form = _FORMS.get(step.op)
    if form is None or step.kwargs:
        return None
    x, weight = step.args[form.x], step.args[form.weight]
    bias = step.args[form.bias] if form.bias is not None and form.bias < len(step.args) else None
    if not isinstance(x, Register) or not isinstance(weight, Constant) or not isinstance(bias, Constant | None):
        return None
    linear = _Linear(x, weight, bias, form.turned)
    return linear if _fits(linear, constants) else None


def _fits(linear: _Linear, constants: Mapping[str, Tensor]) -> bool:
    weight = constants[linear.weight.name]
    if weight.dim() != 2 or weight.dtype not in skinny.DTYPES:
        return False
    if linear.bias is None:
        return True
    bias = constants[linear.bias.name]
    return bias.shape == weight.shape[1 if linear.turned else 0 :][:1] and bias.dtype in skinny.DTYPES


def _skinny(step: Step, linear: _Linear, packed: skinny.Packed) -> Step:
    return replace(step, op=SKINNY, args=(linear.x, Constant(linear.panels), linear.bias, packed.out_features))


def _with_constants(
    program: HostProgram, steps: Sequence[Step], constants: Mapping[str, Tensor]
) -> tuple[HostProgram, dict[str, Tensor]]:
    """The program with other steps, and those of the constants that it reads."""
    read = {arg.name for arg in _args(program, steps) if isinstance(arg, Constant)}
    kept = {name: tensor for name, tensor in constants.items() if name in read}
    infos = tuple(ConstantInfo(name, dtype_name(t.dtype), tuple(t.shape)) for name, t in kept.items())
    return replace(program, steps=tuple(steps), constants=infos), kept


def _args(program: HostProgram, steps: Sequence[Step]) -> Iterator[object]:
    for step in steps:
        yield from leaves((*step.args, *(value for _, value in step.kwargs)))
    yield from leaves(program.outputs)
