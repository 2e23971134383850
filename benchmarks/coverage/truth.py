"""How many attentions a model has: a rule on one recorded eager forward that knows nothing of attnc.

An attention is a softmax of rank three or more with a product of two computed tensors on either side: its scores come
from one, its weights go into another, and on both ways there is nothing but views and elementwise operators. A product
with a parameter is a linear layer, not one of the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from benchmarks.coverage.recorder import Node, Recording, record

SOFTMAXES = frozenset({"_softmax", "_safe_softmax"})
WITH_BIAS = frozenset({"addmm", "baddbmm"})
LINEAR = frozenset({"mm", "addmm"})
PRODUCTS = WITH_BIAS | LINEAR | {"bmm", "matmul"}
VIEWS = frozenset(
    "view _unsafe_view reshape _reshape_alias expand permute transpose t unsqueeze squeeze clone contiguous _to_copy "
    "to alias detach slice select as_strided unfold lift_fresh copy_".split()
)
ELEMENTWISE = frozenset(
    "add add_ sub sub_ rsub mul mul_ div div_ pow neg tanh relu sigmoid softplus clamp clamp_ minimum maximum amax "
    "where masked_fill masked_fill_ bitwise_not nan_to_num nan_to_num_ triu tril dropout native_dropout "
    "native_layer_norm convolution constant_pad_nd cat gather index_put index_put_ unbind split split_with_sizes "
    "chunk".split()
)
"""Operators that lie between scores and softmax somewhere in the zoo: relative shifts, talking heads, gates."""
BACKWARD = VIEWS | ELEMENTWISE
FORWARD = BACKWARD - {"index_put"}


@dataclass(frozen=True)
class Truth:
    """Counts of one forward."""

    sites: int
    dead: int
    """Sites whose result no output depends on. A captured graph doesn't hold them."""
    native: int
    """Calls of ``scaled_dot_product_attention``; a model may make some even in its eager form. No sites."""
    others: int
    """Softmaxes that are no attention: routers, gates, pooling."""


def count_sites(model: nn.Module, inputs: Mapping[str, Any]) -> Truth:
    """Run the model once and count."""
    return count(record(model, inputs))


def count(recording: Recording) -> Truth:
    """Count in a recorded forward."""
    softmaxes = [node for node in recording.nodes if node.name in SOFTMAXES]
    sites = [node for node in softmaxes if is_attention(node)]
    live = _upstream(recording.results)
    native = sum(node.name.startswith(("_scaled_dot_product", "scaled_dot_product")) for node in recording.nodes)
    return Truth(len(sites), sum(site not in live for site in sites), native, len(softmaxes) - len(sites))


def is_attention(softmax: Node) -> bool:
    """Whether products lie on both sides of a softmax node."""
    return softmax.rank >= 3 and _comes_from_product(softmax) and _meets_product(softmax)


def _comes_from_product(softmax: Node) -> bool:
    seen: set[Node] = set()
    stack = softmax.sources
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.name in PRODUCTS:
            if not (node.name in LINEAR and any(map(_is_weight, _factors(node)))):
                return True
        elif node.name in BACKWARD:
            stack += node.sources
    return False


def _meets_product(softmax: Node) -> bool:
    seen: set[Node] = set()
    stack = [softmax]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        for user in node.users:
            if user.name in PRODUCTS:
                left, right = _factors(user)
                if not (user.name in LINEAR and _is_weight(left if right is node else right)):
                    return True
            elif user.name in FORWARD:
                stack.append(user)
    return False


def _upstream(nodes: Sequence[Node]) -> set[Node]:
    """The nodes and everything they are made from."""
    seen: set[Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += node.sources
    return seen


def _factors(product: Node) -> tuple[Node, Node]:
    left, right = product.operands[1:3] if product.name in WITH_BIAS else product.operands[:2]
    return left, right


def _is_weight(node: Node) -> bool:
    """Whether a factor is a parameter, or a view or copy of one."""
    while node.name in VIEWS and node.operands:
        node = node.operands[0]
    return node.name == "weight"
