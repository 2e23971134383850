"""Notes: why a graph, or a part of one, was left to the host."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.ir.values import Location

AUTOGRAD_FUNCTION = "ATTNC-HOST-AUTOGRAD-FUNCTION"
TENSOR_HOOK = "ATTNC-HOST-TENSOR-HOOK"
VMAP = "ATTNC-HOST-VMAP"
CHECKPOINT_POLICY = "ATTNC-HOST-CHECKPOINT-POLICY"
HIGHER_ORDER_OP = "ATTNC-HOST-HIGHER-ORDER-OP"
TENSOR_SUBCLASS = "ATTNC-HOST-TENSOR-SUBCLASS"
HIDDEN_WRITE = "ATTNC-HOST-HIDDEN-WRITE"
OVERLAPPING_WRITES = "ATTNC-HOST-OVERLAPPING-WRITES"
FROZEN_STORAGE = "ATTNC-HOST-FROZEN-STORAGE"
SIZES = "ATTNC-HOST-SIZES"
MUTATION = "ATTNC-HOST-MUTATION"
EXPORT_FAILED = "ATTNC-HOST-EXPORT-FAILED"
FINISH_FAILED = "ATTNC-HOST-FINISH-FAILED"


@dataclass(frozen=True)
class Note:
    """One hand-over to the host: a stable code, a sentence, and the user's line where there is one."""

    code: str
    message: str
    where: Location = Location()

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.where})" if self.where.file else "")
