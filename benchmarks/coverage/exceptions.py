"""Models that encode positions in a way that ``attn.rope`` or a table of O(S) entries can't hold, and why."""

from __future__ import annotations

UNROTATED: dict[str, str] = {}
"""Models that rotate queries and keys without an ``attn.rope``."""

CONTENT: dict[str, str] = {}
"""Models whose relative bias is read as a dense tensor."""
