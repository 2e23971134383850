from __future__ import annotations

import dataclasses
import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from serving_samples import MAX_LENGTH, VOCABULARY, ByteText, HashProgram, generate, make_cache, nothing_held
from torch import Tensor

from attnc.runtime.engine import Engine
from attnc.runtime.kv.cache import KVCache
from attnc.runtime.kv.specs import RaggedBatch
from attnc.runtime.kv.storage import PageStorage
from attnc.runtime.requests import Output, RequestRefused
from attnc.runtime.sampling_params import SamplingParams
from attnc.runtime.scheduler import Limits

Asked = tuple[list[int], SamplingParams]
TEXT = ByteText()


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""


def ask(draw: random.Random, longest: int = 40, new: int = 16) -> Asked:
    """A random request: greedy or drawn, with stops, log-probabilities and a penalty now and then."""
    params = SamplingParams(
        temperature=draw.choice([0, 0, 0.8, 1.5]),
        top_k=draw.choice([None, 9]),
        top_p=draw.choice([1, 0.9]),
        repetition_penalty=draw.choice([1, 1, 1.3]),
        seed=draw.getrandbits(64),
        max_new_tokens=draw.randint(1, new),
        stop=draw.choice([(), (), ("ab", "the", "€"), ("c", "cd")]),
        stop_tokens=draw.choice([(), (3, 17)]),
        logprobs=draw.choice([None, 2]),
    )
    return draw.choices(range(VOCABULARY), k=draw.randint(1, longest)), params


def collect(engine: Engine, outputs: Sequence[Output] | None = None) -> dict[int, list[Output]]:
    """All outputs to the end, by request."""
    found: dict[int, list[Output]] = defaultdict(list)
    for output in engine.run() if outputs is None else outputs:
        found[output.request].append(output)
    return found


def expected(asked: Sequence[Asked], ids: Sequence[int]) -> dict[int, list[Output]]:
    return {
        number: [dataclasses.replace(output, request=number) for output in generate(*one, TEXT)]
        for number, one in zip(ids, asked, strict=True)
    }


MIXES = [
    pytest.param(Limits(1, 1, 1), 200, id="one by one, chunk 1"),
    pytest.param(Limits(8, 8, 1), 200, id="chunk 1"),
    pytest.param(Limits(30, 8, 7), 200, id="chunk 7"),
    pytest.param(Limits(200, 16, 64), 200, id="chunk 64"),
    pytest.param(Limits(30, 8, 7), 30, id="chunk 7, few pages"),
    pytest.param(Limits(200, 16, 64), 30, id="chunk 64, few pages"),
]


@pytest.mark.parametrize(("limits", "pages"), MIXES)
def test_a_request_gives_the_same_alone_and_in_any_mix(limits: Limits, pages: int) -> None:
    draw = random.Random(5)
    asked = [ask(draw) for _ in range(16)]
    asked += [(asked[0][0], asked[1][1]), (asked[2][0] + [5, 6, 7], asked[3][1])]
    cache, program = make_cache(pages, pages), HashProgram()
    engine = Engine(program, cache, detokenizer=TEXT, limits=limits)
    ids = [engine.add(*one) for one in asked]
    assert collect(engine) == expected(asked, ids)
    assert nothing_held(cache) and engine.idle
    stats = engine.stats()
    assert sum(rows for _, _, rows in program.steps) == stats.generated_tokens, "logits are asked for where due only"
    assert (stats.cache.preemptions > 0) == (pages == 30)
    assert pages == 30 or max(requests for requests, _, _ in program.steps) == limits.max_requests


class Trap(HashProgram):
    """Reads something slightly wrong."""

    def __init__(self, change: Callable[[RaggedBatch], dict[str, Any]]) -> None:
        super().__init__()
        self.change = change

    def step(self, token_ids: Tensor, batch: RaggedBatch, storage: Mapping[str, PageStorage], rows: Tensor) -> Tensor:
        return super().step(token_ids, dataclasses.replace(batch, **self.change(batch)), storage, rows)


TRAPS: dict[str, Callable[[RaggedBatch], dict[str, Any]]] = {
    "tables of neighbours": lambda b: {"block_table": {n: t.roll(1, 0) for n, t in b.block_table.items()}},
    "pages in another order": lambda b: {"block_table": {**b.block_table, "full": b.block_table["full"].flip(1)}},
    "window's pages": lambda b: {"block_table": {**b.block_table, "near": b.block_table["near"].roll(1, 1)}},
    "one key too few": lambda b: {"context_len": b.context_len - 1},
    "positions": lambda b: {"positions": b.positions.clamp(max=9)},
    "slots": lambda b: {"slots": {name: slots ^ 1 for name, slots in b.slots.items()}},
}


@pytest.mark.parametrize("name", [None, *TRAPS])
def test_a_wrong_batch_would_be_seen(name: str | None) -> None:
    """The tests here can fail: any of these changes the tokens of most requests."""
    draw = random.Random(6)
    asked = [(ask(draw, 30)[0], SamplingParams(max_new_tokens=12)) for _ in range(8)]
    engine = Engine(
        Trap(TRAPS[name] if name else lambda b: {}), make_cache(), detokenizer=TEXT, limits=Limits(40, 8, 7)
    )
    ids = [engine.add(*one) for one in asked]
    found, right = collect(engine), expected(asked, ids)
    wrong = sum(found[number] != right[number] for number in ids)
    assert wrong >= 6 if name else wrong == 0


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_many_requests_with_cancels_on_too_few_pages(seed: int) -> None:
    """200 requests: each one complete and right, or cancelled and right as far as it came; then nothing is held."""
    draw = random.Random(seed)
    asked = [ask(draw, 50, 20) for _ in range(200)]
    cache = make_cache(40, 60)
    engine = Engine(HashProgram(), cache, detokenizer=TEXT, limits=Limits(48, 12, 16))
    outputs: list[Output] = []
    cancelled = set()
    todo = list(asked)
    while todo or not engine.idle:
        for _ in range(min(len(todo), draw.choice([0, 1, 3, 9]))):
            engine.add(*todo.pop(0))
        if draw.random() < 0.3 and len(todo) < 200:
            victim = draw.randrange(200 - len(todo))
            engine.cancel(victim)
            cancelled.add(victim)
        outputs += engine.step()
    assert nothing_held(cache)
    found, right = collect(engine, outputs), expected(asked, range(200))
    assert found.keys() == right.keys()
    stats, ends = engine.stats(), [found[number][-1].finish for number in range(200)]
    assert stats.cache.preemptions > 10
    assert {end: ends.count(end) for end in set(ends)} == stats.finished
    assert stats.finished["cancelled"] > 20 and stats.finished["length"] > 40
    for number in range(200):
        end, kept = found[number][-1], found[number]
        if end.finish == "cancelled":
            assert number in cancelled and end == Output(number, None, "", finish="cancelled")
            assert kept[:-1] == right[number][: len(kept) - 1]
        else:
            assert kept == right[number]


def test_text_is_that_of_the_tokens_up_to_a_stop() -> None:
    draw = random.Random(8)
    asked = [ask(draw, 20, 40) for _ in range(40)]
    asked = [(prompt + [0], dataclasses.replace(params, temperature=1.5)) for prompt, params in asked]
    engine = Engine(HashProgram(), make_cache(), detokenizer=TEXT)
    ids = [engine.add(*one) for one in asked]
    found = collect(engine)
    ends = defaultdict(int)
    for number, (prompt, params) in zip(ids, asked, strict=True):
        tokens = [output.token for output in found[number] if output.token is not None]
        last = found[number][-1]
        shown = tokens[:-1] if tokens[-1] in params.stop_tokens else tokens
        whole = TEXT.decode(prompt + shown)[len(TEXT.decode(prompt)) :]
        hits = {whole.find(stop) for stop in params.stop} - {-1}
        assert "".join(output.text for output in found[number]) == (whole[: min(hits)] if hits else whole)
        assert last.finish == ("stop" if hits or shown != tokens else "length")
        assert last.finish == "stop" or len(tokens) == params.max_new_tokens
        ends[bool(hits), shown != tokens] += 1
    assert len(ends) == 3, "stop strings, stop tokens and neither"


def test_seeds() -> None:
    prompt = [1, 2, 3]
    same = SamplingParams(temperature=1.2, seed=77, max_new_tokens=30)
    other = dataclasses.replace(same, seed=78)
    free = dataclasses.replace(same, seed=None)

    def serve(asked: Sequence[SamplingParams]) -> list[list[int | None]]:
        engine = Engine(HashProgram(), make_cache())
        ids = [engine.add(prompt, params) for params in asked]
        found = collect(engine)
        return [[output.token for output in found[number]] for number in ids]

    first = serve([same, other, free, same, free])
    assert first[0] == first[3] and first[0] != first[1]
    assert len({tuple(tokens) for tokens in first}) == 4, "without a seed each request has its own"
    assert serve([free, other, same])[1:] == [first[1], first[0]], "another engine agrees"


def test_a_cached_prefix_saves_its_computation() -> None:
    engine = Engine(HashProgram(), make_cache(), limits=Limits(64, 4, 64))
    prompt = [n % VOCABULARY for n in range(50)]
    for tokens in (prompt, prompt, prompt[:40] + [9, 9]):
        (number,) = [engine.add(tokens, SamplingParams(max_new_tokens=3))]
        assert collect(engine)[number] == [
            dataclasses.replace(one, request=number) for one in generate(tokens, SamplingParams(max_new_tokens=3))
        ]
    stats = engine.stats()
    assert stats.cache.prefix_hit_tokens == 48 + 40
    assert stats.computed_tokens == 52 + (52 - 48) + (44 - 40)


REFUSED = {
    "empty": ([], {}, "at least one token"),
    "foreign": ([1, VOCABULARY], {}, f"token {VOCABULARY} of the prompt is outside the vocabulary, 0 to 47"),
    "negative": ([-1], {}, "token -1 of the prompt"),
    "stop without text": ([1], {"stop": ("x",)}, "stop strings need text"),
    "too long": (
        [1] * 300,
        {"max_new_tokens": 102},
        "300 tokens and max_new_tokens=102 need 401 positions, .* has 400",
    ),
    "too large": ([1] * 70, {"max_new_tokens": 12}, "81 tokens needs 21 pages .* group 'full', the cache has 20"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_never_run_is_refused_at_once(name: str) -> None:
    prompt, settings, message = REFUSED[name]
    engine = Engine(HashProgram(), make_cache(full=20))
    with pytest.raises(RequestRefused, match=message):
        engine.add(prompt, SamplingParams(**settings))
    assert engine.idle and engine.step() == []


def test_the_longest_request_runs() -> None:
    engine = Engine(HashProgram(), make_cache())
    engine.add([1] * 300, SamplingParams(max_new_tokens=MAX_LENGTH - 300 + 1))
    assert len(list(engine.run())) == 101
    small = Engine(HashProgram(), make_cache(full=20, near=4), limits=Limits(64, 4, 64))
    small.add([1] * 70, SamplingParams(max_new_tokens=11))
    assert list(small.run())[-1].finish == "length"


def test_a_request_is_refused_where_others_hold_the_pages() -> None:
    cache = make_cache(full=10)
    cache.admit("other", list(range(32)))
    cache.reserve("other", 32)
    engine = Engine(HashProgram(), cache)
    first, second = (engine.add([n] * (10 - 7 * n), SamplingParams(max_new_tokens=2)) for n in range(2))
    found = collect(engine)
    (refused,) = found[first]
    assert (refused.finish, refused.token) == ("refused", None) and "needs 3 more pages" in refused.detail
    assert found[second][-1].finish == "length"
    assert engine.stats().finished == {"refused": 1, "length": 1}
    cache.free("other")
    assert nothing_held(cache)


def test_cancelling() -> None:
    cache = make_cache()
    engine = Engine(HashProgram(), cache, limits=Limits(64, 2, 4))
    ids = [engine.add([n] * 9, SamplingParams(max_new_tokens=5)) for n in range(4)]
    engine.step()
    engine.cancel(ids[3])
    engine.cancel(ids[0])
    engine.cancel(ids[0])
    assert [(output.request, output.finish) for output in engine.step()] == [(3, "cancelled"), (0, "cancelled")]
    found = collect(engine)
    assert {number: len(found[number]) for number in found} == {1: 5, 2: 5} and nothing_held(cache)
    engine.cancel(ids[1])
    for unknown in (4, -1):
        with pytest.raises(KeyError, match="there is none of that id"):
            engine.cancel(unknown)
    assert engine.step() == []


@pytest.mark.parametrize("fail_at", [(1,), (3, 4), (2, 5, 9, 10, 11)])
def test_a_step_that_fails_loses_and_repeats_nothing(fail_at: tuple[int, ...]) -> None:
    draw = random.Random(9)
    asked = [ask(draw) for _ in range(9)]
    cache = make_cache()
    engine = Engine(HashProgram(fail_at), cache, detokenizer=TEXT, limits=Limits(40, 4, 8))
    ids = [engine.add(*one) for one in asked]
    outputs, failures = [], 0
    while not engine.idle:
        try:
            outputs += engine.step()
        except ArithmeticError:
            failures += 1
            assert nothing_held(cache) and engine.stats().running == 0
    assert failures == len(fail_at)
    assert collect(engine, outputs) == expected(asked, ids)


class Fragile(ByteText):
    def decode(self, ids: Sequence[int]) -> str:
        if 47 in ids:
            raise LookupError("no text for token 47")
        return super().decode(ids)


def test_a_detokenizer_that_raises_names_its_request() -> None:
    cache = make_cache()
    engine = Engine(HashProgram(), cache, detokenizer=Fragile(), limits=Limits(64, 4, 64))
    params = SamplingParams(max_new_tokens=20)
    prompts = [[n, n + 1, 5] for n in range(12)]
    right = [[one.token for one in generate(prompt, params)] for prompt in prompts]
    bad = {number for number, tokens in enumerate(right) if 47 in tokens}
    assert bad and len(bad) < 12
    for prompt in prompts:
        engine.add(prompt, params)
    outputs, blamed = [], set()
    while not engine.idle:
        try:
            outputs += engine.step()
        except LookupError as error:
            assert nothing_held(cache)
            number = int(error.__notes__[0].removeprefix("while turning the tokens of request ").split()[0])
            blamed.add(number)
            engine.cancel(number)
    assert blamed == bad
    found = collect(engine, outputs)
    for number, tokens in enumerate(right):
        got = [output.token for output in found[number]]
        assert got == (tokens[: tokens.index(47)] + [None] if number in bad else tokens)


class Spoiled(HashProgram):
    """Logits that are wrong in their second step: NaN in one row, or one row too many."""

    def __init__(self, shape: bool) -> None:
        super().__init__()
        self.shape = shape

    def step(self, token_ids: Tensor, batch: RaggedBatch, storage: Mapping[str, PageStorage], rows: Tensor) -> Tensor:
        logits = super().step(token_ids, batch, storage, rows)
        if len(self.steps) == 2:
            logits = torch.cat([logits, logits[:1]]) if self.shape else logits
            logits[1, 3] = math.nan
        return logits


def test_logits_that_are_no_distribution_end_one_request() -> None:
    cache = make_cache()
    engine = Engine(Spoiled(shape=False), cache)
    ids = [engine.add([n], SamplingParams(max_new_tokens=4)) for n in range(3)]
    found = collect(engine)
    assert [found[number][-1].finish for number in ids] == ["length", "failed", "length"]
    assert found[1][-1].detail.startswith("the logits for token 2 are no distribution: NaN")
    assert found[2][1:] == [
        dataclasses.replace(o, request=2) for o in generate([2], SamplingParams(max_new_tokens=4))[1:]
    ]
    assert nothing_held(cache)


def test_a_program_that_breaks_its_contract_is_told_so() -> None:
    cache = make_cache()
    engine = Engine(Spoiled(shape=True), cache)
    engine.add([1], SamplingParams(max_new_tokens=4))
    engine.step()
    with pytest.raises(RuntimeError, match=r"logits of shape \[2, 48\], not \[1, 48\]"):
        engine.step()
    assert nothing_held(cache)
    assert len(list(engine.run())) == 3, "and goes on if the program does"


def test_a_cache_of_other_groups_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"the cache has layer groups \['full'\], the program's are \['full', 'near'\]"
    ):
        Engine(HashProgram(), KVCache(HashProgram.groups[:1], {"full": 9}))


def test_streams_of_several_requests() -> None:
    draw = random.Random(11)
    asked = [ask(draw) for _ in range(5)]
    engine = Engine(HashProgram(), make_cache(), detokenizer=TEXT, limits=Limits(20, 3, 7))
    ids = [engine.add(*one) for one in asked]
    streams = {number: engine.stream(number) for number in ids[1:]}
    first = engine.step()
    found: dict[int, list[Output]] = {number: [] for number in ids}
    while streams:
        number = draw.choice(list(streams))
        output = next(streams[number], None)
        if output is None:
            del streams[number]
        else:
            found[number].append(output)
    found[ids[0]] = first + list(engine.run())
    assert found == expected(asked, ids)
    assert engine.idle


def test_a_stream_takes_what_was_made_before_it() -> None:
    engine = Engine(HashProgram(), make_cache())
    first, second = (engine.add([n], SamplingParams(max_new_tokens=3)) for n in (1, 2))
    assert len(list(engine.stream(first))) == 3
    with pytest.raises(KeyError, match="is unknown, or has ended and its outputs were taken"):
        engine.stream(first)
    assert not engine.idle
    late = engine.stream(second)
    with pytest.raises(KeyError, match="has a stream already"):
        engine.stream(second)
    assert engine.idle and engine.step() == []
    assert [output.finish for output in late] == [None, None, "length"]


def test_closing_a_stream_cancels_its_request() -> None:
    cache = make_cache()
    engine = Engine(HashProgram(), cache)
    first, second = (engine.add([n], SamplingParams(max_new_tokens=9)) for n in (1, 2))
    stream = engine.stream(first)
    next(stream)
    stream.close()
    assert engine.stats().finished == {"cancelled": 1} and engine.stats().running == 1
    assert len(collect(engine)[second]) == 9 and nothing_held(cache)


def test_requests_may_come_and_go_while_it_runs() -> None:
    engine = Engine(HashProgram(), make_cache())
    engine.add([1], SamplingParams(max_new_tokens=4))
    seen = []
    for output in engine.run():
        seen.append((output.request, output.finish))
        if len(seen) == 2:
            engine.add([2], SamplingParams(max_new_tokens=50))
        if output.request == 1 and output.finish is None:
            engine.cancel(1)
    assert seen == [(0, None)] * 3 + [(1, None), (1, "cancelled"), (0, "length")]
