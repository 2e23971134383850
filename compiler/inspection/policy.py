"""The numerics policy: a result may be twice as far from float64 as the source is, plus four roundings.

err(x) = max|x − ref| / max|ref|; ours passes where err(ours) ≤ 2·err(source) + 4·eps. The reference is the same program
with every float dtype and cast replaced by float64, parameters keeping their stored values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Verdict:
    """Errors of ours and of the source against float64, and the bound they imply."""

    ours: float
    eager: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.ours <= self.bound

    def __str__(self) -> str:
        word = "within" if self.passed else "OVER"
        return f"error {self.ours:.1e} (eager {self.eager:.1e}), {word} the bound {self.bound:.1e}"


def judge(ours: Tensor, eager: Tensor, ref: Tensor) -> Verdict:
    """Compare elementwise over the finite elements of ``ref``; all three have one shape.

    A result that isn't finite where the source's and the reference are has an infinite error.
    """
    finite = ref.isfinite()
    if not finite.any():
        return Verdict(0.0, 0.0, 0.0)
    scale = ref[finite].abs().max().item() or 1.0
    both = finite & eager.isfinite()
    eager_error = _largest((eager.double() - ref)[both]) / scale
    broken = bool((~ours.isfinite() & both).any())
    seen = finite & ours.isfinite()
    error = float("inf") if broken else _largest((ours.double() - ref)[seen]) / scale
    return Verdict(error, eager_error, 2 * eager_error + 4 * torch.finfo(ours.dtype).eps)


def _largest(difference: Tensor) -> float:
    return difference.abs().max().item() if difference.numel() else 0.0
