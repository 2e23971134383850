from __future__ import annotations

import dataclasses
import math
import random
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from attnc.runtime import sampling
from attnc.runtime.sampling import Row, Sampled, sample, uniform
from attnc.runtime.sampling_params import SamplingParams

INF = float("inf")


@pytest.fixture(autouse=True)
def configured() -> None:
    """These tests need no kernel store and no launcher."""


def row(seed: int = 0, index: int = 0, seen: tuple[int, ...] = (), **settings: Any) -> Row:
    return Row(SamplingParams(**settings), seed, index, seen)


def tokens(logits: Tensor, rows: list[Row]) -> list[int | None]:
    return [one and one.token for one in sample(logits, rows)]


WRONG = {
    "temperature": [-1, math.nan, math.inf, 1e-5, "0.7", True],
    "top_k": [0, -1, 2.0, True],
    "top_p": [0, -0.1, 1.1, math.nan, None],
    "min_p": [-0.1, 1.1, math.nan],
    "repetition_penalty": [0, -1, math.inf],
    "seed": [-1, 2**64, 1.0],
    "max_new_tokens": [0, -3, 1.5],
    "stop": ["end", ("",), ["end"], (3,)],
    "stop_tokens": [3, ["x"], (1.5,), (True,)],
    "logprobs": [-1, 1.0, True],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_parameter_is_named(name: str) -> None:
    for value in WRONG[name]:
        with pytest.raises(ValueError, match=f"sampling parameters: {name} is .*, not "):
            SamplingParams(**{name: value})


def test_every_parameter_has_a_wrong_value_and_all_are_told_at_once() -> None:
    assert WRONG.keys() == {field.name for field in dataclasses.fields(SamplingParams)}
    with pytest.raises(ValueError) as caught:
        SamplingParams(**{name: values[0] for name, values in WRONG.items()})
    assert all(f"{name} is " in str(caught.value) for name in WRONG)


def test_extreme_parameters_are_taken() -> None:
    SamplingParams(1e-4, 1, 1e-9, 1.0, 1e-3, 2**64 - 1, 1, ("€", " "), (0,), 0)
    SamplingParams(temperature=1, top_p=1, min_p=0, repetition_penalty=1, top_k=10**9)


def test_the_numbers_of_a_request() -> None:
    """Fixed for ever: they decide the tokens of a seed."""
    assert [uniform(0, 0), uniform(1, 0), uniform(0, 1)] == [
        0.05646639900046091,
        0.6487508310490745,
        0.44008326622012295,
    ]
    drawn = [uniform(seed, index) for seed in (0, 1, 2**64 - 1) for index in range(1000)]
    assert len(set(drawn)) == len(drawn) and 0 < min(drawn) and max(drawn) < 1
    tenths = Counter(int(u * 10) for u in drawn)
    assert sum((n - 300) ** 2 / 300 for n in tenths.values()) < 27.9  # χ², 9 degrees of freedom: 1 in 1000


def test_greedy_takes_the_first_of_the_best() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0], [5.0, -INF, -INF, 5.0], [-INF, -INF, -7.0, -INF]])
    assert tokens(logits, [row(), row(top_k=2, seed=9), row()]) == [1, 0, 2]


def test_a_penalty_holds_for_greedy_and_drawn_tokens() -> None:
    logits = torch.tensor([[3.0, 2.9, -9.0]]).expand(2, 3)
    assert tokens(logits, [row(seen=(0,), repetition_penalty=1.5), row(repetition_penalty=1.5)]) == [1, 0]
    drawn = [row(n, seen=(0, 0), repetition_penalty=100.0, temperature=0.01) for n in range(50)]
    assert set(tokens(logits[:1].expand(50, 3), drawn)) == {1}


def mixed_rows(width: int, number: int) -> tuple[Tensor, list[Row]]:
    """Rows with all kinds of parameters, and logits of all kinds for them."""
    pick = random.Random(width)
    logits = torch.randn(number, width, generator=torch.Generator().manual_seed(width)) * 3
    logits[::3] = logits[::3].round()
    rows = [
        row(
            pick.getrandbits(64),
            pick.randrange(100),
            tuple(pick.choices(range(width), k=pick.randrange(20))),
            temperature=pick.choice([0, 0.5, 1, 1.5]),
            top_k=pick.choice([None, 1, 5, 40, 600]),
            top_p=pick.choice([1, 0.9, 0.3]),
            min_p=pick.choice([0, 0.05]),
            repetition_penalty=pick.choice([1, 1.2, 0.8]),
            logprobs=pick.choice([None, 0, 3]),
        )
        for _ in range(number)
    ]
    return logits, rows


@pytest.mark.parametrize("width", [29, 700])
def test_a_row_depends_on_itself_only(width: int) -> None:
    logits, rows = mixed_rows(width, 60)
    together = sample(logits, rows)
    alone = [sample(logits[n : n + 1], rows[n : n + 1])[0] for n in range(60)]
    assert together == alone
    order = random.Random(3).sample(range(60), 37)
    assert sample(logits[order], [rows[n] for n in order]) == [together[n] for n in order]
    assert len({one.token for one in together if one}) > 10


def test_short_lists_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more tokens than the list holds are tied at its end."""
    logits, rows = mixed_rows(700, 60)
    rows = [dataclasses.replace(one, params=dataclasses.replace(one.params, temperature=0.9)) for one in rows]
    logits[1::3] = logits[1::3].sign()
    monkeypatch.setattr(sampling, "SHORTLIST", 50)
    short = sample(logits, rows)
    monkeypatch.setattr(sampling, "SHORTLIST", 10**6)
    assert short == sample(logits, rows)


def test_frequencies_are_the_probabilities() -> None:
    logits = torch.tensor([[1.0, 0.0, -INF, 2.0, -1.0, -20.0]])
    number, temperature = 6000, 0.7
    found = Counter(tokens(logits.expand(number, -1), [row(n, 3, temperature=temperature) for n in range(number)]))
    expected = (logits[0] / temperature).softmax(-1) * number
    assert found.keys() == {0, 1, 3, 4}
    assert sum((found[n] - float(expected[n])) ** 2 / float(expected[n]) for n in found) < 16.3  # χ², 3: 1 in 1000


@pytest.mark.parametrize("u", [2.0**-53, 0.5, 1 - 2.0**-53])
def test_what_is_impossible_is_never_drawn(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "uniform", lambda seed, index: u)
    logits = torch.full((4, 1000), -INF)
    logits[0, 999] = -3.0
    logits[1, 0] = 1e30
    logits[2, [400, 600]] = torch.tensor([-1e30, -1e30])
    logits[3, 100:900] = 7.0
    found = tokens(logits, [row(temperature=1.3), row(temperature=1e-4), row(temperature=1), row(temperature=2)])
    assert found[:2] == [999, 0] and found[2] in (400, 600)
    assert found[3] is not None and 100 <= found[3] < 900
    limited = tokens(logits, [row(temperature=1, top_k=k, top_p=0.5) for k in (1, 5, 3, 10)])
    assert limited[:2] == [999, 0] and limited[2] in (400, 600)
    assert limited[3] is not None and 100 <= limited[3] < 900


def test_a_row_that_is_no_distribution_hurts_no_other() -> None:
    logits = torch.zeros(5, 6)
    logits[0, 3] = math.nan
    logits[2, 1] = INF
    logits[3] = -INF
    logits[1, 4] = logits[4, 5] = 2.0
    for temperature in (0, 0.01):
        assert tokens(logits, [row(temperature=temperature, logprobs=1)] * 5) == [None, 4, None, None, 5]


def test_log_probabilities_are_those_of_the_model() -> None:
    """Before penalty, temperature and filters, whatever these are."""
    logits = torch.randn(1, 9, generator=torch.Generator().manual_seed(2))
    logs = logits[0].double().log_softmax(-1)
    wanted = row(4, seen=(1, 2), temperature=1.9, top_k=3, repetition_penalty=1.4, logprobs=4)
    (found,) = sample(logits, [wanted])
    assert isinstance(found, Sampled) and found.logprob == pytest.approx(float(logs[found.token]), abs=1e-6)
    assert [token for token, _ in found.top] == logs.argsort(descending=True)[:4].tolist()
    assert [logprob for _, logprob in found.top] == pytest.approx(sorted(logs.tolist(), reverse=True)[:4], abs=1e-6)


def test_as_many_log_probabilities_as_asked_for() -> None:
    found = sample(torch.zeros(4, 5), [row(logprobs=n) for n in (None, 0, 2, 99)])
    assert [one and (one.logprob is None, len(one.top)) for one in found] == [
        (True, 0),
        (False, 0),
        (False, 2),
        (False, 5),
    ]


def test_half_precision_and_no_rows() -> None:
    logits, rows = mixed_rows(40, 12)
    half = logits.bfloat16()
    assert sample(half, rows) == sample(half.float(), rows)
    assert sample(torch.zeros(0, 40), []) == []
    with pytest.raises(ValueError, match=r"1 rows are wanted, the logits have shape \[2, 40\]"):
        sample(torch.zeros(2, 40), rows[:1])


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "min_p": 0.05, "repetition_penalty": 1.3},
        {"temperature": 1.6, "top_p": 0.6, "repetition_penalty": 0.8},
        {"temperature": 0.5, "top_k": 600},
    ],
)
def test_the_order_is_that_of_generate(settings: dict[str, Any]) -> None:
    """Tokens drawn from the scores that transformers leaves are those we draw from its raw logits."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=900, n_positions=64, n_embd=32, n_layer=1, n_head=2)
    model = transformers.GPT2LMHeadModel(config).eval()
    prompt = torch.randint(900, (1, 9))
    theirs = {"top_k": 0, "do_sample": True, "max_new_tokens": 5, "pad_token_id": 0, "eos_token_id": None}
    wanted = {"output_scores": True, "output_logits": True, "return_dict_in_generate": True}
    made = model.generate(prompt, **{**theirs, **settings}, **wanted)
    for step, (logits, scores) in enumerate(zip(made.logits, made.scores, strict=True)):
        seen = tuple(made.sequences[0, : 9 + step].tolist())
        rows = [row(seed, step, seen, **settings) for seed in range(200)]
        mass = scores[0].double().softmax(-1).cumsum(-1)
        u = torch.tensor([uniform(seed, step) for seed in range(200)], dtype=torch.float64)
        expected = torch.searchsorted(mass, u * mass[-1], right=True)
        assert tokens(logits.expand(200, -1), rows) == expected.tolist()
