"""The package list names every folder, and a wheel holds exactly the tree."""

from __future__ import annotations

import email
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("codegen", "compiler", "ir", "models", "runtime")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


def tree_packages() -> set[str]:
    """Every folder with an ``__init__.py``, by its import name."""
    found = {"attnc"}
    for folder in FOLDERS:
        for init in (ROOT / folder).rglob("__init__.py"):
            parts = init.parent.relative_to(ROOT).parts
            if parts[:2] != ("compiler", "_root"):
                found.add(".".join(("attnc", *parts)))
    return found


def tree_files() -> set[str]:
    """Every file of the five folders, by its path inside the wheel."""
    found = set()
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            parts = path.relative_to(ROOT).parts
            if path.is_file() and "__pycache__" not in parts:
                inside = parts[2:] if parts[:2] == ("compiler", "_root") else parts
                found.add("/".join(("attnc", *inside)))
    return found


def test_the_package_list_names_every_folder() -> None:
    listed = PROJECT["tool"]["setuptools"]["packages"]
    assert set(listed) == tree_packages()
    assert listed == sorted(listed)


def test_every_folder_with_a_source_is_a_package() -> None:
    sources = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    sources.remove(ROOT / "codegen" / "triton" / "kernels")  # package data: read as text
    assert [str(folder) for folder in sources if not (folder / "__init__.py").is_file()] == []


def test_constraints_pin_every_direct_dependency() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    extras = PROJECT["project"]["optional-dependencies"]
    direct = [*PROJECT["project"]["dependencies"], *extras["dev"], *extras["hf"], *extras["onnx"], *extras["bench"]]
    assert {requirement.split(";")[0].split(">")[0].strip() for requirement in direct} == pinned


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel built from a copy of the sources: setuptools would leave a build folder, whose stale files get packed."""
    copy = tmp_path_factory.mktemp("source")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=IGNORED)
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy / file)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('out'))"
    built = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return zipfile.ZipFile(copy / "out" / built.stdout.splitlines()[-1])


@pytest.mark.check
def test_a_wheel_holds_the_tree(wheel: zipfile.ZipFile) -> None:
    packed = {entry for entry in wheel.namelist() if ".dist-info/" not in entry}
    assert packed == tree_files()


@pytest.mark.check
def test_a_wheel_declares_the_project(wheel: zipfile.ZipFile) -> None:
    from attnc import __version__

    info = f"attnc-{__version__}.dist-info"
    entry_points = wheel.read(f"{info}/entry_points.txt").decode()
    assert "attnc = attnc.compiler.cli:main" in entry_points
    assert "attnc = attnc.compiler.backend:attnc_backend" in entry_points
    metadata = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata.get_all("Provides-Extra", [])) == {"onnx", "gpu", "hf", "gemma", "bench", "dev"}
