"""Text that isn't IR: one error, at the right place, saying what was expected."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from attnc.ir import ParseError, difference, parse_graph, print_graph, verify

GOOD = """graph @f(%x: f32[B, S], %n: int<S>) sizes(B in [1, 8], S in [2, inf]) {
  %y: f32[B, S] = aten.add.Tensor(%x, 1.0, alpha=2)  loc("model.py":12 "y = x + 1" in "layers.0")
  return %y
}
"""

ATTENTION = """graph @attend(
    %q: f32[B, 4, S, 16],
    %k: f32[B, 4, S, 16],
    %v: f32[B, 4, S, 16],
    %pad: i64[B, S],
    %n: int<S>
  ) sizes(B in [1, 64], S in [2, inf]) {
  %o: f32[B, 4, S, 16] = attn.attention(%q, %k, %v, [%pad], [%n]) {
    q = [b, h, q, d], k = [b, h, k, d], v = [b, h, k, e], out = [b, h, q, e]
    sizes = [S]
    qk = f32
    score = where((k <= q) & (t0[b, k] != 0), qk * 0.25, -1e9)
    visible = qk * 0.25
    mask = (k <= q) & (t0[b, k] != 0)
    fill = finite(-1e9)
    softmax = plain f32
    out_dtype = f32
  }
  return %o
}
"""


def body(line: str) -> str:
    return f"graph @f(%x: f32[S]) sizes(S in [1, inf]) {{\n  {line}\n  return\n}}\n"


def fails(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_graph(text, source="case.ir")
    return caught.value


def test_good_text_reads_verifies_and_prints_the_same() -> None:
    graph = parse_graph(GOOD)
    verify(graph)
    assert print_graph(graph) == GOOD


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("", 1, 1, "expected 'graph'"),
        ("graph f() {}", 1, 7, "expected the graph's @name"),
        ("graph @f() {\n}", 2, 1, "expected an op or return"),
        ("graph @f() { return }\nx", 2, 1, "expected the end of the text"),
        ("graph @f(%x f32[]) { return }", 1, 13, "expected ':' and a type after %x"),
        ("graph @f(%x: f32[], %x: f32[]) { return }", 1, 21, "%x is defined twice"),
        ("graph @f() sizes(S in [1, 2], S in [1, 2]) { return }", 1, 31, "size 'S' is declared twice"),
        ("graph @f() sizes(S in [a, 2]) { return }", 1, 24, "expected the lower bound"),
        (body("%y: f33[S] = aten.relu.default(%x)"), 2, 7, "expected a type"),
        (body("%y: f32[S = aten.relu.default(%x)"), 2, 13, r"expected ',' or ']' in a shape; found ="),
        (body("%y: f32[S] = aten.relu.default(%z)"), 2, 34, "%z is not defined above this line"),
        (body("%x: f32[S] = aten.relu.default(%x)"), 2, 3, "%x is defined twice"),
        (body("%y: f32[S], %y: f32[S] = aten.f.x(%x)"), 2, 15, "%y is defined twice"),
        (body("%y: f32[S] = relu(%x)"), 2, 16, "'relu' is not an op name"),
        (body("%y: f32[S] = aten.f.x(dim=1, %x)"), 2, 32, "a positional argument cannot follow"),
        (body("%y: f32[S] = aten.f.x(dim=1, dim=2)"), 2, 32, "dim is given twice"),
        (body("%y: f32[S] = aten.f.x(%x, ?)"), 2, 29, "character '?'"),
        (body('%y: f32[S] = aten.f.x(%x, "open)'), 2, 29, "unterminated string"),
        (body('%y: f32[S] = aten.f.x(%x, "\\q")'), 2, 29, "bad escape"),
        (body("%y: f32[S] = aten.f.x(%x, -)"), 2, 30, "expected a number"),
        (body("%y: f32[S] = aten.f.x(%x, [1, 2)"), 2, 34, "expected ',' or ']'"),
        (body("%y: f32[S] = aten.f.x(%x) loc(3)"), 2, 33, "expected a quoted file name"),
        (body("%y: f32[S] on cuda = aten.f.x(%x)"), 2, 17, "expected a quoted device"),
        (body("%y: f32[S] atoms([B.c]) = aten.f.x(%x)"), 2, 21, "not a plain name"),
        (body("constant @w: f32[2] = [1.0]"), 2, 23, "the numbers don't fit f32[2]"),
        (body("constant @w = [1.0]"), 2, 15, "needs a tensor type"),
        (body("constant @w\n constant @w"), 3, 11, "constant @w is declared twice"),
        (body('constant @w: f32[2]\n %w: f32[3] = ir.constant() {name = "w"}'), 2, 12, "but read as f32[3]"),
        (
            body("aten.f.x() regions { a: graph @g() { return } a: graph @g() { return } }"),
            2,
            49,
            "region 'a' is given twice",
        ),
    ],
)
def test_error_place_and_message(text: str, line: int, column: int, message: str) -> None:
    error = fails(text)
    assert message in str(error)
    assert (error.line, error.column) == (line, column)


def test_message_names_the_source_and_points_at_the_place() -> None:
    error = fails(body("%y: f32[S = aten.relu.default(%x)"))
    assert str(error).split("\n") == [
        "reading IR from case.ir, line 2, column 13: expected ',' or ']' in a shape; found =",
        "    %y: f32[S = aten.relu.default(%x)",
        "              ^",
    ]


@pytest.mark.parametrize("text", [GOOD, ATTENTION])
def test_truncated_anywhere(text: str) -> None:
    for stop in range(0, len(text.rstrip()), 7):
        fails(text[:stop])


@pytest.mark.parametrize("text", [GOOD, ATTENTION])
def test_damaged_text_gives_a_graph_or_a_parse_error(text: str) -> None:
    generator = random.Random(0)
    alphabet = sorted(set(text) | set("0.é\\\0"))
    for _ in range(100):
        damaged = list(text)
        for _ in range(generator.randint(1, 3)):
            place = generator.randrange(len(damaged))
            damaged[place : place + generator.randint(0, 2)] = generator.choice(alphabet)
        with contextlib.suppress(ParseError):
            parse_graph("".join(damaged))


@pytest.mark.parametrize(
    ("argument", "message"), [("[" * 5000, "nested too deeply"), ("9" * 5000, "a number of more than 4000 digits")]
)
def test_absurd_text_is_refused(argument: str, message: str) -> None:
    assert message in str(fails(body(f"aten.f.x({argument})")))


def test_comments_and_layout_do_not_matter() -> None:
    loose = GOOD.replace(" {\n", "\n\n{ # the body\n").replace(", ", " ,\n\t")
    assert difference(parse_graph(GOOD), parse_graph(loose)) is None


def test_attention_reads_verifies_and_prints_the_same() -> None:
    graph = parse_graph(ATTENTION)
    verify(graph)
    assert difference(graph, parse_graph(print_graph(graph))) is None
    assert "mask = (k <= q) & (t0[b, k] != 0)" in print_graph(graph)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("    fill = finite(-1e9)\n", "", "the attention lacks fill"),
        ("fill = finite(-1e9)", "fill = finite(abc)", "fill must be minus_inf or finite(number)"),
        ("fill = finite(-1e9)", "fill =\n", "expected the value of fill on this line"),
        ("fill = finite(-1e9)", "fill = minus_inf\n fill = minus_inf", "fill is given twice"),
        ("sizes = [S]", "size = [S]", "unknown attribute 'size'"),
        ("sizes = [S]", "sizes = S", "sizes must be a list of names"),
        ("qk = f32", "qk = f33", "'f33' is not a dtype in qk"),
        ("qk * 0.25\n", "qk * (0.25\n", "the visible formula doesn't read"),
        ("mask = (k <= q)", "mask = (j <= q)", "the mask formula doesn't read"),
        ("out_dtype = f32", "out_dtype = f32\n lse = maybe", "lse must be True or False"),
    ],
)
def test_attention_errors(old: str, new: str, message: str) -> None:
    assert old in ATTENTION
    assert message in str(fails(ATTENTION.replace(old, new, 1)))


def test_payloads_of_declared_constants_are_bound() -> None:
    text = body('constant @w: f32[2]\n %w: f32[2] = ir.constant() {name = "w"}')
    payload = object()
    assert parse_graph(text).constants == {"w": None}
    assert parse_graph(text, constants={"w": payload}).constants == {"w": payload}


def test_small_arrays_are_in_the_text() -> None:
    graph = parse_graph(body("constant @w: f16[2, 2] = [0.1, inf, nan, -0.0]"))
    expected = np.array([[0.1, np.inf], [np.nan, -0.0]], np.float16)
    np.testing.assert_array_equal(graph.constants["w"], expected)
    assert "constant @w: f16[2, 2] = [0.1, inf, nan, -0.0]" in print_graph(graph)
