"""Random programs over positions, masks and data: what is lifted equals what is executed, element by element."""

from __future__ import annotations

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROWS, COLUMNS = 3, 5


def integers(t):
    return t.to(torch.int64)


def truths(t):
    return t.to(torch.bool)


UNARY = {
    "neg": lambda t, c: -integers(t),
    "abs": lambda t, c: integers(t).abs(),
    "plus": lambda t, c: integers(t) + c,
    "times": lambda t, c: integers(t) * c,
    "floor": lambda t, c: torch.div(integers(t), c or 2, rounding_mode="floor"),
    "trunc": lambda t, c: torch.div(integers(t), c or 2, rounding_mode="trunc"),
    "mod": lambda t, c: integers(t) % (c or 2),
    "fmod": lambda t, c: torch.fmod(integers(t), c or 2),
    "clamp": lambda t, c: integers(t).clamp(-1, abs(c)),
    "sign": lambda t, c: integers(t).sign(),
    "not": lambda t, c: ~truths(t),
    "at_most": lambda t, c: integers(t) <= c,
    "equals": lambda t, c: integers(t) == c,
    "gt_float": lambda t, c: integers(t).clamp(-99, 99).double() > c + 0.5,
    "fill": lambda t, c: integers(t).masked_fill(truths(t), c),
    "flip": lambda t, c: t.flip(-1),
    "roll": lambda t, c: t.roll(c, -1),
    "tril": lambda t, c: integers(t).tril(c),
    "triu": lambda t, c: truths(t).triu(c),
    "cumsum": lambda t, c: (truths(t)).cumsum(-1),
    "diff": lambda t, c: torch.diff(integers(t), dim=-1, prepend=integers(t)[:, :1] - c),
    "shift": lambda t, c: torch.cat([t[:, 1:], t[:, :1]], 1),
    "slice": lambda t, c: torch.cat([t, t], 1)[:, 1 : 1 + t.shape[1]],
    "pad": lambda t, c: torch.constant_pad_nd(integers(t), (1, -1), c),
    "reshape": lambda t, c: t.reshape(t.shape[1], t.shape[0]).t(),
    "transpose": lambda t, c: t.t().reshape(t.shape[0], t.shape[1]),
    "repeat": lambda t, c: t.repeat(2, 1)[1 : 1 + t.shape[0]],
    "select": lambda t, c: t[:, -1:].expand(t.shape[0], t.shape[1]),
    "gather": lambda t, c: t.gather(1, integers(t).clamp(0, t.shape[1] - 1)),
    "index": lambda t, c: t[:, torch.arange(t.shape[1]) // (abs(c) + 1)],
    "negative_index": lambda t, c: t[:, (integers(t)[0] - 1).clamp(-t.shape[1], t.shape[1] - 1)],
    "narrow_write": lambda t, c: torch.slice_scatter(integers(t), integers(t)[:, 1:], 1, 0, t.shape[1] - 1),
    "row_write": lambda t, c: torch.select_scatter(integers(t), integers(t)[0] + c, 0, -1),
}
BINARY = {
    "add": lambda a, b: integers(a) + integers(b),
    "sub": lambda a, b: integers(a) - integers(b),
    "mul": lambda a, b: integers(a) * integers(b),
    "min": lambda a, b: torch.minimum(integers(a), integers(b)),
    "max": lambda a, b: torch.maximum(integers(a), integers(b)),
    "le": lambda a, b: integers(a) <= integers(b),
    "ne": lambda a, b: integers(a) != integers(b),
    "eq": lambda a, b: truths(a) == truths(b),
    "and": lambda a, b: truths(a) & truths(b),
    "or": lambda a, b: truths(a) | truths(b),
    "xor": lambda a, b: truths(a) ^ truths(b),
    "where": lambda a, b: torch.where(truths(a), integers(b), integers(a)),
    "cat": lambda a, b: torch.cat([integers(a), integers(b)], 0)[1 : 1 + a.shape[0]],
    "stack": lambda a, b: torch.stack([integers(a), integers(b)], 1).reshape(-1, a.shape[1])[: a.shape[0]],
}
STEPS = st.one_of(
    st.tuples(st.sampled_from(sorted(UNARY)), st.integers(0, 30), st.integers(-3, 3)),
    st.tuples(st.sampled_from(sorted(BINARY)), st.integers(0, 30), st.integers(0, 30)),
)
"""Name, which earlier result, and the constant or the other result."""
FINISH = {
    "as it is": lambda t: t,
    "mask": truths,
    "additive": lambda t: torch.where(truths(t), 0.0, torch.finfo(torch.float32).min),
    "half": lambda t: (1.0 - truths(t).to(torch.bfloat16)) * torch.finfo(torch.bfloat16).min,
    "infinite": lambda t: torch.zeros(t.shape).masked_fill(truths(t), float("-inf")),
}


def program(steps, finish):
    """The tensor program: every step reads earlier results."""

    def run(data):
        shape = data.shape
        pool = [
            torch.arange(shape[0])[:, None].expand(shape),
            torch.arange(shape[1])[None].expand(shape),
            data,
            data > 0,
        ]
        for name, first, second in steps:
            left = pool[-1 - first % len(pool)]
            if name in UNARY:
                pool.append(UNARY[name](left, second))
            else:
                pool.append(BINARY[name](left, pool[-1 - second % len(pool)]))
        return FINISH[finish](pool[-1])

    return run


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    steps=st.lists(STEPS, min_size=1, max_size=6),
    finish=st.sampled_from(sorted(FINISH)),
    data=st.lists(st.integers(-3, 6), min_size=ROWS * COLUMNS, max_size=ROWS * COLUMNS),
    symbolic=st.booleans(),
)
def test_lifted_programs_equal_execution(lift, steps, finish, data, symbolic):
    lifted = lift(program(steps, finish), torch.tensor(data).reshape(ROWS, COLUMNS), symbolic=symbolic)
    lifted.check()
