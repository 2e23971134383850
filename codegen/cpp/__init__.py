"""C++ kernels for CPUs: a generated page of formulas over the header-only templates in ``include/attnc``."""

from __future__ import annotations
