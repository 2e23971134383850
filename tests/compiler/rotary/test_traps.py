"""What looks like a rotation and is none stays as it is, while a twin that differs in one op is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

B, H, S, D = 2, 3, 7, 8
INV = 100.0 ** (-torch.arange(0, D, 2).float() / D)

Program = Callable[[Tensor, Tensor, Tensor], Any]


@dataclass(frozen=True)
class Pair:
    """``reason`` is part of what the trap is refused with; empty where it isn't worth a note."""

    trap: Program
    twin: Program
    reason: str


def twice(x: Tensor) -> Tensor:
    return torch.cat((x, x), dim=-1)


def angles(p: Tensor, f: Tensor) -> Tensor:
    return p[:, None].float() * f


def turn(x: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((-high, low), dim=-1)


def swap(x: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low, -high), dim=-1)


def neighbours(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)


def waves(a: Tensor) -> tuple[Tensor, Tensor]:
    return a.cos(), a.sin()


def half(x: Tensor, a: Tensor, b: Tensor | None = None, rotate: Callable[[Tensor], Tensor] = turn) -> Tensor:
    """x·cos a + rotated(x)·sin b."""
    return x * a.cos() + rotate(x) * (a if b is None else b).sin()


def last_from(x: Tensor, other: Tensor) -> Tensor:
    return torch.cat((x[..., :-1], other[..., -1:]), dim=-1)


def parts(make: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> Program:
    """Both halves by a formula of (low, high, cos, sin)."""
    return lambda x, p, f: torch.cat(make(*x.chunk(2, dim=-1), *waves(angles(p, f))), dim=-1)


PAIRS: dict[str, Pair] = {
    "a reflection": Pair(
        parts(lambda a, b, c, s: (a * c + b * s, b * c + a * s)),
        parts(lambda a, b, c, s: (a * c - b * s, b * c + a * s)),
        "the signs of the sine",
    ),
    "the second feature turned the other way": Pair(
        parts(lambda a, b, c, s: (a * c - b * s, b * c - a * s)),
        parts(lambda a, b, c, s: (a * c - b * s, b * c + a * s)),
        "the signs of the sine",
    ),
    "halves not exchanged": Pair(
        lambda x, p, f: half(x, twice(angles(p, f)), rotate=swap),
        lambda x, p, f: half(x, twice(angles(p, f)), rotate=turn),
        "neither halves nor neighbours",
    ),
    "results of the halves exchanged": Pair(
        parts(lambda a, b, c, s: (b * c + a * s, a * c - b * s)),
        parts(lambda a, b, c, s: (a * c - b * s, b * c + a * s)),
        "the cosine at feature 0",
    ),
    "halves with the angles of neighbours": Pair(
        lambda x, p, f: half(x, angles(p, f).repeat_interleave(2, -1)),
        lambda x, p, f: half(x, angles(p, f).repeat(1, 2)),
        "features 0 and 4 turn by different angles",
    ),
    "neighbours with the angles of halves": Pair(
        lambda x, p, f: half(x, twice(angles(p, f)), rotate=neighbours),
        lambda x, p, f: half(x, angles(p, f).repeat_interleave(2, -1), rotate=neighbours),
        "features 0 and 1 turn by different angles",
    ),
    "cosine and sine at different positions": Pair(
        lambda x, p, f: half(x, twice(angles(p, f)), twice(angles(p + 1, f))),
        lambda x, p, f: half(x, twice(angles(p, f)), twice(angles(p, f))),
        "are of different angles",
    ),
    "cosine and sine of different frequencies": Pair(
        lambda x, p, f: half(x, twice(angles(p, f)), twice(angles(p, f.flip(0)))),
        lambda x, p, f: half(x, twice(angles(p, f)), twice(angles(p, f))),
        "are of different angles",
    ),
    "the sine of twice the angle": Pair(
        lambda x, p, f: half(x, twice(angles(p, f)), twice(angles(p, f) * 2.0)),
        lambda x, p, f: half(x, twice(angles(p, f)), twice(angles(p, f) * 1.0)),
        "are of different angles",
    ),
    "a factor on the sine alone": Pair(
        lambda x, p, f: x * twice(angles(p, f)).cos() + turn(x) * (twice(angles(p, f)).sin() * 1.1),
        lambda x, p, f: x * twice(angles(p, f)).cos() + turn(x) * (twice(angles(p, f)).sin() * 1.0),
        "have different factors",
    ),
    "a factor on half of the features": Pair(
        lambda x, p, f: (
            x * torch.cat((angles(p, f).cos(), angles(p, f).cos() * 2), -1)
            + turn(x) * (torch.cat((angles(p, f).sin(), angles(p, f).sin() * 2), -1))
        ),
        lambda x, p, f: (
            x * torch.cat((angles(p, f).cos() * 2, angles(p, f).cos() * 2), -1)
            + turn(x) * (torch.cat((angles(p, f).sin() * 2, angles(p, f).sin() * 2), -1))
        ),
        "not the same for every feature",
    ),
    "a factor that depends on the position": Pair(
        lambda x, p, f: x * (twice(angles(p, f)).cos() * p[:, None]) + turn(x) * twice(angles(p, f)).sin(),
        lambda x, p, f: x * (twice(angles(p, f)).cos() * 1.0) + turn(x) * twice(angles(p, f)).sin(),
        "is no cosine or sine of an angle",
    ),
    "the square of the position": Pair(
        lambda x, p, f: half(x, twice(p.float()[:, None] * p.float()[:, None] * f)),
        lambda x, p, f: half(x, twice(p.float()[:, None] * f)),
        "not linear in the position",
    ),
    "the position to a power": Pair(
        lambda x, p, f: half(x, twice(angles(p.float().pow(2), f))),
        lambda x, p, f: half(x, twice(angles(p.float().mul(2), f))),
        "not linear in the position",
    ),
    "the position once in the angle, once in the frequency": Pair(
        lambda x, p, f: half(x, twice(p.float()[:, None] * (p.float()[:, None] * f))),
        lambda x, p, f: half(x, twice(2.0 * (p.float()[:, None] * f))),
        "not linear in the position",
    ),
    "an angle with a constant added": Pair(
        lambda x, p, f: half(x, twice(angles(p, f) + 0.5)),
        lambda x, p, f: half(x, twice(angles(p + 5, f))),
        "not linear in the position",
    ),
    "an angle that is an input": Pair(
        lambda x, p, f: half(x, twice(f[:1] * 0 + x[0, 0, :, :4])),
        lambda x, p, f: half(x, twice(angles(p, f))),
        "",
    ),
    "the sine of a sine": Pair(
        lambda x, p, f: half(x, twice(angles(p, f)).sin()),
        lambda x, p, f: half(x, twice(angles(p, f)).mul(3)),
        "not linear in the position",
    ),
    "one half left as it was": Pair(
        parts(lambda a, b, c, s: (a * c - b * s, b)),
        parts(lambda a, b, c, s: (a * c - b * s, b * c + a * s)),
        "",
    ),
    "a cosine term dropped": Pair(
        parts(lambda a, b, c, s: (a * c - b * s, a * s)),
        parts(lambda a, b, c, s: (a * c - b * s, a * s + b * c)),
        "feature 4",
    ),
    "one feature dropped": Pair(
        parts(lambda a, b, c, s: (a * c - b * s, last_from(b * c + a * s, b))),
        parts(lambda a, b, c, s: (a * c - b * s, last_from(b * c + a * s, b * c + a * s))),
        "are not an even number of leading ones",
    ),
    "another tensor turned round": Pair(
        lambda x, p, f: x * twice(angles(p, f)).cos() + turn(x.flip(0)) * twice(angles(p, f)).sin(),
        lambda x, p, f: x * twice(angles(p, f)).cos() + turn(x.clone()) * twice(angles(p, f)).sin(),
        "",
    ),
    "other heads turned round": Pair(
        lambda x, p, f: x[:, :1] * twice(angles(p, f)).cos() + turn(x[:, 1:2]) * twice(angles(p, f)).sin(),
        lambda x, p, f: half(x[:, 1:2], twice(angles(p, f))),
        "",
    ),
    "rotated twice": Pair(
        lambda x, p, f: x * twice(angles(p, f)).cos() * twice(angles(p, f)).cos() + turn(x) * twice(angles(p, f)).sin(),
        lambda x, p, f: x * twice(angles(p, f)).cos() * 1.0 + turn(x) * twice(angles(p, f)).sin(),
        "",
    ),
    "a complex factor that is no rotation": Pair(
        lambda x, p, f: complex_product(x, torch.complex(angles(p, f).cos(), angles(p, f).cos())),
        lambda x, p, f: complex_product(x, torch.complex(angles(p, f).cos(), angles(p, f).sin())),
        "feature 0",
    ),
    "neighbours stored apart in another order": Pair(
        lambda x, p, f: apart(x, *waves(angles(p, f)), lambda even, odd: (odd, even)),
        lambda x, p, f: apart(x, *waves(angles(p, f)), lambda even, odd: (even, odd)),
        "the cosine at feature 0",
    ),
    "neighbours stored apart, with the sine of another pair": Pair(
        lambda x, p, f: apart(x, angles(p, f).cos(), angles(p, f.flip(0)).sin(), lambda even, odd: (even, odd)),
        lambda x, p, f: apart(x, angles(p, f).cos(), angles(p, f).sin().neg(), lambda even, odd: (even, odd)),
        "are of different angles",
    ),
    "cosines and sines joined in another order": Pair(
        lambda x, p, f: half_of(x, after_own(angles(p, f).cos(), f.cos()), before_own(angles(p, f).sin(), f.sin())),
        lambda x, p, f: half_of(x, after_own(angles(p, f).cos(), f.cos()), after_own(angles(p, f).sin(), f.sin())),
        "are of different angles",
    ),
    "a cosine joined with a sine": Pair(
        lambda x, p, f: half_of(x, after_own(angles(p, f).cos(), f.sin()), after_own(angles(p, f).sin(), f.sin())),
        lambda x, p, f: half_of(x, after_own(angles(p, f).cos(), f.cos()), after_own(angles(p, f).sin(), f.sin())),
        "different kinds",
    ),
    "a section of the sine from another grid": Pair(
        lambda x, p, f: grids(x, p, f, (2, 1)),
        lambda x, p, f: grids(x, p, f, (1, 2)),
        "are of different angles",
    ),
    "rows that are no positions": Pair(
        lambda x, p, f: half(x, twice(torch.outer(torch.arange(16).float().sqrt(), f)[p])),
        lambda x, p, f: half(x, twice(torch.outer(torch.arange(16).float(), f)[p])),
        "",
    ),
    "a table read one row late": Pair(
        lambda x, p, f: half(x, twice(torch.outer(torch.arange(16).float() + 1.0, f)[p])),
        lambda x, p, f: half(x, twice(torch.outer(torch.arange(16).float() * 1.0, f)[p])),
        "are no positions",
    ),
}


def apart(x: Tensor, cos: Tensor, sin: Tensor, order: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """Neighbours turned, and stored as halves."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat(order(even * cos - odd * sin, odd * cos + even * sin), dim=-1)


def half_of(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    return x[:, :, : cosine.shape[0]] * twice(cosine) + turn(x[:, :, : cosine.shape[0]]) * twice(sine)


def after_own(waves: Tensor, own: Tensor) -> Tensor:
    """Six rows of waves behind one row that has no position."""
    return torch.cat((own[None], waves[:6]))


def before_own(waves: Tensor, own: Tensor) -> Tensor:
    return torch.cat((waves[:6], own[None]))


def grids(x: Tensor, p: Tensor, f: Tensor, sine: tuple[int, int]) -> Tensor:
    """Three grids of positions; every third wave of the first grid is overwritten by another grid's."""
    a = torch.stack((p, 2 * p, 3 * p))[:, :, None].float() * f
    return x * sections(a.cos(), (1, 2)) + turn(x) * sections(a.sin(), sine)


def sections(wave: Tensor, order: tuple[int, int]) -> Tensor:
    for offset, grid in enumerate(order, start=1):
        written = torch.slice_scatter(wave[0], wave[grid, ..., offset::3], -1, offset, None, 3)
        wave = torch.select_scatter(wave, written, 0, 0)
    return twice(wave[0])


def complex_product(x: Tensor, z: Tensor) -> Tensor:
    """Pairs as complex numbers times z."""
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * z).flatten(-2)


@pytest.mark.parametrize("name", PAIRS)
def test_trap(name: str, turned: Any) -> None:
    pair = PAIRS[name]
    outcome = turned(pair.trap, *inputs())
    assert outcome.ropes == []
    if pair.reason:
        (reason,) = outcome.reasons
        assert pair.reason in reason
    before, after = outcome.wide
    assert torch.equal(before, after)


@pytest.mark.parametrize("name", PAIRS)
def test_twin(name: str, turned: Any) -> None:
    outcome = turned(PAIRS[name].twin, *inputs())
    assert len(outcome.ropes) == 1 and outcome.reasons == []
    outcome.check()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    return torch.randn(B, H, S, D), torch.tensor([0, 1, 2, 5, 9, 14, 15]), INV
