"""Spellings of rotary embedding: each is found, says what it is, and keeps its numbers at positions up to a million."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

B, H, D = 2, 3, 16
POSITIONS = torch.tensor([0, 1, 17, 4095, 999_999, 3, 250])
S = len(POSITIONS)
INV = 10000.0 ** (-torch.arange(0, D, 2).float() / D)


@dataclass(frozen=True)
class Spelling:
    """``run(x, position, frequencies)`` with x [B, H, S, D]; ``angles`` says [S, pairs] in float64 what it turns by."""

    run: Callable[[Tensor, Tensor, Tensor], Tensor]
    style: str
    rotary_dim: int = D
    factor: float = 1.0
    scale: float = 1.0
    """Factor on the angles."""
    frequencies: Tensor = INV
    ropes: int = 1


SPELLINGS: dict[str, Spelling] = {}


def spelling(style: str, **settings: Any) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    def add(run: Callable[..., Tensor]) -> Callable[..., Tensor]:
        SPELLINGS[run.__name__] = Spelling(run, style, **settings)
        return run

    return add


def rotate_half(x: Tensor) -> Tensor:
    low, high = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-high, low), dim=-1)


def rotate_neighbours(x: Tensor) -> Tensor:
    return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)


def twice(x: Tensor) -> Tensor:
    return torch.cat((x, x), dim=-1)


def angles(position: Tensor, frequencies: Tensor) -> Tensor:
    return position[:, None].float() * frequencies


@spelling("half")
def half_split(x, p, f):
    a = twice(angles(p, f))
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def hugging_face_llama_of_old(x, p, f):
    ids = p[None]
    expanded = f[None, :, None].float().expand(ids.shape[0], -1, 1)
    freqs = (expanded @ ids[:, None, :].float()).transpose(1, 2)
    emb = torch.cat((freqs, freqs), dim=-1)
    cos, sin = (emb.cos() * 1.0).to(x.dtype), (emb.sin() * 1.0).to(x.dtype)
    return (x * cos.unsqueeze(1)) + (rotate_half(x) * sin.unsqueeze(1))


@spelling("half", factor=1.25)
def attention_factor(x, p, f):
    a = twice(angles(p, f))
    return rotate_half(x) * (a.sin() * 1.25) + x * (a.cos() * 1.25)


@spelling("half", scale=0.25)
def positions_divided_by_a_factor(x, p, f):
    a = twice(torch.outer(p.float() / 4.0, f))
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half", scale=2.0)
def angles_times_a_constant(x, p, f):
    a = twice(torch.einsum("i,j->ij", p.float(), f) * 2.0)
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def chunked_halves_joined(x, p, f):
    c, s = angles(p, f).cos(), angles(p, f).sin()
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * c - high * s, high * c + low * s), dim=-1)


@spelling("half")
def halves_by_view_and_unbind(x, p, f):
    c, s = angles(p, f).cos(), angles(p, f).sin()
    low, high = x.unflatten(-1, (2, D // 2)).unbind(-2)
    return torch.stack((c * low - s * high, s * low + c * high), dim=-2).flatten(-2)


@spelling("half")
def negated_sine(x, p, f):
    c, s = angles(p, f).cos(), angles(p, f).sin()
    swapped = torch.cat((x[..., D // 2 :], x[..., : D // 2]), dim=-1)
    return x * twice(c) + swapped * torch.cat((-s, s), dim=-1)


@spelling("half")
def written_into_slices(x, p, f):
    c, s = angles(p, f).cos(), angles(p, f).sin()
    low, high = x[..., : D // 2], x[..., D // 2 :]
    out = torch.slice_scatter(x, low * c - high * s, -1, 0, D // 2)
    return torch.slice_scatter(out, high * c + low * s, -1, D // 2, D)


@spelling("interleaved")
def neighbours_stacked(x, p, f):
    a = angles(p, f).repeat_interleave(2, dim=-1)
    return x * a.cos() + rotate_neighbours(x) * a.sin()


@spelling("interleaved")
def neighbours_joined(x, p, f):
    c, s = angles(p, f).cos(), angles(p, f).sin()
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2)


@spelling("interleaved")
def matrix_of_cosines(x, p, f):
    """A 2 × 2 matrix for each pair, as diffusion transformers write it."""
    a = angles(p, f)
    matrix = torch.stack((a.cos(), -a.sin(), a.sin(), a.cos()), dim=-1).unflatten(-1, (2, 2))
    pairs = x.reshape(*x.shape[:-1], -1, 1, 2)
    return (matrix[..., 0] * pairs[..., 0] + matrix[..., 1] * pairs[..., 1]).reshape(x.shape)


@spelling("interleaved")
def complex_numbers(x, p, f):
    a = angles(p, f)
    turn = torch.polar(torch.ones_like(a), a)
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turn).flatten(-2)


@spelling("interleaved", factor=0.5)
def complex_numbers_scaled(x, p, f):
    a = angles(p, f)
    turn = torch.complex(a.cos() * 0.5, a.sin() * 0.5)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(turn * pairs).flatten(-2)


@spelling("interleaved")
def neighbours_stored_apart(x, p, f):
    """As DeepSeek-V3 and its kin: pairs of neighbours in, halves out."""
    cos, sin = angles(p, f).cos(), angles(p, f).sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)


@spelling("half")
def a_class_token_with_angles_of_its_own(x, p, f):
    """As MLCD does: learned angles, here all alike, before those of the patches."""
    own = twice(torch.full((1, D // 2), 0.7))
    patches = twice(angles(torch.arange(S - 1), f))
    cos, sin = torch.cat((own.cos(), patches.cos())), torch.cat((own.sin(), patches.sin()))
    return x * cos + rotate_half(x) * sin


@spelling("half", rotary_dim=12)
def rows_and_columns_after_a_class_token(x, p, f):
    """Patches of a grid, numbered by two coordinates that are flattened one by one."""
    rows, columns = torch.arange(3)[:, None].expand(-1, 2), torch.arange(2)[None].expand(3, -1)
    ids = torch.stack((rows.flatten(), columns.flatten()), dim=-1)
    patches = twice((ids[:, :, None].float() * f[:3]).flatten(1))
    own = twice(torch.cat((f[:3], f[:3]))[None])
    cos, sin = torch.cat((own.cos(), patches.cos())), torch.cat((own.sin(), patches.sin()))
    turned, rest = x[..., :12], x[..., 12:]
    return torch.cat((turned * cos + rotate_half(turned) * sin, rest), dim=-1)


@spelling("half")
def angles_tiled(x, p, f):
    a = angles(p, f).tile(2)
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def sections_written_into_a_stack(x, p, f):
    """As functional tracing writes Qwen3-VL: sections of three grids of angles are put into the first one."""
    waves = []
    for wave in (torch.cos, torch.sin):
        freq = wave(p[None, :, None].float().expand(3, -1, -1) * f)
        for dim in (1, 2):
            first = torch.slice_scatter(freq[0], freq[dim, ..., dim:6:3], -1, dim, 6, 3)
            freq = torch.select_scatter(freq, first, 0, 0)
        waves.append(torch.cat((freq[0], freq[0]), dim=-1))
    return x * waves[0] + rotate_half(x) * waves[1]


@spelling("half", scale=-1.0)
def turned_the_other_way(x, p, f):
    a = twice(angles(p, f))
    return x * a.cos() - rotate_half(x) * a.sin()


@spelling("half", scale=-1.0)
def second_half_negated_and_first(x, p, f):
    a = twice(angles(p, f))
    low, high = x.chunk(2, dim=-1)
    return x * a.cos() + torch.cat((high, -low), dim=-1) * a.sin()


@spelling("interleaved", scale=-1.0)
def conjugate_numbers(x, p, f):
    a = angles(p, f)
    turn = torch.complex(a.cos(), -a.sin())
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turn).flatten(-2)


@spelling("half", rotary_dim=8, frequencies=INV[::2].clone())
def first_half_of_the_features(x, p, f):
    a = twice(angles(p, f))
    turn, rest = x[..., :8], x[..., 8:]
    return torch.cat((turn * a.cos() + rotate_half(turn) * a.sin(), rest), dim=-1)


@spelling("interleaved", rotary_dim=4, frequencies=INV[::4].clone())
def first_quarter_of_the_features(x, p, f):
    a = angles(p, f).repeat_interleave(2, dim=-1)
    turn, rest = x.split([4, D - 4], dim=-1)
    return torch.cat((turn * a.cos() + rotate_neighbours(turn) * a.sin(), rest), dim=-1)


@spelling("half", rotary_dim=8, frequencies=INV)
def only_the_slow_frequencies(x, p, f):
    a = twice(angles(p, f[4:]))
    turn = x[..., :8]
    return torch.cat((turn * a.cos() + rotate_half(turn) * a.sin(), x[..., 8:]), dim=-1)


@spelling("half")
def half_of_the_pairs_with_frequency_zero(x, p, f):
    f = torch.cat((f[:4], torch.zeros(4)))
    a = twice(angles(p, f))
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def rows_of_a_table_made_in_the_graph(x, p, f):
    table = twice(torch.outer(torch.arange(1_000_000).float(), f))
    return x * table[p].cos() + rotate_half(x) * table[p].sin()


@spelling("half")
def rows_of_a_table_of_even_positions(x, p, f):
    """Row r stands for position 2r."""
    table = torch.outer(torch.arange(0, 1_000_000, 2).float(), f)
    a = twice(torch.nn.functional.embedding(p // 2, table))
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def positions_with_an_offset(x, p, f):
    a = twice(angles(p - 3 + 3, f))
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def minus_the_angle_turned_back(x, p, f):
    a = twice(-angles(p, -f))
    return x * a.cos() + rotate_half(x) * a.sin()


@spelling("half")
def a_copy_on_the_way(x, p, f):
    a = twice(angles(p, f))
    return x.clone() * a.cos() + rotate_half(x).contiguous() * a.sin()


def reference(x: Tensor, a: Tensor, style: str, rotary_dim: int, factor: float) -> Tensor:
    """Pairs turned by the angles a [S, rotary_dim / 2], in float64."""
    x, c, s = x.double(), a.cos() * factor, a.sin() * factor
    order = torch.arange(rotary_dim)
    order = order.reshape(2, -1).T.flatten() if style == "half" else order
    first, second = order[0::2], order[1::2]
    out = x.clone()
    out[..., first] = x[..., first] * c - x[..., second] * s
    out[..., second] = x[..., second] * c + x[..., first] * s
    return out


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str, turned: Any) -> None:
    case = SPELLINGS[name]
    x = torch.randn(B, H, S, D)
    outcome = turned(case.run, x, POSITIONS, case.frequencies)
    assert outcome.reasons == []
    (rope,) = outcome.ropes
    assert rope.attrs == {
        "style": case.style,
        "rotary_dim": case.rotary_dim,
        "attention_factor": case.factor,
        "rounded": False,
    }
    outcome.check()


NUMBERS = [
    *("half_split", "neighbours_joined", "complex_numbers", "first_half_of_the_features"),
    *("turned_the_other_way", "conjugate_numbers"),
]


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_the_definition(name: str, turned: Any) -> None:
    case = SPELLINGS[name]
    x = torch.randn(B, H, S, D)
    outcome = turned(case.run, x, POSITIONS, case.frequencies)
    a = case.scale * POSITIONS.double()[:, None] * case.frequencies.double()
    wanted = reference(x, a, case.style, case.rotary_dim, case.factor)
    assert (outcome.wide[1] - wanted).abs().max() < 1e-10


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["hugging_face_llama_of_old", "neighbours_stacked"])
def test_other_dtypes(name: str, dtype: torch.dtype, turned: Any) -> None:
    def run(x: Tensor, p: Tensor, f: Tensor) -> Tensor:
        return SPELLINGS[name].run(x, p, f).to(dtype)

    outcome = turned(run, torch.randn(B, H, S, D, dtype=dtype), POSITIONS, INV)
    assert len(outcome.ropes) == 1
    outcome.check()


def test_half_precision_features_meet_float32_waves(turned: Any) -> None:
    """The result is float32 by promotion: so is the rotation's."""
    outcome = turned(SPELLINGS["half_split"].run, torch.randn(B, H, S, D).bfloat16(), POSITIONS, INV)
    (rope,) = outcome.ropes
    assert (rope.args[0].type.dtype.value, rope.result.type.dtype.value) == ("bf16", "f32")
    outcome.check()


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 1, 3), (0, 3, 1, 2)], ids=str)
@pytest.mark.parametrize("name", ["half_split", "neighbours_joined", "complex_numbers", "first_half_of_the_features"])
def test_results_keep_their_strides(name: str, order: tuple[int, ...], turned: Any) -> None:
    sizes = dict(zip("bhsd", (B, H, S, D), strict=True))
    stored = torch.randn([list(sizes.values())[dim] for dim in order])
    x = stored.permute([order.index(dim) for dim in range(4)])
    if name == "complex_numbers" and order[-1] != 3:
        pytest.skip("such a tensor has no view as complex numbers")
    outcome = turned(SPELLINGS[name].run, x, POSITIONS, SPELLINGS[name].frequencies)
    assert len(outcome.ropes) == 1
    outcome.check()


@pytest.mark.parametrize("complex_products", [True, False])
def test_complex_products_stay_where_the_host_has_them(complex_products: bool, turned: Any) -> None:
    x = torch.randn(B, H, S, D)
    outcome = turned(SPELLINGS["complex_numbers"].run, x, POSITIONS, INV, complex_products=complex_products)
    assert any("view_as_complex" in str(node.target) for node in outcome.module.graph.nodes) == complex_products
    outcome.check()
