"""Why a program has no artifact. Loads nothing, so that the command line can tell it."""

from __future__ import annotations


class NotSavable(Exception):
    """A program that no artifact can hold; ``code`` is one of ``ATTNC-ARTIFACT-…`` (docs/codes.md)."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
