from __future__ import annotations

import numpy as np
import pytest
from kv_model import NumpyCache, check_pools, group, snapshot

from attnc.runtime.kv.pool import OutOfPages
from attnc.runtime.kv.sequences import Sequences
from attnc.runtime.kv.tables import BlockTable


def cache(*groups: tuple[int, int | None], pages: int = 40) -> NumpyCache:
    specs = [group(f"g{i}", page_size, window) for i, (page_size, window) in enumerate(groups)]
    return NumpyCache(specs, [pages] * len(specs))


def write(subject: NumpyCache, seq: int, tokens: list[int]) -> int:
    """Admit and write all; the hit."""
    hit = subject.sequences.admit(seq, tokens)
    extend(subject, seq, tokens[hit:])
    return hit


def extend(subject: NumpyCache, seq: int, tokens: list[int]) -> None:
    """Tokens are their own data here."""
    subject.extend(seq, tokens, tokens, spare=0)


def table(sequences: Sequences, seq: int, g: int = 0) -> list[int]:
    return sequences[seq].tables[g].ids.tolist()


def test_a_prefix_is_shared_in_whole_pages_and_never_all_of_a_prompt() -> None:
    c = cache((4, None))
    tokens = list(range(12))
    assert write(c, 0, tokens) == 0
    assert [c.sequences.admit(i + 1, tokens[:n]) for i, n in enumerate((3, 4, 5, 8, 9, 12))] == [0, 0, 4, 4, 8, 8]
    assert c.sequences.admit(10, [*tokens, 99]) == 12
    assert table(c.sequences, 10) == table(c.sequences, 0)
    assert c.sequences.admit(11, [99, *tokens]) == 0
    check_pools(c.sequences)
    assert (c.sequences.hit_tokens, c.sequences.prompt_tokens) == (4 + 4 + 8 + 8 + 12, 12 + 41 + 13 + 13)


def test_a_salt_separates() -> None:
    c = cache((2, None))
    for seq, (salt, hit) in enumerate([(b"a", 0), (b"b", 0), (b"a", 4), (b"", 0)]):
        assert c.sequences.admit(seq, [1, 2, 3, 4, 5], salt) == hit
        extend(c, seq, [1, 2, 3, 4, 5][hit:])


def test_a_prefix_stays_after_its_sequence_and_is_not_found_once_evicted() -> None:
    c = cache((4, None), pages=7)
    tokens = list(range(12))
    write(c, 0, tokens)
    c.sequences.free(0)
    assert c.sequences.admit(1, [*tokens, 12]) == 12
    c.sequences.free(1)
    write(c, 2, list(range(50, 66)))  # three free pages and the prefix's last
    c.sequences.free(2)
    assert c.sequences.pools[0].stats().evictions == 1
    assert c.sequences.admit(3, [*tokens, 12]) == 8
    assert c.read(3, 0) == tokens[:8]
    c.sequences.free(3)
    write(c, 4, list(range(70, 94)))
    c.sequences.free(4)
    assert c.sequences.pools[0].stats().evictions == 7
    assert c.sequences.admit(5, tokens) == 0
    assert c.sequences.admit(6, [*range(70, 94)]) == 20


def test_eviction_takes_the_end_of_a_prefix_first() -> None:
    c = cache((4, None), pages=4)
    write(c, 0, list(range(12)))
    c.sequences.free(0)
    write(c, 1, [99])
    c.sequences.free(1)
    assert c.sequences.admit(2, list(range(12))) == 8


def test_duplicates_of_a_cached_page_are_not_shared() -> None:
    c = cache((4, None))
    write(c, 0, [1, 2, 3, 4])
    write(c, 1, [1, 2, 3, 4])
    assert table(c.sequences, 0) != table(c.sequences, 1)
    c.sequences.admit(2, [1, 2, 3, 4, 5])
    assert table(c.sequences, 2) == table(c.sequences, 0)
    check_pools(c.sequences)


@pytest.mark.parametrize("writer", [0, 1])
def test_forks_do_not_see_each_other(writer: int) -> None:
    c = cache((4, None), (8, None), (2, 5))
    write(c, 0, [1, 2, 3, 4, 5, 6, 7])
    c.sequences.fork(0, 1)
    assert c.sequences.tables(0)["g0"].tolist() == c.sequences.tables(1)["g0"].tolist()
    extend(c, writer, [80, 81, 82])
    extend(c, 1 - writer, [90, 91])
    for g, spec in enumerate(c.sequences.groups):
        for seq, more in ((writer, [80, 81, 82]), (1 - writer, [90, 91])):
            tokens = [1, 2, 3, 4, 5, 6, 7, *more]
            behind = spec.first_page(len(tokens)) * spec.page_size
            assert c.read(seq, g)[behind:] == tokens[behind:]
    check_pools(c.sequences)


def test_only_a_shared_page_that_is_partly_filled_is_copied() -> None:
    c = cache((4, None), (3, None))
    write(c, 0, [1, 2, 3, 4, 5, 6, 7, 8])  # full in g0, not in g1
    c.sequences.fork(0, 1)
    (copied,) = c.sequences.reserve(0, 1)
    assert (copied.group, copied.source) == ("g1", table(c.sequences, 1, g=1)[-1])
    assert copied.target == table(c.sequences, 0, g=1)[-1] != copied.source
    assert c.sequences.reserve(1, 1) == [], "the other has it alone now"
    assert c.sequences.reserve(0, 1) == []


def test_a_fork_takes_back_what_was_reserved_before() -> None:
    c = cache((4, None))
    write(c, 0, [1, 2])
    c.sequences.reserve(0, 9)
    c.sequences.fork(0, 1)
    assert len(table(c.sequences, 1)) == 1
    with pytest.raises(ValueError, match="room for 0 is reserved"):
        c.sequences.commit(0, [3])
    assert len(c.sequences.reserve(0, 9)) == 1
    check_pools(c.sequences)


def test_pages_behind_a_window_are_given_back_and_keep_their_index() -> None:
    c = cache((4, 5), pages=6)
    c.sequences.admit(0, [0])
    held = set()
    for token in range(100):
        extend(c, 0, [token])
        held.add(len(c.sequences[0].tables[0].live))
    assert max(held) == 2
    first = c.sequences.groups[0].first_page(100)
    assert table(c.sequences, 0)[:first] == [0] * first and 0 not in table(c.sequences, 0)[first:]
    assert len(table(c.sequences, 0)) == 25
    assert c.read(0, 0)[first * 4 :] == list(range(first * 4, 100))


def test_a_window_needs_only_the_end_of_a_prefix() -> None:
    c = cache((4, 5), pages=7)
    tokens = list(range(16))
    write(c, 0, tokens)
    c.sequences.free(0)
    c.sequences.pools[0].allocate(4)  # evicts the two pages behind the window, which were let go of first
    assert c.sequences.pools[0].stats().evictions == 2
    assert c.sequences.admit(1, [*tokens, 16]) == 16
    assert table(c.sequences, 1)[:3] == [0, 0, 0]
    assert c.sequences[1].tables[0].live == table(c.sequences, 1)[3:]
    extend(c, 1, [16])
    assert c.read(1, 0)[12:] == [*range(12, 17)]


def test_admission_asks_for_room_but_takes_none() -> None:
    c = cache((4, None), pages=6)
    assert c.sequences.admit(0, list(range(20))) == 0
    assert c.sequences.pools[0].stats().in_use == 0
    with pytest.raises(
        OutOfPages, match="sequence 1 in layer group 'g0': needs 6 more pages, but only 5 of 5"
    ) as caught:
        c.sequences.admit(1, list(range(21)))
    assert caught.value.never_fits
    extend(c, 0, [1, 2, 3, 4, 5])
    before = snapshot(c.sequences)
    with pytest.raises(OutOfPages) as caught:
        c.sequences.admit(1, list(range(20)))
    assert not caught.value.never_fits
    assert snapshot(c.sequences) == before


def test_admission_counts_the_pages_of_the_prefix() -> None:
    """Cached pages that the prompt takes itself are no room for its rest."""
    c = cache((4, None), pages=6)
    write(c, 0, list(range(12)))
    c.sequences.free(0)
    assert c.sequences.admit(1, list(range(20))) == 12
    c.sequences.free(1)
    before = snapshot(c.sequences)
    with pytest.raises(OutOfPages, match="needs 3 more pages, but only 2 of 5"):
        c.sequences.admit(2, list(range(21)))
    assert snapshot(c.sequences) == before


def test_behind_a_window_admission_asks_for_what_is_held_in_the_end() -> None:
    c = cache((4, 6), pages=5)
    assert c.sequences.admit(0, list(range(400))) == 0
    for begin in range(0, 400, 4):
        extend(c, 0, list(range(begin, begin + 4)))
    assert c.read(0, 0)[-6:] == list(range(394, 400))


def test_a_prompt_that_fits_the_empty_pool_is_admitted_with_a_prefix_too() -> None:
    """Pages of the prefix that end up behind the window take no room from the rest."""
    c = cache((4, 9), pages=4)
    tokens = list(range(37))
    for seq, length, hit in ((0, 16, 0), (1, 37, 16)):
        assert c.sequences.admit(seq, tokens[:length]) == hit
        for begin in range(hit, length, 4):
            extend(c, seq, tokens[begin : min(begin + 4, length)])
        if seq == 0:
            c.sequences.free(0)
    assert c.read(1, 0)[28:] == tokens[28:]
    assert c.sequences.pools[0].stats().in_use == 3
    with pytest.raises(OutOfPages) as caught:
        cache((4, 9), pages=3).sequences.admit(0, tokens)
    assert caught.value.never_fits


def test_one_group_without_pages_leaves_the_others_alone() -> None:
    groups = [group("large", 4), group("small", 4)]
    c = NumpyCache(groups, [40, 4])
    write(c, 0, [1, 2, 3, 4, 5, 6])
    c.sequences.fork(0, 1)
    c.sequences.pools[1].allocate(1)
    before = snapshot(c.sequences)
    with pytest.raises(OutOfPages, match="reserving 1 tokens for sequence 1 in layer group 'small': needs 1 more"):
        c.sequences.reserve(1, 1)
    with pytest.raises(OutOfPages, match="'small'"):
        c.sequences.admit(2, [7])
    assert snapshot(c.sequences) == before


def test_reserving_again_takes_no_more() -> None:
    c = cache((4, None))
    c.sequences.admit(0, [1])
    c.sequences.reserve(0, 5)
    assert (len(table(c.sequences, 0)), c.sequences[0].room) == (2, 5)
    c.sequences.reserve(0, 5)
    c.sequences.reserve(0, 2)
    assert (len(table(c.sequences, 0)), c.sequences[0].room) == (2, 5)
    c.sequences.commit(0, [1, 2, 3])
    assert (c.sequences[0].length, c.sequences[0].room) == (3, 2)
    assert c.sequences.empty_slots() == 5


def test_a_page_is_found_by_its_prefix_only_once_its_tokens_are_committed() -> None:
    c = cache((4, None))
    c.sequences.admit(0, [1, 2, 3, 4])
    c.sequences.reserve(0, 4)
    assert c.sequences.admit(1, [1, 2, 3, 4, 5]) == 0
    c.sequences.commit(0, [1, 2, 3, 4])
    assert c.sequences.admit(2, [1, 2, 3, 4, 5]) == 4


def test_what_makes_no_sense_is_refused_and_changes_nothing() -> None:
    c = cache((4, None))
    write(c, 0, [1, 2, 3])
    c.sequences.fork(0, 1)
    before = snapshot(c.sequences)
    for call, error, words in [
        (lambda: c.sequences.admit(0, [1]), ValueError, "has a sequence 0 already"),
        (lambda: c.sequences.admit(7, []), ValueError, "without a token"),
        (lambda: c.sequences.fork(0, 1), ValueError, "has a sequence 1 already"),
        (lambda: c.sequences.fork(7, 8), KeyError, "no sequence 7"),
        (lambda: c.sequences.free(7), KeyError, "no sequence 7"),
        (lambda: c.sequences.reserve(0, 0), ValueError, "room for 0 tokens"),
        (lambda: c.sequences.commit(0, [4]), ValueError, "1 tokens are committed, room for 0"),
    ]:
        with pytest.raises(error, match=words):
            call()
    assert snapshot(c.sequences) == before


def test_a_table_grows_and_gives_back() -> None:
    pages = BlockTable([0, 7, 8], start=1)
    assert pages.live == [7, 8]
    pages.extend([9])
    pages.extend(range(10, 30))
    assert pages.ids.dtype == np.int32 and pages.ids.tolist() == [0, 7, 8, 9, *range(10, 30)]
    fork = pages.fork(3)
    pages.replace(2, 99)
    assert pages.give_back(3) == [7, 99]
    assert pages.give_back(2) == [] and pages.give_back(3) == []
    assert pages.live == [9, *range(10, 30)] and len(pages) == 24
    assert fork.live == [7, 8]
