"""Attention by definition, over all pairs at once: what the kernel of an emitted module is checked against.

Constants of the plan (AXES, OUTER_AXES, DEAD_ROWS, …) and FORMULAS stand above this text.
"""

import math

import torch
import triton

FLOATS = {"f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
GRID = (*OUTER_AXES, "q", "k")


class Grid:
    """What formulas read, for every pair of a query and a key; ``only`` gives axes of which there is one place."""

    def __init__(self, length, sizes, sides, device, only=None):
        self.places = {axis: torch.arange(length[axis], device=device) for axis in GRID}
        self.places |= {axis: torch.tensor([place], device=device) for axis, place in (only or {}).items()}
        self.shape = [len(self.places[axis]) for axis in GRID]
        self.sizes = {**{f"|{axis}|": n for axis, n in length.items()}, **sizes}
        self.sides = sides
        self.device = device
        self.qk = torch.zeros((), dtype=torch.float64, device=device)
        self.reads = []

    def number(self, value):
        return torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None, device=self.device)

    def axis(self, name):
        return self.places[name].view([-1 if axis == name else 1 for axis in GRID])

    def size(self, name):
        return self.number(self.sizes[name])

    def load(self, number, *indices):
        """Elements of a side operand, as float64, int64 or truth values; an index outside reads the nearest one."""
        side = self.sides[number]
        self.reads.append((number, indices))
        found = side[tuple(index.clamp(0, n - 1) for index, n in zip(indices, side.shape))]
        return found.double() if side.is_floating_point() else found if side.dtype is torch.bool else found.long()


def exact(x, dtype):
    """A float of a formula: float64, whatever dtype the source gave it."""
    return x


def as_written(x, dtype):
    """A float of a formula, rounded as in the source; Triton's interpreter cuts bfloat16 off."""
    if dtype == "bf16" and triton.knobs.runtime.interpret:
        return (x.float().view(torch.int32) & -65536).view(torch.float32).double()
    return x.to(FLOATS[dtype]).double()


def naive(grid, q, k, v, rounded=exact, real=torch.float64, narrow=torch.float64):
    """(out, lse, dead): float64 over the grid's axes without k, out with e; ``dead`` are rows that see no key.

    Sums are of dtype ``real``, probabilities and out are rounded to ``narrow``.
    """
    grid.qk = contract(q.to(real), AXES["q"], k.to(real), AXES["k"], GRID).double()
    score = FORMULAS["score"](grid, rounded).expand(grid.shape)
    if "mask" in FORMULAS:
        score = torch.where(FORMULAS["mask"](grid, exact), score, -math.inf)
    dead = (score == -math.inf).all(-1, keepdim=True)
    if "written" in FORMULAS:
        score = torch.where(dead, FORMULAS["written"](grid, as_written), score)
    sink = FORMULAS["sink"](grid, rounded) if "sink" in FORMULAS else grid.number(-math.inf)
    score, sink = score.to(real), sink.to(real)
    top = torch.maximum(score.amax(-1, keepdim=True), sink)
    zero = dead if DEAD_ROWS.value == 1 else torch.zeros_like(dead)
    shift = torch.where(zero & (top == -math.inf), 0.0, top)
    p = torch.exp(score - shift)
    total = p.sum(-1, keepdim=True) + torch.exp(sink - shift)
    p = torch.where(zero, 0.0, p / total)
    if "weight" in FORMULAS:
        p = p * FORMULAS["weight"](grid, rounded)
    out = contract(p.to(narrow).to(real), GRID, v.to(real), AXES["v"], (*GRID[:-1], "e"))
    lse = torch.where(top == -math.inf, -math.inf, shift + torch.log(total))
    return out.to(narrow).double(), lse[..., 0].double(), dead[..., 0]


def contract(a, a_axes, b, b_axes, wanted):
    """Σ a · b over the axes that aren't wanted; a wanted axis that neither has is 1 long."""
    letter = {axis: chr(ord("a") + i) for i, axis in enumerate(dict.fromkeys((*a_axes, *b_axes, *wanted)))}
    present = [axis for axis in wanted if axis in a_axes or axis in b_axes]
    a_text, b_text, text = ("".join(letter[axis] for axis in axes) for axes in (a_axes, b_axes, present))
    found = torch.einsum(f"{a_text},{b_text}->{text}", a, b)
    length = dict(zip(present, found.shape))
    return found.reshape([length.get(axis, 1) for axis in wanted])
