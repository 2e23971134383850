"""Products that sum over a dimension. Outside attention only static dimensions may be summed."""

from __future__ import annotations

from attnc.compiler.derive.known import BATCH, Kind, Known, is_static
from attnc.compiler.derive.refusal import MIXES, NO_RULE
from attnc.compiler.derive.rules.layout import moved
from attnc.compiler.derive.rules.pointwise import joined
from attnc.compiler.derive.step import Rule, Step


def linear(step: Step) -> Known:
    """x @ Wᵀ + b with constant weights."""
    known = step.tensor(0, "input")
    _summed(step, known.dims[-1])
    if any(other.kind is not Kind.UNIFORM for other in step.tensors()[1:]):
        raise step.refuse(MIXES, "the weights of a linear layer are data")
    return moved(known, (*known.dims[:-1], *step.label(step.shape[-1:])))


def matmul(step: Step) -> Known:
    """A product of two tensors; what is added to it must have the product's axes."""
    operands = step.tensors()
    a, b = operands[-2:]
    found = _product(step, a, b)
    bias = operands[:-2]
    return joined(step, [found, *bias], len(found.dims)) if bias else found


def _product(step: Step, a: Known, b: Known) -> Known:
    vector = len(b.dims) == 1
    _summed(step, a.dims[-1])
    _summed(step, b.dims[-1] if vector else b.dims[-2])
    if vector or len(a.dims) == 1:
        if Kind.UNIFORM not in (a.kind, b.kind):
            raise step.refuse(MIXES, "a product of two vectors of data")
        outer = a.dims[:-1] if vector else (*b.dims[:-2], b.dims[-1])
        return Known(step.kind([a, b]), outer)
    rank = len(step.shape) - 2
    rows, columns = Known(a.kind, (*a.dims[:-1], ())), Known(b.kind, (*b.dims[:-2], (), b.dims[-1]))
    return joined(step, [rows, columns], rank + 2)


def _summed(step: Step, dim: tuple[int | str, ...]) -> None:
    if not is_static(dim):
        raise step.refuse(MIXES, f"a product is summed over {'·'.join(map(str, dim))}")


def addmm(step: Step) -> Known:
    """b + x @ W."""
    bias, x, weight = step.tensors()[:3]
    return joined(step, [bias, _product(step, x, weight)], 2)


def einsum(step: Step) -> Known:
    """A product by letters: a letter is one axis everywhere, and letters that are summed are static."""
    equation, parts = step.op.args[:2]
    assert isinstance(equation, str) and isinstance(parts, tuple)
    written, arrow, result = equation.replace(" ", "").partition("->")
    operands = [step.fact(part) for part in parts]
    letters = written.split(",")
    if not arrow or "." in equation or any(len(set(names)) != len(names) for names in (*letters, result)):
        raise step.refuse(NO_RULE, f"einsum {equation!r}: write the result's letters, each once, and no ellipsis")
    alphabet = "".join(dict.fromkeys(written.replace(",", "")))
    spread = [
        Known(known.kind, tuple(known.dims[names.index(a)] if a in names else () for a in alphabet), None, known.source)
        for known, names in zip(operands, letters, strict=True)
    ]
    whole = joined(step, spread, len(alphabet))
    for letter, dim in zip(alphabet, whole.dims, strict=True):
        if letter not in result:
            _summed(step, dim)
    return moved(whole, tuple(whole.dims[alphabet.index(letter)] for letter in result))


def convolution(step: Step) -> Known:
    """Over everything but the batch: for what a request is given once, not for tokens."""
    known, weights = step.tensor(0, "input"), step.tensor(1, "weight")
    if len(known.dims) != len(weights.dims) or known.dims[0] != (BATCH,) or not all(map(is_static, known.dims[1:])):
        raise step.refuse(MIXES, "a convolution over tokens or requests")
    if any(other.kind is not Kind.UNIFORM for other in step.tensors()[1:]):
        raise step.refuse(MIXES, "the weights of a convolution are data")
    return moved(known, (known.dims[0], *step.label(step.shape[1:])))


RULES: dict[str, Rule] = {
    **{f"aten.{name}": convolution for name in ("conv1d", "conv2d", "convolution")},
    "aten.linear": linear,
    **{f"aten.{name}": matmul for name in ("matmul", "mm", "bmm", "baddbmm", "mv", "dot")},
    "aten.addmm": addmm,
    "aten.einsum": einsum,
}
