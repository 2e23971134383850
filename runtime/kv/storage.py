"""The tensors behind the pages of one layer group. Knows no policy: ids and slots come from the caller.

Page tensors are ``[num_pages, heads, page_size, features]`` for keys and for values of each site, scales
``[num_pages, heads, page_size]`` (i4: ``[…, groups of 32]``), so one head's tokens of a page are contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attnc.runtime.kv import quantise
from attnc.runtime.kv.specs import NULL_PAGE, GroupSpec, StreamSpec

POISON = {torch.int8: -128, torch.uint8: 0x88, torch.float8_e4m3fn: 0x7F}
"""Raw element of a poisoned page by dtype: extreme codes, and float8's NaN. Other floats are NaN."""


@dataclass(frozen=True)
class StreamPages:
    """Page tensors of one stream."""

    spec: StreamSpec
    pages: Tensor
    """[num_pages, heads, page_size, features]; i4: u8, half the features rounded up."""
    scale: Tensor | None
    """[num_pages, heads, page_size] f32; i4: [..., groups of 32 features] f16; None for stores of floats."""

    @staticmethod
    def zeros(spec: StreamSpec, num_pages: int, page_size: int, device: torch.device) -> StreamPages:
        shape = (num_pages, spec.heads, page_size)
        row = quantise.row_shape(spec.store, spec.features)
        pages = torch.zeros(*shape, *row, dtype=quantise.ELEMENTS[spec.store], device=device)
        scale = quantise.scale_shape(spec.store, spec.features)
        if scale is None:
            return StreamPages(spec, pages, None)
        dtype = quantise.scale_dtype(spec.store)
        return StreamPages(spec, pages, torch.zeros(*shape, *scale, dtype=dtype, device=device))

    def copy_page(self, source: int, target: int) -> None:
        self.pages[target].copy_(self.pages[source])
        if self.scale is not None:
            self.scale[target].copy_(self.scale[source])

    def poison(self, pages: Tensor) -> None:
        _raw(self.pages).index_fill_(0, pages, POISON.get(self.pages.dtype, torch.nan))
        if self.scale is not None:
            self.scale.index_fill_(0, pages, torch.nan)

    def gather(self, pages: Tensor, length: int) -> Tensor:
        """[length, heads, features] float32: the slots of these pages in order, dequantised; 0 in null pages."""
        scales = None if self.scale is None else _rows(self.scale, pages)
        rows = quantise.decode(_rows(self.pages, pages), scales, self.spec.features)
        given_back = (pages == NULL_PAGE).repeat_interleave(self.pages.shape[2])
        return rows.masked_fill(given_back[:, None, None], 0.0)[:length]


class PageStorage:
    """Page tensors of all sites of a layer group, on one device. ``debug`` poisons every page until it is written."""

    def __init__(
        self, group: GroupSpec, num_pages: int, device: torch.device | str = "cpu", debug: bool = False
    ) -> None:
        self.group = group
        self.num_pages = num_pages
        self.device = torch.device(device)
        self.sites = {site: tuple(map(self._stream, streams)) for site, streams in group.sites.items()}
        """For each site, by name: the pages of its keys and of its values, or of one stream that is both."""
        if debug:
            self.poison(range(num_pages))

    def write(self, site: str, keys: Tensor, values: Tensor | None, slots: Tensor) -> None:
        """Store keys and values [T, heads, features] of new tokens, any strides, at ``slots`` i64 [T].

        ``values`` None: one stream is both.
        """
        for stream, rows in zip(self.sites[site], (keys,) if values is None else (keys, values), strict=True):
            write_rows(rows, stream.pages, stream.scale, slots)

    def copy_page(self, source: int, target: int) -> None:
        """Copy a page in every site."""
        for stream in self._streams():
            stream.copy_page(source, target)

    def poison(self, pages: Sequence[int]) -> None:
        """Fill pages with NaN; integer ones with extreme codes under scales that are NaN."""
        ids = torch.tensor(list(pages), dtype=torch.int64, device=self.device)
        for stream in self._streams():
            stream.poison(ids)

    def gather(self, site: str, table: Tensor | Sequence[int], length: int) -> tuple[Tensor, ...]:
        """The streams of a site, [length, heads, features] float32, at positions 0 … length − 1 of a sequence.

        ``table``: its page ids in this group. Positions in pages given back (id 0) are 0.
        """
        ids = torch.as_tensor(table, dtype=torch.int64, device=self.device)[: self.group.pages(length)]
        return tuple(stream.gather(ids, length) for stream in self.sites[site])

    def _stream(self, spec: StreamSpec) -> StreamPages:
        return StreamPages.zeros(spec, self.num_pages, self.group.page_size, self.device)

    def _streams(self) -> list[StreamPages]:
        return [stream for site in self.sites.values() for stream in site]


def write_rows(x: Tensor, pages: Tensor, scale: Tensor | None, slots: Tensor) -> None:
    """Quantise rows x [T, heads, features] as the dtype of ``pages`` says and store them at ``slots`` i64 [T]."""
    elements, scales = quantise.encode(x, quantise.STORE_OF[pages.dtype])
    page, offset = slots // pages.shape[2], slots % pages.shape[2]
    _raw(pages)[page, :, offset] = _raw(elements)
    if scale is not None and scales is not None:
        scale[page, :, offset] = scales


def _rows(tensor: Tensor, pages: Tensor) -> Tensor:
    """[slots of these pages in order, heads, …] of a page tensor or its scales."""
    return _raw(tensor)[pages].transpose(1, 2).flatten(0, 1).view(tensor.dtype)


def _raw(tensor: Tensor) -> Tensor:
    """Float8 as bytes: few indexing kernels take it."""
    return tensor.view(torch.uint8) if tensor.dtype is torch.float8_e4m3fn else tensor
