"""Builds the tensors of one step: numpy over all tokens at once, a Python loop over requests only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from attnc.runtime.kv.sequences import SequenceState
from attnc.runtime.kv.specs import GroupSpec, RaggedBatch
from attnc.runtime.kv.tables import BlockTable


def ragged_batch(
    groups: Sequence[GroupSpec], states: Sequence[SequenceState], counts: Sequence[int], device: torch.device
) -> RaggedBatch:
    """The next ``counts[n]`` tokens of each sequence, which must have room for them."""
    new = np.array(counts, dtype=np.int64)
    context = np.array([state.length for state in states], dtype=np.int64)
    start = np.concatenate(([0], np.cumsum(new)))
    request = np.repeat(np.arange(len(states)), new)
    positions = np.arange(start[-1]) + (context - start[:-1])[request]
    tables, slots = {}, {}
    for g, group in enumerate(groups):
        table = _padded([state.tables[g] for state in states], group.pages(int((context + new).max(initial=0))))
        page = table[request, positions // group.page_size].astype(np.int64)
        tables[group.name] = torch.from_numpy(table).to(device)
        slots[group.name] = torch.from_numpy(page * group.page_size + positions % group.page_size).to(device)
    return RaggedBatch(
        query_start=torch.from_numpy(start.astype(np.int32)).to(device),
        context_len=torch.from_numpy(context.astype(np.int32)).to(device),
        block_table=tables,
        positions=torch.from_numpy(positions).to(device),
        slots=slots,
    )


def _padded(tables: Sequence[BlockTable], width: int) -> NDArray[np.int32]:
    """[N, width]: each table from its start, 0 behind its end."""
    rows = np.zeros((len(tables), width), dtype=np.int32)
    for row, table in zip(rows, tables, strict=True):
        ids = table.ids[:width]
        row[: len(ids)] = ids
    return rows
