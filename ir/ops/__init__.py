"""The declared ops, and what may be assumed of every op.

One visible list a dialect; nothing registers itself at import.
"""

from __future__ import annotations

from attnc.ir.opdef import Registry
from attnc.ir.ops import attn, host, paging

REGISTRY = Registry.of([*attn.OPS, *paging.OPS, *host.OPS], closed=("attn", "ir", "py"))

__all__ = ["REGISTRY"]
