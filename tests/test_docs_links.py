"""Links in the documents lead somewhere: to a file, to a heading of a page, to a symbol that a source defines.

``page.md#a-heading`` names a heading as GitHub spells it, ``file.py#Name`` a function, a class or an assignment at top
level, ``file.h#Name`` a type or a function. Links to the web are not followed.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
CONCEPTS = ROOT / "docs" / "concepts.md"
HISTORY = """
attention; self-attention; cross-attention; query, key, value; attention matrix; scaled dot product; multi-head;
sinusoidal positions; learned positions; relative positions; rotary positions; longer contexts; ALiBi;
causal mask; padding mask; prefix mask; packed documents; sliding window; strided sparse; block sparse; global tokens;
tokens and embeddings; transformer block; residual connections; layer norm; RMS norm; pre-norm; post-norm;
feed-forward network; ReLU; GELU; SiLU; GeGLU; SwiGLU;
encoder-only; decoder-only; encoder-decoder; autoregressive; bidirectional; vision; speech; image and text;
tiling; online softmax; recomputation; IO-awareness; work partition; asynchrony; low precision;
multi-query; grouped-query; latent attention; KV cache; paging; continuous batching; quantised keys and values;
softcap; QK norm; attention sinks; talking heads; differential attention
"""
"""What the page of concepts has a row for, by the bold name the row starts with."""
FUNCTION = r"^ {0,2}\w[^;{}=]*\b(\w+)\([^;{}]*\)\s*(?:const\s*)?\{"
"""A definition in C++, at top level or in a type at top level."""


def prose(text: str) -> str:
    """A page without its fenced code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def links(text: str) -> list[str]:
    """Targets of inline links, in order."""
    return re.findall(r"\]\(([^()\s]+)\)", prose(text))


def problem(page: Path, link: str) -> str:
    """Why a link of ``page`` leads nowhere; empty where it leads somewhere or to the web."""
    if "://" in link:
        return ""
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return "no such file"
    return "" if not anchor or anchor in anchors(target) else "no such anchor"


@functools.cache
def anchors(target: Path) -> set[str]:
    """What may follow ``#`` in a link to this file."""
    if target.is_dir():
        return set()
    text = target.read_text(encoding="utf-8")
    match target.suffix:
        case ".md":
            return set(headings(text))
        case ".py":
            return set(symbols(ast.parse(text)))
        case ".h" | ".cpp":
            types = re.findall(r"^(?:struct|enum|class|union) (\w+)", text, re.MULTILINE)
            return {*types, *re.findall(FUNCTION, text, re.MULTILINE)}
    return set()


def headings(text: str) -> Iterator[str]:
    """Anchors of headings as GitHub makes them; the second of a name ends in -1."""
    seen: dict[str, int] = {}
    for title in re.findall(r"^#{1,6} +(.+?) *$", prose(text), re.MULTILINE):
        plain = re.sub(r"\]\([^)]*\)", "", title)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        yield f"{slug}-{count}" if count else slug


def symbols(module: ast.Module) -> Iterator[str]:
    """Names a module defines at top level, imports apart."""
    for node in module.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Assign(targets=targets):
                yield from (n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def dead(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [f"{link}: {why}" for link in links(text) if (why := problem(page, link))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_link_is_dead(page: Path) -> None:
    assert dead(page) == []


def test_the_pages_have_links() -> None:
    assert len(links(CONCEPTS.read_text(encoding="utf-8"))) > 100


SOURCE = """
import os
A, B = 1, 2
C: int = 3
async def f(): ...
class K:
    inner = 1
"""
HEADER = """
template <class P>
struct Flash {
  void item(int i) const {
    called(i);
    if (looped(i)) { i++; }
  }
  inline __attribute__((noinline)) void row(Tile& t,
                                            Range keys) {
  }
};
int64_t other;
void declared(int i);
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "code.py").write_text(SOURCE)
    (tmp_path / "code.h").write_text(HEADER)
    (tmp_path / "other.md").write_text("# One\n## `Two` & [three](x)\n```\n# Not one\n```\n## One\n")
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    "link",
    [
        *(
            "code.py",
            "code.py#A",
            "code.py#B",
            "code.py#C",
            "code.py#f",
            "code.py#K",
            "code.h#Flash",
            "code.h#item",
            "code.h#row",
        ),
        *("other.md#one", "other.md#two--three", "other.md#one-1", "#here", ".", "https://example.org/none#x"),
    ],
)
def test_a_good_link_is_taken(page: Path, link: str) -> None:
    page.write_text(f"# Here\n[x]({link}), [`y`](code.py).\n")
    assert dead(page) == []


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ("none.py", "file"),
        ("none.md#one", "file"),
        ("../page.md", "file"),
        ("code.py#os", "anchor"),
        ("code.py#inner", "anchor"),
        ("code.py#a", "anchor"),
        ("code.h#other", "anchor"),
        ("code.h#called", "anchor"),
        ("code.h#looped", "anchor"),
        ("code.h#declared", "anchor"),
        ("code.h#Flas", "anchor"),
        ("other.md#One", "anchor"),
        ("other.md#not-one", "anchor"),
        ("other.md#one-2", "anchor"),
        ("#there", "anchor"),
        (".#x", "anchor"),
    ],
)
def test_a_dead_link_is_found(page: Path, link: str, why: str) -> None:
    page.write_text(f"# Here\n[x](code.py) and [`y`]({link})\n```\n[z](code-in-a-fence)\n```\n")
    assert dead(page) == [f"{link}: no such {why}"]


def rows() -> list[list[str]]:
    """The cells of every table row of the page of concepts, headings and rules apart."""
    lines = [line for line in CONCEPTS.read_text(encoding="utf-8").splitlines() if line.startswith("| **")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_concept_of_the_history_has_a_row() -> None:
    names = [name for row in rows() for name in re.findall(r"\*\*(.+?)\.\*\*", row[0])]
    wanted = [" ".join(name.split()) for name in HISTORY.split(";")]
    assert [name for name in wanted if name not in names] == []
    assert len(names) == len(set(names)), "a concept has two rows"


def test_a_row_is_whole_and_links_or_says_why_not() -> None:
    """Five cells; each of the last four has a link, or says that it is planned, or that there is nothing to name."""
    assert [row[0] for row in rows() if len(row) != 5] == []
    bare = {cell for row in rows() for cell in row[1:] if not links(cell)}
    assert {cell for cell in bare if cell not in ("–", "every model") and not cell.startswith("planned")} == set()
