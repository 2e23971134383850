"""The product of every kernel of attention. PRECISION comes from the emitter."""

import triton
import triton.language as tl


@triton.jit
def product(a, b, accumulator):
    """accumulator + a · b."""
    if a.dtype != b.dtype:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, accumulator, input_precision=PRECISION)
