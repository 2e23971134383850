"""Index and mask tensors as formulas."""

from __future__ import annotations

from attnc.compiler.lift.lifter import Lifter

__all__ = ["Lifter"]
