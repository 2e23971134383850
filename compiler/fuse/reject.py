"""A refusal: the code, the reason and the place. Refusing is a result, never an accident."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnc.ir.values import Location, Op, Value

if TYPE_CHECKING:
    from attnc.compiler.fuse.match import Match


class Reject(Exception):
    """Raised inside a match attempt to leave one softmax (or SDPA call) to the host.

    ``code`` is registered in ``compiler/codes.py``; ``op`` is the op that blocks the match; ``edit`` says what to
    change there, where that is known better than from the code and the op; ``value`` is what ``op`` must not read.
    """

    match: Match | None = None
    """What was matched, where only a kernel is missing."""

    def __init__(
        self, code: str, reason: str, op: Op | None = None, *, edit: str = "", value: Value | None = None
    ) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason
        self.op = op
        self.edit = edit
        self.value = value

    @property
    def where(self) -> Location:
        return self.op.loc if self.op is not None else Location()
