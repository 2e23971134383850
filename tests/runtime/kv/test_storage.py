from __future__ import annotations

import pytest
import torch

from attnc.codegen.paged_plan import STORES
from attnc.runtime.kv.quantise import decode, encode
from attnc.runtime.kv.specs import GroupSpec, StreamSpec
from attnc.runtime.kv.storage import PageStorage

PAIRS = [(store, STORES[-1 - i]) for i, store in enumerate(STORES)]


def storage(
    k: str, v: str, *, features: tuple[int, int] = (40, 33), pages: int = 12, debug: bool = False
) -> PageStorage:
    site = (StreamSpec(2, features[0], k, "f32"), StreamSpec(3, features[1], v, "f32"))
    return PageStorage(GroupSpec("g", 5, None, {"first": site, "other": site}), pages, debug=debug)


def data(tokens: int, seed: int, features: tuple[int, int] = (40, 33)) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randn(2, tokens, features[0], generator=generator).transpose(0, 1)  # strides as a model gives them
    return keys, torch.randn(tokens, 3, features[1], generator=generator)


def stored(x: torch.Tensor, store: str) -> torch.Tensor:
    return decode(*encode(x, store), x.shape[-1])


@pytest.mark.parametrize("features", [(40, 33), (80, 96), (1, 128)], ids=str)
@pytest.mark.parametrize(("k", "v"), PAIRS, ids=str)
def test_what_is_written_is_read_back_by_the_table(k: str, v: str, features: tuple[int, int]) -> None:
    pages = storage(k, v, features=features, debug=True)
    keys, values = data(23, 1, features)
    table = [7, 3, 11, 2, 9]
    slots = torch.tensor([table[p // 5] * 5 + p % 5 for p in range(23)])
    for begin, end in ((0, 7), (7, 8), (8, 23)):
        pages.write("first", keys[begin:end], values[begin:end], slots[begin:end])
    for length in (1, 5, 23):
        found = pages.gather("first", table, length)
        assert torch.equal(found[0], stored(keys[:length], k)) and torch.equal(found[1], stored(values[:length], v))
    moved = pages.gather("first", torch.tensor([3, 7], dtype=torch.int32), 10)[0]
    assert torch.equal(moved, stored(torch.cat([keys[5:10], keys[:5]]), k))


@pytest.mark.parametrize(("k", "v"), PAIRS, ids=str)
def test_only_the_given_slots_are_written(k: str, v: str) -> None:
    pages = storage(k, v, debug=True)
    keys, values = data(3, 2)
    pages.write("first", keys, values, torch.tensor([5, 9, 22]))
    for stream in pages.gather("first", range(1, 12), 55):
        written = (~stream.isnan()).all(-1).all(-1).nonzero().flatten()
        assert written.tolist() == [0, 4, 17]
    for stream in pages.gather("other", range(1, 12), 55):
        assert bool(stream.isnan().all())


@pytest.mark.parametrize(("k", "v"), PAIRS, ids=str)
def test_a_copied_page_reads_the_same_in_every_site_and_goes_its_own_way(k: str, v: str) -> None:
    pages = storage(k, v)
    keys, values = data(5, 3)
    for site in ("first", "other"):
        pages.write(site, keys, values, torch.arange(20, 25))
    pages.copy_page(4, 6)
    for site in ("first", "other"):
        for a, b in zip(pages.gather(site, [4], 5), pages.gather(site, [6], 5), strict=True):
            assert torch.equal(a, b) and bool(a.any())
    pages.write("first", keys[:1] + 1, values[:1] + 1, torch.tensor([30]))
    assert torch.equal(pages.gather("first", [4], 5)[0], stored(keys, k))
    assert not torch.equal(pages.gather("first", [6], 5)[0], stored(keys, k))


@pytest.mark.parametrize(("k", "v"), PAIRS, ids=str)
def test_poison_shows_in_every_element_of_these_pages_and_no_other(k: str, v: str) -> None:
    pages = storage(k, v)
    keys, values = data(10, 4)
    pages.write("first", keys, values, torch.arange(10, 20))
    pages.poison([3, 5])
    for site in ("first", "other"):
        for stream in pages.gather(site, [3, 5], 10):
            assert bool(stream.isnan().all())
        for stream in pages.gather(site, [1, 2, 4, 6], 20):
            assert not bool(stream.isnan().any())
    assert torch.equal(pages.gather("first", [2], 5)[0], stored(keys[:5], k))
    for stream in (*pages.sites["first"], *pages.sites["other"]):
        raw = stream.pages.view(torch.uint8) if stream.spec.store == "f8e4m3" else stream.pages
        extreme = {"i8": -128, "i4": 0x88, "f8e4m3": 0x7F}.get(stream.spec.store)
        assert extreme is None or bool((raw[[3, 5]] == extreme).all())


def test_debug_poisons_all_pages_and_the_null_page() -> None:
    for stream in storage("f32", "i4", debug=True).sites["first"]:
        assert bool((stream.pages.isnan() if stream.scale is None else stream.scale.isnan()).all())
    for stream in storage("f32", "i4").sites["first"]:
        assert not stream.pages.any()


@pytest.mark.parametrize("debug", [False, True])
def test_positions_of_pages_given_back_read_as_zero(debug: bool) -> None:
    pages = storage("f16", "i8", debug=debug)
    keys, values = data(5, 5)
    pages.write("first", keys, values, torch.arange(5, 10))
    for stream, rows, store in zip(pages.gather("first", [0, 0, 1], 15), (keys, values), ("f16", "i8"), strict=True):
        assert not stream[:10].any()
        assert torch.equal(stream[10:], stored(rows, store))


@pytest.mark.parametrize(("k", "v"), PAIRS, ids=str)
def test_page_tensors_take_the_bytes_their_spec_says(k: str, v: str) -> None:
    pages = storage(k, v)
    tensors = [t for site in pages.sites.values() for s in site for t in (s.pages, s.scale) if t is not None]
    assert sum(t.numel() * t.element_size() for t in tensors) == 12 * pages.group.page_bytes
    keys = pages.sites["first"][0]
    assert keys.pages.shape == (12, 2, 5, 20 if k == "i4" else 40)


def test_one_stream_can_be_keys_and_values() -> None:
    pages = PageStorage(GroupSpec("g", 5, None, {"a": (StreamSpec(2, 40, "i8", "f32"),)}), 4, debug=True)
    keys, values = data(5, 6)
    pages.write("a", keys, None, torch.arange(5, 10))
    (found,) = pages.gather("a", [1], 5)
    assert torch.equal(found, stored(keys, "i8"))
    assert pages.group.page_bytes == 5 * 2 * 44
    with pytest.raises(ValueError):
        pages.write("a", keys, values, torch.arange(5, 10))
