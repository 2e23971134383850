"""A refusal: the code, the reason and the place. Refusing is a result, never an accident."""

from __future__ import annotations

from attnc.ir.values import Location, Op


class Reject(Exception):
    """Raised inside a match attempt to leave one softmax (or SDPA call) to the host.

    ``code`` is registered in ``compiler/codes.py``; ``op`` is the op that blocks the match.
    """

    def __init__(self, code: str, reason: str, op: Op | None = None) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.op = op

    @property
    def where(self) -> Location:
        return self.op.loc if self.op is not None else Location()
