"""README and docs promise only what is there: links, make targets, commands, names."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_named_files_exist(page: Path) -> None:
    """Paths in code spans that start with one of our folders."""
    spans = re.findall(r"`((?:codegen|compiler|ir|models|runtime|tests|docs|benchmarks)/[\w./-]*)`", page.read_text())
    assert [span for span in spans if not (ROOT / span).exists()] == []


def plain(text: str) -> list[str]:
    """Lines of IR without source lines, strides and value names, which other releases of torch choose otherwise."""
    text = re.sub(r"  loc\(.*|  ?strides\([^)]*\)", "", text)
    return [line.strip() for line in re.sub(r"%\w+", "%", text).splitlines()]


def test_before_and_after_are_what_the_compiler_writes(tmp_path: Path) -> None:
    from attnc.compiler.cli.app import run

    command = re.search(r"`attnc (compile .*) --dump-ir out`", README)
    assert command
    assert run([*command[1].split(), "--dump-ir", str(tmp_path / "out")]) == 0
    first, *_, last = sorted(tmp_path.glob("out/*/*.ir"))
    before, after = (plain(block) for block in re.findall(r"^```\n(%.*?)```", README, re.DOTALL | re.MULTILINE))
    assert [line for line in before if line not in (*plain(first.read_text()), "…")] == []
    assert "\n".join(after) in "\n".join(plain(last.read_text()))


def test_the_bench_block_can_be_filled() -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^<!-- bench -->\n.+^<!-- end of bench -->$", page, re.DOTALL | re.MULTILINE)) == 1


def test_make_targets_exist() -> None:
    named = set(re.findall(r"(?:`|^    )make ([a-z]+(?:-[a-z]+)*)", README, re.M))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert {"demo", "test"} <= named <= targets


def test_commands_exist() -> None:
    from attnc.compiler.cli.app import app

    named = set(re.findall(r"^    attnc ([a-z]+)|`attnc ([a-z]+)", README, re.M))
    registered = {c.name for c in app.registered_commands} | {g.name for g in app.registered_groups}
    assert {"".join(pair) for pair in named} <= registered


def test_python_is_python_and_names_exist() -> None:
    import attnc

    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "attnc":
                assert hasattr(attnc, node.attr), node.attr


def test_codes_exist() -> None:
    from attnc.compiler.codes import CODES

    named = set(re.findall(r"ATTNC-[A-Z-]+", README))
    assert named and named <= set(CODES)


def test_switches_exist() -> None:
    named = set(re.findall(r"ATTNC_[A-Z_]+", README))
    text = (ROOT / "compiler" / "options.py").read_text(encoding="utf-8")
    assert named and {name for name in named if name not in text} == set()
