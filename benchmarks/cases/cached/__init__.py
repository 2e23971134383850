"""Decoders that keep keys and values of their own, each with the same decoder computed anew.

``CARRIED`` must become programs over pages, equal to full recompute. ``TRAPS`` break in one place what makes that right
(positions, order, mask, what is given back, where a buffer is written) and must be refused.
"""

from __future__ import annotations

from benchmarks.cases.cached.carried import CARRIED, Carried, carried
from benchmarks.cases.cached.traps import TRAPS, Trap

__all__ = ["CARRIED", "TRAPS", "Carried", "Trap", "carried"]
