"""Where the sizes of a host program are read, and its dimensions as postfix programs over them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import sympy

from attnc.ir.graph import SizeInfo
from attnc.ir.types import Dim, as_dim
from attnc.runtime.host_program import NamedSize
from attnc.runtime.host_steps import SizeProgram

Place = tuple[int, int]
"""Input and dimension."""


@dataclass
class InputSizes:
    """The sizes that inputs carry: each named size is one dimension of one input.

    A size that no input has as it is, only ``2*S`` or ``S - 1``, is solved for; the named size is then that dimension.
    A dimension that cannot be solved is a size of its own, which nothing else is compared with.
    """

    inputs: Sequence[tuple[str, tuple[Dim | None, ...]]]
    """Name and dimensions of each input; an integer has one dimension, its value. None: nothing is known of it."""
    bounds: Mapping[str, SizeInfo]
    named: list[NamedSize] = field(default_factory=list)
    _solved: dict[sympy.Symbol, sympy.Expr] = field(default_factory=dict)
    _own: dict[Place, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = {(i, d): dim for i, (_, shape) in enumerate(self.inputs) for d, dim in enumerate(shape)}
        dims = {place: sympy.sympify(dim) for place, dim in places.items() if dim is not None}
        for place, dim in dims.items():
            if isinstance(dim, sympy.Symbol) and dim not in self._solved:
                info = self.bounds.get(dim.name, SizeInfo())
                self._solved[dim] = dim
                self.named.append(NamedSize(dim.name, *place, info.lo, info.hi))
        for place, dim in dims.items():
            self._solve(place, dim)
        for place in places:
            if place not in dims or dims[place].free_symbols - self._solved.keys():
                self._own[place] = self._name(place, 0 if place in dims else None, None)

    def program(self, place: Place) -> SizeProgram:
        """The dimension of an input."""
        if place in self._own:
            return (self._own[place],)
        dim = sympy.sympify(self.inputs[place[0]][1][place[1]])
        return postfix(dim.xreplace(self._solved))

    def _solve(self, place: Place, dim: sympy.Expr) -> None:
        """Let the dimension ``a·S + c`` say what S is, where nothing said it before."""
        unknown = dim.free_symbols - self._solved.keys()
        if len(unknown) != 1:
            return
        (symbol,) = unknown
        factor = dim.coeff(symbol)
        rest = sympy.expand(dim - factor * symbol)
        if not (factor.is_Integer and factor > 0 and rest.is_Integer):
            return
        info = self.bounds.get(symbol.name, SizeInfo())
        name = self._name(
            place, int(factor * info.lo + rest), None if info.hi is None else int(factor * info.hi + rest)
        )
        self._solved[symbol] = (sympy.Symbol(name, integer=True) - rest) / factor

    def _name(self, place: Place, lo: int | None, hi: int | None) -> str:
        """A size that is named after its place."""
        name = re.sub(r"\W", "_", f"size_{self.inputs[place[0]][0]}_{place[1]}", flags=re.ASCII)
        while name in self.bounds or name in {size.name for size in self.named}:
            name += "_"
        self.named.append(NamedSize(name, *place, lo, hi))
        return name


def postfix(dim: Dim) -> SizeProgram:
    """A dimension over named sizes. Raises ValueError for a function that no integer operation stands for."""
    dim = as_dim(dim)
    if isinstance(dim, int):
        return (dim,)
    if isinstance(dim, sympy.Symbol):
        return (dim.name,)
    if sympy.together(dim).as_numer_denom()[1] != 1:
        return _quotient(dim)
    if isinstance(dim, sympy.Pow) and dim.exp.is_Integer and dim.exp.is_positive:
        return (*postfix(dim.base), int(dim.exp), ".pow")
    if isinstance(dim, sympy.floor):
        return _quotient(dim.args[0])
    if isinstance(dim, sympy.ceiling):
        return (*_quotient(-dim.args[0]), ".neg")
    if type(dim) in _FOLDED:
        ordered = sorted(dim.args, key=lambda part: (bool(part.is_number), sympy.default_sort_key(part)))
        return reduce(lambda left, right: (*left, *right, _FOLDED[type(dim)]), map(postfix, ordered))
    if type(dim) in _CALLED:
        return (*(token for arg in dim.args for token in postfix(arg)), _CALLED[type(dim)])
    raise ValueError(f"{dim} has no form as a size program ({type(dim).__name__})")


def _quotient(dim: sympy.Expr) -> SizeProgram:
    """Rounded down; a dimension written as a quotient is a whole number anyway."""
    numerator, denominator = sympy.together(dim).as_numer_denom()
    return (*postfix(numerator), *postfix(denominator), ".floordiv")


_FOLDED = {sympy.Add: ".add", sympy.Mul: ".mul", sympy.Max: ".max", sympy.Min: ".min"}
_CALLED = {sympy.Mod: ".mod", sympy.Abs: ".abs"}
