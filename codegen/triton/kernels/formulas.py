"""Functions that emitted formulas call. Everything is float32 or integers."""

import triton
import triton.language as tl


@triton.jit
def floor_div(a, b):
    """⌊a / b⌋; division itself rounds towards zero. 0 where b is 0: LLVM takes a divisor for anything but 0."""
    quotient = a // tl.where(b == 0, 1, b)
    return tl.where(b == 0, 0, quotient - tl.where((quotient * b != a) & ((a < 0) != (b < 0)), 1, 0))


@triton.jit
def floor_mod(a, b):
    """a − b ⌊a / b⌋: zero, or of the divisor's sign."""
    return tl.where(b == 0, 0, a - floor_div(a, b) * b)


@triton.jit
def float_floor_div(a, b):
    """⌊a / b⌋ through the remainder, so that a quotient that rounds up to a whole number does not count."""
    rest = a % b  # of the sign of a
    quotient = (a - rest) / b - tl.where((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), 1.0, 0.0)
    whole = tl.floor(quotient)
    return tl.where(b == 0.0, a / b, tl.where(quotient - whole > 0.5, whole + 1.0, whole))


@triton.jit
def float_floor_mod(a, b):
    """The remainder, zero or of the divisor's sign."""
    rest = a % b
    return tl.where((rest != 0.0) & ((rest < 0.0) != (b < 0.0)), rest + b, rest)


@triton.jit
def float_power(a, b):
    """aᵇ as C's ``powf``, to a relative error of |b · log₂ a| · 2⁻²³. The sign of a zero base is lost."""
    size = tl.exp2(b * tl.log2(tl.abs(a)))
    odd = b - 2.0 * tl.floor(b * 0.5) == 1.0
    signed = tl.where(a < 0.0, tl.where(tl.floor(b) == b, tl.where(odd, -size, size), float("nan")), size)
    return tl.where((b == 0.0) | (a == 1.0), 1.0, signed)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def tanh_fast(x):
    """1 − 2 / (e²ˣ + 1), absolute error 1e-6: enough where results are rounded to 16 bits.

    The quotient is the square of a reciprocal root, an instruction of its own; a division takes six more.
    """
    root = tl.rsqrt(tl.exp2(2.8853900817779268 * x) + 1.0)
    return 1.0 - 2.0 * root * root


@triton.jit
def tanh_close(x):
    """Relative error 1e-6: below 0.625 an odd polynomial of Cephes' (``tanhf``), above it 1 − 2 / (e²ˣ + 1)."""
    square = x * x
    series = -5.70498872745e-3 * square + 2.06390887954e-2
    series = series * square - 5.37397155531e-2
    series = series * square + 1.33314422036e-1
    series = series * square - 3.33332819422e-1
    return tl.where(tl.abs(x) < 0.625, series * square * x + x, 1.0 - 2.0 / (tl.exp2(2.8853900817779268 * x) + 1.0))
