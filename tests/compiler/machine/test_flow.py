from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from attnc.compiler.machine.flow import Block, Instruction, Program, blocks, loops, main_loop

SIZES = st.integers(1, 9)
GRAPHS = SIZES.flatmap(lambda n: st.lists(st.lists(st.integers(0, n - 1), max_size=2), min_size=n, max_size=n))


@given(GRAPHS)
def test_loops_are_those_of_dominators(graph: list[list[int]]) -> None:
    """Against the textbook: an edge to a dominator of its tail, and what reaches the tail without the header."""
    flow = [Block(at, at + 1, tuple(dict.fromkeys(after))) for at, after in enumerate(graph)]
    assert set(loops(flow)) == set(natural_loops(graph))


def natural_loops(graph: list[list[int]]) -> list[frozenset[int]]:
    whole = nx.DiGraph((u, v) for u, after in enumerate(graph) for v in after)
    whole.add_node(0)
    live = whole.subgraph(nx.descendants(whole, 0) | {0})
    parents = nx.immediate_dominators(live, 0)
    found: dict[int, set[int]] = {}
    for tail, header in live.edges:
        if header in dominators(parents, tail):
            cut = nx.DiGraph(live.subgraph(set(live) - {header}))
            inside = nx.ancestors(cut, tail) | {tail} if tail != header else set()
            found.setdefault(header, {header}).update(inside)
    return [frozenset(loop) for loop in found.values()]


def dominators(parents: dict[int, int | None], node: int) -> set[int]:
    chain = {node}
    while node != 0:
        node = parents[node] or 0
        chain.add(node)
    return chain


def op(name: str, *targets: str, falls: bool = True) -> Instruction:
    return Instruction(name, targets=targets, falls=falls)


def test_blocks_end_at_jumps_and_begin_at_labels() -> None:
    code = (op("a"), op("jump", "two"), op("b"), op("end", falls=False), op("dead"), op("c"), op("end", falls=False))
    program = Program(code, {"two": 5, "unknown": 7})
    assert blocks(program) == (Block(0, 2, (3, 1)), Block(2, 4, ()), Block(4, 5, (3,)), Block(5, 7, ()))


def test_no_code_has_no_blocks() -> None:
    assert blocks(Program((), {})) == ()
    assert main_loop(Program((), {}), ("MM",)) == ()


def loop(*names: str, label: str) -> list[Instruction]:
    return [*(op(name) for name in names), op("jump", label)]


def program(*parts: tuple[str, list[Instruction]]) -> Program:
    """Parts one after the other, each with a label at its start."""
    code: list[Instruction] = []
    labels = {}
    for label, part in parts:
        labels[label] = len(code)
        code += part
    return Program((*code, op("end", falls=False)), labels)


def names(code: tuple[Instruction, ...]) -> list[str]:
    return [one.name for one in code]


def test_of_two_equal_loops_the_main_one_is_the_shorter() -> None:
    masked = loop("MM", "select", "MM", label="masked")
    plain = loop("MM", "MM", "add", label="plain")[1:]
    both = program(("masked", masked), ("plain", [op("MM"), *plain]), ("tail", [op("MM")] * 9))
    assert names(main_loop(both, ("MM",))) == ["MM", "select", "MM", "jump"]
    longer = program(("masked", [op("compare"), *masked]), ("plain", [op("MM"), *plain]))
    assert names(main_loop(longer, ("MM",))) == ["MM", "MM", "add", "jump"]


def test_the_loop_with_most_products_wins_however_long() -> None:
    few = loop("MM", label="few")
    many = loop("MM", "MM", *["add"] * 20, label="many")
    assert names(main_loop(program(("few", few), ("many", many)), ("MM",))).count("MM") == 2


def test_an_outer_loop_is_not_the_main_one() -> None:
    """It has more products than the loop in it, and a spin loop without any is no inner loop either."""
    inner = [op("MM"), op("try"), op("jump", "spin"), op("jump", "inner")]
    nested = program(
        ("outer", [op("MM"), op("load")]), ("inner", inner[:1]), ("spin", inner[1:]), ("rest", loop(label="outer"))
    )
    assert names(main_loop(nested, ("MM",))) == ["MM", "try", "jump", "jump"]


def test_without_products_the_longest_loop_and_without_loops_all() -> None:
    two = program(("a", loop("x", label="a")), ("b", loop("y", "z", label="b")))
    assert names(main_loop(two, ("MM",))) == ["y", "z", "jump"]
    assert names(main_loop(program(("a", [op("x"), op("MM")])), ("MM",))) == ["x", "MM", "end"]
