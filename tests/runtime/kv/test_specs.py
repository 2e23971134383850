from __future__ import annotations

import subprocess
import sys

import pytest

from attnc.codegen.paged_plan import STORES
from attnc.runtime.kv.specs import GroupSpec, StreamSpec


@pytest.mark.parametrize("page_size", [1, 3, 4, 16])
@pytest.mark.parametrize("window", [1, 2, 4, 5, 16, 33])
def test_exactly_the_pages_that_no_later_query_reads_are_behind_the_window(page_size: int, window: int) -> None:
    group = GroupSpec("g", page_size, window, {})
    for length in range(1, 120):
        read = {key for query in range(length, length + 80) for key in range(length) if key > query - window}
        pages = {key // page_size for key in read}
        assert group.first_page(length) == min(pages, default=length // page_size), length


def test_without_a_window_no_page_is_behind() -> None:
    assert GroupSpec("g", 16, None, {}).first_page(10_000) == 0


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_pages_of_tokens(tokens: int, pages: int) -> None:
    assert GroupSpec("g", 16, None, {}).pages(tokens) == pages


def test_bytes_of_a_page_of_256_features() -> None:
    def page(keys: str, values: str) -> int:
        return GroupSpec("g", 16, None, {"a": (stream(keys), stream(values))}).page_bytes

    def stream(store: str) -> StreamSpec:
        return StreamSpec(1, 256, store, "bf16")

    assert page("bf16", "bf16") == 16 * 1024
    assert page("i8", "f8e4m3") == 16 * (260 + 260)
    assert page("bf16", "bf16") / page("i8", "i4") >= 2.5
    assert page("bf16", "bf16") / page("i4", "i4") >= 3.5


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StreamSpec(0, 4, "f32", "f32"), "0 heads of 4 features"),
        (lambda: StreamSpec(1, 0, "f32", "f32"), "1 heads of 0 features"),
        (lambda: StreamSpec(1, 4, "int8", "f32"), f"'int8'; stores are {', '.join(STORES)}"),
        (lambda: GroupSpec("a", 0, None, {}), "'a': a page of 0"),
        (lambda: GroupSpec("a", 4, 0, {}), "'a': a window of 0"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()  # type: ignore[operator]


def test_policy_loads_no_torch() -> None:
    code = "import sys, attnc.runtime.kv.sequences, attnc.runtime.kv.stats; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
