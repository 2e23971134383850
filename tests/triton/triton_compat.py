"""Repairs of Triton's interpreter, made in the process that runs it: ``install()``.

In the stock interpreter a bf16 ``tl.dot`` is off by nine orders of magnitude, without a word. Only what an installed
Triton gets wrong is replaced (``repairs.py``); what a repair needs and doesn't find is an error. Arithmetic on fp8,
which no machine has, is one too.

Not repaired: a bf16 sum is rounded once, at its end, where compiled code rounds each addition; ``tl.dot_scaled``;
bf16x3 and bf16x6 products are float32 ones; inline assembler; ``libdevice``; autotuning.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import triton
import triton.language as tl
import triton.runtime.interpreter as stock

from tests.triton.repairs import NEEDED, REPAIRS, SETTINGS

applied: list[str] = []
"""The repairs in place, by name."""


def install(round_tf32: bool = False) -> None:
    """Repair the interpreter of this process; a second call only sets ``round_tf32``.

    ``round_tf32``: float32 products of ``input_precision`` "tf32" (the default) and "tf32x3" lose the bits they lose on
    tensor cores; without it they are plain float32 products, as in the stock interpreter.

    Raises:
        RuntimeError: TRITON_INTERPRET=1 was not set when triton was first imported, or this Triton lacks a method
            that a repair needs; the text names all of them.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or not isinstance(tl.max, stock.InterpretedFunction):
        raise RuntimeError("triton_compat: set TRITON_INTERPRET=1 before the first import of triton")
    SETTINGS.round_tf32 = round_tf32
    if applied:
        return
    require()
    for name, (is_needed, repair) in REPAIRS.items():
        if is_needed():
            repair()
            applied.append(name)


def require() -> None:
    """Raise RuntimeError if this Triton's interpreter has not all that the repairs stand on."""
    missing = [f"{o.__name__}.{name}" for o, names in NEEDED.items() for name in names if not hasattr(o, name)]
    if missing:
        raise RuntimeError(f"triton_compat: the interpreter of triton {triton.__version__} has no {', '.join(missing)}")


def guard() -> None:
    """Raise RuntimeError unless a bf16 product comes out right here: without the repairs it silently does not."""
    factor = stock.TensorHandle(np.full((1, 1), 0xBFC0, np.uint16), tl.bfloat16)  # -1.5
    zero = stock.TensorHandle(np.zeros((1, 1), np.float32), tl.float32)
    product = stock.interpreter_builder.create_dot(factor, factor, zero, None, 0).data
    if product.item() != 2.25:
        raise RuntimeError(f"triton_compat is not installed: (-1.5)² is {product.item()} in bf16")


@contextmanager
def tf32_rounding() -> Iterator[None]:
    """Inside, TF32 products are rounded as they are after ``install(round_tf32=True)``."""
    before, SETTINGS.round_tf32 = SETTINGS.round_tf32, True
    try:
        yield
    finally:
        SETTINGS.round_tf32 = before
