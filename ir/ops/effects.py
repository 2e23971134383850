"""Which ops may be moved, merged or erased.

Declared ops say so themselves. For open dialects the rule is: an op with no result, an in-place or ``out=`` op and any
op of a library that isn't known to be functional is an effect; random ops are known by name.
"""

from __future__ import annotations

from attnc.ir.opdef import Trait
from attnc.ir.ops import REGISTRY
from attnc.ir.types import NoneType
from attnc.ir.values import Op

FUNCTIONAL_DIALECTS = frozenset({"aten", "prims", "onnx"})
"""Open dialects whose ops depend on their operands alone unless their name says otherwise."""

_RANDOM = frozenset(
    """bernoulli binomial dropout native_dropout alpha_dropout feature_dropout feature_alpha_dropout multinomial normal
    poisson rand rand_like randint randint_like randn randn_like randperm rrelu rrelu_with_noise uniform
    _fused_dropout _sample_dirichlet _standard_gamma cauchy exponential geometric log_normal random
    RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial""".split()
)
_IN_PLACE = frozenset({"__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"})
_DROPOUT_POSITION = {
    "scaled_dot_product_attention": 4,
    "_scaled_dot_product_flash_attention": 3,
    "_scaled_dot_product_flash_attention_for_cpu": 3,
    "_scaled_dot_product_efficient_attention": 5,
    "_scaled_dot_product_cudnn_attention": 5,
}
"""Where ``dropout_p`` stands; these are random only where it isn't 0."""


def base_name(op: Op) -> str:
    """The operator without dialect and overload: ``add_`` of ``aten.add_.Tensor``."""
    return op.name.split(".")[1]


def traits(op: Op) -> frozenset[Trait]:
    """What may be assumed of an op; never empty."""
    definition = REGISTRY.get(op.name)
    if definition is not None:
        return definition.traits
    if op.dialect not in FUNCTIONAL_DIALECTS or _mutates(op) or all(isinstance(r.type, NoneType) for r in op.results):
        return frozenset({Trait.EFFECT})
    return frozenset({Trait.RANDOM if _is_random(op) else Trait.PURE})


def _mutates(op: Op) -> bool:
    base = base_name(op)
    in_place = base in _IN_PLACE or (base.endswith("_") and not base.endswith("__"))
    return in_place or "out" in op.kwargs


def _is_random(op: Op) -> bool:
    base = base_name(op)
    position = _DROPOUT_POSITION.get(base)
    return base in _RANDOM or (position is not None and op.arg(position, "dropout_p", 0.0) != 0.0)


def is_pure(op: Op) -> bool:
    """Whether the op may be moved, merged with an equal one and erased when unread."""
    return Trait.PURE in traits(op)


def is_effect(op: Op) -> bool:
    """Whether the op keeps its place among other effects."""
    return Trait.EFFECT in traits(op)
