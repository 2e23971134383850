"""The import rules of the layers, read from the sources: nothing is imported but where a test says so."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("codegen", "compiler", "ir", "models", "runtime")
STDLIB = frozenset(sys.stdlib_module_names)

ALLOWED = {
    "ir": {"attnc.ir", "islpy", "networkx", "numpy", "sympy"},
    "codegen": {"attnc.codegen", "attnc.ir", "sympy"},
    "runtime": {
        "attnc.codegen.paged_plan",
        "attnc.codegen.plan",
        "attnc.codegen.source",
        "attnc.runtime",
        "numpy",
        "onnxruntime",
        "torch",
        "triton",
    },
    "models": {"attnc.models", "numpy", "safetensors", "tokenizers", "torch"},
}
"""Per layer what it may import beside the standard library, by prefix. ``compiler`` composes and may import all."""

PURE = {
    "codegen/__init__.py": {"attnc.codegen.plan", "attnc.codegen.source"},
    "codegen/paged_plan.py": {"attnc.codegen.plan"},
    "codegen/plan.py": set(),
    "codegen/source.py": {"attnc.codegen.plan"},
}
"""Files the runtime loads: the standard library and each other, so that it loads without sympy and islpy."""

ENVIRONMENT = {
    "compiler/options.py": "the list of switches, with type, default and text",
    "runtime/config.py": "a process that replays a compiled graph has no compiler to hand it settings",
}
"""Files that may read the environment, and why."""


TEMPLATES = ROOT / "codegen" / "triton" / "kernels"
"""Read as text by the Triton emitter, never imported: they end up in modules that stand alone."""


def sources(*layers: str) -> list[Path]:
    found = (path for layer in layers for path in (ROOT / layer).rglob("*.py"))
    return sorted(path for path in found if path.parent != TEMPLATES)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def is_module(dotted: str) -> bool:
    """Whether ``attnc.a.b`` is a file or folder of this tree."""
    path = ROOT.joinpath(*dotted.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").is_file()


def imports(module: ast.Module) -> Iterator[str]:
    """Every absolute module imported anywhere in the file; ``from p import m`` names p.m where that is a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if node.module.split(".")[0] == "attnc" and is_module(inner) else node.module


def within(dotted: str, prefixes: set[str]) -> bool:
    return any(dotted == prefix or dotted.startswith(prefix + ".") for prefix in prefixes)


def foreign(path: Path, allowed: set[str]) -> list[str]:
    """Imports of the file that are neither of the standard library nor allowed."""
    return sorted({i for i in imports(tree(path)) if i.split(".")[0] not in STDLIB and not within(i, allowed)})


@pytest.mark.parametrize("layer", sorted(ALLOWED))
def test_a_layer_imports_only_what_it_may(layer: str) -> None:
    assert sources(layer)
    found = {name(path): foreign(path, ALLOWED[layer]) for path in sources(layer)}
    assert {path: bad for path, bad in found.items() if bad} == {}


def test_kernel_templates_need_torch_and_triton_only() -> None:
    templates = sorted(TEMPLATES.glob("*.py"))
    assert templates
    assert {name(path): bad for path in templates if (bad := foreign(path, {"numpy", "torch", "triton"}))} == {}
    assert [name(path) for path in templates if not ast.get_docstring(tree(path))] == []


@pytest.mark.parametrize("path", sorted(PURE))
def test_plan_files_need_the_standard_library_only(path: str) -> None:
    assert foreign(ROOT / path, PURE[path]) == []


def test_only_the_command_line_reaches_the_models() -> None:
    users = [name(p) for p in sources("compiler") if any(within(i, {"attnc.models"}) for i in imports(tree(p)))]
    assert [user for user in users if not user.startswith("compiler/cli/")] == []


def test_folders_are_imported_through_the_package() -> None:
    """``import ir`` works from the root and makes a second copy of every class."""
    everywhere = sources(*LAYERS, "tests", "benchmarks")
    bad = {name(p): [i for i in imports(tree(p)) if i.split(".")[0] in LAYERS] for p in everywhere}
    assert {path: found for path, found in bad.items() if found} == {}


def test_imports_are_absolute_and_named() -> None:
    bad = []
    for path in sources(*LAYERS):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.level or any(alias.name == "*" for alias in node.names)):
                bad.append(f"{name(path)}:{node.lineno}")
    assert bad == []


def test_the_environment_is_read_in_listed_files_only() -> None:
    readers = {name(p) for p in sources(*LAYERS) if reads_environment(tree(p))}
    assert readers <= set(ENVIRONMENT)


def reads_environment(module: ast.Module) -> bool:
    words = {"environ", "environb", "getenv", "putenv"}
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute) and node.attr in words:
            return True
        if isinstance(node, ast.ImportFrom) and node.module == "os" and words & {alias.name for alias in node.names}:
            return True
    return False


def test_every_source_says_why_it_exists() -> None:
    assert [name(p) for p in sources(*LAYERS, "benchmarks") if not ast.get_docstring(tree(p))] == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("attnc", ["attnc.compiler", "attnc.ir", "torch", "sympy"]),
        ("attnc.ir", ["attnc.compiler", "attnc.codegen", "torch", "triton"]),
        ("attnc.codegen", ["attnc.compiler", "attnc.ir", "torch", "sympy", "islpy"]),
        ("attnc.codegen.emit", ["attnc.compiler", "attnc.ir", "torch", "triton"]),
        ("attnc.codegen.plan", ["attnc.compiler", "attnc.ir", "torch", "sympy", "islpy"]),
        ("attnc.runtime", ["attnc.compiler", "attnc.ir", "sympy", "islpy", "networkx"]),
        ("attnc.runtime.kernels", ["attnc.compiler", "attnc.ir", "sympy", "islpy", "networkx"]),
        ("attnc.models.minilm", ["attnc.compiler", "attnc.ir", "transformers", "sympy"]),
        ("attnc.compiler.cli", ["torch", "sympy", "transformers"]),
    ],
)
def test_importing_loads_no_more_than(module: str, absent: list[str]) -> None:
    code = f"import sys, {module}; print(*sorted(set({absent!r}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.split() == []
