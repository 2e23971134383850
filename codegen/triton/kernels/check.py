"""What ``python kernel.py`` does: random operands, the kernel against the naive attention, and on a GPU its time.

Constants of the plan (AXES, SIDES, …), SIDE_ROLES, ``attention`` and ``naive`` stand above this text.
"""

import argparse
import math
import statistics
import sys

import torch
import triton

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class Case:
    """Random operands: ``operands`` (q, k, v), ``sides`` and ``sizes``."""

    def __init__(self, length, sizes, dtypes, seed, device):
        self.length, self.sizes, self.seed, self.device = length, sizes, seed, device
        self.operands = [self.operand(name, dtype) for name, dtype in dtypes.items()]
        self.sides = self.random_sides()

    def generator(self, number):
        return torch.Generator().manual_seed(1000 * self.seed + number)

    def grid(self, sides=None, only=None):
        return Grid(self.length, self.sizes, self.sides if sides is None else sides, self.device, only)

    def visible(self, grid):
        """Which pairs of a grid the mask lets through."""
        every = torch.ones(grid.shape, dtype=torch.bool, device=self.device)
        return every & FORMULAS["mask"](grid, exact) if "mask" in FORMULAS else every

    def operand(self, name, dtype):
        """Normal numbers that the plan's dtype holds."""
        generator = self.generator("qkv".index(name))
        numbers = torch.randn([self.length[axis] for axis in AXES[name]], generator=generator)
        return numbers.to(OPERAND_DTYPES[name]).to(dtype).to(self.device)

    def random_sides(self):
        """Sides that leave most pairs visible and, where the plan foresees it, some row without any."""
        sides = self.sides_with(0.9)
        if "flag" in SIDE_ROLES:
            sides = max(sides, self.sides_with(0.1), key=lambda sides: self.visible(self.grid(sides)).sum().item())
        if DEAD_ROWS.value and "mask" in FORMULAS:
            for row in (0, self.length["q"] // 2):
                sides = self.without_row(row, sides)
        return sides

    def sides_with(self, truth):
        """Side operands long enough for every index that formulas compute; of the flags this many are 1."""
        shapes = [[1] * rank for _, rank in SIDES]
        while True:
            sides = [self.side(number, shape, truth).to(self.device) for number, shape in enumerate(shapes)]
            grid = self.grid(sides)
            for formula in FORMULAS.values():
                formula(grid, exact)
            needed = [list(shape) for shape in shapes]
            for number, indices in grid.reads:
                needed[number] = [max(n, int(index.max()) + 1) for n, index in zip(needed[number], indices)]
            if needed == shapes:
                return sides
            shapes = needed

    def side(self, number, shape, truth):
        dtype, role, generator = SIDES[number][0], SIDE_ROLES[number], self.generator(3 + number)
        if role == "number":
            return torch.randn(shape, generator=generator).to(dtype)
        if role == "flag":
            return (torch.rand(shape, generator=generator) < truth).to(dtype)
        top = 8 if role == "index" else min(self.length["k"] + 1, torch.iinfo(dtype).max)
        return torch.randint(top, shape, generator=generator).to(dtype)

    def without_row(self, row, sides):
        """Sides that differ where a row reads them, so that it sees no key; as given if half of all rows would die."""
        only = {axis: self.length[axis] - 1 for axis in OUTER_AXES} | {"q": row}
        for value in (0, 1, -1):
            changed = [side.clone() for side in sides]
            grid = self.grid(changed, only)
            seen = self.visible(grid)
            for number, indices in grid.reads:
                if SIDE_ROLES[number] in ("flag", "position"):
                    changed[number][tuple(index.expand(seen.shape)[seen] for index in indices)] = value
            alive = self.visible(self.grid(changed)).any(-1)
            if not self.visible(grid).any() and 2 * alive.sum() >= alive.numel():
                return changed
        return sides


# -- the check


def check(case, out, lse):
    """(what, error, allowed) of the rows that see a key, of those that see none, and of the lse."""
    wanted, wanted_lse, dead = naive(case.grid(), *case.operands)
    dtype = case.operands[0].dtype

    def eager(x, source):
        return x.to(torch.promote_types(FLOATS[source], dtype)).double()

    theirs, their_lse, _ = naive(case.grid(), *case.operands, eager, torch.float32, out.dtype)
    rows, unit = GRID[:-1], torch.finfo(out.dtype).eps
    out = out.double().permute([AXES["out"].index(axis) for axis in (*rows, "e")])
    for what, where in (("out", ~dead), ("rows without a key", dead)):
        if where.any():
            yield what, *measure(out[where], wanted[where], theirs[where], unit)
    if RETURNS_LSE.value:
        lse = lse.double().permute([AXES["lse"].index(axis) for axis in rows])
        yield "lse", *measure(lse, wanted_lse, their_lse, torch.finfo(torch.float32).eps)


def measure(got, wanted, eager, unit):
    """(error, allowed), relative to the greatest number wanted: twice what eager is off, and four units.

    The error is infinite where infinities or NaN differ; in a NaN's place 0 will do.
    """
    finite = wanted.isfinite()
    both = finite & eager.isfinite()
    scale = greatest(wanted[both]) or 1.0
    same = finite | (got == wanted) | (wanted.isnan() & (got.isnan() | (got == 0)))
    error = greatest((got - wanted)[both]) / scale if same.all() else math.inf
    return error, 2 * greatest((eager - wanted)[both]) / scale + 4 * unit


def greatest(x):
    return x.abs().max().item() if x.numel() else 0.0


def milliseconds(run):
    """The median time of 20 runs on the GPU."""
    for _ in range(3):
        run()
    times = []
    for _ in range(20):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


# -- the command line


def options(device):
    """(lengths, sizes, dtype or None, seed): lengths are those given, the plan's, or small and odd; larger on a GPU."""
    parser = argparse.ArgumentParser(description="Check this kernel against attention by definition, in float64.")
    parser.add_argument("--length", action="append", default=[], metavar="AXIS=N", help="the length of an axis")
    parser.add_argument("--size", action="append", default=[], metavar="NAME=N", help="a named size, else |k|")
    parser.add_argument("--dtype", choices=DTYPES, help="of q, k, v and out, else the plan's")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows = 67 if device.type == "cpu" else 1023
    length = {axis: 2 + i % 2 for i, axis in enumerate(OUTER_AXES)} | {"q": rows, "k": rows, "d": 24, "e": 24} | STATIC
    length = numbers(parser, "axis", given.length, length, least=1)
    sizes = numbers(parser, "size", given.size, dict.fromkeys(SIZES, length["k"]))
    return length, sizes, given.dtype, given.seed


def numbers(parser, what, given, found, least=-math.inf):
    """``found`` with what the command line gives, as NAME=N, in place."""
    for text in given:
        name, _, number = text.partition("=")
        if name not in found or not number.lstrip("-").isdigit() or int(number) < least:
            parser.error(f"{what} {text!r}: expected NAME=N, names are {', '.join(found) or 'none'}")
        found[name] = int(number)
    return found


def main():
    """Check, print a line, and return the exit status: 1 where the kernel is off by more than allowed."""
    interpreted = triton.knobs.runtime.interpret
    device = torch.device("cpu" if interpreted else "cuda")
    length, sizes, chosen, seed = options(device)
    dtypes = {name: DTYPES[chosen] if chosen else planned for name, planned in OPERAND_DTYPES.items()}
    out_dtype = DTYPES[chosen] if chosen else OUT_DTYPE
    where = "in Triton's interpreter" if interpreted else f"on {torch.cuda.get_device_name()}"
    if interpreted and torch.bfloat16 in (*dtypes.values(), out_dtype):
        dtypes, out_dtype = dict.fromkeys(dtypes, torch.float32), torch.float32
        where += ", which gets bfloat16 wrong: float32 in its place"
    case = Case(length, sizes, dtypes, seed, device)

    def run():
        return attention(*case.operands, case.sides, tuple(sizes.values()), out_dtype)

    found = list(check(case, *run()))
    words = [f"{what} {error:.2g} of {allowed:.2g} allowed" for what, error, allowed in found]
    if not interpreted:
        time = milliseconds(run)
        work = 2 * case.visible(case.grid()).sum().item() * (length["d"] + length["e"])
        words.append(f"{time:.3f} ms, {work / time / 1e9:.1f} TFLOP/s")
    passed = all(error <= allowed for _, error, allowed in found)
    lengths = " ".join(f"{name}={n}" for name, n in {**length, **sizes}.items())
    print(f"{'ok' if passed else 'WRONG'}: {lengths} {str(out_dtype).partition('.')[2]} {where}: {'; '.join(words)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
