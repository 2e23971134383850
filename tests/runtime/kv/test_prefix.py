from __future__ import annotations

import math
import random

import numpy as np
import pytest
from kv_model import group

from attnc.runtime.kv.pool import PagePool
from attnc.runtime.kv.prefix import PrefixChain, longest_hit
from attnc.runtime.kv.specs import GroupSpec


def keys(tokens: list[int], page_size: int = 4, salt: bytes = b"") -> list[bytes]:
    return PrefixChain.root(page_size, salt).extend(tokens)


def test_keys_do_not_depend_on_how_tokens_come_in() -> None:
    chooser = random.Random(1)
    for _ in range(50):
        tokens = [chooser.randrange(2**40) for _ in range(chooser.randrange(40))]
        chain, pieces = PrefixChain.root(3, b""), []
        rest = list(tokens)
        while rest:
            number = chooser.randint(1, 5)
            piece, rest = rest[:number], rest[number:]
            pieces += chain.extend(np.array(piece) if chooser.random() < 0.5 else tuple(piece))
            chain = chain.copy()
        assert pieces == keys(tokens, 3)
        assert len(pieces) == len(tokens) // 3


def test_a_key_depends_on_every_token_before_and_on_the_salt() -> None:
    base = keys(list(range(12)))
    for changed in range(12):
        tokens = list(range(12))
        tokens[changed] += 100
        same = [a == b for a, b in zip(keys(tokens), base, strict=True)]
        assert same == [page < changed // 4 for page in range(3)]
    assert not set(keys(list(range(12)), salt=b"tenant")) & set(base)
    assert len(set(keys([7] * 40))) == 10


def test_a_copy_goes_its_own_way() -> None:
    chain = PrefixChain.root(2, b"")
    chain.extend([1])
    other = chain.copy()
    assert chain.extend([2]) == keys([1, 2], 2)
    assert other.extend([3]) == keys([1, 3], 2)


def test_a_wrong_token_changes_nothing() -> None:
    chain = PrefixChain.root(4, b"")
    with pytest.raises(TypeError):
        chain.extend([1, "two"])  # type: ignore[list-item]
    assert chain.extend([5, 6, 7, 8]) == keys([5, 6, 7, 8])


def fill(groups: list[GroupSpec], tokens: list[int], chooser: random.Random) -> tuple[list[PagePool], list[list[bool]]]:
    """Pools that hold some of the pages of a prompt, and which."""
    pools, present = [], []
    for each in groups:
        pool = PagePool(100, each.page_size)
        chosen = [chooser.random() < 0.8 for _ in range(len(tokens) // each.page_size)]
        for key, there in zip(keys(tokens, each.page_size), chosen, strict=True):
            if there:
                pool.publish(*pool.allocate(1), key)
        pools.append(pool)
        present.append(chosen)
    return pools, present


GROUPS = [
    [group("full", 4)],
    [group("window", 4, 7)],
    [group("full", 4), group("window", 4, 5)],
    [group("a", 4, 9), group("b", 6, 1), group("c", 2, 14)],
]


@pytest.mark.parametrize("groups", GROUPS, ids=lambda groups: "+".join(g.name for g in groups))
def test_the_hit_is_the_longest_prefix_whose_readable_pages_are_all_there(groups: list[GroupSpec]) -> None:
    chooser, lengths = random.Random(2), set()
    for _ in range(300):
        tokens = [chooser.randrange(3) for _ in range(chooser.randint(1, 50))]
        pools, present = fill(groups, tokens, chooser)
        unit = math.lcm(*(each.page_size for each in groups))
        usable = [
            end
            for end in range(0, len(tokens), unit)
            if all(
                all(there[each.first_page(end) : end // each.page_size])
                for each, there in zip(groups, present, strict=True)
            )
        ]
        hit = longest_hit(groups, pools, tokens, b"")
        assert hit.tokens == max(usable)
        for each, pool, pages in zip(groups, pools, hit.pages, strict=True):
            first, wanted = each.first_page(hit.tokens), keys(tokens, each.page_size)
            assert pages[:first] == [0] * first
            assert pages[first:] == [pool.lookup(key) for key in wanted[first : hit.tokens // each.page_size]]
            assert 0 not in pages[first:]
            rest = tokens[hit.tokens :]
            assert hit.chains[each.page_size].copy().extend(rest) == wanted[hit.tokens // each.page_size :]
        lengths.add(hit.tokens)
    assert len(lengths) > 3
