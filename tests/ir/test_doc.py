"""docs/ir.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from attnc.ir import difference, parse_graph, print_graph, verify
from attnc.ir.opdoc import updated
from attnc.ir.types import DType

DOCUMENT = (Path(__file__).parents[2] / "docs" / "ir.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```attnc\n(.*?)```", DOCUMENT, re.DOTALL)


def test_op_tables_are_those_of_the_declarations() -> None:
    assert updated(DOCUMENT) == DOCUMENT, "run `python -m attnc.ir.opdoc docs/ir.md`"


def test_a_document_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the line"):
        updated("# Ops")


@pytest.mark.parametrize("text", EXAMPLES)
def test_examples_are_in_the_printers_form(text: str) -> None:
    graph = parse_graph(text)
    verify(graph)
    assert print_graph(graph) == text
    assert difference(graph, parse_graph(print_graph(graph))) is None


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 2


def test_dtypes_are_listed() -> None:
    assert f"dtypes: `{' '.join(dtype.value for dtype in DType)}`." in DOCUMENT


def test_rules_of_the_grammar_are_defined_and_used() -> None:
    grammar = re.search(r"```ebnf\n(.*?)```", DOCUMENT, re.DOTALL)
    assert grammar is not None
    text = re.sub(r"\(\*.*?\*\)|\"[^\"\n]*\"|'\"'", " ", grammar[1])
    defined = set(re.findall(r"^(\w+) +=", text, re.MULTILINE))
    used = set(re.findall(r"[a-z]+", text.replace("=", " ")))
    terminals = {"int", "float", "dtype", "formula", "newline", "text", "letter", "digit", "character", "escape"}
    assert used - defined == terminals
