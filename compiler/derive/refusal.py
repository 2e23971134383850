"""Why a graph has no incremental form: a code, the reason, and the op it was seen at."""

from __future__ import annotations

from attnc.ir.values import Op

ATTENTION = "ATTNC-DERIVE-ATTENTION"
CACHE = "ATTNC-DERIVE-CACHE"
DATA_SIZE = "ATTNC-DERIVE-DATA-SIZE"
INPUT = "ATTNC-DERIVE-INPUT"
LENGTH = "ATTNC-DERIVE-LENGTH"
MIXES = "ATTNC-DERIVE-MIXES"
MIXES_BATCH = "ATTNC-DERIVE-BATCH"
NOT_CAUSAL = "ATTNC-DERIVE-NOT-CAUSAL"
NO_RULE = "ATTNC-DERIVE-NO-RULE"
RANDOM = "ATTNC-DERIVE-RANDOM"
STATE = "ATTNC-DERIVE-STATE"


class NotDerivable(Exception):
    """A graph, or a value of it, that can't be computed token by token.

    ``code`` is one of ``ATTNC-DERIVE-…`` (docs/codes.md), ``op`` where the reason was found (None: the whole graph).
    """

    def __init__(self, code: str, reason: str, op: Op | None = None) -> None:
        self.code = code
        self.reason = reason
        self.op = op
        super().__init__(self._text())

    def _text(self) -> str:
        if self.op is None:
            return f"{self.code}: {self.reason}"
        loc = self.op.loc
        line = f" in `{loc.code}`" if loc.code else ""
        return f"{self.code}: {self.reason} (%{self.op.results[0].name} = {self.op.name} at {loc}{line})"
