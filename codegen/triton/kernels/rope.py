"""Rotary position embedding: every pair of features is turned by an angle, the features behind them are copied.

Names in capitals that nothing here defines come from the emitter, and so do ``row_starts``, ``head_starts`` and
``waves``. CONSTANTS of the plan are written where that name stands. Lists that differ from plan to plan are written out
in place:

    PARAMETERS  operands, lengths and strides: what a call gives the kernel beside x and the result
    STARTS      where a row begins in each operand, in elements
"""

import argparse
import math
import os
import statistics
import sys

import torch

if __name__ == "__main__" and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before triton is loaded
import triton
import triton.language as tl

CONSTANTS  # noqa: B018 - the emitter writes them here


@triton.jit
def product(position, frequency):
    """position · frequency for each row and pair, rounded by itself: a sum of angles that were fused would differ."""
    return tl.fma(position[:, None], frequency[None, :], 0.0)


@triton.jit
def cos_sin(angle):
    """Cosine and sine of a float64 angle as float32, right to two units of it.

    First the angle less whole quarter turns, with π/2 in two parts as FreeBSD has them (msun, e_rem_pio2f.c): products
    with the first are exact below 2²⁸ quarter turns, 4·10⁸, where neighbours in float32 are 32 apart. Then polynomials
    of Cephes (sinf.c, cosf.c) between −π/4 and π/4. Triton's own functions are as right (libdevice, OCML), but each
    reduces the angle for itself, and on NVIDIA's GPUs through a table in local memory.
    """
    turns = tl.floor(angle * 0.6366197723675814 + 0.5)
    rest = ((angle - turns * 1.5707963109016418) - turns * 1.5893254773528197e-08).to(tl.float32)
    quarter = turns.to(tl.int64)
    square = rest * rest
    sine = (-1.9515295891e-4 * square + 8.3321608736e-3) * square - 1.6666654611e-1
    sine = sine * square * rest + rest
    cosine = (2.443315711809948e-5 * square - 1.388731625493765e-3) * square + 4.166664568298827e-2
    cosine = cosine * square * square - 0.5 * square + 1.0
    swapped = (quarter & 1) != 0
    c, s = tl.where(swapped, sine, cosine), tl.where(swapped, cosine, sine)
    return tl.where(((quarter + 1) & 2) != 0, -c, c), tl.where((quarter & 2) != 0, -s, s)


@triton.jit
def entries(table, starts, feature, stride, inside):
    """What a given table has for each row and pair."""
    place = table + starts[:, None] + (tl.cast(feature, tl.int64) * stride)[None, :]
    return tl.load(place, mask=inside, other=0.0).to(REAL) * FACTOR


@triton.jit
def turn_pairs(x_at, out_at, c0, s0, c1, s1, kept, x_col, out_col):
    """One head of a tile of rows: (x, y) becomes (x c₀ − y s₀, y c₁ + x s₁)."""
    if INTERLEAVED:
        feature = tl.arange(0, 2 * PAIRS)
        inside = (feature < 2 * HALF)[None, :]
        wide = tl.cast(feature, tl.int64)[None, :]
        both = tl.load(x_at + wide * x_col, mask=inside, other=0.0).to(REAL)
        x, y = tl.split(tl.reshape(both, [ROWS, PAIRS, 2]))
        turned = tl.interleave(x * c0 - y * s0, y * c1 + x * s1)
        tl.store(out_at + wide * out_col, turned.to(ELEMENT), mask=kept & inside)
    else:
        pair = tl.arange(0, PAIRS)
        inside = (pair < HALF)[None, :]
        first, second = tl.cast(pair, tl.int64)[None, :], tl.cast(pair + HALF, tl.int64)[None, :]
        x = tl.load(x_at + first * x_col, mask=inside, other=0.0).to(REAL)
        y = tl.load(x_at + second * x_col, mask=inside, other=0.0).to(REAL)
        tl.store(out_at + first * out_col, (x * c0 - y * s0).to(ELEMENT), mask=kept & inside)
        tl.store(out_at + second * out_col, (y * c1 + x * s1).to(ELEMENT), mask=kept & inside)


@triton.jit
def copy_rest(x_at, out_at, kept, x_col, out_col):
    """The features behind the pairs."""
    feature = tl.arange(0, REST_BLOCK) + 2 * HALF
    inside = (feature < 2 * HALF + REST)[None, :]
    wide = tl.cast(feature, tl.int64)[None, :]
    rest = tl.load(x_at + wide * x_col, mask=inside, other=0.0)
    tl.store(out_at + wide * out_col, rest.to(ELEMENT), mask=kept & inside)


@triton.jit(do_not_specialize=COUNTS)
def rope(X, Out, PARAMETERS):
    """One program for a tile of rows and up to EACH heads, which share the cosines and sines of their rows.

    A row is a place along every dimension that some angle depends on, a head one along all the others. Cosines, sines
    and products are float32, or float64 where the result is, and rounded once, when they are stored.
    """
    tile, first = tl.program_id(0) // chunks, tl.program_id(0) % chunks * EACH
    row = tile * ROWS + tl.arange(0, ROWS)
    kept = (row < rows)[:, None]
    row = tl.minimum(row, rows - 1)
    x_row, out_row, STARTS = row_starts(row, PARAMETERS)
    c0, s0, c1, s1 = waves(STARTS, PARAMETERS)
    for head in tl.range(first, tl.minimum(first + EACH, heads)):
        x_head, out_head = head_starts(head, PARAMETERS)
        x_at, out_at = X + (x_row + x_head)[:, None], Out + (out_row + out_head)[:, None]
        turn_pairs(x_at, out_at, c0, s0, c1, s1, kept, x_col, out_col)
        if REST > 0:
            copy_rest(x_at, out_at, kept, x_col, out_col)


# -- launching it


def check_operands(x, positions, inv_freqs, tables):
    """Raises ValueError for operands that aren't the plan's."""
    operands = (x, *positions, *inv_freqs, *tables)
    found = [operand.dtype for operand in operands]
    if found != [X_DTYPE, *POSITIONS, *INV_FREQS, *TABLES]:
        raise ValueError(f"operands are {found}, expected {[X_DTYPE, *POSITIONS, *INV_FREQS, *TABLES]}")
    if x.dim() != RANK or x.shape[-1] != FEATURES:
        raise ValueError(f"x is {list(x.shape)}, expected {RANK} dimensions, the last one {FEATURES} long")
    if any(list(frequency.shape) != [HALF.value] for frequency in inv_freqs):
        raise ValueError(f"every inv_freqs has to be {[HALF.value]}")
    if [table.shape[-1] for table in tables] != WIDTHS:
        raise ValueError(f"tables have {[table.shape[-1] for table in tables]} features, expected {WIDTHS}")
    for shape in (*(p.shape for p in positions), *(t.shape[:-1] for t in tables)):
        behind = RANK - 1 - len(shape)
        same = [n == 1 or (d not in HEADS and n == x.shape[d]) for d, n in enumerate(shape, behind)]
        if behind < 0 or not all(same):
            raise ValueError(f"{list(shape)} does not broadcast to {list(x.shape[:-1])}, or along dimensions {HEADS}")


def steps(shape, strides, dims):
    """Strides along dimensions of x, of what is aligned with it at the right: 0 where there is one place only."""
    behind = RANK - 1 - len(shape)
    return [0 if d < behind or shape[d - behind] == 1 else strides[d - behind] for d in dims]


def prepared(x, positions=(), inv_freqs=(), tables=()):
    """(out, programs, arguments) of a call: the result to be written, and what the kernel is launched with.

    Raises ValueError for operands that don't fit the plan.
    """
    check_operands(x, positions, inv_freqs, tables)
    lead = x.shape[:-1]
    out = x.new_empty([x.shape[d] for d in ORDER], dtype=OUT_DTYPE).permute([ORDER.index(d) for d in range(RANK)])
    rows, heads = (math.prod(lead[d] for d in dims) for dims in (ROW_DIMS, HEADS))
    if max(rows, heads) > 1 << 30:
        raise ValueError(f"{rows} rows of {heads} heads, more than 2**30")
    chunks = -(-heads // EACH.value)
    numbers = [*lead, rows, heads, chunks]
    for tensor in (x, out):
        numbers += [*steps(lead, tensor.stride(), range(RANK - 1)), tensor.stride(-1)]
    for position, frequency in zip(positions, inv_freqs):
        numbers += [*steps(position.shape, position.stride(), ROW_DIMS), frequency.stride(0)]
    for table in tables:
        numbers += [*steps(table.shape[:-1], table.stride(), ROW_DIMS), table.stride(-1)]
    return out, -(-rows // ROWS.value) * chunks, (x, out, *positions, *inv_freqs, *tables, *numbers)


def rotate(x, positions=(), inv_freqs=(), tables=()):
    """x turned, of x's shape and OUT_DTYPE, dense in memory in the order ORDER of its dimensions.

    ``positions`` broadcast to x without its last dimension; each has its ``inv_freqs`` [HALF]. Or ``tables``: cosines
    and sines, which broadcast to x but for their features. Any strides. Raises ValueError for operands that don't fit.
    """
    out, programs, arguments = prepared(x, positions, inv_freqs, tables)
    if programs:
        with torch.cuda.device_of(x):
            rope[(programs,)](*arguments, num_warps=NUM_WARPS)
    return out


# -- what `python kernel.py` does: random operands, the kernel against the rotation by definition, on a GPU its time


def naive(x, positions, inv_freqs, tables):
    """The rotation in float64: angles are of the dtype they are to have, cosines, sines and products exact."""
    first, second = (slice(0, HALF.value), slice(HALF.value, 2 * HALF.value))
    if INTERLEAVED.value:
        first, second = (slice(n, 2 * HALF.value, 2) for n in (0, 1))
    if tables:
        whole = [table.double() if n > HALF.value else None for table, n in zip(tables, WIDTHS)]
        (c0, s0), (c1, s1) = (
            [t.double() if w is None else w[..., part] for t, w in zip(tables, whole)] for part in (first, second)
        )
    else:
        angle = sum(term(p, f) for p, f in zip(positions, inv_freqs)).double()
        c0 = c1 = angle.cos()
        s0 = s1 = angle.sin()
    out = x.double()
    a, b = out[..., first], out[..., second]
    turned = out.clone()
    turned[..., first] = FACTOR.value * (a * c0 - b * s0)
    turned[..., second] = FACTOR.value * (b * c1 + a * s1)
    return turned


def term(position, frequency):
    """position · frequency: in float64 where one of them is, else in float32, and rounded to that where ROUNDED."""
    dtype = torch.float64 if torch.float64 in (position.dtype, frequency.dtype) else torch.float32
    found = position.to(dtype)[..., None] * frequency.to(dtype)
    return found.float() if ROUNDED else found


def operands(lead, begin, generator):
    """Random (x, positions, inv_freqs, tables); positions are ``begin`` and up to 999 more."""
    shared = [1 if d in HEADS else n for d, n in enumerate(lead)]

    def position(dtype):
        if dtype.is_floating_point:
            return (begin + 999 * torch.rand(shared, generator=generator)).to(dtype)
        top = 1 if dtype is torch.bool else torch.iinfo(dtype).max
        return (begin + torch.randint(1000, shared, generator=generator)).clamp(max=top).to(dtype)

    def frequencies(dtype):
        return (torch.rand(HALF.value, generator=generator) * 1e-4 ** torch.linspace(0, 1, HALF.value)).to(dtype)

    x = torch.randn(*lead, FEATURES, generator=generator).to(X_DTYPE)
    tables = [torch.randn(*shared, n, generator=generator).to(dtype) for dtype, n in zip(TABLES, WIDTHS)]
    return x, [position(dtype) for dtype in POSITIONS], [frequencies(dtype) for dtype in INV_FREQS], tables


def measure(out, wanted):
    """(error, allowed), relative to the greatest number wanted: a unit of the result, eight of the arithmetic."""
    scale = wanted.abs().max().item() or 1.0
    real = torch.float64 if out.dtype is torch.float64 else torch.float32
    allowed = torch.finfo(out.dtype).eps + 8 * torch.finfo(real).eps
    error = (out.double() - wanted).abs().max().item() / scale
    return error if math.isfinite(error) else math.inf, allowed


def milliseconds(run):
    """The median time of 20 runs on the GPU."""
    times = []
    for _ in range(23):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times[3:])


def main():
    """Check, print a line, and return the exit status: 1 where the kernel is off by more than allowed."""
    parser = argparse.ArgumentParser(description="Check this kernel against the rotation by definition, in float64.")
    parser.add_argument("--shape", help=f"lengths of x's first {RANK - 1} dimensions: 2,3,37")
    parser.add_argument("--begin", type=int, default=0, help="the first position")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    interpreted = triton.knobs.runtime.interpret
    lead = ([5, 2, 3, 37] if interpreted else [5, 8, 32, 1023])[5 - RANK :] if RANK < 6 else [2] * (RANK - 1)
    lead = [int(n) for n in given.shape.split(",")] if given.shape else lead
    x, *others = operands(lead, given.begin, torch.Generator().manual_seed(given.seed))
    if not interpreted:
        x, *others = x.cuda(), *([t.cuda() for t in group] for group in others)
    out = rotate(x, *others)
    error, allowed = measure(out, naive(x, *others))
    words = f"{error:.2g} of {allowed:.2g} allowed"
    if not interpreted:
        time = milliseconds(lambda: rotate(x, *others))
        words += f"; {time:.3f} ms, {(x.nbytes + out.nbytes) / time / 1e6:.0f} GB/s"
    where = "in Triton's interpreter" if interpreted else f"on {torch.cuda.get_device_name()}"
    print(f"{'ok' if error <= allowed else 'WRONG'}: x {list(x.shape)}, positions from {given.begin}, {where}: {words}")
    return 0 if error <= allowed else 1


if __name__ == "__main__":
    sys.exit(main())
