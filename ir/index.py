"""Index expressions: integers and truth values over axes, sizes and loaded integers (the front of ``index_*``)."""

from __future__ import annotations

from attnc.ir.index_eval import Env, evaluate
from attnc.ir.index_simplify import Ranges, is_nonnegative, simplify
from attnc.ir.index_terms import Load, axes_of, axis, is_boolean, is_size, load, loads, sizes_of, where
from attnc.ir.index_text import parse, show

__all__ = [
    "Env",
    "Load",
    "Ranges",
    "axes_of",
    "axis",
    "evaluate",
    "is_boolean",
    "is_nonnegative",
    "is_size",
    "load",
    "loads",
    "parse",
    "show",
    "simplify",
    "sizes_of",
    "where",
]
