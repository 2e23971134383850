"""Views as splits and merges of axes, against arrays whose elements carry their coordinates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnc.compiler.derive.axes import Axes
from attnc.compiler.derive.known import Dims, same_axis
from attnc.ir.types import Atom, Dim, size

B, S, E = size("B"), size("S"), size("E")
AXES = Axes(B, S, E, longest=512, extents={"E": E})
NUMBERS = {B: 3, S: 5, E: 7}
"""Unequal primes: no length of one axis is another's by chance."""


def length(dim: Dim) -> int:
    return int(sympy.sympify(dim).subs(NUMBERS))


def product(dim: tuple[Atom, ...]) -> int:
    return math.prod(length(AXES.length(atom)) for atom in dim)


def coordinates(dims: Dims) -> list[tuple[str, np.ndarray]]:
    """For every named atom, in order, its coordinate at each element of an array with these axes."""
    atoms = [atom for dim in dims for atom in dim]
    places = np.indices([length(AXES.length(atom)) for atom in atoms])
    shape = tuple(map(product, dims))
    named = [i for i, atom in enumerate(atoms) if isinstance(atom, str)]
    return [(str(atoms[i]), places[i].reshape(shape)) for i in named]


def holds(dims: Dims, shape: tuple[Dim, ...], claimed: Dims) -> bool:
    """Whether an array of ``dims``, viewed as ``shape``, has the coordinates that ``claimed`` says."""
    numbers = tuple(map(length, shape))
    if tuple(map(product, claimed)) != numbers:
        return False
    viewed = [(name, places.reshape(numbers)) for name, places in coordinates(dims)]
    named = zip(viewed, coordinates(claimed), strict=True)
    return all(a == b and np.array_equal(places, others) for (a, places), (b, others) in named)


MADE: dict[str, tuple[Dims, tuple[Dim, ...], Dims]] = {
    "merge batch and tokens": ((("B",), ("S",), (8,)), (B * S, 8), (("B", "S"), (8,))),
    "split them again": ((("B", "S"), (8,)), (B, S, 8), (("B",), ("S",), (8,))),
    "split heads": ((("B",), ("S",), (64,)), (B, S, 4, 16), (("B",), ("S",), (4,), (16,))),
    "merge heads": ((("B",), ("S",), (4,), (16,)), (B, S, 64), (("B",), ("S",), (4, 16))),
    "batch and heads": ((("B",), (4,), ("S",), (16,)), (4 * B, S, 16), (("B", 4), ("S",), (16,))),
    "heads before the batch": (((4, "B"), ("S",)), (4, B, S), ((4,), ("B",), ("S",))),
    "tokens first": ((("S",), ("B",), (2,)), (S * B, 2), (("S", "B"), (2,))),
    "everything": ((("B",), ("S",), (6,)), (6 * B * S,), (("B", "S", 6),)),
    "new ones": ((("B",), ("S",)), (1, B, 1, S, 1), ((), ("B",), (), ("S",), ())),
    "ones go": (((), ("B",), (), ("S",)), (B, S), (("B",), ("S",))),
    "nothing at all": (((), ()), (1,), ((),)),
    "a scalar": ((), (1, 1), ((), ())),
    "to a scalar": (((),), (), ()),
    "cut a literal in three": ((("S",), (24,)), (S, 2, 3, 4), (("S",), (2,), (3,), (4,))),
    "cut a merged one elsewhere": ((("S",), (4, 6)), (S, 2, 12), (("S",), (2,), (2, 6))),
    "literal behind tokens": ((("S", 4),), (S, 2, 2), (("S",), (2,), (2,))),
    "part of it behind tokens": ((("S", 4),), (2 * S, 2), (("S", 2), (2,))),
    "routed slots": ((("R2",), (8,)), (2 * B * S, 2, 4), (("R2",), (2,), (4,))),
    "routed slots merge": ((("R2",), (8,)), (16 * B * S,), (("R2", 8),)),
    "choices of a token": ((("B", "S", 2),), (B * S, 2), (("B", "S"), (2,))),
    "differences": ((("D",), (3,)), (1, 2 * S - 1, 3), ((), ("D",), (3,))),
    "differences merge": ((("D",), ("B",)), ((2 * S - 1) * B,), (("D", "B"),)),
    "differences merge, expanded": ((("B",), ("D",)), (2 * B * S - B,), (("B", "D"),)),
    "two positions": ((("S",), ("S",)), (S**2,), (("S", "S"),)),
    "two positions apart": ((("S", "S"),), (S, S), (("S",), ("S",))),
    "encoder": ((("B",), ("E",), (4,)), (B * E, 2, 2), (("B", "E"), (2,), (2,))),
}
REFUSED: dict[str, tuple[Dims, tuple[Dim, ...]]] = {
    "tokens before requests": ((("B",), ("S",)), (S, B)),
    "and the other way": ((("S",), ("B",), (4,)), (B, S, 4)),
    "through a merge": ((("B", "S"),), (S, B)),
    "heads in front": ((("B",), ("S",), (4,)), (B, 4, S)),
    "heads of the batch in front": ((("B", 4), ("S",)), (4, B, S)),
    "a piece of the tokens": ((("S",), (4,)), (S / 2, 8)),
    "half the tokens": ((("B",), ("S",)), (B, 2, S / 2)),
    "pairs of tokens": ((("B",), ("S",)), (B, S / 2, 2)),
    "tokens and some features": ((("S",), (6,)), (4 * S, sympy.Rational(3, 2))),
    "what is left over": ((("B",), ("S",), (4,)), (B, S)),
    "more than there is": ((("B",), ("S",)), (B, S, 4)),
    "another size": ((("B",), ("S",)), (B, E)),
    "routed slots by token": ((("R2",),), (B * S, 2)),
    "tokens as slots": ((("B",), ("S",)), (S, B)),
    "differences cut": ((("D",),), (S, 2 - 1 / S)),
    "one more than there is": ((("S",),), (S + 1,)),
    "an empty one": ((("S",), (4,)), (S, 0)),
}


@pytest.mark.parametrize("name", MADE)
def test_a_view_splits_and_merges(name: str) -> None:
    dims, shape, wanted = MADE[name]
    found = AXES.regroup(dims, shape)
    assert found is not None
    assert all(map(same_axis, found, wanted)), found
    assert holds(dims, shape, found)


@pytest.mark.parametrize("name", REFUSED)
def test_a_view_that_cuts_or_turns_is_refused(name: str) -> None:
    dims, shape = REFUSED[name]
    assert AXES.regroup(dims, shape) is None


@pytest.mark.parametrize(
    ("dims", "shape", "claimed"),
    [
        ((("B",), ("S",)), (S, B), (("S",), ("B",))),
        ((("B",), (4,), ("S",)), (B * 4, S), ((4, "B"), ("S",))),
        ((("S", 4),), (S, 4), ((4,), ("S",))),
        ((("S",), ("S",)), (S**2,), (("S",),)),
    ],
)
def test_the_check_sees_a_wrong_claim(dims: Dims, shape: tuple[Dim, ...], claimed: Dims) -> None:
    """The traps beside the cases above: arrays tell a wrong order of axes."""
    assert not holds(dims, shape, claimed)


ATOMS: st.SearchStrategy[Atom] = st.sampled_from(["B", "S", 2, 4, 6])


@settings(max_examples=12)
@given(atoms=st.lists(ATOMS, max_size=4), cuts=st.lists(st.booleans(), min_size=5, max_size=5), data=st.data())
def test_any_view_that_is_accepted_is_right(atoms: list[Atom], cuts: list[bool], data: st.DataObject) -> None:
    """Views made of the same atoms in any order and any grouping, literals cut anywhere."""
    assume(atoms.count("S") <= 1 and atoms.count("B") <= 1)
    dims = _grouped(atoms, cuts)
    turned = data.draw(st.permutations(_pieces(atoms)))
    shape = tuple(sympy.Mul(*map(AXES.length, dim)) for dim in _grouped(turned, data.draw(st.lists(st.booleans()))))
    found = AXES.regroup(dims, shape)
    assert found is None or holds(dims, shape, found), (dims, shape, found)


def _pieces(atoms: list[Atom]) -> list[Atom]:
    """Literals as their prime factors."""
    return [p for atom in atoms for p in ([atom] if isinstance(atom, str) else sympy.factorint(atom, multiple=True))]


def _grouped(atoms: list[Atom], cuts: list[bool]) -> Dims:
    """The atoms as dimensions: a new one begins at each cut."""
    dims: list[list[Atom]] = [[]]
    for number, atom in enumerate(atoms):
        if number < len(cuts) and cuts[number]:
            dims.append([])
        dims[-1].append(atom)
    return tuple(map(tuple, dims))


@settings(max_examples=12)
@given(atoms=st.lists(ATOMS, min_size=1, max_size=5), cuts=st.lists(st.booleans(), min_size=5, max_size=5))
def test_a_merge_can_be_undone(atoms: list[Atom], cuts: list[bool]) -> None:
    """Flattening works whatever the axes, and gives back what it came from."""
    dims = _grouped(atoms, cuts)
    shape = tuple(sympy.Mul(*map(AXES.length, dim)) for dim in dims)
    flat = AXES.regroup(dims, (sympy.Mul(*shape),))
    assert flat is not None and len(flat) == 1
    back = AXES.regroup(flat, shape)
    assert back is not None and all(map(same_axis, back, dims))


def test_a_cut_that_meets_no_edge_of_literals_is_refused() -> None:
    """6·4 as 4·6 is a view; its cut through the 6 is not followed, so it is refused, never guessed."""
    assert AXES.regroup((("S",), (6,), (4,)), (S, 4, 6)) is None


LABELS: list[tuple[tuple[Dim, ...], Dims | None]] = [
    ((B, S, 4), (("B",), ("S",), (4,))),
    ((1, S, 1), ((), ("S",), ())),
    ((2 * S - 1, B), (("D",), ("B",))),
    ((S + S - 1,), (("D",),)),
    ((E,), (("E",),)),
    ((), ()),
    ((B * S,), None),
    ((2 * S,), None),
    ((S - 1,), None),
    ((S, S + 1), None),
    ((sympy.Min(S, 4),), None),
    ((size("other"),), None),
]


@pytest.mark.parametrize(("shape", "wanted"), LABELS)
def test_lengths_that_name_an_axis(shape: tuple[Dim, ...], wanted: Dims | None) -> None:
    assert AXES.label(shape) == wanted


def test_lengths_made_of_the_encoders_are_axes_of_their_own() -> None:
    axes = Axes(B, S, E)
    half, whole, again = (axes.label((length,)) for length in (sympy.floor(E / 2), E, sympy.floor(E / 2)))
    assert half == again != whole
    assert axes.label((B * E,)) is None and axes.label((S + E,)) is None


def test_without_an_encoder_its_length_names_nothing() -> None:
    assert Axes(B, S).label((E,)) is None


@pytest.mark.parametrize(
    ("given_length", "wanted"),
    [
        (sympy.Max(0, 512 - S), 512 - S),
        (sympy.Min(512, S), S),
        (sympy.Min(S, 600), S),
        (sympy.Max(1, S), S),
        (512 - sympy.Max(0, 512 - S), S),
        (sympy.Min(sympy.Max(S, 1), 512), S),
        (sympy.Max(S - 512, 512 - S), 512 - S),
        (7, 7),
        (S + 1, S + 1),
    ],
)
def test_extremes_that_the_longest_sequence_decides(given_length: Dim, wanted: Dim) -> None:
    found = AXES.simplified(given_length)
    assert sympy.expand(found - wanted) == 0


@pytest.mark.parametrize(
    "undecided",
    [
        sympy.Min(511, S),
        sympy.Max(0, 511 - S),
        sympy.Max(2, S),
        sympy.Min(B, 4),
        sympy.Min(S, B),
        sympy.Max(0, 10 - S**2 / 100),
    ],
)
def test_extremes_that_stay(undecided: sympy.Expr) -> None:
    """Each is decided for most lengths, but not for all from 1 to the longest."""
    assert AXES.simplified(undecided) == undecided
    assert Axes(B, S).simplified(undecided) == undecided


@settings(max_examples=12)
@given(slope=st.integers(-3, 3), offset=st.integers(-600, 600), other=st.integers(-600, 600), least=st.booleans())
def test_what_is_decided_is_so_for_every_length(slope: int, offset: int, other: int, least: bool) -> None:
    function = sympy.Min if least else sympy.Max
    length_ = function(slope * S + offset, other)
    found = AXES.simplified(length_)
    for tokens in (1, 2, 5, 511, 512):
        assert sympy.sympify(found).subs(S, tokens) == sympy.sympify(length_).subs(S, tokens)


def test_an_extreme_of_a_floor_stays() -> None:
    undecided = sympy.Max(1, sympy.floor(S / 2))
    assert AXES.simplified(undecided) == undecided
